"""State of a ledger, for people and programs, and its budgets over a period."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dpcore.accounting.filters import Left, Loss, PrivacyLimit
from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import lower_digits, upper_digits
from parties.ledger.charges import RECORD, Scope, ScopeKind
from parties.ledger.limits import DAY_S, Event, LedgerLimits, Scopes, ScopeTotal, about, by_study, counted, merged
from radobase.printing import amount, json_text


@dataclass(frozen=True)
class ScopeState:
    """One scope under one limit.

    Epsilons are at the limit's delta: that of the smallest limit that would have allowed the total, inf if there is
    none.
    """

    scope: Scope
    limit: PrivacyLimit
    spent: ScopeTotal
    """Total of charges."""
    held: ScopeTotal
    """Total of charges and reservations. An epoch counts once in it, so it is not always the sum of both."""

    @property
    def spent_epsilon(self) -> float:
        """Epsilon of what is charged."""
        return self.limit.spent(self.spent.loss)

    @property
    def held_epsilon(self) -> float:
        """Epsilon of what is charged and reserved."""
        return self.limit.spent(self.held.loss)

    @property
    def remaining(self) -> Left:
        """Largest epsilon of one more release that can be reserved, by the kind of its noise."""
        return self.limit.left(self.held.loss)

    @property
    def remaining_epsilon(self) -> float:
        """The same, of the kind of which more is left."""
        return self.remaining.epsilon

    def __str__(self) -> str:
        unbounded = f"; {amount(self.spent.unbounded, 'event')} without a bound here" if self.spent.unbounded else ""
        left = self.remaining
        spent, held = upper_digits(self.spent_epsilon, 6), upper_digits(self.held_epsilon, 6)
        pure, gaussian = lower_digits(left.pure, 6), lower_digits(left.gaussian, 6)
        return (
            f"{self.scope}: spent epsilon {spent}, with reservations {held}; one more answer fits up to {pure} with "
            f"Laplace noise, {gaussian} with Gaussian noise; limit {self.limit}{unbounded}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All figures by name; None for an infinite one."""
        figures = {
            "spent_epsilon": self.spent_epsilon,
            "spent_and_reserved_epsilon": self.held_epsilon,
            "remaining_epsilon": self.remaining_epsilon,
            "remaining_pure_epsilon": self.remaining.pure,
            "remaining_gaussian_epsilon": self.remaining.gaussian,
        }
        return {
            "scope": str(self.scope),
            "limit_epsilon": float(self.limit.epsilon),
            "limit_delta": float(self.limit.delta),
            **{name: value if math.isfinite(value) else None for name, value in figures.items()},
            "spent": _exact(self.spent),
            "spent_and_reserved": _exact(self.held),
        }


@dataclass(frozen=True)
class LedgerState:
    """State of a ledger. Numbers are of events; those without a bound for whole records are counted beside."""

    limits: LedgerLimits
    scopes: tuple[ScopeState, ...]
    """Under the lifetime limits: PERSON if a charge or a limit names it, RECORD, then all others that one names."""
    learners: tuple[tuple[str, tuple[ScopeState, ...]], ...]
    day: tuple[ScopeState, ...]
    """The same under the limits for each learner and for the last 24 hours, if there are such limits."""
    charged: int
    reserved: int
    """Number of reservations; `charged` is that of charges."""
    unbounded_charged: int
    unbounded_held: int
    """Those that are charged or reserved."""
    epochs: tuple[tuple[str, ScopeState], ...] = ()
    """By name, whole records of each epoch of rows that was asked about: what was spent on it and on all rows."""
    studies: tuple[tuple[str, tuple[ScopeState, ...]], ...] = ()
    """By protocol number, each study that has a limit of its own: what was spent in it."""

    @property
    def remaining_unbounded(self) -> int:
        """Number of events without a bound for whole records that can still be reserved."""
        return max(0, self.limits.unbounded_events - self.unbounded_held)

    def sentences(self) -> list[str]:
        """For people, one sentence per line: the figures, then the warning if there is one."""
        return [*self.figures(), *([f"warning: {self.warning}"] if self.warning else [])]

    def figures(self) -> list[str]:
        """The limits, then what is spent, reserved and left, one sentence per scope."""
        first = (
            f"limit {self.limits}; {self.charged} events charged and {self.reserved} reserved; without a bound for "
            f"records {self.unbounded_charged} charged, {self.remaining_unbounded} remaining"
        )
        lines = [first, *(str(state) for state in self.scopes)]
        lines += [f"rows of epoch {name}, {state}" for name, state in self.epochs]
        lines += [f"learner {name or 'unknown'}, {state}" for name, states in self.learners for state in states]
        lines += [f"study {json_text(number)}, {state}" for number, states in self.studies for state in states]
        return lines + [f"last 24 hours, {state}" for state in self.day]

    @property
    def warning(self) -> str:
        """Warning that belongs to every figure once an event without a bound is charged; otherwise empty."""
        if not self.unbounded_charged:
            return ""
        were = "was" if self.unbounded_charged == 1 else "were"
        return (
            f"{amount(self.unbounded_charged, 'event')} without any privacy bound for whole records {were} released "
            "from these data; the figures cover only the other events of their scope and do not bound the total "
            "privacy loss"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "scopes": [state.to_dict() for state in self.scopes],
            "learners": [
                {"learner": name, "scopes": [state.to_dict() for state in states]} for name, states in self.learners
            ],
            "day": [state.to_dict() for state in self.day],
            **({"epochs": [{"epoch": name, **state.to_dict()} for name, state in self.epochs]} if self.epochs else {}),
            **(
                {"studies": [{"study": n, "scopes": [each.to_dict() for each in own]} for n, own in self.studies]}
                if self.studies
                else {}
            ),
            "events_charged": self.charged,
            "events_reserved": self.reserved,
            "unbounded": {
                "charged": self.unbounded_charged,
                "limit": self.limits.unbounded_events,
                "remaining": self.remaining_unbounded,
            },
            "warnings": [self.warning] if self.warning else [],
        }


