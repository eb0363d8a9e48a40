"""Edge vectors and their clipping, compiled: exact integers, one block of rows at a time.

Importing this module imports Numba, which is slow: import it only in functions that compute.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled
from dpcore.numbers.fixed_point import ONE
from dpcore.records.clipping import Clip
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product
from dpcore.records.losses import LARGEST_MARGIN, STEP_BITS, WEIGHT_BITS

_LARGEST = (1 << 63) - 1


def clip_in_place(clip: Clip, vectors: NDArray[np.int64], fraction_bits: int) -> None:
    """Clip rows, (rows, d) int64, C-contiguous, in place; bit for bit as `Clip.apply`, verified in exact arithmetic."""
    clip.check_room(vectors.shape[1], fraction_bits)
    bias_squared = 1 << 2 * fraction_bits if clip.bias else 0
    # No squared length exceeds the largest int64, so capping the bound there changes nothing.
    most = min(clip.squared_units(fraction_bits) - bias_squared, _LARGEST)
    _shorten(vectors, vectors.shape[1] - int(clip.bias), most)


@compiled(types.void(types.int64[:, ::1], types.int64, types.int64))
def _shorten(vectors: NDArray[np.int64], width: int, most: int) -> None:
    """Shorten the first `width` coordinates of each row until their squares add up to `most` or less."""
    for row in range(len(vectors)):
        squared = np.int64(0)
        for place in range(width):
            squared += vectors[row, place] ** 2
        if squared <= most:
            continue
        factor = np.sqrt(np.float64(most) / np.float64(squared))
        while True:
            squared = np.int64(0)
            for place in range(width):
                squared += np.int64(np.float64(vectors[row, place]) * factor) ** 2
            if squared <= most:
                break
            # Rounding may leave a row one unit too long; retry with a slightly smaller factor.
            factor *= 1 - 2.0**-40
        for place in range(width):
            vectors[row, place] = np.int64(np.float64(vectors[row, place]) * factor)


@compiled(
    *(
        types.void(
            types.Array(types.int32, 2, "C", readonly=True),
            types.Array(types.int8, 1, "C", readonly=True),
            types.Array(types.boolean, 1, "C", readonly=True),
            types.Array(types.int64, 1, "C", readonly=True),
            types.int64,
            types.Array(kind, 2, "C"),
        )
        for kind in (types.int64, types.float64)
    )
)
def fill_edges(
    features: NDArray[np.int32],
    labels: NDArray[np.int8],
    usable: NDArray[np.bool_],
    sensitive: NDArray[np.int64],
    fraction_bits: int,
    block: NDArray[np.int64] | NDArray[np.float64],
) -> None:
    """Write y trunc(x 2^fraction_bits) of every row into `block`, (rows, d); see dpcore.records.records.edges.

    features: in units of 2^-30. sensitive: coordinates that are 2^fraction_bits in unusable rows.
    """
    rows, d = features.shape
    shift = 30 - fraction_bits
    below = (1 << shift) - 1
    for row in range(rows):
        if not usable[row]:
            # Its features are not read: those of a row that is held back are not zero (Records.only).
            for coordinate in range(d):
                block[row, coordinate] = 0
            for coordinate in sensitive:
                block[row, coordinate] = 1 << fraction_bits
            continue
        # -1 in two's complement: (v ^ -1) - -1 = -v. A product would be slower without AVX-512.
        sign = np.int64(labels[row]) >> 63
        for coordinate in range(d):
            value = np.int64(features[row, coordinate])
            # An arithmetic shift rounds down. Adding 2^shift - 1 to negative values first makes it round toward zero.
            value = (value + ((value >> 63) & below)) >> shift
            block[row, coordinate] = (value ^ sign) - sign


# Clipped gradients of rows.


_HALF = LARGEST_MARGIN << STEP_BITS
_WEIGHT_BITS = WEIGHT_BITS


@compiled(types.int64(types.int64[::1], types.int64))
def _completed(weights: NDArray[np.int64], own: int) -> int:
    """Set the weight of the own class to minus the sum of the others; returns the squared length of all."""
    others, squared = np.int64(0), np.int64(0)
    for code in range(len(weights)):
        if code != own:
            others += weights[code]
            squared += weights[code] ** 2
    weights[own] = -others
    return squared + others**2  # type: ignore[return-value]  # an int64, as compiled


@compiled(
    *(
        types.void(
            types.Array(kind, 2, "C"),
            types.Array(types.int64, 1, "C", readonly=True),
            types.Array(types.int16, 1, "C", readonly=True),
            types.int64,
            types.int64,
            types.int64[::1],
            types.int64[::1],
            types.int64[:, ::1],
        )
        for kind in (types.float64, types.int64)
    )
)
def subtract_gradients(
    vectors: NDArray[np.float64] | NDArray[np.int64],
    theta: NDArray[np.int64],
    table: NDArray[np.int16],
    shift: int,
    most: int,
    into: NDArray[np.int64],
    times: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    """Subtract w z of every row from `totals`, (n, d), z being the row truncated toward zero and w its weight.

    vectors: (rows, d), below 2^53. table: `weight_table`. shift: bits of a margin below a step of the table. most: the
    largest squared length of w z. into, times: (rows,), which of the n totals a row is subtracted from, and how often.
    Bit for bit `shortened(weights(z @ theta), z^2, most) @ z` of dpcore.records.losses.
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
        weight = np.int64(table[0] if step < 0 else table[-1] if step >= len(table) else table[step])
        if weight * weight * np.float64(squared) > 0.5 * np.float64(most):
            # At most one unit too large: the root of a quotient in double precision, rounded down.
            weight = min(weight, np.int64(np.sqrt(np.float64(most) / np.float64(squared)) + 1))
            while weight > 0 and squared > most // (weight * weight):
                weight -= 1
        if weight > 0:
            for place in range(d):
                totals[into[row], place] -= times[row] * weight * z[place]


