"""Where the answers to queries come from, and what a round raises that ends without one.

An `AnswerSource` is a session over gRPC (learner.journal) or a simulation.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

from dpcore.accounting.protection import ReleaseCost
from dpcore.accounting.words import after_attempt
from dpcore.errors import RadofedError
from dpcore.queries.statement import PrivacyStatement
from learner.composition import Unanswered
from learner.planning import Plan
from learner.release import OpenedTotal
from learner.requests import Request

REFUSED = 6
"""Exit code of a refusal because of privacy, a policy or the cohort."""


class Answer(OpenedTotal, Protocol):
    """An opened total, such as a learner.release.Release."""

    @property
    def digest(self) -> bytes:
        """32 bytes that identify the answer."""
        ...

    @property
    def statement(self) -> PrivacyStatement:
        """The privacy statement of this answer alone."""
        ...

    @property
    def attempts(self) -> int:
        """How many attempts of the query may have a total that a coalition can complete, the opened one included."""
        ...


class AnswerSource(Protocol):
    """Plans requests and provides their answers."""

    @property
    def rows(self) -> int:
        """The total of the rows that parties state; 0 if none states any."""
        ...

    @property
    def persons(self) -> int:
        """The total of their persons; 0 if only answers about persons tell it."""
        ...

    def plan(self, request: Request) -> Plan:
        """The plan of a request; sends nothing. Raises what `learner.planning.plan_query` raises."""
        ...

    def answer(self, plan: Plan) -> Answer:
        """Send the query and wait for the answer.

        Raises WireError with exit code 6 if the federation refuses. Raises RoundLostError if an attempt was lost, or an
        earlier query of the round ended without a total, and another attempt needs the learner's decision.
        """
        ...

    @property
    def earlier(self) -> Sequence[Answer]:
        """Answers about these rows that the learner had before, of which this run's questions are no part."""
        ...

    @property
    def unanswered(self) -> Sequence[Unanswered]:
        """The queries of the last round, the one that `answer` was last called for, that have no opened total."""
        ...


def rows_about(answer: Answer) -> int:
    """The number of rows, or persons, by which an answer's sums are divided: of a part, how many it has on average.

    dpcore.records.held_back proves that the means are unbiased.
    """
    rows, part = sum(answer.party_rows.values()), answer.query.held_back
    return rows if part is None else part.rows(rows)


class RoundLostError(RadofedError):
    """An attempt of a round's query was lost, and the query waits for the learner's decision.

    attempts: those that may have a total so far. cost: that of all queries within the budget if another attempt is
    made, None if no oracle counted it.
    """

    exit_code = REFUSED

    def __init__(
        self, text: str, attempts: int, cost: ReleaseCost | None = None, epsilon: Fraction | None = None
    ) -> None:
        self.text, self.attempts, self.cost = text, attempts, cost
        super().__init__(text if cost is None else f"{text}. {_cost_of_retry(cost, epsilon)}")


class RoundEndedError(RoundLostError):
    """A round's query ended without a total, and asking the round again needs the learner's decision."""


def _cost_of_retry(cost: ReleaseCost, epsilon: Fraction | None) -> str:
    within = epsilon is None or cost.epsilon_if_others_collude <= epsilon
    budget = "" if epsilon is None else f", {'within' if within else 'above'} the budget of {float(epsilon):g}"
    figure = after_attempt(cost.epsilon_if_others_collude, cost.delta, "another attempt, and the rest of the budget")
    return f"{figure}{budget}"
