"""Convex losses of a margin, and bounds on their gradients.

The loss of a classifier theta on a record (x, y) is l(theta . e), e = y x. Both losses here have a slope l' in [-1, 0],
so if |x| <= R the loss is R-Lipschitz in theta, in the Euclidean norm: its gradient l'(theta . e) e is no longer than
R.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.records.margin_weights import LossName, check_loss

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class MarginLoss:
    """A loss l of the margin z = theta . e."""

    name: LossName
    value: Callable[[Vector], Vector]
    """l(z), element by element."""
    weight: Callable[[Vector], Vector]
    """w(z) = -l'(z), within [0, 1]; for the hinge a subgradient."""

    def lipschitz(self, norm_bound: float) -> float:
        """L with |l(theta . e) - l(theta' . e)| <= L |theta - theta'| for all |e| <= norm_bound: norm_bound itself."""
        return float(norm_bound)

    def total(self, theta: Vector, edges: Matrix) -> float:
        """sum_i l(theta . e_i). theta: (d,). edges: (m, d)."""
        return float(self.value(edges @ theta).sum())

    def gradient(self, theta: Vector, edges: Matrix) -> Vector:
        """The gradient of `total` in theta: (d,)."""
        gradient: Vector = -(self.weight(edges @ theta) @ edges)
        return gradient


def _logistic_value(margins: Vector) -> Vector:
    value: Vector = np.logaddexp(0.0, -margins)
    return value


def _logistic_weight(margins: Vector) -> Vector:
    # 1 / (1 + exp(z)) without overflow; the exponent is at most 0, so the weight is at most 1.
    weight: Vector = np.exp(-np.logaddexp(0.0, margins))
    return weight


def _hinge_value(margins: Vector) -> Vector:
    return np.maximum(0.0, 1.0 - margins)


def _hinge_weight(margins: Vector) -> Vector:
    return (margins < 1.0).astype(np.float64)


LOGISTIC = MarginLoss("logistic", _logistic_value, _logistic_weight)
"""l(z) = log(1 + exp(-z)), in nats."""

HINGE = MarginLoss("hinge", _hinge_value, _hinge_weight)
"""l(z) = max(0, 1 - z)."""


def margin_loss(name: str) -> MarginLoss:
    """The loss of this name. Raises ConfigurationError if there is none."""
    check_loss(name)
    return LOGISTIC if name == LOGISTIC.name else HINGE
