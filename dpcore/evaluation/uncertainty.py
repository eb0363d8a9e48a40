"""Intervals for what an estimator makes of noisy moments: for the noise alone, and with the sampling of the rows.

Parametric bootstrap (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 6.5). With A the positive
matrix in place of S_hat (dpcore.estimators.moments_discriminant, step 1), the world W = (mu_hat, A) has no noise.

- Noise: quantiles of f(W + fresh noise) - f(W) give an interval for what the estimator f would make of the same rows
  without noise.
- Sampling: the sums of m rows drawn again from W's classes, normal with one covariance (Bartlett's decomposition), with
  fresh noise, give one for infinitely many rows. That form of the rows is an assumption.

Neither covers what clipping changes. Intervals hold for one combination each, approximately; tests/dpcore/evaluation
has their measured coverage. Where noise hides a direction of the rows the approximation fails: see `hidden`. More:
docs/explanation/proofs.md, "Intervals for estimators".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.moments_discriminant import raise_eigenvalues
from dpcore.rados.distribution import Matrix, Moments, Vector

SHRINKAGE = 0.8
"""Of W's matrix: the default of the estimators that learn from moments."""
DRAWS = 999
CLEAR = 4.0
"""An eigenvalue is clear of the noise if it exceeds the end of the noise's spectrum this many times."""
MOST_LOST = 0.01
"""A combination may have this share of its square in directions that are not clear of the noise."""
_WIDENED = 1.15
"""Errors count so many times: rows of public tables are not normal, and W is not their sums. Without it intervals of
95 % held in 90 to 96 of 100 cases on such tables, and with it in 93 to 100 (docs/how-to/report.md)."""
_NORMAL_ROWS = 30
"""A class needs this many rows, and more than coordinates, for the sampling to be simulated."""

Fit = Callable[[Moments], Vector]
"""An estimator: theta (d,) from moments."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """Two intervals for each combination of theta: lower and upper ends, (k, 2) float64."""

    confidence: float
    noise: NDArray[np.float64]
    """Over the noise alone, for these rows."""
    both: NDArray[np.float64] | None
    """Also over the rows, for their distribution; None if that cannot be simulated."""


def intervals(
    moments: Moments,
    fit: Fit,
    combinations: Matrix,
    random: np.random.Generator,
    *,
    confidence: float = 0.95,
    draws: int = DRAWS,
) -> Intervals:
    """Intervals for combinations (k, d) of theta = fit(moments); draws: at least 2 / (1 - confidence) - 1.

    Raises ShapeError if they do not fit, ConfigurationError if an argument is out of range, and what `fit` raises.
    """
    if combinations.ndim != 2 or combinations.shape[1] != moments.d:
        raise ShapeError(f"combinations have shape {combinations.shape}: give (k, {moments.d})")
    if not 0.0 < confidence < 1.0:
        raise ConfigurationError(f"confidence is {confidence}: it must be between 0 and 1")
    place = int(round((draws + 1) * (1.0 - confidence) / 2.0, 9))
    if place < 1:
        raise ConfigurationError(f"{draws} draws are too few for a confidence of {confidence}: raise draws")
    world = world_of(moments)
    found, true = combinations @ fit(moments), combinations @ fit(world)

    def ends(redrawn: Callable[[], Moments]) -> NDArray[np.float64]:
        errors = np.array([combinations @ fit(noisy(redrawn(), moments, random)) - true for _ in range(draws)])
        errors = np.sort(_WIDENED * errors, axis=0)
        return np.column_stack([found - errors[-place], found - errors[place - 1]])

    classes = _Classes.of(world)
    return Intervals(
        confidence=confidence,
        noise=ends(lambda: world),
        both=None if classes is None else ends(lambda: classes.redrawn(random)),
    )


def world_of(moments: Moments) -> Moments:
    """W: the same sums with a positive matrix of products, without noise."""
    values, vectors = np.linalg.eigh(moments.product_sum)
    raised = raise_eigenvalues(values, moments.product_noise, SHRINKAGE)
    return _exact(moments, moments.edge_sum, (vectors * raised) @ vectors.T)


def noisy(exact: Moments, released: Moments, random: np.random.Generator) -> Moments:
    """Sums with fresh noise of the size of the released ones'."""
    d = exact.d
    edges = exact.edge_sum + released.edge_noise * random.standard_normal(d)
    upper = np.triu(random.standard_normal((d, d)) * released.product_noise)
    products = exact.product_sum + upper + np.triu(upper, 1).T
    return replace(
        exact,
        edge_sum=edges,
        product_sum=products,
        edge_noise=released.edge_noise,
        product_noise=released.product_noise,
    )


