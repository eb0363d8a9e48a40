"""What every design says of itself. A design that says nothing more draws uniform signatures and protects nothing."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.protection import Protection, Scope, Setting
from dpcore.errors import PlanError
from dpcore.numbers.rationals import check_rational
from dpcore.rados.distribution import RadoDistribution
from dpcore.randomness.sources import RandomSource
from dpcore.records.clipping import Clip
from dpcore.records.schema import Schema

HALF = Fraction(1, 2)

Split = Literal["local", "exact"]
"""Who draws across parties. "local": each party for itself. "exact": one draw over the pool, divided by a coordinator
who learns each party's part; for simulation, and no query carries it."""


class RadoDesign(ABC):
    """Which signatures a party may draw, over which edges, and with what noise.

    A design is plain data. It travels inside a query; the draws (dpcore.rados.signatures), the sums
    (dpcore.queries.rados) and the privacy statement (dpcore.queries.statement) follow what it says of itself. d is the
    number of a record's coordinates, party_rows are the m_p.
    """

    name: ClassVar[str]
    """What a party's policy calls it."""

    @abstractmethod
    def words(self) -> str:
        """The design for people, with what it protects and how."""

    # Which signatures, over which edges.

    @property
    def coded(self) -> tuple[int, ...]:
        """The coordinates that must be coded -1/+1: what is counted for their values holds for such alone."""
        return ()

    @property
    def rounded(self) -> tuple[int, ...]:
        """Those of them that are rounded to a sign first (dpcore.rados.prepared_records)."""
        return ()

    @property
    def truncated_at(self) -> Fraction | None:
        """Algorithm 2's epsilon, by which the count k of the first coded coordinate is truncated; None for none."""
        return None

    @property
    def support(self) -> Fraction | None:
        """The fraction of its records that a party draws for each rado; None where each is drawn by a fair coin."""
        return None

    @property
    def is_pooled(self) -> bool:
        """Whether one draw over the pool is divided by a coordinator (split = exact)."""
        return False

    def pooled(self, epsilon_per_rado: Fraction | None) -> Self:
        """The same, drawn over the pool and divided; a truncation is then at epsilon_per_rado. Raises PlanError."""
        raise PlanError(f"the design {self.name} is not drawn over the pool: choose dp-feat or fixed-support")

    @property
    def clipping(self) -> Clip | None:
        """To which length edges are cut."""
        return None

    # Noise.

    @property
    def edge_noise(self) -> int:
        """The standard deviation of the noise of the record's own party on each coordinate of its edge; 0 for none."""
        return 0

    def add_noise(self, sums: NDArray[np.int64], random: RandomSource) -> None:
        """Add this party's share of the noise in place. sums: (n, d) int64, in units of 2^-fraction_bits."""
        return

    def noise_bound(self, rows: int, parties: int, values: int) -> int:
        """What the noise on a total of `values` exceeds with a probability of at most 2^-64. rows: of all parties."""
        return 0

    @property
    def is_calibrated(self) -> bool:
        """Whether noise or clipping are in units of the fraction bits, which then are no longer free to choose."""
        return True

    def with_noise(self, sigma: int) -> Self:
        """The same with noise of another standard deviation. Raises PlanError if it has none, or out of range."""
        raise PlanError(f"the design {self.name} adds no noise: leave out its standard deviation {sigma}")

    @abstractmethod
    def distribution(self, d: int, party_rows: Sequence[int], fraction_bits: int) -> RadoDistribution:
        """How the rados are distributed, for a learner; variances in real units.

        With a support the inclusion is that of the pool, sum m*_p / m, each party's being a whole number of its rows.
        Raises EmptyTruncationError if a party has no admissible signature.
        """

    # Privacy.

    @property
    @abstractmethod
    def scope(self) -> Scope:
        """What is bounded (dpcore.accounting.protection)."""

    @abstractmethod
    def protection(self, rados: int, setting: Setting) -> Protection:
        """What a release of so many rados protects, and what it costs."""

    @property
    def is_promised(self) -> bool:
        """Whether a bound is asked for; other designs have one where it happens to hold."""
        return True

    def features(self, schema: Schema) -> tuple[str, ...]:
        """Where the scope is "marginal": the names of the coordinates whose values are covered, each by itself."""
        return ()

    @property
    def protected_column(self) -> str:
        """Where the scope is "joint": the source column whose cells are covered."""
        return ""

    def noise_words(self, parties: int, honest: int) -> str | None:
        """What the noise is and who adds it, where it is not a sum of shares of which `honest` are counted."""
        return None


def check_fraction(fraction: Fraction) -> None:
    """Raise PlanError if `fraction` is no share of the records that a rado may take."""
    check_rational("fraction", fraction)
    if fraction >= 1:
        raise PlanError(f"a rado takes {fraction} of the records: choose a fraction below 1")


def check_split(split: str) -> None:
    """Raise PlanError if there is no such split."""
    if split not in ("local", "exact"):
        raise PlanError(f"split is {split!r}: choose 'local' or 'exact'")
