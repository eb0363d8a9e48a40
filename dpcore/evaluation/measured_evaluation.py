"""How well a model predicts a label that is a number, or a count by its place: on rows, and by releases of statistics.

With t the place of a label between its bounds, from -1 to 1, p = theta . x clipped to [-1, 1], and c a constant, sums
over rows of

    U = (t - p) above 0,   O = (p - t) above 0,   Q = (t - p)^2,
    A = (t - c) above 0,   B = (c - t) above 0,   V = (t - c)^2

are asked for as predicates (dpcore.predicates.expressions.LabelError), and the rows and labels of bins of predictions,
which add up to N rows. Then

    bias = (O - U) / N,   absolute error = (O + U) / N,   squared error = Q / N,   1 - R^2 = Q / (V - (A - B)^2 / N).

Differences count at most as a reach, which a first release finds: twice what all but a hundredth of them are within. If
its noise hides these it is six medians, 3.5 times what three quarters are within, or as far as it surely sees rows,
whichever is most.

Where these may be more than a fifth of the rows there is no reach, nor where its noise moves R^2 by 0.002 at
most. What is measured is that of clipped differences.

**Intervals** are for the noise, on these rows, each of a ratio of two sums (Fieller, J. R. Stat. Soc. B 16, 1954). For
R^2, (A-B)^2 / N is within a range with half of the failure. The ends of a ratio's interval are monotone in what its
denominator loses, so those at the ends of the range cover it.

No interval for new rows is stated, because the reach was found on these.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpcore.estimators.oracle import WHOLE, StatisticOracle, asked_part, check_left, failure_of
from dpcore.evaluation.intervals import Bounded, ratio_on_rows
from dpcore.evaluation.located_scores import Located, NoisyCells, check_no_series, in_bins, locate, located_cells
from dpcore.evaluation.observed_bins import ObservedBin, Sums, bins_in_words, observed_bins, table
from dpcore.evaluation.options import EvaluationOptions
from dpcore.evaluation.reaches import ERRORS, FINE, LABELS, around, cheap_reach, reach_of
from dpcore.evaluation.scores import LinearScores, linear_scores
from dpcore.numbers.fixed_point import Vector
from dpcore.predicates.expressions import (
    MOST_ERROR,
    Affine,
    And,
    ErrorSort,
    LabelError,
    LabelShare,
    Not,
    Predicate,
)
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Count, Number, measured
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

_LEAST = 1e-300
_OF_TERMS = Fraction(5, 7)
"""The part that errors have of the budget that is left after the first release."""
_SORTS: tuple[ErrorSort, ...] = ("over", "under", "square")


def r_squared(labels: Vector, predicted: Vector) -> float:
    """1 - (sum of squared errors) / (sum of squares around the mean), at least one of which is not 0."""
    around = float(np.square(labels - labels.mean()).sum())
    return 1.0 - float(np.square(predicted - labels).sum()) / max(around, _LEAST)


def deviance_explained(counts: Vector, means: Vector, exposures: Vector) -> float:
    """1 - D(counts, means) / D(counts, one rate times the exposures), D the Poisson deviance; means: positive."""
    rate = counts.sum() / exposures.sum()
    return 1.0 - _deviance(counts, means) / max(_deviance(counts, rate * exposures), _LEAST)


def _deviance(counts: Vector, means: Vector) -> float:
    logarithms = np.where(counts > 0, counts * np.log(np.maximum(counts, 1.0) / np.maximum(means, _LEAST)), 0.0)
    return float(2.0 * (logarithms - (counts - means)).sum())


@dataclass(frozen=True)
class MeasuredEvaluation:
    """How well a model predicts a number: the module's docstring says what the figures are.

    Errors are in the label's units, or of a label that is learned by its logarithm differences of natural logarithms.
    """

    rows: int
    """Of the part that was asked about, usable or not."""
    confidence: float
    of_logarithms: bool
    r2: Bounded | None
    """On the scale that is learned; None if the noise may be as large as the label's variance."""
    bias: Bounded | None
    """The mean of what is predicted less what is observed; None, as all errors, if the noise hides the rows."""
    absolute_error: Bounded | None
    """The mean size of an error."""
    squared_error: Bounded | None
    """The mean square of an error."""
    largest_error: float
    """Larger errors count as this."""
    bins: tuple[ObservedBin, ...]
    """In the label's units; of logarithms observed means are geometric."""
    edges_found: bool
    """Whether a first release found where the scores are."""
    rounding: float
    """The scores of the evaluated model differ from theta . x by at most this."""
    part: HeldBack | None = None
    unseen: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For JSON; all numbers are finite."""
        return {**asdict(self), "part": None if self.part is None else self.part.to_dict()}

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Observed beside predicted values."""
        return table(self.bins)

    @property
    def root(self) -> Bounded | None:
        """The root of the mean squared error."""
        found = self.squared_error
        return None if found is None else Bounded(*(math.sqrt(max(end, 0.0)) for end in asdict(found).values()))

    def factor(self, figure: Bounded) -> Bounded:
        """A figure as people read it: of logarithms the factor that it is."""
        if not self.of_logarithms:
            return figure
        return Bounded(*(math.exp(end) for end in (figure.estimate, figure.lower, figure.upper)))

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> tuple[str, ...]:
        """For people."""
        least = f"{100.0 * self.confidence:g} %"
        about = f"{self.rows} {'held-back rows' if self.part is not None else 'rows'}"
        if self.r2 is None:
            first = (
                f"R^2 is not measured on {about}: the noise may be as large as the label's variance. More epsilon "
                "helps, unless the label is nearly the same in all rows."
            )
        else:
            first = (
                f"R^2 {self.r2.estimate:.4f} on {about}; for the noise alone from {self.r2.lower:.4f} to "
                f"{self.r2.upper:.4f}, with probability at least {least}."
            )
        of = "as a factor" if self.of_logarithms else "in the label's units"
        clipped = (
            f"These errors are {of}. Predictions are clipped to the label's bounds, and errors to "
            f"{_figure(self.factor(Bounded(*3 * (self.largest_error,))).estimate)}."
        )
        seen = "The model may have been trained on these rows: nothing is said about new ones."
        lines = (first, *self._errors(), clipped, bins_in_words(self.bins, "values"))
        return lines if self.unseen else (*lines, seen)

    def _errors(self) -> tuple[str, ...]:
        named = (
            ("Mean absolute error", self.absolute_error),
            ("Root of the mean squared error", self.root),
            ("Bias, predicted by observed" if self.of_logarithms else "Bias, predicted less observed", self.bias),
        )
        return tuple(
            f"{name}: not measured, the noise hides how many rows there are; more epsilon helps."
            if found is None
            else f"{name} {_figure(found.estimate)}, from {_figure(found.lower)} to {_figure(found.upper)}."
            for name, each in named
            for found in (None if each is None else self.factor(each),)
        )


