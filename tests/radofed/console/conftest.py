"""A headless browser. Without Chromium, or without Playwright, the tests that need it are skipped."""

import os
import shutil

import pytest

from tests.radofed.console import looking
from tests.waiting import HANG_S

# The shell is Chromium without windows, profiles and extensions: it starts faster and computes less.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
OPTIONS = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
           "--disable-gpu"]  # fmt: skip


# What `make test` looks at in a browser, in a wide window. The others are in `make test-more`, at both widths.
IN_A_BROWSER_AT_EACH_CHANGE = {"test_a_decision_takes_three_clicks", "test_it_shows_any_role_and_ends_on_a_signal"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()) and item.originalname not in IN_A_BROWSER_AT_EACH_CHANGE:
            item.add_marker(pytest.mark.more)


@pytest.fixture(scope="module")
def browser(request):
    """For one file: while Playwright runs, no other event loop can run in this thread."""
    if "not more" in request.config.option.markexpr and request.path.name != "test_looking.py":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(looking, "LOOKED_AT", {looking.WIDE})
            yield from _browser()
    else:
        yield from _browser()


def _browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium: install Debian's package chromium-headless-shell")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    # Chromium has no sandbox of its own for the user root.
    options = [*OPTIONS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=options, timeout=HANG_S * 1000)
        yield opened
        opened.close()
