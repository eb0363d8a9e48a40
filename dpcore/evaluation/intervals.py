"""Intervals for a proportion A / (A + B) of which only noisy counts of A and of B are known.

A and B are sums of k_a and k_b cells, every cell with independent noise. Two proportions are meant. On the rows
themselves, A / T with T = A + B, only the noise leaves a doubt; on the distribution that the rows were drawn from, p,
given T the count A is binomial (T, p). For a candidate e both look at

    S(e) = (1 - e) A^ - e B^ = (A - e T) + N,      N of variance D^2 ((1 - e)^2 k_a + e^2 k_b),

with A^ and B^ the noisy counts and D the noise's standard deviation on a cell.

On the rows, A - e T is 0 at the truth, and the interval is every e at which |S(e)| is within what N exceeds with
probability `failure`: a quadratic inequality (Fieller, J. R. Stat. Soc. B 16, 1954), and no count of usable rows is
needed. On the distribution the interval is every e at which neither P(S <= observed) nor P(S >= observed) is below
failure / 2. Without noise that is the interval of Clopper and Pearson (Biometrika 26, 1934). With it,

    P(A - e T + N <= s) <= sum_i w_i P(A <= e T + s + q_i),

where q_i >= 0 with weights w_i is the law of max(N, 0), each piece of it moved to its upper end. Binomial tails are
written as incomplete beta functions of real arguments, which are not below them at any argument. T is not known
exactly: what counts is the larger chance at the least and the largest T that the noise leaves open, with a twentieth of
the failure. In between it is not larger, by more than what moving up the q_i has added: a test looks.

The noise is that of dpcore.accounting.noise_shares: normal, or on each cell a sum of independent Laplace variables, of
which there may be more than is known. Of all those of one variance, sums of c >= k Laplace variables exceed x standard
deviations with a probability at most 1.002 times the larger of a normal variable's and of k Laplace variables': the
tail far out falls with c and the one near 0 grows. That factor was found by quadrature, and a test repeats it; it
is far above that of discrete Gaussian shares (dpcore.accounting.integer_noise). Values on a grid as coarse as a row, in
place of a line, cost one row more.
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dpcore.errors import ConfigurationError
from dpcore.statistics.estimates import Estimates

Floats = NDArray[np.float64]

_FAMILY = 1.002
_MOST_COPIES = 8
"""More Laplace variables are counted as this many: their sum is closer to normal than is made use of."""
_TAILS = np.geomspace(1.0, 1e-8, 81)
_TOTAL_SHARE = 1 / 20
_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Interval:
    """The closed interval [lower, upper] within [0, 1]. Raises ConfigurationError where it is none."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.lower <= self.upper <= 1.0:
            raise ConfigurationError(f"[{self.lower}, {self.upper}] is no interval within [0, 1]")

    @property
    def width(self) -> float:
        """Upper end minus lower."""
        return self.upper - self.lower

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


ANYTHING = Interval(0.0, 1.0)
"""What is known of a proportion of nothing."""


@dataclass(frozen=True)
class Count:
    """A noisy number of rows, the sum of `cells` cells; it may be negative."""

    value: float
    cells: int

    def __add__(self, other: "Count") -> "Count":
        return Count(self.value + other.value, self.cells + other.cells)


@dataclass(frozen=True)
class CellNoise:
    """Noise on every cell: its standard deviation in rows, 0 where there is none; the module's docstring says more.

    copies: that of each cell is normal, or a sum of at least so many Laplace variables; infinite: it is normal.
    Raises ConfigurationError where the deviation is negative or not finite, or copies below 1.
    """

    deviation: float
    copies: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.deviation) and self.deviation >= 0.0):
            raise ConfigurationError(f"the noise has standard deviation {self.deviation}: give a number from 0 up")
        if not self.copies >= 1.0:
            raise ConfigurationError(f"noise of {self.copies} Laplace variables: give at least 1")

    @classmethod
    def of(cls, estimates: Estimates) -> "CellNoise":
        """Of counts that are estimates times their rows; the worst law of their deviation where theirs is not known."""
        copies = 1.0 if estimates.law is None else estimates.law.copies
        return cls(estimates.deviation * estimates.rows, copies)

    def half_width(self, cells: int, failure: float) -> float:
        """With probability >= 1 - failure the noise on a sum of `cells` cells is at most this, in rows."""
        return math.sqrt(cells) * self.reach(cells, failure)

    def reach(self, cells: int, failure: float) -> float:
        """The same in units of sqrt(cells): also of any sum of `cells` cells or more with weights, over their norm."""
        if not 0.0 < failure < 1.0:
            raise ConfigurationError(f"failure is {failure}: it must be between 0 and 1")
        if self.deviation == 0.0:
            return 0.0
        return self.deviation * _one_deviation(self._copies(cells), failure) + 1.0

    def above(self, cells: int) -> tuple[Floats, Floats]:
        """(levels, weights) of the law of max(N, 0) in the units of `reach`, moved up; the weights add up to 1."""
        if self.deviation == 0.0:
            return np.zeros(1), np.ones(1)
        levels = np.concatenate([[0.0], self.deviation * _level_deviations(self._copies(cells)) + 1.0, [np.inf]])
        return levels, np.concatenate([[0.5], -np.diff(_TAILS) / 2.0, [_TAILS[-1] / 2.0]])

    def _copies(self, cells: int) -> float:
        return self.copies if math.isinf(self.copies) else min(math.floor(cells * self.copies), _MOST_COPIES)


