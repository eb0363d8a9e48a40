"""The history as people read it: what was asked, what was decided and why, what left, what it cost, what remained."""

import csv
import datetime as dt
import io
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from dpcore.accounting.filters import total_loss
from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import upper_digits
from parties.approval.decisions import Decision, Decisions, Person
from parties.config import PartyConfig
from parties.database import LedgerOwner
from parties.history.database import FILE, HistoryDatabase
from parties.history.history import Happened, History, HistoryPage, Shown, What
from parties.ledger.approvals import ActKind, StoredApproval
from parties.ledger.budgets import LedgerState, ScopeState
from parties.ledger.charges import Charge, ScopeKind
from parties.ledger.ledger import Ledger, RecordedCharge
from parties.policy import Policy
from radobase.printing import json_text, printable
from wire.errors import CATALOGUE, Code
from wire.query_summary import QuerySummary, SignedPart, signed_parts

# What an attempt cost in each scope and what remains there, for people: scopes that agree are one line.


_ONE = {
    ScopeKind.PERSON: "whole persons",
    ScopeKind.RECORD: "whole records",
    ScopeKind.JOINT: "column",
    ScopeKind.MARGINAL: "feature",
}
_MOST_NAMED = 3


@dataclass(frozen=True)
class ScopeCost:
    """What an attempt costs in some scopes of one kind, by the limits of this party."""

    scope: str
    """Which, in words."""
    cost: float | None
    """The least epsilon, at the limit's delta, of a limit that admits this attempt alone; None without one."""
    spent: float | None
    """That of all that is charged or reserved, this attempt included; costs add up to less than their sum."""
    remaining: float
    """The largest epsilon of one more release, of the kind of noise of which more is left."""
    limit_epsilon: float
    limit_delta: float
    """The limit."""

    def __str__(self) -> str:
        return self.words("it")

    def words(self, what: str) -> str:
        """In one line. what: "it" for an attempt, "them" for several."""
        cost = "no bound" if self.cost is None else f"epsilon {upper_digits(self.cost, 4)}"
        limit = f"{self.limit_epsilon:.4g} at delta {self.limit_delta:.4g}"
        spent = "more than any limit at that delta" if self.spent is None else upper_digits(self.spent, 4)
        return f"{self.scope}: {cost}; with {what}, {spent} of {limit} is spent"


def scope_costs(charge: Charge, state: LedgerState) -> list[dict[str, Any]]:
    """The lines for a charge that `state` contains already, in JSON types."""
    return [asdict(cost) for cost in costs(charge, state)]


def costs(charge: Charge, state: LedgerState, count: int = 1) -> list[ScopeCost]:
    """What a charge costs in the scopes that it or a limit names, and what `state` leaves there, widest scope first.

    Then the same under the limit of its study, if there is one.

    count: of so many attempts together, which `state` contains. All attempts over one noised table are one release.
    """
    studies = [each for number, own in state.studies if number == charge.study for each in own]
    of_study = _costs(charge, studies, count)
    named = [replace(cost, scope=f"study {json_text(charge.study)}, {cost.scope}") for cost in of_study]
    return [*_costs(charge, state.scopes, count), *named]


def _costs(charge: Charge, scopes: Iterable[ScopeState], count: int) -> list[ScopeCost]:
    same: dict[tuple[ScopeKind, float | None, float | None, float, float, float], list[str]] = {}
    for scope in scopes:
        loss = charge.bound(scope.scope)
        times = 1 if charge.epoch is not None else count
        cost = None if loss is None else _finite(scope.limit.spent(total_loss([(loss, times)])))
        limit = scope.limit
        used, left = _finite(scope.held_epsilon), scope.remaining_epsilon
        figures = (scope.scope.kind, cost, used, left, float(limit.epsilon), float(limit.delta))
        same.setdefault(figures, []).append(scope.scope.name)
    return [
        ScopeCost(_words(kind, names), cost, spent, remaining, epsilon, delta)
        for (kind, cost, spent, remaining, epsilon, delta), names in same.items()
    ]


def _finite(epsilon: float) -> float | None:
    """None where no limit at this delta admits the loss."""
    return epsilon if math.isfinite(epsilon) else None


