"""Numbers and counts in a few rounds: noisy moments once, then noisy gradients in whitened coordinates.

Of a number the gradient is that of least squares, of a count that of a Poisson regression with the logarithm as link
and an exposure as offset.

The first release gives the start, and how large residuals are: by that gradients are clipped, so that noise is as small
as what it hides. The rounds are those of dpcore.estimators.private_newton; the curvature of a record in a whitened
direction is 1 for a number, and in proportion to the mean of the label for a count.

Clipping moves the rate of counts, because the largest counts lose most, so the intercept is corrected at the end:

- Without exposures by the moments: they show the mean of the label, and that of exp(theta . x) as if theta . x were
  normal.
- With exposures by the last round, whose clip is several times as wide: its intercept shows by how much both differ.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError
from dpcore.estimators.curvatures import Curvatures, OfCounts, OfNumbers
from dpcore.estimators.errors_of_weights import Answer, Errors, Released, errors_of_weights
from dpcore.estimators.least_squares import residuals, solve
from dpcore.estimators.oracle import GradientEstimate, NumberOracle
from dpcore.estimators.whitened_rounds import Seen, Whitening, bounded_step, clip_of, root, wider_clip
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.rados.distribution import NumberMoments
from dpcore.records.features import Count, measured
from dpcore.records.losses import LossName

WIDER = 4.0
"""The clip of the last round over that of the others, of counts with an exposure."""

_CURVATURE_OF_COUNTS = 1.4
"""Of a record in a whitened direction, over the mean of the label: exp bends upwards."""

_LEAST_SHARE = 1e-3
"""The least mean of a count over its upper bound: noise may hide it."""

_LONGEST_STEP_OF_COUNTS = 1.0
"""In whitened units: exp(theta . x) is no line."""

_LARGEST_VARIANCE = 1.0
"""Of theta . x, in the correction of the intercept."""


@dataclass(frozen=True)
class Learned:
    """What the rounds end with."""

    theta: Vector
    """(d,), of a number for its t, of a count for the logarithm of its rate."""
    rounds: int
    """The number of gradients that were used."""
    residual_variance: float
    """Of t under the least squares of the moments."""
    r2: float
    """Of these least squares."""
    refusal: str | None
    """Why there were fewer rounds than planned."""
    errors: Errors | None
    """Those of theta; None without a gradient."""


@dataclass(frozen=True)
class NumberSettings:
    """moments_part, clip, shrinkage: as of `PrivateNewton`, the clip also over the root of the residual variance."""

    moments_part: Fraction
    clip: float
    shrinkage: float
    rounds: int


def learn(oracle: NumberOracle, settings: NumberSettings, norm_bound: Fraction | None) -> Learned:
    """Ask for moments, then for gradients. Raises ConfigurationError, OracleRefusedError for the first refusal."""
    label = measured(oracle.schema.label, "a regression in rounds")
    if not oracle.schema.bias:
        raise ConfigurationError("a regression needs an intercept: set bias = true in the schema")
    moments = oracle.number_moments(part=settings.moments_part, norm_bound=norm_bound)
    start = solve(moments, settings.shrinkage)
    variance, r2 = residuals(moments, start)
    if isinstance(label, Count):
        return _Counts(oracle, settings, moments, label).learn(start, variance, r2)
    rounds = _Rounds(oracle, settings, moments, "squared", np.sqrt(variance), 1.0)
    learned, refusal = rounds.theta(start, settings.rounds - 1)
    errors = rounds.errors(learned, OfNumbers(float(rounds.clip), variance))
    return Learned(learned, len(rounds.seen), variance, r2, refusal, errors)


class _Rounds:
    """Gradients of one loss at one point after the other. residual: the size by which they are clipped."""

    def __init__(
        self,
        oracle: NumberOracle,
        settings: NumberSettings,
        moments: NumberMoments,
        loss: LossName,
        residual: float,
        curvature: float,
    ) -> None:
        self._oracle, self._moments, self._loss, self._curvature = oracle, moments, loss, curvature
        self.whitening = Whitening.of(moments, settings.shrinkage)
        self.clip = clip_of(settings.clip * residual, self.whitening.size)
        self.part = (1 - settings.moments_part) / (settings.rounds - 1)
        self._residual, self._planned = residual, settings.rounds - 1
        self.seen: list[Seen] = []
        self._answers: list[Answer] = []

    def theta(
        self, start: Vector, rounds: int, step: Callable[[Vector, Vector], Vector] = bounded_step
    ) -> tuple[Vector, str | None]:
        """Theta after so many rounds from a start (d,), and why there were fewer, if so."""
        basis = self.whitening.basis.matrix
        phi: Vector = np.asarray(np.linalg.solve(basis.T, start), dtype=np.float64)
        for _ in range(rounds):
            try:
                answer = self.gradient(phi)
            except (OracleRefusedError, PlanError) as error:
                return basis.T @ phi, str(error)
            self.seen.append(Seen(phi, phi - answer.mean / self._curvature, answer.deviation / self._curvature))
            self._answers.append(Answer(basis.T @ phi, answer.mean, answer.deviation, np.eye(len(phi))))
            phi = step(phi, root(self.seen))
            if len(self.seen) == 1:
                self.clip *= wider_clip(
                    self._residual / np.sqrt(self._moments.rows), answer.deviation / np.sqrt(self._planned)
                )
        return basis.T @ phi, None

    def errors(self, theta: Vector, loss: Curvatures) -> Errors | None:
        """Those of theta, if there was an answer."""
        if not self._answers:
            return None
        basis = self.whitening.basis.matrix
        released = Released(self._oracle.schema, self._moments, basis, float(self.clip), loss=loss)
        return errors_of_weights(theta, self._answers, released)

    def gradient(self, phi: Vector, wider: float = 1.0) -> GradientEstimate:
        """That at phi; wider: the clip over the usual one."""
        clip = self.clip * Fraction(wider)
        return self._oracle.number_gradient(phi, loss=self._loss, clip=clip, part=self.part, basis=self.whitening.basis)


@dataclass(frozen=True, eq=False)
class _Counts:
    """A Poisson regression."""

    oracle: NumberOracle
    settings: NumberSettings
    moments: NumberMoments
    label: Count

    def learn(self, linear: Vector, variance: float, r2: float) -> Learned:
        """What is learnt. linear (d,), variance, r2: of t, by least squares."""
        half, rate = self.label.upper / 2.0, self._mean
        of_counts = variance * half**2
        residual = max(float(np.sqrt(of_counts)), float(np.sqrt(rate)))
        rounds = _Rounds(self.oracle, self.settings, self.moments, "poisson", residual, _CURVATURE_OF_COUNTS * rate)
        start = self._start(linear * half / rate, half / rate, rounds.whitening.basis.matrix)
        has_exposure = self.label.exposure is not None
        theta, refusal = rounds.theta(start, self.settings.rounds - 1 - has_exposure, _short_step)
        loss = OfCounts(float(rounds.clip), rate, max(1.0, of_counts / rate))
        errors, count = rounds.errors(theta, loss), len(rounds.seen)
        if not has_exposure:
            return Learned(self._corrected(theta), count, variance, r2, refusal, errors)
        if refusal is None:
            theta, refusal = self._by_a_wide_round(rounds, theta)
            count += refusal is None
        return Learned(theta, count, variance, r2, refusal, errors)

    def _start(self, slopes: Vector, factor: float, basis: Matrix) -> Vector:
        """Where the rounds start: slopes (d,) without their noise, and the intercept for the mean of the counts.

        Slopes for the logarithm of a rate are those of t times `factor`, and so is their noise: P b / m has the
        variance trace(P P^T) (sum_noise / m)^2. They are shortened by what it explains, as by James and Stein.
        """
        slopes = np.append(slopes[:-1], 0.0)
        length = float(np.square(np.linalg.solve(basis.T, slopes)).sum())
        noise = float(np.square(basis).sum()) * (factor * self.moments.sum_noise / self.moments.rows) ** 2
        start: Vector = slopes * (max(0.0, 1.0 - noise / length) if length else 0.0)
        start[-1] = np.log(self._mean) - start @ self._means
        return start

    @property
    def _mean(self) -> float:
        """Of the counts."""
        mean = float(self.moments.label_sum[-1]) / self.moments.rows
        return max((mean + 1.0) / 2.0, _LEAST_SHARE) * self.label.upper

    @property
    def _means(self) -> Vector:
        """Of the coordinates, (d,), the bias last."""
        means: Vector = self.moments.product_sum[-1] / self.moments.rows
        means[-1] = 1.0
        return means

    def _corrected(self, theta: Vector) -> Vector:
        """With the intercept at which the mean of exp(theta . x) is that of the counts, for a normal theta . x."""
        means = self._means
        spread = self.moments.product_sum / self.moments.rows - np.outer(means, means)
        variance = min(max(float(theta @ spread @ theta), 0.0), _LARGEST_VARIANCE)
        corrected = theta.copy()
        corrected[-1] += np.log(self._mean) - float(theta @ means) - variance / 2.0
        return corrected

    def _by_a_wide_round(self, rounds: _Rounds, theta: Vector) -> tuple[Vector, str | None]:
        basis = rounds.whitening.basis.matrix
        try:
            answer = rounds.gradient(np.asarray(np.linalg.solve(basis.T, theta), dtype=np.float64), WIDER)
        except (OracleRefusedError, PlanError) as error:
            return theta, str(error)
        # The gradient in the records' own coordinates: its last one is the mean of the means minus that of the counts.
        too_much = float(np.linalg.solve(basis, answer.mean)[-1])
        corrected = theta.copy()
        corrected[-1] -= np.log(max(1.0 + too_much / self._mean, 0.1))
        return corrected, None


def _short_step(phi: Vector, found: Vector) -> Vector:
    step = found - phi
    return phi + step * min(1.0, _LONGEST_STEP_OF_COUNTS / max(float(np.linalg.norm(step)), 1e-9))
