"""What people do about a party's queries: look at those that wait, approve or refuse one, pause the party.

Commands and the console use these functions. Each may run while the party's node runs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial

from dpcore.errors import ConfigurationError
from parties.approval.costs import AttemptCosts
from parties.approval.decisions import Decided, Decision, DecisionError, Decisions, Person, Verdict
from parties.config import PartyConfig
from parties.history.history import Shown, What
from parties.history.reading import HistoryReader
from parties.ledger.charges import Charge
from parties.ledger.room import merged
from wire.query import Query
from wire.signed_fields import SignedPart, signed_parts


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
        if decided.verdict is Verdict.UNDECIDED and each.envelope is not None:
            query = Query.from_bytes(each.envelope.payload)
            reasons = [event.details["reasons"] for event in events[each.query_id] if event.what is What.WAITS][-1]
            due = query.created_at_unix_s + query.answer_within_s
            recorded = len(reader.ledger.attempts_of(each.query_id))
            found.append(
                Pending(each, tuple(reasons), decided, due, partial(counted, each.charge, query.max_attempts, recorded))
            )
    return found


def costs_of(reader: HistoryReader, shown: Shown, now_unix_s: float) -> AttemptCosts | None:
    """What a query's attempts cost by the policy of the moment; None if the cost of one, or the query, is not known."""
    if shown.charge is None or shown.envelope is None:
        return None
    attempts = Query.from_bytes(shown.envelope.payload).max_attempts
    recorded, limits = len(reader.ledger.attempts_of(shown.query_id)), reader.policy.limits.of_ledger
    return AttemptCosts.of(
        shown.charge, attempts, limits, reader.ledger.merged_events(now_unix_s), recorded, now_unix_s
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