def _words(kind: ScopeKind, names: list[str]) -> str:
    if kind in (ScopeKind.PERSON, ScopeKind.RECORD):
        return _ONE[kind]
    named = ", ".join(names[:_MOST_NAMED])
    return (
        f"{_ONE[kind]} {named}" if len(names) <= _MOST_NAMED else f"each of {len(names)} {_ONE[kind]}s ({named}, ...)"
    )


NOT_KEPT = "not kept"
_AT_ONCE = 500


@dataclass(frozen=True)
class AttemptRead:
    """One attempt at a query."""

    attempt: int
    outcome: str
    cohort: Mapping[str, int] | None
    """Rows of each member, None if there was no cohort."""
    cohort_digest: str | None
    bytes_out: int | None
    """Encrypted bytes that left, or may have left: they were charged for before."""
    is_charged: bool
    cost: tuple[str, ...]
    """In each scope, None if nothing was charged; without `remaining` if that was not noted. A charge of the ledger is
    always among them."""
    scopes: tuple[Mapping[str, Any], ...]
    data_digest: str | None = None
    """Of the rows with which it was accepted, None if that was not noted."""

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "attempt": self.attempt,
            "outcome": self.outcome,
            "cohort": None if self.cohort is None else dict(self.cohort),
            "cohort_digest": self.cohort_digest,
            "bytes_out": self.bytes_out,
            "charged": self.is_charged,
            "cost": list(self.cost),
            "scopes": [dict(scope) for scope in self.scopes],
            "data_digest": self.data_digest,
        }


@dataclass(frozen=True)
class QueryRead:
    """One query, and what became of it."""

    shown: Shown
    decision: str
    """In words, with its rule or the people who decided."""
    decisions: Sequence[Decision]
    attempts: tuple[AttemptRead, ...]
    refused_by: Code | None = None
    """The code of a refusal, None without one."""
    approval: StoredApproval | None = None
    """Of several queries, under which it was accepted; None without one."""

    @property
    def words(self) -> str:
        """What was asked, in one line."""
        return self.shown.words or self.shown.contents or NOT_KEPT

    @property
    def asked(self) -> QuerySummary | None:
        """What was asked in detail, if the signed query was read, is still kept, and is of version 0.2.1 or later."""
        query = self.shown.query
        return None if query is None else QuerySummary.of(query)

    @property
    def signed(self) -> tuple[SignedPart, ...]:
        """Every field of the query, empty where there is nothing in detail."""
        envelope = self.shown.envelope
        return () if envelope is None or self.shown.query is None else signed_parts(envelope.payload)

    @property
    def bytes_out(self) -> int:
        """Encrypted bytes that left."""
        return sum(attempt.bytes_out or 0 for attempt in self.attempts)

    @property
    def charged(self) -> tuple[AttemptRead, ...]:
        """The attempts that were charged."""
        return tuple(attempt for attempt in self.attempts if attempt.is_charged)

    @property
    def cost(self) -> str:
        """What the last charged attempt cost in its widest scope, "nothing" without one."""
        return self.charged[-1].cost[0].partition(";")[0] if self.charged else "nothing"

    @property
    def cost_with_attempts(self) -> str:
        """`cost`, with the number of charged attempts if there were several."""
        return self.cost + (f" ({len(self.charged)} attempts)" if len(self.charged) > 1 else "")

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        shown = self.shown
        return {
            "query_id": shown.query_id.hex(),
            "shown_at_unix_s": shown.shown_at_unix_s,
            "learner": shown.learner,
            "kind": shown.kind,
            "asked": self.words,
            "purpose": shown.purpose or None,
            "study": None if shown.study is None else shown.study.to_dict(),
            "decision": self.decision,
            "approval": None if self.approval is None else self.approval.approval_id.hex(),
            "people": [
                {
                    "user": each.person.user,
                    "name": each.person.name,
                    "acts_for": each.person.acts_for or None,
                    "approves": each.approves,
                    "reason": each.reason,
                    "at_unix_s": each.at_unix_s,
                }
                for each in self.decisions
            ],
            "rows": shown.rows,
            "bytes_out": self.bytes_out,
            "attempts": [attempt.to_dict() for attempt in self.attempts],
        }


