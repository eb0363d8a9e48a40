"""The kit against our own learner, as a program of its own."""

import shlex
import sys
from pathlib import Path

import pytest

from radofed.conformance.learner import ASKS
from tests.conformance.joined import Joining, outcomes
from tests.conformance.own_learner import BREAKS
from tests.federation.processes import rado

PROGRAM = Path(__file__).resolve().parent / "own_learner.py"
ROOT = PROGRAM.parents[2]


@pytest.fixture
def joining(tmp_path, monkeypatch):
    joining = Joining(tmp_path, "learner")
    joining.install()
    rado("learner", "keygen", "--config", str(joining.home / "learner.toml"), "--bits", "2048")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'protos'}")
    return joining


def program(joining, *more: str) -> tuple[str, ...]:
    words = (sys.executable, str(PROGRAM), str(joining.home / "learner.toml"), str(joining.home / "schema.toml"), *more)
    return ("--command", shlex.join(words), "--patience-s", "600")


def asking(*parts: str) -> tuple[str, ...]:
    return tuple(word for part in parts for word in ("--asks", part))


@pytest.mark.more
def test_our_own_learner_conforms(joining):
    data = rado(*joining.words(*program(joining), *asking(*ASKS)))["data"]
    assert data["complete"], outcomes(data, "failed")
    assert (data["failed"], data["skipped"]) == (0, 0)
    assert data["passed"] > 45
    assert {each["section"].partition(".")[0] for each in data["findings"]} == {"3", "5", "6", "8"}


# The break, the section of a failure, and words of what fails.
FOUND = {
    "that_checks_no_tag": ("8.3", "a number added to a value"),
    "that_verifies_no_cohort": ("8.2", "a forged acceptance"),
    "with_another_unit": ("6", "it asks, and opens a total"),
    "that_verifies_no_shares": ("8.2", "a forged Unmasking"),
    "that_names_a_training_anew": ("5", "two queries or more of one training"),
}
PARTS = {"that_verifies_no_shares": ("survivors",), "that_names_a_training_anew": ("training",)}
QUICKLY = ("that_checks_no_tag", "that_verifies_no_shares")


@pytest.mark.more
@pytest.mark.parametrize(
    "name", [name if name in QUICKLY else pytest.param(name, marks=pytest.mark.slow) for name in BREAKS]
)
def test_what_is_broken_is_found_in_its_section(joining, name):
    only = (*asking(*PARTS[name]), "--only-asks") if name in PARTS else ()
    data = rado(*joining.words(*program(joining, name), *only), code=1)["data"]
    section, words = FOUND[name]
    failed = outcomes(data, "failed")
    assert any(where == section and words in what for where, what, _ in failed), failed
