"""L2 sensitivities of sums under replacing one record, in the integer units that are sent.

Every bound is for clipped integer vectors (dpcore.records.clipping), so it holds for the integers sent and not only for
the real numbers that they encode. Squared sensitivities are exact rationals; a root is rounded up.
"""

import math
from fractions import Fraction

from dpcore.records.clipping import Clip
from dpcore.records.margin_weights import clip_squared

SQUARE_WEIGHT, PRODUCT_WEIGHT = 5, 7
"""Integer weights of x_j^2 and of x_j x_k, j < k, in a `moments` contribution: 7/5 is just below sqrt(2)."""


def edge_squared(clip: Clip, fraction_bits: int) -> int:
    """Max |e - e'|^2 = 4 S over vectors with |e|^2, |e'|^2 <= S, by the triangle inequality; reached at e' = -e."""
    return 4 * clip.squared_units(fraction_bits)


def joint_squared(squared_range: int, fraction_bits: int) -> int:
    """Max |e - e'|^2 where only the coordinates of one source column differ, codings at most squared_range apart.

    The label is the same, so |y x - y x'| = |x - x'|; the codings 0, 1 and -1 are exact at any fraction_bits, and
    truncation toward zero keeps a real feature within [-2^f, 2^f].
    """
    return squared_range << 2 * fraction_bits


def moments_squared(clip: Clip, fraction_bits: int, edge_multiplier: int) -> Fraction:
    """An upper bound of max |v - v'|^2 for a record's `moments` vector v.

    v holds k e (k = edge_multiplier), 5 x_j^2, and 7 x_j x_k for j < k. Let F = e e^T.

    As 7^2 <= 2 * 5^2, the products' part of the distance is at most 25 |F - F'|^2 in the Frobenius norm, which has
    every off-diagonal entry twice. v leaves out the square of the bias, which can only lower the distance.

    With |e|^2, |e'|^2 <= S and c = e . e', |F - F'|^2 = |e|^4 + |e'|^4 - 2 c^2, so

        |v - v'|^2 <= k^2 (2 S - 2 c) + 25 (2 S^2 - 2 c^2),   -S <= c <= S.

    The right side is concave in c, with its maximum at c = -k^2 / 50, or at c = -S if -k^2 / 50 < -S.
    """
    longest = clip.squared_units(fraction_bits)
    square = edge_multiplier**2
    c = max(Fraction(-square, 50), Fraction(-longest))
    return square * (2 * longest - 2 * c) + SQUARE_WEIGHT**2 * (2 * longest**2 - 2 * c * c)


def gradient_squared(clip: Fraction, fraction_bits: int) -> int:
    """Max |v - v'|^2 = 4 S over integer gradients with |v|^2, |v'|^2 <= S, by the triangle inequality.

    A `gradient` contribution v = -w e has an integer weight w with which w^2 |e|^2 <= S = floor(C^2 4^(f + 12)),
    verified in exact arithmetic on the integers that are sent (dpcore.queries.gradient). Theta is the same for both
    records, so only v differs.
    """
    return 4 * clip_squared(clip, fraction_bits)


def root_up(value: Fraction | int) -> float:
    """The root of an exact positive number, rounded up."""
    squared = Fraction(value)
    # Scale by an even power of two, so that the root has all the bits of a double at any size.
    shift = 2 * max(0, 64 + (squared.denominator.bit_length() - squared.numerator.bit_length()) // 2)
    root = math.isqrt(math.ceil(squared * (1 << shift))) + 1
    return math.nextafter(math.ldexp(float(root), -shift // 2), math.inf)
