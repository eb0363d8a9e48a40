"""Integer weights of the margin: the factors of edges in a loss's gradient, identical on every machine.

The gradient of a loss l(theta . e) of the edge e = y x is l'(theta . e) e, with a weight w = -l' in [0, 1]:

    logistic   l(z) = log(1 + exp(-z))     w = 1 / (1 + exp(z))
    hinge      l(z) = max(0, 1 - z)        w = 1 where z < 1, else 0 (a subgradient)

Margins are exact integers and weights come from a table, so a contribution does not depend on floating point.

The table has steps of 2^-10 in z from -16 to 16 and contains round(2^12 w) at the middle of each step. The error of a
weight is at most 2^-12 (|dw/dz| <= 1/4, half a step 2^-11, and half a unit). Beyond the table a weight is constant,
within 2^-23 of its limit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal, Protocol, get_args

import gmpy2
import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, PlanError, ShapeError
from dpcore.numbers.fixed_point import Matrix, Vector

LossName = Literal["logistic", "hinge", "squared", "poisson", "hazards"]
FAMILIES: tuple[str, ...] = ("squared", "poisson")
"""Negative log likelihoods of numbers and counts, with their canonical links: dpcore.queries.number_gradient."""
LOSSES: tuple[str, ...] = tuple(name for name in get_args(LossName) if name not in (*FAMILIES, "hazards"))
"""Losses of the margin of an edge."""
WEIGHT_BITS = 12
STEP_BITS = 10
LARGEST_MARGIN = 16


def check_loss(loss: str, known: Sequence[str] = LOSSES) -> None:
    """Raise ConfigurationError if the loss is unknown, or is of other labels."""
    if loss not in known:
        raise ConfigurationError(f"no loss of such a label is called {loss!r}; choose one of {', '.join(known)}")


def weights(margins: NDArray[np.int64], margin_bits: int, loss: LossName) -> NDArray[np.int64]:
    """Weights in units of 2^-WEIGHT_BITS: int64; margins: in units of 2^-margin_bits, at least STEP_BITS."""
    step = margins >> (margin_bits - STEP_BITS)
    half = LARGEST_MARGIN << STEP_BITS
    found: NDArray[np.int64] = weight_table(loss)[np.clip(step + half, 0, 2 * half - 1)].astype(np.int64)
    return found


def clip_squared(clip: Fraction, fraction_bits: int, weight_bits: int = WEIGHT_BITS) -> int:
    """floor(C^2 4^(f + weight_bits)): the largest squared length of a record's integer gradient. Raises PlanError."""
    squared = int(clip**2 * (1 << 2 * (fraction_bits + weight_bits)))
    if not 0 < squared < 1 << 63:
        raise PlanError(
            f"a clip of {float(clip):g} with {fraction_bits} fraction bits does not fit 64 bits: lower either"
        )
    return squared


def shortened(weight: NDArray[np.int64], squares: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Weights (rows,) lowered to the largest integers at which weight^2 squares <= most: int64 (rows,).

    Exact: weight^2 s <= most if and only if s <= floor(most / weight^2), because s is an integer.
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
def weight_table(loss: LossName) -> NDArray[np.int16]:
    """The weight of each step of a margin from -LARGEST_MARGIN to LARGEST_MARGIN, read-only.

    Small numbers, so that the table stays in a core's cache beside the rows.
    """
    half = LARGEST_MARGIN << STEP_BITS
    if loss == "hinge":
        table = np.where(np.arange(-half, half) < 1 << STEP_BITS, 1 << WEIGHT_BITS, 0).astype(np.int16)
    else:
        table = np.array([_logistic(step) for step in range(-half, half)], dtype=np.int16)
    table.setflags(write=False)
    return table


EXPONENTIAL_BITS = 24


@cache
def exponential_table() -> NDArray[np.int64]:
    """round(2^24 exp(-z)) at the middle of each step of z from 0 to LARGEST_MARGIN, read-only; 0 beyond is within 2.

    The softmax of scores s is p_c = floor(2^12 E_c / sum E), E_c the entry of max(s) - s_c: what has several classes.
    """
    table = np.array([_exponential(step) for step in range(LARGEST_MARGIN << STEP_BITS)], dtype=np.int64)
    table.setflags(write=False)
    return table


def _exponential(step: int, bits: int = EXPONENTIAL_BITS) -> int:
    """200 bits decide the rounding, as in `_logistic`."""
    with gmpy2.context(precision=200):
        z = gmpy2.mpfr(2 * step + 1) / (1 << STEP_BITS + 1)
        return int(gmpy2.rint((1 << bits) * gmpy2.exp(-z)))


@cache
def mean_table(loss: LossName) -> NDArray[np.int64]:
    """Of `poisson`, round(2^WEIGHT_BITS exp(z)) at the middle of each step of z from -16 to 16, read-only.

    Beyond these it is constant: what a record adds is clipped anyway. Of `squared` it is empty: the mean is the margin.
    """
    half = LARGEST_MARGIN << STEP_BITS
    steps = range(-half, half) if loss == "poisson" else range(0)
    table = np.array([_exponential(-step - 1, WEIGHT_BITS) for step in steps], dtype=np.int64)
    table.setflags(write=False)
    return table


HAZARD_BITS = 18
"""Fraction bits of the slopes of hazards, which are small where events are rare."""
LARGEST_LOG_HAZARD = 4
"""Beyond which hazards over an interval count as exp(4): the survival of an interval is then below 2^-78."""


@cache
def hazard_tables() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """round(2^18 mu) and round(2^18 mu / (exp(mu) - 1)) of mu = exp(z), at the middle of each step of z, read-only.

    Steps of 2^-10 from -16 to 16, of which those above LARGEST_LOG_HAZARD repeat the last.
    """
    half = LARGEST_MARGIN << STEP_BITS
    steps = range(-half, LARGEST_LOG_HAZARD << STEP_BITS)
    slopes = np.array([_hazard(step) for step in steps], dtype=np.int64)
    filled = np.pad(slopes, ((0, half - (LARGEST_LOG_HAZARD << STEP_BITS)), (0, 0)), mode="edge")
    means, at_events = (np.ascontiguousarray(column) for column in filled.T)
    for table in (means, at_events):
        table.setflags(write=False)
    return means, at_events


def _hazard(step: int) -> tuple[int, int]:
    """200 bits decide the rounding, as in `_logistic`."""
    with gmpy2.context(precision=200):
        mean = gmpy2.exp(gmpy2.mpfr(2 * step + 1) / (1 << STEP_BITS + 1))
        scale = 1 << HAZARD_BITS
        return int(gmpy2.rint(scale * mean)), int(gmpy2.rint(scale * mean / gmpy2.expm1(mean)))


def _logistic(step: int) -> int:
    """round(2^12 / (1 + exp(z))) at the middle of a step; 200 bits decide the rounding, because z is never zero."""
    with gmpy2.context(precision=200):
        z = gmpy2.mpfr(2 * step + 1) / (1 << STEP_BITS + 1)
        return int(gmpy2.rint((1 << WEIGHT_BITS) / (1 + gmpy2.exp(z))))


# Convex losses l(theta . e) of a margin, e = y x. Slopes are in [-1, 0], so if |x| <= R a gradient l'(theta . e) e is
# no longer than R.


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
