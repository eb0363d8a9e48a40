"""Plans whose privacy is that of a count: plain rados and DP-FEAT without noise."""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from dpcore.accounting.composition import DeltaTooSmallError, InfiniteEpsilonError
from dpcore.accounting.dp_feat import (
    DpFeatAccount,
    account,
    account_of_exact_split,
    delta_per_rado,
    epsilon_for,
    theorem_epsilon,
)
from dpcore.accounting.protection import Setting
from dpcore.accounting.truncation import admissible_range
from dpcore.errors import PlanError
from dpcore.numbers.count_distributions import binomial_mass
from dpcore.numbers.decimals import up
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statement import assumptions_of
from dpcore.rados.designs import DpFeatDesign, SensitiveFeature
from radofed.planning.cost import Cost, many_rados
from radofed.planning.limits import MOST_LOOKED_FOR, largest_rados
from radofed.planning.request import PlanRequest

DIVIDED = (
    "One draw over the pool is divided by the coordinator, which knows every party's part. It does so honestly and "
    "tells no one. The figure under collusion is for the learner and all other parties, not for the coordinator."
)


def plain_cost(request: PlanRequest) -> Cost:
    """Plain rados: no bound, except for each single -1/+1 coordinate (dpcore.accounting.dp_feat)."""
    cost = Cost(request, feasible=True)
    try:
        counted = account(request.party_rows, request.n, None, request.delta)
    except PlanError:
        return cost
    return replace(
        cost,
        marginal_epsilon=counted.epsilon,
        marginal_epsilon_if_others_collude=counted.epsilon_if_others_collude,
    )


def dp_feat_cost(request: PlanRequest) -> Cost:
    """DP-FEAT, with or without truncation, over either split."""
    cost = Cost(
        request,
        feasible=False,
        scope="marginal",
        delta=float(request.delta),
        theorem_epsilon=_theorem(request),
        delta_per_rado=_delta_per_rado(request),
        acceptance_rate=_acceptance(request),
        assumptions=_assumptions(request),
        largest_rados=None
        if request.epsilon is None
        else largest_rados(request.party_rows, request.epsilon, request.delta, most=max(MOST_LOOKED_FOR, request.n)),
    )
    try:
        counted = _account(request)
    except PlanError as error:
        alone = None if request.epsilon is not None else _learner_alone(request)
        if alone is not None:
            whose = "parties refuse it, since if the other parties work with the learner, "
        else:
            # Each of several parties counts its own distribution first: the others may reveal theirs.
            own = len(request.party_rows) > 1 and request.split == "local" and isinstance(error, InfiniteEpsilonError)
            whose = "if the other parties work with the learner, " if own else ""
        reason = whose + str(error).partition(": ")[0]
        smallest = None if request.epsilon_per_rado is None else _untruncated(request)
        return replace(
            cost,
            epsilon=alone,
            smallest_epsilon=smallest,
            reason=reason,
            suggestion=_what_works(request, error, smallest),
        )
    smallest = counted.epsilon if request.epsilon_per_rado is None else _untruncated(request)
    cost = replace(cost, smallest_epsilon=smallest)
    if request.epsilon is not None and Fraction(counted.epsilon) > request.epsilon:
        reason = (
            f"{many_rados(request.n)} cost{'s' if request.n == 1 else ''} an epsilon of {up(counted.epsilon)}, and "
            f"the plan allows {float(request.epsilon):.6g}"
        )
        fewer = f"ask for at most {many_rados(cost.largest_rados)}, or " if cost.largest_rados else ""
        return replace(cost, reason=reason, suggestion=f"{fewer}allow an epsilon of {up(counted.epsilon)}")
    return replace(
        cost,
        feasible=True,
        epsilon=counted.epsilon,
        epsilon_if_others_collude=counted.epsilon_if_others_collude,
    )


