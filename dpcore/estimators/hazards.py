"""Proportional hazards in discrete time, in a few rounds: noisy counts, noisy moments, then noisy gradients.

Within interval j a record x has the event with probability 1 - exp(-exp(alpha_j + theta . x)), if it did not have it
before: exp(theta_i) is the ratio of hazards per unit of coordinate i, as in Cox's model, of which this is the grouped
form (Prentice and Gloeckler, Biometrics 34, 1978).

1. The cells of dpcore.evaluation.life_table start the baseline, with theta = 0.
2. Moments define a basis P in which records z = P x have mean zero and about one spread.
3. Each further release is the mean gradient at one point; the next point is the root of a regression over all of them,
   as in dpcore.estimators.private_newton. The curvature is about the share of records with an event along z, and u^2
   times the share with an event in interval j along alpha_j / u.

4. The covariance of the weights follows from all gradients (dpcore.estimators.errors_of_weights).

Records with a long z count less (dpcore.queries.hazard_gradient). That moves no weight if hazards are proportional and
their logarithms lines in the columns. Where they are no lines, a long column's weight is that of its bulk: `_STRETCH`
widens its error by how much less its furthest rows count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar, Protocol, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from dpcore.errors import ConfigurationError, DataError, OracleRefusedError, PlanError
from dpcore.estimators.curvatures import OfHazards
from dpcore.estimators.errors_of_weights import Answer, Errors, Released, errors_of_weights, level_places
from dpcore.estimators.hazard_scores import survival
from dpcore.estimators.oracle import WHOLE, Asked, GradientEstimate, check_left
from dpcore.estimators.private_newton import roomy_norm
from dpcore.estimators.whitened_rounds import Seen, Whitening, bounded_step, clip_of, root, wider_clip
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.predicates.expressions import And, LabelAbove, LabelIs, Not, Predicate
from dpcore.rados.distribution import NumberMoments
from dpcore.records.clipping import Basis
from dpcore.records.feature_map import FeatureMap
from dpcore.records.features import EventTime, event_time
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

_SHARE_OF_CURVATURE = 0.8
"""Of the curvature without covariates: records of high hazards leave first, and clipped ones count less."""

_CURVATURE_SPREAD = 0.5
"""Measured on rotterdam, flchain and prostate survival: with 1, ratios err up to half as much again."""

_STRETCH = 0.5
"""The deviation of a weight over itself, for each part by which a column's furthest rows count less than others."""
_LEAST_VARIANCE = 1e-3
"""Of a coordinate: noise may hide it."""

_WIDEST = Fraction(16)
"""C that is not chosen wider: queries are refused from 22 on (dpcore.queries.hazard_gradient)."""

_LEAST_EVENTS = 0.3
"""The events of an interval over those of the mean one, at least, for its curvature: noise may hide them."""

_HAZARDS = (1e-3, 0.9)
"""Bounds on an interval's hazard at the start."""


class EventTimeOracle(Asked, Protocol):
    """An oracle that answers about a label that is a time to an event, within one budget."""

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of the whole budget."""
        ...

    def statistic(self, predicates: Sequence[Predicate], *, part: Fraction = WHOLE) -> Estimates:
        """As of `StatisticOracle`."""
        ...

    def number_moments(
        self, *, part: Fraction = WHOLE, norm_bound: Fraction | None = None, feature_map: FeatureMap | None = None
    ) -> NumberMoments:
        """Moments whose t is 1 for an event within the horizon, and else -1. feature_map: as in `MomentsOracle`."""
        ...

    def hazard_gradient(
        self,
        theta: Vector,
        *,
        clip: Fraction,
        interval_weight: int,
        part: Fraction = WHOLE,
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
    ) -> GradientEstimate:
        """The mean (J + d,) of clipped gradients at theta (J + d,): dpcore.queries.hazard_gradient.

        feature_map: as in `GradientOracle`; z is then of the mapped record.
        """
        ...


@dataclass(frozen=True)
class Hazards:
    """What is learnt."""

    log_hazards: Vector
    """(J,), alpha: of a record whose coordinates are zero."""
    theta: Vector
    """(d,), that of the bias zero."""
    errors: Errors | None
    """Those of theta, and of the baseline's level in place of the bias; None without a bias or a gradient."""
    rounds: int
    """How many gradients were used."""
    refusal: str | None
    """Why there were fewer than planned."""


