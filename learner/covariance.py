"""The covariance of a model's weights: how it is checked, and how a model's file states it.

In the file it is one text: the lower triangle, row by row with the diagonal, as little-endian IEEE-754 doubles in
base64. So the doubles are exact, and 256 coordinates take 350 kB.
"""

import base64
import binascii

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ModelError, ShapeError
from dpcore.estimators.errors_of_weights import MEASURABLE, PRIOR_DEVIATION

MOST_COORDINATES = 1024
"""A model's file with the covariance of so many coordinates has 6 MB."""

FACTOR = 1.96
"""Of a normal distribution: 95 % are within so many standard deviations."""

_SYMMETRIC = 1e-9
_POSITIVE = 1e-9


def checked_covariance(covariance: NDArray[np.float64], d: int) -> NDArray[np.float64]:
    """A read-only copy, (d, d), exactly symmetric. Raises ShapeError, or ModelError if it is no covariance."""
    given = np.array(covariance, dtype=np.float64)
    if given.shape != (d, d):
        raise ShapeError(f"the covariance has shape {given.shape} and theta has {d} coordinates; train again")
    if d > MOST_COORDINATES:
        raise ModelError(
            f"the covariance is of {d} coordinates, and at most {MOST_COORDINATES} are kept; leave it out of the model"
        )
    largest = float(np.abs(given).max()) if np.isfinite(given).all() else np.nan
    if not (np.abs(given - given.T) <= _SYMMETRIC * largest).all():
        raise ModelError("the covariance is not finite and symmetric; train again")
    found = np.tril(given) + np.tril(given, -1).T
    try:
        np.linalg.cholesky(found + (_POSITIVE * largest + np.finfo(np.float64).tiny) * np.eye(d))
    except np.linalg.LinAlgError:
        raise ModelError("the covariance gives a combination of weights a negative variance; train again") from None
    found.setflags(write=False)
    return found


def half_widths(combinations: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """`FACTOR` standard deviations of combinations of weights: (n,). combinations: (n, d)."""
    variances = np.einsum("ij,jk,ik->i", combinations, covariance, combinations)
    return np.asarray(FACTOR * np.sqrt(np.maximum(variances, 0.0)))


def measurable(combinations: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which combinations of weights, (n, d), the answers determined: (n,). Of others no interval may be stated.

    A weight of which they say nothing keeps the deviation of its prior (dpcore.estimators.errors_of_weights), and the
    interval of a value near 0 would hold by chance.
    """
    most = FACTOR * MEASURABLE * PRIOR_DEVIATION * np.linalg.norm(combinations, axis=1)
    return np.asarray(half_widths(combinations, covariance) <= most, dtype=np.bool_)


def covariance_text(covariance: NDArray[np.float64]) -> str:
    """The text of the file, of a `checked_covariance`."""
    return base64.b64encode(covariance[np.tril_indices(len(covariance))].astype("<f8").tobytes()).decode()


def covariance_from_text(text: str, d: int) -> NDArray[np.float64]:
    """The covariance of `to_text`, (d, d). Raises ModelError if the text is not one of d coordinates."""
    try:
        triangle = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8")
    except (binascii.Error, ValueError) as error:
        raise ModelError(f"the covariance is no base64 of doubles ({error}); train again") from error
    if len(triangle) != d * (d + 1) // 2:
        raise ModelError(f"the covariance has {len(triangle)} numbers, not those of {d} coordinates; train again")
    found = np.zeros((d, d))
    found[np.tril_indices(d)] = triangle
    return found + np.tril(found, -1).T