def _assumptions(request: PlanRequest) -> tuple[str, ...]:
    """Those of a query for these features; without a schema they have no names."""
    names = request.sensitive or ("the sensitive feature",)
    design = DpFeatDesign(tuple(SensitiveFeature(place, name) for place, name in enumerate(names)))
    parties = len(request.party_rows)
    first, *others = assumptions_of(RadosQuery(request.n, design), names, parties, Setting(len(names), 0, 1))
    # The first says who draws signatures.
    return (DIVIDED if request.split == "exact" and parties > 1 else first, *others)


def _account(request: PlanRequest) -> DpFeatAccount:
    count = account_of_exact_split if request.split == "exact" else account
    return count(request.party_rows, request.n, request.epsilon_per_rado, request.delta)


def _untruncated(request: PlanRequest) -> float | None:
    """The learner's figure without truncation, a lower bound with truncation; None if it is not possible."""
    try:
        return _account(replace(request, epsilon_per_rado=None)).epsilon
    except PlanError:
        return None


def _learner_alone(request: PlanRequest) -> float | None:
    """The learner's own figure for several parties, None if it is not finite."""
    if len(request.party_rows) == 1:
        return None
    pools = [request.rows] if request.split == "exact" else request.party_rows
    try:
        return epsilon_for(pools, request.n, request.epsilon_per_rado, request.delta).upper
    except PlanError:
        return None


def _theorem(request: PlanRequest) -> float | None:
    return None if request.epsilon_per_rado is None else theorem_epsilon(request.n, request.epsilon_per_rado)


def _acceptance(request: PlanRequest) -> float:
    if request.epsilon_per_rado is None:
        return 1.0
    rows = request.rows if request.split == "exact" else min(request.party_rows)
    return binomial_mass(rows, admissible_range(rows, request.epsilon_per_rado)[0])


def _delta_per_rado(request: PlanRequest) -> float | None:
    """The mass of the pool's least admitted count: the product of the parties' masses if each truncates its own.

    None if a truncation admits nothing.
    """
    pools = [request.rows] if request.split == "exact" else request.party_rows
    product = 1.0
    for rows, parties in Counter(pools).items():
        if request.epsilon_per_rado is not None:
            low, high = admissible_range(rows, request.epsilon_per_rado)
            if low > high:
                return None
            # Hoeffding: p(low) <= 2 exp(-2 (m/2 - low)^2 / m) (m + 1), below the range of doubles. The exact
            # figure would take a loop over all counts.
            if (rows - 2 * low) ** 2 > 2 * 800 * rows:
                return 0.0
        product *= delta_per_rado(rows, request.epsilon_per_rado) ** parties
    return product


def _what_works(request: PlanRequest, error: PlanError, untruncated: float | None) -> str | None:
    """Changes to the request that were checked and work; None if none was found."""
    ways = []
    fewer = _fewer_rados(request, error)
    if fewer is not None:
        ways.append(f"ask for {fewer} rados")
    if isinstance(error, DeltaTooSmallError):
        # Doubled, so that one digit of it is not below the smallest delta.
        larger = f"{2 * error.smallest_delta:.0e}"
        if Fraction(larger) < 1 and _works(replace(request, delta=Fraction(larger))):
            ways.append(f"choose a delta of {larger}")
    if untruncated is not None:
        ways.append(f"draw without truncation, at an epsilon of {up(untruncated)}")
    elif request.epsilon_per_rado is not None:
        free = replace(request, epsilon_per_rado=None)
        try:
            _account(free)
        except PlanError as refusal:
            fewer = _fewer_rados(free, refusal)
            if fewer is not None:
                ways.append(f"ask for {fewer} rados without truncation")
    return ", or ".join(ways) or None


def _fewer_rados(request: PlanRequest, error: PlanError) -> int | None:
    """A smaller number of rados that is possible; None if none was found."""
    n = request.n
    while True:
        n -= max(1, n // 10)
        if isinstance(error, InfiniteEpsilonError):
            n = min(n, error.largest_rados)
        if n < 1:
            return None
        try:
            _account(replace(request, rados=n))
            return n
        except PlanError as refusal:
            error = refusal


def _works(request: PlanRequest) -> bool:
    try:
        _account(request)
        return True
    except PlanError:
        return False
