"""The budget of each scope over a period, from the ledger's events alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dpcore.accounting.filters import Loss, PrivacyLimit
from dpcore.errors import ConfigurationError
from parties.ledger.charges import ScopeKind
from parties.ledger.limits import Event, Scopes, counted, merged
from parties.ledger.state import LedgerState, ScopeState

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

    before, spent: at the first and at the last moment of the period. remaining_pure, remaining_gaussian: of one more
    release with Laplace or with Gaussian noise that fits after all charges and reservations; remaining: the larger.
    steps: (Unix seconds, spent since then). unbounded: events without a bound here.
    Epsilons are infinite if no limit at this delta would have allowed the total.
    """

    scope: str
    limit_epsilon: float
    limit_delta: float
    before: float
    spent: float
    remaining: float
    remaining_pure: float
    remaining_gaussian: float
    unbounded: int
    steps: tuple[tuple[float, float], ...]


def scope_words(scope: ScopeState) -> str:
    """A scope for people."""
    match scope.scope.kind:
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
    rest = sorted(state.scopes[1:], key=lambda scope: -scope.spent_epsilon)[: MOST_SCOPES - 1]
    kept = {scope.scope.key for scope in (state.scopes[0], *rest)}
    return tuple(scope for scope in state.scopes if scope.scope.key in kept)
