"""Noise for the cohort that answers: its variance, its privacy and its tails, against exact masses."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.accounting.cohorts import MOST_LAPLACE_DRAWS, MOST_PARTIES, Cohorts
from dpcore.accounting.noise_shares import (
    ROUNDING_VARIANCE,
    GaussianShares,
    IntegerNoise,
    LaplaceShares,
    log_ratio,
    smallest_share,
    unequal_log_ratio,
)
from dpcore.accounting.protection import GaussianProtection, LaplaceProtection
from dpcore.errors import PlanError
from dpcore.randomness.noise import LARGEST_SIGMA, MOST_SHARES, SMALLEST_SHARE_SIGMA
from dpcore.randomness.sources import SeededRandom

DELTA = 1e-6
FOUR = Cohorts(3, 2, 4)
"""Four parties, of which one may be away and one may collude."""


@st.composite
def cohorts(draw, most: int = 60) -> Cohorts:
    largest = draw(st.integers(1, most))
    smallest = draw(st.integers(1, largest))
    return Cohorts(smallest, draw(st.integers(1, smallest)), largest)


@pytest.mark.more
@given(cohorts(), st.integers(SMALLEST_SHARE_SIGMA, LARGEST_SIGMA))
def test_the_honest_parties_noise_is_never_less_than_what_is_charged_and_hardly_more(admitted, sigma):
    charged = admitted.honest * sigma**2
    first = admitted.first_share(sigma)
    assert SMALLEST_SHARE_SIGMA <= first <= sigma
    for parties in range(admitted.smallest, admitted.largest + 1):
        more = admitted.top_up(sigma, parties)
        assert more == 0 or SMALLEST_SHARE_SIGMA <= more <= sigma
        honest = admitted.honest_of(parties)
        assert honest == parties - admitted.smallest + admitted.honest
        assert honest * admitted.share_variance(sigma, parties) >= charged
        # One unit less of either would not do, unless it is the least that is counted.
        if more > SMALLEST_SHARE_SIGMA:
            assert honest * (first**2 + (more - 1) ** 2) < charged
    if first > SMALLEST_SHARE_SIGMA:
        assert admitted.honest_of(admitted.largest) * (first - 1) ** 2 < charged
    assert admitted.top_up(sigma, admitted.largest) == 0


def test_the_noise_of_four_five_and_ten_parties_falls_as_it_can():
    """Compared with shares for the smallest cohort, one party away and one colluding."""
    for parties, part in ((4, 0.816), (5, 0.866), (10, 0.943)):
        least, sigma = GaussianShares(1 << 20), Cohorts(parties - 1, parties - 2, parties)
        follows = GaussianShares(1 << 20, sigma)
        assert follows.deviation(parties) / least.deviation(parties) == pytest.approx(part, abs=5e-4)
        assert follows.deviation(parties - 1) / least.deviation(parties - 1) == pytest.approx(1, abs=1e-6)


def sample(sigma: int, reach: int = 12) -> np.ndarray:
    x = np.arange(-reach * sigma, reach * sigma + 1)
    mass = np.exp(-(x**2) / (2 * sigma**2))
    return mass / mass.sum()


def summed(parts: list[int]) -> np.ndarray:
    total = np.ones(1)
    for sigma in parts:
        total = np.convolve(total, sample(sigma)) if sigma else total
    return total


def exact_delta(masses: np.ndarray, shift: int, epsilon: float) -> float:
    """The hockey-stick divergence of the masses and those moved by `shift`."""
    padded = np.concatenate([masses, np.zeros(shift)])
    moved = np.concatenate([np.zeros(shift), masses])
    return float(np.maximum(padded - math.exp(epsilon) * moved, 0).sum())


@pytest.mark.parametrize(("admitted", "sigma"), [(FOUR, 23), (Cohorts(3, 3, 6), 31), (Cohorts(2, 1, 5), 40)])
def test_every_cohort_s_honest_noise_is_as_private_as_charged_and_not_without_its_top_up(admitted, sigma):
    shift = 10
    protection = GaussianProtection("record", admitted.honest, sigma, shift**2, 1, cohorts=admitted)
    charged = float(protection.loss(1, Fraction(DELTA)).epsilon)
    assert charged == protection.cost([5] * admitted.largest, DELTA).epsilon_if_others_collude
    for parties in range(admitted.smallest, admitted.largest + 1):
        first, more, honest = (
            admitted.first_share(sigma), admitted.top_up(sigma, parties), admitted.honest_of(parties),
        )  # fmt: skip
        total = summed(honest * [first, more])
        assert exact_delta(total, shift, charged) <= DELTA
        alone = protection.cost([5] * parties, DELTA)
        assert alone.epsilon_if_others_collude == charged
        whole = summed(parties * [first, more])
        assert exact_delta(whole, shift, alone.epsilon) <= DELTA
        # The figure for the learner alone is that of the noise there is: four parts in a thousand less do not do.
        assert exact_delta(whole, shift, 0.99 * alone.epsilon) > DELTA
        if more:
            assert exact_delta(summed(honest * [first]), shift, charged) > DELTA
            assert exact_delta(summed(honest * [first, more // 2]), shift, charged) > DELTA


def test_the_learner_alone_sees_what_dp_accounting_says_of_the_noise_there_is():
    from dp_accounting.pld import privacy_loss_distribution

    sigma, squared = 1 << 12, 1 << 22
    protection = GaussianProtection("record", FOUR.honest, sigma, squared, 1, cohorts=FOUR)
    for parties in (3, 4):
        # Two honest parties of three need sigma each, three of four root(2/3) of it.
        deviation = math.sqrt(parties * 2 * sigma**2 / (parties - 1))
        theirs = privacy_loss_distribution.from_gaussian_mechanism(
            deviation / math.sqrt(squared), use_connect_dots=True
        )
        cost = protection.cost([5] * parties, DELTA)
        assert cost.epsilon == pytest.approx(theirs.get_epsilon_for_delta(DELTA), rel=2e-3)
        colluding = privacy_loss_distribution.from_gaussian_mechanism(math.sqrt(2) * 2, use_connect_dots=True)
        assert cost.epsilon_if_others_collude == pytest.approx(colluding.get_epsilon_for_delta(DELTA), rel=2e-3)


@pytest.mark.parametrize("parts", [(1, 1), (1, 2, 1), (3, 1, 1)])
def test_the_ratio_of_a_sum_of_unequal_samples_to_a_gaussian_is_bounded_and_not_by_much(parts):
    """Standard deviations of 1 and 2, at which the bound is far above rounding."""
    total, sigma = summed(list(parts)), math.sqrt(sum(part**2 for part in parts))
    x = np.arange(len(total)) - len(total) // 2
    near = np.abs(x) <= 4 * sigma
    logs = np.log(total[near]) + x[near] ** 2 / (2 * sigma**2) + math.log(sigma * math.sqrt(2 * math.pi))
    bound = unequal_log_ratio(1, len(parts), 1e9)
    assert np.abs(logs).max() <= bound
    assert np.abs(logs).max() >= bound / 100 or len(parts) > 2


def test_equal_samples_are_counted_no_better_than_as_equal_ones():
    for sigma, shares in ((3, 2), (5, 40)):
        assert unequal_log_ratio(sigma, shares, ROUNDING_VARIANCE) >= log_ratio(sigma, shares, ROUNDING_VARIANCE)
    assert 0 < unequal_log_ratio(SMALLEST_SHARE_SIGMA, 2000, ROUNDING_VARIANCE) < 1e-33


def test_a_slack_counts_shares_and_top_ups():
    plain = IntegerNoise(5, 3, 7)
    assert IntegerNoise(5, 3, 7, 4).slack == 7 * unequal_log_ratio(4, 6, ROUNDING_VARIANCE)
    assert IntegerNoise(5, 3, 7, unequal=9).slack == 7 * unequal_log_ratio(3, 9, ROUNDING_VARIANCE)
    assert IntegerNoise(5, 3, 7, 4).variance == 3 * 41
    assert IntegerNoise(5, 3, 7, unequal=9).variance == plain.variance == 75
    with pytest.raises(PlanError, match="shares are counted from 3"):
        IntegerNoise(5, 3, 7, 2)


@pytest.mark.parametrize("admitted", [FOUR, Cohorts(9, 8, 10), Cohorts(3, 3, 5)])
def test_laplace_noise_of_the_honest_parties_is_whole_in_every_cohort(admitted):
    for parties in range(admitted.smallest, admitted.largest + 1):
        own = Fraction(1, admitted.honest_of(admitted.largest)) + admitted.polya_top_up(parties)
        assert own * admitted.honest_of(parties) == 1
    noise = LaplaceShares(Fraction(30), admitted.honest, admitted)
    protection = LaplaceProtection("record", admitted.honest, noise, 15, 1)
    costs = {protection.cost([5] * n, DELTA).epsilon for n in range(admitted.smallest, admitted.largest + 1)}
    assert costs == {0.5}


@pytest.mark.parametrize("noise", [GaussianShares(300, FOUR), LaplaceShares(Fraction(200), 2, FOUR)])
def test_what_parties_draw_has_the_stated_deviation_in_every_cohort_and_less_without_top_ups(noise):
    count = 40_000
    for parties in (3, 4):
        random = SeededRandom(parties)
        first = sum(noise.draw(count, random) for _ in range(parties))
        tops = [noise.draw_top_up(parties, count, random) for _ in range(parties)]
        assert all((top is None) == (parties == 4) for top in tops)
        total = first + sum(top for top in tops if top is not None)
        assert total.std() == pytest.approx(noise.deviation(parties), rel=0.02)
        assert np.abs(total).max() <= noise.tail_bound(4, count)
        assert np.abs(total).max() <= noise.half_width(parties, count, 0.01)
        if parties == 3:
            assert first.std() < 0.9 * noise.deviation(parties)
            assert np.abs(total).max() > 0.3 * noise.half_width(parties, count, 0.5)


def test_a_plan_that_knows_fewer_parties_counts_them_as_of_the_smallest_cohort():
    for noise in (GaussianShares(300, FOUR), LaplaceShares(Fraction(200), 2, FOUR)):
        assert noise.deviation(2) == pytest.approx(noise.deviation(3) * math.sqrt(2 / 3))
        with pytest.raises(PlanError, match="a cohort of 2 parties: the query admits 3 to 4"):
            noise.draw_top_up(2, 1, SeededRandom(1))
    protection = GaussianProtection("record", 2, 300, 100, 1, cohorts=FOUR)
    # Of fewer than the honest ones, each counts with the least share of any cohort.
    assert protection.distribution(5, shares=1).epsilon(DELTA).upper > protection.cost([5], DELTA).epsilon


def test_for_a_cohort_that_is_known_all_figures_are_of_its_noise():
    known = Cohorts(3, 2, 4, answered=4)
    protection = GaussianProtection("record", 3, 1 << 12, 1 << 22, 1, cohorts=known)
    charged = GaussianProtection("record", 2, 1 << 12, 1 << 22, 1, cohorts=FOUR).cost([5] * 4, DELTA)
    assert protection.cost([5] * 4, DELTA).epsilon_if_others_collude == pytest.approx(
        charged.epsilon_if_others_collude, rel=1e-3
    )
    fewer = GaussianProtection("record", 2, 1 << 12, 1 << 22, 1, cohorts=known).cost([5] * 4, DELTA)
    assert fewer.epsilon_if_others_collude > 1.1 * charged.epsilon_if_others_collude


@settings(max_examples=40)
@given(cohorts(20), st.integers(SMALLEST_SHARE_SIGMA, 200))
def test_slots_are_planned_for_the_noisiest_cohort(admitted, sigma):
    sizes = range(admitted.smallest, admitted.largest + 1)
    worst = max(n * (admitted.first_share(sigma) ** 2 + admitted.top_up(sigma, n) ** 2) for n in sizes)
    bound = GaussianShares(sigma, admitted).tail_bound(admitted.largest, 50)
    # P(|total| > b) <= 2 exp(-b^2 / (2 variance)) for each of 50 values.
    assert math.log(100) - bound**2 / (2 * worst) <= -64 * math.log(2)
    assert math.log(100) - (bound - 2) ** 2 / (2 * worst) > -64 * math.log(2) - 1e-6


def test_noise_that_cannot_be_divided_is_refused():
    many = Cohorts(2, 1, MOST_LAPLACE_DRAWS + 3)
    with pytest.raises(PlanError, match="cannot be divided"):
        LaplaceShares(Fraction(9), 1, many)
    large = Cohorts(600, 599, 601)
    assert large.polya_top_up(600).denominator > MOST_SHARES
    with pytest.raises(PlanError, match="cannot be divided"):
        LaplaceShares(Fraction(9), 599, large)
    with pytest.raises(PlanError, match="2 shares of noise for 3 honest parties"):
        LaplaceShares(Fraction(9), 2, Cohorts(3, 3, 4))
    for wrong in ((0, 0, 1), (3, 0, 4), (3, 4, 4), (5, 2, 4), (3, 2, MOST_PARTIES + 1)):
        with pytest.raises(PlanError, match="give ascending numbers"):
            Cohorts(*wrong)


def test_calibrated_noise_stays_within_epsilon_in_every_cohort():
    sigma = smallest_share(1 << 40, 2, 500, Fraction(3, 10), DELTA)
    protection = GaussianProtection("record", 2, sigma, 1 << 40, 500, cohorts=FOUR)
    for parties in (3, 4):
        assert protection.cost([9] * parties, DELTA).epsilon_if_others_collude <= 0.3
    less = GaussianProtection("record", 2, sigma - max(1, sigma >> 20), 1 << 40, 500, cohorts=FOUR)
    assert less.cost([9] * 4, DELTA).epsilon_if_others_collude > 0.3
