"""A party's evidence to file: the outputs of a period, after history and ledger were checked against each other."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpcore.errors import ConfigurationError
from parties.config import PartyConfig
from parties.history.history import What
from parties.history.reading import AttemptRead, HistoryReader, QueryRead, scope_costs
from parties.ledger.limits import DAY_S
from parties.members import known_rosters
from parties.report.gathering import MOST_LISTED, Report, ReportedQuery
from parties.report.page import RECORD, assumptions, not_protected
from radobase.presentation.five_safes import ANSWER, NOT_CHECKED, OPEN, PASSED, Approval, Check, Output, Project
from radobase.presentation.words import texts, unit
from radobase.printing import amount
from wire.envelopes import Envelope, MessageType, fingerprint
from wire.errors import WireError
from wire.query_summary import signed_parts
from wire.roster import Role

_MOST_FAULTS = 5
_DIGITS = 16


class DamagedEvidenceError(ConfigurationError):
    """History and ledger do not agree, or one of them is damaged. Nothing was written."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        more = f"; and {amount(len(faults) - _MOST_FAULTS, 'more fault')}" if len(faults) > _MOST_FAULTS else ""
        super().__init__(
            "no evidence was written, because what it is made from is incomplete or damaged: "
            f"{'; '.join(faults[:_MOST_FAULTS])}{more}. Keep the files as they are, run `rado ledger verify`, and ask "
            "the data officer"
        )


@dataclass(frozen=True)
class _Kept:
    """What is kept of an answered query."""

    query: ReportedQuery
    envelope: Envelope | None
    """None once it was kept for long enough."""
    charged_unix_s: float
    """The last charge."""
    costs: Sequence[Mapping[str, Any]]
    """Of the last charged attempt in each scope, widest first; by today's limits if none was noted with the charge."""
    waited: bool
    """Whether it waited for people's decision."""


def outputs(config: PartyConfig, report: Report) -> tuple[Output, ...]:
    """The outputs of a report's period, oldest first: the answered queries that were shown to this party in it.

    Raises DamagedEvidenceError with every fault that is found, ConfigurationError if there is no output, or more than a
    report lists, and what HistoryReader raises.
    """
    if report.count > MOST_LISTED:
        raise ConfigurationError(
            f"the period has {report.count} queries, and evidence holds {MOST_LISTED}: give shorter periods"
        )
    answered = [query for query in report.queries if query.charged]
    faults: list[str] = []
    with HistoryReader(config) as reader:
        faults += _file_faults(reader)
        faults += _faults(report, reader)
        kept = [_kept(query, reader) for query in answered]
    keys = _learner_keys(config)
    faults += [fault for each in kept for fault in _query_faults(each, keys, config.federation)]
    if faults:
        raise DamagedEvidenceError(faults)
    if not kept:
        raise ConfigurationError("no answer was charged for a query of this period: there is no output to file")
    return tuple(_output(each, report, keys) for each in reversed(kept))


def _file_faults(reader: HistoryReader) -> Iterator[str]:
    with reader.database.reading() as connection:
        for (found,) in connection.execute("PRAGMA integrity_check"):
            if found != "ok":
                yield f"{reader.database.path.name}: SQLite: {found}"
    yield from (f"the ledger: {fault}" for fault in reader.ledger.verify())
    if cause := reader.ledger.database.set_back():
        yield f"the ledger: {cause}"


