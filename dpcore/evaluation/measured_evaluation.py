"""How well a linear model predicts a label that is a number or a count: on rows, and by one release of moments.

The mean squared error of theta is (q - 2 theta . b + theta . S theta) / m, in the notation of
dpcore.estimators.least_squares: three linear functions of one release, whose noise is known.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpcore.estimators.oracle import NumberOracle
from dpcore.numbers.fixed_point import Vector
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import measured

_LEAST = 1e-300


def r_squared(labels: Vector, predicted: Vector) -> float:
    """1 - (sum of squared errors) / (sum of squares around the mean), at least one of which is not 0."""
    around = float(np.square(labels - labels.mean()).sum())
    return 1.0 - float(np.square(predicted - labels).sum()) / max(around, _LEAST)


def deviance_explained(counts: Vector, means: Vector, exposures: Vector) -> float:
    """1 - D(counts, means) / D(counts, one rate times the exposures), D the Poisson deviance; means: positive."""
    rate = counts.sum() / exposures.sum()
    return 1.0 - _deviance(counts, means) / max(_deviance(counts, rate * exposures), _LEAST)


def _deviance(counts: Vector, means: Vector) -> float:
    logarithms = np.where(counts > 0, counts * np.log(np.maximum(counts, 1.0) / np.maximum(means, _LEAST)), 0.0)
    return float(2.0 * (logarithms - (counts - means)).sum())


@dataclass(frozen=True)
class MeasuredEvaluation:
    """What a release of moments says of a model's predictions of t, on the scale that is learned."""

    rows: int
    """Of the part that was asked about."""
    squared_error: float
    """The mean of (theta . x - t)^2; noise may make it negative."""
    squared_error_deviation: float
    """The standard deviation of its noise."""
    variance: float
    """Of t."""
    r2: float
    """1 - squared_error / variance."""
    r2_low: float
    r2_high: float
    """For the noise alone, two standard deviations to either side; sampling is not in it."""

    @property
    def is_measured(self) -> bool:
        """Whether the label varies by more than the noise may add to the error. R^2 divides by the variance."""
        return self.variance > 2.0 * self.squared_error_deviation

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def sentences(self) -> list[str]:
        """For people."""
        if not self.is_measured:
            hidden = (
                f"R^2 is not measured on {self.rows} rows: the noise on the squared error is as large as the label's "
                "variance. More epsilon helps, unless the label is nearly the same in all rows"
            )
            return [hidden]
        return [
            f"R^2 {self.r2:.4f} on {self.rows} rows; for the noise alone from {self.r2_low:.4f} to {self.r2_high:.4f}",
            f"root of the mean squared error {max(self.squared_error, 0.0) ** 0.5:.4g}, of a label in [-1, 1]",
        ]


def evaluate_numbers(theta: Vector, oracle: NumberOracle, feature_map: FeatureMap | None = None) -> MeasuredEvaluation:
    """Evaluate theta (d,), which predicts t, by one release of moments with the whole budget. Raises as an Oracle does.

    feature_map: whose coordinates theta is over; None for the schema's. Records longer than the clipping norm are
    shortened, so a model is measured on these.
    """
    measured(oracle.schema.label, "an evaluation of numbers")
    moments = oracle.number_moments(feature_map=feature_map)
    m = float(moments.rows)
    squares = np.outer(theta, theta)
    error = moments.square_sum - 2.0 * theta @ moments.label_sum + float((squares * moments.product_sum).sum())
    # Entries (j, k) and (k, j) are one number with one noise: the upper triangle counts twice.
    twice = np.triu(2.0 * squares, 1) + np.diag(np.diag(squares))
    variance_of_noise = (
        moments.square_noise**2
        + 4.0 * float(theta @ theta) * moments.sum_noise**2
        + float(np.square(twice * moments.product_noise).sum())
    )
    mean = float(moments.label_sum[-1]) / m
    variance = max(moments.square_sum / m - mean**2, _LEAST)
    deviation = float(np.sqrt(variance_of_noise)) / m
    low, high = (1.0 - (float(error) / m + side * 2.0 * deviation) / variance for side in (1.0, -1.0))
    return MeasuredEvaluation(
        moments.rows, float(error) / m, deviation, variance, 1.0 - float(error) / m / variance, low, min(high, 1.0)
    )
