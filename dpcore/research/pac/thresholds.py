"""THRESHOLD_d: concepts c_j over {0, ..., 2^d - 1} with c_j(x) = 1 if x < j, for j from 0 to 2^d.

`learn_threshold` takes rows, at one party or a curator: the exponential mechanism over all 2^d + 1 concepts
(dpcore.research.pac.finite_class), in time n log n, since the number of errors changes only after a row's value.
A federation uses noisy counts instead: dpcore.pac.threshold_counts.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpcore.pac.examples import MOST_BITS, check_bits, integers_of
from dpcore.pac.guarantee import PacGuarantee
from dpcore.randomness.sources import RandomSource
from dpcore.research.pac.finite_class import finite_class_guarantee
from dpcore.research.pac.grouped_exponential import choose


def learn_threshold(points: ArrayLike, labels: ArrayLike, bits: int, epsilon: Fraction, random: RandomSource) -> int:
    """The j of a concept c_j, 0 <= j <= 2^bits, chosen with (epsilon, 0)-differential privacy.

    points: (n,) integers of {0, ..., 2^bits - 1}, bits from 1 to 62. labels: (n,), {0, 1} or {-1, +1}. Runs at one
    party or a curator, who sees all rows. Raises ShapeError, ConfigurationError or PlanError for bad arguments.
    """
    values, positive = integers_of(points, labels, bits)
    seen, place = np.unique(values, return_inverse=True)
    gain = np.zeros(len(seen), dtype=np.int64)
    np.add.at(gain, place, np.where(positive, 1, -1))
    # Concept 0 labels every row 0; a larger j gains the positive rows below it and loses the negative ones.
    score = np.concatenate([[0], np.cumsum(gain)])
    starts = np.concatenate([[0], seen + 1])
    sizes = np.diff(np.append(starts, (1 << bits) + 1))
    group, offset = choose(sizes, score, epsilon, random)
    return int(starts[group]) + offset


def threshold_guarantee(
    bits: int, alpha: float, beta: float, epsilon: Fraction, *, agnostic: bool = False
) -> PacGuarantee:
    """The guarantee of `learn_threshold`: `finite_class_guarantee` with 2^bits + 1 concepts. Raises as it does."""
    check_bits(bits, MOST_BITS)
    return finite_class_guarantee((1 << bits) + 1, alpha, beta, epsilon, agnostic=agnostic)
