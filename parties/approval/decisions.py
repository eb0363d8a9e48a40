"""People's decisions on queries: recorded in the party's history, counted by the policy of the moment.

A decision is on a query's digest, so it holds for exactly the signed query that was shown, and for each of its
attempts.

Who decided is a user of the operating system: of the process that decides, by its real user id, or the owner of a file
(parties.approval.decision_files). No variable of the environment says it, and a name is only what a person typed.

Two approvals are those of two users. The node's user and root, who may write the state directory, could change the
record of what others decided.

A user whom the policy lists may name a delegate for a time (`Delegates`). What a delegate decides counts as the
decision of the user who named them, so the two are one person.
"""

import os
import pwd
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
    acts_for: str = ""
    """The user whose delegate this one is; empty for nobody's."""

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
        """What names this person, and whom they decide for, folded for comparison."""
        users = (self.user, self.acts_for)
        own = (*users, *(user.removeprefix(signed_on.PREFIX) for user in users), self.name)
        return frozenset(text.casefold() for text in own if text)

    @property
    def is_signed_on(self) -> bool:
        """Whether an organisation's sign-on named this person, and not the operating system."""
        return self.user.startswith(signed_on.PREFIX)

    def __str__(self) -> str:
        own = f"{self.name} ({self.user})" if self.name else self.user
        return f"{own} for {self.acts_for}" if self.acts_for else own


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
                "SELECT user, name, acts_for, approves, reason, at_unix_s FROM decisions WHERE query_id = ? "
                "ORDER BY at_unix_s",
                (query_id,),
            ).fetchall()
        return [Decision(Person(*person), bool(approves), reason, at) for *person, approves, reason, at in rows]

    def decided(self, query_id: bytes, learner: str, policy: Policy) -> Decided:
        """What the decisions on a query amount to under this policy: a refusal refuses, whatever others approved."""
        decisions = self.of(query_id)
        approving = (decision.person for decision in decisions if decision.approves)
        people = counted(person for person in approving if not why_not(person, learner, policy))
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
            person = Delegates(self._database).seated(decision.person, policy, decision.at_unix_s)
            decision = replace(decision, person=person)
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
                "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET approves = "
                "excluded.approves, reason = excluded.reason, at_unix_s = excluded.at_unix_s, acts_for = "
                "excluded.acts_for",
                (
                    query_id,
                    key(decision.person),
                    decision.person.user,
                    decision.person.name,
                    decision.approves,
                    decision.reason[:LONGEST_TEXT],
                    decision.at_unix_s,
                    decision.person.acts_for,
                ),
            )
            return self.decided(query_id, learner, policy)


def key(person: Person) -> str:
    """What tells people apart: the user, never a name, which anybody can type."""
    return person.user.casefold()


def seat(person: Person) -> str:
    """Whose decision it counts as: the user's own, or that of the user whose delegate they are."""
    return (person.acts_for or person.user).casefold()


def counted(people: Iterable[Person]) -> list[Person]:
    """Of these people those whose decisions count beside one another: no person twice, and no two for one user.

    Who signed on and a user of the operating system may be one person: of both kinds the larger one counts.
    """
    seats: set[str] = set()
    users: set[str] = set()
    found: dict[bool, list[Person]] = {False: [], True: []}
    for person in people:
        if key(person) not in users and seat(person) not in seats:
            found[person.is_signed_on].append(person)
            users.add(key(person))
            seats.add(seat(person))
    return max(found.values(), key=len)


def why_not(person: Person, learner: str, policy: Policy) -> str:
    """Why a person may not decide on a learner's queries; empty if they may."""
    if policy.approval.names and not person.name:
        return "the policy asks for names: say who decides, with --name"
    users = policy.approval.users
    if users and seat(person) not in {user.casefold() for user in users}:
        return f"{person} is not among the users who decide by the policy: {', '.join(users)}"
    asking = {name.casefold() for name in policy.requesters(learner)}
    if person.names & asking:
        return f"{person} asks with the key of learner {learner!r}, and does not decide on its queries"
    return ""


# Delegates: for a time, another user decides in place of one whom the policy lists.

LONGEST_DELEGATION_S = 92 * 24 * 3600


@dataclass(frozen=True)
class Delegation:
    """That one user decides in place of another for a time, in Unix seconds."""

    user: str
    acts_for: str
    named_at_unix_s: float
    until_unix_s: float
    reason: str
    ended_at_unix_s: float | None = None

    def holds(self, now_unix_s: float) -> bool:
        """Whether it is in force."""
        return self.ended_at_unix_s is None and now_unix_s < self.until_unix_s


class Delegates:
    """The delegations at one party, in its history."""

    def __init__(self, database: HistoryDatabase) -> None:
        self._database = database

    def all(self) -> list[Delegation]:
        """Every one that was ever named, oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT user, acts_for, named_at_unix_s, until_unix_s, reason, ended_at_unix_s FROM delegates "
                "ORDER BY rowid"
            ).fetchall()
        return [Delegation(*row) for row in rows]

    def seated(self, person: Person, policy: Policy, now_unix_s: float) -> Person:
        """The person, with the user whose delegate they are, if they are one and the policy does not list them."""
        listed = {user.casefold() for user in policy.approval.users}
        if not listed or key(person) in listed:
            return replace(person, acts_for="")
        for each in self.all():
            named = each.user.casefold() == key(person) and each.acts_for.casefold() in listed
            if named and each.holds(now_unix_s):
                return replace(person, acts_for=each.acts_for)
        return replace(person, acts_for="")

    def name(self, person: Person, user: str, until_unix_s: float, reason: str, policy: Policy, now: float) -> None:
        """Let another user decide in place of this person, durably, in place of a delegate whom they named before.

        Raises DecisionError if the policy does not list the person, or lists the delegate, or the time is none.
        """
        listed = {each.casefold() for each in policy.approval.users}
        if key(person) not in listed:
            raise DecisionError(
                f"{person} is not among the users of the policy's [approval], and only they name a delegate"
            )
        if user.casefold() in listed:
            raise DecisionError(f"{user} decides already by the policy, and no one decides for two")
        if not is_user(user):
            raise DecisionError(f"{user!r} is no user of this machine")
        if Person(user).is_signed_on != person.is_signed_on:
            raise DecisionError(
                f"{user} may be one person with another who decides: who signs on names a delegate who does so too, "
                f'as "{signed_on.PREFIX}IDENTITY", and a user of this machine names another one'
            )
        if not now < until_unix_s <= now + LONGEST_DELEGATION_S:
            days = LONGEST_DELEGATION_S // (24 * 3600)
            raise DecisionError(f"a delegate is named until a moment in the future, within {days} days")
        with self._database.transaction() as connection:
            self.end(person, now)
            connection.execute(
                "INSERT INTO delegates VALUES (?, ?, ?, ?, ?, NULL)",
                (user, person.user, now, until_unix_s, reason[:LONGEST_TEXT]),
            )

    def end(self, person: Person, now_unix_s: float) -> int:
        """End the delegation that this person named, durably. Returns how many ended."""
        with self._database.transaction() as connection:
            # Compared here: SQLite folds ASCII letters only.
            own = {each.acts_for for each in self.all() if each.acts_for.casefold() == key(person)}
            return sum(
                connection.execute(
                    "UPDATE delegates SET ended_at_unix_s = ? WHERE acts_for = ? AND ended_at_unix_s IS NULL "
                    "AND until_unix_s > ?",
                    (now_unix_s, acts_for, now_unix_s),
                ).rowcount
                for acts_for in own
            )


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
