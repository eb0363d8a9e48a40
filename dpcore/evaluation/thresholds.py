"""What deciding at each threshold does: precision, recall, F1, and the threshold of the least cost, from noisy counts.

At the threshold t rows whose score is above t are called positive. With TP, FP, FN and TN the noisy numbers of rows by
label and decision,

    precision = TP / (TP + FP),  recall = TP / (TP + FN),  J = TP / (TP + FP + FN),  F1 = 2 J / (1 + J),

so each is a proportion of disjoint counts, or a monotone function of one (dpcore.evaluation.intervals).

The cost of a row is a where a positive one is called negative, b where a negative one is called positive, else 0. With
T all rows and e a candidate for the mean,

    S(e) = a FN + b FP - e T = its true value + N,      N of variance D^2 sum over cells i of (w_i - e)^2,

w_i being a, b or 0.

- On the rows: every e at which |S(e)| is at most what that noise exceeds with probability `failure` (Fieller, J. R.
  Stat. Soc. B 16, 1954).
- On the distribution: a times the interval for FN / T, plus b times that for FP / T.

The threshold is that of the least estimate. Those whose cost is not surely above that are `possible`: the difference of
two costs is a sum of the cells between the thresholds. All statements about costs hold jointly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.evaluation.intervals import Count, Interval, Judge, Proportion, count_of
from dpcore.evaluation.options import Costs
from dpcore.evaluation.scores import Curve
from dpcore.numbers.rationals import lower_digits, upper_digits

WIDEST = 0.5
"""A share with a wider interval is not measurable: the noise leaves too much open."""

_HIDDEN = (
    "The threshold of the least cost is not measurable at this epsilon: the noise hides how many rows are positive. "
    "More rows or a larger epsilon help."
)
_ROWS = 1000
"""Costs are stated for so many rows."""


@dataclass(frozen=True)
class ThresholdPoint:
    """What deciding at one threshold does."""

    threshold: float
    recall: Proportion
    """Found, of the positive rows."""
    precision: Proportion
    """Right, of the rows called positive."""
    f1: Proportion

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        shares = {name: getattr(self, name).to_dict() for name in ("recall", "precision", "f1")}
        measurable = {name: is_measurable(getattr(self, name)) for name in ("recall", "precision", "f1")}
        return {"threshold": self.threshold, **shares, "measurable": measurable}


def is_measurable(share: Proportion) -> bool:
    """Whether the noise leaves an interval on the rows that says something."""
    return share.on_rows.width <= WIDEST


@dataclass(frozen=True)
class _Decision:
    """The noisy counts at one threshold."""

    threshold: float
    """Also minus infinity, at which all rows are called positive, and infinity, at which none is."""
    found: Count
    """TP."""
    wrong: Count
    """FP."""
    missed: Count
    """FN."""
    passed: Count
    """TN."""

    def cost(self, costs: Costs, judge: Judge, statements: int) -> "Cost":
        """The mean cost of a row."""
        a, b = float(costs.false_negative), float(costs.false_positive)
        cells = ((self.missed, a), (self.wrong, b), (self.found, 0.0), (self.passed, 0.0))
        total = sum(count.value for count, _ in cells)
        sum_ = a * self.missed.value + b * self.wrong.value
        estimate = min(max(sum_ / total, 0.0), max(a, b)) if total > 0.0 else max(a, b)
        on_rows = mean_on_rows(cells, judge.noise.reach(1, judge.failure / statements), max(a, b))
        new = self._cost_on_distribution(a, b, judge, 2 * statements) if judge.unseen else None
        return Cost(estimate, on_rows, new)

    def _cost_on_distribution(self, a: float, b: float, judge: Judge, statements: int) -> tuple[float, float]:
        ends = np.zeros(2)
        others = self.found + self.passed
        for weight, wrong, other in ((a, self.missed, self.wrong), (b, self.wrong, self.missed)):
            if wrong.cells:
                share = judge.proportion(wrong, others + other, statements).on_distribution
                assert share is not None, "the judge states intervals on the distribution"
                ends += weight * np.array([share.lower, share.upper])
        return float(ends[0]), float(min(ends[1], max(a, b)))


def f1_of(found: Count, mistaken: Count, judge: Judge, statements: int = 1) -> Proportion:
    """The module's F1, of TP and of FP + FN."""
    share = judge.proportion(found, mistaken, statements)
    new = None if share.on_distribution is None else _f1_of(share.on_distribution)
    return Proportion(2.0 * share.estimate / (1.0 + share.estimate), _f1_of(share.on_rows), new)


