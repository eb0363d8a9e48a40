"""The exact sampler's parts: its bounds of exp(-gamma), its tail, and the arguments that it refuses."""

import math
from dataclasses import replace
from fractions import Fraction

import gmpy2
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
    fast = discrete_gaussian(sigma, 20_000, SeededRandom(sigma))
    decided = []
    exactly, heads = noise.decide, noise._heads

    def without_tolerance(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(noise, "TOLERANCE", 2.0)
            return heads(*arguments)

    monkeypatch.setattr(noise, "decide", lambda *arguments: decided.append(1) or exactly(*arguments))
    monkeypatch.setattr(noise, "_heads", without_tolerance)
    assert np.array_equal(discrete_gaussian(sigma, 20_000, SeededRandom(sigma)), fast)
    # All coins that the least acceptance of a step does not decide were decided exactly.
    assert len(decided) > 5


@pytest.mark.parametrize("sigma", [3, 47, LARGEST_SIGMA])
def test_what_is_surely_accepted_is_accepted_for_every_magnitude_of_the_step(sigma):
    steps = noise._steps(sigma)
    for step in range(0, len(steps.entries), 5):
        low, _ = steps._acceptance((step + 1 << steps.width) - 1, Fraction(int(steps.entries[step])), 128)
        assert Fraction(float(steps.least[step]) - noise.TOLERANCE) < Fraction(low, 1 << 128)
    # The tail, and what no step has, are never accepted so.
    assert not steps.least[len(steps.entries) :].any()


def candidates(sigma: int, most: int) -> list[tuple[int, Fraction, Fraction]]:
    """Each magnitude up to `most`: the chance that it is drawn, and the entries of a step as wide that it counts as."""
    steps = noise._steps(sigma)
    drawn, size = [], 1 << sigma.bit_length() - 1
    first = len(steps.entries) << steps.width
    for x in range(most + 1):
        if x < first:
            share = Fraction(int(steps.entries[x >> steps.width]))
            chance = share / (noise._ENTRIES << steps.width)
        else:
            block = (x - first) // size
            share = Fraction(steps._tail_share(block))
            chance = Fraction(steps.tail_entries, noise._ENTRIES << block + 1) / size
        drawn.append((x, chance, share))
    return drawn


@pytest.mark.variants(3)
@pytest.mark.parametrize("sigma", [1, 3, 31, 32, 47, 100])
def test_what_is_drawn_and_accepted_is_the_discrete_gaussian(sigma):
    """The chance of each magnitude, divided by its mass, is the same for all, in the tail too."""
    steps, ratios = noise._steps(sigma), []
    for x, chance, share in candidates(sigma, 8 * sigma):
        low, high = steps._acceptance(x, share, 128)
        assert low <= 1 << 128, f"{x} would need an acceptance above 1"
        assert 0 <= high - low <= 4
        mass = gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(-x * x, 2 * sigma * sigma), 200))
        ratios.append(float(gmpy2.mpfr(gmpy2.mpq(*(chance * (low + high) / 2).as_integer_ratio()), 200) / mass))
    assert max(ratios) / min(ratios) - 1 < 1e-15


@pytest.mark.parametrize("sigma", [1, 3, 1000, (1 << 30) + 1, LARGEST_SIGMA])
def test_double_precision_stays_within_the_tolerance(sigma):
    """Compares the computed acceptance with the exact one."""
    steps = noise._steps(sigma)
    assert len(steps.entries) << steps.width >= 5 * sigma
    assert int(steps.entries.sum()) + steps.tail_entries <= noise._ENTRIES
    for x in {0, 1, sigma // 2, sigma, 2 * sigma + 1, 5 * sigma - 1}:
        step = x >> steps.width
        low, high = steps._acceptance(x, Fraction(int(steps.entries[step])), 128)
        chance = np.exp(-np.square(np.float64(x) / sigma) / 2) / (float(steps.unit) * float(steps.entries[step]))
        assert abs(Fraction(float(chance)) - Fraction(low + high, 2 << 128)) < noise.TOLERANCE / 8


@pytest.mark.more
def test_the_tail_is_drawn(monkeypatch):
    """With every entry in the tail its distribution is that of the tail."""
    sigma = 3000
    steps = noise._steps(sigma)
    rest = replace(steps, step=np.full(noise._ENTRIES, len(steps.entries), dtype=np.int64))
    monkeypatch.setattr(noise, "_steps", lambda _: rest)
    sample = np.abs(discrete_gaussian(sigma, 3000, SeededRandom(3)))
    first = len(steps.entries) << steps.width
    x = np.arange(first, first + 10 * sigma)
    mass = np.exp(-(x.astype(np.float64) ** 2) / (2.0 * sigma**2))
    assert sample.min() >= first
    uniform = 1 - np.cumsum(mass[::-1])[::-1][sample - first] / mass.sum()
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    assert stats.kstest(uniform**1.2, "uniform").pvalue < 1e-6


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
