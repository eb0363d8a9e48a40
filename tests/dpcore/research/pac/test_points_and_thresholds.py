"""Points and thresholds from rows: scores are those of every concept, draws are private, and the guarantee holds."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import SeededRandom
from dpcore.research import pac_classes
from dpcore.research.pac_classes import learn_point, learn_threshold, point_guarantee, threshold_guarantee
from tests.dpcore.statistics.pac_world import (
    HARD_BITS,
    POINTS,
    THRESHOLDS,
    all_choices,
    each_class,
    exponential_distribution,
    failed_more_than,
    failed_too_often,
    log_ratio,
    neighbours,
)

MODULES = {POINTS: pac_classes, THRESHOLDS: pac_classes}
LEARN = {POINTS: learn_point, THRESHOLDS: learn_threshold}
GUARANTEE = {POINTS: point_guarantee, THRESHOLDS: threshold_guarantee}
ALPHA, BETA = 0.1, 0.05


@each_class
@pytest.mark.parametrize("negative", [0, -1])
@pytest.mark.parametrize("seed", range(15))
def test_every_concept_is_scored_by_its_errors(concepts, negative, seed, monkeypatch):
    generator = np.random.default_rng(seed)
    n = int(generator.integers(0, 30))
    values, labels = generator.integers(0, 16, size=n), generator.choice([negative, 1], size=n)
    learn = LEARN[concepts]
    found = all_choices(lambda: learn(values, labels, 4, Fraction(1), SeededRandom(0)), monkeypatch, MODULES[concepts])
    assert set(found) == set(range(concepts.size(4)))
    assert len({score + concepts.errors(j, values, labels) for j, score in found.items()}) == 1


@each_class
def test_the_exact_distribution_is_private(concepts, monkeypatch):
    epsilon, learn = Fraction(1), LEARN[concepts]
    tables = list(itertools.product(itertools.product(range(4), [0, 1]), repeat=2))
    distributions = {}
    for table in tables:
        values, labels = np.array(table).T
        found = all_choices(
            lambda v=values, y=labels: learn(v, y, 2, epsilon, SeededRandom(0)), monkeypatch, MODULES[concepts]
        )
        distributions[table] = exponential_distribution([found[j] for j in range(concepts.size(2))], 1.0)
    worst = max(log_ratio(distributions[first], distributions[second]) for first, second in neighbours(tables))
    assert 0.7 * epsilon < worst <= epsilon


@each_class
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_learning_from_rows(concepts, epsilon):
    generator, random, learn = np.random.default_rng(1), SeededRandom(1), LEARN[concepts]

    def failures(n, trials):
        samples = (concepts.hard_rows(n, ALPHA, generator) for _ in range(trials))
        return sum(learn(*sample, HARD_BITS, epsilon, random) != concepts.target for sample in samples)

    n = GUARANTEE[concepts](HARD_BITS, ALPHA, BETA, epsilon).rows
    assert not failed_too_often(failures(n, 400), 400, BETA)
    assert failed_more_than(failures(n // 2, 400), 400, BETA)


@each_class
def test_domains_beyond_62_bits_are_refused(concepts):
    with pytest.raises(ConfigurationError, match="1 to 62"):
        GUARANTEE[concepts](63, 0.1, 0.1, Fraction(1))


def test_a_point_of_62_bits():
    values = np.array([1 << 61] * 200 + [0, (1 << 62) - 1, 7])
    labels = values == 1 << 61
    assert learn_point(values, labels, 62, Fraction(2), SeededRandom(1)) == 1 << 61
    # An empty table carries no information: the choice is uniform.
    random = SeededRandom(2)
    chosen = [learn_point([], [], 62, Fraction(2), random) for _ in range(400)]
    assert 150 < sum(j >= 1 << 61 for j in chosen) < 250


def test_a_threshold_of_62_bits():
    generator = np.random.default_rng(4)
    values = generator.integers(0, 1 << 62, size=2000)
    target = 3 << 60
    j = learn_threshold(values, values < target, 62, Fraction(1), SeededRandom(1))
    assert np.mean((values < j) != (values < target)) < 0.06
    top = np.full(300, (1 << 62) - 1)
    assert learn_threshold(top, np.ones(300), 62, Fraction(1), SeededRandom(1)) == 1 << 62
