"""Several Gaussian classes, from noisy moments: Fisher's linear discriminant, and draws from the classes.

A `ClassMoments` release gives, with the noise's size, sizes m_c and sums of the records of each class and S = sum_i x_i
x_i^T.

1. Class means are moved towards the overall mean by the share of their spread that noise explains (a James-Stein
   estimate for each coordinate).
2. The covariance within classes is W = (S - sum_c m_c mean_c mean_c^T) / m without the bias, its eigenvalues raised as
   in dpcore.estimators.moments_discriminant.
3. With one covariance W the scores W^-1 mean_c . x - mean_c W^-1 mean_c / 2 + log(m_c / m) are the classes' log odds,
   up to a constant: Fisher's discriminant.
4. But features are bounded: as in dpcore.estimators.mean_variance one with mean c in a class has variance in proportion
   to 1 - c^2 there. The scores are then those of least multinomial logistic loss over rows drawn from such classes.
   These are public, and drawn with a fixed seed.

A release with products of each class gives their covariances too, and rows are drawn with these instead of step 4's.
Each is moved towards that of step 4 by the share of their distance that noise and sampling explain.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.estimators.moments_discriminant import raise_eigenvalues
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.processors import one_blas_thread
from dpcore.rados.distribution import ClassMoments

SHRINKAGE = 0.8
"""Of eigenvalues, as in `MomentsDiscriminant`."""

_LEAST_SIZE = 3.0
"""The size of a class is at least this many standard errors of it, and at least 1: a class may have no row at all."""

MOST_WEIGHTS = 2000
"""K d up to which rows are drawn: for more the discriminant has to do."""

_DRAWN, _LEAST_DRAWN, _SEED = 30_000, 50, 1973
"""Drawn rows, and the fewest of a class. With 8,000 digits err 0.3 points more."""

_STEPS = 200
"""Of the minimiser, at most."""

_LEAST_SPREAD = 0.02
"""Lower bound on the variance of a feature within a class, as a fraction of the largest possible."""

_LEAST_VALUE = 1e-6
"""Eigenvalues of W are at least this fraction of their mean: digits have pixels that never vary."""


@dataclass(frozen=True, eq=False)
class GaussianClasses:
    """Classes with their own means and one covariance, and perhaps their own ones too, without the bias."""

    sizes: Vector
    """(k,), numbers of records; positive, and their sum is m."""
    means: Matrix
    """(k, d - 1), within [-1, 1]."""
    within: Matrix
    """(d - 1, d - 1), W, positive definite."""
    products: "ClassProducts | None" = None
    """What is known of each class's covariance; None if the release does not tell."""

    @classmethod
    def of(cls, moments: ClassMoments, shrinkage: float) -> "GaussianClasses":
        """shrinkage: as for `raise_eigenvalues`. Raises ConfigurationError without a bias, which holds the sizes."""
        if not moments.bias:
            raise ConfigurationError("the sizes of classes are the sums of the bias: set bias = true in the schema")
        m, noise = float(moments.rows), moments.sum_noise
        least: Vector = np.maximum(moments.class_sums[:, -1], max(1.0, _LEAST_SIZE * noise))
        sizes = least * (m / float(least.sum()))
        overall = moments.product_sum[-1, :-1] / m
        apart = moments.class_sums[:, :-1] / sizes[:, np.newaxis] - overall
        errors = np.square(noise / sizes)
        signal = np.maximum(np.square(apart).mean(axis=1) - errors, 0.0)
        share = np.divide(signal, signal + errors, out=np.ones_like(signal), where=errors > 0)
        means = np.clip(overall + apart * share[:, np.newaxis], -1.0, 1.0)
        products = moments.product_sum[:-1, :-1] - (means.T * sizes) @ means
        values, vectors = np.linalg.eigh(products)
        raised = raise_eigenvalues(values, moments.product_noise[:-1, :-1], shrinkage)
        raised = np.maximum(raised, max(_LEAST_VALUE * float(raised.mean()), np.finfo(np.float64).tiny))
        found = None if moments.class_products is None else ClassProducts.of(moments, sizes, means)
        return cls(sizes, means, (vectors * (raised / m)) @ vectors.T, found)

    @property
    def rows(self) -> float:
        """M."""
        return float(self.sizes.sum())

    def scores(self, penalty: float) -> Matrix:
        """Theta (k, d), the bias last, of the module's step 3, with penalty / m added to the diagonal of W.

        W is first moved towards its mean diagonal by d / m, the order of its sampling error.
        """
        d = len(self.within)
        ridge = penalty / self.rows + min(1.0, d / self.rows) * float(np.trace(self.within)) / d
        within = self.within + ridge * np.eye(d)
        slopes = np.asarray(np.linalg.solve(within, self.means.T).T, dtype=np.float64)
        intercepts = np.log(self.sizes / self.rows) - 0.5 * (slopes * self.means).sum(axis=1)
        return np.column_stack([slopes, intercepts])

    def logistic_scores(self, penalty: float) -> Matrix:
        """Theta (k, d), the bias last, of the module's step 4; of more than `MOST_WEIGHTS` weights that of step 3.

        penalty: half of it times |theta|^2, without the bias, is added to the loss over all m records.
        """
        start = self.scores(penalty)
        if start.size > MOST_WEIGHTS:
            return start
        rows, codes, weights = self._drawn()
        return _least_loss(start, rows, codes, weights, penalty / self.rows)

    def _drawn(self) -> tuple[Matrix, NDArray[np.int64], Vector]:
        """Rows (n, d) with the bias last, their classes, and their weights, of sum 1."""
        generator = np.random.default_rng(_SEED)
        spread = np.sqrt(np.maximum(1.0 - np.square(self.means), _LEAST_SPREAD))
        # Weighted by the classes' sizes, their covariances add up to W, which is moved as in `scores`.
        shape = (spread.T * (self.sizes / self.rows)) @ spread
        d = len(self.within)
        ridge = min(1.0, d / self.rows) * float(np.trace(self.within)) / d
        common = (self.within + ridge * np.eye(d)) / shape
        root = _root(common)
        rows, codes, weights = [], [], []
        for code, (size, mean, scale) in enumerate(zip(self.sizes, self.means, spread, strict=True)):
            half = max(_LEAST_DRAWN, round(_DRAWN * size / self.rows)) // 2
            if self.products is None:
                away = generator.standard_normal((half, d)) @ root * scale
            else:
                own = self.products.covariance(code, common * np.outer(scale, scale))
                away = generator.standard_normal((half, d)) @ _root(own)
            rows.append(mean + np.vstack([away, -away]))
            codes.append(np.full(2 * half, code))
            weights.append(np.full(2 * half, size / self.rows / (2 * half)))
        features = np.vstack(rows)
        return np.column_stack([features, np.ones(len(features))]), np.concatenate(codes), np.concatenate(weights)


