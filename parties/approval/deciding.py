"""What people do about a party's queries: look at those that wait, approve or refuse one, pause the party.

Commands and the console use these functions. Each may run while the party's node runs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

from dpcore.errors import ConfigurationError
from parties.approval.decisions import Decided, Decision, DecisionError, Decisions, Person, Verdict
from parties.approval.gate import AttemptCosts, cost_without_approval, reasons
from parties.approval.standing import Standing
from parties.config import PartyConfig
from parties.history.history import Shown, What
from parties.history.reading import HistoryReader
from parties.history.studies import same_as
from parties.ledger.charges import Charge
from parties.ledger.limits import Event, check_admits, merged
from parties.members import known_roster
from parties.policy import Policy, check_query
from radobase.presentation.words import who_opens_a_part
from wire.envelopes import Envelope
from wire.errors import WireError
from wire.query import OpenedQuery, check_time, open_query
from wire.query_summary import QuerySummary, SignedPart, signed_lines, signed_parts
from wire.roster import Roster


@dataclass(frozen=True)
class Pending:
    """A query that waits for people."""

    shown: Shown
    reasons: tuple[str, ...]
    decided: Decided
    answers_due_unix_s: float
    """When its first answers are due; later nothing is answered."""
    count: Callable[[], AttemptCosts | None]
    """Computes `costs`."""

    @cached_property
    def costs(self) -> AttemptCosts | None:
        """What an attempt and all that are allowed cost; None before that is known. Takes some 0.1 s."""
        return self.count()

    @property
    def cost_words(self) -> str:
        """What an attempt and all that are allowed cost for the widest scope."""
        return "not known yet" if self.costs is None else self.costs.short

    @property
    def words(self) -> str:
        """What is asked, in one line."""
        return self.shown.words or self.shown.contents

    @property
    def training(self) -> str:
        """The training that it is a round of, in words; empty without one."""
        query = self.shown.query
        return "" if query is None or query.training is None else query.training.words

    @property
    def signed(self) -> tuple[SignedPart, ...]:
        """Every field of the query."""
        assert self.shown.envelope is not None, "a query whose signed text is not kept does not wait"
        return signed_parts(self.shown.envelope.payload)

    def __str__(self) -> str:
        return f"{self.shown.query_id.hex()}, {'; '.join(self.reasons)}"


def pending(reader: HistoryReader, now_unix_s: float) -> list[Pending]:
    """The queries that still need a decision, oldest first."""
    decisions, limits = Decisions(reader.database), reader.policy.limits.of_ledger
    # Merged once for all: a sum over every charge takes long.
    before = merged(reader.ledger.merged_events(now_unix_s))

    @cache
    def counted(charge: Charge | None, attempts: int, recorded: int) -> AttemptCosts | None:
        if charge is None:
            return None
        return AttemptCosts.of(charge, attempts, limits, before, recorded, now_unix_s)

    found = []
    shown = reader.history.waiting(now_unix_s)
    events = reader.history.events(each.query_id for each in shown)
    for each in shown:
        decided = decisions.decided(each.query_id, each.learner, reader.policy)
        if decided.verdict is Verdict.UNDECIDED and (query := each.query) is not None:
            reasons = [event.details["reasons"] for event in events[each.query_id] if event.what is What.WAITS][-1]
            due = query.created_at_unix_s + query.answer_within_s
            recorded = len(reader.ledger.attempts_of(each.query_id))
            found.append(
                Pending(each, tuple(reasons), decided, due, partial(counted, each.charge, query.max_attempts, recorded))
            )
    return found


def costs_of(reader: HistoryReader, shown: Shown, now_unix_s: float) -> AttemptCosts | None:
    """What a query's attempts cost by the policy of the moment; None if the cost of one, or the query, is not known."""
    query = shown.query
    if shown.charge is None or query is None:
        return None
    recorded, limits = len(reader.ledger.attempts_of(shown.query_id)), reader.policy.limits.of_ledger
    return AttemptCosts.of(
        shown.charge, query.max_attempts, limits, reader.ledger.merged_events(now_unix_s), recorded, now_unix_s
    )


