"""Point functions from noisy counts: concepts c_j over {0, ..., 2^d - 1} with c_j(x) = 1 if x = j, else 0.

With N_y(x) rows of label y at x, concept j errs on e(j) = sum_x N_1(x) - N_1(j) + N_0(j) rows, so the fewest errors are
where N_1(j) - N_0(j) is largest.

A comparison of two concepts by noisy counts involves four of them, so K(s) of dpcore.pac.sample_size is (2^d - 1)
M(s)^4, with M the moment generating function of the noise on one count.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpcore.pac.counts import MOST_COUNT_BITS, CountNoise, IntervalCounts, check_counts, counts_guarantee
from dpcore.pac.examples import check_bits
from dpcore.pac.guarantee import PacGuarantee


def point_counts(bits: int) -> IntervalCounts:
    """The counts that `point_from_counts` needs: every value by label, 2^(bits + 1) in all, one level.

    Raises ConfigurationError if bits is not from 1 to 15.
    """
    check_bits(bits, MOST_COUNT_BITS)
    return IntervalCounts(tuple((value, value + 1) for value in range(1 << bits)), levels=1)


def point_from_counts(counts: ArrayLike) -> int:
    """The j whose concept has the fewest errors by the counts; the least such j.

    counts: (2, 2^bits) noisy numbers of rows in the order of `point_counts`, in any common unit. Post-processing: it
    costs no privacy. Raises ShapeError or ConfigurationError if counts are not such numbers.
    """
    (negatives, positives), _ = check_counts(counts)
    return int(np.argmax(positives - negatives))


def point_counts_guarantee(
    bits: int,
    alpha: float,
    beta: float,
    noise: CountNoise,
    epsilon: Fraction,
    delta: Fraction,
    *,
    agnostic: bool = False,
) -> PacGuarantee:
    """The guarantee of `point_from_counts` with this noise on each count; the module's docstring has K(s).

    epsilon, delta: the privacy cost of releasing the counts. Raises ConfigurationError or PlanError.
    """
    check_bits(bits, MOST_COUNT_BITS)
    log_others = math.log((1 << bits) - 1)
    return counts_guarantee(
        lambda log_mgf: log_others + 4 * log_mgf, noise, alpha, beta, epsilon, delta, agnostic=agnostic
    )
