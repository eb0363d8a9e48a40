"""What people order about approvals of several queries: give one at a query that waits, revoke one, name a delegate.

An order is carried out by the command or the console of the node's user, or by the node, for users who leave it in the
directory for their decisions (parties.approval.decision_files).
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Self

from dpcore.errors import ConfigurationError
from parties.approval.decision_files import DecisionFiles
from parties.approval.decisions import Decision, DecisionError, Delegates, Delegation, Person
from parties.approval.standing import (
    Approval,
    Covers,
    Standing,
    Terms,
    shown_of,
    terms_of_questions,
    terms_of_study,
    terms_of_training,
)
from parties.config import PartyConfig
from parties.database import LedgerOwner
from parties.history.database import HistoryDatabase
from parties.history.reading import HistoryReader, open_history
from parties.history.studies import same_as, same_as_stated, studies_of
from parties.ledger.ledger import Ledger
from parties.policy import Policy
from radobase.printing import local_time
from wire.envelopes import Envelope
from wire.training import MOST_QUERIES

MOST_QUESTIONS = 1000
LONGEST_USER = 256
_LATEST_UNIX_S = 1 << 40
# Another user wrote it: of a number such as 1e999999999 the exact value has no room.
_EPSILON = re.compile(r"[0-9]{0,30}(/[0-9]{1,30}|(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?)")
NO_SUBJECT = bytes(32)
"""The subject of an order that is about no query and no approval."""


class Do(StrEnum):
    """What is to be done."""

    APPROVE = "approve"
    """What a query that waits is a part of."""
    CONFIRM = "confirm"
    """A proposal, which another person made."""
    REJECT = "reject"
    """A proposal."""
    REVOKE = "revoke"
    DELEGATE = "delegate"
    UNDELEGATE = "undelegate"


@dataclass(frozen=True)
class Order:
    """What a person wants done. Raises ConfigurationError if it is none."""

    do: Do
    covers: Covers = Covers.TRAINING
    epsilon: str | None = None
    """Exact; None for all that a training announced."""
    until_unix_s: float | None = None
    questions: tuple[str, ...] = ()
    queries: int = 0
    """The most queries of a study; 0 for as many as fit in epsilon."""
    user: str = ""
    """The delegate."""

    def __post_init__(self) -> None:
        if not 0 <= self.queries <= MOST_QUERIES:
            raise ConfigurationError(f"an approval is for at most {MOST_QUERIES} queries")
        if len(self.questions) > MOST_QUESTIONS:
            raise ConfigurationError(f"a list has at most {MOST_QUESTIONS} questions")
        if len(self.user) > LONGEST_USER or not self.user.isprintable():
            raise ConfigurationError(f"a user's name has at most {LONGEST_USER} printable characters")
        if self.until_unix_s is not None and not 0 <= self.until_unix_s < _LATEST_UNIX_S:
            raise ConfigurationError("the end of an order is no time")
        if self.epsilon is not None:
            try:
                if not _EPSILON.fullmatch(self.epsilon):
                    raise ValueError
                Fraction(self.epsilon)
            except (ValueError, ZeroDivisionError) as error:
                raise ConfigurationError(f"epsilon {self.epsilon!r} is no number") from error

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {**asdict(self), "questions": list(self.questions)}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """The inverse of to_dict, of what another user wrote. Raises ConfigurationError."""
        try:
            names = ("epsilon", "until_unix_s", "questions", "user")
            epsilon, until, questions, user = (content.get(name) for name in names)
            if not (epsilon is None or isinstance(epsilon, str)) or not isinstance(user, str):
                raise TypeError("a text is none")
            if not isinstance(questions, list) or not all(isinstance(text, str) for text in questions):
                raise TypeError("a question is no text")
            end = None if until is None else float(until)
            queries = int(content.get("queries", 0))
            return cls(Do(content["do"]), Covers(content["covers"]), epsilon, end, tuple(questions), queries, user)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(f"it is no order that `rado party` writes: {error}") from error


@dataclass(frozen=True)
class Done:
    """What became of an order."""

    words: str
    approval: Approval | None = None


def proposed(order: Order, envelope: Envelope, now_unix_s: float) -> Terms:
    """The terms of an approval at a query that waits. Raises ConfigurationError if they are not complete, or none."""
    epsilon = None if order.epsilon is None else Fraction(order.epsilon)
    match order.covers:
        case Covers.TRAINING:
            return terms_of_training(envelope, now_unix_s, epsilon=epsilon, until_unix_s=order.until_unix_s)
        case Covers.STUDY:
            if epsilon is None:
                raise ConfigurationError("a study needs an epsilon for all of it, with --epsilon")
            return terms_of_study(
                envelope, now_unix_s, epsilon=epsilon, until_unix_s=order.until_unix_s, queries=order.queries
            )
        case Covers.QUESTIONS:
            if epsilon is None or order.until_unix_s is None:
                raise ConfigurationError("a list of questions needs an epsilon for all of it and an end: give both")
            return terms_of_questions(
                envelope, order.questions, now_unix_s, epsilon=epsilon, until_unix_s=order.until_unix_s
            )


def carry_out(
    order: Order,
    subject: bytes,
    envelope: Envelope | None,
    person: Person,
    reason: str,
    *,
    standing: Standing,
    delegates: Delegates,
    policy: Policy,
) -> Done:
    """Do what a person ordered, durably. subject: the id of the query or the approval that it is about.

    envelope: the query, if it waits. Raises DecisionError if the order does not count, ConfigurationError if it is
    incomplete.
    """
    now = time.time()
    match order.do:
        case Do.DELEGATE:
            if order.until_unix_s is None:
                raise ConfigurationError("say until when, with --until")
            delegates.name(person, order.user, order.until_unix_s, reason, policy, now)
            return Done(f"{order.user} decides in place of {person.user} until {local_time(order.until_unix_s)}")
        case Do.UNDELEGATE:
            ended = delegates.end(person, now)
            return Done(f"{person.user} has no delegate any more" if ended else f"{person.user} had no delegate")
        case Do.REVOKE:
            found = standing.revoke(subject, person, reason, policy, now)
        case Do.CONFIRM | Do.REJECT:
            found = standing.decide(subject, Decision(person, order.do is Do.CONFIRM, reason, now), policy)
        case Do.APPROVE:
            if envelope is None:
                raise DecisionError("this query does not wait for a decision (any more); see `rado ledger history`")
            found = standing.approve(proposed(order, envelope, now), Decision(person, True, reason, now), policy)
    return Done(f"approval {found.approval_id.hex()[:16]}: {found.state(now)}", found)


@contextmanager
def _written(config: PartyConfig) -> Iterator[tuple[Standing, Policy, HistoryDatabase]]:
    """The approvals, to be written. Raises what Ledger.open raises."""
    policy, history = Policy.load(config.policy), open_history(config)
    try:
        if not config.ledger_file.exists():
            raise ConfigurationError(f"{config.ledger_file}: there is no ledger yet; start this party")
        owner = LedgerOwner(config.federation, config.name, config.source)
        ledger = Ledger.open(config.ledger_file, owner, policy.limits.of_ledger)
        try:
            yield Standing(ledger.approvals, history), policy, history
        finally:
            ledger.database.close()
    finally:
        history.close()


def do(
    config: PartyConfig,
    order: Order,
    prefix: str,
    person: Person,
    reason: str = "",
    *,
    policy_seen: str | None = None,
) -> Done:
    """Carry an order out beside the node, which may run. prefix: the first digits of its query, or of its approval.

    policy_seen: as of parties.approval.deciding.decide. Raises ConfigurationError, DecisionError.
    """
    envelope, subject = None, NO_SUBJECT
    with _written(config) as (standing, policy, history):
        if policy_seen not in {None, policy.digest}:
            raise DecisionError("the policy changed since this was shown: look at it again, then decide")
        match order.do:
            case Do.APPROVE:
                with HistoryReader(config) as reader:
                    shown = reader.find(prefix).shown
                    if shown.not_after_unix_s >= time.time() and reader.history.waits(shown.query_id):
                        envelope = shown.envelope
                    subject = shown.query_id
            case Do.CONFIRM | Do.REJECT | Do.REVOKE:
                subject = standing.find(prefix, policy).approval_id
            case _:
                pass
        return carry_out(
            order, subject, envelope, person, reason, standing=standing, delegates=Delegates(history), policy=policy
        )


def terms_at(config: PartyConfig, order: Order, prefix: str, files: DecisionFiles | None) -> list[str]:
    """What an order to approve would let through, for people: the terms, or those of the proposal that is approved.

    files: where to look, if this process does not reach the party's state. Raises ConfigurationError.
    """
    if order.do is Do.CONFIRM:
        if files is not None:
            found = [each for each in files.approvals() if each["approval_id"].startswith(prefix.lower())]
            return [str(line) for each in found for line in (*each["words"], *each.get("same_study", ()))]
        with HistoryReader(config) as reader:
            terms = Standing(reader.ledger.approvals, reader.database).find(prefix, reader.policy).terms
            same = same_as_stated(terms.subject, studies_of(reader)) if terms.covers is Covers.STUDY else []
            return [*terms.lines(), *same]
    if files is not None:
        waiting = files.find(prefix)
        return [*proposed(order, waiting.envelope, time.time()).lines(), *waiting.same_study]
    with HistoryReader(config) as reader:
        shown = reader.find(prefix).shown
        same = same_as(reader, shown.study)
    if shown.envelope is None:
        raise ConfigurationError("the signed text of this query is not kept any more")
    return [*proposed(order, shown.envelope, time.time()).lines(), *same]


def approvals(config: PartyConfig) -> list[Approval]:
    """Every approval of several queries and every proposal, oldest first."""
    with HistoryReader(config) as reader:
        return Standing(reader.ledger.approvals, reader.database).all(reader.policy)


def shown_approvals(config: PartyConfig, now_unix_s: float) -> list[dict[str, Any]]:
    """The same in JSON types, with what people are asked about the numbers of studies (`shown_of`)."""
    with HistoryReader(config) as reader:
        found, standing = studies_of(reader), Standing(reader.ledger.approvals, reader.database)
        return [shown_of(each, found, now_unix_s) for each in standing.all(reader.policy)]


def is_approval(config: PartyConfig, prefix: str) -> bool:
    """Whether digits begin the id of an approval."""
    return any(prefix and each.approval_id.hex().startswith(prefix.lower()) for each in approvals(config))


def delegations(config: PartyConfig) -> list[Delegation]:
    """Every delegate who was ever named, oldest first."""
    database = open_history(config)
    try:
        return Delegates(database).all()
    finally:
        database.close()
