"""Average precision: the area under the curve of precision and recall, from noisy histograms of scores by label.

With T(s) positive and F(s) negative rows of scores above s, and P positive rows, it is the mean over positive rows of
T / (T + F) at their scores.

With x from 0 to P the number of positive rows down to one, and G(x) that of negative rows
above it, this is the mean of x / (x + G(x)), which falls with G.

**On the rows.** T and F at every edge are within boxes for the noise that hold together. G is largest where each T is
the least of its box and each F the most, with the negative rows of a bin above its positive ones; least the other way
round.

P is in its own box. The mean over x <= P is bounded between the steps of a grid: its sum at one end by P at the other.

**On the distribution** P is 1, T is recall, and F is the false positive rate times the odds of a negative row. Edges
may depend on the rows, so bounds must hold for all thresholds at once.

They are those of order statistics: with U_r, Beta(r, n - r + 1), a score is above the r-th largest of n with a chance
of at most U_r, and at or above it with one of at least U_r.

A threshold with c scores above it is between the c-th and
the next, so ranks on a grid, with a union bound, are enough.

The noise has half of the failure, each label's ranks an eighth, and the share of positive rows a quarter.
"""

from dataclasses import replace

import numpy as np
from scipy import special

from dpcore.evaluation.intervals import ANYTHING, CellNoise, Interval, Judge, Proportion, count_of
from dpcore.numbers.fixed_point import Matrix, Vector

_INNER = (np.arange(64) + 0.5) / 64
_GRID = 257
_RATIO = 1.05
"""Of ranks that follow one another."""


def average_precision(histogram: Matrix, judge: Judge) -> Proportion:
    """Of scores in bins from low to high. histogram: (2, bins), noisy rows of each label, the negative one first."""
    negative, positive = np.maximum(histogram[:, ::-1], 0.0)
    on_rows = _on_rows(histogram, judge.noise, judge.failure)
    new = _on_distribution(histogram, judge) if judge.unseen else None
    return Proportion(_estimate(negative, positive), on_rows, new)


def _estimate(negative: Vector, positive: Vector) -> float:
    """From high scores to low, as if those of a bin were spread evenly."""
    total = float(positive.sum())
    if not total:
        return 0.0
    found, above, wrong = 0.0, 0.0, 0.0
    for here, others in zip(positive.tolist(), negative.tolist(), strict=True):
        if here:
            right = above + here * _INNER
            found += here * float((right / (right + wrong + others * _INNER)).mean())
        above, wrong = above + here, wrong + others
    return min(found / total, 1.0)


def _summed(right: Vector, wrong: Vector, most: Vector, more: float) -> Vector:
    """The integral of (x + more) / (x + more + G(x)) from 0 to each of `most`, G(x) the `wrong` of the bin of x.

    right: (bins,), ascending, where the bins end; the last has no end.
    """
    starts = np.concatenate([[0.0], right[:-1]])
    ends = np.append(right[:-1], np.inf)
    low = np.minimum(starts, most[:, np.newaxis])
    high = np.minimum(ends, most[:, np.newaxis])
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithms = np.where(wrong > 0.0, wrong * np.log((high + more + wrong) / (low + more + wrong)), 0.0)
    found: Vector = (high - low - logarithms).sum(axis=1)
    return found


def _boxes(bins: Vector, noise: CellNoise, failure: float) -> tuple[Vector, Vector]:
    """Ends of the sums from the first bin on, which hold together; ascending."""
    sums, cells = np.cumsum(bins), np.arange(1, len(bins) + 1)
    reach = np.array([noise.half_width(int(number), failure / len(bins)) for number in cells])
    low = np.maximum.accumulate(np.maximum(sums - reach, 0.0))
    high = np.minimum.accumulate(np.maximum(sums + reach, 0.0)[::-1])[::-1]
    return np.minimum(low, high), high


def _on_rows(histogram: Matrix, noise: CellNoise, failure: float) -> Interval:
    negative, positive = histogram[:, ::-1]
    (wrong_low, wrong_high), (right_low, right_high) = (
        _boxes(bins, noise, failure / 2.0) for bins in (negative, positive)
    )
    least, most = float(right_low[-1]), float(right_high[-1])
    if least < 1.0:
        return ANYTHING
    sizes = np.linspace(least, most, _GRID)
    lower = _summed(np.minimum(right_low, least), wrong_high, sizes, 0.0)[:-1] / sizes[1:]
    # A row more than x are there at the (x + 1)-th, and it is at most that at every point before it.
    upper = _summed(right_high, np.append(0.0, wrong_low[:-1]), sizes, 1.0)[1:] / sizes[:-1]
    if least == most:
        lower, upper = lower[:1], upper[:1]
    return _interval(float(lower.min()), float(upper.max()))


def _interval(lower: float, upper: float) -> Interval:
    lower = min(max(lower - 1e-9, 0.0), 1.0)
    return Interval(lower, min(max(upper + 1e-9, lower), 1.0))


def _on_distribution(histogram: Matrix, judge: Judge) -> Interval:
    negative, positive = histogram[:, ::-1]
    failure = judge.failure
    rates = [_rates(*_boxes(bins, judge.noise, failure / 4.0), failure / 8.0) for bins in (negative, positive)]
    if None in rates:
        return ANYTHING
    (fpr_low, fpr_high), (tpr_low, tpr_high) = (each for each in rates if each is not None)
    share = replace(judge, failure=failure / 4.0).proportion(count_of(*positive), count_of(*negative)).on_distribution
    assert share is not None, "the judge states intervals on the distribution"
    if share.lower <= 0.0:
        return ANYTHING
    odds_high, odds_low = ((1.0 - end) / end for end in (share.lower, share.upper))
    whole = np.ones(1)
    lower = _summed(tpr_low, odds_high * fpr_high, whole, 0.0)
    upper = _summed(tpr_high, odds_low * np.append(0.0, fpr_low[:-1]), whole, 0.0)
    return _interval(float(lower[0]), float(upper[0]))


def _rates(low: Vector, high: Vector, failure: float) -> tuple[Vector, Vector] | None:
    """Bounds of the chance of a score above each edge, from boxes of how many rows have one; None without rows."""
    least, most = float(low[-1]), float(high[-1])
    if least < 1.0:
        return None
    ranks = np.unique(np.ceil(np.geomspace(1.0, np.ceil(most), 2 + int(np.log(most + 1.0) / np.log(_RATIO)))))
    each = failure / (2 * len(ranks))
    # Of the rank above how many rows there may be, and of the one at or below how many there are at least.
    above = np.searchsorted(ranks, np.floor(high) + 1.0)
    below = np.searchsorted(ranks, np.floor(low), side="right") - 1
    upper, lower = np.ones(len(high)), np.zeros(len(low))
    for place, (over, under) in enumerate(zip(above.tolist(), below.tolist(), strict=True)):
        if over < len(ranks) and ranks[over] <= least:
            upper[place] = special.betaincinv(ranks[over], least - ranks[over] + 1.0, 1.0 - each)
        if under >= 0:
            lower[place] = special.betaincinv(ranks[under], most - ranks[under] + 1.0, each)
    # Every score is above the lower end of the last bin.
    upper[-1] = lower[-1] = 1.0
    return np.maximum.accumulate(lower), np.minimum.accumulate(upper[::-1])[::-1]
