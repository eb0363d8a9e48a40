"""Evaluation of a model of counts on the parties' rows: the explained deviance, and observed against predicted rates.

With the score s = theta . x, the logarithm of the predicted rate, e the exposure and c a constant, sums over rows of

    gain       G = sum y (s - c) - e (exp(s) - exp(c))
    deviance   D = sum y log(y / (e exp(c))) - y + e exp(c)

are asked for as predicates (dpcore.predicates.count_terms).

Scores are clipped to [c - reach, c + reach], which has all but a hundredth of what a first release finds. Counts above
twice what all but a hundredth of them are below count as that. Both are part of what is measured.

With Y = sum y, E = sum e and r = Y / E, the best rate that is the same for all rows, both sums exceed those for log r
in place of c by

    k = Y (log r - c) - Y + E exp(c) >= 0,

so the share of the deviance that the model explains is (G - k) / (D - k). A third release has the rates of bins of
scores.

**Intervals** are for the noise, on these rows. Y and E are each within their noise with a quarter of the failure, so k,
which is convex in (Y, E), is within a range.

For each k of it, a share s is in the interval if the noise of G - k - s (D - k) may be as large as that, with half of
the failure (Fieller, J. R. Stat. Soc. B 16, 1954).

No interval for new rows is stated: single counts may be as large as the schema allows, so a bound for their mean would
say nothing.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from dpcore.errors import ConfigurationError
from dpcore.estimators.oracle import WHOLE, StatisticOracle, asked_part, check_left, failure_of
from dpcore.evaluation.intervals import Bounded, ratio_on_rows
from dpcore.evaluation.located_scores import Located, check_no_series, in_bins, locate, located_cells
from dpcore.evaluation.observed_bins import ObservedBin, Sums, bins_in_words, observed_bins, table
from dpcore.evaluation.options import EvaluationOptions
from dpcore.evaluation.scores import LinearScores, linear_scores
from dpcore.numbers.fixed_point import Vector
from dpcore.predicates.count_terms import deviance_bound, exposures, gain_bound
from dpcore.predicates.expressions import (
    LARGEST_LOG,
    Affine,
    And,
    Constant,
    CountDeviance,
    CountGain,
    CountShare,
    LabelAtLeast,
    LabelExposure,
    Not,
    Predicate,
)
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import Count
from dpcore.records.held_back import HeldBack, Part
from dpcore.records.schema import Schema

_OF_TERMS = Fraction(5, 7)
"""The part that gain and deviance have of the budget that is left after the first release."""
_TAILS = 0.01
"""Of scores, and of counts: few rows are beyond, and each may add more to a sum than all others."""
_BEYOND = LARGEST_LOG / 4
"""Scores beyond this are no logarithms of rates of counts up to a million over exposures from 1e-9."""


@dataclass(frozen=True)
class CountEvaluation:
    """How well a model predicts counts: the module's docstring says what the figures are."""

    rows: int
    """Of the part that was asked about, usable or not."""
    confidence: float
    explained: Bounded | None
    """The share of the deviance; None if the noise may be as large as the deviance."""
    rate: Bounded | None
    """The mean count over the mean exposure."""
    least_rate: float
    """Predictions are clipped to these rates."""
    largest_rate: float
    most: int
    """Counts above it count as it."""
    bins: tuple[ObservedBin, ...]
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
        """Observed beside predicted rates."""
        return table(self.bins)

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    def sentences(self) -> tuple[str, ...]:
        """For people."""
        least = f"{100.0 * self.confidence:g} %"
        about = "held-back rows" if self.part is not None else "rows"
        if self.explained is None:
            first = f"Explained deviance: not measured, the noise hides it on {self.rows} {about}; more epsilon helps."
        else:
            first = (
                f"Explained deviance {self.explained.estimate:.4f} on {self.rows} {about}; for the noise alone from "
                f"{self.explained.lower:.4f} to {self.explained.upper:.4f}, with probability at least {least}."
            )
        clipped = (
            f"It is that of predictions clipped to rates from {self.least_rate:.4g} to {self.largest_rate:.4g}, and of "
            f"counts clipped to {self.most}, beside the best rate that is the same for all rows."
        )
        rates = bins_in_words(self.bins, "rates")
        seen = "The model may have been trained on these rows: nothing is said about new ones."
        return (first, clipped, rates) if self.unseen else (first, clipped, rates, seen)


