"""The exact sampler's parts: its bounds of exp(-gamma), its tail, and the arguments that it refuses."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.errors import PlanError
from dpcore.randomness import noise
from dpcore.randomness import noise as module
from dpcore.randomness.noise import LARGEST_SIGMA, discrete_gaussian, tail_bound
from dpcore.randomness.sources import SeededRandom


@pytest.mark.variants(2)
@pytest.mark.parametrize("sigma", [1, 2, 7, 20, 1 << 30, LARGEST_SIGMA])
def test_double_precision_decides_as_exact_arithmetic_does(monkeypatch, sigma):
    fast = discrete_gaussian(sigma, 700, SeededRandom(sigma))
    decided = []
    real = noise.decide
    monkeypatch.setattr(noise, "TOLERANCE", 2.0)
    monkeypatch.setattr(noise, "decide", lambda *arguments: decided.append(1) or real(*arguments))
    assert np.array_equal(discrete_gaussian(sigma, 700, SeededRandom(sigma)), fast)
    # Every coin was decided exactly: at least one for the magnitude, one for its run, one for the acceptance.
    assert len(decided) > 3 * 700


def test_double_precision_stays_within_the_tolerance():
    """Compares the computed exponent of the last coin with the exact one, where it matters: exp(-gamma) not tiny."""
    for sigma in (1, 3, 1000, (1 << 30) + 1, LARGEST_SIGMA):
        t = sigma + 1
        for x in {0, 1, sigma // 2, sigma, t, 2 * sigma + 1, 5 * sigma, 9 * sigma + 7}:
            gamma = Fraction((x * t - sigma * sigma) ** 2, 2 * sigma * sigma * t * t)
            offset = np.float64(x) - sigma * sigma / t
            low, high = noise.exp_bounds(gamma, 128)
            off = Fraction(float(np.exp(-(np.square(offset / sigma) / 2)))) - Fraction(low + high, 2 << 128)
            assert abs(off) < noise.TOLERANCE / 8


def test_samples_do_not_depend_on_how_many_follow_in_a_batch():
    assert discrete_gaussian(5, 0, SeededRandom(1)).shape == (0,)
    many = discrete_gaussian(5, 3 * module._GAUSSIAN_BATCH + 1, SeededRandom(1))
    assert many.shape == (3 * module._GAUSSIAN_BATCH + 1,)
    assert many.dtype == np.int64
    assert np.array_equal(many, discrete_gaussian(5, 3 * module._GAUSSIAN_BATCH + 1, SeededRandom(1)))


@pytest.mark.parametrize("sigma", [0, -1, 2.5, True, 1 << 49, "3"])
def test_standard_deviations_that_cannot_be_sampled_are_refused(sigma):
    with pytest.raises(PlanError, match="integer from 1"):
        discrete_gaussian(sigma, 1, SeededRandom(1))


def tail(sigma: int, above: int) -> float:
    """P(|X| > above) for N_Z(0, sigma^2), by summation."""
    x = np.arange(0, above + 40 * sigma + 1, dtype=np.float64)
    mass = np.exp(-(x**2) / (2.0 * sigma**2))
    return float(2 * mass[above + 1 :].sum() / (mass[0] + 2 * mass[1:].sum()))


@pytest.mark.parametrize("sigma", [1, 3, 20, 500])
@pytest.mark.parametrize("values", [1, 1000, 10**9])
def test_the_tail_is_bounded_and_not_by_much(sigma, values):
    bound = tail_bound(sigma, 1, values)
    assert tail(sigma, bound) * values <= 2.0**-64
    assert tail(sigma, round(0.93 * bound) - 3) * values > 2.0**-64


@pytest.mark.parametrize("summands", [2, 50, 10**6])
def test_the_tail_of_a_sum_grows_with_its_root(summands):
    bound, sigma = tail_bound(1 << 20, summands, 10**6), math.ldexp(math.sqrt(summands), 20)
    needed = float(stats.norm.isf(2.0**-65 / 10**6)) * sigma
    assert needed < bound < 1.05 * needed


@pytest.mark.parametrize("sigma", [1, 3])
def test_it_is_sub_gaussian(sigma):
    x = np.arange(-40 * sigma, 40 * sigma + 1, dtype=np.float64)
    mass = np.exp(-(x**2) / (2.0 * sigma**2))
    mass /= mass.sum()
    for slope in np.linspace(-4, 4, 33) / sigma:
        assert mass @ np.exp(slope * x) <= math.exp(slope**2 * sigma**2 / 2) * (1 + 1e-12)


def test_samples_stay_within_the_tail_bound():
    samples = discrete_gaussian(20, 400_000, SeededRandom(9))
    assert 4.2 * 20 < np.abs(samples).max() < 7 * 20 < tail_bound(20, 1, 400_000)
