"""Thresholds from a federation's dyadic counts: the right cut in either direction, the guarantee, and refusals."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import ConfigurationError, PlanError, SchemaError
from dpcore.estimators.conjunction import PrivateThreshold, worst_noise
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.statistics.pac import LaplaceCounts, TooFewRowsError
from tests.dpcore.estimators.oracle_world import category, divided, real, schema_of

TINY = Fraction(1, 10**6)
SCHEMA = schema_of(real("age", 0.0, 100.0), real("other"))
DIRECTIONS = ("above", "below")


def coordinates(ages):
    ages = np.asarray(ages, dtype=float)
    return np.column_stack([2 * ages / 100 - 1, np.zeros(len(ages)), np.ones(len(ages))])


def errors(ages, labels, cut, direction):
    """Errors of the classifier with this cut, None for one that never predicts +1."""
    positive = np.zeros(len(ages), dtype=bool) if cut is None else (ages >= cut if direction == "above" else ages < cut)
    return int(np.sum(np.where(positive, 1, -1) != labels))


@pytest.mark.parametrize(("epsilon", "delta"), [(None, 0), (1, 0), (1, Fraction(1, 10**6))])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("asked", ["own", "either"])
def test_the_target_is_found(epsilon, delta, direction, asked):
    ages = np.random.default_rng(1).uniform(0, 100, 7000)
    cut = 100 * 37 / 64
    labels = np.where((ages >= cut) == (direction == "above"), 1, -1)
    oracle = divided(SCHEMA, coordinates(ages), labels, epsilon=epsilon, delta=delta, seed=2)
    learner = PrivateThreshold("age", direction=direction if asked == "own" else "either").fit_queries(oracle)
    assert learner.direction_ == direction
    assert abs(learner.cut_ - cut) <= (0 if epsilon is None else 2 * 100 / 64)
    assert np.mean(learner.predict(coordinates(ages)) != labels) <= (0 if epsilon is None else 0.05)
    assert 0 < learner.guarantee_.rows <= 7000
    ((batch, _),) = oracle.releases
    assert batch_sensitivity(batch).l1 == batch_sensitivity(batch).l2_squared == 14
    assert len(batch) == 128


@pytest.mark.variants(2)
@pytest.mark.parametrize("cuts", [2, 8])
@pytest.mark.parametrize("direction", [*DIRECTIONS, "either"])
def test_without_noise_it_is_the_best_of_all(cuts, direction):
    generator = np.random.default_rng(cuts)
    bounds = [*(100 * k / cuts for k in range(1, cuts))]
    for _ in range(6):
        ages = generator.choice([*bounds, *generator.uniform(0, 100, 6)], 25)
        labels = generator.choice([-1, 1], 25, p=generator.dirichlet([1, 1]))
        oracle = divided(SCHEMA, coordinates(ages), labels, parties=2)
        learner = PrivateThreshold("age", cuts=cuts, direction=direction, require_rows=False).fit_queries(oracle)
        found = int(np.sum(learner.predict(coordinates(ages)) != labels))
        sides = DIRECTIONS if direction == "either" else (direction,)
        allowed = itertools.product([0.0, 200.0, *bounds], sides)
        assert found == min(errors(ages, labels, cut, side) for cut, side in allowed)


@pytest.mark.variants(2)
@pytest.mark.parametrize("direction", [*DIRECTIONS, "either"])
@pytest.mark.parametrize("label", [-1, 1])
def test_one_class_is_predicted_everywhere(direction, label):
    x = coordinates(np.linspace(0, 100, 50))
    oracle = divided(SCHEMA, x, np.full(50, label))
    learner = PrivateThreshold("age", direction=direction, require_rows=False).fit_queries(oracle)
    assert (learner.predict(x) == label).all()


def test_fewer_rows_than_the_guarantee_needs_are_refused():
    ages = np.random.default_rng(3).uniform(0, 100, 500)
    oracle = divided(SCHEMA, coordinates(ages), np.where(ages >= 50, 1, -1), epsilon=1)
    with pytest.raises(TooFewRowsError) as refused:
        PrivateThreshold("age").fit_queries(oracle)
    assert not oracle.releases
    learner = PrivateThreshold("age", require_rows=False).fit_queries(oracle)
    assert learner.guarantee_.rows >= refused.value.needed > 500
    agnostic = PrivateThreshold("age", agnostic=True, require_rows=False)
    again = divided(SCHEMA, coordinates(ages), np.where(ages >= 50, 1, -1), epsilon=1)
    assert agnostic.fit_queries(again).guarantee_.rows > learner.guarantee_.rows


def test_either_direction_needs_slightly_more_rows():
    rows = {}
    for direction in ("above", "either"):
        learner = PrivateThreshold("age", direction=direction)
        guarantee = learner._promise(LaplaceCounts(14.0), Fraction(1), Fraction(0))
        rows[direction] = guarantee.rows
    assert rows["above"] < rows["either"] < 2 * rows["above"]


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["above", "either"])
def test_the_guarantee_holds_with_the_stated_probability(direction, monkeypatch):
    alpha, beta, runs, cuts = 0.2, 0.2, 12, 16
    learner = PrivateThreshold("age", cuts=cuts, direction=direction, alpha=alpha, beta=beta, require_rows=False)
    guarantee = learner._promise(worst_noise(26.0), Fraction(1, 2), TINY)
    needed = guarantee.rows
    # It is the same for all runs, and takes a moment.
    monkeypatch.setattr(PrivateThreshold, "_promise", lambda *_: guarantee)
    bad = bad_below = 0
    for run in range(runs):
        for rows in (needed, needed // 20):
            # Rows are on either side of the target alone, so that each neighbouring cut is alpha wrong.
            ages = np.where(np.random.default_rng(run).random(rows) < alpha, 51.0, 49.0)
            labels = np.where(ages >= 50, 1, -1)
            oracle = divided(SCHEMA, coordinates(ages), labels, epsilon=Fraction(1, 2), delta=TINY, seed=run)
            missed = np.mean(learner.fit_queries(oracle).predict(coordinates(ages)) != labels) > alpha / 2
            bad += missed and rows == needed
            bad_below += missed and rows < needed
    assert bad <= stats.binom.isf(1e-4, runs, beta)
    assert bad_below > beta * runs


def test_unusable_schemas_and_parameters_are_refused():
    oracle = divided(SCHEMA, coordinates([1.0, 99.0]), np.array([-1, 1]), parties=1)
    for cuts in (0, 1, 3, 100):
        with pytest.raises(ConfigurationError, match="power of two"):
            PrivateThreshold("age", cuts=cuts).fit_queries(oracle)
    with pytest.raises(PlanError, match="4096"):
        PrivateThreshold("age", cuts=8192).fit_queries(oracle)
    with pytest.raises(ConfigurationError, match="direction"):
        PrivateThreshold("age", direction="up").fit_queries(oracle)
    with pytest.raises(SchemaError, match="'age'"):
        PrivateThreshold("ages").fit_queries(oracle)
    kinds = divided(schema_of(category("kind", ["a", "b"])), np.ones((2, 3)), np.array([-1, 1]), parties=1)
    with pytest.raises(SchemaError, match="it has none"):
        PrivateThreshold("kind").fit_queries(kinds)
