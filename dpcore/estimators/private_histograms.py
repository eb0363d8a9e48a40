"""Histograms of real features from one noisy release: where their values lie, for knots, centres and lengths.

Each feature has equal cells between its bounds, and the three values that columns often repeat apart: both bounds, to
which cells are clipped, and zero. A record is in one of a feature's cells, so F features have a squared sensitivity of
2 F (dpcore.predicates.disjoint), whatever the number of cells. What is computed from the release costs nothing more.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from dpcore.estimators.base import Vector
from dpcore.estimators.oracle import StatisticOracle
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.expressions import Affine, NonNegative, Predicate
from dpcore.records.feature_map import stored
from dpcore.records.features import RealFeature

LEAST_POINT_MASS = 0.05
"""A repeated value with less of the records is no point mass: hats follow it well enough."""

_OUT_OF_NOISE = 3.0
"""Nor is one whose share is less than this many standard deviations of its noise."""


@dataclass(frozen=True, eq=False)
class Histogram:
    """Where a feature's values lie. edges: (cells + 1,) from -1 to 1, in coordinates of the schema; shares: (cells,).

    points: the values of point masses, in units of 2^-30, and their shares. All shares are at least 0 and add up to 1.
    """

    edges: Vector
    shares: Vector
    points: dict[int, float]

    def quantiles(self, levels: Sequence[float]) -> Vector:
        """The quantiles of the values that are no point masses, in coordinates of the schema."""
        reached = np.concatenate([[0.0], np.cumsum(self.shares)])
        if reached[-1] <= 0.0:
            return np.interp(levels, [0.0, 1.0], [-1.0, 1.0])
        # Cells without values have no width in this order, so that the inverse is unique.
        return np.interp(levels, reached / reached[-1] + np.arange(len(reached)) * 1e-12, self.edges)

    def values(self, per_cell: int = 8) -> tuple[Vector, Vector]:
        """Values in coordinates of the schema and their weights, which add up to 1: several in each cell."""
        within = (np.arange(per_cell) + 0.5) / per_cell
        spread = (self.edges[:-1, np.newaxis] + np.diff(self.edges)[:, np.newaxis] * within).reshape(-1)
        values = np.concatenate([spread, [at / ONE for at in self.points]])
        return values, np.concatenate([np.repeat(self.shares / per_cell, per_cell), list(self.points.values())])


@dataclass(frozen=True, eq=False)
class _Cells:
    """The cells of a feature between `bounds`, ascending from -2^30 to 2^30, without `points`, as values are stored."""

    name: str
    bounds: tuple[int, ...]
    points: tuple[int, ...]

    @classmethod
    def of(cls, feature: RealFeature, cells: int) -> "_Cells":
        zero = [stored(feature, 0.0)] if feature.lower < 0.0 < feature.upper else []
        # Zero ends a cell, so that every cell is an interval, and disjoint from the others by its facts.
        bounds = sorted({*(-ONE + 2 * ONE * i // cells for i in range(cells + 1)), *zero})
        return cls(feature.name, tuple(bounds), (-ONE, ONE, *zero))

    def predicates(self) -> list[Predicate]:
        """Of the points, then of the cells."""
        points: list[Predicate] = [self._at_least(at) & ~self._at_least(at + 1) for at in self.points]
        cells = [
            self._at_least(low + (low in self.points)) & ~self._at_least(high) for low, high in pairwise(self.bounds)
        ]
        return [*points, *cells]

    def _at_least(self, value: int) -> Predicate:
        # Exact: coordinates are multiples of 2^-30. The same weight everywhere, so that cells are seen to be disjoint.
        return NonNegative(Affine(((self.name, ONE),), -value))

    def histogram(self, counted: Vector, deviation: float) -> Histogram:
        """From the noisy shares of `predicates`, each with this standard deviation."""
        shares = np.maximum(counted, 0.0)
        least = max(LEAST_POINT_MASS, _OUT_OF_NOISE * deviation)
        points = {at: float(share) for at, share in zip(self.points, shares, strict=False) if share >= least}
        edges = np.array(self.bounds) / ONE
        cells = shares[len(self.points) :].copy()
        # A value that is no point mass belongs to the cell beside it.
        for at, share in zip(self.points, shares, strict=False):
            if at not in points:
                cells[min(bisect_right(self.bounds, at), len(cells)) - 1] += share
        total = float(cells.sum()) + sum(points.values())
        if total <= 0.0:
            return Histogram(edges, np.full(len(cells), 1.0 / len(cells)), {})
        return Histogram(edges, cells / total, {at: share / total for at, share in points.items()})


def histograms(
    oracle: StatisticOracle, features: Sequence[RealFeature], *, part: Fraction, cells: int
) -> list[Histogram]:
    """A histogram of each feature, by one query that takes `part` of the budget. Raises what the oracle raises."""
    divided = [_Cells.of(feature, cells) for feature in features]
    batches = [each.predicates() for each in divided]
    found = oracle.statistic([predicate for batch in batches for predicate in batch], part=part)
    ends = np.cumsum([len(batch) for batch in batches])
    return [
        each.histogram(np.asarray(found.values[end - len(batch) : end]), found.deviation)
        for each, batch, end in zip(divided, batches, ends, strict=True)
    ]
