"""The Gaussian mechanism on integers: exact discrete Gaussian noise, with the least standard deviation that suffices.

Calibrated to the tight (epsilon, delta) of Gaussian noise (Balle and Wang, ICML 2018, Theorem 8), not to the classical
sqrt(2 log(1.25/delta)) / epsilon, and corrected for the difference of integer noise (dpcore.accounting.integer_noise).
"""

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.gaussian import ShiftDistribution
from dpcore.accounting.integer_noise import IntegerNoise, smallest_share
from dpcore.accounting.noise_shares import GaussianShares
from dpcore.errors import DataError, PlanError
from dpcore.randomness.sources import RandomSource
from dpcore.research.mechanisms.checks import check_epsilon, integer_values


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
