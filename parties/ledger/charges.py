"""The charge of one attempt: its privacy loss in each scope.

Scopes are nested: the marginal of a feature (the released values of its coordinate alone) is within the joint release
of its source column, which is within the release of whole records. A bound for a scope also bounds every scope within
it. An event has no bound for a scope that is neither listed nor within a listed scope.
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

# A 63-bit number that divides a power of ten also divides 10 to this power.
_DIGITS_OF_63_BITS = 63
_ROUNDED_DIGITS = 30


class ScopeKind(StrEnum):
    """Kinds of scope, widest first."""

    RECORD = "record"
    JOINT = "joint"
    MARGINAL = "marginal"


@dataclass(frozen=True)
class Scope:
    """What a bound covers: whole records, a source column in the whole release, or a feature's own released values."""

    kind: ScopeKind
    name: str = ""
    """The column's or the feature's, empty for records."""
    column: str = ""
    """A feature's source column, if known; it is not part of the scope's identity."""

    def __post_init__(self) -> None:
        if (self.kind is ScopeKind.RECORD) != (not self.name) or (self.column and self.kind is not ScopeKind.MARGINAL):
            raise ValueError(f"not a scope: {self!r}")

    @property
    def key(self) -> tuple[ScopeKind, str]:
        """The scope's identity."""
        return self.kind, self.name

    @property
    def order(self) -> tuple[int, str]:
        """Sort key of the scope, widest first."""
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
    """Cost of one attempt.

    Raises ValueError if a scope has two bounds, an epoch is empty, or it stands for no event.
    """

    bounds: tuple[tuple[Scope, Loss], ...] = ()
    """Each scope with a bound of its own, and the bound; sorted by scope."""
    learner: str = ""
    """Who sent the query."""
    epoch: bytes | None = None
    """The name of the released noised table, if there is one. All events of one epoch are one release of that table,
    which counts once."""
    events: int = 1
    """How many events without a bound it stands for, 1 for every attempt."""

    def __post_init__(self) -> None:
        if self.events < 1:
            raise ValueError("a charge stands for at least one event")
        if len({scope.key for scope, _ in self.bounds}) < len(self.bounds):
            raise ValueError("a charge bounds a scope twice")
        if self.epoch == b"":
            raise ValueError("an epoch without a name")
        object.__setattr__(self, "bounds", tuple(sorted(self.bounds, key=lambda bound: bound[0].order)))

    def bound(self, scope: Scope, columns: Iterable[str] = ()) -> Loss | None:
        """The bound for a scope: its own, or that of the narrowest scope around it. None if there is none.

        columns: source columns of a feature of this name, in addition to the scope's own. Other scopes have none.
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
        return hash((self.bounds, self.learner, self.epoch, self.events))

    def __hash__(self) -> int:
        # A ledger adds up thousands of equal charges, and a fraction's hash is slow.
        return self._hash

    @property
    def is_bounded(self) -> bool:
        """Whether whole records are protected."""
        return self.bound(RECORD) is not None

    def __str__(self) -> str:
        return "; ".join(f"{loss} for {scope}" for scope, loss in self.bounds) or "no bound"


def charge_for(query: Query, rows: int, epoch: bytes | None = None) -> Charge:
    """The charge of one attempt for a party of `rows` rows.

    A marginal's charge uses only the party's own distribution, so it holds under any collusion. Shared noise counts
    `honest_parties` shares, this party's included: all other members may collude. A delta that is not a decimal is
    rounded up. epoch: the name of the table, for a release of a table with noise.

    Raises WireError(PLAN_INFEASIBLE) if the design is empty or has no finite bound at this size.
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
    """A source column and its features, so that the features' own limits count the column's bound."""
    derived = (group for group in schema.groups if group.column == column)
    return [
        joint(column),
        *(marginal(group.name, column) for group in derived if group.coordinates == (group.name,)),
    ]


def _short(delta: Fraction) -> Fraction:
    """Delta if it is a decimal; otherwise delta rounded up to 30 digits, a relative change of less than 1e-11.

    The learner chooses delta. The denominator of a sum of fractions with coprime denominators grows without limit: a
    ledger would take minutes to add up some thousand of them.
    """
    if 10**_DIGITS_OF_63_BITS % delta.denominator == 0:
        return delta
    return Fraction(math.ceil(delta * 10**_ROUNDED_DIGITS), 10**_ROUNDED_DIGITS)
