"""What every kind of query defines in addition to its sum: words, arrays, scope, cost. Roles depend on no kind."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import NoiseShares
from dpcore.accounting.protection import GaussianProtection, Protection, Scope, Setting
from dpcore.errors import PlanError
from dpcore.numbers.fixed_point import Encoding, plan_encoding
from dpcore.paillier.packing import ciphertext_count
from dpcore.predicates.expressions import Predicate
from dpcore.randomness.sources import RandomSource
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Target, two_classes
from dpcore.records.persons import Persons
from dpcore.records.records import Records
from dpcore.records.schema import Schema

# The interface of every kind of query: a sum over records of bounded integer vectors.


MAX_VALUES = 1 << 28
"""The most values that one query may ask for."""

MAX_PARTIES = 1 << 16
"""The most parties that one query may be planned for."""

Decoded_co = TypeVar("Decoded_co", covariant=True)


@dataclass(frozen=True)
class QueryLimits:
    """The most that a query is planned for: `rows` over all parties, `parties`, and d coordinates of a record."""

    rows: int
    parties: int
    d: int


class SumQuery(Protocol[Decoded_co]):
    """One kind of sum query: contribution, bound, decoding. The rest of the pipeline does not depend on the kind."""

    def length(self, d: int) -> int:
        """Number of values of one contribution, for records of d coordinates."""
        ...

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """A bound on every value over all parties; with noise it fails with probability at most 2^-64."""
        ...

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's sum and share of the noise: int64 (length,), in units of 2^-fraction_bits or the kind's own."""
        ...

    def shape(self, d: int) -> tuple[int, ...]:
        """The shape of a total's integers; the product of its dimensions is the length."""
        ...

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> Decoded_co:
        """The answer encoded by a total over all parties."""
        ...


# The fraction bits of a query without noise: the fewest whose error is small compared with the sampling error of n
# rados.
#
# Rados at f bits are those of features x', |x - x'| < u = 2^-f and |x'| <= |x|. For a feature of root mean square r the
# error is at most 2 u sqrt(n) / r of the sampling error, kept at a quarter for r = 1/2. Proof:
# docs/explanation/proofs.md, "Fraction bits".


MOST_FRACTION_BITS = 16
"""The most fraction bits that are used where more of them cost no bytes."""

SMALLEST_FRACTION_BITS = 8
"""The fewest for any number of rados: margins move by at most |theta|_1 / 256."""

# (2 / (r t))^2 with r = 1/2 and t = 1/4.
_SQUARED_MARGIN = 1 << 8


