"""Changes of one option of a plan, in the order in which they are tried, and the first of them that helps."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from dpcore.queries.statement import LARGE_EPSILON
from radofed.planning.signal import Signal

P = TypeVar("P", bound=Any)


def more_rows(request: P, most: int) -> Iterator[tuple[str, P]]:
    """The request with twice the rows, four times and so on, up to `most` in total, each in words."""
    factor = 2
    while factor * sum(request.party_rows) <= most:
        rows = tuple(factor * m for m in request.party_rows)
        yield f"{factor:,} times the rows ({sum(rows):,})", replace(request, party_rows=rows)
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
