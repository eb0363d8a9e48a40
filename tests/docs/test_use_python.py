"""The examples of docs/how-to/use-python.md run as they are shown, and print what the page says."""

import io
from contextlib import chdir, redirect_stdout

import pytest

import radofed
from tests.docs.examples import assert_says, examples_of

BLOCKS, _ = examples_of("how-to/use-python.md")
ORGANISATIONS = "radofed.connect("
"""Blocks with this run in tests/end_to_end, where organisations answer."""


@pytest.mark.more
def test_examples_print_what_the_page_says(tmp_path):
    pytest.importorskip("pandas")
    names: dict = {}
    alone = [(code, said) for code, said in BLOCKS if ORGANISATIONS not in code]
    assert (len(BLOCKS), len(alone)) == (7, 5)
    with chdir(tmp_path):
        for code, said in alone:
            with redirect_stdout(io.StringIO()) as printed:
                exec(compile(code, "use-python.md", "exec"), names)
            if said:
                assert_says(printed.getvalue(), said)
        assert radofed.Model.load("model.json").digest == names["model"].digest


def test_programs_import_radofed_alone():
    imported = {line for code, _ in BLOCKS for line in code.splitlines() if line.startswith(("import ", "from "))}
    assert imported == {"import radofed", "import numpy as np", "import pandas as pd"}
