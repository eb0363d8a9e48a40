"""The Laplace and the Gaussian mechanism: calibrated exactly as in their theorems."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from dpcore.accounting.noise_shares import IntegerNoise, LaplaceShares
from dpcore.errors import DataError, PlanError
from dpcore.randomness.sources import SeededRandom
from dpcore.research.mechanisms import GaussianMechanism, LaplaceMechanism

EPSILONS = st.fractions(min_value=Fraction(1, 20), max_value=10, max_denominator=100)


def discrete_laplace(scale: float, x: np.ndarray) -> np.ndarray:
    return math.tanh(1 / (2 * scale)) * np.exp(-np.abs(x) / scale)


@given(EPSILONS, st.integers(1, 10**6))
def test_laplace_privacy_is_exact(epsilon, sensitivity):
    """log P(x)/P(x') over a window: epsilon, reached; broken by 0.7 of the scale."""
    mechanism = LaplaceMechanism(epsilon, sensitivity)
    assert mechanism.scale == max(sensitivity / epsilon, Fraction(1, 64))
    window = np.arange(-3, 4) * sensitivity
    log_ratio = -(np.abs(window) - np.abs(window - sensitivity)) / float(mechanism.scale)
    assert np.abs(log_ratio).max() == pytest.approx(float(epsilon), rel=1e-12)
    assert mechanism.shares.epsilon(sensitivity) == epsilon
    shares = LaplaceShares(mechanism.scale * Fraction(7, 10), 1)
    assert shares.epsilon(sensitivity) > Fraction(14, 10) * epsilon


def test_laplace_in_two_dimensions_is_private_for_any_split_of_the_sensitivity():
    mechanism = LaplaceMechanism(Fraction(1, 2), 4)
    x = np.arange(-40, 41)
    for move in ((4, 0), (3, 1), (-2, 2), (0, -4)):
        first = np.multiply.outer(*(discrete_laplace(float(mechanism.scale), x) for _ in move))
        second = np.multiply.outer(*(discrete_laplace(float(mechanism.scale), x - step) for step in move))
        assert np.log(first / second).max() == pytest.approx(0.5, abs=1e-9)
    beyond = np.multiply.outer(*(discrete_laplace(float(mechanism.scale), x - step) for step in (4, 1)))
    assert np.log(first / beyond).max() > 0.5 + 0.1


def test_laplace_errors_are_theorem_3s():
    """P(|error| > t log(values / failure)) is about failure / values: O(b/(alpha n) log(1/delta)) with its constant."""
    mechanism = LaplaceMechanism(Fraction(1, 10), 100)
    for values, failure in ((1, 0.05), (20, 0.01)):
        width = mechanism.half_width(values, failure)
        assert width == pytest.approx(1000 * math.log(values / failure), abs=2)
        tail = 2 * math.exp(-(width + 1) / 1000) / (1 + math.exp(-1 / 1000))
        assert tail * values <= failure < values * tail * math.exp(2 / 1000)


def test_laplace_releases_add_their_shares():
    mechanism, values = LaplaceMechanism(Fraction(1, 3), 7), np.array([5, -(10**15), 0], dtype=np.int64)
    noise = mechanism.release(values, SeededRandom(4)) - values
    assert np.array_equal(noise, mechanism.shares.draw(3, SeededRandom(4)))
    assert (mechanism.epsilon, mechanism.delta) == (Fraction(1, 3), 0)


def balle_wang(mu: float, epsilon: float) -> float:
    """Theorem 8."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


@given(EPSILONS, st.integers(3, 9), st.integers(10**4, 10**10))
def test_gaussian_noise_is_the_least_that_suffices(epsilon, digits, square):
    delta = Fraction(1, 10**digits)
    mechanism = GaussianMechanism(epsilon, delta, square, 10)
    sigma = mechanism.sigma
    assert mechanism.distribution.epsilon(delta).upper <= epsilon
    if sigma > 3:
        assert IntegerNoise(sigma - 1, 1, 10).distribution(square).epsilon(delta).upper > epsilon
    # Balle and Wang's curve, on both sides: 4 of the variance goes to the integers.
    e = float(epsilon)
    assert balle_wang(math.sqrt(square / (sigma**2 - 4)), e) <= float(delta) * (1 + 1e-6) + 1e-16
    if sigma > 20:
        assert balle_wang(math.sqrt(square) / (sigma - 1.3), e) > float(delta) * (1 - 1e-6) - 1e-16


def test_analytic_calibration_is_below_the_classical():
    mechanism = GaussianMechanism(Fraction(1, 2), Fraction(1, 10**6), 10**8, 1)
    classical = math.sqrt(2 * math.log(1.25e6)) / 0.5 * 10**4
    assert 0.6 * classical < mechanism.sigma < 0.9 * classical


def test_gaussian_releases_add_discrete_gaussian_noise():
    mechanism = GaussianMechanism(Fraction(1), Fraction(1, 10**5), 100, 4)
    values = np.array([1, -2, 10**12, 0])
    noise = mechanism.release(values, SeededRandom(4)) - values
    assert noise.any()
    assert np.abs(noise).max() <= mechanism.half_width(Fraction(1, 10**9))
    assert np.array_equal(noise, mechanism.release(np.zeros(4, dtype=np.int64), SeededRandom(4)))
    with pytest.raises(DataError, match="covers 4"):
        mechanism.release(values[:3], SeededRandom(4))


@pytest.mark.parametrize("values", [[0.5], [[1]], [True], [1 << 62], [-(1 << 62)]])
def test_values_that_are_not_integers_in_range_are_refused(values):
    for mechanism in (LaplaceMechanism(Fraction(1), 1), GaussianMechanism(Fraction(1), Fraction(1, 10**5), 1, 1)):
        with pytest.raises(DataError, match="count in"):
            mechanism.release(np.array(values), SeededRandom(1))


@pytest.mark.parametrize(
    ("epsilon", "sensitivity"),
    [(Fraction(0), 1), (Fraction(151), 1), (0.5, 1), (Fraction(1), 0), (Fraction(1), 2.5), (Fraction(1), 1 << 41)],
)
def test_laplace_mechanisms_out_of_range_are_refused(epsilon, sensitivity):
    with pytest.raises(PlanError):
        LaplaceMechanism(epsilon, sensitivity)


@pytest.mark.parametrize(
    "arguments",
    [
        (Fraction(0), Fraction(1, 100), 1, 1),
        (Fraction(1), Fraction(0), 1, 1),
        (Fraction(1), Fraction(1), 1, 1),
        (Fraction(1), Fraction(1, 100), 0, 1),
        (Fraction(1), Fraction(1, 100), 1, 0),
        (Fraction(1), Fraction(1, 100), 1 << 200, 1),
    ],
)
def test_gaussian_mechanisms_out_of_range_are_refused(arguments):
    with pytest.raises(PlanError):
        GaussianMechanism(*arguments)
