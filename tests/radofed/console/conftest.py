"""A headless browser. Without Chromium, or without Playwright, the tests that need it are skipped."""

import os
import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OFFLINE = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]


@pytest.fixture(scope="module")
def browser():
    """For one file: while Playwright runs, no other event loop can run in this thread."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: install Debian's package chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    # Chromium has no sandbox of its own for the user root.
    options = [*OFFLINE, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()
