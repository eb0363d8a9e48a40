"""The rados query: each record gives its edge vector to the rados whose signature selects it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.numbers.count_distributions import binomial_law
from dpcore.queries.base import Crowd
from dpcore.rados.designs import (
    Design,
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
)
from dpcore.rados.distribution import CentralCount, RadoLaw
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
from dpcore.rados.support import support_size
from dpcore.rados.truncation import truncation
from dpcore.randomness.discrete_gaussian import discrete_gaussian, tail_bound
from dpcore.randomness.sources import RandomSource
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.records import BLOCK_ROWS, Records, edges, sensitive_positive
from dpcore.records.row_sums import SumOverRows, sum_on_threads

# Tries per rado up to which summing all candidates is cheaper than drawing them twice, once to count.
_MOST_DRAWS_SUMMED = 2.0


@dataclass(frozen=True)
class RadosQuery:
    """n rados drawn from a design. Raises PlanError where rados < 1."""

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
        if isinstance(self.design, FixedSupportDesign | GaussianDesign):
            self.design.clip.check_room(crowd.d, fraction_bits)
        sums = crowd.rows << fraction_bits
        values = self.length(crowd.d)
        match self.design:
            case GaussianDesign(share_sigma=sigma) | JointDesign(share_sigma=sigma):
                return sums + tail_bound(sigma, crowd.parties, values)
            case FixedSupportDesign(edge_sigma=sigma) if sigma:
                return sums + tail_bound(sigma, crowd.rows, values)
            case _:
                return sums

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's part of each rado: int64 (n d,), in units of 2^-fraction_bits.

        Signatures are drawn block by block of rows and forgotten: memory for n d sums and one block on each thread.
        Raises what `dpcore.rados.signatures.signatures_of` and `dpcore.records.records.edges` raise, and
        ConfigurationError where the design needs the party's secret and there is none.
        """
        sums = self.prepare(records, fraction_bits, computation.secret).drawn_sums(self.rados, computation)
        self.add_noise(sums, computation.random)
        return sums.reshape(-1)

    def prepare(self, records: Records, fraction_bits: int, secret: PartySecret | None = None) -> "PreparedRecords":
        """The records as the design sums them: rounded, clipped, noised. Raises ConfigurationError as above."""
        table = None
        match self.design:
            case DpFeatDesign() as design if design.rounded:
                records = rounded(records, design.rounded, _require(secret))
            case FixedSupportDesign() as design if design.edge_sigma:
                table = NoisedTable.of(records, design, fraction_bits, _require(secret))
        return PreparedRecords(records, fraction_bits, self.design, table)

    def add_noise(self, sums: NDArray[np.int64], random: RandomSource) -> None:
        """Add this party's share of the noise in place. sums: (n, d) int64, in units of 2^-fraction_bits."""
        match self.design:
            case GaussianDesign() as design:
                sums += discrete_gaussian(design.share_sigma, sums.size, random).reshape(sums.shape)
            case JointDesign() as design:
                share = discrete_gaussian(design.share_sigma, len(sums) * len(design.coordinates), random)
                sums[:, list(design.coordinates)] += share.reshape(len(sums), -1)

    def law(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoLaw:
        """What the rados' law is, for a learner, over parties with these row counts; variances in real units.

        With a support the inclusion is that of the pool, sum m*_p / m, each party's being a whole number of its rows.
        Raises EmptyTruncationError where a party has no admissible signature.
        """
        unit, parties = 4.0**-fraction_bits, len(party_rows)
        match self.design:
            case DpFeatDesign() as design:
                rounding = np.isin(np.arange(d), design.rounded) if design.rounded else None
                return RadoLaw(rounding=rounding, central=_central(design, party_rows))
            case JointDesign() as design:
                noise = np.zeros(d)
                noise[list(design.coordinates)] = parties * float(design.share_sigma) ** 2 * unit
                return RadoLaw(rado_noise=noise)
            case FixedSupportDesign() as design:
                noise = np.full(d, float(design.edge_sigma) ** 2 * unit)
                inclusion = _included(design.fraction, party_rows if design.split == "local" else (sum(party_rows),))
                return RadoLaw(inclusion=inclusion, fixed_support=True, edge_noise=noise)
            case GaussianDesign() as design:
                noise = np.full(d, parties * float(design.share_sigma) ** 2 * unit)
                inclusion = 0.5 if design.fraction is None else _included(design.fraction, party_rows)
                return RadoLaw(inclusion=inclusion, fixed_support=design.fraction is not None, rado_noise=noise)
            case _:
                return RadoLaw()

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

    def sums_over(self, signatures: Signatures, sum_over_rows: SumOverRows = sum_on_threads) -> NDArray[np.int64]:
        """The sums for these signatures, without shared noise: int64 (n, d).

        Over integers the parties' sums add up to the pooled sum of the concatenated signatures, bit for bit (P6).
        Raises ShapeError where the signatures are of another number of rows.
        """
        if signatures.rows != self.records.rows:
            raise ShapeError(f"signatures of {signatures.rows} rows for {self.records.rows} records: draw them anew")
        part = RadoPart(signatures, self.records.d, self.fraction_bits, self.design, self.table)
        return sum_over_rows(part, self.records)

    def drawn_sums(self, rados: int, computation: Computation) -> NDArray[np.int64]:
        """The sums for what `signatures_of` draws, in fewer passes: int64 (rados, d).

        Where a truncation admits most signatures, k is read off the sums of the candidates, all of which are summed.
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
            # Later rounds have few candidates: their progress is that all rows are done.
            summing = _watched(computation, done=True) if sums else computation
            sums.append(self.sums_over(candidates, summing.total))
            # Selected rows with e = +1 less those with e = -1; and what agrees is either the former or not the latter.
            return negative + (sums[-1][:, coordinate] >> self.fraction_bits)

        drawn = admitted.draw(rados, computation.random, counts)
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

        design = self.design
        sensitive: tuple[int, ...] = ()
        if isinstance(design, PlainDesign):
            sensitive = design.booleans
        elif isinstance(design, DpFeatDesign):
            sensitive = design.coordinates
        for first, block in edges(records, self.fraction_bits, sensitive):
            if isinstance(design, FixedSupportDesign | GaussianDesign):
                clip_in_place(design.clip, block, self.fraction_bits)
            if self.table is not None:
                np.add(block, self.table.noise(first_row + first, block.shape), out=block)
            add_rado_sums(total, block, self.signatures.block(first_row + first))


def _included(fraction: Fraction, party_rows: Sequence[int]) -> float:
    return sum(support_size(rows, fraction) for rows in party_rows) / sum(party_rows)


def _central(design: DpFeatDesign, party_rows: Sequence[int]) -> CentralCount | None:
    """What is public of the truncated k; coins exchangeable given it have 4 Var(k_p) = m_p (1 + (m_p - 1) rho)."""
    if design.epsilon_per_rado is None:
        return None
    correlation = 0.0
    drawn = party_rows if design.split == "local" else (sum(party_rows),)
    for rows in drawn:
        law = binomial_law(rows, truncation(rows, design.epsilon_per_rado)[0])
        k = law.low + np.arange(len(law.masses))
        variance = min(float(law.masses @ (k - rows / 2.0) ** 2), rows / 4.0)
        correlation += (4.0 * variance - rows) / max(rows - 1, 1) / sum(drawn)
    return CentralCount(design.coordinates[0], correlation)


def _positive(records: Records, coordinate: int) -> int:
    """Rows whose edge is +1 there. Raises what `sensitive_positive` raises: every row is looked at."""
    return sum(
        int(np.count_nonzero(sensitive_positive(records.between(first, first + BLOCK_ROWS), coordinate)))
        for first in range(0, records.rows, BLOCK_ROWS)
    )


def _watched(computation: Computation, *, done: bool) -> Computation:
    """The same, whose progress callback can stop a pass but shows no progress of it: all rows are done, or none."""
    progress = computation.progress
    if progress is None:
        return computation
    return replace(computation, progress=lambda _, rows: progress(rows if done else 0, rows))


def _require(secret: PartySecret | None) -> PartySecret:
    if secret is None:
        raise ConfigurationError("this design repeats its draws and needs the party's secret; give it one")
    return secret