@dataclass(frozen=True)
class _Asked:
    """What is asked about the scores of a model, and what its answers are divided by."""

    label: Count
    scores: LinearScores
    centre: Fraction
    reach: Fraction
    form: Affine
    scale: int
    most: int
    edges: Vector
    """Of the bins, with the ends of the range that scores are clipped to."""

    @classmethod
    def of(
        cls, theta: ArrayLike, schema: Schema, where: Located, most: int, bins: int, feature_map: FeatureMap | None
    ) -> "_Asked":
        label = cast("Count", schema.label)
        low, high = (min(max(end, -_BEYOND), _BEYOND) for end in where.between(_TAILS))
        if high - low < 1e-6:
            raise ConfigurationError(
                f"the model's scores are beyond {_BEYOND:g}, so its rates are none of counts: train again"
            )
        rates = np.exp(np.clip(where.middles, low, high))
        middle = min(max(math.log(where.mean_of(rates)), low), high)
        reach = max(high - middle, middle - low)
        inside = where.quantiles(np.arange(1, bins) / bins)
        inside = inside[(inside > middle - reach) & (inside < middle + reach)]
        scores = linear_scores(theta, schema, np.array([middle - reach, *inside, middle + reach]), feature_map)
        first, *between, last = scores.edges
        step = Fraction(2) ** -scores.exponent
        half = Fraction(last - first, 2) * step
        return cls(
            label,
            replace(scores, edges=tuple(between)),
            first * step + half,
            half,
            Affine(scores.weights, scores.constant - first),
            last - first,
            most,
            np.array([float(edge * step) for edge in scores.edges]),
        )

    @property
    def terms(self) -> tuple[Predicate, ...]:
        """Gain, loss, the deviance from one rate, counts, and exposures, or rows if there are none."""
        over = LabelExposure() if self.label.coding.has_exposure else Constant(value=True)
        gain, loss = (
            CountGain(self.most, self.centre, self.form, self.scale, self.reach, is_loss) for is_loss in (False, True)
        )
        return gain, loss, CountDeviance(self.most, self.centre), CountShare(self.most), over

    @property
    def rates(self) -> tuple[Predicate, ...]:
        """Rows, counts and, if there are any, exposures, of each bin of scores."""
        places = self.scores.places()
        has = (LabelExposure(),) if self.label.coding.has_exposure else ()
        return (*in_bins(places), *(each for what in (CountShare(self.most), *has) for each in in_bins(places, what)))


def evaluate_counts(
    theta: ArrayLike,
    oracle: StatisticOracle,
    options: EvaluationOptions | None = None,
    *,
    unseen: bool | None = None,
    feature_map: FeatureMap | None = None,
) -> CountEvaluation:
    """Evaluate the rates exp(theta . x) by three releases, with the whole budget.

    theta: (d,). unseen: as for dpcore.evaluation.evaluation.evaluate. Raises what `linear_scores` and the oracle raise.
    """
    chosen = options or EvaluationOptions()
    check_no_series(oracle, "an explained deviance")
    check_left(oracle, WHOLE)
    first = chosen.edges_part
    starts, of_counts = _count_cells(oracle.schema)
    where, (counted,) = locate(theta, oracle, part=first, feature_map=feature_map, others=(of_counts,))
    most = _largest(counted.located, starts, cast("Count", oracle.schema.label).upper)
    asked = _Asked.of(theta, oracle.schema, where, most, chosen.count, feature_map)
    of_terms = oracle.statistic(asked.terms, part=(1 - first) * _OF_TERMS, feature_map=feature_map)
    of_bins = oracle.statistic(asked.rates, part=(1 - first) * (1 - _OF_TERMS), feature_map=feature_map)
    about = asked_part(oracle)
    failure = failure_of(chosen.confidence, about)
    sums, longest = Sums.of(of_terms), exposures(asked.label)[1]
    counts, over = _totals(asked, sums, failure / 4)
    over_unit = longest if asked.label.coding.has_exposure else None
    return CountEvaluation(
        rows=of_terms.rows,
        confidence=chosen.confidence,
        explained=_explained(asked, sums, counts, over, failure / 2),
        rate=ratio_on_rows(counts.estimate, most, over.estimate, longest, sums.reach(failure, 2), least=0.0),
        least_rate=math.exp(asked.centre - asked.reach),
        largest_rate=math.exp(asked.centre + asked.reach),
        most=most,
        bins=observed_bins(
            Sums.of(of_bins),
            np.exp(asked.edges),
            where.means_between(asked.edges, np.exp(np.clip(where.middles, asked.edges[0], asked.edges[-1]))),
            most,
            over_unit,
            failure,
        ),
        edges_found=where.found,
        rounding=asked.scores.rounding,
        part=about,
        unseen=about is not None and about.part is Part.HELD_BACK if unseen is None else unseen,
    )


