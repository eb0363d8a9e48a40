"""Limits of a data source, and whether one more event fits: the ledger's arithmetic, without its file.

A limit (epsilon, delta) holds in each scope separately (dpcore.accounting.filters): over the lifetime and all learners,
and, if the policy says so, also for each learner, for each study and for each 24 hours. A charge must fit within all of
them, so that a study's budget is within the party's.

An event adds to every scope that it bounds, by its own bound or by that of a wider scope. Events without a bound for
whole records have a separate limit, a number.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from typing import Any

from dpcore.accounting.filters import NO_LOSS, Loss, PrivacyLimit, total_loss
from dpcore.numbers.rationals import lower_digits
from parties.ledger.charges import PERSON, RECORD, Charge, Division, Scope, ScopeKind, Side, joint, marginal
from radobase.printing import amount, json_text
from wire.errors import Code, WireError

DAY_S = 24 * 3600


class BudgetExceededError(WireError):
    """A request costs more than what remains.

    scope, limit: the scope and the limit that it exceeds. requested: its cost in this scope. remaining: the largest
    epsilon, at the request's delta, that still fits.
    """

    def __init__(self, *, scope: Scope, limit: str, requested: Loss, remaining: float) -> None:
        self.scope, self.limit, self.requested, self.remaining = scope, limit, requested, remaining
        super().__init__(
            Code.BUDGET_EXCEEDED,
            f"It costs {requested} for {scope}; of the limit {limit}, epsilon {lower_digits(remaining, 6)} remains at "
            "that delta.",
        )


class UnboundedExceededError(WireError):
    """More events without a bound for whole records than the limit allows."""

    def __init__(self, *, limit: int, held: int) -> None:
        self.limit, self.held = limit, held
        super().__init__(
            Code.BUDGET_EXCEEDED,
            f"It has no bound for whole records; unbounded_queries allows {limit} such events and {held} are charged "
            "or reserved.",
        )


@dataclass(frozen=True)
class Event:
    """A charge that is reserved or spent."""

    charge: Charge
    charged: bool
    recorded_at_unix_s: float
    """Time of the reservation or charge."""
    count: int = 1
    """How many alike there are, none of them newer."""


def counted(events: Iterable[Event]) -> Counter[Charge]:
    """Each charge with the number of its events."""
    counts: Counter[Charge] = Counter()
    for event in events:
        counts[event.charge] += event.count
    return counts


@dataclass(frozen=True)
class LedgerLimits:
    """Limits of a data source, in every scope."""

    lifetime: PrivacyLimit
    """For scopes without a limit of their own."""
    unbounded_events: int = 0
    """Largest number of charged events without a bound for whole records."""
    person: PrivacyLimit | None = None
    record: PrivacyLimit | None = None
    columns: Mapping[str, PrivacyLimit] = field(default_factory=dict)
    features: Mapping[str, PrivacyLimit] = field(default_factory=dict)
    """Limits of single scopes, by name."""
    per_learner: PrivacyLimit | None = None
    per_day: PrivacyLimit | None = None
    """Additional limits in every scope, or None."""
    per_study: PrivacyLimit | None = None
    """Additional limit in every scope for each study without one of its own, or None."""
    studies: Mapping[str, PrivacyLimit] = field(default_factory=dict)
    """Additional limits of single studies, by protocol number."""

    def __post_init__(self) -> None:
        if self.unbounded_events < 0:
            raise ValueError(f"{self.unbounded_events} events without a bound: give 0 or more")

    @property
    def named_scopes(self) -> tuple[Scope, ...]:
        """RECORD, and the scopes that have a limit of their own."""
        persons = () if self.person is None else (PERSON,)
        return (*persons, RECORD, *(joint(name) for name in self.columns), *(marginal(name) for name in self.features))

    def of(self, scope: Scope) -> PrivacyLimit:
        """The lifetime limit of a scope."""
        match scope.kind:
            case ScopeKind.PERSON:
                return self.person or self.lifetime
            case ScopeKind.RECORD:
                return self.record or self.lifetime
            case ScopeKind.JOINT:
                return self.columns.get(scope.name, self.lifetime)
            case ScopeKind.MARGINAL:
                return self.features.get(scope.name, self.lifetime)

    def of_study(self, number: str) -> PrivacyLimit | None:
        """The limit of a study in every scope, or None."""
        return self.studies.get(number, self.per_study)

    def __str__(self) -> str:
        own = {"person": self.person} if self.person else {}
        own |= {"record": self.record} if self.record else {}
        own |= {str(joint(name)): limit for name, limit in self.columns.items()}
        own |= {str(marginal(name)): limit for name, limit in self.features.items()}
        own |= {"each learner": self.per_learner} if self.per_learner else {}
        own |= {"each day": self.per_day} if self.per_day else {}
        own |= {f"study {json_text(number)}": limit for number, limit in self.studies.items()}
        own |= {f"each {'other ' * bool(self.studies)}study": self.per_study} if self.per_study else {}
        return "; ".join(
            [
                str(self.lifetime),
                *(f"{name} {limit}" for name, limit in own.items()),
                f"{amount(self.unbounded_events, 'query')} without a bound for records",
            ]
        )


@dataclass(frozen=True)
class ScopeTotal:
    """Total of events in one scope: the sum of their bounds, and the number of events without a bound."""

    loss: Loss
    unbounded: int


class Scopes:
    """All scopes that charges and limits name, with their nesting; computes totals of charges in them."""

    def __init__(self, charges: Iterable[Charge], limits: LedgerLimits) -> None:
        named = list(limits.named_scopes)
        for charge in dict.fromkeys(charges):
            for scope, _ in charge.bounds:
                named += [joint(scope.column), scope] if scope.column else [scope]
        self._columns: dict[str, set[str]] = {}
        for scope in named:
            if scope.column:
                self._columns.setdefault(scope.name, set()).add(scope.column)
        self.all = tuple(sorted({scope.key: scope for scope in named}.values(), key=lambda scope: scope.order))

    def bound(self, charge: Charge, scope: Scope) -> Loss | None:
        """A charge's bound for a scope."""
        return charge.bound(scope, sorted(self._columns.get(scope.name, ())))

    def total(self, charges: Mapping[Charge, int], scope: Scope, *, is_plain: bool = False) -> ScopeTotal:
        """Total of charges in a scope. charges: each charge with its count.

        A noised table counts once, with the largest value of its events in each part of the loss. So does a divided
        table, see `_Divided`, and so do epochs of rows: each one's charges add up, and the largest sum in each part
        counts (parties.ledger.row_epochs). Events without a bound are counted all.

        is_plain: whether both parts of a table count in full, as if they were not disjoint.
        """
        unbounded = 0
        losses: dict[str | None, list[tuple[Loss, int]]] = {}
        tables: dict[tuple[str | None, bytes], list[Loss | None]] = {}
        divided: dict[tuple[Division, Fraction], _Divided] = {}
        # A charge of no learner may stand for lost ones, which may have been of either part of any table.
        is_plain = is_plain or any(not charge.learner for charge in charges)
        for charge, count in charges.items():
            loss = self.bound(charge, scope)
            if charge.side is not None and loss is not None and not is_plain:
                divided.setdefault((charge.side.division, charge.side.share), _Divided()).add(charge, loss, count)
            elif charge.epoch is not None:
                tables.setdefault((charge.row_epoch, charge.epoch), []).append(loss)
            elif loss is None:
                unbounded += count * charge.events
            else:
                losses.setdefault(charge.row_epoch, []).append((loss, count))
        for (row_epoch, _), bounds in tables.items():
            known = [loss for loss in bounds if loss is not None]
            losses.setdefault(row_epoch, []).append((reduce(Loss.largest, known, NO_LOSS), 1))
            unbounded += len(known) < len(bounds)
        of_all_rows = total_loss(losses.pop(None, []) + [(table.loss, 1) for table in divided.values()])
        of_epochs = reduce(Loss.largest, map(total_loss, losses.values())) if losses else NO_LOSS
        return ScopeTotal(of_all_rows + of_epochs, unbounded)


