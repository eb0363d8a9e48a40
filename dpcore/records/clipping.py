"""Clipping: limits the norm of each record's vector to R, which bounds the sensitivity of a sum."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError
from dpcore.numbers.rationals import check_rational

MOST_FRACTION_BITS = 24
"""Squared lengths of up to 2^14 coordinates stay below 2^63."""


@dataclass(frozen=True)
class Clip:
    """The clipping norm R: a bound on the Euclidean length of a record's vector, including the bias.

    bias: whether the last coordinate is the bias. It is 1 in every usable row and is never shortened. The other
    coordinates are clipped to a length of sqrt(R^2 - 1). Raises PlanError if R leaves no room for them.
    """

    norm_bound: Fraction
    bias: bool

    def __post_init__(self) -> None:
        check_rational("norm_bound", self.norm_bound)
        if self.bias and self.norm_bound <= 1:
            raise PlanError(
                f"norm_bound is {float(self.norm_bound):g}: choose more than 1, the length of the bias alone"
            )

    def squared_units(self, fraction_bits: int) -> int:
        """floor(R^2 4^fraction_bits): the largest squared length of a clipped integer vector, with the bias.

        Raises PlanError if fraction_bits is too large for squares in int64.
        """
        if not 0 <= fraction_bits <= MOST_FRACTION_BITS:
            raise PlanError(f"fraction_bits is {fraction_bits}: clipped vectors take 0 to {MOST_FRACTION_BITS}")
        return int(self.norm_bound**2 * (1 << 2 * fraction_bits))

    def check_room(self, d: int, fraction_bits: int) -> None:
        """Raise PlanError if squared lengths of d coordinates at these fraction_bits might not fit int64."""
        self.squared_units(fraction_bits)
        if d << 2 * fraction_bits >= 1 << 63:
            raise PlanError(
                f"squares of {d} coordinates of {fraction_bits} bits may exceed 64 bits: lower fraction_bits"
            )

    def apply(self, vectors: NDArray[np.int64], fraction_bits: int) -> NDArray[np.int64]:
        """The rows, clipped and truncated toward zero: int64; a new array if any row was clipped.

        vectors: (rows, d) int64 in units of 2^-fraction_bits, within [-2^f, 2^f]. The bound is verified on the returned
        integers in exact arithmetic, so it does not depend on rounding.

        Raises PlanError if fraction_bits is out of range, or d is so large that a square might not fit int64.
        """
        self.check_room(vectors.shape[1], fraction_bits)
        most = self.squared_units(fraction_bits) - (1 << 2 * fraction_bits if self.bias else 0)
        free = vectors[:, :-1] if self.bias else vectors
        squares = np.square(free).sum(axis=1)
        long = np.flatnonzero(squares > most)
        if not len(long):
            return vectors
        clipped = vectors.copy()
        width = free.shape[1]
        factors = np.sqrt(most / squares[long])
        while len(long):
            shortened = np.trunc(free[long] * factors[:, np.newaxis]).astype(np.int64)
            clipped[long, :width] = shortened
            # Rounding may leave a row one unit too long; retry with a slightly smaller factor.
            left = np.square(shortened).sum(axis=1) > most
            long, factors = long[left], factors[left] * (1 - 2.0**-40)
        return clipped
