"""The first two moments of the edges, from rados: unbiased for every public distribution of drawing and noise.

With inclusion probability p, independent inclusions and noise of variances v (every rado) and w (once on each edge),

    E[pi] = p sum_i e_i,    Cov[pi] = p (1 - p) (sum_i e_i e_i^T + m diag(w)) + diag(v).

If every rado holds exactly p m records, drawn without replacement, inclusions i and k have covariance
-p (1 - p) / (m - 1). With e' the noised edges and mu' their sum

    Cov[pi] = p (1 - p) m / (m - 1) (sum_i e'_i e'_i^T - mu' mu'^T / m) + diag(v).

Each party draws from its own records, and party means are not released, so the parties' means are taken as equal. If
they differ, the estimate is too small by the scatter between parties.

DP-FEAT's truncation leaves the coins c_i = +-1, of which k counts the heads, symmetric about half and exchangeable, so
E[pi] = (1/2) sum_i e_i as before. Since pi = (1/2) sum_i (1 + c_i e_ij) e_i, one party with rho = Corr(c_i, c_k) has

    Cov[pi] = (1/4) ((1 - rho) S + rho S_j S_j^T),    4 Var[pi_j] = (1 - rho) m + rho m^2.

So the slope of pi on pi_j is S_j / m, as without truncation, and the residual covariance given pi_j is (1 - rho) times
that without. Over parties this holds if their means are equal, as above; see `restoration`.

Rados of many more records than coordinates are Gaussian to a good approximation, with these two moments: the third
cumulant of a fair coin is zero and the fourth is of order 1/m, far below what n < m rados can resolve.

So mean and covariance carry the information. (With m <= d they are not Gaussian, and rados determine each edge.)
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dpcore.errors import ShapeError
from dpcore.estimators.base import Matrix, RadoSample, Vector
from dpcore.rados.distribution import RadoDistribution

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

    With a bias coordinate its square, S_bb = m, is known: the others are regressed on it, and S_jb is slope_j m, which
    has a smaller variance than the sample covariance. A coordinate that was rounded to a random sign has square 1, so
    its diagonal entry is assumed: see `assumed_squares`. Truncated rados are first restored by `restoration`.

    edge_sum: (d,), if known better than from these rados. Raises ShapeError if the distribution's width differs from
    the rados'.
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
    """A (d, d) such that rados mean + (pi_j - mean) A are as if signatures were not truncated, and their distribution.

    None for the identity, which suffices for other distributions. spread: of all rados; their mean stays.

    The component of a rado along its slope on pi_j is stretched until pi_j has the variance m / 4 of a fair count. That
    magnifies the error of the slopes, so they are shrunk towards 0 as a whole, by the best factor for this many means
    of one covariance (positive-part James and Stein).

    If pi_j does not vary, its products with others cannot be estimated, and its square is assumed like that of a
    rounded coordinate. Raises ShapeError if the distribution's width differs from the rados'.
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
    """sum_i x_ij^2 (d,) of features in [-1, 1] that fill their range: variance (1 - c^2) / 3 in a class of mean c.

    That is the beta distribution on [-1, 1] whose two parameters sum to 2, uniform for c = 0. A feature that varies
    less gets too small a weight. Without a bias the edges' common mean is used as c.
    """
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
