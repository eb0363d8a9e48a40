"""What one attempt may tell, for each scope: what the ledger is charged.

Scopes are nested: the marginal of a feature (the released values of its coordinate by themselves) is within the joint
release of its source column, and that is within the release of whole records. A bound for a scope bounds whatever is
within it. An event has no bound for a scope that is neither listed nor within one that is.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property, lru_cache

from dpcore.accounting.concentrated import of_count, of_shift
from dpcore.accounting.dp_feat import own_epsilon
from dpcore.accounting.filters import Loss
from dpcore.accounting.pure import PureLaw
from dpcore.accounting.truncation import truncation
from dpcore.errors import PlanError
from dpcore.numbers.count_distributions import CountLaw, binomial_law
from dpcore.queries.rados import RadosQuery
from dpcore.queries.release_cost import NoiseLaw, check_inclusion, noise_law_of
from dpcore.rados.designs import DpFeatDesign, FixedSupportDesign, JointDesign, PlainDesign
from dpcore.rados.support import check_support
from dpcore.records.schema import Schema
from wire.errors import Code, WireError
from wire.query import Query, setting_of

FAILURE_SHARE = Fraction(1, 1024)
"""Of a query's delta: how likely a bound's failure may be, where that can be chosen."""
# What divides a power of ten and fits 63 bits divides this one.
_DIGITS_OF_63_BITS = 63
_ROUNDED_DIGITS = 30


class ScopeKind(StrEnum):
    """How far a bound reaches, the widest first."""

    RECORD = "record"
    JOINT = "joint"
    MARGINAL = "marginal"


@dataclass(frozen=True)
class Scope:
    """What is bounded: whole records, a source column within the whole release, or a feature's own released values.

    name: the column's or the feature's, empty for records. column: a feature's source column, where it is known; it
    does not tell two scopes of one name apart.
    """

    kind: ScopeKind
    name: str = ""
    column: str = ""

    def __post_init__(self) -> None:
        if (self.kind is ScopeKind.RECORD) != (not self.name) or (self.column and self.kind is not ScopeKind.MARGINAL):
            raise ValueError(f"not a scope: {self!r}")

    @property
    def key(self) -> tuple[ScopeKind, str]:
        """What tells it from other scopes."""
        return self.kind, self.name

    @property
    def order(self) -> tuple[int, str]:
        """Its place in a list of scopes, the widest first."""
        return list(ScopeKind).index(self.kind), self.name

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}" if self.name else self.kind.value


RECORD = Scope(ScopeKind.RECORD)


def joint(column: str) -> Scope:
    """The scope of a source column."""
    return Scope(ScopeKind.JOINT, column)


def marginal(feature: str, column: str = "") -> Scope:
    """The scope of a feature's own values."""
    return Scope(ScopeKind.MARGINAL, feature, column)


@dataclass(frozen=True)
class Charge:
    """What one attempt costs.

    bounds: for each scope that is bounded by itself, its bound; kept in the scopes' order. learner: who asked. epoch:
    what names the noised table that is released, where there is one: all events of one epoch are one release of that
    table, which is counted once. Raises ValueError where a scope is bounded twice or an epoch is empty.
    """

    bounds: tuple[tuple[Scope, Loss], ...] = ()
    learner: str = ""
    epoch: bytes | None = None

    def __post_init__(self) -> None:
        if len({scope.key for scope, _ in self.bounds}) < len(self.bounds):
            raise ValueError("a charge bounds a scope twice")
        if self.epoch == b"":
            raise ValueError("an epoch without a name")
        object.__setattr__(self, "bounds", tuple(sorted(self.bounds, key=lambda bound: bound[0].order)))

    def bound(self, scope: Scope, columns: Iterable[str] = ()) -> Loss | None:
        """The bound for a scope: its own, or the nearest that it is within; None where there is none.

        columns: the source columns that a feature of this name is known to have, beside the scope's own.
        """
        within = [scope.key]
        if scope.kind is ScopeKind.MARGINAL:
            within += [(ScopeKind.JOINT, column) for column in dict.fromkeys((scope.column, *columns)) if column]
        return next((self._listed[key] for key in (*within, RECORD.key) if key in self._listed), None)

    @cached_property
    def _listed(self) -> dict[tuple[ScopeKind, str], Loss]:
        return {scope.key: loss for scope, loss in self.bounds}

    @cached_property
    def _hash(self) -> int:
        return hash((self.bounds, self.learner, self.epoch))

    def __hash__(self) -> int:
        # A ledger counts thousands of equal charges, and a fraction's hash is slow.
        return self._hash

    @property
    def is_bounded(self) -> bool:
        """Whether whole records are protected."""
        return self.bound(RECORD) is not None

    def __str__(self) -> str:
        return "; ".join(f"{loss} for {scope}" for scope, loss in self.bounds) or "no bound"


def record_charge(learner: str, *, law: NoiseLaw, delta: Fraction, epoch: bytes | None = None) -> Charge:
    """The charge of a release whose noise covers whole records.

    law: what replacing one record can do. delta: what epsilon is counted at; pure noise takes none of it. epoch: the
    noised table's name, where the release is one of a table that is noised once. Raises PlanError.
    """
    return Charge(((RECORD, _loss_of(law, delta)),), learner, epoch)


