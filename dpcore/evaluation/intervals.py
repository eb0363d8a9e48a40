"""Intervals for a proportion A / (A + B) from noisy counts of A and of B.

A and B are sums of k_a and k_b cells, each with independent noise of standard deviation D. For a candidate e,

    S(e) = (1 - e) A^ - e B^ = (A - e T) + N,      N of variance D^2 ((1 - e)^2 k_a + e^2 k_b),

with A^ and B^ the noisy counts and T = A + B.

- On the rows: every e at which |S(e)| is at most the quantile that |N| exceeds with probability `failure` (Fieller, J.
  R. Stat. Soc. B 16, 1954).
- On the distribution that the rows were drawn from: every e at which neither tail of S is below failure / 2; without
  noise that of Clopper and Pearson (Biometrika 26, 1934). T is known up to noise, with a twentieth of the failure.

The noise is that of dpcore.accounting.noise_shares. Proof: docs/explanation/proofs.md, "Intervals for proportions".
"""

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dpcore.errors import ConfigurationError
from dpcore.statistics.accuracy import Estimates

Floats = NDArray[np.float64]

_FAMILY = 1.002
_MOST_COPIES = 8
"""More Laplace variables are counted as this many, which is conservative: their sum is closer to normal."""
_TAILS = np.geomspace(1.0, 1e-8, 81)
_TOTAL_SHARE = 1 / 20
_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Interval:
    """The closed interval [lower, upper] within [0, 1]. Raises ConfigurationError if it is not one."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.lower <= self.upper <= 1.0:
            raise ConfigurationError(f"[{self.lower}, {self.upper}] is no interval: give 0 <= lower <= upper <= 1")

    @property
    def width(self) -> float:
        """Upper end minus lower."""
        return self.upper - self.lower

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True)
class Bounded:
    """An estimate of any size with the ends of its interval."""

    estimate: float
    lower: float
    upper: float


ANYTHING = Interval(0.0, 1.0)
"""The interval for a proportion about which the counts give no information."""


@dataclass(frozen=True)
class Count:
    """A noisy number of rows, the sum of `cells` cells; it may be negative."""

    value: float
    cells: int

    def __add__(self, other: "Count") -> "Count":
        return Count(self.value + other.value, self.cells + other.cells)


@dataclass(frozen=True)
class CellNoise:
    """Noise on every cell: its standard deviation in rows, 0 if there is none. Raises ConfigurationError."""

    deviation: float
    copies: float = 1.0
    """Each cell's noise is a sum of at least this many Laplace variables; infinite for normal noise."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.deviation) and self.deviation >= 0.0):
            raise ConfigurationError(f"the noise has standard deviation {self.deviation}: give a number from 0 up")
        if not self.copies >= 1.0:
            raise ConfigurationError(f"noise of {self.copies} Laplace variables: give at least 1")

    @classmethod
    def of(cls, estimates: Estimates) -> "CellNoise":
        """Of counts, estimates times rows; the worst distribution of their deviation if theirs is unknown.

        Raises ConfigurationError for local answers.
        """
        distribution = estimates.shared_noise
        copies = 1.0 if distribution is None else distribution.copies
        return cls(estimates.deviation * estimates.rows, copies)

    def half_width(self, cells: int, failure: float) -> float:
        """With probability >= 1 - failure the noise on a sum of `cells` cells is at most this, in rows."""
        return math.sqrt(cells) * self.reach(cells, failure)

    def reach(self, cells: int, failure: float) -> float:
        """`half_width` over sqrt(cells); also for a weighted sum of `cells` cells or more, over the weights' norm."""
        if not 0.0 < failure < 1.0:
            raise ConfigurationError(f"failure is {failure}: it must be between 0 and 1")
        if self.deviation == 0.0:
            return 0.0
        return self.deviation * self.deviations(cells, failure) + 1.0

    def deviations(self, cells: int, failure: float) -> float:
        """The standard deviations that the noise on a sum of `cells` cells, or a normal, exceeds with this probability.

        Of the sum of both it is no proof: `tests/statistical/test_descriptive.py` measures that.
        """
        return _one_deviation(self._copies(cells), failure)

    def above(self, cells: int) -> tuple[Floats, Floats]:
        """(levels, weights) of max(N, 0) in the units of `reach`, moved up; the weights add up to 1."""
        if self.deviation == 0.0:
            return np.zeros(1), np.ones(1)
        levels = np.concatenate([[0.0], self.deviation * _level_deviations(self._copies(cells)) + 1.0, [np.inf]])
        return levels, np.concatenate([[0.5], -np.diff(_TAILS) / 2.0, [_TAILS[-1] / 2.0]])

    def _copies(self, cells: int) -> float:
        return self.copies if math.isinf(self.copies) else min(math.floor(cells * self.copies), _MOST_COPIES)


def interval_on_rows(a: Count, b: Count, noise: CellNoise, failure: float) -> Interval:
    """Contains A / (A + B) with probability >= 1 - failure; [0, 1] if noise could make A + B 0."""
    squared = noise.reach(min(a.cells, b.cells), failure) ** 2
    total = a.value + b.value
    leading = total**2 - squared * (a.cells + b.cells)
    if total <= 0.0 or leading <= 0.0:
        return ANYTHING
    # leading e^2 - 2 middle e + constant <= 0
    middle, constant = a.value * total - squared * a.cells, a.value**2 - squared * a.cells
    root = math.sqrt(max(middle**2 - leading * constant, 0.0))
    return _clipped((middle - root) / leading, (middle + root) / leading)


