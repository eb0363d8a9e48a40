"""The studies that a party was asked for: what learners stated of each, what it spent, and what it may spend.

By protocol number. What queries state with one number may differ: each statement is listed, and the budget is one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpcore.numbers.rationals import lower_digits, upper_digits
from parties.history.history import History
from parties.history.reading import HistoryReader
from parties.history.spellings import skeleton
from parties.ledger.budgets import ScopeState, state_of
from parties.ledger.limits import Event, LedgerLimits, by_study
from parties.policy import AllowedStudy, Policy
from radobase.printing import amount, json_text, local_time
from wire.study import Study

_STATED = """SELECT statement, json_group_array(DISTINCT learner), count(*), sum(is_charged), min(shown_at_unix_s),
max(shown_at_unix_s) FROM study_of JOIN studies USING (digest) JOIN queries USING (query_id)
WHERE shown_at_unix_s >= ? AND shown_at_unix_s < ? GROUP BY digest ORDER BY min(shown_at_unix_s), digest"""


@dataclass(frozen=True)
class Stated:
    """What queries stated of a study, in the same words."""

    study: Study
    learners: tuple[str, ...]
    queries: int
    answered: int
    """Queries of which an attempt was charged."""
    first_unix_s: float
    last_unix_s: float
    """When such a query was first and last shown."""

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            **self.study.to_dict(),
            "learners": list(self.learners),
            "queries": self.queries,
            "answered": self.answered,
            "first_shown_at_unix_s": self.first_unix_s,
            "last_shown_at_unix_s": self.last_unix_s,
        }

    def lines(self) -> list[str]:
        """For people."""
        asked = f"{amount(self.queries, 'query')} of {', '.join(self.learners)}, {self.answered} answered"
        return [*self.study.lines(), f"  asked: {asked}, last {local_time(self.last_unix_s)}"]


@dataclass(frozen=True)
class StudyScope:
    """What a study spent in one scope, and what still fits: in the study, and at the party, whose limits both hold."""

    state: ScopeState
    """Of the charges of the study alone, under its limit, or else measured by the party's."""
    party: ScopeState
    """Of all charges, under the party's limit."""
    has_limit: bool
    """Whether the study has one."""

    def __str__(self) -> str:
        spent, scope = upper_digits(self.state.spent_epsilon, 6), self.state.scope
        own = f"of its limit {self.state.limit} one more answer fits up to {_fits(self.state)}; " * self.has_limit
        return f"{scope}: spent epsilon {spent}; {own}at this party one more answer fits up to {_fits(self.party)}"

    def to_dict(self) -> dict[str, Any]:
        """All figures by name; None for those of a limit that the study does not have."""
        found = {
            name: each if self.has_limit or name in _OF_ANY else None for name, each in self.state.to_dict().items()
        }
        left = self.party.remaining
        return {**found, "party_remaining_pure_epsilon": left.pure, "party_remaining_gaussian_epsilon": left.gaussian}


_OF_ANY = ("scope", "spent_epsilon", "spent_and_reserved_epsilon", "spent", "spent_and_reserved")
"""Figures of a study without a limit."""


def _fits(state: ScopeState) -> str:
    pure, gaussian = lower_digits(state.remaining.pure, 6), lower_digits(state.remaining.gaussian, 6)
    return f"{pure} with Laplace noise, {gaussian} with Gaussian noise"


@dataclass(frozen=True)
class StudyRead:
    """One study, by its protocol number."""

    number: str
    stated: tuple[Stated, ...]
    """Oldest first; none if no query that is kept names it."""
    allowed: str
    """What the policy says of it, in words."""
    charged: int
    """Attempts that were charged in it."""
    unbounded: int
    """Those of them without a bound for whole records."""
    has_limit: bool
    """Whether it has a budget of its own."""
    scopes: tuple[StudyScope, ...]
    """What is spent in it, and what fits."""
    spelt_alike: tuple[str, ...] = ()
    """Other numbers that may be another spelling of this one (parties.history.spellings)."""

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "protocol_number": self.number,
            "stated": [each.to_dict() for each in self.stated],
            "policy": self.allowed,
            "attempts_charged": self.charged,
            "attempts_without_a_bound": self.unbounded,
            "has_limit": self.has_limit,
            "scopes": [each.to_dict() for each in self.scopes],
            "spelt_alike": list(self.spelt_alike),
        }

    @property
    def spent(self) -> str:
        """How much of it is spent, in a few words: the scope with the most."""
        most = max(self.scopes, key=lambda each: each.state.spent_epsilon, default=None)
        if most is None or not self.charged:
            return "nothing spent"
        of = f" of {float(most.state.limit.epsilon):g}" if self.has_limit else ""
        return f"spent epsilon {upper_digits(most.state.spent_epsilon, 4)}{of} ({most.state.scope})"

    def lines(self) -> list[str]:
        """For people, one fact a line."""
        lines = [f"study {json_text(self.number)}: {amount(self.charged, 'attempt')} charged; {self.allowed}"]
        lines += ["  it has no limit of its own"] * (not self.has_limit)
        lines += [f"  {each}" for each in self.scopes]
        lines += [f"  may be another spelling of study {json_text(each)}: {OWN_BUDGET}" for each in self.spelt_alike]
        if self.unbounded:
            lines.append(f"  {amount(self.unbounded, 'attempt')} without a bound, which no epsilon counts")
        return [*lines, *(f"  {line}" for each in self.stated for line in each.lines())]


