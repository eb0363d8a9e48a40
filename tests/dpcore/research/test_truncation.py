"""Theorem 6's exact figures, and truncations of several features and real values, against enumeration."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.dp_feat import EmptyTruncationError, epsilon_for, truncation
from dpcore.accounting.gaussian import subsampled_mu
from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.base import RadoSample
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.rados.distribution import RadoDistribution
from dpcore.research.truncation import (
    admitted_delta,
    box_delta,
    box_epsilon,
    box_marginal,
    interval_delta,
    least_epsilon,
    theorem_6,
)

EVERY = np.array(list(itertools.product((0, 1), repeat=10)))


@pytest.mark.parametrize(("rows", "epsilon"), [(10, Fraction(1)), (41, Fraction(1, 2)), (300, Fraction(1, 10))])
def test_theorem_6s_delta_equals_the_sum_over_counts(rows, epsilon):
    low, high = truncation(rows, epsilon)
    weights = {k: math.comb(rows, k) for k in range(low, high + 1)}
    total = sum(weights.values())

    def excess(at: float) -> float:
        return sum(max(0.0, (w - math.exp(at) * weights.get(k - 1, 0)) / total) for k, w in weights.items())

    found = theorem_6(rows, epsilon)
    assert found.delta == pytest.approx(excess(float(epsilon)), rel=1e-9)
    # Also at half of epsilon, and not at half of the largest finite loss.
    assert found.largest_finite_loss < float(epsilon) / 2
    assert excess(float(epsilon) / 2) == pytest.approx(found.delta, rel=1e-9)
    assert high - low < 2 or excess(found.largest_finite_loss / 2) > found.delta * (1 + 1e-6)


def test_theorem_6_fails_on_a_part_of_its_conditions():
    """Epsilon = Omega(1/m) and o(1) in all three; delta = o(1/m) only where epsilon is above sqrt(16 log(m) / m)."""
    sizes = [10**2, 10**3, 10**4, 10**5, 10**6]
    slow, middle, fast = (
        [theorem_6(m, Fraction(m**power).limit_denominator(10**9)) for m in sizes] for power in (-0.25, -0.5, -0.6)
    )
    for found in (slow, middle, fast):
        assert all(a.epsilon > b.epsilon for a, b in itertools.pairwise(found))
        assert all(one.epsilon_times_rows > 1 for one in found)
    assert slow[-1].delta_times_rows < 1e-6
    assert all(a.delta_times_rows * 1.4 < b.delta_times_rows for a, b in itertools.pairwise(middle))
    assert all(a.delta_times_rows * 2 < b.delta_times_rows for a, b in itertools.pairwise(fast))
    for m in sizes[1:]:
        near = least_epsilon(m)
        assert theorem_6(m, Fraction(near * 0.8)).delta_times_rows > 1
        assert theorem_6(m, Fraction(near * 1.2)).delta_times_rows < 1
    with pytest.raises(EmptyTruncationError):
        theorem_6(11, Fraction(1, 100))


def features(agreeing: int) -> np.ndarray:
    """Two features of 10 rows, +-1, alike in the first rows."""
    first = np.where(np.arange(10) % 3 == 0, 1, -1)
    return np.column_stack([first, np.where(np.arange(10) < agreeing, first, -first)])


def counts(values: np.ndarray) -> np.ndarray:
    """k of each feature for every selection: rows with s = [v = +1]."""
    return np.stack([((values[:, f] > 0) == EVERY).sum(axis=1) for f in range(values.shape[1])], axis=1)


@pytest.mark.parametrize("agreeing", [0, 3, 8, 10])
@pytest.mark.parametrize("low", [0, 2, 4])
def test_a_marginal_in_the_box_equals_the_enumeration(agreeing, low):
    k = counts(features(agreeing))
    kept = k[((k >= low) & (k <= 10 - low)).all(axis=1)]
    expected = np.bincount(kept[:, 0], minlength=11) / len(kept)
    assert box_marginal(10, agreeing, low) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("low", [0, 2, 3])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_the_worst_data_of_the_box_are_found(low, epsilon):
    def law(values):
        k = counts(values)
        kept = ((k >= low) & (k <= 10 - low)).all(axis=1)
        return Counter((EVERY[kept] @ values[:, 0]).tolist()), kept.sum()

    worst = 0.0
    for agreeing in range(11):
        values = features(agreeing)
        for row in range(10):
            neighbour = values.copy()
            neighbour[row, 0] *= -1
            (p, all_p), (q, all_q) = law(values), law(neighbour)
            excess = sum(max(0.0, p[at] / all_p - math.exp(epsilon) * q[at] / all_q) for at in p)
            worst = max(worst, excess)
    assert box_delta(10, low, epsilon) == pytest.approx(worst, abs=1e-12)


def test_without_truncation_the_box_costs_what_one_feature_does():
    for agreeing in (0, 25, 50):
        assert box_epsilon(50, 0, 10, 1e-3, agreeing) == pytest.approx(
            epsilon_for([50], 10, None, 1e-3).upper, rel=0.02
        )
    # Truncation makes it dearer: the marginal then depends on the other feature, and has edges.
    assert box_epsilon(50, 12, 10, 1e-3, 25) > 1.02 * epsilon_for([50], 10, None, 1e-3).upper
    assert math.isinf(box_epsilon(50, 22, 10, 1e-3, 25))


def test_a_box_costs_what_one_truncation_costs_and_no_less_than_none():
    """The figures of docs/explanation/exact-privacy.md: 1,000 rows, 100 rados, delta 1e-4."""
    without = epsilon_for([1000], 100, None, 1e-4).upper
    assert without == pytest.approx(2.23, abs=0.005)
    for per_rado, cost in ((Fraction(6, 10), 2.32), (Fraction(7, 10), 2.23)):
        low, _ = truncation(1000, per_rado)
        assert epsilon_for([1000], 100, per_rado, 1e-4).upper == pytest.approx(cost, abs=0.005)
        for agreeing in (0, 500, 1000):
            assert box_epsilon(1000, low, 100, 1e-4, agreeing) == pytest.approx(cost, abs=0.005)
    assert math.isinf(box_epsilon(1000, truncation(1000, Fraction(1, 2))[0], 100, 1e-4, 500))


@pytest.mark.slow
def test_what_the_scopes_cost_in_error_at_one_epsilon():
    """Mean-variance on 100 rados of 1,000 rows at epsilon 2.23; noise for both columns, and for the whole record."""
    mu = subsampled_mu(100, Fraction(1, 2), 2.2253, 1e-4)
    low, high = truncation(1000, Fraction(6, 10))
    wrong: dict[str, list[float]] = {}
    for seed in range(20):
        generator = np.random.default_rng(seed)
        rows = np.column_stack([generator.choice([-1.0, 1.0], (5000, 2)), generator.uniform(-1, 1, (5000, 6))])
        rows[:, -1] = 1.0
        weights = np.concatenate([[0.8, -0.6], generator.normal(size=5), [0.2]])
        labels = np.where(rows @ weights + 0.4 * generator.normal(size=5000) > 0, 1, -1)
        edges = rows[:1000] * labels[:1000, None]
        drawn = generator.random((400, 1000)) < 0.5
        k = np.stack([(drawn == (edges[:, f] > 0)).sum(axis=1) for f in (0, 1)], axis=1)
        inside = drawn[((k >= low) & (k <= high)).all(axis=1)]
        for name, selected, variances in (
            ("none", drawn[:100], [0.0] * 8),
            ("box", inside[:100], [0.0] * 8),
            ("joint", drawn[:100], [8 / mu**2] * 2 + [0.0] * 6),
            ("gaussian", drawn[:100], [4 * 8 / mu**2] * 8),
        ):
            noise = np.array(variances)
            rados = selected @ edges + generator.normal(size=(100, 8)) * np.sqrt(noise)
            known = RadoDistribution(rado_noise=noise) if noise.any() else RadoDistribution()
            theta = MeanVariance().fit_release(RadoSample(rados, 1000, distribution=known)).theta_
            wrong.setdefault(name, []).append(100 * np.mean(rows[1000:] @ theta * labels[1000:] <= 0))
    mean = {name: np.mean(each) for name, each in wrong.items()}
    assert abs(mean["box"] - mean["none"]) < 1
    assert 2.5 < mean["joint"] - mean["none"] < 7
    assert 5 < mean["gaussian"] - mean["none"] < 12


@pytest.mark.parametrize("half_width", [10, 4, 2])
def test_two_features_together_are_told_apart_whatever_the_truncation(half_width):
    neighbour = features(10)
    values = neighbour.copy()
    values[0, 0] *= -1
    bits = (np.arange(2**10)[:, np.newaxis] >> np.arange(10)) % 2
    middle = values.sum(axis=0) / 2
    admitted = (np.abs(bits @ values - middle) <= half_width).all(axis=1)
    assert bits[admitted, 0].mean() == 0.5
    assert admitted_delta(values, neighbour, admitted, 20.0) == pytest.approx(0.5, abs=1e-12)
    # One of them alone is not.
    assert admitted_delta(values[:, :1], neighbour[:, :1], np.ones(2**10, dtype=bool), 2.0) < 0.05


@pytest.mark.parametrize("half_width", [200, 30, 8])
def test_real_values_are_told_apart_whatever_the_truncation(half_width):
    # Halves and ones in units of 1/16, and one value of 15/16 that becomes 1.
    values = np.array([15, -8, 8, 16, -16, 8, -8, 16, 8, -16])
    assert interval_delta(values, 0, 16, half_width, 20.0) == pytest.approx(0.5, abs=1e-12)
    # Against enumeration, each data set admitting its own middle.
    changed = values.copy()
    changed[0] = 9

    def law(v):
        sums = EVERY @ v
        kept = sums[np.abs(2 * sums - v.sum()) <= 2 * half_width]
        return Counter(kept.tolist()), len(kept)

    (p, all_p), (q, all_q) = law(values), law(changed)
    for epsilon in (0.1, 1.0):
        expected = sum(max(0.0, p[at] / all_p - math.exp(epsilon) * q[at] / all_q) for at in p)
        assert interval_delta(values, 0, 9, half_width, epsilon) == pytest.approx(expected, abs=1e-12)
    # Values on one grid with many alike are protected: Algorithm 2's own case.
    assert interval_delta(np.where(np.arange(60) % 2, 2, -2), 0, 2, 60, 2.0) < 1e-3


def test_what_is_refused():
    with pytest.raises(ConfigurationError, match="agreeing"):
        box_marginal(10, 11, 0)
    with pytest.raises(ConfigurationError, match="in the box"):
        box_marginal(4, 3, 2)
    with pytest.raises(ConfigurationError, match="half_width"):
        interval_delta(np.array([2, 2, 2]), 0, 1, 0, 1.0)
    with pytest.raises(ShapeError):
        admitted_delta(np.ones((3, 1), dtype=int), np.ones((3, 1), dtype=int), np.ones(7, dtype=bool), 1.0)
    with pytest.raises(ShapeError):
        interval_delta(np.ones((2, 2), dtype=int), 0, 1, 0, 1.0)