def _faults(report: Report, reader: HistoryReader) -> Iterator[str]:
    """Where history and ledger differ about the period."""
    known = {query.read.shown.query_id for query in report.queries}
    # A charge without a learner is an acknowledgement, and no query.
    charged = {query_id: at for query_id, learner, at in reader.ledger.charged_queries() if learner}
    since, until = report.period.since_unix_s, report.as_of_unix_s
    for query_id, at in charged.items():
        if since <= at < until and query_id not in known and not reader.history.find(query_id.hex()):
            days = report.policy.history.days
            forgotten = (
                f": it was forgotten after {days} days, so begin the period later" if at < until - days * DAY_S else ""
            )
            yield f"query {query_id.hex()[:_DIGITS]}: charged in the ledger, and not in the history{forgotten}"
    for query in report.queries:
        name = f"query {query.read.shown.query_id.hex()[:_DIGITS]}"
        if query.read.shown.query_id in charged and not query.read.shown.kind:
            yield f"{name}: the history does not hold what was asked, only the ledger's charge"
        for attempt in query.read.attempts:
            if "sent" in attempt.outcome and not attempt.is_charged:
                yield f"{name}, attempt {attempt.attempt}: sent, and not charged"


def _kept(query: ReportedQuery, reader: HistoryReader) -> _Kept:
    query_id = query.read.shown.query_id
    found = reader.history.find(query_id.hex())
    attempts, last = reader.ledger.attempts_of(query_id), query.read.charged[-1]
    noted = last.scopes or scope_costs(attempts[last.attempt].event.charge, reader.ledger.state())
    costs = [{key: scope.get(key) for key in ("scope", "cost", "limit_epsilon", "limit_delta")} for scope in noted]
    if found:
        # A page has no signed texts.
        query = replace(query, read=replace(query.read, shown=found[0]))
    times = [attempts[each.attempt].event.recorded_at_unix_s for each in query.read.charged]
    waited = any(event.what is What.WAITS for event in reader.history.events([query_id])[query_id])
    return _Kept(query, query.read.shown.envelope, max(times), costs, waited)


def _learner_keys(config: PartyConfig) -> dict[str, list[bytes]]:
    """The signing keys of each learner, in all rosters that this party keeps."""
    rosters = known_rosters(config)
    keys: dict[str, list[bytes]] = {}
    for roster in [*rosters.former(), *([] if rosters.known is None else [rosters.known])]:
        for member in roster.members:
            if member.role is Role.LEARNER and member.signing_key not in keys.setdefault(member.name, []):
                keys[member.name].append(member.signing_key)
    return keys


def _signer(kept: _Kept, keys: Mapping[str, list[bytes]], federation: str) -> bytes | None:
    """The key that signed the query; None if the query is not kept. Raises WireError if no known key did."""
    if kept.envelope is None:
        return None
    cause: WireError | None = None
    for key in keys.get(kept.query.read.shown.learner, ()):
        try:
            kept.envelope.open(MessageType.QUERY, federation, key)
        except WireError as error:
            cause = error
        else:
            return key
    if cause is not None:
        raise cause
    return None


def _query_faults(kept: _Kept, keys: Mapping[str, list[bytes]], federation: str) -> Iterator[str]:
    shown = kept.query.read.shown
    name = f"query {shown.query_id.hex()[:_DIGITS]}"
    if kept.envelope is None:
        return
    if kept.envelope.payload_hash != shown.query_id:
        yield f"{name}: the history's copy of it was changed: its digest is another one"
        return
    try:
        _signer(kept, keys, federation)
    except WireError:
        yield f"{name}: no key of learner {shown.learner} that this party knows signed the history's copy of it"


def _output(kept: _Kept, report: Report, keys: Mapping[str, list[bytes]]) -> Output:
    query, read = kept.query, kept.query.read
    signer = _signer(kept, keys, report.federation)
    known = {
        member.fingerprint for member in report.members if member.name == read.shown.learner and member.fingerprint
    }
    key = fingerprint(signer) if signer is not None else (known.pop() if len(known) == 1 else "")
    last = read.charged[-1]
    return Output(
        what=ANSWER,
        identity=read.shown.query_id.hex(),
        learner=read.shown.learner,
        key=key,
        project=Project.of(read.shown.study, read.shown.purpose),
        words=read.words,
        asked=_asked(query),
        privacy=_privacy(kept, last, report),
        checks=tuple(_checks(kept, last, signer, report)),
        approvals=tuple(
            Approval(
                each.person.user,
                each.person.name,
                each.approves,
                each.reason,
                each.at_unix_s,
                each.person.acts_for,
            )
            for each in read.decisions
        ),
        rule=read.decision,
        began_unix_s=min(read.shown.shown_at_unix_s, kept.charged_unix_s),
        ended_unix_s=kept.charged_unix_s,
        signed=None if kept.envelope is None else _signed(kept.envelope),
    )


