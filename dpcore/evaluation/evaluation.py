"""Evaluation of a model on the parties' rows: errors, rates, calibration and ROC from releases of counts.

A first release finds where the scores are (dpcore.evaluation.scores). The second is the histogram of scores of each
label, of sensitivity 2 in L1 and L2^2. Without a first one, edges are fixed, and the confusion matrix is asked beside
the bins: a sensitivity of 4.

Every proportion is over usable rows, with an interval over the rows, and if the model did not see them a second one
over the distribution. Bins and points of edges that were found have none on the distribution.

Intervals hold with probability at least `confidence` for each family, for rows and distribution separately:

    the error;    usable rows;    the four cells;    true and false positive rate, precision and balanced accuracy;
    all bins of the calibration;    all points of the ROC curve;    the area under it (dpcore.evaluation.scores);
    average precision (dpcore.evaluation.average_precision);
    the share of positive rows;    F1;    precision and F1 at all edges;    costs (dpcore.evaluation.thresholds).
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.oracle import WHOLE, StatisticOracle, asked_part, check_left, check_pieces, failure_of
from dpcore.evaluation.average_precision import average_precision
from dpcore.evaluation.intervals import CellNoise, Count, Interval, Judge, Proportion, count_of
from dpcore.evaluation.options import Costs, EvaluationOptions
from dpcore.evaluation.scores import (
    CELLS,
    Curve,
    Edges,
    LinearScores,
    RocPoint,
    even_steps,
    find_edges,
    linear_scores,
    narrow_cells,
)
from dpcore.evaluation.thresholds import LeastCost, ThresholdPoint, Thresholds, f1_of, is_measurable
from dpcore.numbers.rationals import lower_percent, upper_percent
from dpcore.predicates.expressions import Predicate
from dpcore.records.feature_map import FeatureMap
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

USUAL = EvaluationOptions()
MEASURED = 0.05
"""With more noise than this on it, the area under the ROC curve counts as not measured."""
CROWDED = 0.5
"""A bin with a larger share of the rows is named: scores within it are not distinguished."""
WIDE = 0.05
"""A wider interval for the error on the rows is said to be due to the noise."""
TELLS_NOTHING = 0.5
"""A bin whose share of positive rows has a wider interval says nothing about calibration."""

Cells = tuple[tuple[Count, Count], tuple[Count, Count]]
"""By label (-1, +1) and prediction (-1, +1)."""


@dataclass(frozen=True)
class CalibrationBin:
    """Rows that the model predicts to be positive with a probability in (predicted.lower, predicted.upper]."""

    predicted: Interval
    rows: float
    """Their number, with noise."""
    observed: Proportion
    """The share of them that are positive."""

    @property
    def is_off(self) -> bool:
        """Whether the share's interval is outside the predicted range: on the distribution, else on the rows."""
        actual = self.observed.strongest
        return actual.lower > self.predicted.upper or actual.upper < self.predicted.lower

    @property
    def tells(self) -> bool:
        """Whether the share's interval is narrow enough to compare."""
        return self.observed.strongest.width <= TELLS_NOTHING

    @property
    def is_measured(self) -> bool:
        """Whether the share says something about the calibration."""
        return self.tells or self.is_off


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of one release; the module's docstring says which intervals hold jointly."""

    rows: int
    """What parties state, usable or not."""
    confidence: float
    usable: float
    """How many rows of the part can be used, an estimate, and within `usable_half_width`."""
    usable_half_width: float
    confusion: NDArray[np.float64]
    """(2, 2), rows by label (-1, +1) and prediction, on the parties' rows with noise, each within `cell_half_width`."""
    cell_half_width: float
    error: Proportion
    true_positive_rate: Proportion
    false_positive_rate: Proportion
    precision: Proportion
    balanced_accuracy: Proportion
    """The mean of the true positive and the true negative rate."""
    calibration: tuple[CalibrationBin, ...]
    """From low to high."""
    roc: tuple[RocPoint, ...]
    """From high thresholds to low; estimates are made monotone by isotonic regression, intervals are not adjusted."""
    positive_share: Proportion
    """Of usable rows that are positive."""
    f1: Proportion
    """The harmonic mean of precision and the true positive rate."""
    average_precision: Proportion
    """The area under the curve of precision and recall: dpcore.evaluation.average_precision."""
    points: tuple[ThresholdPoint, ...]
    """Precision, recall and F1 at each edge, from high thresholds to low."""
    auc: Proportion
    auc_half_width: float
    """Of the noise on the estimate of the area."""
    largest_bin: float
    """The share of usable rows in the bin of scores that has most."""
    edges_found: bool | None
    """Whether the edges of the bins follow the scores; None if no release asked where they are."""
    rounding: float
    """The scores of the evaluated model differ from theta . x by at most this."""
    deviation: float
    """The noise's standard deviation on a cell, in rows."""
    part: HeldBack | None = None
    """The part of them that it is about; None for all."""
    unseen: bool = False
    """Whether the model was not trained on the rows; intervals on the distribution are only then stated."""
    least_cost: LeastCost | None = None
    """The threshold of the least cost, if costs were given."""
    thresholds: Thresholds | None = field(default=None, repr=False)
    """The counts behind the points, for other costs; None of an evaluation that was read from a file."""

    def __post_init__(self) -> None:
        confusion = np.array(self.confusion, dtype=np.float64)
        if confusion.shape != (2, 2):
            raise ShapeError(f"a confusion matrix has shape {confusion.shape}: give (2, 2)")
        confusion.setflags(write=False)
        object.__setattr__(self, "confusion", confusion)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; all numbers are finite."""
        proportions = (
            "error",
            "true_positive_rate",
            "false_positive_rate",
            "precision",
            "balanced_accuracy",
            "auc",
            "positive_share",
            "f1",
            "average_precision",
        )
        numbers = (
            "confidence",
            "usable",
            "usable_half_width",
            "cell_half_width",
            "auc_half_width",
            "largest_bin",
            "rounding",
            "deviation",
        )
        return {
            "rows": self.rows,
            "part": None if self.part is None else self.part.to_dict(),
            "unseen": self.unseen,
            "edges_found": self.edges_found,
            "auc_is_measured": self.auc_is_measured,
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
            "thresholds": [point.to_dict() for point in self.points],
            "least_cost": None if self.least_cost is None else self.least_cost.to_dict(),
        }

    @property
    def auc_is_measured(self) -> bool:
        """Whether the noise on the area is small enough."""
        return self.auc_half_width <= MEASURED

    @property
    def average_precision_is_measured(self) -> bool:
        """Whether the noise leaves an interval that says something."""
        return is_measurable(self.average_precision)

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> tuple[str, ...]:
        """The results in words."""
        named = (
            ("The true positive rate", self.true_positive_rate),
            ("The false positive rate", self.false_positive_rate),
            ("Precision, the share of positive rows among those called positive,", self.precision),
            ("F1, the harmonic mean of the true positive rate and precision,", self.f1),
            ("Balanced accuracy", self.balanced_accuracy),
        )
        error = (
            f"The model is wrong on {_range(self.error.on_rows)} of {self._rows_in_words()}, about "
            f"{_percent(self.error.estimate)}"
        )
        if self.error.on_distribution is not None:
            error += f"; on new rows of the same kind it is wrong on {_range(self.error.on_distribution)} of them"
        if self.error.on_rows.width > WIDE:
            error += (
                f". The first interval is {upper_percent(self.error.on_rows.width, 0)} points wide because of the "
                "noise: "
                "with twice the epsilon, or twice as many rows, about half of that"
            )
        rates = (f"{name} {_found(part)}." for name, part in named)
        share = f"Positive are {_range(self.positive_share.on_rows)} of these rows"
        share += f", about {_percent(self.positive_share.estimate)}."
        costs = () if self.least_cost is None else self.least_cost.sentences()
        return (
            f"{error}.",
            share,
            *rates,
            self.area_in_words(),
            self.average_precision_in_words(),
            self.calibration_in_words(),
            *costs,
            *self._meaning(),
        )

    def cheapest(self, costs: Costs | str) -> LeastCost:
        """The threshold of the least cost, of this evaluation's answers, which costs no privacy.

        Raises ConfigurationError for malformed costs, and for an evaluation that was read from a file.
        """
        if self.thresholds is None:
            raise ConfigurationError(
                "an evaluation from a file has no counts: evaluate with --cost; with --reuse that asks nothing again"
            )
        return self.thresholds.least_cost(Costs.parse(costs) if isinstance(costs, str) else costs)

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Precision, recall and F1 by threshold: the header, and a row for each from high thresholds to low."""
        rows = [
            (f"{point.threshold:.4g}", *(_cell(part) for part in (point.recall, point.precision, point.f1)))
            for point in self.points
        ]
        return ("threshold", "recall", "precision", "F1"), rows

    def area_in_words(self) -> str:
        """The area in words, and what the bins of scores can tell of it."""
        noise, name = f"{upper_percent(self.auc_half_width, 1)} points", "The area under the ROC curve"
        if not self.auc_is_measured:
            found = (
                f"{name} cannot be measured at this epsilon: the noise moves it by up to {noise}. More rows or a "
                "larger epsilon help"
            )
        else:
            found = (
                f"{name} is about {_percent(self.auc.estimate)}, with noise of up to {noise}; {_where(self.auc)}, "
                "whatever the order of scores within a bin"
            )
        if self.largest_bin > CROWDED:
            found += f". One bin has {_percent(self.largest_bin)} of the rows, whose scores are not distinguished"
            if self.edges_found is None:
                found += "; a first release would find where the scores are"
        if self.edges_found is False:
            found += ". The noise of the first release hides where the scores are, so the bins have even steps"
        return f"{found}."

    def average_precision_in_words(self) -> str:
        """The average precision, and that of scores that say nothing."""
        found = f"Average precision, the area under the curve of precision and recall, {_found(self.average_precision)}"
        return f"{found}; scores that say nothing have {_percent(self.positive_share.estimate)}."

    def calibration_in_words(self) -> str:
        """In how many bins the model's probabilities are right, wrong, or not measured."""
        known = [part for part in self.calibration if part.tells]
        off, bins = sum(part.is_off for part in self.calibration), len(self.calibration)
        on = " on these rows" * (self.calibration[0].observed.on_distribution is None)
        if not known and not off:
            return f"In none of {bins} bins of predicted probability the noise leaves enough rows to compare."
        told = f" {bins - len(known)} of the bins have too few rows to tell." if len(known) < bins else ""
        if off:
            return (
                f"In {off} of {bins} bins of predicted probability the share of positive rows{on} is not what the "
                f"model says.{told}"
            )
        bins_in_words = f"all {bins} bins" if not told else f"{len(known)} of {bins} bins"
        return (
            f"In {bins_in_words} of predicted probability the share of positive rows{on} is consistent with the model."
            f"{told}"
        )

    def _rows_in_words(self) -> str:
        if self.part is not None and self.part.pieces:
            return f"the usable rows of {self.part.words()}"
        if self.part is not None and self.part.part is Part.HELD_BACK:
            return "the usable rows that the parties hold back"
        return "the parties' usable rows" if self.unseen else "the usable rows that it was trained on, or may have been"

    def _meaning(self) -> tuple[str, ...]:
        """What the statements hold for, and under which assumptions."""
        least = lower_percent(self.confidence, 1)
        if not self.unseen:
            holds = f"Each of these statements holds with probability at least {least} %, over the noise."
            nothing = (
                "Nothing is claimed about new rows: errors on rows that a model was trained on say too little of them. "
                "For such a claim, train with rows held back."
            )
            return (holds, nothing)
        holds = (
            f"Each of these statements holds with probability at least {least} %: over the noise, and over the sample "
            "if it is about new rows."
        )
        chosen = "and was not chosen by an evaluation on them"
        if self.part is not None and self.part.pieces:
            chosen = "which earlier answers may have chosen, as each question is about rows of its own"
            holds += f" So do those of all {self.part.pieces} questions together."
        drawn = (
            "New rows are rows, not persons, drawn as these were: independently, from one distribution, that of the "
            "parties together in proportion to their rows. Assumed: the model was not trained on these rows or on "
            f"others of the same persons, {chosen}."
        )
        return (holds, drawn)


