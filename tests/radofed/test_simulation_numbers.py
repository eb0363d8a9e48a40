"""`rado simulate` of labels that are numbers and counts: what is measured, and what is refused before a query."""

import csv
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.features import Count, Label, Number, RealFeature
from dpcore.records.schema import Schema
from learner.requests import MomentsRequest
from radofed.cli.entry_point import run
from radofed.simulation.entry import simulate
from radofed.simulation.oracles import simulated_federation

pytestmark = pytest.mark.more

ROWS = 4000


def written(path: Path, heading: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heading, *rows])
    return path


@pytest.fixture(scope="module")
def wages(tmp_path_factory) -> Path:
    """A wage whose logarithm is linear in two columns, R^2 about 0.8; one is missing."""
    generator = np.random.default_rng(4)
    a, b = generator.uniform(0, 10, (2, ROWS))
    wage = np.exp(4 + 0.25 * a - 0.1 * b + 0.4 * generator.normal(size=ROWS))
    rows = [[f"{x:.3f}", f"{y:.3f}", f"{z:.2f}"] for x, y, z in zip(a, b, wage, strict=True)]
    return written(tmp_path_factory.mktemp("wages") / "wages.csv", ["a", "b", "wage"], [*rows, [1, 2, ""]])


@pytest.fixture(scope="module")
def visits(tmp_path_factory) -> Path:
    """Counts over years whose rate rises with one column."""
    generator = np.random.default_rng(5)
    a, years = generator.uniform(0, 10, ROWS), generator.choice([0.5, 1.0, 2.0], ROWS)
    counts = generator.poisson(years * np.exp(0.2 * a - 0.5))
    rows = [[f"{x:.3f}", y, n] for x, y, n in zip(a, years, counts, strict=True)]
    return written(tmp_path_factory.mktemp("visits") / "visits.csv", ["a", "years", "visits"], rows)


def simulated(table: Path, estimators: str, **options: object) -> dict:
    given = {"parties": 3, "folds": 2, "workers": 0, "epsilon": "3", **options}
    return simulate(table, estimators=estimators, **given).to_dict()


def test_a_number_is_measured_beside_pooled_least_squares(wages):
    found = simulated(wages, "linear,newton", label="wage", target="number")
    results = found["results"]
    assert list(results) == ["linear", "newton", "pooled", "majority"]
    assert results["pooled"]["r2_mean"] > 0.7
    for name in ("linear", "newton"):
        assert 0 < results[name]["r2_mean"] <= results["pooled"]["r2_mean"] + 0.01
    assert results["newton"]["r2_mean"] > results["pooled"]["r2_mean"] - 0.02
    assert results["majority"]["r2_mean"] == pytest.approx(0, abs=0.01)
    assert results["newton"]["absolute_error_mean"] < results["majority"]["absolute_error_mean"]
    assert found["asked"]["newton"]["epsilon_if_others_collude"] <= 3
    assert any("its logarithm is learned" in note for note in found["notes"])
    assert found["table"]["unusable_rows"] == 1


def test_a_count_is_measured_beside_the_pooled_poisson_regression(visits):
    results = simulated(visits, "newton", label="visits", target="count", epsilon="10")["results"]
    assert results["pooled"]["deviance_explained_mean"] > 0.1
    assert results["newton"]["deviance_explained_mean"] > 0.85 * results["pooled"]["deviance_explained_mean"]
    assert results["majority"]["deviance_explained_mean"] == pytest.approx(0, abs=0.01)