def state_of(limits: LedgerLimits, events: Sequence[Event], *, now_unix_s: float | None) -> LedgerState:
    """The state of a ledger with these events. now_unix_s: None omits the last day."""
    scopes = Scopes([event.charge for event in events], limits)

    def states(limit_of: Callable[[Scope], PrivacyLimit], of: Iterable[Event]) -> tuple[ScopeState, ...]:
        chosen = list(of)
        spent, held = counted(event for event in chosen if event.charged), counted(chosen)
        return tuple(
            ScopeState(scope, limit_of(scope), scopes.total(spent, scope), scopes.total(held, scope))
            for scope in scopes.all
        )

    learners: list[tuple[str, tuple[ScopeState, ...]]] = []
    if (per_learner := limits.per_learner) is not None:
        learners += [
            (name, states(lambda _: per_learner, (event for event in events if event.charge.learner in ("", name))))
            for name in sorted({event.charge.learner for event in events})
        ]
    of_studies = by_study(events, limits.studies)
    studies = tuple(
        (number, states(_always(own), of_studies[number]))
        for number in sorted(of_studies)
        if (own := limits.of_study(number)) is not None
    )
    day: tuple[ScopeState, ...] = ()
    if (per_day := limits.per_day) is not None and now_unix_s is not None:
        day = states(lambda _: per_day, (e for e in events if e.recorded_at_unix_s > now_unix_s - DAY_S))
    held, charged = counted(events), counted(event for event in events if event.charged)
    names = sorted({event.charge.row_epoch for event in events if event.charge.row_epoch is not None})
    return LedgerState(
        limits=limits,
        scopes=states(limits.of, events),
        learners=tuple(learners),
        day=day,
        charged=charged.total(),
        reserved=held.total() - charged.total(),
        unbounded_charged=scopes.total(charged, RECORD).unbounded,
        unbounded_held=scopes.total(held, RECORD).unbounded,
        epochs=tuple((name, _of_epoch(limits, scopes, about(events, name))) for name in names),
        studies=studies,
    )


def _always(limit: PrivacyLimit) -> Callable[[Scope], PrivacyLimit]:
    return lambda _: limit


def _of_epoch(limits: LedgerLimits, scopes: Scopes, events: Sequence[Event]) -> ScopeState:
    """Whole records under their lifetime limit, by the events that they are in."""
    spent, held = counted(event for event in events if event.charged), counted(events)
    return ScopeState(RECORD, limits.of(RECORD), scopes.total(spent, RECORD), scopes.total(held, RECORD))


def _exact(total: ScopeTotal) -> dict[str, Any]:
    loss = total.loss
    parts = {"epsilon": loss.epsilon, "delta": loss.delta, "rho": loss.rho, "failure": loss.failure}
    return {**{name: float(value) for name, value in parts.items()}, "unbounded_events": total.unbounded}


# The budget of each scope over a period, from the ledger's events alone.


