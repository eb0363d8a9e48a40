"""How many more attempts like one of the ledger's fit within its limits."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from parties.ledger.charges import Charge
from parties.ledger.limits import (
    BudgetExceededError,
    Event,
    LedgerLimits,
    UnboundedExceededError,
    check_admits,
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
    events = [*_merged(events), *today]

    def fits(count: int) -> bool:
        """Whether the last of `count` attempts is admitted after the others."""
        others = [Event(_times(charge, count - 1), charged=False, recorded_at_unix_s=0.0)] if count > 1 else []
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


def _merged(events: Sequence[Event]) -> list[Event]:
    """One event for each charge, which adds as much to every sum as all of that charge, at a time long past."""
    counts = Counter(event.charge for event in events)
    return [
        # All of one epoch are one release.
        Event(charge if charge.epoch is not None else _times(charge, count), charged=True, recorded_at_unix_s=-math.inf)
        for charge, count in counts.items()
    ]


def _times(charge: Charge, count: int) -> Charge:
    """One charge that adds as much to every sum as `count` attempts."""
    bounds = tuple((scope, loss.times(count)) for scope, loss in charge.bounds)
    return replace(charge, bounds=bounds, events=count * charge.events)


@dataclass(frozen=True)
class Room:
    """What fits besides all that is charged and reserved. last: the newest charge of a query.

    lifetime, day: further attempts like it, over the lifetime and in these 24 hours; None where no limit counts them.
    """

    last: Charge
    lifetime: int | None
    day: int | None

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


def room(limits: LedgerLimits, events: Sequence[Event], now_unix_s: float) -> Room | None:
    """The room for attempts like the last that was charged; None if none was."""
    # A charge without a learner is an acknowledgement, and no query.
    charged = [event for event in events if event.charged and event.charge.learner]
    if not charged:
        return None
    last = max(enumerate(charged), key=lambda each: (each[1].recorded_at_unix_s, each[0]))[1].charge
    day = None if limits.per_day is None else more_like(limits, events, last, now_unix_s=now_unix_s)
    return Room(last, more_like(limits, events, last), day)
