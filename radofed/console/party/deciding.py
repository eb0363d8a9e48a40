"""The queries that wait for people, and one query in full with the form to decide on it."""

import time
from dataclasses import dataclass
from typing import Any

from dpcore.errors import ConfigurationError
from parties.approval.deciding import Explanation, explain
from parties.approval.deciding import decide as record_decision
from parties.approval.deciding import pending as find_pending
from parties.approval.decisions import DecisionError, Person, Verdict
from parties.approval.gate import ASSUMED
from parties.config import PartyConfig
from parties.history.history import ID_DIGITS
from parties.history.reading import HistoryReader
from radofed.console.pages import Answer, Goto, Shown, Visit
from radofed.console.party.fields import whole
from wire.query_summary import QuerySummary

MOST_PENDING = 100
"""Queries that wait are shown up to this number, the oldest first."""
PREDICATES_AT_ONCE = 50
_CHOICES = {"approve": True, "refuse": False}


def pending(config: PartyConfig, _: Visit) -> Answer:
    """As `rado party pending`."""
    now = time.time()
    with HistoryReader(config) as reader:
        found = find_pending(reader, now)
    values = {"found": found[:MOST_PENDING], "count": len(found), "now": now}
    return Shown("party/pending.html", "Pending queries", values)


def query(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party explain` for a query that waits, and as `rado ledger history QUERY`.

    query: `from`, the number of the first predicate that is shown.
    """
    return _in_full(config, visit, "")


def decide(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party approve` and `refuse`. form: decision, name, reason, and the digest of the policy that was seen.

    If the decision does not count, the page says why and shows the query as it is now.
    """
    query_id, form = visit.path["query"], visit.form
    if len(query_id) != ID_DIGITS:
        raise ConfigurationError("a decision is on the whole id of a query: open it from the page of pending queries")
    approves = _CHOICES.get(form.get("decision", ""))
    if approves is None:
        return _in_full(config, visit, "choose to approve or to refuse")
    try:
        record_decision(
            config,
            query_id,
            Person.present(form.get("name", "")),
            approves=approves,
            reason=form.get("reason", ""),
            policy_seen=form.get("policy", ""),
        )
    except (DecisionError, ConfigurationError) as error:
        return _in_full(config, visit, str(error))
    return Goto(f"queries/{query_id}")


@dataclass(frozen=True)
class _Predicates:
    """Some predicates of a query. first: the number of the first of them, from 1 on. before, after: 0 without any."""

    shown: tuple[str, ...]
    first: int
    count: int
    before: int
    after: int

    @classmethod
    def of(cls, asked: QuerySummary, first: int) -> "_Predicates":
        every, size = asked.predicates, PREDICATES_AT_ONCE
        start = min(first, max(1, len(every))) - 1
        end = start + size
        before = max(1, start + 1 - size) if start else 0
        return cls(every[start:end], start + 1, len(every), before, end + 1 if end < len(every) else 0)


def _in_full(config: PartyConfig, visit: Visit, problem: str) -> Answer:
    """problem: why nothing was decided, empty if that was not asked for."""
    now = time.time()
    first = whole(visit.query.get("from"), "from", default=1, least=1)
    with HistoryReader(config) as reader:
        found = reader.find(visit.path["query"])
        query_id = found.shown.query_id.hex()
        waits = reader.history.waits(found.shown.query_id) and found.shown.not_after_unix_s >= now
        explanation: Explanation | None = None
        unexplained = ""
        if waits:
            try:
                explanation = explain(config, reader, query_id, now)
            except ConfigurationError as error:
                unexplained = str(error)
        policy = reader.policy
    asked = explanation.asked if explanation else found.asked
    values: dict[str, Any] = {
        "id": query_id,
        "found": found,
        "asked": asked,
        "predicates": None if asked is None or not asked.predicates else _Predicates.of(asked, first),
        "explanation": explanation,
        "cost_assumed": ASSUMED,
        "signed": explanation.signed if explanation else found.signed,
        "unexplained": unexplained,
        "is_open": explanation is not None and explanation.decided.verdict is Verdict.UNDECIDED,
        "policy_digest": policy.digest,
        "asks_names": policy.approval.names,
        "problem": problem,
        "form": visit.form,
        "now": now,
    }
    return Shown("party/query.html", f"Query {query_id[:12]}", values)
