"""Central mechanisms for a curator that holds the rows or counts: one answer each, with exact samples.

Neighbours differ in one record that is replaced. Samples use a source of random bits, passed as an argument, and are
exact: no floating-point number influences them (dpcore.randomness.noise). The running time of a release is not hidden.
"""

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import gmpy2
import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.composition import LARGEST_EPSILON
from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.accounting.noise_shares import GaussianShares, IntegerNoise, LaplaceShares, smallest_scale, smallest_share
from dpcore.errors import DataError, PlanError
from dpcore.numbers.fixed_point import Vector
from dpcore.randomness.noise import around, bernoulli, bernoulli_exp, exp_interval, rational
from dpcore.randomness.sources import RandomSource

# The Laplace mechanism on integers: discrete Laplace noise, exact, of mass (1 - q)/(1 + q) q^|x|, q = exp(-1/t), t =
# sensitivity / epsilon, on each coordinate.
#
# Dwork, McSherry, Nissim and Smith (TCC 2006); Balcan's notes (2015), Theorem 3; on integers Ghosh, Roughgarden and
# Sundararajan (STOC 2009). An average of n numbers in [0, b] is the sum of n integers, with sensitivity b in their
# units, divided afterwards.


# Validation of parameters and of released values, shared by the mechanisms.


# So that adding noise of up to 2^60 does not overflow.
_LARGEST_VALUE = 1 << 62


def check_epsilon(epsilon: Fraction) -> None:
    """Raise PlanError unless epsilon is an exact rational in (0, LARGEST_EPSILON]."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, Fraction | int) or not 0 < epsilon <= LARGEST_EPSILON:
        raise PlanError(f"epsilon is {epsilon}: give a Fraction above 0 and up to {LARGEST_EPSILON:.0f}")


def integer_values(values: NDArray[np.integer]) -> NDArray[np.int64]:
    """The values as int64 (d,). Raises DataError if they are not integers below 2^62 in one dimension."""
    given = np.asarray(values)
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise DataError("values are not a one-dimensional array of integers: count in whole units")
    if given.size and max(int(given.max()), -int(given.min())) >= _LARGEST_VALUE:
        raise DataError("a value is 2^62 or more: count in larger units")
    return given.astype(np.int64)


@dataclass(frozen=True)
class LaplaceMechanism:
    """Discrete Laplace noise on integers, (epsilon, 0)-private. Raises PlanError if a field is out of range."""

    epsilon: Fraction
    """Exact, of all values in total."""
    sensitivity: int
    """The L1 sensitivity of the integers released."""

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if isinstance(self.sensitivity, bool) or not isinstance(self.sensitivity, int) or self.sensitivity < 1:
            raise PlanError(f"the L1 sensitivity is {self.sensitivity}: give a positive integer")
        smallest_scale(self.sensitivity, self.epsilon)

    @property
    def delta(self) -> Fraction:
        """0: the guarantee is pure."""
        return Fraction(0)

    @property
    def shares(self) -> LaplaceShares:
        """The noise as one share."""
        return LaplaceShares(smallest_scale(self.sensitivity, self.epsilon), 1)

    @property
    def scale(self) -> Fraction:
        """The scale t, in integer units."""
        return self.shares.scale

    def release(self, values: NDArray[np.integer], random: RandomSource) -> NDArray[np.int64]:
        """The values (d,) with noise: int64 (d,). Raises DataError if they are not integers below 2^62."""
        true = integer_values(values)
        return true + self.shares.draw(len(true), random)

    def half_width(self, values: int, failure: Fraction | float) -> float:
        """With probability >= 1 - failure all noises are at most this (Balcan 2015, Theorem 3).

        Raises PlanError if there is no value or the failure is not between 0 and 1.
        """
        return self.shares.half_width(1, values, failure)


# The Gaussian mechanism on integers, calibrated to the tight (epsilon, delta) (Balle and Wang, ICML 2018, Theorem 8)
# and corrected for integer noise (dpcore.accounting.noise_shares).


@dataclass(frozen=True)
class GaussianMechanism:
    """Discrete Gaussian noise on `coordinates` integers, (epsilon, delta)-private in total.

    Raises PlanError if a field is out of range, or the noise would be beyond 2^48 units.
    """

    epsilon: Fraction
    delta: Fraction
    squared_sensitivity: int
    """The squared L2 sensitivity to one record, in squared units."""
    coordinates: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if self.squared_sensitivity < 1 or self.coordinates < 1:
            raise PlanError(
                f"squared sensitivity {self.squared_sensitivity} of {self.coordinates} values: give positive ones"
            )
        _ = self.sigma

    @functools.cached_property
    def sigma(self) -> int:
        """The noise's standard deviation on each coordinate, integer units: at least 3."""
        return smallest_share(self.squared_sensitivity, 1, self.coordinates, self.epsilon, self.delta)

    @property
    def distribution(self) -> ShiftDistribution:
        """The privacy profile of the release: for other delta or epsilon, and for composition with other releases."""
        return IntegerNoise(self.sigma, 1, self.coordinates).distribution(self.squared_sensitivity)

    def release(self, values: NDArray[np.integer], random: RandomSource) -> NDArray[np.int64]:
        """The values (coordinates,) with noise: int64. Raises DataError if they are not that many integers."""
        true = integer_values(values)
        if len(true) != self.coordinates:
            raise DataError(f"{len(true)} values, and the mechanism covers {self.coordinates}: give as many")
        return true + GaussianShares(self.sigma).draw(len(true), random)

    def half_width(self, failure: Fraction | float) -> float:
        """With probability at least 1 - failure the noise on every answer is at most this.

        Raises PlanError if the failure is not between 0 and 1.
        """
        return GaussianShares(self.sigma).half_width(1, self.coordinates, failure)


