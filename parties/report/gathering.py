"""What a report on a period says, gathered from history, ledger, policy and roster. Nothing is rendered here.

No value of a row is read: row counts are those that acceptances state anyway. Nothing is changed or charged, and the
node may run meanwhile.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from dpcore.accounting.odds import exceptions, right_guesses
from parties.approval.standing import Approval, Standing
from parties.config import PartyConfig
from parties.history.history import HistoryPage, PoliciesRead, policies_of
from parties.history.reading import HistoryReader, QueryRead
from parties.history.studies import Stated, StudyRead, stated_in, studies
from parties.ledger.budgets import Period, ScopeBudget, ScopeState, budgets, charged_since, state_of
from parties.ledger.charges import RECORD, Charge
from parties.ledger.limits import Event, more_like
from parties.members import MemberRow, known_rosters, members_of
from parties.policy import Policy
from radobase.presentation.words import chances
from wire.errors import CATALOGUE
from wire.query_summary import QuerySummary, SignedPart
from wire.roster import Role
from wire.study import Study

MOST_LISTED = 1000
"""The newest queries of the period that a report lists one by one; totals count all."""
MOST_PREDICATES = 20
"""Predicates of a query that a report's list of queries shows."""
MOST_SIGNED_CHARACTERS = 2_000_000
"""Text of the signed fields that a report shows, of the newest queries that were decided on by people or answered."""


@dataclass(frozen=True)
class ReportedQuery:
    """A query as the report lists it."""

    read: QueryRead
    columns: tuple[str, ...] | None
    """None if its signed text is not kept, and so `honest_parties`."""
    predicates: tuple[str, ...]
    """The first ones."""
    more_predicates: int
    """How many more there are."""
    honest_parties: int | None
    signed: tuple[SignedPart, ...] | None = None
    """Every field, of a query that was answered or that people approved; None of others, and of those for which a
    report has no room."""

    @property
    def is_allowed(self) -> bool:
        """Whether this party answered it, or a person approved it."""
        return bool(self.charged) or any(each.approves for each in self.read.decisions)

    @property
    def charged(self) -> int:
        """Number of charged attempts."""
        return sum(attempt.is_charged for attempt in self.read.attempts)

    @property
    def unnamed(self) -> bool:
        """Whether the words of the query leave out a predicate."""
        return bool(self.more_predicates) or any(each not in self.read.words for each in self.predicates)

    @property
    def cost(self) -> tuple[str, ...]:
        """What the last charged attempt cost, for each scope."""
        return next((attempt.cost for attempt in reversed(self.read.attempts) if attempt.is_charged), ())

    @property
    def reason(self) -> str:
        """What the code of a refusal means; empty if it was not refused."""
        return "" if self.read.refused_by is None else CATALOGUE[self.read.refused_by].sentence

    @property
    def cohort(self) -> tuple[str, ...]:
        """The parties of the last attempt that had a cohort."""
        return next((tuple(attempt.cohort) for attempt in reversed(self.read.attempts) if attempt.cohort), ())

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return self.read.to_dict() | {
            "columns": None if self.columns is None else list(self.columns),
            "predicates": list(self.predicates),
            "more_predicates": self.more_predicates,
            "honest_parties": self.honest_parties,
            "signed": None if self.signed is None else [part.to_dict() for part in self.signed],
        }


@dataclass(frozen=True)
class Asker:
    """What one learner asked in the period."""

    learner: str
    queries: int
    answered: int
    """Queries with a charged attempt."""
    charged: int
    """Attempts."""
    bytes_out: int


@dataclass(frozen=True)
class Chances:
    """The chance of a guess about one record in words: before, and at most after what is spent, or the whole limit.

    after_limit: None if more is spent than the limit admits, which was lowered then: it bounded none of the answers.
    """

    before: str
    after_spent: str
    after_limit: str | None


