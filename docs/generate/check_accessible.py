"""Check pages of the built site in Chromium: `python -m docs.generate.check_accessible build/docs`.

At two widths, light and dark: no violation that axe finds, and nothing wider than the window. Without Chromium it says
that it checked nothing.
"""

import sys
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

from docs.generate.console_pictures import chromium_options
from docs.generate.screenshots import chromium

PAGES = ("index", "gallery/index", "gallery/survival-by-group", "roles/index", "roles/officers", "comparison")
WIDTHS = (400, 1280)


def faults(page: Page) -> list[str]:
    """What is wrong with a page that is open."""
    found = [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in Axe().run(page).response["violations"]]
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append("wider than the window")
    return found


def main(site: Path) -> int:
    """The exit code."""
    browser, found = chromium(), []
    if browser is None:
        print("Chromium is not installed: no page was checked")  # noqa: T201
        return 0
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=[*chromium_options()])
        for name in PAGES:
            for width in WIDTHS:
                for scheme in ("light", "dark"):
                    page = started.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                    page.goto((site / f"{name}.html").resolve().as_uri())
                    found += [f"{name}, {width} px, {scheme}: {fault}" for fault in faults(page)]
                    page.close()
        started.close()
    for each in found:
        print(each)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