def evaluate(
    theta: ArrayLike,
    oracle: StatisticOracle,
    options: EvaluationOptions = USUAL,
    *,
    part: Fraction = WHOLE,
    unseen: bool | None = None,
    feature_map: FeatureMap | None = None,
    offset: float = 0.0,
) -> Evaluation:
    """Evaluate sign(theta . x) on the federation's rows; two releases, or one.

    - theta: (d,) over the coordinates of oracle.schema, or over those of the feature map.
    - part: of the oracle's budget. A first release takes `options.edges_part` of it and finds where the scores are.
      Without it, edges are at even steps of the probability 1 / (1 + exp(-score / scale)).
    - offset: what is added to a score before its probability: for calibration, of a model whose classes were weighted.
    - unseen: whether theta was not trained on the rows that the oracle answers about; None: only if they are held back.

    The evaluated model has integer weights: theta times a power of two, rounded, 31 or 32 bits in total with the edges
    (`Evaluation.rounding`). A score of exactly 0 is predicted -1.

    Raises ShapeError if theta does not fit the schema, ConfigurationError if it is not finite, and what
    `oracle.statistic` raises.
    """
    costs = None if options.cost is None else Costs.parse(options.cost)
    edges, scores, estimates = _ask(theta, oracle, options, part, feature_map)
    asks_cells = not options.edges_part
    counts, every = estimates.values * estimates.rows, estimates.most_rows or estimates.rows
    about = asked_part(oracle)
    if unseen is None:
        unseen = about is not None and about.part is Part.HELD_BACK
    noise = CellNoise.of(estimates)
    if noise.deviation == 0.0:
        # Undo the rounding of the division by the rows: counts are integers.
        counts = np.rint(counts)
    judge = Judge(noise, failure_of(options.confidence, about), every, unseen=unseen)
    of_edges = replace(judge, unseen=unseen and not edges.found)
    asked_cells = counts[:4].reshape(2, 2) if asks_cells else None
    histogram = counts[4 * asks_cells :].reshape(2, -1)
    middle = 1 + int(np.searchsorted(edges.values, 0.0))
    cells, curve = _cells(histogram, middle, asked_cells), Curve.of(histogram, middle, asked_cells)
    total = sum((cell for row in cells for cell in row), Count(0.0, 0))
    (true_negative, false_positive), (false_negative, true_positive) = cells
    decided = Thresholds(histogram, edges.values, curve, of_edges)
    area = curve.area(judge)
    return Evaluation(
        rows=every,
        confidence=options.confidence,
        usable=float(np.clip(total.value, 0.0, every)),
        usable_half_width=noise.half_width(total.cells, judge.failure),
        confusion=np.array([[cell.value for cell in row] for row in cells]),
        cell_half_width=noise.half_width(max(cell.cells for row in cells for cell in row), judge.failure / 4),
        error=judge.proportion(cells[0][1] + cells[1][0], cells[0][0] + cells[1][1]),
        **_rates(cells, judge),
        positive_share=judge.proportion(true_positive + false_negative, true_negative + false_positive),
        f1=f1_of(true_positive, false_positive + false_negative, judge),
        average_precision=average_precision(histogram, judge),
        points=decided.points(),
        calibration=_calibration(histogram, edges.values + offset, options.scale, of_edges),
        roc=curve.points(edges.values, of_edges),
        auc=area.value,
        auc_half_width=area.noise,
        largest_bin=_largest_share(histogram),
        edges_found=None if asks_cells else edges.found,
        rounding=scores.rounding,
        deviation=noise.deviation,
        part=about,
        unseen=unseen,
        least_cost=None if costs is None else decided.least_cost(costs),
        thresholds=decided,
    )


