"""The interface of a design. Its defaults draw uniform signatures and protect nothing."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import GaussianShares
from dpcore.accounting.protection import CountProtection, Protection, Scope, Setting, Unprotected
from dpcore.errors import PlanError
from dpcore.numbers.rationals import check_rational
from dpcore.rados.distribution import RadoDistribution
from dpcore.randomness.sources import RandomSource
from dpcore.records.clipping import Clip
from dpcore.records.schema import Schema

HALF = Fraction(1, 2)

Split = Literal["local", "exact"]
""""local": each party draws for itself. "exact": one draw over the pool, divided by a coordinator; simulation only."""


class RadoDesign(ABC):
    """Which signatures a party may draw, over which edges, and with what noise.

    A design is plain data. It travels inside a query; the draws (dpcore.rados.signatures), the sums
    (dpcore.queries.rados) and the privacy statement (dpcore.queries.statement) follow it. d: the number of a record's
    coordinates. party_rows: the m_p.
    """

    name: ClassVar[str]
    """The design's name in a party's policy."""

    @abstractmethod
    def words(self) -> str:
        """The design in words, for people: what it protects and how."""

    # Which signatures, over which edges.

    @property
    def coded(self) -> tuple[int, ...]:
        """The coordinates that must be coded -1/+1: the accounting of their values requires it."""
        return ()

    @property
    def rounded(self) -> tuple[int, ...]:
        """The coded coordinates that are first rounded to a sign (dpcore.rados.rounding)."""
        return ()

    @property
    def truncated_at(self) -> Fraction | None:
        """Algorithm 2's epsilon, which truncates the count k of the first coded coordinate; None without truncation."""
        return None

    @property
    def support(self) -> Fraction | None:
        """The fraction of its records that a party draws for each rado; None if each is drawn by a fair coin."""
        return None

    @property
    def is_pooled(self) -> bool:
        """Whether one draw over the pool is divided by a coordinator (split = exact)."""
        return False

    def pooled(self, epsilon_per_rado: Fraction | None) -> Self:
        """The same design, drawn over the pool and divided; its truncation is at epsilon_per_rado. Raises PlanError."""
        raise PlanError(f"the design {self.name} is not drawn over the pool: choose dp-feat or fixed-support")

    @property
    def clipping(self) -> Clip | None:
        """The clipping norm of the edges; None without clipping."""
        return None

    @property
    def takes_parts(self) -> bool:
        """Whether a query of the design may be about a part of the rows; by default not.

        Signatures of an unusable row are coins in coded coordinates, a column's bound leaves ids, and a support needs a
        count.
        """
        return False

    @property
    def takes_maps(self) -> bool:
        """Whether records may be mapped first: if the design protects records. Others count values."""
        return self.scope == "record"

    # Noise.

    @property
    def edge_noise(self) -> int:
        """Standard deviation of the noise that a party adds to each coordinate of its records' edges; 0 for none."""
        return 0

    def add_noise(self, sums: NDArray[np.int64], random: RandomSource) -> None:
        """Add this party's share of the noise in place. sums: (n, d) int64, in units of 2^-fraction_bits."""
        return

    def noise_bound(self, rows: int, parties: int, values: int) -> int:
        """A bound that the noise on `values` totals exceeds with probability at most 2^-64. rows: of all parties."""
        return 0

    @property
    def shares(self) -> GaussianShares | None:
        """The shares of noise that parties add to values of the total; None for other noise, or none."""
        return None

    def following(self, cohorts: Cohorts) -> Self:
        """The same design with the noise of the cohort that answers, of these. Raises PlanError."""
        raise PlanError(
            f"the design {self.name} has no noise for the cohort that answers, of {cohorts.smallest} parties or more: "
            "ask for that of the smallest cohort"
        )

    @property
    def is_calibrated(self) -> bool:
        """Whether noise or clipping are in units of the fraction bits, which are then fixed."""
        return True

    def with_noise(self, sigma: int) -> Self:
        """The same design with another standard deviation. Raises PlanError if it has no noise or is out of range."""
        raise PlanError(f"the design {self.name} adds no noise: leave out its standard deviation {sigma}")

    @abstractmethod
    def distribution(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoDistribution:
        """The distribution of the rados, for an estimator; real units; a support's inclusion is sum m*_p / m.

        Raises EmptyTruncationError if a party has no admissible signature.
        """

    # Privacy.

    @property
    @abstractmethod
    def scope(self) -> Scope:
        """The scope of the bound (dpcore.accounting.protection)."""

    @abstractmethod
    def protection(self, rados: int, setting: Setting) -> Protection:
        """What a release of `rados` rados protects, and its cost."""

    @property
    def is_promised(self) -> bool:
        """Whether the design requires a bound; other designs have one only if it happens to hold."""
        return True

    def features(self, schema: Schema) -> tuple[str, ...]:
        """If the scope is "marginal": the names of the coordinates whose values are covered, each separately."""
        return ()

    @property
    def protected_column(self) -> str:
        """If the scope is "joint": the source column whose cells are covered."""
        return ""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the bound assumes in addition to what every bound does."""
        return ()

    def noise_words(self, parties: int, honest: int) -> str | None:
        """The noise and who adds it, in words, if it is not a sum of shares of which `honest` count."""
        return None


def check_fraction(fraction: Fraction) -> None:
    """Raise PlanError if `fraction` is not a rational below 1, as the share of records in a rado must be."""
    check_rational("fraction", fraction)
    if fraction >= 1:
        raise PlanError(f"a rado takes {fraction} of the records: choose a fraction below 1")


def check_split(split: str) -> None:
    """Raise PlanError unless split is "local" or "exact"."""
    if split not in ("local", "exact"):
        raise PlanError(f"split is {split!r}: choose 'local' or 'exact'")


# Plain rados: uniform signatures, no noise.


@dataclass(frozen=True)
class PlainDesign(RadoDesign):
    """Signatures uniform over all of {-1, +1}^m. Protects only boolean coordinates, the marginal of each.

    Sensitivity: one flipped value shifts such a coordinate by one in each rado, and the count behind it is Binomial(m,
    1/2) for any data. Proof: dpcore.accounting.dp_feat.

    Raises PlanError if a coordinate is out of range or not in order.
    """

    name: ClassVar[str] = "plain"

    booleans: tuple[int, ...] = ()
    """The coordinates coded -1/+1, ascending."""

    def __post_init__(self) -> None:
        if list(self.booleans) != sorted(set(self.booleans)) or min(self.booleans, default=0) < 0:
            raise PlanError(f"the boolean coordinates {self.booleans} must ascend from 0 or more")

    def words(self) -> str:
        """See `RadoDesign`."""
        return "plain"

    @property
    def coded(self) -> tuple[int, ...]:
        """See `RadoDesign`."""
        return self.booleans

    @property
    def is_calibrated(self) -> bool:
        """See `RadoDesign`."""
        return False

    def distribution(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoDistribution:
        """See `RadoDesign`."""
        return RadoDistribution()

    @property
    def scope(self) -> Scope:
        """See `RadoDesign`."""
        return "marginal" if self.booleans else "none"

    @property
    def is_promised(self) -> bool:
        """See `RadoDesign`."""
        return False

    def protection(self, rados: int, setting: Setting) -> Protection:
        """See `RadoDesign`. The design requires no bound, so nothing fails if these rows give none."""
        return CountProtection(rados, is_promised=self.is_promised) if self.booleans else Unprotected()

    def features(self, schema: Schema) -> tuple[str, ...]:
        """The booleans that the design names: only for them does the count include rows that are not usable."""
        return tuple(schema.coordinates[coordinate] for coordinate in self.booleans)


def plain_design(schema: Schema) -> PlainDesign:
    """Plain rados over a schema; a boolean is protected only if no other coordinate derives from its column."""
    alone = (name for name in schema.boolean_coordinates if len(schema.derived_from(str(schema.sources(name)))) == 1)
    return PlainDesign(tuple(schema.coordinate(name) for name in alone))
