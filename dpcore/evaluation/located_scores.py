"""Where the scores of a model are, whatever its label: a first release of counts, and bins with about equal rows.

As for two classes (dpcore.evaluation.scores), the release decides only how much later ones tell, never whether they are
right. Scores below the first bin or above the last have no bin of their own: `Located.low` and `high` are the least and
the largest score of any record of the schema, so nothing is outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from dpcore.errors import ConfigurationError
from dpcore.estimators.oracle import StatisticOracle
from dpcore.evaluation.scores import CELLS, linear_scores, located
from dpcore.numbers.fixed_point import Vector
from dpcore.predicates.expressions import And, Predicate
from dpcore.records.feature_map import FeatureMap
from dpcore.records.schema import Schema


@dataclass(frozen=True, eq=False)
class Located:
    """Where scores are, as far as the noise tells."""

    grid: Vector
    """(CELLS + 1,), the ends of cells that every score is in."""
    rows: Vector
    """(CELLS,), about how many rows each has; even ones if the noise hides all."""
    found: bool
    """Whether the noise hides less than all."""

    def between(self, tails: float) -> tuple[float, float]:
        """The ends of cells that have all but this share of the rows, half of it on either side."""
        below = np.cumsum(self.rows) / self.rows.sum()
        first = int(np.argmax(below > tails / 2.0))
        last = int(np.argmax(below >= 1.0 - tails / 2.0))
        return float(self.grid[first]), float(self.grid[last + 1])

    def quantiles(self, levels: Vector) -> Vector:
        """The scores at these levels, taken as even within a cell; increasing, fewer where levels have one score."""
        below = np.concatenate([[0.0], np.cumsum(self.rows)]) / self.rows.sum()
        places, first = np.unique(below, return_index=True)
        wanted = np.interp(levels, places, self.grid[first])
        least = float(self.grid[-1] - self.grid[0]) * 1e-6
        kept: list[float] = []
        for each in np.sort(wanted).tolist():
            if self.grid[0] < each < self.grid[-1] and (not kept or each - kept[-1] > least):
                kept.append(each)
        return np.array(kept)

    def mean_of(self, values: Vector) -> float:
        """The mean over rows of values (CELLS,) of cells."""
        return float(self.rows @ values / self.rows.sum())

    def means_between(self, ends: Vector, values: Vector) -> Vector:
        """The mean of values (CELLS,) of cells, of the rows with scores between each two of the ends.

        values: increasing. They are clipped to those of the ends, as a cell may reach beyond; without rows, the middle.
        """
        at_ends = np.interp(ends, self.middles, values)
        place = np.clip(np.searchsorted(ends, self.middles, side="left") - 1, 0, len(ends) - 2)
        weights = np.bincount(place, self.rows, len(ends) - 1)
        totals = np.bincount(place, self.rows * values, len(ends) - 1)
        means = np.where(weights > 0.0, totals / np.maximum(weights, 1e-300), (at_ends[:-1] + at_ends[1:]) / 2.0)
        return np.asarray(np.clip(means, at_ends[:-1], at_ends[1:]), dtype=np.float64)

    @property
    def middles(self) -> Vector:
        """(CELLS,)."""
        found: Vector = (self.grid[1:] + self.grid[:-1]) / 2.0
        return found


@dataclass(frozen=True, eq=False)
class NoisyCells:
    """Rows of cells that exclude one another."""

    counts: Vector
    deviation: float
    """Of the noise on each."""

    @property
    def located(self) -> Vector:
        """Without what is lost in the noise."""
        return located(self.counts, self.deviation)


def check_no_series(oracle: StatisticOracle, what: str) -> None:
    """Raise ConfigurationError if each question would be about rows of its own. what: is made of all answers."""
    if getattr(oracle, "adaptive", None) is not None:
        raise ConfigurationError(
            f"the sums of {what} are about the same rows, and each question of a series about its own: leave adaptive "
            "out"
        )


def located_cells(
    theta: ArrayLike, schema: Schema, feature_map: FeatureMap | None = None
) -> tuple[Vector, tuple[Predicate, ...]]:
    """The ends of the cells that `locate` asks about, and what it asks. Raises as `linear_scores` does."""
    # Checks theta.
    linear_scores(theta, schema, np.array([0.0, 1.0]), feature_map)
    weights = np.asarray(theta, dtype=np.float64)
    # The bias adds the same to every score.
    start = float(weights[-1]) if schema.bias else 0.0
    reach = float(np.abs(weights[:-1] if schema.bias else weights).sum()) or 1.0
    grid = np.linspace(start - reach, start + reach, CELLS + 1)
    return grid, in_bins(linear_scores(theta, schema, grid[1:-1], feature_map).places())


def in_bins(places: Sequence[tuple[Predicate, ...]], *others: Predicate) -> tuple[Predicate, ...]:
    """Each of these places, joined with the others."""
    joined = [(*others, *parts) for parts in places]
    return tuple(parts[0] if len(parts) == 1 else And(parts) for parts in joined)


def locate(
    theta: ArrayLike,
    oracle: StatisticOracle,
    *,
    part: Fraction,
    feature_map: FeatureMap | None = None,
    others: Sequence[Sequence[Predicate]] = (),
) -> tuple[Located, list[NoisyCells]]:
    """One release that spends this part, and how many rows each of other cells of it has.

    others: cells of different things, those of each in order. Raises as `linear_scores` and the oracle do.
    """
    grid, asked = located_cells(theta, oracle.schema, feature_map)
    estimates = oracle.statistic(
        (*asked, *(each for cells in others for each in cells)), part=part, feature_map=feature_map
    )
    counts, deviation = estimates.values * estimates.rows, estimates.deviation * estimates.rows
    groups = np.split(counts, np.cumsum([CELLS, *map(len, others)])[:-1])
    rows = located(groups[0], deviation)
    found = bool(rows.sum() > 0.0)
    return Located(grid, rows if found else np.ones(CELLS), found), [NoisyCells(each, deviation) for each in groups[1:]]
