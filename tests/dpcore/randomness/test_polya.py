"""Polya samples: the exact distribution of pieces and coins, shares that sum to discrete Laplace, and refusals."""

import math
from fractions import Fraction

import gmpy2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import PlanError
from dpcore.randomness import noise
from dpcore.randomness.noise import LARGEST_SCALE, SMALLEST_SCALE, laplace_share, negative_binomial
from dpcore.randomness.sources import SeededRandom

CASES = [
    (SMALLEST_SCALE, 1),
    (Fraction(1, 3), 2),
    (Fraction(1), 1),
    (Fraction(1), 5),
    (Fraction(7, 2), 3),
    (Fraction(40), 1),
    (Fraction(1000, 7), 64),
    (Fraction(50), 1 << 16),
]


def weights(shares: int, count: int) -> list[Fraction]:
    """C(k + r - 1, k) for k below `count`, by the ratio of neighbours."""
    found = [Fraction(1)]
    for k in range(count - 1):
        found.append(found[-1] * (k * shares + 1) / ((k + 1) * shares))
    return found


def masses(scale: Fraction, shares: int, count: int) -> np.ndarray:
    """NB(1/shares, exp(-1/scale)) at 0, ..., count - 1."""
    k = np.arange(count - 1)
    ratios = math.exp(-1 / scale) * (k + 1 / shares) / (k + 1)
    return (-math.expm1(-1 / scale)) ** (1 / shares) * np.concatenate([np.ones(1), np.cumprod(ratios)])


@pytest.mark.parametrize("shares", [1, 2, 3, 64, 1 << 16])
def test_bounds_of_log_weights_bracket_them_closely(shares):
    for k, weight in enumerate(weights(shares, 140)):
        low, high = noise._log_weight(k, shares, 100)
        with gmpy2.context(precision=300):
            exact = noise.rational(gmpy2.log(gmpy2.mpfr(gmpy2.mpq(weight))))
        assert low <= exact + Fraction(1, 2**250)
        assert exact <= high + Fraction(1, 2**250)
        assert high - low <= Fraction(1, 2**100)


@given(st.integers(65, 1 << 47), st.integers(1, 1 << 16))
def test_log_weights_far_out_follow_the_ratio_of_neighbours(k, shares):
    here, there = (noise._log_weight(k + step, shares, 150) for step in (0, 1))
    with gmpy2.context(precision=300):
        exact = noise.rational(gmpy2.log(gmpy2.mpfr(gmpy2.mpq(k * shares + 1, (k + 1) * shares))))
    assert there[0] - here[1] <= exact <= there[1] - here[0]
    assert here[1] - here[0] <= Fraction(1, 2**150)


@pytest.mark.parametrize("shares", [1, 2, 7, 1000, 1 << 16])
def test_log_weights_in_double_precision_stay_within_the_tolerance(shares):
    pieces = noise._Pieces(Fraction(LARGEST_SCALE), shares)
    k = np.array([0, 1, 5, 30, 31, 32, 33, 40, 100, 1000, 10**6, 3**25, 3**29, (1 << 47) + 1])
    for value, rounded in zip(k, pieces.log_weight(k), strict=True):
        exact = noise._log_weight(int(value), shares, 100)[0]
        assert abs(Fraction(float(rounded)) - exact) < 2.0**-45
    for i, rounded in enumerate(pieces.first_log_weights):
        assert abs(Fraction(float(rounded)) - noise._log_weight(1 << i, shares, 100)[0]) < 2.0**-45


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "shares"), CASES)
def test_kept_candidates_have_the_negative_binomial_distribution(scale, shares):
    """Without sampling: P(candidate is k and kept) / P(candidate is 0 and kept) is w(k) q^k."""
    pieces = noise._Pieces(scale, shares)
    totals = [float(low) for low, _ in pieces._totals(80)]
    assert all(0 <= high - low <= high / 2**70 for low, high in pieces._totals(80))
    n, fall = 1 << pieces.depth, math.exp(-pieces.run)
    assert n >= scale
    assert n == 1 or n / 2 < scale
    for k, weight in enumerate(weights(shares, 300)[1:], start=1):
        exponent = min(k.bit_length() - 1, pieces.depth)
        low, run = (k - n) % n if exponent == pieces.depth else k - (1 << exponent), 0
        proposed = totals[exponent + 1] / (1 << exponent)
        if exponent == pieces.depth:
            run = (k - n) // n
            proposed *= (1 - fall) * fall**run
        accepted = sum(noise._acceptance(pieces, k, 1 << exponent, low, 80)) / 2**81
        assert accepted <= 1 + 1e-15
        expected = float(weight) * math.exp(-k / scale)
        assert proposed * accepted == pytest.approx(expected, rel=1e-11, abs=1e-290)


