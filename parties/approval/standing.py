"""Approvals of several queries: people decide once about a training, a study or a list of questions.

Its terms say what one lets through, and their digest is its id. A query within them needs no decision of its own. What
is outside of them waits as if there were no approval, and nothing is charged meanwhile.

Nothing here allows what the policy or the ledger refuses: an approval takes the place of people's decision only.

As many people as the policy says must approve, counted by the policy of the moment at each use. One revokes. Acts and
uses are in the ledger's file (parties.ledger.approvals).
"""

import datetime as dt
import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

from dpcore.errors import ConfigurationError
from dpcore.predicates.expressions import Predicate, PredicateError
from dpcore.predicates.notation import parse, to_text
from parties.approval.decisions import LONGEST_TEXT, Decision, DecisionError, Delegates, Person, counted, key, why_not
from parties.history.database import HistoryDatabase
from parties.history.studies import StudyRead, same_as_stated
from parties.ledger.approvals import (
    Act,
    ActKind,
    Approvals,
    ApprovalState,
    NotCoveredError,
    StoredApproval,
    Use,
    Used,
)
from parties.ledger.charges import Charge
from parties.policy import Policy
from radobase.printing import amount, json_text, listed, local_time
from wire.envelopes import Envelope, sha256
from wire.query import OpenedQuery, Query
from wire.query_kinds import kind_bytes
from wire.query_summary import columns

LONGEST_S: Final = 366 * 24 * 3600
"""The longest time for which an approval is given."""
_DOMAIN = b"radofed/approval\0"
_KINDS = ("gradient", "moments", "statistic")


class Covers(StrEnum):
    """What an approval is for."""

    TRAINING = "training"
    STUDY = "study"
    QUESTIONS = "questions"


