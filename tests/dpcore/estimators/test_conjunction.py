"""Conjunctions are found if rows suffice, refused if not, and agree with `predict`."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone

from dpcore.errors import ConfigurationError, OracleRefusedError, SchemaError
from dpcore.estimators.conjunction import MonotoneConjunction, SampleTooSmallError, rows_needed
from dpcore.predicates.expressions import And, Flag, LabelIs, Not
from dpcore.statistics.accuracy import GaussianNoise, LaplaceNoise
from tests.dpcore.estimators.oracle_world import category, divided, flag, flag_rows, flags_schema, real, schema_of

D, ERROR, FAILURE, TARGET = 8, 0.2, 0.05, (0, 3, 5)
NAMES = tuple(f"f{i:03d}" for i in TARGET)


def rows_of(m, seed, *, eta=0.0):
    """Independent features; those outside the target are false in one row of four: P(false, positive) > ERROR / D."""
    random = np.random.default_rng(seed)
    truths = random.uniform(size=(m, D)) < np.where(np.isin(np.arange(D), TARGET), 0.85, 0.75)
    clean = np.where(truths[:, TARGET].all(axis=1), 1, -1)
    return flag_rows(truths), clean, np.where(random.uniform(size=m) < eta, -clean, clean)


@pytest.mark.more
@pytest.mark.parametrize(("eta", "delta"), [(0.0, 0), (0.3, 0), (0.3, Fraction(1, 10**6))])
def test_the_target_is_found_at_the_stated_rows_by_four_parties(eta, delta):
    schema = flags_schema(D)
    # Noise for 8 counts or 16 at epsilon 2, with a margin for shares in whole units.
    noise = LaplaceNoise((8 if eta == 0 else 16) / 2 * 1.01) if delta == 0 else GaussianNoise(9.5)
    m = rows_needed(D, ERROR, FAILURE, noise_rate=eta, noise=noise)
    for seed in range(5):
        x, clean, labels = rows_of(m, seed, eta=eta)
        oracle = divided(schema, x, labels, epsilon=2, delta=delta, seed=seed)
        learner = MonotoneConjunction(error=ERROR, failure=FAILURE, noise_rate=eta).fit_queries(oracle)
        assert learner.features_ == NAMES
        assert learner.warning_ is None
        assert np.array_equal(learner.predict(x), clean)


def test_the_queries_are_those_of_theorem_five():
    x, _, labels = rows_of(3000, 1)
    oracle = divided(flags_schema(D), x, labels)
    MonotoneConjunction(part=Fraction(1, 3), require_rows=False).fit_queries(oracle)
    ((asked, part),) = oracle.releases
    assert part == Fraction(1, 3)
    assert asked == tuple(And((Not(Flag(f"f{i:03d}")), LabelIs(positive=True))) for i in range(D))


@given(st.sets(st.integers(0, 5)))
def test_the_score_is_positive_exactly_where_all_hold(kept):
    """A target and every row: 2^6 of them, also for the empty conjunction; one-hot indicators count as features."""
    schema = schema_of(*(flag(f"f{i}") for i in range(4)), category("c", "uv"))
    truths = (np.arange(64)[:, np.newaxis] >> np.arange(6)) & 1 == 1
    truths = truths[~(truths[:, 4] & truths[:, 5])]
    labels = np.where(truths[:, sorted(kept)].all(axis=1), 1, -1)
    if (labels == -1).all():
        return  # both values of one category: nothing is positive, and every feature is kept
    x = np.column_stack([np.where(truths[:, :4], 1.0, -1.0), truths[:, 4:], np.ones(len(truths))])
    learner = MonotoneConjunction(error=0.02, indicators=True, require_rows=False)
    learner.fit_queries(divided(schema, x, labels, parties=2))
    assert np.array_equal(learner.predict(x), labels)
    assert set(np.flatnonzero(learner.estimates_.values == 0)) >= kept


def test_too_few_rows_are_refused_with_the_number_needed():
    """Before the query if the least noise is too much; after it if the stated noise is; not without require_rows."""
    schema = flags_schema(D)
    needed = rows_needed(D, ERROR, FAILURE, noise=LaplaceNoise(D / 2))
    x, _, labels = rows_of(needed, 2)
    learner = MonotoneConjunction(error=ERROR, failure=FAILURE)
    few = divided(schema, x[:-1], labels[:-1], epsilon=2)
    with pytest.raises(
        SampleTooSmallError, match=f"there are {needed - 1} rows, and this error, failure and noise need {needed}"
    ) as caught:
        learner.fit_queries(few)
    assert (caught.value.needed, caught.value.rows) == (needed, needed - 1)
    assert few.releases == []
    # Two of the four shares are to be noise enough.
    stated = divided(schema, x, labels, epsilon=2, honest=2)
    with pytest.raises(SampleTooSmallError) as caught:
        learner.fit_queries(stated)
    assert len(stated.releases) == 1
    assert caught.value.needed > needed
    x, _, labels = rows_of(caught.value.needed, 3)
    assert clone(learner).fit_queries(divided(schema, x, labels, epsilon=2, honest=2)).features_ == NAMES
    unsure = clone(learner).set_params(require_rows=False)
    assert unsure.fit_queries(few).theta_.shape == (D + 1,)


def test_an_empty_conjunction_gives_a_warning():
    x = flag_rows(np.random.default_rng(4).uniform(size=(400, D)) < 0.5)
    oracle = divided(flags_schema(D), x, np.ones(400))
    learner = MonotoneConjunction(require_rows=False).fit_queries(oracle)
    assert learner.features_ == ()
    assert learner.warning_ == f"none of {D} features is kept, so the classifier predicts +1 everywhere"
    assert (learner.predict(x) == 1).all()


def test_unstated_rows_are_refused_before_the_query():
    x, _, labels = rows_of(3000, 1)
    oracle = divided(flags_schema(D), x, labels, epsilon=2)
    oracle.rows = 0
    learner = MonotoneConjunction(error=ERROR, failure=FAILURE)
    with pytest.raises(SampleTooSmallError, match=r"no party states its rows.*NAME=ROWS.*require_rows") as caught:
        learner.fit_queries(oracle)
    needed = rows_needed(D, ERROR, FAILURE, noise=LaplaceNoise(D / 2))
    assert (caught.value.needed, caught.value.rows) == (needed, 0)
    assert str(needed) in str(caught.value)
    assert "add parties" not in str(caught.value)
    assert oracle.releases == []


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.3, 0.45])
@pytest.mark.parametrize("width", [0.0, 300.0])
def test_the_bound_holds_for_exact_counts_and_is_not_far_from_them(eta, width):
    """At the stated rows each feature fails with the exact binomial probability, for the worst distribution."""
    d, error, failure = 50, 0.1, 0.05

    class Fixed:
        deviation = 0.0

        def half_width(self, values, chance):
            assert values == (d if eta == 0 else 2 * d)
            assert chance == pytest.approx(failure / 2)
            return width

    def chance(rows):
        """Of the worse of two features that are false in every row, with worst-case noise."""
        kept, threshold, moved = 1 - 2 * eta, error / (2 * d), width / (1 - 2 * eta) / rows
        if moved > threshold:
            return 1.0
        high, low = (eta + (threshold + sign * moved) * kept for sign in (-1, 1))
        above = stats.binom.sf(math.floor(rows * high), rows, eta)
        return max(above, stats.binom.cdf(math.floor(rows * low), rows, eta + 2 * threshold * kept))

    rows = rows_needed(d, error, failure, noise_rate=eta, noise=Fixed() if width else None)
    allowed = (failure / 2 if width else failure) / d
    assert chance(rows) <= allowed
    # Chernoff's bound needs less than twice the rows of exact counts.
    assert chance(rows // 2) > allowed


def test_rows_are_linear_in_d_without_label_noise_and_match_the_stated_constants():
    d, error, failure = 200, 0.1, 0.05
    assert rows_needed(d, error, failure) == pytest.approx(6.52 * d / error * math.log(d / failure), rel=0.01)
    assert rows_needed(d, error, failure) < 8 * d / error * math.log(d / failure)
    flipped = rows_needed(d, error, failure, noise_rate=0.3)
    quadratic = 8 * 0.21 * (d / (0.4 * error)) ** 2 * math.log(d / failure)
    assert flipped == pytest.approx(quadratic, rel=0.01)
    hoeffding = 2 * (d / (0.4 * error)) ** 2 * math.log(2 * d / failure)
    assert flipped < hoeffding


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_noise_takes_half_of_the_failure_however_small_it_is(eta):
    rows = rows_needed(50, 0.1, 0.05, noise_rate=eta, noise=LaplaceNoise(1e-9))
    assert rows == pytest.approx(rows_needed(50, 0.1, 0.025, noise_rate=eta), rel=1e-5)


@given(st.integers(1, 300), st.floats(0.01, 0.9), st.floats(1e-6, 0.5), st.floats(0, 0.45), st.floats(0.1, 1e4))
def test_more_noise_features_and_certainty_need_more_rows(d, error, failure, eta, scale):
    noise = LaplaceNoise(scale)
    # The bound itself is rounded.
    rows = rows_needed(d, error, failure, noise_rate=eta, noise=noise) * (1 - 1e-7)
    assert 1.0 + rows >= rows_needed(d, error, failure, noise_rate=eta)
    assert rows <= rows_needed(d + 1, error, failure, noise_rate=eta, noise=noise)
    assert rows <= rows_needed(d, error, failure / 2, noise_rate=eta, noise=noise)
    assert rows <= rows_needed(d, error, failure, noise_rate=eta, noise=LaplaceNoise(1.1 * scale))
    assert rows <= rows_needed(d, error / 1.1, failure, noise_rate=eta, noise=noise)


def test_unusable_schemas_and_parameters_are_refused():
    x, _, labels = rows_of(20, 1)
    with pytest.raises(SchemaError, match="has no bias"):
        MonotoneConjunction().fit_queries(divided(flags_schema(D, bias=False), x[:, :-1], labels))
    reals = divided(schema_of(real("age")), np.ones((4, 2)), np.ones(4), parties=1)
    with pytest.raises(SchemaError, match="no boolean or threshold feature"):
        MonotoneConjunction().fit_queries(reals)
    oracle = divided(flags_schema(D), x, labels)
    for bad in ({"error": 0.0}, {"error": 1.0}, {"failure": 0.0}, {"noise_rate": 0.5}):
        with pytest.raises(ConfigurationError):
            MonotoneConjunction(**bad).fit_queries(oracle)
    assert oracle.releases == []
    with pytest.raises(ConfigurationError):
        rows_needed(0, 0.1, 0.1)
    with pytest.raises(OracleRefusedError):
        MonotoneConjunction(require_rows=False).fit_queries(divided(flags_schema(D), x, labels, answers=0))
