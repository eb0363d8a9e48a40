"""Checks that integer sums stay within int64."""

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import SlotOverflowError

EXACT_INT64 = 1 << 63


def largest(values: NDArray[np.int64]) -> int:
    """The largest magnitude as a Python integer (NumPy's abs of int64's minimum overflows). 0 for no values."""
    return max(int(values.max()), -int(values.min())) if values.size else 0


def check_room(largest_sum: int) -> None:
    """Raise SlotOverflowError if a sum of this magnitude might exceed int64."""
    if largest_sum >= EXACT_INT64:
        raise SlotOverflowError(
            needed_bits=largest_sum.bit_length() + 1, available_bits=64, remedy="lower fraction_bits or use fewer rows"
        )
