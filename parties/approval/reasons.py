"""Why a query waits for a person's decision: the `[approval]` table of the policy applied to one query."""

import math
from collections.abc import Iterable
from fractions import Fraction

from dpcore.predicates.notation import described, parse
from parties.ledger.charges import Charge
from parties.policy import ApprovalRules
from wire.query import Query


def reasons(rules: ApprovalRules, query: Query, charge: Charge) -> list[str]:
    """Why this query waits, one reason each; empty if it does not. charge: of one attempt."""
    found = []
    if rules.everything:
        found.append("every query needs approval")
    if query.kind.name in rules.designs:
        found.append(f"queries of kind {query.kind.name!r} need approval")
    if query.learner in rules.learners:
        found.append(f"queries of learner {query.learner!r} need approval")
    least, epsilon = rules.epsilon_at_least, largest_epsilon(charge)
    if least is not None and epsilon >= least:
        cost = f"costs epsilon {float(epsilon):.6g}" if math.isfinite(epsilon) else "has no bound for whole records"
        found.append(f"an attempt {cost}, and queries need approval from epsilon {float(least):.6g} on")
    if rules.admitted_predicates is not None:
        found += _unlisted(query, rules.admitted_predicates)
    return found


def largest_epsilon(charge: Charge) -> Fraction | float:
    """The largest epsilon of a charge in its scopes; infinite if it has no bound for whole records."""
    return max(loss.epsilon for _, loss in charge.bounds) if charge.is_bounded else math.inf


def _unlisted(query: Query, admitted: Iterable[str]) -> list[str]:
    # A list is about coordinates of the schema. Under a feature map the same text may be about another function.
    listed = {parse(text) for text in admitted} if query.feature_map is None else set()
    unlisted = [predicate for predicate in query.kind.batch if predicate not in listed]
    if not unlisted:
        return []
    more = f", and {len(unlisted) - 1} more" if len(unlisted) > 1 else ""
    return [f"not on the list of admitted predicates: {described(unlisted[0])}{more}"]
