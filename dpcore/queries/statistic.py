"""The statistic query: each record contributes the values of M predicates, each in [0, 1]."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.local_response import LocalResponse
from dpcore.accounting.noise_shares import GaussianShares, LaplaceShares, NoiseShares
from dpcore.accounting.protection import (
    GaussianProtection,
    LaplaceProtection,
    LocalProtection,
    NoiseProtection,
    Scope,
    Setting,
)
from dpcore.errors import PlanError, ShapeError
from dpcore.numbers.progress import Progress
from dpcore.predicates.disjoint import Sensitivity, batch_sensitivity
from dpcore.predicates.evaluation import check, sums
from dpcore.predicates.expressions import Predicate, is_boolean
from dpcore.predicates.notation import described, to_text
from dpcore.predicates.ranges import in_words, readable
from dpcore.queries.kind import QueryKind, QueryLimits, scope_of
from dpcore.queries.local_answers import local_sums
from dpcore.records.computation import Computation
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Target
from dpcore.records.persons import Persons, bits_of, factor_of, sums_over_persons
from dpcore.records.records import Records
from dpcore.records.schema import Schema

MOST_FRACTION_BITS = 20

# Number of predicates that a plan's sentence, and a release's JSON, spell out.
_MOST_NAMED = 3
_MOST_DESCRIBED = 1000


@dataclass(frozen=True)
class StatisticQuery(QueryKind):
    """Sums of M predicates over the records, with noise on every sum or on every record's answer.

    A contribution contains, for each predicate in order, the sum of floor(phi(x, y) 2^f). If all predicates are
    Boolean, nothing is rounded at any f, and f = 0 is best.

    Sensitivity: 2^f times that of the batch, in L1 and L2: `sensitivity`. Proof: dpcore.predicates.disjoint.

    Of persons it is the sum of an average of each person's rows, in units finer by W: dpcore.records.persons, which
    proves the sensitivity, W times that of records.

    Raises PredicateError if a predicate does not fit the schema or is too deep or too large.
    """

    array: ClassVar[str] = "statistic"
    shorter: ClassVar[str] = "ask for fewer predicates at a time"

    predicates: tuple[Predicate, ...]
    """Typed against `schema`."""
    schema: Schema = field(repr=False)
    noise: NoiseShares | LocalResponse
    """Each party's share of the noise on each sum, in integer units; or how each record's answers are flipped."""
    feature_map: FeatureMap | None = field(default=None, repr=False)
    """What records are mapped by before forms are evaluated. Values stay in [0, 1], so it changes no sensitivity."""

    persons: Persons | None = field(default=None, kw_only=True)
    """See `QueryKind`."""

    def __post_init__(self) -> None:
        check(self.predicates, self.schema, self.feature_map)
        if self.is_local and self.persons is not None:
            raise PlanError("local answers protect each record by its own coins, no person: leave out one of the two")
        if self.is_local:
            if not self.is_boolean or self.feature_map is not None:
                raise PlanError("local answers are bits of records as they are: leave out clipped forms and the map")
            for predicate in self.predicates:
                # Coins are derived from it. Raises PredicateError if it is too long.
                to_text(predicate)

    @property
    def is_local(self) -> bool:
        """Whether each record's answers are flipped at its party, before they are summed."""
        return isinstance(self.noise, LocalResponse)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of the batch, for values in [0, 1]."""
        return batch_sensitivity(self.predicates)

    @cached_property
    def is_boolean(self) -> bool:
        """Whether every value is 0 or 1."""
        return all(is_boolean(predicate) for predicate in self.predicates)

    def length(self, d: int) -> int:  # noqa: ARG002  (a kind of query that does not grow with d)
        """M."""
        return len(self.predicates)

    def shape(self, d: int) -> tuple[int, ...]:
        """(M,): in the order of the predicates."""
        return (self.length(d),)

    def largest_sum(self, limits: QueryLimits, fraction_bits: int) -> int:
        """2^f per row plus the 2^-64 tail bound of the noise. Raises PlanError if fraction_bits is out of range."""
        if isinstance(self.noise, LocalResponse):
            _check_whole(fraction_bits)
            return limits.rows
        rows_units = limits.rows << _checked(fraction_bits) + bits_of(self.persons)
        return rows_units + self.noise.tail_bound(limits.parties, len(self.predicates))

    def contribution(self, records: Records, fraction_bits: int, computation: Computation) -> NDArray[np.int64]:
        """This party's sums and its share of the noise, or its sums of local answers: int64 (M,). Raises ShapeError."""
        if isinstance(self.noise, LocalResponse):
            _check_whole(fraction_bits)
            secret, progress = computation.secret, computation.progress
            return local_sums(self.predicates, self.schema, records, self.noise, secret, progress)
        if self.persons is None:
            exact = computation.sums(self, records, fraction_bits, len(self.predicates))
        else:
            exact = sums_over_persons(
                computation.persons,
                records,
                lambda part, progress: replace(computation, progress=progress).sums(
                    self, part, fraction_bits, len(self.predicates)
                ),
                computation.progress,
            )
        return exact + self.noise.draw(len(exact), computation.random)

    def sums(self, records: Records, fraction_bits: int, progress: Progress | None = None) -> NDArray[np.int64]:
        """The contribution without noise. Raises ShapeError if the records have another feature map than the query."""
        if records.feature_map != self.feature_map:
            raise ShapeError("the records have another feature map than the query: map them by the query's")
        # Predicates are fastest on a single thread.
        return sums(self.predicates, self.schema, records, _checked(fraction_bits), progress)

    def decode(self, total: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
        """The sums over all records in real units, of local answers as they are: (M,)."""
        return np.ldexp(total.astype(np.float64), -self.unit_bits(fraction_bits))

    def unit_bits(self, fraction_bits: int) -> int:
        """Fraction bits of a total."""
        return fraction_bits + bits_of(self.persons)

    @property
    def name(self) -> str:
        """See `QueryKind`. Local answers have a name of their own: a party may admit them alone."""
        return "local-statistic" if self.is_local else "statistic"

    def words(self) -> str:
        """See `QueryKind`."""
        averaged = "" if self.persons is None else ", averaged for each person,"
        noise = "answers flipped at random" if self.is_local else f"{'Laplace' if self.is_pure else 'Gaussian'} noise"
        ranges = None if self.feature_map is not None else in_words(self.predicates, self.schema)
        if ranges is not None:
            return f"{self.contents}{averaged} with {noise}: {ranges}"
        first = self.predicates[:_MOST_NAMED]
        named = "; ".join(
            described(predicate) if self.feature_map is not None else readable(predicate, self.schema)
            for predicate in first
        )
        rest = len(self.predicates) - _MOST_NAMED
        more = f"; and {rest} more" if rest > 0 else ""
        return f"{self.contents}{averaged} with {noise}: {named}{more}"

    @property
    def contents(self) -> str:
        """See `QueryKind`."""
        return "1 statistic" if len(self.predicates) == 1 else f"{len(self.predicates)} statistics"

    def facts(self, d: int, fraction_bits: int) -> dict[str, Any]:  # noqa: ARG002  (it does not grow with d)
        """See `QueryKind`. The signed query contains all predicates in full."""
        texts = [described(predicate) for predicate in self.predicates[:_MOST_DESCRIBED]]
        return {"unit": f"2^-{self.unit_bits(fraction_bits)}", "count": len(self.predicates), "predicates": texts}

    @property
    def amounts(self) -> Mapping[str, int]:
        """See `QueryKind`."""
        return {"predicates": len(self.predicates)}

    @property
    def takes_parts(self) -> bool:
        """See `QueryKind`."""
        return True

    def check_target(self, target: Target) -> None:
        """Nothing: `check` compares each predicate with the schema's label."""

    @property
    def batch(self) -> tuple[Predicate, ...]:
        """All predicates."""
        return self.predicates

    def is_about(self, feature_map: FeatureMap | None) -> bool:
        """Whether its predicates are about records that this maps."""
        return self.feature_map == feature_map

    @property
    def needs_rows(self) -> bool:
        """See `QueryKind`."""
        return self.is_local

    @property
    def takes_maps(self) -> bool:
        """See `QueryKind`."""
        return True

    @property
    def scope(self) -> Scope:
        """See `QueryKind`."""
        return scope_of(self.persons)

    @property
    def is_pure(self) -> bool:
        """See `QueryKind`."""
        return isinstance(self.noise, LaplaceShares | LocalResponse)

    def protection(self, setting: Setting) -> NoiseProtection:
        """See `QueryKind`."""
        honest, bits = setting.honest_parties, setting.fraction_bits
        if isinstance(self.noise, LocalResponse):
            # Values are bits, so l1 counts those that differ.
            return LocalProtection(self.scope, honest, self.noise.epsilon, self.sensitivity.l1)
        if isinstance(self.noise, LaplaceShares):
            unit = factor_of(self.persons) << bits
            l1, alone = self.sensitivity.l1 * unit, self.sensitivity.alone * unit
            return LaplaceProtection(self.scope, honest, self.noise, l1, unit, alone)
        unit = factor_of(self.persons) ** 2 << 2 * bits
        squared, alone = (bound * unit for bound in (self.sensitivity.l2_squared, self.sensitivity.alone))
        sigma, count = self.noise.share_sigma, len(self.predicates)
        return GaussianProtection(
            self.scope, honest, sigma, squared, count, squared_alone=alone, cohorts=self.noise.cohorts
        )

    @property
    def shares(self) -> NoiseShares | None:
        """See `QueryKind`."""
        return None if isinstance(self.noise, LocalResponse) else self.noise

    def with_noise(self, share_sigma: int) -> Self:
        """See `QueryKind`."""
        return replace(self, noise=GaussianShares(share_sigma))

    def of_persons(self, persons: Persons | None) -> Self:
        """See `QueryKind`."""
        return replace(self, persons=persons)

    def following(self, cohorts: Cohorts) -> Self:
        """See `QueryKind`."""
        if isinstance(self.noise, LocalResponse):
            return super().following(cohorts)
        return replace(self, noise=replace(self.noise, cohorts=cohorts))

    def noise_words(self, parties: int, honest: int) -> str:
        """See `QueryKind`."""
        if isinstance(self.noise, LocalResponse):
            return (
                "The protection is local: each record's answer to each predicate is flipped at its party with "
                f"probability {float(self.noise.chance):.6g}, before anything is summed. It needs no other party, no "
                "mask and no encryption, so both figures are the same. The coins come from HMAC-SHA256 and AES-256 "
                "under the party's secret, assumed pseudorandom; asked the same again, a record gives the same answer."
            )
        if not isinstance(self.noise, LaplaceShares):
            return super().noise_words(parties, honest)
        shares = self.noise.needed(parties)
        return (
            f"The noise is discrete Laplace noise in {shares} shares, and each of the {parties} parties adds one. "
            f"Both figures count {shares}, the {'record' if self.persons is None else 'person'}'s own party's among "
            f"them: all parties but {shares} may "
            "collude, and what the others add beyond those is additional noise."
        )


def _check_whole(fraction_bits: int) -> None:
    if fraction_bits:
        raise PlanError(f"fraction_bits is {fraction_bits}: local answers are bits and have none; leave it out")


def _checked(fraction_bits: int) -> int:
    if not 0 <= fraction_bits <= MOST_FRACTION_BITS:
        raise PlanError(f"fraction_bits is {fraction_bits}: statistics take 0 to {MOST_FRACTION_BITS}")
    return fraction_bits
