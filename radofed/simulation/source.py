"""Where learners that ask get their answers in a simulation: `learner.federation` over simulated parties.

A question goes the way of a release: planned for the fold's roster, signed, computed by party code, summed, opened. The
seed of what parties draw names the learner and the question's number, so that no two questions share noise.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.predicates.expressions import Constant
from dpcore.progress import Progress
from dpcore.queries.statement import PrivacyStatement, statement_for
from dpcore.records.schema import Schema
from learner.federation import BudgetedOracle, Federation
from learner.planning import Plan
from learner.requests import Request, StatisticRequest
from radofed.simulation.federation import PlannedFold, SimulatedFederation
from wire.query import Query, setting_of

_DOMAIN = b"radofed/simulation/answer\0"


@dataclass(frozen=True)
class Budget:
    """What each learner that asks may spend in a fold: (epsilon, delta), where a delta of 0 is pure.

    Raises ConfigurationError where one is out of range.
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if self.epsilon <= 0:
            raise ConfigurationError(f"epsilon is {float(self.epsilon):g}: it must be positive")
        if not 0 <= self.delta < 1:
            raise ConfigurationError(
                f"delta is {float(self.delta):g}: choose one from 0, for Laplace noise alone, to below 1"
            )


@dataclass(frozen=True, eq=False)
class SimulatedAnswer:
    """An opened total of simulated parties: a `learner.federation.Answer`, read-only."""

    query: Query
    integers: NDArray[np.int64]
    party_rows: Mapping[str, int]
    digest: bytes
    statement: PrivacyStatement


class SimulatedSource:
    """One learner's way to the parties of one fold: a `learner.federation.AnswerSource`.

    parts: the rows of each party, as places in the table. `seconds`: how long answers took so far.
    """

    def __init__(
        self,
        federation: SimulatedFederation,
        parts: Sequence[NDArray[np.int64]],
        fold: int,
        learner: str,
        progress: Progress | None = None,
    ) -> None:
        self._federation, self._parts, self._fold = federation, tuple(parts), fold
        self._learner, self._progress = learner, progress
        self._waiting: dict[bytes, PlannedFold] = {}
        self._questions = 0
        self.seconds = 0.0

    @property
    def rows(self) -> int:
        """Training rows of all parties."""
        return sum(len(part) for part in self._parts)

    def plan(self, request: Request) -> Plan:
        """The plan of this learner's next question; see learner.federation.AnswerSource."""
        self._questions += 1
        # The number comes last, so that two names never give one label, whatever is in them.
        question = f"{self._learner}/{self._questions}"
        planned = self._federation.plan(None, request, self._parts, self._fold, question)
        self._waiting[planned.plan.query_id] = planned
        return planned.plan

    def answer(self, plan: Plan) -> SimulatedAnswer:
        """The answer to a plan of this source, once: asked again, it would have the same noise.

        Raises ConfigurationError where it was answered or is not of this source, and what a party or the learner
        raises.
        """
        planned = self._waiting.pop(plan.query_id, None)
        if planned is None:
            raise ConfigurationError("this plan was answered before or is another source's: plan the request again")
        begin = time.perf_counter()
        values = self._federation.ask(planned, self._progress)
        self.seconds += time.perf_counter() - begin
        query = planned.plan.query
        integers = values.reshape(query.kind.shape(query.schema.d))
        integers.setflags(write=False)
        return SimulatedAnswer(
            query,
            integers,
            dict(zip(self._federation.parties, planned.party_rows, strict=True)),
            hashlib.sha256(_DOMAIN + plan.query_id + values.astype("<i8").tobytes()).digest(),
            statement_for(query.kind, planned.party_rows, query.delta, schema=query.schema, setting=setting_of(query)),
        )


class Oracles:
    """What the learners that ask get in one fold: an oracle each, with a whole budget each."""

    def __init__(
        self,
        federation: SimulatedFederation,
        schema: Schema,
        parts: Sequence[NDArray[np.int64]],
        fold: int,
        budget: Budget,
        progress: Progress | None = None,
    ) -> None:
        self._federation, self._schema, self._parts, self._fold = federation, schema, parts, fold
        self._budget, self._progress = budget, progress
        self._asked: dict[str, tuple[SimulatedSource, BudgetedOracle]] = {}

    def of(self, learner: str) -> BudgetedOracle:
        """The oracle of the learner of this name. Raises ConfigurationError where it has one already."""
        if learner in self._asked:
            raise ConfigurationError(f"{learner!r} has its oracle already: a budget is given once")
        source = SimulatedSource(self._federation, self._parts, self._fold, learner, self._progress)
        oracle = Federation(source, self._schema).within(self._budget.epsilon, self._budget.delta)
        self._asked[learner] = source, oracle
        return oracle

    def seconds(self, learner: str | None = None) -> float:
        """How long the answers to a learner took, or to all of them."""
        chosen = self._asked if learner is None else {learner}
        return sum(self._asked[name][0].seconds for name in chosen)

    def statements(self) -> dict[str, PrivacyStatement]:
        """What all answers to a learner together say, by its name; who asked nothing has none.

        Raises PlanError where they have no finite cost.
        """
        return {name: oracle.statement() for name, (_, oracle) in self._asked.items() if oracle.answers}


def row_count_plan(
    federation: SimulatedFederation, schema: Schema, parts: Sequence[NDArray[np.int64]], fold: int, budget: Budget
) -> PlannedFold:
    """The plan of the plainest question, how many rows are usable: it tells the cohort that questions have.

    It is not for asking. Raises PlanError or another RadofedError where no question can be asked.
    """
    request = StatisticRequest(schema=schema, predicates=(Constant(value=True),), epsilon=budget.epsilon, pure=True)
    return federation.plan(None, request, parts, fold, "cohort")
