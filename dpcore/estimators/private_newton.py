"""Private logistic regression in a few rounds: noisy moments once, then noisy gradients in whitened coordinates.

With A in place of S_hat (dpcore.estimators.moments_discriminant, step 1), P = (A / m)^(-1/2) is a public basis in which
records z = P e have about one spread. Each further release is the mean of -w z at one phi, w = min(1 / (1 + exp(phi .
z)), C / |z|).

Near its root phi* it is about kappa (I + D) (phi - phi*): ridge regression over all releases of phi_t - g_t / kappa = c
- D phi_t + noise estimates c and D, and the next phi is the root.

Proof: docs/explanation/proofs.md, "Private Newton steps".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from dpcore.errors import ConfigurationError, OracleRefusedError, PlanError
from dpcore.estimators.base import LinearClassifier
from dpcore.estimators.class_newton import MOST_WEIGHTS
from dpcore.estimators.class_newton import learn as learn_classes
from dpcore.estimators.errors_of_weights import Answer, Released, errors_of_weights
from dpcore.estimators.moments_discriminant import MomentsDiscriminant, raise_eigenvalues
from dpcore.estimators.oracle import ClassOracle, ClassRowOracle, MomentsAndGradients, RowOracle, check_left
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.queries.moments import LITTLE_NOISE, longest_norm, norm_bound_of
from dpcore.rados.distribution import ClassMoments, Moments, NumberMoments
from dpcore.records.clipping import Basis
from dpcore.records.schema import Schema

# The spread of a symmetric S along the eigenvectors v_i of M = S + W, W of standard deviation s in each entry: for
# large d
#
#     v_i^T S v_i = lambda_i - 2 s^2 sum over j of 1 / (lambda_i - lambda_j)
#
# (Bun, Allez, Bouchaud and Potters, IEEE Transactions on Information Theory 62, 2016). For a finite d each 1 / x is x /
# (x^2 + width^2) here, and the estimates are made ascending.


_WIDTH = 2.0
"""The width of the Hilbert transform's kernel over s. On six measured sets at epsilon 0.5 and 1 models of curves err
0.16 points more on average with 1, and 0.06 with 4."""


def cleaned_eigenvalues(values: Vector, noise: float) -> Vector:
    """Estimates of v_i^T S v_i, (d,), ascending, of the eigenvalues of M (d,); noise: s >= 0. Some may be negative."""
    if noise == 0.0:
        return values
    # In units of the noise: squares of very small or large differences would vanish or overflow.
    apart = np.subtract.outer(values, values) / noise
    repulsion = (apart / (np.square(apart) + _WIDTH**2)).sum(axis=1)
    found: Vector = np.maximum.accumulate(values - 2.0 * noise * repulsion)
    return found


# Measured over eighteen tasks at epsilon 0.3 and 1: errors hardly change from 0.7 to 1.4 times each value.
CURVATURE = 0.05
"""kappa: average curvature of a record in a whitened direction, w (1 - w), or 0 if it is clipped."""

_CURVATURE_SPREAD = 1.0
"""D's diagonal entries have a prior standard deviation of this over sqrt(d), the others 1/sqrt(2) of that."""

_BENDING = 0.1
"""Squared error of the affine model, for each coordinate, per squared distance from the current phi."""

_LONGEST_STEP = 3.0
_LEAST_CURVATURE, _LARGEST_CURVATURE = 0.2, 10.0
"""Bounds on the eigenvalues of I + D."""

_LEAST_NOISE = 1e-4
"""Noise on a step's coordinate that is assumed for a release without noise, since the affine model is never exact."""

_SAMPLING = 0.5
"""Mean square of a coordinate of w z over that of C / |z|, which bounds it."""

_LEAST_EIGENVALUE = 2.0**-16
"""Lower bound on A's eigenvalues over their mean: weaker directions would make entries of P too large to be exact."""

_CLIP_UNITS = 1000

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

_ROOM_OF_CLASSES = Fraction(3, 10)
"""Of the way from the usual norm of two classes to `roomy_norm`: at either end errors are up to two points larger."""


