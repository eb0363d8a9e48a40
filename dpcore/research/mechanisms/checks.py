"""Validation of parameters and of released values, shared by the mechanisms."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.composition import LARGEST_EPSILON
from dpcore.errors import DataError, PlanError

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
