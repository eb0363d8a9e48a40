"""Compiled loops of dpcore.rados.support: they move one row at a time in or out of a rado's support.

Both take the words of a keystream in turn, return the rado at which the words ran out, and resume there. They use
integers only: the distribution is exact.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled

_INT64 = types.int64


def _given(kind: types.Type, dimensions: int) -> types.Array:
    return types.Array(kind, dimensions, "C", readonly=True)


@compiled(
    _INT64(_given(types.uint16, 2), types.uint16[:, ::1], types.int64[::1], *[_INT64] * 3, _given(types.uint64, 1))
)
def allot(
    movable: NDArray[np.uint16],
    moved: NDArray[np.uint16],
    moves: NDArray[np.int64],
    first_rado: int,
    block_shift: int,
    mask: int,
    words: NDArray[np.uint64],
) -> int:
    """Allot each rado's moves to blocks, as drawing without replacement; returns the rado at which words ran out.

    movable: (n, blocks), the rows of each block that may move. moved: (n, blocks), those allotted so far, raised in
    place. moves: (n,), those still to allot, lowered in place. A word encodes a block and a number below 2^block_shift;
    it is a hit if the number is below the block's remaining rows.
    """
    used = 0
    blocks = movable.shape[1]
    for rado in range(first_rado, len(movable)):
        while moves[rado] > 0:
            if used == len(words):
                return rado
            word = words[used] & np.uint64(mask)
            used += 1
            block = np.int64(word >> np.uint64(block_shift))
            member = np.int64(word & np.uint64((1 << block_shift) - 1))
            if block < blocks and member < np.int64(movable[rado, block]) - np.int64(moved[rado, block]):
                moved[rado, block] += np.uint16(1)
                moves[rado] -= 1
    return len(movable)


@compiled(_INT64(types.uint8[:, ::1], _INT64, types.int64[::1], *[_INT64] * 2, _given(types.uint16, 1)))
def move(
    selection: NDArray[np.uint8],
    rows: int,
    moves: NDArray[np.int64],
    first_rado: int,
    mask: int,
    words: NDArray[np.uint16],
) -> int:
    """Take uniform rows of a block out of each rado, or put them in; returns the rado at which words ran out.

    selection: uint8 (groups, n), changed in place. moves: (n,), the rows to take out of each rado, or, if negative, to
    put in; brought to zero in place. A word encodes a row; it is a hit if that row may still move, so each hit is
    uniform among those rows.
    """
    used = 0
    for rado in range(first_rado, selection.shape[1]):
        taken_out = moves[rado] > 0
        while moves[rado] != 0:
            if used == len(words):
                return rado
            row = np.int64(words[used]) & mask
            used += 1
            if row >= rows:
                continue
            bit = np.uint8(1 << (row & 7))
            byte = selection[row >> 3, rado]
            if ((byte & bit) != 0) == taken_out:
                selection[row >> 3, rado] = byte ^ bit
                moves[rado] += -1 if taken_out else 1
    return int(selection.shape[1])