# Adaptive composition of mechanisms, each of an (epsilon, delta) fixed in advance; results are rounded up.
#
# Basic: epsilons and deltas add (Dwork, Kenthapadi, McSherry, Mironov and Naor, EUROCRYPT 2006). Strong: Dwork,
# Rothblum and Vadhan (FOCS 2010, Theorem III.3). Optimal: Kairouz, Oh and Viswanath (ICML 2015, Theorem 3.3); no
# smaller bound holds for every k mechanisms of that (epsilon, delta).


MOST_MECHANISMS = 1 << 16
# Sums of positive terms, each a product of at most about 2^17 factors: relative errors are below 2^-200.
_PRECISION = 256
_ERROR = Fraction(1, 1 << 200)


def basic(losses: Iterable[tuple[Fraction, Fraction]]) -> tuple[Fraction, Fraction]:
    """The sums of the epsilons and of the deltas, delta at most 1. Raises PlanError if one is out of range."""
    epsilon = delta = Fraction(0)
    for each_epsilon, each_delta in losses:
        if each_epsilon < 0 or not 0 <= each_delta <= 1:
            raise PlanError(f"a loss of ({each_epsilon}, {each_delta}): give epsilon >= 0 and delta from 0 to 1")
        epsilon, delta = epsilon + each_epsilon, delta + each_delta
    return epsilon, min(Fraction(1), delta)


def strong(epsilon: Fraction, delta: Fraction, mechanisms: int, slack: Fraction) -> tuple[float, Fraction]:
    """sqrt(2 k log(1/slack)) epsilon + k epsilon (e^epsilon - 1), and k delta + slack, of k mechanisms."""
    _check(epsilon, delta, mechanisms)
    if not 0 < slack < 1:
        raise PlanError(f"slack {slack}: choose a number between 0 and 1")
    with gmpy2.context(precision=_PRECISION, round=gmpy2.RoundUp):
        e, log_inverse = gmpy2.mpfr(gmpy2.mpq(epsilon)), gmpy2.log(gmpy2.mpfr(gmpy2.mpq(1 / slack)))
        total = gmpy2.sqrt(2 * mechanisms * log_inverse) * e + mechanisms * e * gmpy2.expm1(e)
    return _up(rational(total)), min(Fraction(1), mechanisms * delta + slack)


