"""Labelled examples for the PAC learners: validated once, labels as Booleans."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import ConfigurationError, ShapeError

MOST_BITS = 62
"""Domains up to {0, ..., 2^62 - 1}, so that a bound of an interval fits 64 bits."""


def labels_of(labels: ArrayLike) -> NDArray[np.bool_]:
    """Labels as Booleans (n,). Both conventions are accepted: {0, 1} or {-1, +1}, 1 the positive one in either.

    Raises ShapeError if they are not one-dimensional, ConfigurationError for other values or a mixture of both.
    """
    values = np.asarray(labels)
    if values.ndim != 1:
        raise ShapeError(f"labels have shape {values.shape}: give one label a row, (n,)")
    if values.dtype.kind not in "buif":
        raise ConfigurationError(f"labels have type {values.dtype}: write them as 0 and 1, or as -1 and +1")
    positive: NDArray[np.bool_] = values == 1
    if not ((positive | (values == 0)).all() or (positive | (values == -1)).all()):
        raise ConfigurationError("labels are neither all in {0, 1} nor all in {-1, +1}: use one of the two")
    return positive


def integers_of(points: ArrayLike, labels: ArrayLike, bits: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Points (n,) of {0, ..., 2^bits - 1} as int64, and their labels as Booleans (n,).

    Raises ShapeError if the numbers of points and labels differ, ConfigurationError if a point is not an integer of the
    domain, if bits is out of range, or as `labels_of` does.
    """
    check_bits(bits, MOST_BITS)
    positive, values = labels_of(labels), np.asarray(points)
    if values.shape != positive.shape:
        raise ShapeError(f"points have shape {values.shape} and labels {positive.shape}: give both as (n,)")
    if len(values) == 0:
        return np.empty(0, dtype=np.int64), positive
    if values.dtype.kind not in "ui":
        raise ConfigurationError(f"points have type {values.dtype}: give integers from 0 to 2^bits - 1")
    if int(values.min()) < 0 or int(values.max()) >= 1 << bits:
        raise ConfigurationError(f"a point is outside 0 to 2^{bits} - 1: raise bits or check the points")
    return values.astype(np.int64), positive


def bit_rows_of(points: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Points (n, d), d >= 1, of zeros and ones as Booleans, and their labels as Booleans (n,).

    Raises ShapeError if shapes do not fit, ConfigurationError for other values, or as `labels_of` does.
    """
    positive, values = labels_of(labels), np.asarray(points)
    if values.ndim != 2 or len(values) != len(positive) or values.shape[1] < 1:
        raise ShapeError(f"points have shape {values.shape} and labels {positive.shape}: give (n, d), d >= 1, and (n,)")
    if values.dtype == np.bool_:
        return values, positive
    ones: NDArray[np.bool_] = values == 1
    if not (ones | (values == 0)).all():
        raise ConfigurationError("a point has a coordinate other than 0 or 1: give bits")
    return ones, positive


def check_bits(bits: int, most: int) -> None:
    """Raise ConfigurationError if bits is not an integer from 1 to `most`."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= most:
        raise ConfigurationError(f"a domain of {bits} bits: give an integer from 1 to {most}")
