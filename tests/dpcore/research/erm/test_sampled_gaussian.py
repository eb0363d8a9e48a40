"""The subsampled Gaussian's accounting: above the divergence of real pairs, close to the largest, composed."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from dpcore.accounting.gaussian import gaussian_epsilon
from dpcore.errors import PlanError
from dpcore.research.erm import renyi_divergence, sampled_epsilon

DELTA = 1e-6


def divergence(first, second, order):
    """Renyi divergence of two even mixtures of unit Gaussians at these places, by the trapezoidal rule."""
    x = np.linspace(-30, 30, 20_001)

    def log_density(places):
        return logsumexp([norm.logpdf(x, place) for place in places], axis=0) - math.log(len(places))

    moment = np.exp(order * log_density(first) + (1 - order) * log_density(second)).sum() * (x[1] - x[0])
    return math.log(moment) / (order - 1)


@pytest.mark.variants(3)
@pytest.mark.parametrize("order", [1.3, 2.0, 6.0])
@pytest.mark.parametrize("mu", [0.2, 1.0])
@pytest.mark.parametrize("n", [2, 5])
def test_no_pair_of_tables_diverges_further(n, mu, order):
    """One record moves by mu; the others are anywhere in between, or at either end."""
    bound = renyi_divergence(mu, n, order)
    found = [
        divergence([start, *others], [end, *others], order)
        for others in ([0.0] * (n - 1), [mu] * (n - 1), [mu / 2] * (n - 1), [0.0, mu, 0.0, mu][: n - 1])
        for start, end in ((0.0, mu), (mu, 0.0))
    ]
    assert max(found) <= bound
    # The worst one for either sign of the loss alone is a little less than both at once.
    assert max(found) > 0.72 * bound


def test_small_mu_has_the_leading_order_of_its_square():
    """To leading order the divergence is k gamma^2 (exp(mu^2) - 1) / 2."""
    mu, n, order = 0.02, 1000, 3.0
    wanted = order / 2 * math.expm1(mu**2) / n**2
    assert wanted * (1 - 1e-3) < renyi_divergence(mu, n, order) < wanted * 1.05


def test_many_small_steps_are_nearly_one_gaussian():
    """The central limit of n^2 steps is a shift by sqrt(exp(mu^2) - 1); Renyi's bound is some tenths above it."""
    mu, n = 0.05, 400
    limit = gaussian_epsilon(math.sqrt(math.expm1(mu**2)), DELTA).upper
    assert limit < sampled_epsilon(mu, n, n * n, DELTA) < 1.3 * limit


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_the_accounting_follows_the_noise(factor):
    usual, other = (sampled_epsilon(mu, 300, 300**2, DELTA) for mu in (0.1, 0.1 / factor))
    assert usual / factor == pytest.approx(other, rel=0.1)
    assert abs(other / usual - 1) > 0.2


def test_more_steps_and_slack_cost_more_and_more_records_less():
    base = sampled_epsilon(0.3, 50, 1000, DELTA)
    assert base < sampled_epsilon(0.3, 50, 2000, DELTA)
    assert base > sampled_epsilon(0.3, 100, 1000, DELTA)
    assert base + 1e-3 < sampled_epsilon(0.3, 50, 1000, DELTA, slack=1e-5)
    assert sampled_epsilon(1e4, 2, 10**6, DELTA) > 1000


@pytest.mark.parametrize(
    "arguments", [(0.0, 5, 5, DELTA), (math.nan, 5, 5, DELTA), (1.0, 1, 5, DELTA), (1.0, 5, 0, DELTA), (1.0, 5, 5, 0.0)]
)
def test_invalid_arguments_are_refused(arguments):
    with pytest.raises(PlanError):
        sampled_epsilon(*arguments)
