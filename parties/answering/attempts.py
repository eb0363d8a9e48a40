"""The state of each attempt that the party accepted, durable, in the ledger's file.

ACCEPTED    reserved, and the acceptance is signed; its bytes are kept, so that a repeated answer is the same
READY       the contribution is spooled without masks; nothing is sent and nothing is charged
CHARGED     charged, and bound to one cohort and one masked spool; its bytes may leave, the mask key is destroyed, but
            for what is kept of an attempt whose members may vanish (parties.answering.sharings)
UPLOADED    the coordinator acknowledged the receipt
BURNT       charged, but the spool was lost: unusable, no further byte may leave
ENDED       over; a reservation that was not charged is released
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from parties.answering.sharings import Sharings
from parties.ledger.approvals import Approvals, Use
from parties.ledger.budgets import LedgerState
from parties.ledger.charges import Charge, UnreadableEntryError
from parties.ledger.head import SumsKey
from parties.ledger.ledger import Ledger, LedgerConflictError
from parties.ledger.limits import Event
from parties.ledger.row_epochs import EpochRows
from parties.ledger.witnessed import Witnessed
from wire.envelopes import Envelope
from wire.query import CLOCK_SKEW_S, Query
from wire.statements import Acceptance, LedgerHead, Witness, name_of


class AttemptState(StrEnum):
    """The states in the module's docstring."""

    ACCEPTED = "accepted"
    READY = "ready"
    CHARGED = "charged"
    UPLOADED = "uploaded"
    BURNT = "burnt"
    ENDED = "ended"

    @property
    def is_over(self) -> bool:
        """Whether the attempt is in a final state."""
        return self in (AttemptState.BURNT, AttemptState.ENDED)

    @property
    def is_charged(self) -> bool:
        """Whether the attempt is charged and under way."""
        return self in (AttemptState.CHARGED, AttemptState.UPLOADED)


_S = AttemptState
_NEXT: dict[AttemptState, frozenset[AttemptState]] = {
    _S.ACCEPTED: frozenset({_S.READY, _S.ENDED}),
    _S.READY: frozenset({_S.CHARGED, _S.ENDED}),
    _S.CHARGED: frozenset({_S.UPLOADED, _S.BURNT, _S.ENDED}),
    _S.UPLOADED: frozenset({_S.BURNT, _S.ENDED}),
    _S.BURNT: frozenset(),
    _S.ENDED: frozenset(),
}


@dataclass(frozen=True)
class Attempt:
    """One attempt that this party accepted."""

    query_id: bytes
    attempt: int
    state: AttemptState
    answer: Envelope
    """Its signed acceptance."""
    answer_arrived: bool
    """Whether the coordinator has it for certain, from READY on."""
    rows: int
    """The number in the acceptance."""
    spool_digest: bytes | None
    """Of the bare contribution (without masks) until the charge, then of the masked one."""
    not_after_unix_s: int
    mask_key: bytes | None = field(repr=False)
    """The raw X25519 private key of the acceptance, None once the attempt is charged or over."""

    def is_expired(self, now_unix_s: float) -> bool:
        """Whether the query has expired, allowing for clock skew."""
        return now_unix_s > self.not_after_unix_s + CLOCK_SKEW_S


@dataclass(frozen=True)
class Heads:
    """What a charge writes about ledger heads, if the query has the feature."""

    sign: Callable[[LedgerHead], Envelope]
    """The receipt with a head."""
    key: SumsKey
    """Seals the head's sums."""
    others: tuple[tuple[Acceptance, Envelope], ...]
    """The cohort's other acceptances, verified, with their envelopes."""
    query: Query
    """The cohort's."""


_Row = sqlite3.Row | tuple[bytes, int, str, bytes, int, int, bytes | None, int, bytes | None]


