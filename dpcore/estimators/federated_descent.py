"""Gradient descent in a few rounds of noisy gradients: private empirical risk minimisation in a federation.

The noisy descent of Bassily, Smith and Thakurta (FOCS 2014; dpcore.research.erm) takes n^2 steps of one record each.
Here every step is a release, the mean clipped gradient of all records, with a share 1 / rounds of the budget's squared
mu. Theta stays in a ball.

`learning_rate` None takes 16 / R^2, R the usual length of a record: it suits an eigenvalue of the records' second
moments, of trace R^2, up to R^2 / 4. Nesterov's momentum is dropped if a gradient points back by more than twice its
noise (O'Donoghue and Candes 2015); after a step without momentum the step size is halved.
"""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from dpcore.accounting.noise_shares import root_up
from dpcore.errors import ConfigurationError, OracleRefusedError, SchemaError
from dpcore.estimators.base import LinearClassifier, Matrix, Vector
from dpcore.estimators.moments_discriminant import MomentsDiscriminant, raise_eigenvalues
from dpcore.estimators.oracle import GradientOracle, MomentsAndGradients, MomentsOracle, RowOracle, check_left
from dpcore.queries.moments import usual_norm
from dpcore.rados.distribution import Moments
from dpcore.records.losses import Ball, LossName
from dpcore.records.schema import Schema

_STEP = 16.0
"""The usual step times R^2; results hardly change from half to twice this value."""

_CERTAIN = 2.0
"""Standard deviations of noise by which a gradient must point back before a step counts as overshot."""

_BACK = 0.5
"""The cosine with the last move that it must also exceed: a hinge's gradients turn by less at every kink."""

LARGEST_RADIUS = 500.0
"""Momentum looks ahead up to three radii, which then is within the range where a gradient can be queried."""

_CLIP_UNITS = 1 << 20


