"""Rado sums: exact integer sums of the selected rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ShapeError
from dpcore.numbers.integer_bounds import check_room, largest

LINE_BYTES = 64

EXACT_INT32 = 1 << 31

# Rows of whole signatures that are transposed into groups at a time: a multiple of 8.
STEP_ROWS = 4096

# With fewer rows at a time than this, int32 costs more than int64.
LEAST_ROWS = 256

# Below this many rados two tables of 16 are cheaper than one of 256; the sums are the same.
FEW_RADOS = 300


def rado_sums(edges: NDArray[np.int64], selection: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The exact sum of the edge vectors that each signature selects: int64 (n, d).

    edges: (m, d) int64, any unit. selection: (n, ceil(m/8)) uint8, row i in bit i mod 8 of byte i div 8; bits beyond
    row m must be zero. Nock, Patrini, Friedman (ICML 2015), Definition 1, in the form sum of e_i over sigma_i = y_i.

    Raises ShapeError if the arrays do not fit, SlotOverflowError if a sum might leave int64.
    """
    _check(edges, selection.T)
    check_room(largest(edges) * len(edges))
    total = np.zeros((len(selection), edges.shape[1]), dtype=np.int64)
    for first_row in range(0, len(edges), STEP_ROWS):
        groups = selection[:, first_row // 8 : (first_row + STEP_ROWS) // 8].T
        add_rado_sums(total, edges[first_row : first_row + STEP_ROWS], groups)
    return total


def add_rado_sums(total: NDArray[np.int64], edges: NDArray[np.int64], selection: NDArray[np.uint8]) -> None:
    """Add to each of n sums the edge vectors that its rado selects, in place, exactly, without the interpreter's lock.

    total: int64 (n, d), C-contiguous and aligned. edges: int64 (rows, d), any unit. selection: uint8 (ceil(rows/8), n):
    byte [g, j] holds the rows 8g to 8g + 7 of rado j, row 8g + i in bit i; bits beyond the last row must be zero.

    Raises ShapeError if the arrays do not fit, SlotOverflowError if a sum might leave int64; the total is then
    unchanged.
    """
    _check(edges, selection)
    if total.dtype != np.int64 or total.shape != (selection.shape[1], edges.shape[1]):
        raise ShapeError(
            f"total is {total.dtype} of shape {total.shape}: give int64 ({selection.shape[1]}, {edges.shape[1]})"
        )
    if not total.flags.carray:
        raise ShapeError("total is read-only, not aligned or a view that is not C-contiguous: give a new array")
    magnitude = largest(edges)
    if total.size == 0:
        return
    check_room(magnitude * len(edges) + largest(total))
    from dpcore.rados import compiled_kernel as compiled  # noqa: PLC0415 - Numba, only where something is computed

    kind, rows = _cells(magnitude, len(edges))
    tiles, sums, tables = (_aligned(size, kind) for size in compiled.scratch_sizes(*total.shape))
    edges, selection = np.require(edges, requirements=("C", "A")), np.ascontiguousarray(selection)
    for first_row in range(0, len(edges), rows):
        groups = slice(first_row // 8, (first_row + rows) // 8 if first_row + rows < len(edges) else None)
        compiled.add_sums(
            total,
            edges[first_row : first_row + rows],
            selection[groups].reshape(-1),
            tiles,
            sums,
            tables,
            total.shape[0] < FEW_RADOS,
        )


def _cells(magnitude: int, rows: int) -> tuple[type[np.int32 | np.int64], int]:
    """The integer type for sums, and the rows at a time, a multiple of 8 or all, so that no sum overflows it."""
    fitting = rows if magnitude == 0 else min(rows, (EXACT_INT32 - 1) // magnitude)
    if fitting == rows:
        return np.int32, rows
    if fitting >= LEAST_ROWS:
        return np.int32, fitting // 8 * 8
    return np.int64, rows


def _aligned(size: int, kind: type[np.int32 | np.int64]) -> NDArray[Any]:
    """Uninitialised cells aligned to a cache line: vectors across two lines make the kernel a third slower."""
    width = np.dtype(kind).itemsize
    cells = np.empty(size + LINE_BYTES // width, dtype=kind)
    first = -cells.__array_interface__["data"][0] % LINE_BYTES // width
    return cells[first : first + size]


def _check(edges: NDArray[np.int64], selection: NDArray[np.uint8]) -> None:
    """Raise ShapeError unless the arrays fit; selection: (groups, n)."""
    if edges.ndim != 2 or edges.dtype != np.int64 or 0 in edges.shape:
        raise ShapeError(f"edges are {edges.dtype} of shape {edges.shape}: give int64 (rows, coordinates), none empty")
    rows = edges.shape[0]
    if selection.ndim != 2 or selection.dtype != np.uint8 or selection.shape[0] != -(-rows // 8):
        raise ShapeError(
            f"selection is {selection.dtype} of shape {selection.shape}, groups by rados: give uint8 bits, "
            f"{-(-rows // 8)} groups for {rows} rows"
        )
    if rows % 8 and bool((selection[-1] >> (rows % 8)).any()):
        raise ShapeError("selection has bits beyond the last row: set them to zero")