def joint_charge(learner: str, schema: Schema, columns: Sequence[str], *, law: NoiseLaw, delta: Fraction) -> Charge:
    """The charge of a release with noise on all coordinates of each of these source columns.

    law: what replacing one record's cell of such a column can do. The features of the columns are
    listed too, so that limits of their own count what the columns' bounds say of them. Raises PlanError.
    """
    loss = _loss_of(law, delta)
    scopes = [joint(column) for column in columns]
    scopes += [
        marginal(feature.name, feature.column)
        for feature in schema.features
        if feature.column in columns and feature.coordinates == (feature.name,)
    ]
    return Charge(tuple((scope, loss) for scope in scopes), learner)


def marginal_charge(
    learner: str,
    schema: Schema,
    features: Sequence[str],
    *,
    law: CountLaw,
    rados: int,
    delta: Fraction,
    epsilon: float | None = None,
) -> Charge:
    """The charge of rados in which each of these coordinates, by itself, shows a count of this law.

    law: of the party's own count (dpcore.numbers.count_distributions). epsilon: an upper end at delta, where a better
    one than the concentrated bound's is known. Raises PlanError.
    """
    loss = Loss.of_concentrated(of_count(law, rados, FAILURE_SHARE * delta), delta, epsilon)
    return Charge(tuple((marginal(name, schema.sources(name) or ""), loss) for name in features), learner)


def charge_for(query: Query, rows: int, epoch: bytes | None = None) -> Charge:
    """The charge of one attempt for a party of `rows` rows.

    A marginal's is by the party's own law, whoever colludes. Shared noise is counted with `honest_parties` shares, this
    party's among them: with so many the rest of any cohort that the party's policy admits may collude. A delta that is
    no decimal is rounded up. epoch: as for `record_charge`. Raises WireError(PLAN_INFEASIBLE) where the design is empty
    or has no finite bound at this size.
    """
    kind, delta = query.kind, _short(query.delta)
    try:
        match kind:
            case RadosQuery(design=PlainDesign(booleans=booleans)):
                return _plain_charge(query, kind.rados, booleans, rows, delta)
            case RadosQuery(design=DpFeatDesign() as design):
                count_law, epsilon = _dp_feat(rows, kind.rados, design.epsilon_per_rado, delta)
                return marginal_charge(
                    query.learner,
                    query.schema,
                    design.names,
                    law=count_law,
                    rados=kind.rados,
                    delta=delta,
                    epsilon=epsilon,
                )
            case RadosQuery(design=FixedSupportDesign(edge_sigma=0) as design):
                check_support(rows, design.fraction)
                return Charge(learner=query.learner)
        check_inclusion(kind, rows, delta)
        law = noise_law_of(kind, rows, setting_of(query), shares=query.honest_parties)
        if isinstance(kind, RadosQuery) and isinstance(kind.design, JointDesign):
            return joint_charge(query.learner, query.schema, (kind.design.column,), law=law, delta=delta)
        return record_charge(query.learner, law=law, delta=delta, epoch=epoch)
    except PlanError as error:
        raise WireError(Code.PLAN_INFEASIBLE, str(error)) from error


def _short(delta: Fraction) -> Fraction:
    """Delta where it is a decimal; otherwise rounded up to one of 30 digits, which changes it by less than 1e-11 of it.

    A learner chooses it, and a sum of fractions whose denominators share nothing grows without end: with some thousand
    of them a ledger would take minutes to add up.
    """
    if 10**_DIGITS_OF_63_BITS % delta.denominator == 0:
        return delta
    return Fraction(math.ceil(delta * 10**_ROUNDED_DIGITS), 10**_ROUNDED_DIGITS)


def _plain_charge(query: Query, rados: int, booleans: Sequence[int], rows: int, delta: Fraction) -> Charge:
    """The marginal of each of the design's boolean coordinates; nothing where no bound holds at delta.

    Plain rados promise none.
    """
    try:
        loss = plain_loss(rows, rados, delta)
    except PlanError:
        return Charge(learner=query.learner)
    # Only for those that the design names do rows that are not usable move the count too.
    names = (query.schema.coordinates[coordinate] for coordinate in booleans)
    return Charge(tuple((marginal(name, query.schema.sources(name) or ""), loss) for name in names), query.learner)


@lru_cache(maxsize=64)
def plain_loss(rows: int, rados: int, delta: Fraction) -> Loss:
    """What plain rados tell by each boolean coordinate's own values. Raises PlanError where no bound holds at delta."""
    return Loss.of_concentrated(of_count(binomial_law(rows), rados, FAILURE_SHARE * delta), delta)


@lru_cache(maxsize=64)
def _dp_feat(rows: int, rados: int, epsilon_per_rado: Fraction | None, delta: Fraction) -> tuple[CountLaw, float]:
    """The law of the sensitive count, and the exact epsilon of its releases, rounded up."""
    epsilon = own_epsilon(rows, rados, epsilon_per_rado, delta)
    if not math.isfinite(epsilon):
        raise PlanError("the design has no finite bound: ask for fewer rados, or truncate less")
    return binomial_law(rows, truncation(rows, epsilon_per_rado)[0]), epsilon


def _loss_of(law: NoiseLaw, delta: Fraction) -> Loss:
    if isinstance(law, PureLaw):
        # As doubles, rounded up, they are short fractions: see `_short`.
        rho = math.nextafter(float(law.concentrated.rho), math.inf)
        return Loss(Fraction(law.epsilon(0).upper), Fraction(0), Fraction(rho), law.concentrated.failure)
    return Loss.of_concentrated(of_shift(law, FAILURE_SHARE * delta), delta, law.epsilon(delta).upper)
