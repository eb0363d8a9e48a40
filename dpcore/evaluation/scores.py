"""A linear model's scores as predicates: integer weights, and comparisons with fixed edges."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.oracle import StatisticOracle
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.predicates.expressions import MOST_FORM, Affine, And, FormCoordinates, LabelIs, NonNegative, Not, Predicate
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import BIAS, Schema


@dataclass(frozen=True)
class LinearScores:
    """The score sum_j w_j z_j + constant of a record, in units of 2^-exponent, z_j its coordinates except the bias.

    With a feature map, z_j are the coordinates of the mapped record.
    """

    weights: tuple[tuple[str, int], ...]
    constant: int
    edges: tuple[int, ...]
    """Increasing integers in that unit, 0 among them."""
    exponent: int
    rounding: float
    """The most that a score may differ from theta . x, for any record: the rounding of theta, plus that of stored
    coordinates."""

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
    """The scores theta . x with integer weights: theta times the largest power of two that fits, rounded to integers.

    theta: (d,), the bias last if the schema has one; with a feature map, over its coordinates. edges: increasing
    scores, 0 among them. A theta of few binary digits is exact.

    Raises ShapeError if theta does not fit the schema or the map, ConfigurationError if it is no array, is not finite
    or is too large compared with the edges.
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


# Edges of bins where a model's scores are, from a first noisy release of their histogram by label.
#
# A part of the budget first asks how many rows of each label are in each of many narrow cells between the least and
# the largest possible score; replacing a row moves two cells by 1. The edges are quantiles of what is found there.
# They only decide how much the second release tells, never whether it is right.
#
# The noise on many empty cells would add up. So a range of cells counts only if its sum is above the noise, and is
# divided only where a half is too (`located`).


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

    part: of the oracle's budget. If the noise hides where the scores are, the edges are those of even steps of
    probability.
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
    """The counts of cells without the noise of empty ones: 0 in ranges whose sum is lost in the noise.

    deviation: of the noise on a cell. A range that is above the noise, while none of its halves is, is taken as even.
    """
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
