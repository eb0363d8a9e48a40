"""Proportions from noisy counts: the intervals hold, are close to the narrowest, and assume the worst noise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares
from dpcore.errors import ConfigurationError
from dpcore.evaluation.intervals import (
    ANYTHING,
    CellNoise,
    Count,
    Interval,
    binomial_at_most,
    deviations,
    interval_on_distribution,
    interval_on_rows,
    noise_tail,
)
from dpcore.statistics.accuracy import Estimates, SharedNoise

SILENT = CellNoise(0.0)


def laplace_sums_tail(copies, x):
    """P(|N| > x) for `copies` Laplace variables of total variance 1: their sum is normal with a gamma variance."""
    quantiles = (np.arange(50_000) + 0.5) / 50_000
    spread = np.sqrt(special.gammaincinv(copies, quantiles) / copies)
    return np.array([np.mean(2.0 * special.ndtr(-value / spread)) for value in x])


@pytest.mark.slow
@pytest.mark.parametrize("cells", [1, 2, 5])
def test_no_noise_of_the_family_has_a_larger_tail(cells):
    x = np.array([0.05, 0.3, 1.0, 1.5, 1.6, 1.7, 1.8, 2.0, 2.5, 3.5, 5.0])
    bound = noise_tail(cells, x)
    for factor in (1.0, 1.1, 1.2, 1.5, 2.0, 5.0, 50.0):
        assert (laplace_sums_tail(cells * factor, x) <= bound * (1 + 2e-4)).all()
    # The worst of them is reached: a bound that is 1 % lower would not hold.
    worst = np.maximum(laplace_sums_tail(cells, x), 2.0 * special.ndtr(-x))
    assert (worst > 0.99 * bound).all()


def test_deviations_invert_the_tail():
    failures = np.array([0.3, 0.05, 1e-4, 1e-9])
    for cells in (1, 3, 20):
        found = deviations(cells, failures)
        assert (noise_tail(cells, found) <= failures).all()
        assert (noise_tail(cells, found - 1e-6) > failures).all()


def discrete_laplace(scale, copies):
    """The exact distribution of a sum of discrete Laplace variables: (values, masses)."""
    reach = int(60 * scale) + 20
    q = math.exp(-1 / scale)
    one = (1 - q) / (1 + q) * q ** np.abs(np.arange(-reach, reach + 1))
    distribution = one
    for _ in range(copies - 1):
        distribution = np.convolve(distribution, one)
    return np.arange(len(distribution)) - len(distribution) // 2, distribution


@pytest.mark.parametrize("scale", [0.1, 0.3, 0.7, 1.0, 2.0, 8.0, 40.0])
@pytest.mark.parametrize("cells", [1, 2, 6])
def test_half_widths_hold_for_noise_on_whole_rows(scale, cells):
    values, masses = discrete_laplace(scale, cells)
    deviation = 1 / (math.sqrt(2) * math.sinh(1 / (2 * scale)))
    for failure in (0.1, 0.025, 1e-3, 1e-5):
        width = CellNoise(deviation).half_width(cells, failure)
        assert masses[np.abs(values) > width].sum() <= failure
        if scale >= 8:
            assert masses[np.abs(values) > 0.7 * width].sum() > failure


@pytest.mark.parametrize("sigma", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("cells", [1, 6])
def test_half_widths_hold_for_noise_that_is_known_to_be_normal(sigma, cells):
    total = sigma * math.sqrt(cells)
    values = np.arange(-math.ceil(9 * total), math.ceil(9 * total) + 1)
    masses = np.exp(-((values / total) ** 2) / 2)
    masses /= masses.sum()
    for failure in (0.1, 0.025, 1e-3, 1e-5):
        width = CellNoise(sigma, math.inf).half_width(cells, failure)
        assert masses[np.abs(values) > width].sum() <= failure
        of_either = CellNoise(sigma).half_width(cells, failure)
        assert width < of_either or (width == of_either and failure > 0.01)
        if sigma >= 40:
            assert width == pytest.approx(-total * special.ndtri(failure / 2), rel=0.04)


def test_more_laplace_variables_are_closer_to_normal():
    distribution = [CellNoise(20.0, copies).half_width(3, 1e-4) for copies in (1, 4 / 3, 2, 9, math.inf)]
    assert distribution == sorted(distribution, reverse=True)
    # Three cells of 4/3 are at least four.
    assert distribution[1] == CellNoise(20.0 * math.sqrt(3 / 4)).half_width(4, 1e-4) + math.sqrt(3) - 2
    assert distribution[1] < distribution[0]


@pytest.mark.parametrize(
    ("shares", "copies"), [(GaussianShares(40), math.inf), (LaplaceShares(Fraction(30), 3), 4 / 3), (None, 1.0)]
)
def test_the_noise_on_cells_has_the_distribution_that_estimates_state(shares, copies):
    distribution = None if shares is None else SharedNoise(shares, 4, 2)
    deviation = 7.0 if distribution is None else distribution.deviation
    estimates = Estimates(np.array([0.5]), 100, 0.95, 0.1, 0.0, 0.1, deviation / 100, distribution)
    noise = CellNoise.of(estimates)
    assert noise.deviation == pytest.approx(deviation)
    assert noise.copies == pytest.approx(copies)


@given(st.integers(0, 60), st.integers(1, 60), st.sampled_from([0.01, 0.05, 0.3]))
def test_without_noise_the_interval_is_clopper_and_pearsons(a, b, failure):
    found = interval_on_distribution(Count(a, 1), Count(b, 1), SILENT, failure, a + b)
    exact = stats.binomtest(a, a + b).proportion_ci(1 - failure, method="exact")
    assert found.lower == pytest.approx(exact.low, abs=1e-6)
    assert found.upper == pytest.approx(exact.high, abs=1e-6)
    share = a / (a + b)
    on_rows = interval_on_rows(Count(a, 1), Count(b, 1), SILENT, failure)
    assert (on_rows.lower, on_rows.upper) == pytest.approx((share, share), abs=1e-9)


@given(st.floats(0.001, 0.999), st.integers(1, 400), st.floats(-1.0, 400.0))
def test_the_binomial_bound_is_above_the_exact_tail(e, rows, y):
    bound = float(binomial_at_most(np.array([y]), float(rows), e)[0])
    assert bound >= stats.binom.cdf(math.floor(y), rows, e) - 1e-9
    if y == math.floor(y) and 0 <= y < rows:
        assert bound == pytest.approx(stats.binom.cdf(y, rows, e), abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [0.5, 10.0, 300.0])
@pytest.mark.parametrize("e", [0.001, 0.1, 0.5, 0.99])
def test_no_number_of_rows_in_between_has_a_larger_probability(deviation, e):
    levels, weights = CellNoise(deviation).above(1)
    for most in (10, 1000, 20_000):
        for least in (1, most // 2):
            for far in (1.5, 2.5, 4.0):
                observed = -far * math.hypot(math.sqrt(most * e * (1 - e)), deviation)
                rows = np.unique(np.geomspace(least, most, 25).astype(int))
                chances = np.array([weights @ binomial_at_most(observed + e * t + levels, float(t), e) for t in rows])
                # The effect of moving the levels up: the next level's probability is lower by this factor.
                assert chances.max() <= 1.02 * max(chances[0], chances[-1])


def noisy(generator, deviation, cells, laplace):
    draw = generator.laplace(0, deviation / math.sqrt(2), cells) if laplace else generator.normal(0, deviation, cells)
    return float(np.rint(draw).sum())


REGIMES = [
    (0.5, 200, 2.0, 1, 6),
    *(
        pytest.param(*regime, marks=pytest.mark.slow)
        for regime in [(0.2, 500, 30.0, 1, 1), (0.02, 2000, 6.0, 2, 2), (0.9, 3000, 80.0, 3, 2)]
    ),
]


@pytest.mark.more
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("truth", "rows", "deviation", "a_cells", "b_cells"), REGIMES)
def test_intervals_have_the_stated_coverage(truth, rows, deviation, a_cells, b_cells, known):
    """known: the noise is known to be normal; else normal and Laplace noise alternate."""
    generator = np.random.default_rng(17)
    copies = math.inf if known else 1.0
    noise, failure, runs = CellNoise(deviation, copies), 0.1, 60
    missed_rows = missed_distribution = missed_understated = 0
    for run in range(runs):
        laplace = run % 2 == 0 and not known
        hits = generator.binomial(rows, truth)
        a = Count(hits + noisy(generator, deviation, a_cells, laplace), a_cells)
        b = Count(rows - hits + noisy(generator, deviation, b_cells, laplace), b_cells)
        missed_rows += hits / rows not in interval_on_rows(a, b, noise, failure)
        missed_distribution += truth not in interval_on_distribution(a, b, noise, failure, rows)
        understated = interval_on_rows(a, b, CellNoise(deviation * 0.4, copies), failure)
        missed_understated += hits / rows not in understated
    # Beyond this with probability 1e-4 at the stated rate.
    most = stats.binom.isf(1e-4, runs, failure)
    assert missed_rows <= most
    assert missed_distribution <= most
    if deviation > 2:
        assert missed_understated > most


@pytest.mark.parametrize(("truth", "rows", "deviation", "a_cells", "b_cells"), REGIMES)
def test_intervals_are_near_the_ideal_width(truth, rows, deviation, a_cells, b_cells):
    a, b = Count(truth * rows, a_cells), Count((1 - truth) * rows, b_cells)
    spread = math.hypot((1 - truth) * math.sqrt(a_cells), truth * math.sqrt(b_cells)) * deviation / rows
    sampling = math.sqrt(truth * (1 - truth) / rows)
    ideal_rows = 2 * 1.96 * spread
    ideal = 2 * 1.96 * math.hypot(spread, sampling)
    on_rows = interval_on_rows(a, b, CellNoise(deviation), 0.05)
    on_distribution = interval_on_distribution(a, b, CellNoise(deviation), 0.05, 2 * rows)
    assert 0.9 < on_rows.width / ideal_rows < 1.6 or deviation < 5
    assert 0.9 < on_distribution.width / ideal < 1.6


def test_a_proportion_of_nothing_is_unknown():
    for a, b in ((0.0, 0.0), (-3.0, 1.0), (5.0, -5.0)):
        assert interval_on_rows(Count(a, 1), Count(b, 1), CellNoise(4.0), 0.05) == ANYTHING
        assert interval_on_distribution(Count(a, 1), Count(b, 1), CellNoise(4.0), 0.05, 100) == ANYTHING
    assert interval_on_rows(Count(10.0, 1), Count(3.0, 1), CellNoise(100.0), 0.05) == ANYTHING


def test_more_noise_never_narrows():
    counts = Count(300.0, 2), Count(700.0, 2)
    widths = [
        interval_on_distribution(*counts, CellNoise(deviation), 0.05, 1000).width for deviation in (0, 1, 5, 20, 100)
    ]
    assert widths == sorted(widths)


@pytest.mark.parametrize("deviation", [-1.0, math.nan, math.inf])
def test_impossible_noise_is_refused(deviation):
    with pytest.raises(ConfigurationError, match="deviation"):
        CellNoise(deviation)
    with pytest.raises(ConfigurationError, match="Laplace"):
        CellNoise(1.0, math.nan if math.isnan(deviation) else 0.9)


def test_invalid_intervals_are_refused():
    for ends in ((0.5, 0.4), (-0.1, 0.5), (0.5, 1.1), (math.nan, 1.0)):
        with pytest.raises(ConfigurationError, match="no interval"):
            Interval(*ends)
    with pytest.raises(ConfigurationError, match="failure"):
        interval_on_rows(Count(1.0, 1), Count(1.0, 1), CellNoise(1.0), 1.0)
