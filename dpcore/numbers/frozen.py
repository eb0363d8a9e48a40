"""Arrays inside frozen values: read-only, and copied only where somebody could still write to them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


def frozen(values: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """The values as a read-only array in row order; any shape.

    An array of that type is taken as it is where nobody may write to it nor to an array that it is a part of: set
    `flags.writeable = False` on a large array before it is handed over, and it is not copied. Everything else is.
    """
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.c_contiguous and _is_read_only(values):
        return values
    copy = np.array(values, dtype=dtype, order="C")
    copy.setflags(write=False)
    return copy


def _is_read_only(array: NDArray[Any]) -> bool:
    """Whether the array and all that it is a view of are read-only; bytes, unlike other buffers, always are."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return owner is None or isinstance(owner, bytes)
