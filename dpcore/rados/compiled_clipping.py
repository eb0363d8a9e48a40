"""Clipping whole blocks of edges in place, compiled: what `Clip.apply` gives, bit for bit.

Importing this module imports Numba: import it where something is computed.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpcore.rados.clipping import Clip
from dpcore.rados.compiling import compiled

_LARGEST = (1 << 63) - 1


def clip_in_place(clip: Clip, vectors: NDArray[np.int64], fraction_bits: int) -> None:
    """Shorten the rows that are too long. vectors: (rows, d) int64, C-contiguous; units and errors as of `Clip.apply`.

    The bound is verified on the integers that are written, in exact arithmetic, whatever rounding did before.
    """
    clip.check_room(vectors.shape[1], fraction_bits)
    bias_squared = 1 << 2 * fraction_bits if clip.bias else 0
    # No squared length is beyond the largest integer, so a bound that is changes nothing.
    most = min(clip.squared_units(fraction_bits) - bias_squared, _LARGEST)
    _shorten(vectors, vectors.shape[1] - int(clip.bias), most)


@compiled(types.void(types.int64[:, ::1], types.int64, types.int64))
def _shorten(vectors: NDArray[np.int64], width: int, most: int) -> None:
    """Shorten the first `width` coordinates of each row until their squares add up to `most` or less."""
    for row in range(len(vectors)):
        squared = np.int64(0)
        for place in range(width):
            squared += vectors[row, place] ** 2
        if squared <= most:
            continue
        factor = np.sqrt(np.float64(most) / np.float64(squared))
        while True:
            squared = np.int64(0)
            for place in range(width):
                squared += np.int64(np.float64(vectors[row, place]) * factor) ** 2
            if squared <= most:
                break
            # Rounding may leave a row one unit too long; a little less then.
            factor *= 1 - 2.0**-40
        for place in range(width):
            vectors[row, place] = np.int64(np.float64(vectors[row, place]) * factor)
