"""Numbers and counts in a few rounds: noisy moments once, then noisy gradients in whitened coordinates.

Of a number the gradient is that of least squares, of a count that of a Poisson regression with the logarithm as link
and an exposure as offset.

The first release gives the start, and how large residuals are: by that gradients are clipped, so that noise is as small
as what it hides. A variance that noise hides is not taken for small: gradients that are all clipped tell nothing.

Coordinates are whitened by covariances that know the schema (dpcore.estimators.column_covariances): the noise of all
entries together hides far more directions than that of each.

The rounds are those of dpcore.estimators.private_newton; the curvature of a record in a whitened direction is 1 for a
number, and in proportion to the mean of the label for a count.

Clipping moves the rate of counts, because the largest counts lose most, so the intercept is corrected at the end:

- Without exposures by the moments: they show the mean of the label, and that of exp(theta . x) as if theta . x were
  normal.
- With exposures by the last round, whose clip is 6 if that is wider: its intercept shows by how much both differ.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from dpcore.accounting.noise_shares import PRODUCT_WEIGHT
from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError
from dpcore.estimators.column_covariances import ColumnCovariances
from dpcore.estimators.curvatures import Curvatures, OfCounts, OfNumbers
from dpcore.estimators.errors_of_numbers import OF_CLIPPED, WIDENED_OF_ROUNDS, errors_of_numbers
from dpcore.estimators.errors_of_weights import Answer, Errors, Released, errors_of_weights
from dpcore.estimators.least_squares import USUAL_SHRINKAGE, residuals, solve
from dpcore.estimators.oracle import GradientEstimate, NumberOracle
from dpcore.estimators.whitened_rounds import (
    LONGEST_STEP,
    Seen,
    Whitening,
    bounded_step,
    check_counted,
    clip_of,
    noise_of,
    root,
    wider_clip,
)
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.rados.distribution import NumberMoments
from dpcore.records.features import Count, measured
from dpcore.records.losses import LossName

WIDEST = 6.0
"""The clip of the last round, of counts with an exposure, or that of the others if it is wider."""

CURVATURE_OF_COUNTS = 2.0
"""Of a record in a whitened direction, over the mean of the label: exp bends upwards, and too long steps swing. With
1.4 models of visits explained nothing from epsilon 10 on. 2 to 3 are alike on three tables, but at epsilon 0.3, where
shorter steps are slower."""

_HIDDEN = 0.5
"""How much of the noise on a variance is added to it, squared. On five tables R^2 is up to 0.011 lower with 0.1 and 1
than with 0.25; this is between."""

_WIDEST_CHOICE, _WIDEST_CHOICE_OF_COUNTS = 6.0, 3.0
"""The widest clips that are chosen. With 4 for numbers R^2 is 0.004 lower where tails are longest (income, epsilon 1),
and elsewhere the same within 0.001. With 4 for counts the worst of eight draws on visits explains 0.02 less."""
_NOISE = 0.003
"""What the noise of gradients clipped so may add to the squared errors. With long tails a clip of 1.5 costs up to 0.01
of R^2; one of 4 costs up to 0.1 where noise is large. On seven tables 0.003 is as good as 0.006 within 0.001."""

_LEAST_VARIANCE = 1e-9
"""Of t: where there is no noise."""

_LEAST_SHARE = 1e-3
"""The least mean of a count over its upper bound: noise may hide it."""

LONGEST_STEP_OF_COUNTS = 1.0
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
    """moments_part, clip, shrinkage: as of `PrivateNewton`, the clip also over the root of the residual variance.

    clip: None for the widest at which noise adds `_NOISE` of the residual variance to the squared errors, from
    `least_clip` to `widest_clip`: records of long tails lose less by it.
    """

    moments_part: Fraction
    clip: float | None
    shrinkage: float
    rounds: int
    least_clip: float
    widest_clip: float = _WIDEST_CHOICE

    def clip_for(self, moments: NumberMoments) -> float:
        """The clip for this much noise."""
        if self.clip is not None:
            return self.clip
        noise = moments.product_noise[0, -1]
        if not noise:
            return self.widest_clip
        # mu of the whole budget, by the sensitivity in `number_moments_squared`: sqrt(50) (R^2 + a^2) over the noise.
        weighted = PRODUCT_WEIGHT * noise
        along = (weighted / moments.sum_noise) ** 2 / 50.0
        mu = np.sqrt(50.0) * (moments.norm_bound**2 + along) / (weighted * np.sqrt(float(self.moments_part)))
        # Each of d whitened coordinates has the noise 2 C / (mu sqrt(part)) on m records, C = clip sqrt(d).
        of_gradients = 1.0 - float(self.moments_part)
        widest = np.sqrt(_NOISE * of_gradients) * mu * moments.rows / (2.0 * moments.d)
        return float(np.clip(widest, self.least_clip, self.widest_clip))


def learn(oracle: NumberOracle, settings: NumberSettings, norm_bound: Fraction | None) -> Learned:
    """Ask for moments, then for gradients.

    Raises ConfigurationError, OracleRefusedError for the first refusal, and DataError if no row may count.
    """
    label = measured(oracle.schema.label, "a regression in rounds")
    if not oracle.schema.bias:
        raise ConfigurationError("a regression needs an intercept: set bias = true in the schema")
    moments = oracle.number_moments(part=settings.moments_part, norm_bound=norm_bound)
    check_counted(oracle.schema, moments)
    # More than in the basis: what the rounds start from must not be worse than no slopes.
    start = solve(moments, max(settings.shrinkage, USUAL_SHRINKAGE))
    variance, r2 = residuals(moments, start)
    residual = float(np.sqrt(shown_variance(moments, start)))
    columns = ColumnCovariances.of(moments, oracle.schema)
    if isinstance(label, Count):
        settings = replace(settings, widest_clip=_WIDEST_CHOICE_OF_COUNTS)
        counts = CountMoments(moments, columns, label)
        theta, errors, rounds, refusal = _learn_counts(oracle, settings, counts, start, residual, variance)
        return Learned(theta, rounds, variance, r2, refusal, errors)
    rounds_of = _Rounds(oracle, settings, moments, columns, "squared", residual, 1.0)
    # Predictions of least squares vary less than the label. Far from them all gradients are clipped, and tell nothing.
    longest = min(LONGEST_STEP, max(residual, float(np.sqrt(variance / max(1.0 - r2, _LEAST_VARIANCE)))))
    theta, refusal = rounds_of.theta(start, settings.rounds - 1, partial(bounded_step, longest=longest))
    errors = rounds_of.errors(theta, OfNumbers(float(rounds_of.clip), variance, widened=WIDENED_OF_ROUNDS))
    return Learned(theta, len(rounds_of.seen), variance, r2, refusal, errors)


def shown_variance(moments: NumberMoments, theta: Vector) -> float:
    """What residuals of t under theta (d,) may be, squared: positive, and no smaller than noise lets it be known."""
    m, length = moments.rows, float(theta @ theta)
    left = moments.square_sum - 2.0 * theta @ moments.label_sum + theta @ moments.product_sum @ theta
    # The variance of theta . W theta is at most twice that of an entry of W times |theta|^4.
    products = 2.0 * float(np.square(moments.product_noise).max()) * length**2
    noise = np.sqrt(moments.square_noise**2 + 4.0 * length * moments.sum_noise**2 + products)
    around_mean = moments.square_sum - float(moments.label_sum[-1]) ** 2 / m
    found = min(_raised(float(left) / m, float(noise) / m), _raised(around_mean / m, moments.square_noise / m))
    return max(found, _LEAST_VARIANCE)


def _raised(value: float, noise: float) -> float:
    """A positive value near one that is far above its noise, and near the noise if it is far below."""
    return float(value + np.sqrt(value**2 + 4.0 * _HIDDEN * noise**2)) / 2.0


class _Rounds:
    """Gradients of one loss at one point after the other. residual: the size by which they are clipped."""

    def __init__(
        self,
        oracle: NumberOracle,
        settings: NumberSettings,
        moments: NumberMoments,
        columns: ColumnCovariances,
        loss: LossName,
        residual: float,
        curvature: float,
    ) -> None:
        self._oracle, self._moments, self._loss, self._curvature = oracle, moments, loss, curvature
        self.whitening = Whitening.of_columns(columns, settings.shrinkage)
        self.clip = clip_of(settings.clip_for(moments) * residual, self.whitening.size)
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
            if len(self.seen) == 1 and self._loss == "squared":
                # The gradients of counts at a later clip are those of another function, which bends: steps would swing.
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
        if isinstance(loss, OfNumbers):
            return errors_of_numbers(theta, self._answers, released, OF_CLIPPED)
        return errors_of_weights(theta, self._answers, released)

    @property
    def widest(self) -> Fraction:
        """The clip of a last round over that of the others."""
        return max(Fraction(1), clip_of(WIDEST * self._residual, self.whitening.size) / self.clip)

    def gradient(self, phi: Vector, wider: Fraction = Fraction(1)) -> GradientEstimate:
        """That at phi; wider: the clip over the usual one."""
        return self._oracle.number_gradient(
            phi, loss=self._loss, clip=self.clip * wider, part=self.part, basis=self.whitening.basis
        )


def _learn_counts(
    oracle: NumberOracle,
    settings: NumberSettings,
    counts: "CountMoments",
    linear: Vector,
    residual_of_t: float,
    variance_of_t: float,
) -> tuple[Vector, Errors | None, int, str | None]:
    """A Poisson regression: theta (d,), its errors, the number of gradients, and why there were fewer.

    linear, variance_of_t: the least squares of t. residual_of_t: the size by which gradients are clipped.
    """
    residual, factor = counts.residual(residual_of_t), counts.factor
    curvature = CURVATURE_OF_COUNTS * counts.mean
    rounds = _Rounds(oracle, settings, counts.moments, counts.columns, "poisson", residual, curvature)
    start = _start_of_counts(counts, linear * factor, rounds.whitening.basis.matrix)
    theta, refusal = rounds.theta(start, settings.rounds - 1 - counts.has_exposure, _short_step)
    errors = rounds.errors(theta, OfCounts(float(rounds.clip), counts.mean, counts.dispersion(variance_of_t)))
    if not counts.has_exposure:
        noise = noise_of(rounds.seen) if rounds.seen else 0.0
        return counts.corrected(theta, noise), errors, len(rounds.seen), refusal
    if refusal is None:
        basis = rounds.whitening.basis.matrix
        try:
            answer = rounds.gradient(np.asarray(np.linalg.solve(basis.T, theta), dtype=np.float64), rounds.widest)
            theta = counts.corrected_by(answer, theta, basis)
        except (OracleRefusedError, PlanError) as error:
            refusal = str(error)
    return theta, errors, len(rounds.seen) + (refusal is None), refusal


def _start_of_counts(counts: "CountMoments", slopes: Vector, basis: Matrix) -> Vector:
    """Where the rounds start: slopes (d,) without their noise, and the intercept for the mean of the counts.

    Slopes for the logarithm of a rate are those of t times `factor`, and so is their noise: P b / m has the variance
    trace(P P^T) (sum_noise / m)^2, P without the bias. They are shortened by what it explains, as by James and Stein.
    """
    moments, slopes, centred = counts.moments, np.append(slopes[:-1], 0.0), basis[:-1, :-1]
    length = float(np.square(np.linalg.solve(centred.T, slopes[:-1])).sum())
    noise = float(np.square(centred).sum()) * (counts.factor * moments.sum_noise / moments.rows) ** 2
    return counts.with_intercept(slopes * (max(0.0, 1.0 - noise / length) if length else 0.0))


@dataclass(frozen=True, eq=False)
class CountMoments:
    """What moments say of counts."""

    moments: NumberMoments
    columns: ColumnCovariances
    label: Count

    @property
    def has_exposure(self) -> bool:
        """Whether counts are over an exposure."""
        return self.label.exposure is not None

    @property
    def factor(self) -> float:
        """By which slopes of t become slopes of the logarithm of the rate, near the mean."""
        return self.label.upper / 2.0 / self.mean

    def residual(self, residual_of_t: float) -> float:
        """The size of a residual in counts. residual_of_t: that of t under least squares."""
        return max(residual_of_t * self.label.upper / 2.0, float(np.sqrt(self.mean)))

    def dispersion(self, variance_of_t: float) -> float:
        """The variance of counts over their mean, at least 1. variance_of_t: of the residuals of t."""
        return max(1.0, variance_of_t * (self.label.upper / 2.0) ** 2 / self.mean)

    def with_intercept(self, slopes: Vector) -> Vector:
        """The slopes (d,), that of the bias left out, with the intercept for the mean of the counts."""
        start: Vector = np.append(slopes[:-1], 0.0)
        start[-1] = np.log(self.mean) - float(start[:-1] @ self.columns.means)
        return start

    @property
    def mean(self) -> float:
        """Of the counts."""
        mean = float(self.moments.label_sum[-1]) / self.moments.rows
        return max((mean + 1.0) / 2.0, _LEAST_SHARE) * self.label.upper

    def corrected(self, theta: Vector, noise: float | None = None) -> Vector:
        """With the intercept at which the mean of exp(theta . x) is that of the counts, for a normal theta . x.

        noise: the variance of the intercept of theta, if a correction within the noise of both shall be none, as by
        James and Stein.
        """
        slopes, m = theta[:-1], self.moments.rows
        variance = min(max(float(slopes @ self.columns.covariance @ slopes), 0.0), _LARGEST_VARIANCE)
        correction = np.log(self.mean) - float(slopes @ self.columns.means) - variance / 2.0 - theta[-1]
        of_slopes = float(np.square(slopes) @ np.square(self.moments.product_noise[-1, :-1]))
        if noise is not None and correction:
            noise += ((self.factor * self.moments.sum_noise) ** 2 + of_slopes) / m**2
            correction *= max(0.0, 1.0 - noise / correction**2)
        return np.append(slopes, theta[-1] + correction)

    def corrected_by(self, answer: GradientEstimate, theta: Vector, basis: Matrix) -> Vector:
        """With the intercept that a gradient at theta, whose clip is wide, asks for. basis: P."""
        # The gradient in the records' own coordinates: its last one is the mean of the means minus that of the counts.
        too_much = float(np.linalg.solve(basis, answer.mean)[-1])
        corrected = theta.copy()
        corrected[-1] -= np.log(max(1.0 + too_much / self.mean, 0.1))
        return corrected


def _short_step(phi: Vector, found: Vector) -> Vector:
    return bounded_step(phi, found, LONGEST_STEP_OF_COUNTS)