class Attempts:
    """The attempts of one party. Every change is one transaction, which includes its change of the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._database = ledger.database
        self.sharings = Sharings(self._database)
        """The keys of attempts whose members may vanish."""
        self._uploaded: set[tuple[bytes, int]] = set()
        """Charged attempts whose receipt was acknowledged in this process."""

    def _read(self, row: _Row) -> Attempt:
        held = _attempt(row)
        is_uploaded = held.state is _S.CHARGED and (held.query_id, held.attempt) in self._uploaded
        return replace(held, state=_S.UPLOADED) if is_uploaded else held

    def find(self, query_id: bytes, attempt: int) -> Attempt | None:
        """The attempt, or None if this party never accepted it."""
        with self._database.transaction() as connection:
            row = connection.execute(f"{_SELECT} WHERE query_id = ? AND attempt = ?", (query_id, attempt)).fetchone()
        return None if row is None else self._read(row)

    def of_query(self, query_id: bytes) -> list[Attempt]:
        """All attempts at a query that this party accepted, in order."""
        with self._database.transaction() as connection:
            rows = connection.execute(f"{_SELECT} WHERE query_id = ? ORDER BY attempt", (query_id,)).fetchall()
        return [self._read(row) for row in rows]

    def unfinished(self) -> list[Attempt]:
        """All attempts that are not over."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                f"{_SELECT} WHERE state NOT IN (?, ?) ORDER BY rowid", (_S.BURNT.value, _S.ENDED.value)
            ).fetchall()
        return [self._read(row) for row in rows]

    def cost(self, held: Attempt) -> Charge | None:
        """The charge that is reserved or charged for an attempt; None if there is none (any more)."""
        return self._ledger.cost(held.query_id, held.attempt)

    @property
    def approvals(self) -> Approvals:
        """Those of several queries."""
        return self._ledger.approvals

    def charges_of(self, learner: str, since_unix_s: float) -> list[tuple[bytes, Charge]]:
        """See `Ledger.charges_of`."""
        return self._ledger.charges_of(learner, since_unix_s)

    def held_beside(self, query_id: bytes) -> tuple[list[Event], int]:
        """What the ledger holds, and how many attempts of this query are among it."""
        with self._database.transaction():
            return self._ledger.merged_events(), len(self._ledger.attempts_of(query_id))

    def ledger_state(self) -> LedgerState:
        """What is spent and left in each scope, under the lifetime limits."""
        return self._ledger.state()

    def check_admits(self, charge: Charge, now_unix_s: float, rows: EpochRows | None = None) -> None:
        """Raise what Ledger.reserve would raise for a charge that is not admitted now. Changes nothing."""
        self._ledger.check_admits(charge, now_unix_s, rows)

    def accept(
        self,
        acceptance: Acceptance,
        sign: Callable[[Acceptance], Envelope],
        charge: Charge,
        *,
        mask_key: bytes,
        not_after_unix_s: int,
        now_unix_s: float,
        sums_key: SumsKey | None = None,
        rows: EpochRows | None = None,
        share_secret: bytes | None = None,
        use: Use | None = None,
    ) -> Attempt:
        """Reserve the charge, sign and store the acceptance. Returns the stored attempt if there already is one.

        sums_key: given if the acceptance has the ledger's head, this reservation included. rows: those of the epoch
        that it is about. share_secret: kept if members may vanish. Raises what Ledger.reserve raises, and then stores
        nothing.
        """
        query_id, attempt = acceptance.query_id, acceptance.attempt
        with self._database.transaction() as connection:
            held = self.find(query_id, attempt)
            if held is not None:
                return held
            self._ledger.reserve(
                query_id,
                attempt,
                charge,
                lapses_at_unix_s=not_after_unix_s + CLOCK_SKEW_S,
                now_unix_s=now_unix_s,
                rows=rows,
                use=use,
            )
            if sums_key is not None:
                acceptance = replace(acceptance, ledger_head=self._ledger.signed_head(sums_key))
            answer = sign(acceptance)
            if acceptance.ledger_head is not None:
                Witnessed(self._database).know([name_of(answer)])
            connection.execute(
                "INSERT INTO attempts VALUES (?, ?, ?, ?, 0, ?, NULL, ?, ?)",
                (query_id, attempt, _S.ACCEPTED.value, answer.to_bytes(), acceptance.rows, not_after_unix_s, mask_key),
            )
            if share_secret is not None:
                self.sharings.begin(query_id, attempt, secret=share_secret, mask_key=mask_key)
        return Attempt(query_id, attempt, _S.ACCEPTED, answer, False, acceptance.rows, None, not_after_unix_s, mask_key)

    def ready(self, held: Attempt, spool_digest: bytes) -> None:
        """Record the spooled contribution, and that the acceptance arrived: before that nothing is computed.

        Raises LedgerConflictError if it is past that or the bytes differ, or as Ledger.check_only_contribution does.
        """
        with self._database.transaction() as connection:
            if self._present(held).spool_digest not in (None, spool_digest):
                raise LedgerConflictError(held.query_id, held.attempt, "is already spooled with other bytes")
            self._ledger.check_only_contribution(held.query_id, held.attempt)
            self._move(held, _S.READY)
            connection.execute(
                "UPDATE attempts SET spool_digest = ?, answer_arrived = 1 WHERE query_id = ? AND attempt = ?",
                (spool_digest, held.query_id, held.attempt),
            )

    def charge(
        self,
        held: Attempt,
        *,
        cohort_digest: bytes,
        spool_digest: bytes,
        now_unix_s: float,
        heads: Heads | None = None,
    ) -> bool:
        """Charge for this cohort and this masked spool. After the return the bytes may leave. False if done before.

        spool_digest: of the masked contribution, made from the bare one that was passed to `ready`. heads: given if the
        receipt has the ledger's head. Raises what Ledger.charge and Ledger.check_only_contribution raise, and
        LedgerConflictError if the attempt is not ready or is over.
        """
        with self._database.transaction() as connection:
            present = self._present(held)
            charged = present.state.is_charged
            if not charged:
                self._ledger.check_only_contribution(held.query_id, held.attempt)
            if present.state.is_over or (charged and present.spool_digest != spool_digest):
                raise LedgerConflictError(held.query_id, held.attempt, "is over or was spooled with other bytes")
            self._ledger.charge(
                held.query_id,
                held.attempt,
                cohort_digest=cohort_digest,
                spool_digest=spool_digest,
                now_unix_s=now_unix_s,
            )
            if charged:
                return False
            if heads is not None:
                self._write_heads(held, heads)
            self._move(held, _S.CHARGED)
            connection.execute(
                "UPDATE attempts SET spool_digest = ? WHERE query_id = ? AND attempt = ?",
                (spool_digest, held.query_id, held.attempt),
            )
            return True

    def _write_heads(self, held: Attempt, heads: Heads) -> None:
        """Store the receipt and the others' heads, within the caller's transaction."""
        receipt = heads.sign(self._ledger.signed_head(heads.key))
        witnessed = Witnessed(self._database)
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO receipts VALUES (?, ?, ?)", (held.query_id, held.attempt, receipt.to_bytes())
            )
            for acceptance, envelope in heads.others:
                if acceptance.ledger_head is None:
                    continue
                entries = acceptance.ledger_head.entries
                witnessed.remember(acceptance.party, entries, envelope)
                witnessed.remember_in_cohort(acceptance.party, entries, envelope, heads.query)

    def receipt(self, held: Attempt) -> Envelope | None:
        """The receipt that was stored with the charge; None if it has no ledger head and was not stored."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT receipt FROM receipts WHERE query_id = ? AND attempt = ?", (held.query_id, held.attempt)
            ).fetchone()
        return None if row is None else Envelope.from_bytes(row[0])

    def uploaded(self, held: Attempt) -> None:
        """Record that the receipt was acknowledged, in memory: the next change of the attempt follows soon.

        After a restart the attempt is charged, and its receipt is sent once more, which changes nothing.
        """
        with self._database.transaction():
            present = self._present(held).state
            if present is not _S.UPLOADED:
                self._check_move(held, present, _S.UPLOADED)
        self._uploaded.add((held.query_id, held.attempt))

    def burn(self, held: Attempt) -> None:
        """Record that the spool of a charged attempt was lost."""
        with self._database.transaction():
            self._move(held, _S.BURNT)

    def seen_in_cohorts(self, witness: Witness) -> None:
        """Record, durably, which of the held attempts a member was in a cohort with, or may have been."""
        seen = frozenset(witness.in_cohorts)
        with self._database.transaction() as connection:
            for row in connection.execute(_RESERVED).fetchall():
                held = _attempt(row)
                head = Acceptance.from_bytes(held.answer.payload).ledger_head
                is_beyond = head is not None and head.entries < witness.in_cohorts_from
                if is_beyond or name_of(held.answer) in seen:
                    self._ledger.seen_in_cohort(held.query_id, held.attempt)

    def end(self, held: Attempt) -> bool:
        """End the attempt. Releases a reservation, never a charge. Returns False if it was over before."""
        with self._database.transaction():
            if self._present(held).state.is_over:
                return False
            self._ledger.release(held.query_id, held.attempt)
            self._move(held, _S.ENDED)
            return True

    def forget(self, now_unix_s: float) -> int:
        """Delete attempts that are over and whose query expired by any clock. Returns their number.

        Charges stay, and so do attempts whose reservation is held (Ledger.hold_reservations).
        """
        with self._database.transaction() as connection:
            done = connection.execute(
                _FORGET,
                (_S.BURNT.value, _S.ENDED.value, now_unix_s - 2 * CLOCK_SKEW_S),
            )
            if done.rowcount:
                connection.execute(
                    "DELETE FROM approval_uses WHERE NOT EXISTS (SELECT 1 FROM events WHERE events.query_id = "
                    "approval_uses.query_id AND events.attempt = approval_uses.attempt)"
                )
                for table in ("receipts", "seen_in_cohorts", "computed_late"):
                    connection.execute(
                        f"DELETE FROM {table} WHERE NOT EXISTS (SELECT 1 FROM attempts "  # noqa: S608
                        f"WHERE attempts.query_id = {table}.query_id AND attempts.attempt = {table}.attempt)"
                    )
            return done.rowcount

    def _present(self, held: Attempt) -> Attempt:
        present = self.find(held.query_id, held.attempt)
        if present is None:
            raise LedgerConflictError(held.query_id, held.attempt, "is not known to this party")
        return present

    def _move(self, held: Attempt, state: AttemptState) -> None:
        """Change the state, within the caller's transaction."""
        present = self._present(held).state
        if present is state:
            return
        self._check_move(held, present, state)
        # The masks are derived from the key before the charge. No later reader of the file may find the key.
        keeps_key = state in (_S.ACCEPTED, _S.READY)
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE attempts SET state = ?, mask_key = CASE WHEN ? THEN mask_key END "
                "WHERE query_id = ? AND attempt = ?",
                (state.value, keeps_key, held.query_id, held.attempt),
            )
            if state in (_S.BURNT, _S.ENDED):
                self.sharings.erase(held.query_id, held.attempt)
        if state in (_S.BURNT, _S.ENDED):
            self._uploaded.discard((held.query_id, held.attempt))

    @staticmethod
    def _check_move(held: Attempt, present: AttemptState, state: AttemptState) -> None:
        if state not in _NEXT[present]:
            raise LedgerConflictError(
                held.query_id, held.attempt, f"is {present.value} and cannot become {state.value}"
            )


def _state(text: str) -> AttemptState:
    try:
        return AttemptState(text)
    except ValueError as error:
        raise UnreadableEntryError("the state of an attempt") from error


_SELECT = """SELECT query_id, attempt, state, answer, answer_arrived, rows, spool_digest, not_after_unix_s, mask_key
FROM attempts"""

_IS_RESERVED = """EXISTS (
    SELECT 1 FROM events WHERE state = 'reserved'
    AND events.query_id = attempts.query_id AND events.attempt = attempts.attempt)"""
_FORGET = f"DELETE FROM attempts WHERE state IN (?, ?) AND not_after_unix_s < ? AND NOT {_IS_RESERVED}"  # noqa: S608
_RESERVED = f"{_SELECT} WHERE {_IS_RESERVED}"


def _attempt(row: _Row) -> Attempt:
    query_id, attempt, state, answer, arrived, rows, spool_digest, not_after, mask_key = row
    return Attempt(
        query_id,
        attempt,
        _state(state),
        Envelope.from_bytes(answer),
        bool(arrived),
        rows,
        spool_digest,
        not_after,
        mask_key,
    )
