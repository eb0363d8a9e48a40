"""A lower bound on the regularised exponential rado loss, by Fenchel duality.

For weights w of the rados that sum to 1, and Omega* the conjugate of omega Omega,

    F(theta) >= - sum_j w_j log(w_j / shares_j) - Omega*(sum_j w_j pi_j)    for every theta,

since log sum_j shares_j exp(-z_j) is the maximum over w of -w . z less the divergence (Gibbs). At the minimiser the
weights of the rados attain it.
"""

import math

import numpy as np
from scipy.optimize import nnls

from dpcore.estimators.regularisers import Regulariser
from dpcore.numbers.fixed_point import Matrix, Vector

MOST_WORK = 2e9
"""n d min(n, d) above which `lowest_value` does not look for balanced weights: seconds."""
FEW, FEW_A_COORDINATE = 100, 10
"""How many rados it tries first, and more for each coordinate."""
MARGIN = 1e-9
"""Relative, of a mixture that is to be within the conjugate's domain; its rounding is far below the bound's."""


def lowest_value(
    rados: Matrix,
    shares: Vector,
    weights: Vector,
    regulariser: Regulariser,
    strength: float,
    centre: Vector | None = None,
) -> float:
    """A number that F is nowhere below: 0 or less, and -inf if no weights were found that bound F.

    rados: (n, d). shares: (n,), of the loss. weights: (n,), those of the rados at theta, so that the bound is close to
    F(theta) if theta is close to a minimiser. centre: (d,), subtracted from every rado; None is zero.

    A norm's conjugate is infinite at weights just off the minimiser's. They are mixed with weights that balance the
    rados (the point of their hull next to 0), as little as is needed.
    """
    centre = np.zeros(rados.shape[1]) if centre is None else centre
    own = weights @ rados - centre
    bound = -_divergence(weights, shares) - regulariser.conjugate(own, strength)
    if bound > -math.inf or not strength:
        return bound
    places = np.flatnonzero(shares)
    # Some rados balance as well as all do where these are many, and are copied in less memory.
    first = FEW + FEW_A_COORDINATE * rados.shape[1]
    for few in sorted({min(len(places), first), min(len(places), 4 * first)}):
        if (found := _balanced(rados[places[:few]] - centre)) is None:
            continue
        balanced = np.zeros(len(rados))
        balanced[places[:few]] = found
        centred = balanced @ rados - centre
        if regulariser.conjugate(centred, strength) < math.inf:
            share = _mixture(own, centred, regulariser, strength)
            # A norm's conjugate is 0 where it is finite. The ridge's is finite above.
            return -_divergence((1 - share) * weights + share * balanced, shares)
    return -math.inf


def _mixture(own: Vector, balanced: Vector, regulariser: Regulariser, strength: float) -> float:
    """The least share of `balanced` at which the conjugate is finite. It is convex, so it is finite from there to 1."""
    outside, inside = 0.0, 1.0
    while inside - outside > MARGIN * inside:
        middle = (outside + inside) / 2
        if regulariser.conjugate((1 - middle) * own + middle * balanced, strength) < math.inf:
            inside = middle
        else:
            outside = middle
    return inside


def _divergence(weights: Vector, shares: Vector) -> float:
    used = weights > 0
    return float(weights[used] @ np.log(weights[used] / shares[used]))


def _balanced(rados: Matrix) -> Vector | None:
    """Weights of the point of the rados' convex hull that is about next to 0, in units of pi_*; None if not found."""
    n, d = rados.shape
    if n * d * min(n, d) > MOST_WORK:
        return None
    largest = np.abs(rados).max(axis=0)
    scaled = rados / np.where(largest > 0, largest, 1.0)
    try:
        found, _ = nnls(np.vstack([scaled.T, np.full(n, math.sqrt(d))]), np.append(np.zeros(d), math.sqrt(d)))
    except RuntimeError:
        # It did not converge.
        return None
    total = float(found.sum())
    return found / total if total else None
