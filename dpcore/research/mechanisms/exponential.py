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
from dpcore.randomness.coins import bernoulli_exp
from dpcore.randomness.sources import RandomSource
from dpcore.research.mechanisms.checks import check_epsilon

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