OWN_BUDGET = "each has a budget of its own"


def same_study(number: str, found: Sequence[StudyRead]) -> list[str]:
    """What people are asked before they let a study ask: whether it is one of another spelling. A line for each."""
    return [
        f"a study with the number {json_text(each.number)} exists, {each.spent}; is {json_text(number)} the same? "
        f"The numbers differ in spelling only, and {OWN_BUDGET}."
        for each in found
        if number in each.spelt_alike
    ]


def same_as_stated(digest: str, found: Sequence[StudyRead]) -> list[str]:
    """`same_study` of the study that queries stated with this digest, in hexadecimal; nothing if none is kept."""
    numbers = {each.number for each in found for said in each.stated if said.study.digest.hex() == digest}
    return [line for number in sorted(numbers) for line in same_study(number, found)]


def stated_in(history: History, since_unix_s: float = 0.0, until_unix_s: float = float("inf")) -> list[Stated]:
    """What queries that were shown in a period state, and are still kept: oldest first."""
    history.database.flush()
    with history.database.reading() as connection:
        rows = connection.execute(_STATED, (since_unix_s, until_unix_s)).fetchall()
    with history.readable():
        return [
            Stated(Study.from_bytes(statement), tuple(sorted(json.loads(learners))), *figures)
            for statement, learners, *figures in rows
        ]


def studies_of(reader: HistoryReader) -> tuple[StudyRead, ...]:
    """Every study that a query, a charge or the policy names, by protocol number."""
    stated, events = stated_in(reader.history), reader.ledger.merged_events()
    return studies(reader.policy, stated, events)


def same_as(reader: HistoryReader, study: Study | None) -> list[str]:
    """`same_study` of what a query states; nothing without a study."""
    return [] if study is None else same_study(study.protocol_number, studies_of(reader))


def studies(policy: Policy, stated: Sequence[Stated], events: Sequence[Event]) -> tuple[StudyRead, ...]:
    """Every study of these statements and charges, and of the policy."""
    limits, allowed = policy.limits.of_ledger, {each.protocol_number: each for each in policy.studies}
    numbers = {*limits.studies, *allowed, *(event.charge.study for event in events)}
    numbers |= {each.study.protocol_number for each in stated}
    of_party = {each.scope.key: each for each in state_of(limits, events, now_unix_s=None).scopes}
    of_studies = by_study(events, numbers)
    alike: dict[str, list[str]] = {}
    for number in sorted(numbers - {""}):
        alike.setdefault(skeleton(number), []).append(number)
    found = []
    for number in sorted(numbers - {""}):
        has_limit = limits.of_study(number) is not None
        state = state_of(_limits_of(limits, number), of_studies[number], now_unix_s=None)
        charged = sum(event.count for event in of_studies[number] if event.charged and event.charge.study)
        found.append(
            StudyRead(
                number,
                tuple(each for each in stated if each.study.protocol_number == number),
                _allowed_words(policy, allowed.get(number)),
                charged,
                state.unbounded_charged,
                has_limit,
                tuple(StudyScope(each, of_party[each.scope.key], has_limit) for each in state.scopes),
                tuple(each for each in alike[skeleton(number)] if each != number),
            )
        )
    return tuple(found)


def _limits_of(limits: LedgerLimits, number: str) -> LedgerLimits:
    """The study's own limit in every scope; otherwise the party's."""
    own = limits.of_study(number)
    if own is None:
        return replace(limits, per_study=None, studies={}, per_learner=None)
    # Without those of studies: that each of many was counted for each of them would take long.
    return LedgerLimits(own, limits.unbounded_events)


def _allowed_words(policy: Policy, allowed: AllowedStudy | None) -> str:
    if not policy.studies:
        return "the policy allows every study"
    if allowed is None:
        return "the policy does not allow it"
    who = f"to {', '.join(allowed.learners)}" if allowed.learners else "to every learner that may ask"
    what = ", with what it states fixed by its digest" if allowed.digests else ""
    return f"the policy allows it {who}{what}"
