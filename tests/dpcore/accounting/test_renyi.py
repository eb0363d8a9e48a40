"""Renyi curves: against sums over the distributions themselves, and never below them."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.concentrated import STEPS, added, at_order, laplace_curve, pure_curve, up
from dpcore.accounting.filters import Loss, PrivacyLimit
from dpcore.accounting.mixed import PureLoss
from dpcore.errors import PlanError


def divergence(losses, masses, s):
    """D_(1+s) from the losses' distribution under the first neighbour."""
    return float(np.logaddexp.reduce(s * losses + masses)) / s


def laplace_divergence(scale, shift, s):
    """D_(1+s) between discrete Laplace distributions that differ by a shift, summed over integers."""
    t = float(scale)
    reach = int(60 * t * (s + 2)) + shift + 10
    x = np.arange(-reach, reach + 1)
    masses = -np.abs(x) / t
    losses = (np.abs(x - shift) - np.abs(x)) / t
    return divergence(losses, masses - np.logaddexp.reduce(masses), s)


@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1", "3", "20"])
def test_the_curve_of_a_pure_release_is_that_of_randomized_response(epsilon):
    e = float(Fraction(epsilon))
    curve = pure_curve(Fraction(epsilon))
    masses = np.array([0.0, -e]) - np.logaddexp(0.0, -e)
    for s, bound in zip(STEPS, curve, strict=False):
        assert float(bound) == pytest.approx(divergence(np.array([e, -e]), masses, float(s)), rel=1e-6, abs=1e-15)
        assert bound <= curve[-1]
        assert bound <= (1 + s) * PureLoss(Fraction(epsilon)).concentrated.rho * (1 + Fraction(1, 10**9))
    assert curve[-1] == up(Fraction(epsilon)) >= Fraction(epsilon)


def test_a_tiny_epsilon_keeps_its_digits():
    epsilon = Fraction(1, 10**12)
    for s, bound in zip(STEPS, pure_curve(epsilon), strict=False):
        assert float(bound) == pytest.approx(float((1 + s) * epsilon**2 / 2), rel=1e-9)


@pytest.mark.variants(2)
@pytest.mark.parametrize("scale", ["0.4", "3", "7.5", "90"])
def test_the_curve_of_laplace_noise_is_that_of_the_most_that_a_record_moves(scale):
    """Every way to move the integers by at most 7 in total and 3 each, against the bound, which one of them reaches."""
    t = Fraction(scale)
    curve, rho = laplace_curve(t, 7, 3)
    for n, s in enumerate(STEPS):
        if s > 64:
            break
        moved = {shift: laplace_divergence(t, shift, float(s)) for shift in (1, 2, 3)}
        worst = max(
            sum(moved[shift] for shift in shifts)
            for count in range(1, 8)
            for shifts in itertools.combinations_with_replacement(moved, count)
            if sum(shifts) <= 7
        )
        assert worst <= float(curve[n]) * (1 + 1e-9)
        assert float(curve[n]) == pytest.approx(worst, rel=1e-6)
        assert worst <= float((1 + s) * rho)
    assert curve[-1] == up(7 / t)


def test_a_batch_costs_less_than_a_pure_release_of_the_same_epsilon():
    curve, rho = laplace_curve(Fraction(40), 40, 1)
    pure = pure_curve(Fraction(1))
    assert rho < Fraction(1, 70)
    assert pure[2] > 15 * curve[2]
    assert curve[-1] == pure[-1] == 1
    # One value takes all of it: nearly as much as any pure release.
    single, _ = laplace_curve(Fraction(40), 40, 40)
    assert all(one <= most for one, most in zip(single, pure, strict=True))
    assert single[2] > pure[2] / 2


@given(st.fractions(0, 5, max_denominator=1000), st.floats(0.01, 5000))
def test_between_orders_the_bound_is_not_below_the_divergence(epsilon, s):
    curve = pure_curve(epsilon)
    e = float(epsilon)
    true = (s * e + math.log1p(math.exp(-(2 * s + 1) * e)) - math.log1p(math.exp(-e))) / s
    found = float(at_order(curve, Fraction(s)))
    assert found >= true - 1e-13
    assert found <= max(1.2 * true, e if s > 1024 else 0, 5 * true if s < 0.25 else 0) + 1e-12


def test_curves_add_up_and_bad_arguments_are_refused():
    one = pure_curve(Fraction(1))
    assert added((), one) == added(one, ()) == one
    assert added(one, one) == tuple(2 * value for value in one)
    assert pure_curve(Fraction(0)) == ()
    for wrong in (lambda: pure_curve(Fraction(-1)), lambda: laplace_curve(Fraction(1), 0, 1)):
        with pytest.raises(PlanError, match="give"):
            wrong()


@pytest.mark.more
def test_no_adaptive_run_of_two_kinds_exceeds_the_limit():
    """The best that a run can do that chooses by the likelihood ratio between a pure answer and more Gaussian noise.

    First a Gaussian, then, whatever its loss was, the better of both that the filter still admits: exactly computed.
    """
    from scipy.special import ndtr

    limit = PrivacyLimit(Fraction(1), Fraction(1, 100))
    epsilon = 1.0

    def fits(total, make):
        low, high = 0.0, 2.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if limit.admits(total + make(middle)) else (low, middle)
        return low

    def gaussian(rho):
        # No epsilon at any delta, so that the orders alone count it.
        return Loss(Fraction(100), Fraction(1, 2), Fraction(rho), Fraction(0))

    whole = fits(gaussian(0), gaussian)
    worst = 0.0
    for part in (0.05, 0.2, 0.4, 0.6, 0.8, 0.95):
        held = gaussian(part * whole)
        sigma = math.sqrt(2 * part * whole)
        pure = fits(held, lambda e: Loss.of_epsilon(Fraction(e), Fraction(0)))
        rest = math.sqrt(2 * fits(held, gaussian))
        loss = sigma**2 / 2 + sigma * np.linspace(-9, 9, 40_001)
        weights = np.exp(-((loss - sigma**2 / 2) ** 2) / (2 * sigma**2))
        gap = epsilon - loss
        kept = 1 / (1 + math.exp(-pure))
        by_pure = sum(p * np.maximum(0, -np.expm1(gap - size)) for p, size in ((kept, pure), (1 - kept, -pure)))
        by_noise = ndtr(rest / 2 - gap / rest) - np.exp(gap) * ndtr(-rest / 2 - gap / rest)
        worst = max(worst, float((weights @ np.maximum(by_pure, by_noise)) / weights.sum()))
    assert 1e-4 < worst <= 1e-2
