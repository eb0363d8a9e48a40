"""docs/how-to/several-classes.md: its examples run in order, and print what it says."""

import io
from contextlib import chdir, redirect_stdout

import pytest

from tests.docs.examples import assert_says, examples_of, rado

PYTHON, COMMANDS = examples_of("how-to/several-classes.md")

pytestmark = pytest.mark.more


def test_the_page_prints_what_it_says(tmp_path):
    names: dict = {}
    with chdir(tmp_path):
        for code, said in PYTHON:
            with redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, "example", "exec"), names)
            assert_says(printed.getvalue(), said)
    *here, (evaluate, said_nothing) = COMMANDS
    assert [command.split()[2] for command, _ in here] == ["predict", "picture"]
    for command, said in here:
        assert_says(rado(command, tmp_path), said)
    # It needs parties: tests/learner/test_class_models.py asks them.
    assert evaluate.split()[2] == "evaluate"
    assert not said_nothing
