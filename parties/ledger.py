"""The party's privacy ledger: reserve, charge, send; what was charged never comes back.

Each event is one attempt at one query and is (epsilon, delta)-differentially private for its scope. Events are added by
basic composition: the sum of the epsilons and the sum of the deltas (Dwork and Roth, The Algorithmic Foundations of
Differential Privacy, 2014, Theorem 3.16). With limits that are fixed beforehand this stays true where each query is
chosen after the answers to earlier ones (privacy filters: Rogers, Roth, Ullman and Vadhan, NIPS 2016). All scopes of a
data source count against one limit, which is never less strict than a limit for each scope. Events without a bound have
a limit of their own, a number of events, and every later statement of the ledger tells of them.

All numbers are exact rationals. What counts against the limits is what is charged and what is reserved.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpcore.errors import RadofedError
from parties.database import LedgerOwner, PartyDatabase
from wire.errors import Code, WireError


@dataclass(frozen=True)
class Budget:
    """An amount of privacy loss, or a limit of it; no part is negative.

    epsilon, delta: of the events that have a bound. unbounded_events: how many others.
    """

    epsilon: Fraction
    delta: Fraction
    unbounded_events: int = 0

    def __post_init__(self) -> None:
        if min(self.parts) < 0:
            raise ValueError(f"a budget is not negative: {self}")

    def __add__(self, other: "Budget") -> "Budget":
        return Budget(
            self.epsilon + other.epsilon, self.delta + other.delta, self.unbounded_events + other.unbounded_events
        )

    def admits(self, more: "Budget", beside: "Budget") -> bool:
        """Whether `more` fits under this limit beside what is there; a part of which it takes nothing stops nothing."""
        parts = zip(self.parts, more.parts, beside.parts, strict=True)
        return all(not wanted or there + wanted <= limit for limit, wanted, there in parts)

    def less(self, other: "Budget") -> "Budget":
        """What is left of this once the other is taken away, not below zero."""
        return Budget(
            max(Fraction(0), self.epsilon - other.epsilon),
            max(Fraction(0), self.delta - other.delta),
            max(0, self.unbounded_events - other.unbounded_events),
        )

    @property
    def parts(self) -> tuple[Fraction | int, ...]:
        """Epsilon, delta, and the number of events without a bound."""
        return (self.epsilon, self.delta, self.unbounded_events)

    def __str__(self) -> str:
        bounded = f"epsilon {float(self.epsilon):.6g}, delta {float(self.delta):.6g}"
        return f"{bounded}, {self.unbounded_events} queries without a bound" if self.unbounded_events else bounded


NOTHING = Budget(Fraction(0), Fraction(0))
UNBOUNDED = Budget(Fraction(0), Fraction(0), unbounded_events=1)
"""What an event without any bound takes of a limit."""


@dataclass(frozen=True)
class Charge:
    """What one attempt costs.

    scope: what the bound is for, such as "marginal:smoker". loss: the bound, UNBOUNDED where there is none.
    """

    scope: str
    loss: Budget

    def __post_init__(self) -> None:
        # The file keeps no bound beside "none", so a charge that had both would come back as less.
        if self.loss.unbounded_events and self.loss != UNBOUNDED:
            raise ValueError(f"one event either has a bound or has none: {self.loss}")


class BudgetExceededError(WireError):
    """What is asked for is more than what remains."""

    def __init__(self, *, requested: Budget, remaining: Budget) -> None:
        self.requested, self.remaining = requested, remaining
        super().__init__(Code.BUDGET_EXCEEDED, f"It costs {requested}, and {remaining} remain.")


class LedgerConflictError(RadofedError):
    """A reservation or a charge contradicts what the ledger holds for this attempt."""

    exit_code = 6

    def __init__(self, query_id: bytes, attempt: int, sentence: str) -> None:
        self.query_id, self.attempt = query_id, attempt
        super().__init__(f"query {query_id.hex()[:16]}, attempt {attempt}: {sentence}")


@dataclass(frozen=True)
class LedgerState:
    """What a ledger says of its data source. spent_by_scope: of events with a bound, scopes in alphabetical order."""

    limit: Budget
    spent: Budget
    reserved: Budget
    spent_by_scope: tuple[tuple[str, Budget], ...]

    @property
    def remaining(self) -> Budget:
        """What may still be reserved."""
        return self.limit.less(self.spent + self.reserved)

    def sentences(self) -> list[str]:
        """For people, a sentence a line."""
        lines = [f"limit {self.limit}; spent {self.spent}; reserved {self.reserved}; remaining {self.remaining}"]
        lines += [f"{scope}: spent {spent}" for scope, spent in self.spent_by_scope]
        if self.warning:
            lines.append(f"warning: {self.warning}")
        return lines

    @property
    def warning(self) -> str:
        """What must be said of every figure once an event without a bound was charged; else empty."""
        unbounded = self.spent.unbounded_events
        if not unbounded:
            return ""
        return (
            f"{unbounded} event(s) without any privacy bound were released from these data; epsilon and delta count "
            "only the other events and bound nothing about the whole"
        )


class Ledger:
    """The charges of one data source against its limit.

    limit: may be replaced at any time; what was charged stays, and what was reserved is held to it when it is charged.
    """

    def __init__(self, database: PartyDatabase, limit: Budget) -> None:
        self.database = database
        self.limit = limit

    @classmethod
    def open(cls, path: Path, owner: LedgerOwner, limit: Budget, *, create: bool = True) -> "Ledger":
        """Open or create the file. Raises LedgerFileError."""
        return cls(PartyDatabase(path, owner, create=create), limit)

    def reserve(
        self,
        query_id: bytes,
        attempt: int,
        charge: Charge,
        *,
        lapses_at_unix_s: float,
        now_unix_s: float,
    ) -> None:
        """Set the charge of one attempt aside, durably; the same reservation again changes nothing.

        Raises BudgetExceededError where it does not fit beside everything charged and reserved, LedgerConflictError
        where this attempt is charged already or reserved for another amount.
        """
        with self.database.transaction() as connection:
            self.lapse(now_unix_s)
            held = _find(connection, query_id, attempt)
            if held is not None:
                if held.charged or held.charge != charge:
                    raise LedgerConflictError(query_id, attempt, "is in the ledger already, for something else")
                return
            state = self.state()
            if not state.limit.admits(charge.loss, beside=state.spent + state.reserved):
                raise BudgetExceededError(requested=charge.loss, remaining=state.remaining)
            connection.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, 'reserved', ?, NULL, NULL, ?)",
                (
                    query_id,
                    attempt,
                    charge.scope,
                    None if charge.loss == UNBOUNDED else _text(charge.loss.epsilon),
                    _text(charge.loss.delta),
                    lapses_at_unix_s,
                    now_unix_s,
                ),
            )

    def charge(
        self, query_id: bytes, attempt: int, *, cohort_digest: bytes, spool_digest: bytes, now_unix_s: float
    ) -> None:
        """Spend a reservation and bind the attempt to one cohort and one spool, for ever.

        Once this has returned the charge is on disk, and the spool's bytes may leave. The same digests again change
        nothing. Raises LedgerConflictError where the attempt is bound to others, or has no reservation (any more);
        BudgetExceededError where the limit was lowered below what would be spent.
        """
        with self.database.transaction() as connection:
            held = _find(connection, query_id, attempt)
            if held is None:
                raise LedgerConflictError(query_id, attempt, "has no reservation, or it lapsed; nothing may leave")
            if held.charged:
                if (held.cohort_digest, held.spool_digest) != (cohort_digest, spool_digest):
                    raise LedgerConflictError(
                        query_id, attempt, "is bound to another cohort or other bytes; nothing more may leave"
                    )
                return
            state = self.state()
            if not state.limit.admits(held.charge.loss, beside=state.spent):
                raise BudgetExceededError(requested=held.charge.loss, remaining=state.limit.less(state.spent))
            connection.execute(
                "UPDATE events SET state = 'charged', cohort_digest = ?, spool_digest = ?, recorded_at_unix_s = ? "
                "WHERE query_id = ? AND attempt = ?",
                (cohort_digest, spool_digest, now_unix_s, query_id, attempt),
            )

    def release(self, query_id: bytes, attempt: int) -> bool:
        """Give a reservation back; whether there was one. A charge stays."""
        with self.database.transaction() as connection:
            done = connection.execute(
                "DELETE FROM events WHERE query_id = ? AND attempt = ? AND state = 'reserved'", (query_id, attempt)
            )
            return done.rowcount > 0

    def lapse(self, now_unix_s: float) -> int:
        """Give back every reservation whose time is over; how many there were."""
        with self.database.transaction() as connection:
            done = connection.execute(
                "DELETE FROM events WHERE state = 'reserved' AND lapses_at_unix_s < ?", (now_unix_s,)
            )
            return done.rowcount

    def is_charged(self, query_id: bytes, attempt: int) -> bool:
        """Whether this attempt has been paid for."""
        with self.database.transaction() as connection:
            held = _find(connection, query_id, attempt)
            return held is not None and held.charged

    def state(self) -> LedgerState:
        """Everything charged and reserved."""
        with self.database.transaction() as connection:
            entries = [_entry(row) for row in connection.execute(f"{_SELECT} ORDER BY scope")]
        charged = [entry.charge for entry in entries if entry.charged]
        scopes = dict.fromkeys(charge.scope for charge in charged if charge.loss != UNBOUNDED)
        return LedgerState(
            self.limit,
            spent=_total(charged),
            reserved=_total(entry.charge for entry in entries if not entry.charged),
            spent_by_scope=tuple((scope, _total(c for c in charged if c.scope == scope)) for scope in scopes),
        )

    def spent(self) -> Budget:
        """The sum of all charges."""
        return self.state().spent

    def reserved(self) -> Budget:
        """The sum of all reservations."""
        return self.state().reserved

    def remaining(self) -> Budget:
        """What may still be reserved."""
        return self.state().remaining


@dataclass(frozen=True)
class _Entry:
    charge: Charge
    charged: bool
    cohort_digest: bytes | None
    spool_digest: bytes | None


_SELECT = "SELECT scope, epsilon, delta, state, cohort_digest, spool_digest FROM events"


def _find(connection: sqlite3.Connection, query_id: bytes, attempt: int) -> _Entry | None:
    row = connection.execute(f"{_SELECT} WHERE query_id = ? AND attempt = ?", (query_id, attempt)).fetchone()
    return None if row is None else _entry(row)


def _entry(row: tuple[str, str | None, str, str, bytes | None, bytes | None]) -> _Entry:
    scope, epsilon, delta, state, cohort_digest, spool_digest = row
    loss = UNBOUNDED if epsilon is None else Budget(Fraction(epsilon), Fraction(delta))
    return _Entry(Charge(scope, loss), state == "charged", cohort_digest, spool_digest)


def _text(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def _total(charges: Iterable[Charge]) -> Budget:
    return sum((charge.loss for charge in charges), NOTHING)
