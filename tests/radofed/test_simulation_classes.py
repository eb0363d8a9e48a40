"""`rado simulate` of a label of several classes: what is measured, and what is refused before anything is asked."""

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.records.features import Classes, RealFeature
from dpcore.records.schema import Schema
from radofed.simulation.entry import simulate
from radofed.simulation.oracles import simulated_federation

pytestmark = pytest.mark.more

MEANS = {"ant": (0.5, 0.1), "bee": (-0.5, 0.3), "cow": (0.0, -0.5)}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """300 rows of three classes whose regions overlap a little; one label is missing."""
    generator = np.random.default_rng(4)
    path = tmp_path / "animals.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        written = csv.writer(file)
        written.writerow(["a", "b", "kind"])
        for row in range(300):
            name = list(MEANS)[row % 3]
            written.writerow([*np.round(np.array(MEANS[name]) + 0.2 * generator.normal(size=2), 4), name])
        written.writerow([0.0, 0.0, ""])
    return path


def simulated(table: Path, estimators: str = "mean-variance", **options: object):
    given = {"label": "kind", "target": "classes", "parties": 3, "folds": 2, "workers": 0, "epsilon": "20", **options}
    return simulate(table, estimators=estimators, **given)


def test_mean_variance_is_measured_beside_the_pooled_multinomial_regression(table):
    found = simulated(table).to_dict()
    results = found["results"]
    assert set(results) == {"mean-variance", "pooled", "majority"}
    assert results["pooled"]["test_error_mean"] < 0.05
    assert results["mean-variance"]["test_error_mean"] < results["pooled"]["test_error_mean"] + 0.05
    assert results["majority"]["test_error_mean"] == pytest.approx(2 / 3, abs=0.01)
    assert results["mean-variance"]["auc_mean"] > 0.9
    assert any("'kind' has 3 classes" in note for note in found["notes"])


def test_encryption_changes_no_figure_and_skewed_classes_still_add_up(table):
    plain = simulated(table, partition="label-skew").to_dict()["results"]
    hidden = simulated(table, partition="label-skew", encrypt=True, key_bits=2048).to_dict()["results"]
    for name in plain:
        assert plain[name]["test_error_mean"] == hidden[name]["test_error_mean"]
    assert plain["mean-variance"]["test_error_mean"] < 0.1


def test_without_an_epsilon_estimators_learn_from_exact_sums_and_nothing_is_asked(table):
    found = simulated(table, "newton,additive,mean-variance", epsilon=None)
    results = found.to_dict()["results"]
    for name in ("newton", "additive", "mean-variance"):
        assert results[name]["sees"] == "rows"
        assert abs(results[name]["test_error_mean"] - results["pooled"]["test_error_mean"]) <= 0.02
    assert found.privacy is None
    assert not found.asked
    assert any("no query was sent" in note for note in found.notes)
    with pytest.raises(ConfigurationError, match="nothing is asked, so no rows are held back"):
        simulated(table, epsilon=None, hold_back="1/4", evaluation_epsilon="1")


@pytest.mark.more
def test_curves_of_classes_are_the_same_under_encryption(table):
    plain, hidden = (
        simulated(table, "additive", options={"rounds": 4}, encrypt=encrypt, key_bits=2048).to_dict()["results"]
        for encrypt in (False, True)
    )
    assert plain["additive"]["test_error_mean"] == hidden["additive"]["test_error_mean"] < 0.1
    assert hidden["additive"]["sees"] == "answers"


@pytest.mark.parametrize("name", ["mean-variance", "additive"])
def test_rows_that_are_held_back_evaluate_an_estimator_of_classes(table, name):
    found = simulated(table, name, hold_back="1/4", evaluation_epsilon="20").to_dict()["results"][name]
    assert abs(found["evaluated_error_mean"] - found["test_error_mean"]) < 0.1
    assert found["evaluated_low_mean"] < found["test_error_mean"] < found["evaluated_high_mean"]


def test_a_schema_may_list_a_class_that_no_party_has(table):
    label = Classes(column="kind", values=(*MEANS, "elk"), missing="zero-vector")
    reals = tuple(RealFeature(name=name, lower=-1.5, upper=1.5, out_of_bounds="clip") for name in "ab")
    found = simulated(table, label=None, target=None, schema=Schema(name="s", label=label, features=reals)).to_dict()
    assert found["results"]["mean-variance"]["test_error_mean"] < 0.1
    assert any("'elk' (0)" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("estimators", "options", "sentence"),
    [
        (
            "moments-discriminant",
            {},
            "learns a label of two classes, and 'kind' is one of 3 classes: ",
        ),
        ("mean-variance", {"positive": "ant"}, "no positive values"),
        ("mean-variance", {"label": None}, "give the label's column"),
        ("mean-variance", {"folds": 101}, "choose at most 100 folds"),
        ("mean-variance", {"design": "gaussian", "rados": 10}, "a query for 10 rados needs a label of two classes"),
        ("mean-variance", {"label": "a"}, "a label has 2 to 100 classes"),
    ],
)
def test_what_cannot_be_is_refused(table, estimators, options, sentence):
    with pytest.raises((ConfigurationError, SchemaError), match=sentence):
        simulated(table, estimators, **options)


@pytest.mark.filterwarnings("ignore:1 of 301 rows")
def test_an_oracle_refuses_what_is_of_two_classes_before_it_asks(table):
    label = Classes(column="kind", values=tuple(MEANS), missing="zero-vector")
    reals = tuple(RealFeature(name=name, lower=-1.5, upper=1.5, out_of_bounds="clip") for name in "ab")
    federation = simulated_federation(table, schema=Schema(name="s", label=label, features=reals), parties=3)
    oracle = federation.within(Fraction(1), Fraction(1, 10**6))
    with pytest.raises(SchemaError, match="a sum of edges needs a label of two classes"):
        oracle.moments()
    with pytest.raises(SchemaError, match="needs a label of two classes"):
        oracle.gradient(np.zeros(3), clip=Fraction(1))
    with pytest.raises(SchemaError, match="has 3 classes, and no sign"):
        oracle.statistic(["y == 1"])
    assert oracle.left == 1
    assert oracle.statistic(['x["a"] >= 0']).values.shape == (1,)