def _largest_share(histogram: NDArray[np.float64]) -> float:
    rows = np.maximum(histogram.sum(axis=0), 0.0)
    return float(rows.max() / (rows.sum() or 1.0))


def _ask(
    theta: ArrayLike,
    oracle: StatisticOracle,
    options: EvaluationOptions,
    part: Fraction,
    feature_map: FeatureMap | None,
) -> tuple[Edges, LinearScores, Estimates]:
    """The bins' edges, the scores, and the counts of bins, after those of the confusion matrix if edges are even."""
    first = options.edges_part
    check_pieces(oracle)
    check_left(oracle, part)
    if first:
        edges = find_edges(theta, oracle, options.count, part=part * first, feature_map=feature_map)
    else:
        edges = Edges(options.scale * even_steps(options.count), found=False)
    scores = linear_scores(theta, oracle.schema, edges.values, feature_map)
    asked = (*(() if first else scores.cells()), *scores.bins())
    confidence = options.confidence
    estimates = oracle.statistic(asked, part=part * (1 - first), confidence=confidence, feature_map=feature_map)
    return edges, scores, estimates


@dataclass(frozen=True)
class PlannedBatch:
    """A release of an evaluation before it is asked for."""

    predicates: tuple[Predicate, ...]
    part: Fraction
    """Of the budget."""
    what: str
    """In words."""
    is_exact: bool
    """Whether these predicates will be asked; otherwise as many of the same form."""


