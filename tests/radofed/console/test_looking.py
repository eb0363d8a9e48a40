"""What is wrong with a page is found, at the width at which it shows."""

import pytest

from tests.radofed.console.looking import check_page

PAGE = "<html lang=en><title>a page</title><main><h1>A page</h1>{}</main>"
NARROW_ONLY = "<style>@media (min-width: 40rem) {{ img {{ display: none }} }}</style><img src=data:,>"


@pytest.fixture
def page(browser):
    with browser.new_context() as context:
        yield context.new_page()


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("<p style='color: #bbb; background: #fff'>pale</p>", "color-contrast"),
        ("<img src=data:,>", "image-alt"),
        (NARROW_ONLY.format(), "image-alt"),
        ("<input>", "label"),
    ],
)
def test_a_violation_is_found(page, body, rule):
    page.set_content(PAGE.format(body))
    with pytest.raises(AssertionError, match=rule):
        check_page(page)


def test_a_page_that_is_wider_than_the_window_is_found(page):
    page.set_content(PAGE.format("<p style='width: 500px'>wide</p>"))
    with pytest.raises(AssertionError):
        check_page(page)


def test_a_part_that_scrolls_sideways_on_a_narrow_screen_is_found(page):
    page.set_content(PAGE.format("<div style='overflow-x: auto' tabindex=0><p style='width: 500px'>wide</p></div>"))
    with pytest.raises(AssertionError, match="wide"):
        check_page(page)


def test_a_sound_page_passes(page):
    page.set_content(PAGE.format("<p>A sentence.</p>"))
    check_page(page)
