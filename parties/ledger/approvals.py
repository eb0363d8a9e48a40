"""Approvals of several queries in the ledger's file: what people gave, what was used of it, and what ended.

An approval is used up by the transaction that reserves or charges a query under it, so both are in one file. A use is
an attempt whose event is in the ledger: one that is released is none any more.

What is given, and what ends before its time, is an entry of the ledger's chain, so that an older copy is noticed. Then
`rado ledger acknowledge` ends every approval.

What the terms mean is in parties.approval.standing.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from dpcore.accounting import words
from dpcore.accounting.filters import MOST_SLACK, PrivacyLimit
from dpcore.errors import RadofedError
from parties.database import PartyDatabase
from parties.ledger.chain import EntryKind
from parties.ledger.charges import Charge, read_charge
from parties.ledger.limits import BudgetExceededError, Event, LedgerLimits, UnboundedExceededError, check_admits
from wire.errors import Code, WireError

ROUNDING = Fraction(1, 10**8)
"""What all answers under an approval cost is compared with its epsilon up to this relative difference."""


class ApprovalState(StrEnum):
    """States of an approval. One whose time is over stays as it is. The value is stored."""

    PROPOSED = "proposed"
    GIVEN = "given"
    ENDED = "ended"


class ActKind(StrEnum):
    """What a person does about an approval. The value is stored."""

    APPROVED = "approved"
    REFUSED = "refused"
    REVOKED = "revoked"


class NotCoveredError(RadofedError):
    """An approval does not let a query through (any more), and why. Nothing was changed."""


@dataclass(frozen=True)
class Use:
    """What a query takes of an approval. items: what it asks, each at most once under the approval."""

    approval_id: bytes
    items: tuple[str, ...]
    queries: int
    """The approval's limits: the most queries, 0 for any number; the most attempts of each; all that they may cost."""
    attempts: int
    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True)
class Act:
    """What a person did about an approval."""

    user: str
    name: str
    acts_for: str
    kind: ActKind
    reason: str
    at_unix_s: float


@dataclass(frozen=True)
class StoredApproval:
    """An approval as it is stored."""

    approval_id: bytes
    terms: str
    until_unix_s: float
    state: ApprovalState
    changed_at_unix_s: float
    acts: tuple[Act, ...]


@dataclass(frozen=True)
class Used:
    """An attempt under an approval that is reserved or charged."""

    query_id: bytes
    attempt: int
    items: tuple[str, ...]
    charge: Charge
    is_charged: bool