class _Divided:
    """The events about both parts of one table, by ids: the most that they cost a record.

    A record that is replaced by one of the same part costs the events of that part. One that is replaced by one of the
    other part leaves its own and joins the other. Proof: docs/explanation/proofs.md, "Both parts of a table".
    """

    def __init__(self) -> None:
        self._replaced: dict[bool, list[tuple[Loss, int]]] = {False: [], True: []}
        self._crossing: list[tuple[Loss, int]] = []

    def add(self, charge: Charge, loss: Loss, count: int) -> None:
        """Count an event, whose charge has a side, so often. loss: its bound where a record is replaced."""
        assert charge.side is not None, "counted in full"
        assert charge.presence is not None, "charges with a side have it"
        self._replaced[charge.side.is_held_back].append((loss, count))
        self._crossing.append((charge.presence, count))

    @property
    def loss(self) -> Loss:
        """The largest of the three in each part."""
        return reduce(Loss.largest, map(total_loss, (*self._replaced.values(), self._crossing)))


def check_admits(limits: LedgerLimits, held: Sequence[Event], more: Charge, *, now_unix_s: float) -> None:
    """Raise if `more` does not fit within the limits with the held events. Checks only limits to which `more` adds.

    A charge about an epoch of rows must fit beside those about this epoch and about all rows. Raises
    BudgetExceededError, UnboundedExceededError.
    """
    lifetime = counted(held)
    scopes = Scopes([*lifetime, more], limits)
    unbounded = scopes.total(lifetime, RECORD).unbounded
    if unbounded < scopes.total(_with(lifetime, more), RECORD).unbounded > limits.unbounded_events:
        raise UnboundedExceededError(limit=limits.unbounded_events, held=unbounded)
    if more.row_epoch is not None:
        held = about(held, more.row_epoch)
        lifetime = counted(held)
    windows = [
        *(("of each learner", limits.per_learner, _of_learner(held, name)) for name in _learners(held, more)),
        *(
            (f"of study {json_text(number)}", limits.of_study(number), counted(of_study(held, number)))
            for number in _studies(limits, held, more)
        ),
        ("of each day", limits.per_day, counted(event for event in held if same_day(event, now_unix_s))),
    ]
    for scope in scopes.all:
        requested = scopes.bound(more, scope)
        if requested is None:
            continue
        for name, limit, there in (("of the lifetime", limits.of(scope), lifetime), *windows):
            if limit is None:
                continue
            before, after = (scopes.total(part, scope).loss for part in (there, _with(there, more)))
            if after != before and not limit.admits(after):
                raise BudgetExceededError(
                    scope=scope,
                    limit=f"{name} ({limit})",
                    requested=requested,
                    remaining=limit.remaining(before, requested.delta),
                )


