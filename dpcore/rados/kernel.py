"""Rado sums: which rows, added up, exactly, over integers."""

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ShapeError, SlotOverflowError

# Every integer up to 2^53 is a double, so a floating-point product all of whose partial sums stay below is exact.
EXACT_DOUBLE = 1 << 53
EXACT_INT64 = 1 << 63

# Unpacked bits of one step: rows x rados doubles, 32 MiB.
STEP_ROWS = 4096
STEP_RADOS = 1024


def rado_sums(edges: NDArray[np.int64], selection: NDArray[np.uint8]) -> NDArray[np.int64]:
    """For each signature the sum of the edge vectors that it selects: int64 (n, d), exact.

    edges: (m, d) int64, any unit. selection: (n, ceil(m/8)) uint8, row i in bit i mod 8 of byte i div 8; bits beyond
    row m must be zero. Nock, Patrini, Friedman (ICML 2015), Definition 1, in the form sum of e_i over sigma_i = y_i.

    Rows and rados are taken in steps, so the working memory is bounded. A step is a product of doubles where every
    partial sum, in whatever order the library adds, is below 2^53 in magnitude, and of integers otherwise.

    Raises ShapeError where the arrays do not fit, SlotOverflowError where a sum might leave int64.
    """
    _check(edges, selection)
    rows, d = edges.shape
    sums = np.zeros((selection.shape[0], d), dtype=np.int64)
    for first_row in range(0, rows, STEP_ROWS):
        block = edges[first_row : first_row + STEP_ROWS]
        exact_in_double = _largest(block) * len(block) < EXACT_DOUBLE
        factor = block.astype(np.float64) if exact_in_double else block
        columns = slice(first_row // 8, -(-(first_row + len(block)) // 8))
        for first_rado in range(0, selection.shape[0], STEP_RADOS):
            rados = slice(first_rado, first_rado + STEP_RADOS)
            bits = np.unpackbits(selection[rados, columns], axis=1, count=len(block), bitorder="little")
            sums[rados] += (bits.astype(factor.dtype) @ factor).astype(np.int64)
    return sums


def add_rado_sums(total: NDArray[np.int64], edges: NDArray[np.int64], selection: NDArray[np.uint8]) -> None:
    """Add to each of n sums the edge vectors that it selects, in place.

    total: int64 (n, d). edges: int64 (rows, d). selection: uint8 (ceil(rows/8), n), C-contiguous: byte [g, j] holds the
    rows 8g to 8g + 7 of rado j, row 8g + i in bit i; bits beyond the last row must be zero.
    """
    total += rado_sums(edges, np.ascontiguousarray(selection.T))


def _largest(edges: NDArray[np.int64]) -> int:
    """The largest magnitude, as a Python integer: abs of int64's least value is itself in NumPy."""
    return max(int(edges.max()), -int(edges.min()))


def _check(edges: NDArray[np.int64], selection: NDArray[np.uint8]) -> None:
    if edges.ndim != 2 or edges.dtype != np.int64 or 0 in edges.shape:
        raise ShapeError(f"edges are {edges.dtype} of shape {edges.shape}: give int64 (rows, coordinates), none empty")
    rows = edges.shape[0]
    if selection.ndim != 2 or selection.dtype != np.uint8 or selection.shape[1] != -(-rows // 8):
        raise ShapeError(
            f"selection is {selection.dtype} of shape {selection.shape}: give uint8 (rados, {-(-rows // 8)}) "
            f"for {rows} rows"
        )
    if rows % 8 and bool((selection[:, -1] >> (rows % 8)).any()):
        raise ShapeError("selection has bits beyond the last row: set them to zero")
    largest_sum = _largest(edges) * rows
    if largest_sum >= EXACT_INT64:
        raise SlotOverflowError(
            needed_bits=largest_sum.bit_length() + 1, available_bits=64, remedy="lower fraction_bits or take fewer rows"
        )