@pytest.mark.parametrize(("scale", "shares"), CASES)
def test_bounds_of_the_choice_are_those_of_the_totals(scale, shares):
    pieces = noise._Pieces(scale, shares)
    totals = np.array([float(low) for low, _ in pieces._totals(80)])
    chances = np.cumsum(totals)[:-1] / totals.sum()
    for (low, high), chance in zip(pieces.bounds(100), chances, strict=True):
        assert 0 <= high - low <= 4
        assert low / 2**100 == pytest.approx(chance, rel=1e-13)


@pytest.mark.parametrize(("scale", "shares"), [*CASES[:6], (Fraction(LARGEST_SCALE), 3), (Fraction(10**9, 7), 100)])
def test_double_precision_decides_as_exact_arithmetic_does(monkeypatch, scale, shares):
    fast = negative_binomial(scale, shares, 150, SeededRandom(shares))
    monkeypatch.setattr(noise, "TOLERANCE", math.inf)
    monkeypatch.setattr(noise._Pieces, "log_weight", lambda self, k: np.full(len(k), -5.0))
    assert np.array_equal(negative_binomial(scale, shares, 150, SeededRandom(shares)), fast)


@pytest.mark.more
def test_an_undecided_choice_is_located_exactly():
    for scale, shares in CASES:
        fast = noise._Pieces(scale, shares).choose(100, SeededRandom(5))
        slow = noise._Pieces(scale, shares)
        ends = len(slow.bounds(64))
        # Thresholds that leave every choice undecided.
        slow.__dict__["thresholds"] = (np.zeros(ends, np.uint64), np.full(ends, 2**64 - 1, np.uint64))
        assert np.array_equal(slow.choose(100, SeededRandom(5)), fast)


def test_a_choice_on_a_threshold_draws_more_bits():
    pieces = noise._Pieces(Fraction(7, 2), 3)
    for j, (low, _) in enumerate(pieces.bounds(128)):
        word, further = divmod(low, 1 << 64)

        class Next(SeededRandom):
            more = further

            def bits(self, count: int) -> int:
                return self.more

        source = Next(0)
        for step, piece in ((-9, j), (9, j + 1)):
            source.more = further + step
            assert pieces._locate(word, source) == piece
        # The vectorised choice gives the same piece for this word.
        assert pieces._locate(word - 1, source) == j
        assert pieces._locate(word + 1, source) == j + 1
        lows, highs = pieces.thresholds
        assert int(lows[j]) <= word <= int(highs[j])


def test_the_last_threshold_may_be_one():
    """At scale 1/64 the tail has mass e^-64 / (1 - e^-64), below 2^-64: a word of ones does not decide."""
    pieces = noise._Pieces(SMALLEST_SCALE, 1)
    assert int(pieces.thresholds[1][0]) == 2**64 - 1

    class Ones(SeededRandom):
        left = 2

        def bytes(self, count: int) -> bytes:
            return b"\xff" * count

        def bits(self, count: int) -> int:
            self.left -= 1
            return 2**64 - 1

    source = Ones(0)
    assert pieces.choose(1, source).tolist() == [1]
    assert source.left < 2


