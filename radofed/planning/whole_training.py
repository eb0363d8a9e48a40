"""All kinds of queries that a training asks, each at the whole budget, to ask parties about them before the first.

The estimator runs against parties without rows (radofed.planning.asking). Whatever its answers are, it asks these kinds
of queries, and their parts add up to one: a query that takes the whole budget costs a party as much as all of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from dpcore.errors import PlanError
from dpcore.records.schema import Schema
from learner.planning import Plan
from learner.requests import GradientRequest, MomentsRequest, NoisyTerms, Request, StatisticRequest
from learner.session import Session
from learner.training import AskedTraining
from learner.would_accept import WouldAccept
from radobase.printing import listed
from radofed.planning.asking import AskRequest, PlannedParties
from wire.request_fields import TrainOptions

_Asked: TypeAlias = StatisticRequest | MomentsRequest | GradientRequest
_NEARLY_WHOLE = 1 - Fraction(1, 1 << 20)
"""A whole budget may choose Laplace noise, which parts of one do not have."""


class _Recording(PlannedParties):
    """Parties without rows that keep the longest request of each kind."""

    def __init__(self, request: AskRequest) -> None:
        super().__init__(request)
        self.longest: dict[str, tuple[int, _Asked]] = {}

    def plan(self, request: Request) -> Plan:
        """See `PlannedParties`."""
        plan = super().plan(request)
        name, length = plan.query.kind.name, plan.query.length
        if isinstance(request, NoisyTerms):
            self.longest[name] = max(self.longest.get(name, (0, request)), (length, request), key=lambda each: each[0])
        return plan


def whole_training(
    name: str, options: TrainOptions, schema: Schema, party_rows: Sequence[int]
) -> tuple[list[_Asked], str]:
    """The requests of a training, the longest of each kind at the whole budget, and the estimator's warning.

    party_rows: of the accepted parties. Raises what the estimator raises
    before it asks, such as PlanError.
    """
    training = AskedTraining.of(name, options, schema)
    parties = _Recording(
        AskRequest(
            party_rows=tuple(party_rows),
            schema=schema,
            epsilon=training.epsilon,
            delta=training.delta,
            estimator=name,
        )
    )
    trained = training.run(parties)
    whole = Fraction(1) if training.delta == 0 else _NEARLY_WHOLE
    requests = [
        request if request.part == 1 else replace(request, part=whole) for _, request in parties.longest.values()
    ]
    return requests, getattr(trained.estimator, "warning_", None) or ""


def ask_whole(
    session: Session, name: str, options: TrainOptions, schema: Schema, timeout_s: float | None = None
) -> tuple[list[WouldAccept], str]:
    """What parties say to each kind of query of a training, and the estimator's warning. Nothing is charged.

    What parties say of their rows may change what the estimator asks: then it is looked at again. Raises PlanError if
    the rows of a party are not known, and what `whole_training` and `Session.would_accept` raise.
    """
    found: dict[type, WouldAccept] = {}
    while True:
        roster = session.fetch_roster()
        asked = session.selection(roster).asked
        rows = session.rows_of(asked, roster)
        if unknown := [party for party, count in rows.items() if count is None]:
            raise PlanError(
                f"the rows of {listed(unknown)} are not known: ask about a statistic first, which tells them"
            )
        requests, warning = whole_training(name, options, schema, [count or 0 for count in rows.values()])
        new = [request for request in requests if type(request) not in found]
        for request in new:
            found[type(request)] = session.would_accept(request, timeout_s)
        if not new or session.rows_of(asked, roster) == rows:
            return list(found.values()), warning
