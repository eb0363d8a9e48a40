"""The loops over rows and rados, compiled: sums of subsets of rows, and rounding. Importing it compiles or loads them.

The "method of the four Russians" (Arlazarov, Dinic, Kronrod and Faradzev, 1970): a table holds all 256 partial sums of
eight rows, four of them in the first-level cache; with few rados, two tables of 16 for each byte. With AVX-512 a table
of 16 is a register.

Additions wrap mod 2^32 or 2^64: a result is exact if the true sum fits.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled, processor_has
from dpcore.numbers.fixed_point import ONE

TILE = 8
TABLES = 4
ENTRIES = 256

STEP_RADOS = 2048
"""Rados whose sums are kept apart from the total: 64 KiB of int32 per tile."""

STEP_GROUPS = 64
"""Groups of eight rows for which all tiles are done: their selection bytes stay in the second-level cache."""

STEP_ROWS = 8 * STEP_GROUPS

F = TypeVar("F", bound=Callable[..., Any])
_cgutils: Any = cgutils
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


# With AVX-512: a table of four rows is one register of 16 int32, and a permutation of it looks up 16 rados at once. The
# sums of 64 rados stay in registers while 256 rows are added.


_LANES = 16
_BLOCKS = 4
BLOCK_RADOS = _LANES * _BLOCKS
"""Rados at a time: one byte of each is read at once."""

_WIDTH = 4
"""Coordinates at a time: their sums of 64 rados take half the registers."""
_TILE_CELLS = _WIDTH * BLOCK_RADOS

_PERMUTED_GROUPS = 32
"""Groups of eight rows at a time: the tables of a tile and the bytes of 1,000 rados fit the first-level cache."""

_GROUP_CELLS = 2 * _WIDTH * _LANES

PERMUTES = processor_has("avx512f")
"""Whether this processor has the permutation, and `add_permuted` can be called."""


def permuted_sizes(rados: int, d: int) -> tuple[int, int]:
    """The cells that `add_permuted` needs for its sums and tables."""
    return -(-rados // BLOCK_RADOS) * -(-d // _WIDTH) * _TILE_CELLS, _PERMUTED_GROUPS * _GROUP_CELLS


_SIXTEEN = ir.VectorType(ir.IntType(32), _LANES)


def _sixteen_at(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """The address of 16 int32, or their bytes, of a flat array from `index` on."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _SIXTEEN.as_pointer())


def _sums_of_four(typing: Any, tables: Any, cell: Any, rows: Any) -> Any:  # noqa: ARG001
    """tables[cell : +16] = the subset sums of four int32: entry b is the sum of those whose bits are set in b."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        total = zero = ir.Constant(_SIXTEEN, [0] * _LANES)
        for bit in range(4):
            row = builder.insert_element(zero, builder.extract_value(values[2], bit), ir.Constant(ir.IntType(32), 0))
            every = builder.shuffle_vector(row, zero, zero)
            chosen = ir.Constant(_SIXTEEN, [-(entry >> bit & 1) for entry in range(_LANES)])
            total = builder.add(total, builder.and_(every, chosen))
        builder.store(total, _sixteen_at(context, builder, signature.args[0], values[0], values[1]), align=4)
        return context.get_dummy_value()

    return types.void(tables, types.int64, rows), generate


def _permute(typing: Any, sums: Any, cell: Any, tables: Any, bits: Any, first: Any, stride: Any, groups: Any) -> Any:  # noqa: ARG001
    """Add to sums[cell : +_TILE_CELLS] what 64 bytes of each group select: from `first` on, and each `stride` later."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        int64 = ir.IntType(64)

        def at(argument: int, index: Any) -> Any:
            return _sixteen_at(context, builder, signature.args[argument], values[argument], index)

        def load(address: Any, align: int = 4) -> Any:
            return builder.load(address, align=align, typ=_SIXTEEN)

        kind = ir.FunctionType(_SIXTEEN, [_SIXTEEN, _SIXTEEN])
        permuted = _cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.permvar.si.512")
        targets = [at(0, builder.add(values[1], ir.Constant(int64, k))) for k in range(0, _TILE_CELLS, _LANES)]
        # LLVM makes registers of these.
        totals = [_cgutils.alloca_once_value(builder, load(target)) for target in targets]
        with _cgutils.for_range(builder, values[6]) as loop:
            chosen = load(at(3, builder.add(values[4], builder.mul(loop.index, values[5]))), align=1)
            first_table = builder.mul(loop.index, ir.Constant(int64, _GROUP_CELLS))
            for half, place in product(range(2), range(_WIDTH)):
                cell = ir.Constant(int64, (half * _WIDTH + place) * _LANES)
                table = load(at(2, builder.add(first_table, cell)))
                for block in range(_BLOCKS):
                    # Only the lowest four bits of each lane count. They are bits of rado 4 lane + block.
                    index = builder.lshr(chosen, ir.Constant(_SIXTEEN, [8 * block + 4 * half] * _LANES))
                    total = totals[place * _BLOCKS + block]
                    builder.store(builder.add(load(total), builder.call(permuted, [table, index])), total)
        for total, target in zip(totals, targets, strict=True):
            builder.store(load(total), target, align=4)
        return context.get_dummy_value()

    return types.void(sums, types.int64, tables, bits, types.int64, types.int64, types.int64), generate


_fill_four: Any = intrinsic(_sums_of_four)
_add_permuted: Any = intrinsic(_permute)


