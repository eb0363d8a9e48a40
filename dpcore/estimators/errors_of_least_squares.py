"""The errors of least squares from one release of noisy moments: noise, the choice of the rows, and the ridge.

At the stated weights theta the release tells the gradient of the loss,

    g = (S theta - b) / m,      of noise variance (s_b^2 + sum over j of s_ij^2 theta_j^2) / m^2 in entry i,

s the deviations of noise on b and on S. It is an answer as of a gradient query (dpcore.estimators.errors_of_numbers)
about all directions.

The ridge moved theta away from g = 0, which is why its errors are those around the posterior mean
that g implies, and their distance from theta. The variance of residuals is the one that is released.
"""

import numpy as np

from dpcore.estimators.curvatures import OfNumbers
from dpcore.estimators.errors_of_numbers import errors_of_numbers
from dpcore.estimators.errors_of_weights import Answer, Errors, Released
from dpcore.numbers.fixed_point import Vector
from dpcore.rados.distribution import NumberMoments
from dpcore.records.schema import Schema

_NEVER = 1e6
"""A clip that nothing reaches: moments clip no residual."""

WIDENED_OF_LEAST_SQUARES = 1.35
"""Variances count so many times: residuals of tables do not vary alike in all rows."""


def errors_of_least_squares(theta: Vector, moments: NumberMoments, variance: float, schema: Schema) -> Errors:
    """Of the weights (d,) of `LeastSquares`, with a bias. variance: of the residuals of t, as released."""
    mean = (moments.product_sum @ theta - moments.label_sum) / moments.rows
    of_products = np.square(moments.product_noise) @ np.square(theta)
    deviation = float(np.sqrt(moments.sum_noise**2 + of_products.max())) / moments.rows
    d = moments.d
    loss = OfNumbers(_NEVER, variance, widened=WIDENED_OF_LEAST_SQUARES)
    return errors_of_numbers(
        theta, [Answer(theta, mean, deviation, np.eye(d))], Released(schema, moments, np.eye(d), _NEVER, loss=loss)
    )