def ratio_on_rows(
    value: float, unit: float, over: float, over_unit: float, reach: float, least: float = -math.inf
) -> Bounded | None:
    """The ratio of two noisy sums with every r at which |value - r over| may be noise; None if `over` may be 0.

    unit, over_unit: what noise of size 1 is on each. reach: what the noise of value - r over exceeds at most with the
    probability that the interval fails, over hypot(unit, r over_unit) (Fieller). least: no ratio is smaller.
    """
    leading = over**2 - (reach * over_unit) ** 2
    if over <= 0.0 or leading <= 0.0:
        return None
    middle, constant = value * over, value**2 - (reach * unit) ** 2
    root = math.sqrt(max(middle**2 - leading * constant, 0.0))
    estimate, lower, upper = (
        max(found, least) for found in (value / over, *((middle + s * root) / leading for s in (-1, 1)))
    )
    return Bounded(estimate, min(lower, estimate), max(upper, estimate))


def interval_on_distribution(a: Count, b: Count, noise: CellNoise, failure: float, most: int) -> Interval:
    """Contains p with probability >= 1 - failure, over A + B rows drawn independently and the noise.

    most: a certain upper bound on A + B. Raises ConfigurationError if failure is not between 0 and 1.
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
    """The largest e at which S(e) as low as observed has a probability above `failure`, at either T."""
    levels, weights = noise.above(min(a.cells, b.cells))
    total = a.value + b.value

    def excess(e: float, t: float) -> float:
        norm = math.hypot((1.0 - e) * math.sqrt(a.cells), e * math.sqrt(b.cells))
        observed = a.value - e * total + norm * levels
        return float(weights @ binomial_at_most(observed + e * t, t, e)) - failure

    end = min(max(a.value / total, 0.0), 1.0)
    for t in sorted(set(rows), reverse=True):
        # Usually the second T gives no larger end than the first.
        if excess(end, t) > 0.0:
            far = excess(1.0, t) > 0.0
            end = 1.0 if far else min(optimize.brentq(excess, end, 1.0, args=(t,), xtol=_TOLERANCE) + _TOLERANCE, 1.0)
    return float(end)


def mean_of_bounded(lower: float, upper: float, rows: float, failure: float) -> Interval:
    """The mean of numbers from 0 to 1, of which `rows` or more were drawn with a mean from lower to upper.

    Every p with rows KL(end || p) <= log(2 / failure): Hoeffding, J. Am. Stat. Assoc. 58, 1963, theorem 1.
    """
    if rows < 1.0:
        return ANYTHING
    most = math.log(2.0 / failure) / rows

    def beyond(p: float, end: float) -> float:
        return float(special.rel_entr(end, p) + special.rel_entr(1.0 - end, 1.0 - p)) - most

    low = 0.0 if beyond(1e-12, lower) <= 0.0 else optimize.brentq(beyond, 1e-12, lower, args=(lower,), xtol=_TOLERANCE)
    top = 1.0 - 1e-12
    high = 1.0 if beyond(top, upper) <= 0.0 else optimize.brentq(beyond, upper, top, args=(upper,), xtol=_TOLERANCE)
    return _clipped(float(low) - _TOLERANCE, float(high) + _TOLERANCE)


def binomial_at_most(y: Floats, rows: float, e: float) -> Floats:
    """Upper bound on P(X <= y) for X binomial (rows, e), elementwise in y, increasing also for real `rows` and y."""
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
    """Upper bound on P(|noise| > x >= 0 standard deviations): (n,). copies: of Laplace variables; infinite: normal."""
    tail: Floats = 2.0 * special.ndtr(-x)
    if not math.isinf(copies):
        tail = np.maximum(tail, _laplace_tail(int(copies), x))
    return np.minimum(_FAMILY * tail, 1.0)


def _laplace_tail(copies: int, x: Floats) -> Floats:
    """The probability that a sum of k = `copies` Laplace variables exceeds x standard deviations in magnitude: (n,).

    Of two sums of k exponentials, cancelled one by one, the first has j left with C(2k - 1 - j, k - j) / 2^(2k - j).
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


# Proportions from noisy counts, with intervals for their values on the rows and on their distribution.


@dataclass(frozen=True)
class Proportion:
    """An estimated proportion, with intervals for its value on the rows and on their distribution."""

    estimate: float
    on_rows: Interval
    on_distribution: Interval | None
    """None if the model may have been trained on the rows."""

    @property
    def strongest(self) -> Interval:
        """The interval of the strongest claim that is stated: for the distribution, else on the rows."""
        return self.on_distribution or self.on_rows

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "estimate": self.estimate,
            "on_rows": [self.on_rows.lower, self.on_rows.upper],
            "on_distribution": None
            if self.on_distribution is None
            else [self.on_distribution.lower, self.on_distribution.upper],
        }


@dataclass(frozen=True)
class Judge:
    """Turns counts into proportions."""

    noise: CellNoise
    failure: float
    """Of one family of intervals."""
    rows: int
    """No count is larger."""
    unseen: bool
    """Whether the model is independent of the rows, so that there are intervals on the distribution."""

    def proportion(self, a: Count, b: Count, statements: int = 1) -> Proportion:
        """A / (A + B), with intervals for `statements` of them that hold jointly."""
        failure = self.failure / statements
        return Proportion(
            estimate=share_of(a, b),
            on_rows=interval_on_rows(a, b, self.noise, failure),
            on_distribution=interval_on_distribution(a, b, self.noise, failure, self.rows) if self.unseen else None,
        )


def count_of(*cells: float) -> Count:
    """The sum of noisy cells."""
    return Count(float(sum(cells)), len(cells))


def share_of(a: Count, b: Count) -> float:
    """A / (A + B), within [0, 1]; a half if nothing is there."""
    total = a.value + b.value
    return min(max(a.value / total, 0.0), 1.0) if total > 0.0 else 0.5
