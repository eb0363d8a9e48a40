"""The console of a party: each page and action is a function of the configuration and a visit."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from dpcore.errors import ConfigurationError, RadofedError
from parties.approval.deciding import Explanation, explain
from parties.approval.deciding import decide as record_decision
from parties.approval.deciding import pending as find_pending
from parties.approval.decisions import DecisionError, Pause, Pauses, Person, Verdict
from parties.approval.gate import ASSUMED
from parties.approval.giving import do
from parties.config import PartyConfig
from parties.history.history import ID_DIGITS, HistoryPage
from parties.history.reading import HistoryReader, csv_of, open_history
from parties.history.studies import studies_of
from parties.ledger.budgets import Period, budgets, scope_words, state_of
from parties.ledger.ledger import Steps
from parties.ledger.limits import room
from parties.members import known_rosters, members_of
from parties.policy import Policy
from parties.preflight import preflight
from parties.report.gathering import gather
from parties.report.page import budget_plots, document
from radobase.local_status import NotRunningError, UnreadableStateError, read_status
from radobase.logs import LEVELS, newest
from radobase.metrics import Reason, reason_lines
from radobase.presentation.words import day
from radobase.printing import moment
from radofed import __version__
from radofed.console import approvals
from radofed.console.approvals import offers, order_of
from radofed.console.pages import Answer, File, Goto, Shown, Views, Visit
from wire.query_summary import QuerySummary

# The start page: whether the party's node runs, what it does, and whether people paused it.

T = TypeVar("T")


def status(config: PartyConfig, _: Visit) -> Answer:
    """The whole page. Its upper part is fetched again every few seconds (`status_now`)."""
    return Shown("party/status.html", "Status", _values(config))


def status_now(config: PartyConfig, visit: Visit) -> Answer:
    """What changes of the page. query: `paused`, whether the rest of the page shows a pause."""
    values = _values(config)
    changed = visit.query.get("paused") != values["paused_word"]
    return Shown("party/status_now.html", values=values | {"changed": changed})


def pause(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party pause`. form: name, reason."""
    person = Person.present(visit.form.get("name", ""))
    _with_pauses(config, lambda pauses: pauses.pause(person, visit.form.get("reason", ""), time.time()))
    return Goto("status")


