"""The README is short, and its Python prints what the README says that it prints."""

import io
import re
from contextlib import chdir, redirect_stdout
from pathlib import Path

from tests.docs.examples import DOCS, assert_says

PICTURES = DOCS / "pictures"
README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def test_the_readme_is_short():
    lines = README.splitlines()
    assert len(lines) <= 180
    assert max(map(len, lines)) <= 120


def test_each_door_prints_what_it_says(tmp_path):
    blocks, names = re.findall(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?", README, re.MULTILINE | re.DOTALL), {}
    assert [bool(said) for _, said in blocks] == [False, True, True, True]
    with chdir(tmp_path):
        for code, said in blocks:
            with redirect_stdout(io.StringIO()) as text:
                exec(compile(code, "README.md", "exec"), names)
            assert_says(text.getvalue(), said)
    drawn, shown = (path.read_text() for path in (tmp_path / "survival.svg", PICTURES / "survival.svg"))
    assert_says(drawn, shown)  # `make screenshots` draws it again
