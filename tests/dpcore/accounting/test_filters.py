"""Limits: two filters, their shares of delta, and that no adaptive run of releases exceeds them."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.concentrated import Concentrated, concentrated_epsilon
from dpcore.accounting.filters import NO_LOSS, Loss, PrivacyLimit, total_loss
from dpcore.errors import PlanError

LIMIT = PrivacyLimit(Fraction(10), Fraction(1, 100_000))
ZERO = Fraction(0)


def basic(epsilon, delta="0"):
    """A loss that only the basic filter admits."""
    return Loss(Fraction(epsilon), Fraction(delta), Fraction(10**6), ZERO)


def concentrated(rho, failure="0"):
    """A loss that only the concentrated filter admits."""
    return Loss(Fraction(10**6), Fraction(1), Fraction(rho), Fraction(failure))


def test_the_basic_filter_is_exact_and_has_half_of_delta():
    assert LIMIT.admits(basic("10", "5e-6"))
    assert not LIMIT.admits(basic(Fraction(10) + Fraction(1, 10**30), "0"))
    assert not LIMIT.admits(basic("1", Fraction(5, 10**6) + Fraction(1, 10**30)))


def test_the_concentrated_filter_has_a_quarter_for_failures_and_a_quarter_for_the_conversion():
    r = LIMIT.largest_rho
    assert concentrated_epsilon(r, LIMIT.delta / 4) == pytest.approx(10, rel=1e-9)
    assert LIMIT.admits(concentrated(r, "2.5e-6"))
    assert not LIMIT.admits(concentrated(r + Fraction(1, 10**30)))
    assert not LIMIT.admits(concentrated("0.1", Fraction(25, 10**7) + Fraction(1, 10**30)))


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
    with pytest.raises(PlanError, match="larger delta"):
        Loss.of_concentrated(Concentrated(Fraction(1), Fraction(1, 1000)), Fraction(1, 1000))


def test_a_failure_and_the_conversion_of_rho_share_a_delta():
    delta, failure = Fraction(1, 10**6), Fraction(3, 10**7)
    loss = Loss.of_concentrated(Concentrated(Fraction(1, 2), failure), delta)
    assert loss == Loss(Fraction(concentrated_epsilon(0.5, delta - failure)), delta, Fraction(1, 2), failure)


parts = st.fractions(0, 4, max_denominator=1000)
losses = st.builds(lambda e, d, r, f: Loss(e, d / 10**6, r / 10, f / 10**6), parts, parts, parts, parts)


@given(losses)
def test_spent_is_the_least_limit_that_admits(total):
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
    assert LIMIT.remaining(concentrated(LIMIT.largest_rho / 2, LIMIT.delta / 4), rest) > 0
    assert LIMIT.remaining(concentrated(LIMIT.largest_rho / 2, LIMIT.delta / 4 + Fraction(1, 10**30)), rest) == 0
    assert LIMIT.spent(basic("5", half)) == 5
    assert LIMIT.spent(basic("5", half + rest)) > 10**6
    assert LIMIT.spent(concentrated("0.1", LIMIT.delta / 4)) == concentrated_epsilon(0.1, LIMIT.delta / 4)
    assert LIMIT.spent(concentrated("0.1", LIMIT.delta / 4 + rest)) == math.inf
    for failure in (LIMIT.delta / 4, LIMIT.delta / 2):
        assert LIMIT.left(concentrated("0.1", failure)) == 0
    assert LIMIT.left(basic("5", half - rest)) == 5
    assert LIMIT.left(basic("5", half)) == 0


@given(losses)
def test_what_remains_is_admitted_and_no_more(total):
    delta = Fraction(1, 10**7)
    remaining = LIMIT.remaining(total, delta)
    if remaining == 0:
        return
    room = LIMIT.largest_rho - total.rho
    found = []
    for factor in (1 - 1e-6, 1 + 1e-6):
        epsilon = Fraction(remaining) * Fraction(factor)
        rho = next_rho(epsilon, delta) if room > 0 else Fraction(10**6)
        found.append(LIMIT.admits(total + Loss(epsilon, delta, rho, ZERO)))
    assert found == [True, False]
    assert LIMIT.left(NO_LOSS) == pytest.approx(10, rel=1e-9)


def next_rho(epsilon, delta):
    from dpcore.accounting.concentrated import concentrated_rho

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
