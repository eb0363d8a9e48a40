"""Simulations in which parties hold rows back: trained on the others, evaluated on these by a query that is charged."""

import csv
import gzip
import json
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest

from dpcore.errors import ConfigurationError, PlanError, RadofedError
from dpcore.estimators.base import RadoSample
from radofed.cli.entry_point import run
from radofed.simulation.evaluation import HoldBack
from tests.radofed.simulation_world import SCHEMA, made_up, simulate

ROWS = 600
FIFTH = Fraction(1, 5)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("held back") / "made_up.csv.gz", ROWS)


class Counter:
    """Says that members are positive. It counts the rows that it is trained on, and on how many of them it is wrong."""

    seen: list = []  # noqa: RUF012  (what all copies saw)

    def fit_queries(self, oracle):
        found = oracle.statistic(["true", '~x["member"] & (y == 1)', 'x["member"] & ~(y == 1)'])
        rows, *wrong = found.values * found.rows
        Counter.seen.append((rows, sum(wrong), oracle))
        self.theta_ = np.array([0.0, 0.0, 1.0, 0.0])
        return self

    def decision_function(self, X):
        return X @ self.theta_


def counted(table, **options):
    Counter.seen = []
    result = simulate(table, schema=SCHEMA, estimators={"mine": Counter()}, folds=2, **options)
    return result, list(Counter.seen)


@pytest.mark.more
def test_training_and_held_back_rows_are_together_the_rows_of_a_fold(table):
    from sklearn.model_selection import StratifiedKFold

    with gzip.open(table, "rt") as file:
        rows = list(csv.DictReader(file))
    wrong = np.array([(row["member"] == "yes") != (row["y"] == "in") for row in rows])
    positive = np.array([row["y"] == "in" for row in rows])
    result, seen = counted(table, epsilon=100, hold_back=0.2)
    mine = [row for row in result.rows if row.learner == "mine"]
    splits = StratifiedKFold(2, shuffle=True, random_state=2).split(positive, positive)
    for (training, _), (trained, wrong_trained, oracle), row in zip(splits, seen, mine, strict=True):
        held_back = len(training) - trained
        # Each party decides by its own key: 60 of 300 rows, with a standard deviation of 7.
        assert 30 < held_back < 90
        wrong_held_back = row.evaluated_error * held_back
        assert wrong_trained + wrong_held_back == pytest.approx(wrong[training].sum(), abs=2)
        assert row.evaluated_low < row.evaluated_error < row.evaluated_high
        assert oracle.held_back.share == FIFTH
        assert row.training_rows == len(training)


@pytest.mark.more
def test_an_evaluation_is_charged_beside_the_training(table):
    result, _ = counted(table, epsilon=1, hold_back="1/5", evaluation_epsilon="1/2")
    assert result.hold_back == FIFTH
    for statement, epsilon in ((result.asked["mine"], 1.0), (result.evaluated["mine"], 0.5)):
        assert (statement.scope, statement.unit) == (result.asked["mine"].scope, result.asked["mine"].unit)
        assert 0.95 * epsilon < statement.epsilon_if_others_collude <= epsilon
    same, _ = counted(table, epsilon=1, hold_back="1/5")
    assert 0.95 < same.evaluated["mine"].epsilon_if_others_collude <= 1
    assert any("Parties charge it beside the training" in note for note in result.notes)
    assert "What the evaluation of 'mine' protects" in "\n".join(result.sentences())


@pytest.mark.slow
def test_encryption_changes_no_evaluation_and_a_seed_repeats_it(table):
    bare, sealed, other = (
        counted(table, epsilon=5, hold_back="1/5", parties=3, **options)[0]
        for options in ({}, {"encrypt": True, "key_bits": 2048}, {"seed": 3})
    )
    evaluated = [[row.evaluated_error for row in found.rows] for found in (bare, sealed, other)]
    assert evaluated[0] == evaluated[1] != evaluated[2]
    assert bare.evaluated == sealed.evaluated