def optimal_delta(epsilon: Fraction, delta: Fraction, mechanisms: int, total_epsilon: Fraction | float) -> float:
    """The least delta at which the composition of any k (epsilon, delta)-mechanisms is (total_epsilon, delta)-private.

    1 - (1 - delta)^k (1 - D), with D = sum_l C(k, l) (e^((k-l) epsilon) - e^(total_epsilon + l epsilon)) / (1 +
    e^epsilon)^k over the l for which a term is positive: Theorem 3.3, stated there at total_epsilon = (k - 2i) epsilon.
    Raises PlanError if an argument is out of range.
    """
    _check(epsilon, delta, mechanisms)
    if not total_epsilon >= 0 or math.isinf(total_epsilon):
        raise PlanError(f"a total epsilon of {total_epsilon}: give 0 or more")
    wanted = Fraction(total_epsilon)
    with gmpy2.context(precision=_PRECISION):
        total = gmpy2.mpfr(0)
        for left, (mass, _) in enumerate(_outcomes(epsilon, mechanisms)):
            excess = (mechanisms - 2 * left) * epsilon - wanted
            if excess <= 0:
                break
            total -= mass * gmpy2.expm1(gmpy2.mpfr(gmpy2.mpq(-excess)))
        stick = min(Fraction(1), rational(total) * (1 + _ERROR))
    revealed = _revealed(delta, mechanisms)
    return min(1.0, _up(rational(revealed + (1 - revealed) * gmpy2.mpq(stick))))


def optimal_epsilon(epsilon: Fraction, delta: Fraction, mechanisms: int, total_delta: Fraction) -> float:
    """The least total epsilon at which the composition of any k (epsilon, delta)-mechanisms has total_delta.

    D of `optimal_delta` is the largest over L of A_L - e^total B_L, the sums of C(k, l) e^((k-l) epsilon) and of C(k,
    l) e^(l epsilon) over l <= L and (1 + e^epsilon)^k: so D <= d from e^total = max_L (A_L - d) / B_L on.

    Raises PlanError if an argument is out of range or total_delta is below 1 - (1 - delta)^k, for which no epsilon is
    enough.
    """
    _check(epsilon, delta, mechanisms)
    revealed = _revealed(delta, mechanisms)
    allowed = (gmpy2.mpq(total_delta) - revealed) / (1 - revealed)
    if not 0 <= total_delta < 1 or allowed < 0:
        raise PlanError(
            f"a total delta of {float(total_delta):.3g} for {mechanisms} mechanisms of delta {float(delta):.3g}: give "
            "a number below 1 and at least the probability that one of them reveals its input"
        )
    with gmpy2.context(precision=_PRECISION):
        above, below, best = gmpy2.mpfr(0), gmpy2.mpfr(0), gmpy2.mpfr(1)
        least = gmpy2.mpfr(allowed)
        for mass, other in _outcomes(epsilon, mechanisms):
            above, below = above + mass, below + other
            # Allow for the rounding of the sum, which a difference close to 0 would magnify.
            best = max(best, (above * (1 + gmpy2.mpfr(gmpy2.mpq(_ERROR))) - least) / below)
        total = rational(gmpy2.log(best))
    return _up(total * (1 + _ERROR) + _ERROR if total else total)


def _outcomes(epsilon: Fraction, mechanisms: int) -> Iterator[tuple[Any, Any]]:
    """For l = 0, ..., k: the probability that l of k randomized responses are flipped, under either neighbour."""
    e = gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(epsilon)))
    mass, other = (e / (1 + e)) ** mechanisms, (1 / (1 + e)) ** mechanisms
    for left in range(mechanisms + 1):
        yield mass, other
        ratio = gmpy2.mpfr(mechanisms - left) / (left + 1)
        mass, other = mass * ratio / e, other * ratio * e


def _revealed(delta: Fraction, mechanisms: int) -> Any:
    """1 - (1 - delta)^k as an mpq, which is faster than a Fraction for its millions of bits."""
    return 1 - (1 - gmpy2.mpq(delta)) ** mechanisms


def _check(epsilon: Fraction, delta: Fraction, mechanisms: int) -> None:
    check_epsilon(epsilon)
    if not 0 <= delta < 1:
        raise PlanError(f"delta is {float(delta):.6g}: choose a number from 0 to below 1")
    if not 1 <= mechanisms <= MOST_MECHANISMS:
        raise PlanError(f"{mechanisms} mechanisms: give 1 to {MOST_MECHANISMS}")


def _up(value: Fraction) -> float:
    rounded = float(value)
    return rounded if Fraction(rounded) >= value else math.nextafter(rounded, math.inf)


