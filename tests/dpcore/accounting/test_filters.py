"""Limits: two filters, their shares of delta, and that no adaptive run of releases exceeds them."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.concentrated import Concentrated, concentrated_epsilon, concentrated_rho
from dpcore.accounting.filters import (
    BASIC_SHARE,
    CONVERSION_SHARE,
    EARLIER_FAILURE_SHARE,
    FAILURE_SHARE,
    MIXED_SHARE,
    NO_LOSS,
    Left,
    Loss,
    PrivacyLimit,
    total_loss,
)
from dpcore.accounting.noise_shares import LaplaceShares
from dpcore.accounting.protection import LaplaceProtection
from dpcore.errors import PlanError

LIMIT = PrivacyLimit(Fraction(10), Fraction(1, 100_000))
ZERO = Fraction(0)


def basic(epsilon, delta="0"):
    """A loss that only the basic filter admits."""
    return Loss(Fraction(epsilon), Fraction(delta), Fraction(10**6), ZERO)


def concentrated(rho, failure="0"):
    """A loss that only the concentrated filter admits."""
    return Loss(Fraction(10**6), Fraction(1), Fraction(rho), Fraction(failure))


def batch(epsilon, values):
    """The loss of so many counts by Laplace noise, epsilon in total."""
    scale = LaplaceShares(Fraction(values * 4, epsilon), 1)
    return LaplaceProtection("record", 1, scale, values, 1).loss(1000, ZERO)


def test_the_basic_filter_is_exact_and_has_half_of_delta():
    assert LIMIT.admits(basic("10", "5e-6"))
    assert not LIMIT.admits(basic(Fraction(10) + Fraction(1, 10**30), "0"))
    assert not LIMIT.admits(basic("1", Fraction(5, 10**6) + Fraction(1, 10**30)))


def test_the_first_order_has_a_quarter_for_the_conversion_and_failures_a_sixteenth():
    r, most = LIMIT.largest_rho, LIMIT.delta * FAILURE_SHARE
    assert most == LIMIT.delta / 16
    assert concentrated_epsilon(r, LIMIT.delta / 4) == pytest.approx(10, rel=1e-9)
    assert LIMIT.admits(concentrated(r, most))
    assert not LIMIT.admits(concentrated(r + Fraction(1, 10**30)))
    assert not LIMIT.admits(concentrated("0.1", most + Fraction(1, 10**30)))


def test_what_earlier_versions_began_has_their_quarter_for_failures():
    total = replace(concentrated(LIMIT.largest_rho, "2.5e-6"), is_earlier=True)
    assert LIMIT.admits(total)
    assert not LIMIT.admits(replace(total, failure=total.failure + Fraction(1, 10**30)))
    assert not LIMIT.admits(replace(total, rho=total.rho + Fraction(1, 10**30)))
    assert not LIMIT.admits(replace(total, is_earlier=False))


@pytest.mark.variants(4)
@pytest.mark.parametrize("epsilon", ["0.01", "0.3", "1", "10", "100"])
@pytest.mark.parametrize("delta", ["1e-12", "1e-5", "0.3"])
def test_the_shares_of_delta_add_up_to_1(epsilon, delta):
    limit = PrivacyLimit(Fraction(epsilon), Fraction(delta))
    (first, constant), *others = limit._orders
    whole = BASIC_SHARE + FAILURE_SHARE + CONVERSION_SHARE + MIXED_SHARE
    assert whole == BASIC_SHARE + EARLIER_FAILURE_SHARE + CONVERSION_SHARE == 1
    # The delta for which each constant converts, solved back.
    parts = [converted_delta(s, c) for s, c in others]
    assert converted_delta(first, constant) <= CONVERSION_SHARE * limit.delta * (1 + 1e-9)
    assert sum(parts) <= float(MIXED_SHARE * limit.delta) * (1 + 1e-9)
    assert sum(parts) == pytest.approx(float(MIXED_SHARE * limit.delta) if others else 0)


def converted_delta(s, constant):
    """The largest (1 - e^(epsilon - l)) e^(-s l) over losses l, times e^(s (epsilon - constant)): on a grid of l."""
    gaps = np.linspace(1e-6, 60, 600_001) / float(s)
    return float(np.max(-np.expm1(-gaps) * np.exp(-float(s) * (gaps + float(constant)))))


def test_many_small_releases_fit_and_one_large_one_does():
    small = Loss.of_concentrated(Concentrated(Fraction(1, 1000)), Fraction(1, 10**9))
    many = int(LIMIT.largest_rho * 1000)
    assert many > 1000
    assert many * float(small.epsilon) > 100
    assert LIMIT.admits(small.times(many))
    assert not LIMIT.admits(small.times(many + 1))
    assert LIMIT.admits(Loss.of_epsilon(Fraction(10), Fraction(0)))


def test_a_limit_without_delta_has_the_basic_filter_alone():
    limit = PrivacyLimit(Fraction(1), ZERO)
    assert limit.admits(NO_LOSS)
    assert limit.admits(basic("1"))
    assert not limit.admits(basic("1", "1e-300"))
    assert not limit.admits(concentrated("1e-9"))
    assert not limit.admits(concentrated("0"))
    assert limit.spent(basic("0.5")) == 0.5
    assert limit.spent(basic("0.5", "1e-300")) == math.inf
    assert PrivacyLimit(ZERO, ZERO).admits(NO_LOSS)


@pytest.mark.parametrize(("epsilon", "delta"), [("-1", "0"), ("1", "-1"), ("1", "1")])
def test_a_limit_out_of_range_is_refused(epsilon, delta):
    with pytest.raises(PlanError):
        PrivacyLimit(Fraction(epsilon), Fraction(delta))


def test_negative_losses_and_bounds_that_fail_too_often_are_refused():
    for part in range(4):
        parts = [ZERO] * 4
        parts[part] = Fraction(-1, 10**9)
        with pytest.raises(PlanError, match="is negative"):
            Loss(*parts)
    for wrong in ({"curve": (Fraction(-1),) * 14}, {"curved": Fraction(-1)}):
        with pytest.raises(PlanError, match="is negative"):
            replace(NO_LOSS, **wrong)
    for wrong in ({"curved": Fraction(1)}, {"curve": (Fraction(1),) * 3}):
        with pytest.raises(PlanError, match="has a curve"):
            replace(NO_LOSS, **wrong)
    with pytest.raises(PlanError, match="squared mu"):
        replace(NO_LOSS, shift=Fraction(-1))
    with pytest.raises(PlanError, match="larger delta"):
        Loss.of_concentrated(Concentrated(Fraction(1), Fraction(1, 1000)), Fraction(1, 1000))


def test_a_failure_and_the_conversion_of_rho_share_a_delta():
    delta, failure = Fraction(1, 10**6), Fraction(3, 10**7)
    loss = Loss.of_concentrated(Concentrated(Fraction(1, 2), failure), delta)
    assert loss == Loss(Fraction(concentrated_epsilon(0.5, delta - failure)), delta, Fraction(1, 2), failure)


parts = st.fractions(0, 4, max_denominator=1000)
losses = st.builds(lambda e, d, r, f: Loss(e, d / 10**6, r / 10, f / 10**6), parts, parts, parts, parts)
releases = st.one_of(
    st.builds(lambda e: Loss.of_epsilon(e, ZERO), parts),
    st.builds(lambda r, d: Loss.of_concentrated(Concentrated(r / 100), (d + 1) / 10**6), parts, parts),
    st.builds(batch, st.integers(1, 4), st.integers(1, 40)),
    losses,
)


@given(st.lists(st.tuples(releases, st.integers(1, 30)), max_size=8), st.booleans())
def test_the_figure_is_within_the_limit_exactly_for_what_is_admitted(held, earlier):
    total = replace(total_loss(held), is_earlier=earlier)
    spent = LIMIT.spent(total)
    assert LIMIT.admits(total) is (spent <= 10) or spent == pytest.approx(10, rel=1e-9)


@pytest.mark.more
@given(st.lists(releases, min_size=1, max_size=8), st.sampled_from([1, 3, 12, 60]))
def test_the_figure_never_jumps_by_more_than_the_plain_sum(order, times):
    """Whatever was asked before: by a pure release's epsilon, and by what another release costs by its own rho."""
    total, deltas_fit = NO_LOSS, True
    for one in order:
        more = one.times(times)
        before, after = LIMIT.spent(total), LIMIT.spent(total + more)
        alone = by_orders(more)
        assert after >= before * (1 - 1e-12)
        if more.delta == 0 and more.failure == 0:
            assert after <= before + float(more.epsilon) * (1 + 1e-9) + 1e-9
        # Once the sum of deltas exceeds its share, the plain sum of epsilons is no bound any more.
        still = total.delta + more.delta <= LIMIT.delta / 2
        if still is deltas_fit and math.isfinite(alone) and math.isfinite(before) and math.isfinite(after):
            assert after <= before + max(alone, float(more.epsilon) if still else 0) + 1e-9
        total, deltas_fit = total + more, still


