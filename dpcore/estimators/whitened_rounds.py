"""What estimators of several rounds share: whitened coordinates from noisy moments, and the root of noisy gradients.

dpcore.estimators.private_newton describes the rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpcore.errors import DataError
from dpcore.estimators.column_covariances import ColumnCovariances
from dpcore.estimators.moments_discriminant import raise_eigenvalues
from dpcore.numbers.fixed_point import Matrix, Vector
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


CURVATURE_SPREAD = 1.0
"""D's diagonal entries have a prior standard deviation of this over sqrt(d), the others 1/sqrt(2) of that, unless an
estimator knows the curvature better."""

_BENDING = 0.1
"""Squared error of the affine model, for each coordinate, per squared distance from the current phi."""

LONGEST_STEP = 3.0
_LEAST_CURVATURE, _LARGEST_CURVATURE = 0.2, 10.0
"""Bounds on the eigenvalues of I + D."""

_LEAST_NOISE = 1e-4
"""Noise on a step's coordinate that is assumed for a release without noise, since the affine model is never exact."""

_LEAST_EIGENVALUE = 2.0**-16
"""Lower bound on A's eigenvalues over their mean: weaker directions would make entries of P too large to be exact."""

_CLIP_UNITS = 1000
_CERTAIN = 4.0
"""Standard deviations of the noise by which a sum of weights is above 0."""
_WIDEST = 3.0
"""The clip of later rounds over that of the first, at most."""


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
    def cleaned(cls, moments: Moments | NumberMoments, shrinkage: float) -> "Whitening":
        """From noisy moments; the least eigenvalue is sqrt(shrinkage d) times the noise of an entry."""
        values, vectors = np.linalg.eigh(moments.product_sum)
        noise = float(np.linalg.norm(moments.product_noise)) / moments.d
        spreads = cleaned_eigenvalues(values, noise)
        least = float(np.sqrt(shrinkage * moments.d)) * noise
        return cls._of_spreads(vectors, spreads, np.maximum(spreads, least), moments)

    @classmethod
    def of_columns(cls, columns: ColumnCovariances, shrinkage: float) -> "Whitening":
        """Of centred columns, the bias by itself; shrinkage: as for `raise_eigenvalues`, of what noise left unknown."""
        values, vectors = np.linalg.eigh(columns.covariance)
        k = len(values)
        raised = raise_eigenvalues(values, columns.deviations, shrinkage) if k else values
        raised = np.maximum(raised, _LEAST_EIGENVALUE * float(np.trace(columns.covariance)) / max(k, 1))
        matrix, spread = np.eye(k + 1), np.eye(k + 1)
        matrix[:k, :k] = (vectors / np.sqrt(raised)) @ vectors.T
        matrix[:k, k] = -matrix[:k, :k] @ columns.means
        spread[:k, :k] = (vectors * (np.maximum(values, 0.0) / raised)) @ vectors.T
        return cls(Basis.of(matrix), spread)

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

    def start(self, moments: Moments) -> Vector:
        """The minimiser of the logistic loss's second-order expansion at zero, where z has covariance I."""
        return np.asarray(2.0 * (self.basis.matrix @ moments.edge_sum) / moments.rows)

    @property
    def size(self) -> float:
        """An estimate of the root mean square of |z|, at least 1."""
        return max(1.0, float(np.sqrt(np.trace(self.spread))))

    def size_along(self, axes: Matrix) -> float:
        """The same for the part of z along orthonormal axes, (d, k)."""
        return max(1.0, float(np.sqrt((axes * (self.spread @ axes)).sum())))


def check_counted(schema: Schema, moments: Moments | ClassMoments) -> None:
    """Raise DataError if rows count by a weight, and the noise hides whether any is above 0.

    moments: of weighted rows, with a bias, whose square is the sum of the weights.
    """
    if schema.weight is None:
        return
    total, noise = float(moments.product_sum[-1, -1]), float(moments.product_noise[-1, -1])
    if total <= max(_CERTAIN * noise, 0.0):
        raise DataError(
            f"the rows' weights {schema.weight.column!r} add up to {max(total, 0.0):.0f} rows, give or take "
            f"{1.96 * noise:.0f}: nothing can be learned. Check that the column is not 0 or empty, or ask with a "
            "larger epsilon. One answer was paid for, and no more is asked"
        )


def clip_of(relative: float, size: float) -> Fraction:
    """C, from its ratio to the root mean square of |z|, `size`."""
    return max(Fraction(1, _CLIP_UNITS), Fraction(relative * size).limit_denominator(_CLIP_UNITS))


def wider_clip(sampling: float, noise: float) -> Fraction:
    """By how much clips may be wider, at least 1, so that noise is no larger than the sampling error.

    sampling, noise: their deviations, with the clip as it is. A wide clip moves the root less.
    """
    wider = _WIDEST if noise * _WIDEST <= sampling else sampling / noise
    return max(Fraction(1), Fraction(wider).limit_denominator(_CLIP_UNITS))


def bounded_step(phi: Vector, found: Vector, longest: float = LONGEST_STEP) -> Vector:
    """The next phi: `found`, or the point at this distance towards it."""
    step = found - phi
    return phi + step * min(1.0, longest / max(float(np.linalg.norm(step)), _LEAST_NOISE))


@dataclass(frozen=True, eq=False)
class Seen:
    """A past release: phi, where the gradient was taken; target, phi - g / kappa; noise, its standard deviation."""

    phi: Vector
    target: Vector
    noise: float


def noise_of(seen: Sequence[Seen]) -> float:
    """The variance of each coordinate of phi for the noise of all releases."""
    return 1.0 / sum(1.0 / one.noise**2 for one in seen) if seen[-1].noise else 0.0


@dataclass(frozen=True, eq=False)
class _Affine:
    """The ridge regression target_t = target - D (phi_t - start) + noise over releases, D symmetric."""

    start: Vector
    target: Vector
    change: Matrix
    """D. Releases count by one over their variance."""

    @classmethod
    def of(cls, seen: Sequence[Seen], spread: float) -> "_Affine":
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
        rho = d / spread**2
        change = -axes @ ((pull + pull.T) / (np.add.outer(spreads, spreads) + 2.0 * rho)) @ axes.T
        return cls(start, target, change)

    @property
    def root(self) -> Vector:
        values, vectors = np.linalg.eigh(np.eye(len(self.start)) + self.change)
        values = np.clip(values, _LEAST_CURVATURE, _LARGEST_CURVATURE)
        found: Vector = self.start + vectors @ ((vectors.T @ (self.target - self.start)) / values)
        return found


def root(seen: Sequence[Seen], spread: float = CURVATURE_SPREAD) -> Vector:
    """The root (d,) of the mean gradient, by ridge regression over releases, the last of which is the current one.

    spread: how far curvature may be from what targets assume; `CURVATURE_SPREAD`.
    """
    return _Affine.of(seen, spread).root