class PrivateNewton(LinearClassifier):
    """A linear classifier from one release of moments and `rounds` - 1 of gradients; see the module's docstring.

    - rounds: at least 2. moments_part: the part of the budget's squared mu for the first release, by default 0.25, of
      several classes 0.4; the others share the rest equally.
    - clip: C over the root mean square of |z|, by default 0.25, of several classes 0.7. shrinkage: as in
      `MomentsDiscriminant`, by default 0.8, of several classes 0.5.
    - norm_bound: the clipping norm R of the moments; None is `roomy_norm` of the schema, and no clipping in `fit`.
      Results hardly change for values up to 1.4 times larger or smaller. Of several classes None is less roomy.

    After `fit_queries`: `theta_` (d,) over the schema's coordinates, `coef_` = theta_ as (1, d), `intercept_` zero,
    `classes_` [-1, 1]; `covariance_` (d, d), the second moment of theta_'s errors
    (dpcore.estimators.errors_of_weights), None after moments alone; `rounds_done_`, the number of releases used;
    `warning_`, why there were fewer than `rounds`, else None.

    After `fit`: `coef_` (1, features), `intercept_` the bias, `covariance_` None.

    Of a label of several classes, `fit_queries` learns a row of weights for each, `theta_` (k, d), as
    dpcore.estimators.class_newton describes; `covariance_` is then None.
    """

    several_classes: ClassVar[bool] = True

    def __init__(
        self,
        *,
        rounds: int = 8,
        moments_part: float | None = None,
        clip: float | None = None,
        shrinkage: float | None = None,
        norm_bound: Fraction | None = None,
    ) -> None:
        self.rounds = rounds
        self.moments_part = moments_part
        self.clip = clip
        self.shrinkage = shrinkage
        self.norm_bound = norm_bound

    def fit_queries(self, oracle: MomentsAndGradients) -> Self:
        """Fit by querying; returns self. If a query after the first is refused, the result so far is kept.

        Raises ConfigurationError, also for more than MOST_COORDINATES; OracleRefusedError.
        """
        self._check()
        check_left(oracle)
        if oracle.schema.d > MOST_COORDINATES:
            raise ConfigurationError(
                f"the schema has {oracle.schema.d} coordinates, and a query for a gradient at most {MOST_COORDINATES}: "
                "leave some out, or train an estimator on moments"
            )
        if oracle.schema.label.classes:
            # An oracle about several classes answers what `ClassOracle` lists.
            self._keep_classes(self._learn_classes(cast("ClassOracle", oracle)))
            return self
        self._keep_encoded(self._learn(oracle, self.norm_bound or roomy_norm(oracle.schema)))
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows without noise, for comparison; returns self. As `RadoClassifier.fit`, or of several classes."""
        if (several := self._class_rows(X, y)) is not None:
            self._check()
            exact = ClassRowOracle(*several, len(self.classes_))
            learned = self._learn_classes(exact)
            self._keep_class_rows(np.array([exact.in_given_units(row) for row in learned]))
            return self
        rows = RowOracle(self._edges(X, y))
        self._check()
        self._keep(rows.in_given_units(self._learn(rows, self.norm_bound)))
        self.covariance_: Matrix | None = None
        return self

    def _learn(self, oracle: MomentsAndGradients, norm_bound: Fraction | None) -> Vector:
        settings = self._settings(USUAL)
        first = settings.first
        moments = oracle.moments(part=first, norm_bound=norm_bound)
        whitening = Whitening.of(moments, settings.shrinkage)
        clip = clip_of(settings.clip, whitening.size)
        # The minimiser of the logistic loss's second-order expansion at zero, where z has covariance I.
        phi = 2.0 * (whitening.basis.matrix @ moments.edge_sum) / moments.rows
        seen: list[Seen] = []
        answers: list[Answer] = []
        self.warning_: str | None = None
        for _ in range(self.rounds - 1):
            part = (1 - first) / (self.rounds - 1)
            try:
                answer = oracle.gradient(phi, clip=clip, part=part, basis=whitening.basis)
            except (OracleRefusedError, PlanError) as error:
                self.warning_ = f"received {1 + len(seen)} of {self.rounds} releases: {error}"
                break
            answers.append(Answer(whitening.basis.matrix.T @ phi, answer.mean, answer.deviation, np.eye(moments.d)))
            seen.append(Seen(phi, phi - answer.mean / CURVATURE, answer.deviation / CURVATURE))
            phi = bounded_step(phi, root(seen))
        self.rounds_done_ = 1 + len(seen)
        self.covariance_ = None
        if not seen:
            theta: Vector = MomentsDiscriminant(shrinkage=settings.shrinkage).fit_moments(moments).theta_
            return theta
        learned: Vector = whitening.basis.matrix.T @ phi
        released = Released(oracle.schema, moments, whitening.basis.matrix, float(clip))
        self.covariance_ = errors_of_weights(learned, answers, released)
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
        norm_bound = self.norm_bound or _norm_of_classes(oracle.schema, oracle.epsilon)
        moments = oracle.class_moments(part=first, norm_bound=norm_bound)
        whitening = Whitening.of(moments, settings.shrinkage)
        clip = clip_of(settings.clip, whitening.size)
        part, basis = (1 - first) / (self.rounds - 1), whitening.basis
        learned = learn_classes(
            lambda phi: oracle.class_gradient(phi, clip=clip, part=part, basis=basis),
            moments,
            basis.matrix,
            float(clip),
            self.rounds - 1,
            settings.shrinkage,
        )
        self.rounds_done_, self.warning_, self.covariance_ = 1 + learned.rounds, None, None
        if learned.refusal is not None:
            self.warning_ = f"received {self.rounds_done_} of {self.rounds} releases: {learned.refusal}"
        return learned.phi @ basis.matrix

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


def roomy_norm(schema: Schema) -> Fraction:
    """R with R^2 = 2/3 (real features) + (other features) + (bias), rounded up to hundredths."""
    return norm_bound_of(
        real_features=2 * sum(group.scaled_coordinates for group in schema.groups),
        unit_features=sum(group.unit_groups for group in schema.groups),
        bias=schema.bias,
    )


def _norm_of_classes(schema: Schema, epsilon: Fraction) -> Fraction:
    """R between that of `usual_norm` for two classes and that of `roomy_norm`; with little noise nothing is clipped."""
    if epsilon >= LITTLE_NOISE:
        return longest_norm(schema)
    lean = norm_bound_of(
        real_features=sum(group.scaled_coordinates for group in schema.groups),
        unit_features=sum(group.unit_groups for group in schema.groups),
        bias=schema.bias,
    )
    return lean + (roomy_norm(schema) - lean) * _ROOM_OF_CLASSES


@dataclass(frozen=True, eq=False)
class Whitening:
    """P, and the second moments of the records z as the release shows them: spread, (d, d)."""

    basis: Basis
    spread: Matrix

    @classmethod
    def of(cls, moments: Moments | ClassMoments | NumberMoments, shrinkage: float) -> "Whitening":
        """From noisy moments; shrinkage: as for `raise_eigenvalues`; without noise a small amount is applied too."""
        values, vectors = np.linalg.eigh(moments.product_sum)
        return cls._of_spreads(vectors, values, raise_eigenvalues(values, moments.product_noise, shrinkage), moments)

    @classmethod
    def cleaned(cls, moments: Moments, shrinkage: float) -> "Whitening":
        """From noisy moments; the least eigenvalue is sqrt(shrinkage d) times the noise of an entry."""
        values, vectors = np.linalg.eigh(moments.product_sum)
        noise = float(np.linalg.norm(moments.product_noise)) / moments.d
        spreads = cleaned_eigenvalues(values, noise)
        least = float(np.sqrt(shrinkage * moments.d)) * noise
        return cls._of_spreads(vectors, spreads, np.maximum(spreads, least), moments)

    @classmethod
    def _of_spreads(
        cls, vectors: Matrix, spreads: Vector, raised: Vector, moments: Moments | ClassMoments | NumberMoments
    ) -> "Whitening":
        """From estimates of the second moments along eigenvectors, (d,), and the same raised, by which to divide."""
        least = _LEAST_EIGENVALUE * max(float(np.trace(moments.product_sum)) / moments.d, 1.0)
        raised = np.maximum(raised, least)
        matrix = (vectors * np.sqrt(moments.rows / raised)) @ vectors.T
        # Directions with a negative estimate have little spread: they count as none.
        return cls(Basis.of(matrix), np.asarray((vectors * (np.maximum(spreads, 0.0) / raised)) @ vectors.T))

    @property
    def size(self) -> float:
        """An estimate of the root mean square of |z|, at least 1."""
        return max(1.0, float(np.sqrt(np.trace(self.spread))))

    def size_along(self, axes: Matrix) -> float:
        """The same for the part of z along orthonormal axes, (d, k)."""
        return max(1.0, float(np.sqrt((axes * (self.spread @ axes)).sum())))


def clip_of(relative: float, size: float) -> Fraction:
    """C, from its ratio to the root mean square of |z|, `size`."""
    return max(Fraction(1, _CLIP_UNITS), Fraction(relative * size).limit_denominator(_CLIP_UNITS))


def noise_of(seen: Sequence["Seen"]) -> float:
    """The variance of each coordinate of phi for the noise of all releases."""
    return 1.0 / sum(1.0 / one.noise**2 for one in seen) if seen[-1].noise else 0.0


def sampling_of(relative_clip: float, rows: int) -> float:
    """The variance of each coordinate of phi for the sampling of rows."""
    return _SAMPLING * (relative_clip / CURVATURE) ** 2 / rows


def bounded_step(phi: Vector, found: Vector) -> Vector:
    """The next phi: `found`, or the point at `_LONGEST_STEP` towards it."""
    step = found - phi
    return phi + step * min(1.0, _LONGEST_STEP / max(float(np.linalg.norm(step)), _LEAST_NOISE))


@dataclass(frozen=True, eq=False)
class Seen:
    """A past release: phi, where the gradient was taken; target, phi - g / kappa; noise, its standard deviation."""

    phi: Vector
    target: Vector
    noise: float


@dataclass(frozen=True, eq=False)
class _Affine:
    """The ridge regression target_t = target - D (phi_t - start) + noise over releases, D symmetric."""

    start: Vector
    target: Vector
    change: Matrix
    """D. Releases count by one over their variance."""

    @classmethod
    def of(cls, seen: Sequence[Seen]) -> "_Affine":
        phis, targets = (np.array([getattr(one, name) for one in seen]) for name in ("phi", "target"))
        d = phis.shape[1]
        variances = np.square(np.maximum([one.noise for one in seen], _LEAST_NOISE))
        bending = _BENDING * np.square(phis - phis[-1]).sum(axis=1) / d
        weights = 1.0 / (variances + bending)
        shares = weights / weights.sum()
        start, target = shares @ phis, shares @ targets
        walked = (phis - start) * np.sqrt(weights)[:, np.newaxis]
        observed = (targets - target) * np.sqrt(weights)[:, np.newaxis]
        # The symmetric D that minimises |walked D + observed|^2 + rho |D|^2 solves A D + D A + 2 rho D = -(B + B^T),
        # with A = walked^T walked and B = walked^T observed: entry by entry in a basis where A is diagonal.
        spreads, axes = np.linalg.eigh(walked.T @ walked)
        pull = axes.T @ (walked.T @ observed) @ axes
        rho = d / _CURVATURE_SPREAD**2
        change = -axes @ ((pull + pull.T) / (np.add.outer(spreads, spreads) + 2.0 * rho)) @ axes.T
        return cls(start, target, change)

    @property
    def root(self) -> Vector:
        values, vectors = np.linalg.eigh(np.eye(len(self.start)) + self.change)
        values = np.clip(values, _LEAST_CURVATURE, _LARGEST_CURVATURE)
        found: Vector = self.start + vectors @ ((vectors.T @ (self.target - self.start)) / values)
        return found


def root(seen: Sequence[Seen]) -> Vector:
    """The root (d,) of the mean gradient, by ridge regression over releases, the last of which is the current one."""
    return _Affine.of(seen).root
