"""Records prepared for a rado design, and their sums over signatures.

    records -> rounded signs (dp-feat) -> edges -> clipped -> with noise (fixed support) -> sums over signatures

**One-bit rounding** replaces a real-valued sensitive coordinate by a random sign with the value as its mean, so the
edge's coordinate is coded -1/+1 as DP-FEAT needs.

The sign is drawn from HMAC-SHA-256 under the party's secret over schema, feature and the record's content, so repeated
queries do not average the rounding away. E[b^2] = 1, not x^2: estimators correct the diagonal (RadoDistribution).

**A noised table** holds every edge with its noise, drawn once for an epoch and reused, so any number of rados over it
is free post-processing. The noise is derived from a key that depends on everything that the edges depend on. With a key
that depends on less, the difference of two releases would cancel the noise.
"""

import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.rados.designs.base import RadoDesign
from dpcore.rados.kernel import add_rado_sums
from dpcore.rados.signatures import (
    GivenSignatures,
    Signatures,
    Truncation,
    UniformSignatures,
    check_drawable,
    signatures_of,
)
from dpcore.randomness.discrete_gaussian import discrete_gaussian
from dpcore.randomness.sources import KeyedRandom
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.records import BLOCK_ROWS, Records, edges, sensitive_positive
from dpcore.records.row_sums import SumOverRows, sum_on_threads

_ROUNDING = b"rado.v1/one-bit-rounding\0"
_TABLE = b"rado.v1/noised-table\0"

# Most tries per rado for which summing all candidates is cheaper than drawing them twice, the first time to count.
_MOST_DRAWS_SUMMED = 2.0


def rounded(records: Records, coordinates: Sequence[int], secret: PartySecret) -> Records:
    """The records with these coordinates replaced by their signs; rows that are not usable stay zero.

    records: as loaded, without any rounding. The order distinguishes records with the same content, so that their signs
    are independent. The probability is exact: 31 bits of the code are compared with the stored value.
    """
    features = records.features.copy()
    for coordinate in coordinates:
        key = secret.key(_ROUNDING, coordinate.to_bytes(8, "big"))
        signs = np.where(_codes(records, key) < records.features[:, coordinate].astype(np.int64) + ONE, ONE, -ONE)
        features[:, coordinate] = np.where(records.usable, signs, 0)
    return Records(features, records.labels, records.usable)


def _codes(records: Records, key: bytes) -> NDArray[np.int64]:
    """A uniform integer in [0, 2^31) for each record: int64 (m,)."""
    seen: Counter[bytes] = Counter()
    codes = np.empty(records.rows, dtype=np.int64)
    contents = np.column_stack([records.features, records.labels.astype(np.int32)])
    for index, content in enumerate(np.ascontiguousarray(contents, dtype="<i4")):
        digest = hashlib.sha256(content.tobytes()).digest()
        code = hmac.digest(key, digest + seen[digest].to_bytes(8, "big"), "sha256")
        seen[digest] += 1
        codes[index] = int.from_bytes(code[:4], "big") >> 1
    return codes


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

    def noise(self, first_row: int, shape: tuple[int, int]) -> NDArray[np.int64]:
        """The noise of the rows from `first_row` on: int64 (rows, d). Blocks begin at multiples of BLOCK_ROWS."""
        key = hmac.digest(self.key, first_row.to_bytes(8, "big"), "sha256")
        return discrete_gaussian(self.sigma, shape[0] * shape[1], KeyedRandom(key)).reshape(shape)


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
        """Prepare records, as loaded, for a design.

        Raises ConfigurationError if the design repeats its draws and there is no secret.
        """
        if design.rounded:
            records = rounded(records, design.rounded, _require(secret))
        table = NoisedTable.of(records, design, fraction_bits, _require(secret)) if design.edge_noise else None
        return cls(records, fraction_bits, design, table)

    def sums_of(self, selection: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The sums for whole signatures, without shared noise: int64 (n, d). selection: packed bits (n, ceil(m/8))."""
        return self.sums_over(GivenSignatures(self.records.rows, selection))

    def sums_over(self, signatures: Signatures, sum_over_rows: SumOverRows = sum_on_threads) -> NDArray[np.int64]:
        """The sums for these signatures, without shared noise: int64 (n, d).

        Over integers the parties' sums add up to the pooled sum of the concatenated signatures, bit for bit (P6).
        Raises ShapeError if the signatures are of another number of rows.
        """
        if signatures.rows != self.records.rows:
            raise ShapeError(f"signatures of {signatures.rows} rows for {self.records.rows} records: draw them again")
        part = RadoPart(signatures, self.records.d, self.fraction_bits, self.design, self.table)
        return sum_over_rows(part, self.records)

    def drawn_sums(self, rados: int, computation: Computation) -> NDArray[np.int64]:
        """The sums for the draws of `signatures_of`, in fewer passes: int64 (rados, d).

        If a truncation admits most signatures, all candidates are summed and k is read off their sums.
        """
        admitted = Truncation.of(self.design, self.records.rows)
        if admitted is None or admitted.expected_draws > _MOST_DRAWS_SUMMED:
            counting = _watched(computation, done=False)
            signatures = signatures_of(self.design, self.records, rados, computation.random, counting.total)
            return self.sums_over(signatures, computation.total)
        check_drawable(self.design, rados)
        coordinate = admitted.coordinate
        sums: list[NDArray[np.int64]] = []
        negative = self.records.rows - _positive(self.records, coordinate)

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
    """The sums of a run of rows that are added to the rados (dpcore.records.row_sums.RowPart).

    It holds the keys of the signatures and of the table: only the party's own workers may have it.
    """

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
        from dpcore.records.compiled_edges import clip_in_place  # noqa: PLC0415  (numba takes half a second to import)

        clip = self.design.clipping
        for first, block in edges(records, self.fraction_bits, self.design.coded):
            if clip is not None:
                clip_in_place(clip, block, self.fraction_bits)
            if self.table is not None:
                np.add(block, self.table.noise(first_row + first, block.shape), out=block)
            add_rado_sums(total, block, self.signatures.block(first_row + first))


def _positive(records: Records, coordinate: int) -> int:
    """The number of rows whose edge is +1 at `coordinate`. Raises as `sensitive_positive` does for any row."""
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
