"""Draw the pictures of the documentation: `python -m docs.generate.screenshots`.

Pictures of a terminal are SVG files of what the commands really print; fingerprints and times differ from run to run.
"""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from docs.generate.console_pictures import draw_consoles
from radofed.demo.tables import schema

PICTURES = Path(__file__).resolve().parents[1] / "pictures"
WIDTH = 110
PLAN = "rado plan --design moments --rows 40000 --parties 4 --coordinates 20 --epsilon 1"
PROVISION = (
    "rado provision init --federation clinics --directory clinics --coordinator localhost:7443 "
    "--party north=100 --party south=100 --party west=100 --learner lab"
)
REPORT_SIZES = {"wide": "1200,1250", "narrow": "400,1500"}
"""Width and height of the pictures of a report, in pixels."""
START_S = 60.0


def rado(command: str, directory: Path, *, progress: bool = True) -> str:
    """What a command prints, without the name of the temporary directory. progress: with standard error."""
    ended = subprocess.run(
        [sys.executable, "-m", "radofed", *shlex.split(command)[1:]],
        cwd=directory,
        env=os.environ | {"COLUMNS": str(WIDTH)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if progress else subprocess.DEVNULL,
        text=True,
        check=False,
    )
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/[^/\s]+", "/srv", ended.stdout)


def draw_terminal(command: str, printed: str, name: str) -> None:
    """A picture of a terminal in which the command ran. The picture loads no font from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text(printed.rstrip()))
    template = CONSOLE_SVG_FORMAT.replace("<!-- Generated with Rich https://www.textualize.io -->", "")
    template = re.sub(r"@font-face \{\{.*?\}\}", "", template, flags=re.DOTALL).replace("Fira Code, ", "")
    console.save_svg(str(PICTURES / f"{name}.svg"), title="rado", code_format=template, unique_id=name)


@contextmanager
def coordinator(directory: Path) -> Iterator[None]:
    """A coordinator that runs while the block does. directory: its own, as provisioned."""
    command = [sys.executable, "-m", "radofed", "coordinator", "start", "--config", "coordinator.toml"]
    with subprocess.Popen(command, cwd=directory, stderr=subprocess.DEVNULL) as node:
        try:
            address = directory / "state/address"
            end = time.monotonic() + START_S
            while not address.exists() and node.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            yield
        finally:
            node.terminate()


def draw_party_check(directory: Path) -> None:
    """A federation of three parties, and what the check of one of them says."""
    rado(PROVISION, directory)
    members = directory / "clinics/members"
    rows = "".join(f"{20 + 7 * n % 70},{'yes' if n % 3 else 'no'},{'yes' if n % 4 else 'no'}\n" for n in range(120))
    north = members / "north"
    (north / "data.csv").write_text(f"age,smoker,readmitted\n{rows}", encoding="utf-8")
    rado("rado schema infer data.csv --label readmitted --positive yes --output schema.toml", north)
    with coordinator(members / "coordinator"):
        command = "rado party check --config party.toml"
        draw_terminal(command, rado(command, north), "party-check")


def draw_reports(directory: Path) -> None:
    """The reports of a party and of a learner on a demo at two widths, by Chromium without a window.

    Without Chromium the pictures stay.
    """
    browser = chromium()
    if browser is None:
        return
    rado("rado demo --keep kept", directory)
    kept = directory / "kept/whole-records"
    members = kept / "federation/members"
    rado("rado party report --config party.toml --from 2020-01-01 --output report.html", members / "north")
    draw_page(browser, members / "north/report.html", "report")
    learner = "rado learner report newton.json --config federation/members/learner/learner.toml"
    rado(f"{learner} --test data/held-out.csv --output report.html", kept)
    draw_page(browser, kept / "report.html", "learner-report")


def draw_shapes(directory: Path) -> None:
    """The page that docs/how-to/look-at-shapes.md makes."""
    browser = chromium()
    if browser is None:
        return
    page = (PICTURES.parent / "how-to/look-at-shapes.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(import csv.*?)^```", page, re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-c", example], cwd=directory, check=True)
    rado("rado learner picture doses.json --out shapes.html", directory)
    draw_page(browser, directory / "shapes.html", "shapes", {"wide": "1200,1740"})


def draw_curves(directory: Path) -> None:
    """The picture of survival that the README's examples make."""
    page = (PICTURES.parents[1] / "README.md").read_text(encoding="utf-8")
    example = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    subprocess.run([sys.executable, "-c", example], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    shutil.copy(directory / "survival.svg", PICTURES / "survival.svg")


PATIENTS_PARTY = """
federation = "clinics"
name = "north"
coordinator = "localhost:7443"
federation_key = "federation.pem"
signing_key = "signing.pem"
state_directory = "state"
policy = "policy.toml"
schema = "schema.toml"
data = "patients.csv"
[tls]
ca = "ca.pem"
certificate = "certificate.pem"
key = "key.pem"
"""
"""A rehearsal reads nothing but the schema and the rows."""


def draw_rehearsal(directory: Path) -> None:
    """What attacks achieve on some of the demo's synthetic patients."""
    directory.mkdir()
    (directory / "party.toml").write_text(PATIENTS_PARTY, encoding="utf-8")
    (directory / "schema.toml").write_text(schema().to_toml(), encoding="utf-8")
    rado("rado demo --write-data patients.csv", directory)
    (PICTURES / "rehearse.svg").unlink(missing_ok=True)
    options = f"--rows 1000 --seed 2015 --picture {PICTURES / 'rehearse.svg'}"
    rado(f"rado party rehearse --config party.toml {options}", directory)


def chromium() -> str | None:
    """A browser that can draw pages; without one, their pictures stay, and a line says so."""
    names = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        print("no Chromium: the pictures of pages are not drawn", file=sys.stderr)  # noqa: T201  (a command)
    return found


def draw_page(browser: str, page: Path, name: str, sizes: Mapping[str, str] = REPORT_SIZES) -> None:
    """Pictures of the start of a page, at each of these sizes."""
    for width, size in sizes.items():
        options: tuple[str, ...] = (
            "--headless",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--window-size={size}",
            f"--screenshot={PICTURES / f'{name}-{width}.png'}",
        )
        # Chromium has no sandbox of its own for the user root.
        options += ("--no-sandbox",) if os.geteuid() == 0 else ()
        subprocess.run([browser, *options, page.as_uri()], check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    """Draw all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        draw_terminal(PLAN, rado(PLAN, directory), "plan-moments")
        (PICTURES / "plan.svg").unlink(missing_ok=True)
        rado(f"{PLAN} --picture {PICTURES / 'plan.svg'}", directory)
        draw_party_check(directory)
        draw_rehearsal(directory / "rehearsal")
        draw_reports(directory)
        draw_shapes(directory)
        draw_curves(directory)
        (directory / "console").mkdir()
        if (browser := chromium()) is not None:
            draw_consoles(browser, directory / "console", PICTURES)
        draw_terminal("rado demo", rado("rado demo", directory, progress=False), "demo")


if __name__ == "__main__":
    main()