def _figure(value: float) -> str:
    return f"{value:.4g}"


def _rings(form: Affine, scale: int, reaches: Sequence[Fraction]) -> tuple[Predicate, ...]:
    """Sizes of an error up to each of these ascending reaches, and above the last; mutually exclusive."""
    beyond = [LabelError(form, scale, reach, "beyond") for reach in reaches]
    within = [And((low, Not(high))) for low, high in itertools.pairwise(beyond)]
    return (Not(beyond[0]), *within, beyond[-1])


def _predicted(theta: ArrayLike, schema: Schema, edges: Vector, feature_map: FeatureMap | None) -> LinearScores:
    """Scores whose first and last edges are the label's bounds."""
    # The edge 2, which is left out, is room for the scale of the predicted place: the label's range.
    found = linear_scores(theta, schema, np.array([-1.0, *edges, 1.0, 2.0]), feature_map)
    return replace(found, edges=found.edges[:-1])


def _place(scores: LinearScores) -> tuple[Affine, int]:
    """The form and the scale of the predicted place."""
    first, *_, last = scores.edges
    return Affine(scores.weights, scores.constant - first), last - first


def _constant(centre: Fraction) -> tuple[Affine, int]:
    """The same of one place for all rows."""
    return Affine((), int((centre + 1) * FINE)), 2 * FINE


def _sizes(
    theta: ArrayLike, schema: Schema, feature_map: FeatureMap | None
) -> tuple[tuple[Predicate, ...], tuple[Predicate, ...]]:
    """What the first release asks beside where the scores are: sizes of errors, and places of labels."""
    place = _place(_predicted(theta, schema, np.array([]), feature_map))
    return _rings(*place, ERRORS), _rings(*_constant(Fraction(-1)), LABELS)


