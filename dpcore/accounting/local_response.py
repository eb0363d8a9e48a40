"""Randomised response of single bits: each is flipped with probability u before any sum is made.

A bit's answer is (epsilon, 0)-private by itself (Warner, Journal of the American Statistical Association, 1965):
(1 - u) / u <= e^epsilon, with u rounded up to a multiple of 2^-64. No other party, mask or share of noise is relied on.

The variance n u (1 - u) of a sum of n answers does not depend on the bits. Proof: docs/explanation/proofs.md, "Local
answers".
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import gmpy2
import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.randomness.noise import rational

COIN_BITS = 64
LARGEST_EPSILON = 32
"""The largest epsilon of a bit: from here on, almost no bit is flipped."""
_PRECISION = 256


@dataclass(frozen=True)
class LocalResponse:
    """Each answer is flipped by its own coin. Raises PlanError unless epsilon is a Fraction in (0, 32]."""

    epsilon: Fraction
    """Pure, of each bit."""

    def __post_init__(self) -> None:
        if not isinstance(self.epsilon, Fraction | int) or not 0 < self.epsilon <= LARGEST_EPSILON:
            raise PlanError(f"epsilon of a local answer is {self.epsilon}: give a Fraction above 0 and up to 32")
        if 2 * self.flipped_below >= 1 << COIN_BITS:
            raise PlanError("epsilon of a local answer is below 2^-61: every answer would be a fair coin; raise it")

    @cached_property
    def flipped_below(self) -> int:
        """2^64 u, an integer: a bit is flipped where 64 uniform bits are below it."""
        with gmpy2.context(precision=_PRECISION, round=gmpy2.RoundDown):
            e = rational(gmpy2.exp(gmpy2.mpfr(gmpy2.mpq(self.epsilon))))
        return math.ceil(Fraction(1 << COIN_BITS) / (1 + Fraction(e)))

    @property
    def chance(self) -> Fraction:
        """u, exactly; at least 1 / (1 + e^epsilon)."""
        return Fraction(self.flipped_below, 1 << COIN_BITS)

    @property
    def gap(self) -> float:
        """1 - 2 u: how much the expectation of an answer differs between the bits."""
        return float(1 - 2 * self.chance)

    def unbiased(self, ones: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
        """Estimates of the numbers of true ones, from those of answers that are 1 among `rows`: (ones - n u) / gap."""
        found: NDArray[np.float64] = (ones - rows * float(self.chance)) / self.gap
        return found

    def deviation(self, rows: int) -> float:
        """The standard deviation of an estimate over the coins: sqrt(n u (1 - u)) / gap."""
        return math.sqrt(rows * float(self.chance * (1 - self.chance))) / self.gap

    def half_width(self, rows: int, values: int, failure: float) -> float:
        """With probability >= 1 - failure all of `values` estimates are this close to the rows' counts.

        The smaller of Hoeffding's bound and Bernstein's, over independent coins, and a union bound.
        """
        log_odds = math.log(2 * values / failure)
        hoeffding = math.sqrt(rows * log_odds / 2)
        variance = rows * float(self.chance * (1 - self.chance))
        bernstein = log_odds / 3 + math.sqrt(log_odds**2 / 9 + 2 * variance * log_odds)
        return min(hoeffding, bernstein) / self.gap * (1 + 1e-9)
