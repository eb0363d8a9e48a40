"""What parties say when they are asked whether they would accept a query: nothing is charged or reserved."""

from collections.abc import Sequence
from dataclasses import dataclass

from dpcore.accounting.protection import ReleaseCost
from dpcore.errors import PlanError
from radobase.printing import amount, listed
from wire.cohort import Acceptance, open_statement
from wire.errors import CATALOGUE, Code, WireError
from wire.query import Query, setting_of
from wire.roster import Roster
from wire.status import PartyProgress, PartyState


@dataclass(frozen=True)
class WouldAccept:
    """The answers to a question."""

    what: str
    rows: dict[str, int]
    """Of each party that would accept, as it signed them."""
    refusals: dict[str, str]
    """The code of each other party that answered."""
    silent: tuple[str, ...]
    """Parties without an answer."""
    cohort_min: int
    max_rows: int
    """Of the query."""
    cost: ReleaseCost | None
    """If all who would accept take part; None if none would, or there is no bound."""

    @property
    def enough(self) -> bool:
        """Whether a cohort could form of those who would accept."""
        return len(self.rows) >= self.cohort_min

    def sentences(self) -> list[str]:
        """The answers in words."""
        total = sum(self.rows.values())
        asked = len(self.rows) + len(self.refusals) + len(self.silent)
        enough = f"{amount(total, 'row')}; {self.cohort_min} are needed"
        lines = [f"{self.what}: {len(self.rows)} of {amount(asked, 'party')} would accept, over {enough}"]
        lines += [f"{name}: would accept, {amount(rows, 'row')}" for name, rows in self.rows.items()]
        for name, code in self.refusals.items():
            hint = f": {CATALOGUE[Code(code)].hint}" if code in set(Code) else ""
            lines.append(f"{name}: would refuse, {code}{hint}")
        if self.silent:
            lines.append(f"no answer yet: {listed(sorted(self.silent))}")
        return lines

    def to_dict(self) -> dict[str, object]:
        """All fields by name, in JSON types."""
        cost = self.cost
        return {
            "what": self.what,
            "would_accept": self.rows,
            "would_refuse": self.refusals,
            "silent": list(self.silent),
            "cohort_min": self.cohort_min,
            "enough": self.enough,
            "epsilon": None if cost is None else cost.epsilon,
            "epsilon_if_others_collude": None if cost is None else cost.epsilon_if_others_collude,
        }


def is_decided(parties: Sequence[PartyProgress], *, asked: int, needed: int) -> bool:
    """Whether those that have answered decide whether a cohort could form, as the coordinator says.

    asked: how many are asked. needed: how many a cohort needs.
    """
    refused = sum(party.state is PartyState.REFUSED for party in parties)
    return sum(party.acceptance is not None for party in parties) >= needed or asked - refused < needed


def answers_to(query: Query, query_id: bytes, parties: Sequence[PartyProgress], roster: Roster) -> WouldAccept:
    """The answers to a question. Row counts are those that parties of the roster signed; a refusal is as claimed.

    Raises WireError if an acceptance is not signed by its party, or is of another query.
    """
    rows: dict[str, int] = {}
    for party in parties:
        if party.acceptance is None:
            continue
        said, _ = open_statement(Acceptance, party.acceptance, roster)
        if said.query_id != query_id or said.party != party.party:
            raise WireError(Code.SENDER_MISMATCH, "A party's answer is not to this question.")
        rows[said.party] = said.rows
    refusals = {party.party: party.code for party in parties if party.state is PartyState.REFUSED}
    silent = tuple(party.party for party in parties if party.party not in rows and party.party not in refusals)
    try:
        cost = query.kind.protection(setting_of(query)).cost(tuple(rows.values()), query.delta) if rows else None
    except PlanError:
        cost = None
    return WouldAccept(query.words, rows, refusals, silent, query.cohort_min, query.max_rows, cost)
