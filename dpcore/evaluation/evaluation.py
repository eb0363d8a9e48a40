"""Evaluation of a model on the parties' rows: errors, rates, calibration and ROC from one release of counts.

The model is linear in the coordinates of a record, or in those of a record that a feature map mapped.

The release has two histograms, of mutually exclusive predicates each: the four cells of the confusion matrix, and the
rows of each label by score, in bins with fixed edges. Replacing a row moves two cells of either by 1, so the batch's
sensitivity is 4 in L1 and 4 in L2^2, for any number of bins. Everything else is post-processing.

Rows that are not usable are in no cell, so every proportion is over usable rows. Their number follows from the four
cells, with noise. A query for it would add up to a quarter to all noise, and no proportion here needs it.

Every proportion has an interval over the rows that were asked about, where the noise is the only uncertainty. If the
model did not see these rows, it has a second one, over the distribution from which they were drawn independently
(dpcore.evaluation.intervals). It needs a theta that is independent of the rows: for a theta that was learned from them,
errors on the rows are not independent draws of errors on the distribution, and nothing is stated. Rows that parties
hold back from training (dpcore.records.held_back) were not seen. How many of them there are is not known, and not
needed: intervals on the distribution hold given the number of rows, whatever it is up to `rows`.

Intervals hold with probability at least `confidence` for each of the following families separately, and for the rows
and the distribution separately:

    the error;    usable rows;    the four cells;    true and false positive rate, precision and balanced accuracy;
    all bins of the calibration;    all points of the ROC curve;    the area under it.

The area (AUC) is the probability that a positive row's score is above a negative one's, with ties counted as a half.
Pairs in one bin may have either order; with the intervals of all points of the curve, a step function below it and one
above it bound the area on the rows. For the distribution, half the failure probability is spent on that and half on
Hoeffding's bound for two samples (J. Am. Stat. Assoc. 58, 1963, inequality 5.7): the area on the rows, a mean over
pairs, differs by more than h from that on the distribution with probability at most 2 exp(-2 h^2 min(positives,
negatives)).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.oracle import WHOLE, StatisticOracle
from dpcore.evaluation.intervals import (
    ANYTHING,
    CellNoise,
    Count,
    Interval,
    interval_on_distribution,
    interval_on_rows,
)
from dpcore.evaluation.linear_scores import linear_scores
from dpcore.records.feature_map import FeatureMap
from dpcore.records.held_back import HeldBack, Part

LEAST_BINS, MOST_BINS = 6, 256
WIDE = 0.05
"""A wider interval for the error on the rows is said to be due to the noise."""


@dataclass(frozen=True)
class Proportion:
    """An estimated proportion, with intervals for its value on the rows and on their distribution.

    on_distribution: None if the model may have been trained on the rows.
    """

    estimate: float
    on_rows: Interval
    on_distribution: Interval | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "estimate": self.estimate,
            "on_rows": [self.on_rows.lower, self.on_rows.upper],
            "on_distribution": None
            if self.on_distribution is None
            else [self.on_distribution.lower, self.on_distribution.upper],
        }


@dataclass(frozen=True)
class CalibrationBin:
    """Rows that the model predicts to be positive with a probability in (predicted.lower, predicted.upper].

    rows: their number, with noise. observed: the share of them that are positive.
    """

    predicted: Interval
    rows: float
    observed: Proportion

    @property
    def is_off(self) -> bool:
        """Whether the share's interval is outside the predicted range: on the distribution, else on the rows."""
        actual = self.observed.on_distribution or self.observed.on_rows
        return actual.lower > self.predicted.upper or actual.upper < self.predicted.lower


