"""What a command loads before it can answer: seconds come with libraries, and libraries can be seen."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys
from radofed.cli.entry_point import run
code = run(sys.argv[1:])
sys.stderr.write("\\n" + json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""
# What takes seconds, and neither help nor a plan computes with; numba also comes as llvmlite.
SLOW = {"numba", "llvmlite", "ray", "sklearn", "matplotlib", "pyarrow", "phe", "Crypto", "tenseal", "grpc", "google"}
SIZES = ("--rows", "4000", "--parties", "4", "--coordinates", "18")


def loaded(*arguments):
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    code, names = json.loads(done.stderr.rpartition("\n")[2])
    assert code == 0
    assert done.stdout
    return set(names)


@pytest.mark.parametrize("arguments", [("--help",), ("plan", "--help"), ("learner", "query", "--help")])
def test_help_loads_nothing_that_computes(arguments):
    assert not loaded(*arguments) & (SLOW | {"numpy", "scipy", "gmpy2", "cryptography"})


@pytest.mark.more
def test_a_simulation_of_one_party_is_refused_before_anything_is_loaded():
    """Not even the file is looked for."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "simulate", "--parties", "1", "--data", "nowhere.csv"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    said, _, answer = done.stderr.strip().rpartition("\n")
    code, names = json.loads(answer)
    assert (code, said.strip()) == (4, "rado: parties is 1: choose 2 to 1000")
    assert not set(names) & (SLOW | {"numpy", "scipy", "gmpy2", "cryptography"})


@pytest.mark.more
@pytest.mark.parametrize("design", ["dp-feat", "gaussian"])
def test_a_plan_loads_numpy_messages_and_nothing_slower(design):
    """It plans the query itself, which is a message."""
    noise = ("--epsilon", "1") if design == "gaussian" else ()
    found = loaded("plan", "--design", design, "--rados", "100", *noise, *SIZES)
    assert "numpy" in found
    assert not found & (SLOW - {"google", "grpc"} | {"scipy"})
