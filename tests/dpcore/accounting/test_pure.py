"""Bounds of pure differential privacy against randomized response, its worst case."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.concentrated import of_epsilon
from dpcore.accounting.gaussian import WeakNoiseError
from dpcore.accounting.mixed import PureLoss
from dpcore.errors import PlanError

BOUNDS = st.fractions(min_value=Fraction(1, 100), max_value=20, max_denominator=1000)


def response(bound: Fraction) -> tuple[np.ndarray, np.ndarray]:
    """The two outputs of randomized response, under either neighbour."""
    p, q = 1 / (1 + math.exp(-bound)), 1 / (1 + math.exp(bound))
    return np.array([p, q]), np.array([q, p])


def discrete_laplace(bound: Fraction) -> tuple[np.ndarray, np.ndarray]:
    x = np.arange(-4000, 4001)
    mass = math.tanh(bound / 2) * np.exp(-np.abs(x) * float(bound))
    return mass, np.exp(-np.abs(x - 1) * float(bound)) * math.tanh(bound / 2)


@given(BOUNDS, st.floats(0, 1.2))
def test_delta_is_that_of_randomized_response(bound, share):
    epsilon = share * float(bound)
    first, second = response(bound)
    exact = float(np.maximum(first - math.exp(epsilon) * second, 0).sum())
    found = PureLoss(bound).delta(epsilon)
    assert found.lower - 1e-13 <= exact <= found.upper + 1e-13
    assert found.upper == pytest.approx(exact, abs=1e-13)
    assert (found.upper == 0) == (epsilon >= bound)


@given(BOUNDS, st.floats(0, 1.2))
def test_another_pure_release_needs_no_more(bound, share):
    first, second = discrete_laplace(bound)
    exact = float(np.maximum(first - math.exp(share * bound) * second, 0).sum())
    assert exact <= PureLoss(bound).delta(share * float(bound)).upper + 1e-12


def test_epsilon_is_the_bound_rounded_up():
    for bound in (Fraction(1, 3), Fraction(2, 3), Fraction(1), Fraction(10**20 + 1, 10**20)):
        upper = PureLoss(bound).epsilon(0).upper
        assert bound <= Fraction(upper) <= bound * (1 + Fraction(1, 2**52))
        assert PureLoss(bound).epsilon(Fraction(1, 10**9)).upper == upper
    # A double is itself.
    assert PureLoss(Fraction(3, 8)).epsilon(0).upper == 0.375


@given(BOUNDS, st.floats(1e-9, 0.99))
def test_epsilons_lower_end_is_the_least_that_delta_allows(bound, delta):
    distribution = PureLoss(bound)
    lower = distribution.epsilon(delta).lower
    assert 0 <= lower <= distribution.epsilon(delta).upper
    if lower > 0:
        assert distribution.delta(lower).upper >= delta * (1 - 1e-9)
        assert distribution.delta(lower).lower == pytest.approx(delta, rel=1e-6, abs=1e-12)
    else:
        assert distribution.delta(0.0).lower <= delta * (1 + 1e-9) + 1e-12


@given(BOUNDS)
def test_the_concentrated_bound_holds_at_every_order_and_is_reached(bound):
    rho = float(PureLoss(bound).concentrated.rho)
    orders = 1 + np.geomspace(1e-4, 1e4, 200)
    divergences = []
    for a in orders:
        u = (a - 0.5) * float(bound)
        log_cosh = abs(u) + math.log1p(math.exp(-2 * abs(u)))
        half = float(bound) / 2
        divergences.append((log_cosh - half - math.log1p(math.exp(-2 * half))) / (a - 1))
    ratios = np.array(divergences) / orders
    assert (ratios <= rho * (1 + 1e-9) + 1e-11).all()
    assert ratios.max() > 0.99 * rho
    usual = of_epsilon(bound, Fraction(0)).rho
    assert PureLoss(bound).concentrated.rho <= usual
    assert PureLoss(bound).concentrated.failure == 0


def test_rho_is_rounded_up():
    rho = PureLoss(Fraction(1)).concentrated.rho
    assert 0 < rho - Fraction(math.tanh(0.5)) + Fraction(1, 2**53) < Fraction(1, 2**50)
    tiny = Fraction(1, 10**12)
    assert PureLoss(tiny).concentrated.rho <= tiny**2 / 2
    assert PureLoss(tiny).concentrated.rho > tiny**2 / 2 * (1 - tiny)


@pytest.mark.parametrize("bound", [Fraction(0), Fraction(-1)])
def test_a_distribution_has_a_positive_bound(bound):
    with pytest.raises(PlanError, match="positive"):
        PureLoss(bound)


def test_arguments_out_of_range_are_refused():
    for delta in (-1e-9, 1, 2, math.nan):
        with pytest.raises(PlanError, match="delta is"):
            PureLoss(Fraction(1)).epsilon(delta)
    for epsilon in (-1e-9, 151, math.nan):
        with pytest.raises(PlanError, match="epsilon is"):
            PureLoss(Fraction(1)).delta(epsilon)
    with pytest.raises(WeakNoiseError):
        PureLoss(Fraction(151)).epsilon(0)


def test_a_delta_that_a_double_cannot_tell_from_one_leaves_nothing():
    almost = Fraction(10**30 - 1, 10**30)
    for bound in (1, 40, 150):
        assert PureLoss(Fraction(bound)).epsilon(almost).lower == 0


def test_no_delta_is_above_one():
    assert PureLoss(Fraction(150)).delta(0.0).upper == 1
