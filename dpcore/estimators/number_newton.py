"""Numbers and counts in a few rounds: noisy moments once, then noisy gradients in whitened coordinates.

Of a number the gradient is that of least squares, of a count that of a Poisson regression with the logarithm as link
and an exposure as offset.

The first release gives the start, and how large residuals are: by that gradients are clipped, so that noise is as small
as what it hides. A variance that noise hides is not taken for small: gradients that are all clipped tell nothing.

Coordinates are whitened by covariances that know the schema (dpcore.estimators.column_covariances): the noise of all
entries together hides far more directions than that of each.

The rounds are those of dpcore.estimators.private_newton; the curvature of a record in a whitened direction is 1 for a
number, and in proportion to the mean of the label for a count.

How far curvature may be from that is as much as the noise of the moments and their clipping hide, so that noisy
gradients are taken for bends only where there may be some.

Rounds start from least squares, shortened by what its noise explains (James and Stein). Those of counts start without
slopes unless these are far longer than their noise, because exp makes much of wrong ones. For the same reason the
slopes of counts are shortened after each round: where noise explains all of them, one rate is left.

Clipping moves the rate of counts, because the largest counts lose most, so the last round corrects the intercept: by
the less, the more noise that round has.

There all coordinates but that of the bias are shortened, and with them all records, so that a clip of 6 residuals costs
as little noise as a clip of 6 / sqrt(d) elsewhere.
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
from dpcore.estimators.least_squares import USUAL_SHRINKAGE, inverse, residuals, solve
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
from dpcore.records.clipping import Basis
from dpcore.records.features import Count, measured
from dpcore.records.losses import LossName

WIDEST = 6.0
"""The clip of the last round of counts, in residuals."""

_SHORTENED = 32
"""By so much the last round of counts shortens all coordinates but that of the bias: records are then as long as 1."""

_MOVED, _MOST_MOVED = 0.1, 0.7
"""Curvature that clipping moves: the prior deviation of its diagonal, and the most of `root`'s spread for it. With 0.04
R^2 on 5,000 rows of surveys is 0.005 lower at epsilon 1. Without the bound it is 0.004 lower on adult, of 106
coordinates."""
_MOST_SPREAD = 3.0

_NOISE_OF_COUNTS = 6.0
"""How many times the noise of least squares counts where counts start. On visits at epsilon 0.3 a third less is
explained with 1, and with 6 as much as from no slopes. Where slopes are clear, intervals are narrower than from no
slopes."""

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
"""The least mean of a count over its upper bound."""

_MOVED_RATE = 0.2
"""The prior deviation of the logarithm of the rate for what clipping took off it before the last round. On visits and
three made counts 0.1 to 0.3 are alike."""

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
    shrinkage = max(settings.shrinkage, USUAL_SHRINKAGE)
    linear = solve(moments, shrinkage)
    variance, r2 = residuals(moments, linear)
    residual = float(np.sqrt(shown_variance(moments, linear)))
    columns = ColumnCovariances.of(moments, oracle.schema)
    if isinstance(label, Count):
        settings = replace(settings, widest_clip=_WIDEST_CHOICE_OF_COUNTS)
        counts = CountMoments(moments, columns, label)
        theta, errors, rounds, refusal = _learn_counts(oracle, settings, counts, linear, residual, variance)
        return Learned(theta, rounds, variance, r2, refusal, errors)
    rounds_of = _Rounds(oracle, settings, moments, columns, "squared", residual, 1.0)
    # Predictions of least squares vary less than the label. Far from them all gradients are clipped, and tell nothing.
    longest = min(LONGEST_STEP, max(residual, float(np.sqrt(variance / max(1.0 - r2, _LEAST_VARIANCE)))))
    start = shortened(linear, inverse(moments, shrinkage), moments, rounds_of.whitening.basis.matrix)
    theta, refusal = rounds_of.theta(start, settings.rounds - 1, partial(bounded_step, longest=longest))
    errors = rounds_of.errors(theta, OfNumbers(float(rounds_of.clip), variance, widened=WIDENED_OF_ROUNDS))
    return Learned(theta, len(rounds_of.seen), variance, r2, refusal, errors)


def shortened(theta: Vector, inverted: Matrix, moments: NumberMoments, basis: Matrix, times: float = 1.0) -> Vector:
    """Theta (d,) of least squares, its slopes shortened by what their noise explains, as by James and Stein.

    inverted: A^-1, by which the noise of sums of label times record is multiplied. basis: P, of centred columns. times:
    how many times noise counts.
    """
    slopes: Vector = np.asarray(np.linalg.solve(basis[:-1, :-1].T, theta[:-1]), dtype=np.float64)
    noise = float(np.square(np.linalg.solve(basis[:-1, :-1].T, inverted[:-1])).sum()) * moments.sum_noise**2
    found: Vector = basis.T @ np.append(_signal(slopes, times * noise), float(moments.label_sum[-1]) / moments.rows)
    return found


def _signal(slopes: Vector, noise: float, curvature: float = 1.0) -> Vector:
    """Slopes (k,) shortened by what noise of this squared length explains (James and Stein), to 0 if all.

    curvature: that of steps over the rows'. A step goes one part of so many, and is shortened again by the next: each
    is shortened by so much less that rounds end where one shortening would.
    """
    length = float(slopes @ slopes)
    kept = max(0.0, 1.0 - noise / length) if length else 0.0
    return curvature * kept / (1.0 + (curvature - 1.0) * kept) * slopes


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
        self._spread = curvature_spread(columns, self.whitening.basis.matrix)
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
            found = root(self.seen, self._spread)
            if self._loss == "poisson":
                noise = (len(found) - 1) * noise_of(self.seen)
                found[:-1] = _signal(found[:-1], noise, CURVATURE_OF_COUNTS)
            phi = step(phi, found)
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

    def gradient(self, phi: Vector) -> GradientEstimate:
        """That at phi."""
        return self._oracle.number_gradient(
            phi, loss=self._loss, clip=self.clip, part=self.part, basis=self.whitening.basis
        )

    def gradient_of_intercept(self, theta: Vector) -> tuple[float, float]:
        """The last coordinate of the mean gradient at theta (d,), hardly clipped, and the deviation of its noise."""
        matrix = self.whitening.basis.matrix.copy()
        matrix[:-1] /= _SHORTENED
        basis = Basis.of(matrix)
        phi = np.asarray(np.linalg.solve(basis.matrix.T, theta), dtype=np.float64)
        clip = clip_of(WIDEST * self._residual, 1.0)
        found = self._oracle.number_gradient(phi, loss=self._loss, clip=clip, part=self.part, basis=basis)
        return float(found.mean[-1]), found.deviation


def curvature_spread(columns: ColumnCovariances, basis: Matrix) -> float:
    """That of `root`: what noise and clipping hide of the curvature in whitened directions. basis: P.

    Of W, whose entries have the deviations of `columns`, the mean square of P W P^T is the sum of w_ij (G_ii G_jj +
    G_ij^2), with w the variances and G = P^T P. As the least curvature is 0, not all of it can be: half counts.
    """
    d, inner = len(basis), basis[:-1, :-1]
    products, variances = inner.T @ inner, np.square(columns.deviations)
    sizes = np.diag(products)
    hidden = float(sizes @ variances @ sizes + (np.square(products) * variances).sum()) / d
    return min(float(np.sqrt(hidden + min(_MOVED**2 * d, _MOST_MOVED**2))), _MOST_SPREAD)


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
    residual, curvature = counts.residual(residual_of_t), CURVATURE_OF_COUNTS * counts.mean
    rounds = _Rounds(oracle, settings, counts.moments, counts.columns, "poisson", residual, curvature)
    inverted = inverse(counts.moments, max(settings.shrinkage, USUAL_SHRINKAGE))
    slopes = shortened(linear, inverted, counts.moments, rounds.whitening.basis.matrix, _NOISE_OF_COUNTS)
    slopes *= counts.factor
    # As long as a step from no slopes: where noise made the start longer, the rounds would not come back.
    along = np.linalg.solve(rounds.whitening.basis.matrix[:-1, :-1].T, slopes[:-1])
    slopes = slopes * min(1.0, LONGEST_STEP_OF_COUNTS / max(float(np.linalg.norm(along)), _LEAST_VARIANCE))
    start = counts.with_intercept(slopes)
    theta, refusal = rounds.theta(start, settings.rounds - 2, _short_step)
    errors = rounds.errors(theta, OfCounts(float(rounds.clip), counts.mean, counts.dispersion(variance_of_t)))
    if refusal is not None:
        return theta, errors, len(rounds.seen), refusal
    try:
        too_much, deviation = rounds.gradient_of_intercept(theta)
    except (OracleRefusedError, PlanError) as error:
        return theta, errors, len(rounds.seen), str(error)
    moved, left = counts.correction(too_much, deviation, CURVATURE_OF_COUNTS**2 * noise_of(rounds.seen))
    if errors is not None:
        errors.covariance[-1, -1] += left
    theta[-1] -= moved
    return theta, errors, len(rounds.seen) + 1, None


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
        """Of the counts: positive, and no smaller than noise lets it be known."""
        mean, noise = (float(each) / self.moments.rows for each in (self.moments.label_sum[-1], self.moments.sum_noise))
        return max(_raised((mean + 1.0) / 2.0, noise / 2.0), _LEAST_SHARE) * self.label.upper

    def corrected(self, theta: Vector) -> Vector:
        """With the intercept at which the mean of exp(theta . x) is that of the counts, for a normal theta . x."""
        slopes = theta[:-1]
        variance = min(max(float(slopes @ self.columns.covariance @ slopes), 0.0), _LARGEST_VARIANCE)
        return np.append(slopes, np.log(self.mean) - float(slopes @ self.columns.means) - variance / 2.0)

    def corrected_by(self, answer: GradientEstimate, theta: Vector, basis: Matrix) -> Vector:
        """With the intercept that a gradient at theta, whose clip is wide, asks for. basis: P."""
        # The gradient in the records' own coordinates: its last one is the mean of the means minus that of the counts.
        return self.with_less(float(np.linalg.solve(basis, answer.mean)[-1]), theta)

    def correction(self, too_much: float, deviation: float, noise: float) -> tuple[float, float]:
        """By what the logarithm of the rate is too high, and the variance of what noise leaves unknown of it.

        too_much: the mean rate minus that of the counts, with noise of this deviation. noise: the variance of the
        logarithm for the noise of the rounds before, of which it has a normal prior, as for `_MOVED_RATE`.
        """
        ratio = max(_raised(1.0 + too_much / self.mean, deviation / self.mean), 0.1)
        prior, variance = _MOVED_RATE**2 + noise, (deviation / self.mean / ratio) ** 2
        kept = prior / (prior + variance)
        return kept * float(np.log(ratio)), kept * variance

    def with_less(self, too_much: float, theta: Vector) -> Vector:
        """With the intercept that takes `too_much`, by which it is above that of counts, off the mean rate."""
        corrected = theta.copy()
        corrected[-1] -= np.log(max(1.0 + too_much / self.mean, 0.1))
        return corrected


def _short_step(phi: Vector, found: Vector) -> Vector:
    return bounded_step(phi, found, LONGEST_STEP_OF_COUNTS)
