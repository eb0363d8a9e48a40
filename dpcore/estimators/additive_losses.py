"""What the rounds of an additive model ask, by its label: of which loss gradients are, and where they start.

    two classes       the logistic loss, from moments of edges
    several classes   the multinomial logistic loss (dpcore.estimators.class_additive)
    a number          least squares, clipped by the size of residuals (dpcore.estimators.number_newton)
    a count           the Poisson likelihood; the intercept is corrected for clipping at the end
    time to an event  proportional hazards, with a baseline (dpcore.estimators.hazards)

The weights of numbers, counts and times start at those of least squares of the label's t, shrunk group by group. Their
sampling variance counts too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol, cast

import numpy as np

from dpcore.estimators.additive_products import products_of_terms
from dpcore.estimators.additive_rounds import GradientRounds, KeptDirections, Loss, Prior, shrunk_first
from dpcore.estimators.additive_terms import AdditiveTerms, Directions
from dpcore.estimators.class_additive import ClassRounds
from dpcore.estimators.class_weights import Given, Weighing, weigh
from dpcore.estimators.column_covariances import ColumnCovariances
from dpcore.estimators.curvatures import Curvatures, OfCounts, OfHazards, OfNumbers
from dpcore.estimators.errors_of_weights import Answer, Released
from dpcore.estimators.hazards import Baseline, EventTimeOracle, constant_direction, first_step
from dpcore.estimators.number_newton import CURVATURE_OF_COUNTS, LONGEST_STEP_OF_COUNTS, WIDEST, CountMoments
from dpcore.estimators.oracle import ClassOracle, GradientEstimate, NumberOracle, Oracle
from dpcore.estimators.private_newton import CURVATURE, sampling_of
from dpcore.estimators.whitened_rounds import LONGEST_STEP, Whitening, clip_of, wider_clip
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.rados.distribution import NumberMoments
from dpcore.records.clipping import Basis
from dpcore.records.features import Count, event_time, measured
from dpcore.records.losses import LossName

NORM_SHARE = 0.8
"""R^2 of the moments is 1 plus this share of the mean squared length that the histograms suggest (measured tables)."""

EDGE_WEIGHT = Fraction(1, 3)
"""The weight of edges in the moments over R. They only give the first weights, so noise is kept off the products: with
1/sqrt(2) models err 0.11 points more on average, on six sets at epsilon 0.5 and 1."""

CELLS_PART = Fraction(1, 20)
"""The part of the budget for the cells of a time to an event."""

_LEAST_VARIANCE, _LEAST_RESIDUAL = 1e-9, 0.01
"""Of t, and the least residual variance over it: less cannot be told from noise."""

CLIP, CLIP_OF_CLASSES, CLIP_OF_NUMBERS, CLIP_OF_HAZARDS = 0.28, 0.4, 1.5, 1.0
SHRINKAGE, SHRINKAGE_OF_CLASSES = 0.03, 0.5
"""What `clip` and `shrinkage` are by default, of two classes, numbers, counts and times, and of several classes."""


class Rounds(Protocol):
    """The rounds of a fit: `GradientRounds`, and `ClassRounds` of several classes."""

    @property
    def asked(self) -> list[int]:
        """How many directions each gradient was about."""
        ...

    @property
    def groups(self) -> dict[str, float]:
        """The variance that each group of terms was given."""
        ...

    def ask(self, part: Fraction, left: int) -> None:
        """Ask for one more gradient, of which `left` more follow."""
        ...

    @property
    def theta(self) -> Vector | Matrix:
        """The weights of the terms."""
        ...


@dataclass(frozen=True)
class LossSettings:
    """clip, shrinkage: as of `PrivateAdditive`; None for what is usual. part: of the moments."""

    part: Fraction
    clip: float | None
    shrinkage: float | None
    directions: Directions
    class_weight: Given = None
    """As of `PrivateAdditive`, of classes."""

    def clip_or(self, usual: float) -> float:
        """The clip, if one is given."""
        return usual if self.clip is None else self.clip

    def shrinkage_or(self, usual: float) -> float:
        """The shrinkage, if one is given."""
        return usual if self.shrinkage is None else self.shrinkage


def norm_of(terms: AdditiveTerms) -> Fraction:
    """R of the moments."""
    return Fraction(float(np.sqrt(NORM_SHARE * terms.mean_square + 1.0))).limit_denominator(100)


def rounds_of_two_classes(
    oracle: Oracle, terms: AdditiveTerms, settings: LossSettings
) -> tuple[GradientRounds, Released, Weighing]:
    """The rounds of two classes, what their errors need, and the class weights."""
    norm, feature_map = norm_of(terms), terms.feature_map
    asked = oracle.moments(part=settings.part, norm_bound=norm, edge_weight=EDGE_WEIGHT * norm, feature_map=feature_map)
    weighing, moments = weigh(settings.class_weight, oracle.schema.label, asked)
    whitening = Whitening.cleaned(moments, settings.shrinkage_or(SHRINKAGE))
    clip, basis = settings.clip_or(CLIP), whitening.basis.matrix

    def gradient(phi: Vector, clip: Fraction, part: Fraction, basis: Basis) -> GradientEstimate:
        options = {"basis": basis, "feature_map": feature_map, **weighing.asked}
        return weighing.answer(oracle.gradient(phi, clip=clip, part=part, **options))

    # The minimiser of the loss's second-order expansion at zero.
    first = 2.0 * (basis @ moments.edge_sum) / moments.rows
    noise = (2.0 * moments.edge_noise / moments.rows) ** 2 * (basis @ basis.T) + 4.0 / moments.rows * np.eye(moments.d)
    first, _ = shrunk_first(Prior.of(terms.groups, basis), first, noise)
    loss = Loss(gradient, clip, CURVATURE, sampling_of(clip, moments.rows))
    released = Released(oracle.schema, moments, basis, float(clip_of(clip, whitening.size)), feature_map)
    return GradientRounds(loss, terms, whitening, settings.directions, first), released, weighing


def rounds_of_classes(
    oracle: ClassOracle, terms: AdditiveTerms, settings: LossSettings
) -> tuple[ClassRounds, Weighing]:
    """Those of several classes, and the class weights."""
    feature_map = terms.feature_map
    asked = oracle.class_moments(part=settings.part, norm_bound=norm_of(terms), feature_map=feature_map)
    weighing, moments = weigh(settings.class_weight, oracle.schema.label, asked)
    shrinkage = settings.shrinkage_or(SHRINKAGE_OF_CLASSES)
    whitening = Whitening.of(moments, shrinkage)
    clip, basis = clip_of(settings.clip_or(CLIP_OF_CLASSES), whitening.size), whitening.basis
    options = {"clip": clip, "basis": basis, "feature_map": feature_map, **weighing.asked}
    rounds = ClassRounds(
        lambda phi, part: weighing.answer(oracle.class_gradient(phi, part=part, **options)),
        moments,
        basis.matrix,
        float(clip),
        terms,
        shrinkage,
        settings.directions,
    )
    return rounds, weighing


class NumberRounds(GradientRounds):
    """Those of a number or a count."""

    def __init__(self, oracle: NumberOracle, terms: AdditiveTerms, settings: LossSettings) -> None:
        label, feature_map = measured(oracle.schema.label, "an additive model"), terms.feature_map
        self._moments = moments = oracle.number_moments(
            part=settings.part, norm_bound=norm_of(terms), feature_map=feature_map
        )
        self._counts: CountMoments | None = None
        if isinstance(label, Count):
            self._counts = CountMoments(moments, ColumnCovariances.as_released(moments), label)
        whitening = Whitening.cleaned(moments, settings.shrinkage_or(SHRINKAGE))
        theta, variance = _least_squares(moments, terms, whitening.basis.matrix)
        residual = float(np.sqrt(variance))
        residual = residual if self._counts is None else self._counts.residual(residual)
        curvature = 1.0 if self._counts is None else CURVATURE_OF_COUNTS * self._counts.mean
        name: LossName = "squared" if self._counts is None else "poisson"

        def gradient(phi: Vector, clip: Fraction, part: Fraction, basis: Basis) -> GradientEstimate:
            return oracle.number_gradient(phi, loss=name, clip=clip, part=part, basis=basis, feature_map=feature_map)

        relative = settings.clip_or(CLIP_OF_NUMBERS)
        clip, self._wide_clip = relative * residual, max(relative, WIDEST) * residual
        longest = LONGEST_STEP if self._counts is None else LONGEST_STEP_OF_COUNTS
        loss = Loss(gradient, clip, curvature, (residual / curvature) ** 2 / moments.rows, longest)
        if self._counts is not None:
            theta = self._counts.with_intercept(theta * self._counts.factor)
        first = np.asarray(np.linalg.solve(whitening.basis.matrix.T, theta), dtype=np.float64)
        super().__init__(loss, terms, whitening, settings.directions, first)
        self._intercept = 0.0
        products = products_of_terms(terms, moments, oracle.schema)
        self._released = Released(oracle.schema, moments, whitening.basis.matrix, 0.0, feature_map, products=products)
        self._variance = variance

    def errors(self) -> Matrix | None:
        """The covariance (d, d); that of the corrected intercept counts all of the correction."""
        uncorrected = super().theta
        clip, counts = float(clip_of(self._loss.clip, self._whitening.size)), self._counts
        loss: Curvatures = OfNumbers(clip, self._variance)
        if counts is not None:
            loss = OfCounts(clip, counts.mean, counts.dispersion(self._variance))
        found = self.covariance(replace(self._released, clip=clip, loss=loss), uncorrected)
        if found is not None:
            found[-1, -1] += (self.theta[-1] - uncorrected[-1]) ** 2
        return found

    def ask(self, part: Fraction, left: int) -> None:
        """See `GradientRounds`. Of counts with an exposure the last gradient, whose clip is wide, corrects them."""
        if self._counts is None or not self._counts.has_exposure:
            super().ask(part, left)
            if len(self.asked) == 1:
                self._widen(left)
        elif left:
            super().ask(part, left - 1)
        else:
            whitening, theta = self._whitening, super().theta
            clip = clip_of(self._wide_clip, whitening.size)
            answer = self._loss.gradient(self.phi, clip, part, whitening.basis)
            self._intercept = float(self._counts.corrected_by(answer, theta, whitening.basis.matrix)[-1] - theta[-1])
            self.asked.append(len(theta))

    def _widen(self, left: int) -> None:
        """Clip less from now on if the noise of all answers is below the sampling error: that moves weights less."""
        noise = self._seen[-1].noise / float(np.sqrt(1.0 + left))
        wider = wider_clip(float(np.sqrt(self._loss.sampling)), noise)
        self._loss = replace(self._loss, clip=self._loss.clip * float(wider))

    @property
    def theta(self) -> Vector:
        """See `GradientRounds`; of counts with the corrected intercept."""
        theta = super().theta
        if self._counts is None:
            return theta
        if not self._counts.has_exposure:
            return self._counts.corrected(theta)
        theta[-1] += self._intercept
        return theta


def _least_squares(moments: NumberMoments, terms: AdditiveTerms, basis: Matrix) -> tuple[Vector, float]:
    """Theta (d,) of the least squares of t, shrunk, and the residual variance of t. basis: P."""
    m = moments.rows
    # Without its mean, so that no slope makes up for a mean that shrinks.
    mean = float(moments.label_sum[-1]) / m
    variance = max(moments.square_sum / m - mean**2, _LEAST_VARIANCE)
    centred = moments.label_sum - mean * moments.product_sum[-1]
    centred[-1] = 0.0
    of_sums = moments.sum_noise**2 + np.square(mean * moments.product_noise[-1])
    noise = (basis * of_sums) @ basis.T / m**2 + variance / m * np.eye(moments.d)
    found, explained = shrunk_first(Prior.of(terms.groups, basis), basis @ centred / m, noise)
    theta = basis.T @ found
    theta[-1] += mean
    return theta, max(variance - max(explained, 0.0), _LEAST_RESIDUAL * variance)


class HazardRounds(GradientRounds):
    """Those of a time to an event."""

    def __init__(self, oracle: EventTimeOracle, terms: AdditiveTerms, settings: LossSettings) -> None:
        label, feature_map = event_time(oracle.schema.label, "an additive model"), terms.feature_map
        baseline = Baseline.asked(oracle, label, CELLS_PART)
        moments = oracle.number_moments(part=settings.part, norm_bound=norm_of(terms), feature_map=feature_map)
        whitening = Whitening.cleaned(moments, settings.shrinkage_or(SHRINKAGE))
        self._weight, basis = baseline.weight, whitening.basis.matrix

        def gradient(point: Vector, clip: Fraction, part: Fraction, basis: Basis) -> GradientEstimate:
            weight = baseline.weight
            return oracle.hazard_gradient(
                point, clip=clip, interval_weight=weight, part=part, basis=basis, feature_map=feature_map
            )

        kept, first = KeptDirections.every(moments.d), np.zeros(moments.d)
        if oracle.schema.bias:
            # The baseline has what all records have in common.
            constant = constant_direction(whitening.basis)
            axes = np.linalg.svd(constant[np.newaxis])[2][1:].T
            kept = KeptDirections(axes)
            reached = axes.T @ first_step(moments, whitening.basis, baseline.rate)
            spread = axes.T @ basis @ basis.T @ axes
            deviation = moments.sum_noise / (2.0 * baseline.rate * moments.rows)
            noise = deviation**2 * spread + np.eye(len(reached)) / (baseline.rate * moments.rows)
            first = axes @ shrunk_first(Prior.of(terms.groups, basis).moved(axes.T), reached, noise)[0]
        sampling = 1.0 / (baseline.curvature * moments.rows)
        loss = Loss(
            gradient,
            settings.clip_or(CLIP_OF_HAZARDS) * baseline.clip,
            baseline.curvature,
            sampling,
            of_baseline=baseline.curvatures,
        )
        super().__init__(loss, terms, whitening, settings.directions, first, kept=kept, baseline=baseline.start)
        self._bias, self._of_intervals = oracle.schema.bias, baseline
        self._constant = constant_direction(whitening.basis)
        clip = float(clip_of(loss.clip, whitening.size_along(kept.axes)))
        products = products_of_terms(terms, moments, oracle.schema)
        self._released = Released(oracle.schema, moments, self._with_level, clip, feature_map, products=products)

    def errors(self) -> Matrix | None:
        """The covariance (d, d), of the baseline's level in place of the bias; None without a bias or an answer."""
        if not self._bias:
            return None
        log_hazards, released = self.log_hazards, self._released
        level = self._of_intervals.level(log_hazards)
        loss = OfHazards(released.clip, self._weight, log_hazards - level, self._of_intervals.at_risk)
        return self.covariance(replace(released, loss=loss), np.append(self.theta[:-1], level))

    def _stated(self, answer: GradientEstimate, axes: Matrix) -> Answer:
        """See `GradientRounds`; with the level."""
        theta, along = super().theta, self._constant[:, np.newaxis]
        return self._of_intervals.with_level(answer, self.baseline, theta, self._constant, np.hstack([axes, along]))

    @property
    def _with_level(self) -> Matrix:
        """The basis in which records z without the constant direction have the coordinate 1 along it."""
        basis, constant = self._whitening.basis.matrix, self._constant
        found: Matrix = basis - np.outer(constant, constant @ basis)
        found[:, -1] += constant
        return found

    @property
    def theta(self) -> Vector:
        """See `GradientRounds`; that of the bias is zero."""
        theta = super().theta
        if self._bias:
            theta[-1] = 0.0
        return theta

    @property
    def log_hazards(self) -> Vector:
        """(J,), of a record whose mapped coordinates are zero, but for the bias."""
        return self.baseline * self._weight + (float(super().theta[-1]) if self._bias else 0.0)


def rounds_of(
    oracle: Oracle, terms: AdditiveTerms, settings: LossSettings
) -> tuple[Rounds, Callable[[], Matrix | None], Weighing]:
    """The rounds for the oracle's label, what gives the covariance of the weights, if known, and the class weights."""
    # An oracle answers what the protocol for its label lists.
    coding = oracle.schema.label.coding
    if coding.classes:
        of_classes, weighing = rounds_of_classes(cast("ClassOracle", oracle), terms, settings)
        return of_classes, lambda: None, weighing
    if coding.is_measured:
        of_numbers = NumberRounds(cast("NumberOracle", oracle), terms, settings)
        return of_numbers, of_numbers.errors, Weighing()
    if coding.intervals:
        of_hazards = HazardRounds(cast("EventTimeOracle", oracle), terms, settings)
        return of_hazards, of_hazards.errors, Weighing()
    rounds, released, weighing = rounds_of_two_classes(oracle, terms, settings)
    return rounds, lambda: rounds.covariance(released), weighing
