"""docs/how-to/from-r.md: its blocks run in R, by reticulate, and print what the page says."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.docs.examples import DOCS, assert_says

BLOCKS = re.findall(
    r"^```r\n(.*?)^```\n(?:\n^```\n(.*?)^```\n)?",
    (DOCS / "how-to/from-r.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
PACKAGES = ("reticulate", "survival")
NEXT = "===== next block"


def r(code: str, where: Path) -> subprocess.CompletedProcess[str]:
    """What a program in R prints, with the Python of the tests."""
    (where / "page.R").write_text(code)
    found = os.environ | {"RETICULATE_PYTHON": sys.executable, "PYTHONPATH": str(DOCS.parent)}
    command = ["Rscript", "--vanilla", "page.R"]
    return subprocess.run(command, cwd=where, env=found, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.more
def test_the_page_runs_in_r(tmp_path):
    pytest.importorskip("pandas")
    if shutil.which("Rscript") is None:
        pytest.skip("R is not installed: apt-get install r-base-core r-cran-reticulate r-cran-survival")
    for package in PACKAGES:
        if r(f"library({package})", tmp_path).returncode:
            pytest.skip(f"R has no package {package}: apt-get install r-cran-{package}")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("reticulate needs a Python with a shared library: configure it with --enable-shared")
    done = r(f'cat("\\n{NEXT}\\n")\n'.join(code for code, _ in BLOCKS), tmp_path)
    assert done.returncode == 0, done.stderr
    for found, (_, said) in zip(done.stdout.split(NEXT), BLOCKS, strict=True):
        assert_says(found, said)
    # What R writes for a missing cell is an empty one.
    first = (tmp_path / "north.csv").read_text().splitlines()[1].split(",")
    assert first[1] == ""


def test_the_page_has_both_regressions_and_curves_in_five_lines():
    assert len(BLOCKS) == 6
    curves, hazards, numbers = (code.splitlines() for code, _ in BLOCKS[1:4])
    assert len(curves) == len(hazards) == 5
    assert len(numbers) == 6
    assert any("survival(" in line for line in curves)
    assert any('train("hazards"' in line for line in hazards)
