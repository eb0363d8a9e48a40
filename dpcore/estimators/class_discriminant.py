"""Several Gaussian classes of one covariance, from noisy moments: Fisher's linear discriminant, and draws from it.

A `ClassMoments` release gives, with the noise's size, sizes m_c and sums of the records of each class and S = sum_i x_i
x_i^T.

1. Class means are moved towards the overall mean by the share of their spread that noise explains (a James-Stein
   estimate for each coordinate).
2. The covariance within classes is W = (S - sum_c m_c mean_c mean_c^T) / m without the bias, its eigenvalues raised as
   in dpcore.estimators.moments_discriminant.
3. The scores W^-1 mean_c . x - mean_c W^-1 mean_c / 2 + log(m_c / m) are the classes' log odds, up to a constant.
"""

from dataclasses import dataclass

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.moments_discriminant import raise_eigenvalues
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.rados.distribution import ClassMoments

SHRINKAGE = 0.8
"""Of eigenvalues, as in `MomentsDiscriminant`."""

_LEAST_SIZE = 3.0
"""The size of a class is at least this many standard errors of it, and at least 1: a class may have no row at all."""

_LEAST_VALUE = 1e-6
"""Eigenvalues of W are at least this fraction of their mean: digits have pixels that never vary."""


@dataclass(frozen=True, eq=False)
class GaussianClasses:
    """Classes with their own means and one covariance, without the bias."""

    sizes: Vector
    """(k,), numbers of records; positive, and their sum is m."""
    means: Matrix
    """(k, d - 1), within [-1, 1]."""
    within: Matrix
    """(d - 1, d - 1), W, positive definite."""

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
        return cls(sizes, means, (vectors * (raised / m)) @ vectors.T)

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
