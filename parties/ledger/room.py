"""How many more attempts like one of the ledger's fit within its limits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpcore.accounting.filters import Loss, total_loss
from parties.ledger.charges import Charge, Scope
from parties.ledger.limits import (
    BudgetExceededError,
    Event,
    LedgerLimits,
    UnboundedExceededError,
    check_admits,
    counted,
    same_day,
)

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

    Which bound of a charge counts in a scope depends on the scopes that it bounds, and not on their values.
    """
    alike: dict[tuple[str, tuple[Scope, ...]], list[tuple[Charge, int]]] = {}
    found = []
    for charge, count in counted(events).items():
        if charge.epoch is not None:
            # All of one epoch are one release.
            found.append(charge)
        else:
            scopes = tuple(scope for scope, _ in charge.bounds)
            alike.setdefault((charge.learner, scopes), []).append((charge, count))
    for (learner, scopes), charges in alike.items():
        losses = (total_loss(parts) for parts in zip(*(_losses(*each) for each in charges), strict=True))
        bounds = tuple(zip(scopes, losses, strict=True))
        found.append(Charge(bounds, learner, events=sum(count * charge.events for charge, count in charges)))
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