def about(events: Iterable[Event], row_epoch: str) -> list[Event]:
    """The events that a row of this epoch is in: those about all rows, and about this epoch."""
    return [event for event in events if event.charge.row_epoch in (None, row_epoch)]


def _with(charges: Counter[Charge], more: Charge) -> Counter[Charge]:
    return charges + Counter((more,))


def _learners(held: Sequence[Event], more: Charge) -> list[str]:
    """The learners to whose limit `more` adds: its own, or every one where it is not known."""
    return [more.learner] if more.learner else sorted({"", *(event.charge.learner for event in held)})


def _of_learner(held: Sequence[Event], learner: str) -> Counter[Charge]:
    """The charges of a learner. An event with an unknown learner counts for every learner."""
    return counted(event for event in held if event.charge.learner in ("", learner))


def _studies(limits: LedgerLimits, held: Sequence[Event], more: Charge) -> list[str]:
    """The studies to whose limit `more` adds: its own, or every one where it is not known of which it is part."""
    if more.learner:
        return [more.study] if more.study else []
    return sorted({*limits.studies, *(event.charge.study for event in held)} - {""})


def of_study(held: Iterable[Event], number: str) -> list[Event]:
    """The events of a study. One with an unknown learner counts for every study: it may stand for lost ones."""
    return [event for event in held if event.charge.study == number or not event.charge.learner]


def by_study(held: Iterable[Event], others: Iterable[str] = ()) -> dict[str, list[Event]]:
    """What `of_study` returns for each study of these events, and for others. One pass: a learner may name many."""
    found: dict[str, list[Event]] = {number: [] for number in others}
    of_any = []
    for event in held:
        if not event.charge.learner:
            of_any.append(event)
        elif event.charge.study:
            found.setdefault(event.charge.study, []).append(event)
    return {number: [*own, *of_any] for number, own in found.items()}


def same_day(event: Event, now_unix_s: float) -> bool:
    """Whether an event counts against the limit of these 24 hours."""
    # A reservation may be charged at any time. Events with a future time were recorded before a clock was set back.
    return not event.charged or event.recorded_at_unix_s > now_unix_s - DAY_S