def test_a_count_over_an_exposure_is_drafted_as_a_schema_of_the_same_label_says(visits):
    with visits.open(newline="", encoding="utf-8") as file:
        most = max(int(row["visits"]) for row in csv.DictReader(file))
    label = Count(
        column="visits",
        upper=most,
        exposure="years",
        exposure_lower=0.5,
        exposure_upper=2.0,
        missing="zero-vector",
        unreadable="zero-vector",
        out_of_bounds="clip",
    )
    found = simulated(visits, "newton", label="visits", target="count", exposure="years")
    federation = simulated_federation(visits, label="visits", target="count", exposure="years", parties=3)
    drafted = federation.schema
    assert [each.name for each in drafted.features] == ["a"]
    assert drafted.label == label
    expected = simulated(visits, "newton", schema=drafted)
    measured = ("deviance_explained_mean", "absolute_error_mean")
    assert [[found["results"][name][each] for each in measured] for name in found["results"]] == [
        [expected["results"][name][each] for each in measured] for name in expected["results"]
    ]


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("an exposure is of a count: choose the target count", {"target": "number"}),
        ("an exposure is of a count: choose the target count", {"target": "classes"}),
        ("an exposure is of a count: choose the target count", {"positive": "1"}),
        ("an exposure is of a count: choose the target count", {"target": "event", "event": "a"}),
        ("but there is 'years'", {"target": "count", "exposure": "yaers"}),
        ("'place' is no exposure of numbers: .*; name another", {"target": "count", "exposure": "place"}),
        ("what divides the rows, so it cannot be", {"target": "count", "partition": "by-column:years"}),
    ],
)
def test_an_exposure_is_of_a_count_alone(tmp_path, words, options):
    rows = [[f"{n / 7:.3f}", "1.5" if n % 2 else "0.5", "ab"[n % 2], n % 3] for n in range(200)]
    table = written(tmp_path / "visits.csv", ["a", "years", "place", "visits"], rows)
    asked = {"label": "visits", "exposure": "years", "parties": 3, "workers": 0, **options}
    with pytest.raises((ConfigurationError, DataError), match=words):
        simulate(table, **asked)


def test_a_schema_says_what_a_count_is_over(visits):
    federation = simulated_federation(visits, label="visits", target="count", exposure="years", parties=3)
    with pytest.raises(ConfigurationError, match="leave exposure or the schema out"):
        simulated_federation(visits, schema=federation.schema, exposure="years", parties=3)


def test_an_exposure_explains_more(visits):
    label = Count(column="visits", upper=40, exposure="years", exposure_lower=0.25, exposure_upper=4.0)
    schema = Schema(name="visits", label=label, features=(RealFeature(name="a", lower=0.0, upper=10.0),))
    with pytest.raises(ConfigurationError, match="linear takes no exposure"):
        simulated(visits, "linear", schema=schema)
    results = simulated(visits, "newton", schema=schema, epsilon="10")["results"]
    assert results["newton"]["deviance_explained_mean"] > 0.9 * results["pooled"]["deviance_explained_mean"]


def test_encryption_changes_no_figure(wages):
    options = {"label": "wage", "target": "number", "partition": "label-skew"}
    plain = simulated(wages, "linear", **options)["results"]["linear"]["r2_mean"]
    assert plain == simulated(wages, "linear", **options, encrypt=True, key_bits=2048)["results"]["linear"]["r2_mean"]


def test_the_command_prints_the_measure_and_its_json(wages, capsys):
    options = ["--data", str(wages), "--label", "wage", "--target", "number", "--parties", "3", "--workers", "0"]
    code = run(["simulate", *options, "--estimator", "linear", "--epsilon", "5", "--folds", "2", "--format", "json"])
    assert code == 0
    results = json.loads(capsys.readouterr().out)["data"]["results"]
    assert results["linear"]["r2_mean"] > 0.5
    assert "r2_mean" in results["pooled"]


@pytest.mark.parametrize(
    ("estimators", "options", "says"),
    [
        ("mean-variance", {}, "mean-variance learns classes, and 'wage' is a number"),
        ("naive-bayes", {}, "choose newton, additive or linear"),
        ("linear", {"positive": "5"}, "no positive values"),
        ("linear", {"hold_back": "1/5"}, "rows that are held back are evaluated for labels of classes"),
    ],
)
def test_what_has_no_numbers_is_refused(wages, estimators, options, says):
    with pytest.raises(ConfigurationError, match=says):
        simulated(wages, estimators, label="wage", target="number", **options)


def test_attacks_epochs_and_pictures_of_errors_are_of_classes(wages, tmp_path, capsys):
    label = Number(column="wage", lower=1.0, upper=10_000.0, log=True, missing="zero-vector")
    schema = Schema(name="w", label=label, features=(RealFeature(name="a", lower=0.0, upper=10.0),))
    (tmp_path / "schema.toml").write_text(schema.to_toml())
    given = ["--data", str(wages), "--schema", str(tmp_path / "schema.toml"), "--parties", "3", "--epsilon", "1"]
    for more, says in (
        (["--attack", "all"], "a rehearsed attack needs a label of two classes"),
        (["--epochs", "3"], "a simulation over epochs needs a label of two classes"),
        (
            ["--picture", str(tmp_path / "x.svg"), "--workers", "0", "--folds", "2"],
            "is of the error of classes",
        ),
    ):
        assert run(["simulate", *given, *more]) != 0
        assert says in capsys.readouterr().err