MOST_SCOPES = 12
"""Scopes that are shown: whole records and those with the most spent."""
MOST_STEPS = 200
"""Steps of a budget over time in a report."""


@dataclass(frozen=True)
class Period:
    """From the first moment up to, and without, the last; Unix seconds. Raises ConfigurationError if it is empty."""

    since_unix_s: float
    until_unix_s: float

    def __post_init__(self) -> None:
        if not self.since_unix_s < self.until_unix_s:
            raise ConfigurationError("the period is empty: give a --from that is before --to and before now")


@dataclass(frozen=True)
class ScopeBudget:
    """The budget of one scope, in epsilon at the limit's delta.

    Epsilons are infinite if no limit at this delta would have allowed the total.
    """

    scope: str
    limit_epsilon: float
    limit_delta: float
    before: float
    """At the first moment of the period."""
    spent: float
    """At its last moment."""
    remaining: float
    """The larger of the two below."""
    remaining_pure: float
    """Of one more release with Laplace noise that fits after all charges and reservations."""
    remaining_gaussian: float
    """Likewise, with Gaussian noise."""
    unbounded: int
    """Events without a bound here."""
    steps: tuple[tuple[float, float], ...]
    """(Unix seconds, spent since then)."""


def scope_words(scope: ScopeState) -> str:
    """A scope for people."""
    match scope.scope.kind:
        case ScopeKind.PERSON:
            return "whole persons"
        case ScopeKind.RECORD:
            return "whole records"
        case ScopeKind.JOINT:
            return f"column {scope.scope.name}"
        case ScopeKind.MARGINAL:
            return f"feature {scope.scope.name}, its own released values"


def charged_since(events: Sequence[Event], since_unix_s: float) -> list[Event]:
    """The charges from a moment on, oldest first."""
    within = (event for event in events if event.charged and event.recorded_at_unix_s >= since_unix_s)
    return sorted(within, key=lambda event: event.recorded_at_unix_s)


def budgets(
    state: LedgerState, events: Sequence[Event], since_unix_s: float, most_steps: int | None = None
) -> tuple[ScopeBudget, ...]:
    """The budgets of whole records and of the scopes of which most is spent, widest first; at most MOST_SCOPES.

    state: of these events. most_steps: of each budget, the last charge among them; default: MOST_STEPS.
    """
    scopes, shown = Scopes((event.charge for event in events), state.limits), _shown(state)
    within = charged_since(events, since_unix_s)
    # Of all so far, few that add as much to every sum: each of the many steps below counts them again.
    so_far = merged([event for event in events if event.charged and event.recorded_at_unix_s < since_unix_s])

    def spent() -> list[float]:
        counts = counted(so_far)
        return [_spent(scope.limit, scopes.total(counts, scope.scope).loss) for scope in shown]

    before, steps = spent(), []
    stride = -(-len(within) // (most_steps or MOST_STEPS)) or 1
    start = 0
    while start < len(within):
        end = min(start + stride, len(within))
        # What has the same time is in the same step.
        while end < len(within) and within[end].recorded_at_unix_s == within[end - 1].recorded_at_unix_s:
            end += 1
        so_far = merged([*so_far, *within[start:end]])
        steps.append((within[end - 1].recorded_at_unix_s, spent()))
        start = end
    return tuple(
        ScopeBudget(
            scope=scope_words(scope),
            limit_epsilon=float(scope.limit.epsilon),
            limit_delta=float(scope.limit.delta),
            before=before[n],
            spent=scope.spent_epsilon,
            remaining=scope.remaining_epsilon,
            remaining_pure=scope.remaining.pure,
            remaining_gaussian=scope.remaining.gaussian,
            unbounded=scope.spent.unbounded,
            steps=tuple((at, values[n]) for at, values in steps),
        )
        for n, scope in enumerate(shown)
    )


@lru_cache(maxsize=4096)
def _spent(limit: PrivacyLimit, loss: Loss) -> float:
    """Takes a millisecond, and many scopes and steps have the same loss."""
    return limit.spent(loss)


def _shown(state: LedgerState) -> tuple[ScopeState, ...]:
    whole = [scope for scope in state.scopes if scope.scope.kind in (ScopeKind.PERSON, ScopeKind.RECORD)]
    others = (scope for scope in state.scopes if scope not in whole)
    rest = sorted(others, key=lambda scope: -scope.spent_epsilon)[: MOST_SCOPES - len(whole)]
    kept = {scope.scope.key for scope in (*whole, *rest)}
    return tuple(scope for scope in state.scopes if scope.scope.key in kept)
