"""Concentrated bounds against distributions that are summed, integrated and composed independently."""

import math
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dpcore.accounting import concentrated
from dpcore.accounting.concentrated import (
    Concentrated,
    _cumulant,
    concentrated_delta,
    concentrated_epsilon,
    concentrated_rho,
    of_count,
    of_epsilon,
    of_shift,
)
from dpcore.accounting.dp_feat import own_epsilon, truncation
from dpcore.accounting.gaussian import ShiftDistribution, gaussian_delta, shift_distribution
from dpcore.accounting.noise_shares import IntegerNoise
from dpcore.errors import PlanError
from dpcore.numbers.distributions import CountDistribution, binomial_distribution

DELTA = Fraction(1, 10**6)


def formula(rho, epsilon):
    """Corollary 13 of Canonne, Kamath and Steinke, minimised with 30 digits."""
    with mpmath.workdps(30):
        r, e = mpmath.mpf(rho), mpmath.mpf(epsilon)

        def log_delta(t):
            a = 1 + mpmath.e**t
            return (a - 1) * (a * r - e) - mpmath.log(a - 1) + a * mpmath.log(1 - 1 / a)

        coarse = min((mpmath.mpf(k) / 20 for k in range(-300, 300)), key=log_delta)
        fine = min((coarse + mpmath.mpf(k) / 4000 for k in range(-200, 201)), key=log_delta)
        return float(mpmath.e ** log_delta(fine))


@pytest.mark.parametrize(("rho", "epsilon"), [(0.01, 0.5), (0.5, 3.0), (0.5, 5.0), (2.0, 12.0), (100.0, 170.0)])
def test_delta_is_the_formula_rounded_up(rho, epsilon):
    exact = formula(rho, epsilon)
    assert exact * (1 - 1e-4) <= concentrated_delta(rho, epsilon) <= exact * (1 + 1e-4)
    # The search here is coarser, so the result there is hardly larger, and never smaller except for this grid.
    assert concentrated_delta(rho, epsilon) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("rho", [0.5, 100.0, 1e5, 1e8])
@pytest.mark.parametrize("deviations", [0.5, 2.0, 6.0])
def test_delta_is_never_below_the_least_of_the_formula(rho, deviations):
    """The best order is where the derivative in s = a - 1, (1 + 2s) rho + log(s / (1 + s)) - epsilon, is zero.

    Terms of the size of s rho cancel, so the rounding of large ones shows.
    """
    epsilon = rho + deviations * math.sqrt(2 * rho)
    with mpmath.workdps(50):
        r, e = mpmath.mpf(rho), mpmath.mpf(epsilon)
        low, high = mpmath.mpf(10) ** -30, mpmath.mpf(10) ** 3
        for _ in range(250):
            s = (low + high) / 2
            low, high = (s, high) if (1 + 2 * s) * r + mpmath.log(s / (1 + s)) < e else (low, s)
        exact = mpmath.exp(s * ((1 + s) * r - e) - mpmath.log(s) + (1 + s) * mpmath.log(s / (1 + s)))
        assert exact <= concentrated_delta(rho, epsilon) <= exact * (1 + 1e-8)


@pytest.mark.parametrize("rho", [1e-9, 1e-3, 0.5, 3.0, 1e2, 1e5])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
def test_epsilon_delta_and_rho_invert_one_another_from_the_safe_side(rho, delta):
    epsilon = concentrated_epsilon(rho, delta)
    if epsilon == 0:
        assert concentrated_delta(rho, 0.0) <= delta
        return
    assert delta * (1 - 1e-9) <= concentrated_delta(rho, epsilon) <= delta * (1 + 1e-8)
    assert concentrated_delta(rho, 0.99 * epsilon) > delta
    found = concentrated_rho(epsilon, delta)
    assert rho * (1 - 1e-9) <= found <= rho * (1 + 1e-9)
    # Rounded down: the result can be spent.
    assert concentrated_epsilon(concentrated_rho(2.5, delta), delta) <= 2.5 * (1 + 1e-11)


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 2.0])
def test_a_gaussian_is_within_its_bound_and_not_far_below(mu):
    rho = mu * mu / 2
    epsilon = concentrated_epsilon(rho, DELTA)
    assert gaussian_delta(mu, epsilon).upper < float(DELTA)
    # A fifth less is too little: the bound is close.
    assert gaussian_delta(mu, 0.8 * epsilon).lower > float(DELTA)


