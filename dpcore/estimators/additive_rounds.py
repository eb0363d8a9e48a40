"""The gradients of a private additive model: queries in whitened coordinates, shrinking, and errors of the weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dpcore.estimators.additive_terms import AdditiveTerms, Directions, TermGroup, conditions, nearest
from dpcore.estimators.errors_of_weights import Answer, Released, errors_of_weights
from dpcore.estimators.oracle import GradientEstimate
from dpcore.estimators.whitened_rounds import LONGEST_STEP, Seen, Whitening, bounded_step, clip_of, noise_of, root
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.processors import one_blas_thread
from dpcore.records.clipping import Basis

# Gradients in fewer directions: those of a model that do not pay for their noise are left out of later queries.
#
# A gradient's clipping length, and so its noise, grows with the root of the number of directions. After each answer the
# prior has variances lambda_1 >= lambda_2 >= ... along its own axes. If j are kept, each with a noise variance v(j),
# the squared error is about
#
#     sum over kept of lambda v / (lambda + v)  +  DROPPED * sum over dropped of lambda,
#
# of which the least over j is taken. The query's basis is U U^T P in whitened coordinates, U the kept axes. The choice
# depends on releases only.


_DEPENDENT = 1e-9

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


def narrowed_answers(seen: list[Seen], kept: Matrix, start: int = 0) -> list[Seen]:
    """The answers in the directions that are the columns of `kept`; their noise there is as it was.

    start: how many coordinates before them are kept as they are.
    """

    def narrowed(point: Vector) -> Vector:
        return np.concatenate([point[:start], kept.T @ point[start:]])

    return [Seen(narrowed(one.phi), narrowed(one.target), one.noise) for one in seen]


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
    """The directions to keep, orthonormal: (k, kept). prior: (k, k), of phi. always: (k, any), whose span is kept."""
    fixed, triangle = np.linalg.qr(always)
    # A column that the others span has no direction of its own.
    lengths = np.abs(np.diag(triangle))
    fixed = fixed[:, lengths > _DEPENDENT * lengths.max(initial=0.0)]
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


# Empirical Bayes: noisy weights shrink towards zero, group by group, as far as their own sizes ask for.
#
# In whitened coordinates phi_hat = phi + noise of variance v, and group g has covariance t_g A_g A_g^T, so that S = v I
# + sum_g t_g A_g A_g^T is that of phi_hat. The likeliest t_g by the fixed point t_g <- t_g sqrt(q_g / s_g), with q_g =
# |A_g^T S^-1 phi_hat|^2 and s_g = trace(A_g^T S^-1 A_g) (the evidence of MacKay, Neural Computation 4, 1992). The
# result is the posterior mean of phi.
#
# Groups of one kind share: first one likeliest variance, then one each under an inverse gamma prior around it of weight
# `_SHARED`, with the stationary point t^2 q + a t_kind = t^2 s + a t, a = `_SHARED`.


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
    def of(cls, groups: Sequence[TermGroup], basis: Matrix) -> "Prior":
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
        """The likeliest variances, and what they make of phi, (d,); variance: of the noise on each coordinate."""
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


@dataclass(frozen=True, eq=False)
class Loss:
    """What gradients are of."""

    gradient: Callable[[Vector, Fraction, Fraction, Basis], GradientEstimate]
    """That at a point, from the point, the clip, the part of the budget, and the basis."""
    clip: float
    """C over the root mean square of |z|."""
    curvature: float
    """The average curvature of a record in a whitened direction."""
    sampling: float
    """The variance of each coordinate of phi for the sampling of rows."""
    longest_step: float = LONGEST_STEP
    """Of phi."""
    of_baseline: Vector = field(default_factory=lambda: np.zeros(0))
    """(J,), the curvature along each coordinate of a baseline."""


class GradientRounds:
    """The gradients of one fit. phi: (d,), the weights so far in whitened coordinates.

    baseline: (J,), coordinates of the gradient's point that come first, are in no basis, and do not shrink; usually
    none. asked: directions of each gradient. answers: all of them; _seen: those in the directions that are kept.
    """

    def __init__(
        self,
        loss: Loss,
        terms: AdditiveTerms,
        whitening: Whitening,
        directions: Directions,
        first: Vector,
        *,
        kept: KeptDirections | None = None,
        baseline: Vector | None = None,
    ) -> None:
        """first: phi from the moments, (d,). kept: the directions of the first gradient, by default all."""
        self._loss, self._terms, self._whitening = loss, terms, whitening
        self._prior = Prior.of(terms.groups, whitening.basis.matrix)
        self._ordered = conditions(directions, terms.feature_map, len(first)) @ whitening.basis.matrix.T
        self._seen: list[Seen] = []
        self._kept = KeptDirections.every(len(first)) if kept is None else kept
        self.answers: list[Answer] = []
        self.baseline = np.zeros(0) if baseline is None else baseline
        axes = self._kept.axes
        self.phi: Vector = np.asarray(axes @ nearest(axes.T @ first, self._ordered @ axes))
        self.asked: list[int] = []
        self.groups: dict[str, float] = {}

    def ask(self, part: Fraction, left: int) -> None:
        """Ask for one more gradient, move phi, and leave out the directions that `left` more answers do not need."""
        axes, start, loss = self._kept.axes, len(self.baseline), self._loss
        clip = clip_of(loss.clip, self._whitening.size_along(axes))
        answer = loss.gradient(self._point, clip, part, self._kept.basis(self._whitening))
        here = np.concatenate([self.baseline, axes.T @ self.phi])
        steps = np.concatenate([answer.mean[:start] / loss.of_baseline, axes.T @ answer.mean[start:] / loss.curvature])
        self._seen.append(Seen(here, here - steps, answer.deviation / loss.curvature))
        self.answers.append(self._stated(answer, axes))
        self.asked.append(self._kept.count)
        noise, reached = noise_of(self._seen), root(self._seen)
        prior = self._prior.moved(axes.T)
        found = prior.shrunk(reached[start:], noise + loss.sampling)
        moved = bounded_step(here, np.concatenate([reached[:start], found.mean]), loss.longest_step)
        step = nearest(moved[start:], self._ordered @ axes)
        self.baseline, self.phi = moved[:start], axes @ step
        self.groups = {group.name: float(size) for group, size in zip(self._terms.groups, found.sizes, strict=True)}
        if left:
            later = (answer.deviation / loss.curvature) ** 2 / self._kept.count / left
            kept = worth_keeping(found.prior, prior.columns, Outlook(noise, later, loss.sampling))
            if kept.shape[1] < self._kept.count:
                self._kept = self._kept.narrowed(kept)
                self._seen = narrowed_answers(self._seen, kept, start)
                self.phi = self._kept.axes @ nearest(kept.T @ step, self._ordered @ self._kept.axes)

    def _stated(self, answer: GradientEstimate, axes: Matrix) -> Answer:
        """The answer at phi, for the errors of the weights. axes: (d, k), the directions that it was about."""
        return Answer(self._whitening.basis.matrix.T @ self.phi, answer.mean, answer.deviation, axes)

    @property
    def _point(self) -> Vector:
        return np.concatenate([self.baseline, self.phi])

    @property
    def theta(self) -> Vector:
        """The weights of the terms, (d,)."""
        return np.asarray(self._whitening.basis.matrix.T @ self.phi)

    def covariance(self, released: Released, theta: Vector | None = None) -> Matrix | None:
        """Of the errors of the weights, (d, d); None without an answer. `PrivateAdditive` says what it is.

        theta: (d,), by default the weights.
        """
        stated = self.theta if theta is None else theta
        return errors_of_weights(stated, self.answers, released).covariance if self.answers else None


def shrunk_first(prior: Prior, phi: Vector, noise: Matrix) -> tuple[Vector, float]:
    """Weights from the moments alone, (d,), shrunk, and what they explain of a variance, both without noise's part.

    noise: (d, d), the covariance N of phi's errors. With s = K phi the squared length of phi without errors less that
    of its distance from s is on average 2 s . phi - |s|^2 - 2 trace(K N).
    """
    factor = np.linalg.cholesky(noise)
    # In these coordinates the noise has variance 1 in every direction.
    found = prior.moved(np.linalg.inv(factor)).shrunk(np.linalg.solve(factor, phi), 1.0)
    shrunk = np.asarray(factor @ found.mean)
    gain = np.linalg.solve(found.prior + np.eye(len(phi)), found.prior).T
    explained = float(2.0 * shrunk @ phi - shrunk @ shrunk - 2.0 * np.trace(factor @ gain @ factor.T))
    return shrunk, explained
