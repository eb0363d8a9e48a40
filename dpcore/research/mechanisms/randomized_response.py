"""Randomized response on k values: each answer is randomly kept or replaced by another one.

The true value is reported with probability p = e^epsilon / (e^epsilon + k - 1), each other one with u = 1 / (e^epsilon
+ k - 1). Two inputs give an output probabilities whose ratio is 1 or e^(+-epsilon): (epsilon, 0)-private for each
answer, without trust in the collector (the local model).

Warner (Journal of the American Statistical Association, 1965) for k = 2; Kairouz, Oh and Viswanath (NeurIPS 2014) for
k. The protocol of two fair coins, which answers truthfully if the first is tails and else reports the second, has k = 2
and epsilon = log 3.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError, PlanError
from dpcore.randomness.coins import around, bernoulli, exp_interval
from dpcore.randomness.sources import RandomSource
from dpcore.research.mechanisms.checks import check_epsilon

Counts = NDArray[np.int64]
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class RandomizedResponse:
    """Answers among 0, ..., values - 1; `epsilon` of each answer, exact.

    Raises PlanError unless epsilon is in (0, 150] and values is at least 2.
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
        """Unbiased estimates of how many hold each value, from the number of answers of each: (values,), not clipped.

        E[count_v] = p n_v + u (n - n_v), so (count_v - n u) / (p - u). Raises DataError if a count is missing.
        """
        seen = self._checked(counts)
        estimates: Vector = (seen - seen.sum() * self.other) / self._gap
        return estimates

    def variance(self, true_counts: Counts | Vector) -> Vector:
        """The variance of `estimate` if n_v hold value v: (n_v p (1-p) + (n - n_v) u (1-u)) / (p - u)^2.

        With estimates in place of the n_v it is an unbiased estimate of the variance, since it is linear in them.
        (values,).
        """
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
