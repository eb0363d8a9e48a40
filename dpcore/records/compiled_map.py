"""Feature maps, compiled: exact integers, one block of rows at a time.

Importing this module imports Numba, which is slow: import it only in functions that compute.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpcore.numbers.compiling import compiled
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product

_COLUMN, _HAT, _POINT_MASS, _PRODUCT = range(4)
# Beyond every coordinate: such a hat stays 1 on that side.
_FAR = 1 << 40


def mapped(features: NDArray[np.int32], feature_map: FeatureMap) -> NDArray[np.int32]:
    """The terms of each row, and the bias if there is one: int32 (rows, feature_map.d), in units of 2^-30.

    features: (rows, d) int32, C-contiguous, in units of 2^-30, within [-2^30, 2^30]; with a bias it is the last one.
    """
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
