"""Designs: which signatures a party may draw, over which edges, and with what noise.

A design is plain data. It travels inside a query, the draws follow it (dpcore.rados.signatures), and the privacy
statement is counted from it (dpcore.queries.statement).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from dpcore.errors import PlanError
from dpcore.numbers.rationals import check_rational
from dpcore.randomness.discrete_gaussian import LARGEST_SIGMA, SMALLEST_SHARE_SIGMA
from dpcore.records.clipping import Clip

Split = Literal["local", "exact"]
"""Who draws across parties. "local": each party for itself. "exact": one draw over the pool, divided by a coordinator
who learns each party's part; for simulation, and no query carries it."""


@dataclass(frozen=True)
class PlainDesign:
    """Signatures uniform over all of {-1, +1}^m. Protects boolean coordinates alone, each by its own marginal.

    booleans: the coordinates coded -1/+1, ascending.

    Sensitivity: one flipped value shifts such a coordinate by one in each rado, and the count behind it is
    Binomial(m, 1/2) whatever the data. Proof: dpcore.accounting.dp_feat.

    Raises PlanError where a coordinate is out of range or not in order.
    """

    booleans: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if list(self.booleans) != sorted(set(self.booleans)) or min(self.booleans, default=0) < 0:
            raise PlanError(f"the boolean coordinates {self.booleans} must ascend from 0 or more")


@dataclass(frozen=True)
class SensitiveFeature:
    """A coordinate whose marginal is protected.

    name: the coordinate's, which is its feature's, in the schema. rounded: whether the feature is real-valued and each
    record's value is replaced by a random sign with that value as its mean (dpcore.rados.prepared_records); otherwise
    it is coded -1/+1 already. Raises PlanError.
    """

    coordinate: int
    name: str
    rounded: bool = False

    def __post_init__(self) -> None:
        if self.coordinate < 0:
            raise PlanError(f"the sensitive coordinate is {self.coordinate}: give its index, 0 or more")
        if not self.name:
            raise PlanError("the sensitive coordinate has no name: give the one that the schema uses")


