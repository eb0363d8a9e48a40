"""What a simulation refuses, and that it says what would work."""

import numpy as np
import pyarrow as pa
import pytest

import radofed
from dpcore.errors import ConfigurationError, DataError, PlanError, RadofedError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, Term
from dpcore.records.features import BooleanFeature, Label
from dpcore.records.schema import Schema
from radofed.simulation import federation as federation_module
from radofed.simulation.workers import SimulationError
from tests.radofed.simulation_world import SCHEMA, Recorder, made_up, simulate

MAP = FeatureMap((Term(Column(0)), Term(Hat(0, -ONE, 0, ONE))), bias=True)
MAP_OF_NOTHING = FeatureMap((Term(Column(99)),), bias=True)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("simulate") / "made_up.csv.gz")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"parties": 161}, "161 parties and 160 training rows"),
        ({"partition": "by-column:site", "parties": 6}, "at most 5 parties"),
        ({"partition": "random"}, "no partition"),
        ({"folds": 200}, "rarer class"),
        ({"rados": 1}, "1 rados"),
        ({"key_bits": 100, "encrypt": True}, "key_bits is 100: choose 2048 to 4096"),
        ({"design": "gaussian", "epsilon": "1e9999999"}, "too large or too small"),
        ({"design": "gaussian", "epsilon": 1, "delta": "1e-9999999"}, "too large or too small"),
        ({"estimators": "logistic"}, "always measured"),
        ({"estimators": ""}, "no estimator"),
        ({"design": "plane"}, "did you mean 'plain'"),
        ({"design": "dp-feat"}, "needs a sensitive feature"),
        ({"design": "gaussian"}, "give the epsilon"),
        ({"design": "moments"}, "give the epsilon"),
        ({"design": "plain", "epsilon": 1}, "takes no"),
        ({"design": "plain", "sensitive": "member"}, "takes no"),
        ({"design": "plain", "split": "exact"}, "takes no"),
        ({"design": "dp-feat", "sensitive": "member", "split": "exact"}, "give epsilon per rado"),
        ({"design": "dp-feat", "sensitive": "member", "split": "both"}, "choose local, exact"),
        ({"design": "dp-feat", "sensitive": "member", "epsilon": float("nan")}, "epsilon"),
        ({"design": "dp-feat", "sensitive": "member", "epsilon": "inf"}, "epsilon"),
        ({"design": "dp-feat", "sensitive": "member", "epsilon": 0}, "make it positive"),
        ({"design": "dp-feat", "sensitive": "member", "epsilon": -1}, "make it positive"),
        ({"design": "dp-feat", "sensitive": "member", "delta": 0}, "between 0 and 1"),
        ({"design": "dp-feat", "sensitive": "member", "delta": 1}, "0 to below 1"),
        ({"design": "dp-feat", "sensitive": "member", "delta": "1e-x"}, "is not a number"),
        ({"design": "dp-feat", "sensitive": "membr"}, "did you mean 'member'"),
        ({"design": "dp-feat", "sensitive": "kind=a"}, "kind=a"),
        ({"design": "dp-feat", "sensitive": "x0"}, "'x0' is a number.*--rounded x0"),
        ({"design": "dp-feat", "sensitive": "member", "rounded": "x0"}, "rounded but not named as sensitive"),
        ({"design": "plain", "rounded": "x0"}, "takes no rounded"),
        ({"estimators": []}, "no estimator"),
        ({"estimators": "radobost"}, "did you mean 'radoboost'"),
        ({"estimators": ["radoboost", "radoboost"]}, "twice"),
        ({"estimators": {"logistic": Recorder()}}, "always measured"),
        ({"estimators": {"mine": object()}}, "is not an estimator"),
        ({"label": "z"}, "no such column"),
        ({"positive": "inn"}, "did you mean 'in'"),
        ({"label": None}, "give the label's column"),
        ({"label": "member", "schema": SCHEMA}, "leave the label or the schema out"),
        ({"positive": "out", "schema": SCHEMA}, "the schema's positive values"),
        ({"schema": "/no/such/file.toml"}, "cannot be read"),
        ({"positive": ["in", "out"]}, "no other value than the positive ones"),
        ({"positive": True}, 'a positive value is True: give a text, such as "true"'),
        ({"positive": 1}, 'a positive value is 1: give a text, such as "1"'),
        ({"positive": ["in", 2.0]}, 'a positive value is 2.0: give a text, such as "2"'),
        ({"positive": np.bool_(True)}, 'give a text, such as "true"'),
        ({"label": 4}, 'label is 4: give a text, such as "4"'),
        ({"feature_map": MAP, "design": "plain"}, "plain takes no feature map"),
        ({"feature_map": MAP, "estimators": "newton", "epsilon": 1}, "leave the map out"),
        ({"feature_map": MAP_OF_NOTHING, "design": "moments", "epsilon": 1}, "coordinate 99"),
    ],
)
def test_bad_input_is_refused_with_what_would_work(table, options, said):
    with pytest.raises(RadofedError, match=said) as refused:
        simulate(table, **options)
    assert refused.value.exit_code in (1, 4, 6)
    if not isinstance(refused.value, PlanError) and "key_bits" not in options:
        assert isinstance(refused.value, ConfigurationError | DataError)
        assert refused.value.exit_code == 4


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="check its path"):
        simulate(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("usable", "said"),
    [
        (
            0,
            r"the table: no row is usable: in column 'flag' 9 of 9 cells are in neither true nor.*unknown = .*correct",
        ),
        (2, r"all usable rows have one label \(9 of 11 rows are not usable: in column 'flag' 9 of 11 cells are"),
    ],
)
def test_the_column_that_leaves_rows_out_is_named(usable, said):
    schema = Schema(
        name="flags",
        label=Label(column="y", positive=("in",)),
        features=(BooleanFeature(name="flag", true=("T",), false=("F",), unknown="zero-vector"),),
    )
    table = pa.table({"flag": ["true"] * 9 + ["T"] * usable, "y": ["in"] * 9 + ["out"] * usable})
    with pytest.raises(RadofedError, match=said):
        simulate(table, schema=schema, label=None, positive=None)
    if usable:
        with pytest.warns(UserWarning, match=r"9 of 11 rows are not usable: in column 'flag'.*: correct") as warned:
            radofed.simulated_federation(table, schema=schema, parties=2)
        assert warned[0].filename == __file__


