"""Central private quantiles: the exponential mechanism over public values, beside a histogram with noise.

The median of a sample is one of its rows' values, so it is not private at any epsilon (Bassily, Smith and Thakurta,
slides of 2014, opening example): replacing a row can change it with certainty.

Here a public, ascending list of k values is given, and a value's rank error is how many rows lie between it and the
quantile.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError, PlanError
from dpcore.numbers.fixed_point import Vector
from dpcore.randomness.sources import RandomSource
from dpcore.research.mechanisms import ExponentialMechanism, LaplaceMechanism, Rule


def exact_quantile(rows: Sequence[int] | Vector, level: Fraction) -> float:
    """The least row value that a share `level` of the rows does not exceed: a row's own value, without privacy."""
    ordered = np.sort(np.asarray(rows, dtype=np.float64))
    if not len(ordered):
        raise DataError("there is no row: give at least one")
    return float(ordered[max(0, math.ceil(_checked(level) * len(ordered)) - 1)])


@dataclass(frozen=True, eq=False)
class QuantileMechanism:
    """The quantile at `level` among public values, (epsilon, 0)-private.

    The score of value v is minus its rank error, max(0, level n - #{rows <= v}, #{rows < v} - level n). Replacing a row
    moves both counts by at most 1, so the score's sensitivity is 1, and the choice is `ExponentialMechanism`'s (Smith,
    STOC 2011, section 3, for an interval of values).

    Raises PlanError if the values are not two or more finite numbers in ascending order, or another field is out
    of range.
    """

    values: Vector
    """(k,), ascending, chosen without the rows."""
    level: Fraction
    epsilon: Fraction
    rule: Rule = "exponential"

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all() or not (np.diff(values) > 0).all():
            raise PlanError("the values of a quantile are not two or more finite numbers in ascending order: sort them")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)
        _checked(self.level)
        _ = self._mechanism

    def rank_errors(self, rows: Vector) -> list[Fraction]:
        """The rank error of each value, exact; at least 0. Raises DataError if a row is not finite or there is none."""
        ordered = np.sort(np.asarray(rows, dtype=np.float64))
        if not len(ordered) or not np.isfinite(ordered).all():
            raise DataError("there is no row, or one is not finite: give finite numbers")
        wanted = self.level * len(ordered)
        below, upto = (np.searchsorted(ordered, self.values, side).tolist() for side in ("left", "right"))
        return [max(Fraction(0), wanted - high, low - wanted) for low, high in zip(below, upto, strict=True)]

    def release(self, rows: Vector, random: RandomSource) -> float:
        """A value, drawn exactly. Raises as `rank_errors`."""
        return float(self.values[self._mechanism.release([-error for error in self.rank_errors(rows)], random)])

    def probabilities(self, rows: Vector) -> Vector:
        """The distribution of `release`: (k,)."""
        return self._mechanism.probabilities([-error for error in self.rank_errors(rows)])

    def error_bound(self, failure: float) -> float:
        """With probability >= 1 - failure the rank error is at most this above the best value's.

        2 ln(k / failure) / epsilon (McSherry and Talwar, FOCS 2007, Theorem 6), whatever the number of rows.
        """
        return 2 * math.log(len(self.values) / failure) / float(self.epsilon)

    @cached_property
    def _mechanism(self) -> ExponentialMechanism:
        return ExponentialMechanism(self.epsilon, Fraction(1), self.rule)


@dataclass(frozen=True, eq=False)
class HistogramQuantile:
    """The same from counts of the cells between values, with Laplace noise: what a federation can ask.

    All quantiles cost epsilon together. A sum of j cells has j noises, so its error grows with the root of k.
    """

    values: Vector
    """(k,), ascending; cell j has the rows above value j - 1 and up to value j, the last the rest."""
    epsilon: Fraction

    @cached_property
    def mechanism(self) -> LaplaceMechanism:
        """Of the counts: a replaced row moves two of them by 1. Raises PlanError if epsilon is out of range."""
        return LaplaceMechanism(self.epsilon, 2)

    def counts(self, rows: Vector) -> NDArray[np.int64]:
        """The exact number of rows in each cell, (k + 1,)."""
        cells = np.searchsorted(self.values, np.asarray(rows, dtype=np.float64), "left")
        return np.bincount(cells, minlength=len(self.values) + 1).astype(np.int64)

    def release(self, rows: Vector, level: Fraction, random: RandomSource) -> float:
        """The first value up to which noisy counts reach the level; the last value if none does."""
        noisy = self.mechanism.release(self.counts(rows), random)
        reached = np.flatnonzero(np.cumsum(noisy)[:-1] >= float(_checked(level)) * len(rows))
        return float(self.values[reached[0] if len(reached) else -1])

    def error_bound(self, failure: float) -> float:
        """With probability >= 1 - failure every cumulative count is this close to its true one.

        A sum of j discrete Laplace noises of scale t has E[exp(s X)] <= (1 - s^2 t^2)^-j for s t < 1, for each j <= k.
        """
        k, t = len(self.values), float(self.mechanism.scale)
        orders = np.linspace(0.001, 0.999, 999)
        bounds = (-k * np.log1p(-(orders**2)) + math.log(2 * k / failure)) / (orders / t)
        return float(bounds.min())


def _checked(level: Fraction) -> Fraction:
    if not isinstance(level, Fraction) or not 0 < level < 1:
        raise PlanError(f"the level of a quantile is {level}: give a Fraction between 0 and 1")
    return level