class ProportionalHazards(BaseEstimator):  # type: ignore[misc]  # untyped base
    """Hazard ratios and a baseline, from 2 + `rounds` releases; see the module's docstring.

    - rounds: of gradients, at least 1. cells_part, moments_part: parts of the budget's squared mu for the cells and the
      moments; the gradients share the rest equally.
    - clip: C over the root mean square of |z| and the root of twice the share of events, in the first round. Later ones
      have a wider clip if the noise of all is then below the sampling error.
    - norm_bound: the clipping norm R of the moments; None is `roomy_norm` of the schema.

    After `fit_queries`: `theta_` (d,) over the schema's coordinates; `covariance_` (d, d) of its errors and
    `sampling_` (d, d), the part of the choice of the rows, None without a bias or a gradient; `log_hazards_` (J,);
    `borders_` (J,); `rounds_done_`; `warning_`, why there were fewer, else None.
    """

    event_times: ClassVar[bool] = True
    """It learns labels that are times to an event, and no others."""
    class_labels: ClassVar[bool] = False
    measured_labels: ClassVar[bool] = False

    def __init__(
        self,
        *,
        rounds: int = 6,
        cells_part: float = 0.1,
        moments_part: float = 0.2,
        clip: float = 1.0,
        norm_bound: Fraction | None = None,
    ) -> None:
        self.rounds = rounds
        self.cells_part = cells_part
        self.moments_part = moments_part
        self.clip = clip
        self.norm_bound = norm_bound

    def fit_queries(self, oracle: EventTimeOracle) -> Self:
        """Fit by querying; returns self. If a gradient is refused, the result so far is kept.

        Raises ConfigurationError for a parameter, DataError if no event can be told from the noise, OracleRefusedError.
        """
        self._check()
        check_left(oracle)
        label = event_time(oracle.schema.label, "proportional hazards")
        learned = self._learn(oracle, label)
        self.theta_, self.log_hazards_, self.borders_ = learned.theta, learned.log_hazards, np.array(label.borders)
        self.covariance_ = None if learned.errors is None else learned.errors.covariance
        self.sampling_ = None if learned.errors is None else learned.errors.sampling
        self.rounds_done_, self.warning_ = 2 + learned.rounds, None
        if learned.refusal is not None:
            self.warning_ = f"received {self.rounds_done_} of {2 + self.rounds} releases: {learned.refusal}"
        return self

    def decision_function(self, x: Matrix) -> Vector:
        """Log hazard ratios to a record of zeros: (rows,), of encoded records (rows, d). Raises NotFittedError."""
        self._check_fitted()
        found: Vector = np.asarray(x, dtype=np.float64) @ self.theta_
        return found

    def survival(self, x: Matrix) -> Matrix:
        """The chance that each record is without the event at each border: (rows, J). Raises NotFittedError."""
        scores = self.decision_function(x)
        return survival(self.log_hazards_, scores)

    def _learn(self, oracle: EventTimeOracle, label: EventTime) -> Hazards:
        baseline = Baseline.asked(oracle, label, _part(self.cells_part))
        norm_bound = self.norm_bound or roomy_norm(oracle.schema)
        moments = oracle.number_moments(part=_part(self.moments_part), norm_bound=norm_bound)
        rounds = _Rounds(oracle, moments, baseline, self.clip, self.rounds)
        part = (1 - _part(self.cells_part) - _part(self.moments_part)) / self.rounds
        refusal = None
        for _ in range(self.rounds):
            try:
                rounds.ask(part)
            except (OracleRefusedError, PlanError) as error:
                refusal = str(error)
                break
        return rounds.learned(refusal)

    def _check(self) -> None:
        if not (isinstance(self.rounds, int | np.integer) and self.rounds >= 1):
            raise ConfigurationError(f"rounds is {self.rounds}: give at least 1")
        parts = {"cells_part": self.cells_part, "moments_part": self.moments_part}
        for name, part in parts.items():
            if not 1e-3 <= part <= 1 - 1e-3:
                raise ConfigurationError(f"{name} is {part}: give a number from 0.001 to 0.999")
        if sum(parts.values()) > 1 - 1e-3:
            raise ConfigurationError("cells_part and moments_part leave nothing for gradients: lower one of them")
        if not (np.isfinite(self.clip) and self.clip > 0):
            raise ConfigurationError(f"clip is {self.clip}: it must be finite and positive")

    def _check_fitted(self) -> None:
        if not hasattr(self, "theta_"):
            raise NotFittedError("this ProportionalHazards has no theta_: fit it to answers first")

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "theta_")


