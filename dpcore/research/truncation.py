"""Theorem 6 and the truncation of Algorithm 2, exactly: for one feature, several, and real values.

Nock, Patrini, Friedman (ICML 2015), section 5.1. A rado's sensitive coordinate is pi = sum_i s_i v_i, v_i = y_i x_i.
Algorithm 2 admits the signatures whose coordinate is in the middle of its range. The section ends: the design "can be
fairly simply generalized" to real values and to several features. Here the distributions are exact:

    one boolean feature     (epsilon, delta) with delta = P(lowest admitted count), no less
    two, each marginal      depends on the data through the number of rows where they agree: the worst is counted
    two, their joint law    delta of about 1/2, whatever the truncation, for some data
    real values             delta of about 1/2, whatever the truncation, for some data

**The last two, for one rado.** Let no sum with row i be a sum of the neighbour: two features agree in all rows but i,
or all real values but that of row i are multiples of a step, and the neighbour's are without exception.

Then each rado that selects the row tells the two apart, and delta >= P(s_i = 1 | admitted) at any epsilon. An interval
about the middle admits s with its complement, so that is 1/2. Nothing that only drops signatures helps: noise does
(`joint`), or rounding to one bit (`rounded`).
"""

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.composition import InfiniteEpsilonError, epsilon_bracket
from dpcore.accounting.dp_feat import delta_per_rado, truncation
from dpcore.errors import ConfigurationError, ShapeError
from dpcore.numbers.distributions import ROUND_OFF, CountDistribution
from dpcore.numbers.fixed_point import Mask, Vector

MOST_ROWS = 4000


@dataclass(frozen=True)
class Theorem6:
    """Theorem 6 for one rado of m = rows, and the exact figures. n rados have n times both, by composition."""

    rows: int
    epsilon: float
    delta: float
    """The least delta at epsilon: the probability of the lowest admitted count, which one neighbour cannot produce."""
    largest_finite_loss: float
    """Of all other counts, below epsilon / 2: so they add nothing to delta, and delta is the same from there on."""

    @property
    def epsilon_times_rows(self) -> float:
        """Bounded below by a constant, if epsilon = Omega(1/m)."""
        return self.epsilon * self.rows

    @property
    def delta_times_rows(self) -> float:
        """Goes to 0 as m grows, if delta = o(1/m)."""
        return self.delta * self.rows


def theorem_6(rows: int, epsilon_per_rado: Fraction) -> Theorem6:
    """Theorem 6 for one rado, exactly. Its delta = o(1/m) fails on a part of its conditions.

    The lowest count is about m epsilon / 8 below m/2, so m delta is about sqrt(2 m / pi) exp(-m epsilon^2 / 32) or
    more. It goes to 0 only if epsilon is above about `least_epsilon(m)`, far above 1/m: with epsilon = 1/sqrt(m) both
    conditions hold and m delta grows without bound.

    Raises EmptyTruncationError where no count is admitted, PlanError.
    """
    low, high = truncation(rows, epsilon_per_rado)
    finite = math.log((rows - low) / (low + 1)) if high > low else 0.0
    return Theorem6(rows, float(epsilon_per_rado), delta_per_rado(rows, epsilon_per_rado), finite)


def least_epsilon(rows: int) -> float:
    """About the epsilon per rado above which m delta is below 1, sqrt(16 log(2 m / pi) / m)."""
    return math.sqrt(16 * math.log(max(2 * rows / math.pi, 1.0)) / rows)


# Two boolean features. In a rows they agree (both v are alike) and in b = m - a they do not: with X of the a and Y of
# the b rows matching the first feature, k_1 = X + Y and k_2 = X + b - Y. Both are truncated to [low, m - low].


def box_marginal(rows: int, agreeing: int, low: int) -> Vector:
    """The distribution of k_1 in the box, (m + 1,), for a = agreeing rows. Raises ConfigurationError if it is empty."""
    if not (0 <= agreeing <= rows <= MOST_ROWS and 0 <= 2 * low <= rows and rows >= 1):
        raise ConfigurationError(
            f"{rows} rows, {agreeing} agreeing, from {low}: give 1 to {MOST_ROWS} rows, no more agreeing, low <= m/2"
        )
    other = rows - agreeing
    logs = np.array([math.lgamma(k + 1) for k in range(rows + 1)])
    x, y = np.arange(agreeing + 1)[:, np.newaxis], np.arange(other + 1)[np.newaxis, :]
    log_mass = logs[agreeing] - logs[x] - logs[agreeing - x] + logs[other] - logs[y] - logs[other - y]
    first, second = x + y, x + other - y
    admitted = (first >= low) & (first <= rows - low) & (second >= low) & (second <= rows - low)
    if not admitted.any():
        raise ConfigurationError(f"no signature is in the box of {rows} rows from {low}: lower it")
    masses = np.where(admitted, np.exp(log_mass - log_mass[admitted].max()), 0.0)
    found = np.bincount(first.ravel(), weights=masses.ravel(), minlength=rows + 1)
    return np.asarray(found / found.sum())


