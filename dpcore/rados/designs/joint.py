"""DP-FEAT with `joint = true`: one source column, protected within the whole release by noise."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.protection import GaussianProtection, Scope, Setting
from dpcore.accounting.sensitivity import joint_squared
from dpcore.errors import PlanError
from dpcore.rados.designs.base import HALF, RadoDesign
from dpcore.rados.distribution import RadoDistribution
from dpcore.randomness.discrete_gaussian import check_share, discrete_gaussian, tail_bound
from dpcore.randomness.sources import RandomSource


@dataclass(frozen=True)
class JointDesign(RadoDesign):
    """DP-FEAT with `joint = true`: uniform signatures, and noise on every coordinate of one source column.

    Sensitivity: sqrt(squared_range) 2^fraction_bits in each rado that the record enters, by a fair coin that is the
    same for both neighbours. Proof: dpcore.accounting.sensitivity.joint_squared and, of the coin,
    dpcore.accounting.gaussian.

    Raises PlanError if a field is out of range.
    """

    name: ClassVar[str] = "dp-feat-joint"

    column: str
    """The sensitive source column."""
    coordinates: tuple[int, ...]
    """Those derived from it, ascending."""
    squared_range: int
    """The largest squared distance of two codings of a cell over those coordinates, in real units (4 for one -1/+1
    feature)."""
    share_sigma: int
    """The standard deviation of each party's discrete Gaussian share of the noise on each of those coordinates of every
    rado, in units of 2^-fraction_bits."""

    def __post_init__(self) -> None:
        if not self.column or not self.coordinates:
            raise PlanError("a joint design needs a source column and at least one of its coordinates: name both")
        if list(self.coordinates) != sorted(set(self.coordinates)) or self.coordinates[0] < 0:
            raise PlanError(f"the coordinates {self.coordinates} of a joint design must ascend from 0 or more")
        if self.squared_range < 1:
            raise PlanError(f"squared_range is {self.squared_range}: give at least 1")
        check_share(self.share_sigma)

    def words(self) -> str:
        """See `RadoDesign`."""
        return f"dp-feat jointly for the column {self.column!r}"

    def add_noise(self, sums: NDArray[np.int64], random: RandomSource) -> None:
        """See `RadoDesign`."""
        share = discrete_gaussian(self.share_sigma, len(sums) * len(self.coordinates), random)
        sums[:, list(self.coordinates)] += share.reshape(len(sums), -1)

    def noise_bound(self, rows: int, parties: int, values: int) -> int:
        """See `RadoDesign`."""
        return tail_bound(self.share_sigma, parties, values)

    def with_noise(self, sigma: int) -> Self:
        """See `RadoDesign`."""
        return replace(self, share_sigma=sigma)

    def distribution(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoDistribution:
        """See `RadoDesign`."""
        noise = np.zeros(d)
        noise[list(self.coordinates)] = len(party_rows) * float(self.share_sigma) ** 2 * 4.0**-fraction_bits
        return RadoDistribution(rado_noise=noise)

    @property
    def scope(self) -> Scope:
        """See `RadoDesign`."""
        return "joint"

    def protection(self, rados: int, setting: Setting) -> GaussianProtection:
        """See `RadoDesign`."""
        return GaussianProtection(
            self.scope,
            setting.honest_parties,
            self.share_sigma,
            joint_squared(self.squared_range, setting.fraction_bits),
            rados * len(self.coordinates),
            rados,
            HALF,
        )

    @property
    def protected_column(self) -> str:
        """See `RadoDesign`."""
        return self.column