@dataclass(frozen=True)
class Terms:
    """What an approval lets through. Raises ConfigurationError if nothing could be within it."""

    covers: Covers
    learner: str
    signing_key: str
    """Of the learner, which signs every query: the id of the key, in hexadecimal."""
    subject: str
    """The digest of the training's own terms, or of the study, in hexadecimal; empty of a list of questions."""
    words: str
    """What it is for, for people."""
    schema_digest: str
    """In hexadecimal, without a weight."""
    kinds: tuple[str, ...]
    columns: tuple[str, ...]
    """Source columns that answers may depend on."""
    questions: tuple[str, ...]
    """Predicates, each of which may be asked once; empty of a training or a study."""
    rows: str
    """Which rows, and whose, in words: every query is about the same."""
    epsilon: str
    """That all of it may cost in each scope; an exact fraction."""
    delta: str
    queries: int
    """The most; 0 for as many as fit in epsilon."""
    attempts: int
    """Of each query."""
    until_unix_s: int
    made_at_unix_s: float
    salt: str
    """Random: an approval that ended is not the next one of the same terms."""

    def __post_init__(self) -> None:
        if Fraction(self.epsilon) <= 0:
            raise ConfigurationError("an approval has an epsilon above 0")
        if not self.made_at_unix_s < self.until_unix_s <= self.made_at_unix_s + LONGEST_S:
            raise ConfigurationError(
                f"an approval ends at a moment in the future, within {LONGEST_S // (24 * 3600)} days: give another time"
            )

    @property
    def approval_id(self) -> bytes:
        """Identifies the approval with all its terms."""
        return sha256(_DOMAIN, self.text.encode())

    @property
    def text(self) -> str:
        """As it is stored: equal terms have equal texts."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def read(cls, text: str) -> "Terms":
        """The inverse of `text`."""
        found: dict[str, Any] = json.loads(text)
        lists = ("kinds", "columns", "questions")
        return cls(**{**found, "covers": Covers(found["covers"]), **{name: tuple(found[name]) for name in lists}})

    @property
    def same(self) -> tuple[Any, ...]:
        """What a second person must mean to approve the same."""
        return tuple(asdict(replace(self, made_at_unix_s=0.0, until_unix_s=1, salt="")).values())

    def lines(self) -> list[str]:
        """For people, one fact a line."""
        cost = f"epsilon {float(Fraction(self.epsilon)):.6g} at delta {float(Fraction(self.delta)):.6g}"
        most = amount(self.queries, "query") if self.queries else "as many queries as fit in it"
        return [
            f"{self.words}, of learner {self.learner} with the key {self.signing_key[:16]}",
            f"costs at most {cost} in each scope, for all answers in total",
            f"{most}, each in up to {amount(self.attempts, 'attempt')}; no question twice",
            f"kinds: {listed(self.kinds)}; {self.rows}",
            f"columns that answers may depend on: {', '.join(self.columns) or 'none'}",
            *(["questions, each once:", *(f"  {text}" for text in self.questions)] if self.questions else []),
            f"until {local_time(self.until_unix_s)}, unless it is revoked before",
        ]


def terms_of_training(
    envelope: Envelope, now_unix_s: float, *, epsilon: Fraction | None = None, until_unix_s: float | None = None
) -> Terms:
    """The terms of an approval of the training that a query is a round of. envelope: the query, verified.

    epsilon, until_unix_s: less than the learner announced; None for all that it announced, within LONGEST_S. Raises
    ConfigurationError if the query names no training, or more is wanted than it announced.
    """
    query = Query.from_bytes(envelope.payload)
    training = query.training
    if training is None:
        raise ConfigurationError("this query names no training: approve it alone")
    wanted = training.epsilon if epsilon is None else epsilon
    end = min(training.ends_unix_s, now_unix_s + LONGEST_S) if until_unix_s is None else until_unix_s
    if wanted > training.epsilon or end > training.ends_unix_s:
        raise ConfigurationError(
            f"the learner announced a {training.words}, until {local_time(training.ends_unix_s)}: approve no more"
        )
    return Terms(
        covers=Covers.TRAINING,
        learner=query.learner,
        signing_key=envelope.key_id.hex(),
        subject=training.digest.hex(),
        words=training.title,
        schema_digest=query.schema.unweighted.digest.hex(),
        kinds=_KINDS,
        columns=columns(query.schema),
        questions=(),
        rows=rows_words(query),
        epsilon=str(wanted),
        delta=str(training.delta),
        queries=training.queries,
        attempts=training.max_attempts,
        until_unix_s=int(end),
        made_at_unix_s=now_unix_s,
        salt=secrets.token_hex(16),
    )


def terms_of_study(
    envelope: Envelope,
    now_unix_s: float,
    *,
    epsilon: Fraction,
    until_unix_s: float | None = None,
    queries: int = 0,
) -> Terms:
    """The terms of an approval of the study that a query names, as it states it. envelope: the query, verified.

    until_unix_s: by default the end of the study's last day. queries: the most, 0 for as many as fit in epsilon. Raises
    ConfigurationError if the query names no study, or the study ends before.
    """
    query = Query.from_bytes(envelope.payload)
    study = query.study
    if study is None:
        raise ConfigurationError("this query names no study: approve it alone, or its training")
    ends = dt.datetime.combine(study.ends + dt.timedelta(days=1), dt.time(), dt.UTC).timestamp()
    end = ends if until_unix_s is None else until_unix_s
    if end > ends:
        raise ConfigurationError(f"the study states that it ends on {study.ends}: approve no longer")
    return Terms(
        covers=Covers.STUDY,
        learner=query.learner,
        signing_key=envelope.key_id.hex(),
        subject=study.digest.hex(),
        words=f"study {json_text(study.protocol_number)}: {json_text(study.purpose)}",
        schema_digest=query.schema.unweighted.digest.hex(),
        kinds=_KINDS,
        columns=columns(query.schema),
        questions=(),
        rows=rows_words(query),
        epsilon=str(epsilon),
        delta=str(query.delta),
        queries=queries,
        attempts=query.max_attempts,
        until_unix_s=int(min(end, now_unix_s + LONGEST_S)),
        made_at_unix_s=now_unix_s,
        salt=secrets.token_hex(16),
    )


def terms_of_questions(
    envelope: Envelope,
    questions: Sequence[str],
    now_unix_s: float,
    *,
    epsilon: Fraction,
    until_unix_s: float,
) -> Terms:
    """The terms of an approval of a list of predicates, for the learner, the schema and the rows of a query.

    envelope: the query, verified.

    Raises ConfigurationError if the list is empty, or a text is no predicate over the schema.
    """
    query = Query.from_bytes(envelope.payload)
    if query.feature_map is not None or not query.kind.batch:
        raise ConfigurationError("a list of questions is approved at a statistic without a feature map")
    try:
        predicates = [parse(text) for text in questions]
    except PredicateError as error:
        raise ConfigurationError(f"the list of questions: {error}") from error
    if not predicates:
        raise ConfigurationError("the list has no question: write one predicate a line")
    texts = tuple(sorted(set(map(_text, predicates))))
    return Terms(
        covers=Covers.QUESTIONS,
        learner=query.learner,
        signing_key=envelope.key_id.hex(),
        subject="",
        words=f"a list of {amount(len(texts), 'question')}",
        schema_digest=query.schema.unweighted.digest.hex(),
        kinds=("statistic",),
        columns=columns(query.schema, predicates),
        questions=texts,
        rows=rows_words(query),
        epsilon=str(epsilon),
        delta=str(query.delta),
        queries=0,
        attempts=query.max_attempts,
        until_unix_s=int(until_unix_s),
        made_at_unix_s=now_unix_s,
        salt=secrets.token_hex(16),
    )


def rows_words(query: Query) -> str:
    """Which rows a query is about, and what it protects."""
    part = "all rows" if query.held_back is None else f"{query.held_back.part.value} rows of {query.held_back.share}"
    epoch = "" if query.epoch is None else f" of epoch {query.epoch}"
    unit = "records" if query.persons is None else f"persons at up to {amount(query.persons.parties, 'party')}"
    return f"about {part}{epoch}, protecting {unit}"


def why_outside(terms: Terms, opened: OpenedQuery) -> str:
    """Why a query is none of those that terms are for: part of a sentence, empty if it is one."""
    query = opened.query
    asked = query.kind.batch
    read = columns(query.schema, asked, query.feature_map) if asked else columns(query.schema)
    more = sorted(set(read) - set(terms.columns))
    found = {
        "it is of another learner, or another key signed it": (
            (query.learner, opened.envelope.key_id.hex()) != (terms.learner, terms.signing_key)
        ),
        "it is of another training, or of one with other terms": terms.covers is Covers.TRAINING
        and (query.training is None or query.training.digest.hex() != terms.subject),
        "it is of another study, or of one that is stated otherwise": terms.covers is Covers.STUDY
        and (query.study is None or query.study.digest.hex() != terms.subject),
        "it is over another schema": query.schema.unweighted.digest.hex() != terms.schema_digest,
        f"it is a {query.kind.name} query": query.kind.name not in terms.kinds,
        "it is about other rows, or protects another unit": rows_words(query) != terms.rows,
        f"it may depend on {', '.join(more)}": bool(more),
        "it has a feature map": terms.covers is Covers.QUESTIONS and query.feature_map is not None,
        f"it may be charged {amount(query.max_attempts, 'time')}": query.max_attempts > terms.attempts,
    }
    if terms.covers is Covers.QUESTIONS:
        unlisted = [text for text in map(_text, asked) if text not in terms.questions]
        found[f"{', '.join(unlisted[:3])} is not on the list"] = bool(unlisted)
    return next((why for why, is_so in found.items() if is_so), "")


def items_of(terms: Terms, query: Query) -> tuple[str, ...]:
    """What a query asks, so that nothing is asked twice: of a list its questions, otherwise the whole content."""
    if terms.covers is Covers.QUESTIONS:
        return tuple(sorted({_text(each) for each in query.kind.batch}))
    message = query.to_proto()
    parts = (part.SerializeToString(deterministic=True) for part in (message.held_back, message.feature_map))
    return (sha256(query.schema.digest, kind_bytes(query.kind), *parts).hex(),)


def _text(predicate: Predicate) -> str:
    """The whole text: of different predicates, different texts, but for those that are too long for any list."""
    try:
        return to_text(predicate)
    except PredicateError:
        return "(a predicate that is too long to be written)"


@dataclass(frozen=True)
class Approval:
    """An approval of several queries, under the policy of the moment."""

    terms: Terms
    stored: StoredApproval
    used: tuple[Used, ...]
    counted: int
    """Approvals of people that count."""
    needed: int

    @property
    def approval_id(self) -> bytes:
        """Of its terms."""
        return self.stored.approval_id

    def state(self, now_unix_s: float) -> str:
        """In one word, or few."""
        if self.stored.state is ApprovalState.ENDED:
            last = self.stored.acts[-1].kind.value if self.stored.acts else ActKind.REVOKED.value
            return last if last != ActKind.APPROVED.value else "ended, as the ledger was set back"
        if now_unix_s >= self.terms.until_unix_s:
            return "expired"
        if self.stored.state is ApprovalState.PROPOSED or self.counted < self.needed:
            return f"{self.counted} of {self.needed} approvals"
        return "in force"

    def is_in_force(self, now_unix_s: float) -> bool:
        """Whether it lets anything through."""
        return self.state(now_unix_s) == "in force"

    @property
    def queries(self) -> int:
        """How many queries were let through, and are charged or reserved."""
        return len({each.query_id for each in self.used})

    @property
    def people(self) -> list[str]:
        """Who did what, and when, one line each."""
        return [
            f"{act.kind.value} by {Person(act.user, act.name, act.acts_for)}, {local_time(act.at_unix_s)}"
            f"{f': {act.reason}' if act.reason else ''}"
            for act in self.stored.acts
        ]

    def lines(self, now_unix_s: float) -> list[str]:
        """For people, one fact a line."""
        charged = sum(each.is_charged for each in self.used)
        return [
            f"approval {self.approval_id.hex()}: {self.state(now_unix_s)}",
            *self.terms.lines(),
            (
                f"used by {amount(self.queries, 'query')}: {amount(charged, 'attempt')} charged, "
                f"{len(self.used) - charged} reserved"
            ),
            *self.people,
        ]

    def to_dict(self, now_unix_s: float) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "approval_id": self.approval_id.hex(),
            "state": self.state(now_unix_s),
            "in_force": self.is_in_force(now_unix_s),
            "terms": json.loads(self.terms.text),
            "words": self.terms.lines(),
            "queries": sorted({each.query_id.hex() for each in self.used}),
            "attempts_charged": sum(each.is_charged for each in self.used),
            "attempts_reserved": sum(not each.is_charged for each in self.used),
            "approvals": self.counted,
            "approvals_needed": self.needed,
            "people": [{**asdict(act), "kind": act.kind.value} for act in self.stored.acts],
        }


class Standing:
    """The approvals of several queries at one party. history: where its delegates are."""

    def __init__(self, approvals: Approvals, history: HistoryDatabase) -> None:
        self._approvals, self._delegates = approvals, Delegates(history)

    def all(self, policy: Policy) -> list[Approval]:
        """Every approval and proposal, oldest first."""
        return [self._read(stored, policy) for stored in self._approvals.all()]

    def find(self, prefix: str, policy: Policy) -> Approval:
        """The one whose id begins with these digits. Raises ConfigurationError unless there is exactly one."""
        every = self.all(policy)
        found = [each for each in every if prefix and each.approval_id.hex().startswith(prefix.lower())]
        if len(found) != 1:
            what = "no approval begins" if not found else f"{len(found)} approvals begin"
            raise ConfigurationError(f"{what} with {prefix!r}; see `rado party approvals`")
        return found[0]

    def covering(
        self, opened: OpenedQuery, attempt: int, charge: Charge, policy: Policy, now_unix_s: float
    ) -> tuple[Use | None, list[str]]:
        """What a query takes of an approval that lets it through, None without one; why others do not, a line each."""
        why = []
        for stored in self._approvals.all():
            each = self._read(stored, policy, with_uses=False)
            outside = why_outside(each.terms, opened)
            is_meant = _is_meant(each.terms, opened.query)
            if outside and not is_meant:
                continue
            name = f"approval {each.approval_id.hex()[:10]}"
            state = each.state(now_unix_s)
            if state != "in force" or outside:
                why.append(f"{name} does not let it through: {outside or f'it is {state}'}")
                continue
            use = use_of(each.terms, opened.query)
            try:
                self._approvals.check(use, opened.query_id, attempt, charge, now_unix_s)
            except NotCoveredError as error:
                why.append(f"{name} does not let it through: {error}")
                continue
            return use, []
        return None, why

    def counts(self, query_id: bytes, policy: Policy, now_unix_s: float) -> bool:
        """Whether an attempt at a query was accepted under an approval that is still in force by this policy."""
        approval_id = self._approvals.used_by([query_id]).get(query_id)
        if approval_id is None:
            return False
        stored = self._approvals.find(approval_id)
        return stored is not None and self._read(stored, policy, with_uses=False).is_in_force(now_unix_s)

    def approve(self, terms: Terms, decision: Decision, policy: Policy) -> Approval:
        """Record that a person approves these terms, durably. Once enough people have, it is in force.

        A proposal that means the same is approved in its place. Raises DecisionError if the decision does not count.
        """
        now = decision.at_unix_s
        with self._approvals.transaction():
            for each in self.all(policy):
                is_open = each.stored.state is ApprovalState.PROPOSED and now < each.terms.until_unix_s
                if is_open and each.terms.same == terms.same and each.terms.until_unix_s <= terms.until_unix_s:
                    terms = each.terms
            self._approvals.propose(terms.approval_id, terms.text, terms.until_unix_s, now)
            return self._decided(terms.approval_id, decision, policy)

    def decide(self, approval_id: bytes, decision: Decision, policy: Policy) -> Approval:
        """Record a person's decision on a proposal, durably. Raises DecisionError if it does not count."""
        with self._approvals.transaction():
            return self._decided(approval_id, decision, policy)

    def _decided(self, approval_id: bytes, decision: Decision, policy: Policy) -> Approval:
        now = decision.at_unix_s
        found = self._found(approval_id, policy)
        person = self._check(decision.person, found.terms.learner, policy, now)
        if found.stored.state is ApprovalState.ENDED or now >= found.terms.until_unix_s:
            raise DecisionError(f"this approval is {found.state(now)}; approve again at a query that waits")
        own = [act for act in found.stored.acts if act.user.casefold() == key(person)]
        if own and decision.approves:
            return found
        if found.is_in_force(now):
            raise DecisionError("this approval is in force; to end it, run `rado party revoke`")
        kind = ActKind.APPROVED if decision.approves else ActKind.REFUSED
        act = Act(person.user, person.name, person.acts_for, kind, decision.reason[:LONGEST_TEXT], now)
        state = None if decision.approves else ApprovalState.ENDED
        self._approvals.act(approval_id, act, state)
        found = self._found(approval_id, policy)
        if decision.approves and found.stored.state is ApprovalState.PROPOSED and found.counted >= found.needed:
            self._approvals.give(approval_id, now)
            found = self._found(approval_id, policy)
        return found

    def revoke(self, approval_id: bytes, person: Person, reason: str, policy: Policy, now_unix_s: float) -> Approval:
        """End an approval or a proposal, durably: nothing more is accepted or charged under it.

        Raises DecisionError if this person may not decide, or it has ended.
        """
        with self._approvals.transaction():
            found = self._found(approval_id, policy)
            person = self._check(person, found.terms.learner, policy, now_unix_s)
            if found.stored.state is ApprovalState.ENDED:
                raise DecisionError(f"this approval is {found.state(now_unix_s)} already")
            text = reason[:LONGEST_TEXT]
            act = Act(person.user, person.name, person.acts_for, ActKind.REVOKED, text, now_unix_s)
            self._approvals.act(approval_id, act, ApprovalState.ENDED)
            return self._found(approval_id, policy)

    def _check(self, person: Person, learner: str, policy: Policy, now_unix_s: float) -> Person:
        seated = self._delegates.seated(person, policy, now_unix_s)
        if cause := why_not(seated, learner, policy):
            raise DecisionError(cause)
        return seated

    def _found(self, approval_id: bytes, policy: Policy) -> Approval:
        stored = self._approvals.find(approval_id)
        if stored is None:
            raise DecisionError("there is no such approval; see `rado party approvals`")
        return self._read(stored, policy)

    def _read(self, stored: StoredApproval, policy: Policy, *, with_uses: bool = True) -> Approval:
        """with_uses: False for speed, where only what people did matters."""
        terms = Terms.read(stored.terms)
        approving = (Person(act.user, act.name, act.acts_for) for act in stored.acts if act.kind is ActKind.APPROVED)
        count = len(counted(person for person in approving if not why_not(person, terms.learner, policy)))
        used = tuple(self._approvals.uses(stored.approval_id)) if with_uses else ()
        return Approval(terms, stored, used, count, policy.approval.approvers)


def shown_of(approval: Approval, studies: Sequence[StudyRead], now_unix_s: float) -> dict[str, Any]:
    """An approval in JSON types, and for one of a study what people are asked about its number (`same_study`)."""
    terms = approval.terms
    same = same_as_stated(terms.subject, studies) if terms.covers is Covers.STUDY else []
    return {**approval.to_dict(now_unix_s), "same_study": same}


def use_of(terms: Terms, query: Query) -> Use:
    """What a query takes of an approval with these terms."""
    return Use(
        terms.approval_id,
        items_of(terms, query),
        terms.queries,
        terms.attempts,
        Fraction(terms.epsilon),
        Fraction(terms.delta),
    )


def _is_meant(terms: Terms, query: Query) -> bool:
    """Whether people who gave an approval with these terms may wonder why it does not let a query through."""
    match terms.covers:
        case Covers.TRAINING:
            return query.training is not None and query.training.digest.hex() == terms.subject
        case Covers.STUDY:
            return query.study is not None and query.study.digest.hex() == terms.subject
        case Covers.QUESTIONS:
            return bool(query.kind.batch) and query.learner == terms.learner
