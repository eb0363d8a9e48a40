"""The party's privacy ledger: reserve, charge, send. A charge is never returned.

Each event is one attempt at one query, with a bound for each scope that it bounds (parties.ledger.charges). Limits hold
in each scope separately, also if queries are chosen after the answers to earlier ones (parties.ledger.limits,
dpcore.accounting.filters). Events without a bound for whole records have a separate limit, a number, and every later
statement of the ledger reports them.

All numbers are exact rationals. Charges and reservations both count against the limits. Each is also an entry of the
ledger's chain (parties.ledger.chain).
"""

import math
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.accounting.filters import Loss
from dpcore.errors import RadofedError
from parties.database import LedgerOwner, PartyDatabase
from parties.ledger import chain, row_epochs
from parties.ledger.approvals import Approvals, Use
from parties.ledger.budgets import LedgerState, state_of
from parties.ledger.chain import EntryKind, Head
from parties.ledger.charges import RECORD, Charge, Scope, bounds_text, read_charge
from parties.ledger.head import SumsKey
from parties.ledger.limits import DAY_S, Event, LedgerLimits, Scopes, check_admits, counted
from parties.ledger.row_epochs import EpochRows
from wire.query import CLOCK_SKEW_S
from wire.statements import LedgerHead

# What a charge is bound to if no byte of it left from this ledger.
NO_BYTES = bytes(32)


class LedgerConflictError(RadofedError):
    """A reservation or a charge contradicts the ledger's entry for this attempt."""

    exit_code = 6

    def __init__(self, query_id: bytes, attempt: int, sentence: str) -> None:
        self.query_id, self.attempt = query_id, attempt
        super().__init__(f"query {query_id.hex()[:16]}, attempt {attempt}: {sentence}")


@dataclass(frozen=True)
class RecordedCharge:
    """A charge or reservation with what it is bound to."""

    event: Event
    cohort_digest: bytes | None
    spool_digest: bytes | None
    lapses_at_unix_s: float


@dataclass(frozen=True)
class Steps:
    """Equal steps of a period: from the first moment up to, and without, the last; Unix seconds. At most `most`.

    Their length is a power of two, so that the first ones stay the same as the last moment moves on.
    """

    since_unix_s: float
    until_unix_s: float
    most: int

    @property
    def length_s(self) -> float:
        """The length of a step, in seconds."""
        return 2.0 ** math.ceil(math.log2(max(self.until_unix_s - self.since_unix_s, 1.0) / self.most))


