"""Edges of bins where a model's scores are, from a first noisy release of their histogram by label.

A part of the budget first asks how many rows of each label are in each of many narrow cells between the least and the
largest possible score; replacing a row moves two cells by 1. The edges are quantiles of what is found there. They only
decide how much the second release tells, never whether it is right.

The noise on many empty cells would add up. So a range of cells counts only if its sum is above the noise, and is
divided only where a half is too (`located`).
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.estimators.oracle import StatisticOracle
from dpcore.evaluation.linear_scores import linear_scores
from dpcore.predicates.expressions import Predicate
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema

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