# Choosing one of k candidates by its score, exactly. Scores are rationals, moved by at most `sensitivity` by a record.
#
# Coins show heads with exp(-gamma_i), gamma_i = epsilon (max_j s_j - s_i) / (2 sensitivity). Exponential mechanism
# (McSherry and Talwar, FOCS 2007): by rejection. Permute-and-flip (McKenna and Sheldon, NeurIPS 2020, Algorithm 1): in
# random order, the first whose coin is heads; its expected score is never lower. Both are (epsilon, 0)-private. Proof:
# docs/explanation/proofs.md, "The exponential mechanism and permute-and-flip".


Rule = Literal["exponential", "permute-and-flip"]
_BATCH = 1 << 12


@dataclass(frozen=True)
class ExponentialMechanism:
    """A choice of one candidate by `rule`, (epsilon, 0)-private. Raises PlanError if a field is out of range."""

    epsilon: Fraction
    """Exact."""
    sensitivity: Fraction
    """The most that replacing a record moves any one score."""
    rule: Rule = "exponential"

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not isinstance(self.sensitivity, Fraction | int) or self.sensitivity <= 0:
            raise PlanError(f"the scores' sensitivity is {self.sensitivity}: give a positive Fraction")
        if self.rule not in ("exponential", "permute-and-flip"):
            raise PlanError(f"rule is {self.rule!r}: choose 'exponential' or 'permute-and-flip'")

    @property
    def delta(self) -> Fraction:
        """0: the guarantee is pure."""
        return Fraction(0)

    def release(self, scores: Sequence[Fraction | int], random: RandomSource) -> int:
        """The index of the candidate chosen. Raises DataError if there is none or a score is not exact."""
        gammas = self._gammas(scores)
        rounded = np.array([float(gamma) for gamma in gammas])
        if self.rule == "permute-and-flip":
            heads = np.flatnonzero(bernoulli_exp(rounded, gammas.__getitem__, random))
            return int(heads[random.below(len(heads))])
        chosen = None
        while chosen is None:
            chosen = _accepted(gammas, rounded, random)
        return chosen

    def probabilities(self, scores: Sequence[Fraction | int]) -> NDArray[np.float64]:
        """The distribution of `release`: (k,), by ceil(k/2) Gauss nodes for permute-and-flip. Raises as it does."""
        chances = np.exp([-float(gamma) for gamma in self._gammas(scores)])
        if self.rule == "exponential":
            return np.asarray(chances / chances.sum())
        nodes, weights = np.polynomial.legendre.leggauss(math.ceil(len(chances) / 2))
        factors = 1 - np.outer((nodes + 1) / 2, chances)
        first = [weights / 2 @ np.delete(factors, i, axis=1).prod(axis=1) for i in range(len(chances))]
        return np.asarray(chances * np.array(first))

    def _gammas(self, scores: Sequence[Fraction | int]) -> list[Fraction]:
        if not len(scores):
            raise DataError("no candidate: give at least one score")
        if not all(isinstance(score, Fraction | int | np.integer) for score in scores):
            raise DataError("a score is not exact: give integers or Fractions")
        exact = [Fraction(int(score)) if isinstance(score, np.integer) else Fraction(score) for score in scores]
        best = max(exact)
        return [self.epsilon * (best - score) / (2 * self.sensitivity) for score in exact]


@dataclass(frozen=True)
class NoisyMax:
    """Report-noisy-max: the index of the greatest score after discrete Laplace noise; (epsilon, 0)-private.

    Only the index may be released, never the noisy scores: k of them cost k / 2 times epsilon (Dwork and Roth, The
    Algorithmic Foundations of Differential Privacy, 2014, section 3.3). Proof: beside that of
    dpcore.evaluation.selection. Raises PlanError if a field is out of range.
    """

    epsilon: Fraction
    """Exact."""
    sensitivity: int
    """The most that replacing a record moves any one score, in integer units."""

    def __post_init__(self) -> None:
        _ = self.shares

    @property
    def shares(self) -> LaplaceShares:
        """The noise on each score, as one share: its scale is 2 sensitivity / epsilon."""
        return LaplaceMechanism(self.epsilon, 2 * self.sensitivity).shares

    def release(self, scores: NDArray[np.integer], random: RandomSource) -> int:
        """The index chosen, the first among equals. Raises DataError if there is none or a score is no integer."""
        true = integer_values(scores)
        if not len(true):
            raise DataError("no candidate: give at least one score")
        return int(np.argmax(true + self.shares.draw(len(true), random)))