@dataclass(frozen=True)
class Report:
    """What a report on a period says."""

    federation: str
    party: str
    data_source: str
    version: str
    made_at_unix_s: float
    period: Period
    as_of_unix_s: float
    """Up to when queries and charges count."""
    rows: int | None
    """Of this party in the last query that was shown, None if none says."""
    count: int
    """Queries of the period."""
    queries: tuple[ReportedQuery, ...]
    """The newest of them."""
    askers: tuple[Asker, ...]
    decisions: tuple[tuple[str, int], ...]
    purposes: tuple[tuple[str, int], ...]
    """Those that queries of the period state, with the number of queries."""
    stated: tuple[Stated, ...]
    """What queries of the period state of their studies."""
    studies: tuple[StudyRead, ...]
    """Every study that these queries, a charge until the end of the period or the policy names, with its budget."""
    bytes_out: int
    """Encrypted bytes that left for queries of the period."""
    charged: int
    """Attempts that were charged within the period."""
    last_charged: str | None
    has_last: bool
    """Whether an attempt of a query was charged."""
    more: int | None
    """How many more attempts like the last one fit, None if any number does."""
    budgets: tuple[ScopeBudget, ...]
    scopes_left_out: int
    unbounded: int
    warning: str
    chances: tuple[Chances, ...]
    """For whole records."""
    exceptions: float
    """A bound on the probability that a chance after an answer is exceeded."""
    right_guesses: str | None
    """Of 100, within the limit; None if nothing is stated."""
    roster_version: int | None
    roster_expiry: str
    members: tuple[MemberRow, ...]
    policy: Policy
    policies: PoliciesRead
    """Of all decisions until then that the history keeps."""
    honest_parties: tuple[int, ...]
    approvals: tuple[Approval, ...]
    """Of several queries: those about which people did something until the end of the period."""
    head_entries: int
    head_digest: str
    """The ledger's chain when the report was made."""

    @property
    def people(self) -> tuple[tuple[str, int, int], ...]:
        """Who decided on queries that the page shows, with the numbers of those approved and refused."""
        found: dict[str, list[int]] = {}
        for query in self.queries:
            for decision in query.read.decisions:
                found.setdefault(str(decision.person), [0, 0])[not decision.approves] += 1
        return tuple((person, approved, refused) for person, (approved, refused) in found.items())

    @property
    def without_purpose(self) -> int:
        """The number of queries of the period that state no purpose, or whose words are not kept any more."""
        return self.count - sum(queries for _, queries in self.purposes)

    @property
    def studies_named(self) -> tuple[tuple[Study, int], ...]:
        """The studies that queries of the period name, with the number of queries."""
        return tuple((each.study, each.queries) for each in self.stated)

    @property
    def without_study(self) -> int:
        """The number of queries of the period that name none."""
        return self.count - sum(each.queries for each in self.stated)

    @property
    def record(self) -> ScopeBudget:
        """The budget of whole records."""
        return self.budgets[0]

    @property
    def parties(self) -> tuple[MemberRow, ...]:
        """The parties of the roster, without those that left."""
        return tuple(each for each in self.members if each.role == Role.PARTY.value and each.left_after is None)

    @property
    def limits_changed(self) -> bool:
        """Whether the ledger's limits are known to have changed since the first decision that names them."""
        known = {each.limits for each in self.policies.policies}
        return bool(known) and known != {str(self.policy.limits.of_ledger)}

    @property
    def limits_changed_in_period(self) -> bool | None:
        """Whether they are known to have changed within the period; None if a change may have been within it.

        A change was between the last decision under the old limits and the first under the new ones.
        """
        limits, since, until = self.policies.limits, self.period.since_unix_s, self.period.until_unix_s
        changes = [(before.last_unix_s, after.first_unix_s) for before, after in pairwise(limits)]
        if limits and limits[-1].limits != str(self.policy.limits.of_ledger):
            changes.append((limits[-1].last_unix_s, self.made_at_unix_s))
        if any(since <= after_this and before_this <= until for after_this, before_this in changes):
            return True
        maybe = any(before_this >= since and after_this < until for after_this, before_this in changes)
        return None if maybe else False

    def to_dict(self) -> dict[str, Any]:
        """All figures by name, in JSON types."""
        return {
            "federation": self.federation,
            "party": self.party,
            "data_source": self.data_source,
            "made_at_unix_s": self.made_at_unix_s,
            "since_unix_s": self.period.since_unix_s,
            "until_unix_s": self.period.until_unix_s,
            "as_of_unix_s": self.as_of_unix_s,
            "rows": self.rows,
            "count": self.count,
            "queries": [query.to_dict() for query in self.queries],
            "learners": [asdict(asker) for asker in self.askers],
            "decisions": dict(self.decisions),
            "bytes_out": self.bytes_out,
            "attempts_charged": self.charged,
            "last_charged": self.last_charged,
            "more_like_the_last": self.more if self.has_last else None,
            "any_number_more_like_the_last": self.has_last and self.more is None,
            "budgets": [asdict(budget) for budget in self.budgets],
            "unbounded_events": self.unbounded,
            "warnings": [self.warning] if self.warning else [],
            "chances": [asdict(chance) for chance in self.chances],
            "exceptions": self.exceptions,
            "right_guesses": self.right_guesses,
            "roster_version": self.roster_version,
            "members": [asdict(member) for member in self.members],
            "policy": self.policy.model_dump(mode="json"),
            "policies": [asdict(each) for each in self.policies.policies],
            "decisions_without_policy": self.policies.unknown,
            "limits_changed": self.limits_changed,
            "limits_changed_in_period": self.limits_changed_in_period,
            "purpose": [{"text": text, "queries": queries} for text, queries in self.purposes] or None,
            "studies": [each.to_dict() for each in self.studies],
            "approvals": [each.to_dict(self.as_of_unix_s) for each in self.approvals],
            "ledger_entries": self.head_entries,
            "ledger_digest": self.head_digest,
        }


