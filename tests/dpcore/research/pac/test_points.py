"""Points: the learner's scores are those of every concept, counts decode to the fewest errors, and both learn."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.pac.counts import GaussianCounts, LaplaceCounts
from dpcore.pac.point_counts import point_counts, point_counts_guarantee, point_from_counts
from dpcore.randomness.sources import SeededRandom
from dpcore.research.pac import points
from dpcore.research.pac.points import (
    learn_point,
    point_guarantee,
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
    return int(((np.asarray(values) == j) != (np.asarray(labels) == 1)).sum())


rows = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1)), max_size=8)


@pytest.mark.parametrize("seed", range(30))
def test_every_concept_is_scored_by_its_errors(seed, monkeypatch):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(0, 30))
    values, labels = generator.integers(0, 16, size=n), generator.integers(0, 2, size=n)
    found = all_choices(lambda: learn_point(values, labels, 4, Fraction(1), SeededRandom(0)), monkeypatch, points)
    assert set(found) == set(range(16))
    assert len({score + errors(j, values, labels) for j, score in found.items()}) == 1


def test_the_exact_distribution_is_private(monkeypatch):
    epsilon = Fraction(1)
    tables = list(itertools.product(itertools.product(range(4), [0, 1]), repeat=2))
    distributions = {}
    for table in tables:
        values, labels = np.array(table).T
        found = all_choices(
            lambda v=values, y=labels: learn_point(v, y, 2, epsilon, SeededRandom(0)), monkeypatch, points
        )
        distributions[table] = exponential_distribution([found[j] for j in range(4)], 1.0)
    worst = max(log_ratio(distributions[first], distributions[second]) for first, second in neighbours(tables))
    assert 0.7 * epsilon < worst <= epsilon


@settings(deadline=None)
@given(rows)
def test_counts_decode_to_the_fewest_errors(table):
    values, labels = np.array(table, dtype=int).reshape(-1, 2).T
    j = point_from_counts(counts_of(values, labels, point_counts(3)))
    least = [errors(i, values, labels) for i in range(8)]
    assert j == least.index(min(least))


def test_counts_move_by_their_sensitivity():
    asked = point_counts(3)
    tables = [(np.array([value]), np.array([y])) for value in range(8) for y in (0, 1)]
    moves = [counts_of(*a, asked) - counts_of(*b, asked) for a in tables for b in tables]
    assert max(int(np.abs(move).sum()) for move in moves) == asked.l1
    assert max(int((move**2).sum()) for move in moves) == asked.l2_squared


# The target's value has probability alpha, another one the rest: all other concepts err with probability alpha or 1.
BITS, ALPHA, BETA, TARGET = 6, 0.1, 0.05, 37


def sample(generator, n):
    values = np.where(generator.random(n) < ALPHA, TARGET, 5)
    return values, values == TARGET


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_learning_from_rows(epsilon):
    generator, random = np.random.default_rng(1), SeededRandom(1)

    def failures(n, trials):
        return sum(learn_point(*sample(generator, n), BITS, epsilon, random) != TARGET for _ in range(trials))

    n = point_guarantee(BITS, ALPHA, BETA, epsilon).rows
    assert not failed_too_often(failures(n, 400), 400, BETA)
    assert failed_more_than(failures(n // 2, 400), 400, BETA)


@pytest.mark.parametrize("noise", [GaussianCounts(6.0), LaplaceCounts(4.0)])
def test_learning_from_noisy_counts(noise):
    generator = np.random.default_rng(2)

    def failures(n, trials):
        failed = 0
        for _ in range(trials):
            counts = np.zeros((2, 1 << BITS))
            counts[1, TARGET] = generator.binomial(n, ALPHA)
            counts[0, 5] = n - counts[1, TARGET]
            counts += drawn(noise, counts.shape, generator)
            failed += point_from_counts(counts) != TARGET
        return failed

    guarantee = point_counts_guarantee(BITS, ALPHA, BETA, noise, Fraction(1), Fraction(1, 10**6))
    assert (guarantee.where, guarantee.delta) == ("federated", Fraction(1, 10**6))
    assert not failed_too_often(failures(guarantee.rows, 1000), 1000, BETA)
    assert failed_more_than(failures(guarantee.rows // 2, 1000), 1000, BETA)


def test_a_domain_of_62_bits():
    values = np.array([1 << 61] * 200 + [0, (1 << 62) - 1, 7])
    labels = values == 1 << 61
    assert learn_point(values, labels, 62, Fraction(2), SeededRandom(1)) == 1 << 61
    # An empty table carries no information: the choice is uniform.
    random = SeededRandom(2)
    chosen = [learn_point([], [], 62, Fraction(2), random) for _ in range(400)]
    assert 150 < sum(j >= 1 << 61 for j in chosen) < 250


def test_what_is_refused():
    with pytest.raises(ConfigurationError, match="1 to 62"):
        point_guarantee(63, 0.1, 0.1, Fraction(1))
    with pytest.raises(ConfigurationError, match="1 to 15"):
        point_counts(16)
    with pytest.raises(ConfigurationError, match="1 to 15"):
        point_counts_guarantee(16, 0.1, 0.1, GaussianCounts(1.0), Fraction(1), Fraction(0))
    for shape in [(2, 6), (3, 8), (8,), (2, 1), (2, 0), (2, 1 << 16)]:
        with pytest.raises(ShapeError):
            point_from_counts(np.zeros(shape))
    with pytest.raises(ConfigurationError, match="finite"):
        point_from_counts(np.full((2, 4), np.nan))
