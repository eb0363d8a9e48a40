"""The estimator for noisy moments: a linear discriminant whose covariance is regularised against the noise.

A `Moments` release gives mu_hat = sum_i y_i x_i + noise and S_hat = sum_i x_i x_i^T + noise, with the noise's size.

1. S_hat is replaced by the A that minimises (1/2) |A - S_hat|_F^2 - shrinkage tau^2 log det A, tau^2 the mean over rows
   of the row's sum of noise variances. Its eigenvalues are (w + sqrt(w^2 + 4 shrinkage tau^2)) / 2: one lost in noise,
   whose spectrum ends at 2 tau (Wigner), becomes a fraction of tau.

2. theta = A^-1 mu_hat minimises the square loss under A: Fisher's discriminant.

3. With a bias, scores' means u+, u- and pooled variance v follow, and the log odds of Gaussian scores are ((u+ - u-) /
   v) (s - (u+ + u-) / 2) + log(m+ / m-): this classifier, in the units of a logistic regression.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.base import LinearClassifier, Matrix, RadoSample, Vector
from dpcore.rados.distribution import Moments, RadoDistribution

CERTAIN_CLASS = 6.0
"""The smaller class must have this many standard errors of its size, or its mean is not used: see `log_odds`."""


class MomentsDiscriminant(LinearClassifier):
    """A linear classifier from noisy moments; the module's docstring describes it.

    shrinkage: at least 0; results hardly change from 0.5 to 1.3, over fourteen tasks at epsilon from 0.1 to 10.

    After `fit_moments`: `theta_` (d,), the bias last; `coef_` = theta_ as (1, d), `intercept_` zero, `classes_` [-1,
    1]. After `fit`: `coef_` (1, features), `intercept_` the bias.
    """

    def __init__(self, *, shrinkage: float = 0.8) -> None:
        self.shrinkage = shrinkage

    def fit_moments(self, moments: Moments) -> Self:
        """Fit to a release; returns self. Raises ConfigurationError if shrinkage is negative or not finite."""
        self._keep_encoded(self._learn(moments))
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to the exact moments of rows, for comparison; returns self. As `RadoClassifier.fit`."""
        edges = self._edges(X, y)
        d = edges.shape[1]
        products = edges.T @ edges
        moments = Moments(
            edge_sum=edges.sum(axis=0),
            product_sum=(products + products.T) / 2.0,
            rows=len(edges),
            bias=True,
            norm_bound=float(np.sqrt(np.einsum("ij,ij->i", edges, edges).max())),
            edge_noise=0.0,
            product_noise=np.zeros((d, d)),
        )
        self._keep(self._learn(moments))
        return self

    def _learn(self, moments: Moments) -> Vector:
        if not (np.isfinite(self.shrinkage) and self.shrinkage >= 0):
            raise ConfigurationError(f"shrinkage is {self.shrinkage}: it must be finite and at least 0")
        values, vectors = np.linalg.eigh(moments.product_sum)
        raised = raise_eigenvalues(values, moments.product_noise, self.shrinkage)
        # Without noise a direction in which the rows do not vary is left out, as in the pseudo-inverse.
        floor = moments.d * np.finfo(np.float64).eps * float(raised.max())
        inverses = np.where(raised > floor, 1.0 / np.maximum(raised, max(floor, np.finfo(np.float64).tiny)), 0.0)
        theta: Vector = vectors @ (inverses * (vectors.T @ moments.edge_sum))
        if not moments.bias:
            return theta
        return log_odds(theta, (vectors * raised) @ vectors.T, moments)


def raise_eigenvalues(values: Vector, product_noise: Matrix, shrinkage: float) -> Vector:
    """Non-negative eigenvalues (d,) in place of those of a matrix with noise; the module's step 1.

    product_noise: (d, d), standard deviations. Without noise, or with shrinkage 0, negative ones become zero.
    """
    level = shrinkage * float(np.square(product_noise).sum()) / len(values)
    root = np.sqrt(np.square(values) + 4.0 * level)
    # (w + root) / 2 would cancel for a negative w.
    negative = 2.0 * level / np.maximum(root - values, np.finfo(np.float64).tiny)
    raised: Vector = np.where(values > 0, (values + root) / 2.0, negative)
    return raised


