"""Fail where a page of the built site loads anything from another host: `python -m docs.generate.check_offline DIR`."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "link": "href"}
_FOREIGN = re.compile(r"(https?:)?//")
_IN_STYLE = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)")


class _Loaded(HTMLParser):
    """Collects the addresses that a page loads. An ordinary link is not loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(_LOADED.get(tag, ""))
        if address and _FOREIGN.match(address):
            self.addresses.append(address)


def foreign_addresses(site: Path) -> list[str]:
    """Every `page: address` that a page or a style sheet of the site loads from another host."""
    found = []
    for page in sorted(site.rglob("*.html")):
        parser = _Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        found += [f"{page}: {address}" for address in parser.addresses]
    for sheet in sorted(site.rglob("*.css")):
        found += [f"{sheet}: {address}" for address in _IN_STYLE.findall(sheet.read_text(encoding="utf-8"))]
    return found


if __name__ == "__main__":
    if found := foreign_addresses(Path(sys.argv[1])):
        sys.exit("the site loads from other hosts:\n" + "\n".join(found))