@dataclass(frozen=True)
class _Asked:
    """What is asked about the errors of a model, and what its answers are divided by."""

    scores: LinearScores
    place: tuple[Affine, int]
    reach: Fraction
    """Of errors."""
    centre: Fraction
    spread: Fraction
    """The reach of a label's difference from the centre."""
    ends: Vector
    """Of the bins."""

    @classmethod
    def of(
        cls,
        theta: ArrayLike,
        schema: Schema,
        where: Located,
        sizes: Sequence[NoisyCells],
        options: EvaluationOptions,
        feature_map: FeatureMap | None,
    ) -> "_Asked":
        """sizes: about how many rows each cell of `_sizes` has."""
        (of_errors, of_labels), bins = sizes, options.count
        cheap = cheap_reach(of_labels, options.edges_part / ((1 - options.edges_part) * _OF_TERMS))
        inside = where.quantiles(np.arange(1, bins) / bins)
        inside = inside[(inside > -1.0) & (inside < 1.0)]
        scores = _predicted(theta, schema, inside if len(inside) else np.zeros(1), feature_map)
        step = math.ldexp(1.0, -scores.exponent)
        centre, spread = around(of_labels, cheap)
        return cls(
            replace(scores, edges=scores.edges[1:-1]),
            _place(scores),
            reach_of(np.array([*map(float, ERRORS), float(MOST_ERROR)]), of_errors, cheap),
            centre,
            spread,
            np.array([edge * step for edge in scores.edges]),
        )

    @property
    def terms(self) -> tuple[Predicate, ...]:
        """The module's U, O, Q, A, B and V."""
        errors = ((self.place, self.reach), (_constant(self.centre), self.spread))
        return tuple(LabelError(*place, reach, sort) for place, reach in errors for sort in _SORTS)

    @property
    def means(self) -> tuple[Predicate, ...]:
        """Rows and shares of each bin of predictions."""
        places = self.scores.places()
        return (*in_bins(places), *in_bins(places, LabelShare()))


def evaluate_numbers(
    theta: ArrayLike,
    oracle: StatisticOracle,
    options: EvaluationOptions | None = None,
    *,
    unseen: bool | None = None,
    feature_map: FeatureMap | None = None,
) -> MeasuredEvaluation:
    """Evaluate the places theta . x of a label by three releases, with the whole budget.

    theta: (d,). unseen: as for dpcore.evaluation.evaluation.evaluate. Raises what `linear_scores` and the oracle raise.
    """
    chosen, label = options or EvaluationOptions(), measured(oracle.schema.label, "an evaluation of numbers")
    check_no_series(oracle, "an error")
    check_left(oracle, WHOLE)
    first = chosen.edges_part
    others = _sizes(theta, oracle.schema, feature_map)
    where, sizes = locate(theta, oracle, part=first, feature_map=feature_map, others=others)
    asked = _Asked.of(theta, oracle.schema, where, sizes, chosen, feature_map)
    of_terms = oracle.statistic(asked.terms, part=(1 - first) * _OF_TERMS, feature_map=feature_map)
    of_bins = oracle.statistic(asked.means, part=(1 - first) * (1 - _OF_TERMS), feature_map=feature_map)
    about = asked_part(oracle)
    failure = failure_of(chosen.confidence, about)
    errors, means, half = Sums.of(of_terms), Sums.of(of_bins), _half_range(label)
    over, under, square, *_ = errors.values.tolist()
    size, (rows, _), bins = half * float(asked.reach), means.values.reshape(2, -1).sum(axis=1), len(means.values) // 2
    # The noise on the rows of all bins, in that on an error.
    of_rows = math.sqrt(bins) * means.noise.deviation / (errors.noise.deviation or 1.0)

    def mean(total: float, unit: float, cells: int) -> Bounded | None:
        return ratio_on_rows(unit * total, unit * cells**0.5, float(rows), of_rows, errors.reach(failure, cells + bins))

    return MeasuredEvaluation(
        rows=of_terms.rows,
        confidence=chosen.confidence,
        of_logarithms=isinstance(label, Number) and label.log,
        r2=_r2(asked, errors, means, _step(of_terms, about), failure),
        bias=mean(under - over, size, 2),
        absolute_error=_at_least_0(mean(over + under, size, 2)),
        squared_error=_at_least_0(mean(square, size**2, 1)),
        largest_error=size,
        bins=tuple(
            _in_units(each, label)
            for each in observed_bins(
                means,
                asked.ends,
                where.means_between(asked.ends, np.clip(where.middles, -1.0, 1.0)),
                1.0,
                None,
                failure,
            )
        ),
        edges_found=where.found,
        rounding=asked.scores.rounding,
        part=about,
        unseen=about is not None and about.part is Part.HELD_BACK if unseen is None else unseen,
    )


