"""Gaussian rados: clipped edges, and noise on every value of the total."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import GaussianShares, edge_squared, secret_coin_squared
from dpcore.accounting.protection import GaussianProtection, Scope, Setting
from dpcore.errors import PlanError
from dpcore.numbers.rationals import lower_digits
from dpcore.rados.designs.base import RadoDesign, check_fraction
from dpcore.rados.distribution import RadoDistribution
from dpcore.rados.support import check_support, pooled_inclusion
from dpcore.randomness.sources import RandomSource
from dpcore.records.clipping import Clip

OWN_COINS = (
    "Which rados a record enters is decided by fair coins, and the record's own party draws them and keeps them to "
    "itself; the other parties' coins may be known."
)

LEAST_CHANCE = 1000
"""The least probability that a record enters some rado, as a multiple of delta (`RareInclusionError`)."""


class RareInclusionError(PlanError):
    """A support so small that delta could cover a release of its records without noise."""

    def __init__(self, *, chance: float, delta: float) -> None:
        self.chance, self.delta = chance, delta
        most = chance / LEAST_CHANCE
        super().__init__(
            f"a record enters some rado with probability {chance:.3g} and delta is {delta:.3g}, which would hide a "
            f"record released without noise: choose a larger support, or a delta of at most {lower_digits(most, 1)}"
        )


@dataclass(frozen=True)
class GaussianDesign(RadoDesign):
    """Clipped edges, summed over uniform or fixed-support signatures, and noise on every value of the total.

    Sensitivity: R 2^fraction_bits in each rado, by a fair coin that the record's own party keeps secret. With a fixed
    support 2 R 2^fraction_bits, by a coin that may be public (the share of the party's rows). Proof:
    dpcore.accounting.noise_shares.secret_coin_squared; dpcore.accounting.noise_shares.edge_squared and, of public
    coins, dpcore.accounting.gaussian.

    Raises PlanError if a field is out of range.
    """

    name: ClassVar[str] = "gaussian"

    clip: Clip
    """The clipping of the edges."""
    share_sigma: int
    """The standard deviation of each party's share of the noise, as in `JointDesign`."""
    fraction: Fraction | None = None
    """None draws uniform signatures; otherwise each party draws round(fraction m_p) of its records for each rado."""
    among: Cohorts | None = field(default=None, kw_only=True)
    """The cohorts that the noise follows; share_sigma is that of the smallest one."""

    def __post_init__(self) -> None:
        if self.fraction is not None:
            check_fraction(self.fraction)
        _ = self.shares

    @property
    def shares(self) -> GaussianShares:
        """See `RadoDesign`. Raises PlanError if they are not counted."""
        return GaussianShares(self.share_sigma, self.among)

    def following(self, cohorts: Cohorts) -> Self:
        """See `RadoDesign`."""
        return replace(self, among=cohorts)

    def words(self) -> str:
        """See `RadoDesign`."""
        return f"gaussian with records clipped to {float(self.clip.norm_bound):.3g}"

    @property
    def support(self) -> Fraction | None:
        """See `RadoDesign`."""
        return self.fraction

    @property
    def clipping(self) -> Clip:
        """See `RadoDesign`."""
        return self.clip

    def add_noise(self, sums: NDArray[np.int64], random: RandomSource) -> None:
        """See `RadoDesign`."""
        sums += self.shares.draw(sums.size, random).reshape(sums.shape)

    def noise_bound(self, rows: int, parties: int, values: int) -> int:
        """See `RadoDesign`."""
        return self.shares.tail_bound(parties, values)

    def with_noise(self, sigma: int) -> Self:
        """See `RadoDesign`."""
        return replace(self, share_sigma=sigma)

    def distribution(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoDistribution:
        """See `RadoDesign`."""
        noise = np.full(d, float(self.shares.variance(len(party_rows))) * 4.0**-fraction_bits)
        if self.fraction is None:
            return RadoDistribution(rado_noise=noise)
        return RadoDistribution(
            inclusion=pooled_inclusion(party_rows, self.fraction), fixed_support=True, rado_noise=noise
        )

    @property
    def takes_parts(self) -> bool:
        """See `RadoDesign`: each row is drawn by its own coin, so a row outside the part adds zero to every rado."""
        return self.fraction is None

    @property
    def scope(self) -> Scope:
        """See `RadoDesign`."""
        return "record"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """See `RadoDesign`."""
        return (OWN_COINS,) if self.fraction is None else ()

    def protection(self, rados: int, setting: Setting) -> GaussianProtection:
        """See `RadoDesign`."""
        honest, values = setting.honest_parties, rados * setting.d
        if self.fraction is None:
            squared = secret_coin_squared(self.clip, setting.fraction_bits)
            return GaussianProtection(self.scope, honest, self.share_sigma, squared, values, rados, cohorts=self.among)
        squared = edge_squared(self.clip, setting.fraction_bits)
        return _SampledProtection(
            self.scope, honest, self.share_sigma, squared, values, rados, self.fraction, cohorts=self.among
        )


@dataclass(frozen=True)
class _SampledProtection(GaussianProtection):
    """Amplification by subsampling: a rado takes a fixed share of each party's records, `inclusion`."""

    def inclusion_of(self, rows: int) -> Fraction:
        """The share of the rows that a rado takes, a whole number of them."""
        return Fraction(check_support(rows, Fraction(self.inclusion)), rows)

    def check_inclusion(self, rows: int, delta: Fraction | float) -> None:
        """Raise RareInclusionError if a fixed support hardly ever takes a given one of `rows` rows. Also SupportError.

        Publishing a random record is (0, 1/rows)-private: at so large a delta, rados without noise would have epsilon
        0.
        """
        inclusion = check_support(rows, Fraction(self.inclusion)) / rows
        chance = -math.expm1(self.rados * math.log1p(-inclusion))
        # If the record is likely to be included, subsampling reduces the noise only a little.
        if chance < min(0.5, LEAST_CHANCE * delta):
            raise RareInclusionError(chance=chance, delta=float(delta))
