"""The noise shares that parties add to every value of a total; their sum has a known distribution.

- Gaussian: shares N_Z(0, s^2).
- Laplace: shares whose sum over h parties is discrete Laplace of scale t, P(x) proportional to exp(-|x|/t), on every
  integer: (Delta/t, 0)-private for an L1 sensitivity Delta. More than h shares are post-processing.

A share is for the smallest cohort that a query admits, or for the one that answers (dpcore.accounting.cohorts).
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.gaussian import ShiftDistribution, WeakNoiseError, shift_distribution, subsampled_mu
from dpcore.errors import PlanError
from dpcore.numbers.distributions import quantile
from dpcore.randomness.noise import (
    LARGEST_SCALE,
    LARGEST_SIGMA,
    SMALLEST_SCALE,
    SMALLEST_SHARE_SIGMA,
    check_scale,
    check_share,
    discrete_gaussian,
    laplace_share,
    tail_bound,
    tail_of_variance,
)
from dpcore.randomness.sources import RandomSource
from dpcore.records.clipping import Clip
from dpcore.records.losses import WEIGHT_BITS, clip_squared

# L2 sensitivities of sums under replacing one record, in the integer units that are sent, for clipped integer vectors.
# Squared ones are exact rationals; a root is rounded up.


SQUARE_WEIGHT, PRODUCT_WEIGHT = 5, 7
"""Integer weights of x_j^2 and of x_j x_k, j < k, in a `moments` contribution: 7/5 is just below sqrt(2)."""


def edge_squared(clip: Clip, fraction_bits: int) -> int:
    """Max |e - e'|^2 = 4 S over vectors with |e|^2, |e'|^2 <= S, by the triangle inequality; reached at e' = -e."""
    return 4 * clip.squared_units(fraction_bits)


def secret_coin_squared(clip: Clip, fraction_bits: int) -> int:
    """S = R^2 4^fraction_bits: a fair secret coin on v or nothing, |v|^2 <= S, costs at most a shift by sqrt(S).

    v / 2 + (coin) v / 2: opposite v are the farthest, and the coins then are noise on a shift from -v / 2 to v / 2.
    Proof: docs/explanation/proofs.md, "Secret coins".
    """
    return clip.squared_units(fraction_bits)


def joint_squared(squared_range: int, fraction_bits: int) -> int:
    """Max |e - e'|^2 where only one source column's coordinates differ, codings at most squared_range apart.

    |y x - y x'| = |x - x'|; 0, 1 and -1 are exact, and truncation keeps a real feature within [-2^f, 2^f].
    """
    return squared_range << 2 * fraction_bits


def moments_squared(clip: Clip, fraction_bits: int, edge_multiplier: int) -> Fraction:
    """An upper bound of max |v - v'|^2 for a record's `moments` vector v.

    v holds k e (k = edge_multiplier), 5 x_j^2, and 7 x_j x_k for j < k. Let F = e e^T.

    As 7^2 <= 2 * 5^2, the products' part of the distance is at most 25 |F - F'|^2 in the Frobenius norm, which has
    every off-diagonal entry twice. v leaves out the square of the bias, which can only lower the distance.

    With |e|^2, |e'|^2 <= S and c = e . e', |F - F'|^2 = |e|^4 + |e'|^4 - 2 c^2, so

        |v - v'|^2 <= k^2 (2 S - 2 c) + 25 (2 S^2 - 2 c^2),   -S <= c <= S.

    The right side is concave in c, with its maximum at c = -k^2 / 50, or at c = -S if -k^2 / 50 < -S.
    """
    longest = clip.squared_units(fraction_bits)
    square = edge_multiplier**2
    c = max(Fraction(-square, 50), Fraction(-longest))
    return square * (2 * longest - 2 * c) + SQUARE_WEIGHT**2 * (2 * longest**2 - 2 * c * c)


