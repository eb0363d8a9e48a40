"""Losses over rados and over examples (Nock, Patrini, Friedman, ICML 2015, equations 1 to 4).

theta is (d,); rados are (n, d), one a row; edges are (m, d), one a row; all in real units.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ShapeError

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


def _products(theta: Vector, rows: Matrix) -> Vector:
    if theta.ndim != 1 or rows.ndim != 2 or rows.shape[1] != theta.shape[0] or rows.shape[0] == 0:
        raise ShapeError(
            f"theta has shape {theta.shape} and rows {rows.shape}: give (d,) and (count, d), count positive"
        )
    return np.asarray(rows @ theta, dtype=np.float64)


def log_rado_loss(theta: Vector, rados: Matrix) -> float:
    """Log of the exponential rado loss, log((1/n) sum_j exp(-theta . pi_j)), in nats; finite if the products are.

    Equation 2. Raises ShapeError if the widths differ or there is no rado.
    """
    return log_loss_of_margins(_products(theta, rados))


def log_loss_of_margins(margins: Vector) -> float:
    """The same loss from known products theta . pi_j: log((1/n) sum_j exp(-margin_j)), n at least 1."""
    smallest = float(margins.min())
    exponentials = np.subtract(smallest, margins)
    np.exp(exponentials, out=exponentials)
    return math.log(float(exponentials.mean())) - smallest


def exponential_rado_loss(theta: Vector, rados: Matrix) -> float:
    """The exponential rado loss (1/n) sum_j exp(-theta . pi_j); infinite if it overflows a double.

    Equation 2. Raises ShapeError if the widths differ or there is no rado.
    """
    log_loss = log_rado_loss(theta, rados)
    try:
        return math.exp(log_loss)
    except OverflowError:
        return math.inf


def logistic_loss(theta: Vector, edges: Matrix) -> float:
    """The logistic loss over examples, (1/m) sum_i log(1 + exp(-theta . e_i)), e_i = y_i x_i, in nats.

    Equation 1. Raises ShapeError if the widths differ or there is no edge.
    """
    return float(np.logaddexp(0.0, -_products(theta, edges)).mean())


def logistic_rado_loss(theta: Vector, rados: Matrix, m: int) -> float:
    """The logistic rado loss log 2 + (1/m) log((1/n) sum_j exp(-theta . pi_j)), in nats; m is the number of examples.

    Equation 4; over all 2^m rados it equals `logistic_loss` (Lemma 2), over fewer it does not.
    Raises ShapeError if the widths differ, there is no rado or m < 1.
    """
    if m < 1:
        raise ShapeError(f"m is {m}: give the number of examples behind the rados, at least 1")
    return math.log(2) + log_rado_loss(theta, rados) / m


def mean_variance_loss(theta: Vector, rados: Matrix) -> float:
    """-E[theta . pi] + Var[theta . pi] over the given rados (variance with divisor n).

    Over all 2^m rados E[theta . pi] = (1/2) sum_i theta . e_i and Var[theta . pi] = (1/4) sum_i (theta . e_i)^2, so
    4 times this loss plus m is the square loss sum_i (1 - theta . e_i)^2 over examples.
    Raises ShapeError if the widths differ or there is no rado.
    """
    products = _products(theta, rados)
    return float(products.var() - products.mean())
