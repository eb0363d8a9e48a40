"""Noise shares: totals' tails, widths and deviations against exact masses, and the privacy of Laplace totals."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting import noise_shares
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares, _exceeded, _Tail, smallest_scale
from dpcore.errors import PlanError
from dpcore.randomness.noise import LARGEST_SIGMA, discrete_gaussian, laplace_share, tail_bound
from dpcore.randomness.sources import SeededRandom

SMALL = 2.0**-64


def laplace_total(scale: Fraction | float, kappa: float, reach: int) -> np.ndarray:
    """P(total = x) for x from 0 to reach, for a difference of two NB(kappa, q): sums of positive terms."""
    count = reach + 1 + math.ceil(45 * scale) + 60
    mass = half_masses(scale, kappa, count + reach)
    return np.array([mass[:count] @ mass[x : x + count] for x in range(reach + 1)])


def half_masses(scale: Fraction | float, kappa: float, largest: int) -> np.ndarray:
    """The masses of NB(kappa, q) at 0, 1, ..., largest."""
    inverse, k = float(1 / scale), np.arange(largest)
    log_mass = np.concatenate([[0.0], np.cumsum(np.log((k + kappa) / (k + 1)) - inverse)])
    return np.exp(kappa * math.log(-math.expm1(-inverse)) + log_mass)


def beyond(masses: np.ndarray, b: int) -> float:
    """P(|total| > b) from the masses at 0, 1, ..."""
    return float(2 * masses[b + 1 :].sum())


CASES = [
    (Fraction(1, 3), 2, 2),
    (Fraction(2), 1, 1),
    (Fraction(2), 3, 4),
    (Fraction(5, 2), 4, 12),
    (Fraction(8), 3, 2),
    (Fraction(8), 3, 3),
    (Fraction(3), 1, 30),
]


@pytest.mark.parametrize(("scale", "shares", "parties"), CASES)
@pytest.mark.parametrize("values", [1, 1000])
def test_a_laplace_tail_is_bounded_and_not_by_much(scale, shares, parties, values):
    noise = LaplaceShares(scale, shares)
    bound = noise.tail_bound(parties, values)
    masses = laplace_total(scale, parties / shares, bound + math.ceil(40 * scale))
    assert beyond(masses, bound) * values <= SMALL
    # Exact for h shares; Chernoff's bound is a few scales larger.
    spare = 1 if parties == shares else math.ceil(7 * scale)
    assert beyond(masses, bound - spare) * values > SMALL


@pytest.mark.parametrize(
    ("scale", "kappa", "within"),
    [
        (Fraction(1, 3), Fraction(1, 2), 1e-8),
        (Fraction(2), Fraction(4, 3), 1e-8),
        (Fraction(40), Fraction(2), 1e-8),
        # Cells of several counts, and cells that begin far above 0.
        (Fraction(300), Fraction(2, 3), 0.02),
        (Fraction(1), Fraction(900), 1e-8),
    ],
)
def test_a_tail_by_cells_is_no_less_than_the_exact_one(scale, kappa, within):
    mean, deviation = float(kappa * scale), float(scale) * math.sqrt(kappa)
    count = int(mean + 12 * deviation + 45 * scale) + 60
    bounds = [0, 1, 2, *(int(part * deviation) for part in (0.5, 1, 4, 10))]
    masses = half_masses(scale, float(kappa), 2 * count)
    above = np.cumsum(masses[::-1])[::-1]
    tail = _Tail(1 / scale, kappa)
    assert len(tail._masses) < 5000
    for b in bounds:
        exact = masses[:count] @ above[b + 1 : b + 1 + count]
        assert exact <= tail.beyond(b) <= exact * (1 + within) + 1e-11


@pytest.mark.parametrize(("chance", "bound"), [(0.05, 0), (0.04, 1), (0.003, 1), (0.002, 2)])
def test_the_least_magnitude_is_found_where_it_is_small(chance, bound):
    """P(X > b) of discrete Laplace noise of scale 1/3 is 0.0474 e^(-3 b)."""
    assert _exceeded(Fraction(3), Fraction(1), -math.log(chance), 9) == bound


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "shares", "parties"), [*CASES, (Fraction(60), 3, 4), (Fraction(50), 2, 30)])
@pytest.mark.parametrize(("values", "failure"), [(1, 0.05), (1, Fraction(1, 3)), (20, 0.01), (50_000, 0.05)])
def test_a_laplace_half_width_holds_and_is_close(scale, shares, parties, values, failure):
    width = LaplaceShares(scale, shares).half_width(parties, values, failure)
    assert width == int(width) >= 0
    masses = laplace_total(scale, parties / shares, int(width) + math.ceil(40 * scale))
    assert beyond(masses, int(width)) * values <= failure
    shorter = int(0.98 * width) - 1
    assert shorter < 0 or beyond(masses, shorter) * values > failure


@pytest.mark.more
def test_a_half_width_falls_with_the_chance_of_failure_beyond_double_precision():
    noise = LaplaceShares(Fraction(100), 3)
    widths = [noise.half_width(5, 10, Fraction(1, 10**n)) for n in (1, 3, 6, 9, 30, 400)]
    assert widths == sorted(widths)
    # In the end Chernoff's bound: one scale for each factor e, and a little more.
    assert 100 * 401 * math.log(10) < widths[-1] < 1.05 * 100 * 401 * math.log(10)


@pytest.mark.more
@pytest.mark.parametrize(
    ("scale", "shares", "parties"), [(Fraction(1 << 40), 3, 4), (Fraction(1 << 30), 1 << 16, 70_000)]
)
def test_widths_scale_with_the_noise(scale, shares, parties):
    """A scale of 200 has the same shape, to two in a thousand."""
    wide, narrow = LaplaceShares(scale, shares), LaplaceShares(Fraction(2000), shares)
    for of in (lambda noise: noise.half_width(parties, 10, 0.05), lambda noise: noise.tail_bound(parties, 10)):
        assert of(wide) / float(scale) == pytest.approx(of(narrow) / 2000, rel=6e-3)
    assert wide.deviation(parties) / float(scale) == pytest.approx(narrow.deviation(parties) / 2000, rel=1e-6)


@pytest.mark.parametrize(("scale", "shares", "parties"), CASES)
def test_a_laplace_deviation_is_that_of_the_masses(scale, shares, parties):
    masses = laplace_total(scale, parties / shares, math.ceil(100 * scale) + 40)
    x = np.arange(len(masses))
    assert masses[0] + 2 * masses[1:].sum() == pytest.approx(1, rel=1e-9)
    expected = math.sqrt(2 * float(masses @ x**2))
    assert LaplaceShares(scale, shares).deviation(parties) == pytest.approx(expected, rel=1e-9)


def largest_log_ratio(masses: np.ndarray, shift: int) -> float:
    """The largest log P(x) / P(x - shift) over a window of totals, both ways by symmetry."""
    x = np.arange(-len(masses) + 1 + shift, len(masses) - shift)
    return float(np.log(masses[np.abs(x)] / masses[np.abs(x - shift)]).max())


@pytest.mark.parametrize(("scale", "shares"), [(Fraction(5, 2), 4), (Fraction(4), 1), (Fraction(9), 3)])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_laplace_totals_are_as_private_as_stated(scale, shares, shift):
    """Both probabilities of every output, with the counted shares and with more; tight, and broken by less noise."""
    stated = float(LaplaceShares(scale, shares).epsilon(shift))
    exact = laplace_total(scale, 1.0, 120)
    assert largest_log_ratio(exact, shift) == pytest.approx(stated, abs=1e-9)
    assert largest_log_ratio(laplace_total(scale, (shares + 1) / shares, 120), shift) <= stated + 1e-9
    assert largest_log_ratio(laplace_total(0.7 * float(scale), 1.0, 80), shift) > 1.4 * stated
    # A missing share is missing noise.
    if shares > 1:
        assert largest_log_ratio(laplace_total(scale, (shares - 1) / shares, 120), shift) > 1.001 * stated


@given(st.integers(1, 10**12), st.fractions(min_value=Fraction(1, 10**6), max_value=150, max_denominator=10**15))
def test_the_smallest_scale_suffices_and_no_smaller_one_does(l1, epsilon):
    if Fraction(l1) / epsilon > 1 << 40:
        with pytest.raises(PlanError, match="fraction_bits"):
            smallest_scale(l1, epsilon)
        return
    scale = smallest_scale(l1, epsilon)
    assert LaplaceShares(scale, 3).epsilon(l1) <= epsilon
    assert scale == Fraction(1, 64) or (scale - Fraction(1, 1 << 20)) * epsilon < l1


def test_a_scale_is_exact_where_it_fits():
    assert smallest_scale(3, Fraction(1, 3)) == 9
    assert smallest_scale(1, Fraction(1000)) == Fraction(1, 64)
    odd = smallest_scale(3**30, Fraction(2**61 - 1, 2**40))
    assert odd == Fraction(math.ceil(Fraction(3**30 * 2**60, 2**61 - 1)), 1 << 20)
    assert smallest_scale(1 << 40, Fraction(1)) == 1 << 40
    # 63 bits are the most that a share's scale may have.
    for numerator in ((1 << 63) - 1, 1 << 63, 1 << 64):
        denominator = (1 << 30) - 1
        scale = smallest_scale(numerator, Fraction(denominator))
        assert LaplaceShares(scale, 1).scale == scale
        assert (scale == Fraction(numerator, denominator)) == (numerator < 1 << 63)
    for arguments in ((0, Fraction(1)), (1, Fraction(0)), (-1, Fraction(1))):
        with pytest.raises(PlanError, match="positive"):
            smallest_scale(*arguments)


def gaussian_total(sigma: int, parties: int) -> np.ndarray:
    """The masses of a sum of `parties` shares, from -reach to reach."""
    x = np.arange(-15 * sigma, 15 * sigma + 1)
    share = np.exp(-(x**2) / (2 * sigma**2))
    share /= share.sum()
    total = np.ones(1)
    for _ in range(parties):
        total = np.convolve(total, share)
    return total


@pytest.mark.parametrize(("sigma", "parties"), [(3, 1), (3, 5), (20, 3), (100, 2)])
@pytest.mark.parametrize(("values", "failure"), [(1, 0.05), (1, 0.5), (40, Fraction(1, 100)), (10_000, 0.01)])
def test_a_gaussian_half_width_holds_and_is_close(sigma, parties, values, failure):
    width = GaussianShares(sigma).half_width(parties, values, failure)
    total = gaussian_total(sigma, parties)
    centre = len(total) // 2
    assert 2 * total[centre + int(width) + 1 :].sum() * values <= failure
    shorter = math.floor(0.99 * width) - 2
    assert 2 * total[centre + shorter + 1 :].sum() * values > failure
    assert GaussianShares(sigma).deviation(parties) == pytest.approx(
        math.sqrt(total @ (np.arange(len(total)) - centre) ** 2), rel=1e-9
    )


def test_a_gaussian_half_width_holds_below_the_smallest_double():
    noise = GaussianShares(1 << 20)
    near, far = (noise.half_width(3, 10, Fraction(1, 10**n)) / noise.deviation(3) for n in (285, 400))
    assert near == pytest.approx(36.3, abs=0.3)
    assert far == pytest.approx(math.sqrt(2 * 401.3 * math.log(10)), rel=1e-3)


def test_gaussian_shares_are_those_of_the_designs():
    noise = GaussianShares(12)
    assert np.array_equal(noise.draw(50, SeededRandom(3)), discrete_gaussian(12, 50, SeededRandom(3)))
    assert noise.tail_bound(4, 100) == tail_bound(12, 4, 100)


def test_laplace_shares_are_those_of_the_designs():
    drawn = LaplaceShares(Fraction(5), 2).draw(50, SeededRandom(3))
    assert np.array_equal(drawn, laplace_share(Fraction(5), 2, 50, SeededRandom(3)))


@pytest.mark.parametrize("sigma", [2, 0, -3, 3.5, True, LARGEST_SIGMA + 1])
def test_gaussian_shares_that_are_not_counted_are_refused(sigma):
    with pytest.raises(PlanError):
        GaussianShares(sigma)


@pytest.mark.parametrize(("scale", "shares"), [(Fraction(0), 1), (5, 1), (Fraction(1 << 41), 1), (Fraction(5), 0)])
def test_laplace_shares_that_cannot_be_drawn_are_refused(scale, shares):
    with pytest.raises(PlanError):
        LaplaceShares(scale, shares)


@pytest.mark.parametrize("noise", [GaussianShares(5), LaplaceShares(Fraction(5), 2)])
def test_arguments_out_of_range_are_refused(noise):
    for parties, values in ((0, 1), (1, 0), (-1, 5)):
        with pytest.raises(PlanError, match="at least one"):
            noise.tail_bound(parties, values)
        with pytest.raises(PlanError, match="at least one"):
            noise.half_width(parties, values, 0.05)
    with pytest.raises(PlanError, match="at least one"):
        noise.deviation(0)
    for failure in (0, 1, -0.1, math.nan):
        with pytest.raises(PlanError, match="between 0 and 1"):
            noise.half_width(1, 1, failure)
    with pytest.raises(PlanError, match="0 or more"):
        LaplaceShares(Fraction(5), 2).epsilon(-1)


@pytest.mark.parametrize("failure", [0.05, Fraction(1, 10**400)])
def test_a_gaussian_half_width_allows_for_the_ratio_to_continuous_noise(monkeypatch, failure):
    noise, ratio = GaussianShares(1 << 40), 0.5
    plain = [noise.half_width(4, 100, Fraction(failure) * Fraction(math.exp(part))) for part in (0, -ratio)]
    monkeypatch.setattr(noise_shares, "log_ratio", lambda *given: ratio)
    assert noise.half_width(4, 100, failure) == pytest.approx(plain[failure == 0.05], rel=1e-12)
