"""A linear model's scores as predicates: integer weights, and comparisons with fixed edges."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.oracle import StatisticOracle
from dpcore.evaluation.intervals import ANYTHING, CellNoise, Count, Interval, Judge, Proportion, count_of, share_of
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.predicates.expressions import MOST_FORM, Affine, And, FormCoordinates, LabelIs, NonNegative, Not, Predicate
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import BIAS, Schema


@dataclass(frozen=True)
class LinearScores:
    """The score sum_j w_j z_j + constant, in units of 2^-exponent, z_j the (mapped) record's coordinates."""

    weights: tuple[tuple[str, int], ...]
    constant: int
    edges: tuple[int, ...]
    """Increasing integers in that unit, 0 among them."""
    exponent: int
    rounding: float
    """The most that a score may differ from theta . x, for any record: rounding of theta and of stored coordinates."""

    def positive(self, *, predicted: bool) -> Predicate:
        """The prediction is +1, or is -1: a score of exactly 0 is predicted -1."""
        return Not(self._at_most(0)) if predicted else self._at_most(0)

    def cells(self) -> tuple[Predicate, ...]:
        """Label and prediction: (-1, -1), (-1, +1), (+1, -1), (+1, +1); mutually exclusive."""
        return tuple(
            And((LabelIs(positive=label), self.positive(predicted=predicted)))
            for label in (False, True)
            for predicted in (False, True)
        )

    def bins(self) -> tuple[Predicate, ...]:
        """Label -1 and then +1, each with the scores (edge, next edge] from low to high; mutually exclusive."""
        return tuple(
            And((LabelIs(positive=label), *self._between(place)))
            for label in (False, True)
            for place in range(len(self.edges) + 1)
        )

    def places(self) -> tuple[tuple[Predicate, ...], ...]:
        """The parts of "the score is in (edge, next edge]" from low to high, whatever the label; mutually exclusive."""
        return tuple(self._between(place) for place in range(len(self.edges) + 1))

    def _between(self, place: int) -> tuple[Predicate, ...]:
        above = (Not(self._at_most(self.edges[place - 1])),) if place else ()
        below = (self._at_most(self.edges[place]),) if place < len(self.edges) else ()
        return (*above, *below)

    def _at_most(self, edge: int) -> NonNegative:
        # All comparisons have the same weights, so that bins are recognised as disjoint.
        return NonNegative(Affine(tuple((name, -weight) for name, weight in self.weights), edge - self.constant))


def linear_scores(
    theta: ArrayLike, schema: Schema, edges: NDArray[np.float64], feature_map: FeatureMap | None = None
) -> LinearScores:
    """The scores theta . x with integer weights: theta times the largest power of two that fits, rounded.

    theta: (d,), the bias last if the schema has one. edges: increasing scores, 0 among them. Raises ShapeError if theta
    does not fit the schema or the map, ConfigurationError if it is not finite or too large for the edges.
    """
    try:
        weights = np.asarray(theta, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"theta is a {type(theta).__name__}, not an array of numbers: give a model's weights and its feature map, "
            "evaluate(model.theta, oracle, feature_map=model.feature_map)"
        ) from error
    names = FormCoordinates(schema, feature_map).names
    if weights.shape != (len(names),):
        whose = "schema" if feature_map is None else "feature map"
        curves = "; for a model of curves feature_map=model.feature_map too" if feature_map is None else ""
        raise ShapeError(f"theta has shape {weights.shape} and the {whose} {len(names)} coordinates: give (d,){curves}")
    # Half a unit of rounding for each coordinate, and room for the edge.
    room = MOST_FORM - len(names) - 4
    with np.errstate(over="ignore"):
        size = float(np.abs(weights).sum() + np.abs(edges).max())
    if not math.isfinite(size):
        raise ConfigurationError("theta is not finite, or its sum is not: train again, or scale it down")
    exponent = math.frexp(room / size)[1] - 1
    integers = np.rint(np.ldexp(weights, exponent)).astype(np.int64)
    bounds = np.rint(np.ldexp(edges, exponent)).astype(np.int64)
    if not (np.diff(bounds) > 0).all():
        raise ConfigurationError(
            f"theta's magnitudes add up to {size:.3g}, so rounding makes edges of the bins equal: raise scale, or "
            "scale theta down"
        )
    rounding = np.abs(np.ldexp(integers.astype(np.float64), -exponent) - weights).sum()
    stored = np.abs(weights[: len(names) - schema.bias]).sum()
    # Predictions compute mapped coordinates in doubles, within 2^-28 of the integers (`FeatureMap.of`).
    stored_bits = STORED_FRACTION_BITS if feature_map is None else STORED_FRACTION_BITS - 2
    named = dict(zip(names, integers.tolist(), strict=True))
    constant = named.pop(BIAS) if schema.bias else 0
    return LinearScores(
        weights=tuple(named.items()),
        constant=constant,
        edges=tuple(bounds.tolist()),
        exponent=exponent,
        rounding=float(rounding + math.ldexp(float(stored), -stored_bits)),
    )