@dataclass(frozen=True, eq=False)
class ClassProducts:
    """The covariances of a release with products of each class, and their noise."""

    covariances: NDArray[np.float64]
    """(k, d - 1, d - 1), symmetric; with noise they need not be positive semi-definite."""
    sizes: Vector
    """(k,), numbers of records."""
    noise: Matrix
    """(d - 1, d - 1), the deviation of each product's sum."""

    @classmethod
    def of(cls, moments: ClassMoments, sizes: Vector, means: Matrix) -> "ClassProducts":
        """Of moments with them, about these means (k, d - 1), for classes of these sizes."""
        assert moments.class_products is not None, "the caller looked"
        found = []
        for products, size, mean in zip(moments.class_products, sizes, means, strict=True):
            across = np.outer(products[-1, :-1], mean)
            about = products[:-1, :-1] - across - across.T + size * np.outer(mean, mean)
            found.append(about / size)
        return cls(np.array(found), sizes, moments.class_noise[:-1, :-1])

    def covariance(self, code: int, usual: Matrix) -> Matrix:
        """A class's covariance, moved towards `usual` as far as noise and sampling explain their distance.

        The variance of an entry jk of a sample's covariance C is (C_jj C_kk + C_jk^2) / m_c for Gaussian classes.
        """
        found, size = self.covariances[code], float(self.sizes[code])
        variances = np.diag(usual)
        sampling = float((np.outer(variances, variances) + np.square(usual)).sum()) / size
        noise = float(np.square(self.noise / size).sum())
        apart = float(np.square(found - usual).sum())
        share = max(0.0, 1.0 - (sampling + noise) / apart) if apart > 0 else 0.0
        moved: Matrix = usual + share * (found - usual)
        return moved


def _root(covariance: Matrix) -> Matrix:
    """R with R^T R the covariance, whose negative eigenvalues count as 0."""
    values, vectors = np.linalg.eigh(covariance)
    root: Matrix = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return root


def _least_loss(start: Matrix, rows: Matrix, codes: NDArray[np.int64], weights: Vector, penalty: float) -> Matrix:
    """Theta (k, d) that minimises the multinomial logistic loss of weighted rows and half the penalty, from `start`."""
    from scipy.optimize import minimize  # noqa: PLC0415  (the import takes a quarter of a second)

    # In coordinates in which the rows are white the minimiser needs few steps.
    values, vectors = np.linalg.eigh((rows.T * weights) @ rows)
    basis = vectors / np.sqrt(np.maximum(values, _LEAST_VALUE * float(values.mean())))
    white = rows @ basis
    kept = np.append(np.ones(rows.shape[1] - 1), 0.0)
    pull = penalty * (basis.T * kept) @ basis
    of_class = np.zeros((len(rows), len(start)))
    of_class[np.arange(len(rows)), codes] = 1.0

    def loss(flat: Vector) -> tuple[float, Vector]:
        phi = flat.reshape(start.shape)
        scores = white @ phi.T
        scores -= scores.max(axis=1, keepdims=True)
        parts = np.exp(scores)
        totals = parts.sum(axis=1, keepdims=True)
        wrong = (parts / totals - of_class) * weights[:, np.newaxis]
        missing = np.log(totals[:, 0]) - scores[np.arange(len(rows)), codes]
        value = float(weights @ missing) + 0.5 * float((phi * (phi @ pull)).sum())
        return value, (wrong.T @ white + phi @ pull).ravel()

    first = np.linalg.solve(basis, start.T).T
    # The matrices are so small that the threads of BLAS, which spin, take far longer than one.
    with one_blas_thread():
        found = minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}).x
    least = np.asarray(found.reshape(start.shape) @ basis.T, dtype=np.float64)
    # What all scores share changes no prediction, but would hide a class's score from those who look at it alone.
    return np.asarray(least - least.mean(axis=0))