@compiled(
    types.void(
        types.int64[:, ::1],
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
        types.Array(types.int64, 1, "C", readonly=True),
        types.int64,
        types.int64,
        types.int64[::1],
        types.int64[::1],
        types.int64[:, ::1],
    )
)
def add_number_gradients(
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
    offsets: NDArray[np.int64],
    theta: NDArray[np.int64],
    table: NDArray[np.int64],
    shift: int,
    most: int,
    into: NDArray[np.int64],
    times: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    """Add w z of every row z to `totals`, (n, d): dpcore.queries.number_gradient.

    labels: y, in units of 2^-WEIGHT_BITS. offsets: added to the margins, in their units. table: `mean_table`. shift:
    bits of a margin below a step of the table; without a table below a unit of the weight. most: the largest squared
    length. into, times: as of `subtract_gradients`.
    """
    count, d = rows.shape
    half = np.int64(1) << (shift - 1)
    for row in range(count):
        margin, squared = offsets[row], np.int64(0)
        for place in range(d):
            margin += rows[row, place] * theta[place]
            squared += rows[row, place] * rows[row, place]
        if squared == 0:
            continue
        if len(table) == 0:
            mean = (margin + half) >> shift
        else:
            # Beyond the table, the mean of its end.
            step = (margin >> shift) + _HALF
            mean = table[0] if step < 0 else table[-1] if step >= len(table) else table[step]
        weight = mean - labels[row]
        size = np.int64(abs(weight))
        if np.float64(size) * np.float64(size) * np.float64(squared) > 0.5 * np.float64(most):
            # At most one unit too large: the root of a quotient in double precision, rounded down.
            size = min(size, np.int64(np.sqrt(np.float64(most) / np.float64(squared)) + 1))
            # floor(floor(most / size) / size) = floor(most / size^2), whose square may not fit 64 bits.
            while size > 0 and squared > most // size // size:
                size -= 1
        if weight < 0:
            size = -size
        for place in range(d):
            totals[into[row], place] += times[row] * size * rows[row, place]


@compiled(types.void(types.int64[::1], types.Array(types.int64, 1, "C", readonly=True)))
def _softmax(steps: NDArray[np.int64], table: NDArray[np.int64]) -> None:
    """Replace scores, in steps of the table, by floor(2^WEIGHT_BITS p)."""
    highest, parts = steps.max(), np.int64(0)
    for code in range(len(steps)):
        below = highest - steps[code]
        steps[code] = table[below] if below < len(table) else 0
        parts += steps[code]
    for code in range(len(steps)):
        steps[code] = (steps[code] << _WEIGHT_BITS) // parts


@compiled(types.void(types.int64[::1], types.int64, types.int64, types.int64[::1]))
def _shorten_weights(weights: NDArray[np.int64], own: int, allowed: int, room: NDArray[np.int64]) -> None:
    """Make the weights of the other classes those of a gradient no longer than `allowed`, squared. room: (k,).

    The others are shortened toward zero and the own one is minus their sum, so that all add up to zero: its magnitude
    falls by no smaller a factor.
    """
    length = _completed(weights, own)
    if length <= allowed:
        return
    factor = np.sqrt(np.float64(allowed) / np.float64(length))
    while length > allowed:
        for code in range(len(weights)):
            room[code] = np.int64(np.float64(weights[code]) * factor)
        length = _completed(room, own)
        # Rounding may leave it one unit too long; retry with a slightly smaller factor.
        factor *= 1 - 2.0**-20
    weights[:] = room


@compiled(
    types.void(
        types.int64[:, ::1],
        types.int64[::1],
        types.int64[:, ::1],
        types.Array(types.int64, 1, "C", readonly=True),
        types.int64,
        types.int64,
        types.int64[::1],
        types.int64[::1],
        types.int64[:, ::1],
    )
)
def add_class_gradients(
    rows: NDArray[np.int64],
    codes: NDArray[np.int64],
    theta: NDArray[np.int64],
    table: NDArray[np.int64],
    shift: int,
    most: int,
    into: NDArray[np.int64],
    times: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    """Add w_c z of every row z to `totals`, (n, k d): dpcore.queries.class_gradient.

    rows: (rows, d). codes: (rows,), the classes. theta: (k, d). table: `exponential_table`. shift: bits of a score that
    are below a step of the table. most: the largest squared length of a row's gradient, |w|^2 |z|^2. into, times: as of
    `subtract_gradients`.
    """
    k, d = theta.shape
    weights, room = np.empty(k, np.int64), np.empty(k, np.int64)
    for row in range(len(rows)):
        squared = np.int64(0)
        weights[:] = 0
        for place in range(d):
            squared += rows[row, place] ** 2
            for code in range(k):
                weights[code] += rows[row, place] * theta[code, place]
        if squared == 0:
            continue
        weights >>= shift
        _softmax(weights, table)
        _shorten_weights(weights, codes[row], most // squared, room)  # type: ignore[arg-type]  # an int64
        for code in range(k):
            for place in range(d):
                totals[into[row], code * d + place] += times[row] * weights[code] * rows[row, place]


@compiled(
    types.void(
        types.int64[:, ::1],
        types.int64[::1],
        types.int64[::1],
        types.int64,
        types.Array(types.int64, 1, "C", readonly=True),
        types.Array(types.int64, 1, "C", readonly=True),
        types.int64,
        types.int64,
        types.int64[::1],
        types.int64[::1],
        types.int64[:, ::1],
    )
)
def add_hazard_gradients(  # noqa: C901, PLR0912  (one loop, compiled)
    rows: NDArray[np.int64],
    codes: NDArray[np.int64],
    theta: NDArray[np.int64],
    unit: int,
    means: NDArray[np.int64],
    at_events: NDArray[np.int64],
    shift: int,
    most: int,
    into: NDArray[np.int64],
    times: NDArray[np.int64],
    totals: NDArray[np.int64],
) -> None:
    """Add (u r_j, R z) of every row z to `totals`, (n, J + d): dpcore.queries.hazard_gradient.

    rows: (rows, d). codes: (rows,), cells of dpcore.records.features.event_time. theta: (J + d,). unit: u in the units
    of z. means, at_events: `hazard_tables`. shift: bits of a margin below a step of the tables. most: the largest
    squared length, below 2^61. into, times: as of `subtract_gradients`.
    """
    d = rows.shape[1]
    intervals = len(theta) - d
    slopes, shorter = np.empty(intervals, np.int64), np.empty(intervals, np.int64)
    half = np.int64(len(means) // 2)
    for row in range(len(rows)):
        margin, squared = np.int64(0), np.int64(0)
        for place in range(d):
            margin += rows[row, place] * theta[intervals + place]
            squared += rows[row, place] ** 2
        code = codes[row]
        happened = code < intervals
        last = code if happened else code - intervals
        ends = min(last + 1, intervals)
        longest = np.float64(unit) ** 2 + np.float64(squared)
        so_far, room = np.float64(0.0), np.float64(most)
        for interval in range(ends):
            # Beyond the tables, the values of their ends.
            step = min(max(((margin + unit * theta[interval]) >> shift) + half, 0), len(means) - 1)
            # The weight depends on what is known before the interval, never on what happens in it: on both outcomes.
            weight, crossed = 1.0, so_far * np.float64(squared)
            for outcome in (np.float64(means[step]), -np.float64(at_events[step])):
                a, b = longest * outcome**2, outcome * crossed
                if a + 2.0 * b > room:
                    root = np.sqrt(b * b + a * room)
                    weight = min(weight, room / (b + root) if b > 0.0 else (root - b) / a)
            if interval < last:
                slopes[interval] = np.int64(weight * np.float64(means[step]))
            elif happened:
                slopes[interval] = -np.int64(weight * np.float64(at_events[step]))
            else:
                slopes[interval] = np.int64(weight * np.float64(means[step]) / 2.0)
            kept = np.float64(slopes[interval])
            room = np.float64(max(room - longest * kept**2 - 2.0 * kept * crossed, 0.0))
            so_far += kept
        slope, own = np.int64(0), np.int64(0)
        for interval in range(ends):
            slope += slopes[interval]
            own += slopes[interval] ** 2
        length = np.float64(unit) ** 2 * np.float64(own) + np.float64(slope) ** 2 * np.float64(squared)
        if length > 0.5 * np.float64(most):
            # The weights kept it within `most`, up to rounding; this is exact.
            factor = min(1.0, np.sqrt(np.float64(most) / length))
            while True:
                slope, own = np.int64(0), np.int64(0)
                for interval in range(ends):
                    shorter[interval] = np.int64(np.float64(slopes[interval]) * factor)
                    slope += shorter[interval]
                    own += shorter[interval] ** 2
                # Exact: no part is much above `most`, so that the sum fits.
                if unit**2 * own + slope**2 * squared <= most:
                    break
                factor *= 1 - 2.0**-20
            slopes[:ends] = shorter[:ends]
        for interval in range(ends):
            totals[into[row], interval] += times[row] * unit * slopes[interval]
        for place in range(d):
            totals[into[row], intervals + place] += times[row] * slope * rows[row, place]


@compiled(types.void(types.int64[:, ::1], types.float64[::1], types.int64[::1]))
def add_shortened(vectors: NDArray[np.int64], most: NDArray[np.float64], total: NDArray[np.int64]) -> None:
    """Add every row of `vectors`, (n, length), to `total`, shortened until its squared length is at most its `most`.

    None is longer afterwards. Squared lengths are compared with most (1 - 2^-29): that of up to 2^20 doubles is off by
    less than 2^-31 of itself, and so is that of a row times a factor. Truncation toward zero makes no row longer.
    """
    for row in range(len(vectors)):
        bound = most[row] * (1.0 - 2.0**-29)
        squared = 0.0
        for place in range(len(total)):
            squared += np.float64(vectors[row, place]) ** 2
        if squared <= bound:
            for place in range(len(total)):
                total[place] += vectors[row, place]
        else:
            factor = np.sqrt(bound / squared)
            for place in range(len(total)):
                total[place] += np.int64(np.float64(vectors[row, place]) * factor)


# Feature maps.


_COLUMN, _HAT, _POINT_MASS, _PRODUCT = range(4)
# Beyond every coordinate: such a hat stays 1 on that side.
_FAR = 1 << 40


def mapped(features: NDArray[np.int32], feature_map: FeatureMap) -> NDArray[np.int32]:
    """The terms of each row, and the bias: int32 (rows, feature_map.d), of int32 (rows, d), in units of 2^-30."""
    found = np.empty((len(features), feature_map.d), dtype=np.int32)
    if feature_map.bias:
        found[:, -1] = features[:, -1]
    _fill(features, _program(feature_map), found)
    return found


@lru_cache(maxsize=16)
def _program(feature_map: FeatureMap) -> NDArray[np.int64]:
    """A row for each term: kind, operand, left knot or second operand, peak or value, right knot, centre, halvings."""
    rows = []
    for term in feature_map.terms:
        match term.function:
            case Column(coordinate):
                row = [_COLUMN, coordinate, 0, 0, 0]
            case Hat(coordinate, left, peak, right):
                ends = (-_FAR if left is None else left, _FAR if right is None else right)
                row = [_HAT, coordinate, ends[0], peak, ends[1]]
            case PointMass(coordinate, at):
                row = [_POINT_MASS, coordinate, 0, at, 0]
            case Product(first, second):
                row = [_PRODUCT, first, second, 0, 0]
        rows.append([*row, term.centre, term.halvings])
    program = np.array(rows, dtype=np.int64)
    program.setflags(write=False)
    return program


@compiled(types.int64(types.int64, types.int64, types.int64, types.int64))
def _hat(value: np.int64, left: np.int64, peak: np.int64, right: np.int64) -> Any:
    """See dpcore.records.feature_map.Hat. Products stay below 2^62, as knots differ by at most 2^31."""
    if value <= peak:
        if left == -_FAR:
            return ONE
        return 0 if value <= left else ((value - left) << 30) // (peak - left)
    if right == _FAR:
        return ONE
    return 0 if value >= right else ONE - ((value - peak) << 30) // (right - peak)


@compiled(
    types.void(
        types.Array(types.int32, 2, "C", readonly=True),
        types.Array(types.int64, 2, "C", readonly=True),
        types.int32[:, ::1],
    )
)
def _fill(features: NDArray[np.int32], program: NDArray[np.int64], found: NDArray[np.int32]) -> None:
    terms = len(program)
    centred = np.empty(terms, dtype=np.int64)
    for row in range(len(features)):
        for place in range(terms):
            kind, operand, halvings = program[place, 0], program[place, 1], program[place, 6]
            if kind == 3:
                value = (centred[operand] * centred[program[place, 2]]) >> 30
            else:
                value = np.int64(features[row, operand])
                if kind == 1:
                    value = _hat(value, program[place, 2], program[place, 3], program[place, 4])
                elif kind == 2:
                    value = np.int64(ONE if value == program[place, 3] else 0)
            value -= program[place, 5]
            centred[place] = value
            # An arithmetic shift rounds down. Adding 2^halvings - 1 to negative values first rounds toward zero.
            found[row, place] = (value + ((value >> 63) & ((1 << halvings) - 1))) >> halvings
