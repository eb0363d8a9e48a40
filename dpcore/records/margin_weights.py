"""Integer weights of the margin: the factors of edges in a loss's gradient, identical on every machine.

The gradient of a loss l(theta . e) of the edge e = y x is l'(theta . e) e, with a weight w = -l' in [0, 1]:

    logistic   l(z) = log(1 + exp(-z))     w = 1 / (1 + exp(z))
    hinge      l(z) = max(0, 1 - z)        w = 1 where z < 1, else 0 (a subgradient)

Margins are exact integers and weights come from a table, so a contribution does not depend on floating point. The
table has steps of 2^-10 in z from -16 to 16 and contains round(2^12 w) at the middle of each step. The error of a
weight is at most 2^-12 (|dw/dz| <= 1/4, half a step 2^-11, and half a unit). Beyond the table a weight is constant,
within 2^-23 of its limit.
"""

from fractions import Fraction
from functools import cache
from typing import Literal, get_args

import gmpy2
import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, PlanError

LossName = Literal["logistic", "hinge"]
LOSSES: tuple[str, ...] = get_args(LossName)
WEIGHT_BITS = 12
STEP_BITS = 10
LARGEST_MARGIN = 16


def check_loss(loss: str) -> None:
    """Raise ConfigurationError if the loss is unknown."""
    if loss not in LOSSES:
        raise ConfigurationError(f"no loss is called {loss!r}; choose one of {', '.join(LOSSES)}")


def weights(margins: NDArray[np.int64], margin_bits: int, loss: LossName) -> NDArray[np.int64]:
    """Weights in units of 2^-WEIGHT_BITS: int64, the shape of `margins`, from 0 to 2^WEIGHT_BITS.

    margins: in units of 2^-margin_bits, which is at least STEP_BITS.
    """
    step = margins >> (margin_bits - STEP_BITS)
    half = LARGEST_MARGIN << STEP_BITS
    found: NDArray[np.int64] = weight_table(loss)[np.clip(step + half, 0, 2 * half - 1)]
    return found


def clip_squared(clip: Fraction, fraction_bits: int) -> int:
    """floor(C^2 4^(f + WEIGHT_BITS)): the largest squared length of a record's integer gradient.

    Raises PlanError if it does not fit an int64.
    """
    squared = int(clip**2 * (1 << 2 * (fraction_bits + WEIGHT_BITS)))
    if not 0 < squared < 1 << 63:
        raise PlanError(
            f"a clip of {float(clip):g} with {fraction_bits} fraction bits does not fit 64 bits: lower either"
        )
    return squared


def shortened(weight: NDArray[np.int64], squares: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Weights lowered to the largest integers at which weight^2 squares <= most: int64 (rows,).

    weight: (rows,), as `weights` gives them. squares: (rows,), squared lengths. The result is exact:
    weight^2 s <= most if and only if s <= floor(most / weight^2), because s is an integer.
    """
    largest = np.sqrt(most / np.maximum(squares, 1))
    # At most one unit too large: the root of a quotient in double precision, rounded down, is off by less than one.
    lowered = np.minimum(weight, np.minimum(largest, 1 << WEIGHT_BITS).astype(np.int64) + 1)
    long = np.flatnonzero(lowered)
    while len(long):
        long = long[squares[long] > most // np.square(lowered[long])]
        lowered[long] -= 1
        long = long[lowered[long] > 0]
    return lowered


@cache
def weight_table(loss: LossName) -> NDArray[np.int64]:
    """The weight of each step of a margin from -LARGEST_MARGIN to LARGEST_MARGIN, read-only."""
    half = LARGEST_MARGIN << STEP_BITS
    if loss == "hinge":
        table = np.where(np.arange(-half, half) < 1 << STEP_BITS, 1 << WEIGHT_BITS, 0).astype(np.int64)
    else:
        table = np.array([_logistic(step) for step in range(-half, half)], dtype=np.int64)
    table.setflags(write=False)
    return table


def _logistic(step: int) -> int:
    """round(2^12 / (1 + exp(z))) at the middle of a step; 200 bits decide the rounding, because z is never zero."""
    with gmpy2.context(precision=200):
        z = gmpy2.mpfr(2 * step + 1) / (1 << STEP_BITS + 1)
        return int(gmpy2.rint((1 << WEIGHT_BITS) / (1 + gmpy2.exp(z))))