def interval_on_rows(a: Count, b: Count, noise: CellNoise, failure: float) -> Interval:
    """Where A / (A + B) is with probability >= 1 - failure; everything where the noise hides whether A + B is 0.

    Raises ConfigurationError where failure is not between 0 and 1.
    """
    squared = noise.reach(min(a.cells, b.cells), failure) ** 2
    total = a.value + b.value
    leading = total**2 - squared * (a.cells + b.cells)
    if total <= 0.0 or leading <= 0.0:
        return ANYTHING
    # leading e^2 - 2 middle e + constant <= 0
    middle, constant = a.value * total - squared * a.cells, a.value**2 - squared * a.cells
    root = math.sqrt(max(middle**2 - leading * constant, 0.0))
    return _clipped((middle - root) / leading, (middle + root) / leading)


def interval_on_distribution(a: Count, b: Count, noise: CellNoise, failure: float, most: int) -> Interval:
    """Where p is with probability >= 1 - failure, over A + B rows drawn independently and the noise.

    most: A + B is at most this, for certain. Raises ConfigurationError where failure is not between 0 and 1.
    """
    total = a.value + b.value
    spare = failure * _TOTAL_SHARE if noise.deviation > 0.0 else 0.0
    beyond = noise.half_width(a.cells + b.cells, spare) if spare else 0.0
    rows = max(total - beyond, 1.0), min(total + beyond, float(most))
    if total <= 0.0 or rows[1] < 1.0:
        return ANYTHING
    side = (failure - spare) / 2.0
    # The lower end is 1 minus the upper end for the other side.
    return _clipped(1.0 - _upper_end(b, a, noise, rows, side), _upper_end(a, b, noise, rows, side))


def _upper_end(a: Count, b: Count, noise: CellNoise, rows: tuple[float, float], failure: float) -> float:
    """The largest e at which a value of S(e) as low as the one observed has a chance above `failure`, at either T."""
    levels, weights = noise.above(min(a.cells, b.cells))
    total = a.value + b.value

    def excess(e: float, t: float) -> float:
        norm = math.hypot((1.0 - e) * math.sqrt(a.cells), e * math.sqrt(b.cells))
        observed = a.value - e * total + norm * levels
        return float(weights @ binomial_at_most(observed + e * t, t, e)) - failure

    end = min(max(a.value / total, 0.0), 1.0)
    for t in sorted(set(rows), reverse=True):
        # Most often the second T is no worse at the end that the first has given.
        if excess(end, t) > 0.0:
            far = excess(1.0, t) > 0.0
            end = 1.0 if far else min(optimize.brentq(excess, end, 1.0, args=(t,), xtol=_TOLERANCE) + _TOLERANCE, 1.0)
    return float(end)


def binomial_at_most(y: Floats, rows: float, e: float) -> Floats:
    """At least P(X <= y) for X binomial (rows, e), elementwise in y; `rows` and y are real, in between increasing."""
    inside = np.clip(y, -1.0 + 1e-9, rows - 1e-9 * max(1.0, rows))
    tail: Floats = special.betaincc(inside + 1.0, rows - inside, e)
    return np.where(y <= -1.0, 0.0, np.where(y >= rows, 1.0, tail))


def deviations(copies: float, failure: Floats) -> Floats:
    """Standard deviations that noise exceeds with probability at most `failure`: (n,). copies: see `noise_tail`."""
    low, high = np.zeros_like(failure), np.full_like(failure, 64.0)
    for _ in range(60):
        middle = (low + high) / 2.0
        enough = noise_tail(copies, middle) <= failure
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def noise_tail(copies: float, x: Floats) -> Floats:
    """At least the probability that noise exceeds x >= 0 standard deviations in magnitude: (n,).

    copies: it is normal, or the sum of so many Laplace variables or more, an integer; infinite: it is normal.
    """
    tail: Floats = 2.0 * special.ndtr(-x)
    if not math.isinf(copies):
        tail = np.maximum(tail, _laplace_tail(int(copies), x))
    return np.minimum(_FAMILY * tail, 1.0)


def _laplace_tail(copies: int, x: Floats) -> Floats:
    """The probability that a sum of k = `copies` Laplace variables exceeds x standard deviations in magnitude: (n,).

    It is a difference of two sums of k exponential ones. Cancel one of either side after the other: j of its own are
    left when the other side's are used up with probability C(2k - 1 - j, k - j) / 2^(2k - j), and what is left is a sum
    of j exponential variables.
    """
    scaled = x * math.sqrt(2.0 * copies)
    tail: Floats = np.zeros_like(x)
    for left in range(1, copies + 1):
        weight = math.comb(2 * copies - 1 - left, copies - left) / 2 ** (2 * copies - left - 1)
        tail += weight * special.gammaincc(left, scaled)
    return tail


@lru_cache(maxsize=256)
def _one_deviation(copies: float, failure: float) -> float:
    return float(deviations(copies, np.array([failure]))[0])


@cache
def _level_deviations(copies: float) -> Floats:
    found = deviations(copies, _TAILS[1:])
    found.setflags(write=False)
    return found


def _clipped(lower: float, upper: float) -> Interval:
    lower = min(max(lower, 0.0), 1.0)
    return Interval(lower, min(max(upper, lower), 1.0))
