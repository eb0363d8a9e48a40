"""Rows that arrive in epochs, in a simulation: an update follows what drifts if it forgets."""

from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, RadofedError
from parties.data.schema_draft import infer
from radofed import simulate
from radofed.cli.entry_point import run
from radofed.simulation.epochs import epochs_of
from tests.federation.processes import rado

MONTHS = tuple(f"2026-{month:02d}" for month in range(1, 11))
DRIFT = 5
"""So many months follow the first rule."""


def drifting(rows_each: int, seed: int = 0) -> str:
    """Patients whose risk is decided by one measurement in the first months, and by its opposite afterwards."""
    random = np.random.default_rng(seed)
    lines = ["month,crp,age,ill"]
    for number, month in enumerate(MONTHS):
        crp, age = random.uniform(-1, 1, (2, rows_each))
        sign = 1.0 if number < DRIFT else -1.0
        ill = sign * crp + 0.5 * age + random.normal(0, 0.3, rows_each) > 0
        lines += [f"{month},{c:.4f},{a:.4f},{'yes' if i else 'no'}" for c, a, i in zip(crp, age, ill, strict=True)]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("drift") / "patients.csv"
    path.write_text(drifting(600))
    return path


def simulated(table, *options: str) -> dict:
    label = ("--data", str(table), "--label", "ill", "--positive", "yes", "--parties", "3", "--workers", "0")
    return rado("simulate", *label, "--epsilon", "2", "--epochs", "by-column:month", *options)["data"]


def errors(found: dict, model: str) -> np.ndarray:
    return np.array([each[model] for each in found["epochs"]])


@pytest.mark.more
def test_an_update_that_forgets_recovers_after_a_drift_and_one_that_adds_up_does_not(table):
    """The figures of docs/simulation.md, at this seed."""
    found = simulated(table)
    assert [each["epoch"] for each in found["epochs"]] == list(MONTHS[1:])
    assert [each["trained_on"] for each in found["epochs"]] == list(range(1, 10))
    pooled, forgetting = errors(found, "all"), errors(found, "forgetting")
    before, first, recovered = slice(0, DRIFT - 1), DRIFT - 1, slice(DRIFT + 1, 9)
    # Before the drift both know the rule; its first month surprises both.
    assert max(pooled[before].max(), forgetting[before].max()) < 0.2
    assert min(pooled[first], forgetting[first]) > 0.5
    # From the third month after it on, the one that forgets knows the new rule, and the other does not.
    assert forgetting[recovered].max() < 0.2
    assert pooled[recovered].min() > 0.3
    # Each row is in one release: the figures are those of one month, whatever their number.
    assert 1.9 < found["privacy"]["epsilon_if_others_collude"] <= 2
    page = (Path(__file__).parents[2] / "docs/simulation.md").read_text(encoding="utf-8")
    for each in found["epochs"][DRIFT - 2 :]:
        _, _, *stated, _ = next(line for line in page.splitlines() if each["epoch"] in line).split("|")
        measured = [100 * each[model] for model in ("newest", "all", "forgetting")]
        assert list(map(float, stated)) == pytest.approx(measured, abs=0.5)


@pytest.mark.more
def test_without_drift_adding_up_is_better_than_the_newest_month_alone(tmp_path):
    path = tmp_path / "rows.csv"
    header, *rows = drifting(200, seed=1).splitlines()
    path.write_text("\n".join([header, *(row for row in rows if row[:7] < MONTHS[DRIFT])]) + "\n")
    runs = [simulated(path, "--epsilon", "3/10", "--seed", seed) for seed in "123"]
    pooled, newest = (np.mean([errors(run, model) for run in runs]) for model in ("all", "newest"))
    assert pooled < newest - 0.05


@pytest.mark.more
def test_encryption_changes_no_figure(table, tmp_path):
    small = tmp_path / "small.csv"
    header, *rows = table.read_text().splitlines()
    small.write_text("\n".join([header, *rows[: 1200 + 50]]) + "\n")
    plain, encrypted = (simulated(small, *options) for options in ((), ("--encrypt", "--key-bits", "2048")))
    assert plain == encrypted


@pytest.mark.more
def test_rados_of_epochs_add_up(table):
    found = simulated(table, "--design", "gaussian", "--rados", "100", "--epsilon", "50", "--forgetting", "1/3")
    assert errors(found, "all")[: DRIFT - 1].max() < 0.25
    assert {each["forgetting"] for each in found["epochs"]} == {None}