def gather(config: PartyConfig, since_unix_s: float, until_unix_s: float, now_unix_s: float, version: str) -> Report:
    """The report of a party on a period. version: of this program.

    Raises ConfigurationError if the period is empty, and what HistoryReader raises.
    """
    as_of = min(until_unix_s, now_unix_s)
    period = Period(since_unix_s, until_unix_s)
    Period(since_unix_s, as_of)
    rosters = known_rosters(config)
    roster = rosters.known
    with HistoryReader(config) as reader:
        # A query that is shown meanwhile is outside of the pages, so that none moves.
        queries = list(reader.every(HistoryPage(since_unix_s=since_unix_s, until_unix_s=as_of)))
        listed = _listed(reader, queries[:MOST_LISTED])
        events = [event for event in reader.ledger.events() if event.recorded_at_unix_s < as_of]
        policy, head = reader.policy, reader.ledger.head()
        policies = policies_of(reader.database, as_of)
        stated = stated_in(reader.history, since_unix_s, as_of)
        every = Standing(reader.ledger.approvals, reader.database).all(policy)
    limits = policy.limits.of_ledger
    state = state_of(limits, events, now_unix_s=None)
    within, over_time = charged_since(events, since_unix_s), budgets(state, events, since_unix_s)
    last = next((query for query in listed if query.charged), None)
    charge = _last_charge(listed, within)
    record = next(each for each in state.scopes if each.scope == RECORD)
    return Report(
        federation=config.federation,
        party=config.name,
        data_source=config.source,
        version=version,
        made_at_unix_s=now_unix_s,
        period=period,
        as_of_unix_s=as_of,
        rows=next((query.shown.rows for query in queries if query.shown.rows is not None), None),
        count=len(queries),
        queries=listed,
        askers=_askers(queries),
        decisions=_decisions(queries),
        purposes=tuple(Counter(query.shown.purpose for query in queries if query.shown.purpose).most_common()),
        stated=tuple(stated),
        studies=studies(policy, stated, events),
        approvals=tuple(each for each in every if any(act.at_unix_s < as_of for act in each.stored.acts)),
        bytes_out=sum(query.bytes_out for query in queries),
        charged=len(within),
        last_charged=None if last is None else last.read.words,
        has_last=charge is not None,
        more=None if charge is None else more_like(limits, events, charge),
        budgets=over_time,
        scopes_left_out=len(state.scopes) - len(over_time),
        unbounded=state.unbounded_charged,
        warning=state.warning,
        chances=() if state.unbounded_charged else _chances(record),
        exceptions=exceptions(float(record.limit.delta)),
        right_guesses=None if state.unbounded_charged or not _limit_holds(record) else _right_guesses(record),
        roster_version=None if roster is None else roster.version,
        roster_expiry="" if roster is None else roster.expiry_date,
        members=() if roster is None else members_of(roster, policy, config.name, rosters.former()),
        policy=policy,
        policies=policies,
        honest_parties=tuple(
            sorted({query.honest_parties for query in listed if query.honest_parties and query.charged})
        ),
        head_entries=head.entries,
        head_digest=head.digest.hex(),
    )


