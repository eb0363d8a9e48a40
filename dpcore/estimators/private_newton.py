"""Private logistic regression in a few rounds: noisy moments once, then noisy gradients in whitened coordinates.

With A in place of S_hat (dpcore.estimators.moments_discriminant, step 1), P = (A / m)^(-1/2) is a public basis in which
records z = P e have about one spread. Each further release is the mean of -w z at one phi, w = min(1 / (1 + exp(phi .
z)), C / |z|).

Near its root phi* it is about kappa (I + D) (phi - phi*): ridge regression over all releases of phi_t - g_t / kappa = c
- D phi_t + noise estimates c and D, and the next phi is the root.

Proof: docs/explanation/proofs.md, "Private Newton steps".
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError, ShapeError
from dpcore.estimators.base import LinearClassifier
from dpcore.estimators.class_newton import MOST_WEIGHTS
from dpcore.estimators.class_newton import Learned as LearnedClasses
from dpcore.estimators.class_newton import learn as learn_classes
from dpcore.estimators.class_weights import check_asked, weigh
from dpcore.estimators.curvatures import OfLogOdds
from dpcore.estimators.errors_of_classes import PRIOR_OF_CLASSES, ClassAnswer, errors_of_classes
from dpcore.estimators.errors_of_weights import Answer, Released, errors_of_weights
from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.estimators.number_newton import NumberSettings
from dpcore.estimators.number_newton import learn as learn_numbers
from dpcore.estimators.oracle import (
    ClassOracle,
    ClassRowOracle,
    MomentsAndGradients,
    NumberOracle,
    RowOracle,
    check_left,
)
from dpcore.estimators.whitened_rounds import Seen, Whitening, bounded_step, check_counted, clip_of, root
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.queries.moments import LITTLE_NOISE, longest_norm, norm_bound_of
from dpcore.records.features import two_classes
from dpcore.records.schema import Schema

# Measured over eighteen tasks at epsilon 0.3 and 1: errors hardly change from 0.7 to 1.4 times each value.
CURVATURE = 0.05
"""kappa: average curvature of a record in a whitened direction, w (1 - w), or 0 if it is clipped."""

CLIP_OF_LOG_ODDS = 1.0
"""From this clip on, of two classes, so few gradients are clipped that weights are those of logistic regression."""
CLIP_OF_LOG_ODDS_OF_CLASSES = 1.5
"""That of several classes, whose gradients are up to sqrt(2) |z| long."""
_UNKNOWN_OF_LOG_ODDS = (0.25, 0.25)
"""See dpcore.estimators.curvatures.Curvatures."""
WIDENED_OF_LOG_ODDS = 3.5
"""The same: few gradients are clipped, but they pull log odds to one side. Measured on surveys at epsilon 1 and 4."""
WIDENED = 2.0
"""dpcore.estimators.errors_of_weights.Released of weights that are no log odds: 95 of 100 hold on surveys then."""

_SAMPLING = 0.5
"""Mean square of a coordinate of w z over that of C / |z|, which bounds it."""

_LEAST_ROUNDS_OF_NUMBERS = 3
"""Moments, a gradient, and of counts one of the intercept."""

MOST_COORDINATES = 700
"""A larger basis never fits a query (wire.query.MAX_QUERY_BYTES): an entry takes a byte or more. A smaller one may not
fit either, which shows after the moments: then the result is that of the moments."""


@dataclass(frozen=True)
class Settings:
    """What `PrivateNewton` says of each."""

    moments_part: float
    clip: float
    shrinkage: float

    @property
    def first(self) -> Fraction:
        """The part of the first release, exactly."""
        return Fraction(self.moments_part).limit_denominator(10**6)


USUAL = Settings(0.25, 0.25, 0.8)
USUAL_OF_CLASSES = Settings(0.4, 0.7, 0.5)
"""Of several classes. Measured on diamonds (5 classes) and surveys (11) at epsilon 1: with those of two classes the
error is half a point to a point larger."""

USUAL_OF_NUMBERS = Settings(0.3, 1.0, 0.4)
"""Of numbers. The clip is the least: dpcore.estimators.number_newton widens it where noise is small. How they
were chosen: benchmarks/README.md, regressions."""

USUAL_OF_COUNTS = Settings(0.3, 1.5, 2.0)
"""Of counts, measured on randhie's visits, and on two columns of other tables taken for counts."""

