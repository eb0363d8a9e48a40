"""Packed selection bits: their size in bytes, and counts of their ones.

Row i is bit i mod 8 of byte i div 8 (little-endian bit order); bits beyond the last row are zero. A whole signature is
a row of such bytes, (n, ceil(m/8)). A block of rows is held group-major, (ceil(rows/8), n): byte [g, j] holds the rows
8g to 8g + 7 of rado j.
"""

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ShapeError
from dpcore.records.records import BLOCK_ROWS

# The most bytes whose one bits can be counted in one byte.
_BYTES_A_STEP = 31


def packed_width(rows: int) -> int:
    """Bytes of one packed signature of m = rows."""
    return -(-rows // 8)


def last_byte(rows: int) -> np.uint8:
    """The mask of the bits of a signature's last byte that stand for rows."""
    return np.uint8(0xFF >> (8 * packed_width(rows) - rows))


def rows_of_block(first_row: int, rows: int) -> int:
    """Number of rows in the block that begins at `first_row`, of m = rows. Raises ShapeError if none begins there."""
    if not 0 <= first_row < rows or first_row % BLOCK_ROWS:
        raise ShapeError(f"no block of {rows} rows begins at row {first_row}: give a multiple of {BLOCK_ROWS} below it")
    return min(BLOCK_ROWS, rows - first_row)


def ones_per_rado(block: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The number of rows of a group-major block that each rado selects: int64 (n,). block: uint8 (groups, n)."""
    ones = np.zeros(block.shape[1], dtype=np.int64)
    for first in range(0, len(block), _BYTES_A_STEP):
        ones += np.bitwise_count(block[first : first + _BYTES_A_STEP]).sum(axis=0, dtype=np.uint8)
    return ones