def planned_terms(
    theta: ArrayLike, schema: Schema, options: EvaluationOptions, feature_map: FeatureMap | None = None
) -> tuple[tuple[tuple[Predicate, ...], Fraction, str, bool], ...]:
    """What `evaluate_counts` asks for: predicates, their part of the budget, what they are, and whether they are exact.

    The second and third are those of scores that are spread evenly.
    """
    grid, cells = located_cells(theta, schema, feature_map)
    spread = Located(grid, np.ones(len(cells)), found=False)
    starts, of_counts = _count_cells(schema)
    asked = _Asked.of(theta, schema, spread, starts[-1] or 1, options.count, feature_map)
    first = options.edges_part
    return (
        ((*cells, *of_counts), first, "where the scores are, and the counts", True),
        (
            asked.terms,
            (1 - first) * _OF_TERMS,
            "gains in likelihood, the deviance from one rate, counts and exposures",
            False,
        ),
        (asked.rates, (1 - first) * (1 - _OF_TERMS), "rows, counts and exposures by bin of scores", False),
    )


def _count_cells(schema: Schema) -> tuple[list[int], tuple[Predicate, ...]]:
    """The first count of each cell, and the predicates of the cells: of steps that grow by a half."""
    upper = cast("Count", schema.label).upper
    starts = [0]
    while (next_start := max(starts[-1] + 1, math.ceil(1.5 * starts[-1]))) <= upper:
        starts.append(next_start)
    reached = [LabelAtLeast(Fraction(start)) for start in starts[1:]]
    within: list[Predicate] = [And((low, Not(high))) for low, high in itertools.pairwise(reached)]
    ends: list[Predicate] = [Not(reached[0]), *within, reached[-1]]
    return starts, tuple(ends)


def _largest(counted: Vector, starts: Sequence[int], upper: int) -> int:
    """Twice the end of the first cell that all but the tail are at or below; `upper` if the noise hides all."""
    if not counted.sum():
        return upper
    last = int(np.argmax(np.cumsum(counted) >= (1.0 - _TAILS) * counted.sum()))
    return upper if last + 1 >= len(starts) else min(2 * (starts[last + 1] - 1) or 2, upper)


def _totals(asked: _Asked, sums: Sums, failure: float) -> tuple[Bounded, Bounded]:
    """Counts and exposures of all rows. failure: of each."""
    reach = sums.reach(failure)
    units = asked.most, exposures(asked.label)[1]
    counts, over = (
        _ends(unit * float(total), unit * reach) for unit, total in zip(units, sums.values[3:], strict=True)
    )
    return counts, over


def _ends(value: float, reach: float) -> Bounded:
    """Of a sum that is at least 0."""
    return Bounded(value, max(value - reach, 0.0), max(value + reach, 0.0))


def _explained(asked: _Asked, sums: Sums, counts: Bounded, over: Bounded, failure: float) -> Bounded | None:
    """The share with its interval; None if the deviance may be 0. failure: of the gain and the deviance."""
    noise, rounded = sums.noise, sums.rounded
    bound = gain_bound(asked.most, exposures(asked.label)[1], asked.centre, asked.reach)
    gain, deviance = (
        bound * float(sums.values[0] - sums.values[1]),
        deviance_bound(asked.label, asked.centre, asked.most),
    )
    spread = deviance * float(sums.values[2])
    if over.lower <= 0.0 or counts.estimate <= 0.0:
        return None
    middle = float(asked.centre)
    best = _excess(counts.estimate, over.estimate, middle)
    corners = [_excess(*pair, middle) for pair in itertools.product(_both(counts), _both(over))]
    mean = math.exp(middle)
    crosses = counts.lower <= mean * over.upper and counts.upper >= mean * over.lower
    reach = noise.reach(1, failure)

    def beyond(excess: float, share: float) -> float:
        """How far the counts are from this share, less how far noise and rounding may have moved them."""
        off = abs(gain - excess - share * (spread - excess))
        of_noise = reach * math.hypot(math.sqrt(2.0) * bound, share * deviance)
        return off - of_noise - rounded * (bound + abs(share) * deviance)

    ends = []
    for excess in (0.0 if crosses else min(corners), best, max(corners)):
        # Beyond the estimate the difference rises with a slope of this at least.
        if spread - excess <= (reach + rounded) * deviance:
            return None
        estimate = (gain - excess) / (spread - excess)
        ends += [_zero(partial(beyond, excess), estimate, side) for side in (-1.0, 1.0)]
    return Bounded((gain - best) / (spread - best), min(ends), min(max(ends), 1.0))


def _zero(rising: Callable[[float], float], start: float, side: float) -> float:
    """Where a function that rises to this side from at most 0 is 0."""
    step = 1e-3
    while rising(start + side * step) < 0.0:
        step *= 2.0
    if rising(start) >= 0.0:
        return start
    return float(optimize.brentq(rising, start, start + side * step))


def _both(ends: Bounded) -> tuple[float, float]:
    return ends.lower, ends.upper


def _excess(counts: float, over: float, middle: float) -> float:
    """The module's docstring calls it k."""
    if counts <= 0.0:
        return over * math.exp(middle)
    return counts * (math.log(counts / over) - middle) - counts + over * math.exp(middle)