# How many more attempts like one of the ledger's fit within its limits.


# More than anybody asks: a charge that still fits this often adds nothing to any sum.
_WITHOUT_END = 1 << 63


def more_like(
    limits: LedgerLimits, events: Sequence[Event], charge: Charge, *, now_unix_s: float | None = None
) -> int | None:
    """The largest number of further attempts with this charge that the limits admit; None if they admit any number.

    events: what is charged and reserved. now_unix_s: to count the limit of each 24 hours too, which frees itself; None
    leaves it out. Exact: the number is found by bisection with `check_admits`, as sums only grow with further attempts.
    """
    if now_unix_s is None:
        limits, today = replace(limits, per_day=None), []
    else:
        today = [event for event in events if same_day(event, now_unix_s)]
        events = [event for event in events if not same_day(event, now_unix_s)]
    # Each of the many steps below counts all events again.
    events = [*merged(events), *today]

    def fits(count: int) -> bool:
        """Whether the last of `count` attempts is admitted after the others."""
        others = [Event(charge, charged=False, recorded_at_unix_s=0.0, count=count - 1)] if count > 1 else []
        try:
            check_admits(limits, [*events, *others], charge, now_unix_s=now_unix_s or 0.0)
        except (BudgetExceededError, UnboundedExceededError):
            return False
        return True

    if charge.epoch is not None:
        # All attempts over one noised table count once.
        return None if fits(1) else 0
    if fits(_WITHOUT_END):
        return None
    most = 1
    while fits(most):
        most *= 2
    least = most // 2
    # `least` fit, or are none; `most` do not fit.
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


def merged(events: Sequence[Event]) -> list[Event]:
    """One event for all of a learner that bound the same scopes, at a time long past: it adds as much to every sum.

    Those of different studies, or about different epochs of rows, stay apart.

    Which bound of a charge counts in a scope depends on the scopes that it bounds, and not on their values.
    """
    alike: dict[tuple[str, str, str | None, tuple[Scope, ...], Side | None], list[tuple[Charge, int]]] = {}
    found = []
    for charge, count in counted(events).items():
        if charge.epoch is not None:
            # All of one epoch are one release.
            found.append(charge)
        else:
            scopes = tuple(scope for scope, _ in charge.bounds)
            key = (charge.learner, charge.study, charge.row_epoch, scopes, charge.side)
            alike.setdefault(key, []).append((charge, count))
    for (learner, study, row_epoch, scopes, side), charges in alike.items():
        losses = (total_loss(parts) for parts in zip(*(_losses(*each) for each in charges), strict=True))
        bounds = tuple(zip(scopes, losses, strict=True))
        stands_for = sum(count * charge.events for charge, count in charges)
        crossing = [(charge.presence, count) for charge, count in charges if charge.presence is not None]
        presence = None if side is None else total_loss(crossing)
        found.append(Charge(bounds, learner, None, stands_for, side, presence, row_epoch, study))
    return [Event(charge, charged=True, recorded_at_unix_s=-math.inf) for charge in found]


def _losses(charge: Charge, count: int) -> tuple[tuple[Loss, int], ...]:
    return tuple((loss, count) for _, loss in charge.bounds)


@dataclass(frozen=True)
class Room:
    """What fits besides all that is charged and reserved."""

    last: Charge
    """The newest charge of a query."""
    lifetime: int | None
    day: int | None
    """Further attempts like it, over the lifetime and in these 24 hours; None where no limit counts them."""

    def __str__(self) -> str:
        like = f"like the last, of {self.last.learner} ({self.last})"
        if self.lifetime is None:
            return f"Room for any number more {like}: they are one release of the same table."
        today = "" if self.day is None or self.day >= self.lifetime else f"; {self.day} of them in these 24 hours"
        return f"Room for about {self.lifetime} more {like}{today}."

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "learner": self.last.learner,
            "cost": str(self.last),
            "lifetime": self.lifetime,
            "these_24_hours": self.day,
        }


def room(limits: LedgerLimits, events: Sequence[Event], last: Charge | None, now_unix_s: float) -> Room | None:
    """The room for attempts like the last that was charged; None if none was."""
    if last is None:
        return None
    day = None if limits.per_day is None else more_like(limits, events, last, now_unix_s=now_unix_s)
    return Room(last, more_like(limits, events, last), day)
