"""Quantiles: the exact one reveals a row, the private ones do not, and how far each is from it."""

from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import DataError, PlanError
from dpcore.randomness.sources import SeededRandom
from dpcore.research.mechanisms import LaplaceMechanism
from dpcore.research.quantiles import HistogramQuantile, QuantileMechanism, exact_quantile

SLIDES = np.array([88, 43, 23, 90, 80, 44, 12, 38, 46, 56, 43])
HALF, EPSILON = Fraction(1, 2), Fraction(1)
VALUES = np.arange(0.0, 101.0)


def people(rows=10_000, seed=4):
    return np.random.default_rng(seed).beta(2, 4, rows) * 100


def test_the_median_of_the_slides_is_a_rows_own_value():
    assert exact_quantile(SLIDES, HALF) == 44
    assert 44 in SLIDES
    # One replaced row changes it with certainty: no epsilon, and no delta below 1.
    changed = SLIDES.copy()
    changed[changed == 44] = 45
    assert exact_quantile(changed, HALF) == 45


@pytest.mark.parametrize("rule", ["exponential", "permute-and-flip"])
def test_no_replaced_row_changes_a_private_median_by_more_than_epsilon(rule):
    mechanism, random, worst = QuantileMechanism(VALUES, HALF, EPSILON, rule), np.random.default_rng(1), 0.0
    for _ in range(40):
        rows = np.where(random.random(30) < 0.7, 10.0, random.uniform(0, 100, 30))
        changed = rows.copy()
        changed[0], rows[0] = 99.0, 1.0
        ratio = np.log(mechanism.probabilities(rows) / mechanism.probabilities(changed))
        worst = max(worst, float(np.abs(ratio).max()))
    assert worst <= 1 + 1e-9
    # Of a score that moves all one way, half of epsilon is used, and a score of twice the sensitivity breaks the claim.
    assert worst > 0.4


def test_scores_move_by_one_at_most_and_do():
    mechanism, random, most = QuantileMechanism(VALUES, Fraction(1, 3), EPSILON), np.random.default_rng(2), Fraction(0)
    for _ in range(200):
        rows = random.integers(0, 6, 9).astype(float)
        changed = rows.copy()
        changed[random.integers(9)] = random.integers(0, 6)
        moves = zip(mechanism.rank_errors(rows), mechanism.rank_errors(changed), strict=True)
        most = max(most, *(abs(a - b) for a, b in moves))
    assert most == 1


def test_rank_errors_are_zero_at_the_quantile_and_count_rows_elsewhere():
    found = QuantileMechanism(VALUES, HALF, EPSILON).rank_errors(SLIDES)
    assert [place for place, error in enumerate(found) if error == 0] == [44]
    assert found[45] == found[46] == Fraction(1, 2)
    assert found[43] == Fraction(1, 2)
    assert found[0] == found[100] == Fraction(11, 2)


@pytest.mark.parametrize("level", [Fraction(1, 2), Fraction(9, 10)])
def test_at_ten_thousand_rows_both_keep_their_bounds_and_the_exponential_mechanism_is_closer(level):
    rows, failure = people(), 0.05
    exact, cells = QuantileMechanism(VALUES, level, EPSILON), HistogramQuantile(VALUES, EPSILON)
    errors = np.array([float(error) for error in exact.rank_errors(rows)])
    best = errors.min()
    chances = exact.probabilities(rows)
    assert chances[errors > best + exact.error_bound(failure)].sum() <= failure
    random = SeededRandom(6)
    far = [
        np.abs(np.cumsum(cells.mechanism.release(cells.counts(rows), random) - cells.counts(rows)))[:-1].max()
        for _ in range(60)
    ]
    assert np.mean(np.array(far) > cells.error_bound(failure)) <= failure
    assert np.mean(far) > 0.2 * cells.error_bound(failure)
    # 15 rows against 118: ln k against the root of k.
    assert 6 * exact.error_bound(failure) < cells.error_bound(failure) < 20 * exact.error_bound(failure)
    steps = [errors[int(cells.release(rows, level, random))] for _ in range(60)]
    assert float(chances @ errors) <= np.mean(steps) + 1e-6


def test_half_of_the_noise_breaks_the_histograms_bound():
    """The bound is not vacuous: a weaker mechanism's noise exceeds it."""
    cells = HistogramQuantile(VALUES, EPSILON)
    weaker, random = LaplaceMechanism(EPSILON / 4, 2), SeededRandom(1)
    zeros = np.zeros(102, dtype=np.int64)
    far = [np.abs(np.cumsum(weaker.release(zeros, random)))[:-1].max() for _ in range(60)]
    assert np.mean(np.array(far) > cells.error_bound(0.05)) > 0.05


def test_draws_are_of_the_distribution():
    mechanism, random = QuantileMechanism(np.arange(40.0, 50.0), HALF, EPSILON), SeededRandom(3)
    drawn = np.array([mechanism.release(SLIDES, random) for _ in range(2000)])
    counts = np.array([(drawn == value).sum() for value in mechanism.values])
    expected = 2000 * mechanism.probabilities(SLIDES)
    assert float(((counts - expected) ** 2 / expected).sum()) < 40


@pytest.mark.parametrize(
    ("values", "level", "epsilon"),
    [
        ([1.0], HALF, EPSILON),
        ([2.0, 1.0], HALF, EPSILON),
        ([1.0, np.nan], HALF, EPSILON),
        ([1.0, 2.0], Fraction(1), EPSILON),
        ([1.0, 2.0], 0.5, EPSILON),
        ([1.0, 2.0], HALF, Fraction(0)),
    ],
)
def test_bad_plans_are_refused(values, level, epsilon):
    with pytest.raises(PlanError):
        QuantileMechanism(np.array(values), level, epsilon)


def test_bad_rows_are_refused():
    for rows in ([], [np.nan]):
        with pytest.raises(DataError):
            QuantileMechanism(VALUES, HALF, EPSILON).rank_errors(np.array(rows))
    with pytest.raises(DataError):
        exact_quantile([], HALF)
