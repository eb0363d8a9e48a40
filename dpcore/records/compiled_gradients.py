"""Clipped gradients of rows, compiled: exact integers, one block of rows at a time.

Importing this module imports Numba, which is slow: import it only in functions that compute.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled
from dpcore.records.margin_weights import LARGEST_MARGIN, STEP_BITS

_HALF = LARGEST_MARGIN << STEP_BITS


@compiled(
    *(
        types.void(
            types.Array(kind, 2, "C"),
            types.Array(types.int64, 1, "C", readonly=True),
            types.Array(types.int64, 1, "C", readonly=True),
            types.int64,
            types.int64,
            types.int64[::1],
        )
        for kind in (types.float64, types.int64)
    )
)
def subtract_gradients(
    vectors: NDArray[np.float64] | NDArray[np.int64],
    theta: NDArray[np.int64],
    table: NDArray[np.int64],
    shift: int,
    most: int,
    total: NDArray[np.int64],
) -> None:
    """Subtract w z of every row from `total`, (d,), z being the row truncated toward zero and w its weight.

    vectors: (rows, d), integers, or products with a basis, whose size is below 2^53. theta: (d,). table: of
    dpcore.records.margin_weights.weight_table. shift: bits of a margin below a step of the table. most: the largest
    squared length of w z. Equals `shortened(weights(z @ theta), z^2, most) @ z` of that module bit for bit, if margins
    and squared lengths fit 64 bits, which dpcore.queries.gradient checks.
    """
    rows, d = vectors.shape
    z = np.empty(d, dtype=np.int64)
    for row in range(rows):
        margin, squared = np.int64(0), np.int64(0)
        for place in range(d):
            value = np.int64(vectors[row, place])
            z[place] = value
            margin += value * theta[place]
            squared += value * value
        # Beyond the table, the weight of its end.
        step = (margin >> shift) + _HALF
        weight = table[0] if step < 0 else table[-1] if step >= len(table) else table[step]
        if weight * weight * np.float64(squared) > 0.5 * np.float64(most):
            # At most one unit too large: the root of a quotient in double precision, rounded down.
            weight = min(weight, np.int64(np.sqrt(np.float64(most) / np.float64(squared)) + 1))
            while weight > 0 and squared > most // (weight * weight):
                weight -= 1
        if weight > 0:
            for place in range(d):
                total[place] -= weight * z[place]
