"""Evaluation of a model of times to an event on the parties' rows: concordance, Brier scores, and survival by risk.

A first release finds where the scores are. The second is a histogram of bins of scores by cells of the label (in which
interval a time ended, and how), of sensitivity 2 in L1 and L2^2. All figures are functions of it.

**Concordance.** Of all pairs of rows of which one had the event in an earlier interval than the other's time, the
share whose scores are in that order. Harrell's index compares exact times, so pairs within one interval count there and
not here.

Pairs within one bin of scores may have either order: they count half in the estimate, and as 0 or as 1 at the ends of
the interval.

**Brier score** at a border: the mean squared difference between the chance to be without the event there and whether a
row was, censored rows counted through others (dpcore.estimators.hazard_scores.brier_score), with times rounded up to
the ends of their intervals. Within a bin the chance is between those of its edges: the interval has room for that.

**Intervals** are for the noise, on these rows, of first order in it, with its second order in the concordance's
variance. No theorem says that they hold: tests/dpcore/evaluation/test_event_evaluation.py measures how often they do.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpcore.errors import ConfigurationError, DataError
from dpcore.estimators.hazard_scores import survival
from dpcore.estimators.hazards import cell_predicates
from dpcore.estimators.oracle import WHOLE, StatisticOracle, asked_part, check_left, check_pieces, failure_of
from dpcore.evaluation.intervals import Bounded, CellNoise
from dpcore.evaluation.life_table import LEAST_AT_RISK, event_table, survival_curve
from dpcore.evaluation.located_scores import Located, in_bins, locate, located_cells
from dpcore.evaluation.options import EvaluationOptions
from dpcore.evaluation.scores import linear_scores
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.predicates.expressions import Predicate
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import event_time
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import Schema

USUAL_BINS = 16
MOST_COUNTS = 4096
"""More would take long to compute with, and leave few rows in each."""
GROUPS = 3
"""Groups of risk whose survival is compared with what is predicted."""
_PLACES = np.linspace(0.0, 1.0, 2001)
_STEP = 1e-3


@dataclass(frozen=True)
class BrierAt:
    """The Brier score of survival to a border."""

    border: float
    score: Bounded | None
    """None if the noise hides who is at risk there."""
    of_equal: float | None
    """That of the best chance that is the same for all rows, with noise."""


@dataclass(frozen=True)
class RiskGroup:
    """Rows with scores in a range, from the lowest hazard to the highest."""

    lower: float
    upper: float
    rows: float
    """Their number, with noise."""
    predicted: tuple[float, ...]
    """Mean survival at each border, as far as the first release says where the scores are."""
    observed: tuple[Bounded, ...]
    """Survival at the borders up to the last that the noise leaves measurable, with intervals for rows and noise."""


@dataclass(frozen=True)
class EventEvaluation:
    """How well a model predicts times to an event: the module's docstring says what the figures are."""

    rows: int
    """Of the part that was asked about, usable or not."""
    confidence: float
    borders: tuple[float, ...]
    concordance: Bounded | None
    """None if the noise may hide all pairs."""
    brier: tuple[BrierAt, ...]
    groups: tuple[RiskGroup, ...]
    bins: int
    edges_found: bool
    """Whether a first release found where the scores are."""
    rounding: float
    """The scores of the evaluated model differ from theta . x by at most this."""
    deviation: float
    """The noise's standard deviation on a cell, in rows."""
    part: HeldBack | None = None
    unseen: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For JSON; all numbers are finite."""
        return {**asdict(self), "part": None if self.part is None else self.part.to_dict()}

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> tuple[str, ...]:
        """For people."""
        about = f"{self.rows} {'held-back rows' if self.part is not None else 'rows'}"
        if self.concordance is None:
            first = f"Concordance: not measured, the noise hides it on {about}; more epsilon helps."
        else:
            first = (
                f"Concordance {self.concordance.estimate:.4f} on {about}, from {self.concordance.lower:.4f} to "
                f"{self.concordance.upper:.4f} for the noise and for equal bins; equal scores would have 0.5. Times "
                "within one interval are not compared."
            )
        lines = [first]
        for each in self.brier:
            if each.score is None:
                lines.append(
                    f"Brier score of survival to {each.border:g}: not measured, too few rows are at risk there."
                )
            else:
                equal = "" if each.of_equal is None else f"; the best equal chance for all rows has {each.of_equal:.4f}"
                lines.append(
                    f"Brier score {each.score.estimate:.4f} of survival to {each.border:g}, from "
                    f"{each.score.lower:.4f} to {each.score.upper:.4f}{equal}."
                )
        if not self.unseen:
            lines.append("The model may have been trained on these rows: nothing is said about new ones.")
        return tuple(lines)


def _layout(
    theta: ArrayLike, schema: Schema, where: Located, bins: int, feature_map: FeatureMap | None
) -> tuple[Vector, tuple[Predicate, ...], float]:
    """The ends of the bins, what is asked: cells of the label for each bin in turn, and the rounding of scores."""
    label = event_time(schema.label, "an evaluation of times")
    if bins * (2 * len(label.borders) + 1) > MOST_COUNTS:
        raise ConfigurationError(
            f"{bins} bins of scores by {2 * len(label.borders) + 1} cells of the label are more than {MOST_COUNTS} "
            "counts: give fewer bins"
        )
    inside = where.quantiles(np.arange(1, bins) / bins)
    scores = linear_scores(theta, schema, inside if len(inside) else where.grid[1:2], feature_map)
    ends = np.concatenate([where.grid[:1], np.ldexp(np.array(scores.edges, dtype=np.float64), -scores.exponent)])
    cells = cell_predicates(label.borders)
    asked = tuple(each for place in scores.places() for cell in cells for each in in_bins((place,), *_parts(cell)))
    return np.concatenate([ends, where.grid[-1:]]), asked, scores.rounding


def _parts(cell: Predicate) -> Sequence[Predicate]:
    return cell.children() or (cell,)


def evaluate_times(
    theta: ArrayLike,
    log_hazards: Vector,
    oracle: StatisticOracle,
    options: EvaluationOptions | None = None,
    *,
    unseen: bool | None = None,
    feature_map: FeatureMap | None = None,
) -> EventEvaluation:
    """Evaluate the hazards exp(log_hazards + theta . x) by two releases, with the whole budget.

    theta: (d,). log_hazards: (J,). unseen: as for dpcore.evaluation.evaluation.evaluate. Raises what `linear_scores`
    and the oracle raise, and ConfigurationError for too many bins.
    """
    chosen = options or EvaluationOptions()
    check_pieces(oracle)
    check_left(oracle, WHOLE)
    first = chosen.edges_part
    where, _ = locate(theta, oracle, part=first, feature_map=feature_map)
    ends, asked, rounding = _layout(theta, oracle.schema, where, chosen.bins or USUAL_BINS, feature_map)
    estimates = oracle.statistic(asked, part=1 - first, feature_map=feature_map)
    about, noise = asked_part(oracle), CellNoise.of(estimates)
    borders = event_time(oracle.schema.label, "an evaluation of times").borders
    histogram = (estimates.values * estimates.rows).reshape(len(ends) - 1, 2 * len(borders) + 1)
    if noise.deviation == 0.0:
        histogram = np.rint(histogram)
    failure = failure_of(chosen.confidence, about)
    chances = _Chances.of(log_hazards, ends, where)
    return EventEvaluation(
        rows=estimates.rows,
        confidence=chosen.confidence,
        borders=borders,
        concordance=_concordance(histogram, noise, failure),
        brier=_brier(histogram, chances, borders, noise, failure),
        groups=_groups(histogram, chances, ends, borders, noise, failure),
        bins=len(histogram),
        edges_found=where.found,
        rounding=rounding,
        deviation=noise.deviation,
        part=about,
        unseen=about is not None and about.part is Part.HELD_BACK if unseen is None else unseen,
    )


def planned_histograms(
    theta: ArrayLike, schema: Schema, options: EvaluationOptions, feature_map: FeatureMap | None = None
) -> tuple[tuple[tuple[Predicate, ...], Fraction, str, bool], ...]:
    """What `evaluate_times` asks for: predicates, their part of the budget, what they are, and whether they are exact.

    The second release is that of scores that are spread evenly.
    """
    grid, cells = located_cells(theta, schema, feature_map)
    spread = Located(grid, np.ones(len(cells)), found=False)
    bins = options.bins or USUAL_BINS
    asked = _layout(theta, schema, spread, bins, feature_map)[1]
    return (
        (cells, options.edges_part, "where the scores are", True),
        (asked, 1 - options.edges_part, f"rows by how their time ended, in {bins} bins of scores", False),
    )


# The concordance is a ratio of two quadratic forms of the histogram.


def _later(histogram: Matrix) -> Matrix:
    """(bins, J): rows of each bin whose time ended in a later interval than each."""
    intervals = histogram.shape[1] // 2
    ended = histogram[:, :intervals] + histogram[:, intervals : 2 * intervals]
    after = np.cumsum(ended[:, ::-1], axis=1)[:, ::-1]
    found: Matrix = np.concatenate([after[:, 1:], np.zeros((len(histogram), 1))], axis=1) + histogram[:, -1:]
    return found


def _form(bins: int, intervals: int, ties: float | None) -> Matrix:
    """(n, n) over the cells of a histogram, bin by bin: pairs whose scores are in order; None for all pairs."""
    interval = np.concatenate([np.tile(np.arange(intervals), 2), [intervals]])
    is_event = np.arange(2 * intervals + 1) < intervals
    pairs = (is_event[:, np.newaxis] & (interval > interval[:, np.newaxis])).astype(np.float64)
    order = np.ones((bins, bins)) if ties is None else np.tril(np.ones((bins, bins)), -1) + ties * np.eye(bins)
    # Entry (row of the event, later row): a higher score is an earlier event.
    return np.asarray(np.kron(order, pairs), dtype=np.float64)


def _concordance(histogram: Matrix, noise: CellNoise, failure: float) -> Bounded | None:
    """With its interval: every value that the counts allow, whatever the order within a bin.

    With h the counts, A and P the forms of ordered and of all pairs, c solves h' (A - c P) h = 0. No cell is paired
    with itself, so noise of variance v leaves the form's mean.

    It adds 4 v |M h|^2 + 2 v^2 |M|^2 to its variance, M the symmetric part of A - c P.
    """
    bins, intervals = len(histogram), histogram.shape[1] // 2
    h = histogram.ravel()
    every = _form(bins, intervals, None)
    pairs = float(h @ every @ h)
    symmetric = (every + every.T) / 2.0
    variance = noise.deviation**2
    spread = float(
        np.sqrt(4.0 * variance * np.square(symmetric @ h).sum() + 2.0 * variance**2 * np.square(symmetric).sum())
    )
    reach = 0.0 if noise.deviation == 0.0 else noise.deviations(1, failure / 2.0)
    if pairs <= reach * spread or pairs <= 0.0:
        return None
    estimate = float(h @ _form(bins, intervals, 0.5) @ h) / pairs
    allowed = np.ones(len(_PLACES), dtype=bool)
    every_h, every_size = symmetric @ h, float(np.square(symmetric).sum())
    for sign, ties in ((1.0, 0.0), (-1.0, 1.0)):
        ordered = _form(bins, intervals, ties)
        own = (ordered + ordered.T) / 2.0
        own_h, cross = own @ h, float((own * symmetric).sum())
        # |(own - c symmetric) h|^2 and |own - c symmetric|^2, as polynomials of c.
        of_h = own_h @ own_h - 2.0 * _PLACES * (own_h @ every_h) + _PLACES**2 * (every_h @ every_h)
        of_form = float(np.square(own).sum()) - 2.0 * _PLACES * cross + _PLACES**2 * every_size
        deviations = np.sqrt(np.maximum(4.0 * variance * of_h + 2.0 * variance**2 * of_form, 0.0))
        excess = sign * (float(h @ ordered @ h) - _PLACES * pairs)
        allowed &= excess - reach * deviations <= 1e-9 * (1.0 + pairs)
    if not allowed.any():
        return None
    step = float(_PLACES[1])
    known = _PLACES[allowed]
    estimate = min(max(estimate, 0.0), 1.0)
    lower, upper = max(float(known[0]) - step, 0.0), min(float(known[-1]) + step, 1.0)
    return Bounded(estimate, min(lower, estimate), max(upper, estimate))


# Chances and Brier scores.


@dataclass(frozen=True, eq=False)
class _Chances:
    """Survival at each border in each bin, (bins, J)."""

    mean: Matrix
    squares: Matrix
    """The mean of its square."""
    least: Matrix
    most: Matrix

    @classmethod
    def of(cls, log_hazards: Vector, ends: Vector, where: Located) -> "_Chances":
        at_ends = survival(log_hazards, ends)
        found = survival(log_hazards, where.middles)
        of_bin = np.clip(np.searchsorted(ends, where.middles, side="left") - 1, 0, len(ends) - 2)
        means, squares = [], []
        for place in range(len(ends) - 1):
            inside = of_bin == place
            weights = where.rows * inside
            if not weights.sum():
                middle = survival(log_hazards, np.array([(ends[place] + ends[place + 1]) / 2.0]))[0]
                means.append(middle)
                squares.append(middle**2)
                continue
            # A cell may reach beyond the bin.
            chances = np.clip(found, at_ends[place + 1], at_ends[place])
            means.append(weights @ chances / weights.sum())
            squares.append(weights @ chances**2 / weights.sum())
        return cls(np.array(means), np.array(squares), at_ends[1:], at_ends[:-1])


def _weighted(histogram: Matrix, squares: Matrix, others: Matrix) -> tuple[Vector, Vector, Vector]:
    """(Brier score, its parts of equal chances 1 and 0), each (J,) at the borders.

    squares, others: (bins, J), of chances and of 1 less chances.
    """
    intervals = histogram.shape[1] // 2
    events, censored = histogram[:, :intervals], histogram[:, intervals : 2 * intervals]
    later = _later(histogram)
    risk = later.sum(axis=0) + censored.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.cumprod(1.0 - np.where(risk > 0.0, censored.sum(axis=0) / risk, 0.0))
        before = np.concatenate([[1.0], kept[:-1]])
        weights = np.tril(np.ones((intervals, intervals))) / before
        total = histogram.sum()
        happened = (events @ weights.T) / total
        beyond = later / kept / total
        return (squares * happened + others * beyond).sum(axis=0), happened.sum(axis=0), beyond.sum(axis=0)


def _brier(
    histogram: Matrix, chances: _Chances, borders: Sequence[float], noise: CellNoise, failure: float
) -> tuple[BrierAt, ...]:
    intervals = len(borders)
    squares, others = chances.squares, 1.0 - 2.0 * chances.mean + chances.squares
    scores, ones, zeros = _weighted(histogram, squares, others)
    lowest = _weighted(histogram, chances.least**2, (1.0 - chances.most) ** 2)[0]
    highest = _weighted(histogram, chances.most**2, (1.0 - chances.least) ** 2)[0]
    slopes = np.zeros((histogram.size, intervals))
    for place in range(histogram.size if noise.deviation else 0):
        moved = []
        for side in (_STEP, -_STEP):
            other = histogram.copy()
            other.flat[place] += side
            moved.append(_weighted(other, squares, others)[0])
        slopes[place] = (moved[0] - moved[1]) / (2.0 * _STEP)
    cells = len(histogram) * (intervals + 1)
    enough = _later(histogram).sum(axis=0) > LEAST_AT_RISK * noise.deviation * np.sqrt(cells)
    reach = noise.deviations(1, failure) * noise.deviation if noise.deviation else 0.0
    widths = reach * np.sqrt(np.square(slopes).sum(axis=0))
    found = []
    for place, border in enumerate(borders):
        measured = enough[: place + 1].all() and np.isfinite(scores[place]) and np.isfinite(widths[place])
        if not measured:
            found.append(BrierAt(border, None, None))
            continue
        # Of chances that are all c: c^2 ones + (1 - c)^2 zeros, least at c = zeros / (ones + zeros).
        both = float(ones[place] + zeros[place])
        equal = float(ones[place] * zeros[place]) / both if both > 0.0 else 0.0
        lower = max(float(lowest[place] - widths[place]), 0.0)
        upper = min(float(highest[place] + widths[place]), 1.0)
        score = min(max(float(scores[place]), lower), upper)
        found.append(BrierAt(border, Bounded(score, lower, upper), max(equal, 0.0)))
    return tuple(found)


def _groups(
    histogram: Matrix, chances: _Chances, ends: Vector, borders: Sequence[float], noise: CellNoise, failure: float
) -> tuple[RiskGroup, ...]:
    """Bins joined to groups of risk, with survival as in a life table."""
    runs = [run for run in np.array_split(np.arange(len(histogram)), GROUPS) if len(run)]
    found = []
    for run in runs:
        cells = histogram[run].sum(axis=0)
        rows = np.maximum(histogram[run].sum(axis=1), 0.0)
        weights = rows / rows.sum() if rows.sum() > 0.0 else np.full(len(run), 1.0 / len(run))
        table = event_table((0.0, *borders), {"": cells.tolist()}, noise.deviation * float(np.sqrt(len(run))))
        try:
            curve = survival_curve(table, "", failure / (len(runs) * len(borders)))
            observed = tuple(
                Bounded(*map(float, each)) for each in zip(curve.survival, curve.lower, curve.upper, strict=True)
            )
        except DataError:
            observed = ()
        predicted = tuple((weights @ chances.mean[run]).tolist())
        found.append(RiskGroup(float(ends[run[0]]), float(ends[run[-1] + 1]), float(cells.sum()), predicted, observed))
    return tuple(found)