def test_a_release_is_of_the_training_part_and_what_has_no_weights_is_named(table):
    class OfRados:
        given: list = []  # noqa: RUF012

        def fit_release(self, release):
            OfRados.given.append(release)
            return self

        def decision_function(self, X):
            return X[:, 0]

    options = {"design": "gaussian", "epsilon": 20, "rados": 20, "folds": 2, "hold_back": FIFTH}
    result = simulate(table, schema=SCHEMA, estimators={"mine": OfRados()}, **options)
    assert [(type(each), each.rows) for each in OfRados.given] == [(RadoSample, 240)] * 2
    assert result.evaluated == {}
    assert result.to_dict()["results"]["mine"]["evaluated_error_mean"] is None
    assert any("no weight for each coordinate: mine." in note for note in result.notes)


COMMAND = ["--label", "y", "--positive", "in", "--parties", "4", "--folds", "2", "--workers", "0", "--format", "json"]


@pytest.mark.more
def test_the_command_prints_the_evaluation_and_writes_it_for_each_fold(table, tmp_path, capsys):
    folds = tmp_path / "folds.parquet"
    asked = ["--design", "moments", "--epsilon", "20", "--hold-back", "0.2", "--per-fold", str(folds)]
    assert run(["simulate", "--data", str(table), *COMMAND, *asked]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    found = data["results"]["mean-variance"]
    rows = [row for row in pq.read_table(folds).to_pylist() if row["learner"] == "mean-variance"]
    for key in ("error", "low", "high"):
        mean = np.mean([row[f"evaluated_{key}"] for row in rows])
        assert found[f"evaluated_{key}_mean"] == pytest.approx(mean)
    assert 0 <= found["evaluated_low_mean"] < found["evaluated_error_mean"] < found["evaluated_high_mean"] <= 1
    assert data["results"]["logistic"]["evaluated_error_mean"] is None
    assert data["hold_back"] == "1/5"
    assert data["evaluated"]["mean-variance"]["scope"] == "record"


def test_without_it_nothing_is_evaluated(table):
    result, ((trained, *_), _) = counted(table, epsilon=100)
    assert trained == pytest.approx(ROWS // 2, abs=2)
    data = result.to_dict()
    assert (data["hold_back"], data["evaluated"]) == (None, {})
    assert all(row.evaluated_error is row.evaluated_low is row.evaluated_high is None for row in result.rows)
    assert "held back" not in "\n".join(result.sentences())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hold_back": 1, "design": "moments", "epsilon": 1}, "choose one between 0 and 1"),
        ({"hold_back": 0, "design": "moments", "epsilon": 1}, "make it positive"),
        ({"hold_back": "a fifth", "design": "moments", "epsilon": 1}, "is not a number"),
        ({"hold_back": 0.2, "design": "plain"}, "give its epsilon"),
        ({"hold_back": 0.2, "design": "plain", "evaluation_epsilon": 1}, "rows that are held back would count"),
        ({"hold_back": 0.2, "design": "moments", "epsilon": 1, "evaluation_epsilon": 0}, "make it positive"),
        ({"evaluation_epsilon": 1}, "no rows are held back"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_any_query(table, options, said):
    notes = []
    with pytest.raises(RadofedError, match=said):
        simulate(table, note=notes.append, **options)
    assert notes == []


def test_options_are_checked_by_themselves():
    assert HoldBack.of(None, None, None, Fraction(0)) is None
    with pytest.raises(PlanError):
        HoldBack.of(Fraction(3, 2), None, Fraction(1), Fraction(0))
    with pytest.raises(ConfigurationError):
        HoldBack.of(FIFTH, None, None, Fraction(0))


@pytest.mark.slow
def test_a_model_of_curves_is_evaluated_on_mapped_rows(table):
    options = {"folds": 2, "hold_back": FIFTH, "parties": 3, "epsilon": 20}
    result = simulate(table, schema=SCHEMA, estimators="additive", **options)
    assert set(result.evaluated) == {"additive"}
    assert not any("no weight for each coordinate" in note for note in result.notes)
    for row in (row for row in result.rows if row.learner == "additive"):
        assert row.evaluated_low < row.evaluated_error < row.evaluated_high
        # Both are of the same model, on some sixty and on three hundred rows.
        assert row.evaluated_low <= row.test_error <= row.evaluated_high
        assert abs(row.evaluated_error - row.test_error) < 0.2
