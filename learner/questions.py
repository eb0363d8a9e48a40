"""A source of answers that asks parties about the first query whether they would accept it, and answers nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpcore.errors import RadofedError
from dpcore.estimators.oracle import WHOLE
from dpcore.evaluation.options import EvaluationOptions
from dpcore.predicates.expressions import Predicate
from dpcore.records.feature_map import FeatureMap
from dpcore.statistics.adaptive import Adaptive
from learner.answer_source import AnswerSource
from learner.composition import Unanswered
from learner.history import opened_releases
from learner.journal import SessionSource
from learner.planning import Plan
from learner.progress import WouldAccept, answers_in_words, check_enough, refusals_before
from learner.release import Release
from learner.requests import Request
from learner.session import Session

if TYPE_CHECKING:
    from learner.budgeted_oracle import BudgetedOracle
    from learner.federation import Federation
    from learner.model import Model


class QuestionAnsweredError(RadofedError):
    """Parties have said whether they would accept a query. It was not sent."""

    def __init__(self, found: WouldAccept) -> None:
        self.found = found
        super().__init__(". ".join(answers_in_words([found])))


@dataclass(frozen=True)
class Batch:
    """A batch of predicates to ask about."""

    predicates: Sequence[Predicate]
    part: Fraction
    """Of the budget."""
    words: str
    """What it is, for people."""


def ask_about(
    federation: "Federation",
    epsilon: Fraction,
    delta: Fraction,
    batches: Sequence[Batch],
    feature_map: FeatureMap | None = None,
    adaptive: Adaptive | None = None,
) -> list[WouldAccept]:
    """What parties say to each batch by itself, and to the one that comes last at the whole budget if there are others.

    The last stands for all of them together: within the whole budget it costs as much. federation: of `Questions`.
    adaptive: as of `Federation.within`; each is asked about as the next question. Raises what `Session.would_accept`
    raises.
    """
    asked = list(batches)
    if len(batches) > 1:
        asked.append(replace(batches[-1], part=WHOLE, words="the composition of all batches"))
    return _answers(federation, epsilon, delta, asked, feature_map, adaptive)


def check_later_batches(
    federation: "Federation",
    epsilon: Fraction,
    delta: Fraction,
    batches: Sequence[Batch],
    feature_map: FeatureMap | None = None,
    adaptive: Adaptive | None = None,
) -> list[WouldAccept]:
    """What parties say to each batch but the first, at the whole budget: it costs as much as all batches together.

    A batch that is refused after the first was charged has cost for nothing; the first one is refused at no cost.
    federation: of `Questions` that check. Raises OracleRefusedError if too few would accept one, and as
    `ask_about`.
    """
    later = [replace(batch, part=WHOLE) for batch in batches[1:]]
    return _answers(federation, epsilon, delta, later, feature_map, adaptive)


def _answers(
    federation: "Federation",
    epsilon: Fraction,
    delta: Fraction,
    batches: Sequence[Batch],
    feature_map: FeatureMap | None,
    adaptive: Adaptive | None,
) -> list[WouldAccept]:
    found = []
    for batch in batches:
        oracle = federation.within(epsilon, delta, adaptive)
        try:
            oracle.statistic(batch.predicates, part=batch.part, feature_map=feature_map)
        except QuestionAnsweredError as answered:
            words = f"{batch.words}, epsilon {float(epsilon * batch.part):.4g}"
            found.append(replace(answered.found, what=words))
    return found


def batches_of(model: "Model", federation: "Federation", options: EvaluationOptions) -> tuple[list[Batch], bool]:
    """The batches of an evaluation with their names, and whether all are known before the first answer."""
    batches = model.scoring.batches(model, options)
    part = "" if federation.held_back is None else f", about {federation.held_back.words()}"
    named = []
    for number, batch in enumerate(batches, 1):
        which = f"batch {number} of {len(batches)}: " if len(batches) > 1 else ""
        named.append(Batch(batch.predicates, batch.part, f"{which}{batch.what}{part}"))
    return named, all(batch.is_exact for batch in batches)


def check_evaluation(
    model: "Model", oracle: "BudgetedOracle", options: EvaluationOptions, source: AnswerSource | None = None
) -> list[str]:
    """Ask parties, before the first batch of several, whether they would accept all: what those say that would refuse.

    oracle: what the evaluation then asks. source: of its answers, if it is wrapped. Asks nothing unless all batches
    are asked (`SessionSource.asks_all`). Nothing is charged. Raises OracleRefusedError if too few would accept: the
    first batch would be charged for nothing.
    """
    federation = oracle.federation
    source = source or federation.source
    if not isinstance(source, SessionSource) or not source.asks_all:
        return []
    asking = federation.over(Questions(source.session, source.timeout_s, only_asks=True, checks=True))
    named, _ = batches_of(model, federation, options)
    budget = oracle.epsilon, oracle.delta
    return refusals_before(
        "all batches", lambda: check_later_batches(asking, *budget, named, model.feature_map, oracle.adaptive)
    )


class Questions:
    """A `learner.answer_source.AnswerSource` for commands that ask one batch."""

    def __init__(
        self, session: Session, timeout_s: float | None = None, *, only_asks: bool = False, checks: bool = False
    ) -> None:
        """only_asks: whether no plan of this source is sent later, so that each party itself says that it would refuse.

        Otherwise a plan is refused whose schema too few parties have. checks: whether too few parties that would accept
        are an error; silent parties are then not waited for once the others decide.
        """
        self._session, self._timeout_s, self._only_asks, self._checks = session, timeout_s, only_asks, checks
        self._requests: dict[bytes, Request] = {}

    @property
    def rows(self) -> int:
        """As of `learner.journal.SessionSource`."""
        return self._session.stated_rows()

    @property
    def persons(self) -> int:
        """As of `learner.journal.SessionSource`."""
        return 0

    @property
    def earlier(self) -> Sequence[Release]:
        """As of `learner.journal.SessionSource`."""
        return opened_releases(self._session.config)

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        """None: nothing is sent."""
        return ()

    def plan(self, request: Request) -> Plan:
        """See learner.answer_source.AnswerSource."""
        plan = self._session.plan(request, question=self._only_asks)
        self._requests[plan.query_id] = request
        return plan

    def request_of(self, plan: Plan) -> Request:
        """The request that a plan of this source is of."""
        return self._requests[plan.query_id]

    def answer(self, plan: Plan) -> Release:
        """Raises QuestionAnsweredError with what parties say, and what `Session.would_accept` raises."""
        found = self._session.would_accept(self._requests[plan.query_id], self._timeout_s, of_all=not self._checks)
        if self._checks:
            check_enough(found, plan.query)
        raise QuestionAnsweredError(found)
