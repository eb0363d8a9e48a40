"""What `dp-feat` queries a party of some size could answer at all, whoever else takes part. Pure."""

import math
from dataclasses import dataclass
from fractions import Fraction

from dpcore.accounting.composition import InfiniteEpsilonError
from dpcore.accounting.dp_feat import delta_per_rado, own_epsilon
from dpcore.errors import PlanError


@dataclass(frozen=True)
class DpFeatRange:
    """The `dp-feat` queries without truncation that one query's limits and a limit on epsilon leave to a party.

    Without truncation, and with a single rado, epsilon is finite at the smallest delta (dpcore.accounting.dp_feat):
    what is not possible here is possible with no truncation.

    one_rado: epsilon of a single rado, None where no bound is finite. largest: the most rados whose epsilon is at most
    `epsilon`, 0 where there are none. delta_needed: what delta must be above for a finite bound at this size.
    rows_needed: how many rows have one at this delta.
    """

    rows: int
    delta: Fraction
    one_rado: float | None
    largest: int
    delta_needed: float

    @property
    def rows_needed(self) -> int:
        """The fewest rows m with 2^-m below delta, for a single rado."""
        return math.floor(-math.log2(self.delta)) + 1


def dp_feat_range(rows: int, *, delta: Fraction, epsilon: Fraction, most_rados: int) -> DpFeatRange:
    """What a party of `rows` rows could answer at delta, with at most `most_rados` rados and epsilon.

    Raises PlanError where delta or the rows cannot be counted.
    """
    needed = delta_per_rado(rows, None)
    try:
        one = own_epsilon(rows, 1, None, delta)
    except InfiniteEpsilonError:
        return DpFeatRange(rows, delta, None, 0, needed)
    # Epsilon grows with the rados: the last that fits is bisected.
    below, above = 0, most_rados + 1
    while above - below > 1:
        middle = (below + above) // 2
        if _fits(rows, middle, delta, epsilon):
            below = middle
        else:
            above = middle
    return DpFeatRange(rows, delta, one, below, needed)


def _fits(rows: int, rados: int, delta: Fraction, epsilon: Fraction) -> bool:
    try:
        return own_epsilon(rows, rados, None, delta) <= epsilon
    except PlanError:
        return False