def _f1_of(share: Interval) -> Interval:
    return Interval(2.0 * share.lower / (1.0 + share.lower), 2.0 * share.upper / (1.0 + share.upper))


def mean_on_rows(cells: Sequence[tuple[Count, float]], reach: float, most: float) -> tuple[float, float]:
    """The module's interval on the rows: the e from 0 to `most` with S(e)^2 <= reach^2 sum_i (w_i - e)^2."""
    total, number = sum(count.value for count, _ in cells), sum(count.cells for count, _ in cells)
    weighted = sum(weight * count.value for count, weight in cells)
    leading = total**2 - reach**2 * number
    if total <= 0.0 or leading <= 0.0:
        return 0.0, most
    middle = weighted * total - reach**2 * sum(weight * count.cells for count, weight in cells)
    constant = weighted**2 - reach**2 * sum(weight**2 * count.cells for count, weight in cells)
    root = math.sqrt(max(middle**2 - leading * constant, 0.0))
    lower = min(max((middle - root) / leading, 0.0), most)
    return lower, min(max((middle + root) / leading, lower), most)


@dataclass(frozen=True)
class Cost:
    """The mean cost of a row, with intervals on the rows and on their distribution."""

    estimate: float
    on_rows: tuple[float, float]
    on_distribution: tuple[float, float] | None
    """None if nothing is claimed about new rows."""

    @property
    def words(self) -> str:
        """For people, of 1,000 rows, rounded outwards."""
        lower, upper = (_ROWS * end for end in self.on_rows)
        found = f"about {_ROWS * self.estimate:.4g} ({lower_digits(lower, 3)} to {upper_digits(upper, 3)}"
        if self.on_distribution is not None:
            lower, upper = (_ROWS * end for end in self.on_distribution)
            found += f"; for new rows {lower_digits(lower, 3)} to {upper_digits(upper, 3)}"
        return f"{found})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        new = self.on_distribution
        return {
            "estimate": self.estimate,
            "on_rows": list(self.on_rows),
            "on_distribution": None if new is None else list(new),
        }


