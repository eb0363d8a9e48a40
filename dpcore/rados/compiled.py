"""The loops over rows and rados, compiled: subset-sum tables of eight rows. Importing it compiles or loads them.

The "method of the four Russians" (Arlazarov, Dinic, Kronrod and Faradzev, 1970): a table holds all 256 partial sums of
eight rows, four of them in the first-level cache; with few rados, two tables of 16 for each byte. Additions wrap mod
2^32 or 2^64: a result is exact if the true sum fits.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled

TILE = 8
TABLES = 4
ENTRIES = 256

STEP_RADOS = 2048
"""Rados whose sums are kept apart from the total: 64 KiB of int32 per tile."""

STEP_GROUPS = 64
"""Groups of eight rows for which all tiles are done: their selection bytes stay in the second-level cache."""

STEP_ROWS = 8 * STEP_GROUPS

F = TypeVar("F", bound=Callable[..., Any])
_njit: Any = numba.njit(nogil=True)
_inner: Callable[[F], F] = _njit
Cells = NDArray[np.int32] | NDArray[np.int64]


def scratch_sizes(rados: int, d: int) -> tuple[int, int, int]:
    """The cells that `add_sums` needs for its tiles of edges, sums and tables."""
    tiles = -(-d // TILE)
    return tiles * STEP_ROWS * TILE, tiles * min(rados, STEP_RADOS) * TILE, TABLES * ENTRIES * TILE


def _vector_at(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> tuple[Any, Any]:
    """The address of TILE cells of a flat array from `index` on, and their type."""
    cells = ir.VectorType(context.get_value_type(kind.dtype), TILE)
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), cells.as_pointer()), cells


def _add_row(typing: Any, tables: Any, source: Any, target: Any, edges: Any, row: Any) -> Any:  # noqa: ARG001
    """tables[target : +TILE] = tables[source : +TILE] + edges[row : +TILE], as one vector addition."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        align = signature.args[0].dtype.bitwidth // 8
        source_at, cells = _vector_at(context, builder, signature.args[0], values[0], values[1])
        target_at, _ = _vector_at(context, builder, signature.args[0], values[0], values[2])
        row_at, _ = _vector_at(context, builder, signature.args[3], values[3], values[4])
        total = builder.add(
            builder.load(source_at, align=align, typ=cells), builder.load(row_at, align=align, typ=cells)
        )
        builder.store(total, target_at, align=align)
        return context.get_dummy_value()

    return types.void(tables, types.int64, types.int64, edges, types.int64), generate


