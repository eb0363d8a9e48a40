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
from dpcore.randomness.compiled import add_others, propose
from dpcore.randomness.noise import LARGEST_SIGMA, add_discrete_gaussian, discrete_gaussian, tail_bound
from dpcore.randomness.sources import SeededRandom


@pytest.mark.variants(3)
@pytest.mark.parametrize("sigma", [1, 20, LARGEST_SIGMA, 2, 7, 1 << 30])
def test_double_precision_decides_as_exact_arithmetic_does(monkeypatch, sigma):
    fast = discrete_gaussian(sigma, 20_000, SeededRandom(sigma))
    decided = []
    exactly = noise.decide
    monkeypatch.setattr(noise, "decide", lambda *arguments: decided.append(1) or exactly(*arguments))
    # Double precision is never certain now.
    monkeypatch.setattr(noise, "TOLERANCE", 2.0)
    assert np.array_equal(discrete_gaussian(sigma, 20_000, SeededRandom(sigma)), fast)
    # All coins that the least acceptance of a step does not decide were decided exactly.
    assert len(decided) > 5


SIGMA = 1000


def word(magnitude: int, coin: int, *, sigma: int = SIGMA, negative: bool = False, step: int | None = None) -> int:
    """The word that draws a magnitude and begins the number that accepts it."""
    steps = noise._steps(sigma)
    entry = int(np.flatnonzero(steps.step == (magnitude >> steps.width if step is None else step))[0])
    place = magnitude & (1 << steps.width) - 1
    return entry | negative << noise._ENTRY_BITS | (place | coin << steps.width) << noise._PLACE_BIT


def proposed(*drawn: int, sigma: int = SIGMA) -> tuple[list[int], int, list[list[int]]]:
    """What the compiled loop makes of these words: samples, how many were not sure, and the open ones."""
    steps = noise._steps(sigma)
    samples, open_ = np.empty(len(drawn), dtype=np.int64), np.empty((len(drawn), 3), dtype=np.int64)
    table = (steps.step, steps._sure, steps.heights, float(sigma), noise.TOLERANCE, noise._ENTRY_BITS, steps.width)
    written, unsure, unknown = propose(np.array(drawn, dtype=np.uint64), *table, samples, open_)
    return samples[:written].tolist(), unsure, open_[:unknown].tolist()


def edge(magnitude: int, sigma: int = SIGMA) -> tuple[int, int]:
    """The first bits of the number at which a magnitude's acceptance ends, and the tolerance in units of their last."""
    steps = noise._steps(sigma)
    bits = 64 - noise._PLACE_BIT - steps.width
    low, _ = steps._acceptance(magnitude, Fraction(int(steps.entries[magnitude >> steps.width])), 128)
    return low >> 128 - bits, math.ceil(noise.TOLERANCE * 2**bits)


@pytest.mark.parametrize(("x", "sigma"), [(999, SIGMA), (4 * LARGEST_SIGMA, LARGEST_SIGMA), (4990, SIGMA)])
def test_the_loop_decides_where_double_precision_is_certain_and_nowhere_else(x, sigma):
    """At the exact acceptance it leaves the sample open, and decides rightly a little more than the tolerance away."""
    coin, near = edge(x, sigma)
    for close in {coin - near // 2, coin, coin + near // 2}:
        assert proposed(word(x, close, sigma=sigma), sigma=sigma) == ([x], 1, [[0, 0, close]])
    below, above = word(x, coin - near - 1, sigma=sigma), word(x, coin + near + 1, sigma=sigma)
    accepted, _, open_ = proposed(below, below | 1 << noise._ENTRY_BITS, sigma=sigma)
    assert (accepted, open_) == ([x, -x], [])
    assert proposed(above, sigma=sigma) == ([], 1, [])
    assert proposed(word(x, 0, negative=True, sigma=sigma), sigma=sigma) == ([-x], 0, [])


def test_the_loop_keeps_the_order_and_leaves_out_minus_zero_and_what_no_step_has():
    steps, (coin, _) = noise._steps(SIGMA), edge(999)
    tail = len(steps.entries)
    drawn = (word(5, 0), word(0, 0, negative=True), word(999, coin, negative=True), word(0, 0), word(3, 0, step=tail))
    first = tail << steps.width
    assert proposed(*drawn, word(7, 0)) == ([5, -999, 0, first + 3, 7], 2, [[1, 0, coin], [3, 1, 0]])
    assert proposed(word(0, 0, step=tail + 1), word(7, 0)) == ([7], 0, [])


def test_samples_are_added_but_for_rejected_ones_and_those_beyond_the_last_value():
    samples, rejected = np.arange(1, 9), np.array([0, 3, 4])
    for length, expected in ((8, [12, 13, 16, 17, 18, 10, 10, 10]), (2, [12, 13]), (3, [12, 13, 16])):
        values = np.full(length, 10)
        assert add_others(values, samples, rejected) == min(length, 5)
        assert values.tolist() == expected
    values = np.full(8, 10)
    assert add_others(values, samples, rejected[:0]) == 8
    assert np.array_equal(values, 10 + samples)


def test_noise_is_added_to_what_is_there():
    values = np.arange(2000)
    add_discrete_gaussian(values, 20, SeededRandom(1))
    assert np.array_equal(values, np.arange(2000) + discrete_gaussian(20, 2000, SeededRandom(1)))


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
    rest = replace(steps, step=np.full(noise._ENTRIES, len(steps.entries), dtype=np.int16))
    monkeypatch.setattr(noise, "_steps", lambda _: rest)
    drawn = discrete_gaussian(sigma, 3000, SeededRandom(3))
    sample, positive = np.abs(drawn), drawn > 0
    first = len(steps.entries) << steps.width
    x = np.arange(first, first + 10 * sigma)
    mass = np.exp(-(x.astype(np.float64) ** 2) / (2.0 * sigma**2))
    assert sample.min() >= first
    assert abs(positive.mean() - 0.5) < 0.05
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