def by_orders(loss):
    """What a loss costs alone by the orders."""
    return LIMIT.spent(replace(loss, epsilon=loss.epsilon + 10**9, delta=LIMIT.delta))


def test_a_pure_answer_after_gaussian_ones_costs_its_epsilon():
    """The gauge went from 0.49 to 11.3 of 10 where all charges added up to 3.2."""
    rho = Fraction(concentrated_rho(Fraction(1, 5), Fraction(1, 10**6)))
    gaussian = Loss.of_concentrated(Concentrated(rho), Fraction(1, 10**6), 0.2)
    two = Loss.of_epsilon(Fraction(2), ZERO)
    for count in range(13):
        total = gaussian.times(count)
        spent = [LIMIT.spent(total + two.times(pure)) for pure in range(4)]
        assert all(after <= before + 2 for before, after in itertools.pairwise(spent))
        assert spent[-1] <= min(float((total + two.times(3)).epsilon), 7)
        assert LIMIT.admits(total + two.times(4))
        assert not LIMIT.admits(total + two.times(5) + gaussian.times(6 - min(count, 6)))


@pytest.mark.more
@given(st.lists(st.tuples(releases, st.integers(1, 300)), max_size=6))
def test_what_the_earlier_rule_admitted_still_fits_and_nothing_is_admitted_twice(held):
    """A ledger of an earlier version: not above its limit, and no room that the same rule did not prove."""
    total = total_loss(held)
    earlier = replace(total, is_earlier=True)
    within = (total.epsilon <= 10 and total.delta <= LIMIT.delta / 2) or (
        total.rho <= LIMIT.largest_rho and total.failure <= LIMIT.delta / 4
    )
    if within:
        assert LIMIT.admits(earlier)
        assert LIMIT.spent(earlier) <= 10 * (1 + 1e-9)
    # Of the shares of delta of later versions it has only those that it had: one order.
    assert len(LIMIT.orders_for(earlier)) <= 1