def test_a_plan_states_the_noise_in_the_label_s_unit():
    """The noise on a sum of t x is that of moments of edges, as the squares cost nothing."""
    features = (RealFeature(name="a", lower=0.0, upper=10.0),)
    label = Number(column="wage", lower=1.0, upper=10_000.0)
    schemas = [Schema(name="w", label=each, features=features) for each in (label, Label(column="y", positive=("1",)))]
    planned = [MomentsRequest(schema, epsilon=Fraction(1)).kind(2, ()) for schema in schemas]
    number, edges = (kind.share_sigma * kind.sum_unit(10) for kind in planned)
    assert number == pytest.approx(edges, rel=0.1)


def test_linear_learns_no_classes(tmp_path):
    path = written(
        tmp_path / "t.csv", ["a", "y"], [[place * 7 % 5, "yes" if place % 3 else "no"] for place in range(30)]
    )
    with pytest.raises(ConfigurationError, match="linear learns a number or a count"):
        simulated(path, "linear", label="y", positive="yes")


@pytest.mark.parametrize(
    ("cells", "target", "says"),
    [
        (["high"] * 9, "number", "no cell is a finite number"),
        ([5] * 9, "number", "has one value, 5"),
        ([*range(8), -1], "count", "has the number -1, and a count is a whole number from 0"),
        ([*range(8), 1.5], "count", "has numbers with fractions"),
        ([0] * 9, "count", "has one value, 0"),
    ],
)
def test_a_column_that_is_no_such_label_is_refused(tmp_path, cells, target, says):
    path = written(tmp_path / "t.csv", ["a", "y"], [[place / 7, cell] for place, cell in enumerate(cells)])
    with pytest.raises(ConfigurationError, match=says):
        simulated(path, "newton", label="y", target=target)


def test_a_schema_that_refuses_a_label_names_the_cell_s_place(tmp_path):
    path = written(tmp_path / "t.csv", ["a", "y"], [[0.1, 3], [0.2, "inf"]])
    label = Number(column="y", lower=0.0, upper=5.0)
    schema = Schema(name="t", label=label, features=(RealFeature(name="a", lower=0.0, upper=1.0),))
    with pytest.raises(DataError, match="not a finite number") as refused:
        simulated(path, "linear", schema=schema)
    assert "line 3" in str(refused.value)


def test_statistics_know_numbers(wages):
    label = Number(column="wage", lower=1.0, upper=10_000.0, log=True, missing="zero-vector")
    schema = Schema(name="w", label=label, features=(RealFeature(name="a", lower=0.0, upper=10.0),))
    with pytest.warns(UserWarning, match="1 of 4001 rows is not usable"):
        federation = simulated_federation(wages, schema=schema, parties=3)
    found = federation.statistic(["y >= 100", '(y < 100) & (x["a"] >= 5)', "y"], epsilon=Fraction(100))
    with wages.open() as file:
        rows = [(float(row["a"]), float(row["wage"])) for row in csv.DictReader(file) if row["wage"]]
    a, wage = np.array(rows).T
    share = np.log(wage) / np.log(10_000)
    exact = [np.mean(wage >= 100), np.mean((wage < 100) & (a >= 5)), share.mean()]
    assert found.values == pytest.approx(np.array(exact) * len(wage) / (len(wage) + 1), abs=0.005)


@pytest.mark.parametrize("epsilon", [1, 30])
def test_a_count_whose_residuals_are_large_is_learned_in_all_rounds(tmp_path, epsilon):
    """A clip of some hundred did not fit 64 bits with the usual fraction bits: all gradients were refused."""
    generator = np.random.default_rng(6)
    columns = generator.uniform(-1, 1, (ROWS, 4))
    counts = generator.negative_binomial(3, 3 / (3 + np.exp(4.5 + columns @ [0.8, -0.5, 0.3, 0.0])))
    rows = [[*(f"{x:.3f}" for x in row), min(n, 900)] for row, n in zip(columns, counts.tolist(), strict=True)]
    table = written(tmp_path / "weights.csv", ["a", "b", "c", "d", "weight"], rows)
    federation = simulated_federation(table, label="weight", target="count", parties=3, seed=1)
    model = federation.train("newton", epsilon=epsilon)
    assert len(federation.answers) == 8
    # At a large epsilon steps that are too long swung around the root.
    assert np.abs(model.theta[:4] - [0.8, -0.5, 0.3, 0.0]).max() < 0.15
