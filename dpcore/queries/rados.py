"""The rados query: each record gives its edge vector to the rados whose signature selects it."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.count_distributions import binomial_law
from dpcore.queries.base import Crowd
from dpcore.rados.designs import (
    Design,
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
)
from dpcore.rados.distribution import CentralCount, RadoLaw
from dpcore.rados.prepared_records import PreparedRecords
from dpcore.rados.support import support_size
from dpcore.rados.truncation import truncation
from dpcore.randomness.discrete_gaussian import discrete_gaussian, tail_bound
from dpcore.randomness.sources import RandomSource
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.records import Records


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

    def prepare(self, records: Records, fraction_bits: int, secret: PartySecret | None = None) -> PreparedRecords:
        """The records as the design sums them: rounded, clipped, noised. Raises ConfigurationError as above."""
        return PreparedRecords.of(records, fraction_bits, self.design, secret)

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
