"""Points and thresholds from noisy counts: the fewest errors, sensitivity, and as many rows as the guarantee needs."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.statistics.pac import (
    GaussianCounts,
    LaplaceCounts,
    log_competitors,
    threshold_counts,
    threshold_from_counts,
)
from tests.dpcore.statistics.pac_world import (
    HARD_BITS,
    POINTS,
    THRESHOLDS,
    counts_of,
    drawn,
    each_class,
    failed_more_than,
    failed_too_often,
)

ALPHA, BETA = 0.1, 0.05


@each_class
@settings(deadline=None)
@given(table=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1)), max_size=10))
def test_counts_decode_to_the_fewest_errors(concepts, table):
    values, labels = np.array(table, dtype=int).reshape(-1, 2).T
    j = concepts.from_counts(counts_of(values, labels, concepts.counts(3)))
    least = [concepts.errors(i, values, labels) for i in range(concepts.size(3))]
    assert j == least.index(min(least))


@pytest.mark.parametrize(("concepts", "sensitivity"), [(POINTS, 2), (THRESHOLDS, 8)], ids=["points", "thresholds"])
def test_counts_move_by_their_sensitivity_and_levels_are_disjoint(concepts, sensitivity):
    asked = concepts.counts(3)
    assert len(asked.intervals) == 8
    tables = [(np.array([value]), np.array([y])) for value in range(8) for y in (0, 1)]
    moves = [counts_of(*a, asked) - counts_of(*b, asked) for a in tables for b in tables]
    assert max(int(np.abs(move).sum()) for move in moves) == asked.l1 == sensitivity
    assert max(int((move**2).sum()) for move in moves) == asked.l2_squared == sensitivity
    lengths = {hi - lo for lo, hi in asked.intervals}
    assert len(lengths) == asked.levels
    for length in lengths:
        level = sorted(interval for interval in asked.intervals if interval[1] - interval[0] == length)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(level))


@pytest.mark.slow
@each_class
@pytest.mark.parametrize("noise", [GaussianCounts(6.0), LaplaceCounts(4.0)])
def test_learning_from_noisy_counts(concepts, noise):
    generator = np.random.default_rng(2)

    def failures(n, trials):
        failed = 0
        for _ in range(trials):
            counts = concepts.hard_counts(n, ALPHA, generator)
            counts = counts + drawn(noise, counts.shape, generator)
            failed += concepts.from_counts(counts) != concepts.target
        return failed

    guarantee = concepts.counts_guarantee(HARD_BITS, ALPHA, BETA, noise, Fraction(1), Fraction(1, 10**6))
    assert (guarantee.where, guarantee.delta) == ("federated", Fraction(1, 10**6))
    assert not failed_too_often(failures(guarantee.rows, 1000), 1000, BETA)
    assert failed_more_than(failures(guarantee.rows // concepts.needed_part, 1000), 1000, BETA)


@each_class
def test_more_noise_needs_more_rows(concepts):
    def rows(noise, bits=8):
        return concepts.counts_guarantee(bits, ALPHA, BETA, noise, Fraction(1), Fraction(0)).rows

    assert rows(GaussianCounts(0.0)) <= rows(GaussianCounts(1.0)) < rows(GaussianCounts(10.0))
    assert rows(LaplaceCounts(1.0)) < rows(LaplaceCounts(10.0)) < rows(LaplaceCounts(10.0, Fraction(3)))
    assert rows(GaussianCounts(5.0)) < rows(GaussianCounts(5.0), bits=12)


@each_class
def test_what_is_refused(concepts):
    with pytest.raises(ConfigurationError, match="1 to 15"):
        concepts.counts(16)
    with pytest.raises(ConfigurationError, match="1 to 15"):
        concepts.counts_guarantee(16, 0.1, 0.1, GaussianCounts(1.0), Fraction(1), Fraction(0))
    for shape in [(2, 6), (3, 8), (8,), (2, 1), (2, 0), (2, 1 << 16)]:
        with pytest.raises(ShapeError):
            concepts.from_counts(np.zeros(shape))
    with pytest.raises(ConfigurationError, match="finite"):
        concepts.from_counts(np.full((2, 4), np.nan))


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