def log_odds(theta: Vector, products: Matrix, moments: Moments) -> Vector:
    """Theta (d,), the bias last, rescaled and with a new bias: theta . x is a log odds; the module's step 3.

    products: (d, d), in place of sum_i x_i x_i^T. Theta is unchanged if the moments do not support the model.
    """
    m = float(moments.rows)
    slopes, balance = theta[:-1], float(moments.edge_sum[-1])
    positives, negatives = (m + balance) / 2.0, (m - balance) / 2.0
    smallest = max(1.0, CERTAIN_CLASS * moments.edge_noise / 2.0)
    if min(positives, negatives) < smallest:
        return theta
    total, signed = float(slopes @ products[:-1, -1]), float(slopes @ moments.edge_sum[:-1])
    upper, lower = (total + signed) / (2.0 * positives), (total - signed) / (2.0 * negatives)
    gap = upper - lower
    # The total variance of scores within classes, over m.
    second = float(slopes @ products[:-1, :-1] @ slopes)
    variance = (second - positives * upper**2 - negatives * lower**2) / m
    if gap <= 0.0 or variance <= np.sqrt(np.finfo(np.float64).eps) * second / m:
        return theta
    scale = gap / variance
    bias = float(np.log(positives / negatives)) - scale * (upper + lower) / 2.0
    return np.append(scale * slopes, bias)


# Synthetic rados: draws from a normal distribution with a moments release's mean and covariance, which plain rados
# resemble. They cost no privacy for any number of draws.


def synthetic_rados(moments: Moments, count: int, random: np.random.Generator) -> Matrix:
    """Rados (count, d) from N((1/2) sum_i e_i, (1/4) sum_i e_i e_i^T), made positive semi-definite first.

    random: any generator; the draws need no protection. Raises ConfigurationError if count < 1.
    """
    if count < 1:
        raise ConfigurationError(f"{count} synthetic rados: ask for at least one")
    values, vectors = np.linalg.eigh(moments.product_sum)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    rados: Matrix = 0.5 * (moments.edge_sum + random.standard_normal((count, moments.d)) @ root.T)
    return rados


# The first two moments of the edges, from rados: unbiased for every public distribution of drawing and noise.
#
# With inclusion probability p, independent inclusions and noise of variances v (every rado) and w (once on each edge),
#
#     E[pi] = p sum_i e_i,    Cov[pi] = p (1 - p) (sum_i e_i e_i^T + m diag(w)) + diag(v).
#
# If every rado holds exactly p m records, with e' the noised edges and mu' their sum,
#
#     Cov[pi] = p (1 - p) m / (m - 1) (sum_i e'_i e'_i^T - mu' mu'^T / m) + diag(v).
#
# The parties' means are taken as equal: if they differ, the estimate is too small by the scatter between parties.
#
# Under DP-FEAT's truncation E[pi] = (1/2) sum_i e_i as before. One party with coins c_i = +-1, rho = Corr(c_i, c_k),
# has
#
#     Cov[pi] = (1/4) ((1 - rho) S + rho S_j S_j^T),    4 Var[pi_j] = (1 - rho) m + rho m^2,
#
# so the slope of pi on pi_j is S_j / m, as without truncation, and the residual covariance given pi_j is (1 - rho)
# times that without; see `restoration`.


