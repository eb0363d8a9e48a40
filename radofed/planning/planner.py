"""From a request to its cost."""

from dataclasses import replace

from dpcore.errors import PlanError
from dpcore.queries.base import QueryLimits
from dpcore.queries.fraction_bits import FractionBits
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import PlainDesign
from learner.requests import USUAL_RADOS
from radofed.planning.cost import Cost
from radofed.planning.counts import dp_feat_cost, plain_cost
from radofed.planning.limits import largest_rados
from radofed.planning.noise import noised_cost
from radofed.planning.request import PlanRequest
from radofed.planning.sizes import sizes_of


def plan_cost(request: PlanRequest) -> Cost:
    """The cost of a request. A query that is not possible is no error: the cost says why, and what would work.

    Raises ConfigurationError if arguments contradict each other.
    """
    if request.kind_name not in ("plain", "dp-feat"):
        return noised_cost(request)
    if request.chooses_rados:
        assert request.epsilon is not None, "rados are chosen to stay within an epsilon"
        most = largest_rados(request.party_rows, request.epsilon, request.delta, most=USUAL_RADOS)
        # If not even one fits, the refusal of one says what would work.
        request = replace(request, rados=max(1, most))
    return _with_sizes(plain_cost(request) if request.design == "plain" else dp_feat_cost(request))


def _with_sizes(cost: Cost) -> Cost:
    """The cost with its sizes, or as not feasible if the values cannot be packed."""
    request = cost.request
    if request.coordinates is None:
        return cost
    # Sums over truncated signatures are not larger than others.
    kind = RadosQuery(request.n, PlainDesign())
    limits = QueryLimits(request.rows, len(request.party_rows), request.coordinates)
    given = request.fraction_bits
    bits = FractionBits.for_rados(request.n) if given is None else FractionBits.exactly(given)
    try:
        return replace(cost, sizes=sizes_of(kind, limits, bits, request.key_bits))
    except PlanError as error:
        if not cost.feasible:
            return cost
        reason, _, suggestion = str(error).partition(": ")
        return replace(
            cost,
            feasible=False,
            epsilon=None,
            epsilon_if_others_collude=None,
            reason=reason,
            suggestion=suggestion,
        )
