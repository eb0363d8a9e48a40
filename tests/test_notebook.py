"""The tutorials run from top to bottom, print what is stored in them, and what they say is so."""

import io
import json
import math
import re
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from tests.test_documentation import check_command

TUTORIALS = Path(__file__).resolve().parents[1] / "docs/tutorials"
PLOTS = {"asking": 2, "measuring": 1, "curves": 1, "length-of-stay": 1, "visits": 1, "survival-study": 1}
FROM_RADOFED_ALONE = ("length-of-stay", "visits", "survival-study")


def all_cells(name: str) -> list[dict]:
    """The tutorial's cells, texts among them."""
    cells: list[dict] = json.loads((TUTORIALS / f"{name}.ipynb").read_text())["cells"]
    return cells


def cells_of(name: str) -> list[dict]:
    """The tutorial's cells of code."""
    return [cell for cell in all_cells(name) if cell["cell_type"] == "code"]


@contextmanager
def run(name: str):
    """What is defined once all cells of code ran in order, in a fresh namespace, and what each printed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLBACKEND", "Agg")
        defined: dict = {"__name__": "__main__"}
        printed = []
        for number, cell in enumerate(cells_of(name)):
            with redirect_stdout(io.StringIO()) as text:
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), defined)
            printed.append(text.getvalue())
        yield defined, printed
        defined["plt"].close("all")


@pytest.fixture(scope="module")
def ran():
    with run("asking") as found:
        yield found


@pytest.fixture(scope="module")
def names(ran):
    return ran[0]


def assert_stored(name: str, printed: list[str]):
    number = r"-?\d+(?:\.\d+)?"
    for cell, found in zip(cells_of(name), printed, strict=True):
        text = "".join("".join(part["text"]) for part in cell["outputs"] if part.get("name") == "stdout")
        assert re.sub(number, "#", text).split() == re.sub(number, "#", found).split(), "run `make notebooks`"
        figures = [[float(figure) for figure in re.findall(number, said)] for said in (text, found)]
        assert np.allclose(*figures, rtol=0.04, atol=0.005)


@pytest.mark.more
def test_it_is_stored_with_what_it_prints(ran):
    assert_stored("asking", ran[1])


@pytest.mark.slow
def test_the_simulations_are_stored_with_what_they_print():
    with run("measuring") as (names, printed):
        assert_stored("measuring", printed)
    errors = names["errors"]
    assert errors["newton"][-1] < errors["logistic"][-1] + 1 < errors["majority"][-1]


@pytest.mark.slow
def test_the_curves_are_stored_with_what_they_print():
    with run("curves") as (names, printed):
        assert_stored("curves", printed)
    assert names["errors"]["additive"][-1] < names["errors"]["newton"][-1]
    assert [shape.title for shape in names["shapes"].ranked[:2]] == ["age", "dose"]
    assert names["differ"] == 0


@pytest.mark.more
def test_lengths_of_stay_are_stored_with_what_they_print():
    with run("length-of-stay") as (names, printed):
        assert_stored("length-of-stay", printed)
    assert np.allclose(names["ours"], list(names["TRUE"].values()), rtol=0.04)
    assert names["privacy"].epsilon < names["privacy"].epsilon_if_others_collude <= 2.5


@pytest.mark.more
def test_visits_are_stored_with_what_they_print():
    with run("visits") as (names, printed):
        assert_stored("visits", printed)
    pooled = np.exp(names["poisson"].coef_)
    assert np.allclose(pooled, list(names["TRUE"].values()), rtol=0.03)
    assert np.allclose(names["ratios_of"](names["model"]), pooled, rtol=0.15)


@pytest.mark.more
def test_the_survival_study_is_stored_with_what_it_prints():
    with run("survival-study") as (names, printed):
        assert_stored("survival-study", printed)
    true = names["TRUE"]["treatment"]
    low, high = names["ratio"].min(), names["ratio"].max()
    assert names["crude"].upper < 0.65 < low + 0.05
    assert low < true < high
    assert names["curves"].one("log-rank").p_value < 1e-4
    # Curves of the pooled rows are within the intervals, but for one in twenty.
    outside = compared = 0
    for group in names["groups"]:
        of_group = names["treatment"] == group
        times, shares = names["kaplan_meier"](names["months"][of_group], names["died"][of_group])
        for border in names["curves"].facts["borders"]:
            figure = names["curves"].one("survival", "months", group=group, level=f"{border:g}")
            pooled = shares[np.searchsorted(times, border, side="right") - 1]
            outside, compared = outside + (not figure.lower <= pooled <= figure.upper), compared + 1
    assert outside <= 2 < compared == 24
    content = names["page"].read_text()
    assert f"epsilon {names['privacy'].epsilon:.2f}" in content
    assert content.count("<li>") == len(names["known"])
    assert "<svg" in content


def test_programs_import_radofed_alone():
    known = {"csv", "io", "itertools", "tempfile", "html", "pathlib", "numpy", "matplotlib", "sklearn", "radofed"}
    for name in FROM_RADOFED_ALONE:
        code = "\n".join("".join(cell["source"]) for cell in cells_of(name))
        imported = re.findall(r"^(?:from|import) (\S+)", code, re.MULTILINE)
        assert {each.partition(".")[0] for each in imported} <= known, name
        assert "radofed" in imported
        assert not [each for each in imported if each.startswith("radofed.")]


def test_commands_of_tutorials_exist():
    texts = ["".join(cell["source"]) for name in PLOTS for cell in all_cells(name) if cell["cell_type"] == "markdown"]
    commands = [line.strip() for text in texts for line in text.splitlines() if line.startswith("    rado ")]
    assert len(commands) >= 5
    for command in commands:
        check_command("a tutorial", command)


def test_plots_are_stored():
    assert {path.stem for path in TUTORIALS.glob("*.ipynb")} == set(PLOTS)
    for name, plots in PLOTS.items():
        outputs = [part for cell in cells_of(name) for part in cell["outputs"]]
        assert sum("image/png" in part.get("data", {}) for part in outputs) == plots
        assert not [part for part in outputs if part["output_type"] == "error"]


@pytest.mark.more
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
    # The evaluation is two of them.
    assert len(names["federation"].answers) == 13
    assert 1 < total.epsilon < total.epsilon_if_others_collude < 3.5


def test_the_evaluation_is_of_these_rows(names):
    evaluation, theta = names["evaluation"], names["newton"].theta_
    assert evaluation.rows == 8000
    assert evaluation.error.on_rows.lower < evaluation.error.estimate < evaluation.error.on_rows.upper
    assert 0.75 < evaluation.auc.estimate < 0.9
    assert len(theta) == names["schema"].d
