"""People's decisions on queries: recorded in the party's history, counted by the policy of the moment.

A decision is on a query's digest, so it holds for exactly the signed query that was shown, and for each of its
attempts.

Who decided is a user of the operating system: of the process that decides, by its real user id, or the owner of a file
(parties.approval.decision_files). No variable of the environment says it, and a name is only what a person typed.

Two approvals are those of two users. The node's user and root, who may write the state directory, could change the
record of what others decided.
"""

import os
import pwd
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from dpcore.errors import RadofedError
from parties.history.database import HistoryDatabase
from parties.history.history import History
from parties.policy import Policy
from radobase import signed_on

LONGEST_TEXT = 500


class DecisionError(RadofedError, ValueError):
    """A decision that does not count, and why. Nothing was recorded."""


def user_name(uid: int) -> str:
    """The name of an operating system's user, by the system's own table; without an entry there, its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def is_user(name: str) -> bool:
    """Whether there is this user: the operating system knows it, or its number, or an organisation's sign-on does."""
    if name.startswith(signed_on.PREFIX):
        return len(name) > len(signed_on.PREFIX)
    try:
        pwd.getpwnam(name)
    except KeyError:
        return re.fullmatch(r"user \d+", name) is not None
    return True


@dataclass(frozen=True)
class Person:
    """Who decides."""

    user: str
    """Of the operating system, which alone tells people apart."""
    name: str = ""
    """As given, or empty."""

    @classmethod
    def present(cls, name: str = "") -> "Person":
        """Who is signed on, or the user of this process with the given name.

        Raises DecisionError if the name is not printable.
        """
        if (person := signed_on.present.get()) is not None:
            # What was typed is not who is signed on.
            return cls(person.user, person.name or person.identity)
        if len(name) > LONGEST_TEXT or not name.isprintable():
            raise DecisionError(f"a name has at most {LONGEST_TEXT} printable characters")
        return cls(user_name(os.getuid()), " ".join(name.split()))

    @property
    def names(self) -> frozenset[str]:
        """What names this person, folded for comparison."""
        own = (self.user, self.user.removeprefix(signed_on.PREFIX), self.name)
        return frozenset(text.casefold() for text in own if text)

    def __str__(self) -> str:
        return f"{self.name} ({self.user})" if self.name else self.user


@dataclass(frozen=True)
class Decision:
    """One person's decision."""

    person: Person
    approves: bool
    reason: str
    """As given, may be empty."""
    at_unix_s: float

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{'approved' if self.approves else 'refused'} by {self.person}{reason}"


class Verdict(Enum):
    """What the decisions on a query amount to."""

    UNDECIDED = "undecided"
    APPROVED = "approved"
    REFUSED = "refused"


@dataclass(frozen=True)
class Decided:
    """What the decisions on a query amount to under a policy."""

    verdict: Verdict
    decisions: Sequence[Decision]
    counted: int
    """Approvals that count."""
    needed: int
    """Approvals."""

    @property
    def refusal(self) -> Decision | None:
        """The first refusal."""
        return next((decision for decision in self.decisions if not decision.approves), None)