def box_delta(rows: int, low: int, epsilon: float) -> float:
    """The least delta of each feature's marginal in one rado, for the worst data: the largest over all a.

    Neighbours differ in the feature's value in one row, which then agrees with the other feature or no longer does:
    k_1 of a rows is compared with k_1 + 1 of a + 1 and of a - 1. Raises ConfigurationError as `box_marginal`.
    """
    laws = [box_marginal(rows, agreeing, low) for agreeing in range(rows + 1)]
    pairs = (pair for a in range(rows) for pair in _pairs(laws[a], laws[a + 1]))
    return max(float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()) for p, q in pairs)


def box_epsilon(rows: int, low: int, rados: int, delta: float, agreeing: int) -> float:
    """Epsilon of a feature's marginal in n rados for data where `agreeing` rows agree; inf if none is finite.

    The worst data's is at least this. Raises ConfigurationError as `box_marginal`.
    """
    own = box_marginal(rows, agreeing, low)
    neighbours = (box_marginal(rows, a, low) for a in (agreeing - 1, agreeing + 1) if 0 <= a <= rows)
    return max(_epsilon(p, q, rados, delta) for neighbour in neighbours for p, q in _pairs(own, neighbour))


def _pairs(own: Vector, neighbour: Vector) -> list[tuple[Vector, Vector]]:
    """The distributions of one value of pi, in both directions. The reflected neighbours are the same pairs."""
    p, q = (np.concatenate(part) for part in (([0.0], own), (neighbour, [0.0])))
    r, s = (np.concatenate(part) for part in (([0.0], neighbour), (own, [0.0])))
    return [(p, q), (q, p), (r, s), (s, r)]


def _epsilon(p: Vector, q: Vector, rados: int, delta: float) -> float:
    both = (p > 0) & (q > 0)
    losses = np.log(p[both] / q[both])
    order = np.argsort(-losses)
    masses = np.concatenate([[p[q == 0].sum()], p[both][order]])
    # Relative errors of the logarithms of factorials, generously.
    error = 1e6 * ROUND_OFF
    distribution = CountDistribution(0, masses / masses.sum(), losses[order], 0.0, error, error)
    try:
        return epsilon_bracket(distribution, rados, delta).upper
    except InfiniteEpsilonError:
        return math.inf


# Sums of known values: the joint law of two features, and real values.


def admitted_delta(values: NDArray[np.int64], neighbours: NDArray[np.int64], admitted: Mask, epsilon: float) -> float:
    """The least delta of one rado's sum for two data sets, by all 2^m signatures: at most 16 rows.

    values, neighbours: (m, features), v_i in units of a grid. admitted: (2^m,), the signatures kept for either data
    set; signature number c selects row i where bit i of c is set. Raises ShapeError if the arrays have other shapes,
    there are more rows, or no signature is admitted.
    """
    if values.ndim != 2 or values.shape != neighbours.shape or not 1 <= len(values) <= _MOST_ENUMERATED:
        raise ShapeError(f"values have shape {values.shape} and {neighbours.shape}: give (m, features), m <= 16, twice")
    if admitted.shape != (2 ** len(values),) or not admitted.any():
        raise ShapeError(f"admitted has shape {admitted.shape}: give ({2 ** len(values)},) with a signature admitted")
    codes = np.flatnonzero(admitted)[:, np.newaxis]
    selected = (codes >> np.arange(len(values))) % 2
    own, other = ([tuple(row) for row in (selected @ part).tolist()] for part in (values, neighbours))
    p, q = Counter(own), Counter(other)
    return sum(max(0.0, p[each] - math.exp(epsilon) * q[each]) for each in p) / len(own)


_MOST_ENUMERATED = 16


def interval_delta(values: NDArray[np.int64], place: int, changed: int, half_width: int, epsilon: float) -> float:
    """The least delta of one rado's real feature, truncated to its middle, if row `place` has the value `changed`.

    values: (m,), v_i in units of 2^-f. Each data set admits the sums within half_width of the middle of its own range,
    as equation 16 does. By dynamic programming over the grid. Raises ShapeError if the values are not (m,) or
    the place is not one of theirs, ConfigurationError if no sum is admitted.
    """
    if values.ndim != 1 or not 0 <= place < len(values):
        raise ShapeError(f"values have shape {values.shape}: give (m,), and a place below m")
    neighbour = values.copy()
    neighbour[place] = changed
    own, other = (_within(part, half_width) for part in (values, neighbour))
    return sum(max(0.0, mass - math.exp(epsilon) * other.get(at, 0.0)) for at, mass in own.items())


def _within(values: NDArray[np.int64], half_width: int) -> dict[int, float]:
    """The distribution of the sum of a random half, given that it is within half_width of the middle of all sums."""
    least, most = int(values[values < 0].sum()), int(values[values > 0].sum())
    masses = np.zeros(most - least + 1)
    masses[-least] = 1.0
    for value in values.tolist():
        masses = (masses + np.roll(masses, value)) / 2
    # 2 |sum - middle| without halves.
    sums = least + np.arange(len(masses))
    masses[np.abs(2 * sums - least - most) > 2 * half_width] = 0.0
    if not masses.any():
        raise ConfigurationError(f"no sum is within {half_width} of the middle: give a larger half_width")
    return dict(zip(sums.tolist(), (masses / masses.sum()).tolist(), strict=True))
