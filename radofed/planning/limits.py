"""The most rados that a total epsilon pays for, found in a few compositions."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from dpcore.accounting.composition import LARGEST_EPSILON
from dpcore.accounting.dp_feat import epsilon_for
from dpcore.errors import PlanError

MOST_LOOKED_FOR = 100_000
"""Counting more takes seconds, and few ask for as many."""


def largest_rados(party_rows: Sequence[int], epsilon: Fraction, delta: Fraction, most: int = MOST_LOOKED_FOR) -> int:
    """The most rados, without truncation, that cost at most `epsilon` for the learner alone and can be asked at all.

    party_rows: at least one a party. epsilon > 0. delta: in (0, 1), for the whole release. most: more are not looked
    for. 0 where not even one rado fits. A plan can be asked where the smallest party's own figure, which a party
    charges, is finite too. Agrees with `dpcore.accounting.dp_feat.largest_rados` on one pool, in a few compositions
    instead of dozens.
    """
    n, fewest = _within(sum(party_rows), epsilon, delta, most), min(party_rows)
    return n if _counts(fewest, n, delta) else _last(0, n, lambda n: _counts(fewest, n, delta))


def _within(rows: int, epsilon: Fraction, delta: Fraction, most: int) -> int:
    """The most rados whose cost for the learner alone is at most `epsilon`; 0 where none.

    Epsilon grows with n, nearly as mu^2/2 + mu sqrt(2 log 1/delta) with mu^2 in proportion to n (a Gaussian's composed
    loss). Each count tells by that rule where to look next, so a few are enough; the answer is an n that fits beside
    one that does not, and does not rest on the rule.
    """
    tail = math.sqrt(-2 * math.log(delta))

    def mu(cost: float) -> float:
        # sqrt(tail^2 + 2 cost) - tail without its cancellation.
        return 2 * cost / (math.sqrt(tail * tail + 2 * cost) + tail)

    wanted = mu(min(float(epsilon), LARGEST_EPSILON))
    below, above = 0, most + 1
    # One rado's loss is near 2 (m/2 - k) / (m/2), of variance 4/m.
    guess = wanted * wanted * rows / 4
    # Where the rule misleads, halving ends it.
    for step in (1, 1, 1, 2, 4, 8, 16, 32):
        if above - below <= 1:
            break
        at = max(below + 1, min(above - 1, int(min(guess, most))))
        cost = _alone(rows, at, delta)
        # Nothing tells where to look when no finite epsilon holds, so the range is halved.
        likely = at * (wanted / mu(cost)) ** 2 if 0 < cost < math.inf else (below + at) / 2
        if cost <= epsilon:
            below, guess = at, max(likely, at + step)
        else:
            above, guess = at, min(likely, at - step)
    return _last(below, above, lambda n: _alone(rows, n, delta) <= epsilon)


def _alone(rows: int, rados: int, delta: Fraction) -> float:
    """The learner's own epsilon for so many rados without truncation; inf where none is finite."""
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