def _listed(reader: HistoryReader, queries: Sequence[QueryRead]) -> tuple[ReportedQuery, ...]:
    listed, room = [], MOST_SIGNED_CHARACTERS
    for query in queries:
        # A page has no signed texts; it may have been forgotten meanwhile.
        found = reader.history.find(query.shown.query_id.hex())
        whole = replace(query, shown=found[0]) if found else query
        reported = _reported(query, whole.asked)
        if reported.is_allowed and whole.signed and room > 0:
            room -= sum(len(str(field)) for part in whole.signed for field in part.fields)
            reported = replace(reported, signed=whole.signed if room >= 0 else None)
        listed.append(reported)
    return tuple(listed)


def _reported(query: QueryRead, asked: QuerySummary | None) -> ReportedQuery:
    if asked is None:
        return ReportedQuery(query, None, (), 0, None)
    return ReportedQuery(
        query,
        asked.columns,
        asked.predicates[:MOST_PREDICATES],
        max(0, len(asked.predicates) - MOST_PREDICATES),
        asked.honest_parties,
    )


def _askers(queries: Sequence[QueryRead]) -> tuple[Asker, ...]:
    """Learners by the number of their queries."""
    by_name: dict[str, list[QueryRead]] = {}
    for query in queries:
        by_name.setdefault(query.shown.learner or "unknown", []).append(query)
    askers = [
        Asker(
            name,
            len(asked),
            sum(any(attempt.is_charged for attempt in query.attempts) for query in asked),
            sum(attempt.is_charged for query in asked for attempt in query.attempts),
            sum(query.bytes_out for query in asked),
        )
        for name, asked in by_name.items()
    ]
    return tuple(sorted(askers, key=lambda asker: (-asker.queries, asker.learner)))


def _decisions(queries: Sequence[QueryRead]) -> tuple[tuple[str, int], ...]:
    """How many queries were answered, refused, and so on."""
    counts: dict[str, int] = {}
    for query in queries:
        if any(attempt.is_charged for attempt in query.attempts):
            word = "answered"
        else:
            # What follows a colon or comma are causes and people.
            word = query.decision.partition(":")[0].partition(",")[0]
            word = "accepted, and ended without a charge" if word == "accepted" else word
        counts[word] = counts.get(word, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _last_charge(listed: Sequence[ReportedQuery], within: Sequence[Event]) -> Charge | None:
    """The charge of the last query that was charged: what the ledger has of it, if it was charged in the period."""
    known = next((query.read.shown.charge for query in listed if query.charged and query.read.shown.charge), None)
    # A charge without a learner is an acknowledgement, and no query.
    of_queries = [event.charge for event in within if event.charge.learner]
    return known if known is not None else (of_queries[-1] if of_queries else None)


def _limit_holds(record: ScopeState) -> bool:
    """Whether what is spent is within the limit. If not, the limit was lowered after these answers."""
    return record.limit.admits(record.spent.loss)


def _right_guesses(record: ScopeState) -> str:
    return right_guesses(float(record.limit.epsilon), float(record.limit.delta)).of_100()


def _chances(record: ScopeState) -> tuple[Chances, ...]:
    limit = float(record.limit.epsilon) if _limit_holds(record) else None
    return tuple(Chances(*each) for each in chances(record.spent_epsilon, limit, float(record.limit.delta)))
