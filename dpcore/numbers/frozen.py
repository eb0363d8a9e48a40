"""Read-only arrays for frozen values. An array is copied only if it could still be written to."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def frozen(values: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """The values as a read-only array in row order; any shape.

    An array of that type is not copied if it and the arrays that it is a view of are read-only; anything else is. To
    avoid a copy of a large array, set `flags.writeable = False` before passing it.
    """
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.c_contiguous and _is_read_only(values):
        return values
    copy = np.array(values, dtype=dtype, order="C")
    copy.setflags(write=False)
    return copy


def _is_read_only(array: NDArray[Any]) -> bool:
    """Whether the array and everything that it is a view of is read-only. Of the buffers, only bytes always are."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or isinstance(owner, bytes)
