"""Thresholds: scores are those of every concept, dyadic counts decode to the fewest errors, and both learners learn."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError
from dpcore.pac.counts import GaussianCounts, LaplaceCounts
from dpcore.pac.threshold_counts import (
    log_competitors,
    threshold_counts,
    threshold_counts_guarantee,
    threshold_from_counts,
)
from dpcore.randomness.sources import SeededRandom
from dpcore.research.pac import thresholds
from dpcore.research.pac.thresholds import (
    learn_threshold,
    threshold_guarantee,
)
from tests.dpcore.pac.pac_world import (
    all_choices,
    counts_of,
    drawn,
    exponential_distribution,
    failed_more_than,
    failed_too_often,
    log_ratio,
    neighbours,
)


def errors(j, values, labels):
    return int(((np.asarray(values) < j) != (np.asarray(labels) == 1)).sum())


@pytest.mark.parametrize("seed", range(30))
def test_every_concept_is_scored_by_its_errors(seed, monkeypatch):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(0, 30))
    values, labels = generator.integers(0, 16, size=n), generator.choice([-1, 1], size=n)
    found = all_choices(
        lambda: learn_threshold(values, labels, 4, Fraction(1), SeededRandom(0)), monkeypatch, thresholds
    )
    assert set(found) == set(range(17))
    assert len({score + errors(j, values, labels) for j, score in found.items()}) == 1


def test_the_exact_distribution_is_private(monkeypatch):
    epsilon = Fraction(1)
    tables = list(itertools.product(itertools.product(range(4), [0, 1]), repeat=2))
    distributions = {}
    for table in tables:
        values, labels = np.array(table).T
        found = all_choices(
            lambda v=values, y=labels: learn_threshold(v, y, 2, epsilon, SeededRandom(0)), monkeypatch, thresholds
        )
        distributions[table] = exponential_distribution([found[j] for j in range(5)], 1.0)
    worst = max(log_ratio(distributions[first], distributions[second]) for first, second in neighbours(tables))
    assert 0.7 * epsilon < worst <= epsilon


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1)), max_size=10))
def test_counts_decode_to_the_fewest_errors(table):
    values, labels = np.array(table, dtype=int).reshape(-1, 2).T
    j = threshold_from_counts(counts_of(values, labels, threshold_counts(3)))
    least = [errors(i, values, labels) for i in range(9)]
    assert j == least.index(min(least))


def test_noisy_counts_are_added_as_documented():
    counts = np.random.default_rng(3).normal(size=(2, 16))
    intervals = threshold_counts(4).intervals
    by_interval = dict(zip(intervals, counts[0] - counts[1], strict=True))
    sums = [0.0]
    for j in range(1, 17):
        end, total = j, 0.0
        while end:
            total += by_interval[end - (end & -end), end]
            end -= end & -end
        sums.append(total)
    assert threshold_from_counts(counts) == int(np.argmin(sums))


def test_counts_move_by_their_sensitivity_and_levels_are_disjoint():
    asked = threshold_counts(3)
    assert len(asked.intervals) == 8
    tables = [(np.array([value]), np.array([y])) for value in range(8) for y in (0, 1)]
    moves = [counts_of(*a, asked) - counts_of(*b, asked) for a in tables for b in tables]
    assert max(int(np.abs(move).sum()) for move in moves) == asked.l1 == 8
    assert max(int((move**2).sum()) for move in moves) == asked.l2_squared == 8
    for length in (1, 2, 4, 8):
        level = sorted(interval for interval in asked.intervals if interval[1] - interval[0] == length)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(level))
    assert len({hi - lo for lo, hi in asked.intervals}) == asked.levels


@pytest.mark.parametrize("bits", [1, 2, 3, 5])
@pytest.mark.parametrize("moment", [1.0, 1.1, 2.0, 30.0])
def test_competitors_are_counted_exactly(bits, moment):
    """K(s) is the largest over targets of the sum over others of M^(2 intervals that only one uses)."""

    def used(j):
        intervals = set()
        while j:
            intervals.add(j)
            j -= j & -j
        return intervals

    def competitors(target):
        others = [i for i in range((1 << bits) + 1) if i != target]
        return sum(moment ** (2 * len(used(target) ^ used(i))) for i in others)

    largest = max(competitors(target) for target in range((1 << bits) + 1))
    assert np.exp(log_competitors(bits, np.log(moment))) == pytest.approx(largest, rel=1e-9)


# The target is c_0. One end of the domain has probability alpha: all concepts except c_0 and the last err alpha.
BITS, ALPHA, BETA = 6, 0.1, 0.05
LAST = (1 << BITS) - 1


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_learning_from_rows(epsilon):
    generator, random = np.random.default_rng(1), SeededRandom(1)

    def failures(n, trials):
        failed = 0
        for _ in range(trials):
            values = np.where(generator.random(n) < ALPHA, 0, LAST)
            failed += learn_threshold(values, np.zeros(n, int), BITS, epsilon, random) != 0
        return failed

    n = threshold_guarantee(BITS, ALPHA, BETA, epsilon).rows
    assert not failed_too_often(failures(n, 400), 400, BETA)
    assert failed_more_than(failures(n // 2, 400), 400, BETA)


@pytest.mark.parametrize("noise", [GaussianCounts(6.0), LaplaceCounts(4.0)])
def test_learning_from_noisy_counts(noise):
    generator, asked = np.random.default_rng(2), threshold_counts(BITS)
    first = np.array([lo == 0 for lo, _ in asked.intervals])
    last = np.array([hi == LAST + 1 for _, hi in asked.intervals])

    def failures(n, trials):
        failed = 0
        for _ in range(trials):
            counts = np.zeros((2, 1 << BITS))
            at_first = generator.binomial(n, ALPHA)
            counts[0] = at_first * first + (n - at_first) * last
            counts += drawn(noise, counts.shape, generator)
            failed += threshold_from_counts(counts) != 0
        return failed

    guarantee = threshold_counts_guarantee(BITS, ALPHA, BETA, noise, Fraction(1), Fraction(0))
    assert guarantee.where == "federated"
    assert not failed_too_often(failures(guarantee.rows, 1000), 1000, BETA)
    assert failed_more_than(failures(guarantee.rows // 3, 1000), 1000, BETA)


def test_more_noise_needs_more_rows():
    def rows(noise, bits=8):
        return threshold_counts_guarantee(bits, ALPHA, BETA, noise, Fraction(1), Fraction(0)).rows

    assert rows(GaussianCounts(0.0)) <= rows(GaussianCounts(1.0)) < rows(GaussianCounts(10.0))
    assert rows(LaplaceCounts(1.0)) < rows(LaplaceCounts(10.0)) < rows(LaplaceCounts(10.0, Fraction(3)))
    assert rows(GaussianCounts(5.0)) < rows(GaussianCounts(5.0), bits=12)


def test_a_domain_of_62_bits():
    generator = np.random.default_rng(4)
    values = generator.integers(0, 1 << 62, size=2000)
    target = 3 << 60
    j = learn_threshold(values, values < target, 62, Fraction(1), SeededRandom(1))
    assert np.mean((values < j) != (values < target)) < 0.06
    top = np.full(300, (1 << 62) - 1)
    assert learn_threshold(top, np.ones(300), 62, Fraction(1), SeededRandom(1)) == 1 << 62


def test_what_is_refused():
    with pytest.raises(ConfigurationError, match="1 to 62"):
        threshold_guarantee(63, 0.1, 0.1, Fraction(1))
    with pytest.raises(ConfigurationError, match="1 to 15"):
        threshold_counts(16)
    with pytest.raises(ConfigurationError, match="1 to 15"):
        threshold_counts_guarantee(16, 0.1, 0.1, GaussianCounts(1.0), Fraction(1), Fraction(0))
