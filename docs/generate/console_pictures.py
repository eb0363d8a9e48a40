"""Draws the consoles of a federation of five processes with Chromium, at two widths."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

WIDTHS = {"wide": 1200, "narrow": 400}
"""Widths of the pictures, in pixels."""
_HEIGHT = 800
_PARTIES = ("north", "south", "west")
_WAIT_S = 60.0


def draw_consoles(browser: str, directory: Path, pictures: Path) -> None:
    """Pictures of consoles in a folder. browser: a Chromium's path. directory: empty."""
    with ExitStack() as running:
        federation = _Federation(directory, running)
        approved, waiting = federation.ask(), federation.ask(epsilon=2)
        rado = federation.rado
        rado("party", "approve", approved, "--name", "Ann Lee", "--reason", "study 17", of="north")
        rado("learner", "fetch", approved, of="university")
        pages = {"pending": "pending", "query": f"queries/{waiting}", "budget": "budget", "status": "status"}
        paths = {f"console-party-{name}": path for name, path in pages.items()}
        _draw(browser, federation.console("north"), paths, pictures)
        _draw(browser, federation.console("coordinator"), {"console-coordinator": "status"}, pictures)
        pages = {"plan": "plan?what=moments", "train": "plan?what=newton", "query": f"queries/{waiting}"}
        paths = {f"console-learner-{name}": path for name, path in pages.items()}
        acts: dict[str, Callable[[Any], None]] = {
            "console-learner-plan": _plan_backwards,
            "console-learner-train": _ask_to_train,
        }
        _draw(browser, federation.console("university"), paths, pictures, acts)


class _Federation:
    """Three parties, one of which asks people, a coordinator and a learner: in directories, and as processes."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._directory, self._running = directory, running
        self._members = directory / "clinics/members"
        self._roles = dict.fromkeys(_PARTIES, "party") | {"university": "learner", "coordinator": "coordinator"}
        self._provision()
        for name in ("coordinator", *_PARTIES):
            running.enter_context(self._process(self._roles[name], "start", of=name))
        _until((self._members / "coordinator/state/address").exists, "the coordinator")
        self.rado("learner", "keygen", of="university")

    def rado(self, *arguments: str, of: str = "") -> dict[str, Any]:
        """The data that a command prints as JSON. of: the member whose configuration it gets."""
        command = self._command(*arguments, *(self._config(of) if of else ()), "--format", "json")
        ended = subprocess.run(command, cwd=self._directory, capture_output=True, text=True, check=True)
        data: dict[str, Any] = json.loads(ended.stdout)["data"]
        return data

    def ask(self, epsilon: float = 1) -> str:
        """A query that waits at north and that the other parties have answered; its id."""
        options = ("--design", "moments", "--epsilon", str(epsilon), "--schema", "schema.toml", "--no-wait")
        query_id = str(self.rado("learner", "query", *options, of="university")["query_id"])

        def waits() -> bool:
            pending = self.rado("party", "pending", of="north")["pending"]
            return query_id in {each["query_id"] for each in pending}

        _until(waits, "the query")
        return query_id

    def console(self, name: str) -> str:
        """The link of a member's console, which runs from now on."""
        process = self._running.enter_context(self._process("console", of=name, stderr=subprocess.PIPE))
        assert process.stderr is not None
        return next(line for line in map(bytes.decode, process.stderr) if line.startswith("http")).strip()

    def _provision(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        parties = [word for name in _PARTIES for word in ("--party", f"{name}=6000")]
        self.rado("demo", "--write-data", "patients.csv")
        label = ("--label", "back_within_30_days", "--positive", "yes")
        self.rado("schema", "infer", "patients.csv", *label, "--output", "schema.toml")
        names = ("--federation", "clinics", "--directory", "clinics", "--learner", "university")
        self.rado("provision", "init", *names, "--coordinator", address, *parties)
        header, *rows = (self._directory / "patients.csv").read_text().splitlines()
        for place, name in enumerate(_PARTIES):
            member = self._members / name
            (member / "data.csv").write_text("\n".join([header, *rows[place::3]]) + "\n")
            shutil.copy(self._directory / "schema.toml", member)
            policy = (member / "policy.toml").read_text().replace("designs = []", 'designs = ["moments"]')
            approval = "\n[approval]\neverything = true\nnames = true\n" if name == "north" else ""
            (member / "policy.toml").write_text(policy + approval)

    def _config(self, name: str) -> tuple[str, str]:
        return "--config", str(self._members / name / f"{self._roles[name]}.toml")

    @staticmethod
    def _command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "radofed", *arguments]

    @contextmanager
    def _process(self, *arguments: str, of: str, stderr: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
        command = self._command(*arguments, *self._config(of))
        with subprocess.Popen(command, cwd=self._directory, stdout=subprocess.DEVNULL, stderr=stderr) as process:
            try:
                yield process
            finally:
                process.terminate()


def _plan_backwards(page: Any) -> None:
    """Ask the page that plans for the epsilon that an accuracy needs; it knows the schema of the newest query."""
    page.fill("#worth", "15000")
    with page.expect_navigation():
        page.click("button[value=plan]")


def _ask_to_train(page: Any) -> None:
    """Go on to the page that asks whether to train, which asks nothing yet."""
    page.fill("#epsilon", "1")
    with page.expect_navigation():
        page.click("button[value=ask]")


def chromium_options() -> Sequence[str]:
    """Chromium has no sandbox of its own for the user root."""
    return ("--no-sandbox",) if os.geteuid() == 0 else ()


def _draw(
    browser: str,
    link: str,
    pages: dict[str, str],
    pictures: Path,
    acts: dict[str, Callable[[Any], None]] | None = None,
) -> None:
    """One picture of each page at each width.

    pages: paths below the console's root, by the pictures' names. acts: what to do on a page first, by the same names.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (only with Chromium)

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=[*chromium_options()])
        page = started.new_page()
        page.goto(link)
        root = page.url[: page.url.rindex("/") + 1]
        for width_name, width in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": _HEIGHT})
            for name, path in pages.items():
                page.goto(root + path)
                if acts is not None and name in acts:
                    acts[name](page)
                page.screenshot(path=str(pictures / f"{name}-{width_name}.png"), full_page=True)
        started.close()


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {_WAIT_S} s for {what}")
        time.sleep(0.2)
