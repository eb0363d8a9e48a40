"""The most rados within a total epsilon."""

import math
from collections.abc import Sequence
from fractions import Fraction

from dpcore.accounting import dp_feat
from dpcore.errors import PlanError

MOST_LOOKED_FOR = 100_000
"""The limit of the search: more take seconds to count, and few queries have so many."""


def largest_rados(party_rows: Sequence[int], epsilon: Fraction, delta: Fraction, most: int = MOST_LOOKED_FOR) -> int:
    """The most rados, without truncation, that are possible and cost at most `epsilon` for the learner alone.

    party_rows: at least one a party. epsilon > 0. delta: in (0, 1), for the whole release. most: limit of the search.
    Returns 0 if not even one rado fits. A plan is possible if the smallest party's own figure, which that party
    charges, is finite too.
    """
    n, fewest = dp_feat.largest_rados([sum(party_rows)], None, epsilon, delta, most), min(party_rows)
    return n if _counts(fewest, n, delta) else dp_feat.last_that_fits(0, n, lambda n: _counts(fewest, n, delta))


def _counts(rows: int, rados: int, delta: Fraction) -> bool:
    """Whether the epsilon of `rados` rados over one party of `rows` rows is finite."""
    try:
        return rados == 0 or dp_feat.epsilon_for([rows], rados, None, delta).upper < math.inf
    except PlanError:
        return False
