"""Before anything is asked: how many coefficients of a training the budget can measure, as far as sizes say.

Noise on a mean gradient of a record's whitened coordinates has the deviation 2 C / (mu sqrt(1 - first) m), C the clip
in units of the score; over the curvature it is that of a weight of a column that varies by 1.

A weight's own deviation is that over its column's, and `learner.uncertainty.measurable` says which are too wide.

What only rows tell is assumed, twice: as on most public tables (`_USUAL`), and as on those whose columns nearly
determine one another, whose levels and events are rare, and whose label varies little (`_UNFAVOURABLE`). Both are said,
and a plan warns by the second. It is an estimate, and no claim; how near it comes is in docs/how-to/coefficients.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.accounting.gaussian import gaussian_mu
from dpcore.accounting.noise_shares import PRODUCT_WEIGHT, moments_squared, number_moments_squared
from dpcore.estimators.curvatures import OfCounts, OfHazards, OfLogOdds
from dpcore.estimators.errors_of_least_squares import WIDENED_OF_LEAST_SQUARES
from dpcore.estimators.errors_of_numbers import OF_CLIPPED, WIDENED_OF_ROUNDS, Doubts
from dpcore.estimators.errors_of_weights import level_places
from dpcore.estimators.private_newton import (
    CLIP_OF_LOG_ODDS,
    USUAL,
    USUAL_OF_COUNTS,
    USUAL_OF_NUMBERS,
    WIDENED,
    WIDENED_OF_LOG_ODDS,
    roomy_norm,
)
from dpcore.queries.moments import edge_multiplier, label_multiplier
from dpcore.queries.statement import LARGE_EPSILON
from dpcore.records.clipping import Clip
from dpcore.records.coding import Coding
from dpcore.records.schema import Schema
from learner.report.coefficients import effects
from learner.uncertainty import FACTOR, MOST_HALF_WIDTH, OF_CLASSES, Limits, measurable_widths

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Assumed:
    """What a schema does not say of rows."""

    spreads: tuple[float, ...]
    """What others do not explain of a number between -1 and 1: deviations of columns, each as frequent as another."""
    flag_variance: float
    """Of a flag, 1 or -1, that others do not explain."""
    is_first_largest: bool
    """The first level, with which others are compared, is the most frequent, and not the rarest."""
    level_left: float
    """What other columns do not explain of the variance of a level."""
    label: float
    """The deviation of a number, over half of its range."""
    events: float
    """The share of records that have the event."""
    lost: Mapping[str, float]
    """How much the noise on moments hides of what a column varies by, see `_product_noise`, by the kind of label."""


_USUAL = Assumed(
    *((0.15, 0.25, 0.35, 0.45, 0.55), 0.75, True, 1.0, 0.3, 0.3),
    {"signs": 2.0, "count": 0.5, "number": 1.5, "event-time": 1.0},
)
"""A flag is true in a quarter of the rows, three of ten records have the event. Chosen on the documentation's tables;
columns of labels without classes are centred (dpcore.estimators.column_covariances)."""
_UNFAVOURABLE = Assumed(
    *((0.04, 0.06, 0.1, 0.15, 0.25), 0.08, False, 0.5, 0.1, 0.05),
    {"signs": 2.0, "count": 1.0, "number": 2.5, "event-time": 6.0},
)
"""A flag is true in one of fifty rows, one of twenty records has the event. The spreads are those of weights and sizes
of the same animals (abalone), the others as on adult, flchain and prostate survival."""
_LEAST_KNOWN = 0.003
"""As of dpcore.estimators.errors_of_weights."""
_LEAST = 0.5
"""The share of coefficients that must be measurable."""
_HONEST = 0.75
"""The share of the parties that are honest, where their number is not known: three of four."""
_MOST_ROWS = 1 << 40
_CLOSE = 0.01
"""Of the logarithm to base 2 of what is searched."""


@dataclass(frozen=True)
class _Training:
    """What sets the errors of an estimator's weights."""

    clip: float
    """C over sqrt(d), in units of the score."""
    curvature: float
    """Of the loss along a coordinate of deviation 1."""
    square: float
    """The mean square of a gradient along it."""
    part: float
    """Of the budget's squared mu that gradients have."""
    widened: float
    """As of `Curvatures`."""
    moments_part: float
    """Of the budget's squared mu, for moments, which tell how columns vary together."""
    is_of_moments: bool = False
    """No gradient is asked: weights are those of the moments."""
    doubts: Doubts | None = None
    """Of a number (dpcore.estimators.errors_of_numbers)."""

    @classmethod
    def of(cls, name: str, estimator: Any, schema: Schema, events: float) -> Self | None:
        """Of an estimator with its options; None if it states no coefficients with intervals.

        events: the share of records that have the event.
        """
        coding = schema.label.coding
        if not schema.bias or coding.classes:
            return None
        if name == "linear" and coding.kind == "number":
            linear = WIDENED_OF_LEAST_SQUARES, 1.0
            return cls(0.0, 1.0, 1.0 / 16.0, 1.0, *linear, is_of_moments=True, doubts=Doubts())
        if name == "hazards" and coding.intervals:
            part = 1.0 - estimator.cells_part - estimator.moments_part
            clip, curvature = estimator.clip * math.sqrt(2.0 * events), 0.8 * events
            return cls(clip, curvature, events, part, OfHazards.widened, estimator.moments_part)
        return cls._of_newton(estimator, coding) if name == "newton" and not coding.intervals else None

    @classmethod
    def _of_newton(cls, estimator: Any, coding: Coding) -> Self:
        usual = {"count": USUAL_OF_COUNTS, "number": USUAL_OF_NUMBERS}.get(coding.kind, USUAL)
        clip = usual.clip if estimator.clip is None else float(estimator.clip)
        first = usual.moments_part if estimator.moments_part is None else float(estimator.moments_part)
        part = 1.0 - first
        if coding.kind == "count":
            # Over the mean count; a residual is 1.5 times it.
            return cls(1.5 * clip, 0.85, 2.25, part, OfCounts.widened, first)
        if coding.kind == "number":
            # A residual is an eighth of the label's range, and two of three gradients are not clipped.
            return cls(clip / 4.0, 0.68, 1.0 / 16.0, part, WIDENED_OF_ROUNDS, first, doubts=OF_CLIPPED)
        curvature = min(0.15, 0.2 * clip)
        widened = WIDENED_OF_LOG_ODDS if clip >= CLIP_OF_LOG_ODDS else WIDENED * OfLogOdds.widened
        return cls(clip, curvature, curvature, part, widened, first)

    def variance(self, d: int, rows: float, mu: float, moved: float) -> float:
        """Of a weight whose column has deviation 1, for noise, the choice of the rows, and clipping of long tails.

        moved: as of `Doubts`.
        """
        noise = 2.0 * self.clip * math.sqrt(d) / (mu * math.sqrt(self.part) * rows)
        return (noise**2 + self.square * (1.0 / rows + moved**2)) / self.curvature**2