@dataclass(frozen=True)
class RocPoint:
    """The rates of the classifier that says +1 where the score is above `threshold`."""

    threshold: float
    false_positive_rate: Proportion
    true_positive_rate: Proportion


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of one release; the module's docstring says which intervals hold jointly.

    rows: what parties state, usable or not. part: the part of them that it is about; None for all. unseen: whether the
    model was not trained on the rows; intervals on the distribution are only then stated. usable: how many rows of the
    part can be used, an estimate, and within `usable_half_width`.
    confusion: (2, 2), rows by label (-1, +1) and prediction (-1, +1), on the parties' rows with noise, each within
    `cell_half_width`. balanced_accuracy: the mean of the true positive and the true negative rate. calibration: from
    low to high. roc: from high thresholds to low; estimates are made monotone by isotonic regression, intervals are not
    adjusted. rounding: the scores of the evaluated model differ from theta . x by at most this. deviation: the noise's
    standard deviation on a cell, in rows.
    """

    rows: int
    confidence: float
    usable: float
    usable_half_width: float
    confusion: NDArray[np.float64]
    cell_half_width: float
    error: Proportion
    true_positive_rate: Proportion
    false_positive_rate: Proportion
    precision: Proportion
    balanced_accuracy: Proportion
    calibration: tuple[CalibrationBin, ...]
    roc: tuple[RocPoint, ...]
    auc: Proportion
    rounding: float
    deviation: float
    part: HeldBack | None = None
    unseen: bool = False

    def __post_init__(self) -> None:
        confusion = np.array(self.confusion, dtype=np.float64)
        if confusion.shape != (2, 2):
            raise ShapeError(f"a confusion matrix has shape {confusion.shape}: give (2, 2)")
        confusion.setflags(write=False)
        object.__setattr__(self, "confusion", confusion)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; all numbers are finite."""
        proportions = ("error", "true_positive_rate", "false_positive_rate", "precision", "balanced_accuracy", "auc")
        numbers = ("confidence", "usable", "usable_half_width", "cell_half_width", "rounding", "deviation")
        return {
            "rows": self.rows,
            "part": None if self.part is None else self.part.to_dict(),
            "unseen": self.unseen,
            **{name: float(getattr(self, name)) for name in numbers},
            "confusion": self.confusion.tolist(),
            **{name: getattr(self, name).to_dict() for name in proportions},
            "calibration": [
                {
                    "predicted": [part.predicted.lower, part.predicted.upper],
                    "rows": part.rows,
                    "observed": part.observed.to_dict(),
                }
                for part in self.calibration
            ],
            "roc": [
                {
                    "threshold": point.threshold,
                    "false_positive_rate": point.false_positive_rate.to_dict(),
                    "true_positive_rate": point.true_positive_rate.to_dict(),
                }
                for point in self.roc
            ],
        }

    def sentences(self) -> tuple[str, ...]:
        """The results in words."""
        off, bins = sum(part.is_off for part in self.calibration), len(self.calibration)
        on = " on these rows" * (not self.unseen)
        named = (
            ("The true positive rate", self.true_positive_rate),
            ("The false positive rate", self.false_positive_rate),
            ("Precision, the share of positive rows among those called positive,", self.precision),
            ("Balanced accuracy", self.balanced_accuracy),
            ("The area under the ROC curve", self.auc),
        )
        error = (
            f"The model is wrong on {_range(self.error.on_rows)} of {self._rows_in_words()}, about "
            f"{_percent(self.error.estimate)}"
        )
        if self.error.on_distribution is not None:
            error += f"; on new rows of the same kind it is wrong on {_range(self.error.on_distribution)} of them"
        if self.error.on_rows.width > WIDE:
            error += (
                f". The first interval is {100.0 * self.error.on_rows.width:.0f} points wide because of the noise: "
                "with twice the epsilon, or twice as many rows, about half of that"
            )
        calibration = (
            f"In {off} of {bins} bins of predicted probability the share of positive rows{on} is not what the model "
            "says."
            if off
            else f"In all {bins} bins of predicted probability the share of positive rows{on} is consistent with the "
            "model."
        )
        rates = (f"{name} is {_where(part)}, about {_percent(part.estimate)}." for name, part in named)
        return (f"{error}.", *rates, calibration, *self._meaning())

    def _rows_in_words(self) -> str:
        if self.part is not None and self.part.part is Part.HELD_BACK:
            return "the usable rows that the parties hold back"
        return "the parties' usable rows" if self.unseen else "the usable rows that it was trained on, or may have been"

    def _meaning(self) -> tuple[str, ...]:
        """What the statements hold for, and under which assumptions."""
        if not self.unseen:
            holds = (
                f"Each of these statements holds with probability at least {_percent(self.confidence)}, over the noise."
            )
            nothing = (
                "Nothing is claimed about new rows: errors on rows that a model was trained on say too little of them. "
                "For such a claim, train with rows held back."
            )
            return (holds, nothing)
        holds = (
            f"Each of these statements holds with probability at least {_percent(self.confidence)}: over the noise, "
            "and over the sample if it is about new rows."
        )
        drawn = (
            "New rows are rows, not persons, drawn as these were: independently, from one distribution, that of the "
            "parties together in proportion to their rows. Assumed: the model was not trained on these rows or on "
            "others of the same persons, and was not chosen by an evaluation on them."
        )
        return (holds, drawn)


