"""Thresholds from noisy counts: concepts c_j over {0, ..., 2^d - 1} with c_j(x) = 1 if x < j, for j from 0 to 2^d.

With N_y[lo, hi) rows of label y in an interval, e(j) - e(0) = N_0[0, j) - N_1[0, j).

Interval v, for v from 1 to 2^d, is [v - b, v) with b the lowest set bit of v (Fenwick's tree, Software: Practice and
Experience 24(3), 1994), so [0, j) is the disjoint union of one interval for each set bit of j. There are d + 1 lengths:
one level for each.

    K(s) <= sum_{t < d} M2^(t + 1) (1 + M2)^t + M2^(d + 1);   K(s) = M2 (1 + M2)^d where j = 2^d,

M2 the squared moment generating function of one count's noise. Proof: docs/explanation/proofs.md, "Rows for a
threshold".
"""

from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpcore.pac.counts import MOST_COUNT_BITS, CountNoise, IntervalCounts, check_counts, counts_guarantee
from dpcore.pac.examples import check_bits
from dpcore.pac.guarantee import PacGuarantee


def threshold_counts(bits: int) -> IntervalCounts:
    """The counts that `threshold_from_counts` needs: 2^bits intervals by label, in bits + 1 levels of disjoint ones.

    Raises ConfigurationError if bits is not from 1 to 15.
    """
    check_bits(bits, MOST_COUNT_BITS)
    return IntervalCounts(tuple((end - (end & -end), end) for end in range(1, (1 << bits) + 1)), levels=bits + 1)


def threshold_from_counts(counts: ArrayLike) -> int:
    """The j whose concept has the fewest errors by the counts; the least such j.

    counts: (2, 2^bits) noisy numbers of rows in the order of `threshold_counts`, in any common unit. Post-processing:
    it costs no privacy. Raises ShapeError or ConfigurationError if counts are not such numbers.
    """
    (negatives, positives), bits = check_counts(counts)
    errors = np.concatenate([[0], negatives - positives])
    # From the longest interval down: errors[v] becomes that of [0, v) once [0, v - b), of longer ones, is known.
    for level in range(bits, -1, -1):
        ends = np.arange(1 << level, len(errors), 2 << level)
        errors[ends] += errors[ends - (1 << level)]
    return int(np.argmin(errors))


def threshold_counts_guarantee(
    bits: int,
    alpha: float,
    beta: float,
    noise: CountNoise,
    epsilon: Fraction,
    delta: Fraction,
    *,
    agnostic: bool = False,
) -> PacGuarantee:
    """The guarantee of `threshold_from_counts` with this noise on each count; the module's docstring has K(s).

    epsilon, delta: the privacy cost of releasing the counts. Raises ConfigurationError or PlanError.
    """
    check_bits(bits, MOST_COUNT_BITS)
    return counts_guarantee(
        lambda log_mgf: log_competitors(bits, log_mgf), noise, alpha, beta, epsilon, delta, agnostic=agnostic
    )


def log_competitors(bits: int, log_mgf: float) -> float:
    """The larger log K(s) of the module's docstring; log_mgf: that of the noise on one count, at s."""
    pair = 2 * log_mgf
    either = float(np.logaddexp(0.0, pair))
    terms = [(level + 1) * pair + level * either for level in range(bits)]
    below = float(np.logaddexp.reduce([*terms, (bits + 1) * pair]))
    return max(below, pair + bits * either)
