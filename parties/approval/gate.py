"""Between the party's decision on a query and its acceptance: whether people must decide first, and what they decided.

Nothing waits for a person but the answer: no mask key, reservation or contribution exists before the approval. The
approval is looked up when the acceptance is made, and again before the charge, under the policy of that moment.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore.errors import ConfigurationError
from dpcore.numbers.rationals import upper_digits
from dpcore.predicates.notation import described, parse
from parties.approval.decision_files import DecisionFiles, Left, Waiting
from parties.approval.decisions import Decided, Decision, DecisionError, Decisions, Delegates, Verdict
from parties.approval.giving import Order, carry_out
from parties.approval.notifying import Notice, ProposalNotice
from parties.approval.second_approvals import SecondApprovals, may_still_decide
from parties.approval.standing import Covers, Standing, shown_of
from parties.history.history import History, Shown, What
from parties.history.reading import ScopeCost, costs
from parties.history.studies import StudyRead, same_study, stated_in, studies
from parties.ledger.approvals import Approvals, Use
from parties.ledger.budgets import state_of
from parties.ledger.charges import Charge
from parties.ledger.limits import Event, LedgerLimits, merged, more_like
from parties.policy import ApprovalRules, Policy
from radobase.printing import amount, local_time
from wire.errors import Code, WireError
from wire.query import OpenedQuery, Query

# Why a query waits for a person's decision: the `[approval]` table of the policy applied to one query.
#
# By cost: what the learner has spent since people last approved a query of it counts too, and every attempt that the
# query allows. Epsilons simply add up for this, which is never less than what a ledger counts.


ChargesOf = Callable[[str, float], Sequence[tuple[bytes, Charge]]]
"""The query and cost of each attempt of a learner that is charged or reserved, from a time on: `Ledger.charges_of`."""

ApprovedOf = Callable[[Sequence[bytes]], set[bytes]]
"""Those of some queries that were accepted under an approval of several: `Approvals.used_by`."""


def reasons(rules: ApprovalRules, query: Query, charge: Charge, before: Fraction | float = 0) -> list[str]:
    """Why this query waits, one reason each; empty if it does not.

    charge: of one attempt. before: `cost_without_approval` of the learner's other queries.
    """
    found = []
    if rules.everything:
        found.append("every query needs approval")
    if query.kind.name in rules.designs:
        found.append(f"queries of kind {query.kind.name!r} need approval")
    if query.learner in rules.learners:
        found.append(f"queries of learner {query.learner!r} need approval")
    least, epsilon = rules.epsilon_at_least, largest_epsilon(charge)
    if least is not None and not math.isfinite(epsilon):
        found.append("an attempt has no bound for whole records, and such queries need approval")
    elif least is not None and before + query.max_attempts * epsilon >= least:
        attempts = f"in each of {query.max_attempts} attempts" if query.max_attempts > 1 else "in its one attempt"
        costs, so_far = upper_digits(float(epsilon), 6), ""
        if before > 0:
            spent = upper_digits(float(before), 6)
            so_far = f", after {spent} that {query.learner!r} spent since its last approval"
        found.append(
            f"it may cost epsilon {costs} {attempts}{so_far}, and people approve from a sum of {float(least):.6g} on"
        )
    if rules.admitted_predicates is not None:
        found += _unlisted(query, rules.admitted_predicates)
    return found


def largest_epsilon(charge: Charge) -> Fraction | float:
    """The largest epsilon of a charge in its scopes; infinite if it has no bound for whole records."""
    return max(loss.epsilon for _, loss in charge.bounds) if charge.is_bounded else math.inf


def cost_without_approval(
    decisions: Decisions,
    charges_of: ChargesOf,
    query_id: bytes,
    learner: str,
    policy: Policy,
    approved: ApprovedOf = lambda _: set(),
) -> Fraction | float:
    """The epsilons of a learner's charges and reservations since its last approval; infinite if one has no bound.

    Without those of this query, and of queries that people approved, one by one or with others. All releases of one
    noised table are one.
    """
    if policy.approval.epsilon_at_least is None:
        return Fraction(0)
    costs: dict[tuple[bytes, int], Fraction | float] = {}
    since = charges_of(learner, decisions.last_approval(learner, policy))
    with_others = approved([other for other, _ in since])
    for number, (other, charge) in enumerate(since):
        if (
            other == query_id
            or other in with_others
            or decisions.decided(other, learner, policy).verdict is Verdict.APPROVED
        ):
            continue
        key = (b"", number) if charge.epoch is None else (charge.epoch, -1)
        costs[key] = max(costs.get(key, Fraction(0)), largest_epsilon(charge))
    return sum(costs.values(), Fraction(0))


def _unlisted(query: Query, admitted: Iterable[str]) -> list[str]:
    # A list is about coordinates of the schema. Under a feature map the same text may be about another function.
    listed = {parse(text) for text in admitted} if query.feature_map is None else set()
    unlisted = [predicate for predicate in query.kind.batch if predicate not in listed]
    if not unlisted:
        return []
    more = f", and {len(unlisted) - 1} more" if len(unlisted) > 1 else ""
    return [f"not on the list of admitted predicates: {described(unlisted[0])}{more}"]


# What one attempt at a query costs a party, and the most that all attempts that it allows may cost in total.
#
# An approval holds for every attempt of a query, so the people who decide see the cost of all of them. Both figures
# are the ledger's own: losses add up in each scope, and each epsilon is the least at the delta of the scope's limit.
# It is assumed that every attempt uploads, over the same rows as now.


ASSUMED = (
    "costs are epsilons as this party's ledger counts them, at the delta of each limit; assumed is that every attempt "
    "uploads, over the same rows as now"
)


@dataclass(frozen=True)
class AttemptCosts:
    """What the attempts of a query cost, in each scope."""

    attempts: int
    one: tuple[ScopeCost, ...]
    """One attempt, with what is then spent."""
    most: tuple[ScopeCost, ...]
    """All `attempts` that the query allows together, with what is then spent."""
    more: int | None
    """How many attempts like it would still fit after one, None for any number."""
    admitted: int
    """How many of its attempts the lifetime limits admit, those that are charged or reserved included, as long as
    nothing else is charged."""

    @classmethod
    def of(
        cls, charge: Charge, attempts: int, limits: LedgerLimits, events: Sequence[Event], recorded: int, now: float
    ) -> "AttemptCosts":
        """charge: of an attempt. events: what the ledger holds; recorded: how many attempts of the query are among it.

        now: Unix seconds.
        """
        held = merged(events)
        present = _with(charge, held, 0 if recorded else 1, now)
        every = _with(charge, held, attempts - recorded, now)
        more = more_like(limits, present, charge)
        return cls(
            attempts,
            tuple(costs(charge, state_of(limits, present, now_unix_s=None))),
            tuple(costs(charge, state_of(limits, every, now_unix_s=None), count=attempts)),
            more,
            attempts if more is None else min(attempts, max(1, recorded) + more),
        )

    @property
    def attempts_words(self) -> str:
        """How often the cost of an attempt may be charged."""
        if self.attempts == 1:
            return "one attempt is allowed, so that its cost is the most that the query may cost"
        words = f"up to {self.attempts} attempts are allowed, and each that uploads is charged"
        if self.admitted < self.attempts:
            return (
                f"{words}; the lifetime limits have room for {self.admitted} of them, and the others would be refused"
            )
        return words

    @property
    def short(self) -> str:
        """The widest scope, in a few words."""
        one, most = self.one[0], self.most[0]
        if one.cost is None:
            return f"no bound, in up to {amount(self.attempts, 'attempt')}"
        together = f", at most {_figure(most)} in {self.attempts} attempts" if self.attempts > 1 else ""
        return f"{_figure(one)}{together}"

    def lines(self) -> list[str]:
        """For people, one fact a line."""
        lines = [f"cost of an attempt, {cost}" for cost in self.one]
        lines.append(self.attempts_words)
        if self.attempts > 1:
            lines += [
                f"most that all {self.attempts} attempts may cost in total, {cost.words('them')}" for cost in self.most
            ]
        return [*lines, ASSUMED]

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "costs": [vars(cost) for cost in self.one],
            "most_costs": [vars(cost) for cost in self.most],
            "attempts": self.attempts,
            "attempts_admitted": self.admitted,
        }


def _with(charge: Charge, events: Sequence[Event], count: int, now: float) -> list[Event]:
    more = Event(charge, charged=True, recorded_at_unix_s=now, count=count)
    return [*events, more] if count > 0 else [*events]


def _figure(cost: ScopeCost) -> str:
    return "no bound" if cost.cost is None else f"epsilon {upper_digits(cost.cost, 4)}"


Held = Callable[[bytes], tuple[Sequence[Event], int]]
"""What the ledger holds, and how many attempts of a query are among it: `Attempts.held_beside`."""


_SHOWN_AGAIN_S = 60.0


@dataclass(frozen=True)
class Pass:
    """That a query may be accepted. use: what it takes of an approval of several queries, None if it needs none."""

    use: Use | None = None


class Gate:
    """The approvals of one party's node."""

    def __init__(
        self,
        history: History,
        charges_of: ChargesOf,
        clock: Callable[[], float],
        approvals: Approvals,
        files: DecisionFiles | None = None,
        held: Held = lambda _: ((), 0),
        on_waits: Callable[[Notice | ProposalNotice], None] = lambda _: None,
    ) -> None:
        """charges_of: of the ledger. clock: Unix seconds. files: where other users decide, if they do.

        held: what the ledger holds, for the costs that these users are shown. approvals: of several queries, in the
        ledger's file. on_waits: called with each query that begins to wait, or waits for one more person, and with each
        proposal that does.
        """
        self._history, self._charges_of, self._clock, self._files = history, charges_of, clock, files
        self._held, self._on_waits = held, on_waits
        self._decisions = Decisions(history.database)
        self._approvals = approvals
        self._standing = Standing(approvals, history.database)
        self._delegates = Delegates(history.database)
        self._second = SecondApprovals(self._standing, self._delegates, approvals.count_acts, clock, on_waits)
        # How many approvals people knew of when they were last told of a query.
        self._told: dict[bytes, int] = {}
        self._acts = 0
        self._shown_approvals: tuple[Any, ...] = ()
        # How many decisions there were on each query that waits when it was last looked at.
        self._waiting: dict[bytes, int] = {}

    def passes(self, opened: OpenedQuery, attempt: int, charge: Charge, policy: Policy) -> Pass | None:
        """How the party may accept now; None if the query waits for a decision, which is noted.

        charge: of this attempt. Raises WireError(PERSON_REFUSED) if a person refused the query.
        """
        found = self._reasons(opened, charge, policy)
        decided = self._decisions.decided(opened.query_id, opened.query.learner, policy)
        if decided.verdict is Verdict.REFUSED:
            raise _refused(decided)
        if not found or decided.verdict is Verdict.APPROVED:
            self._waits_no_more(opened.query_id)
            return Pass()
        use, why = self._standing.covering(opened, attempt, charge, policy, self._clock())
        if use is not None:
            self._waits_no_more(opened.query_id)
            return Pass(use)
        self._wait(opened, attempt, charge, [*found, *why], decided, policy)
        return None

    def _waits_no_more(self, query_id: bytes) -> None:
        self._waiting.pop(query_id, None)
        self._told.pop(query_id, None)

    def beaten(self, opened: OpenedQuery, attempt: int, charge: Charge, reason: str, policy: Policy) -> None:
        """Note that a query waits which an approval let through that is used up or revoked by now."""
        decided = self._decisions.decided(opened.query_id, opened.query.learner, policy)
        self._wait(opened, attempt, charge, [reason], decided, policy)

    def _wait(
        self,
        opened: OpenedQuery,
        attempt: int,
        charge: Charge,
        reasons: Sequence[str],
        decided: Decided,
        policy: Policy,
    ) -> None:
        """Note that a query waits for a decision. decided: what people decided on it so far."""
        query_id = opened.query_id
        if query_id not in self._waiting:
            self._history.happened(query_id, attempt, What.WAITS, self._clock(), reasons=list(reasons))
        self._waiting[query_id] = len(decided.decisions)
        if self._told.get(query_id) != decided.counted:
            self._told[query_id] = decided.counted
            self._on_waits(self._notice(opened, charge, reasons, decided, policy))

    def _notice(
        self, opened: OpenedQuery, charge: Charge, reasons: Sequence[str], decided: Decided, policy: Policy
    ) -> Notice:
        query, now = opened.query, self._clock()
        approved = [each.person for each in decided.decisions if each.approves]
        return Notice(
            opened.query_id.hex(),
            query.learner,
            query.words,
            query.purpose,
            "" if query.training is None else query.training.words,
            tuple(reasons),
            str(charge),
            query.created_at_unix_s + query.answer_within_s,
            decided.counted,
            decided.needed,
            may_still_decide(policy, query.learner, approved, self._delegates.all(), now),
        )

    def check(self, opened: OpenedQuery, charge: Charge, policy: Policy) -> None:
        """Before a charge: raise WireError(PERSON_REFUSED) unless the query needs no approval or has it.

        The policy may have changed since the acceptance, or a person refused, or revoked.
        """
        decided = self._decisions.decided(opened.query_id, opened.query.learner, policy)
        if decided.verdict is Verdict.REFUSED:
            raise _refused(decided)
        if decided.verdict is Verdict.APPROVED or not self._reasons(opened, charge, policy):
            return
        if not self._standing.counts(opened.query_id, policy, self._clock()):
            raise WireError(Code.PERSON_REFUSED, "The policy asks for approval now, and too few people approved it.")

    def _reasons(self, opened: OpenedQuery, charge: Charge, policy: Policy) -> list[str]:
        query_id, learner = opened.query_id, opened.query.learner
        before = cost_without_approval(
            self._decisions, self._charges_of, query_id, learner, policy, self._approved_by_others
        )
        return reasons(policy.approval, opened.query, charge, before)

    def _approved_by_others(self, query_ids: Sequence[bytes]) -> set[bytes]:
        return set(self._approvals.used_by(query_ids))

    def has_news(self) -> bool:
        """Whether a person decided on a query that waits, since this was last asked."""
        news = False
        if self._waiting and (acts := self._approvals.count_acts()) != self._acts:
            news, self._acts = True, acts
        for query_id, known in list(self._waiting.items()):
            if (count := len(self._decisions.of(query_id))) != known:
                news, self._waiting[query_id] = True, count
        return news

    def take_decisions(self, policy: Policy) -> None:
        """Record what other users decided in the directory for it, and show what waits there. Raises OSError.

        Tells people of proposals that wait for one more of them, wherever the others decided.
        """
        self._take_from_files(policy)
        self._second.look(policy)

    def _take_from_files(self, policy: Policy) -> None:
        if self._files is None:
            return
        shown = self._history.waiting(self._clock())
        waiting = {each.query_id: each for each in shown}
        for left in self._files.left():
            counted, words = self._taken(left, waiting.get(left.query_id), policy)
            self._files.taken(left, words, counted=counted)
        self._show_approvals(policy)
        still = [each for each in shown if self._history.waits(each.query_id) and self._undecided(each, policy)]
        self._files.keep_only({each.query_id for each in still})
        for each in still:
            if self._files.shows(each.query_id):
                continue
            # What an older node was waiting for, and this one cannot read, is refused when it comes.
            if each.envelope is not None and (query := each.query) is not None:
                due = query.created_at_unix_s + query.answer_within_s
                events = self._history.events([each.query_id])[each.query_id]
                why = [event.details["reasons"] for event in events if event.what is What.WAITS][-1]
                needed = policy.approval.approvers
                cost, costs = self._costs(each, query, policy)
                same = self._same_study(each, policy)
                self._files.show(Waiting(each.query_id, each.envelope, tuple(why), cost, due, needed, costs, same))

    def _taken(self, left: Left, shown: Shown | None, policy: Policy) -> tuple[bool, str]:
        """Whether what somebody left counts, and what came of it or why it does not."""
        if left.decision is None:
            return False, left.cause
        try:
            if left.order is not None:
                return True, self._carried_out(left, left.decision, left.order, shown, policy)
            if shown is None:
                return False, "this query does not wait for a decision (any more)"
            found = self._decisions.decide(left.query_id, shown.learner, policy, left.decision, still_waits=True)
        except (DecisionError, ConfigurationError) as error:
            return False, str(error)
        return True, f"{found.verdict.value}: {found.counted} of {found.needed} approvals"

    def _carried_out(
        self, left: Left, decision: Decision, order: Mapping[str, Any], shown: Shown | None, policy: Policy
    ) -> str:
        done = carry_out(
            Order.of(order),
            left.query_id,
            None if shown is None else shown.envelope,
            decision.person,
            decision.reason,
            standing=self._standing,
            delegates=self._delegates,
            policy=policy,
        )
        return done.words

    def _show_approvals(self, policy: Policy) -> None:
        """Show other users the approvals of several queries, if they changed."""
        if self._files is None:
            return
        now = self._clock()
        # Approvals expire, and reservations are released.
        key = (*self._approvals.changes(), policy.digest, int(now // _SHOWN_AGAIN_S))
        if key != self._shown_approvals:
            every = self._standing.all(policy)
            found: tuple[StudyRead, ...] = ()
            if any(each.terms.covers is Covers.STUDY for each in every):
                # What each study spent is read for their sake alone.
                events, _ = self._held(b"")
                found = studies(policy, stated_in(self._history), events)
            self._files.show_approvals([shown_of(each, found, now) for each in every])
            self._shown_approvals = key

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

    def _same_study(self, shown: Shown, policy: Policy) -> tuple[str, ...]:
        """What people are asked about the number of its study, where another one is spelt alike."""
        if shown.study is None:
            return ()
        events, _ = self._held(shown.query_id)
        found = studies(policy, stated_in(self._history), events)
        return tuple(same_study(shown.study.protocol_number, found))

    def _undecided(self, shown: Shown, policy: Policy) -> bool:
        return self._decisions.decided(shown.query_id, shown.learner, policy).verdict is Verdict.UNDECIDED

    def gone(self, query_id: bytes, attempt: int) -> None:
        """Note that a query is over, if it waited: no one decided in time, so it counts as refused."""
        self._waits_no_more(query_id)
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
