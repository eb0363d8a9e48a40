"""Histograms of real features from one noisy release: where their values lie, for knots, centres and lengths.

Each feature has equal cells between its bounds; both bounds, zero, and what stands for missing cells are apart. Cells
beside zero, or the bound nearest to it, are divided again, each part a third of the next. A record is in one of a
feature's cells: F features have a squared sensitivity of 2 F.
"""

import math
from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import Vector
from dpcore.estimators.oracle import StatisticOracle
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.expressions import Affine, NonNegative, Predicate
from dpcore.records.feature_map import stored
from dpcore.records.features import Limit, RealFeature

LEAST_POINT_MASS = 0.05
"""A repeated value with less of the records is no point mass: hats follow it well enough."""

_OUT_OF_NOISE = 3.0
"""Nor is one whose share is less than this many standard deviations of its noise."""

_DIVISIONS = 5
"""Of a cell that is divided: its narrowest part is 3^-5 of it."""

_CROWDED = 0.1
"""A divided cell with less of the records is taken as a whole: the noise on its parts says more than they do."""

COARSE = 0.5
"""With more of its records in one cell, a feature's quantiles are not known well."""

_CLOSEST = 64
"""The fewest stored values between two edges: fewer would be within the rounding of an edge."""


@dataclass(frozen=True, eq=False)
class Histogram:
    """Where a feature's values lie."""

    edges: Vector
    """(cells + 1,) from -1 to 1, in coordinates of the schema."""
    shares: Vector
    """(cells,)."""
    points: dict[int, float]
    """The values of point masses, in units of 2^-30, and their shares. All shares are at least 0 and add up to 1."""

    @property
    def is_coarse(self) -> bool:
        """Whether more than `COARSE` of the values that are no point masses are in one cell."""
        return bool(self.shares.max(initial=0.0) > COARSE * self.shares.sum())

    def with_points(self, kept: Container[int]) -> "Histogram":
        """The histogram with these of its point masses; the shares of the others go to their cells."""
        shares = self.shares.copy()
        for at, share in self.points.items():
            if at not in kept:
                cell = int(np.searchsorted(self.edges, at / ONE, side="right")) - 1
                shares[min(max(cell, 0), len(shares) - 1)] += share
        return replace(self, shares=shares, points={at: s for at, s in self.points.items() if at in kept})

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
class Cells:
    """The cells of a feature between `bounds`, ascending from -2^30 to 2^30, without `points`, as values are stored."""

    name: str
    bounds: tuple[int, ...]
    points: tuple[int, ...]
    whole: tuple[int, ...]
    """The bounds of cells that are not parts of others."""

    @classmethod
    def equal(cls, feature: RealFeature, cells: int) -> "Cells":
        """Cells of one length, of which zero may divide one."""
        return cls._of(feature, (-ONE + 2 * ONE * i // cells for i in range(cells + 1)))

    @classmethod
    def refined(cls, feature: RealFeature, cells: int) -> "Cells":
        """Equal cells, divided beside zero, or the bound nearest to it; a value for missing cells is a point."""
        equal = cls.equal(feature, cells)
        at = equal.points[-1] if feature.lower < 0.0 < feature.upper else -ONE if feature.lower >= 0.0 else ONE
        place = equal.bounds.index(at)
        beside = (*equal.bounds[max(place - 1, 0) : place], *equal.bounds[place + 1 : place + 2])
        parts = [at + (other - at) // 3**times for other in beside for times in range(1, _DIVISIONS + 1)]
        imputed = [] if feature.impute is None else [stored(feature, feature.impute)]
        points = dict.fromkeys([*equal.points, *(at for at in imputed if -ONE < at < ONE)])
        return cls(feature.name, tuple(sorted({*equal.bounds, *parts, *points})), tuple(points), equal.bounds)

    @classmethod
    def between(cls, feature: RealFeature, limits: Sequence[Limit]) -> "Cells":
        """Cells between public edges in the column's units, and one on either side, up to the feature's bounds.

        Raises ConfigurationError unless edges ascend within the bounds, two stored values apart.
        """
        name = feature.name
        if not limits:
            raise ConfigurationError(f"there are no edges for {name!r}: give at least one, or leave them out")
        try:
            edges = [feature.value(limit) for limit in limits]
        except TypeError as error:
            raise ConfigurationError(f"edges of {name!r}: {error}") from error
        for edge in edges:
            if not feature.lower <= edge <= feature.upper:
                raise ConfigurationError(
                    f"edge {feature.written(edge, 6)} of {name!r} is beyond the schema's bounds, "
                    f"{feature.written(feature.lower, 6)} to {feature.written(feature.upper, 6)}: move it inside"
                )
        for low, high in pairwise(edges):
            if low >= high:
                raise ConfigurationError(
                    f"edges {feature.written(low, 6)} and {feature.written(high, 6)} of {name!r} are not in ascending "
                    "order: sort them, and give each once"
                )
        found = cls._of(feature, (-ONE, *(stored(feature, edge) for edge in edges), ONE))
        distinct = {feature.lower, feature.upper, *edges, *([0.0] if len(found.points) > 2 else [])}
        if len(found.bounds) < len(distinct) or min(b - a for a, b in pairwise(found.bounds)) < _CLOSEST:
            raise ConfigurationError(
                f"two edges of {name!r}, or an edge and a bound or zero, are closer than records tell apart "
                f"({_CLOSEST} in 2^31 of the range): move them apart"
            )
        return found

    @classmethod
    def _of(cls, feature: RealFeature, bounds: Iterable[int]) -> "Cells":
        zero = [at for at in (stored(feature, 0.0),) if feature.lower < 0.0 < feature.upper and -ONE < at < ONE]
        # Zero ends a cell, so that every cell is an interval, and disjoint from the others by its facts.
        found = tuple(sorted({*bounds, *zero}))
        return cls(feature.name, found, (-ONE, ONE, *zero), found)

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
        least = max(LEAST_POINT_MASS, _OUT_OF_NOISE * deviation)
        repeated = np.maximum(counted[: len(self.points)], 0.0)
        points = {at: float(share) for at, share in zip(self.points, repeated, strict=True) if share >= least}
        bounds, cells = self._told_apart(np.asarray(counted[len(self.points) :]), deviation)
        edges = np.array(bounds) / ONE
        # A value that is no point mass belongs to the cell beside it.
        for at, share in zip(self.points, repeated, strict=True):
            if at not in points:
                cells[min(bisect_right(bounds, at), len(cells)) - 1] += share
        total = float(cells.sum()) + sum(points.values())
        if total <= 0.0:
            return Histogram(edges, np.full(len(cells), 1.0 / len(cells)), {})
        return Histogram(edges, cells / total, {at: share / total for at, share in points.items()})

    def _told_apart(self, counted: Vector, deviation: float) -> tuple[list[int], Vector]:
        """Bounds of cells, and their shares, at least 0. The parts of a cell that is not crowded are added up."""
        bounds, shares = [-ONE], []
        places = [bisect_right(self.bounds, at) - 1 for at in self.whole]
        for start, stop in pairwise(places):
            parts = counted[start:stop]
            share = max(float(parts.sum()), 0.0)
            positive = np.maximum(parts, 0.0)
            if len(parts) > 1 and share >= max(_CROWDED, _OUT_OF_NOISE * math.sqrt(len(parts)) * deviation):
                bounds += self.bounds[start + 1 : stop + 1]
                shares += list(share * positive / positive.sum())
            else:
                bounds.append(self.bounds[stop])
                shares.append(share)
        return bounds, np.array(shares)


def histograms(
    oracle: StatisticOracle, features: Sequence[RealFeature], *, part: Fraction, cells: int
) -> list[Histogram]:
    """A histogram of each feature, by one query that takes `part` of the budget. Raises what the oracle raises."""
    divided = [Cells.refined(feature, cells) for feature in features]
    batches = [each.predicates() for each in divided]
    found = oracle.statistic([predicate for batch in batches for predicate in batch], part=part)
    ends = np.cumsum([len(batch) for batch in batches])
    return [
        each.histogram(np.asarray(found.values[end - len(batch) : end]), found.deviation)
        for each, batch, end in zip(divided, batches, ends, strict=True)
    ]
