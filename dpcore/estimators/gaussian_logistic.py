"""The logistic loss of Gaussian edges: the objective of logistic regression if only moments are known.

For an edge e ~ N(c, C) the margin theta . e is N(theta . c, theta . C theta), so the expected loss is an integral over
one dimension, computed by Gauss-Hermite quadrature.

Its nodes come in pairs, and for a convex f the sum f(a + v z) + f(a - v z) is convex in (a, v) and does not fall in v
>= 0; v = sqrt(theta . C theta) is convex in theta. So the quadrature sum is itself convex, and Newton's method
minimises it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.estimators.base import Matrix, Vector

_NODES, _RAW_WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_WEIGHTS = _RAW_WEIGHTS / _RAW_WEIGHTS.sum()

MOST_STEPS = 100
_TINY = 1e-12  # keeps sqrt(theta . C theta) differentiable at zero


@dataclass(frozen=True, eq=False)
class EdgeGroup:
    """`weight` records whose edges have mean `mean` (d,) and covariance `covariance` (d, d), positive semi-definite."""

    weight: float
    mean: Vector
    covariance: Matrix

    def spread(self, theta: Vector) -> tuple[Vector, float]:
        """C theta / v and v, where v is the standard deviation of theta . e."""
        image = self.covariance @ theta
        deviation = float(np.sqrt(max(float(theta @ image), 0.0) + _TINY))
        return image / deviation, deviation

    def loss(self, theta: Vector) -> float:
        """Weight times E log(1 + exp(-theta . e)), in nats."""
        margins = self.mean @ theta + self.spread(theta)[1] * _NODES
        return self.weight * float(_WEIGHTS @ np.logaddexp(0.0, -margins))

    def derivatives(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Gradient (d,) and Hessian (d, d) of `loss`."""
        direction, deviation = self.spread(theta)
        margins = self.mean @ theta + deviation * _NODES
        slope = -_sigmoid(-margins)
        curvature = _WEIGHTS * slope * (1.0 + slope) * -1.0
        first, second = float(_WEIGHTS @ slope), float((_WEIGHTS * slope) @ _NODES)
        mixed, square = float(curvature @ _NODES), float(curvature @ _NODES**2)
        gradient = first * self.mean + second * direction
        cross = mixed * np.outer(self.mean, direction)
        hessian = float(curvature.sum()) * np.outer(self.mean, self.mean) + cross + cross.T
        hessian += square * np.outer(direction, direction)
        hessian += second / deviation * (self.covariance - np.outer(direction, direction))
        return self.weight * gradient, self.weight * hessian


def fit_gaussian_logistic(groups: Sequence[EdgeGroup], penalties: Vector) -> Vector:
    """The theta (d,) that minimises sum over groups of `EdgeGroup.loss` plus (1/2) sum_j penalties_j theta_j^2.

    penalties: (d,), at least 0; with 1 for each feature and 0 for the bias, the loss is the one that scikit-learn's
    LogisticRegression minimises by default, with the rows replaced by Gaussian edges.
    """
    total = sum(group.weight for group in groups)
    # An unbounded direction (one class only and no penalty) must not make the step infinite.
    damping = 1e-9 * total * np.eye(len(penalties))
    theta = np.zeros(len(penalties))

    def objective(candidate: Vector) -> float:
        return sum(group.loss(candidate) for group in groups) + 0.5 * float(penalties @ candidate**2)

    current = objective(theta)
    for _ in range(MOST_STEPS):
        gradient: Vector = penalties * theta
        hessian: Matrix = np.diag(penalties) + damping
        for group in groups:
            first, second = group.derivatives(theta)
            gradient, hessian = gradient + first, hessian + second
        step = np.asarray(np.linalg.lstsq(hessian, gradient, rcond=None)[0], dtype=np.float64)
        decrease, length = float(gradient @ step), 1.0
        while length > 1e-6 and objective(theta - length * step) > current - 1e-4 * length * decrease:
            length /= 2
        if length <= 1e-6 or decrease <= 1e-10 * max(current, 1e-6 * total):
            break
        theta = theta - length * step
        current = objective(theta)
    return theta


def _sigmoid(margins: Vector) -> Vector:
    """1 / (1 + exp(-margins)), without overflow."""
    result: Vector = np.exp(-np.logaddexp(0.0, -margins))
    return result
