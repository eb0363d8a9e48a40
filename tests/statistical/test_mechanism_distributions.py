"""Mechanisms and noise shares have the distributions that are counted: 0.7 and 1.3 times the scale are rejected.

Seeds are fixed, so a result never changes from run to run.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.accounting.noise_shares import LaplaceShares
from dpcore.randomness.noise import LARGEST_SCALE, negative_binomial
from dpcore.randomness.sources import SeededRandom
from dpcore.research.mechanisms import ExponentialMechanism, GaussianMechanism, LaplaceMechanism, RandomizedResponse

ACCEPT, REJECT = 1e-3, 1e-9


def chi_square(sample: np.ndarray, first: int, masses: np.ndarray) -> float:
    """p-value that the sample has these masses at first, first + 1, ...; what is beyond counts with the ends."""
    seen = np.bincount(np.clip(sample - first, 0, len(masses) - 1), minlength=len(masses))
    expected = masses / masses.sum() * len(sample)
    cell = np.minimum(np.cumsum(expected), len(sample) - 6) // 5
    merged = [np.bincount(np.unique(cell, return_inverse=True)[1], weights=array) for array in (seen, expected)]
    return float(stats.chisquare(*merged, sum_check=False).pvalue)


def laplace_masses(scale: float, reach: int) -> np.ndarray:
    return math.tanh(1 / (2 * scale)) * np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)


def polya_masses(scale: float, shares: int, count: int) -> np.ndarray:
    k = np.arange(count - 1)
    ratios = np.concatenate([np.ones(1), np.cumprod(math.exp(-1 / scale) * (k + 1 / shares) / (k + 1))])
    return (-math.expm1(-1 / scale)) ** (1 / shares) * ratios


@pytest.mark.parametrize(
    ("scale", "shares"), [(Fraction(1), 1), (Fraction(7, 3), 2), (Fraction(30), 5), (Fraction(9), 200)]
)
def test_polya_samples_have_their_distribution(scale, shares):
    sample = negative_binomial(scale, shares, 600_000, SeededRandom(shares))
    count = math.ceil(30 * scale) + 20
    assert chi_square(sample, 0, polya_masses(float(scale), shares, count)) > ACCEPT
    for factor in (0.7, 1.3):
        assert chi_square(sample, 0, polya_masses(factor * float(scale), shares, count)) < REJECT
    assert chi_square(sample, 0, polya_masses(float(scale), shares + 1 + shares // 8, count)) < REJECT


@pytest.mark.parametrize(
    ("scale", "shares"), [(Fraction(1, 2), 3), (Fraction(5, 2), 4), (Fraction(20), 3), (Fraction(12), 40)]
)
def test_shares_sum_to_discrete_laplace_noise(scale, shares):
    """Each party with randomness of its own."""
    noise = LaplaceShares(scale, shares)
    total = sum(noise.draw(40_000, SeededRandom(100 * shares + i)) for i in range(shares))
    reach = math.ceil(25 * scale) + 10
    assert chi_square(total, -reach, laplace_masses(float(scale), reach)) > ACCEPT
    for factor in (0.7, 1.3):
        assert chi_square(total, -reach, laplace_masses(factor * float(scale), reach)) < REJECT
    assert abs(total.mean()) < 4.5 * noise.deviation(shares) / 200
    assert total.std() == pytest.approx(noise.deviation(shares), rel=0.05)


@pytest.mark.parametrize(
    ("scale", "shares"), [(Fraction(LARGEST_SCALE), 1), (Fraction(10**12, 7), 3), (Fraction(1 << 30), 8)]
)
def test_large_scales_have_the_gamma_distribution_in_the_limit(scale, shares):
    """k/t tends to Gamma(1/h) as t grows; the lower half is compared as one."""
    drawn = negative_binomial(scale, shares, 100_000, SeededRandom(7))
    sample = drawn / float(scale)
    quantiles = np.linspace(0.5, 0.99, 25)

    def p_value(factor: float, r: float) -> float:
        edges = stats.gamma.ppf(quantiles, r, scale=factor)
        seen = np.histogram(sample, np.concatenate([[-1], edges, [np.inf]]))[0]
        expected = np.diff(np.concatenate([[0], quantiles, [1]])) * len(sample)
        return float(stats.chisquare(seen, expected, sum_check=False).pvalue)

    assert p_value(1, 1 / shares) > ACCEPT
    for factor in (0.7, 1.3):
        assert p_value(factor, 1 / shares) < REJECT
    assert p_value(1, 1.1 / shares) < REJECT
    # Down to single bits: of large samples, the last bits are even.
    bits = drawn[sample > 1e-3] & 1
    assert stats.binomtest(int(bits.sum()), len(bits)).pvalue > ACCEPT


def test_the_laplace_mechanism_has_its_distribution():
    mechanism = LaplaceMechanism(Fraction(1, 3), 5)
    noise = mechanism.release(np.full(200_000, 1000), SeededRandom(2)) - 1000
    assert chi_square(noise, -300, laplace_masses(15, 300)) > ACCEPT
    for factor in (0.7, 0.97, 1.03, 1.3):
        assert chi_square(noise, -300, laplace_masses(15 * factor, 300)) < REJECT
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 4.5 / np.sqrt(len(noise))
    # As often beyond its half width as the distribution says, just below what was asked for.
    width = mechanism.half_width(1, Fraction(1, 20))
    tail = 2 * math.exp(-(width + 1) / 15) / (1 + math.exp(-1 / 15))
    assert 0.045 < tail <= 0.05
    assert stats.binomtest(int((np.abs(noise) > width).sum()), len(noise), tail).pvalue > ACCEPT


def test_the_gaussian_mechanism_has_its_distribution():
    mechanism = GaussianMechanism(Fraction(1), Fraction(1, 10**5), 9, 100_000)
    noise = mechanism.release(np.zeros(100_000, dtype=np.int64), SeededRandom(2))
    x = np.arange(-300, 301)

    def p_value(factor: float) -> float:
        return chi_square(noise, -300, np.exp(-(x**2) / (2 * (factor * mechanism.sigma) ** 2)))

    assert p_value(1) > ACCEPT
    for factor in (0.7, 0.97, 1.03, 1.3):
        assert p_value(factor) < REJECT


def test_randomized_response_has_its_distribution():
    mechanism = RandomizedResponse(Fraction(5, 4), 6)
    for true in (0, 5):
        seen = np.bincount(mechanism.release(np.full(100_000, true), SeededRandom(true)), minlength=6)

        def p_value(epsilon: float, true: int = true, seen: np.ndarray = seen) -> float:
            weights = np.where(np.arange(6) == true, math.exp(epsilon), 1.0)
            return float(stats.chisquare(seen, weights / weights.sum() * 100_000).pvalue)

        assert p_value(1.25) > ACCEPT
        for wrong in (0.7 * 1.25, 1.15, 1.35, 1.3 * 1.25):
            assert p_value(wrong) < REJECT
        found = mechanism.estimate(seen)
        assert np.abs(found - 100_000 * (np.arange(6) == true)).max() < 4.5 * mechanism.variance(found)[true] ** 0.5


@pytest.mark.more
@pytest.mark.parametrize("rule", ["exponential", "permute-and-flip"])
@pytest.mark.parametrize("drawn", [8000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_choices_have_their_distribution(rule, drawn):
    scores, random = [Fraction(0), Fraction(7, 2), Fraction(3), Fraction(5), Fraction(4)], SeededRandom(11)
    mechanism = ExponentialMechanism(Fraction(1), Fraction(1), rule)
    seen = np.bincount([mechanism.release(scores, random) for _ in range(drawn)], minlength=5)

    def p_value(epsilon: Fraction, rule: str) -> float:
        distribution = ExponentialMechanism(epsilon, Fraction(1), rule).probabilities(scores)
        return float(stats.chisquare(seen, distribution * drawn).pvalue)

    assert p_value(Fraction(1), rule) > ACCEPT
    for wrong in (Fraction(7, 10), Fraction(13, 10)):
        assert p_value(wrong, rule) < REJECT
    other = {"exponential": "permute-and-flip", "permute-and-flip": "exponential"}[rule]
    assert p_value(Fraction(1), other) < REJECT


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "shares"), [(Fraction(3), 3), (Fraction(64), 1), (Fraction(100, 3), 7)])
def test_shares_sum_to_discrete_laplace_noise_closely(scale, shares):
    noise, drawn = LaplaceShares(scale, shares), 3_000_000
    total = sum(noise.draw(drawn, SeededRandom(1000 * shares + i)) for i in range(shares))
    reach = math.ceil(25 * scale) + 10
    assert chi_square(total, -reach, laplace_masses(float(scale), reach)) > ACCEPT
    for factor in (0.97, 1.03):
        assert chi_square(total, -reach, laplace_masses(factor * float(scale), reach)) < REJECT