@dataclass(frozen=True, eq=False)
class Baseline:
    """What the cells of a life table say of the intervals."""

    rate: float
    """The share of records with an event within the horizon."""
    weight: int
    """u."""
    start: Vector
    """(J,), alpha / u without covariates."""
    curvatures: Vector
    """(J,), along alpha / u."""
    shares: Vector
    """(J,), of records that had the event in each interval."""
    at_risk: Vector
    """(J,), of records that were at risk in it, half of those censored."""

    @classmethod
    def asked(cls, oracle: EventTimeOracle, label: EventTime, part: Fraction) -> Self:
        """By one query. Raises DataError if no event can be told from the noise, and what the oracle raises."""
        intervals = len(label.borders)
        cells = oracle.statistic(cell_predicates(label.borders), part=part)
        shares, at_risk = _events(cells.values, intervals)
        rate = float(shares.sum())
        if rate * cells.rows <= 2.0 * np.sqrt(intervals) * cells.deviation * cells.rows or (at_risk <= 0.0).any():
            raise DataError(
                "events cannot be told from the noise in these intervals: ask with a larger epsilon, or a schema with "
                "fewer intervals or an earlier horizon"
            )
        weight = max(1, round(float(np.sqrt(intervals))))
        of_intervals = weight**2 * np.maximum(shares, _LEAST_EVENTS * rate / intervals)
        hazards = np.clip(shares / at_risk, *_HAZARDS)
        start = np.log(-np.log1p(-hazards)) / weight
        return cls(rate, weight, start, of_intervals * _SHARE_OF_CURVATURE, np.maximum(shares, 0.0), at_risk)

    @property
    def curvature(self) -> float:
        """Along z."""
        return self.rate * _SHARE_OF_CURVATURE

    @property
    def clip(self) -> float:
        """The size of a record's residuals: the root of twice the share of events, at most 1."""
        return float(np.sqrt(min(1.0, 2.0 * self.rate)))

    def level(self, log_hazards: Vector) -> float:
        """The mean of (J,) over events."""
        return float(self.shares @ log_hazards) / float(self.shares.sum())

    def with_level(
        self, answer: GradientEstimate, point: Vector, theta: Vector, constant: Vector, axes: Matrix
    ) -> Answer:
        """An answer at (J,) and theta (d,), with the derivative in the level, the sum over intervals, along `constant`.

        axes: the directions that it was about, `constant` among them.
        """
        of_z, of_intervals = answer.mean[len(point) :], answer.mean[: len(point)]
        along = of_intervals.sum() / self.weight - float(constant @ of_z)
        at = theta.copy()
        at[-1] += self.level(point * self.weight)
        noise = answer.deviation * max(1.0, float(np.sqrt(len(point))) / self.weight)
        return Answer(at, of_z + constant * along, noise, axes)


class _Rounds:
    """Gradients at one point after the other. clip: over the usual one, at first."""

    def __init__(
        self, oracle: EventTimeOracle, moments: NumberMoments, baseline: Baseline, clip: float, planned: int
    ) -> None:
        self._oracle, self._moments, self._baseline, self._planned = oracle, moments, baseline, planned
        self._bias, self._intervals = oracle.schema.bias, len(baseline.start)
        whitening = Whitening.of(moments, 0.8)
        self._constant = constant_direction(whitening.basis) if self._bias else np.zeros(moments.d)
        self._basis = _centred(whitening.basis, self._constant)
        self.clip = clip_of(clip * baseline.clip, whitening.size)
        self._curvature = np.concatenate([baseline.curvatures, np.full(moments.d, baseline.curvature)])
        start = first_step(moments, self._basis, baseline.rate) if self._bias else np.zeros(moments.d)
        self.phi: Vector = np.concatenate([baseline.start, start])
        self.seen: list[Seen] = []
        self._answers: list[Answer] = []

    def ask(self, part: Fraction) -> None:
        """One round. Raises OracleRefusedError, PlanError."""
        answer = self._oracle.hazard_gradient(
            self.phi, clip=self.clip, interval_weight=self._baseline.weight, part=part, basis=self._basis
        )
        noise = answer.deviation / self._baseline.curvature
        self.seen.append(Seen(self.phi, self.phi - answer.mean / self._curvature, noise))
        self._answers.append(self._of_level(answer))
        self.phi = bounded_step(self.phi, root(self.seen, _CURVATURE_SPREAD))
        if len(self.seen) == 1:
            wider = wider_clip(1.0 / np.sqrt(self._baseline.rate * self._moments.rows), noise / np.sqrt(self._planned))
            self.clip = max(self.clip, min(self.clip * wider, _WIDEST))

    def learned(self, refusal: str | None) -> Hazards:
        """After all rounds."""
        theta = np.asarray(self._basis.matrix.T @ self.phi[self._intervals :])
        log_hazards = self.phi[: self._intervals] * self._baseline.weight
        if self._bias:
            log_hazards, theta[-1] = log_hazards + theta[-1], 0.0
        return Hazards(log_hazards, theta, self._errors(theta, log_hazards), len(self.seen), refusal)

    def _of_level(self, answer: GradientEstimate) -> Answer:
        """The answer in the basis of `_errors`."""
        theta = np.asarray(self._basis.matrix.T @ self.phi[self._intervals :])
        point = self.phi[: self._intervals]
        return self._baseline.with_level(answer, point, theta, self._constant, np.eye(len(theta)))

    def _errors(self, theta: Vector, log_hazards: Vector) -> Errors | None:
        if not (self._answers and self._bias):
            return None
        level, with_level = self._baseline.level(log_hazards), self._basis.matrix.copy()
        with_level[:, -1] += self._constant
        loss = OfHazards(float(self.clip), self._baseline.weight, log_hazards - level, self._baseline.at_risk)
        released = Released(self._oracle.schema, self._moments, with_level, float(self.clip), loss=loss)
        stated = np.append(theta[:-1], level)
        found = errors_of_weights(stated, self._answers, released)
        others = self._baseline.weight**2 + float(self._moments.d) - 2.0
        more = stretched(theta, self._moments, self._oracle.schema, others)
        return replace(found, covariance=found.covariance + more)


