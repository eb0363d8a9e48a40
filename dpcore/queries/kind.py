"""What every kind of query defines in addition to its sum: words, arrays, scope, cost.

Plans, policies, charges, statements and releases use this interface and do not depend on a kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from dpcore.accounting.protection import GaussianProtection, Protection, Scope, Setting
from dpcore.errors import PlanError
from dpcore.predicates.expressions import Predicate
from dpcore.queries.base import SumQuery
from dpcore.queries.fraction_bits import FractionBits
from dpcore.records.computation import PartySecret
from dpcore.records.feature_map import FeatureMap
from dpcore.records.records import Records
from dpcore.records.schema import Schema


class QueryKind(SumQuery[Any], ABC):
    """One kind of query. The defaults are those of a sum that protects each record by shares of noise."""

    array: ClassVar[str]
    """The name of the total's integers in a release: the file is `array`.npy."""

    learned_as: ClassVar[Literal["rados", "moments"] | None] = None
    """What estimators learn from a release; None if it is a single answer to an estimator that sends queries."""

    shorter: ClassVar[str] = "shorten the schema"
    """How to shorten a query that has too many bytes to send."""

    leaks: ClassVar[tuple[str, ...]] = ()
    """Warnings about what a release reveals if it does not protect whole records."""

    assumptions: ClassVar[tuple[str, ...]] = ()
    """Assumptions of a release's statement in addition to those of every statement."""

    @property
    def takes_parts(self) -> bool:
        """Whether the query may be about a part of the rows (dpcore.records.held_back).

        The kind protects records, a row that is not usable adds zero, and the answer can be used if one knows only how
        many rows the part has on average.
        """
        return False

    @property
    def takes_maps(self) -> bool:
        """Whether records may be mapped first (dpcore.records.feature_map).

        The kind's bound does not depend on the values of records, because it clips them or what it computes of each
        is in [0, 1], and it names no coordinates of the schema that a map would replace.
        """
        return False

    @property
    def batch(self) -> tuple[Predicate, ...]:
        """The predicates that it asks about; none for most kinds."""
        return ()

    def is_about(self, feature_map: FeatureMap | None) -> bool:
        """Whether what it asks about can be computed from records that this maps, or from records as they are."""
        return True

    # Words and figures.

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the kind in a party's policy."""

    @abstractmethod
    def words(self) -> str:
        """The query in words, such as "500 rados, design plain"."""

    @property
    @abstractmethod
    def contents(self) -> str:
        """The contents of a release in words, such as "500 rados"."""

    @abstractmethod
    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """What release.json says about the array, for readers: its sizes and unit."""

    @property
    def amounts(self) -> Mapping[str, int]:
        """How much the query asks for, by the name of the policy's limit."""
        return {}

    def fewer(self, most: int, d: int) -> str:
        """An instruction that reduces a query to at most `most` values."""
        return "use fewer coordinates"

    @property
    def free_fraction_bits(self) -> FractionBits | None:
        """The fraction bits among which a plan may choose; None if noise or clipping depend on them."""
        return None

    def epoch(self, records: Records, fraction_bits: int, secret: PartySecret) -> bytes | None:
        """The name of the noised table that answers the query; None if no such table is used."""
        return None

    # Privacy.

    @property
    @abstractmethod
    def scope(self) -> Scope:
        """The widest scope that a bound covers (dpcore.accounting.protection)."""

    @abstractmethod
    def protection(self, setting: Setting) -> Protection:
        """What a release protects, and what it costs."""

    @property
    def is_pure(self) -> bool:
        """Whether the noise is Laplace noise, so that delta is 0."""
        return False

    @property
    def is_promised(self) -> bool:
        """Whether the query demands a privacy bound. Other kinds have one only if it happens to hold."""
        return True

    def with_noise(self, share_sigma: int) -> Self:
        """The same query with another standard deviation of each Gaussian share.

        Raises PlanError if it is out of range or the kind has no Gaussian noise.
        """
        raise PlanError(f"{self.name} adds no Gaussian noise: leave out a share's standard deviation, {share_sigma}")

    def calibrated(
        self,
        setting: Setting,
        party_rows: Sequence[int],
        epsilon: Fraction,
        delta: Fraction,
        part: Fraction = Fraction(1),
    ) -> Self:
        """The same query with the least Gaussian noise that stays within (epsilon, delta) under collusion.

        party_rows, part: see `dpcore.accounting.protection.GaussianProtection.least_share`. Raises PlanError if the
        kind has no Gaussian noise or the noise would be too large.
        """
        protection = self.protection(setting)
        if not isinstance(protection, GaussianProtection):
            raise PlanError(f"{self.name} adds no Gaussian noise: leave epsilon out")
        return self.with_noise(protection.least_share(party_rows, epsilon, delta, part))

    def features(self, schema: Schema) -> tuple[str, ...]:
        """If the scope is "marginal": the names of the coordinates whose values are covered, each on its own."""
        return ()

    @property
    def protected_column(self) -> str:
        """If the scope is "joint": the source column whose cells are covered."""
        return ""

    def noise_words(self, parties: int, honest: int) -> str:
        """What the noise is and who adds it. honest: number of parties whose shares are counted under collusion."""
        return (
            f"The noise is a sum of shares, one from each of the {parties} parties. The figure for the learner "
            "alone counts them all: every party adds its share and keeps it to itself. The one under collusion "
            f"counts {honest}, the record's own party among them: all parties but {honest} may collude."
        )