@dataclass(frozen=True)
class ExpectedCoefficients:
    """The coefficients of a training over so many rows, within a budget."""

    training: _Training
    schema: Schema
    rows: float
    epsilon: Fraction
    delta: Fraction
    honest: float = _HONEST
    """The share of the parties that are honest: noise is calibrated to theirs."""
    assumed: Assumed = _USUAL
    unfavourable: "ExpectedCoefficients | None" = None
    """The same under `_UNFAVOURABLE`."""

    @classmethod
    def of(
        cls,
        name: str,
        estimator: Any,
        schema: Schema,
        rows: int,
        epsilon: Fraction,
        delta: Fraction,
        *,
        honest: float = _HONEST,
    ) -> Self | None:
        """Of an estimator with its options; None if it states no coefficients, or no rows are known."""
        trainings = [_Training.of(name, estimator, schema, each.events) for each in (_USUAL, _UNFAVOURABLE)]
        usual, unfavourable = trainings
        if usual is None or unfavourable is None or rows <= 0 or delta <= 0 or len(effects(schema)) <= 1:
            return None
        worse = cls(unfavourable, schema, rows, epsilon, delta, honest, _UNFAVOURABLE)
        return cls(usual, schema, rows, epsilon, delta, honest, unfavourable=worse)

    @property
    def share(self) -> float:
        """Of the coefficients, without the intercept, those that can be measured, on tables as most are."""
        return self._share_of(self.rows, float(gaussian_mu(self.epsilon, self.delta)))

    @property
    def least_share(self) -> float:
        """The same where columns nearly determine one another, and levels and events are rare."""
        return self.share if self.unfavourable is None else min(self.share, self.unfavourable.share)

    @property
    def count(self) -> int:
        """How many coefficients there are, without the intercept."""
        return len(self._combinations)

    def warning(self) -> str | None:
        """That more than half of the coefficients may not be measured, and what would help; None if they will."""
        least, share = self.least_share, self.share
        if least >= _LEAST:
            return None
        few, usual = round(least * self.count), round(share * self.count)
        found = f"between {few or 'none'} and about {usual}"
        if few == usual:
            found = f"about {usual}" if usual else "none"
        said = (
            f"at epsilon {float(self.epsilon):.4g} over {self.rows:,.0f} rows {found} of {self.count} coefficients "
            "can be measured, as estimated from the numbers of rows and columns: fewer if columns determine one "
            "another, or if levels and events are rare. The others will be stated as not measurable. Predictions may "
            "still be good."
        )
        helps = [] if share >= _LEAST else self.enough()
        if helps:
            said += f" To measure half of them it would take {' or '.join(helps)}."
        worse = [] if self.unfavourable is None else self.unfavourable.enough()
        if worse and worse != helps:
            said += f" At worst half of them take {' or '.join(worse)}."
        return said

    def enough(self) -> list[str]:
        """What would measure half of them."""
        return [*self._rows_that_do(), *self._epsilon_that_does()]

    @cached_property
    def _combinations(self) -> Floats:
        return np.array([weights for name, _, weights in effects(self.schema) if name != "intercept"])

    @cached_property
    def _variances(self) -> Floats:
        """Of columns that others do not explain: (spreads, d)."""
        assumed = self.assumed
        found = np.ones((len(assumed.spreads), self.schema.d))
        reals = {each.name for each in self.schema.numbers}
        for place, name in enumerate(self.schema.coordinates[:-1]):
            found[:, place] = np.square(assumed.spreads) if name in reals else assumed.flag_variance
        for places in level_places(self.schema):
            shares = 1.0 / np.arange(1.0, len(places) + 1.0)
            shares /= shares.sum()
            found[:, places] = assumed.level_left * (shares if assumed.is_first_largest else shares[::-1])
            if assumed.is_first_largest:
                # The largest level is the first of one spread, and has the mean share.
                found[:, places[0]] = assumed.level_left / len(places)
        return found

    @cached_property
    def _is_column(self) -> NDArray[np.bool_]:
        """Which weights are of numbers and flags, (d,)."""
        found = np.ones(self.schema.d, dtype=np.bool_)
        found[-1] = False
        for places in level_places(self.schema):
            found[places] = False
        return found

    @cached_property
    def _product_noise(self) -> float:
        """The sensitivity of a product of two columns in the moments, which the noise hides by its deviation times mu.

        A symmetric noise of deviation s in d dimensions moves eigenvalues by up to 2 s sqrt(d).
        """
        clip = Clip(roomy_norm(self.schema), bias=True)
        if self.schema.label.coding.has_value:
            squared = number_moments_squared(clip, 0, label_multiplier(clip.norm_bound))
        else:
            squared = moments_squared(clip, 0, edge_multiplier(clip.norm_bound, 0))
        return math.sqrt(squared) / PRODUCT_WEIGHT

    def _share_of(self, rows: float, mu: float) -> float:
        limits = self._limits
        mu *= math.sqrt(self.honest)
        each: float | Floats = self.training.variance(self.schema.d, rows, mu, self._moved)
        noise = self._product_noise / (mu * math.sqrt(self.training.moments_part) * rows)
        if self.training.is_of_moments:
            # The noise is on sums over the columns as they are.
            each = each + noise**2 / self._variances
        doubts, lost = self.training.doubts, self.assumed.lost[self.schema.label.coding.kind]
        known = np.maximum(1.0 - lost * noise * math.sqrt(self.schema.d) / self._variances, _LEAST_KNOWN)
        prior = np.full(self._variances.shape, limits.prior)
        if doubts is not None:
            prior[:, self._is_column] = self.assumed.label / np.sqrt(self._variances[:, self._is_column])
        variances = 1.0 / (np.square(1.0 / prior) + self._variances * known / each)
        if doubts is not None:
            unknown = self._is_column & (variances > np.square(doubts.left * prior))
            variances = variances + np.where(unknown, (2.0 * limits.prior) ** 2, 0.0)
        variances = self.training.widened * variances
        widths = FACTOR * np.sqrt(np.square(self._combinations) @ variances.T)
        stated = [
            measurable_widths(column, self._combinations, limits) & (column <= MOST_HALF_WIDTH) for column in widths.T
        ]
        return float(np.mean(stated))

    @property
    def _moved(self) -> float:
        """What is allowed for long tails; on most tables what is allowed for columns is enough for both."""
        return self.training.doubts.moved if self.training.doubts and self.assumed is _UNFAVOURABLE else 0.0

    @property
    def _limits(self) -> Limits:
        coding = self.schema.label.coding
        if coding.intervals or coding.is_measured:
            return Limits.of(self.schema.label, is_rate=coding.kind == "count")
        return OF_CLASSES

    def _rows_that_do(self) -> list[str]:
        mu = float(gaussian_mu(self.epsilon, self.delta))
        most = math.log2(_MOST_ROWS / self.rows)
        found = _least(lambda power: self._share_of(self.rows * 2.0**power, mu) >= _LEAST, most)
        return [] if found is None else [f"about {_two_digits(self.rows * 2.0**found):,.0f} rows"]

    def _epsilon_that_does(self) -> list[str]:
        def does(power: float) -> bool:
            return self._share_of(self.rows, float(gaussian_mu(float(self.epsilon) * 2.0**power, self.delta))) >= _LEAST

        found = _least(does, math.log2(max(LARGE_EPSILON / float(self.epsilon), 1.0)))
        return [] if found is None else [f"an epsilon of about {_two_digits(float(self.epsilon) * 2.0**found):g}"]


def few_coefficients(
    name: str,
    estimator: Any,
    schema: Schema,
    rows: int,
    epsilon: Fraction,
    delta: Fraction,
    *,
    honest: float = _HONEST,
) -> str | None:
    """The warning that a training will state most coefficients as not measurable, and what would help.

    None if it will not, if the estimator states no coefficients, or if no rows are known. honest: the share of the
    parties whose noise counts under collusion.
    """
    expected = ExpectedCoefficients.of(name, estimator, schema, rows, epsilon, delta, honest=honest)
    return None if expected is None else expected.warning()


def _least(does: Callable[[float], bool], most: float) -> float | None:
    """The least power up to `most` that does, from above; None if none does."""
    if not does(most):
        return None
    below, above = 0.0, most
    while above - below > _CLOSE:
        middle = (below + above) / 2.0
        below, above = (below, middle) if does(middle) else (middle, above)
    return above


def _two_digits(value: float) -> float:
    """Rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(round(value / unit, 9)) * unit:.12g}")
