"""The filter in Gaussian differential privacy: admits what is private together, refuses what is not, and is chosen."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcore.accounting.filters import MOST_SLACK, NO_LOSS, Loss, PrivacyLimit, pure_shift
from dpcore.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, shift_distribution
from dpcore.accounting.mixed import PureLoss
from dpcore.accounting.protection import loss_of

DELTA = Fraction(1, 10**6)
LIMIT = PrivacyLimit(Fraction(10), Fraction(1, 10**5), is_gaussian=True)
TRAINING = loss_of(shift_distribution(gaussian_mu(1, DELTA)), DELTA)


def most(limit, loss):
    """How many fit."""
    count = 0
    while limit.admits(loss.times(count + 1)):
        count += 1
    return count


def test_71_trainings_fit_where_58_do_by_the_other_filters():
    assert most(LIMIT, TRAINING) == 71
    assert most(replace(LIMIT, is_gaussian=False), TRAINING) == 58


def test_what_is_admitted_is_private_together_and_one_more_would_not_be():
    mu = gaussian_mu(1, DELTA)
    assert gaussian_epsilon(mu * math.sqrt(71), LIMIT.delta).upper <= LIMIT.epsilon
    assert gaussian_epsilon(mu * math.sqrt(72), LIMIT.delta).lower > LIMIT.epsilon


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 12.0, 60.0])
def test_pure_noise_is_as_private_as_gaussian_noise_of_its_mu_and_of_no_smaller_one(epsilon):
    """By the divergence of randomized response at every epsilon up to its own."""
    mu = math.sqrt(pure_shift(Fraction(epsilon)))
    pure = PureLoss(Fraction(epsilon))
    for at in np.linspace(0, epsilon, 9):
        assert pure.delta(float(at)).lower <= gaussian_delta(mu, float(at)).upper
    # At the vertex of its tradeoff both errors are equal: 1 / (1 + e^epsilon).
    assert stats.norm.cdf(-mu / 2) == pytest.approx(1 / (1 + math.exp(epsilon)), rel=1e-6)
    if epsilon < 30:
        # Beyond, both are 1 to the last digits of a double.
        assert gaussian_delta(0.999 * mu, 0.0).upper < pure.delta(0.0).lower


def test_beyond_doubles_nothing_is_known_of_pure_noise():
    assert pure_shift(Fraction(151)) is None
    assert pure_shift(Fraction(0)) == 0


@given(
    st.lists(st.sampled_from([0.05, 0.2, 0.5, 1.0]), max_size=8),
    st.lists(st.sampled_from([0.05, 0.3, 1.0]), max_size=4),
)
def test_figures_are_at_least_the_exact_epsilon_and_agree_with_what_is_admitted(shifts, pure):
    total = sum((loss_of(shift_distribution(mu), DELTA) for mu in shifts), NO_LOSS)
    total = sum((Loss.of_epsilon(Fraction(epsilon), Fraction(0)) for epsilon in pure), total)
    spent = LIMIT.spent(total)
    if shifts and not pure:
        exact = gaussian_epsilon(math.sqrt(sum(mu * mu for mu in shifts)), LIMIT.delta)
        assert exact.lower <= spent <= exact.upper * (1 + 1e-6) + 1e-6
    assert LIMIT.admits(total) == (spent <= LIMIT.epsilon)
    for delta in (Fraction(0), DELTA):
        left = LIMIT.remaining(total, delta)
        more = Loss.of_epsilon(Fraction(left), delta)
        if delta and left:
            more = loss_of(shift_distribution(gaussian_mu(left, delta)), delta)
        assert not left or LIMIT.admits(total + more)
    assert LIMIT.left(total).pure == LIMIT.remaining(total, Fraction(0))


def test_what_has_no_mu_is_refused_and_so_is_all_beside_it():
    coins = loss_of(shift_distribution(0.1, 10, Fraction(1, 10)), DELTA)
    known = Loss.of_epsilon(Fraction(1, 100), DELTA)
    for unknown in (coins, known, replace(TRAINING, shift=None)):
        assert not LIMIT.admits(unknown)
        assert not LIMIT.admits(TRAINING + unknown)
        assert not LIMIT.admits(TRAINING.largest(unknown))
        assert LIMIT.spent(unknown) == math.inf
        assert LIMIT.remaining(unknown, DELTA) == 0


def test_the_noise_of_integers_has_a_bound_of_its_own():
    noisy = replace(TRAINING, slack=MOST_SLACK)
    assert LIMIT.admits(noisy)
    assert not LIMIT.admits(replace(noisy, slack=noisy.slack + Fraction(1, 10**20)))
    assert loss_of(shift_distribution(0.3, slack=1e-12), DELTA).slack == Fraction(1e-12)


def test_sums_maxima_and_what_is_missing_keep_the_mu():
    other = loss_of(shift_distribution(0.5), DELTA)
    assert (TRAINING + other).shift == TRAINING.shift + other.shift
    assert TRAINING.largest(other).shift == max(TRAINING.shift, other.shift)
    assert other.less(TRAINING).shift == other.shift - TRAINING.shift
    assert TRAINING.less(other).shift == 0
    assert TRAINING.times(3).shift == 3 * TRAINING.shift


def test_without_a_delta_nothing_is_admitted():
    assert not PrivacyLimit(Fraction(10), Fraction(0), is_gaussian=True).admits(TRAINING)
    assert PrivacyLimit(Fraction(10), Fraction(0), is_gaussian=True).remaining(NO_LOSS, DELTA) == 0