def evaluate(
    theta: ArrayLike,
    oracle: StatisticOracle,
    *,
    confidence: float = 0.95,
    bins: int = 20,
    scale: float = 1.0,
    part: Fraction = WHOLE,
    unseen: bool | None = None,
    feature_map: FeatureMap | None = None,
) -> Evaluation:
    """Evaluate sign(theta . x) on the federation's rows; one release.

    theta: (d,) over the coordinates of oracle.schema, or over those of the feature map, by which parties then map
    their rows first. bins: even, from 6 to 256; their edges are the scores at which
    the probability 1 / (1 + exp(-score / scale)) is k / bins, so no edge depends on data. scale: 1 if theta . x is a
    log odds, like a logistic regression's; for other scores, about the size of a usual one. Calibration then measures
    how far score / scale is from a log odds. part: of the oracle's budget. unseen: whether theta was not trained on the
    rows that the oracle answers about; None to take it that it was not if they are rows that parties hold back, and
    that it was otherwise.

    The evaluated model has integer weights: theta times a power of two, rounded, 31 or 32 bits in total with the edges
    (`Evaluation.rounding`). A score of exactly 0 is predicted -1.

    Raises ShapeError if theta does not fit the schema, ConfigurationError if it is not finite or an argument is out of
    range, and what `oracle.statistic` raises.
    """
    if not 0.0 < confidence < 1.0:
        raise ConfigurationError(f"confidence is {confidence}: it must be between 0 and 1")
    if bins % 2 or not LEAST_BINS <= bins <= MOST_BINS:
        raise ConfigurationError(
            f"bins is {bins}: give an even number from {LEAST_BINS} to {MOST_BINS}, so that 0 is an edge"
        )
    if not (math.isfinite(scale) and scale > 0.0):
        raise ConfigurationError(f"scale is {scale}: give a finite score above 0")
    edges = scale * _logits(bins)
    scores = linear_scores(theta, oracle.schema, edges, feature_map)
    asked = (*scores.cells(), *scores.bins())
    estimates = oracle.statistic(asked, part=part, confidence=confidence, feature_map=feature_map)
    counts, every = estimates.values * estimates.rows, estimates.most_rows or estimates.rows
    about: HeldBack | None = getattr(oracle, "held_back", None)
    if unseen is None:
        unseen = about is not None and about.part is Part.HELD_BACK
    noise = CellNoise.of(estimates)
    if noise.deviation == 0.0:
        # Undo the rounding of the division by the rows: counts are integers.
        counts = np.rint(counts)
    judge = _Judge(noise, 1.0 - confidence, every, unseen=unseen)
    cells, histogram = counts[:4].reshape(2, 2), counts[4:].reshape(2, bins)
    curve = _Curve.of(cells, histogram)
    rates = _rates(cells, judge)
    usable = noise.half_width(4, judge.failure)
    return Evaluation(
        rows=every,
        confidence=confidence,
        usable=float(np.clip(cells.sum(), 0.0, every)),
        usable_half_width=usable,
        confusion=cells,
        cell_half_width=noise.half_width(1, judge.failure / 4),
        error=judge.proportion(_count(cells[0, 1], cells[1, 0]), _count(cells[0, 0], cells[1, 1])),
        **rates,
        calibration=_calibration(histogram, judge),
        roc=curve.points(edges, judge),
        auc=curve.area(judge),
        rounding=scores.rounding,
        deviation=noise.deviation,
        part=about,
        unseen=unseen,
    )


