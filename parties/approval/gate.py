"""Between the party's decision on a query and its acceptance: whether people must decide first, and what they decided.

Nothing waits for a person but the answer: no mask key, reservation or contribution exists before the approval. The
approval is looked up when the acceptance is made, and again before the charge, under the policy of that moment.
"""

from collections.abc import Callable

from parties.approval.decisions import Decided, Decisions, Verdict
from parties.approval.reasons import reasons
from parties.history.history import History, What
from parties.ledger.charges import Charge
from parties.policy import Policy
from wire.errors import Code, WireError
from wire.query import OpenedQuery


class Gate:
    """The approvals of one party's node."""

    def __init__(self, history: History, clock: Callable[[], float]) -> None:
        """clock: Unix seconds."""
        self._history, self._clock = history, clock
        self._decisions = Decisions(history.database)
        # How many decisions there were on each query that waits when it was last looked at.
        self._waiting: dict[bytes, int] = {}

    def lets_through(self, opened: OpenedQuery, attempt: int, charge: Charge, policy: Policy) -> bool:
        """Whether the party may accept now. If not, the query waits for a decision, which is noted.

        charge: of this attempt. Raises WireError(PERSON_REFUSED) if a person refused the query.
        """
        found = reasons(policy.approval, opened.query, charge)
        decided = self._decisions.decided(opened.query_id, opened.query.learner, policy)
        if decided.verdict is Verdict.REFUSED:
            raise _refused(decided)
        if not found or decided.verdict is Verdict.APPROVED:
            self._waiting.pop(opened.query_id, None)
            return True
        if opened.query_id not in self._waiting:
            self._history.happened(opened.query_id, attempt, What.WAITS, self._clock(), reasons=found)
        self._waiting[opened.query_id] = len(decided.decisions)
        return False

    def check(self, opened: OpenedQuery, charge: Charge, policy: Policy) -> None:
        """Before a charge: raise WireError(PERSON_REFUSED) unless the query needs no approval or has it.

        The policy may have changed since the acceptance, or a person refused.
        """
        decided = self._decisions.decided(opened.query_id, opened.query.learner, policy)
        if decided.verdict is Verdict.REFUSED:
            raise _refused(decided)
        if decided.verdict is Verdict.UNDECIDED and reasons(policy.approval, opened.query, charge):
            raise WireError(Code.PERSON_REFUSED, "The policy asks for approval now, and too few people approved it.")

    def has_news(self) -> bool:
        """Whether a person decided on a query that waits, since this was last asked."""
        news = False
        for query_id, known in list(self._waiting.items()):
            if (count := len(self._decisions.of(query_id))) != known:
                news, self._waiting[query_id] = True, count
        return news

    def gone(self, query_id: bytes, attempt: int) -> None:
        """Note that a query is over, if it waited: no one decided in time, so it counts as refused."""
        self._waiting.pop(query_id, None)
        if self._history.waits(query_id):
            self._history.happened(
                query_id, attempt, What.ENDED, self._clock(), reason="no one decided before the answers were due"
            )

    def waiting(self) -> set[bytes]:
        """The queries that wait for a decision, as far as the history knows, also expired ones."""
        return self._history.waiting_ids()


def _refused(decided: Decided) -> WireError:
    """The refusal that a person decided on."""
    by = decided.refusal
    reason = f": {by.reason}" if by is not None and by.reason else ""
    detail = "" if by is None else f"{by.person} refused it{reason}."
    return WireError(Code.PERSON_REFUSED, detail)
