"""What every kind of query says of itself, beside the sum that it asks for: words, arrays, scope, cost.

Plans, policies, charges, statements and releases read it here, and know no kinds.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from dpcore.accounting.protection import GaussianProtection, Protection, Scope, Setting
from dpcore.errors import PlanError
from dpcore.queries.base import SumQuery
from dpcore.queries.fraction_bits import FractionBits
from dpcore.records.computation import PartySecret
from dpcore.records.records import Records
from dpcore.records.schema import Schema


class QueryKind(SumQuery[Any], ABC):
    """One kind of query. What has a default here is that of a sum over records, each protected by shares of noise."""

    array: ClassVar[str]
    """The name under which a release keeps the total's integers: its file is `array`.npy."""

    learned_as: ClassVar[Literal["rados", "moments"] | None] = None
    """What estimators learn from a release, None where it is a single answer to one that asks."""

    shorter: ClassVar[str] = "shorten the schema"
    """What makes a query shorter that has too many bytes to travel."""

    leaks: ClassVar[tuple[str, ...]] = ()
    """Warnings of what such a release tells where records are not protected as a whole."""

    assumptions: ClassVar[tuple[str, ...]] = ()
    """What such a release's statement assumes beside what every statement does."""

    # Words and figures.

    @property
    @abstractmethod
    def name(self) -> str:
        """What a party's policy calls it."""

    @abstractmethod
    def words(self) -> str:
        """What is asked for, such as "500 rados, design plain"."""

    @property
    @abstractmethod
    def contents(self) -> str:
        """What a release of it holds, such as "500 rados"."""

    @abstractmethod
    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:
        """What release.json says of the array, for people: its sizes and unit."""

    @property
    def amounts(self) -> Mapping[str, int]:
        """How much is asked for, by the name of a policy's limit on it."""
        return {}

    def fewer(self, most: int, d: int) -> str:
        """What would make at most `most` values of a query that asks for more, as an instruction."""
        return "use fewer coordinates"

    @property
    def free_fraction_bits(self) -> FractionBits | None:
        """The fraction bits that all do as well; None where noise or clipping are in their units."""
        return None

    def epoch(self, records: Records, fraction_bits: int, secret: PartySecret) -> bytes | None:
        """The name of the noised table that the query is answered from, None where it is not answered from one."""
        return None

    # Privacy.

    @property
    @abstractmethod
    def scope(self) -> Scope:
        """What is bounded, at most (dpcore.accounting.protection)."""

    @abstractmethod
    def protection(self, setting: Setting) -> Protection:
        """What a release protects, and what it costs."""

    @property
    def is_pure(self) -> bool:
        """Whether the noise is Laplace's: then delta is 0."""
        return False

    @property
    def is_promised(self) -> bool:
        """Whether a bound is asked for; a release of other kinds has one where it happens to hold."""
        return True

    def with_noise(self, share_sigma: int) -> Self:
        """The same with Gaussian noise of another standard deviation of a share.

        Raises PlanError where it is out of range or the kind has no such noise.
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
        """The same with the least Gaussian noise that stays within (epsilon, delta) under collusion.

        party_rows, part: see `dpcore.accounting.protection.GaussianProtection.least_share`. Raises PlanError where the
        kind has no such noise or it would be too large.
        """
        protection = self.protection(setting)
        if not isinstance(protection, GaussianProtection):
            raise PlanError(f"{self.name} adds no Gaussian noise: leave epsilon out")
        return self.with_noise(protection.least_share(party_rows, epsilon, delta, part))

    def features(self, schema: Schema) -> tuple[str, ...]:
        """Where the scope is "marginal": the names of the coordinates whose values are covered, each by itself."""
        return ()

    @property
    def protected_column(self) -> str:
        """Where the scope is "joint": the source column whose cells are covered."""
        return ""

    def noise_words(self, parties: int, honest: int) -> str:
        """What the noise is and who adds it. honest: how many parties' shares are counted under collusion."""
        return (
            f"The noise is a sum of shares, one from each of the {parties} parties. The figure for the learner "
            "alone counts them all: every party adds its share and keeps it to itself. The one under collusion "
            f"counts {honest}, the record's own party among them: all parties but {honest} may collude."
        )