def class_moments_squared(clip: Clip, fraction_bits: int, edge_multiplier: int) -> Fraction:
    """An upper bound of max |v - v'|^2 for a record's vector v with a sum for each class: that of `moments_squared`.

    v holds k x in the place of the record's class, zeros in those of the others, and the products of x as there. For
    two records of one class the distance is that of `moments_squared`, x in place of e.

    For two classes, the parts of the sums do not overlap: k^2 (|x|^2 + |x'|^2) + 25 |F - F'|^2 <= k^2 2 S + 50 S^2, the
    right side of `moments_squared` at c = 0, which is no more than its maximum.

    With products of each class those of x too stand in the place of its class. For one class nothing changes. For two,
    no parts overlap: |v|^2 + |v'|^2, each as in `moments_squared_alone`, is at most the same k^2 2 S + 50 S^2.
    """
    return moments_squared(clip, fraction_bits, edge_multiplier)


def class_moments_alone(clip: Clip, fraction_bits: int, edge_multiplier: int) -> int:
    """An upper bound of max |v|^2 for such a v: beside zeros it is a record's `moments` vector, x in place of e."""
    return moments_squared_alone(clip, fraction_bits, edge_multiplier)


def square_weight(label_multiplier: int) -> int:
    """The integer weight w of a label's square in moments of numbers: the largest with 10 w <= k^2."""
    return label_multiplier**2 // 10


def number_moments_squared(clip: Clip, fraction_bits: int, label_multiplier: int) -> Fraction:
    """An upper bound of max |v - v'|^2 for a record's vector v with the moments of a number t, |t| <= 1.

    v holds k 2^f t x (k = label_multiplier), w 4^f t^2 with 10 w <= k^2, and the products of x as in `moments_squared`.

    Let a^2 = k^2 4^f / 50, z = (x, a t) and Z = z z^T, whose Frobenius distance is

        |Z - Z'|^2 = |F - F'|^2 + 2 a^2 |t x - t' x'|^2 + a^4 (t^2 - t'^2)^2.

    25 times each term bounds that of v: the products' as in `moments_squared`, 50 a^2 = (k 2^f)^2, and (w 4^f)^2 <= 25
    a^4. As |z|^2 <= S + a^2,

        |v - v'|^2 <= 25 |Z - Z'|^2 = 25 (|z|^4 + |z'|^4 - 2 (z . z')^2) <= 50 (S + a^2)^2.

    Where a^2 <= S that is `moments_squared` for edges of the weight k 2^f: the squares cost nothing.
    """
    return 2 * number_moments_alone(clip, fraction_bits, label_multiplier)


def number_moments_alone(clip: Clip, fraction_bits: int, label_multiplier: int) -> Fraction:
    """An upper bound of max |v|^2 for such a v, in the notation of `number_moments_squared`.

    As there, |v|^2 <= 25 |Z|^2 = 25 |z|^4 <= 25 (S + a^2)^2.
    """
    along = Fraction(label_multiplier**2 << 2 * fraction_bits, 50)
    return SQUARE_WEIGHT**2 * (clip.squared_units(fraction_bits) + along) ** 2


def moments_squared_alone(clip: Clip, fraction_bits: int, edge_multiplier: int) -> int:
    """An upper bound of max |v|^2 for a record's `moments` vector v, by which a record that leaves moves the sum.

    As 7^2 <= 2 * 5^2, |v|^2 <= k^2 |e|^2 + 25 |e|^4 <= k^2 S + 25 S^2, in the notation of `moments_squared`.
    """
    longest = clip.squared_units(fraction_bits)
    return edge_multiplier**2 * longest + SQUARE_WEIGHT**2 * longest**2


def gradient_squared(clip: Fraction, fraction_bits: int, weight_bits: int = WEIGHT_BITS) -> int:
    """Max |v - v'|^2 = 4 S over integer gradients v with |v|^2 <= S = floor(C^2 4^(f + weight_bits))."""
    return 4 * clip_squared(clip, fraction_bits, weight_bits)