# Edges of bins where a model's scores are: quantiles of a first noisy histogram by label, in narrow cells.
#
# Replacing a row moves two cells by 1. The edges decide only how much the second release tells, never whether it is
# right. A range of cells counts only if its sum is above the noise, and is divided only where a half is too
# (`located`).


CELLS = 256
RARE = 0.25
"""Where a label has a smaller share, bins are narrower at the end where its rows should be."""

_CERTAIN = 3.0
"""A range of cells counts from this many standard deviations of its noise on."""
_CROWDING = 5.0
"""How much narrower bins are at one end: the widest has about e^5 / 8 times the rows of the narrowest."""
_LEAST_STEP = 1e-6
"""Edges closer together than this part of the range of scores are one edge."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Edges:
    """Edges that a release found, or even ones."""

    values: Floats
    found: bool


def find_edges(
    theta: ArrayLike, oracle: StatisticOracle, bins: int, *, part: Fraction, feature_map: FeatureMap | None = None
) -> Edges:
    """Edges of about this many bins of the scores theta . x; one release. Raises as `evaluate` does.

    If the noise hides where the scores are, they are those of even steps of probability.
    """
    grid, asked = narrow_cells(theta, oracle.schema, feature_map)
    most = float(grid[-1])
    estimates = oracle.statistic(asked, part=part, feature_map=feature_map)
    deviation = estimates.deviation * estimates.rows
    negative, positive = (
        located(counts, deviation) for counts in (estimates.values * estimates.rows).reshape(2, CELLS)
    )
    rows = negative + positive
    if not rows.sum():
        return Edges(even_steps(bins + bins % 2), found=False)
    below = np.concatenate([[0.0], np.cumsum(rows)]) / rows.sum()
    levels = _levels(bins, float(positive.sum() / rows.sum()))
    # The scores at these levels, taken as even within a cell. Cells without rows have no level inside.
    places, first = np.unique(below, return_index=True)
    inside = np.interp(levels, places, grid[first])
    step = 2 * most * _LEAST_STEP
    kept = [0.0]
    for edge in inside.tolist():
        if min(abs(edge - other) for other in kept) > step and abs(edge) < most:
            kept.append(edge)
    return Edges(np.sort(kept), found=True)


def narrow_cells(
    theta: ArrayLike, schema: Schema, feature_map: FeatureMap | None = None
) -> tuple[Floats, tuple[Predicate, ...]]:
    """The ends of the cells that `find_edges` asks about, and what it asks. Raises as `evaluate` does."""
    # Checks theta.
    linear_scores(theta, schema, np.array([0.0, 1.0]), feature_map)
    most = float(np.abs(np.asarray(theta, dtype=np.float64)).sum()) or 1.0
    grid = np.linspace(-most, most, CELLS + 1)
    return grid, linear_scores(theta, schema, grid[1:-1], feature_map).bins()


def located(counts: Floats, deviation: float) -> Floats:
    """The counts of cells, 0 in ranges whose sum is lost in the noise; such a range's halves are taken as even."""
    found = np.zeros(len(counts))

    def divide(start: int, stop: int) -> bool:
        width = stop - start
        total = float(counts[start:stop].sum())
        if total <= _CERTAIN * math.sqrt(width) * deviation:
            return False
        middle = start + width // 2
        halves = width > 1 and any([divide(start, middle), divide(middle, stop)])
        if not halves:
            found[start:stop] = total / width
        return True

    divide(0, len(counts))
    return np.maximum(found, 0.0)


def even_steps(bins: int) -> Floats:
    """The log odds of 1 / bins, ..., (bins - 1) / bins; of an even number the one in the middle is 0."""
    levels = np.arange(1, bins)
    return np.asarray(np.log(levels) - np.log(bins - levels), dtype=np.float64)