def planned_errors(
    theta: ArrayLike, schema: Schema, options: EvaluationOptions, feature_map: FeatureMap | None = None
) -> tuple[tuple[tuple[Predicate, ...], Fraction, str, bool], ...]:
    """What `evaluate_numbers` asks: predicates, their part of the budget, what they are, and whether they are exact.

    The second and third are those of scores and errors that are spread evenly.
    """
    grid, cells = located_cells(theta, schema, feature_map)
    sizes, first = _sizes(theta, schema, feature_map), options.edges_part
    spread = Located(grid, np.ones(len(cells)), found=False)
    even = [NoisyCells(np.ones(len(each)), 0.0) for each in sizes]
    asked = _Asked.of(theta, schema, spread, even, options, feature_map)
    terms, means = (1 - first) * _OF_TERMS, (1 - first) * (1 - _OF_TERMS)
    return (
        ((*cells, *sizes[0], *sizes[1]), first, "where the scores are, sizes of errors, and labels", True),
        (asked.terms, terms, "errors of predictions, and how the label varies", False),
        (asked.means, means, "rows and mean labels by bin of predictions", False),
    )


def _half_range(label: Number | Count) -> float:
    """What a difference of 1 on the scale that is learned is in the label's units, or of logarithms."""
    if isinstance(label, Number) and label.log:
        return (math.log(label.upper) - math.log(label.lower)) / 2.0
    start, end = label.in_units(np.array([0.0, 1.0])).tolist()
    return float(end - start)


def _at_least_0(found: Bounded | None) -> Bounded | None:
    return None if found is None else Bounded(*(max(end, 0.0) for end in asdict(found).values()))


def _in_units(found: ObservedBin, label: Number | Count) -> ObservedBin:
    """A bin of places, whose observed values are shares."""

    def units(*places: float) -> list[float]:
        values: list[float] = label.in_units(np.clip(places, -1.0, 1.0)).tolist()
        return values

    seen = found.observed
    observed = None if seen is None else Bounded(*units(*(2.0 * share - 1.0 for share in asdict(seen).values())))
    lower, upper, predicted = units(found.lower, found.upper, found.predicted)
    return ObservedBin(lower, upper, predicted, found.rows, observed)


def _step(of_terms: Estimates, about: HeldBack | None) -> float:
    """The most that rounding takes from the value of one row that is asked about; other rows have the value 0."""
    share = 1.0 if about is None else float(about.chance)
    return of_terms.quantisation * share * (1.0 + 1.0 / of_terms.rows)


def _r2(asked: _Asked, errors: Sums, means: Sums, step: float, failure: float) -> Bounded | None:
    """R^2 with its interval; None if the variance may be 0. step: as of `_step`."""
    rows, bins, spread = float(means.values.reshape(2, -1)[0].sum()), len(means.values) // 2, float(asked.spread)
    of_errors, of_labels, quarter = float(asked.reach) ** 2, spread**2, failure / 4.0
    # What noise may be on the rows, and so how many are rounded: down, so that half is added. Counts are exact.
    hidden = means.noise.half_width(bins, quarter)
    half = min(errors.rounded, step * max(rows + hidden, 0.0)) / 2.0
    errors = replace(errors, values=errors.values + half, rounded=half)
    _, _, square, above, below, around = errors.values.tolist()
    # The sum of t - c, and what noise may be on it.
    off, beyond = spread * abs(above - below), spread * math.sqrt(2.0) * errors.reach(quarter, 2)
    if rows - hidden <= 0.0:
        return None
    lost = (max(off - beyond, 0.0) ** 2 / (rows + hidden), off**2 / rows, (off + beyond) ** 2 / (rows - hidden))
    found = [
        ratio_on_rows(
            of_errors * square,
            of_errors,
            of_labels * around - each,
            of_labels,
            errors.reach(failure / 2.0, 2),
            least=0.0,
        )
        for each in lost
    ]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    lower, upper = 1.0 - max(each.upper for each in known), 1.0 - min(each.lower for each in known)
    return Bounded(1.0 - known[1].estimate, lower, upper)