def root_up(value: Fraction | int) -> float:
    """The root of an exact positive number, rounded up."""
    squared = Fraction(value)
    # Scale by an even power of two, so that the root has all the bits of a double at any size.
    shift = 2 * max(0, 64 + (squared.denominator.bit_length() - squared.numerator.bit_length()) // 2)
    root = math.isqrt(math.ceil(squared * (1 << shift))) + 1
    return math.nextafter(math.ldexp(float(root), -shift // 2), math.inf)


# Integer noise counted as Gaussian noise: the sum of N independent shares N_Z(0, s^2), s >= 3 an integer.
#
# With tau_r = 2 sum_{j >= 1} exp(-2 pi^2 r^2 j^2), r_j^2 = s^2 j / (j + 1), rho = 2 and
#
#     lambda = -sum_{j < N} log(1 - tau_{r_j}) - log(1 - tau_rho) + N log(1 + tau_s),
#
# if noise N(0, s^2 N - rho^2) is (epsilon, delta)-private, the integer one over D coordinates is (epsilon + 2 D lambda,
# delta e^(D lambda))-private (after Kairouz, Liu and Steinke, ICML 2021). Proof: docs/explanation/proofs.md, "Integer
# noise".
#
# For M independent N_Z(0, s_i^2) of unequal s_i >= m >= 3, such as shares and top-ups, with sigma^2 the sum of s_i^2:
#
#     lambda = -(M - 1) log(1 - tau_(m / root 2)) - log(1 - tau_rho) + M log(1 + tau_m).


ROUNDING_VARIANCE = 4
"""rho^2, in squared integer units."""


@dataclass(frozen=True)
class IntegerNoise:
    """The noise on each coordinate of a total: `shares` independent N_Z(0, share_sigma^2). Raises PlanError."""

    share_sigma: int
    """s, integer units."""
    shares: int
    """N, of the parties that add one and keep it secret."""
    coordinates: int
    """D, the number of a record's values that get noise, over all rados."""
    top_up: int = 0
    """b, of a second, independent sample that each of these parties adds; 0 for none."""
    unequal: int = 0
    """If not 0, the noise is any sum of at most so many independent samples of deviation 3 or more, with a variance of
    N s^2 or more: less noise cannot cost less."""

    def __post_init__(self) -> None:
        if self.top_up:
            check_share(self.top_up)
        if not SMALLEST_SHARE_SIGMA <= self.share_sigma <= LARGEST_SIGMA:
            raise PlanError(
                f"a share's standard deviation is {self.share_sigma} units: it must be from {SMALLEST_SHARE_SIGMA} "
                "to 2^48; raise or lower fraction_bits"
            )
        if self.shares < 1:
            raise PlanError(f"{self.shares} shares of noise: give at least one")
        if self.coordinates < 1:
            raise PlanError(f"{self.coordinates} noised coordinates: give at least one")

    @property
    def variance(self) -> int:
        """N (s^2 + b^2), close to the noise's variance: a discrete Gaussian's is below s^2, by far less than 1."""
        return self.shares * (self.share_sigma**2 + self.top_up**2)

    @property
    def sigma(self) -> float:
        """Its root: the noise's standard deviation, in integer units."""
        return math.sqrt(self.variance)

    @property
    def slack(self) -> float:
        """D lambda, rounded up."""
        if self.unequal:
            return self.coordinates * unequal_log_ratio(SMALLEST_SHARE_SIGMA, self.unequal, ROUNDING_VARIANCE)
        if self.top_up:
            least = min(self.share_sigma, self.top_up)
            return self.coordinates * unequal_log_ratio(least, 2 * self.shares, ROUNDING_VARIANCE)
        return self.coordinates * log_ratio(self.share_sigma, self.shares, ROUNDING_VARIANCE)

    def mu(self, squared_sensitivity: Fraction | int) -> float:
        """Delta / sigma of the continuous noise that this noise is counted as, rounded up; Delta^2 in squared units."""
        if squared_sensitivity <= 0:
            raise PlanError("the squared sensitivity is not positive: leave out the noise where a record moves nothing")
        return root_up(Fraction(squared_sensitivity) / (self.variance - ROUNDING_VARIANCE))

    def distribution(
        self, squared_sensitivity: Fraction | int, n: int = 1, p: Fraction | float = 1
    ) -> ShiftDistribution:
        """The squared shift of n rados with this noise, which a record enters each by a coin of probability p.

        squared_sensitivity: Delta^2 of one rado; `coordinates` counts the values of all n. Raises PlanError.
        """
        return shift_distribution(self.mu(squared_sensitivity), n, p, self.slack)


def log_ratio(share_sigma: float, shares: int, rounding_variance: float) -> float:
    """The lambda of one coordinate, rounded up; inf without a proved bound. j > 64 counts as j = 64."""
    square = share_sigma * share_sigma
    direct = min(shares - 1, 64)
    terms = [_tau(square * j / (j + 1)) for j in range(1, direct + 1)]
    rest = shares - 1 - direct
    falls = [*terms, _tau(rounding_variance)]
    if max(falls) >= 1:
        return math.inf
    total = math.fsum(-math.log1p(-tau) for tau in falls) + shares * math.log1p(_tau(square))
    if rest:
        total -= rest * math.log1p(-terms[-1])
    return total * (1 + 1e-9)


def unequal_log_ratio(least_sigma: int, samples: int, rounding_variance: float) -> float:
    """The lambda of one coordinate for so many samples of deviation `least_sigma` or more, rounded up.

    In any order of adding them, r^2 = v^2 s^2 / (v^2 + s^2) >= m^2 / 2, as both variances are m^2 or more.
    """
    square = float(least_sigma) ** 2
    falls, rise = _tau(square / 2), _tau(square)
    total = -(samples - 1) * math.log1p(-falls) - math.log1p(-_tau(rounding_variance)) + samples * math.log1p(rise)
    return total * (1 + 1e-9)


def smallest_share(
    squared_sensitivity: Fraction | int,
    shares: int,
    coordinates: int,
    epsilon: Fraction | float,
    delta: Fraction | float,
    n: int = 1,
    p: Fraction | float = 1,
) -> int:
    """The least integer share at which `shares` parties' noise keeps n rados within (epsilon, delta), up to 1e-12.

    Raises PlanError, also if it would be beyond 2^48.
    """
    mu = subsampled_mu(n, p, epsilon, delta)
    variance = Fraction(squared_sensitivity) / Fraction(mu) ** 2 + ROUNDING_VARIANCE
    share = max(SMALLEST_SHARE_SIGMA, math.isqrt(math.ceil(variance / shares)))
    # The root was rounded down without the slack, so a few steps up suffice; each is checked as it will be stated.
    # Steps grow, because an epsilon close to 0 has a larger relative error.
    step = max(1, share >> 44)
    while not _within(IntegerNoise(share, shares, coordinates).distribution(squared_sensitivity, n, p), epsilon, delta):
        share, step = share + step, 2 * step
    return share


def _within(distribution: ShiftDistribution, epsilon: Fraction | float, delta: Fraction | float) -> bool:
    try:
        return distribution.epsilon(delta).upper <= epsilon
    except WeakNoiseError:
        return False


def _tau(square: float) -> float:
    """2 sum_{j >= 1} exp(-2 pi^2 r^2 j^2) for r^2 = square, to rounding: terms fall faster than a geometric series."""
    first = math.exp(-2 * math.pi**2 * square)
    if first >= 1:
        return math.inf
    return 2 * math.fsum(first ** (j * j) for j in range(1, 40))


_LOG_TAIL = 64 * math.log(2)
# The rounding error of a few dozen operations on logarithms is far below this share of a bound.
_MARGIN = 1e-9
# Far above the error of the logarithms of Chernoff's bound: each is below 2^7 in magnitude and right to 2^-44.
_LOG_ERROR = 2.0**-40
# s t, at which Chernoff's bound is evaluated; each one gives a valid bound.
_ORDERS = 1 / (1 + np.exp(-np.linspace(-30, 30, 1201)))
# Beyond this, the distribution's own tail is too small for double precision.
_LARGEST_ODDS = math.log(1e9)
# A scale that needs more than 63 bits is rounded up to a multiple of this.
_STEP = Fraction(1, 1 << 20)


@dataclass(frozen=True)
class GaussianShares:
    """Each party's share is N_Z(0, share_sigma^2); share_sigma in integer units. Raises PlanError."""

    share_sigma: int
    cohorts: Cohorts | None = None
    """If given, share_sigma is that of the smallest one, and every cohort's noise is what it needs."""

    def __post_init__(self) -> None:
        check_share(self.share_sigma)

    def draw(self, count: int, random: RandomSource) -> NDArray[np.int64]:
        """One party's shares of `count` values, for the largest cohort if there are `cohorts`: int64 (count,)."""
        first = self.share_sigma if self.cohorts is None else self.cohorts.first_share(self.share_sigma)
        return discrete_gaussian(first, count, random)

    def draw_top_up(self, parties: int, count: int, random: RandomSource) -> NDArray[np.int64] | None:
        """What it adds to them in a cohort of so many parties: int64 (count,); None if nothing. Raises PlanError."""
        more = 0 if self.cohorts is None else self.cohorts.top_up(self.share_sigma, parties)
        return discrete_gaussian(more, count, random) if more else None

    def tail_bound(self, parties: int, values: int) -> int:
        """A magnitude that any of `values` totals exceeds with a probability of at most 2^-64 overall.

        With `cohorts` in each of them; parties: those of the largest one.
        """
        _check_counts(parties, values)
        if self.cohorts is None:
            return tail_bound(self.share_sigma, parties, values)
        return tail_of_variance(self.cohorts.most_variance(self.share_sigma), values)

    def deviation(self, parties: int) -> float:
        """The total's standard deviation, integer units: a share's variance is s^2 up to a relative 2^-200."""
        _check_counts(parties, 1)
        if self.cohorts is None:
            return self.share_sigma * math.sqrt(parties)
        return math.sqrt(self.variance(parties))

    def variance(self, parties: int) -> int:
        """Its square, the sum of the samples' parameters."""
        if self.cohorts is None:
            return parties * self.share_sigma**2
        return parties * self.cohorts.share_variance(self.share_sigma, self.cohorts.nearest(parties))

    def log_ratio(self, parties: int) -> float:
        """The lambda at which a total's mass is at most e^lambda phi_sigma(z) (docs/explanation/proofs.md)."""
        if self.cohorts is None:
            return log_ratio(self.share_sigma, parties, self.share_sigma**2)
        return unequal_log_ratio(SMALLEST_SHARE_SIGMA, 2 * parties, SMALLEST_SHARE_SIGMA**2)

    def half_width(self, parties: int, values: int, failure: Fraction | float) -> float:
        """A magnitude that none of `values` totals exceeds, with probability at least 1 - failure.

        The total of N shares has mass phi_sigma(z) F(z), sigma = s sqrt(N), F at most e^lambda
        (dpcore.accounting.noise_shares). phi falls, so P(|Z| > b) <= 2 e^lambda P(N(0, sigma^2) > b) for b >= 0. A
        union bound covers the values.

        If that probability is too small for a double, the tail exp(-b^2 / (2 sigma^2)) of sub-Gaussian sums replaces it
        (dpcore.randomness.noise).
        """
        _check_counts(parties, values)
        log_chance = _log_failure(failure) - math.log(2 * values)
        chance = math.exp(log_chance - self.log_ratio(parties))
        deviations = -quantile(chance) if chance > 1e-290 else math.sqrt(-2 * log_chance)
        return float(math.ceil(deviations * self.deviation(parties) * (1 + _MARGIN)))


@dataclass(frozen=True)
class LaplaceShares:
    """Each party's share is a difference of two NB(1/shares, exp(-1/scale)); `shares` of them are discrete Laplace.

    Raises PlanError unless scale is a Fraction from 1/64 to 2^40 of 63-bit integers and shares from 1 to 2^16.
    """

    scale: Fraction
    """t, integer units."""
    shares: int
    """h, of the parties that add one and keep it secret."""
    cohorts: Cohorts | None = None
    """If given, h is that of the smallest one, and a share is one of as many as are honest in the cohort that answers.
    """

    def __post_init__(self) -> None:
        check_scale(self.scale, self.shares)
        if self.cohorts is None:
            return
        if self.shares != self.cohorts.honest:
            raise PlanError(f"{self.shares} shares of noise for {self.cohorts.honest} honest parties: give as many")
        self.cohorts.check_divisible()

    def needed(self, parties: int) -> int:
        """How many shares are discrete Laplace noise if so many parties answer."""
        return self.shares if self.cohorts is None else self.cohorts.honest_of(self.cohorts.nearest(parties))

    def epsilon(self, l1: Fraction | int) -> Fraction:
        """The pure epsilon of a release with L1 sensitivity l1, in integer units. Raises PlanError if l1 < 0."""
        if l1 < 0:
            raise PlanError(f"the L1 sensitivity is {l1}: give 0 or more")
        return Fraction(l1) / self.scale

    def draw(self, count: int, random: RandomSource) -> NDArray[np.int64]:
        """One party's shares of `count` values, for the largest cohort if there are `cohorts`: int64 (count,)."""
        shares = self.shares if self.cohorts is None else self.needed(self.cohorts.largest)
        return laplace_share(self.scale, shares, count, random)

    def draw_top_up(self, parties: int, count: int, random: RandomSource) -> NDArray[np.int64] | None:
        """What it adds to them in a cohort of so many parties: int64 (count,); None if nothing. Raises PlanError."""
        part = Fraction(0) if self.cohorts is None else self.cohorts.polya_top_up(parties)
        if not part:
            return None
        drawn = laplace_share(self.scale, part.denominator, part.numerator * count, random)
        return np.asarray(drawn.reshape(part.numerator, count).sum(axis=0), dtype=np.int64)

    def tail_bound(self, parties: int, values: int) -> int:
        """A magnitude that any of `values` totals exceeds with a probability of at most 2^-64 overall.

        With `cohorts` that of all of them, parties being those of the largest one: N / (N - c) <= N_max / h, and the
        bound grows with the number of variables.
        """
        _check_counts(parties, values)
        return self._beyond(Fraction(parties, self.shares), math.log(2 * values) + _LOG_TAIL)

    def deviation(self, parties: int) -> float:
        """The total's standard deviation, integer units: each of its 2 N variables has variance q / (h (1-q)^2)."""
        _check_counts(parties, 1)
        return math.sqrt(2 * parties / self.needed(parties)) / (2 * math.sinh(float(1 / (2 * self.scale))))

    def half_width(self, parties: int, values: int, failure: Fraction | float) -> float:
        """A magnitude that none of `values` totals exceeds, with probability at least 1 - failure.

        If other than h parties add a share, it is the smaller of Chernoff's bound and one computed from the
        distribution itself.
        """
        _check_counts(parties, values)
        log_odds = math.log(2 * values) - _log_failure(failure)
        variables = Fraction(parties, self.needed(parties))
        chernoff = self._beyond(variables, log_odds)
        if variables == 1 or log_odds > _LARGEST_ODDS:
            return float(chernoff)
        return float(_exceeded_once(1 / self.scale, variables, log_odds, chernoff))

    def _beyond(self, variables: Fraction, log_odds: float) -> int:
        """An integer b with P(|total| > b) <= 2 exp(-log_odds), for the total of N shares, variables = N/h.

        Exact if N is h: P(|X| > b) = 2 q^(b+1) / (1 + q). Otherwise by Chernoff, b + 1 = (log E[exp(s X)] +
        log_odds) / s:

            E[exp(s X)] = ((1-q)^2 / ((1 - q e^s)(1 - q e^-s)))^(N/h) for |s| < 1/t.
        """
        inverse = float(1 / self.scale)
        if variables == 1:
            least = (log_odds - math.log1p(math.exp(-inverse))) / inverse
            return max(0, math.ceil(least * (1 + _MARGIN)) - 1)
        orders = _ORDERS * inverse
        # 1 - q e^s is -expm1(s - 1/t), which avoids a difference of numbers close to 1.
        log_moment = 2 * math.log(-math.expm1(-inverse)) - sum(
            np.log(-np.expm1(-inverse * factor)) for factor in (1 - _ORDERS, 1 + _ORDERS)
        )
        kept = float(variables) * (log_moment + _LOG_ERROR)
        return max(0, math.ceil(float(np.min((kept + log_odds) / orders)) * (1 + _MARGIN)) - 1)


class _Tail:
    """The tail of X - Y, both NB(kappa, q) and independent, by cells [c_i, c_(i+1)) of Y.

    P(X - Y > b) = sum_k P(Y = k) P(X > b + k) <= sum_i P(c_i <= Y < c_(i+1)) P(X > b + c_i), for any cells. P(X <= k)
    is the regularised incomplete beta function I_(1-q)(kappa, k + 1), assumed right to a relative 1e-9.
    """

    def __init__(self, inverse: Fraction, kappa: Fraction) -> None:
        self._failure, self._kappa = -math.expm1(-float(inverse)), float(kappa)
        mean = self._kappa * (1 - self._failure) / self._failure
        deviation = math.sqrt(mean / self._failure)
        # Cells narrow compared with the deviation, up to where almost no mass is left.
        step = max(1, int(deviation / 64))
        first, cells = max(0, int(mean - 12 * deviation)), int((24 * deviation + 25 / self._failure) / step) + 2
        self._starts = np.unique(np.append(0, first + step * np.arange(cells, dtype=np.int64)))
        from_start = np.append(self._above(self._starts - 1), 0.0)
        self._masses = from_start[:-1] - from_start[1:]

    def beyond(self, b: int) -> float:
        """An upper bound of P(X - Y > b), b >= 0."""
        counted = float(self._masses @ self._above(self._starts + b))
        return counted * (1 + 4e-9) + len(self._masses) * 2.0**-51

    def _above(self, k: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(X > k), k >= -1. Raises ModuleNotFoundError without SciPy, which a learner has: no party asks for this."""
        # The import takes a quarter of a second.
        from scipy.special import betaincc  # noqa: PLC0415  (lazy for the reason above, and an extra)

        tail: NDArray[np.float64] = betaincc(self._kappa, np.maximum(k, 0) + 1.0, self._failure)
        return np.where(k < 0, 1.0, tail)


def _exceeded(inverse: Fraction, kappa: Fraction, log_odds: float, high: int) -> int:
    """An integer that |X - Y| of `_Tail` exceeds with probability <= 2 exp(-log_odds). high: one by another bound."""
    tail, low = _Tail(inverse, kappa), -1
    while high - low > max(1, high >> 9):
        middle = (low + high) // 2
        low, high = (low, middle) if tail.beyond(middle) <= math.exp(-log_odds) else (middle, high)
    return high


# The answers to one plan's queries have the same noise, and each _Tail takes a tenth of a second.
_exceeded_once = lru_cache(maxsize=256)(_exceeded)

NoiseShares = GaussianShares | LaplaceShares


def smallest_scale(l1: Fraction | int, epsilon: Fraction) -> Fraction:
    """The least scale at which a release of L1 sensitivity l1 is epsilon-private: l1 / epsilon, at least 1/64.

    Rounded up by less than 2^-20 if it takes more than 63 bits. Raises PlanError, also beyond 2^40.
    """
    if l1 <= 0 or epsilon <= 0:
        raise PlanError(f"L1 sensitivity {l1} at epsilon {epsilon}: give positive numbers")
    scale = max(SMALLEST_SCALE, Fraction(l1) / Fraction(epsilon))
    if max(scale.numerator, scale.denominator) >= 1 << 63:
        scale = math.ceil(scale / _STEP) * _STEP
    if scale > LARGEST_SCALE:
        raise PlanError("the Laplace noise would need a scale above 2^40 integer units: lower fraction_bits")
    return scale


def _check_counts(parties: int, values: int) -> None:
    if parties < 1 or values < 1:
        raise PlanError(f"{parties} parties and {values} values: give at least one of each")


def _log_failure(failure: Fraction | float) -> float:
    if not 0 < failure < 1:
        raise PlanError(f"failure {failure}: choose a probability between 0 and 1")
    exact = Fraction(failure)
    return math.log(exact.numerator) - math.log(exact.denominator)