@given(losses)
def test_spent_is_the_least_limit_that_admits_what_earlier_versions_began(total):
    total = replace(total, is_earlier=True)
    spent = LIMIT.spent(total)
    if math.isinf(spent):
        assert not PrivacyLimit(Fraction(10**9), LIMIT.delta).admits(total)
        return
    above, below = (PrivacyLimit(Fraction(spent) * Fraction(factor), LIMIT.delta) for factor in (1 + 1e-9, 1 - 1e-9))
    assert above.admits(total) or spent == 0
    assert spent == 0 or not below.admits(total)
    assert LIMIT.admits(total) is (spent <= 10) or spent == pytest.approx(10, rel=1e-9)


def test_nothing_remains_of_a_filter_whose_share_of_delta_is_spent():
    half, rest = LIMIT.delta / 2, Fraction(1, 10**9)
    assert LIMIT.remaining(basic("5", half - rest), rest) == 5
    assert LIMIT.remaining(basic("5", half), rest) == 0
    most = LIMIT.delta / 16
    for delta in (rest, ZERO):
        assert LIMIT.remaining(concentrated(LIMIT.largest_rho / 2, most), delta) > 0
        assert LIMIT.remaining(concentrated(LIMIT.largest_rho / 2, most + Fraction(1, 10**30)), delta) == 0
    assert LIMIT.spent(basic("5", half)) == 5
    assert LIMIT.spent(basic("5", half + rest)) > 10**6
    earlier = replace(concentrated("0.1", LIMIT.delta / 4), is_earlier=True)
    assert LIMIT.spent(earlier) == concentrated_epsilon(0.1, LIMIT.delta / 4)
    assert LIMIT.spent(concentrated("0.1", most)) == pytest.approx(concentrated_epsilon(0.1, LIMIT.delta / 4), rel=0.2)
    assert LIMIT.spent(concentrated("0.1", most + rest)) == math.inf
    assert LIMIT.left(concentrated("0.1", most + rest)) == Left(0, 0)
    assert LIMIT.left(basic("5", half - rest)) == Left(5, 5)
    # A pure answer needs no delta.
    assert LIMIT.left(basic("5", half)) == Left(5, 0)