def resume(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party resume`. form: name."""
    person = Person.present(visit.form.get("name", ""))
    _with_pauses(config, lambda pauses: pauses.resume(person, time.time()))
    return Goto("status")


def _values(config: PartyConfig) -> dict[str, Any]:
    running: dict[str, Any] | None
    codes: list[str] = []
    try:
        running, fault = read_status(config.state_directory), ""
        codes = running["not_ready"]
    except UnreadableStateError as error:
        running, fault, codes = None, str(error), [Reason.STATE_UNREADABLE.value]
    except NotRunningError as error:
        running, fault = None, str(error)
    # The history may be damaged, or not be there before the first start: the rest is shown all the same.
    pause: Pause | None
    try:
        (pause, unanswered), history_fault = _with_pauses(config, _paused), ""
    except RadofedError as error:
        pause, unanswered, history_fault = None, 0, str(error)
    return {
        "now": time.time(),
        "status": running,
        "fault": fault,
        "not_ready": reason_lines(codes),
        "pause": pause,
        "unanswered": unanswered,
        "paused_word": "yes" if pause else "no",
        "history_fault": history_fault,
        "changed": False,
    }


def _paused(pauses: Pauses) -> tuple[Pause | None, int]:
    """The pause that lasts, and how many queries came meanwhile."""
    pause = pauses.present()
    return pause, 0 if pause is None else pauses.unanswered(pause)


def _with_pauses(config: PartyConfig, function: Callable[[Pauses], T]) -> T:
    database = open_history(config)
    try:
        return function(Pauses(database))
    finally:
        database.close()


# What people type into a page's fields.


def whole(text: str | None, name: str, *, default: int, least: int = 0, most: int = 1 << 31) -> int:
    """A whole number. Raises ConfigurationError if it is none, or out of range."""
    if not text:
        return default
    # int() reads signs, spaces and underscores, too.
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise ConfigurationError(f"{name} is a whole number from {least} to {most}")
    return int(text)


@dataclass(frozen=True)
class PeriodFields:
    """The fields `since` and `until` of a form, as typed and as Unix seconds; None if a field is empty."""

    since: str
    until: str
    since_unix_s: float | None
    until_unix_s: float | None

    @classmethod
    def of(cls, visit: Visit) -> "PeriodFields":
        """Raises ConfigurationError if a field is no date or time."""
        since, until = (visit.query.get(name, "").strip() for name in ("since", "until"))
        return cls(since, until, moment(since, 0.0) if since else None, moment(until, 0.0) if until else None)


def address(path: str, **query: str | int) -> str:
    """A path of the console with what follows "?", without empty fields."""
    given = {name: value for name, value in query.items() if value not in {"", 0}}
    return f"{path}?{urlencode(given)}" if given else path


# The queries that wait for people, and one query in full with the form to decide on it.

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

    covers, epsilon, until: of an approval of several queries.

    If the decision does not count, the page says why and shows the query as it is now.
    """
    query_id, form = visit.path["query"], visit.form
    if len(query_id) != ID_DIGITS:
        raise ConfigurationError("a decision is on the whole id of a query: open it from the page of pending queries")
    approves = _CHOICES.get(form.get("decision", ""))
    if approves is None:
        return _in_full(config, visit, "choose to approve or to refuse")
    try:
        person, reason, seen = Person.present(form.get("name", "")), form.get("reason", ""), form.get("policy", "")
        if approves and (order := order_of(form)) is not None:
            do(config, order, query_id, person, reason, policy_seen=seen)
            return Goto("approvals")
        record_decision(config, query_id, person, approves=approves, reason=reason, policy_seen=seen)
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
    asked, envelope = explanation.asked if explanation else found.asked, found.shown.envelope
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
        "offers": [] if envelope is None or explanation is None else offers(envelope, now),
        "policy_digest": policy.digest,
        "asks_names": policy.approval.names,
        "problem": problem,
        "form": visit.form,
        "now": now,
    }
    return Shown("party/query.html", f"Query {query_id[:12]}", values)


# What was spent, what remains, and the report on a period.

MOST_STEPS = 40
"""Steps of a plot: few, because each takes time that a visitor waits for."""
_SHORTEST_S = 3600.0


def budget(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado ledger show`, with the figures of `rado party report` on the budget over time.

    query: since, until of the plot. Default: from the first charge until now.
    """
    now, fields = time.time(), PeriodFields.of(visit)
    until = min(now, fields.until_unix_s or now)
    with HistoryReader(config) as reader:
        limits, first_unix_s = reader.policy.limits.of_ledger, reader.ledger.first_charge_unix_s()
        since = fields.since_unix_s
        if since is None:
            since = min(first_unix_s or until, until - _SHORTEST_S) - 1.0
        events = reader.ledger.merged_events(now, Steps(since, until, MOST_STEPS))
        last = reader.ledger.last_charge()
    counted = [event for event in events if event.recorded_at_unix_s < until]
    state = state_of(limits, events, now_unix_s=now)
    # Of a period until now, it is that of the plot, too.
    at_end = state if len(counted) == len(events) else state_of(limits, counted, now_unix_s=None)
    over_time = budgets(at_end, counted, since, MOST_STEPS)
    values = {
        "state": state,
        "scope_words": scope_words,
        "budgets": over_time,
        "left_out": len(state.scopes) - len(over_time),
        "room": room(limits, events, last, now),
        "plots": budget_plots(over_time, Period(since, until), until),
        "fields": fields,
        "first_day": day(first_unix_s or now),
        "now": now,
    }
    return Shown("party/budget.html", "Budget", values)


def report(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party report`. query: since, until; `saved` for the page as a file."""
    now, fields = time.time(), PeriodFields.of(visit)
    since, until = fields.since_unix_s or 0.0, fields.until_unix_s or now
    made = document(gather(config, since, until, now, __version__))
    if visit.query.get("saved"):
        return File(f"report-{config.name}-{day(since)}-to-{day(until)}.html", made.saved().encode(), "text/html")
    return Shown.of(made, address("report", since=fields.since, until=fields.until, saved="yes"))


# What the party was asked, newest first.

AT_ONCE, MOST_AT_ONCE = 50, 100


def _page(visit: Visit) -> tuple[HistoryPage, PeriodFields]:
    """Which queries a visit asks for. query: learner, since, until, limit, skip."""
    period = PeriodFields.of(visit)
    page = HistoryPage(
        limit=whole(visit.query.get("limit"), "limit", default=AT_ONCE, least=1, most=MOST_AT_ONCE),
        offset=whole(visit.query.get("skip"), "skip", default=0),
        learner=visit.query.get("learner", "").strip() or None,
        since_unix_s=period.since_unix_s or 0.0,
        until_unix_s=float("inf") if period.until_unix_s is None else period.until_unix_s,
    )
    return page, period


def history(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado ledger history`, with its filters."""
    page, period = _page(visit)
    with HistoryReader(config) as reader:
        queries, count = reader.page(page), reader.history.count(page)
        learners = [learner.name for learner in reader.policy.learners]
    end = page.offset + len(queries)
    chosen = {"learner": page.learner or "", "since": period.since, "until": period.until}
    size = page.limit if page.limit != AT_ONCE else 0

    def at(skip: int) -> str:
        return address("history", **chosen, limit=size, skip=skip)

    values = {
        "queries": queries,
        "count": count,
        "first": page.offset + 1,
        "last": end,
        "newer": at(max(0, page.offset - page.limit)) if page.offset else "",
        "older": at(end) if queries and end < count else "",
        "csv": address("history.csv", **chosen),
        "chosen": chosen,
        "learners": learners,
    }
    return Shown("party/history.html", "History", values)


def history_csv(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado ledger history --csv`: every query that the filters select."""
    page, _ = _page(visit)
    # Without those that come meanwhile, so that no line is twice in the file.
    until = min(page.until_unix_s, time.time())
    with HistoryReader(config) as reader:
        selected = HistoryPage(learner=page.learner, since_unix_s=page.since_unix_s, until_unix_s=until)
        text = csv_of(reader.every(selected))
    return File(f"history-{config.name}.csv", text.encode(), "text/csv")


def studies(config: PartyConfig, _: Visit) -> Answer:
    """As `rado party studies`."""
    with HistoryReader(config) as reader:
        found = studies_of(reader)
    return Shown("party/studies.html", "Studies", {"studies": found, "scope_words": scope_words})


# The members, the checks and the log of a party.

MOST_LINES = 200
MOST_SHOWN_BYTES = 128 << 10


def members(config: PartyConfig, _: Visit) -> Answer:
    """The roster that the node stored last and the members that left, and what the policy says of each."""
    rosters, policy = known_rosters(config), Policy.load(config.policy)
    roster = rosters.known
    values = {
        "roster": roster,
        "members": () if roster is None else members_of(roster, policy, config.name, rosters.former()),
        "warning": "" if roster is None else roster.expiry_warning(time.time()),
        "needed": policy.members_needed(1),
    }
    return Shown("party/members.html", "Members", values)


def checks(_: PartyConfig, __: Visit) -> Answer:
    """The button that runs the checks: they take seconds, and connect to the coordinator."""
    return Shown("party/checks.html", "Checks", {"findings": (), "bad": 0, "now": time.time()})


def run_checks(config: PartyConfig, _: Visit) -> Answer:
    """As `rado party check`."""
    findings = preflight(config)
    bad = sum(finding.status in {"failed", "not run"} for finding in findings)
    return Shown("party/checks.html", "Checks", {"findings": findings, "bad": bad, "now": time.time()})


def logs(config: PartyConfig, visit: Visit) -> Answer:
    """As `rado party logs`. query: level, the lowest that is shown."""
    level = visit.query.get("level", "")
    level = level if level in LEVELS else LEVELS[0]
    values: dict[str, Any] = {"file": config.log_file, "level": level, "levels": LEVELS, "lines": []}
    if config.log_file is not None:
        values["lines"] = newest(config.log_file, level, MOST_LINES, most_shown_bytes=MOST_SHOWN_BYTES)
    return Shown("party/logs.html", "Logs", values)


# All pages and actions of a party's console.

_PAGES: dict[str, Callable[[PartyConfig, Visit], Answer]] = {
    "status": status,
    "status/now": status_now,
    "pending": pending,
    "approvals": approvals.page,
    "queries/{query}": query,
    "history": history,
    "history.csv": history_csv,
    "studies": studies,
    "budget": budget,
    "report": report,
    "members": members,
    "checks": checks,
    "logs": logs,
}
_NAVIGATION = ("status", "pending", "approvals", "history", "studies", "budget", "members", "checks", "logs")
_ACTIONS: dict[str, Callable[[PartyConfig, Visit], Answer]] = {
    "pause": pause,
    "resume": resume,
    "queries/{query}": decide,
    "approvals/{approval}": approvals.act,
    "checks": run_checks,
}


def party_views(config: Path) -> Views:
    """The views of the party with this configuration file. Raises ConfigurationError."""
    loaded = PartyConfig.load(config)
    return Views(
        role="party",
        member=loaded.name,
        federation=loaded.federation,
        navigation=[(each, each.capitalize()) for each in _NAVIGATION],
        pages={path: partial(show, loaded) for path, show in _PAGES.items()},
        actions={path: partial(act, loaded) for path, act in _ACTIONS.items()},
    )
