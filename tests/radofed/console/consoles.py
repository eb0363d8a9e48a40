"""Consoles in processes of their own, and forms in their pages."""

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import forked
from tests.federation import wait_until
from tests.forked import Forked
from tests.radofed.console.serving import LINK


@dataclass(frozen=True)
class Opening:
    """How a browser opens a console, and the path below which its pages are: as of `radofed.console.access.Access`."""

    link: str

    @property
    def root(self) -> str:
        return "/" + self.link.split("/")[3]


@contextmanager
def console(config: Path, log: Path):
    """A console of a node in a process, until the block ends. Yields how to open it."""
    process = Forked(forked.rado, ("console", "--config", str(config)), log)
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
