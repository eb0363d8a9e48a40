"""The normal distribution's functions in NumPy, with relative errors below 2^-47 where nothing underflows.

erfcx(x) = e^(x^2) erfc(x), x >= 0, is W. J. Cody's: rational functions on three intervals (Math. Comp. 23, 1969,
631-637, with the coefficients of his CALERF). Phi(z) = e^(-z^2/2) erfcx(-z / sqrt 2) / 2 for z <= 0, with z^2 split so
that its exponential is accurate. exp is taken to be right to 4 round-offs.

Proof of the bound: docs/explanation/proofs.md, "Rounding of the normal distribution".
"""

import math
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Number = TypeVar("Number", float, Vector)

_NEAR, _FAR = 15 / 32, 4.0
# Arrays shorter than this take less time number by number; longer ones in pieces, most of which are on one interval.
_SHORT, _PIECE = 100, 2048
# Beyond, Phi(-z) is below the least double.
_WIDEST = 64.0
_SQRT_PI = math.sqrt(math.pi)

# Coefficients, highest degree first.
_NEAR_N = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_NEAR_D = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_MIDDLE_N = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_MIDDLE_D = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_FAR_N = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_FAR_D = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)


def erfcx(x: Vector) -> Vector:
    """e^(x^2) erfc(x), the scaled complement of the error function, of each x >= 0; 0 at infinity: (n,)."""
    if x.size < _SHORT:
        return np.array([_erfcx(one) for one in x.tolist()])
    found = np.empty_like(x)
    for first in range(0, x.size, _PIECE):
        _erfcx_piece(x[first : first + _PIECE], found[first : first + _PIECE])
    return found


def tails(z: Vector) -> tuple[Vector, Vector]:
    """Phi(z) and Phi(-z): the probabilities that a standard normal variable is at most z, and above z. Both (n,)."""
    outer = np.minimum(np.abs(z), _WIDEST)
    near = np.rint(outer * 16.0) / 16.0
    with np.errstate(under="ignore"):
        bell = np.exp(-near * near / 2.0) * np.exp(-(outer - near) * (outer + near) / 2.0)
        tail = bell * erfcx(outer / math.sqrt(2.0)) / 2.0
    return np.where(z <= 0.0, tail, 1.0 - tail), np.where(z < 0.0, 1.0 - tail, tail)


def quantile(probability: float) -> float:
    """The z with Phi(z) = probability, which is in [0, 1), to about 16 digits (Wichura, AS 241, 1988)."""
    return NormalDist().inv_cdf(probability) if probability else -math.inf


def _erfcx_piece(x: Vector, out: Vector) -> None:
    near, far = x <= _NEAR, x > _FAR
    for interval, function in ((near, _erfcx_near), (far, _erfcx_far), (~(near | far), _erfcx_middle)):
        if interval.all():
            out[:] = function(x)
        elif interval.any():
            out[interval] = function(x[interval])


def _erfcx(x: float) -> float:
    if x <= _NEAR:
        return _erfcx_near(x)
    return _erfcx_middle(x) if x <= _FAR else _erfcx_far(x)


def _erfcx_near(x: Number) -> Number:
    square = x * x
    erf = x * _polynomial(_NEAR_N, square) / _polynomial(_NEAR_D, square)
    return (1.0 - erf) * (math.exp(square) if isinstance(square, float) else np.exp(square))


def _erfcx_middle(x: Number) -> Number:
    return _polynomial(_MIDDLE_N, x) / _polynomial(_MIDDLE_D, x)


def _erfcx_far(x: Number) -> Number:
    square = 1.0 / x / x
    return (1.0 / _SQRT_PI - square * _polynomial(_FAR_N, square) / _polynomial(_FAR_D, square)) / x


def _polynomial(coefficients: tuple[float, ...], x: Number) -> Number:
    """By Horner's rule."""
    first, second, *others = coefficients
    value = x * first + second
    for coefficient in others:
        value = value * x + coefficient
    return value
