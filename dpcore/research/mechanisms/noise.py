"""The Laplace mechanism on integers, in one and more dimensions: discrete Laplace noise, exact.

Dwork, McSherry, Nissim and Smith (TCC 2006); Balcan's notes on differential privacy and statistical queries (2015),
Theorem 3; on integers Ghosh, Roughgarden and Sundararajan (STOC 2009). Noise x has mass (1 - q)/(1 + q) q^|x|, q =
exp(-1/t), t = sensitivity / epsilon, independently on each coordinate.

If a record moves the values by at most `sensitivity` in total, |v - v'|_1, an output's probabilities differ by a factor
of at most exp(sensitivity / t) = e^epsilon. This is reached if all of the move is in one coordinate.

An average of n numbers in [0, b] is the sum of n integers, with sensitivity b in their units, divided afterwards.
"""

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.composition import LARGEST_EPSILON
from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.accounting.noise_shares import GaussianShares, IntegerNoise, LaplaceShares, smallest_scale, smallest_share
from dpcore.errors import DataError, PlanError
from dpcore.randomness.sources import RandomSource

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


# The Gaussian mechanism on integers: exact discrete Gaussian noise, with the least standard deviation that suffices.
#
# Calibrated to the tight (epsilon, delta) of Gaussian noise (Balle and Wang, ICML 2018, Theorem 8), not to the
# classical sqrt(2 log(1.25/delta)) / epsilon, and corrected for the difference of integer noise
# (dpcore.accounting.noise_shares).


@dataclass(frozen=True)
class GaussianMechanism:
    """Discrete Gaussian noise on `coordinates` integers, (epsilon, delta)-private in total.

    Raises PlanError if a field is out of range or the noise would need a standard deviation beyond 2^48.
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
        """With probability at least 1 - failure the noise on every answer is at most this. Raises PlanError."""
        return GaussianShares(self.sigma).half_width(1, self.coordinates, failure)