def test_a_rho_of_one_costs_what_it_costs():
    epsilon = concentrated_epsilon(1, DELTA)
    assert formula(1, epsilon) == pytest.approx(float(DELTA), rel=1e-3)
    assert concentrated_delta(Fraction(1), epsilon) == pytest.approx(float(DELTA), rel=1e-9)


def test_the_least_bound_may_be_at_either_end_of_the_search():
    assert concentrated._least(lambda t: t) == concentrated._least(lambda t: -t) == -40


def test_what_is_not_a_number_is_no_bound():
    assert concentrated._least(lambda t: np.where(t < 1, np.nan, t)) == pytest.approx(1, abs=0.03)


def test_what_is_out_of_range_is_refused():
    for call in (
        lambda: concentrated_epsilon(-1.0, DELTA),
        lambda: concentrated_epsilon(math.nan, DELTA),
        lambda: concentrated_epsilon(1.0, 0),
        lambda: concentrated_epsilon(1.0, 1),
        lambda: concentrated_delta(1.0, -0.1),
        lambda: concentrated_rho(-1, DELTA),
        lambda: Concentrated(Fraction(-1)),
        lambda: Concentrated(Fraction(1), Fraction(2)),
        lambda: of_count(binomial_distribution(10), 0, DELTA),
        lambda: of_count(binomial_distribution(10), 1, Fraction(0)),
        lambda: of_count(binomial_distribution(10), 1, Fraction(1)),
        lambda: of_shift(shift_distribution(1.0), Fraction(0)),
        lambda: of_shift(shift_distribution(1.0), Fraction(1)),
    ):
        with pytest.raises(PlanError):
            call()
    assert concentrated_epsilon(0, DELTA) == 0
    assert concentrated_delta(0, 0.0) == 0


def renyi(p, q, order):
    """D_order(p to q), the distributions normalised, summed with 40 digits."""
    with mpmath.workdps(40):
        a = mpmath.mpf(order)
        return float(mpmath.log(mpmath.fsum(x**a * y ** (1 - a) for x, y in zip(p, q, strict=True))) / (a - 1))


ORDERS = (1.0001, 1.01, 1.1, 1.5, 2, 3, 5, 10, 30, 100, 1000)


@pytest.mark.parametrize("epsilon", ["0.3", "2", "8"])
def test_randomized_response_is_within_the_bound_of_its_epsilon(epsilon):
    bound = of_epsilon(Fraction(epsilon), Fraction(0))
    high = math.exp(float(Fraction(epsilon))) / (1 + math.exp(float(Fraction(epsilon))))
    worst = max(renyi((high, 1 - high), (1 - high, high), a) / a for a in ORDERS)
    assert worst <= float(bound.rho) * (1 + 1e-9)
    assert worst > 0.5 * float(bound.rho)


