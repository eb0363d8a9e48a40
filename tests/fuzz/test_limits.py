"""The largest and most hostile inputs: bounded memory, and our own errors, in a process that counts what it takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.largest import MEMORY_MB

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.more
@pytest.mark.parametrize(("every", "at_least"), [(8, 5), pytest.param(1, 38, marks=pytest.mark.slow)])
def test_the_largest_inputs_take_bounded_memory(every, at_least):
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.largest", str(every)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "protos")))},
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) >= at_least
    # A process that the limit of processor time ended is an error too.
    assert [each for each in found if "error" in each] == []
    assert [each for each in found if each["memory_mb"] > MEMORY_MB] == []