def decide(
    config: PartyConfig,
    prefix: str,
    person: Person,
    *,
    approves: bool,
    reason: str = "",
    policy_seen: str | None = None,
) -> Decided:
    """Record a person's decision on the query whose id begins with these digits, durably.

    policy_seen: digest of the policy under which the person looked at the query; None to decide under the present one.
    Raises ConfigurationError if there is no such query, DecisionError if the decision does not count.
    """
    now = time.time()
    with HistoryReader(config) as reader:
        if policy_seen not in {None, reader.policy.digest}:
            raise DecisionError("the policy changed since this query was shown: look at the query again, then decide")
        shown = reader.find(prefix).shown
        if shown.not_after_unix_s < now:
            raise ConfigurationError(f"query {shown.query_id.hex()[:16]} has expired; no one decided in time")
        decision = Decision(person, approves, reason, now)
        still_waits = reader.history.waits(shown.query_id)
        return Decisions(reader.database).decide(
            shown.query_id, shown.learner, reader.policy, decision, still_waits=still_waits
        )


# What would happen if this party answered a query, for the people who decide on it.
#
# It is computed from the signed query, the policy, the roster, the ledger and the number of this party's rows, which
# an acceptance states anyway. No value of a row is read: a decision that depended on one would leak outside every
# epsilon.


def ways_to_decide(query_id: bytes, asked: QuerySummary) -> list[str]:
    """The commands that decide on a query that waits, and on all that come with it."""
    approve = f"rado party approve {query_id.hex()[:10]} --config party.toml"
    ways = [f"to approve this query: {approve}; to refuse it: {approve.replace('approve', 'refuse')}"]
    if asked.training:
        ways.append(f"to decide once on all queries of the training: {approve} --for training")
    elif asked.study is not None:
        ways.append(f"to decide once on the queries of the study: {approve} --for study --epsilon TOTAL")
    return ways


@dataclass(frozen=True)
class Explanation:
    """What a query asks of this party, and what an answer would mean."""

    query_id: bytes
    asked: QuerySummary
    reasons: tuple[str, ...]
    """Why it waits for people."""
    refusal: str
    """Why the policy or the ledger would refuse it now, whatever people decide; empty otherwise."""
    decided: Decided
    rows: int | None
    upload_bytes: int
    numbers: int
    """What would leave the party in each attempt, encrypted: only sums over the cohort are ever opened."""
    others: tuple[str, ...]
    """The parties that are asked too."""
    costs: AttemptCosts
    """Of one attempt and of all that are allowed."""
    colluders: int
    """How many accepted parties the policy assumes to collude."""
    protects_records: bool
    signed: tuple[SignedPart, ...]
    """Every field of the query, so that what people decide on is what its digest binds."""
    same_study: tuple[str, ...]
    """What people are asked about the number of its study, where others are spelt alike."""

    @property
    def opened_words(self) -> str:
        """Who can open what leaves (docs/threat-model-details.md, P2)."""
        return who_opens_a_part(self.colluders)

    def lines(self) -> list[str]:
        """For people, one fact a line: a summary, then everything that was signed."""
        whom = ", ".join(self.others) or "no one else"
        rows = "an unknown number of" if self.rows is None else str(self.rows)
        lines = [f"query {self.query_id.hex()}", *self.asked.lines()]
        lines.append(
            f"would leave this party in each attempt: {self.numbers} numbers, each a sum over its {rows} rows, "
            f"encrypted and masked in {self.upload_bytes} bytes; {self.opened_words}"
        )
        lines.append(f"asked too: {whom}")
        lines += self.same_study
        lines += self.costs.lines()
        room = "any number of" if self.costs.more is None else f"about {self.costs.more}"
        lines.append(f"after one attempt there is room for {room} more like it")
        if not self.protects_records:
            lines.append(
                "warning: an answer has no privacy bound for whole records: `rado party rehearse` attacks such answers "
                "on your own rows, to show what they may give away"
            )
        lines += [f"waits because {reason}" for reason in self.reasons]
        if self.refusal:
            lines.append(f"would be refused whatever people decide: {self.refusal}")
        lines += [str(each) for each in self.decided.decisions]
        if self.reasons:
            lines.append(f"{self.decided.counted} of {self.decided.needed} approvals")
            lines += ways_to_decide(self.query_id, self.asked)
        return [*lines, *signed_lines(self.signed)]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "query_id": self.query_id.hex(),
            "asked": self.asked.to_dict(),
            "reasons": list(self.reasons),
            "refusal": self.refusal,
            "verdict": self.decided.verdict.value,
            "approvals": self.decided.counted,
            "approvals_needed": self.decided.needed,
            "rows": self.rows,
            "numbers": self.numbers,
            "upload_bytes": self.upload_bytes,
            "others": list(self.others),
            **self.costs.to_dict(),
            "more_like_it": self.costs.more,
            "protects_records": self.protects_records,
            "same_study": list(self.same_study),
            "signed": [part.to_dict() for part in self.signed],
        }