class GradientLearner(LinearClassifier):
    """A linear classifier from noisy gradients; a subclass defines the step from one to the next.

    After `fit_queries`: `theta_` (d,), the bias last; `coef_` = theta_ as (1, d), `intercept_` zero, `classes_` [-1,
    1]; `rounds_done_`; `warning_`, why there were fewer than requested. After `fit`: `coef_` (1, features),
    `intercept_`.
    """

    clip: float | Fraction | None
    rounds_done_: int
    warning_: str | None

    def _clip(self, longest: Fraction) -> Fraction:
        """The clipping norm C: the given one, or the longest that a record's gradient can be."""
        if self.clip is None:
            return longest
        if not (np.isfinite(float(self.clip)) and self.clip > 0):
            raise ConfigurationError(f"clip is {self.clip}: it must be finite and positive, or None")
        # Rounded up, so that it stays positive.
        return Fraction(-(-Fraction(self.clip) * _CLIP_UNITS // 1), _CLIP_UNITS)


@dataclass(frozen=True)
class RecordLengths:
    """What the schema implies about records' lengths, bias included: d coordinates, mean square, longest."""

    d: int
    mean_square: float
    longest: Fraction

    @classmethod
    def of(cls, schema: Schema) -> "RecordLengths":
        """From the schema alone; a feature adds at most 1 to a square. Raises SchemaError without a bias."""
        if not schema.bias:
            raise SchemaError(f"schema {schema.name!r} has no bias, which a threshold needs: set bias = true")
        most = Fraction(root_up(len(schema.groups) + 1)).limit_denominator(_CLIP_UNITS)
        return cls(schema.d, float(usual_norm(schema)) ** 2, most + Fraction(1, _CLIP_UNITS))

    @classmethod
    def of_rows(cls, rows: RowOracle) -> "RecordLengths":
        """Of rows within [-1, 1] that the caller may see."""
        return cls(rows.d, rows.mean_square, Fraction(rows.d))


class FederatedDescent(GradientLearner):
    """Projected gradient descent with momentum; the module's docstring describes it.

    rounds: at least 1. clip: C, in units of encoded records, or None. radius: of theta's ball. momentum: in [0, 1).
    learning_rate: positive, or None. output: "last" iterate, or the "average" of the later half.
    """

    def __init__(
        self,
        *,
        rounds: int = 30,
        clip: float | Fraction | None = None,
        radius: float = 20.0,
        momentum: float = 0.85,
        learning_rate: float | None = None,
        output: str = "last",
    ) -> None:
        self.rounds = rounds
        self.clip = clip
        self.radius = radius
        self.momentum = momentum
        self.learning_rate = learning_rate
        self.output = output

    @property
    @abstractmethod
    def loss(self) -> LossName:
        """The loss whose gradients are queried."""

    def fit_queries(self, oracle: GradientOracle) -> Self:
        """Fit by querying; returns self. If an answer after the first is refused, the result so far is kept.

        Raises SchemaError without a bias, ConfigurationError, OracleRefusedError.
        """
        self._keep_encoded(self._descend(oracle, RecordLengths.of(oracle.schema)))
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to exact gradients of rows, for comparison; returns self. As `RadoClassifier.fit`."""
        rows = RowOracle(self._edges(X, y))
        self._keep(rows.in_given_units(self._descend(rows, RecordLengths.of_rows(rows))))
        return self

    def _descend(self, oracle: GradientOracle, lengths: RecordLengths) -> Vector:
        self._check()
        check_left(oracle)
        clip, ball = self._clip(lengths.longest), Ball(float(self.radius))
        rate = _STEP / lengths.mean_square if self.learning_rate is None else float(self.learning_rate)
        theta, velocity = np.zeros(lengths.d), np.zeros(lengths.d)
        iterates: list[Vector] = []
        plain, self.warning_ = False, None
        for _ in range(self.rounds):
            ahead = theta + self.momentum * velocity
            try:
                answer = oracle.gradient(ahead, clip=clip, part=Fraction(1, int(self.rounds)), loss=self.loss)
            except OracleRefusedError as error:
                if not iterates:
                    raise
                self.warning_ = f"received {len(iterates)} of {self.rounds} gradients: {error}"
                break
            certain = max(_CERTAIN * answer.deviation, _BACK * float(np.linalg.norm(answer.mean)))
            if float(answer.mean @ velocity) > certain * float(np.linalg.norm(velocity)):
                # The gradient was taken at `ahead`, but it cost budget, so it is used.
                ahead, rate, plain = theta, rate / 2.0 if plain else rate, True
            else:
                plain = not velocity.any()
            moved = ball.project(ahead - rate * answer.mean)
            velocity, theta = moved - theta, moved
            iterates.append(theta)
        self.rounds_done_ = len(iterates)
        if self.output == "last":
            return theta
        average: Vector = np.mean(iterates[len(iterates) // 2 :], axis=0)
        return ball.project(average)

    def _check(self) -> None:
        if not (isinstance(self.rounds, int | np.integer) and self.rounds >= 1):
            raise ConfigurationError(f"rounds is {self.rounds}: give an integer of at least 1")
        if not 0 < self.radius <= LARGEST_RADIUS:
            raise ConfigurationError(f"radius is {self.radius}: give a positive number up to {LARGEST_RADIUS:g}")
        if not 0 <= self.momentum < 1:
            raise ConfigurationError(f"momentum is {self.momentum}: give a number from 0, below 1")
        if self.learning_rate is not None and not (np.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ConfigurationError(f"learning_rate is {self.learning_rate}: it must be finite and positive, or None")
        if self.output not in {"last", "average"}:
            raise ConfigurationError(f'output is {self.output!r}: choose "last" or "average"')


class LogisticDescent(FederatedDescent):
    """Descent on the logistic loss, log(1 + exp(-theta . e))."""

    loss: LossName = "logistic"


class HingeDescent(FederatedDescent):
    """Descent on the hinge loss, max(0, 1 - theta . e), by subgradients."""

    loss: LossName = "hinge"


# Linear and logistic regression in summation form, after Chu, Kim, Lin, Yu, Bradski, Ng and Olukotun (NIPS 2006).
#
# With e = y x, S = sum_i x_i x_i^T and c = sum_i e_i. Linear: theta = (S + alpha J)^-1 c, J the identity without the
# bias; one release of moments. Logistic: S / 4 bounds the Hessian for all theta (Boehning and Lindsay 1988), so theta
# <- theta - 4 S^-1 g never raises the loss; then one gradient release a round, from the linear discriminant of the same
# moments.
#
# With noise, negative eigenvalues of S are raised as in dpcore.estimators.moments_discriminant. Where there is little
# spread, the bound is raised to `damping` standard deviations of the gradient's noise, for each record.


class SummationLinear(LinearClassifier):
    """Least squares of the label, -1 or +1, on the record, by the normal equations; predicts by the sign.

    alpha: at least 0, the weight of the penalty (alpha / 2) |theta|^2 without the bias. shrinkage, and what is set: as
    in `MomentsDiscriminant`.
    """

    def __init__(self, *, alpha: float = 0.0, shrinkage: float = 0.8) -> None:
        self.alpha = alpha
        self.shrinkage = shrinkage

    def fit_queries(self, oracle: MomentsOracle) -> Self:
        """Query moments with the whole budget and fit to them; returns self. Raises ConfigurationError."""
        self._check()
        return self.fit_moments(oracle.moments())

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a release; returns self. Raises ConfigurationError if a parameter is out of range."""
        self._keep_encoded(self._solve(moments))
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to the exact moments of rows scaled to [-1, 1], for comparison; returns self. As `RadoClassifier.fit`."""
        rows = RowOracle(self._edges(X, y))
        self._keep(rows.in_given_units(self._solve(rows.moments())))
        return self

    def _solve(self, moments: Moments) -> Vector:
        self._check()
        penalty = np.full(moments.d, float(self.alpha))
        if moments.bias:
            penalty[-1] = 0.0
        values, vectors = np.linalg.eigh(moments.product_sum)
        raised = raise_eigenvalues(values, moments.product_noise, self.shrinkage)
        matrix = (vectors * raised) @ vectors.T + np.diag(penalty)
        # Without noise, directions in which the rows do not vary are omitted.
        return np.asarray(np.linalg.pinv(matrix, rcond=1e-12, hermitian=True) @ moments.edge_sum)

    def _check(self) -> None:
        for name in ("alpha", "shrinkage"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise ConfigurationError(f"{name} is {value}: it must be finite and at least 0")


class SummationLogistic(GradientLearner):
    """Logistic regression from one release of moments and `rounds` - 1 of gradients.

    rounds: at least 2, as `rounds_done_` counts them. moments_part: of the budget's squared mu; gradients share the
    rest. clip: C; None is the longest gradient that a record can have. damping: at least 0. shrinkage: as in
    `MomentsDiscriminant`. radius: of theta's ball.
    """

    def __init__(
        self,
        *,
        rounds: int = 10,
        moments_part: float = 0.3,
        clip: float | Fraction | None = None,
        damping: float = 4.0,
        shrinkage: float = 0.8,
        radius: float = 50.0,
    ) -> None:
        self.rounds = rounds
        self.moments_part = moments_part
        self.clip = clip
        self.damping = damping
        self.shrinkage = shrinkage
        self.radius = radius

    def fit_queries(self, oracle: MomentsAndGradients) -> Self:
        """Fit by querying; returns self. If an answer after the first is refused, the result so far is kept.

        Raises SchemaError without a bias, ConfigurationError, OracleRefusedError.
        """
        self._keep_encoded(self._learn(oracle, RecordLengths.of(oracle.schema)))
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to exact sums of rows, for comparison; returns self. As `FederatedDescent.fit`."""
        rows = RowOracle(self._edges(X, y))
        self._keep(rows.in_given_units(self._learn(rows, RecordLengths.of_rows(rows))))
        return self

    def _learn(self, oracle: MomentsAndGradients, lengths: RecordLengths) -> Vector:
        self._check()
        check_left(oracle)
        clip, ball = self._clip(lengths.longest), Ball(float(self.radius))
        first = Fraction(self.moments_part).limit_denominator(10**6)
        moments = oracle.moments(part=first)
        spread = CurvatureBound(moments, self.shrinkage)
        theta = ball.project(MomentsDiscriminant(shrinkage=self.shrinkage).fit_moments(moments).theta_)
        part, self.rounds_done_, self.warning_ = (1 - first) / (int(self.rounds) - 1), 1, None
        while self.rounds_done_ < self.rounds:
            try:
                answer = oracle.gradient(theta, clip=clip, part=part)
            except OracleRefusedError as error:
                self.warning_ = f"received {self.rounds_done_} of {self.rounds} releases: {error}"
                break
            theta = ball.project(theta - spread.step(answer.mean, self.damping * answer.deviation))
            self.rounds_done_ += 1
        return theta

    def _check(self) -> None:
        if not (isinstance(self.rounds, int | np.integer) and self.rounds >= 2):
            raise ConfigurationError(f"rounds is {self.rounds}: the first asks for moments, give at least 2")
        if not 1e-3 <= self.moments_part <= 1 - 1e-3:
            raise ConfigurationError(f"moments_part is {self.moments_part}: give a number from 0.001 to 0.999")
        if not 0 < self.radius <= LARGEST_RADIUS:
            raise ConfigurationError(f"radius is {self.radius}: give a positive number up to {LARGEST_RADIUS:g}")
        for name in ("damping", "shrinkage"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise ConfigurationError(f"{name} is {value}: it must be finite and at least 0")


class CurvatureBound:
    """The curvature bound S / (4 m), with eigenvalues raised by the moments' noise."""

    def __init__(self, moments: Moments, shrinkage: float) -> None:
        values, self._vectors = np.linalg.eigh(moments.product_sum)
        self._bounds: Vector = raise_eigenvalues(values, moments.product_noise, shrinkage) / (4.0 * moments.rows)
        self._floor = float(self._bounds.max()) * moments.d * float(np.finfo(np.float64).eps)

    def step(self, gradient: Vector, least: float) -> Vector:
        """The bound's inverse, eigenvalues at least `least`, times a gradient (d,), where rows vary."""
        inverses = np.where(self._bounds > self._floor, 1.0 / np.maximum(self._bounds, max(least, self._floor)), 0.0)
        vectors: Matrix = self._vectors
        return np.asarray(vectors @ (inverses * (vectors.T @ gradient)))