def _accepted(gammas: Sequence[Fraction], rounded: NDArray[np.float64], random: RandomSource) -> int | None:
    """The first of some uniform candidates whose coin is heads, if any; at least one in k is, on average."""
    drawn = [random.below(len(gammas)) for _ in range(min(_BATCH, len(gammas)))]
    heads = np.flatnonzero(bernoulli_exp(rounded[drawn], lambda i: gammas[drawn[i]], random))
    return drawn[heads[0]] if len(heads) else None


# Randomized response on k values: the true one with probability p = e^epsilon / (e^epsilon + k - 1), each other with 1
# / (e^epsilon + k - 1); (epsilon, 0)-private for each answer, without trust in the collector.
#
# Warner (Journal of the American Statistical Association, 1965) for k = 2; Kairouz, Oh and Viswanath (NeurIPS 2014) for
# k. The protocol of two fair coins has k = 2 and epsilon = log 3.


Counts = NDArray[np.int64]


@dataclass(frozen=True)
class RandomizedResponse:
    """Answers among 0, ..., values - 1; `epsilon` of each answer, exact.

    Raises PlanError if a field is out of range.
    """

    epsilon: Fraction
    values: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not 2 <= self.values <= 1 << 31:
            raise PlanError(f"randomized response over {self.values} values: give 2 to 2^31")

    @property
    def delta(self) -> Fraction:
        """0: the guarantee is pure."""
        return Fraction(0)

    @property
    def kept(self) -> float:
        """The probability p of a true answer."""
        return 1 / (1 + (self.values - 1) * math.exp(-self.epsilon))

    @property
    def other(self) -> float:
        """The probability u of each other one."""
        return self.kept * math.exp(-self.epsilon)

    def release(self, answers: NDArray[np.integer], random: RandomSource) -> NDArray[np.int64]:
        """Each of `answers` (n,), or its replacement: int64 (n,). Raises DataError if one is out of range."""
        true = np.asarray(answers)
        if (
            true.dtype.kind not in "iu"
            or true.ndim != 1
            or (true.size and not 0 <= true.min() <= true.max() < self.values)
        ):
            raise DataError(f"answers are not all integers from 0 to {self.values - 1}: give (n,) of those codes")
        kept = bernoulli(np.full(true.size, self.kept), lambda _, precision: self._bounds(precision), random)
        # Adding 1 to k - 1 modulo k gives each other value once.
        moved = np.flatnonzero(~kept)
        steps = np.zeros(true.size, dtype=np.int64)
        steps[moved] = [1 + random.below(self.values - 1) for _ in moved]
        return (true.astype(np.int64) + steps) % self.values

    def _bounds(self, precision: int) -> tuple[int, int]:
        """Integers around p 2^precision."""
        low, high = exp_interval(-self.epsilon, -self.epsilon, precision + 36)
        return around(1 / (1 + (self.values - 1) * high), 1 / (1 + (self.values - 1) * low), precision)

    def estimate(self, counts: Counts) -> Vector:
        """Unbiased estimates (count_v - n u) / (p - u) of how many hold each value: (values,).

        Raises DataError if there is not one count for each value.
        """
        seen = self._checked(counts)
        estimates: Vector = (seen - seen.sum() * self.other) / self._gap
        return estimates

    def variance(self, true_counts: Counts | Vector) -> Vector:
        """The variance of `estimate` if n_v hold value v: (n_v p (1-p) + (n - n_v) u (1-u)) / (p - u)^2: (values,)."""
        held = self._checked(true_counts)
        p, u = self.kept, self.other
        # 1 - p, computed without cancellation.
        spread: Vector = held * p * (self.values - 1) * u + (held.sum() - held) * u * (1 - u)
        return spread / self._gap**2

    @property
    def _gap(self) -> float:
        """The difference p - u."""
        return -self.kept * math.expm1(-self.epsilon)

    def _checked(self, counts: Counts | Vector) -> Vector:
        seen = np.asarray(counts, dtype=np.float64)
        if seen.shape != (self.values,):
            raise DataError(f"counts have shape {seen.shape}: give one for each of the {self.values} values")
        return seen