class HistoryReader:
    """Reads the history of one party beside its ledger, also while its node runs. A context manager. Changes nothing.

    Raises what HistoryDatabase and Ledger.open raise.
    """

    def __init__(self, config: PartyConfig) -> None:
        self.policy = Policy.load(config.policy)
        self.database = open_history(config)
        self.history = History(self.database)
        self._decisions = Decisions(self.database)
        owner = LedgerOwner(config.federation, config.name, config.source)
        try:
            self.ledger = Ledger.open(config.ledger_file, owner, self.policy.limits.of_ledger, create=False)
        except BaseException:
            self.database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ledger.database.close()
        self.database.close()

    def page(self, page: HistoryPage) -> list[QueryRead]:
        """The queries of a page, newest first."""
        return self._read(self.history.page(page))

    def every(self, page: HistoryPage) -> Iterator[QueryRead]:
        """The queries that a page selects, newest first, whatever its limit and offset.

        until_unix_s: give a moment that is over, so that no query is added meanwhile.
        """
        offset = 0
        while part := self.page(replace(page, limit=_AT_ONCE, offset=offset)):
            yield from part
            offset += len(part)

    def find(self, prefix: str) -> QueryRead:
        """The query whose id begins with these digits. Raises ConfigurationError if there is none, or more than one."""
        try:
            found = self.history.find(prefix)
        except ValueError:
            found = []
        if not found or not prefix:
            raise ConfigurationError(f"no query of this party begins with {prefix!r}; see `rado ledger history`")
        if len(found) > 1:
            raise ConfigurationError(f"several queries begin with {prefix!r}: give more of its digits")
        return self._read(found)[0]

    def _read(self, shown: Sequence[Shown]) -> list[QueryRead]:
        events = self.history.events(each.query_id for each in shown)
        with self.ledger.database.transaction():
            charges = {each.query_id: self.ledger.attempts_of(each.query_id) for each in shown}
            used = self.ledger.approvals.used_by(each.query_id for each in shown)
            given = {each.approval_id: each for each in self.ledger.approvals.all()} if used else {}
        now = time.time()
        with self.history.readable():
            return [
                _query(
                    each,
                    events[each.query_id],
                    charges[each.query_id],
                    self._decisions.of(each.query_id),
                    now,
                    given.get(used.get(each.query_id, b"")),
                )
                for each in shown
            ]


def open_history(config: PartyConfig) -> HistoryDatabase:
    """The history of a party that exists. Raises ConfigurationError or HistoryBusyError."""
    return HistoryDatabase(config.state_directory / FILE, federation=config.federation, party=config.name, create=False)


def _query(
    shown: Shown,
    events: Sequence[Happened],
    charges: Mapping[int, RecordedCharge],
    decisions: Sequence[Decision],
    now_unix_s: float,
    approval: StoredApproval | None = None,
) -> QueryRead:
    """approval: of several queries, under which it was accepted."""
    if approval is not None:
        decisions = [*decisions, *_decisions_in(approval)]
    numbers = sorted({event.attempt for event in events if event.attempt > 0} | set(charges))
    attempts = tuple(
        _attempt(number, [event for event in events if event.attempt == number], charges.get(number))
        for number in numbers
    )
    decision = _decision(shown, events, attempts, decisions, now_unix_s)
    refusal = next((event for event in events if event.what is What.REFUSED), None)
    refused_by = Code(refusal.details["code"]) if refusal is not None and decision.startswith("refused") else None
    if approval is not None and decision.startswith("accepted"):
        decision = f"{decision}, under approval {approval.approval_id.hex()[:16]}"
    return QueryRead(shown, decision, decisions, attempts, refused_by, approval)


def _decisions_in(approval: StoredApproval) -> list[Decision]:
    """Those of the people who gave an approval of several queries."""
    return [
        Decision(Person(act.user, act.name, act.acts_for), True, act.reason, act.at_unix_s)
        for act in approval.acts
        if act.kind is ActKind.APPROVED
    ]