def planned_batches(
    theta: ArrayLike, schema: Schema, options: EvaluationOptions = USUAL, *, feature_map: FeatureMap | None = None
) -> tuple[PlannedBatch, ...]:
    """What `evaluate` asks for, with edges of even steps for those to be found. Raises as `evaluate` does."""
    bins, edges_part = options.count, options.edges_part
    steps = even_steps(bins)
    if edges_part:
        # As many as can be found: one for each level between two bins, and 0.
        steps = np.sort(np.append(steps, 0.0 if bins % 2 else steps[-1] + 1.0))
    scores = linear_scores(theta, schema, options.scale * steps, feature_map)
    by_bin = f"rows by label and bin of scores, in {bins} bins"
    if not edges_part:
        predicates = (*scores.cells(), *scores.bins())
        return (PlannedBatch(predicates, WHOLE, f"{by_bin}, and by label and prediction", is_exact=True),)
    _, cells = narrow_cells(theta, schema, feature_map)
    where = f"where the scores are, rows by label in {CELLS} cells of scores"
    return (
        PlannedBatch(cells, edges_part, where, is_exact=True),
        PlannedBatch(scores.bins(), 1 - edges_part, by_bin, is_exact=False),
    )


def _cells(histogram: NDArray[np.float64], middle: int, asked: NDArray[np.float64] | None) -> Cells:
    """By label and prediction, as they were asked or as sums of bins. middle: how many bins are at or below 0."""
    if asked is not None:
        (a, b), (c, d) = asked
        return (count_of(a), count_of(b)), (count_of(c), count_of(d))
    negative, positive = ((count_of(*bins[:middle]), count_of(*bins[middle:])) for bins in histogram)
    return negative, positive


