"""docs/how-to/coefficients.md: its examples run in order, and print what it says."""

import io
from contextlib import chdir, redirect_stdout

import pytest

from tests.docs.examples import assert_says, examples_of, rado

PYTHON, COMMANDS = examples_of("how-to/coefficients.md")

pytestmark = pytest.mark.more


def test_the_page_prints_what_it_says(tmp_path):
    names: dict = {}
    with chdir(tmp_path):
        for code, said in PYTHON:
            with redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, "example", "exec"), names)
            assert_says(printed.getvalue(), said)
    assert [command.split()[2] for command, said in COMMANDS if said] == ["coefficients"]
    for command, said in COMMANDS:
        if said:
            assert_says(rado(command, tmp_path), said)
