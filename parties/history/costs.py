"""What an attempt cost in each scope and what remains there, for people: scopes that agree are one line."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from dpcore.accounting.filters import total_loss
from dpcore.numbers.rationals import upper_digits
from parties.ledger.charges import Charge, ScopeKind
from parties.ledger.state import LedgerState

_ONE = {ScopeKind.RECORD: "whole records", ScopeKind.JOINT: "column", ScopeKind.MARGINAL: "feature"}
_MOST_NAMED = 3


@dataclass(frozen=True)
class ScopeCost:
    """What an attempt costs in some scopes of one kind, by the limits of this party."""

    scope: str
    """Which, in words."""
    cost: float | None
    """The least epsilon, at the limit's delta, of a limit that admits this attempt alone; None without one."""
    spent: float | None
    """That of all that is charged or reserved, this attempt included; costs add up to less than their sum."""
    remaining: float
    """The largest epsilon of one more release, of the kind of noise of which more is left."""
    limit_epsilon: float
    limit_delta: float
    """The limit."""

    def __str__(self) -> str:
        return self.words("it")

    def words(self, what: str) -> str:
        """In one line. what: "it" for an attempt, "them" for several."""
        cost = "no bound" if self.cost is None else f"epsilon {upper_digits(self.cost, 4)}"
        limit = f"{self.limit_epsilon:.4g} at delta {self.limit_delta:.4g}"
        spent = "more than any limit at that delta" if self.spent is None else upper_digits(self.spent, 4)
        return f"{self.scope}: {cost}; with {what}, {spent} of {limit} is spent"


def scope_costs(charge: Charge, state: LedgerState) -> list[dict[str, Any]]:
    """The lines for a charge that `state` contains already, in JSON types."""
    return [asdict(cost) for cost in costs(charge, state)]


def costs(charge: Charge, state: LedgerState, count: int = 1) -> list[ScopeCost]:
    """What a charge costs in the scopes that it or a limit names, and what `state` leaves there, widest scope first.

    count: of so many attempts together, which `state` contains. All attempts over one noised table are one release.
    """
    same: dict[tuple[ScopeKind, float | None, float | None, float, float, float], list[str]] = {}
    for scope in state.scopes:
        loss = charge.bound(scope.scope)
        times = 1 if charge.epoch is not None else count
        cost = None if loss is None else _finite(scope.limit.spent(total_loss([(loss, times)])))
        limit = scope.limit
        used, left = _finite(scope.held_epsilon), scope.remaining_epsilon
        figures = (scope.scope.kind, cost, used, left, float(limit.epsilon), float(limit.delta))
        same.setdefault(figures, []).append(scope.scope.name)
    return [
        ScopeCost(_words(kind, names), cost, spent, remaining, epsilon, delta)
        for (kind, cost, spent, remaining, epsilon, delta), names in same.items()
    ]


def _finite(epsilon: float) -> float | None:
    """None where no limit at this delta admits the loss."""
    return epsilon if math.isfinite(epsilon) else None


def _words(kind: ScopeKind, names: list[str]) -> str:
    if kind is ScopeKind.RECORD:
        return _ONE[kind]
    named = ", ".join(names[:_MOST_NAMED])
    return (
        f"{_ONE[kind]} {named}" if len(names) <= _MOST_NAMED else f"each of {len(names)} {_ONE[kind]}s ({named}, ...)"
    )
