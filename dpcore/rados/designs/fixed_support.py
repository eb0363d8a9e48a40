"""Fixed support: exactly m* records per rado, over a table that gets its noise once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from dpcore.accounting.filters import Loss
from dpcore.accounting.noise_shares import edge_squared
from dpcore.accounting.protection import GaussianProtection, Protection, Scope, Setting, Unprotected
from dpcore.rados.designs.base import RadoDesign, Split, check_fraction, check_split
from dpcore.rados.distribution import RadoDistribution
from dpcore.rados.support import check_support, pooled_inclusion
from dpcore.randomness.noise import check_share, tail_bound
from dpcore.records.clipping import Clip

_OWN_NOISE = (
    "Every party adds noise to its own records' edges and keeps it secret. It needs no noise of the others: the two "
    "figures are the same, and all parties except the record's own may collude. All releases over the same noised "
    "tables cost this once in total; any change of a table, the schema or these parameters makes a new one."
)


@dataclass(frozen=True)
class FixedSupportDesign(RadoDesign):
    """Exactly m* records per rado, over edges that are clipped and get noise once (ICML 2015, section 5.2).

    Sensitivity: 2 R 2^fraction_bits, of the noised table. Any number of rados over it is post-processing, because the
    draws do not depend on the data. Proof: dpcore.accounting.noise_shares.edge_squared.

    What the rados leave open, which row is a record's, is not counted: docs/explanation/proofs.md, "Fixed support over
    few rows".

    Raises PlanError if a field is out of range.
    """

    name: ClassVar[str] = "fixed-support"

    fraction: Fraction
    """f; each party draws round(f m_p) of its own records, uniformly, for each rado."""
    clip: Clip
    """The clipping of the edges."""
    edge_sigma: int
    """The standard deviation of the discrete Gaussian noise on each coordinate of each record's edge, in units of
    2^-fraction_bits; 0 adds none and protects nothing."""
    split: Split = "local"
    """"exact" draws round(f m) records of the pool."""

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        if self.edge_sigma != 0:
            check_share(self.edge_sigma)
        check_split(self.split)

    def words(self) -> str:
        """See `RadoDesign`."""
        noise = "over a noised table" if self.edge_sigma else "without noise"
        return f"fixed-support with {float(self.fraction):.3g} of the records {noise}"

    @property
    def support(self) -> Fraction:
        """See `RadoDesign`."""
        return self.fraction

    @property
    def is_pooled(self) -> bool:
        """See `RadoDesign`."""
        return self.split == "exact"

    def pooled(self, epsilon_per_rado: Fraction | None) -> Self:
        """See `RadoDesign`."""
        return replace(self, split="exact")

    @property
    def clipping(self) -> Clip:
        """See `RadoDesign`."""
        return self.clip

    @property
    def edge_noise(self) -> int:
        """See `RadoDesign`."""
        return self.edge_sigma

    def noise_bound(self, rows: int, parties: int, values: int) -> int:
        """See `RadoDesign`."""
        return tail_bound(self.edge_sigma, rows, values) if self.edge_sigma else 0

    def with_noise(self, sigma: int) -> Self:
        """See `RadoDesign`."""
        return replace(self, edge_sigma=sigma)

    def distribution(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoDistribution:
        """See `RadoDesign`."""
        noise = np.full(d, float(self.edge_sigma) ** 2 * 4.0**-fraction_bits)
        drawn = (sum(party_rows),) if self.is_pooled else party_rows
        return RadoDistribution(inclusion=pooled_inclusion(drawn, self.fraction), fixed_support=True, edge_noise=noise)

    @property
    def scope(self) -> Scope:
        """See `RadoDesign`."""
        return "record" if self.edge_sigma else "none"

    def protection(self, rados: int, setting: Setting) -> Protection:
        """The protection of the noised table, for any number of rados."""
        drawn = None if self.is_pooled else self.fraction
        if not self.edge_sigma:
            return _UnprotectedSupport(drawn)
        return _TableProtection(
            self.scope,
            setting.honest_parties,
            self.edge_sigma,
            edge_squared(self.clip, setting.fraction_bits),
            setting.d,
            is_shared=False,
            fraction=drawn,
        )

    def noise_words(self, parties: int, honest: int) -> str:
        """See `RadoDesign`."""
        return _OWN_NOISE


@dataclass(frozen=True)
class _UnprotectedSupport(Unprotected):
    """fraction: the share of its own records that a party draws, None if a draw over the pool is divided."""

    fraction: Fraction | None

    def loss(self, rows: int, delta: Fraction) -> Loss | None:
        """None. Raises SupportError if the party is too small for its set."""
        if self.fraction is not None:
            check_support(rows, self.fraction)
        return None


@dataclass(frozen=True)
class _TableProtection(GaussianProtection):
    """fraction: as in `_UnprotectedSupport`."""

    fraction: Fraction | None = None

    def inclusion_of(self, rows: int) -> Fraction | int:
        """1: the table's noise is charged for any draw. Raises SupportError if the party is too small."""
        if self.fraction is not None:
            check_support(rows, self.fraction)
        return 1
