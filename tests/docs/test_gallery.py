"""The gallery and the front page: their code runs as it is shown, prints what they say, and draws their pictures."""

import re

import pytest

from docs.generate.gallery import CODE, GALLERY, pages, run_page
from tests.docs.examples import DOCS, assert_says

PAGES = pages()


def test_the_gallery_lists_every_page_with_its_picture():
    assert sorted(PAGES) == sorted(page.stem for page in GALLERY.glob("*.md") if page.stem != "index")
    assert sorted(PAGES) == sorted(picture.stem for picture in (GALLERY / "pictures").iterdir())
    shown = re.findall(r":img-bottom: pictures/([a-z-]+)\.svg", (GALLERY / "index.md").read_text("utf-8"))
    assert shown == PAGES
    assert len(PAGES) >= 12


@pytest.mark.more
@pytest.mark.parametrize("page", [*(f"gallery/{name}" for name in PAGES), "index"])
def test_a_page_prints_what_it_says_and_draws_its_picture(page, tmp_path):
    text = (DOCS / f"{page}.md").read_text("utf-8")
    ((_, _, said),) = CODE.findall(text)
    assert_says(run_page(text, tmp_path), said)
    if page != "index":
        drawn = (tmp_path / f"{page.removeprefix('gallery/')}.svg").read_text("utf-8")
        assert "<svg" in drawn
        assert re.search(r"<(circle|polyline)", drawn)
