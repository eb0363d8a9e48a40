"""What would happen if this party answered a query, for the people who decide on it.

It is computed from the signed query, the policy, the roster, the ledger and the number of this party's rows, which an
acceptance states anyway. No value of a row is read: a decision that depended on one would leak outside every epsilon.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpcore.errors import ConfigurationError
from parties.approval.costs import AttemptCosts
from parties.approval.decisions import Decided, Decisions
from parties.approval.reasons import cost_without_approval, reasons
from parties.config import PartyConfig
from parties.history.history import Shown
from parties.history.reading import HistoryReader
from parties.ledger.charges import Charge
from parties.ledger.limits import Event, check_admits
from parties.policy import Policy, check_query
from parties.rosters import known_roster
from wire.envelopes import Envelope
from wire.errors import WireError
from wire.query import OpenedQuery, check_time, open_query
from wire.query_summary import QuerySummary
from wire.roster import Roster
from wire.signed_fields import SignedPart, signed_lines, signed_parts


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

    @property
    def opened_words(self) -> str:
        """Who can open what leaves (docs/threat-model-details.md, P2)."""
        return (
            "the learner opens only the sum over all parties that answer together; this party's part alone could be "
            f"known only if more than {self.colluders} of the parties that it accepts told the learner theirs"
        )

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
        lines += self.costs.lines()
        room = "any number of" if self.costs.more is None else f"about {self.costs.more}"
        lines.append(f"after one attempt there is room for {room} more like it")
        if not self.protects_records:
            lines.append("warning: an answer has no privacy bound for whole records")
        lines += [f"waits because {reason}" for reason in self.reasons]
        if self.refusal:
            lines.append(f"would be refused whatever people decide: {self.refusal}")
        lines += [str(each) for each in self.decided.decisions]
        if self.reasons:
            lines.append(f"{self.decided.counted} of {self.decided.needed} approvals")
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
    unapproved = cost_without_approval(decisions, reader.ledger.charges_of, shown.query_id, shown.learner, policy)
    return Explanation(
        query_id=shown.query_id,
        asked=QuerySummary.of(opened.query),
        reasons=tuple(reasons(policy.approval, opened.query, charge or Charge(), unapproved)),
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
