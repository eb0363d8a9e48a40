"""Randomized response: its distribution, its estimates and their variance over all outcomes, and its privacy."""

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
from dpcore.research.mechanisms import RandomizedResponse

EPSILONS = st.fractions(min_value=Fraction(1, 100), max_value=20, max_denominator=100)


@given(EPSILONS, st.integers(2, 50))
def test_an_answers_probabilities_differ_by_e_to_the_epsilon(epsilon, values):
    mechanism = RandomizedResponse(epsilon, values)
    assert mechanism.kept + (values - 1) * mechanism.other == pytest.approx(1, rel=1e-12)
    assert math.log(mechanism.kept / mechanism.other) == pytest.approx(float(epsilon), rel=1e-9)
    low, high = mechanism._bounds(100)
    assert 0 <= high - low <= 2
    assert low / 2**100 == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + values - 1), rel=1e-12)


def test_two_fair_coins_are_log_three():
    """Bassily, Smith and Thakurta's example: 3/4 and 1/4."""
    mechanism = RandomizedResponse(Fraction(math.log(3)), 2)
    assert mechanism.kept == pytest.approx(3 / 4, rel=1e-12)
    assert mechanism.delta == 0


@pytest.mark.parametrize("truth", [(0, 0, 1), (2, 2, 2), (0, 1, 2)])
def test_estimates_are_unbiased_and_vary_as_stated(truth):
    """Over all 27 outcomes."""
    mechanism = RandomizedResponse(Fraction(3, 4), 3)
    held = np.bincount(truth, minlength=3)
    mean, square, stated = np.zeros(3), np.zeros(3), np.zeros(3)
    for outcome in itertools.product(range(3), repeat=3):
        pairs = zip(outcome, truth, strict=True)
        chance = math.prod(mechanism.kept if a == t else mechanism.other for a, t in pairs)
        estimate = mechanism.estimate(np.bincount(outcome, minlength=3))
        mean += chance * estimate
        square += chance * estimate**2
        stated += chance * mechanism.variance(estimate)
    assert mean == pytest.approx(held, abs=1e-12)
    assert square - mean**2 == pytest.approx(mechanism.variance(held), rel=1e-10)
    assert stated == pytest.approx(mechanism.variance(held), rel=1e-10)


def test_double_precision_decides_as_exact_arithmetic_does(monkeypatch):
    mechanism, answers = RandomizedResponse(Fraction(2, 3), 5), np.arange(300) % 5
    fast = mechanism.release(answers, SeededRandom(3))
    monkeypatch.setattr(noise, "TOLERANCE", 2.0)
    assert np.array_equal(mechanism.release(answers, SeededRandom(3)), fast)
    assert fast.dtype == np.int64


def test_no_answers_are_released_as_none():
    assert RandomizedResponse(Fraction(1), 2).release(np.zeros(0, dtype=np.int64), SeededRandom(1)).shape == (0,)


@pytest.mark.parametrize("answers", [[0, 3], [-1], [0.5], [[0, 1]], [True, False]])
def test_answers_out_of_range_are_refused(answers):
    with pytest.raises(DataError, match="from 0 to 2"):
        RandomizedResponse(Fraction(1), 3).release(np.array(answers), SeededRandom(1))


def test_counts_of_another_number_of_values_are_refused():
    for call in (RandomizedResponse(Fraction(1), 3).estimate, RandomizedResponse(Fraction(1), 3).variance):
        with pytest.raises(DataError, match="3 values"):
            call(np.array([1, 2]))


@pytest.mark.parametrize(
    ("epsilon", "values"), [(Fraction(0), 2), (Fraction(151), 2), (1.5, 2), (True, 2), (Fraction(1), 1)]
)
def test_mechanisms_out_of_range_are_refused(epsilon, values):
    with pytest.raises(PlanError, match="give"):
        RandomizedResponse(epsilon, values)