def _rates(cells: Cells, judge: Judge) -> dict[str, Proportion]:
    (true_negative, false_positive), (false_negative, true_positive) = cells
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


def _calibration(
    histogram: NDArray[np.float64], edges: NDArray[np.float64], scale: float, judge: Judge
) -> tuple[CalibrationBin, ...]:
    ends = [0.0, *special.expit(edges / scale).tolist(), 1.0]
    return tuple(
        CalibrationBin(
            predicted=Interval(ends[place], ends[place + 1]),
            rows=float(positive + negative),
            observed=judge.proportion(count_of(positive), count_of(negative), histogram.shape[1]),
        )
        for place, (negative, positive) in enumerate(histogram.T)
    )


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f} %"


def _found(part: Proportion) -> str:
    """Where it is, or that the noise hides it."""
    if not is_measurable(part):
        return f"is not measurable at this epsilon: the noise leaves {_range(part.on_rows)}"
    return f"is {_where(part)}, about {_percent(part.estimate)}"


def _cell(part: Proportion) -> str:
    if not is_measurable(part):
        return "not measurable"
    return f"{_percent(part.estimate)} ({_range(part.on_rows)})"


def _where(part: Proportion) -> str:
    """The interval of the strongest claim that holds."""
    return f"{_range(part.strongest)} on {'these' if part.on_distribution is None else 'new'} rows"


def _range(interval: Interval) -> str:
    """The interval, rounded outwards."""
    return f"{lower_percent(interval.lower, 1)} % to {upper_percent(interval.upper, 1)} %"
