"""The ROC curve and the area under it, from the noisy counts of two histograms of scores, one for each label.

The area (AUC) is the probability that a positive row's score is above a negative one's, with ties counted as a half.
Pairs in one bin may have either order, so the area on the rows is only known within bounds (`Curve._on_rows`).

For the distribution, half the failure probability is spent on that and half on Hoeffding's bound for two samples (J.
Am. Stat. Assoc. 58, 1963, inequality 5.7): the area on the rows, a mean over pairs, differs by more than h from that on
the distribution with probability at most 2 exp(-2 h^2 min(positives, negatives)).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from dpcore.evaluation.intervals import ANYTHING, CellNoise, Count, Interval, Judge, Proportion, count_of, share_of

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
        """middle: how many bins are at or below 0. cells: (2, 2), each label's rows at most 0 and above it, if asked.

        One of the cells then replaces all bins on one side of 0.
        """
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

        With p, n the true counts of bins, K the matrix of which bin is above which, ties as 0 or as 1, and M = K - A:
        if A is the area, p' M n <= 0 for ties as 0 and >= 0 for ties as 1. With the noise x on p and y on n,

            (p + x)' M (n + y) - p' M n = x' M (n + y) + y' M' p.

        The first term is a weighted sum of x, whose weights do not depend on x. The second is one of y, and M' p is
        M' (p + x) less M' x, whose entries are weighted sums of x. Each of the three bounds has a third of the failure.
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
    """The area below a curve through points, the first (0, 0) and the last (1, 1), straight in normal quantiles.

    A curve of scores that are normal within each label is straight there. Beyond the inner points it has slope 1.
    """
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