@dataclass(frozen=True)
class LeastCost:
    """The threshold whose decisions cost least, as far as the noise tells."""

    costs: Costs
    threshold: float | None
    """None if calling all rows positive, or none, costs least."""
    calls: str
    """"above" rows above the threshold, "all" or "none"."""
    cost: Cost
    at_zero: Cost
    """That of the threshold 0, which the model has."""
    none_positive: Cost
    """That of calling no row positive."""
    possible: tuple[float, ...]
    """Thresholds, ascending, whose cost may be as small; also infinite ones, for all or no rows."""
    better_than_zero: bool
    """Whether it is surely less costly than the threshold 0."""
    is_measurable: bool
    """Whether the noise leaves rows of either label."""

    def sentences(self) -> tuple[str, ...]:
        """What was chosen, what it costs, and how sure that is."""
        if not self.is_measurable:
            return (_HIDDEN,)
        what = {
            "above": f"calls rows positive whose score is above {self.threshold or 0.0:.4g}",
            "all": "calls every row positive",
            "none": "calls no row positive",
        }[self.calls]
        found = (
            f"If mistakes cost {self.costs.words}, what costs least {what}. 1,000 rows then cost {self.cost.words}; at "
            f"the threshold 0 {self.at_zero.words}, and if none is called positive {self.none_positive.words}."
        )
        return (found, warning) if (warning := self.warning()) else (found,)

    def warning(self) -> str | None:
        """That the choice is within the noise, if it is."""
        if len(self.possible) == 1:
            return None
        low, high = (_threshold_words(end) for end in (self.possible[0], self.possible[-1]))
        zero = "" if self.better_than_zero or self.threshold == 0 else ", also 0, which the model has"
        return (
            f"Warning: the choice is within the noise. Thresholds from {low} to {high} may cost as little on these "
            f"rows{zero}."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON; infinite thresholds are null."""
        return {
            "costs": self.costs.to_dict(),
            "threshold": self.threshold,
            "calls": self.calls,
            "cost": self.cost.to_dict(),
            "at_zero": self.at_zero.to_dict(),
            "none_positive": self.none_positive.to_dict(),
            "possible": [value if math.isfinite(value) else None for value in self.possible],
            "better_than_zero": self.better_than_zero,
            "measurable": self.is_measurable,
        }


def _threshold_words(threshold: float) -> str:
    if math.isfinite(threshold):
        return f"{threshold:.4g}"
    return "none positive" if threshold > 0 else "all positive"


@dataclass(frozen=True, eq=False)
class Thresholds:
    """The counts of an evaluation by score, and what decides about them."""

    histogram: NDArray[np.float64]
    """(2, bins), noisy rows of each label, the negative one first, from low scores to high."""
    edges: NDArray[np.float64]
    """(bins - 1,), ascending, 0 among them."""
    curve: Curve
    judge: Judge
    """Of edges: it states intervals on the distribution only if these do not depend on the rows."""

    def points(self) -> tuple[ThresholdPoint, ...]:
        """Precision and F1 at each edge, from the last one down; those of all edges hold jointly, and so do recalls."""
        statements = 2 * len(self.edges)
        return tuple(
            ThresholdPoint(
                decision.threshold,
                self.judge.proportion(decision.found, decision.missed, statements),
                self.judge.proportion(decision.found, decision.wrong, statements),
                f1_of(decision.found, decision.wrong + decision.missed, self.judge, statements),
            )
            for decision in self._decisions
        )

    @property
    def positives_are_hidden(self) -> bool:
        """Whether the noise may be all that there is of a label."""
        noise, bins = self.judge.noise, self.histogram.shape[1]
        return bool((self.histogram.sum(axis=1) <= noise.half_width(bins, self.judge.failure)).any())

    def least_cost(self, costs: Costs) -> LeastCost:
        """The threshold of the least cost among the edges, all rows and none."""
        a, b = float(costs.false_negative), float(costs.false_positive)
        ends = (self._everything(positive=False), *self._decisions, self._everything(positive=True))
        missed, wrong = self.histogram[1] * a, self.histogram[0] * b
        # By bins: what is at most a threshold may be missed, what is above it may be wrong.
        sums = np.append(0.0, np.cumsum(missed)) + wrong.sum() - np.append(0.0, np.cumsum(wrong))
        best = int(sums.argmin())
        places = np.abs(np.arange(len(sums)) - best)
        reach = self.judge.noise.reach(1, self.judge.failure / len(sums))
        possible = sums - sums[best] <= reach * np.sqrt(places * (a**2 + b**2)) + 1e-9 * (1.0 + abs(sums[best]))
        # `ends` go from high thresholds to low.
        ascending = list(reversed(ends))
        zero = 1 + int(np.searchsorted(self.edges, 0.0))
        shown = (ascending[best], ascending[zero], ends[0])
        cost, at_zero, none_positive = (decision.cost(costs, self.judge, len(sums)) for decision in shown)
        threshold = ascending[best].threshold
        return LeastCost(
            costs,
            threshold if math.isfinite(threshold) else None,
            "above" if math.isfinite(threshold) else "none" if threshold > 0 else "all",
            cost,
            at_zero,
            none_positive,
            possible=tuple(each.threshold for each, may in zip(ascending, possible.tolist(), strict=True) if may),
            better_than_zero=not bool(possible[zero]),
            is_measurable=not self.positives_are_hidden,
        )

    @property
    def _decisions(self) -> tuple[_Decision, ...]:
        """At each edge, from the last one down."""
        negative, positive = self.curve.sides
        return tuple(
            _Decision(threshold, found, wrong, missed, passed)
            for threshold, (wrong, passed), (found, missed) in zip(
                reversed(self.edges.tolist()), negative, positive, strict=True
            )
        )

    def _everything(self, *, positive: bool) -> _Decision:
        """All rows, or none, are called positive."""
        nothing = Count(0.0, 0)
        negatives, positives = (count_of(*bins) for bins in self.histogram)
        if positive:
            return _Decision(-math.inf, positives, negatives, nothing, nothing)
        return _Decision(math.inf, nothing, nothing, positives, negatives)