_BLOCK_VALUES = 1 << 14
"""Values of a rado matrix that are centred at once: enough for BLAS, and a small part of the matrix."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Mean and scatter of n rados: the statistics that estimates of edge moments use."""

    count: int
    """n."""
    mean: Vector
    """(d,)."""
    scatter: Matrix
    """(d, d), sum_j (pi_j - mean) (pi_j - mean)^T, symmetric."""

    @classmethod
    def of(cls, rados: Matrix) -> Self:
        """Of rados (n, d), n >= 1, in blocks centred before they are squared, since the mean may be far from 0."""
        n, d = rados.shape
        mean, scatter = rados.mean(axis=0), np.zeros((d, d))
        step = max(1, _BLOCK_VALUES // d)
        for first in range(0, n, step):
            away = rados[first : first + step] - mean
            scatter += away.T @ away
        return cls(n, mean, scatter)

    def about(self, centre: Vector) -> Matrix:
        """The scatter about another point, sum_j (pi_j - centre) (pi_j - centre)^T."""
        moved = self.mean - centre
        scatter: Matrix = self.scatter + self.count * np.outer(moved, moved)
        return scatter

    def without(self, part: "Spread") -> "Spread":
        """The spread of the rados that are not in `part`; there must be some."""
        count = self.count - part.count
        mean = self.mean + (self.mean - part.mean) * (part.count / count)
        apart = mean - part.mean
        between = (count * part.count / self.count) * np.outer(apart, apart)
        return Spread(count, mean, self.scatter - part.scatter - between)

    def mapped(self, centre: Vector, to: Matrix) -> "Spread":
        """The spread of the rados centre + (pi_j - centre) `to`, `to` (d, d)."""
        return Spread(self.count, centre + (self.mean - centre) @ to, to.T @ self.scatter @ to)


@dataclass(frozen=True, eq=False)
class EdgeMoments:
    """Estimates of sums over the m records; errors may leave the products indefinite."""

    edge_sum: Vector
    """(d,), mu = sum_i y_i x_i."""
    product_sum: Matrix
    """(d, d), S = sum_i x_i x_i^T, symmetric."""
    rows: int
    """m."""
    bias: bool
    """The last coordinate is the constant feature, and product_sum's last entry is m."""


def estimate_moments(release: RadoSample, edge_sum: Vector | None = None) -> EdgeMoments:
    """Unbiased edge moments of a release (exactly so for Gaussian rados of independent inclusions, n >= 5).

    With a bias S_bb = m is known: the others are regressed on it. Squares of rounded coordinates are `assumed_squares`;
    truncated rados are first restored. edge_sum: (d,), if known better. Raises ShapeError.
    """
    spread = Spread.of(release.rados)
    to, distribution = restoration(spread, release.rows, release.distribution)
    whole = spread if to is None else spread.mapped(spread.mean, to)
    return moments_of(whole, release.rows, distribution, bias=release.bias, edge_sum=edge_sum)


def moments_of(
    spread: Spread, rows: int, distribution: RadoDistribution, *, bias: bool, edge_sum: Vector | None = None
) -> EdgeMoments:
    """`estimate_moments` from the spread of at least two rados, either not truncated or restored."""
    _check_distribution(distribution, len(spread.mean))
    moments = _estimate(spread, rows, distribution, bias=bias, edge_sum=edge_sum)
    if distribution.rounding is None or not distribution.rounding.any():
        return moments
    products = moments.product_sum.copy()
    rounded = np.flatnonzero(distribution.rounding)
    products[rounded, rounded] = assumed_squares(moments)[rounded]
    return EdgeMoments(moments.edge_sum, products, moments.rows, moments.bias)


def restoration(spread: Spread, rows: int, distribution: RadoDistribution) -> tuple[Matrix | None, RadoDistribution]:
    """A (d, d) such that mean + (pi_j - mean) A are as if not truncated, and their distribution; None: identity.

    A rado's component along its slope on pi_j is stretched until pi_j has the variance m / 4 of a fair count. Slopes
    are shrunk towards 0 as a whole (positive-part James and Stein). If pi_j does not vary, its square is assumed.
    Raises ShapeError.
    """
    n, d = spread.count, len(spread.mean)
    _check_distribution(distribution, d)
    if distribution.central is None:
        return None, distribution
    j = distribution.central.coordinate
    if j >= d:
        raise ShapeError(f"the truncated coordinate is {j}: it must be one of the {d} coordinates")
    energy = float(spread.scatter[j, j])
    if energy <= np.finfo(np.float64).eps * rows:
        rounding = np.zeros(d, dtype=np.bool_) if distribution.rounding is None else distribution.rounding.copy()
        rounding[j] = True
        return None, replace(distribution, rounding=rounding, central=None)
    slopes = spread.scatter[:, j] / energy
    # The residual of (pi - mean) after its slope on the count is (pi - mean) times this.
    left = np.eye(d)
    left[j] -= slopes
    others = np.delete(np.arange(d), j)
    covariance = (spread.scatter - energy * np.outer(slopes, slopes))[np.ix_(others, others)] / max(n - 2, 1)
    # If the slopes were 0, their covariance would be this one over the energy, and `evidence` d - 1 in the mean.
    evidence = energy * float(slopes[others] @ np.linalg.lstsq(covariance, slopes[others])[0])
    slopes[others] *= max(1.0 - (d - 3) / evidence, 0.0) if evidence > 0 and d > 3 else 1.0
    to: Matrix = np.sqrt((n - 1) / max(n - 2, 1) / (1.0 - distribution.central.correlation)) * left
    to[j] += np.sqrt(rows / 4.0 * (n - 1) / energy) * slopes
    return to, replace(distribution, central=None)


def assumed_squares(moments: EdgeMoments) -> Vector:
    """sum_i x_ij^2 (d,) of features with variance (1 - c^2) / 3 in a class (without a bias: edges) of mean c."""
    mu, rows = moments.edge_sum, moments.rows
    if not moments.bias:
        return rows * _filled(mu / rows)
    sums = moments.product_sum[-1]
    positive = float(np.clip((rows + mu[-1]) / 2.0, 0.0, rows))
    sizes = (positive, rows - positive)
    squares: Vector = sum(
        (
            size * _filled((sums + sign * mu) / (2.0 * max(size, 0.5)))
            for size, sign in zip(sizes, (1, -1), strict=True)
        ),
        start=np.zeros(len(mu)),
    )
    return squares


def _filled(means: Vector) -> Vector:
    square: Vector = np.clip(means, -1.0, 1.0) ** 2
    return square + (1.0 - square) / 3.0


def _estimate(
    spread: Spread, rows: int, distribution: RadoDistribution, *, bias: bool, edge_sum: Vector | None
) -> EdgeMoments:
    n, scatter = spread.count, spread.scatter
    mu = spread.mean / distribution.inclusion if edge_sum is None else edge_sum
    if not bias:
        return EdgeMoments(mu, products_of(scatter / (n - 1), mu, rows, distribution), rows, bias=False)
    energy = float(scatter[-1, -1])
    slopes = scatter[:-1, -1] / energy if energy > 0 else np.zeros(len(scatter) - 1)
    residual = scatter[:-1, :-1] - energy * np.outer(slopes, slopes)
    # The factor 1 / (n - 2) is unbiased for the residual covariance. The slopes' own variance, that covariance times
    # E[1 / energy] = 1 / ((n - 3) variance), is added by their outer product and subtracted here.
    divisor = (n - 2) * (n - 3) / (n - 4) if n > 4 else n - 1
    slopes = np.append(slopes, 1.0)
    covariance = _bias_variance(mu[-1], rows, distribution) * np.outer(slopes, slopes)
    covariance[:-1, :-1] += residual / divisor
    products = products_of(covariance, mu, rows, distribution)
    products[-1, -1] = rows
    return EdgeMoments(mu, products, rows, bias=True)


def products_of(covariance: Matrix, edge_sum: Vector, rows: int, distribution: RadoDistribution) -> Matrix:
    """S (d, d) from the covariance (d, d) of rados: the module's formulae solved for sum_i e_i e_i^T."""
    products = covariance / (distribution.inclusion * (1.0 - distribution.inclusion))
    if distribution.fixed_support:
        products = products * (rows - 1) / rows + np.outer(edge_sum, edge_sum) / rows
    unbiased: Matrix = products - np.diag(noise_in_products(distribution, rows, len(edge_sum)))
    return unbiased


def noise_in_products(distribution: RadoDistribution, rows: int, d: int) -> Vector:
    """What noise adds to S's diagonal (d,), before it is subtracted."""
    shared = _variances(distribution.rado_noise, d) / (distribution.inclusion * (1.0 - distribution.inclusion))
    if distribution.fixed_support:
        shared = shared * (rows - 1) / rows
    added: Vector = shared + rows * _variances(distribution.edge_noise, d)
    return added


def _bias_variance(edge_sum: float, rows: int, distribution: RadoDistribution) -> float:
    """The variance of the bias coordinate of a rado, known except for the class counts."""
    noised = rows * (1.0 + (float(distribution.edge_noise[-1]) if distribution.edge_noise is not None else 0.0))
    if distribution.fixed_support and rows > 1:
        noised = max(noised - edge_sum**2 / rows, 0.0) * rows / (rows - 1)
    rado_noise = float(distribution.rado_noise[-1]) if distribution.rado_noise is not None else 0.0
    return distribution.inclusion * (1.0 - distribution.inclusion) * noised + rado_noise


def _check_distribution(distribution: RadoDistribution, d: int) -> None:
    for name in ("rado_noise", "edge_noise", "rounding"):
        given = getattr(distribution, name)
        if given is not None and np.shape(given) != (d,):
            raise ShapeError(f"{name} has shape {np.shape(given)}: give one value for each of the {d} coordinates")


def _variances(given: Vector | None, d: int) -> Vector:
    return np.zeros(d) if given is None else given