def stretched(theta: Vector, moments: NumberMoments, schema: Schema, others: float) -> Matrix:
    """The covariance for columns that are no lines, (d, d): of each weight, as its furthest rows count less.

    moments: with a bias. others: a squared length of a record without its longest column.
    """
    means = moments.product_sum[-1] / moments.rows
    variances = np.maximum(np.diag(moments.product_sum) / moments.rows - np.square(means), _LEAST_VARIANCE)
    # Columns are between -1 and 1, but levels are 0 or 1.
    longest, weights = 1.0 + np.abs(means), theta.copy()
    for places in level_places(schema):
        shares = np.clip(means[places], 0.0, 1.0)
        longest[places] = np.maximum(shares, 1.0 - shares)
        # What all levels add alike is in the baseline, and no error of a ratio.
        weights[places] -= shares @ weights[places] / max(float(shares.sum()), _LEAST_VARIANCE)
    furthest = np.maximum(np.square(longest) / variances, 1.0)
    found = _STRETCH * (1.0 - np.sqrt((others + 1.0) / (others + furthest))) * weights
    found[-1] = 0.0
    return np.diag(np.square(found))


def first_step(moments: NumberMoments, basis: Basis, rate: float) -> Vector:
    """One step from zero along z, (d,): the mean of z over the events, as if all records were at risk alike.

    moments: with a bias.
    """
    # t is 1 at an event and else -1; the products with the bias are the sums of all records.
    of_events = (moments.label_sum + moments.product_sum[-1]) / 2.0
    start: Vector = basis.matrix @ of_events / (rate * moments.rows)
    return start


def cell_predicates(borders: Sequence[float]) -> tuple[Predicate, ...]:
    """Whether a row is in each cell of a label with these ends of intervals: 2 J + 1, of which one holds."""
    later: list[Predicate] = [LabelAbove(Fraction(border)) for border in borders]
    within = [And((earlier, Not(end))) for earlier, end in pairwise(later)]
    intervals: list[Predicate] = [Not(later[0]), *within]
    happened, censored = LabelIs(positive=True), LabelIs(positive=False)
    return (*(And((happened, each)) for each in intervals), *(And((censored, each)) for each in intervals), later[-1])


def _part(part: float) -> Fraction:
    return Fraction(part).limit_denominator(10**6)


def _events(cells: Vector, intervals: int) -> tuple[Vector, Vector]:
    """Of each interval, the share of rows that had the event in it, and that was at risk, half of those censored."""
    events, censored = cells[:intervals], cells[intervals:-1]
    later = np.cumsum((events + censored)[::-1])[::-1]
    return events, later + cells[-1] - censored / 2.0


def _centred(basis: Basis, constant: Vector) -> Basis:
    """The basis without this direction: records z then have mean zero."""
    return Basis.of(basis.matrix - np.outer(constant, constant @ basis.matrix)) if constant.any() else basis


def constant_direction(basis: Basis) -> Vector:
    """The direction of length 1, (d,), along which all records z = P x with a bias have the same coordinate."""
    # c . z = 1 for every record, and E z = c where E z z^T = I.
    constant = np.linalg.solve(basis.matrix.T, np.eye(basis.d)[-1])
    found: Vector = constant / np.linalg.norm(constant)
    return found