def _asked(query: ReportedQuery) -> dict[str, Any]:
    whole = query.read.asked
    return {
        "words": query.read.words,
        "kind": query.read.shown.kind,
        "purpose": query.read.shown.purpose or None,
        "columns": None if query.columns is None else list(query.columns),
        "predicates": list(query.predicates) if whole is None else list(whole.predicates),
        "rows_of_this_party": query.read.shown.rows,
        "terms": None if whole is None else whole.to_dict(),
    }


def _signed(envelope: Envelope) -> dict[str, Any]:
    """The bytes that were signed, for whoever verifies them, and each field for people."""
    return {
        "payload": base64.b64encode(envelope.payload).decode(),
        "signature": base64.b64encode(envelope.signature).decode(),
        "fields": [part.to_dict() for part in signed_parts(envelope.payload)],
    }


def _privacy(kept: _Kept, last: AttemptRead, report: Report) -> dict[str, Any]:
    query, widest = kept.query, kept.costs[0]
    return {
        "epsilon": widest["cost"],
        "delta": widest["limit_delta"],
        "scope": widest["scope"],
        "scopes": list(kept.costs),
        "unit": unit(RECORD),
        "neighbours": "one row replaced, the number of rows being fixed",
        "epsilon_is_of": "one attempt, with the noise of the honest parties alone; each charged attempt costs it",
        "honest_parties": query.honest_parties,
        "attempts": [attempt.to_dict() for attempt in query.read.charged],
        "cost_in_words": list(last.cost),
        "assumptions": texts(assumptions(report)),
        "not_protected": texts(not_protected(report)),
    }


def _checks(kept: _Kept, last: AttemptRead, signer: bytes | None, report: Report) -> Iterator[Check]:
    read = kept.query.read
    if signer is not None:
        yield Check("the learner signed this query", PASSED, "its signature was verified again for this record")
    else:
        how = (
            "it is not kept any more" if kept.envelope is None else "this party keeps no roster with the learner's key"
        )
        yield Check("the learner signed this query", NOT_CHECKED, f"by the node before it answered; now {how}")
    what = "the policy allowed it, and people where it asks them"
    if kept.waited and not any(each.approves for each in read.decisions):
        # A person could have removed them from the history, which nobody else witnesses.
        how = (
            "it waited for a decision, and no approval of it is kept: the policy changed then, or the record did since"
        )
        yield Check(what, OPEN, how)
    else:
        yield Check(what, PASSED, f"by the node: {read.decision}")
    yield Check(
        "its cost was charged before anything left",
        PASSED,
        f"the ledger's chain of {amount(report.head_entries, 'entry')} was recomputed for this record",
    )
    yield _cohort_check(read, last)
    yield _bound_check(kept.costs[0])


def _cohort_check(read: QueryRead, last: AttemptRead) -> Check:
    what = "the total is over as many parties as the query states"
    if read.asked is None or last.cohort is None:
        return Check(what, NOT_CHECKED, "by the node before it answered; query or cohort are not kept any more")
    found, needed = len(last.cohort), read.asked.cohort_min
    return Check(what, PASSED if found >= needed else OPEN, f"{amount(found, 'party')}, at least {needed} asked for")


def _bound_check(widest: Mapping[str, Any]) -> Check:
    what = "noise bounds what it says about one row"
    if widest["cost"] is None:
        return Check(what, OPEN, "nothing bounds it for whole rows: the policy allows such queries")
    return Check(what, PASSED, f"epsilon {widest['cost']:.6g} at delta {widest['limit_delta']:g}, {widest['scope']}")
