"""Counts and Gaussian noise composed: what each step may hide, and which compositions are refused."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from dpcore.accounting import mixed
from dpcore.accounting.composition import (
    HOEFFDING_SHARE,
    LARGEST_EPSILON,
    DeltaTooSmallError,
    GridLosses,
    InfiniteEpsilonError,
    VoidEpsilonError,
    compose,
    infinite_mass,
)
from dpcore.accounting.gaussian import ShiftDistribution, shift_distribution
from dpcore.accounting.mixed import CUT_SHARE, CountRelease, mixed_epsilon
from dpcore.numbers.distributions import binomial_distribution

DELTA = 1e-6
COUNTS = [CountRelease(binomial_distribution(4177), 10)]


def test_each_end_takes_the_safe_end_of_a_shift():
    lower, upper = np.array([0.01]), np.array([0.64])
    found = mixed_epsilon(COUNTS, [ShiftDistribution(lower, upper, np.ones(1))], DELTA)
    least, most = (mixed_epsilon(COUNTS, [ShiftDistribution(end, end, np.ones(1))], DELTA) for end in (lower, upper))
    assert found.lower <= least.upper < most.lower <= found.upper


@pytest.mark.parametrize("square", [0.01, 1.0, 225.0])
def test_a_mass_of_the_gaussian_part_is_precise_relative_to_its_tail(square):
    """Far from the mean a mass is tiny: from the wrong tail, it would be the rounding of numbers near 1."""
    family, step = shift_distribution(math.sqrt(square)), 0.01
    piece, coarse, beyond = mixed._gaussian_piece(family, step, 1e-20, 0.0, pessimistic=True)
    multiple = round(coarse / step)
    with mp.workdps(40):
        mean, root = mp.mpf(square) / 2, mp.sqrt(square)
        for point in (-50, -1, 0, 1, 50):
            high = (mp.mpf(point) * mp.mpf(coarse) - mean) / root
            low = high - mp.mpf(coarse) / root
            true = mp.ncdf(high) - mp.ncdf(low)
            tail = mp.ncdf(high) if point <= 0 else mp.ncdf(-low)
            found = piece.masses[point * multiple - piece.first] * math.exp(piece.log_scale)
            assert abs(found - true) <= 1e-14 * tail
    assert 0 <= beyond <= 1e-20


@pytest.mark.parametrize("square", [1e-8, 0.04, 1.0, 225.0, 1e4])
def test_tails_are_as_precise_as_is_counted(square):
    family = shift_distribution(math.sqrt(square))
    (counted,) = family.upper
    step = 38 * math.sqrt(square) / 1000
    grid = np.arange(-1000, 1001) * step
    below, above = mixed._tails(family.upper, family.masses, grid)
    error = mixed._tails_error(family)
    assert error < 1e-10
    with mp.workdps(40):
        for place in range(0, 2001, 50):
            z = (place - 1000) * mp.mpf(step) - mp.mpf(counted) / 2
            scaled = z / mp.sqrt(2 * mp.mpf(counted))
            for tail, found in ((mp.erfc(-scaled) / 2, below[place]), (mp.erfc(scaled) / 2, above[place])):
                if tail > 1e-290:
                    assert abs(found - tail) <= error * tail


def test_a_shift_of_nothing_is_no_loss():
    below, above = mixed._tails(np.array([0.0]), np.ones(1), np.array([-1.0, 0.0, 1.0]))
    assert (below.tolist(), above.tolist()) == ([0, 1, 1], [1, 0, 0])


@pytest.mark.parametrize("tilt", [0.0, 0.5, 3.0])
def test_a_tilted_piece_says_so(tilt):
    """Its masses are the same once the tilt is taken back."""
    plain, _, beyond = mixed._gaussian_piece(shift_distribution(0.5), 0.01, 1e-10, 0.0, pessimistic=True)
    piece, _, _ = mixed._gaussian_piece(shift_distribution(0.5), 0.01, 1e-10, tilt, pessimistic=True)
    assert piece.tilt == tilt
    losses = (piece.first + np.arange(len(piece.masses))) * piece.step
    masses = piece.masses * np.exp(piece.log_scale - tilt * losses)
    np.testing.assert_allclose(masses, plain.masses * math.exp(plain.log_scale), rtol=1e-9, atol=1e-300)
    assert beyond < 1e-10


def test_errors_of_all_parts_multiply():
    each = [compose(one.distribution, one.n, 0.01, 1.0, DELTA).slack.factor for one in COUNTS * 2]
    both = mixed._composed(COUNTS * 2, None, 0.01, DELTA, 1.0, pessimistic=True)
    assert 1 < both.slack.factor == pytest.approx(math.prod(each), rel=1e-15)
    # What the lower end allows for is divided among the parts.
    assert both.hoeffding == pytest.approx(HOEFFDING_SHARE * DELTA)


def test_errors_of_tails_are_counted_three_times(monkeypatch):
    def factor() -> float:
        return mixed._composed(COUNTS, shift_distribution(0.5), 0.01, DELTA, 1.0, pessimistic=True).slack.factor

    before = factor()
    monkeypatch.setattr(mixed, "_tails_error", lambda _: 0.01)
    assert factor() == pytest.approx(before * math.exp(0.03), rel=1e-9)


def test_the_rounding_of_a_tilt_is_counted_up_to_the_end_of_the_grid(monkeypatch):
    noise, tilt = shift_distribution(0.5), 1.5

    def factor() -> float:
        return mixed._composed(COUNTS, noise, 0.01, DELTA, tilt, pessimistic=True).slack.factor

    piece, _, _ = mixed._gaussian_piece(noise, 0.01, CUT_SHARE * DELTA, tilt, pessimistic=True)
    before = factor()
    monkeypatch.setattr(mixed, "tilt_rounding", lambda steepest: 1e-3 * steepest)
    steepest = 1e3 * math.log(factor() / before)
    assert steepest >= tilt * piece.step * max(-piece.first, piece.first + len(piece.masses) - 1)
    assert steepest <= tilt * piece.step * (len(piece.masses) / 2 + 1)


def test_errors_of_masses_and_stray_mass_pass_through_a_sum():
    generator = np.random.default_rng(5)
    a, b = (
        GridLosses(0.1, 0, generator.dirichlet(np.ones(size)), 0.0, pointwise=pointwise, stray=stray)
        for size, pointwise, stray in ((50, 1e-4, 0.01), (80, 3e-5, 0.02))
    )
    found = mixed._both(a, b)
    for sign in (1, -1):
        true_a, true_b = (part.masses - sign * part.pointwise for part in (a, b))
        off = float(np.abs(found.masses - np.convolve(true_a, true_b)).max())
        assert 0.5 * found.pointwise < off <= found.pointwise
    # All stray mass at one loss.
    true_a, true_b = a.masses.copy(), b.masses.copy()
    true_a[3] -= a.stray
    true_b[7] -= b.stray
    off = float(np.abs(found.masses - np.convolve(true_a, true_b)).sum())
    assert 0.5 * found.stray < off <= found.stray
    sizes = [sum(map(Fraction, part.masses)) + len(part.masses) * Fraction(part.pointwise) for part in (a, b)]
    assert found.stray >= a.stray * (sizes[1] + Fraction(b.stray)) + b.stray * (sizes[0] + Fraction(a.stray))


def test_a_count_that_always_tells_is_refused():
    """Its only value is one that the neighbour cannot produce."""
    always = CountRelease(binomial_distribution(10, 5), 1)
    with pytest.raises(InfiniteEpsilonError):
        mixed_epsilon([*COUNTS, always], [shift_distribution(0.5)], DELTA)


def test_infinite_losses_may_have_less_than_half_of_delta():
    count, noise = CountRelease(binomial_distribution(30), 3), shift_distribution(0.5)
    infinite = infinite_mass(count.distribution, count.n)
    for delta in (infinite, 1.9 * infinite):
        with pytest.raises(InfiniteEpsilonError):
            mixed_epsilon([count], [noise], delta)
    assert mixed_epsilon([count], [noise], 2.1 * infinite).upper < LARGEST_EPSILON


def test_up_to_half_of_delta_may_be_hidden():
    def hidden(share: Fraction):
        one = COUNTS[0]
        trimmed = float(share) * DELTA / one.n / (1 + math.exp(LARGEST_EPSILON))
        counts = [CountRelease(replace(one.distribution, trimmed=trimmed), one.n)]
        return mixed_epsilon(counts, [shift_distribution(0.5)], DELTA).upper

    almost = Fraction(1, 2) - Fraction(2 * CUT_SHARE)
    left = mixed_epsilon(COUNTS, [shift_distribution(0.5)], float(1 - almost) * DELTA).upper
    assert hidden(almost) == pytest.approx(left, rel=1e-3)
    with pytest.raises(DeltaTooSmallError) as caught:
        hidden(Fraction(1, 2))
    # What the Gaussian part's grid cuts counts, too.
    assert 5 * DELTA * (1 + 1e-12) < caught.value.smallest_delta < 5.001 * DELTA


@pytest.mark.more
def test_counts_beyond_every_grid_are_refused():
    """No tilt shows a finite epsilon, so the search for one must end."""
    with pytest.raises(VoidEpsilonError):
        mixed_epsilon([CountRelease(binomial_distribution(200), 80_000)], [shift_distribution(0.5)], DELTA)


@pytest.mark.parametrize("mu", [14, 30, 100, 1e6, 1e150])
def test_gaussian_noise_too_weak_for_any_bound_is_refused(mu):
    """Also where its losses exceed every grid."""
    with pytest.raises(VoidEpsilonError):
        mixed_epsilon(COUNTS, [shift_distribution(mu)], DELTA)


def test_an_infinite_loss_of_either_part_is_one_of_both():
    a, b = (GridLosses(0.1, 0, np.array([1 - infinite]), infinite) for infinite in (0.2, 0.3))
    found = mixed._both(a, b)
    assert found.infinite == pytest.approx(1 - 0.8 * 0.7)
    assert found.infinite + found.masses.sum() == pytest.approx(1)
