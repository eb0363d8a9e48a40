"""The rados query: each record gives its edge vector to the rados whose signature selects it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.protection import Protection, Scope, Setting
from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.progress import Progress
from dpcore.queries.base import Crowd, Keyed
from dpcore.queries.kind import QueryKind
from dpcore.rados.designs import Design
from dpcore.rados.distribution import RadoLaw
from dpcore.rados.kernel import add_rado_sums
from dpcore.rados.noised_table import NoisedTable
from dpcore.rados.rounding import rounded
from dpcore.rados.signatures import (
    GivenSignatures,
    Signatures,
    Truncation,
    UniformSignatures,
    check_drawable,
    signatures_of,
)
from dpcore.randomness.sources import RandomSource
from dpcore.records.records import BLOCK_ROWS, Records, edges, sensitive_positive
from dpcore.records.row_sums import RowPart, RowSums, sum_on_threads
from dpcore.records.schema import Schema

RADOS_LEAK = (
    "Rados are not protected as a whole: where there are no more rows than coordinates, independent component analysis "
    "recovers every row's edge vector from the rados alone."
)

# Tries per rado up to which summing all candidates is cheaper than drawing them twice, once to count.
_MOST_DRAWS_SUMMED = 2.0


@dataclass(frozen=True)
class RadosQuery(QueryKind):
    """n rados drawn from a design. Raises PlanError where rados < 1."""

    array: ClassVar[str] = "rados"
    learned_as: ClassVar[Literal["rados"]] = "rados"
    leaks: ClassVar[tuple[str, ...]] = (RADOS_LEAK,)

    rados: int
    design: Design

    def __post_init__(self) -> None:
        if self.rados < 1:
            raise PlanError(f"{self.rados} rados: ask for at least one")

    def length(self, d: int) -> int:
        """Values n d: the rados one after the other."""
        return self.rados * d

    def shape(self, d: int) -> tuple[int, ...]:
        """(n, d): one rado a row."""
        return (self.rados, d)

    def largest_sum(self, crowd: Crowd, fraction_bits: int) -> int:
        """A bound on every value's magnitude: rows 2^fraction_bits, and what the noise exceeds by 2^-64 at most.

        No coordinate is beyond [-1, 1], and a rado takes a row at most once. Raises PlanError where clipping has no
        room for so many coordinates or fraction_bits: no party could answer.
        """
        if self.design.clipping is not None:
            self.design.clipping.check_room(crowd.d, fraction_bits)
        sums = crowd.rows << fraction_bits
        return sums + self.design.noise_bound(crowd.rows, crowd.parties, self.length(crowd.d))

    def contribution(
        self,
        records: Records,
        fraction_bits: int,
        random: RandomSource,
        progress: Progress | None = None,
        keyed: Keyed | None = None,
        row_sums: RowSums = sum_on_threads,
    ) -> NDArray[np.int64]:
        """This party's part of each rado: int64 (n d,), in units of 2^-fraction_bits.

        Signatures are drawn block by block of rows and forgotten: memory for n d sums and one block on each thread.
        progress is told (rows done, m_p). Raises what `dpcore.rados.signatures.signatures_of` and
        `dpcore.records.records.edges` raise, and ConfigurationError where the design needs `keyed` and there is none.
        """
        sums = self.prepare(records, fraction_bits, keyed).drawn_sums(self.rados, random, progress, row_sums)
        self.add_noise(sums, random)
        return sums.reshape(-1)

    def prepare(self, records: Records, fraction_bits: int, keyed: Keyed | None = None) -> "PreparedRecords":
        """The records as the design sums them: rounded, clipped, noised. Raises ConfigurationError as above."""
        if self.design.rounded:
            known = _require(keyed)
            records = rounded(records, self.design.rounded, known.secret, known.schema_digest)
        return PreparedRecords(records, fraction_bits, self.design, self._table(records, fraction_bits, keyed))

    def _table(self, records: Records, fraction_bits: int, keyed: Keyed | None) -> NoisedTable | None:
        if not self.design.edge_noise:
            return None
        known = _require(keyed)
        return NoisedTable.of(records, self.design, fraction_bits, known.schema_digest, known.secret)

    def epoch(self, records: Records, fraction_bits: int, keyed: Keyed) -> bytes | None:
        """See `QueryKind`."""
        table = self._table(records, fraction_bits, keyed)
        return None if table is None else table.epoch

    @property
    def name(self) -> str:
        """The design's: see `QueryKind`."""
        return self.design.name

    def words(self) -> str:
        """See `QueryKind`."""
        return f"{self.contents}, design {self.design.words()}"

    @property
    def contents(self) -> str:
        """See `QueryKind`."""
        return f"{self.rados} rados"

    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """See `QueryKind`."""
        return {"n": self.rados, "d": d, "unit": f"2^-{fraction_bits}"}

    @property
    def amounts(self) -> Mapping[str, int]:
        """See `QueryKind`."""
        return {"rados": self.rados}

    def fewer(self, most: int, d: int) -> str:
        """See `QueryKind`."""
        return f"ask for at most {most // d} rados" if most >= d else super().fewer(most, d)

    @property
    def scope(self) -> Scope:
        """See `QueryKind`."""
        return self.design.scope

    def protection(self, setting: Setting) -> Protection:
        """See `QueryKind`."""
        return self.design.protection(self.rados, setting)

    @property
    def is_promised(self) -> bool:
        """See `QueryKind`."""
        return self.design.is_promised

    def with_noise(self, share_sigma: int) -> Self:
        """See `QueryKind`."""
        return replace(self, design=self.design.with_noise(share_sigma))

    def features(self, schema: Schema) -> tuple[str, ...]:
        """See `QueryKind`."""
        return self.design.features(schema)

    @property
    def protected_column(self) -> str:
        """See `QueryKind`."""
        return self.design.protected_column

    def noise_words(self, parties: int, honest: int) -> str:
        """See `QueryKind`."""
        return self.design.noise_words(parties, honest) or super().noise_words(parties, honest)

    def add_noise(self, sums: NDArray[np.int64], random: RandomSource) -> None:
        """Add this party's share of the noise in place. sums: (n, d) int64, in units of 2^-fraction_bits."""
        self.design.add_noise(sums, random)

    def law(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoLaw:
        """What the rados' law is, for a learner, over parties with these row counts; variances in real units.

        With a support the inclusion is that of the pool, sum m*_p / m, each party's being a whole number of its rows.
        Raises EmptyTruncationError where a party has no admissible signature.
        """
        return self.design.distribution(d, party_rows, fraction_bits)

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
        """The rados in real units, (n, d) float64: integers divided by 2^fraction_bits, exact below 2^53.

        Raises ShapeError where the total's length is no positive multiple of n.
        """
        return np.multiply(self.integers(total), 2.0**-fraction_bits)

    def integers(self, total: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rados in units of 2^-fraction_bits, (n, d). Raises ShapeError as `decode` does."""
        if total.ndim != 1 or total.size == 0 or total.size % self.rados:
            raise ShapeError(f"a total of shape {total.shape} is not {self.rados} rados: give n times d values")
        return total.reshape(self.rados, -1)


@dataclass(frozen=True, eq=False)
class PreparedRecords:
    """Records whose edges can be summed over signatures. records: rounded already; table: the noise on the edges."""

    records: Records
    fraction_bits: int
    design: Design
    table: NoisedTable | None

    def sums_of(self, selection: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The sums for whole signatures, without shared noise: int64 (n, d). selection: packed bits (n, ceil(m/8))."""
        return self.sums_over(GivenSignatures(self.records.rows, selection))

    def sums_over(
        self,
        signatures: Signatures,
        progress: Progress | None = None,
        row_sums: RowSums = sum_on_threads,
    ) -> NDArray[np.int64]:
        """The sums for these signatures, without shared noise: int64 (n, d).

        Over integers the parties' sums add up to the pooled sum of the concatenated signatures, bit for bit (P6).
        Raises ShapeError where the signatures are of another number of rows.
        """
        if signatures.rows != self.records.rows:
            raise ShapeError(f"signatures of {signatures.rows} rows for {self.records.rows} records: draw them anew")
        part = RadoPart(signatures, self.records.d, self.fraction_bits, self.design, self.table)
        return row_sums(part, self.records, progress)

    def drawn_sums(
        self, rados: int, random: RandomSource, progress: Progress | None = None, row_sums: RowSums = sum_on_threads
    ) -> NDArray[np.int64]:
        """The sums for what `signatures_of` draws from `random`, in fewer passes: int64 (rados, d).

        Where a truncation admits most signatures, k is read off the sums of the candidates, all of which are summed.
        """
        admitted = Truncation.of(self.design, self.records.rows)
        if admitted is None or admitted.expected_draws > _MOST_DRAWS_SUMMED:
            counting = _watched(row_sums, progress, done=False)
            return self.sums_over(signatures_of(self.design, self.records, rados, random, counting), progress, row_sums)
        check_drawable(self.design, rados)
        coordinate = admitted.coordinate
        sums: list[NDArray[np.int64]] = []
        negative = self.records.rows - _positive(self.records, coordinate)

        def counts(candidates: UniformSignatures) -> NDArray[np.int64]:
            # Of later rounds, which have few candidates, progress tells nothing but that all rows are done.
            summing = _watched(row_sums, progress, done=True) if sums else row_sums
            sums.append(self.sums_over(candidates, progress, summing))
            # Selected rows with e = +1 less those with e = -1; and what agrees is either the former or not the latter.
            return negative + (sums[-1][:, coordinate] >> self.fraction_bits)

        drawn = admitted.draw(rados, random, counts)
        return np.concatenate([total[kept] for total, (_, kept) in zip(sums, drawn.rounds, strict=True)])


@dataclass(frozen=True, eq=False)
class RadoPart:
    """What a run of rows adds to the rados (dpcore.records.row_sums.RowPart).

    d: coordinates. table: noise on the edges.

    It holds the key of the signatures, and of the table: it goes to the party's own workers only.
    """

    signatures: Signatures
    d: int
    fraction_bits: int
    design: Design
    table: NoisedTable | None

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
    """Rows whose edge is +1 there. Raises what `sensitive_positive` raises: every row is looked at."""
    return sum(
        int(np.count_nonzero(sensitive_positive(records.between(first, first + BLOCK_ROWS), coordinate)))
        for first in range(0, records.rows, BLOCK_ROWS)
    )


def _watched(row_sums: RowSums, progress: Progress | None, *, done: bool) -> RowSums:
    """The same, which lets `progress` stop a pass that it does not tell the progress of: all is done, or nothing."""

    def watched(part: RowPart, records: Records, progress: Progress | None = progress) -> NDArray[np.int64]:
        tell = progress
        return row_sums(part, records, tell and (lambda _, rows: tell(rows if done else 0, rows)))

    return watched


def _require(keyed: Keyed | None) -> Keyed:
    if keyed is None:
        raise ConfigurationError("this design repeats its draws and needs the party's secret; give it one")
    return keyed