def _lookup(index_bits: int) -> Callable[..., Any]:
    """The intrinsic that adds to one rado's TILE sums its entries of TABLES bytes, `index_bits` bits at a time."""
    entries, parts = 1 << index_bits, 8 // index_bits

    def look_up(typing: Any, sums: Any, place: Any, tables: Any, selection: Any, rado: Any, starts: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            align = signature.args[0].dtype.bitwidth // 8
            index_type = ir.IntType(64)
            sums_at, cells = _vector_at(context, builder, signature.args[0], values[0], values[1])
            total = builder.load(sums_at, align=align, typ=cells)
            bits = context.make_array(signature.args[3])(context, builder, values[3]).data
            for table in range(TABLES):
                start = builder.add(builder.extract_value(values[5], table), values[4])
                byte = builder.zext(builder.load(builder.gep(bits, [start]), typ=ir.IntType(8)), index_type)
                for part in range(parts):
                    shifted = builder.lshr(byte, ir.Constant(index_type, index_bits * part))
                    index = builder.and_(shifted, ir.Constant(index_type, entries - 1))
                    first = ir.Constant(index_type, (table * parts + part) * entries)
                    cell = builder.mul(builder.add(index, first), ir.Constant(index_type, TILE))
                    entry_at, _ = _vector_at(context, builder, signature.args[2], values[2], cell)
                    total = builder.add(total, builder.load(entry_at, align=align, typ=cells))
            builder.store(total, sums_at, align=align)
            return context.get_dummy_value()

        return types.void(sums, types.int64, tables, selection, types.int64, starts), generate

    return look_up


_add: Any = intrinsic(_add_row)
_add_by_bytes: Any = intrinsic(_lookup(8))
_add_by_nibbles: Any = intrinsic(_lookup(4))


@_inner
def _fill_tiles(edges: NDArray[np.int64], first_row: int, tiles: Cells) -> None:
    """Lay out STEP_GROUPS groups of rows tile by tile, with zeros beyond the last row or coordinate."""
    d = edges.shape[1]
    rows = min(STEP_ROWS, edges.shape[0] - first_row)
    for cell in range(tiles.size):
        tiles[cell] = 0
    for first_coordinate in range(0, d, TILE):
        width = min(TILE, d - first_coordinate)
        for row in range(rows):
            cell = first_coordinate * STEP_ROWS + row * TILE
            for place in range(width):
                tiles[cell + place] = edges[first_row + row, first_coordinate + place]


@_inner
def _fill_tables(tables: Cells, tiles: Cells, first_cell: int, index_bits: int) -> None:
    """The subset sums of TABLES times eight rows: entry b of a table is the sum of the rows whose bits are set in b."""
    size = (1 << index_bits) * TILE
    for table in range(TABLES * 8 // index_bits):
        start = table * size
        for place in range(TILE):
            tables[start + place] = 0
        for bit in range(index_bits):
            row = first_cell + (table * index_bits + bit) * TILE
            for entry in range(1 << bit):
                _add(tables, start + entry * TILE, start + ((1 << bit) + entry) * TILE, tiles, row)


@_inner
def _add_lookups(
    sums: Cells, first_sum: int, rados: int, tables: Cells, bits: NDArray[np.uint8], starts: tuple[int, ...], few: bool
) -> None:
    if few:
        for rado in range(rados):
            _add_by_nibbles(sums, first_sum + rado * TILE, tables, bits, rado, starts)
    else:
        for rado in range(rados):
            _add_by_bytes(sums, first_sum + rado * TILE, tables, bits, rado, starts)


@_inner
def _pour(total: NDArray[np.int64], first_rado: int, rados: int, sums: Cells) -> None:
    d = total.shape[1]
    for first_coordinate in range(0, d, TILE):
        width = min(TILE, d - first_coordinate)
        for rado in range(rados):
            cell = first_coordinate * rados + rado * TILE
            for place in range(width):
                total[first_rado + rado, first_coordinate + place] += np.int64(sums[cell + place])


_INPUT_BITS = types.Array(types.uint8, 1, "C", readonly=True)
_INPUT_EDGES = types.Array(types.int64, 2, "C", readonly=True)


@compiled(
    types.void(types.int64[:, ::1], _INPUT_EDGES, _INPUT_BITS, *[types.int32[::1]] * 3, types.boolean),
    types.void(types.int64[:, ::1], _INPUT_EDGES, _INPUT_BITS, *[types.int64[::1]] * 3, types.boolean),
)
def add_sums(
    total: NDArray[np.int64],
    edges: NDArray[np.int64],
    bits: NDArray[np.uint8],
    tiles: Cells,
    sums: Cells,
    tables: Cells,
    few: bool,
) -> None:
    """Add to each rado the edge vectors that it selects, in place; dpcore.rados.sums checks the arguments.

    total: (n, d). edges: (rows, d). bits: ceil(rows/8) times n. tiles, sums, tables: scratch of `scratch_sizes`, int32
    if every sum fits, else int64. few: whether to use tables of 16.
    """
    n, d = total.shape
    groups = (edges.shape[0] + 7) // 8
    for first_rado in range(0, n, STEP_RADOS):
        rados = min(STEP_RADOS, n - first_rado)
        for cell in range(sums.size):
            sums[cell] = 0
        for first_group in range(0, groups, STEP_GROUPS):
            _fill_tiles(edges, first_group * 8, tiles)
            for tile in range(-(-d // TILE)):
                for group in range(first_group, min(groups, first_group + STEP_GROUPS), TABLES):
                    rows_before = tile * STEP_ROWS + (group - first_group) * 8
                    _fill_tables(tables, tiles, rows_before * TILE, 4 if few else 8)
                    # A group beyond the last has tables of zeros, so its bits do not matter.
                    starts = (
                        group * n + first_rado,
                        min(group + 1, groups - 1) * n + first_rado,
                        min(group + 2, groups - 1) * n + first_rado,
                        min(group + 3, groups - 1) * n + first_rado,
                    )
                    _add_lookups(sums, tile * rados * TILE, rados, tables, bits, starts, few)
        _pour(total, first_rado, rados, sums)


# Loops of dpcore.rados.support: they move one row at a time in or out of a rado's support. Both take words of a
# keystream, return the rado at which these ran out, and resume there.


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

    movable, moved: (n, blocks), rows that may move and those allotted. moves: (n,), still to allot. A word is a block
    and a number below 2^block_shift, a hit below the block's remaining rows.
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

    selection: uint8 (groups, n), changed in place. moves: (n,), rows to take out, or, if negative, to put in. A word
    encodes a row, a hit if it may still move.
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
