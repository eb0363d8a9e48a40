"""Shrinks noisy weights towards zero, group by group, as far as their own sizes ask for (empirical Bayes).

Model: in whitened coordinates phi_hat = phi + noise of variance v in every direction, phi = P^-T theta, and theta has
independent groups of weights with mean zero and covariance t_g C_g. A_g A_g^T is the group's covariance in whitened
coordinates for t_g = 1, and S = v I + sum_g t_g A_g A_g^T is that of phi_hat.

The t_g make phi_hat likeliest, by the fixed point t_g <- t_g sqrt(q_g / s_g), with q_g = |A_g^T S^-1 phi_hat|^2 and s_g
= trace(A_g^T S^-1 A_g): at a stationary point q_g = s_g, or t_g = 0. (MacKay, Neural Computation 4, 1992, maximises the
same evidence.) The result is the posterior mean of phi. Everything is post-processing.

A group of four weights says little about its variance. So groups of one kind, such as the bends of all columns, share:
first they have one variance, the likeliest; then each has its own, whose prior is inverse gamma around that one, with
the weight of `_SHARED` weights.

The stationary point of likelihood times prior is t^2 q + a t_kind = t^2 s + a t, a = `_SHARED`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.estimators.additive_terms import Group
from dpcore.estimators.base import Matrix, Vector
from dpcore.numbers.processors import one_blas_thread

_ROUNDS = 60
_CLOSE = 0.003
"""Relative change at which a variance is found; weights hardly depend on it."""
_LEAST, _MOST, _FREE = 1e-8, 1e4, 1e4
"""Bounds of the variances, and the variance of weights that are not shrunk."""

_ROUNDING = 1e-18
"""Of squares of doubles, times their number."""

_SHARED = 6.0
"""On measured tables errors hardly change from a third to three times as much."""


@dataclass(frozen=True, eq=False)
class Shrunk:
    """Weights after shrinking, with the sizes of the groups."""

    mean: Vector
    """The posterior mean of phi, (d,)."""
    sizes: Vector
    """t_g, (groups,)."""
    prior: Matrix
    """The covariance of phi, (d, d), for them."""


@dataclass(frozen=True, eq=False)
class Prior:
    """The groups in whitened coordinates: A_g, (d, places of the group)."""

    groups: tuple[Matrix, ...]
    kinds: tuple[str, ...]
    """Of each group; groups of one kind share what they say of their variances."""
    free: Matrix
    """(d, other places), not shrunk."""
    columns: Matrix
    """(d, places), the span of the free weights and of groups that are columns."""

    @classmethod
    def of(cls, groups: Sequence[Group], basis: Matrix) -> "Prior":
        """basis: P, (d, d), with theta = P^T phi. Weights in no group, such as the bias, are free.

        What groups that are no columns have in common with the columns belongs to these: a bend is what differs from
        the nearest straight line, so that the answers tell the two apart.
        """
        inverse = np.asarray(np.linalg.inv(basis).T, dtype=np.float64)
        grouped = {place for group in groups for place in group.places}
        free = [place for place in range(len(basis)) if place not in grouped]
        straight = [place for group in groups if group.is_columns for place in group.places]
        span, _ = np.linalg.qr(inverse[:, [*free, *straight]])
        roots: list[Matrix] = []
        for group in groups:
            root = inverse[:, list(group.places)] @ np.linalg.cholesky(group.covariance)
            roots.append(root if group.is_columns else root - span @ (span.T @ root))
        return cls(tuple(roots), tuple(group.kind for group in groups), inverse[:, free], span)

    def moved(self, matrix: Matrix) -> "Prior":
        """The prior of matrix @ phi. matrix: (k, d)."""
        return Prior(
            tuple(matrix @ root for root in self.groups), self.kinds, matrix @ self.free, matrix @ self.columns
        )

    def shrunk(self, phi: Vector, variance: float) -> Shrunk:
        """The likeliest variances, and what they make of phi, (d,).

        variance: of the noise on each coordinate of phi.
        """
        # The matrices are so small that the threads of BLAS, which spin, take far longer than one.
        with one_blas_thread():
            return self._shrunk(phi, variance * np.eye(len(phi)))

    def _shrunk(self, phi: Vector, noise: Matrix) -> Shrunk:
        def of_kinds(sizes: Vector) -> Vector:
            found, expected = self._squares(sizes, noise, phi)
            return sizes * np.sqrt(self._alike @ (sizes * found) / np.maximum(self._alike @ (sizes * expected), 1e-300))

        means = self._fixed_point(of_kinds, np.ones(len(self.groups)))

        def of_groups(sizes: Vector) -> Vector:
            found, expected = self._squares(sizes, noise, phi)
            most, least = sizes**2 * found + self._shared * means, sizes**2 * expected + self._shared * sizes
            return sizes * np.sqrt(most / np.maximum(least, 1e-300))

        sizes = self._fixed_point(of_groups, means)
        prior = self.covariance(sizes)
        return Shrunk(prior @ np.linalg.solve(prior + noise, phi), sizes, prior)

    def covariance(self, sizes: Vector) -> Matrix:
        """Of phi (d, d), for variances of the groups (groups,)."""
        weighted = self._roots * np.repeat(sizes, self._widths)
        return np.asarray(weighted @ self._roots.T + _FREE * self.free @ self.free.T)

    def _squares(self, sizes: Vector, noise: Matrix, phi: Vector) -> tuple[Vector, Vector]:
        """The q and s of each group."""
        inverse = np.linalg.inv(self.covariance(sizes) + noise)
        found = self._group_sums(np.square(self._roots.T @ (inverse @ phi)))
        return found, self._group_sums(np.einsum("ij,ij->j", self._roots, inverse @ self._roots))

    def _fixed_point(self, step: Callable[[Vector], Vector], sizes: Vector) -> Vector:
        """Repeat `step` from these sizes until they hardly change, within bounds."""
        for _ in range(_ROUNDS):
            before = sizes
            sizes = np.where(self._present, np.clip(step(sizes), _LEAST, _MOST), _LEAST)
            if (np.abs(sizes - before) <= _CLOSE * (sizes + _CLOSE * sizes.max(initial=0.0))).all():
                break
        return sizes

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
    def _present(self) -> NDArray[np.bool_]:
        """Which groups are more than rounding in these coordinates: others have no variance."""
        squares = self._group_sums(np.square(self._roots).sum(axis=0))
        return np.asarray(squares > _ROUNDING * squares.max(initial=0.0), dtype=np.bool_)

    @cached_property
    def _alike(self) -> Matrix:
        """Which groups are of one kind, (groups, groups)."""
        kinds = np.array(self.kinds)
        return np.asarray((kinds[:, np.newaxis] == kinds) * self._present, dtype=np.float64)

    @cached_property
    def _shared(self) -> Vector:
        """The weight of each group's prior: none for a kind of one group."""
        return np.where(self._alike.sum(axis=1) > 1, _SHARED, 0.0)