class Ledger:
    """The charges of one data source against its limits.

    limits: may be replaced at any time. Charges stay; a reservation must fit the new limits when it is charged.
    """

    def __init__(self, database: PartyDatabase, limits: LedgerLimits) -> None:
        self.database = database
        self.limits = limits
        self.approvals = Approvals(database)
        # Reserved when this process started.
        self._from_before: set[tuple[bytes, int]] = set()

    @classmethod
    def open(
        cls, path: Path, owner: LedgerOwner, limits: LedgerLimits, *, create: bool = True, anchored: bool = True
    ) -> "Ledger":
        """Open or create the file, as PartyDatabase does. Raises LedgerFileError."""
        return cls(PartyDatabase(path, owner, create=create, anchored=anchored), limits)

    def reserve(
        self,
        query_id: bytes,
        attempt: int,
        charge: Charge,
        *,
        lapses_at_unix_s: float,
        now_unix_s: float,
        rows: EpochRows | None = None,
        use: Use | None = None,
    ) -> None:
        """Reserve the charge of one attempt, durably. Repeating the same reservation changes nothing.

        rows: those of the charge's epoch, if it is about one. They are in this epoch for good, whatever becomes of the
        reservation. use: what it takes of an approval of several queries, if it needs one.

        Raises BudgetExceededError or UnboundedExceededError if it does not fit with everything charged and reserved,
        NotCoveredError if the approval does not let it through, LedgerConflictError if this attempt is already charged
        or reserved for a different charge, WireError(EPOCH_CHANGED) if a row was in another epoch.
        """
        _check_rows(charge, rows)
        with self.database.transaction() as connection:
            self.lapse(now_unix_s)
            held = _find(connection, query_id, attempt)
            if held is not None:
                if held.event.charged or held.event.charge != charge:
                    raise LedgerConflictError(query_id, attempt, "is already in the ledger with a different charge")
                return
            if rows is not None:
                row_epochs.keep(connection, rows)
            check_admits(self.limits, self.merged_events(now_unix_s), charge, now_unix_s=now_unix_s)
            if use is not None:
                self.approvals.use(use, query_id, attempt, charge, now_unix_s)
            connection.execute(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, 'reserved', ?, NULL, NULL, ?)",
                (
                    query_id,
                    attempt,
                    charge.learner,
                    charge.epoch,
                    bounds_text(charge),
                    lapses_at_unix_s,
                    now_unix_s,
                ),
            )
            self.database.append(EntryKind.RESERVED, query_id, attempt)

    def check_admits(self, charge: Charge, now_unix_s: float, rows: EpochRows | None = None) -> None:
        """Raise what `reserve` would raise for a new attempt. Changes nothing."""
        _check_rows(charge, rows)
        if rows is not None:
            with self.database.transaction() as connection:
                row_epochs.check(connection, rows)
        check_admits(self.limits, self.merged_events(now_unix_s), charge, now_unix_s=now_unix_s)

    def moved_rows(self, epochs: Iterable[EpochRows]) -> list[str]:
        """Which rows of a table's epochs were answered about in other epochs, in sentences."""
        with self.database.transaction() as connection:
            return row_epochs.moved(connection, epochs)

    def charge(
        self, query_id: bytes, attempt: int, *, cohort_digest: bytes, spool_digest: bytes, now_unix_s: float
    ) -> None:
        """Charge a reservation and bind the attempt permanently to one cohort and one spool.

        After the return the charge is on disk, and the spool's bytes may leave. Repeating the same digests changes
        nothing. Raises LedgerConflictError if the attempt is bound to others or has no reservation (any more);
        BudgetExceededError or UnboundedExceededError if a limit was lowered below what would be spent;
        WireError(PERSON_REFUSED) if the approval that it was reserved under ended or expired.
        """
        with self.database.transaction() as connection:
            held = _find(connection, query_id, attempt)
            if held is None or (not held.event.charged and held.lapses_at_unix_s < now_unix_s):
                raise LedgerConflictError(query_id, attempt, "has no reservation, or it lapsed; no byte may leave")
            if held.event.charged:
                if (held.cohort_digest, held.spool_digest) != (cohort_digest, spool_digest):
                    raise LedgerConflictError(
                        query_id, attempt, "is bound to another cohort or other bytes; no further byte may leave"
                    )
                return
            self.approvals.check_charge(query_id, attempt, now_unix_s)
            charged = [event for event in self.merged_events(now_unix_s) if event.charged]
            check_admits(self.limits, charged, held.event.charge, now_unix_s=now_unix_s)
            self._make_charged(query_id, attempt, cohort_digest, spool_digest, now_unix_s)

    def _make_charged(
        self, query_id: bytes, attempt: int, cohort_digest: bytes, spool_digest: bytes, now_unix_s: float
    ) -> None:
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE events SET state = 'charged', cohort_digest = ?, spool_digest = ?, recorded_at_unix_s = ? "
                "WHERE query_id = ? AND attempt = ?",
                (cohort_digest, spool_digest, now_unix_s, query_id, attempt),
            )
            self.database.append(EntryKind.CHARGED, query_id, attempt)

    def release(self, query_id: bytes, attempt: int) -> bool:
        """Release a reservation. Returns whether there was one. A charge stays.

        The reservation of an attempt that others saw in a cohort (`seen_in_cohort`) is charged instead. One that is
        held (`hold_reservations`) stays.
        """
        with self.database.transaction() as connection:
            row = connection.execute(
                "SELECT recorded_at_unix_s FROM events WHERE query_id = ? AND attempt = ? AND state = 'reserved'",
                (query_id, attempt),
            ).fetchone()
            if row is None:
                return False
            if _is_in(connection, "seen_in_cohorts", query_id, attempt):
                self._make_charged(query_id, attempt, NO_BYTES, NO_BYTES, *row)
                return False
            if (query_id, attempt) in self._from_before:
                return False
            connection.execute("DELETE FROM events WHERE query_id = ? AND attempt = ?", (query_id, attempt))
            return True

    def lapse(self, now_unix_s: float) -> int:
        """Release every reservation that has lapsed, except those that are held. Returns their number."""
        with self.database.transaction() as connection:
            lapsed = connection.execute(
                "SELECT query_id, attempt FROM events WHERE state = 'reserved' AND lapses_at_unix_s < ?", (now_unix_s,)
            ).fetchall()
            return sum(self.release(query_id, attempt) for query_id, attempt in lapsed)

    def hold_reservations(self) -> int:
        """Release no reservation that is there now, until `let_go`. Returns their number.

        This ledger may be a copy from before one of them was charged. Then other parties may know it.
        """
        with self.database.transaction() as connection:
            self._from_before = set(connection.execute("SELECT query_id, attempt FROM events WHERE state = 'reserved'"))
            if self._from_before:
                connection.execute(
                    "INSERT OR IGNORE INTO computed_late "
                    "SELECT query_id, attempt FROM attempts WHERE state = 'accepted'"
                )
        return len(self._from_before)

    def check_only_contribution(self, query_id: bytes, attempt: int) -> None:
        """Raise LedgerConflictError if another contribution to this attempt, with other noise, may have left before.

        It was computed after a start, having been accepted before it, and others saw the attempt in a cohort: this is a
        copy from before it was computed first.
        """
        with self.database.transaction() as connection:
            if all(_is_in(connection, table, query_id, attempt) for table in ("computed_late", "seen_in_cohorts")):
                raise LedgerConflictError(query_id, attempt, "was in a cohort with other bytes")

    def held_until(self) -> float | None:
        """When the first of the held reservations has lapsed by every clock, in Unix seconds; None if none is held.

        A member acts on a query until it has expired by its own clock.
        """
        if not self._from_before:
            return None
        with self.database.transaction() as connection:
            found = {
                (query_id, attempt): connection.execute(
                    "SELECT lapses_at_unix_s FROM events WHERE query_id = ? AND attempt = ? AND state = 'reserved'",
                    (query_id, attempt),
                ).fetchone()
                for query_id, attempt in self._from_before
            }
        self._from_before = {pair for pair, row in found.items() if row is not None}
        return min((row[0] + CLOCK_SKEW_S for row in found.values() if row is not None), default=None)

    def let_go(self, asked_unix_s: float) -> tuple[int, int]:
        """Release the held reservations that had lapsed by every clock when others were asked about them.

        Those that others saw in a cohort are charged instead. Returns how many were charged, and how many released.
        """
        with self.database.transaction() as connection:
            lapsed = connection.execute(
                "SELECT query_id, attempt FROM events WHERE state = 'reserved' AND lapses_at_unix_s < ?",
                (asked_unix_s - CLOCK_SKEW_S,),
            ).fetchall()
            self._from_before.difference_update(lapsed)
            released = sum(self.release(query_id, attempt) for query_id, attempt in lapsed)
            return len(lapsed) - released, released

    def charge_reserved(self, now_unix_s: float) -> None:
        """Charge every reservation, bound to no bytes: in a ledger that was set back, each may have been charged."""
        with self.database.transaction() as connection:
            for query_id, attempt in connection.execute(
                "SELECT query_id, attempt FROM events WHERE state = 'reserved' ORDER BY rowid"
            ).fetchall():
                self._make_charged(query_id, attempt, NO_BYTES, NO_BYTES, now_unix_s)

    def seen_in_cohort(self, query_id: bytes, attempt: int) -> None:
        """Record that another party was in a cohort with a held attempt, durably. Ignores one that is not held.

        This ledger may then be a copy from before the charge: the reservation is never released any more. A reservation
        that this process made is not from before any charge, whatever another party says.
        """
        if (query_id, attempt) not in self._from_before:
            return
        with self.database.transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO seen_in_cohorts VALUES (?, ?)", (query_id, attempt))

    def head(self) -> Head:
        """The head of the chain."""
        with self.database.transaction() as connection:
            return chain.head(connection)

    def signed_head(self, key: SumsKey) -> LedgerHead:
        """The head that travels, with the sums of all charges and reservations sealed by this key.

        Raises WireError if the chain has no entry yet.
        """
        head, account = self.database.account()
        return LedgerHead(head.entries, head.digest, key.seal(account, head.entries, head.digest))

    def contradicts(self, head: LedgerHead) -> bool:
        """Whether this party signed a head that is not in this ledger: it was set back, or there are two of it.

        Heads below the newest acknowledgement do not count: what they cover is charged.
        """
        with self.database.transaction() as connection:
            if head.entries < chain.acknowledged_up_to(connection):
                return False
            return chain.digest_at(connection, head.entries) != head.digest

    def cost(self, query_id: bytes, attempt: int) -> Charge | None:
        """The charge that is reserved or charged for an attempt, or None."""
        with self.database.transaction() as connection:
            held = _find(connection, query_id, attempt)
            return None if held is None else held.event.charge

    def is_charged(self, query_id: bytes, attempt: int) -> bool:
        """Whether this attempt has been charged."""
        with self.database.transaction() as connection:
            held = _find(connection, query_id, attempt)
            return held is not None and held.event.charged

    def events(self) -> list[Event]:
        """All charges and reservations."""
        with self.database.transaction() as connection:
            # All rows first: an error at one must not leave a statement open, which keeps the file locked.
            rows = connection.execute(f"{_SELECT_EVENT} FROM events ORDER BY rowid").fetchall()
        return [_event(row) for row in rows]

    def merged_events(self, now_unix_s: float = 0.0, steps: Steps | None = None) -> list[Event]:
        """`events`, those with the same charge and state as one. There are far fewer: many queries cost the same.

        now_unix_s: events of the 24 hours before it are not merged with others. steps: nor are those of two steps. All
        within the 24 hours, or a step, have the time of the newest of them.
        """
        first, end, step_s = 0.0, 0.0, math.inf
        if steps is not None:
            first, end, step_s = steps.since_unix_s, steps.until_unix_s, steps.length_s
        day_unix_s = now_unix_s - DAY_S
        # By charge and part: the newest time, and the number. SQLite would sort all rows by their long bounds for it.
        groups: dict[tuple[Any, ...], list[Any]] = {}
        with self.database.transaction() as connection, closing(connection.execute(_TO_MERGE)) as rows:
            for bounds, learner, epoch, state, at in rows:
                step = -1 if at < first else int((at - first) / step_s)
                key = (bounds, learner, epoch, state, at > day_unix_s, at < end, step)
                found = groups.get(key)
                if found is None:
                    groups[key] = [at, 1]
                else:
                    found[1] += 1
                    found[0] = max(found[0], at)
        newest: dict[tuple[Any, ...], float] = {}
        for (*_, recent, ended, step), (at, _) in groups.items():
            newest[recent, ended, step] = max(at, newest.get((recent, ended, step), at))
        return [
            Event(read_charge(bounds, learner, epoch), state == "charged", newest[tuple(part)], count)
            for (bounds, learner, epoch, state, *part), (_, count) in groups.items()
        ]

    def last_charge(self) -> Charge | None:
        """The newest charge of a query; None if none was charged."""
        with self.database.transaction() as connection:
            # A charge without a learner is an acknowledgement, and no query.
            row = connection.execute(
                "SELECT bounds, learner, epoch FROM events WHERE state = 'charged' AND learner <> '' "
                "ORDER BY recorded_at_unix_s DESC, rowid DESC LIMIT 1"
            ).fetchone()
        return None if row is None else read_charge(*row)

    def first_charge_unix_s(self) -> float | None:
        """The time of the first charge; None without one."""
        with self.database.transaction() as connection:
            (found,) = connection.execute(
                "SELECT min(recorded_at_unix_s) FROM events WHERE state = 'charged'"
            ).fetchone()
        return None if found is None else float(found)

    def charges_of(self, learner: str, since_unix_s: float) -> list[tuple[bytes, Charge]]:
        """The query and the cost of each attempt of a learner that is charged or reserved, from a time on."""
        with self.database.transaction() as connection:
            rows = connection.execute(
                "SELECT query_id, bounds, learner, epoch FROM events WHERE learner = ? AND recorded_at_unix_s >= ?",
                (learner, since_unix_s),
            ).fetchall()
        return [(query_id, read_charge(*charge)) for query_id, *charge in rows]

    def charged_queries(self) -> list[tuple[bytes, str, float]]:
        """Id, learner and time of the first charge, in Unix seconds, of every query that was charged."""
        with self.database.transaction() as connection:
            found: list[tuple[bytes, str, float]] = connection.execute(
                "SELECT query_id, max(learner), min(recorded_at_unix_s) FROM events WHERE state = 'charged' "
                "GROUP BY query_id"
            ).fetchall()
        return found

    def attempts_of(self, query_id: bytes) -> dict[int, RecordedCharge]:
        """What the ledger has of each attempt at a query, in their order."""
        with self.database.transaction() as connection:
            rows = connection.execute(
                f"{_SELECT.replace('SELECT', 'SELECT attempt,')} WHERE query_id = ? ORDER BY attempt", (query_id,)
            ).fetchall()
        return {attempt: _entry(row) for attempt, *row in rows}

    def state(self, now_unix_s: float | None = None) -> LedgerState:
        """What is spent, reserved and left in each scope; also for the last day if `now_unix_s` is given."""
        return state_of(self.limits, self.merged_events(now_unix_s or 0.0), now_unix_s=now_unix_s)

    def spent(self, scope: Scope) -> Loss:
        """The sum of all charges that have a bound for a scope."""
        return self._total(scope, charged=True)

    def reserved(self, scope: Scope) -> Loss:
        """The sum of all reservations that have a bound for a scope."""
        return self._total(scope, charged=False)

    def unbounded(self, *, charged: bool = True) -> int:
        """Number of charged (or else reserved) events without a bound for whole records."""
        charges = counted(event for event in self.merged_events() if event.charged is charged)
        return Scopes(charges, self.limits).total(charges, RECORD).unbounded

    def verify(self) -> list[str]:
        """The faults of the file and its chain, one sentence each; empty if there are none.

        Says nothing of the head beside it (PartyDatabase.set_back), nor of what other parties witnessed.
        """
        with self.database.transaction() as connection:
            faults = [f"SQLite: {found}" for (found,) in connection.execute("PRAGMA integrity_check") if found != "ok"]
            faults += self.database.chain_faults()
            rows = connection.execute("SELECT query_id, attempt, bounds, learner, epoch FROM events").fetchall()
            for query_id, attempt, bounds, learner, epoch in rows:
                try:
                    read_charge(bounds, learner, epoch)
                except (ValueError, TypeError, ZeroDivisionError, RadofedError):
                    faults.append(f"query {query_id.hex()[:16]}, attempt {attempt}: its bounds are not readable")
            for sentence, condition in _NEVER:
                for query_id, attempt in connection.execute(condition):
                    faults.append(f"query {query_id.hex()[:16]}, attempt {attempt}: {sentence}")
        return faults

    def _total(self, scope: Scope, *, charged: bool) -> Loss:
        charges = counted(event for event in self.merged_events() if event.charged is charged)
        return Scopes(charges, self.limits).total(charges, scope).loss


