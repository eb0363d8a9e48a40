"""Records prepared for a rado design, and their sums over signatures.

    records -> rounded signs (dp-feat) -> edges -> clipped -> with noise (fixed support) -> sums over signatures

Rounding is in dpcore.rados.rounding.

**A noised table** holds every edge with its noise, drawn once for an epoch and reused, so any number of rados over it
is free post-processing. The noise is derived from a key that depends on everything that the edges depend on. With a key
that depends on less, the difference of two releases would cancel the noise.
"""

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.fixed_point import check_room, largest
from dpcore.rados.designs.base import RadoDesign
from dpcore.rados.signatures import (
    CodedRows,
    GivenSignatures,
    Signatures,
    Truncation,
    UniformSignatures,
    check_drawable,
    signatures_of,
)
from dpcore.randomness.noise import add_discrete_gaussian
from dpcore.randomness.sources import KeyedRandom
from dpcore.records.computation import Computation, PartySecret, SumOverRows, sum_on_threads
from dpcore.records.records import BLOCK_ROWS, Records, edges, not_coded, sensitive_positive

# Rado sums: exact integer sums of the selected rows.


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
    from dpcore.rados import compiled  # noqa: PLC0415  (slow to import)

    kind, rows = _cells(magnitude, len(edges))
    permutes = compiled.PERMUTES and kind is np.int32
    if permutes and len(total) < compiled.BLOCK_RADOS:
        # A block's bytes are read at once.
        selection = np.pad(selection, ((0, 0), (0, compiled.BLOCK_RADOS - len(total))))
    sizes = compiled.permuted_sizes(*total.shape) if permutes else compiled.scratch_sizes(*total.shape)
    scratch: Any = [_aligned(size, kind) for size in sizes]
    if not permutes:
        scratch.append(total.shape[0] < FEW_RADOS)
    add_sums: Callable[..., None] = compiled.add_permuted if permutes else compiled.add_sums
    edges, selection = np.require(edges, requirements=("C", "A")), np.ascontiguousarray(selection)
    for first_row in range(0, len(edges), rows):
        groups = slice(first_row // 8, (first_row + rows) // 8 if first_row + rows < len(edges) else None)
        add_sums(total, edges[first_row : first_row + rows], selection[groups].reshape(-1), *scratch)


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


# The number changes with the sampler: another sampler under the same key would be another table of the same name.
_TABLE = b"rado.v1/noised-table/2\0"

# Most tries per rado for which summing all candidates is cheaper than drawing them twice, the first time to count.
_MOST_DRAWS_SUMMED = 2.0


@dataclass(frozen=True)
class NoisedTable:
    """The noise of one epoch, block by block of rows."""

    key: bytes = field(repr=False)
    """32 bytes, secret."""
    sigma: int

    @classmethod
    def of(cls, records: Records, design: RadoDesign, fraction_bits: int, secret: PartySecret) -> Self:
        """The table of these records."""
        clip = design.clipping
        assert clip is not None, "edges that are noised are clipped"
        # The block size too: with other blocks the same key would give the same table other noise.
        parameters = f"{fraction_bits}/{clip.norm_bound}/{clip.bias}/{design.edge_noise}/{BLOCK_ROWS}".encode()
        return cls(secret.key(_TABLE, records.digest + parameters), design.edge_noise)

    @property
    def epoch(self) -> bytes:
        """32 bytes that identify the epoch and reveal nothing about the key."""
        return hashlib.sha256(_TABLE + b"epoch\0" + self.key).digest()

    def add_noise(self, block: NDArray[np.int64], first_row: int) -> None:
        """Add the noise of the rows from `first_row` on to int64 (rows, d), C-contiguous, in place.

        Blocks begin at multiples of BLOCK_ROWS.
        """
        key = hmac.digest(self.key, first_row.to_bytes(8, "big"), "sha256")
        add_discrete_gaussian(block.reshape(-1), self.sigma, KeyedRandom(key))

    def noise(self, first_row: int, shape: tuple[int, int]) -> NDArray[np.int64]:
        """The noise that `add_noise` adds: int64, of this shape. For tests."""
        noise = np.zeros(shape, dtype=np.int64)
        self.add_noise(noise, first_row)
        return noise


@dataclass(frozen=True, eq=False)
class PreparedRecords:
    """Records whose edges can be summed over signatures."""

    records: Records
    """After rounding."""
    fraction_bits: int
    design: RadoDesign
    table: NoisedTable | None
    """The noise on the edges."""

    @classmethod
    def of(cls, records: Records, fraction_bits: int, design: RadoDesign, secret: PartySecret | None) -> Self:
        """Prepare records, as loaded, for a design. Raises ConfigurationError."""
        if design.rounded:
            from dpcore.rados.rounding import rounded  # noqa: PLC0415  (numba takes half a second to import)

            records = rounded(records, design.rounded, _require(secret))
        table = NoisedTable.of(records, design, fraction_bits, _require(secret)) if design.edge_noise else None
        return cls(records, fraction_bits, design, table)

    def sums_of(self, selection: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The sums for whole signatures, without shared noise: int64 (n, d). selection: packed bits (n, ceil(m/8))."""
        return self.sums_over(GivenSignatures(self.records.rows, selection))

    def sums_over(self, signatures: Signatures, sum_over_rows: SumOverRows = sum_on_threads) -> NDArray[np.int64]:
        """The sums for these signatures, without shared noise: int64 (n, d), exact (P6). Raises ShapeError."""
        if signatures.rows != self.records.rows:
            raise ShapeError(f"signatures of {signatures.rows} rows for {self.records.rows} records: draw them again")
        part = RadoPart(signatures, self.records.d, self.fraction_bits, self.design, self.table)
        return sum_over_rows(part, self.records)

    def drawn_sums(self, rados: int, computation: Computation) -> NDArray[np.int64]:
        """The sums for the draws of `signatures_of`: int64 (rados, d). If most fit, k is read off their sums."""
        admitted = Truncation.of(self.design, self.records.rows)
        if admitted is None or admitted.expected_draws > _MOST_DRAWS_SUMMED:
            counting = _watched(computation, done=False)
            signatures = signatures_of(self.design, self.records, rados, computation.random, counting.total)
            return self.sums_over(signatures, computation.total)
        check_drawable(self.design, rados)
        coordinate = admitted.coordinate
        sums: list[NDArray[np.int64]] = []
        watched = _watched(computation, done=False)
        negative = self.records.rows - _positive(self.records, coordinate, watched.total)

        def counts(candidates: UniformSignatures) -> NDArray[np.int64]:
            # Later rounds have few candidates: they report all rows as done.
            summing = _watched(computation, done=True) if sums else computation
            sums.append(self.sums_over(candidates, summing.total))
            # The sum is the selected rows with e = +1 less those with e = -1; k adds the rows with e = -1 to it.
            return negative + (sums[-1][:, coordinate] >> self.fraction_bits)

        drawn = admitted.draw(rados, computation.random, counts)
        return np.concatenate([total[kept] for total, (_, kept) in zip(sums, drawn.rounds, strict=True)])


@dataclass(frozen=True, eq=False)
class RadoPart:
    """Sums of a run of rows (RowPart). It holds keys: only the party's own workers may have it."""

    signatures: Signatures
    d: int
    """Coordinates."""
    fraction_bits: int
    design: RadoDesign
    table: NoisedTable | None
    """Noise on the edges."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return (self.signatures.rados, self.d)

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:
        """As `RowPart` says."""
        from dpcore.records.compiled import clip_in_place  # noqa: PLC0415  (numba takes half a second to import)

        clip = self.design.clipping
        for first, block in edges(records, self.fraction_bits, self.design.coded):
            if clip is not None:
                clip_in_place(clip, block, self.fraction_bits)
            if self.table is not None:
                self.table.add_noise(block, first_row + first)
            add_rado_sums(total, block, self.signatures.block(first_row + first))


def _positive(records: Records, coordinate: int, sum_over_rows: SumOverRows) -> int:
    """The number of rows whose edge is +1 at `coordinate`. Raises as `sensitive_positive` does for any row."""
    if records.are_elsewhere:
        others, positive = sum_over_rows(CodedRows((coordinate,)), records)[:, 0].tolist()
        if others:
            raise not_coded(coordinate)
        return int(positive)
    return sum(
        int(np.count_nonzero(sensitive_positive(records.between(first, first + BLOCK_ROWS), coordinate)))
        for first in range(0, records.rows, BLOCK_ROWS)
    )


def _watched(computation: Computation, *, done: bool) -> Computation:
    """The same computation, whose progress callback can stop a pass but reports a constant: all rows done, or none."""
    progress = computation.progress
    if progress is None:
        return computation
    return replace(computation, progress=lambda _, rows: progress(rows if done else 0, rows))


def _require(secret: PartySecret | None) -> PartySecret:
    if secret is None:
        raise ConfigurationError("this design repeats its draws and needs the party's secret: give one")
    return secret