def hidden(moments: Moments, combinations: Matrix, known_null: Matrix) -> NDArray[np.bool_]:
    """Which combinations (k, d) depend on a direction of the rows that is not clear of the noise: (k,).

    known_null: (n, d), directions without rows by the schema. The noise's spectrum ends at 2 tau (Wigner), tau^2 the
    mean over rows of the row's sum of noise variances.
    """
    tau = float(np.sqrt(np.square(moments.product_noise).sum() / moments.d))
    basis = np.eye(moments.d)
    if len(known_null):
        # An orthonormal basis of what is orthogonal to the known directions.
        basis = np.linalg.svd(known_null)[2][np.linalg.matrix_rank(known_null) :].T
    values, vectors = np.linalg.eigh(basis.T @ moments.product_sum @ basis)
    lost = basis @ vectors[:, values <= CLEAR * 2.0 * tau]
    found: NDArray[np.bool_] = np.square(combinations @ lost).sum(axis=1) > MOST_LOST * np.square(combinations).sum(
        axis=1
    )
    return found


def _exact(moments: Moments, edge_sum: Vector, products: Matrix) -> Moments:
    return replace(
        moments,
        edge_sum=edge_sum,
        product_sum=(products + products.T) / 2.0,
        edge_noise=0.0,
        product_noise=np.zeros((moments.d, moments.d)),
    )


@dataclass(frozen=True, eq=False)
class _Classes:
    """Two classes of normal rows of one covariance."""

    moments: Moments
    positive: float
    means: Matrix
    """(2, d - 1), negative first."""
    root: Matrix
    """R, covariance R R^T."""

    @classmethod
    def of(cls, world: Moments) -> "_Classes | None":
        """The classes of sums without noise; None without a bias, or if a class has too few rows."""
        if not world.bias:
            return None
        m, balance = float(world.rows), float(world.edge_sum[-1])
        sizes = np.array([(m - balance) / 2.0, (m + balance) / 2.0])
        if sizes.min() < max(_NORMAL_ROWS, world.d + 1):
            return None
        totals, signed = world.product_sum[-1, :-1], world.edge_sum[:-1]
        means = np.array([totals - signed, totals + signed]) / (2.0 * sizes[:, np.newaxis])
        within = (world.product_sum[:-1, :-1] - (means.T * sizes) @ means) / m
        values, vectors = np.linalg.eigh(within)
        return cls(world, sizes[1] / m, means, vectors * np.sqrt(np.maximum(values, 0.0)))

    def redrawn(self, random: np.random.Generator) -> Moments:
        """The sums of as many rows, drawn again."""
        m, width = self.moments.rows, self.means.shape[1]
        positives = int(np.clip(random.binomial(m, self.positive), 1, m - 1))
        sizes = np.array([m - positives, positives], dtype=np.float64)
        means = self.means + (random.standard_normal((2, width)) @ self.root.T) / np.sqrt(sizes)[:, np.newaxis]
        # Bartlett: the scatter of m - 2 degrees of freedom is R T T^T R^T with T triangular.
        triangle = np.tril(random.standard_normal((width, width)), -1)
        np.fill_diagonal(triangle, np.sqrt(random.chisquare(m - 2 - np.arange(width))))
        spread = self.root @ triangle
        totals = means * sizes[:, np.newaxis]
        products = np.empty((width + 1, width + 1))
        products[:-1, :-1] = spread @ spread.T + totals.T @ means
        products[-1, :-1] = products[:-1, -1] = totals.sum(axis=0)
        products[-1, -1] = m
        return _exact(self.moments, np.append(totals[1] - totals[0], sizes[1] - sizes[0]), products)