def explain(config: PartyConfig, reader: HistoryReader, prefix: str, now_unix_s: float) -> Explanation:
    """Explain the query of the history whose id begins with these digits, under the policy of the moment.

    Raises ConfigurationError if there is none, if its signed text is not kept, or if this party has no roster yet.
    """
    shown = reader.find(prefix).shown
    if shown.envelope is None:
        raise ConfigurationError(f"query {shown.query_id.hex()[:16]}: its signed text is not kept any more")
    roster, policy = _roster(config), reader.policy
    opened = _opened(shown, shown.envelope, roster)
    charge, recorded = shown.charge, reader.ledger.attempts_of(shown.query_id)
    before = reader.ledger.merged_events(now_unix_s)
    decisions = Decisions(reader.database)
    approvals = reader.ledger.approvals
    unapproved = cost_without_approval(
        decisions,
        reader.ledger.charges_of,
        shown.query_id,
        shown.learner,
        policy,
        lambda query_ids: set(approvals.used_by(query_ids)),
    )
    standing = Standing(approvals, reader.database)
    attempt = max(recorded, default=0) + 1
    use, outside = standing.covering(opened, attempt, charge or Charge(), policy, now_unix_s)
    why = () if use is not None else tuple(reasons(policy.approval, opened.query, charge or Charge(), unapproved))
    return Explanation(
        query_id=shown.query_id,
        asked=QuerySummary.of(opened.query),
        reasons=(*why, *outside) if why else (),
        refusal="" if recorded else _refusal(opened, roster, policy, config.name, charge, before, now_unix_s),
        decided=decisions.decided(shown.query_id, shown.learner, policy),
        rows=shown.rows,
        upload_bytes=opened.ciphertexts * opened.public_key.ciphertext_bytes,
        numbers=opened.query.length,
        others=tuple(m.name for m in roster.parties if m.name != config.name and opened.query.asks(m.name)),
        costs=AttemptCosts.of(
            charge or Charge(),
            opened.query.max_attempts,
            policy.limits.of_ledger,
            before,
            len(recorded),
            now_unix_s,
        ),
        colluders=policy.assumed_colluders,
        protects_records=charge is not None and charge.is_bounded,
        signed=signed_parts(opened.envelope.payload),
        same_study=tuple(same_as(reader, shown.study)),
    )


def _refusal(
    opened: OpenedQuery,
    roster: Roster,
    policy: Policy,
    own_name: str,
    charge: Charge | None,
    events: Sequence[Event],
    now_unix_s: float,
) -> str:
    """Why this party would refuse the query now, whatever people decide; empty if it would not."""
    if charge is None:
        return "this party refused it before its cost was known; see `rado ledger history`"
    try:
        check_query(policy, opened, roster, own_name)
        check_time(opened.query, now_unix_s)
        if opened.query.study is not None:
            opened.query.study.check_day(now_unix_s)
        check_admits(policy.limits.of_ledger, events, charge, now_unix_s=now_unix_s)
    except WireError as error:
        return str(error)
    return ""


def _roster(config: PartyConfig) -> Roster:
    known = known_roster(config)
    if known is None:
        raise ConfigurationError("this party has not seen a roster yet; start it")
    return known


def _opened(shown: Shown, envelope: Envelope, roster: Roster) -> OpenedQuery:
    """Verified as of the time at which it was shown: a query of the past has expired."""
    try:
        return open_query(envelope, roster, now_unix_s=shown.shown_at_unix_s)
    except WireError as error:
        raise ConfigurationError(f"query {shown.query_id.hex()[:16]} does not verify any more: {error}") from error
