"""What a ledger says of its data source, for people and programs."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpcore.accounting.filters import PrivacyLimit
from parties.ledger.charges import RECORD, Scope
from parties.ledger.limits import DAY_S, Event, LedgerLimits, Scopes, ScopeTotal


@dataclass(frozen=True)
class ScopeState:
    """One scope under one limit.

    spent: of what is charged. held: of what is charged and reserved; an epoch counts once in it, so it is not always
    the sum of both. Epsilons are at the limit's delta, as the limit counts: the least limit that would have admitted
    it, and inf where none at that delta would.
    """

    scope: Scope
    limit: PrivacyLimit
    spent: ScopeTotal
    held: ScopeTotal

    @property
    def spent_epsilon(self) -> float:
        """Of what is charged."""
        return self.limit.spent(self.spent.loss)

    @property
    def held_epsilon(self) -> float:
        """Of what is charged and reserved."""
        return self.limit.spent(self.held.loss)

    @property
    def remaining_epsilon(self) -> float:
        """Of one more release that may still be reserved."""
        return self.limit.left(self.held.loss)

    def __str__(self) -> str:
        unbounded = f"; {self.spent.unbounded} event(s) without a bound here" if self.spent.unbounded else ""
        return (
            f"{self.scope}: spent epsilon {self.spent_epsilon:.6g}, with reservations {self.held_epsilon:.6g}, "
            f"remaining {self.remaining_epsilon:.6g}; limit {self.limit}{unbounded}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Every figure by name; None for one that is infinite."""
        figures = {
            "spent_epsilon": self.spent_epsilon,
            "spent_and_reserved_epsilon": self.held_epsilon,
            "remaining_epsilon": self.remaining_epsilon,
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
    """What a ledger says. scopes: under the lifetime's limits; RECORD first, then all that a charge or a limit names.

    learners, day: the same under the limits for each learner and for the last 24 hours, where there are such.
    charged, reserved: how many events; unbounded: how many of them, charged and reserved, do not bound whole records.
    """

    limits: LedgerLimits
    scopes: tuple[ScopeState, ...]
    learners: tuple[tuple[str, tuple[ScopeState, ...]], ...]
    day: tuple[ScopeState, ...]
    charged: int
    reserved: int
    unbounded_charged: int
    unbounded_held: int

    @property
    def remaining_unbounded(self) -> int:
        """How many more events without a bound for whole records may be reserved."""
        return max(0, self.limits.unbounded_events - self.unbounded_held)

    def sentences(self) -> list[str]:
        """For people, a sentence a line: the figures, then the warning where there is one."""
        return [*self.figures(), *([f"warning: {self.warning}"] if self.warning else [])]

    def figures(self) -> list[str]:
        """The limits, then what is spent, reserved and left, a sentence a scope."""
        first = (
            f"limit {self.limits}; {self.charged} events charged and {self.reserved} reserved; without a bound for "
            f"records {self.unbounded_charged} charged, {self.remaining_unbounded} remaining"
        )
        lines = [first, *(str(state) for state in self.scopes)]
        lines += [f"learner {name or 'unknown'}, {state}" for name, states in self.learners for state in states]
        return lines + [f"last 24 hours, {state}" for state in self.day]

    @property
    def warning(self) -> str:
        """What must be said of every figure once an event without a bound was charged; else empty."""
        if not self.unbounded_charged:
            return ""
        return (
            f"{self.unbounded_charged} event(s) without any privacy bound for whole records were released from these "
            "data; the figures count only the other events of their scope, and bound nothing about the whole"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, in types that JSON has."""
        return {
            "scopes": [state.to_dict() for state in self.scopes],
            "learners": [
                {"learner": name, "scopes": [state.to_dict() for state in states]} for name, states in self.learners
            ],
            "day": [state.to_dict() for state in self.day],
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
    """What is to be said of these events. now_unix_s: None leaves the last day out."""
    scopes = Scopes([event.charge for event in events], limits)

    def states(limit_of: Callable[[Scope], PrivacyLimit], of: Iterable[Event]) -> tuple[ScopeState, ...]:
        chosen = list(of)
        spent = Counter(event.charge for event in chosen if event.charged)
        held = Counter(event.charge for event in chosen)
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
    day: tuple[ScopeState, ...] = ()
    if (per_day := limits.per_day) is not None and now_unix_s is not None:
        day = states(lambda _: per_day, (e for e in events if e.recorded_at_unix_s > now_unix_s - DAY_S))
    held = Counter(event.charge for event in events)
    charged = Counter(event.charge for event in events if event.charged)
    return LedgerState(
        limits=limits,
        scopes=states(limits.of, events),
        learners=tuple(learners),
        day=day,
        charged=charged.total(),
        reserved=held.total() - charged.total(),
        unbounded_charged=scopes.total(charged, RECORD).unbounded,
        unbounded_held=scopes.total(held, RECORD).unbounded,
    )


def _exact(total: ScopeTotal) -> dict[str, Any]:
    loss = total.loss
    parts = {"epsilon": loss.epsilon, "delta": loss.delta, "rho": loss.rho, "failure": loss.failure}
    return {**{name: float(value) for name, value in parts.items()}, "unbounded_events": total.unbounded}
