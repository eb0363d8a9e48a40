"""What makes a plan possible that is not: changes of one option, each of which was planned before it is suggested."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from dpcore.accounting.composition import LARGEST_EPSILON
from dpcore.accounting.dp_feat import last_that_fits
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.numbers.rationals import up
from dpcore.randomness.noise import LARGEST_SIGMA
from radofed.planning.changes import fewer_coordinates, first_in, larger_delta
from radofed.planning.cost import Cost, many_rados
from radofed.planning.request import MOST_PLANNED_ROWS, PlanRequest

_HALF = Fraction(1, 2)
# The number of rows that is named exceeds the least by at most one in so many.
_STEPS = 20

Tried = Callable[[PlanRequest], Cost | None]


def what_works(request: PlanRequest, tried: Tried) -> str | None:
    """Any changes that make the request possible, in words, joined by ", or "; None if none was found.

    tried: the cost of a request that is possible, None for another. Every change is tried before it is named, with its
    new value, such as "choose fraction_bits of 16".
    """

    def works(changed: PlanRequest) -> bool:
        return tried(changed) is not None

    ways = [
        *_other_rados(request, tried, works),
        *_other_bits(request, works),
        *(f"use at most {words}" for words in first_in(fewer_coordinates(request), works)),
        *_other_noise(request, works),
        *(f"choose {words}" for words in first_in(larger_delta(request), works)),
        *_more_rows(request, works),
    ]
    return ", or ".join(ways) or None


Works = Callable[[PlanRequest], bool]


def _other_rados(request: PlanRequest, tried: Tried, works: Works) -> Iterator[str]:
    if request.rados is None:
        return
    fewer = _fewer_rados(request, works)
    if fewer:
        yield f"ask for at most {many_rados(fewer)}"
    if request.epsilon_per_rado is None:
        return
    free = replace(request, epsilon_per_rado=None)
    cost = tried(free)
    if cost is not None and cost.epsilon is not None:
        yield f"draw without truncation, at an epsilon of {up(cost.epsilon)}"
    elif fewer := _fewer_rados(free, works):
        yield f"ask for at most {many_rados(fewer)} without truncation"


def _fewer_rados(request: PlanRequest, works: Works) -> int:
    """The most rados, below the request's, that are possible: fewer never cost more. 0 if there is none."""
    return last_that_fits(0, request.n, lambda n: works(replace(request, rados=n)))


def _other_noise(request: PlanRequest, works: Works) -> Iterator[str]:
    without = {
        "edge_weight": replace(request, edge_weight=None),
        "norm_bound": replace(request, norm_bound=None),
        "support": replace(request, support=None),
    }
    for option, changed in without.items():
        if changed != request and works(changed):
            yield f"leave {option} out"
    if request.support is not None and request.support != _HALF and works(replace(request, support=_HALF)):
        yield "choose a support of 1/2"
    if request.epsilon is not None and request.epsilon > LARGEST_EPSILON:
        most = Fraction(LARGEST_EPSILON)
        if works(replace(request, epsilon=most)):
            yield f"allow an epsilon of {float(most):g}"
    if request.share_sd is not None:
        share = request.share_sd
        while share > 1 and not works(replace(request, share_sd=share)):
            share = min(share // 2, LARGEST_SIGMA)
        if share > 1:
            yield f"give a share of {share} units"


def _other_bits(request: PlanRequest, works: Works) -> Iterator[str]:
    if request.fraction_bits is None:
        return
    # Fewer bits need less room for sums and noise, so the most that fit come first.
    most = min(request.fraction_bits - 1, STORED_FRACTION_BITS)
    fitting = next((bits for bits in range(most, -1, -1) if works(replace(request, fraction_bits=bits))), None)
    if fitting is not None:
        yield f"choose fraction_bits of {fitting}"


def _more_rows(request: PlanRequest, works: Works) -> Iterator[str]:
    """More rows at the smallest parties: twice as many at a time, then the least between by bisection."""

    def raised(least: int) -> PlanRequest | None:
        rows = tuple(max(m, least) for m in request.party_rows)
        return replace(request, party_rows=rows) if sum(rows) <= MOST_PLANNED_ROWS else None

    below = min(request.party_rows)
    enough = 2 * below
    while (tried := raised(enough)) is not None and not works(tried):
        below, enough = enough, 2 * enough
    if tried is None:
        return
    while enough - below > max(1, enough // _STEPS):
        middle = (below + enough) // 2
        tried = raised(middle)
        below, enough = (below, middle) if tried is not None and works(tried) else (middle, enough)
    yield f"have at least {enough} rows at each party"
