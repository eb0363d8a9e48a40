"""POINT_d: concepts c_j over {0, ..., 2^d - 1} with c_j(x) = 1 if x = j, else 0.

`learn_point` takes rows, at one party or a curator: the exponential mechanism over all 2^d concepts
(dpcore.research.pac.finite_class), in time n log n, since all points without a row make the same number of errors.
A federation uses noisy counts instead: dpcore.pac.point_counts.
"""

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpcore.pac.examples import MOST_BITS, check_bits, integers_of
from dpcore.pac.guarantee import PacGuarantee
from dpcore.randomness.sources import RandomSource
from dpcore.research.pac.finite_class import finite_class_guarantee
from dpcore.research.pac.grouped_exponential import choose


def learn_point(points: ArrayLike, labels: ArrayLike, bits: int, epsilon: Fraction, random: RandomSource) -> int:
    """The j of a concept c_j, chosen with (epsilon, 0)-differential privacy by the exponential mechanism.

    points: (n,) integers of {0, ..., 2^bits - 1}, bits from 1 to 62. labels: (n,), {0, 1} or {-1, +1}. Runs at one
    party or a curator, who sees all rows. Raises ShapeError, ConfigurationError or PlanError for bad arguments.
    """
    values, positive = integers_of(points, labels, bits)
    seen, place = np.unique(values, return_inverse=True)
    score = np.zeros(len(seen), dtype=np.int64)
    # Rightly labelled rows, less those of label 0, which are the same number for every concept.
    np.add.at(score, place, np.where(positive, 1, -1))
    sizes = np.ones(len(seen), dtype=np.int64)
    unseen = (1 << bits) - len(seen)
    if unseen:
        sizes, score = np.append(sizes, unseen), np.append(score, 0)
    group, offset = choose(sizes, score, epsilon, random)
    if group < len(seen):
        return int(seen[group])
    # Unseen point k comes after as many seen ones as have at most k unseen before them.
    return offset + int(np.searchsorted(seen - np.arange(len(seen)), offset, side="right"))


def point_guarantee(bits: int, alpha: float, beta: float, epsilon: Fraction, *, agnostic: bool = False) -> PacGuarantee:
    """What `learn_point` promises: `finite_class_guarantee` with 2^bits concepts. Raises as it does."""
    check_bits(bits, MOST_BITS)
    return finite_class_guarantee(1 << bits, alpha, beta, epsilon, agnostic=agnostic)
