"""Who can still approve where several people must, and which proposals wait for one more of them."""

from collections.abc import Callable, Iterable, Sequence

from parties.approval.decisions import Delegates, Delegation, Person, counted, why_not
from parties.approval.notifying import ProposalNotice
from parties.approval.standing import Approval, Standing
from parties.ledger.approvals import ActKind, ApprovalState
from parties.policy import Policy

_ANY_NAME = "-"
"""A policy may ask for a name with a decision. The person who decides gives one."""


def may_still_decide(
    policy: Policy, learner: str, approved: Iterable[Person], delegates: Sequence[Delegation], now_unix_s: float
) -> tuple[str, ...]:
    """The listed users, and their delegates, whose approval would count beside those that there are.

    Empty if the policy lists no users: then every user who may write the state directory decides.
    """
    given = [person for person in approved if not why_not(person, learner, policy)]
    found = []
    for user in policy.approval.users:
        own = [
            each.user for each in delegates if each.acts_for.casefold() == user.casefold() and each.holds(now_unix_s)
        ]
        for person in (Person(user, _ANY_NAME), *(Person(each, _ANY_NAME, user) for each in own)):
            counts = len(counted([*given, person])) > len(counted(given))
            if counts and not why_not(person, learner, policy):
                found.append(person.user)
    return tuple(found)


class SecondApprovals:
    """Tells people of proposals that wait for one more of them, each once for each approval that it has."""

    def __init__(
        self,
        standing: Standing,
        delegates: Delegates,
        count_acts: Callable[[], int],
        clock: Callable[[], float],
        on_waits: Callable[[ProposalNotice], None],
    ) -> None:
        """count_acts: a number that grows with everything that people do about approvals."""
        self._standing, self._delegates, self._count_acts = standing, delegates, count_acts
        self._clock, self._on_waits = clock, on_waits
        self._seen: tuple[int, str] | None = None
        self._told: dict[bytes, int] = {}

    def look(self, policy: Policy) -> None:
        """Tell people of proposals that are new since the last look."""
        seen = (self._count_acts(), policy.digest)
        if seen == self._seen:
            return
        self._seen, now = seen, self._clock()
        waiting = {each.approval_id: each for each in self._standing.all(policy) if is_proposal(each, now)}
        for approval_id, each in waiting.items():
            if self._told.get(approval_id) != each.counted:
                self._on_waits(self._notice(each, policy, now))
        self._told = {approval_id: each.counted for approval_id, each in waiting.items()}

    def _notice(self, approval: Approval, policy: Policy, now: float) -> ProposalNotice:
        terms = approval.terms
        acts = [act for act in approval.stored.acts if act.kind is ActKind.APPROVED]
        people = [Person(act.user, act.name, act.acts_for) for act in acts]
        able = may_still_decide(policy, terms.learner, people, self._delegates.all(), now)
        return ProposalNotice(
            approval.approval_id.hex(),
            terms.learner,
            tuple(terms.lines()),
            tuple(map(str, people)),
            approval.counted,
            approval.needed,
            able,
            terms.until_unix_s,
        )


def is_proposal(approval: Approval, now_unix_s: float) -> bool:
    """Whether a person approved, and too few did."""
    if approval.stored.state is ApprovalState.ENDED or now_unix_s >= approval.terms.until_unix_s:
        return False
    return bool(approval.stored.acts) and approval.counted < approval.needed
