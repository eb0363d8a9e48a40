"""Choosing one of k candidates by its score: the exponential mechanism, and permute-and-flip, both exact.

Scores are exact rationals, each moved by at most `sensitivity` if a record is replaced. Coins show heads with
probability exp(-gamma_i), gamma_i = epsilon (max_j s_j - s_i) / (2 sensitivity).

- Exponential mechanism (McSherry and Talwar, FOCS 2007): i with probability proportional to exp(epsilon s_i / (2
  sensitivity)), by rejection. The Gumbel form has no guarantee in floating point (Mironov, CCS 2012), so it is not
  used.
- Permute-and-flip (McKenna and Sheldon, NeurIPS 2020, Algorithm 1): in a uniformly random order, the first whose coin
  is heads; its expected score is never lower.

Both are (epsilon, 0)-private. Proof: docs/explanation/proofs.md, "The exponential mechanism and permute-and-flip".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError, PlanError
from dpcore.randomness.noise import around, bernoulli, bernoulli_exp, exp_interval
from dpcore.randomness.sources import RandomSource
from dpcore.research.mechanisms.noise import check_epsilon

Rule = Literal["exponential", "permute-and-flip"]
_BATCH = 1 << 12


@dataclass(frozen=True)
class ExponentialMechanism:
    """A choice of one candidate by `rule`, (epsilon, 0)-private.

    Raises PlanError if a field is out of range: epsilon in (0, 150], sensitivity above 0.
    """

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
        """The distribution of `release`, to double precision: (k,). Raises DataError as it does.

        Permute-and-flip: the integral is of a polynomial of degree k - 1, for which ceil(k/2) Gauss nodes suffice.
        """
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


def _accepted(gammas: Sequence[Fraction], rounded: NDArray[np.float64], random: RandomSource) -> int | None:
    """The first of some uniform candidates whose coin is heads, if any; at least one in k is, on average."""
    drawn = [random.below(len(gammas)) for _ in range(min(_BATCH, len(gammas)))]
    heads = np.flatnonzero(bernoulli_exp(rounded[drawn], lambda i: gammas[drawn[i]], random))
    return drawn[heads[0]] if len(heads) else None


# Randomized response on k values: each answer is randomly kept or replaced by another one.
#
# The true value is reported with probability p = e^epsilon / (e^epsilon + k - 1), each other one with u = 1 /
# (e^epsilon + k - 1). Two inputs give an output probabilities whose ratio is 1 or e^(+-epsilon): (epsilon, 0)-private
# for each answer, without trust in the collector (the local model).
#
# Warner (Journal of the American Statistical Association, 1965) for k = 2; Kairouz, Oh and Viswanath (NeurIPS 2014)
# for k. The protocol of two fair coins, which answers truthfully if the first is tails and else reports the second,
# has k = 2 and epsilon = log 3.


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