_ROOM_OF_CLASSES, _ROOM_OF_NUMBERS = Fraction(3, 10), Fraction(2, 5)
"""Of the way from the norm for values between -1 and 1, all as likely, to `roomy_norm`. Of classes errors are up to two
points larger at either end. Of numbers and counts clipping moves means: with 0 R^2 is 0.007 lower on income and 0.013
on kappa, whose columns are far from 0, and with 1 0.015 lower on abalone (epsilon 0.3)."""


class PrivateNewton(LinearClassifier):
    """A linear classifier from one release of moments and `rounds` - 1 of gradients; see the module's docstring.

    - rounds: at least 2. moments_part: the part of the budget's squared mu for the first release, by default 0.25, of
      several classes 0.4, of numbers and counts 0.3; the others share the rest equally.
    - clip: C over the root mean square of |z|, by default 0.25, of several classes 0.7; of numbers and counts also over
      the root of the residual variance, from 1 to 6 for numbers and 1.5 to 3 for counts, by the noise.
    - shrinkage: as in `MomentsDiscriminant`, by default 0.8, of several classes 0.5, of numbers 0.4, of counts 2.
    - norm_bound: the clipping norm R of the moments; None is `roomy_norm` of the schema, and no clipping in `fit`.
      Results hardly change for values up to 1.4 times larger or smaller. Of several classes, numbers and counts None is
      less roomy.

    - class_weight: how many times a record of a class counts (dpcore.estimators.class_weights). A text such as
      "positive=5", a mapping such as {"positive": 5}, or "balanced", with which all classes count as much. None: all
      records count alike.

    After `fit_queries`: `theta_` (d,) over the schema's coordinates, `coef_` = theta_ as (1, d), `intercept_` zero,
    `classes_` [-1, 1]; `covariance_` (d, d), the second moment of theta_'s errors
    (dpcore.estimators.errors_of_weights), None after moments alone; `rounds_done_`, the number of releases used;
    `warning_`, why there were fewer than `rounds`, and what the noise hides of class weights, else None.

    `class_weights_` are whole numbers for the classes in order, none if they are not weighted.

    After `fit`: `coef_` (1, features), `intercept_` the bias, `covariance_` None.

    Of a label that is a number or a count, `fit_queries` learns a regression, as dpcore.estimators.number_newton
    describes: `theta_` . x predicts the number's t, or the logarithm of the count for an exposure of 1.

    `sampling_` (d, d) is then the part of `covariance_` for the choice of the rows, `classes_` is absent, and
    `residual_variance_` and `r2_` are those of least squares.

    Of a label of several classes, `fit_queries` learns a row of weights for each, `theta_` (k, d), as
    dpcore.estimators.class_newton describes; `covariance_` (k d, k d) is then of weights beside the average of all
    classes, class by class (dpcore.estimators.errors_of_classes). It is None for a clip below 1.5, with class weights,
    for too many weights, or without a gradient.
    """

    several_classes: ClassVar[bool] = True
    measured_labels: ClassVar[bool] = True

    def __init__(
        self,
        *,
        rounds: int = 8,
        moments_part: float | None = None,
        clip: float | None = None,
        shrinkage: float | None = None,
        norm_bound: Fraction | None = None,
        class_weight: str | dict[str, Any] | None = None,
    ) -> None:
        self.rounds = rounds
        self.moments_part = moments_part
        self.clip = clip
        self.shrinkage = shrinkage
        self.norm_bound = norm_bound
        self.class_weight = class_weight

    def fit_queries(self, oracle: MomentsAndGradients, start: ArrayLike | None = None) -> Self:
        """Fit by querying; returns self. If a query after the first is refused, the result so far is kept.

        start: weights (d,) of an earlier model over the same coordinates, at which the first gradient is asked for, in
        place of those that the moments suggest; of two classes only.

        Raises ConfigurationError, also for more than MOST_COORDINATES; ShapeError; OracleRefusedError; DataError if no
        row may count.
        """
        self._check()
        check_asked(self.class_weight, oracle.schema)
        given = None if start is None else _checked_start(start, oracle.schema)
        check_left(oracle)
        if oracle.schema.d > MOST_COORDINATES:
            raise ConfigurationError(
                f"the schema has {oracle.schema.d} coordinates, and a query for a gradient at most {MOST_COORDINATES}: "
                "leave some out, or train an estimator on moments"
            )
        if oracle.schema.label.coding.is_measured:
            self._learn_numbers(cast("NumberOracle", oracle))
            return self
        if oracle.schema.label.classes:
            # An oracle about several classes answers what `ClassOracle` lists.
            self._keep_classes(self._learn_classes(cast("ClassOracle", oracle)))
            return self
        self._keep_encoded(self._learn(oracle, self.norm_bound or roomy_norm(oracle.schema), given))
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows without noise, for comparison, not private; returns self.

        As `RadoClassifier.fit`, or of several classes.
        """
        if (several := self._class_rows(X, y)) is not None:
            self._check()
            exact = ClassRowOracle(*several, len(self.classes_))
            learned = self._learn_classes(exact)
            # They are of a federation's answers.
            self.covariance_: Matrix | None = None
            self.sampling_: Matrix | None = None
            self._keep_class_rows(np.array([exact.in_given_units(row) for row in learned]))
            return self
        rows = RowOracle(self._edges(X, y))
        self._check()
        self._keep(rows.in_given_units(self._learn(rows, self.norm_bound)))
        self.covariance_, self.sampling_ = None, None
        return self

    def _learn(self, oracle: MomentsAndGradients, norm_bound: Fraction | None, start: Vector | None = None) -> Vector:
        settings = self._settings(USUAL)
        first = settings.first
        asked = oracle.moments(part=first, norm_bound=norm_bound)
        check_counted(oracle.schema, asked)
        weighing, moments = weigh(self.class_weight, oracle.schema.label, asked)
        self.class_weights_: tuple[int, ...] = weighing.weights
        whitening = Whitening.of(moments, settings.shrinkage)
        clip = clip_of(settings.clip, whitening.size)
        phi: Vector = whitening.start(moments)
        if start is not None:
            phi = np.asarray(np.linalg.solve(whitening.basis.matrix.T, start), dtype=np.float64)
        seen: list[Seen] = []
        answers: list[Answer] = []
        notes = [weighing.note] if weighing.note else []
        for _ in range(self.rounds - 1):
            part = (1 - first) / (self.rounds - 1)
            try:
                found = oracle.gradient(phi, clip=clip, part=part, basis=whitening.basis, **weighing.asked)
            except (OracleRefusedError, PlanError) as error:
                notes.append(f"received {1 + len(seen)} of {self.rounds} releases: {error}")
                break
            answer = weighing.answer(found)
            answers.append(Answer(whitening.basis.matrix.T @ phi, answer.mean, answer.deviation, np.eye(moments.d)))
            seen.append(Seen(phi, phi - answer.mean / CURVATURE, answer.deviation / CURVATURE))
            phi = bounded_step(phi, root(seen))
        self.rounds_done_, self.warning_ = 1 + len(seen), "; ".join(notes) or None
        self.covariance_, self.sampling_ = None, None
        if not seen:
            theta: Vector = MomentsDiscriminant(shrinkage=settings.shrinkage).fit_moments(moments).theta_
            return theta
        learned: Vector = whitening.basis.matrix.T @ phi
        # Hardly any gradient is clipped: weights are log odds, and curvature is known better.
        are_log_odds = settings.clip >= CLIP_OF_LOG_ODDS and not weighing.weights
        loss = (
            OfLogOdds(float(clip), unknown=_UNKNOWN_OF_LOG_ODDS, widened=WIDENED_OF_LOG_ODDS) if are_log_odds else None
        )
        basis, widened = whitening.basis.matrix, 1.0 if loss else WIDENED
        released = Released(oracle.schema, moments, basis, float(clip), loss=loss, widened=widened)
        errors = errors_of_weights(learned, answers, released)
        self.covariance_, self.sampling_ = errors.covariance, None if loss is None else errors.sampling
        return learned

    def _learn_classes(self, oracle: ClassOracle) -> Matrix:
        """Theta (k, d). Raises ConfigurationError for too many weights."""
        weights = oracle.schema.d * oracle.schema.label.classes
        if weights > MOST_WEIGHTS:
            raise ConfigurationError(
                f"{oracle.schema.label.words} of {oracle.schema.d} coordinates are {weights} weights, and newton "
                f"learns at most {MOST_WEIGHTS}: leave some out, or train mean-variance"
            )
        settings = self._settings(USUAL_OF_CLASSES)
        first = settings.first
        norm_bound = self.norm_bound or _less_roomy_norm(oracle.schema, oracle.epsilon, _ROOM_OF_CLASSES)
        asked = oracle.class_moments(part=first, norm_bound=norm_bound)
        check_counted(oracle.schema, asked)
        weighing, moments = weigh(self.class_weight, oracle.schema.label, asked)
        self.class_weights_ = weighing.weights
        whitening = Whitening.of(moments, settings.shrinkage)
        clip = clip_of(settings.clip, whitening.size)
        part, basis = (1 - first) / (self.rounds - 1), whitening.basis
        learned = learn_classes(
            lambda phi: weighing.answer(
                oracle.class_gradient(phi, clip=clip, part=part, basis=basis, **weighing.asked)
            ),
            moments,
            basis.matrix,
            float(clip),
            self.rounds - 1,
            settings.shrinkage,
        )
        self.rounds_done_ = 1 + learned.rounds
        theta = learned.phi @ basis.matrix
        self.covariance_, self.sampling_ = None, None
        # With more clipping the weights are not those of a multinomial regression.
        is_whole = settings.clip >= CLIP_OF_LOG_ODDS_OF_CLASSES and not weighing.weights
        if is_whole and learned.answers and moments.bias and moments.sum_noise:
            # Of the loss the prior is used alone.
            loss = OfLogOdds(float(clip), prior=PRIOR_OF_CLASSES)
            self._keep_errors_of_classes(
                theta, learned, Released(oracle.schema, moments, basis.matrix, loss.clip, loss=loss)
            )
        notes = [weighing.note] if weighing.note else []
        if learned.refusal is not None:
            notes.append(f"received {self.rounds_done_} of {self.rounds} releases: {learned.refusal}")
        self.warning_ = "; ".join(notes) or None
        return theta

    def _keep_errors_of_classes(self, theta: Matrix, learned: LearnedClasses, released: Released) -> None:
        """Set covariance_ and sampling_, of weights beside their average, (k d, k d), class by class."""
        answers = [ClassAnswer(phi @ released.basis, mean, deviation) for phi, mean, deviation in learned.answers]
        errors = errors_of_classes(theta, answers, released)
        if errors is not None:
            self.covariance_, self.sampling_ = errors.covariance, errors.sampling

    def _learn_numbers(self, oracle: NumberOracle) -> None:
        """A regression. Raises ConfigurationError without a bias."""
        is_count = oracle.schema.label.coding.kind == "count"
        least = USUAL_OF_COUNTS if is_count else USUAL_OF_NUMBERS
        usual = self._settings(least)
        if self.rounds < _LEAST_ROUNDS_OF_NUMBERS:
            raise ConfigurationError(f"rounds is {self.rounds}: a regression takes at least 3")
        settings = NumberSettings(usual.first, self.clip, usual.shrinkage, int(self.rounds), least.clip)
        norm_bound = self.norm_bound or _less_roomy_norm(oracle.schema, oracle.epsilon, _ROOM_OF_NUMBERS)
        learned = learn_numbers(oracle, settings, norm_bound)
        self._keep_encoded(learned.theta)
        del self.classes_
        self.residual_variance_, self.r2_ = learned.residual_variance, learned.r2
        self.rounds_done_, self.warning_ = 1 + learned.rounds, None
        self.covariance_ = None if learned.errors is None else learned.errors.covariance
        self.sampling_ = None if learned.errors is None else learned.errors.sampling
        self.class_weights_ = ()
        if learned.refusal is not None:
            self.warning_ = f"received {self.rounds_done_} of {self.rounds} releases: {learned.refusal}"

    def _settings(self, usual: "Settings") -> "Settings":
        """What is given, else what is usual for such a label."""
        return Settings(
            usual.moments_part if self.moments_part is None else self.moments_part,
            usual.clip if self.clip is None else self.clip,
            usual.shrinkage if self.shrinkage is None else self.shrinkage,
        )

    def _check(self) -> None:
        if not (isinstance(self.rounds, int | np.integer) and self.rounds >= 2):
            raise ConfigurationError(f"rounds is {self.rounds}: the first asks for moments, give at least 2")
        if self.moments_part is not None and not 1e-3 <= self.moments_part <= 1 - 1e-3:
            raise ConfigurationError(f"moments_part is {self.moments_part}: give a number from 0.001 to 0.999")
        if self.clip is not None and not (np.isfinite(self.clip) and self.clip > 0):
            raise ConfigurationError(f"clip is {self.clip}: it must be finite and positive")
        if self.shrinkage is not None and not (np.isfinite(self.shrinkage) and self.shrinkage >= 0):
            raise ConfigurationError(f"shrinkage is {self.shrinkage}: it must be finite and at least 0")


def _checked_start(start: ArrayLike, schema: Schema) -> Vector:
    """The weights to start from. Raises ConfigurationError, ShapeError."""
    two_classes(schema.label, "a start from an earlier model")
    weights = np.asarray(start, dtype=np.float64)
    if weights.shape != (schema.d,):
        raise ShapeError(
            f"the start has shape {weights.shape}: give the {schema.d} weights of a model over the schema's coordinates"
        )
    if not np.isfinite(weights).all():
        raise ConfigurationError("the start is not finite: give the weights of a trained model")
    return weights


def roomy_norm(schema: Schema) -> Fraction:
    """R with R^2 = 2/3 (real features) + (other features) + (bias), rounded up to hundredths."""
    return norm_bound_of(
        real_features=2 * sum(group.scaled_coordinates for group in schema.groups),
        unit_features=sum(group.unit_groups for group in schema.groups),
        bias=schema.bias,
    )


def _less_roomy_norm(schema: Schema, epsilon: Fraction, room: Fraction) -> Fraction:
    """R between that of `usual_norm` for two classes and that of `roomy_norm`; with little noise nothing is clipped."""
    if epsilon >= LITTLE_NOISE:
        return longest_norm(schema)
    lean = norm_bound_of(
        real_features=sum(group.scaled_coordinates for group in schema.groups),
        unit_features=sum(group.unit_groups for group in schema.groups),
        bias=schema.bias,
    )
    return lean + (roomy_norm(schema) - lean) * room


def sampling_of(relative_clip: float, rows: int) -> float:
    """The variance of each coordinate of phi for the sampling of rows."""
    return _SAMPLING * (relative_clip / CURVATURE) ** 2 / rows
