"""What makes a plan possible that is not: changes of one option, each of which was planned before it is suggested."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from dpcore.accounting.composition import LARGEST_EPSILON
from dpcore.accounting.dp_feat import last_that_fits
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.numbers.rationals import up
from dpcore.queries.statement import LARGE_EPSILON
from dpcore.randomness.noise import LARGEST_SIGMA
from radofed.planning.design_cost import MOST_PLANNED_ROWS, Cost, PlanRequest, many_rados
from radofed.planning.signal import Signal

# Changes of one option of a plan, in the order in which they are tried, and the first of them that helps.

P = TypeVar("P", bound=Any)


def more_rows(request: P, most: int) -> Iterator[tuple[str, P]]:
    """The request with twice the rows, four times and so on, up to `most` in total, each in words."""
    factor = 2
    while factor * sum(request.party_rows) <= most:
        rows = tuple(factor * m for m in request.party_rows)
        yield f"{factor:,} times the {request.noun}s ({sum(rows):,})", replace(request, party_rows=rows)
        factor *= 2


def larger_epsilon(request: P) -> Iterator[tuple[str, P]]:
    """The request with larger epsilons, from the next of 1, 2, 5, 10, ... up to `LARGE_EPSILON`, each in words."""
    if request.epsilon is None:
        return
    power = math.floor(math.log10(request.epsilon))
    for exponent in range(power, 2):
        for digit in (1, 2, 5):
            epsilon = digit * Fraction(10) ** exponent
            if request.epsilon < epsilon <= Fraction(LARGE_EPSILON):
                yield f"an epsilon of {float(epsilon):g}", replace(request, epsilon=epsilon)


def larger_delta(request: P) -> Iterator[tuple[str, P]]:
    """The request with larger deltas, each in words.

    A query states at most 63 bits, so none is below 1e-18. One above 1e-5 would allow records of most tables to be
    disclosed as a whole (dpcore.queries.statement).
    """
    for exponent in (18, 15, 12, 10, 9, 8, 7, 6, 5):
        delta = Fraction(1, 10**exponent)
        if 0 < request.delta < delta:
            yield f"a delta of 1e-{exponent}", replace(request, delta=delta)


def fewer_coordinates(request: P) -> Iterator[tuple[str, P]]:
    """The request with half of its coordinates, a quarter and so on, each in words; not if a schema has them."""
    fewer = (request.coordinates or 0) // 2
    while fewer >= 2 and request.schema is None:
        yield f"{fewer} coordinates", replace(request, coordinates=fewer)
        fewer //= 2


def first_that_helps(changes: Iterable[tuple[str, P]], signal_of: Callable[[P], Signal | None]) -> list[str]:
    """The words of the first change whose plan raises no alarm; empty if there is none.

    A change helps if the one before it does: of more rows, larger epsilons and fewer coordinates.
    """

    def helps(changed: P) -> bool:
        signal = signal_of(changed)
        return signal is not None and not signal.is_lost

    return first_in(changes, helps)


def first_in(changes: Iterable[tuple[str, P]], works: Callable[[P], bool]) -> list[str]:
    """The words of the first change that works; empty if none was found.

    If one works, so must those after it, except for far ones, such as more rows than a slot has room for.
    """
    changes = list(changes)
    below, above = -1, 0
    while above < len(changes) and not works(changes[above][1]):
        below, above = above, 2 * above + 1 if 2 * above + 1 < len(changes) else max(above + 1, len(changes) - 1)
    if above >= len(changes):
        return []
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if works(changes[middle][1]) else (middle, above)
    return [changes[above][0]]


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
