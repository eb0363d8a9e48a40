"""Shrinks noisy weights towards zero, group by group, as far as their own sizes ask for (empirical Bayes).

Model: in whitened coordinates phi_hat = phi + noise of variance v in every direction, phi = P^-T theta, and theta has
independent groups of weights with mean zero and covariance t_g C_g. The t_g are those that make phi_hat likeliest, by
the fixed point t_g <- t_g sqrt(q_g / s_g), with q_g = |A_g^T S^-1 phi_hat|^2 and s_g = trace(A_g^T S^-1 A_g), where A_g
A_g^T is the group's covariance in whitened coordinates for t_g = 1, and S = v I + sum_g t_g A_g A_g^T is that of
phi_hat: at a stationary point of the likelihood q_g = s_g, or t_g = 0. (MacKay, Neural Computation 4, 1992, maximises
the same evidence.) The result is the posterior mean of phi. Everything is post-processing of releases.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpcore.estimators.additive_terms import Group
from dpcore.estimators.base import Matrix, Vector

_ROUNDS = 40
_LEAST, _MOST, _FREE = 1e-8, 1e4, 1e4
"""Bounds of the variances, and the variance of weights that are not shrunk."""


@dataclass(frozen=True, eq=False)
class Prior:
    """The groups in whitened coordinates: A_g, (d, places of the group). free: (d, other places), not shrunk."""

    groups: tuple[Matrix, ...]
    free: Matrix

    @classmethod
    def of(cls, groups: Sequence[Group], basis: Matrix) -> "Prior":
        """basis: P, (d, d), with theta = P^T phi. Weights in no group, such as the bias, are free."""
        inverse = np.asarray(np.linalg.inv(basis).T, dtype=np.float64)
        grouped = {place for group in groups for place in group.places}
        free = [place for place in range(len(basis)) if place not in grouped]
        roots: list[Matrix] = [
            inverse[:, list(group.places)] @ np.linalg.cholesky(group.covariance) for group in groups
        ]
        return cls(tuple(roots), inverse[:, free])

    def shrunk(self, phi: Vector, variance: float) -> tuple[Vector, Vector]:
        """The posterior mean of phi (d,), and the variance of each group's weights, (groups,).

        variance: of the noise on each coordinate of phi.
        """
        d = len(phi)
        sizes = np.ones(len(self.groups))
        outer = [root @ root.T for root in self.groups]
        fixed = variance * np.eye(d) + _FREE * self.free @ self.free.T
        for _ in range(_ROUNDS):
            inverse = np.linalg.inv(fixed + _sum(sizes, outer, d))
            seen = inverse @ phi
            for at, root in enumerate(self.groups):
                found, expected = np.square(root.T @ seen).sum(), np.einsum("ij,ij->", root, inverse @ root)
                sizes[at] = np.clip(sizes[at] * np.sqrt(found / max(float(expected), 1e-300)), _LEAST, _MOST)
        prior = _sum(sizes, outer, d) + _FREE * self.free @ self.free.T
        mean: Vector = prior @ np.linalg.solve(prior + variance * np.eye(d), phi)
        return mean, sizes


def _sum(sizes: Vector, outer: Sequence[Matrix], d: int) -> Matrix:
    total = np.zeros((d, d))
    for size, matrix in zip(sizes, outer, strict=True):
        total += size * matrix
    return total