def _levels(bins: int, positive: float) -> Floats:
    """The shares of rows below each edge: even, or crowded where the rows of a rare label should be."""
    even = np.arange(1, bins) / bins
    crowded = np.expm1(_CROWDING * even) / math.expm1(_CROWDING)
    if positive < RARE:
        return np.asarray(1.0 - crowded[::-1])
    return np.asarray(crowded if positive > 1.0 - RARE else even)


# The ROC curve and the area under it (AUC, ties counted as a half), from noisy histograms of scores by label.
#
# Pairs in one bin may have either order, so the area on the rows is known within bounds (`Curve._on_rows`), at half the
# failure probability. The other half is Hoeffding's bound for two samples (J. Am. Stat. Assoc. 58, 1963, inequality
# 5.7): the area on the distribution is further than h with probability at most 2 exp(-2 h^2 min(positives, negatives)).


_AREAS = np.linspace(0.0, 1.0, 1001)
"""Areas that an interval is made of."""
_INNER = (np.arange(64) + 0.5) / 64
_SIZES_SHARE = 0.05
"""The part of the failure that bounds the size of a label, for the distribution."""


@dataclass(frozen=True)
class RocPoint:
    """The rates of the classifier that says +1 where the score is above `threshold`."""

    threshold: float
    false_positive_rate: Proportion
    true_positive_rate: Proportion


@dataclass(frozen=True)
class Area:
    """The area under the curve."""

    value: Proportion
    noise: float
    """The half-width of the noise on its estimate. value.on_rows also counts ties."""


@dataclass(frozen=True, eq=False)
class Curve:
    """From high scores to low."""

    sides: tuple[tuple[tuple[Count, Count], ...], tuple[tuple[Count, Count], ...]]
    """(rows scored above an edge, rows at or below it) of either label, negative first."""
    histogram: NDArray[np.float64]
    """(2, bins), noisy rows of each label by score."""

    @classmethod
    def of(cls, histogram: NDArray[np.float64], middle: int, cells: NDArray[np.float64] | None) -> "Curve":
        """middle: bins at or below 0. cells: (2, 2), each label's rows at most 0 and above it, if asked."""
        negative, positive = (
            _splits(bins, middle, None if cells is None else cells[side]) for side, bins in enumerate(histogram)
        )
        return cls((negative, positive), histogram)

    def points(self, edges: NDArray[np.float64], judge: Judge) -> tuple[RocPoint, ...]:
        """A point for each edge, from the last one down."""
        statements = 2 * len(edges)
        rates = [[judge.proportion(a, b, statements) for a, b in side] for side in self.sides]
        smooth = [_monotone([rate.estimate for rate in side]) for side in rates]
        fpr, tpr = (
            [Proportion(value, rate.on_rows, rate.on_distribution) for value, rate in zip(values, side, strict=True)]
            for values, side in zip(smooth, rates, strict=True)
        )
        thresholds = reversed(edges.tolist())
        return tuple(RocPoint(*point) for point in zip(thresholds, fpr, tpr, strict=True))

    def area(self, judge: Judge) -> Area:
        """The area: interpolated between the points, with bounds that hold whatever the order within a bin."""
        fpr, tpr = (_monotone([share_of(a, b) for a, b in side]) for side in self.sides)
        estimate = _interpolated(np.array([0.0, *fpr, 1.0]), np.array([0.0, *tpr, 1.0]))
        if min(self.histogram.sum(axis=1)) <= 0.0:
            # No rows of one label, as far as the noise tells.
            estimate = 0.5
        on_rows = self._on_rows(judge.noise, judge.failure)
        on_distribution = self._on_distribution(judge) if judge.unseen else None
        return Area(Proportion(estimate, on_rows, on_distribution), self._noise(judge, estimate))

    def _noise(self, judge: Judge, area: float) -> float:
        """The half-width of the noise on the estimate, from its first order; at most 1/2."""
        negative, positive = np.maximum(self.histogram, 0.0)
        pairs = float(negative.sum() * positive.sum())
        if not pairs:
            return 0.5
        above = (_order(len(negative), ties=0.0) + _order(len(negative), ties=1.0)) / 2.0 - area
        norm = math.hypot(*(above @ negative), *(positive @ above))
        return min(0.5, judge.noise.reach(1, judge.failure) * norm / pairs)

    def _on_rows(self, noise: CellNoise, failure: float) -> Interval:
        """Every area A that the counts allow, whatever the order of scores within a bin.

        With p, n the true counts, K the matrix of which bin is above which, ties as 0 or as 1, and M = K - A: p' M n <=
        0 for ties as 0 and >= 0 for ties as 1. With noise x on p and y on n,

            (p + x)' M (n + y) - p' M n = x' M (n + y) + y' M' p,

        of which M' p is M' (p + x) less M' x. Each of the three bounds has a third of the failure.
        """
        negative, positive = self.histogram
        bins, third = len(negative), failure / 3.0
        reach, of_entries = noise.reach(1, third), noise.reach(1, third / bins)
        # Sums of exact counts have rounding errors.
        slack = 1e-9 * (1.0 + abs(float(positive.sum() * negative.sum())))
        allowed = np.ones(len(_AREAS), dtype=bool)
        for sign, ties in ((1.0, 0.0), (-1.0, 1.0)):
            order = _order(bins, ties=ties)
            weights = _norms(order @ negative, negative.sum())
            others = _norms(positive @ order, positive.sum()) + of_entries * _norms(order.ravel(), 1.0)
            excess = sign * (positive @ order @ negative - _AREAS * positive.sum() * negative.sum())
            allowed &= excess - reach * (weights + others) <= slack
        if not allowed.any():
            return ANYTHING
        step, areas = _AREAS[1], _AREAS[allowed]
        # Also the areas between the last that is allowed and the next.
        return Interval(max(0.0, float(areas.min() - step)), min(1.0, float(areas.max() + step)))

    def _on_distribution(self, judge: Judge) -> Interval:
        failure = judge.failure / 2.0
        rows = self._on_rows(judge.noise, failure * (1.0 - 2.0 * _SIZES_SHARE))
        sizes = [min((a + b for a, b in side), key=lambda count: count.cells) for side in self.sides]
        least = min(size.value - judge.noise.half_width(size.cells, failure * _SIZES_SHARE) for size in sizes)
        if least <= 0.0:
            return ANYTHING
        beyond = math.sqrt(math.log(2.0 / failure) / (2.0 * least))
        return Interval(max(rows.lower - beyond, 0.0), min(rows.upper + beyond, 1.0))


