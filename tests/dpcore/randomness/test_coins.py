"""Exact coins: bounds bracket the probability, undecided words draw more bits, and rounding never decides."""

import math
from fractions import Fraction

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpcore.randomness import noise
from dpcore.randomness.noise import (
    around,
    bernoulli,
    bernoulli_exp,
    decide,
    exp_bounds,
    exp_interval,
    indices,
    rational,
)
from dpcore.randomness.sources import SeededRandom


class Scripted(SeededRandom):
    """A source whose further bits are given."""

    def __init__(self, *further: int) -> None:
        super().__init__(0)
        self.further = list(further)

    def bits(self, count: int) -> int:
        assert count == 64
        return self.further.pop(0)


@settings(deadline=None)
@given(st.fractions(min_value=0, max_value=300, max_denominator=10**9), st.sampled_from([64, 128, 320]))
def test_bounds_of_exp_bracket_it_closely(gamma, precision):
    low, high = exp_bounds(gamma, precision)
    with gmpy2.context(precision=precision + 400):
        exact = gmpy2.exp(-gmpy2.mpfr(gmpy2.mpq(gamma.numerator, gamma.denominator))) * gmpy2.mpz(1 << precision)
        assert low <= exact <= high
    # Wider bounds would leave a coin undecided forever, no matter how many bits are drawn.
    assert high - low <= 2


@given(
    st.fractions(min_value=-2000, max_value=40, max_denominator=10**9),
    st.fractions(min_value=0, max_value=1, max_denominator=1000),
)
def test_intervals_of_exp_hold_both_ends_and_little_more(lower, width):
    low, high = exp_interval(lower, lower + width, 80)
    with gmpy2.context(precision=500):
        ends = [rational(gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(x)))) for x in (lower, lower + width)]
    assert low <= ends[0] * (1 + Fraction(1, 2**400))
    assert ends[1] <= high * (1 + Fraction(1, 2**400))
    assert ends[0] - low <= ends[0] / 2**78
    assert high - ends[1] <= ends[1] / 2**78


def test_a_certain_coin_is_certain():
    assert exp_bounds(Fraction(0), 64) == (1 << 64, 1 << 64)
    assert bernoulli_exp(np.zeros(5000), lambda _: Fraction(0), SeededRandom(1)).all()
    assert not bernoulli_exp(np.full(5000, 10.0**6), lambda _: Fraction(10**6), SeededRandom(1)).any()


def test_an_undecided_coin_draws_as_many_bits_as_it_needs():
    third = Fraction(1, 3)
    word = (1 << 64) // 3
    for further, heads in (
        ((word - 1,), True),
        ((word + 1,), False),
        ((word, word - 1), True),
        ((word, word + 1), False),
    ):
        source = Scripted(*further)
        assert decide(word, lambda precision: around(third, third, precision), source) is heads
        assert not source.further
    assert decide(word - 1, lambda precision: around(third, third, precision), Scripted())
    assert not decide(word + 1, lambda precision: around(third, third, precision), Scripted())


def test_double_precision_decides_as_exact_arithmetic_does(monkeypatch):
    chances = [Fraction(i, 997) for i in range(998)]
    rounded = np.array([float(chance) for chance in chances])

    def bounds(index: int, precision: int) -> tuple[int, int]:
        return around(chances[index], chances[index], precision)

    fast = bernoulli(rounded, bounds, SeededRandom(4))
    monkeypatch.setattr(noise, "TOLERANCE", 2.0)
    # Wrong probabilities do not matter if every coin is decided exactly.
    assert np.array_equal(bernoulli(np.full(998, 0.5), bounds, SeededRandom(4)), fast)
    assert not np.array_equal(bernoulli(np.full(998, 0.5), lambda i, p: bounds(997 - i, p), SeededRandom(4)), fast)


@pytest.mark.parametrize("gamma", [0.0, 1e-9, 0.3, 1.0, 20.0, 27.7])
def test_a_rounded_chance_is_within_half_the_tolerance(gamma):
    low, high = exp_bounds(Fraction(gamma), 128)
    assert abs(Fraction(math.exp(-gamma)) - Fraction(low + high, 2 << 128)) < noise.TOLERANCE / 2


@pytest.mark.parametrize("bound", [1, 2, 6, 7, 64])
def test_indices_are_uniform(bound):
    counts = np.bincount(indices(bound, 20_000, SeededRandom(bound)), minlength=bound)
    assert len(counts) == bound
    if bound > 1:
        assert stats.chisquare(counts).pvalue > 1e-4
        # The result of modulo without rejection: some values are twice as likely.
        skewed = np.where(np.arange(bound) < bound / 2, 4.0, 3.0)
        assert stats.chisquare(counts, skewed / skewed.sum() * counts.sum()).pvalue < 1e-4
