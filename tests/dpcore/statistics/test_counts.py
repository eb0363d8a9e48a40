"""Noise on counts: bounds on the moment generating functions hold for the exact distributions, and are tight."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.errors import ConfigurationError
from dpcore.statistics.pac import GaussianCounts, LaplaceCounts, count_noise


def log_moment(masses, x, s):
    return math.log(float(np.sum(masses / masses.sum() * np.exp(s * x))))


@pytest.mark.parametrize("sigma", [1.0, 4.0])
@pytest.mark.parametrize("s", [0.1, 0.7])
def test_discrete_gaussian_moments(sigma, s):
    x = np.arange(-200, 201).astype(float)
    exact = log_moment(np.exp(-(x**2) / (2 * sigma**2)), x, s)
    assert exact <= GaussianCounts(sigma).log_mgf(s) * (1 + 1e-9) <= exact * 1.001


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("unit", [1.0, 1 / 16])
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_discrete_laplace_moments(scale, unit, share):
    s = share / scale
    x = np.arange(-200 * scale / unit, 200 * scale / unit + 1) * unit
    exact = log_moment(np.exp(-np.abs(x) / scale), x, s)
    bound = LaplaceCounts(scale).log_mgf(s)
    assert exact <= bound * (1 + 1e-9)
    assert bound <= exact * (1.15 if scale == unit else 1.01)
    assert LaplaceCounts(scale, Fraction(5, 2)).log_mgf(s) == pytest.approx(2.5 * bound)


def test_reach():
    assert math.isinf(GaussianCounts(2.0).reach)
    noise = LaplaceCounts(3.0)
    assert 0.999 / 3 < noise.reach < 1 / 3
    assert math.isfinite(noise.log_mgf(noise.reach))


def test_noise_of_shares():
    """One row counts as 2^8 units; nine parties add a share each."""
    assert count_noise(GaussianShares(512), 9, 8) == GaussianCounts(6.0)
    assert count_noise(LaplaceShares(Fraction(640), 6), 9, 8) == LaplaceCounts(2.5, Fraction(3, 2))
    with pytest.raises(ConfigurationError):
        count_noise(GaussianShares(512), 0, 8)


@pytest.mark.parametrize("sigma", [-1.0, math.inf, math.nan])
def test_invalid_gaussian_noise_is_refused(sigma):
    with pytest.raises(ConfigurationError):
        GaussianCounts(sigma)


@pytest.mark.parametrize(("scale", "copies"), [(0.0, 1), (math.inf, 1), (1.0, 0), (-1.0, 1)])
def test_invalid_laplace_noise_is_refused(scale, copies):
    with pytest.raises(ConfigurationError):
        LaplaceCounts(scale, Fraction(copies))
