"""Edge vectors and their clipping, compiled: exact integers, one block of rows at a time.

Importing this module imports Numba, which is slow: import it only in functions that compute.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled
from dpcore.records.clipping import Clip

_LARGEST = (1 << 63) - 1


def clip_in_place(clip: Clip, vectors: NDArray[np.int64], fraction_bits: int) -> None:
    """Clip rows in place; the result equals that of `Clip.apply` bit for bit.

    vectors: (rows, d) int64, C-contiguous; units and errors as of `Clip.apply`.

    The bound is verified on the written integers in exact arithmetic, so it does not depend on rounding.
    """
    clip.check_room(vectors.shape[1], fraction_bits)
    bias_squared = 1 << 2 * fraction_bits if clip.bias else 0
    # No squared length exceeds the largest int64, so capping the bound there changes nothing.
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
            # Rounding may leave a row one unit too long; retry with a slightly smaller factor.
            factor *= 1 - 2.0**-40
        for place in range(width):
            vectors[row, place] = np.int64(np.float64(vectors[row, place]) * factor)


@compiled(
    types.void(
        types.Array(types.int32, 2, "C", readonly=True),
        types.Array(types.int8, 1, "C", readonly=True),
        types.Array(types.boolean, 1, "C", readonly=True),
        types.Array(types.int64, 1, "C", readonly=True),
        types.int64,
        types.int64[:, ::1],
    )
)
def fill_edges(
    features: NDArray[np.int32],
    labels: NDArray[np.int8],
    usable: NDArray[np.bool_],
    sensitive: NDArray[np.int64],
    fraction_bits: int,
    block: NDArray[np.int64],
) -> None:
    """Write y trunc(x 2^fraction_bits) of every row into `block`, (rows, d); see dpcore.records.records.edges.

    features: (rows, d) in units of 2^-30, within [-2^30, 2^30]. sensitive: coordinates that are 2^fraction_bits in
    unusable rows.
    """
    rows, d = features.shape
    shift = 30 - fraction_bits
    below = (1 << shift) - 1
    for row in range(rows):
        if not usable[row]:
            # Its features are not read: those of a row that is held back are not zero (Records.only).
            for coordinate in range(d):
                block[row, coordinate] = 0
            for coordinate in sensitive:
                block[row, coordinate] = 1 << fraction_bits
            continue
        # -1 in two's complement: (v ^ -1) - -1 = -v. A product would be slower without AVX-512.
        sign = np.int64(labels[row]) >> 63
        for coordinate in range(d):
            value = np.int64(features[row, coordinate])
            # An arithmetic shift rounds down. Adding 2^shift - 1 to negative values first makes it round toward zero.
            value = (value + ((value >> 63) & below)) >> shift
            block[row, coordinate] = (value ^ sign) - sign