@given(st.lists(st.tuples(releases, st.integers(1, 9)), max_size=4), st.booleans())
def test_what_remains_is_admitted_and_no_more(held, earlier):
    delta, total = Fraction(1, 10**7), replace(total_loss(held), is_earlier=earlier)
    remaining = LIMIT.remaining(total, delta)
    if remaining > 0:
        by_epsilon = total.delta + delta <= LIMIT.delta / 2 and float(10 - total.epsilon) == remaining
        found = []
        for factor in (1 - 1e-6, 1 + 1e-6):
            epsilon = Fraction(remaining) * Fraction(factor)
            rho = Fraction(10**6) if by_epsilon else next_rho(epsilon, delta)
            found.append(LIMIT.admits(total + Loss(epsilon, delta, rho, ZERO)))
        assert found == [True, False]
    pure = LIMIT.remaining(total, ZERO)
    assert pure == LIMIT.left(total).pure
    if pure > 0:
        ends = [Loss.of_epsilon(Fraction(pure * factor), ZERO) for factor in (1, 1 + 1e-5)]
        assert [LIMIT.admits(total + one) for one in ends] == [True, False]
    assert LIMIT.left(NO_LOSS).epsilon == pytest.approx(10, rel=1e-9)


def next_rho(epsilon, delta):
    return Fraction(concentrated_rho(epsilon, delta))


def test_a_delta_that_moves_to_what_rho_left_would_break_the_limit():
    """Why the parts of delta are fixed: a run that chooses by the likelihood ratio gets more than delta from both.

    First a Gaussian of almost all that rho admits at the whole delta; then, if its privacy loss happened to be low, a
    release that reveals everything with the rest of delta, otherwise another Gaussian with the rest of rho.
    """
    from scipy.special import ndtr

    epsilon, delta = 1.0, 1e-2

    def true_delta(mu):
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))

    # The delta left after the first by an exact accountant, which measures the true delta of the Gaussians.
    low, high = 0.1, 2.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if true_delta(middle) <= delta else (low, middle)
    whole = low
    first = 0.97 * whole
    left = delta - true_delta(first)
    rest = math.sqrt(whole**2 - first**2)

    def second(loss):
        """The gain of the better choice, given the first loss: revealing with `left`, or a Gaussian of `rest`."""
        shift = epsilon - loss
        away = left * 1.0 if shift > 0 else left + (1 - left) * max(0.0, 1 - math.exp(shift))
        gaussian = float(ndtr(rest / 2 - shift / rest) - math.exp(shift) * ndtr(-rest / 2 - shift / rest))
        return max(away, gaussian)

    # Under P the loss of the first is N(mu^2/2, mu^2).
    steps = 4000
    grid = [first**2 / 2 + first * (-8 + 16 * (i + 0.5) / steps) for i in range(steps)]
    weights = [math.exp(-((g - first**2 / 2) ** 2) / (2 * first**2)) for g in grid]
    gained = sum(w * second(g) for w, g in zip(weights, grid, strict=True)) / sum(weights)
    assert gained > 1.05 * delta


LOSSES = st.builds(Loss, *[st.fractions(min_value=0, max_value=3, max_denominator=10**6)] * 4)


@given(st.lists(st.tuples(LOSSES, st.integers(1, 10**5)), max_size=6))
def test_a_total_is_exactly_the_sum_of_its_losses(losses):
    total = NO_LOSS
    for loss, count in losses:
        total += loss.times(count)
    assert total_loss(iter(losses)) == total
