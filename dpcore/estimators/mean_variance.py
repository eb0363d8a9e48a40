"""The mean-variance estimator: the best linear classifier given the rados' mean and covariance.

Over all 2^m rados, mu = sum_i y_i x_i and S = sum_i x_i x_i^T are twice the mean and four times the covariance (the
mean-variance rado loss of Nock, IJCAI 2016). `estimate_moments` corrects for other distributions and for noise.

With a bias they give class sizes, class means and the covariance W within classes: two Gaussian classes, whose logistic
loss is minimised.

n rados determine S only up to a relative error of sqrt(d / n), so W is shrunk, by cross-validation over rados. Known
noise has a relative standard error of sqrt(2 / n) in n rados: up to four such errors are not subtracted. They act as a
ridge on noisy coordinates, also in validation.

Class means depend on the noisy S_jb: each is shrunk by the share of signal in its mean square. Records have no such
noise, so scale and threshold are refitted along the direction found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import LogOdds, RadoClassifier, RadoSample
from dpcore.estimators.class_discriminant import SHRINKAGE, GaussianClasses
from dpcore.estimators.moments_discriminant import (
    EdgeMoments,
    Spread,
    moments_of,
    noise_in_products,
    products_of,
    restoration,
)
from dpcore.estimators.oracle import ClassRowOracle
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.progress import Progress
from dpcore.rados.distribution import ClassMoments, Moments, RadoDistribution

# The expected logistic loss of Gaussian edges, by Gauss-Hermite quadrature over the margin N(theta . c, theta . C
# theta).
#
# Its nodes come in pairs, and f(a + v z) + f(a - v z) is convex in (a, v) and does not fall in v = sqrt(theta . C
# theta), which is convex in theta. So the quadrature sum is itself convex, and Newton's method minimises it.


_NODES, _RAW_WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_WEIGHTS = _RAW_WEIGHTS / _RAW_WEIGHTS.sum()

MOST_STEPS = 100
_TINY = 1e-12  # keeps sqrt(theta . C theta) differentiable at zero


@dataclass(frozen=True, eq=False)
class EdgeGroup:
    """`weight` records whose edges have mean `mean` (d,) and covariance `covariance` (d, d), positive semi-definite."""

    weight: float
    mean: Vector
    covariance: Matrix

    def spread(self, theta: Vector) -> tuple[Vector, float]:
        """C theta / v and v, where v is the standard deviation of theta . e."""
        image = self.covariance @ theta
        deviation = float(np.sqrt(max(float(theta @ image), 0.0) + _TINY))
        return image / deviation, deviation

    def loss(self, theta: Vector) -> float:
        """Weight times E log(1 + exp(-theta . e)), in nats."""
        margins = self.mean @ theta + self.spread(theta)[1] * _NODES
        return self.weight * float(_WEIGHTS @ np.logaddexp(0.0, -margins))

    def derivatives(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Gradient (d,) and Hessian (d, d) of `loss`."""
        direction, deviation = self.spread(theta)
        margins = self.mean @ theta + deviation * _NODES
        slope = -_sigmoid(-margins)
        curvature = _WEIGHTS * slope * (1.0 + slope) * -1.0
        first, second = float(_WEIGHTS @ slope), float((_WEIGHTS * slope) @ _NODES)
        mixed, square = float(curvature @ _NODES), float(curvature @ _NODES**2)
        gradient = first * self.mean + second * direction
        cross = mixed * np.outer(self.mean, direction)
        hessian = float(curvature.sum()) * np.outer(self.mean, self.mean) + cross + cross.T
        hessian += square * np.outer(direction, direction)
        hessian += second / deviation * (self.covariance - np.outer(direction, direction))
        return self.weight * gradient, self.weight * hessian


def fit_gaussian_logistic(groups: Sequence[EdgeGroup], penalties: Vector) -> Vector:
    """The theta (d,) that minimises sum over groups of `EdgeGroup.loss` plus (1/2) sum_j penalties_j theta_j^2."""
    total = sum(group.weight for group in groups)
    # An unbounded direction (one class only and no penalty) must not make the step infinite.
    damping = 1e-9 * total * np.eye(len(penalties))
    theta = np.zeros(len(penalties))

    def objective(candidate: Vector) -> float:
        return sum(group.loss(candidate) for group in groups) + 0.5 * float(penalties @ candidate**2)

    current = objective(theta)
    for _ in range(MOST_STEPS):
        gradient: Vector = penalties * theta
        hessian: Matrix = np.diag(penalties) + damping
        for group in groups:
            first, second = group.derivatives(theta)
            gradient, hessian = gradient + first, hessian + second
        step = np.asarray(np.linalg.lstsq(hessian, gradient, rcond=None)[0], dtype=np.float64)
        decrease, length = float(gradient @ step), 1.0
        while length > 1e-6 and objective(theta - length * step) > current - 1e-4 * length * decrease:
            length /= 2
        if length <= 1e-6 or decrease <= 1e-10 * max(current, 1e-6 * total):
            break
        theta = theta - length * step
        current = objective(theta)
    return theta


