"""Signatures, drawn as packed selection bits.

A rado needs of a signature sigma only which records it selects: s_i = [sigma_i = y_i]. For fixed labels the map from
sigma to s is one to one, so s is uniform over {0, 1}^m exactly where sigma is uniform over {-1, +1}^m: bits are drawn,
and labels do not enter.

Packing: row i is bit i mod 8 of byte i div 8 (little-endian bit order); bits beyond the last row are zero.
"""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, ShapeError
from dpcore.privacy.laws import binomial_mass
from dpcore.rados.designs import Design, DpFeatDesign, FixedSupportDesign, GaussianDesign, PlainDesign
from dpcore.rados.edges import Records, sensitive_positive
from dpcore.rados.support import check_support, draw_subsets
from dpcore.rados.truncation import truncation
from dpcore.randomness import RandomSource

# Packed selection bits that one block of rados may take.
BLOCK_BYTES = 1 << 24

# Tries per rado that rejection may be expected to need.
MOST_EXPECTED_DRAWS = 10_000


class RejectionError(PlanError):
    """A truncation so narrow that rejection sampling would not end in reasonable time."""

    def __init__(self, *, expected_draws: float, most_expected_draws: int) -> None:
        self.expected_draws, self.most_expected_draws = expected_draws, most_expected_draws
        super().__init__(
            f"a rado would need {expected_draws:.0f} tries and {most_expected_draws} are allowed: "
            "raise epsilon per rado, or draw without truncation"
        )


def packed_width(rows: int) -> int:
    """Bytes of one packed signature of m = rows."""
    return -(-rows // 8)


def expected_draws(rows: int, low: int) -> float:
    """Tries that one signature needs on average: 1 / P(low <= Binomial(rows, 1/2) <= rows - low).

    The acceptance probability does not depend on the data, so neither does the time that drawing takes.
    """
    mass = binomial_mass(rows, low)
    return math.inf if mass == 0 else 1 / mass


def sensitive_counts(selection: NDArray[np.uint8], positive: NDArray[np.uint8], rows: int) -> NDArray[np.int64]:
    """The count k of each packed signature: (n,). selection: (n, ceil(m/8)). positive: (ceil(m/8),), packed [e = +1].

    k counts the rows whose selection bit equals [e = +1], that is, m minus the ones of their exclusive or.
    """
    differing = np.bitwise_count(selection ^ positive).sum(axis=1, dtype=np.int64)
    return np.asarray(rows - differing, dtype=np.int64)


def draw(
    design: Design, records: Records, rados: int, random: RandomSource, block_bytes: int = BLOCK_BYTES
) -> Iterator[NDArray[np.uint8]]:
    """Packed selection bits of `rados` signatures, independent, each uniform over the design's set, in blocks.

    Yields uint8 (block, ceil(m/8)); the blocks together have `rados` rows, and each takes about `block_bytes`. Under a
    truncation whole signatures are drawn until k is in the truncation of this party's own row count (Algorithm 2's
    rejection), which leaves the uniform law on the admitted set. The records of a rounded feature are rounded already.

    Raises PlanError where rados < 1 or the design is drawn by a coordinator, EmptyTruncationError, RejectionError or
    SupportError where the design cannot be met, ShapeError or SchemaError where a sensitive coordinate is not there or
    not coded -1/+1; all before the first block.
    """
    if rados < 1:
        raise PlanError(f"{rados} rados: ask for at least one")
    if block_bytes < 1:
        raise ShapeError(f"block_bytes is {block_bytes}: give at least 1")
    if isinstance(design, DpFeatDesign | FixedSupportDesign) and design.split != "local":
        raise PlanError(f"split is {design.split!r}: a party draws for itself only where it is 'local'")
    block = max(1, block_bytes // packed_width(records.rows))
    sizes = [min(block, rados - first) for first in range(0, rados, block)]
    if isinstance(design, PlainDesign):
        # The marginals that are counted for them hold for -1/+1 alone.
        for coordinate in design.booleans:
            sensitive_positive(records, coordinate)
    if isinstance(design, FixedSupportDesign | GaussianDesign) and design.fraction is not None:
        support = check_support(records.rows, design.fraction)
        return (np.concatenate(list(draw_subsets(records.rows, support, size, random))) for size in sizes)
    if isinstance(design, DpFeatDesign):
        positives = [np.packbits(sensitive_positive(records, j), bitorder="little") for j in design.coordinates]
        if design.epsilon_per_rado is not None:
            low = _admitted_low(records.rows, design.epsilon_per_rado)
            return (_central(size, positives[0], records.rows, low, block, random) for size in sizes)
    return (_uniform(size, records.rows, random) for size in sizes)


def _admitted_low(rows: int, epsilon_per_rado: Fraction) -> int:
    low, _ = truncation(rows, epsilon_per_rado)
    tries = expected_draws(rows, low)
    if tries > MOST_EXPECTED_DRAWS:
        raise RejectionError(expected_draws=tries, most_expected_draws=MOST_EXPECTED_DRAWS)
    return low


def _uniform(count: int, rows: int, random: RandomSource) -> NDArray[np.uint8]:
    width = packed_width(rows)
    bits = np.frombuffer(random.bytes(count * width), dtype=np.uint8).reshape(count, width).copy()
    bits[:, -1] &= 0xFF >> (8 * width - rows)
    return bits


def _central(
    count: int, positive: NDArray[np.uint8], rows: int, low: int, block: int, random: RandomSource
) -> NDArray[np.uint8]:
    """`count` uniform signatures with low <= k <= rows - low, by rejection in batches of at most `block`."""
    accepted = np.empty((count, packed_width(rows)), dtype=np.uint8)
    tries = expected_draws(rows, low)
    filled = 0
    while filled < count:
        candidates = _uniform(min(block, math.ceil((count - filled) * tries) + 8), rows, random)
        k = sensitive_counts(candidates, positive, rows)
        # The first ones that are admitted, in the order drawn: which are kept must depend on k alone.
        kept = candidates[(k >= low) & (k <= rows - low)][: count - filled]
        accepted[filled : filled + len(kept)] = kept
        filled += len(kept)
    return accepted
