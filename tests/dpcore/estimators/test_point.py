"""Point functions from a federation's counts: the right value, the stated guarantee, and refusals."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import PlanError, SchemaError
from dpcore.estimators.conjunction import PrivatePoint, PrivateThreshold, stated_noise, worst_noise
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.expressions import LabelIs
from dpcore.statistics.pac import GaussianCounts, TooFewRowsError
from tests.dpcore.estimators.oracle_world import category, divided, flag, real, schema_of

TINY = Fraction(1, 10**6)
VALUES = tuple(f"v{i}" for i in range(21))
SCHEMA = schema_of(category("kind", VALUES), real("size"))


def rows_of(kinds, seed=0):
    """Coordinates of rows with these values' numbers; -1 is a value that is not listed."""
    kinds = np.asarray(kinds)
    sizes = np.random.default_rng(seed).uniform(-1, 1, len(kinds))
    return np.column_stack([kinds[:, np.newaxis] == np.arange(len(VALUES)), sizes, np.ones(len(kinds))])


def world_of(rows, target, seed=0, **options):
    kinds = np.random.default_rng(seed).integers(-1, len(VALUES), rows)
    x, labels = rows_of(kinds), np.where(kinds == target, 1, -1)
    return x, labels, divided(SCHEMA, x, labels, seed=seed, **options)


@pytest.mark.parametrize(("epsilon", "delta"), [(None, 0), (1, 0), (1, Fraction(1, 10**6))])
def test_the_target_is_found(epsilon, delta):
    x, labels, oracle = world_of(3000, 7, epsilon=epsilon, delta=delta)
    learner = PrivatePoint("kind").fit_queries(oracle)
    assert learner.value_ == "v7"
    assert (learner.predict(x) == labels).all()
    assert learner.guarantee_.rows < 3000
    assert learner.guarantee_.epsilon == oracle.epsilon
    ((batch, _),) = oracle.releases
    assert batch_sensitivity(batch).l1 == 2
    assert len(batch) == 42


def test_values_are_chosen_by_errors_not_by_size():
    # Value 3 has the most positive rows, and more negative ones; value 5 is nearly pure.
    kinds = np.repeat([3, 3, 5, 5], [60, 80, 40, 5])
    labels = np.repeat([1, -1, 1, -1], [60, 80, 40, 5])
    learner = PrivatePoint("kind", require_rows=False).fit_queries(divided(SCHEMA, rows_of(kinds), labels))
    assert learner.value_ == "v5"


@pytest.mark.parametrize("empty", [False, True])
def test_the_empty_concept_is_an_option(empty):
    x = rows_of(np.arange(21).repeat(3))
    labels = np.full(len(x), -1)
    learner = PrivatePoint("kind", empty=empty, require_rows=False).fit_queries(divided(SCHEMA, x, labels))
    assert learner.value_ == (None if empty else "v0")
    assert (learner.predict(x) == -1).all() == empty
    # It is not chosen if a value has more positive rows than negative ones.
    labels[-3:-1] = 1
    learner = PrivatePoint("kind", empty=empty, require_rows=False).fit_queries(divided(SCHEMA, x, labels))
    assert learner.value_ == "v20"


def test_one_value_is_enough():
    schema = schema_of(category("only", ["a"]))
    x = np.array([[1.0, 1.0], [0.0, 1.0]] * 4)
    learner = PrivatePoint("only", require_rows=False).fit_queries(divided(schema, x, np.array([1, -1] * 4)))
    assert learner.value_ == "a"
    assert learner.predict(x).tolist() == [1, -1] * 4


def test_fewer_rows_than_the_guarantee_needs_are_refused():
    _, _, oracle = world_of(150, 7, epsilon=1)
    with pytest.raises(TooFewRowsError) as refused:
        PrivatePoint("kind").fit_queries(oracle)
    assert not oracle.releases
    learner = PrivatePoint("kind", require_rows=False).fit_queries(oracle)
    assert learner.guarantee_.rows >= refused.value.needed > 150
    _, _, oracle = world_of(learner.guarantee_.rows, 7, epsilon=1)
    PrivatePoint("kind").fit_queries(oracle)


@pytest.mark.parametrize("learner", [PrivatePoint("kind"), PrivateThreshold("size")])
def test_unstated_rows_are_refused_before_the_query(learner):
    _, _, oracle = world_of(3000, 7, epsilon=1)
    oracle.rows = 0
    with pytest.raises(TooFewRowsError, match=r"no party states its rows.*NAME=ROWS.*require_rows") as refused:
        learner.fit_queries(oracle)
    assert refused.value.rows == 0
    assert f"at least {refused.value.needed} are needed" in str(refused.value)
    assert not oracle.releases
    oracle.rows = refused.value.needed - 1
    with pytest.raises(TooFewRowsError, match=rf"^{oracle.rows} rows") as few:
        learner.fit_queries(oracle)
    assert few.value.needed == refused.value.needed


