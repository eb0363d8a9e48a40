"""Between the party's decision on a query and its acceptance: whether people must decide first, and what they decided.

Nothing waits for a person but the answer: no mask key, reservation or contribution exists before the approval. The
approval is looked up when the acceptance is made, and again before the charge, under the policy of that moment.
"""

from collections.abc import Callable, Sequence

from parties.approval.costs import AttemptCosts
from parties.approval.decisions import Decided, DecisionError, Decisions, Verdict
from parties.approval.files import DecisionFiles, Waiting
from parties.approval.reasons import ChargesOf, cost_without_approval, reasons
from parties.history.history import History, Shown, What
from parties.ledger.charges import Charge
from parties.ledger.limits import Event
from parties.policy import Policy
from radobase.printing import local_time
from wire.errors import Code, WireError
from wire.query import OpenedQuery, Query

Held = Callable[[bytes], tuple[Sequence[Event], int]]
"""What the ledger holds, and how many attempts of a query are among it: `Attempts.held_beside`."""


class Gate:
    """The approvals of one party's node."""

    def __init__(
        self,
        history: History,
        charges_of: ChargesOf,
        clock: Callable[[], float],
        files: DecisionFiles | None = None,
        held: Held = lambda _: ((), 0),
    ) -> None:
        """charges_of: of the ledger. clock: Unix seconds. files: where other users decide, if they do.

        held: what the ledger holds, for the costs that these users are shown.
        """
        self._history, self._charges_of, self._clock, self._files = history, charges_of, clock, files
        self._held = held
        self._decisions = Decisions(history.database)
        # How many decisions there were on each query that waits when it was last looked at.
        self._waiting: dict[bytes, int] = {}

    def lets_through(self, opened: OpenedQuery, attempt: int, charge: Charge, policy: Policy) -> bool:
        """Whether the party may accept now. If not, the query waits for a decision, which is noted.

        charge: of this attempt. Raises WireError(PERSON_REFUSED) if a person refused the query.
        """
        found = self._reasons(opened, charge, policy)
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
        if decided.verdict is Verdict.UNDECIDED and self._reasons(opened, charge, policy):
            raise WireError(Code.PERSON_REFUSED, "The policy asks for approval now, and too few people approved it.")

    def _reasons(self, opened: OpenedQuery, charge: Charge, policy: Policy) -> list[str]:
        before = cost_without_approval(self._decisions, self._charges_of, opened.query_id, opened.query.learner, policy)
        return reasons(policy.approval, opened.query, charge, before)

    def has_news(self) -> bool:
        """Whether a person decided on a query that waits, since this was last asked."""
        news = False
        for query_id, known in list(self._waiting.items()):
            if (count := len(self._decisions.of(query_id))) != known:
                news, self._waiting[query_id] = True, count
        return news

    def take_decisions(self, policy: Policy) -> None:
        """Record what other users decided in the directory for it, and show what waits there. Raises OSError."""
        if self._files is None:
            return
        shown = self._history.waiting(self._clock())
        waiting = {each.query_id: each.learner for each in shown}
        for left in self._files.left():
            cause, learner = left.cause, waiting.get(left.query_id)
            if left.decision is not None and learner is None:
                cause = "this query does not wait for a decision (any more)"
            elif left.decision is not None and learner is not None:
                try:
                    found = self._decisions.decide(left.query_id, learner, policy, left.decision, still_waits=True)
                except DecisionError as error:
                    cause = str(error)
                else:
                    words = f"{found.verdict.value}: {found.counted} of {found.needed} approvals"
                    self._files.taken(left, words, counted=True)
                    continue
            self._files.taken(left, cause, counted=False)
        still = [each for each in shown if self._history.waits(each.query_id) and self._undecided(each, policy)]
        self._files.keep_only({each.query_id for each in still})
        for each in still:
            if each.envelope is not None and not self._files.shows(each.query_id):
                query = Query.from_bytes(each.envelope.payload)
                due = query.created_at_unix_s + query.answer_within_s
                events = self._history.events([each.query_id])[each.query_id]
                why = [event.details["reasons"] for event in events if event.what is What.WAITS][-1]
                needed = policy.approval.approvers
                cost, costs = self._costs(each, query, policy)
                self._files.show(Waiting(each.query_id, each.envelope, tuple(why), cost, due, needed, costs))

    def _costs(self, shown: Shown, query: Query, policy: Policy) -> tuple[str, tuple[str, ...]]:
        """What an attempt and all that are allowed cost: in a few words, and in lines."""
        if shown.charge is None:
            return "not known yet", ()
        events, recorded = self._held(shown.query_id)
        limits = policy.limits.of_ledger
        now = self._clock()
        costs = AttemptCosts.of(shown.charge, query.max_attempts, limits, events, recorded, now)
        # The file is not written again while the query waits.
        return costs.short, (*costs.lines(), f"counted {local_time(now)}; what was charged since is not in it")

    def _undecided(self, shown: Shown, policy: Policy) -> bool:
        return self._decisions.decided(shown.query_id, shown.learner, policy).verdict is Verdict.UNDECIDED

    def gone(self, query_id: bytes, attempt: int) -> None:
        """Note that a query is over, if it waited: no one decided in time, so it counts as refused."""
        self._waiting.pop(query_id, None)
        if self._history.waits(query_id):
            # Who decided may have decided late, as one of too few, or while this party was paused.
            what = "it was not both decided on and answered" if self._decisions.of(query_id) else "no one decided"
            reason = f"{what} before the answers were due"
            self._history.happened(query_id, attempt, What.ENDED, self._clock(), reason=reason)

    def waiting(self) -> set[bytes]:
        """The queries that wait for a decision, as far as the history knows, also expired ones."""
        return self._history.waiting_ids()


def _refused(decided: Decided) -> WireError:
    """The refusal that a person decided on."""
    by = decided.refusal
    reason = f": {by.reason}" if by is not None and by.reason else ""
    detail = "" if by is None else f"{by.person} refused it{reason}."
    return WireError(Code.PERSON_REFUSED, detail)