@pytest.mark.parametrize("fails", ["raises", "nan", "shape"])
def test_a_learner_that_fails_says_so(table, fails):
    class Failing:
        def fit_release(self, release):
            if fails == "raises":
                raise ZeroDivisionError("no pivot")

        def decision_function(self, X):
            return np.full(len(X), np.nan) if fails == "nan" else np.zeros((len(X), 2))

    said = "no pivot" if fails == "raises" else "finite numbers"
    with pytest.raises(SimulationError, match=rf"'mine'.*fold 1.*{said}|'mine'.*{said}.*fold 1"):
        simulate(table, estimators={"mine": Failing()}, rados=5)


def test_a_learner_s_own_refusal_keeps_its_exit_code(table):
    from dpcore.estimators.radoboost import RadoBoost

    with pytest.raises(SimulationError, match="n_rounds") as refused:
        simulate(table, estimators={"mine": RadoBoost(n_rounds=0)}, rados=5)
    assert refused.value.exit_code == 4


def test_what_has_no_bound_is_refused_before_anything_is_sent(table, monkeypatch):
    monkeypatch.setattr(federation_module.SimulatedFederation, "ask", lambda *_: pytest.fail("a query was sent"))
    with pytest.raises(PlanError, match="no finite epsilon"):
        simulate(
            table, design="dp-feat", sensitive="member", epsilon_per_rado=0.5, split="exact", delta=1e-9, rados=100
        )