@dataclass(frozen=True)
class _Judge:
    """Turns counts into proportions. failure: of one family of intervals. rows: no count is larger.

    unseen: whether the model is independent of the rows, so that there are intervals on the distribution.
    """

    noise: CellNoise
    failure: float
    rows: int
    unseen: bool

    def proportion(self, a: Count, b: Count, statements: int = 1) -> Proportion:
        """A / (A + B), with intervals for `statements` of them that hold jointly."""
        failure = self.failure / statements
        return Proportion(
            estimate=_share(a, b),
            on_rows=interval_on_rows(a, b, self.noise, failure),
            on_distribution=interval_on_distribution(a, b, self.noise, failure, self.rows) if self.unseen else None,
        )


def _rates(cells: NDArray[np.float64], judge: _Judge) -> dict[str, Proportion]:
    (true_negative, false_positive), (false_negative, true_positive) = [[_count(cell) for cell in row] for row in cells]
    tpr = judge.proportion(true_positive, false_negative, 3)
    fpr = judge.proportion(false_positive, true_negative, 3)
    return {
        "true_positive_rate": tpr,
        "false_positive_rate": fpr,
        "precision": judge.proportion(true_positive, false_positive, 3),
        "balanced_accuracy": Proportion(
            (tpr.estimate + 1.0 - fpr.estimate) / 2.0,
            _balanced(tpr.on_rows, fpr.on_rows),
            None
            if tpr.on_distribution is None or fpr.on_distribution is None
            else _balanced(tpr.on_distribution, fpr.on_distribution),
        ),
    }


def _balanced(tpr: Interval, fpr: Interval) -> Interval:
    return Interval((tpr.lower + 1.0 - fpr.upper) / 2.0, (tpr.upper + 1.0 - fpr.lower) / 2.0)


def _calibration(histogram: NDArray[np.float64], judge: _Judge) -> tuple[CalibrationBin, ...]:
    bins = histogram.shape[1]
    return tuple(
        CalibrationBin(
            predicted=Interval(place / bins, (place + 1) / bins),
            rows=float(positive + negative),
            observed=judge.proportion(_count(positive), _count(negative), bins),
        )
        for place, (negative, positive) in enumerate(histogram.T)
    )


