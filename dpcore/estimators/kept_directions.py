"""Gradients in fewer directions: those of a model that do not pay for their noise are left out of later queries.

A gradient's clipping length C, and so its noise in each direction, grows with the root of the number k of directions. A
direction whose weight is small costs all others more noise than it gains.

After each answer the prior (dpcore.estimators.empirical_bayes) has variances lambda_1 >= lambda_2 >= ... along its own
axes. If the first j are kept, besides the directions that always are, the noise on each has a variance v(j) in the end,
and the squared error is about

    sum over kept of lambda v / (lambda + v)  +  DROPPED * sum over dropped of lambda,

of which the least over j is taken. DROPPED is below 1 because the lambdas are estimated from noisy answers: where there
is nothing, they are too large on average.

In whitened coordinates (dpcore.estimators.private_newton) a direction is left out by a projection: the query's basis is
U U^T P, with the kept axes in the columns of U. Records are clipped after it, so sensitivity follows from C as ever,
and what is left out costs nothing. The choice depends on releases only.
"""

from dataclasses import dataclass

import numpy as np

from dpcore.estimators.base import Matrix, Vector
from dpcore.estimators.private_newton import Seen, Whitening
from dpcore.records.basis import Basis

DROPPED = 0.55
"""On measured tables, 0.25 loses curves that are there, and 1 keeps more that are not."""


@dataclass(frozen=True, eq=False)
class KeptDirections:
    """The directions that gradients are about; in the others phi is set to 0."""

    axes: Matrix
    """U, (d, k), orthonormal columns."""

    @classmethod
    def every(cls, d: int) -> "KeptDirections":
        """All d directions."""
        return cls(np.eye(d))

    @property
    def count(self) -> int:
        """How many, k."""
        return int(self.axes.shape[1])

    def basis(self, whitening: Whitening) -> Basis:
        """U U^T P."""
        d = whitening.basis.d
        return whitening.basis if self.count == d else Basis.of(self.axes @ self.axes.T @ whitening.basis.matrix)

    def narrowed(self, kept: Matrix) -> "KeptDirections":
        """Those among the k that are the columns of `kept`, (k, fewer), orthonormal."""
        return KeptDirections(self.axes @ kept)


def narrowed_answers(seen: list[Seen], kept: Matrix) -> list[Seen]:
    """The answers in the directions that are the columns of `kept`; their noise there is as it was."""
    return [Seen(kept.T @ one.phi, kept.T @ one.target, one.noise) for one in seen]


@dataclass(frozen=True)
class Outlook:
    """What variance each kept coordinate of phi will have in the end."""

    now: float
    """That of the noise of all answers so far."""
    later: float
    """That of the noise of all answers to come, for each direction that they are about."""
    sampling: float
    """That of the rows."""

    def variance(self, kept: int) -> float:
        """For this many directions in the answers to come."""
        later = self.later * kept
        return self.sampling + (self.now * later / (self.now + later) if self.now and later else 0.0)


def worth_keeping(prior: Matrix, always: Matrix, outlook: Outlook) -> Matrix:
    """The directions to keep: (k, kept), orthonormal columns.

    prior: (k, k), the covariance of phi. always: (k, any), vectors whose span is kept.
    """
    fixed, _ = np.linalg.qr(always)
    others = np.eye(len(prior)) - fixed @ fixed.T
    variances, axes = np.linalg.eigh(others @ prior @ others)
    # The last ones are those of `fixed`, whose variance is zero here.
    order = np.argsort(-variances)[: len(prior) - fixed.shape[1]]
    variances, axes = np.maximum(variances[order], 0.0), axes[:, order]
    count = min(range(len(order) + 1), key=lambda kept: _risk(variances, kept, fixed.shape[1], outlook))
    return np.hstack([fixed, axes[:, :count]])


def _risk(variances: Vector, kept: int, fixed: int, outlook: Outlook) -> float:
    noise = outlook.variance(fixed + kept)
    shrunk = variances[:kept] * noise / np.maximum(variances[:kept] + noise, np.finfo(np.float64).tiny)
    return float(fixed * noise + shrunk.sum() + DROPPED * variances[kept:].sum())
