"""Pages that `rado` writes, as tests look at them: well formed, without scripts, loading nothing."""

import itertools
import re
from html.parser import HTMLParser

VOID = {"meta", "path", "rect", "circle", "polyline", "br"}


class Page(HTMLParser):
    """What of a page these tests look at. Fails if an element is closed that is not the last open one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.inside: dict[str, str] = {}
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text.append(data)

    def named(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


def check_that_it_loads_nothing(text: str) -> None:
    """No script, nothing from elsewhere, and a policy that refuses both."""
    page = Page(text)
    names = {name for name, _ in page.elements}
    assert not names & {"script", "link", "img", "iframe", "object", "embed", "form", "base", "image", "use"}
    for name, attributes in page.elements:
        assert not [key for key in attributes if key.startswith("on")], name
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    (policy,) = [meta["content"] for meta in page.named("meta") if "http-equiv" in meta]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert not re.search(r"url\((?!#)|@import|https?:", text)


def check_that_it_can_be_followed(text: str) -> Page:
    """Headings, tables and pictures have the names and order that a screen reader needs."""
    page = Page(text)
    assert page.named("html") == [{"lang": "en"}]
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert len(page.named("table")) == len(page.named("caption"))
    assert all(heading.get("scope") in {"row", "col"} for heading in page.named("th"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {link["href"][1:] for link in page.named("a")} <= set(ids)
    pictures = page.named("svg")
    assert len(pictures) == len(page.named("desc"))
    for picture in pictures:
        assert picture["role"] == "img"
        assert set(picture["aria-labelledby"].split()) <= set(ids)
    return page
