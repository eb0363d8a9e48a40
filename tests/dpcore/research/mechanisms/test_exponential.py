"""Choices by score: their distributions against enumeration, and their privacy over all outputs of neighbours."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import DataError, PlanError
from dpcore.randomness import noise
from dpcore.randomness.sources import SeededRandom
from dpcore.research.mechanisms import ExponentialMechanism

RULES = ["exponential", "permute-and-flip"]
SCORES = st.lists(st.fractions(min_value=-20, max_value=20, max_denominator=50), min_size=1, max_size=6)


def by_order(chances: list[float]) -> np.ndarray:
    """Permute-and-flip, by its definition: over every order, the first heads."""
    found = np.zeros(len(chances))
    for order in itertools.permutations(range(len(chances))):
        left = 1.0
        for i in order:
            found[i] += left * chances[i]
            left *= 1 - chances[i]
    return found / math.factorial(len(chances))


@given(SCORES, st.fractions(min_value=Fraction(1, 10), max_value=5, max_denominator=10))
def test_probabilities_are_those_of_the_definitions(scores, epsilon):
    weights = [math.exp(float(epsilon * (score - max(scores)) / 4)) for score in scores]
    found = ExponentialMechanism(epsilon, Fraction(2)).probabilities(scores)
    assert found == pytest.approx(np.array(weights) / sum(weights), rel=1e-12)
    flipped = ExponentialMechanism(epsilon, Fraction(2), "permute-and-flip").probabilities(scores)
    assert flipped == pytest.approx(by_order(weights), rel=1e-10)
    # McKenna and Sheldon: the expected score is no lower.
    values = np.array([float(score) for score in scores])
    assert flipped @ values >= found @ values - 1e-9


@given(SCORES, st.data())
def test_no_output_is_more_likely_than_stated(scores, data):
    epsilon, sensitivity = Fraction(3, 2), Fraction(2)
    moves = st.fractions(min_value=-2, max_value=2, max_denominator=20)
    moved = [score + data.draw(moves) for score in scores]
    for rule in RULES:
        mechanism = ExponentialMechanism(epsilon, sensitivity, rule)
        ratio = np.log(mechanism.probabilities(scores) / mechanism.probabilities(moved))
        assert np.abs(ratio).max() <= 1.5 + 1e-9


@pytest.mark.parametrize("rule", RULES)
def test_the_bound_is_reached_and_broken_by_a_sharper_choice(rule):
    """A candidate far below many that move away from it, or a best one that falls; 0.7 of the noise breaks it."""
    away = ([Fraction(0)] + [Fraction(100)] * 30, [Fraction(2)] + [Fraction(98)] * 30)
    mechanism = ExponentialMechanism(Fraction(3, 2), Fraction(2), rule)
    first, second = (mechanism.probabilities(scores) for scores in away)
    assert np.log(second / first).max() == pytest.approx(1.5, abs=1e-9)
    sharper = ExponentialMechanism(Fraction(3, 2) / Fraction(7, 10), Fraction(2), rule)
    first, second = (sharper.probabilities(scores) for scores in away)
    assert np.log(second / first).max() > 1.5 * 1.4


@pytest.mark.parametrize("rule", RULES)
def test_double_precision_decides_as_exact_arithmetic_does(monkeypatch, rule):
    scores = [Fraction(i * i, 7) for i in range(9)]
    mechanism = ExponentialMechanism(Fraction(1, 3), Fraction(2), rule)
    fast = [mechanism.release(scores, SeededRandom(seed)) for seed in range(60)]
    monkeypatch.setattr(noise, "TOLERANCE", 2.0)
    assert [mechanism.release(scores, SeededRandom(seed)) for seed in range(60)] == fast
    assert len(set(fast)) > 2


@pytest.mark.parametrize("rule", RULES)
def test_a_clear_winner_wins_and_a_single_candidate_always(rule):
    mechanism = ExponentialMechanism(Fraction(100), Fraction(1), rule)
    assert {mechanism.release([0, 5, 3], SeededRandom(seed)) for seed in range(20)} == {1}
    assert mechanism.release(np.array([7]), SeededRandom(1)) == 0
    # Scores far apart, and many: the best is accepted in reasonable time.
    assert mechanism.release([0] * 5000 + [10**9], SeededRandom(2)) == 5000


def test_its_privacy_is_stated():
    mechanism = ExponentialMechanism(Fraction(1), Fraction(1))
    assert (mechanism.epsilon, mechanism.delta) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((Fraction(0), Fraction(1)), "epsilon is"),
        ((0.5, Fraction(1)), "epsilon is"),
        ((Fraction(1), Fraction(0)), "sensitivity is"),
        ((Fraction(1), 1.5), "sensitivity is"),
        ((Fraction(1), Fraction(1), "gumbel"), "rule is"),
    ],
)
def test_mechanisms_out_of_range_are_refused(arguments, words):
    with pytest.raises(PlanError, match=words):
        ExponentialMechanism(*arguments)


def test_scores_that_are_not_exact_are_refused():
    mechanism = ExponentialMechanism(Fraction(1), Fraction(1))
    with pytest.raises(DataError, match="exact"):
        mechanism.release([1, 2.5], SeededRandom(1))
    with pytest.raises(DataError, match="no candidate"):
        mechanism.release([], SeededRandom(1))
