"""The Laplace mechanism on integers, in one and more dimensions: discrete Laplace noise, exact.

Dwork, McSherry, Nissim and Smith (TCC 2006); Balcan's notes on differential privacy and statistical queries (2015),
Theorem 3; on integers Ghosh, Roughgarden and Sundararajan (STOC 2009). Noise x has mass (1 - q)/(1 + q) q^|x|, q =
exp(-1/t), t = sensitivity / epsilon, independently on each coordinate.

If a record moves the values by at most `sensitivity` in total, |v - v'|_1, an output's probabilities differ by a factor
of at most exp(sensitivity / t) = e^epsilon. This is reached if all of the move is in one coordinate.

An average of n numbers in [0, b] is the sum of n integers, with sensitivity b in their units, divided afterwards.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.noise_shares import LaplaceShares, smallest_scale
from dpcore.errors import PlanError
from dpcore.randomness.sources import RandomSource
from dpcore.research.mechanisms.checks import check_epsilon, integer_values


@dataclass(frozen=True)
class LaplaceMechanism:
    """Discrete Laplace noise on integers, (epsilon, 0)-private.

    Raises PlanError unless epsilon is in (0, 150], sensitivity at least 1 and the scale at most 2^40.
    """

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
        """With probability at least 1 - failure all `values` noises are at most this: about t log(values/failure).

        Balcan (2015), Theorem 3, with its constant. Raises PlanError if an argument is out of range.
        """
        return self.shares.half_width(1, values, failure)