def _decision(
    shown: Shown,
    events: Sequence[Happened],
    attempts: Sequence[AttemptRead],
    decisions: Sequence[Decision],
    now_unix_s: float,
) -> str:
    approvals = [str(each.person) for each in decisions if each.approves]
    by_whom = f", approved by {', '.join(approvals)}" if approvals else ""
    whats = {event.what: event for event in events}
    if What.ACCEPTED in whats or any(attempt.is_charged for attempt in attempts):
        return f"accepted{by_whom}"
    if (refused := whats.get(What.REFUSED)) is not None:
        return f"refused: {_refusal(refused)}"
    if (ended := whats.get(What.ENDED)) is not None:
        asked = ended.details.get("would_accept")
        words = "only asked, and would accept it: nothing was charged"
        return words if asked else f"not answered: {ended.details['reason']}"
    if (waits := whats.get(What.WAITS)) is not None:
        if shown.not_after_unix_s < now_unix_s:
            what = "it was not both decided on and answered" if decisions else "no one decided"
            return f"not answered: {what} before it expired"
        return f"waits for a decision: {'; '.join(waits.details['reasons'])}{by_whom}"
    return _unanswered(whats)


def _refusal(event: Happened) -> str:
    code = Code(event.details["code"])
    return f"{code.value}, {event.details['detail'] or CATALOGUE[code].sentence}"


def _unanswered(whats: Mapping[What, Happened]) -> str:
    event = whats.get(What.UNANSWERED)
    return "not answered" if event is None else f"not answered: {event.details['reason']}"


def _attempt(number: int, events: Sequence[Happened], recorded: RecordedCharge | None) -> AttemptRead:
    whats = {event.what: event for event in events}
    is_charged = recorded is not None and recorded.event.charged
    cohort = whats.get(What.COHORT)
    details: Mapping[str, Any] = {} if cohort is None else cohort.details
    scopes = whats[What.CHARGED].details["scopes"] if What.CHARGED in whats else []
    if scopes:
        cost = tuple(str(ScopeCost(**scope)) for scope in scopes)
    else:
        cost = (str(recorded.event.charge),) if recorded is not None and is_charged else ()
    digest = recorded.cohort_digest if recorded is not None else None
    return AttemptRead(
        attempt=number,
        outcome=_outcome(whats, is_charged=is_charged),
        cohort=details.get("cohort"),
        cohort_digest=digest.hex() if digest else details.get("digest"),
        bytes_out=details.get("bytes") if is_charged else None,
        is_charged=is_charged,
        cost=cost,
        scopes=tuple(scopes),
        data_digest=whats[What.ACCEPTED].details.get("data") or None if What.ACCEPTED in whats else None,
    )


def _outcome(whats: Mapping[What, Happened], *, is_charged: bool) -> str:
    if What.UPLOADED in whats:
        return "charged and sent"
    if is_charged:
        return "charged; sent in part, or not at all"
    if What.REFUSED in whats:
        return f"refused: {_refusal(whats[What.REFUSED])}"
    if What.ENDED in whats:
        return f"ended without a charge: {whats[What.ENDED].details['reason']}"
    if What.WAITS in whats:
        return "waits for a decision"
    return "accepted" if What.ACCEPTED in whats else _unanswered(whats)


# The history as a file for spreadsheets.


_HEADER = (
    "time",
    "query_id",
    "learner",
    "kind",
    "asked",
    "decision",
    "cohort",
    "rows",
    "bytes_out",
    "cost",
    "purpose",
    "study",
)
# A spreadsheet computes what begins like this; a learner chooses the text of predicates.
_FORMULA = re.compile(r"^[=+\-@\t\r]")


def _cell(text: str) -> str:
    return printable(f"'{text}" if _FORMULA.match(text) else text)


def csv_of(queries: Iterable[QueryRead]) -> str:
    """CSV with one line for each query, with times in UTC."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    for each in queries:
        cohort = next((attempt.cohort for attempt in reversed(each.attempts) if attempt.cohort), {})
        row: tuple[Any, ...] = (
            f"{dt.datetime.fromtimestamp(each.shown.shown_at_unix_s, dt.UTC):%Y-%m-%dT%H:%M:%SZ}",
            each.shown.query_id.hex(),
            each.shown.learner,
            each.shown.kind,
            each.words,
            each.decision,
            " ".join(cohort),
            "" if each.shown.rows is None else each.shown.rows,
            each.bytes_out,
            each.cost,
            each.shown.purpose,
            "" if each.shown.study is None else each.shown.study.protocol_number,
        )
        writer.writerow(_cell(content) if isinstance(content, str) else content for content in row)
    return text.getvalue()
