"""A source of answers that asks parties about the first query whether they would accept it, and answers nothing."""

from dpcore.errors import RadofedError
from learner.composition import Unanswered
from learner.planning import Plan
from learner.release import Release
from learner.requests import Request
from learner.session import Session
from learner.would_accept import WouldAccept


class QuestionAnsweredError(RadofedError):
    """Parties have said whether they would accept a query. It was not sent."""

    def __init__(self, found: WouldAccept) -> None:
        self.found = found
        super().__init__(". ".join(found.sentences()))


class Questions:
    """A `learner.federation.AnswerSource` for commands that ask one batch."""

    def __init__(self, session: Session, timeout_s: float | None = None) -> None:
        self._session, self._timeout_s = session, timeout_s
        self._requests: dict[bytes, Request] = {}

    @property
    def rows(self) -> int:
        """As of `learner.journal.SessionSource`."""
        return self._session.stated_rows()

    @property
    def unanswered(self) -> tuple[Unanswered, ...]:
        """None: nothing is sent."""
        return ()

    def plan(self, request: Request) -> Plan:
        """See learner.federation.AnswerSource."""
        plan = self._session.plan(request)
        self._requests[plan.query_id] = request
        return plan

    def request_of(self, plan: Plan) -> Request:
        """The request that a plan of this source is of."""
        return self._requests[plan.query_id]

    def answer(self, plan: Plan) -> Release:
        """Raises QuestionAnsweredError with what parties say, and what `Session.would_accept` raises."""
        raise QuestionAnsweredError(self._session.would_accept(self._requests[plan.query_id], self._timeout_s))
