"""The rados query: each record contributes its edge vector to the rados whose rado signature selects it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import GaussianShares
from dpcore.accounting.protection import Protection, Scope, Setting
from dpcore.errors import PlanError, ShapeError
from dpcore.queries.kind import FractionBits, QueryKind, QueryLimits
from dpcore.rados.designs import Design
from dpcore.rados.distribution import RadoDistribution
from dpcore.rados.sums import NoisedTable, PreparedRecords
from dpcore.randomness.sources import RandomSource
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.records import Records
from dpcore.records.schema import Schema

RADOS_LEAK = (
    "Rados are not protected as a whole: many rados alone can give away every row's edge vector, by independent "
    "component analysis if there are no more rows than coordinates, and by lattice reduction (the hidden subset sum) "
    "for about twice as many rows; nothing shows that larger tables are safe."
)
"""Statements are stored with their texts, and read as they are: older ones have an older sentence."""


@dataclass(frozen=True)
class RadosQuery(QueryKind):
    """n rados drawn from a design. Raises PlanError if rados < 1."""

    array: ClassVar[str] = "rados"
    learned_as: ClassVar[Literal["rados"]] = "rados"
    leaks: ClassVar[tuple[str, ...]] = (RADOS_LEAK,)

    rados: int
    design: Design

    def __post_init__(self) -> None:
        if self.rados < 1:
            raise PlanError(f"{self.rados} rados: ask for at least one")

    def length(self, d: int) -> int:
        """Number of values: n d, the rados one after the other."""
        return self.rados * d

    def shape(self, d: int) -> tuple[int, ...]:
        """(n, d): one rado a row."""
        return (self.rados, d)

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """A bound on every value: rows 2^fraction_bits, and the noise's 2^-64 tail. Raises PlanError."""
        if self.design.clipping is not None:
            self.design.clipping.check_room(limits.d, fraction_bits)
        sums = limits.rows << fraction_bits
        return sums + self.design.noise_bound(limits.rows, limits.parties, self.length(limits.d))

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's part of each rado: int64 (n d,), in units of 2^-fraction_bits.

        Signatures are drawn and discarded block by block. Raises as `signatures_of` and `edges`, and ConfigurationError
        if the design needs the party's secret and there is none.
        """
        sums = self.prepare(records, fraction_bits, computation.secret).drawn_sums(self.rados, computation)
        self.add_noise(sums, computation.random)
        return sums.reshape(-1)

    def prepare(self, records: Records, fraction_bits: int, secret: PartySecret | None = None) -> PreparedRecords:
        """The records as the design sums them: rounded, clipped, with noise. Raises ConfigurationError as above."""
        return PreparedRecords.of(records, fraction_bits, self.design, secret)

    def epoch(self, records: Records, fraction_bits: int, secret: PartySecret) -> bytes | None:
        """See `QueryKind`."""
        if not self.design.edge_noise:
            return None
        return NoisedTable.of(records, self.design, fraction_bits, secret).epoch

    @property
    def name(self) -> str:
        """The design's name; see `QueryKind`."""
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
    def free_fraction_bits(self) -> FractionBits | None:
        """See `QueryKind`."""
        return None if self.design.is_calibrated else FractionBits.for_rados(self.rados)

    @property
    def takes_parts(self) -> bool:
        """See `QueryKind`."""
        return self.design.takes_parts

    @property
    def needs_rows(self) -> bool:
        """See `QueryKind`."""
        return bool(self.design.rounded or self.design.edge_noise)

    @property
    def takes_maps(self) -> bool:
        """See `QueryKind`."""
        return self.design.takes_maps

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

    @property
    def shares(self) -> GaussianShares | None:
        """See `QueryKind`; of `joint` they are of its column's coordinates only."""
        return self.design.shares

    def following(self, cohorts: Cohorts) -> Self:
        """See `QueryKind`."""
        return replace(self, design=self.design.following(cohorts))

    def features(self, schema: Schema) -> tuple[str, ...]:
        """See `QueryKind`."""
        return self.design.features(schema)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """See `QueryKind`."""
        return self.design.assumptions

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

    def distribution(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoDistribution:
        """The rados' distribution over parties with these rows, in real units; a support's inclusion is the pool's.

        Raises EmptyTruncationError if a party has no admissible rado signature.
        """
        return self.design.distribution(d, party_rows, fraction_bits)

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
        """The rados in real units, (n, d) float64, exact below 2^53. Raises ShapeError."""
        return np.multiply(self.integers(total), 2.0**-fraction_bits)

    def integers(self, total: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rados in units of 2^-fraction_bits, (n, d). Raises ShapeError as `decode` does."""
        if total.ndim != 1 or total.size == 0 or total.size % self.rados:
            raise ShapeError(f"a total of shape {total.shape} is not {self.rados} rados: give n times d values")
        return total.reshape(self.rados, -1)