def test_epochs_are_runs_of_rows_or_the_sorted_texts_of_a_column(table):
    runs = epochs_of("4", table, 10)
    assert [(each.name, each.rows.tolist()) for each in runs] == [
        ("1", [0, 1, 2]),
        ("2", [3, 4, 5]),
        ("3", [6, 7]),
        ("4", [8, 9]),
    ]
    named = epochs_of("by-column:month", table, 6000)
    assert [each.name for each in named] == list(MONTHS)
    assert sorted(np.concatenate([each.rows for each in named])) == list(range(6000))


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--epochs", "1"), "give a number from 2 to the table's rows"),
        (("--epochs", "7000"), "give a number from 2"),
        (("--folds", "3"), "leave --folds out"),
        (("--hold-back", "1/5"), "leave --hold-back out"),
        (("--estimator", "logistic-gd"), "learns from releases, such as mean-variance, or one that starts from"),
        (("--estimator", "newton", "--forgetting", "1/3"), "leave it out"),
        (("--estimator", "newton", "--rounds", "1"), "rounds is 1: choose at least 2"),
        (("--estimator", "newton", "--epochs", "2"), "2 epochs, and this simulation needs 3"),
        (("--estimator", "newton", "--rados", "9"), "trained by queries, so leave out"),
        (("--rounds", "4"), "releases have no rounds"),
        (("--picture", "x.svg"), "leave --picture out"),
        (("--estimator", "radoboost"), "cannot learn from moments"),
        (("--partition", "by-column:age"), "choose another --partition"),
        (("--forgetting", "0"), "forgetting"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_would(table, capsys, options, reason):
    label = ("--data", str(table), "--label", "ill", "--positive", "yes", "--parties", "3", "--epsilon", "1")
    assert run(["simulate", *label, "--workers", "0", "--epochs", "by-column:month", *options]) != 0
    assert reason in " ".join(capsys.readouterr().err.split())


@pytest.mark.more
def test_the_table_for_people_has_a_line_for_each_epoch(table, capsys):
    label = ("--data", str(table), "--label", "ill", "--positive", "yes", "--parties", "3", "--epsilon", "1")
    assert run(["simulate", *label, "--workers", "0", "--epochs", "3", "--forgetting", "1/4"]) == 0
    shown = capsys.readouterr().out
    assert "forget 1/4" in shown
    assert len([line for line in shown.splitlines() if line.split()[:1] in (["2"], ["3"])]) == 2


@pytest.mark.more
def test_a_warm_start_needs_fewer_rounds_for_the_error_of_a_cold_one(tmp_path):
    """Of months without drift, and not of the first one after it."""
    path = tmp_path / "rows.csv"
    header, *rows = drifting(600, seed=1).splitlines()
    steady = [row for row in rows if row[:7] < MONTHS[DRIFT]]
    path.write_text("\n".join([header, *steady]) + "\n")
    asked = ("--estimator", "newton", "--epsilon", "1/2", "--rounds", "6")
    found = simulated(path, *asked)
    assert found["needed"]["warm"] < found["needed"]["cold"] <= 6
    assert [each["rounds"] for each in found["rounds"]] == [2, 3, 4, 5, 6]
    assert found["epochs"] == list(MONTHS[2:DRIFT])
    # Each row is in one training: the last model, and all that it started from, cost what one month does.
    assert found["privacy"]["releases"] == 6 * (DRIFT - 1)
    assert 0.4 < found["privacy"]["epsilon_if_others_collude"] <= 0.5
    assert simulated(path, *asked) == found
    last = "\n".join([header, *(row for row in rows if MONTHS[DRIFT - 2] <= row[:7] <= MONTHS[DRIFT + 1])]) + "\n"
    path.write_text(last)
    drifted = simulated(path, *asked)
    # Trained on the first month of the other rule: what the earlier model knew is wrong.
    assert drifted["rounds"][0]["warm"] > drifted["rounds"][0]["cold"] + 0.1


@pytest.mark.more
def test_python_simulates_epochs_as_the_command_does(table):
    asked = {"label": "ill", "positive": "yes", "parties": 3, "workers": 0, "epsilon": 2}
    months = simulate(table, epochs="by-column:month", forgetting="1/3", **asked)
    assert months.to_dict() == simulated(table, "--forgetting", "1/3")
    runs = simulate(table, epochs=3, estimators="newton", rounds=2, **asked)
    assert [each.rounds for each in runs.tested] == [2]
    assert "From the model of the epoch before" in " ".join(runs.sentences())
    for odd, reason in (
        ({"folds": 3, "epochs": 3}, "leave --folds out"),
        ({"forgetting": "1/3"}, "give --epochs"),
        ({"epochs": 3, "feature_map": "map.toml"}, "leave the map out"),
        ({"epochs": 3, "estimators": "newton", "epsilon": None}, "queries need a budget"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            simulate(table, **{**asked, **odd})


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (["2026-10,0.1,0.2,yes"] * 9 + ["2026-11,0.3,0.1,no"] * 2, "epoch 2026-11 has 2 rows for 3 parties"),
        (["2026-10,0.1,0.2,yes", "2026-10,0.4,0.1,no"] * 5 + ["2026-11,0.3,0.1,?"] * 5, "2026-11 has no usable row"),
    ],
)
def test_an_epoch_that_is_too_small_is_refused_before_any_is_released(tmp_path, rows, reason):
    path, said = tmp_path / "rows.csv", list[str]()
    path.write_text("\n".join(["month,crp,age,ill", *rows]) + "\n")
    asked = {"label": "ill", "positive": "yes", "parties": 3, "workers": 0, "epsilon": 2}
    with pytest.raises(RadofedError, match=reason):
        simulate(path, epochs="by-column:month", note=said.append, **asked)
    assert said == []


def test_a_schema_with_the_column_of_the_epochs_is_refused(table):
    schema, _ = infer(table, "ill", ["yes"])
    with pytest.raises(ConfigurationError, match="take it out of the schema"):
        simulate(table, epochs="by-column:month", schema=schema, parties=3, workers=0, epsilon=2)
