"""Consoles in processes of their own, and pages of a headless browser that opened their links."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import forked
from tests.federation import wait_until
from tests.forked import Forked
from tests.radofed.console.serving import LINK


@contextmanager
def console(config: Path, log: Path):
    """A console of a node, until the block ends. Yields its link."""
    process = Forked(forked.rado, ("console", "--config", str(config)), log)
    try:
        yield wait_until(lambda: log.exists() and LINK.search(log.read_text()), what="the link")[0]
    finally:
        process.kill()


@contextmanager
def opened(browser, link: str, **options):
    """A page of a browser that opened a link, and its root."""
    with browser.new_context(**options) as context:
        page = context.new_page()
        page.goto(link)
        root = link[: link.index("enter?")]
        yield page, root


def fill(page, fields: dict[str, str]) -> None:
    """Fill fields by their names, also those that are folded away."""
    for closed in page.query_selector_all("details:not([open]) > summary"):
        closed.click()
    for name, text in fields.items():
        page.fill(f"#{name}", text)


def findings(page) -> list[str]:
    """What keeps people from using the page with a keyboard or a screen reader, as axe-core finds it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    return [each["id"] for each in axe.run(page).response["violations"]]
