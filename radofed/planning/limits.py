"""The most rados within a total epsilon, found in a few compositions."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from dpcore.accounting.composition import LARGEST_EPSILON
from dpcore.accounting.dp_feat import epsilon_for
from dpcore.errors import PlanError

MOST_LOOKED_FOR = 100_000
"""The limit of the search: more take seconds to count, and few queries have so many."""


def largest_rados(party_rows: Sequence[int], epsilon: Fraction, delta: Fraction, most: int = MOST_LOOKED_FOR) -> int:
    """The most rados, without truncation, that are possible and cost at most `epsilon` for the learner alone.

    party_rows: at least one a party. epsilon > 0. delta: in (0, 1), for the whole release. most: limit of the search.
    Returns 0 if not even one rado fits. A plan is possible if the smallest party's own figure, which that party
    charges, is finite too. Agrees with `dpcore.accounting.dp_feat.largest_rados` on one pool, in a few compositions
    instead of dozens.
    """
    n, fewest = _within(sum(party_rows), epsilon, delta, most), min(party_rows)
    return n if _counts(fewest, n, delta) else _last(0, n, lambda n: _counts(fewest, n, delta))


def _within(rows: int, epsilon: Fraction, delta: Fraction, most: int) -> int:
    """The most rados whose cost for the learner alone is at most `epsilon`; 0 if none.

    Epsilon grows with n, nearly as mu^2/2 + mu sqrt(2 log 1/delta) with mu^2 in proportion to n (a Gaussian's composed
    loss). By that rule each count gives the next guess, so a few are enough. The answer does not depend on the rule:
    it is an n that fits, while n + 1 does not.
    """
    tail = math.sqrt(-2 * math.log(delta))

    def mu(cost: float) -> float:
        # sqrt(tail^2 + 2 cost) - tail, without cancellation.
        return 2 * cost / (math.sqrt(tail * tail + 2 * cost) + tail)

    wanted = mu(min(float(epsilon), LARGEST_EPSILON))
    below, above = 0, most + 1
    # One rado's loss is near 2 (m/2 - k) / (m/2), of variance 4/m.
    guess = wanted * wanted * rows / 4
    # If the rule misleads, bisection finishes the search.
    for step in (1, 1, 1, 2, 4, 8, 16, 32):
        if above - below <= 1:
            break
        at = max(below + 1, min(above - 1, int(min(guess, most))))
        cost = _alone(rows, at, delta)
        # An infinite epsilon gives no guess, so halve the range.
        likely = at * (wanted / mu(cost)) ** 2 if 0 < cost < math.inf else (below + at) / 2
        if cost <= epsilon:
            below, guess = at, max(likely, at + step)
        else:
            above, guess = at, min(likely, at - step)
    return _last(below, above, lambda n: _alone(rows, n, delta) <= epsilon)


def _alone(rows: int, rados: int, delta: Fraction) -> float:
    """The learner's own epsilon for `rados` rados without truncation; inf if none is finite."""
    try:
        return epsilon_for([rows], rados, None, delta).upper
    except PlanError:
        return math.inf


def _last(below: int, above: int, fits: Callable[[int], bool]) -> int:
    """The last n that fits, given that `below` does and `above` does not."""
    while above - below > 1:
        n = (below + above) // 2
        below, above = (n, above) if fits(n) else (below, n)
    return below


def _counts(rows: int, rados: int, delta: Fraction) -> bool:
    return rados == 0 or _alone(rows, rados, delta) < math.inf
