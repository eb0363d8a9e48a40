"""Why a query waits for a person's decision: the `[approval]` table of the policy applied to one query.

By cost: what the learner has spent since people last approved a query of it counts too, and every attempt that the
query allows. Epsilons simply add up for this, which is never less than what a ledger counts.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

from dpcore.numbers.rationals import upper_digits
from dpcore.predicates.notation import described, parse
from parties.approval.decisions import Decisions, Verdict
from parties.ledger.charges import Charge
from parties.policy import ApprovalRules, Policy
from wire.query import Query

ChargesOf = Callable[[str, float], Sequence[tuple[bytes, Charge]]]
"""The query and cost of each attempt of a learner that is charged or reserved, from a time on: `Ledger.charges_of`."""


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
    decisions: Decisions, charges_of: ChargesOf, query_id: bytes, learner: str, policy: Policy
) -> Fraction | float:
    """The epsilons of a learner's charges and reservations since its last approval; infinite if one has no bound.

    Without those of this query, and of queries that people approved. All releases of one noised table are one.
    """
    if policy.approval.epsilon_at_least is None:
        return Fraction(0)
    costs: dict[tuple[bytes, int], Fraction | float] = {}
    for number, (other, charge) in enumerate(charges_of(learner, decisions.last_approval(learner, policy))):
        if other == query_id or decisions.decided(other, learner, policy).verdict is Verdict.APPROVED:
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
