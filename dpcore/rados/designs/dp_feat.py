"""DP-FEAT: single features, the marginal of each protected."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.dp_feat import truncation
from dpcore.accounting.noise_shares import GaussianShares, joint_squared
from dpcore.accounting.protection import CountProtection, GaussianProtection, Scope, Setting
from dpcore.errors import PlanError
from dpcore.numbers.distributions import binomial_distribution
from dpcore.numbers.rationals import check_rational
from dpcore.rados.designs.base import HALF, RadoDesign, Split, check_split
from dpcore.rados.distribution import CentralCount, RadoDistribution
from dpcore.randomness.noise import check_share, discrete_gaussian, tail_bound
from dpcore.randomness.sources import RandomSource
from dpcore.records.schema import Schema


@dataclass(frozen=True)
class SensitiveFeature:
    """A coordinate whose marginal is protected. Raises PlanError if a field is out of range."""

    coordinate: int
    name: str
    """That of the coordinate, and of its feature, in the schema."""
    rounded: bool = False
    """Whether a random sign with the real value as its mean replaces each value (dpcore.rados.rounding)."""

    def __post_init__(self) -> None:
        if self.coordinate < 0:
            raise PlanError(f"the sensitive coordinate is {self.coordinate}: give its index, 0 or more")
        if not self.name:
            raise PlanError("the sensitive coordinate has no name: give the one that the schema uses")


@dataclass(frozen=True)
class DpFeatDesign(RadoDesign):
    """Signatures whose sensitive coordinate is central (Nock, Patrini, Friedman, ICML 2015, Algorithm 2, DP-FEAT).

    Sensitivity: one flipped value shifts the coordinate by one in each rado; the count behind it is a binomial,
    truncated with epsilon_per_rado, for any data. The signs of a rounded feature differ between neighbours by such a
    flip or not at all, at random, so the divergence is at most the flip's. Proof: dpcore.accounting.dp_feat.

    Raises PlanError if a field is out of range.
    """

    name: ClassVar[str] = "dp-feat"

    sensitive: tuple[SensitiveFeature, ...]
    """The features, at least one, whose marginals are protected separately."""
    epsilon_per_rado: Fraction | None = None
    """Algorithm 2's epsilon, exact; None draws uniform signatures, which gives the lowest exact epsilon. Several
    features have no truncation: a second one would make the first marginal depend on the data."""
    split: Split = "local"
    """See `Split`; "exact" needs a truncation to divide."""

    def __post_init__(self) -> None:
        if not self.sensitive:
            raise PlanError("dp-feat protects no feature: name at least one sensitive feature")
        if len({feature.coordinate for feature in self.sensitive}) < len(self.sensitive):
            raise PlanError("a sensitive feature is named twice: name each once")
        check_split(self.split)
        if self.epsilon_per_rado is None:
            return
        check_rational("epsilon_per_rado", self.epsilon_per_rado)
        if len(self.sensitive) > 1:
            raise PlanError(
                "a truncation protects one feature: name one, or leave epsilon_per_rado out to draw without truncation"
            )

    def words(self) -> str:
        """See `RadoDesign`."""
        named = ", ".join(repr(name) for name in self.names)
        if self.epsilon_per_rado is None:
            return f"dp-feat for {named} without truncation"
        return f"dp-feat for {named} at epsilon {float(self.epsilon_per_rado):.3g} per rado"

    @property
    def names(self) -> tuple[str, ...]:
        """The protected features' names."""
        return tuple(feature.name for feature in self.sensitive)

    @property
    def coordinates(self) -> tuple[int, ...]:
        """The protected features' coordinates, in the order named."""
        return tuple(feature.coordinate for feature in self.sensitive)

    @property
    def coded(self) -> tuple[int, ...]:
        """See `RadoDesign`."""
        return self.coordinates

    @property
    def rounded(self) -> tuple[int, ...]:
        """See `RadoDesign`."""
        return tuple(feature.coordinate for feature in self.sensitive if feature.rounded)

    @property
    def truncated_at(self) -> Fraction | None:
        """See `RadoDesign`."""
        return self.epsilon_per_rado

    @property
    def is_pooled(self) -> bool:
        """See `RadoDesign`."""
        return self.split == "exact"

    def pooled(self, epsilon_per_rado: Fraction | None) -> Self:
        """See `RadoDesign`."""
        return replace(self, epsilon_per_rado=epsilon_per_rado, split="exact")

    @property
    def is_calibrated(self) -> bool:
        """See `RadoDesign`."""
        return False

    def distribution(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoDistribution:
        """See `RadoDesign`."""
        rounding = np.isin(np.arange(d), self.rounded) if self.rounded else None
        return RadoDistribution(rounding=rounding, central=self._central(party_rows))

    def _central(self, party_rows: Sequence[int]) -> CentralCount | None:
        """Public facts of the truncated k: coins exchangeable given it have 4 Var(k_p) = m_p (1 + (m_p - 1) rho)."""
        if self.epsilon_per_rado is None:
            return None
        correlation = 0.0
        drawn = (sum(party_rows),) if self.is_pooled else party_rows
        for rows in drawn:
            admitted = binomial_distribution(rows, truncation(rows, self.epsilon_per_rado)[0])
            k = admitted.low + np.arange(len(admitted.masses))
            variance = min(float(admitted.masses @ (k - rows / 2.0) ** 2), rows / 4.0)
            correlation += (4.0 * variance - rows) / max(rows - 1, 1) / sum(drawn)
        return CentralCount(self.coordinates[0], correlation)

    @property
    def scope(self) -> Scope:
        """See `RadoDesign`."""
        return "marginal"

    def protection(self, rados: int, setting: Setting) -> CountProtection:
        """See `RadoDesign`."""
        return CountProtection(rados, self.epsilon_per_rado, self.is_pooled)

    def features(self, schema: Schema) -> tuple[str, ...]:
        """See `RadoDesign`."""
        return self.names


# DP-FEAT with `joint = true`: one source column, protected within the whole release by noise.


@dataclass(frozen=True)
class JointDesign(RadoDesign):
    """DP-FEAT with `joint = true`: uniform signatures, and noise on every coordinate of one source column.

    Sensitivity: sqrt(squared_range) 2^fraction_bits in each rado that the record enters, by a fair coin that is the
    same for both neighbours. Proof: dpcore.accounting.noise_shares.joint_squared and, of the coin,
    dpcore.accounting.gaussian.

    Raises PlanError if a field is out of range.
    """

    name: ClassVar[str] = "dp-feat-joint"

    column: str
    """The sensitive source column."""
    coordinates: tuple[int, ...]
    """Those derived from it, ascending."""
    squared_range: int
    """The largest squared distance of two codings of a cell over those coordinates, in real units."""
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

    @property
    def shares(self) -> GaussianShares:
        """See `RadoDesign`: they do not follow the cohort."""
        return GaussianShares(self.share_sigma)

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


_MOST_NAMED = 12


def dp_feat_design(
    schema: Schema,
    sensitive: Sequence[str],
    epsilon_per_rado: Fraction | None = None,
    *,
    rounded: Iterable[str] = (),
    split: Split = "local",
) -> DpFeatDesign:
    """DP-FEAT for the named features, by coordinate; rounded: the real-valued ones among them.

    Raises SchemaError if one is unknown, PlanError if it cannot be protected or another coordinate would reveal it.
    """
    rounding = frozenset(rounded)
    if stray := sorted(rounding - set(sensitive)):
        raise PlanError(f"{', '.join(stray)} is rounded but not named as sensitive: name it, or do not round it")
    # Build the sets once: a query may name thousands of features.
    real = frozenset(feature.name for feature in schema.numbers)
    boolean = frozenset(schema.boolean_coordinates)
    features = (_sensitive(schema, name, real, boolean, rounded=name in rounding) for name in sensitive)
    ordered = tuple(sorted(features, key=lambda feature: feature.coordinate))
    return DpFeatDesign(ordered, epsilon_per_rado, split)


def _sensitive(
    schema: Schema, name: str, real: frozenset[str], boolean: frozenset[str], *, rounded: bool
) -> SensitiveFeature:
    coordinate, column = schema.coordinate(name), schema.sources(name)
    if rounded and name not in real:
        raise PlanError(f"{name!r} is not real-valued and cannot be rounded: leave it out of the rounded features")
    if not rounded and name in real:
        raise PlanError(
            f"{name!r} is a number, which dp-feat protects only if every value is rounded to a sign: name it as "
            f"rounded too (--rounded {name}), or protect its column with joint (--joint)"
        )
    if not rounded and name not in boolean:
        known = _some(schema.boolean_coordinates) or "none; declare a boolean or threshold feature"
        raise PlanError(f"{name!r} is not coded -1/+1 and dp-feat cannot protect it: choose one of {known}")
    # The other coordinate would reveal the protected marginal (docs/threat-model-details.md, 4.4).
    if others := [other for other in schema.derived_from(str(column)) if other != name]:
        raise PlanError(f"{_some(others)} derives from {column!r} too and would reveal {name!r}: drop it")
    return SensitiveFeature(coordinate, name, rounded)


def joint_design(schema: Schema, column: str, share_sigma: int) -> JointDesign:
    """DP-FEAT with joint = true: noise on every coordinate that derives from a column. Raises PlanError."""
    names = schema.derived_from(column)
    if not names:
        columns = _some(list(dict.fromkeys(feature.column for feature in schema.features)))
        raise PlanError(f"no feature derives from a column {column!r}: choose one of {columns}")
    coordinates = tuple(schema.coordinate(name) for name in names)
    return JointDesign(column, coordinates, squared_range(schema, column), share_sigma)


def squared_range(schema: Schema, column: str) -> int:
    """The largest squared distance of two codings of a column's cell: 4 for -1 and +1, 2 for two one-hot codings."""
    return sum(feature.squared_range for feature in schema.features if feature.column == column)


def _some(names: Sequence[str]) -> str:
    """Names for an error message, at most _MOST_NAMED: a peer may choose the schema, and the message may be logged."""
    return f"{', '.join(names[:_MOST_NAMED])}{', ...' if len(names) > _MOST_NAMED else ''}"