def exact_count(rows, low, cut):
    """The pair of conditional distributions on A, and P outside A, in exact integers."""
    masses = [mpmath.binomial(rows, k) for k in range(low, rows - low + 1)]
    total = mpmath.fsum(masses)
    p, q = masses[cut + 1 : len(masses) - cut], masses[cut : len(masses) - cut - 1]
    return [x / mpmath.fsum(p) for x in p], [x / mpmath.fsum(q) for x in q], 1 - mpmath.fsum(p) / total


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "truncated"), [(40, None), (60, Fraction(1, 2)), (150, None), (401, Fraction(1, 3))])
def test_a_counts_bound_is_the_supremum_over_orders(rows, truncated):
    low = truncation(rows, truncated)[0]
    n, failure = 7, Fraction(1, 10**7)
    bound = of_count(binomial_distribution(rows, low), n, failure)
    with mpmath.workdps(60):
        cuts = [c for c in range((rows - 2 * low) // 2) if n * exact_count(rows, low, c)[2] <= failure]
        p, q, outside = exact_count(rows, low, max(cuts, default=0))
        assert float(n * outside) <= float(bound.failure) <= float(n * outside) * (1 + 1e-9)
    orders = np.concatenate([1 + np.geomspace(1e-3, 50 * rows, 80)])
    for one, other in ((p, q), (q, p)):
        worst = n * max(renyi(one, other, a) / a for a in orders)
        assert worst <= float(bound.rho)
        assert worst >= 0.995 * float(bound.rho)


def test_keeping_the_tail_would_cost_much_more():
    """The far tails are part of the failure because the losses there are huge."""
    distribution = binomial_distribution(300)
    kept, cut = (of_count(distribution, 100, Fraction(1, 10**digits)) for digits in (300, 9))
    assert float(kept.rho) > 5 * float(cut.rho)
    assert 1.0 < float(cut.rho) / (100 * 2 / 300) < 1.05


def test_a_count_without_common_outcomes_has_no_bound():
    assert of_count(binomial_distribution(10, 5), 1, DELTA).failure == 1
    rare = of_count(binomial_distribution(4, 0), 3, DELTA)
    assert float(rare.failure) == pytest.approx(3 / 16, rel=1e-9)


@pytest.mark.parametrize(
    ("rows", "n", "truncated"), [(1000, 100, None), (4177, 100, Fraction(1, 2)), (20_000, 1000, Fraction(3, 10))]
)
def test_a_counts_bound_covers_its_exact_epsilon(rows, n, truncated):
    bound = of_count(binomial_distribution(rows, truncation(rows, truncated)[0]), n, DELTA / 1024)
    stated = concentrated_epsilon(bound.rho, DELTA - bound.failure)
    exact = own_epsilon(rows, n, truncated, DELTA)
    assert exact < stated < 1.1 * exact


def test_a_subsampled_gaussian_is_cut_where_its_coins_are_rare():
    n, p, mu = 100, Fraction(1, 3), 0.2
    failure = Fraction(1, 10**6)
    bound = of_shift(shift_distribution(mu, n, p), failure)
    with mpmath.workdps(40):
        pmf = [mpmath.binomial(n, k) * (mpmath.mpf(1) / 3) ** k * (mpmath.mpf(2) / 3) ** (n - k) for k in range(n + 1)]
        above = [mpmath.fsum(pmf[k + 1 :]) for k in range(n + 1)]
        enough = next(k for k in range(n + 1) if above[k] <= failure)
    assert float(bound.rho) == pytest.approx(enough * mu * mu / 2, rel=1e-12)
    assert float(above[enough]) <= float(bound.failure) <= float(above[enough]) * (1 + 1e-9)
    # A smaller count would fail too often.
    assert float(above[enough - 1]) > failure


def test_a_failure_that_is_met_exactly_is_enough():
    distribution = shift_distribution(0.2, 100, Fraction(1, 3))
    bound = of_shift(distribution, Fraction(1, 10**6))
    assert of_shift(distribution, bound.failure) == bound
    assert of_shift(distribution, bound.failure * Fraction(999, 1000)).rho > bound.rho
    count = binomial_distribution(300)
    bound = of_count(count, 1, Fraction(1, 10**6))
    assert of_count(count, 1, bound.failure) == bound
    assert of_count(count, 1, bound.failure * Fraction(999, 1000)).rho > bound.rho


def test_errors_of_masses_count_when_the_tail_is_cut():
    distribution = ShiftDistribution(np.array([1.0, 4.0]), np.array([1.0, 4.0]), np.array([0.9, 0.1]), 0.01, 0.5)
    assert of_shift(distribution, Fraction(15, 100)).rho == pytest.approx(2)
    bound = of_shift(distribution, Fraction(17, 100))
    assert float(bound.rho) == pytest.approx(0.5)
    assert float(bound.failure) == pytest.approx(0.16)


def test_no_failure_is_above_one():
    for trimmed in (0.5, 1.5):
        bound = of_shift(ShiftDistribution(np.ones(1), np.ones(1), np.ones(1), trimmed), Fraction(2, 5))
        assert bound.failure == min(trimmed, 1)


def test_errors_of_masses_count_when_the_tails_of_a_count_are_cut():
    masses, losses = np.array([0.1, 0.2, 0.4, 0.2, 0.1]), np.log([2, 2, 0.5, 0.5])
    distribution = CountDistribution(0, masses, losses, trimmed=0.01, relative_error=0.5, loss_error=0.0)
    for n, failure, failed in ((1, 0.17, 0.16), (1, 0.6, 0.16), (1, 0.62, 0.61), (1, 0.1, 0.16), (2, 0.62, 0.32)):
        assert float(of_count(distribution, n, Fraction(failure)).failure) == pytest.approx(failed)


def test_where_no_event_is_rare_enough_the_largest_shift_counts():
    distribution = shift_distribution(0.2, 100, Fraction(1, 3))
    failure = Fraction(distribution.trimmed) / 2
    bound = of_shift(distribution, failure)
    assert float(bound.rho) == pytest.approx(float(distribution.upper.max()) / 2, rel=1e-12)
    assert bound.failure > failure


def test_a_slack_moves_every_divergence():
    """By (2 + 1/(a-1)) lambda, at the order a where this costs least: rho times a bounds D_a for all a."""
    slack = 1e-9
    rho = float(of_shift(shift_distribution(1.0, slack=slack), DELTA).rho)
    for order in (1 + 2.0**-20, 1.0001, 1.5, 10.0):
        assert order / 2 + (2 + 1 / (order - 1)) * slack <= order * rho
    assert rho < 0.5 + 0.01


def test_a_subsampled_gaussians_bound_covers_its_exact_epsilon():
    distribution = shift_distribution(0.05, 1000, Fraction(1, 2))
    bound = of_shift(distribution, DELTA / 1024)
    stated = concentrated_epsilon(bound.rho, DELTA - bound.failure)
    exact = distribution.epsilon(DELTA).upper
    assert exact < stated < 1.25 * exact


def test_a_record_that_hardly_ever_enters_costs_nothing_but_its_failure():
    bound = of_shift(shift_distribution(0.5, 1, Fraction(1, 100)), Fraction(1, 50))
    assert bound.rho == 0
    assert float(bound.failure) == pytest.approx(0.01)


def test_one_gaussian_needs_no_failure():
    bound = of_shift(shift_distribution(0.5), DELTA)
    assert bound.failure == 0
    assert Fraction(1, 8) <= bound.rho <= Fraction(1, 8) * (1 + Fraction(1, 2**50))


def test_the_rounding_of_a_squared_shift_is_covered():
    generator = np.random.default_rng(9)
    counts = np.concatenate([np.ones(1000, dtype=int), generator.integers(1, 10**6, 1000)])
    for mu, n in zip(generator.exponential(0.5, size=2000), counts, strict=True):
        exact = int(n) * Fraction(mu) ** 2 / 2
        assert exact <= of_shift(shift_distribution(float(mu), int(n)), DELTA).rho <= exact * (1 + Fraction(1, 2**49))


def test_integer_noise_costs_its_slack():
    distribution = IntegerNoise(3, 4, 1).distribution(1)
    bound = of_shift(distribution, DELTA)
    continuous = float(distribution.upper[0]) / 2
    assert continuous < float(bound.rho) < continuous * (1 + 2e-6)
    # The sum of the integers' own divergences: four shares of standard deviation 3, shifted by 1.
    z = np.arange(-60, 61)
    share = np.exp(-(z**2) / 18)
    share /= share.sum()
    total = share
    for _ in range(3):
        total = np.convolve(total, share)
    centre = len(total) // 2
    inside = slice(centre - 60, centre + 61)
    p, q = total[inside], np.roll(total, 1)[inside]
    worst = max(renyi(p.tolist(), q.tolist(), a) / a for a in (1.01, 2, 5, 10))
    assert worst < float(bound.rho)
    assert worst > 0.85 * float(bound.rho)


@pytest.mark.parametrize("order", [0.3, 0.49, 0.51, 1.0, 1.4, 3.0])
def test_a_cumulant_allows_for_the_errors_of_losses(order):
    """A loss of 1 that may be 1.02: its cumulant is linear in the order, and known exactly."""
    coarse = replace(binomial_distribution(40), loss_error=0.02)
    assert _cumulant(np.ones(1), np.ones(1), order, coarse) >= order * 1.02


@pytest.mark.parametrize("order", [0.3, 3.0])
def test_a_cumulant_allows_for_the_errors_of_masses(order):
    """Masses that may be wrong by a tenth of themselves, up to one common factor: each mass, and then their sum."""
    coarse = replace(binomial_distribution(40), relative_error=0.1)
    losses = np.array([-1.0, 1.0])
    worst = np.array([0.45, 0.55])
    assert _cumulant(np.full(2, 0.5), losses, order, coarse) >= math.log(worst @ np.exp(order * losses))


def test_orders_are_tried_until_the_largest_loss_cannot_cost_more():
    """Also where losses may be larger than they are given."""
    losses, off = np.array([-20.0, 1.0]), 0.75
    distribution = CountDistribution(0, np.array([0.5, 0.05, 0.45]), losses, 0.0, 0.0, loss_error=off)
    rho = concentrated._count_rho(distribution, slice(1, 3))
    orders = np.geomspace(1e-3, 50, 200)
    divergences = np.log(np.exp(np.outer(orders, losses + off)) @ np.array([0.1, 0.9]))
    assert rho >= (divergences / (orders * (1 + orders))).max()
