"""Run the gallery: `python -m docs.generate.gallery [PAGE ...]` stores what each page's code prints and draws."""

import io
import re
import shlex
import shutil
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from radofed.cli.entry_point import run

GALLERY = Path(__file__).resolve().parents[1] / "gallery"
# The code, and what the page says that it prints.
CODE = re.compile(r"^(```python\n(.*?)^```\n)(?:\n```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    rado ([^\n]*)\n", re.MULTILINE)


def pages() -> list[str]:
    """Their names, in the order of the gallery's index."""
    return re.findall(r"^([a-z-]+)$", (GALLERY / "index.md").read_text("utf-8").partition("{toctree}")[2], re.MULTILINE)


def run_page(text: str, where: Path) -> str:
    """What the code of a page prints in that directory, where it also leaves its picture."""
    ((_, code, _),) = CODE.findall(text)
    with chdir(where), redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "gallery", "exec"), {})  # noqa: S102  (our own pages)
        for command in COMMAND.findall(text):
            with redirect_stdout(io.StringIO()) as said, redirect_stderr(said):
                if run(shlex.split(command)):
                    raise RuntimeError(said.getvalue())
    return printed.getvalue()


def store(name: str) -> None:
    """Write what the code of a page prints into it, and its picture beside it."""
    page = GALLERY / f"{name}.md"
    text = page.read_text("utf-8")
    with tempfile.TemporaryDirectory() as directory:
        printed = run_page(text, Path(directory))
        shutil.copy(Path(directory) / f"{name}.svg", GALLERY / "pictures" / f"{name}.svg")
    said = f"\n```\n{printed}```\n" if printed else ""
    page.write_text(CODE.sub(lambda code: code[1] + said, text), "utf-8")


if __name__ == "__main__":
    for each in sys.argv[1:] or pages():
        store(each)
