"""The README is short, and its Python prints what the README says that it prints."""

import io
import re
from contextlib import chdir, redirect_stdout
from pathlib import Path

from tests.docs.test_examples import assert_says

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def test_the_readme_is_short():
    lines = README.splitlines()
    assert len(lines) <= 180
    assert max(map(len, lines)) <= 120


def test_the_python_prints_what_it_says(tmp_path):
    ((code, said),) = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)^```\n", README, re.MULTILINE | re.DOTALL)
    with chdir(tmp_path), redirect_stdout(io.StringIO()) as text:
        exec(compile(code, "README.md", "exec"), {})
    assert_says(text.getvalue(), said)
