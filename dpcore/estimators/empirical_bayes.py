"""Shrinks noisy weights towards zero, group by group, as far as their own sizes ask for (empirical Bayes).

Model: in whitened coordinates phi_hat = phi + noise of variance v in every direction, phi = P^-T theta, and theta has
independent groups of weights with mean zero and covariance t_g C_g. The t_g are those that make phi_hat likeliest, by
the fixed point t_g <- t_g sqrt(q_g / s_g), with q_g = |A_g^T S^-1 phi_hat|^2 and s_g = trace(A_g^T S^-1 A_g), where A_g
A_g^T is the group's covariance in whitened coordinates for t_g = 1, and S = v I + sum_g t_g A_g A_g^T is that of
phi_hat: at a stationary point of the likelihood q_g = s_g, or t_g = 0. (MacKay, Neural Computation 4, 1992, maximises
the same evidence.) The result is the posterior mean of phi. Everything is post-processing of releases.

A group of four weights says little about its variance if noise is as large as they are. So groups of one kind, such as
the bends of all columns, share what they say: each counts `_SHARED` weights more that are like its kind's average, in
t_g q_g and t_g s_g, the sums of squares that its weights have and that they should have. (The groups' variances thus
have a common prior, whose mean the groups themselves choose.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.estimators.additive_terms import Group
from dpcore.estimators.base import Matrix, Vector

_ROUNDS = 60
_LEAST, _MOST, _FREE = 1e-8, 1e4, 1e4
"""Bounds of the variances, and the variance of weights that are not shrunk."""

_SHARED = 40.0
"""On measured tables 4 err more, 400 sometimes too."""


@dataclass(frozen=True, eq=False)
class Shrunk:
    """mean: the posterior mean of phi (d,). sizes: t_g, (groups,). prior: the covariance of phi, (d, d), for them."""

    mean: Vector
    sizes: Vector
    prior: Matrix


@dataclass(frozen=True, eq=False)
class Prior:
    """The groups in whitened coordinates: A_g, (d, places of the group). free: (d, other places), not shrunk.

    kinds: of each group; groups of one kind share what they say of their variances.
    """

    groups: tuple[Matrix, ...]
    kinds: tuple[str, ...]
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
        return cls(tuple(roots), tuple(group.kind for group in groups), inverse[:, free])

    def moved(self, matrix: Matrix) -> "Prior":
        """The prior of matrix @ phi. matrix: (k, d)."""
        return Prior(tuple(matrix @ root for root in self.groups), self.kinds, matrix @ self.free)

    def shrunk(self, phi: Vector, variance: float) -> Shrunk:
        """The likeliest variances, and what they make of phi, (d,).

        variance: of the noise on each coordinate of phi.
        """
        noise = variance * np.eye(len(phi))
        sizes = np.ones(len(self.groups))
        for _ in range(_ROUNDS):
            inverse = np.linalg.inv(self.covariance(sizes) + noise)
            found = self._group_sums(np.square(self._roots.T @ (inverse @ phi)))
            expected = self._group_sums(np.einsum("ij,ij->j", self._roots, inverse @ self._roots))
            ratios = self._shared(sizes * found) / np.maximum(self._shared(sizes * expected), 1e-300)
            sizes = np.clip(sizes * np.sqrt(ratios), _LEAST, _MOST)
        prior = self.covariance(sizes)
        return Shrunk(prior @ np.linalg.solve(prior + noise, phi), sizes, prior)

    def covariance(self, sizes: Vector) -> Matrix:
        """Of phi (d, d), for variances of the groups (groups,)."""
        weighted = self._roots * np.repeat(sizes, self._widths)
        return np.asarray(weighted @ self._roots.T + _FREE * self.free @ self.free.T)

    def _shared(self, sums: Vector) -> Vector:
        """The sums of groups, with those of `_SHARED` average weights of their kind where it has several groups."""
        shared = sums.copy()
        for places in self._kin:
            shared[places] += _SHARED * sums[places].sum() / self._widths[places].sum()
        return shared

    def _group_sums(self, values: Vector) -> Vector:
        sums: Vector = np.zeros(len(self._widths))
        np.add.at(sums, np.repeat(np.arange(len(sums)), self._widths), values)
        return sums

    @cached_property
    def _roots(self) -> Matrix:
        return np.hstack([np.zeros((len(self.free), 0)), *self.groups])

    @cached_property
    def _widths(self) -> NDArray[np.intp]:
        return np.array([root.shape[1] for root in self.groups], dtype=np.intp)

    @cached_property
    def _kin(self) -> list[NDArray[np.intp]]:
        """The places of groups whose kind has several."""
        kinds = np.array(self.kinds)
        return [np.flatnonzero(kinds == kind) for kind in set(self.kinds) if self.kinds.count(kind) > 1]
