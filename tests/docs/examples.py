"""The examples of a page: blocks of Python and commands, with what the page says that they print."""

import io
import re
import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

from radofed.cli.entry_point import run

DOCS = Path(__file__).resolve().parents[2] / "docs"
# A block of Python or a command, and what it prints where the next block shows it.
EXAMPLE = re.compile(
    r"(?:^```python\n(.*?)^```\n|^ {4,6}(rado [^\n]*)\n)(?:\n^```\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)


def examples_of(page: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The blocks of Python and the commands of a page, each with what it prints."""
    found = EXAMPLE.findall((DOCS / page).read_text())
    return [(code, said) for code, _, said in found if code], [(line, said) for _, line, said in found if line]


def assert_says(found: str, said: str):
    """The same words, and numbers that are alike: other draws of noise and another rounding change them a little."""
    number = r"-?\d+(?:\.\d+)?"
    assert re.sub(number, "#", found).split() == re.sub(number, "#", said).split()
    assert np.allclose(
        [float(text) for text in re.findall(number, found)],
        [float(text) for text in re.findall(number, said)],
        rtol=0.04,
        atol=0.002,
    )


def rado(command: str, where: Path, *more: str) -> str:
    """What a command line prints in that directory; it runs in this process, which spares its start."""
    with chdir(where), redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as notes:
        code = run([*shlex.split(command)[1:], *more])
    assert code == 0, printed.getvalue() + notes.getvalue()
    return printed.getvalue()