@dataclass(frozen=True)
class _Curve:
    """For either label, negative first: (rows scored above an edge, rows at or below it), from the last edge down."""

    sides: tuple[tuple[tuple[Count, Count], ...], tuple[tuple[Count, Count], ...]]

    @classmethod
    def of(cls, cells: NDArray[np.float64], histogram: NDArray[np.float64]) -> "_Curve":
        """From the confusion matrix and the bins: a cell of the former replaces all bins on one side of 0."""
        negative, positive = (_splits(low, high, bins) for (low, high), bins in zip(cells, histogram, strict=True))
        return cls((negative, positive))

    def points(self, edges: NDArray[np.float64], judge: _Judge) -> tuple[RocPoint, ...]:
        statements = 2 * len(edges)
        rates = [[judge.proportion(a, b, statements) for a, b in side] for side in self.sides]
        smooth = [_monotone([rate.estimate for rate in side]) for side in rates]
        fpr, tpr = (
            [Proportion(value, rate.on_rows, rate.on_distribution) for value, rate in zip(values, side, strict=True)]
            for values, side in zip(smooth, rates, strict=True)
        )
        thresholds = reversed(edges.tolist())
        return tuple(RocPoint(*point) for point in zip(thresholds, fpr, tpr, strict=True))

    def area(self, judge: _Judge) -> Proportion:
        fpr, tpr = (_monotone([_share(a, b) for a, b in side]) for side in self.sides)
        estimate = (_steps(fpr, tpr, 0) + _steps(fpr, tpr, 1)) / 2.0
        on_distribution = self._on_distribution(judge) if judge.unseen else None
        return Proportion(estimate, self._on_rows(judge, judge.failure), on_distribution)

    def _on_rows(self, judge: _Judge, failure: float) -> Interval:
        each = failure / sum(map(len, self.sides))
        fpr, tpr = ([interval_on_rows(a, b, judge.noise, each) for a, b in side] for side in self.sides)
        # Rates rise along the curve, so a bound at one point also holds at all later or all earlier ones.
        lower = _steps(_falling([part.upper for part in fpr]), _rising([part.lower for part in tpr]), 0)
        upper = _steps(_rising([part.lower for part in fpr]), _falling([part.upper for part in tpr]), 1)
        return Interval(max(lower, 0.0), min(upper, 1.0))

    def _on_distribution(self, judge: _Judge) -> Interval:
        # The curve, and the two sizes of classes, each from one split into two counts.
        failure, statements = judge.failure / 2.0, sum(map(len, self.sides)) + 2
        rows = self._on_rows(judge, failure * (statements - 2) / statements)
        sizes = [min((a + b for a, b in side), key=lambda count: count.cells) for side in self.sides]
        least = min(size.value - judge.noise.half_width(size.cells, failure / statements) for size in sizes)
        if least <= 0.0:
            return ANYTHING
        beyond = math.sqrt(math.log(2.0 / failure) / (2.0 * least))
        return Interval(max(rows.lower - beyond, 0.0), min(rows.upper + beyond, 1.0))


def _splits(low: float, high: float, bins: NDArray[np.float64]) -> tuple[tuple[Count, Count], ...]:
    """One label's rows (above, at most) each edge, from the last edge down. low, high: its rows at most 0, above 0."""
    middle = len(bins) // 2
    found = []
    for place in range(len(bins) - 1, 0, -1):
        if place >= middle:
            found.append((_count(*bins[place:]), _count(low, *bins[middle:place])))
        else:
            found.append((_count(high, *bins[place:middle]), _count(*bins[:place])))
    return tuple(found)


def _steps(fpr: Sequence[float], tpr: Sequence[float], ahead: int) -> float:
    """The area of steps below a curve through (0, 0), the points and (1, 1) (ahead = 0), or above it (ahead = 1)."""
    widths = np.diff([0.0, *fpr, 1.0])
    heights = np.array([0.0, *tpr, 1.0])
    return float(widths @ (heights[1:] if ahead else heights[:-1]))


def _monotone(values: Sequence[float]) -> list[float]:
    fitted: list[float] = optimize.isotonic_regression(values).x.tolist()
    return fitted


def _rising(values: Sequence[float]) -> list[float]:
    return list(itertools.accumulate(values, max))


def _falling(values: Sequence[float]) -> list[float]:
    return list(itertools.accumulate(reversed(values), min))[::-1]


def _count(*cells: float) -> Count:
    return Count(float(sum(cells)), len(cells))


def _share(a: Count, b: Count) -> float:
    total = a.value + b.value
    return min(max(a.value / total, 0.0), 1.0) if total > 0.0 else 0.5


def _logits(bins: int) -> NDArray[np.float64]:
    """The log odds of 1 / bins, ..., (bins - 1) / bins; the one in the middle is 0."""
    levels = np.arange(1, bins)
    return np.log(levels) - np.log(bins - levels)


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _where(part: Proportion) -> str:
    """The interval of the strongest claim that holds."""
    if part.on_distribution is None:
        return f"{_range(part.on_rows)} on these rows"
    return f"{_range(part.on_distribution)} on new rows"


def _range(interval: Interval) -> str:
    return f"{_percent(interval.lower)} to {_percent(interval.upper)}"
