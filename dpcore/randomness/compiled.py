"""The loops of the discrete Gaussian's sampler, compiled. Importing it compiles or loads them."""

import math
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled

_INT64, _FLOAT64 = types.int64, types.float64
_alike: Any = types.UniTuple


def _given(kind: types.Type) -> types.Array:
    return types.Array(kind, 1, "C", readonly=True)


@compiled(
    _alike(_INT64, 3)(
        types.uint64[::1],
        _given(types.int16),
        _given(types.uint64),
        _given(_FLOAT64),
        *[_FLOAT64] * 2,
        *[_INT64] * 2,
        types.int64[::1],
        types.int64[:, ::1],
    )
)
def propose(
    drawn: NDArray[np.uint64],
    step: NDArray[np.int16],
    sure: NDArray[np.uint64],
    heights: NDArray[np.float64],
    sigma: float,
    tolerance: float,
    sign_bit: int,
    width: int,
    samples: NDArray[np.int64],
    open_: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Write the candidates that are accepted or open, in order; see dpcore.randomness.noise._Steps.

    drawn: words. From the lowest bit on, each has `sign_bit` bits of an entry, the sign, `width` bits of the place in
    the step, and the beginning of the number that accepts. sure: beginnings below it are accepted in the whole step.
    samples: as many as `drawn`, in other memory or the same.

    open_: of each candidate that its word and double precision leave open, where it is in `samples`, how many before it
    were not sure, and the beginning of its number.

    Returns the numbers of samples written, of candidates that were not sure, and of open ones.
    """
    # Unsigned: Numba takes signed indices for places that may count from the end.
    beginning, steps = np.uint64(sign_bit + 1 + width), np.uint64(len(heights))
    in_entry, in_step = np.uint64((1 << sign_bit) - 1), np.uint64((1 << width) - 1)
    last = 2.0 ** (sign_bit + 1 + width - 64)
    written, unsure, unknown = np.uint64(0), 0, np.uint64(0)
    for word in drawn:
        chosen = np.uint64(step[word & in_entry])
        coin = word >> beginning
        place = word >> np.uint64(sign_bit + 1) & in_step
        magnitude = np.int64(place + (chosen << np.uint64(width)))
        negative = np.int64(word >> np.uint64(sign_bit)) & 1
        # Minus zero would count zero twice.
        counted = np.uint64(magnitude >= negative)
        samples[written] = (magnitude ^ -negative) + negative
        if coin < sure[chosen]:
            written += counted
            continue
        if chosen > steps:
            continue
        unsure += 1
        if chosen < steps:
            ratio = np.float64(magnitude) / sigma
            chance = math.exp(-(ratio * ratio) / 2) / heights[chosen]
            uniform = np.float64(coin) * last
            if uniform + last <= chance - tolerance:
                written += counted
                continue
            if uniform >= chance + tolerance:
                continue
        open_[unknown, 0], open_[unknown, 1], open_[unknown, 2] = np.int64(written), unsure - 1, np.int64(coin)
        unknown += counted
        written += counted
    return int(written), unsure, int(unknown)


@compiled(_INT64(types.int64[::1], _given(_INT64), _given(_INT64)))
def add_others(values: NDArray[np.int64], samples: NDArray[np.int64], rejected: NDArray[np.int64]) -> int:
    """Add the samples to the values in order, but for those at the ascending places `rejected`; returns how many.

    Samples beyond the last value are left out.
    """
    added, first = 0, 0
    for number in range(len(rejected) + 1):
        stop = rejected[number] if number < len(rejected) else len(samples)
        count = min(stop - first, len(values) - added)
        for place in range(np.uint64(max(count, 0))):
            values[np.uint64(added) + place] += samples[np.uint64(first) + place]
        added, first = added + count, stop + 1
    return added
