"""Consoles in processes of their own, and forms in their pages."""

from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from tests.federation.processes import Forked, run_rado
from tests.radofed.console.serving import LINK, Caller
from tests.waiting import wait_until

_VOID = {"meta", "link", "input", "line", "polyline", "circle", "br"}


@dataclass(frozen=True)
class Opening:
    """How a browser opens a console, and the path below which its pages are: as of `radofed.console.app.Access`."""

    link: str

    @property
    def root(self) -> str:
        return "/" + self.link.split("/")[3]


@contextmanager
def console(config: Path, log: Path):
    """A console of a node in a process, until the block ends. Yields how to open it."""
    process = Forked(run_rado, ("console", "--config", str(config)), log)
    try:
        yield Opening(wait_until(lambda: log.exists() and LINK.search(log.read_text()), what="the link")[0])
    finally:
        process.kill()


def fill(page, fields: dict[str, str]) -> None:
    """Fill fields by their names, also those that are folded away."""
    for closed in page.query_selector_all("details:not([open]) > summary"):
        closed.click()
    for name, text in fields.items():
        page.fill(f"#{name}", text)


class Sent(HTMLParser):
    """A page as a console sent it, for tests of its words and fields. What needs a browser is tested in one.

    values: of the fields of its forms that are posted, by name, before anyone changes them.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self._open: list[tuple[str, dict]] = []
        # What is inside each element, with its text.
        self._found: list[tuple[list[tuple[str, dict]], str]] = []
        self._elements: list[tuple[list[tuple[str, dict]], str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self._elements.append(([*self._open], tag))
        is_left_out = known.get("type") == "checkbox" and "checked" not in known
        if self._is_posted and tag in {"input", "textarea"} and not is_left_out:
            self.values[known["name"]] = known.get("value") or ""
        if tag not in _VOID:
            self._open.append((tag, known))

    def handle_endtag(self, tag):
        if tag not in _VOID:
            assert self._open.pop()[0] == tag

    def handle_data(self, data):
        self._found.append(([*self._open], data))
        if self._is_posted and self._open[-1][0] == "textarea":
            self.values[self._open[-1][1]["name"]] += data

    @property
    def _is_posted(self) -> bool:
        return any(tag == "form" and known.get("method") == "post" for tag, known in self._open)

    def text(self, tag: str = "", **attributes: str) -> str:
        """The text inside the elements of a name, or with these attributes."""
        return "".join(data for inside, data in self._found if _is_in(inside, tag, attributes))

    def count(self, tag: str, inside: str = "html") -> int:
        """How many elements there are inside others."""
        return sum(found == tag and _is_in(above, inside, {}) for above, found in self._elements)


def _is_in(inside: list[tuple[str, dict]], tag: str, attributes: dict[str, str]) -> bool:
    return any(tag in {"", name} and attributes.items() <= known.items() for name, known in inside)


def sent(caller: Caller, path: str, form: dict[str, str] | None = None) -> Sent:
    """The page at a path below the console's root, or that a form gives."""
    status, _, text = caller.ask(path, method="POST" if form else "GET", form=form)
    assert status < 500, text
    return Sent(text)