@_inner
def _edge(edges: NDArray[np.int64], row: int, coordinate: int) -> np.int32:
    """The edge's coordinate, zero beyond the last row or coordinate."""
    inside = row < edges.shape[0] and coordinate < edges.shape[1]
    return np.int32(edges[row, coordinate]) if inside else np.int32(0)


@_inner
def _fill_registers(
    tables: NDArray[np.int32], edges: NDArray[np.int64], first_row: int, first_coordinate: int, groups: int
) -> None:
    """The tables of _WIDTH coordinates: two for each group, of four rows each."""
    for half in range(2 * groups):
        row = first_row + half * 4
        for place in range(_WIDTH):
            coordinate = first_coordinate + place
            rows = (
                _edge(edges, row, coordinate),
                _edge(edges, row + 1, coordinate),
                _edge(edges, row + 2, coordinate),
                _edge(edges, row + 3, coordinate),
            )
            _fill_four(tables, (half * _WIDTH + place) * _LANES, rows)


@_inner
def _pour_permuted(
    total: NDArray[np.int64], sums: NDArray[np.int32], first_rado: int, block_rado: int, first_cell: int
) -> None:
    """Add the sums of the block of rados that begins at `block_rado` to the total from `first_rado` on."""
    n, d = total.shape
    for rado in range(first_rado, min(n, first_rado + BLOCK_RADOS)):
        lane, block = divmod(rado - block_rado, _BLOCKS)
        for coordinate in range(d):
            cell = first_cell + (coordinate * _BLOCKS + block) * _LANES + lane
            total[rado, coordinate] += np.int64(sums[cell])


def _add_by_permutations(
    total: NDArray[np.int64],
    edges: NDArray[np.int64],
    bits: NDArray[np.uint8],
    sums: NDArray[np.int32],
    tables: NDArray[np.int32],
) -> None:
    """As `add_sums`, if every sum fits int32.

    bits: ceil(rows/8) times n, or BLOCK_RADOS if that is more. sums, tables: scratch of `permuted_sizes`.
    """
    groups, d = (edges.shape[0] + 7) // 8, total.shape[1]
    tiles, stride = -(-d // _WIDTH), len(bits) // groups
    for cell in range(sums.size):
        sums[cell] = 0
    for first_group in range(0, groups, _PERMUTED_GROUPS):
        here = min(_PERMUTED_GROUPS, groups - first_group)
        for tile in range(tiles):
            _fill_registers(tables, edges, first_group * 8, tile * _WIDTH, here)
            for rado in range(0, stride, BLOCK_RADOS):
                cell = (rado // BLOCK_RADOS * tiles + tile) * _TILE_CELLS
                # The last block begins earlier rather than end beyond the last byte.
                first_bit = first_group * stride + min(rado, stride - BLOCK_RADOS)
                _add_permuted(sums, cell, tables, bits, first_bit, stride, here)
    for rado in range(0, total.shape[0], BLOCK_RADOS):
        _pour_permuted(total, sums, rado, min(rado, stride - BLOCK_RADOS), rado * tiles * _WIDTH)


if PERMUTES:
    add_permuted = compiled(types.void(types.int64[:, ::1], _INPUT_EDGES, _INPUT_BITS, *[types.int32[::1]] * 2))(
        _add_by_permutations
    )


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


# One-bit rounding (dpcore.rados.rounding).


@compiled(
    types.void(
        types.uint32[:, ::1],
        types.Array(types.int32, 2, "C", readonly=True),
        types.Array(types.int32, 1, "C", readonly=True),
        types.int64,
        types.uint32[:, ::1],
    )
)
def mix_contents(
    state: NDArray[np.uint32],
    features: NDArray[np.int32],
    labels: NDArray[np.int32],
    first: int,
    mixed: NDArray[np.uint32],
) -> None:
    """What CBC mode encrypts next, of each record: its state xor the words of its content from `first` on.

    state, mixed: (rows, 4). A record's content is its d features, its label, and zeros.
    """
    # Unsigned: Numba takes signed indices for places that may count from the end.
    d, start = np.uint64(features.shape[1]), np.uint64(first)
    if start + np.uint64(4) <= d:
        for row in range(np.uint64(len(features))):
            for place in range(np.uint64(4)):
                mixed[row, place] = state[row, place] ^ np.uint32(features[row, start + place])
        return
    for row in range(np.uint64(len(features))):
        for place in range(np.uint64(4)):
            mixed[row, place] = state[row, place]
        for place in range(d - start):
            mixed[row, place] ^= np.uint32(features[row, start + place])
        mixed[row, d - start] ^= np.uint32(labels[row])


@compiled(
    types.void(
        types.Array(types.int32, 2, "C", readonly=True),
        types.int64,
        types.Array(types.boolean, 1, "C", readonly=True),
        types.Array(types.uint32, 1, "C", readonly=True),
        types.int8[::1],
    )
)
def draw_signs(
    features: NDArray[np.int32],
    coordinate: int,
    usable: NDArray[np.bool_],
    codes: NDArray[np.uint32],
    signs: NDArray[np.int8],
) -> None:
    """Write the sign of each row, for its coordinate's value x: 1 if its code is below (1 + x) 2^30, else -1.

    Rows that are not usable get 0. features: (rows, d), in units of 2^-30. codes: (rows,), below 2^31.
    """
    for row in range(len(features)):
        sign = 1 if np.int64(codes[row]) < np.int64(features[row, coordinate]) + ONE else -1
        signs[row] = np.int8(sign if usable[row] else 0)
