"""Convex losses of a margin, and bounds on their gradients.

The loss of a classifier theta on a record (x, y) is l(theta . e), e = y x. Both losses here have a slope l' in [-1, 0],
so if |x| <= R the loss is R-Lipschitz in theta, in the Euclidean norm: its gradient l'(theta . e) e is no longer than
R.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
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


# Convex sets that constrain a classifier: their diameters, and the projection of a point onto each.


# Keeps a projected point inside in double precision too, so that projecting it again changes nothing.
_INSIDE = 1.0 - 2.0**-48


class ConvexSet(Protocol):
    """A closed, bounded and convex set C in R^d."""

    def project(self, theta: Vector) -> Vector:
        """The point of C that is nearest to theta (d,) in the Euclidean norm, up to rounding; always inside."""
        ...

    def contains(self, theta: Vector) -> bool:
        """Whether theta (d,) is in C."""
        ...

    def diameter(self, d: int) -> float:
        """The largest Euclidean distance of two points of C in R^d. Raises ShapeError if C has another d."""
        ...


@dataclass(frozen=True)
class Ball:
    """All theta no longer than `radius` in the Euclidean norm, in any number of dimensions.

    Raises ConfigurationError if the radius is not positive and finite.
    """

    radius: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise ConfigurationError(f"radius is {self.radius}: it must be positive and finite")

    def project(self, theta: Vector) -> Vector:
        """The nearest point; theta itself if it is inside."""
        length = float(np.linalg.norm(theta))
        return theta if length <= self.radius else theta * (self.radius / length * _INSIDE)

    def contains(self, theta: Vector) -> bool:
        """Whether |theta| <= radius."""
        return bool(np.linalg.norm(theta) <= self.radius)

    def diameter(self, d: int) -> float:  # noqa: ARG002  (the same in every dimension)
        """Twice the radius."""
        return 2.0 * self.radius


@dataclass(frozen=True)
class Box:
    """All theta with lower_j <= theta_j <= upper_j. Raises ConfigurationError unless each lower_j < upper_j."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        pairs = list(zip(self.lower, self.upper, strict=False))
        sound = all(math.isfinite(low) and math.isfinite(high) and low < high for low, high in pairs)
        if not pairs or len(self.lower) != len(self.upper) or not sound:
            raise ConfigurationError(
                "a box needs as many lower as upper bounds, all finite, each lower bound below its upper one"
            )

    def project(self, theta: Vector) -> Vector:
        """Each coordinate moved to the nearer bound where it is outside. Raises ShapeError for another d."""
        self._check(len(theta))
        inside: Vector = np.clip(theta, self.lower, self.upper)
        return inside

    def contains(self, theta: Vector) -> bool:
        """Whether every coordinate is within its bounds."""
        self._check(len(theta))
        return bool(((theta >= self.lower) & (theta <= self.upper)).all())

    def diameter(self, d: int) -> float:
        """The length of the diagonal."""
        self._check(d)
        return math.dist(self.lower, self.upper)

    def _check(self, d: int) -> None:
        if d != len(self.lower):
            raise ShapeError(f"the box has {len(self.lower)} coordinates and theta {d}: give one for each")
