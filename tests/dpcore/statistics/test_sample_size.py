"""Half-widths fail about as often as stated, never more, and the rows found are the least that suffice."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.errors import ConfigurationError, PlanError
from dpcore.statistics.accuracy import (
    Amplification,
    Batch,
    GaussianNoise,
    HalfWidths,
    LaplaceNoise,
    SharedNoise,
    least_rows,
    planned_noise,
    separate_rows,
)

NOISES = [None, LaplaceNoise(40.0), GaussianNoise(55.0)]


def draw(noise, shape, random):
    if noise is None:
        return np.zeros(shape)
    if isinstance(noise, LaplaceNoise):
        return random.laplace(scale=noise.scale, size=shape)
    return random.normal(scale=noise.sigma, size=shape)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("failure", [0.3, 0.05])
def test_answers_fail_no_more_often_than_stated(noise, failure):
    """Fair coins, the widest distribution in [0, 1]: 4,000 trials of 20 answers."""
    random, trials, queries, rows = np.random.default_rng(5), 4000, 20, 1500
    widths = Batch(queries, noise).half_widths(rows, failure)
    means = random.binomial(rows, 0.5, size=(trials, queries)) / rows
    sampling = np.abs(means - 0.5).max(axis=1)
    moved = np.abs(draw(noise, (trials, queries), random) / rows).max(axis=1)
    for error, width, share in (
        (sampling, widths.sampling, failure if noise is None else failure / 2),
        (moved, widths.noise, failure / 2),
        (np.abs(means - 0.5 + draw(noise, (trials, queries), random) / rows).max(axis=1), widths.tolerance, failure),
    ):
        failed = int((error > width).sum())
        # Fails only if a frequency of exactly `share` would be this high once in a million.
        assert stats.binom.sf(failed - 1, trials, share) > 1e-6
    # No width is loose: three quarters of either are exceeded far more often than stated.
    assert stats.binom.cdf(int((sampling > 0.6 * widths.sampling).sum()), trials, failure / 2) > 0.999
    if noise is not None:
        assert (moved > 0.8 * widths.noise).mean() > 1.2 * failure / 2


@pytest.mark.parametrize("failure", [0.1, 0.05, 1e-3])
def test_hoeffding_is_within_a_factor_of_the_rows_that_exact_counts_need(failure):
    """For one fair coin, whose failure is known exactly. The rows are at most 2.5 times the exact least."""
    rows = Batch(1).rows(0.01, failure)

    def exact(count):
        low = math.ceil(count * (0.5 - 0.01)) - 1
        return 2 * stats.binom.cdf(low, count, 0.5)

    assert exact(rows) <= failure
    assert exact(math.floor(rows / 2.5)) > failure


def test_constants_are_those_of_the_theorems():
    """Theorem 6 in closed form; Theorem 7 at most its closed bound and at least what either part needs."""
    queries, tolerance, failure, alpha = 30, 0.02, 0.05, 0.5
    piece = math.ceil(math.log(2 * queries / failure) / (2 * tolerance**2))
    assert separate_rows(queries, tolerance, failure) == queries * piece
    private = separate_rows(queries, tolerance, failure, noise=LaplaceNoise(1 / alpha))
    log, more = math.log(2 * queries / failure), math.log(4 * queries / failure)
    assert private <= queries * math.ceil(2 * more / tolerance**2 + 2 * log / (alpha * tolerance))
    assert private > queries * max(more / (2 * tolerance**2), log / (alpha * tolerance))
    # One batch on the whole sample needs no pieces: fewer by about the number of queries.
    assert Batch(queries).rows(tolerance, failure) == piece


@given(
    queries=st.integers(1, 10**5),
    tolerance=st.floats(1e-4, 0.9),
    failure=st.floats(1e-9, 0.9),
    noise=st.sampled_from(NOISES),
    quantisation=st.floats(0, 5e-5),
)
def test_the_rows_are_the_least_that_keep_the_tolerance(queries, tolerance, failure, noise, quantisation):
    batch = Batch(queries, noise, quantisation)
    rows = batch.rows(tolerance, failure)
    assert batch.half_widths(rows, failure).tolerance <= tolerance
    assert rows == 1 or batch.half_widths(rows - 1, failure).tolerance > tolerance


def test_an_amplification_scales_each_width():
    plain = Batch(7, GaussianNoise(3.0), 0.01).half_widths(100, 0.1)
    scaled = Batch(7, GaussianNoise(3.0), 0.01, 7, Amplification(2.0, 3.0, 5.0)).half_widths(100, 0.1)
    assert scaled.sampling == pytest.approx(2 * plain.sampling)
    assert scaled.quantisation == pytest.approx(3 * plain.quantisation)
    assert scaled.noise == pytest.approx(5 * plain.noise)
    assert HalfWidths(0.1, 0.2, 0.3).tolerance == pytest.approx(0.6)


@pytest.mark.parametrize("shares", [GaussianShares(5000), LaplaceShares(Fraction(5000), 3)])
def test_noise_by_shares_is_in_units_of_one_record(shares):
    noise = SharedNoise(shares, 4, 10)
    assert noise.deviation == pytest.approx(shares.deviation(4) / 1024)
    assert noise.half_width(9, 0.01) == pytest.approx(shares.half_width(4, 9, 0.01) / 1024)
    assert noise.copies == (4 / 3 if isinstance(shares, LaplaceShares) else math.inf)


def test_planned_noise_spends_the_part_of_the_budget():
    """Pure: the scale is l1 / (part epsilon). With delta: two halves of the squared mu are the whole."""
    assert planned_noise(6, 6, Fraction(2), 0, Fraction(1, 4)) == LaplaceNoise(12.0)
    whole, half = (planned_noise(1, 9, 1.0, 1e-6, part) for part in (1, 0.5))
    assert (3.0 / half.sigma) ** 2 * 2 == pytest.approx((3.0 / whole.sigma) ** 2)
    # delta(1) of the Gaussian mechanism at this sigma, Balle and Wang (2018), Theorem 8.
    mu = 3.0 / whole.sigma
    delta = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
    assert delta == pytest.approx(1e-6, rel=1e-6)


def test_infeasible_arguments_are_refused():
    with pytest.raises(PlanError, match="raise fraction_bits"):
        Batch(3, None, 0.1).rows(0.1, 0.05)
    with pytest.raises(PlanError, match="no number of rows"):
        least_rows(lambda _rows: False)
    for bad in (lambda: Batch(0), lambda: Batch(1, None, -1.0), lambda: Batch(1).half_widths(0, 0.1)):
        with pytest.raises(ConfigurationError):
            bad()
    for tolerance, failure in ((0.0, 0.1), (1.5, 0.1), (0.1, 0.0), (0.1, 1.0), (math.nan, 0.1)):
        with pytest.raises(ConfigurationError):
            Batch(1).rows(tolerance, failure)
    with pytest.raises(ConfigurationError):
        separate_rows(0, 0.1, 0.1)
    for scale in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ConfigurationError):
            LaplaceNoise(scale)
        with pytest.raises(ConfigurationError):
            GaussianNoise(scale)
    with pytest.raises(ConfigurationError):
        GaussianNoise(1.0).half_width(0, 0.1)
    with pytest.raises(ConfigurationError):
        planned_noise(1, 1, 1, 0, Fraction(3, 2))


def test_bisection_finds_every_number_of_rows():
    assert [least_rows(lambda rows, k=k: rows >= k) for k in range(1, 70)] == list(range(1, 70))


@pytest.mark.parametrize("noise", NOISES[1:])
def test_deviations_are_those_of_samples(noise):
    assert draw(noise, 40_000, np.random.default_rng(4)).std() == pytest.approx(noise.deviation, rel=0.03)