@dataclass(frozen=True)
class DpFeatDesign:
    """Signatures whose sensitive coordinate is central (Nock, Patrini, Friedman, ICML 2015, Algorithm 2, DP-FEAT).

    sensitive: the protected features, at least one, each by its own marginal. epsilon_per_rado: Algorithm 2's epsilon,
    an exact positive rational; None draws uniform signatures, which gives the lowest exact epsilon
    (dpcore.accounting.dp_feat). With several features there is no truncation: a second one would make the first
    marginal depend on the data. split: see `Split`; "exact" needs a truncation to divide.

    Sensitivity: one flipped value shifts the coordinate by one in each rado; the count behind it is a binomial,
    truncated with epsilon_per_rado, whatever the data. The signs of a rounded feature differ between neighbours by such
    a flip or not at all, by a chance of its own: the divergence is at most the mean of the two, so at most the flip's.
    Proof: dpcore.accounting.dp_feat.

    Raises PlanError where a field is out of range.
    """

    sensitive: tuple[SensitiveFeature, ...]
    epsilon_per_rado: Fraction | None = None
    split: Split = "local"

    def __post_init__(self) -> None:
        if not self.sensitive:
            raise PlanError("dp-feat protects no feature: name at least one sensitive feature")
        if len({feature.coordinate for feature in self.sensitive}) < len(self.sensitive):
            raise PlanError("a sensitive feature is named twice: name each once")
        if self.split not in ("local", "exact"):
            raise PlanError(f"split is {self.split!r}: choose 'local' or 'exact'")
        if self.epsilon_per_rado is None:
            return
        check_rational("epsilon_per_rado", self.epsilon_per_rado)
        if len(self.sensitive) > 1:
            raise PlanError(
                "a truncation protects one feature: name one, or leave epsilon_per_rado out to draw without truncation"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The protected features' names."""
        return tuple(feature.name for feature in self.sensitive)

    @property
    def coordinates(self) -> tuple[int, ...]:
        """The protected features' coordinates, in the order named."""
        return tuple(feature.coordinate for feature in self.sensitive)

    @property
    def rounded(self) -> tuple[int, ...]:
        """The coordinates of those that are rounded to a sign."""
        return tuple(feature.coordinate for feature in self.sensitive if feature.rounded)


@dataclass(frozen=True)
class JointDesign:
    """DP-FEAT with `joint = true`: uniform signatures, and noise on every coordinate of one source column.

    column: the sensitive source column. coordinates: those derived from it, ascending. squared_range: the largest
    squared distance of two codings of a cell over those coordinates, in real units (4 for one -1/+1 feature).
    share_sigma: the standard deviation of each party's discrete Gaussian share of the noise on each of those
    coordinates of every rado, in units of 2^-fraction_bits.

    Sensitivity: sqrt(squared_range) 2^fraction_bits in each rado that the record enters, by a fair coin that is the
    same for both neighbours. Proof: dpcore.accounting.sensitivity.joint_squared and, of the coin,
    dpcore.accounting.gaussian.

    Raises PlanError where a field is out of range.
    """

    column: str
    coordinates: tuple[int, ...]
    squared_range: int
    share_sigma: int

    def __post_init__(self) -> None:
        if not self.column or not self.coordinates:
            raise PlanError("a joint design names a source column of which at least one coordinate is used")
        if list(self.coordinates) != sorted(set(self.coordinates)) or self.coordinates[0] < 0:
            raise PlanError(f"the coordinates {self.coordinates} of a joint design must ascend from 0 or more")
        if self.squared_range < 1:
            raise PlanError(f"squared_range is {self.squared_range}: two cells differ by at least 1")
        check_share(self.share_sigma)


@dataclass(frozen=True)
class FixedSupportDesign:
    """Exactly m* records per rado, over edges that are clipped and noised once (ICML 2015, section 5.2).

    fraction: f; each party draws round(f m_p) of its own records, uniformly, for each rado. clip: to which edges
    are cut. edge_sigma: the standard deviation of the discrete Gaussian noise on each coordinate of each
    record's edge, in units of 2^-fraction_bits; 0 adds none and protects nothing. split: "exact" draws round(f m)
    records of the pool.

    Sensitivity: 2 R 2^fraction_bits, of the noised table. Rados over it, however many, are post-processing, for what is
    drawn does not look at the data. Proof: dpcore.accounting.sensitivity.edge_squared.

    Raises PlanError where a field is out of range.
    """

    fraction: Fraction
    clip: Clip
    edge_sigma: int
    split: Split = "local"

    def __post_init__(self) -> None:
        check_fraction(self.fraction)
        if self.edge_sigma != 0:
            check_share(self.edge_sigma)
        if self.split not in ("local", "exact"):
            raise PlanError(f"split is {self.split!r}: choose 'local' or 'exact'")


@dataclass(frozen=True)
class GaussianDesign:
    """Clipped edges, summed over uniform or fixed-support signatures, and noise on every value of the total.

    fraction: None draws uniform signatures; otherwise each party draws round(fraction m_p) of its records for each
    rado. clip: to which edges are cut. share_sigma: the standard deviation of each party's share of the noise, as in
    `JointDesign`.

    Sensitivity: 2 R 2^fraction_bits in each rado that the record enters, by a coin that is the same for both neighbours
    (of 1/2, or of what a rado takes of the party's rows). Proof: dpcore.accounting.sensitivity.edge_squared and, of the
    coin, dpcore.accounting.gaussian.

    Raises PlanError where a field is out of range.
    """

    clip: Clip
    share_sigma: int
    fraction: Fraction | None = None

    def __post_init__(self) -> None:
        if self.fraction is not None:
            check_fraction(self.fraction)
        check_share(self.share_sigma)


Design = PlainDesign | DpFeatDesign | JointDesign | FixedSupportDesign | GaussianDesign


def check_share(sigma: int) -> None:
    """Raise PlanError where `sigma` is no standard deviation that a noise share may have."""
    if isinstance(sigma, bool) or not isinstance(sigma, int) or not SMALLEST_SHARE_SIGMA <= sigma <= LARGEST_SIGMA:
        raise PlanError(
            f"noise with a standard deviation of {sigma} units: shares are counted from {SMALLEST_SHARE_SIGMA} to "
            f"2^48 units; raise or lower fraction_bits"
        )


def check_fraction(fraction: Fraction) -> None:
    """Raise PlanError where `fraction` is no share of the records that a rado may take."""
    check_rational("fraction", fraction)
    if fraction >= 1:
        raise PlanError(f"a rado takes {fraction} of the records: choose a fraction below 1")
