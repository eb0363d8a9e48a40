"""What one attempt at a query costs a party, and the most that all attempts that it allows may cost together.

An approval holds for every attempt of a query, so the people who decide see the cost of all of them. Both figures are
the ledger's own: losses add up in each scope, and each epsilon is the least at the delta of the scope's limit. It is
assumed that every attempt uploads, over the same rows as now.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpcore.numbers.rationals import upper_digits
from parties.history.costs import ScopeCost, costs
from parties.ledger.charges import Charge
from parties.ledger.limits import Event, LedgerLimits
from parties.ledger.room import merged, more_like
from parties.ledger.state import state_of
from radobase.printing import amount

ASSUMED = (
    "costs are epsilons as this party's ledger counts them, at the delta of each limit; assumed is that every attempt "
    "uploads, over the same rows as now"
)


@dataclass(frozen=True)
class AttemptCosts:
    """What the attempts of a query cost, in each scope."""

    attempts: int
    one: tuple[ScopeCost, ...]
    """One attempt, with what is then spent."""
    most: tuple[ScopeCost, ...]
    """All `attempts` that the query allows together, with what is then spent."""
    more: int | None
    """How many attempts like it would still fit after one, None for any number."""
    admitted: int
    """How many of its attempts the lifetime limits admit, those that are charged or reserved included, as long as
    nothing else is charged."""

    @classmethod
    def of(
        cls, charge: Charge, attempts: int, limits: LedgerLimits, events: Sequence[Event], recorded: int, now: float
    ) -> "AttemptCosts":
        """charge: of an attempt. events: what the ledger holds; recorded: how many attempts of the query are among it.

        now: Unix seconds.
        """
        held = merged(events)
        present = _with(charge, held, 0 if recorded else 1, now)
        every = _with(charge, held, attempts - recorded, now)
        more = more_like(limits, present, charge)
        return cls(
            attempts,
            tuple(costs(charge, state_of(limits, present, now_unix_s=None))),
            tuple(costs(charge, state_of(limits, every, now_unix_s=None), count=attempts)),
            more,
            attempts if more is None else min(attempts, max(1, recorded) + more),
        )

    @property
    def attempts_words(self) -> str:
        """How often the cost of an attempt may be charged."""
        if self.attempts == 1:
            return "one attempt is allowed, so that its cost is the most that the query may cost"
        words = f"up to {self.attempts} attempts are allowed, and each that uploads is charged"
        if self.admitted < self.attempts:
            return (
                f"{words}; the lifetime limits have room for {self.admitted} of them, and the others would be refused"
            )
        return words

    @property
    def short(self) -> str:
        """The widest scope, in a few words."""
        one, most = self.one[0], self.most[0]
        if one.cost is None:
            return f"no bound, in up to {amount(self.attempts, 'attempt')}"
        together = f", at most {_figure(most)} in {self.attempts} attempts" if self.attempts > 1 else ""
        return f"{_figure(one)}{together}"

    def lines(self) -> list[str]:
        """For people, one fact a line."""
        lines = [f"cost of an attempt, {cost}" for cost in self.one]
        lines.append(self.attempts_words)
        if self.attempts > 1:
            lines += [
                f"most that all {self.attempts} attempts may cost together, {cost.words('them')}" for cost in self.most
            ]
        return [*lines, ASSUMED]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "costs": [vars(cost) for cost in self.one],
            "most_costs": [vars(cost) for cost in self.most],
            "attempts": self.attempts,
            "attempts_admitted": self.admitted,
        }


def _with(charge: Charge, events: Sequence[Event], count: int, now: float) -> list[Event]:
    more = Event(charge, charged=True, recorded_at_unix_s=now, count=count)
    return [*events, more] if count > 0 else [*events]


def _figure(cost: ScopeCost) -> str:
    return "no bound" if cost.cost is None else f"epsilon {upper_digits(cost.cost, 4)}"