def _norms(vector: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """The norm of `vector` less A times `total`, for each of the areas A."""
    return np.asarray(np.linalg.norm(vector[:, None] - _AREAS * total, axis=0))


def _order(bins: int, *, ties: float) -> NDArray[np.float64]:
    """Whether a positive row's bin (first index) is above a negative row's, with this value if they are the same."""
    return np.tri(bins, k=-1) + ties * np.eye(bins)


def _interpolated(fpr: NDArray[np.float64], tpr: NDArray[np.float64]) -> float:
    """The area below a curve from (0, 0) to (1, 1), straight in normal quantiles, of slope 1 at both ends."""
    x, y = special.ndtri(fpr), special.ndtri(tpr)
    total = 0.0
    for place, width in enumerate(np.diff(fpr)):
        known = [each for each in (place, place + 1) if np.isfinite(x[each]) and np.isfinite(y[each])]
        if width <= 0.0:
            continue
        if not known or (len(known) == 1 and 0 < place < len(fpr) - 2):
            total += float(width * (tpr[place] + tpr[place + 1]) / 2.0)
            continue
        inner = special.ndtri(fpr[place] + width * _INNER) - x[known[0]]
        if len(known) == 2:
            # Points that are one rounding error apart may have the same quantile.
            step = x[known[1]] - x[known[0]]
            share = np.clip(inner / step, 0.0, 1.0) if step > 0.0 else np.full_like(inner, 0.5)
            inner = (y[known[1]] - y[known[0]]) * share
        total += float(width * special.ndtr(y[known[0]] + inner).mean())
    return min(max(total, 0.0), 1.0)


def _splits(
    bins: NDArray[np.float64], middle: int, cells: NDArray[np.float64] | None
) -> tuple[tuple[Count, Count], ...]:
    """One label's rows (above, at most) each edge, from the last edge down. cells: its rows at most 0, and above it."""
    found = []
    for place in range(len(bins) - 1, 0, -1):
        above, below = count_of(*bins[place:]), count_of(*bins[:place])
        if cells is not None:
            if place >= middle:
                below = count_of(cells[0], *bins[middle:place])
            else:
                above = count_of(cells[1], *bins[place:middle])
        found.append((above, below))
    return tuple(found)


def _monotone(values: Sequence[float]) -> list[float]:
    """The closest increasing values within [0, 1]."""
    # Means of shares, whose rounding errors may leave the range of the shares.
    fitted: list[float] = np.clip(optimize.isotonic_regression(values).x, 0.0, 1.0).tolist()
    return fitted
