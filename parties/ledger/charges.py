"""What one attempt may tell, for each scope: what the ledger is charged.

Scopes are nested: the marginal of a feature (the released values of its coordinate by themselves) is within the joint
release of its source column, and that is within the release of whole records. A bound for a scope bounds whatever is
within it. An event has no bound for a scope that is neither listed nor within one that is.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

from dpcore.accounting.filters import Loss
from dpcore.errors import PlanError
from dpcore.records.schema import Schema
from wire.errors import Code, WireError
from wire.query import Query, setting_of

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


def charge_for(query: Query, rows: int, epoch: bytes | None = None) -> Charge:
    """The charge of one attempt for a party of `rows` rows.

    A marginal's is by the party's own distribution, whoever colludes. Shared noise is counted with `honest_parties`
    shares, this party's among them: with so many the rest of any cohort that the party's policy admits may collude. A
    delta that is no decimal is rounded up. epoch: the noised table's name, where the release is one of a table that is
    noised once. Raises WireError(PLAN_INFEASIBLE) where the design is empty or has no finite bound at this size.
    """
    kind, schema = query.kind, query.schema
    try:
        loss = kind.protection(setting_of(query)).loss(rows, _short(query.delta))
    except PlanError as error:
        raise WireError(Code.PLAN_INFEASIBLE, str(error)) from error
    if loss is None:
        return Charge(learner=query.learner)
    match kind.scope:
        case "record":
            return Charge(((RECORD, loss),), query.learner, epoch)
        case "joint":
            scopes = column_scopes(schema, kind.protected_column)
        case _:
            scopes = [marginal(name, schema.sources(name) or "") for name in kind.features(schema)]
    return Charge(tuple((scope, loss) for scope in scopes), query.learner)


def column_scopes(schema: Schema, column: str) -> list[Scope]:
    """A source column, and its features, so that limits of their own count what the column's bound says of them."""
    derived = (feature for feature in schema.features if feature.column == column)
    return [
        joint(column),
        *(marginal(feature.name, column) for feature in derived if feature.coordinates == (feature.name,)),
    ]


def _short(delta: Fraction) -> Fraction:
    """Delta where it is a decimal; otherwise rounded up to one of 30 digits, which changes it by less than 1e-11 of it.

    A learner chooses it, and a sum of fractions whose denominators share nothing grows without end: with some thousand
    of them a ledger would take minutes to add up.
    """
    if 10**_DIGITS_OF_63_BITS % delta.denominator == 0:
        return delta
    return Fraction(math.ceil(delta * 10**_ROUNDED_DIGITS), 10**_ROUNDED_DIGITS)
