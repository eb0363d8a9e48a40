"""Bounds for answers to questions that earlier answers chose: exact examples, also close to the bounds."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.accounting.gaussian import shift_distribution
from dpcore.accounting.mixed import PureLoss
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.errors import ConfigurationError
from dpcore.randomness.noise import discrete_gaussian
from dpcore.randomness.sources import SeededRandom
from dpcore.statistics.accuracy import Batch, SharedNoise
from dpcore.statistics.adaptive import Adaptive, Leak, PosteriorNoise, generalisation_gap, nats


def gaussian_excess(mu: float, bias: float) -> float:
    """The largest probability that P(x = 1 | T) is further than `bias` from P(x = 1), for T normal around mu x."""

    def chance(q: float) -> float:
        total = 0.0
        for end, tail in ((q + bias, stats.norm.sf), (q - bias, stats.norm.cdf)):
            if 0 < end < 1:
                cut = math.log(end * (1 - q) / (q * (1 - end))) / mu + mu / 2
                total += (1 - q) * tail(cut) + q * tail(cut - mu)
        return total

    return max(map(chance, np.linspace(0.02, 0.98, 49).tolist()))


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("failure", [0.05, 0.001])
def test_a_posterior_mean_is_as_close_as_gaussian_privacy_says(mu, failure):
    bias = Leak(math.inf, mu**2).bias(failure)
    assert gaussian_excess(mu, bias) <= failure
    # A bound of 0.7 of this one would be wrong.
    assert mu >= 1 or gaussian_excess(mu, 0.7 * bias) > failure


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_pure_privacy_bounds_a_posterior_mean_by_what_randomised_response_attains(epsilon):
    q, ratio = 1 / (1 + math.exp(epsilon / 2)), math.exp(epsilon)
    attained = q * ratio / (q * ratio + 1 - q) - q
    bound = Leak.of(PureLoss(Fraction(epsilon))).bias(1e-9)
    assert attained <= bound <= attained * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_an_error_on_the_sample_of_a_private_learner_is_near_that_on_new_rows(epsilon):
    """Each row answers by randomised response whether it is in an event of probability q, and all say that it is."""
    q, ratio, rows, failure = 1 / (1 + math.exp(epsilon / 2)), math.exp(epsilon), 4000, 0.01
    posterior = q * ratio / (q * ratio + 1 - q)
    gap = generalisation_gap(Fraction(epsilon), rows, failure)
    assert stats.binom.sf(math.ceil(rows * (q + gap)) - 1, rows, posterior) <= failure
    assert stats.binom.sf(math.ceil(rows * (q + 0.8 * gap)) - 1, rows, posterior) > failure
    with pytest.raises(ConfigurationError):
        generalisation_gap(Fraction(1), 0, 0.1)


def test_leaks_of_many_small_answers_add_up_in_squares():
    one = Leak.of(PureLoss(Fraction(1, 100)))
    hundred = one.times(100)
    assert hundred == pytest.approx(Leak(1.0, 100 * one.mu_squared))
    assert hundred.bias(0.05) < math.tanh(1 / 4) / 2
    # mu of pure noise: both trade-off functions have the same fixed point.
    assert stats.norm.cdf(-math.sqrt(one.mu_squared) / 2) == pytest.approx(1 / (1 + math.exp(0.01)))
    assert (one + Leak.of(shift_distribution(0.3))).mu_squared == pytest.approx(one.mu_squared + 0.09)
    assert Leak.of(shift_distribution(0.3)).epsilon == math.inf


@pytest.mark.parametrize(
    ("noise", "copies"),
    [
        (SharedNoise(GaussianShares(4), 3, 1), 3),
        (SharedNoise(LaplaceShares(Fraction(9), 1), 1, 0), 1),
    ],
)
def test_the_nats_of_an_answer_bound_its_largest_density_ratio(noise, copies):
    """The sum over answers of the largest probability of each is the ratio to the best fixed density."""
    z = np.arange(-400, 401)
    if isinstance(noise.shares, GaussianShares):
        share = np.exp(-(z**2) / 2 / noise.shares.share_sigma**2)
    else:
        share = np.exp(-np.abs(z) / float(noise.shares.scale))
    share /= share.sum()
    mass = share
    for _ in range(copies - 1):
        mass = np.convolve(mass, share, "same")
    width = 7.0
    shifts = range(-round(width * 2**noise.fraction_bits), round(width * 2**noise.fraction_bits) + 1)
    exact = math.log(np.max([np.roll(mass, shift) for shift in shifts], axis=0).sum())
    assert exact <= nats(noise, width) <= 1.02 * exact


def test_the_posterior_mean_of_noise_has_a_chernoff_tail():
    gaussian = SharedNoise(GaussianShares(20), 4, 0)
    width = PosteriorNoise(gaussian).half_width(10, 0.05)
    assert 20 * math.exp(-(width**2) / 2 / gaussian.deviation**2) == pytest.approx(0.05, rel=1e-6)
    laplace = SharedNoise(LaplaceShares(Fraction(10), 2), 2, 0)
    # The best order of a Laplace variable's bound on this scale.
    s = np.linspace(1e-4, 0.0999, 100_000)
    least = float(((math.log(20 / 0.05) - np.log1p(-((10 * s) ** 2))) / s).min())
    assert PosteriorNoise(laplace).half_width(10, 0.05) == pytest.approx(least, rel=1e-3)


@pytest.mark.parametrize("share", [0.5, 0.2, 0.01])
def test_the_half_width_of_a_piece_is_that_of_its_binomial_count(share):
    rows, failure = 20_000, 0.01
    width = Batch(1, share=share).half_widths(rows, failure).sampling
    upper = stats.binom.sf(math.floor(rows * share * (1 + width)), rows, share)
    lower = stats.binom.cdf(math.ceil(rows * share * (1 - width)) - 1, rows, share)
    assert upper + lower <= failure
    closer = 0.75 * width
    assert stats.binom.sf(math.floor(rows * share * (1 + closer)), rows, share) > failure / 2 or share == 0.5
    assert width <= Batch(1).half_widths(rows, failure).sampling / share


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_values_that_are_chosen_by_the_number_of_fresh_rows_are_within_their_half_width(share):
    """The worst choice: for each number of rows, the mean e at which a count is most likely to be too far."""
    rows, failure = 5000, 0.05
    width = Batch(1, share=share, is_fresh=True).half_widths(rows, failure).sampling

    def failures(width):
        counts = np.arange(*map(int, stats.binom.interval(1 - 1e-6, rows, share)), 5)
        e = np.linspace(0.01, 1, 100)[:, np.newaxis]
        far = stats.binom.sf(np.floor(rows * share * (e + width)), counts, e)
        far += stats.binom.cdf(np.ceil(rows * share * (e - width)) - 1, counts, e)
        chances = stats.binom.pmf(counts, rows, share)
        return (far.max(axis=0) * chances).sum() / chances.sum()

    assert failures(width) <= failure
    assert failures(0.5 * width) > failure
    assert width > Batch(1, share=share).half_widths(rows, failure).sampling


def test_information_adds_to_the_logarithm_of_the_number_of_queries():
    told = Batch(3, information=math.log(50.0)).half_widths(1000, 0.1)
    assert told == pytest.approx(Batch(150).half_widths(1000, 0.1))
    fresh = Batch(3, share=0.2, is_fresh=True, information=math.log(50.0)).half_widths(1000, 0.1)
    assert fresh == pytest.approx(Batch(150, share=0.2, is_fresh=True).half_widths(1000, 0.1))


@pytest.mark.parametrize("questions", [0, 1, 70_000, True])
def test_a_series_has_at_least_two_questions(questions):
    with pytest.raises(ConfigurationError, match="from 2 to"):
        Adaptive(questions)


@pytest.mark.more
def test_integer_noise_is_as_likely_at_zero_as_nats_assume():
    drawn = sum(discrete_gaussian(3, 200_000, SeededRandom(bytes([place]))) for place in range(2))
    peak = math.expm1(nats(SharedNoise(GaussianShares(3), 2, 0), 0.5))
    assert np.mean(drawn == 0) == pytest.approx(peak, rel=0.03)
