"""Records prepared for a rado design, and their sums over signatures.

    records -> rounded signs (dp-feat) -> edges -> clipped -> with noise (fixed support) -> sums over signatures

**One-bit rounding** replaces a real-valued sensitive coordinate by a random sign with the value as its mean, so the
edge's coordinate is coded -1/+1 as DP-FEAT needs.

The sign is drawn by a keyed function, under a key of the party's secret, schema and feature, of the record's content,
so repeated queries do not average the rounding away. E[b^2] = 1, not x^2: estimators correct the diagonal
(RadoDistribution).

The keyed function is the last block of AES-256 in CBC mode. On records of one length it differs from a random function
by at most 2 q^2 l^2 / 2^128 for q records of l blocks, plus the advantage against AES-256 (Bellare, Kilian and Rogaway,
JCSS 61(3), 2000, Theorem 3.1): 2^-66 for 10^8 records of 63 coordinates.

**A noised table** holds every edge with its noise, drawn once for an epoch and reused, so any number of rados over it
is free post-processing. The noise is derived from a key that depends on everything that the edges depend on. With a key
that depends on less, the difference of two releases would cancel the noise.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
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
from dpcore.records.computation import RUN_BLOCKS, Computation, PartySecret, SumOverRows, on_threads, sum_on_threads
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


# The numbers change with the sampler: another sampler under the same key would be another table of the same name.
_ROUNDING = b"rado.v1/one-bit-rounding/2\0"
_TABLE = b"rado.v1/noised-table/2\0"

# Coordinates in a block of AES.
_BLOCK_WIDTH = 4

# Most tries per rado for which summing all candidates is cheaper than drawing them twice, the first time to count.
_MOST_DRAWS_SUMMED = 2.0


def rounded(records: Records, coordinates: Sequence[int], secret: PartySecret) -> Records:
    """The records with these coordinates replaced by their signs; rows that are not usable stay zero.

    The place distinguishes records of the same content. Exact: 31 bits of the code are compared with the value.
    """
    from dpcore.rados.compiled import round_to_signs  # noqa: PLC0415  (numba takes half a second to import)

    codes = [_codes(records, secret.key(_ROUNDING, coordinate.to_bytes(8, "big"))) for coordinate in coordinates]
    features = np.empty(records.features.shape, dtype=np.int32)

    def round_run(rows: slice) -> None:
        features[rows] = records.features[rows]
        usable = np.ascontiguousarray(records.usable[rows])
        for coordinate, code in zip(coordinates, codes, strict=True):
            round_to_signs(features[rows], coordinate, usable, code[rows])

    list(on_threads(round_run, _slices(records.rows, BLOCK_ROWS * RUN_BLOCKS)))
    return records.holding(features)


def _slices(rows: int, at_once: int) -> list[slice]:
    return [slice(first, min(first + at_once, rows)) for first in range(0, rows, at_once)]


def _codes(records: Records, key: bytes) -> NDArray[np.uint32]:
    """A uniform integer in [0, 2^31) for each record: uint32 (m,)."""
    contents, codes = np.empty((2, records.rows), dtype=np.uint64), np.empty(records.rows, dtype=np.uint32)

    def digest(run: slice) -> None:
        cipher = _Cipher(key)
        for first in range(run.start, run.stop, BLOCK_ROWS):
            rows = slice(first, min(first + BLOCK_ROWS, run.stop))
            digests = cipher.digests(records.between(rows.start, rows.stop))
            contents[:, rows] = digests.view("<u8").T
            # Of the first record with its content, whose number is 0.
            codes[rows] = cipher.encrypted(digests)[:, 0] >> 1

    def number(run: slice) -> None:
        cipher = _Cipher(key)
        for rows in np.array_split(repeated[run], -(-len(repeated[run]) // BLOCK_ROWS)):
            numbered = np.stack([contents[0, rows] ^ earlier[rows], contents[1, rows]], axis=1)
            codes[rows] = cipher.encrypted(numbered.astype("<u8", copy=False).view("<u4"))[:, 0] >> 1

    list(on_threads(digest, _slices(records.rows, BLOCK_ROWS * RUN_BLOCKS)))
    earlier = _occurrences(contents)
    repeated = np.flatnonzero(earlier)
    list(on_threads(number, _slices(len(repeated), BLOCK_ROWS * RUN_BLOCKS)))
    return codes


class _Cipher:
    """AES-256 in CBC mode of up to BLOCK_ROWS records at once, for one thread."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()  # noqa: S305  (steps of CBC mode)
        self._mixed = np.empty((BLOCK_ROWS, _BLOCK_WIDTH), dtype=np.uint32)
        # The library wants room for a block that is not whole, too.
        self._encrypted = np.empty(self._mixed.nbytes + 15, dtype=np.uint8)

    def digests(self, records: Records) -> NDArray[np.uint32]:
        """Each record's content in CBC mode, all but the block with its number: uint32 (m, 4), until the next call."""
        from dpcore.rados.compiled import mix  # noqa: PLC0415  (numba takes half a second to import)

        features = np.require(records.features, requirements=("C", "A"))
        labels = np.ascontiguousarray(records.labels, dtype=np.int32)
        mixed = self._mixed[: records.rows]
        state = np.zeros_like(mixed)
        for first in range(0, records.d + 1, _BLOCK_WIDTH):
            mix(state.astype(np.uint32, copy=False), features, labels, first, mixed)
            state = self.encrypted(mixed.astype("<u4", copy=False))
        return state

    def encrypted(self, blocks: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Each row, of 16 bytes, encrypted: of the same shape, until the next call."""
        self._cipher.update_into(blocks.data.cast("B"), self._encrypted[: blocks.nbytes + 15].data)
        return self._encrypted[: blocks.nbytes].view("<u4").reshape(blocks.shape)


def _occurrences(contents: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """For each row, how many earlier rows equal it: uint64 (m,). contents: (2, m)."""
    earlier = np.zeros(contents.shape[1], dtype=np.uint64)
    ordered = np.sort(contents[0])
    repeated = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(repeated):
        return earlier
    found = np.minimum(np.searchsorted(repeated, contents[0]), len(repeated) - 1)
    rows = np.flatnonzero(repeated[found] == contents[0])
    # The sort is stable, so rows that are equal stand in their order.
    rows = rows[np.lexsort((contents[1, rows], contents[0, rows]))]
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = (contents[:, rows[1:]] != contents[:, rows[:-1]]).any(axis=0)
    places = np.arange(len(rows))
    earlier[rows] = places - np.maximum.accumulate(np.where(first, places, 0))
    return earlier


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
        """The noise that `add_noise` adds: int64, of this shape."""
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
