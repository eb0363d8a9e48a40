"""Clipping: limits the norm of each record's vector to R, which bounds the sensitivity of a sum."""

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.rationals import check_rational

MOST_FRACTION_BITS = 24
"""Squared lengths of up to 2^14 coordinates stay below 2^63."""


@dataclass(frozen=True)
class Clip:
    """The clipping norm R: a bound on the Euclidean length of a record's vector, including the bias.

    bias: whether the last coordinate is the bias: it is not shortened, and leaves sqrt(R^2 - 1).
    Raises PlanError if the norm is not positive, or with a bias not above 1.
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
        """floor(R^2 4^fraction_bits): the largest squared length, with the bias. Raises PlanError for too many bits."""
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

        vectors: (rows, d) int64 in units of 2^-fraction_bits, within [-2^f, 2^f]. Verified in exact arithmetic. Raises
        PlanError if a square might not fit int64.
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


# A basis in which records are expressed before clipping: z = P e, in integers, P the inverse root of the records'
# second moments by earlier releases. So one clipping norm suits all records and one noise scale all directions.


BASIS_BITS = 12
LARGEST_ENTRY = 1 << 31
MOST_COORDINATES = 4096


@dataclass(frozen=True)
class Basis:
    """P as d rows of d integers in units of 2^-BASIS_BITS; hashable. Raises PlanError."""

    entries: tuple[tuple[int, ...], ...] = field(repr=False)

    def __post_init__(self) -> None:
        d = len(self.entries)
        if not 1 <= d <= MOST_COORDINATES or any(len(row) != d for row in self.entries):
            raise PlanError(f"a basis is a square matrix of 1 to {MOST_COORDINATES} rows: give d rows of d entries")
        if max(max(row) for row in self.entries) > LARGEST_ENTRY or min(map(min, self.entries)) < -LARGEST_ENTRY:
            raise PlanError(f"an entry of the basis is beyond {LARGEST_ENTRY >> BASIS_BITS}: scale it down")

    @classmethod
    def of(cls, matrix: NDArray[np.float64]) -> "Basis":
        """The basis nearest to a real (d, d) matrix. Raises ShapeError if it is not square, PlanError as above."""
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
            raise ShapeError(f"a basis has shape {matrix.shape}: give a finite square matrix")
        scaled = np.rint(np.ldexp(matrix, BASIS_BITS))
        if float(np.abs(scaled).max(initial=0.0)) > LARGEST_ENTRY:
            raise PlanError(f"an entry of the basis is beyond {LARGEST_ENTRY >> BASIS_BITS}: scale it down")
        return cls(tuple(map(tuple, scaled.astype(np.int64).tolist())))

    @property
    def d(self) -> int:
        """Number of coordinates."""
        return len(self.entries)

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """(d, d) float64 in real units, exactly as applied; read-only."""
        matrix = np.ldexp(np.array(self.entries, dtype=np.float64), -BASIS_BITS)
        matrix.setflags(write=False)
        return matrix

    @cached_property
    def largest(self) -> int:
        """A bound on the coordinates of z, for records in [-1, 1]: the largest L1 norm of a row, rounded up."""
        longest = max(sum(map(abs, row)) for row in self.entries)
        return -(-longest >> BASIS_BITS) + 1

    def check_room(self, fraction_bits: int) -> None:
        """Raise PlanError if a product with records of this many fraction bits might not be exact."""
        if self.largest << BASIS_BITS + fraction_bits >= 1 << 53:
            raise PlanError("the basis is too large for exact products: scale it down, or lower fraction_bits")

    def products(self, vectors: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
        """P times each row, in the rows' own units, with BASIS_BITS more bits: float64 (rows, d).

        vectors: (rows, d) integers in units of 2^-f, within [-2^f, 2^f], with an f that `check_room` accepts. Exact in
        any order of summation: all partial sums are integers of double precision, times 2^-BASIS_BITS.
        """
        return vectors.astype(np.float64, copy=False) @ self.matrix.T

    def apply(self, vectors: NDArray[np.int64]) -> NDArray[np.int64]:
        """The products, truncated toward zero: int64 (rows, d)."""
        return np.trunc(self.products(vectors)).astype(np.int64)
