"""The noise shares that parties add to every value of a total; their sum has a known distribution.

- Gaussian: shares N_Z(0, s^2), counted by dpcore.accounting.integer_noise.
- Laplace: shares whose sum over h parties is discrete Laplace noise of scale t, P(x) proportional to exp(-|x|/t)
  (dpcore.randomness.polya).

Independent discrete Laplace noise on every integer coordinate makes a release of L1 sensitivity Delta (Delta/t,
0)-differentially private: the masses at x and at x' differ by a factor of at most exp(|x - x'|_1 / t). More than h
shares add more independent noise, which is post-processing.

Every bound here is an upper bound.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.integer_noise import log_ratio
from dpcore.errors import PlanError
from dpcore.numbers.normal import quantile
from dpcore.randomness.discrete_gaussian import check_share, discrete_gaussian, tail_bound
from dpcore.randomness.polya import LARGEST_SCALE, SMALLEST_SCALE, check_scale, laplace_share
from dpcore.randomness.sources import RandomSource

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
    """Each party's share is N_Z(0, share_sigma^2); share_sigma in integer units.

    Raises PlanError if it is not an integer from 3 to 2^48.
    """

    share_sigma: int

    def __post_init__(self) -> None:
        check_share(self.share_sigma)

    def draw(self, count: int, random: RandomSource) -> NDArray[np.int64]:
        """One party's shares of `count` values: int64 (count,)."""
        return discrete_gaussian(self.share_sigma, count, random)

    def tail_bound(self, parties: int, values: int) -> int:
        """A magnitude that any of `values` totals exceeds with a probability of at most 2^-64 overall."""
        _check_counts(parties, values)
        return tail_bound(self.share_sigma, parties, values)

    def deviation(self, parties: int) -> float:
        """The total's standard deviation, integer units: a share's variance is s^2 up to a relative 2^-200."""
        _check_counts(parties, 1)
        return self.share_sigma * math.sqrt(parties)

    def half_width(self, parties: int, values: int, failure: Fraction | float) -> float:
        """A magnitude that none of `values` totals exceeds, with probability at least 1 - failure.

        The total of N shares has mass phi_sigma(z) F(z), sigma = s sqrt(N), F at most e^lambda
        (dpcore.accounting.integer_noise). phi falls, so P(|Z| > b) <= 2 e^lambda P(N(0, sigma^2) > b) for b >= 0. A
        union bound covers the values.

        If that probability is too small for a double, the tail exp(-b^2 / (2 sigma^2)) of sub-Gaussian sums replaces it
        (dpcore.randomness.discrete_gaussian).
        """
        _check_counts(parties, values)
        log_chance = _log_failure(failure) - math.log(2 * values)
        chance = math.exp(log_chance - log_ratio(self.share_sigma, parties, self.share_sigma**2))
        deviations = -quantile(chance) if chance > 1e-290 else math.sqrt(-2 * log_chance)
        return float(math.ceil(deviations * self.deviation(parties) * (1 + _MARGIN)))


@dataclass(frozen=True)
class LaplaceShares:
    """Each party's share is a difference of two NB(1/shares, exp(-1/scale)); `shares` of them are discrete Laplace.

    Raises PlanError unless scale is a Fraction from 1/64 to 2^40 of 63-bit integers and shares an integer from 1 to
    2^16.
    """

    scale: Fraction
    """t, integer units."""
    shares: int
    """h, of the parties that add one and keep it secret."""

    def __post_init__(self) -> None:
        check_scale(self.scale, self.shares)

    def epsilon(self, l1: Fraction | int) -> Fraction:
        """The pure epsilon of a release with L1 sensitivity l1, in integer units. Raises PlanError if l1 < 0."""
        if l1 < 0:
            raise PlanError(f"the L1 sensitivity is {l1}: give 0 or more")
        return Fraction(l1) / self.scale

    def draw(self, count: int, random: RandomSource) -> NDArray[np.int64]:
        """One party's shares of `count` values: int64 (count,)."""
        return laplace_share(self.scale, self.shares, count, random)

    def tail_bound(self, parties: int, values: int) -> int:
        """A magnitude that any of `values` totals exceeds with a probability of at most 2^-64 overall."""
        _check_counts(parties, values)
        return self._beyond(parties, math.log(2 * values) + _LOG_TAIL)

    def deviation(self, parties: int) -> float:
        """The total's standard deviation, integer units: each of its 2 N variables has variance q / (h (1-q)^2)."""
        _check_counts(parties, 1)
        return math.sqrt(2 * parties / self.shares) / (2 * math.sinh(float(1 / (2 * self.scale))))

    def half_width(self, parties: int, values: int, failure: Fraction | float) -> float:
        """A magnitude that none of `values` totals exceeds, with probability at least 1 - failure.

        If other than h parties add a share, it is the smaller of Chernoff's bound and one computed from the
        distribution itself.
        """
        _check_counts(parties, values)
        log_odds = math.log(2 * values) - _log_failure(failure)
        chernoff = self._beyond(parties, log_odds)
        if parties == self.shares or log_odds > _LARGEST_ODDS:
            return float(chernoff)
        return float(_exceeded_once(1 / self.scale, Fraction(parties, self.shares), log_odds, chernoff))

    def _beyond(self, parties: int, log_odds: float) -> int:
        """An integer b with P(|total| > b) <= 2 exp(-log_odds), for the total of `parties` shares.

        Exact if parties is h: P(|X| > b) = 2 q^(b+1) / (1 + q). Otherwise Chernoff's bound:

            E[exp(s X)] = ((1-q)^2 / ((1 - q e^s)(1 - q e^-s)))^(N/h) for |s| < 1/t,

        and P(|X| >= a) <= 2 E[exp(s X)] exp(-s a) for every s > 0, as X is symmetric. So a = b + 1 = (log E[exp(s X)] +
        log_odds) / s, rounded up.
        """
        inverse = float(1 / self.scale)
        if parties == self.shares:
            least = (log_odds - math.log1p(math.exp(-inverse))) / inverse
            return max(0, math.ceil(least * (1 + _MARGIN)) - 1)
        orders = _ORDERS * inverse
        # 1 - q e^s is -expm1(s - 1/t), which avoids a difference of numbers close to 1.
        log_moment = 2 * math.log(-math.expm1(-inverse)) - sum(
            np.log(-np.expm1(-inverse * factor)) for factor in (1 - _ORDERS, 1 + _ORDERS)
        )
        kept = parties / self.shares * (log_moment + _LOG_ERROR)
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
    """The least scale at which a release of L1 sensitivity l1 is epsilon-private, for `LaplaceShares`.

    l1 / epsilon, at least 1/64, rounded up by less than 2^-20 if it takes more than 63 bits. Raises PlanError if an
    argument is not positive or the scale would be beyond 2^40.
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
