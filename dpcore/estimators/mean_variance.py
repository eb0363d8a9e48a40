"""The mean-variance learner: the square loss on examples, minimised from rados.

Over all 2^m rados, E[pi] = (1/2) sum_i e_i and Cov[pi] = (1/4) sum_i e_i e_i^T. So mu = sum_i y_i x_i and S = sum_i x_i
x_i^T, all that the square loss sum_i (1 - theta . e_i)^2 = m - 2 theta . mu + theta . S theta depends on, are twice the
mean and four times the covariance of the rados (the mean-variance rado loss of Nock, IJCAI 2016, is this loss up to
constants).

From n rados the mean is known far better than the covariance: with W = S^(-1/2), W mu_hat has error d / n in squared
norm, beside a signal of up to m, while inverting the covariance's estimate loses a fraction of about d / n of what
theta attains. Hence a ridge, whose size is chosen by cross-validation over rados: the covariance of some, the square
loss on others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import Matrix, Progress, RadoClassifier, RadoSample, Vector

RIDGES: Vector = 10.0 ** np.arange(-4.0, 1.51, 0.25)
"""The ridges tried, in units of the mean diagonal of the matrix that is shrunk."""


class MeanVariance(RadoClassifier):
    """theta = (S + ridge)^-1 mu from the rados' own mean and covariance; assumes signatures drawn from all 2^m.

    ridge: None chooses it from the rados; otherwise at least 0, in units of the mean of the diagonal that it is added
    to. n_folds: at least 2, the folds of rados that choose it; fewer where there are fewer rados. n_rados,
    random_state: as in `RadoClassifier`.

    A bias coordinate is not shrunk: it is minimised out first, and S_bb = m is known without error. What is shrunk is
    the rest of S given the bias, a multiple of the identity being added: encoded features share one scale, [-1, 1], so
    a rare category, whose row of S is the worst known, is shrunk the most.

    After fitting, beside what `RadoClassifier` sets: `ridge_`, the ridge used; `mean_square_loss_`, the cross-validated
    (1/m) sum_i (1 - theta . e_i)^2 for each of `RIDGES`, or None where the ridge was given.
    """

    def __init__(
        self,
        *,
        ridge: float | None = None,
        n_folds: int = 10,
        n_rados: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(n_rados=n_rados, random_state=random_state)
        self.ridge = ridge
        self.n_folds = n_folds

    def _learn(self, release: RadoSample, progress: Progress | None) -> Vector:
        if self.ridge is not None and not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise ConfigurationError(f"ridge is {self.ridge}: it must be finite and at least 0, or None")
        if self.n_folds < 2:
            raise ConfigurationError(f"n_folds is {self.n_folds}: cross-validation needs at least 2")
        mean = release.rados.mean(axis=0)
        if self.ridge is None:
            loss = self._validate(release, mean, progress)
            self.mean_square_loss_: Vector | None = loss
            self.ridge_ = float(RIDGES[np.argmin(loss)])
        else:
            self.mean_square_loss_ = None
            self.ridge_ = float(self.ridge)
        moments = _Moments.of(release.rados, release.rows, bias=release.bias)
        theta: Vector = moments.solve(2.0 * mean, np.array([self.ridge_]))[0]
        return theta

    def _validate(self, release: RadoSample, mean: Vector, progress: Progress | None) -> Vector:
        """Cross-validated square loss per row for each ridge, (ridges,)."""
        n = len(release.rados)
        folds = min(self.n_folds, n)
        mu = 2.0 * mean
        linear, quadratic = np.zeros(len(RIDGES)), np.zeros(len(RIDGES))
        for fold, (kept, held_out) in enumerate(_folds(release.rados, folds)):
            thetas = _Moments.of(kept, release.rows, bias=release.bias).solve(mu, RIDGES)
            linear += thetas @ mu * (len(held_out) / n)
            quadratic += 4.0 * np.square((held_out - mean) @ thetas.T).sum(axis=0) / n
            if progress is not None:
                progress(fold + 1, folds)
        loss: Vector = 1.0 + (quadratic - 2.0 * linear) / release.rows
        return loss


def _folds(rados: Matrix, count: int) -> Iterator[tuple[Matrix, Matrix]]:
    """(kept, held out) for each fold. Rados are exchangeable, so any split will do: no randomness is needed."""
    fold = np.arange(len(rados)) % count
    for number in range(count):
        yield rados[fold != number], rados[fold == number]


@dataclass(frozen=True, eq=False)
class _Moments:
    """S from rados, with the bias, where there is one, minimised out.

    slopes: (d - 1,), S_jb / S_bb, or None without a bias. values, vectors: the eigendecomposition of the remaining
    matrix, S_jk - S_jb S_kb / S_bb, in units of its mean diagonal, `scale`. rows: m = S_bb.
    """

    slopes: Vector | None
    values: Vector
    vectors: Matrix
    scale: float
    rows: int

    @classmethod
    def of(cls, rados: Matrix, rows: int, *, bias: bool) -> "_Moments":
        centred = rados - rados.mean(axis=0)
        slopes, estimated = None, 1
        if bias:
            constant, centred = centred[:, -1], centred[:, :-1]
            energy = float(constant @ constant)
            slopes = centred.T @ constant / energy if energy > 0 else np.zeros(centred.shape[1])
            centred = centred - np.outer(constant, slopes)
            estimated = 2
        covariance = 4.0 * centred.T @ centred / max(len(rados) - estimated, 1)
        scale = float(np.trace(covariance)) / len(covariance) if len(covariance) else 0.0
        scale = scale if scale > 0 else 1.0
        values, vectors = np.linalg.eigh(covariance / scale)
        return cls(slopes=slopes, values=np.maximum(values, 0.0), vectors=vectors, scale=scale, rows=rows)

    def solve(self, mu: Vector, ridges: Vector) -> Matrix:
        """The minimiser of the ridged square loss for each ridge, (ridges, d)."""
        target = mu if self.slopes is None else mu[:-1] - self.slopes * mu[-1]
        denominators = self.values + ridges[:, np.newaxis]
        # Without a ridge a direction in which the rados do not vary is left out, as in the pseudo-inverse.
        floor = len(self.values) * np.finfo(np.float64).eps * max(1.0, float(self.values.max(initial=0.0)))
        inverses = np.where(denominators > floor, 1.0 / np.maximum(denominators, floor), 0.0)
        thetas: Matrix = (inverses * (self.vectors.T @ target)) @ self.vectors.T / self.scale
        if self.slopes is None:
            return thetas
        return np.column_stack([thetas, mu[-1] / self.rows - thetas @ self.slopes])