class Approvals:
    """The approvals in one ledger's file. Every change is one transaction."""

    def __init__(self, database: PartyDatabase) -> None:
        self._database = database

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written together, and nothing else is written meanwhile."""
        with self._database.transaction():
            yield

    def all(self) -> list[StoredApproval]:
        """Every approval, oldest first."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT approval_id, terms, until_unix_s, state, changed_at_unix_s FROM approvals ORDER BY rowid"
            ).fetchall()
            acts: dict[bytes, list[Act]] = {}
            for approval_id, user, name, acts_for, kind, reason, at in connection.execute(
                "SELECT approval_id, user, name, acts_for, act, reason, at_unix_s FROM approval_acts ORDER BY rowid"
            ).fetchall():
                acts.setdefault(approval_id, []).append(Act(user, name, acts_for, ActKind(kind), reason, at))
        return [
            StoredApproval(key, terms, until, ApprovalState(state), changed, tuple(acts.get(key, ())))
            for key, terms, until, state, changed in rows
        ]

    def find(self, approval_id: bytes) -> StoredApproval | None:
        """The approval with this id, or None."""
        return next((each for each in self.all() if each.approval_id == approval_id), None)

    def count_acts(self) -> int:
        """How much was done about approvals: a number that grows with everything that people do."""
        with self._database.transaction() as connection:
            (count,) = connection.execute("SELECT count(*) FROM approval_acts").fetchone()
        return int(count)

    def proposals(self, now_unix_s: float) -> tuple[int, float | None]:
        """How many proposals wait for more people, and since when the oldest one does, in Unix seconds."""
        with self._database.transaction() as connection:
            count, oldest = connection.execute(
                "SELECT count(*), min(changed_at_unix_s) FROM approvals WHERE state = ? AND until_unix_s > ? "
                "AND approval_id IN (SELECT approval_id FROM approval_acts)",
                (ApprovalState.PROPOSED.value, now_unix_s),
            ).fetchone()
        return int(count), oldest

    def changes(self) -> tuple[int, int, int]:
        """Numbers of which one changes whenever an approval, or what was used of one, does."""
        with self._database.transaction() as connection:
            acts, uses, charged = connection.execute(
                "SELECT (SELECT count(*) FROM approval_acts), (SELECT count(*) FROM approval_uses), "
                "(SELECT count(*) FROM approval_uses JOIN events USING (query_id, attempt) WHERE state = 'charged')"
            ).fetchone()
        return int(acts), int(uses), int(charged)

    def propose(self, approval_id: bytes, terms: str, until_unix_s: float, now_unix_s: float) -> None:
        """Add a proposal, which lets nothing through. One that is there already stays as it is."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO approvals VALUES (?, ?, ?, ?, ?)",
                (approval_id, terms, until_unix_s, ApprovalState.PROPOSED.value, now_unix_s),
            )

    def act(self, approval_id: bytes, act: Act, state: ApprovalState | None = None) -> None:
        """Record what a person did, and the state that follows from it, None if it stays the same."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO approval_acts VALUES (?, ?, ?, ?, ?, ?, ?)",
                (approval_id, act.user, act.name, act.acts_for, act.kind.value, act.reason, act.at_unix_s),
            )
            if state is not None:
                self._move(approval_id, state, act.at_unix_s)

    def give(self, approval_id: bytes, now_unix_s: float) -> None:
        """Let an approval come into force."""
        self._move(approval_id, ApprovalState.GIVEN, now_unix_s)

    def end_all(self, now_unix_s: float) -> int:
        """End every approval that has not ended: in a ledger that was set back, each may have. Returns how many."""
        with self._database.transaction():
            found = [each.approval_id for each in self.all() if each.state is not ApprovalState.ENDED]
            for approval_id in found:
                self._move(approval_id, ApprovalState.ENDED, now_unix_s)
        return len(found)

    def _move(self, approval_id: bytes, state: ApprovalState, now_unix_s: float) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE approvals SET state = ?, changed_at_unix_s = ? WHERE approval_id = ?",
                (state.value, now_unix_s, approval_id),
            )
            self._database.append_approval(EntryKind(state.value), approval_id)

    def uses(self, approval_id: bytes) -> list[Used]:
        """The attempts under an approval that are reserved or charged."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT query_id, attempt, items, bounds, learner, epoch, events.state FROM approval_uses "
                "JOIN events USING (query_id, attempt) WHERE approval_id = ? ORDER BY approval_uses.rowid",
                (approval_id,),
            ).fetchall()
        return [
            Used(query_id, attempt, tuple(json.loads(items)), read_charge(*charge), state == "charged")
            for query_id, attempt, items, *charge, state in rows
        ]

    def used_by(self, query_ids: Iterable[bytes]) -> dict[bytes, bytes]:
        """The approval under which each of these queries was accepted, of those that were."""
        with self._database.transaction() as connection:
            found = {
                query_id: connection.execute(
                    "SELECT approval_id FROM approval_uses WHERE query_id = ? ORDER BY attempt DESC LIMIT 1",
                    (query_id,),
                ).fetchone()
                for query_id in query_ids
            }
        return {query_id: row[0] for query_id, row in found.items() if row is not None}

    def check(self, use: Use, query_id: bytes, attempt: int, charge: Charge, now_unix_s: float) -> None:
        """Raise NotCoveredError unless the approval lets an attempt of a query through now, beside what it let through.

        All that it lets through counts: with a loss in Gaussian differential privacy where all attempts have one, and
        otherwise as a limit of this ledger counts. So a training that keeps its epsilon is within it.
        """
        found = self.find(use.approval_id)
        if found is None or found.state is not ApprovalState.GIVEN:
            raise NotCoveredError("the approval was not given, or was revoked")
        if now_unix_s >= found.until_unix_s:
            raise NotCoveredError("the approval has expired")
        if attempt > use.attempts:
            raise NotCoveredError(f"it is attempt {attempt}, and the approval is for {use.attempts} of each query")
        used = [each for each in self.uses(use.approval_id) if (each.query_id, each.attempt) != (query_id, attempt)]
        others = {each.query_id for each in used} - {query_id}
        if use.queries and len(others) >= use.queries:
            raise NotCoveredError(f"the approval is for {use.queries} queries, and so many were let through")
        asked = {item for each in used if each.query_id != query_id for item in each.items}
        if asked & set(use.items):
            raise NotCoveredError("the same was asked under the approval before")
        check_cost(use, [Event(each.charge, True, 0.0) for each in used], charge)

    def use(self, use: Use, query_id: bytes, attempt: int, charge: Charge, now_unix_s: float) -> None:
        """Record a use, within the transaction that reserves the attempt. Raises as `check` does."""
        with self._database.transaction() as connection:
            self.check(use, query_id, attempt, charge, now_unix_s)
            connection.execute(
                "INSERT OR REPLACE INTO approval_uses VALUES (?, ?, ?, ?)",
                (query_id, attempt, use.approval_id, json.dumps(use.items)),
            )

    def check_charge(self, query_id: bytes, attempt: int, now_unix_s: float) -> None:
        """Raise WireError(PERSON_REFUSED) if the approval of an attempt ended or expired, before it is charged."""
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT state, until_unix_s FROM approval_uses JOIN approvals USING (approval_id) "
                "WHERE query_id = ? AND attempt = ?",
                (query_id, attempt),
            ).fetchone()
        if row is None:
            return
        state, until_unix_s = row
        if state != ApprovalState.GIVEN.value:
            raise WireError(Code.PERSON_REFUSED, "The approval that it was accepted under was revoked.")
        if now_unix_s >= until_unix_s:
            raise WireError(Code.PERSON_REFUSED, "The approval that it was accepted under has expired.")


def check_cost(use: Use, events: list[Event], charge: Charge) -> None:
    """Raise NotCoveredError unless a charge fits into what the approval is for, beside these events under it.

    A training uses up its epsilon, by the least noise that keeps it. The party's figures are rounded otherwise than the
    learner's, and set MOST_SLACK aside: without the allowance for both, a last round would wait for a person.
    """
    every = [*(event.charge for event in events), charge]
    is_gaussian = use.delta > 0 and all(loss.shift is not None for each in every for _, loss in each.bounds)
    epsilon = use.epsilon * (1 + ROUNDING) + 2 * MOST_SLACK * is_gaussian
    delta = use.delta / (1 - MOST_SLACK) if is_gaussian else use.delta
    # No approval of several queries is for what has no bound for whole records.
    limits = LedgerLimits(PrivacyLimit(epsilon, delta, is_gaussian), unbounded_events=0)
    try:
        check_admits(limits, events, charge, now_unix_s=0.0)
    except BudgetExceededError as error:
        text = f"with it, all answers under it would cost more than {words.limit(use.epsilon, use.delta)}"
        raise NotCoveredError(f"{text}; this one costs {error.requested} for {error.scope}") from error
    except UnboundedExceededError as error:
        raise NotCoveredError("it has no bound for whole records, and the approval is for none such") from error