def least_fraction_bits(rados: int) -> int:
    """The least f with 2^-f <= 1 / (16 sqrt(n)), at least 8; derived in docs/explanation/proofs.md.

    rados: n. Raises PlanError if rados < 1.
    """
    if rados < 1:
        raise PlanError(f"{rados} rados: ask for at least one")
    # The least f with 4^f >= 256 n, in integers.
    return max(SMALLEST_FRACTION_BITS, ((_SQUARED_MARGIN * rados - 1).bit_length() + 1) // 2)


@dataclass(frozen=True)
class FractionBits:
    """The fraction bits that a query may have, from `least` to `most`. Raises PlanError if least > most."""

    least: int
    most: int

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise PlanError(f"fraction bits from {self.least} to {self.most}: give the lower number first")

    @classmethod
    def exactly(cls, fraction_bits: int) -> Self:
        """A fixed number: the one requested, or the one that the noise was calibrated for."""
        return cls(fraction_bits, fraction_bits)

    @classmethod
    def for_rados(cls, rados: int) -> Self:
        """For n rados without noise."""
        least = least_fraction_bits(rados)
        return cls(least, max(least, MOST_FRACTION_BITS))


class Sized(Protocol):
    """The part of a sum query that its packing depends on; see `dpcore.queries.kind.SumQuery`."""

    def length(self, d: int) -> int:
        """Number of values of one contribution."""
        ...

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """A bound on the magnitude of every total."""
        ...


def fewest_ciphertexts(query: Sized, limits: QueryLimits, bits: FractionBits, modulus_bits: int) -> Encoding:
    """The encoding with the fewest ciphertexts in a range of fraction bits; on a tie, the one with most fraction bits.

    limits: the largest query planned for, whose rows the check slot holds. Raises SlotOverflowError, PlanError.
    """
    length = query.length(limits.d)

    def encoding(fraction_bits: int) -> Encoding:
        # The check slot carries the cohort's row count and wraps like any other slot.
        largest = max(query.largest_sum(limits, fraction_bits), limits.rows)
        return plan_encoding(largest_sum=largest, max_parties=limits.parties, fraction_bits=fraction_bits)

    best = encoding(bits.least)
    fewest = ciphertext_count(length, best, modulus_bits)
    for fraction_bits in range(bits.least + 1, bits.most + 1):
        try:
            finer = encoding(fraction_bits)
            if ciphertext_count(length, finer, modulus_bits) > fewest:
                break
        except PlanError:
            # A wider sum does not fit its slot, or a wider slot the modulus. More fraction bits do not fit either.
            break
        best = finer
    return best


def scope_of(persons: Persons | None) -> Scope:
    """That of a kind that protects records, or persons."""
    return "record" if persons is None else "person"


def check_counted_once(persons: Persons | None, *, weighted: bool) -> None:
    """Raise PlanError if rows would count both by a weight and as a part of a person.

    A sum by weights is rounded once for all rows of a party (dpcore.records.weight); of persons it would be rounded for
    each count of rows, so the bounds of the two do not simply multiply.
    """
    if persons is not None and weighted:
        raise PlanError(
            "rows count by a weight or as rows of persons, not by both: protect records, or use a schema file without "
            "[weight]"
        )


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

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of a release's statement in addition to those of every statement."""
        return ()

    @property
    def persons(self) -> Persons | None:
        """That a person is the unit of privacy, with all rows at a party; None if a record is."""
        return None

    def of_persons(self, persons: Persons | None) -> Self:
        """The same query with this unit, for which its noise is not calibrated yet. Raises PlanError if it has none."""
        if persons is None:
            return self
        raise PlanError(
            f"{self.name} protects no persons, whose rows enter one by one: ask moments, statistics or gradients"
        )

    @property
    def takes_parts(self) -> bool:
        """Whether the query may be about a part of the rows: it protects records, and averages will do."""
        return False

    @property
    def takes_maps(self) -> bool:
        """Whether records may be mapped first: its bound depends on no values, and it names no coordinates."""
        return False

    @property
    def needs_rows(self) -> bool:
        """Whether a party computes it from the values of single rows, and not by sums over all of them alone."""
        return False

    @property
    def is_weighted(self) -> bool:
        """Whether rows count by the schema's weight; a kind that cannot is about the schema without its weight."""
        return False

    def check_target(self, target: Target) -> None:
        """Raise SchemaError if the query is not about such a label. By default it is about one of two classes."""
        two_classes(target, f"a query for {self.contents}")

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
        """The same query with another standard deviation of each Gaussian share. Raises PlanError."""
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

        party_rows, part: see `GaussianProtection.least_share`. Raises PlanError.
        """
        protection = self.protection(setting)
        if not isinstance(protection, GaussianProtection):
            raise PlanError(f"{self.name} adds no Gaussian noise: leave epsilon out")
        return self.with_noise(protection.least_share(party_rows, epsilon, delta, part))

    @property
    def shares(self) -> NoiseShares | None:
        """The shares of noise that every party adds to each value of the total; None for other noise, or none."""
        return None

    @property
    def cohorts(self) -> Cohorts | None:
        """The cohorts that its noise follows: it is that of the one that answers. None: of the smallest one."""
        return None if self.shares is None else self.shares.cohorts

    def following(self, cohorts: Cohorts) -> Self:
        """The same query with the noise of the cohort that answers, of these. Raises PlanError if that is not possible.

        Its noise is that of the smallest one before; the cost is the same in each of them.
        """
        raise PlanError(
            f"{self.name} has no noise for the cohort that answers, of {cohorts.smallest} parties or more: "
            "ask for that of the smallest cohort"
        )

    def top_up(self, d: int, parties: int, random: RandomSource) -> NDArray[np.int64] | None:
        """What a party adds to its contribution in a cohort of so many parties: int64 (length,); None if nothing.

        It is drawn once for an attempt: two top-ups on one share would be two releases. Raises PlanError if the query
        does not admit the cohort.
        """
        return None if self.shares is None else self.shares.draw_top_up(parties, self.length(d), random)

    def features(self, schema: Schema) -> tuple[str, ...]:
        """If the scope is "marginal": the names of the coordinates whose values are covered, each on its own."""
        return ()

    @property
    def protected_column(self) -> str:
        """If the scope is "joint": the source column whose cells are covered."""
        return ""

    def noise_words(self, parties: int, honest: int) -> str:
        """What the noise is and who adds it. honest: number of parties whose shares are counted under collusion."""
        own = f"the {'record' if self.persons is None else 'person'}'s own party"
        said = (
            f"The noise is a sum of shares, one from each of the {parties} parties. The figure for the learner "
            "alone counts them all: every party adds its share and keeps it to itself. The one under collusion "
        )
        if self.cohorts is None:
            return f"{said}counts {honest}, {own} among them: all parties but {honest} may collude."
        return (
            f"{said}counts all but {_parties(self.cohorts.colluders)}, {own} not among those, in any "
            "cohort that may answer: shares are as large as the one that answered needs."
        )


def _parties(count: int) -> str:
    return "1 party" if count == 1 else f"{count} parties"