class Decisions:
    """The decisions recorded at one party."""

    def __init__(self, database: HistoryDatabase) -> None:
        self._database = database

    def of(self, query_id: bytes) -> list[Decision]:
        """All decisions on a query, in their order."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT user, name, approves, reason, at_unix_s FROM decisions WHERE query_id = ? ORDER BY at_unix_s",
                (query_id,),
            ).fetchall()
        return [Decision(Person(user, name), bool(approves), reason, at) for user, name, approves, reason, at in rows]

    def decided(self, query_id: bytes, learner: str, policy: Policy) -> Decided:
        """What the decisions on a query amount to under this policy: a refusal refuses, whatever others approved."""
        decisions = self.of(query_id)
        people = {
            key(decision.person)
            for decision in decisions
            if decision.approves and not why_not(decision.person, learner, policy)
        }
        needed = policy.approval.approvers
        if any(not decision.approves for decision in decisions):
            verdict = Verdict.REFUSED
        else:
            verdict = Verdict.APPROVED if len(people) >= needed else Verdict.UNDECIDED
        return Decided(verdict, decisions, len(people), needed)

    def last_approval(self, learner: str, policy: Policy) -> float:
        """When people last approved a query of this learner, in Unix seconds; 0 if they never did."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT query_id, max(at_unix_s) AS newest FROM decisions JOIN queries USING (query_id) "
                "WHERE learner = ? AND approves = 1 GROUP BY query_id ORDER BY newest DESC",
                (learner,),
            ).fetchall()
        approved = (at for query_id, at in rows if self.decided(query_id, learner, policy).verdict is Verdict.APPROVED)
        return next(approved, 0.0)

    def decide(
        self, query_id: bytes, learner: str, policy: Policy, decision: Decision, *, still_waits: bool
    ) -> Decided:
        """Record a decision, durably. The same decision of the same person again changes nothing.

        still_waits: whether the query waits for a decision. Raises DecisionError if the decision does not count: the
        query does not wait, is decided, or this person may not decide on it, decided otherwise or under another name.
        """
        with self._database.transaction() as connection:
            before = self.decided(query_id, learner, policy)
            own = [each for each in before.decisions if key(each.person) == key(decision.person)]
            if any(each.approves == decision.approves for each in own):
                named = [each.person.name for each in own]
                if decision.person.name and decision.person.name not in named:
                    raise DecisionError(
                        f"{own[0].person} decided so already, and another name is no other person: a second approval "
                        "needs another user of this machine"
                    )
                return before
            if not still_waits:
                raise DecisionError("this query does not wait for a decision (any more); see `rado ledger history`")
            if before.verdict is not Verdict.UNDECIDED:
                who = ", ".join(str(each.person) for each in before.decisions)
                raise DecisionError(f"this query is already {before.verdict.value}, by {who}")
            if cause := why_not(decision.person, learner, policy):
                raise DecisionError(cause)
            connection.execute(
                "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                "approves = excluded.approves, reason = excluded.reason, at_unix_s = excluded.at_unix_s",
                (
                    query_id,
                    key(decision.person),
                    decision.person.user,
                    decision.person.name,
                    decision.approves,
                    decision.reason[:LONGEST_TEXT],
                    decision.at_unix_s,
                ),
            )
            return self.decided(query_id, learner, policy)


def key(person: Person) -> str:
    """What tells people apart: the user, never a name, which anybody can type."""
    return person.user.casefold()


def why_not(person: Person, learner: str, policy: Policy) -> str:
    """Why a person may not decide on a learner's queries; empty if they may."""
    if policy.approval.names and not person.name:
        return "the policy asks for names: say who decides, with --name"
    users = policy.approval.users
    if users and key(person) not in {user.casefold() for user in users}:
        return f"{person} is not among the users who decide by the policy: {', '.join(users)}"
    asking = {name.casefold() for name in policy.requesters(learner)}
    if person.names & asking:
        return f"{person} asks with the key of learner {learner!r}, and does not decide on its queries"
    return ""


# A party that is paused answers, computes, charges and sends nothing until it is resumed.


@dataclass(frozen=True)
class Pause:
    """A pause that lasts."""

    since_unix_s: float
    by: str
    """Who paused."""
    reason: str


class Pauses:
    """The pauses of one party, in its history."""

    def __init__(self, database: HistoryDatabase) -> None:
        self._database = database

    def present(self) -> Pause | None:
        """The pause that lasts, if there is one."""
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT paused_at_unix_s, paused_by, reason FROM pauses WHERE resumed_at_unix_s IS NULL"
            ).fetchone()
        return None if row is None else Pause(*row)

    def pause(self, person: Person, reason: str, now_unix_s: float) -> bool:
        """Pause the party, durably. Returns False if it was paused before."""
        with self._database.transaction() as connection:
            if self.present() is not None:
                return False
            row = (now_unix_s, str(person), reason[:LONGEST_TEXT])
            connection.execute("INSERT INTO pauses VALUES (?, ?, ?, NULL, NULL)", row)
            return True

    def resume(self, person: Person, now_unix_s: float) -> Pause | None:
        """End the pause, durably. Returns it; None if there was none."""
        with self._database.transaction() as connection:
            ended = self.present()
            connection.execute(
                "UPDATE pauses SET resumed_at_unix_s = ?, resumed_by = ? WHERE resumed_at_unix_s IS NULL",
                (now_unix_s, str(person)),
            )
            return ended

    def unanswered(self, pause: Pause) -> int:
        """How many queries came since the pause began, and were not answered yet or at all."""
        return History(self._database).count_unanswered(pause.since_unix_s)