def test_noise_above_the_least_is_counted():
    _, _, oracle = world_of(400, 7, epsilon=1)
    loud = oracle.statistic

    def louder(predicates, **options):
        estimates = loud(predicates, **options)
        return dataclasses.replace(estimates, deviation=4 * estimates.deviation, distribution=None)

    oracle.statistic = louder
    with pytest.raises(TooFewRowsError):
        PrivatePoint("kind").fit_queries(oracle)
    assert oracle.releases


@pytest.mark.slow
def test_the_guarantee_holds_with_the_stated_probability(monkeypatch):
    """For a hard distribution: a target of probability alpha, and the rest of one other value."""
    alpha, beta, runs = 0.1, 0.2, 20
    learner = PrivatePoint("kind", alpha=alpha, beta=beta, require_rows=False)
    wrong = wrong_below = 0
    guarantee = learner.fit_queries(world_of(50, 3, epsilon=Fraction(1, 2), delta=TINY)[2]).guarantee_
    needed = guarantee.rows
    # It is the same for all runs, and takes a moment.
    monkeypatch.setattr(PrivatePoint, "_promise", lambda *_: guarantee)
    for run in range(runs):
        for rows in (needed, needed // 12):
            kinds = np.where(np.random.default_rng(run).random(rows) < alpha, 3, 8)
            labels = np.where(kinds == 3, 1, -1)
            oracle = divided(SCHEMA, rows_of(kinds), labels, epsilon=Fraction(1, 2), delta=TINY, seed=run)
            missed = learner.fit_queries(oracle).value_ != "v3"
            wrong += missed and rows == needed
            wrong_below += missed and rows < needed
    assert wrong <= stats.binom.isf(1e-4, runs, beta)
    assert wrong_below > beta * runs


@pytest.mark.more
@pytest.mark.parametrize("delta", [Fraction(0), TINY])
def test_the_stated_distribution_is_used_if_there_is_one(delta):
    _, _, oracle = world_of(400, 7, epsilon=1, delta=delta, honest=3)
    estimates = oracle.statistic([LabelIs(positive=True)])
    distribution, rows = stated_noise(estimates), estimates.deviation * estimates.rows
    if delta:
        assert isinstance(distribution, GaussianCounts)
        assert distribution.sigma == pytest.approx(rows)
    else:
        # Four shares, of which three suffice.
        assert (distribution.copies, distribution.scale) == (Fraction(4, 3), pytest.approx(1))
    unknown = stated_noise(dataclasses.replace(estimates, distribution=None))
    assert unknown == worst_noise(rows)
    s = 0.9 * unknown.reach
    assert distribution.log_mgf(s) < unknown.log_mgf(s)
    learners = [PrivatePoint("kind", require_rows=False) for _ in range(2)]
    ask = oracle.statistic
    oracle.releases.clear()
    learners[0].fit_queries(oracle)
    oracle.releases.clear()
    oracle.statistic = lambda *batch, **options: dataclasses.replace(ask(*batch, **options), distribution=None)
    learners[1].fit_queries(oracle)
    assert learners[0].guarantee_.rows < learners[1].guarantee_.rows


def test_the_worst_noise_bounds_the_others():
    for deviation in (0.2, 1.0, 6.0, 50.0):
        noise = worst_noise(deviation)
        for share in (0.1, 0.5, 0.9, 0.99):
            s = share * noise.reach
            assert noise.log_mgf(s) >= (s * deviation) ** 2 / 2
            for copies in (1, 2, 7):
                # Discrete Laplace on whole rows, of this total variance.
                each = deviation / np.sqrt(copies)
                odds = 2 * (each * np.sinh(s / 2)) ** 2
                assert odds < 1
                assert noise.log_mgf(s) >= -copies * np.log1p(-odds) * (1 - 1e-9)


def test_unusable_schemas_and_parameters_are_refused():
    _, _, oracle = world_of(100, 7)
    with pytest.raises(SchemaError, match="'kind'"):
        PrivatePoint("kinds").fit_queries(oracle)
    with pytest.raises(SchemaError, match="no category"):
        PrivatePoint("size").fit_queries(oracle)
    flags = divided(schema_of(flag("a")), np.ones((4, 2)), np.ones(4, dtype=int), parties=1)
    with pytest.raises(SchemaError, match="it has none"):
        PrivatePoint("a").fit_queries(flags)
    wide = schema_of(category("kind", [f"v{i}" for i in range(4097)]))
    rows = divided(wide, np.zeros((1, 4098)), np.array([1]), parties=1)
    with pytest.raises(PlanError, match="4096"):
        PrivatePoint("kind").fit_queries(rows)
    bare = schema_of(category("kind", VALUES), bias=False)
    with pytest.raises(SchemaError, match="bias"):
        PrivatePoint("kind").fit_queries(divided(bare, np.zeros((1, 21)), np.array([1]), parties=1))