def _sigmoid(margins: Vector) -> Vector:
    """1 / (1 + exp(-margins)), without overflow."""
    result: Vector = np.exp(-np.logaddexp(0.0, -margins))
    return result


RIDGES: Vector = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.4, 1.5, 5.0])
"""The ridges tried, in units of the shrinkage target of W."""

TARGETS = ("identity", "diagonal")
"""Shrinkage targets of W: the identity times W's mean diagonal, or W's own diagonal."""

_LEAST_VALUE = 1e-3
"""An estimate of W may be indefinite: eigenvalues are raised to this fraction of their mean."""

_STANDARD_ERRORS = 4.0
"""Standard errors of the noise's sample variance that are not subtracted if they are large compared with the signal."""

_MEAN_SQUARE = 1.0 / 3.0
"""Prior mean square of a feature, and of its mean over the records: uniform on [-1, 1]."""

_LEAST_SIGNAL = 0.05
"""Lower bound on the share of the variance along theta that is attributed to records and not to noise."""

_LEAST_SPREAD = 0.02
"""Lower bound on the variance of a feature in [-1, 1] within a class, as a fraction of the largest possible."""


class MeanVariance(LogOdds, RadoClassifier):
    """The linear classifier of least logistic loss over Gaussian classes with the moments of the rados.

    - ridge: None chooses it, and the target, from the rados; otherwise at least 0, and W becomes (W + ridge target) /
      (1 + ridge), where target is the identity times W's mean diagonal.
    - penalty: positive; half of it times |theta|^2, without the bias, is added to the loss over all m records, like 1/C
      in scikit-learn's LogisticRegression.
    - n_folds: at least 2, the folds of rados that choose the ridge; fewer if there are fewer rados. n_rados,
      random_state: as in `RadoClassifier`.

    Assumes features in [-1, 1]: if a feature has mean c in a class, its variance there is in proportion to 1 - c^2 (as
    in every beta distribution on [-1, 1] of one concentration), and the average over both classes is W's. Without a
    bias coordinate the edges are taken as one Gaussian.

    After fitting, besides what `RadoClassifier` sets: `ridge_` and `target_`, the ridge used and its target;
    `mean_square_loss_`, the cross-validated (1/m) sum_i (1 - theta . e_i)^2 of the square loss's minimiser for each of
    `TARGETS` and `RIDGES`, with the kept noise in x_i, or None if nothing was validated.
    """

    several_classes: ClassVar[bool] = True

    def __init__(
        self,
        *,
        ridge: float | None = None,
        penalty: float = 1.0,
        n_folds: int = 10,
        n_rados: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_rados=n_rados, random_state=random_state)
        self.ridge = ridge
        self.penalty = penalty
        self.n_folds = n_folds

    def fit_moments(self, moments: Moments | ClassMoments) -> Self:
        """Fit to noisy moments instead of rados; returns self. Raises ConfigurationError.

        ridge None is 2 sqrt(d) times the products' root mean square deviation. Of several classes the result is that of
        dpcore.estimators.class_discriminant, step 4, without a ridge; with products of each class by their covariances.
        """
        self._check()
        if isinstance(moments, ClassMoments):
            if self.ridge is not None:
                raise ConfigurationError("a label of several classes takes no ridge: leave it out, or set the penalty")
            self._keep_classes(GaussianClasses.of(moments, SHRINKAGE).logistic_scores(self.penalty))
            return self
        noise = float(np.sqrt(np.mean(moments.product_noise**2)))
        split = _Split.of(EdgeMoments(moments.edge_sum, moments.product_sum, moments.rows, moments.bias))
        ridge = self.ridge
        if ridge is None:
            ridge = 2.0 * np.sqrt(moments.d) * noise / split.scale
        theta = self._accept(split, TARGETS[0], ridge, None)
        self._keep_encoded(theta)
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """As `RadoClassifier.fit`, not private; of several classes to the exact moments of the rows."""
        if (several := self._class_rows(X, y)) is None:
            return super().fit(X, y)
        exact = ClassRowOracle(*several, len(self.classes_))
        moments = exact.class_moments(products_of_each_class=True)
        theta = GaussianClasses.of(moments, SHRINKAGE).logistic_scores(self.penalty)
        self._keep_class_rows(np.array([exact.in_given_units(row) for row in theta]))
        return self

    def _learn(self, release: RadoSample, progress: Progress | None) -> Vector:
        self._check()
        statistics = _Statistics.of(release)
        noise = _Noise.of(statistics)
        split = _Split.of(noise.believed(statistics.moments(statistics.whole), statistics.whole.count))
        if self.ridge is not None:
            return self._accept(split, TARGETS[0], self.ridge, None, noise)
        loss = self._validate(statistics, noise, progress)
        target, ridge = np.unravel_index(np.argmin(loss), loss.shape)
        return self._accept(split, TARGETS[target], RIDGES[ridge], loss, noise)

    def _check(self) -> None:
        if self.ridge is not None and not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise ConfigurationError(f"ridge is {self.ridge}: it must be finite and at least 0, or None")
        if not (np.isfinite(self.penalty) and self.penalty > 0):
            raise ConfigurationError(f"penalty is {self.penalty}: it must be finite and positive")
        if self.n_folds < 2:
            raise ConfigurationError(f"n_folds is {self.n_folds}: cross-validation needs at least 2")

    def _accept(
        self, split: "_Split", target: str, ridge: float, loss: Matrix | None, noise: "_Noise | None" = None
    ) -> Vector:
        self.ridge_, self.target_, self.mean_square_loss_ = float(ridge), target, loss
        penalties = np.full(len(split.moments.edge_sum), float(self.penalty))
        if split.moments.bias:
            penalties[-1] = 0.0
        shrinkage = _Shrinkage.of(split, target)
        groups = split.groups(shrinkage.matrix(ridge))
        theta = fit_gaussian_logistic(groups, penalties)
        if noise is None or not split.moments.bias or not noise.kept[:-1].any():
            return theta
        return self._without_noise(theta, groups, shrinkage.signal(theta[:-1], ridge, noise.kept[:-1]))

    def _without_noise(self, theta: Vector, groups: list[EdgeGroup], signal: float) -> Vector:
        """Theta's direction without the bias, with the scale and threshold for a `signal` of the variance along it."""
        direction = theta[:-1]
        along = []
        for group in groups:
            variance = signal * float(direction @ group.covariance[:-1, :-1] @ direction)
            mean = np.array([group.mean[:-1] @ direction, group.mean[-1]])
            along.append(EdgeGroup(group.weight, mean, np.diag([variance, 0.0])))
        scale, bias = fit_gaussian_logistic(along, np.array([self.penalty * float(direction @ direction), 0.0]))
        return np.append(scale * direction, bias)

    def _validate(self, statistics: "_Statistics", noise: "_Noise", progress: Progress | None) -> Matrix:
        """Cross-validated square loss per row for each target and ridge, (targets, ridges)."""
        n, rows, distribution = statistics.whole.count, statistics.rows, statistics.distribution
        mu = statistics.whole.mean / distribution.inclusion
        folds = min(self.n_folds, n // 2) if n > 3 else n
        loss = np.ones((len(TARGETS), len(RIDGES)))
        for fold in range(folds):
            held_out = statistics.fold(fold, folds)
            if n - held_out.count < 2:
                continue
            kept = statistics.whole.without(held_out)
            split = _Split.of(noise.believed(statistics.moments(kept, mu), kept.count))
            products = products_of(held_out.about(statistics.whole.mean) / held_out.count, mu, rows, distribution)
            if distribution.rounding is not None:
                rounded = np.flatnonzero(distribution.rounding)
                products[rounded, rounded] = split.moments.product_sum[rounded, rounded] - noise.kept[rounded]
            products += np.diag(noise.kept)
            for row, target in enumerate(TARGETS):
                thetas = _Shrinkage.of(split, target).least_squares(RIDGES)
                square = np.einsum("rj,jk,rk->r", thetas, products, thetas)
                loss[row] += (square - 2.0 * thetas @ mu) / rows * (held_out.count / n)
            if progress is not None:
                progress(fold + 1, folds)
        return loss


@dataclass(frozen=True, eq=False)
class _Statistics:
    """Statistics of a release's rados, restored if their signatures were truncated; the rados are read, not copied."""

    rados: Matrix
    rows: int
    bias: bool
    distribution: RadoDistribution
    whole: Spread
    centre: Vector
    to: Matrix | None

    @classmethod
    def of(cls, release: RadoSample) -> "_Statistics":
        spread = Spread.of(release.rados)
        to, distribution = restoration(spread, release.rows, release.distribution)
        whole = spread if to is None else spread.mapped(spread.mean, to)
        return cls(release.rados, release.rows, release.bias, distribution, whole, spread.mean, to)

    def fold(self, number: int, count: int) -> Spread:
        """A fold's spread. Rados are exchangeable, so any split is valid and no randomness is needed."""
        spread = Spread.of(self.rados[number::count])
        return spread if self.to is None else spread.mapped(self.centre, self.to)

    def moments(self, spread: Spread, edge_sum: Vector | None = None) -> EdgeMoments:
        return moments_of(spread, self.rows, self.distribution, bias=self.bias, edge_sum=edge_sum)


@dataclass(frozen=True, eq=False)
class _Noise:
    """The noise in a release's S: whole (d,), its diagonal; kept (d,), the part not subtracted, 0 for the bias."""

    whole: Vector
    kept: Vector

    @classmethod
    def of(cls, statistics: _Statistics) -> "_Noise":
        n, d = statistics.rados.shape
        whole = noise_in_products(statistics.distribution, statistics.rows, d)
        error = np.sqrt(2.0 / n) * whole
        kept = np.minimum(whole, _STANDARD_ERRORS * error**2 / (error + _MEAN_SQUARE * statistics.rows))
        if statistics.bias:
            kept[-1] = 0.0
        return cls(whole, kept)

    def believed(self, moments: EdgeMoments, n: int) -> EdgeMoments:
        """The moments from n rados, with S_jb shrunk and the kept noise added."""
        if not self.whole.any():
            return moments
        products = moments.product_sum.copy()
        if moments.bias:
            rows, sums = moments.rows, products[-1, :-1].copy()
            added, added_to_bias = self.whole[:-1], self.whole[-1]
            # Variance of a sample covariance minus its variance without noise; |x_j| <= 1.
            squares = np.clip(np.diag(products)[:-1], 0.0, rows)
            error = (added * (rows + added_to_bias) + squares * added_to_bias) / n
            signal = _MEAN_SQUARE * float(rows) ** 2
            shrunk = sums * (signal / (signal + error))
            products[:-1, :-1] += (np.outer(shrunk, shrunk) - np.outer(sums, sums)) / rows
            products[-1, :-1] = products[:-1, -1] = shrunk
        products += np.diag(self.kept)
        return EdgeMoments(moments.edge_sum, products, moments.rows, moments.bias)


@dataclass(frozen=True, eq=False)
class _Split:
    """S split into class means and the covariance within classes, without the bias; without one: one class."""

    moments: EdgeMoments
    sizes: tuple[float, ...]
    """Records of class +1 and of class -1, each at least a half."""
    means: Matrix
    """(2, .), their mean features."""
    within: Matrix
    """W, the sum of products within classes, positive definite."""
    apart: Vector
    """(.,), u, such that S given the bias is W + u u^T."""
    scale: float
    """W's mean diagonal, positive."""

    @classmethod
    def of(cls, moments: EdgeMoments) -> "_Split":
        mu, products, rows = moments.edge_sum, moments.product_sum, moments.rows
        if not moments.bias:
            apart = mu / np.sqrt(rows)
            return cls(moments, (float(rows),), mu[np.newaxis] / rows, *cls._left(products, apart))
        sums = products[-1]
        positive = float(np.clip((rows + mu[-1]) / 2.0, 0.5, rows - 0.5)) if rows > 1 else 0.5
        sizes = (positive, rows - positive)
        means = np.stack([(sums + mu)[:-1] / (2.0 * sizes[0]), (sums - mu)[:-1] / (2.0 * sizes[1])])
        given_bias = products[:-1, :-1] - np.outer(sums[:-1], sums[:-1]) / rows
        # With exact moments this is sqrt(m+ m- / m) (mean+ - mean-); this form stays bounded with noisy ones.
        apart = (mu[:-1] - sums[:-1] * (mu[-1] / rows)) / (2.0 * np.sqrt(sizes[0] * sizes[1] / rows))
        return cls(moments, sizes, means, *cls._left(given_bias, apart))

    @staticmethod
    def _left(products: Matrix, apart: Vector) -> tuple[Matrix, Vector, float]:
        """W made positive definite, u, and the scale."""
        if not len(products):
            return products, apart, 1.0
        values, vectors = np.linalg.eigh(products - np.outer(apart, apart))
        # If the classes are far apart, the trace within them is small and noisy: take at least 1 % of the whole trace.
        scale = max(float(values.sum()), 0.01 * float(np.trace(products)), 0.0) / len(values)
        scale = scale if scale > 0 else 1.0
        within = (vectors * np.maximum(values, _LEAST_VALUE * scale)) @ vectors.T
        return within, apart, float(np.trace(within)) / len(within)

    def groups(self, within: Matrix) -> list[EdgeGroup]:
        """The Gaussian classes, with W replaced by `within`."""
        rows = self.moments.rows
        if not self.moments.bias:
            return [EdgeGroup(float(rows), self.means[0], within / rows)]
        # Relative standard deviations of each feature in the classes; their products average to 1 over the records.
        spread = np.sqrt(np.maximum(1.0 - self.means**2, _LEAST_SPREAD))
        shape = sum(size / rows * np.outer(one, one) for size, one in zip(self.sizes, spread, strict=True))
        groups = []
        for size, sign, mean, one in zip(self.sizes, (1.0, -1.0), self.means, spread, strict=True):
            covariance = np.zeros((len(mean) + 1, len(mean) + 1))
            covariance[:-1, :-1] = within / rows * np.outer(one, one) / shape
            groups.append(EdgeGroup(size, sign * np.append(mean, 1.0), covariance))
        return groups


@dataclass(frozen=True, eq=False)
class _Shrinkage:
    """W in units of its target: W = diag(unit) vectors diag(values) vectors^T diag(unit), values of mean 1."""

    split: _Split
    diagonal: bool
    unit: Vector
    values: Vector
    vectors: Matrix

    @classmethod
    def of(cls, split: _Split, target: str) -> "_Shrinkage":
        within = split.within
        unit = np.sqrt(np.diag(within) if target == "diagonal" else np.full(len(within), split.scale))
        values, vectors = np.linalg.eigh(within / np.outer(unit, unit)) if len(within) else (np.zeros(0), within)
        return cls(split, target == "diagonal", unit, np.maximum(values, np.finfo(np.float64).eps * len(unit)), vectors)

    def matrix(self, ridge: float) -> Matrix:
        """(W + ridge target) / (1 + ridge), which has the same trace as W."""
        half = self.unit[:, np.newaxis] * self.vectors
        shrunk: Matrix = (half * ((self.values + ridge) / (1.0 + ridge))) @ half.T
        return shrunk

    def signal(self, direction: Vector, ridge: float, noise: Vector) -> float:
        """The share of the variance along `direction` that is not noise of these variances, at least _LEAST_SIGNAL."""
        whole = float(direction @ self.matrix(ridge) @ direction)
        share = float(noise @ direction**2)
        # The noise's mean is part of the identity's multiple.
        target = share if self.diagonal else float(noise.mean()) * float(direction @ direction)
        noisy = (share + ridge * target) / (1.0 + ridge)
        return max(1.0 - noisy / whole, _LEAST_SIGNAL) if whole > 0 else 1.0

    def least_squares(self, ridges: Vector) -> Matrix:
        """The minimiser of the square loss with W shrunk by each ridge, (ridges, d)."""
        u, moments = self.split.apart, self.split.moments
        values = (self.values + ridges[:, np.newaxis]) / (1.0 + ridges[:, np.newaxis])
        solved = ((self.vectors.T @ (u / self.unit)) / values) @ self.vectors.T / self.unit
        # (W + u u^T)^-1 u by Sherman and Morrison; the right-hand side is a multiple of u.
        ratio = np.sqrt(float(moments.rows))
        if moments.bias:
            ratio = 2.0 * np.sqrt(self.split.sizes[0] * self.split.sizes[1] / moments.rows)
        thetas: Matrix = ratio * solved / (1.0 + solved @ u)[:, np.newaxis]
        if not moments.bias:
            return thetas
        slopes = moments.product_sum[-1, :-1] / moments.rows
        return np.column_stack([thetas, moments.edge_sum[-1] / moments.rows - thetas @ slopes])
