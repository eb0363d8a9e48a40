"""The tutorial runs from top to bottom, prints what is stored in it, and what it says is so."""

import io
import json
import math
import re
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs/tutorials/asking.ipynb"


@pytest.fixture(scope="module")
def cells():
    return json.loads(NOTEBOOK.read_text())["cells"]


@pytest.fixture(scope="module")
def ran(cells):
    """What is defined once all cells of code ran in order, in a fresh namespace, and what each printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "Agg")
        defined: dict = {"__name__": "__main__"}
        printed = []
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                with redirect_stdout(io.StringIO()) as text:
                    exec(compile("".join(cell["source"]), f"cell {number}", "exec"), defined)
                printed.append(text.getvalue())
        yield defined, printed
        defined["plt"].close("all")


@pytest.fixture(scope="module")
def names(ran):
    return ran[0]


def test_it_is_stored_with_what_it_prints(cells, ran):
    number = r"-?\d+(?:\.\d+)?"
    stored = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    for outputs, printed in zip(stored, ran[1], strict=True):
        text = "".join("".join(part["text"]) for part in outputs if part["output_type"] == "stream")
        assert re.sub(number, "#", text).split() == re.sub(number, "#", printed).split(), "run `make notebooks`"
        figures, found = ([float(figure) for figure in re.findall(number, said)] for said in (text, printed))
        assert np.allclose(figures, found, rtol=0.04, atol=0.005)


def test_its_two_plots_are_stored(cells):
    outputs = [part for cell in cells if cell["cell_type"] == "code" for part in cell["outputs"]]
    assert sum("image/png" in part.get("data", {}) for part in outputs) == 2
    assert not [part for part in outputs if part["output_type"] == "error"]


def test_statistics_are_right_to_their_noise(names):
    found = names["found"]
    assert np.abs(found.values - names["true"]).max() <= found.noise < 0.01
    histogram = names["histogram"]
    age, ill = names["age"], names["ill"]
    counts = np.array([((age >= low) & (age < low + 5) & ill).sum() for low in names["edges"]])
    assert np.abs(histogram.values * histogram.rows - counts).max() <= histogram.noise * histogram.rows
    # Disjoint: the noise of one bar is that of two predicates, not of fifteen.
    assert histogram.deviation * histogram.rows < 2 * math.sqrt(2) / 0.5 * math.sqrt(5 / 3)


def test_both_learners_come_close_to_the_best_rule(names):
    x = np.column_stack(
        [
            (names["age"] - 20) / 75 * 2 - 1,
            *(names["ward"] == name for name in ("north", "south", "west")),
            names["smoker"] * 2.0 - 1,
            names["vaccinated"] * 2.0 - 1,
            np.ones(8000),
        ]
    )
    best = np.mean((names["odds"] > 0) != names["ill"])
    for learner in (names["bayes"], names["newton"]):
        assert best - 0.02 < np.mean((x @ learner.theta_ > 0) != names["ill"]) < best + 0.02


def test_budgets_are_kept_and_stated(names):
    assert len(names["newton_oracle"].answers) == 8
    for oracle in (names["bayes_oracle"], names["newton_oracle"]):
        assert 0 < oracle.statement().epsilon < oracle.statement().epsilon_if_others_collude <= 1
    assert names["evaluation_oracle"].statement().epsilon_if_others_collude <= 0.5
    total = names["total"]
    assert len(names["federation"].answers) == 12
    assert 1 < total.epsilon < total.epsilon_if_others_collude < 3.5


def test_the_evaluation_is_of_these_rows(names):
    evaluation, theta = names["evaluation"], names["newton"].theta_
    assert evaluation.rows == 8000
    assert evaluation.error.on_rows.lower < evaluation.error.estimate < evaluation.error.on_rows.upper
    assert 0.75 < evaluation.auc.estimate < 0.9
    assert len(theta) == names["schema"].d
    assert len(names["plt"].get_fignums()) == 2