@pytest.mark.parametrize(("scale", "shares"), [(Fraction(1, 2), 2), (Fraction(3), 3), (Fraction(5, 2), 7)])
def test_shares_sum_to_a_geometric_and_differ_by_a_discrete_laplace_distribution(scale, shares):
    """By convolution of the masses of `_log_weight`."""
    count, q = 200, math.exp(-1 / scale)
    share = masses(scale, shares, count)
    for k in (0, 1, 2, 30, 150):
        weight = float(noise._log_weight(k, shares, 64)[0]) - k / float(scale)
        assert share[k] == pytest.approx(math.exp(weight) * (1 - q) ** (1 / shares), rel=1e-12)
    total = np.ones(1)
    for _ in range(shares):
        total = np.convolve(total, share)[:count]
    assert total == pytest.approx((1 - q) * q ** np.arange(count), rel=1e-10)
    difference = np.correlate(total, total, "full")[count - 1 - 60 : count + 60]
    x = np.abs(np.arange(-60, 61))
    assert difference == pytest.approx((1 - q) / (1 + q) * q**x, rel=1e-9)
    # With one share more or less the distribution is different.
    more = np.convolve(total, share)[:count]
    assert np.abs(more - (1 - q) * q ** np.arange(count)).max() > 0.03


def test_one_share_is_geometric():
    """w(k) = 1: every candidate below the tail is kept with probability exp(-low/t)."""
    low, high = noise._log_weight(12345, 1, 64)
    assert low <= 0 <= high
    pieces = noise._Pieces(Fraction(100), 1)
    assert np.abs(pieces.log_weight(np.arange(1000))).max() < 1e-16


def test_a_share_is_the_difference_of_two_samples():
    drawn = negative_binomial(Fraction(9, 2), 3, 200, SeededRandom(8))
    assert np.array_equal(laplace_share(Fraction(9, 2), 3, 100, SeededRandom(8)), drawn[:100] - drawn[100:])


def test_samples_are_the_same_everywhere():
    """Pinned: the same bytes give the same samples on every machine and in every later version."""
    assert laplace_share(Fraction(20), 1, 8, SeededRandom(1)).tolist() == [9, 38, -45, 5, -27, -1, 16, 18]
    assert laplace_share(Fraction(10**9, 3), 4, 4, SeededRandom(2)).tolist() == [1889894, 56932269, -52106, 2190085]
    assert negative_binomial(Fraction(LARGEST_SCALE), 1, 3, SeededRandom(3)).tolist() == [
        1545754965023,
        676997359537,
        37022859788,
    ]


def test_any_number_of_samples_can_be_drawn():
    assert negative_binomial(Fraction(5), 2, 0, SeededRandom(1)).shape == (0,)
    many = laplace_share(Fraction(5), 2, 3 * noise._POLYA_BATCH, SeededRandom(1))
    assert many.shape == (3 * noise._POLYA_BATCH,)
    assert many.dtype == np.int64
    assert np.array_equal(many, laplace_share(Fraction(5), 2, 3 * noise._POLYA_BATCH, SeededRandom(1)))


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), 3, 2.5, Fraction(1, 65), Fraction((1 << 40) + 1), "3"])
def test_scales_that_cannot_be_sampled_are_refused(scale):
    with pytest.raises(PlanError, match="scale is"):
        negative_binomial(scale, 1, 1, SeededRandom(1))


@pytest.mark.parametrize("shares", [0, -1, 2.0, True, (1 << 16) + 1])
def test_shares_that_cannot_be_sampled_are_refused(shares):
    with pytest.raises(PlanError, match="from 1 to 2"):
        negative_binomial(Fraction(3), shares, 1, SeededRandom(1))


def test_scales_of_many_bits_are_refused():
    with pytest.raises(PlanError, match="63 bits"):
        negative_binomial(Fraction(1 << 63, (1 << 62) + 1), 1, 1, SeededRandom(1))
    assert negative_binomial(Fraction((1 << 63) - 1, 1 << 62), 1, 1, SeededRandom(1)).shape == (1,)
