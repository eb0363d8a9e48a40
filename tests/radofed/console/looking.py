"""What every page of a console must be: accessible, within its width, small, and without elements of peers."""

from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe

from tests.waiting import HANG_S

MOST_BYTES = 300_000
NARROW, WIDE = 400, 1200
# What axe looks at: the fixture `browser` takes the narrow width out in `make test`, and not in `make test-more`.
LOOKED_AT = {NARROW, WIDE}
# What axe finds by its rules, with the elements.
VIOLATIONS = """rules => axe.run({resultTypes: ["violations"], rules}).then(found => found.violations.map(
    each => [each.id, each.help, ...each.nodes.map(node => node.html)]))"""

# Parts of a page that are wider than what is seen of them, as a table whose texts do not wrap.
SCROLLING = """[...document.querySelectorAll("main, main *")]
    .filter(each => ["auto", "scroll"].includes(getComputedStyle(each).overflowX))
    .filter(each => each.scrollWidth > each.clientWidth)
    .map(each => each.outerHTML.slice(0, 300))"""


@contextmanager
def visiting(browser, access, **options):
    """A page of a browser that has opened the console's link. Fails if the browser ran or refused anything else.

    options: of the browser's context. What the content security policy refuses is written to the browser's console, as
    are errors of scripts.
    """
    with browser.new_context(viewport={"width": WIDE, "height": 900}, **options) as context:
        page = context.new_page()
        page.set_default_timeout(HANG_S * 1000)
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(access.link)
        yield page
        assert [text for text in said if "Failed to load resource" not in text] == []


def open_page(page, access, path: str) -> None:
    """Go to a path below the console's root."""
    page.goto(f"{page.url.split(access.root)[0]}{access.root}/{path}")


def press(page, name: str) -> None:
    """Press a button that leads to another page."""
    with page.expect_navigation():
        page.get_by_role("button", name=name).click()


def saved(page) -> tuple[str, str]:
    """Name and text of the file as which the page is saved."""
    with page.expect_download() as download:
        page.click("text=Save this page")
    return download.value.suggested_filename, download.value.path().read_text()


def check_page(page) -> None:
    """Fail unless the page that is open is small, within both widths, and accessible at those of LOOKED_AT."""
    assert len(page.content().encode()) < MOST_BYTES
    # Axe().run would load axe for each width again.
    page.evaluate(Axe().axe_script)
    for width in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": 900})
        if width in LOOKED_AT:
            # Half of axe's time is that of contrasts. Of colours, only generated text depends on the width, which axe
            # does not look at.
            found = page.evaluate(VIOLATIONS, {"color-contrast": {"enabled": width == WIDE}})
            assert found == [], found
        # Nothing makes the page itself wider than the window.
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        if width == NARROW:
            # Nor does a part of it scroll sideways, where a fingerprint would be cut.
            scrolling = page.evaluate(SCROLLING)
            assert scrolling == [], scrolling
    page.set_viewport_size({"width": WIDE, "height": 900})


def tabs(page, most: int = 60) -> list[str]:
    """The text or name of each element that the Tab key reaches, in this order."""
    found: list[str] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        name = page.evaluate(
            "(() => { const e = document.activeElement; if (e === document.body) return '';"
            " return e.getAttribute('aria-label') || e.name || e.innerText.trim(); })()"
        )
        if not name or (found and name == found[0]):
            break
        found.append(name)
    return found
