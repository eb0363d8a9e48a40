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
from radofed.planning.names import check_names
from radofed.planning.noise import noised_cost
from radofed.planning.remedies import what_counts, what_packs, what_works
from radofed.planning.request import MOST_PLANNED_ROWS, PlanRequest
from radofed.planning.signal import Signal, fewer_coordinates, first_that_helps, larger_epsilon, more_rows
from radofed.planning.sizes import Sizes, sizes_of

_NOTHING_WORKS = "no change of a single option makes it possible, so ask for moments, or have more rows"


def plan_cost(request: PlanRequest) -> Cost:
    """The cost of a request. A query that is not possible is no error: the cost says why, and what would work.

    Raises ConfigurationError if arguments contradict each other.
    """
    cost = bare_cost(request)
    if cost.feasible:
        return _warned(cost)
    if cost.suggestion:
        return cost
    noised = request.kind_name not in ("plain", "dp-feat")
    # The cost's request has the number of rados that was refused.
    found = what_works(request, _works) if noised else what_counts(replace(cost.request, coordinates=None), _works)
    return replace(cost, suggestion=found or _NOTHING_WORKS)


def _works(request: PlanRequest) -> bool:
    return bare_cost(request).feasible


def _warned(cost: Cost) -> Cost:
    """The cost with its alarm if the noise exceeds the signal, and with what was found to help."""
    request, signal = cost.request, cost.signal
    if signal is None or not signal.is_lost:
        return cost

    def signal_of(changed: PlanRequest) -> Signal | None:
        return bare_cost(changed).signal

    changes = (more_rows(request, MOST_PLANNED_ROWS), larger_epsilon(request), fewer_coordinates(request))
    helps = [words for each in changes for words in first_that_helps(each, signal_of)]
    if request.design in ("gaussian", "fixed-support") and request.epsilon is not None:
        instead = replace(request, design="moments", rados=None, support=None, fraction_bits=None)
        helps += first_that_helps([("moments in place of rados", instead)], signal_of)
    return replace(cost, warning=signal.warning(helps))


def bare_cost(request: PlanRequest) -> Cost:
    """The cost without advice that takes other plans: some suggestions, and what would help against noise."""
    if (refused := check_names(request)) is not None:
        return refused
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
    try:
        return replace(cost, sizes=_sizes(request, request.coordinates))
    except PlanError as error:
        if not cost.feasible:
            return cost
        return replace(
            cost,
            feasible=False,
            epsilon=None,
            epsilon_if_others_collude=None,
            reason=str(error).partition(": ")[0],
            # Neither these changes nor fewer rados raise the privacy cost.
            suggestion=what_packs(request, _packs) or _NOTHING_WORKS,
        )


def _sizes(request: PlanRequest, coordinates: int) -> Sizes:
    # Sums over truncated signatures are not larger than others.
    kind = RadosQuery(request.n, PlainDesign())
    limits = QueryLimits(request.rows, len(request.party_rows), coordinates)
    given = request.fraction_bits
    bits = FractionBits.for_rados(request.n) if given is None else FractionBits.exactly(given)
    return sizes_of(kind, limits, bits, request.key_bits)


def _packs(request: PlanRequest) -> bool:
    assert request.coordinates is not None, "values are packed if their number is known"
    try:
        _sizes(request, request.coordinates)
    except PlanError:
        return False
    return True