_SELECT_EVENT = "SELECT bounds, learner, epoch, state, recorded_at_unix_s"
_TO_MERGE = "SELECT bounds, learner, epoch, state, recorded_at_unix_s FROM events"
_SELECT = f"{_SELECT_EVENT}, cohort_digest, spool_digest, lapses_at_unix_s FROM events"
_UNBOUND = """SELECT query_id, attempt FROM events
WHERE state = 'charged' AND (cohort_digest IS NULL OR spool_digest IS NULL)"""
_UNPAID = """SELECT query_id, attempt FROM attempts
WHERE state IN ('charged', 'uploaded', 'burnt') AND NOT EXISTS (
    SELECT 1 FROM events
    WHERE events.query_id = attempts.query_id AND events.attempt = attempts.attempt AND events.state = 'charged')"""
_NEVER = (
    ("is charged but bound to no cohort or no bytes", _UNBOUND),
    ("was uploaded or ready to upload but is not charged", _UNPAID),
)


def _check_rows(charge: Charge, rows: EpochRows | None) -> None:
    """A charge about an epoch counts in parallel only if its rows are compared with those of other epochs."""
    if charge.row_epoch != (None if rows is None else rows.name):
        raise ValueError(f"a charge about epoch {charge.row_epoch!r} without its rows, or with others")


def _is_in(connection: sqlite3.Connection, table: str, query_id: bytes, attempt: int) -> bool:
    found = connection.execute(
        f"SELECT 1 FROM {table} WHERE query_id = ? AND attempt = ?",  # noqa: S608 - no outside text
        (query_id, attempt),
    ).fetchone()
    return found is not None


def _find(connection: sqlite3.Connection, query_id: bytes, attempt: int) -> RecordedCharge | None:
    row = connection.execute(f"{_SELECT} WHERE query_id = ? AND attempt = ?", (query_id, attempt)).fetchone()
    return None if row is None else _entry(row)


def _entry(row: tuple[str, str, bytes | None, str, float, bytes | None, bytes | None, float]) -> RecordedCharge:
    *event, cohort_digest, spool_digest, lapses_at_unix_s = row
    return RecordedCharge(_event(event), cohort_digest, spool_digest, lapses_at_unix_s)


def _event(row: Sequence[Any]) -> Event:
    bounds, learner, epoch, state, recorded_at_unix_s = row
    return Event(read_charge(bounds, learner, epoch), state == "charged", recorded_at_unix_s)
