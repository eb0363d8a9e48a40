"""The errors of the weights of several classes that noisy gradients found: dpcore.estimators.errors_of_weights.

Weights are those beside the average of all classes: theta = (Q x I) psi with Q (k, k - 1) orthonormal and orthogonal to
equal numbers, which no softmax shows.

Gradients add up to zero over the classes, so psi's gradient is (Q^T x I) g, with
noise as large as before. The errors of psi follow from the answers as there.

The mean curvature E[w (diag(p) - p p^T) x x x^T] and the covariance of the gradients of records are those of made
rows. p is the softmax, w how much clipping leaves.

The rows' covariances are drawn again for every draw of what is unknown, within the noise of the release
(dpcore.estimators.column_covariances). Columns that nearly determine one another, such as three sizes of a diamond,
have a direction of a variance far below that noise: any one estimate of it would be sure of weights that no answer
tells.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from dpcore.estimators.column_covariances import ColumnCovariances
from dpcore.estimators.curvatures import LARGEST_SCORE
from dpcore.estimators.errors_of_weights import Answer, Errors, Released, SeenAnswers, columns_and_rows, half_of
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.processors import one_blas_thread

PRIOR_OF_CLASSES = 8.0
"""The prior standard deviation of a weight. Columns that nearly determine one another may have weights of 100, of
opposite signs, as length and width of diamonds do, and what is unknown of them is in the errors of others: with 5 and
more widening 26 of 29 intervals held on 6,000 rows of diamonds at epsilon 3. With 15 little more than one column is
measurable."""

MOST_WEIGHTS = 600
"""Of all classes but one. For more the errors are not computed: they take minutes."""

_DRAWS, _UNUSED = 16, 4
_UNKNOWN = (0.25, 0.25)
"""Standard deviations of the logarithm of curvature over its estimate: of all columns alike, and of each."""
_WIDENED = 2.0
"""Variances count so many times: rows are not as they are made."""
_ROWS = 4000
_SEPARATED = 6.0
"""A standard deviation of the score of a class, beside the average, that decides nearly every label."""
_LEAST_SHARE = 1e-9
_LEAST_ALONE = 1e-4
"""Of a column's variance that others do not explain."""
_SURELY = 2.0
"""A direction has so many deviations of its noise less variance than it seems to, so that curvature is no noise."""
_LEAST_LEFT = 0.25
"""Of a column's variance, in a draw."""


@dataclass(frozen=True, eq=False)
class ClassAnswer:
    """A gradient's answer."""

    theta: Matrix
    """(k, d), where."""
    mean: Matrix
    """(k, d), in the basis's coordinates, with noise of this deviation in every one."""
    deviation: float


def errors_of_classes(theta: Matrix, answers: Sequence[ClassAnswer], released: Released) -> Errors | None:
    """The second moments of the errors of theta (k, d) beside its average, each (k d, k d), class by class.

    answers: at least one. None for more than `MOST_WEIGHTS`.
    """
    k, d = theta.shape
    if (k - 1) * d > MOST_WEIGHTS:
        return None
    # The matrices are so small that the threads of BLAS, which spin, take far longer than one.
    with one_blas_thread():
        found = _Classes.of(theta, released)
        covariance = _covariance(theta, answers, released, found)
        back = np.kron(found.contrasts, np.eye(d))
        sampling = _sampling(theta, released, found)
    return Errors(back @ covariance @ back.T, back @ sampling @ back.T)


def _covariance(theta: Matrix, answers: Sequence[ClassAnswer], released: Released, found: "_Classes") -> Matrix:
    """Of psi."""
    random = np.random.default_rng(0)
    k, d = theta.shape
    size = (k - 1) * d
    scores = found.rows @ (theta - theta.mean(axis=0)).T
    if float(found.shares @ np.var(scores, axis=1)) > _SEPARATED**2:
        return np.asarray((2.0 * released.curvatures.prior) ** 2 * np.eye(size))
    basis: Matrix = np.kron(np.eye(k - 1), released.basis).astype(np.float64)
    of_psi = [Answer(found.psi(one.theta), found.psi(one.mean), one.deviation, np.eye(size)) for one in answers]
    here = found.psi(theta)
    seen = SeenAnswers.of(here, of_psi, replace(released, basis=basis))
    mean, root, total = here, np.zeros((size, size)), np.zeros((size, size))
    for draw in range(_DRAWS):
        other = mean + root @ random.normal(size=size)
        factors = np.exp(_UNKNOWN[0] * random.normal() + _UNKNOWN[1] * random.normal(size=d))
        factors *= np.maximum(1.0 + found.count_errors * random.normal(size=d), 0.1)
        rows = found.drawn(random)
        path = np.mean([rows.curvature(at) for at in (here, (here + other) / 2.0, other)], axis=0)
        half = half_of(path)
        hessian = (half * np.tile(factors, k - 1)) @ half.T
        mean, left = seen.posterior(hessian, rows.sampling(here) / released.moments.rows)
        values, vectors = np.linalg.eigh(left)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        if draw >= _UNUSED:
            total += root @ root.T + np.outer(here - mean, here - mean)
    total *= _WIDENED / (_DRAWS - _UNUSED)
    return np.asarray(total + _LEAST_SHARE * float(np.trace(total)) / size * np.eye(size))


def _sampling(theta: Matrix, released: Released, found: "_Classes") -> Matrix:
    """Of psi, for the choice of the rows alone, of the loss without clipping."""
    psi = found.psi(theta)
    inverse = np.linalg.pinv(found.curvature(psi, clipped=False), hermitian=True)
    return np.asarray(inverse / released.moments.rows)


@dataclass(frozen=True, eq=False)
class _Classes:
    """Made rows."""

    rows: Matrix
    """(n, d), with the second moments of the release."""
    lengths: Vector
    """(n,), |z|."""
    shares: Vector
    """(n,)."""
    count_errors: Vector
    """(d,), relative, of the counts of levels."""
    contrasts: Matrix
    """Q."""
    released: Released
    white: Matrix
    """(n, d - 1), made rows without correlations."""
    known: ColumnCovariances
    of_records: Matrix
    """Of dpcore.estimators.errors_of_weights."""

    @classmethod
    def of(cls, theta: Matrix, released: Released) -> Self:
        """With the covariances that are likeliest."""
        columns = columns_and_rows(released, np.random.default_rng(0))
        step = -(-len(columns.rows) // _ROWS)
        made, shares = columns.rows[::step, :-1], columns.shares[::step] / columns.shares[::step].sum()
        apart = made - shares @ made
        apart /= np.sqrt(np.maximum(shares @ np.square(apart), _LEAST_SHARE))
        values, vectors = np.linalg.eigh((apart * shares[:, np.newaxis]).T @ apart)
        inverse = np.where(values > _LEAST_SHARE, 1.0 / np.sqrt(np.maximum(values, _LEAST_SHARE)), 0.0)
        contrasts = np.linalg.svd(np.ones((1, len(theta))))[2][1:].T
        known = ColumnCovariances.of(released.moments, released.schema)
        empty = np.zeros((len(apart), apart.shape[1] + 1))
        found = cls(
            empty,
            np.zeros(len(apart)),
            shares,
            columns.count_errors,
            contrasts,
            released,
            (apart @ vectors * inverse) @ vectors.T,
            known,
            columns.of_records,
        )
        return found._with(known.covariance)

    def drawn(self, random: np.random.Generator) -> Self:
        """With other covariances, as likely as the release's noise makes them."""
        upper = np.triu(random.normal(size=self.known.covariance.shape))
        moved = self.known.covariance + self.known.deviations * (upper + np.triu(upper, 1).T)
        least = _LEAST_LEFT * np.diag(self.known.covariance)
        np.fill_diagonal(moved, np.maximum(np.diag(moved), least))
        return self._with(moved)

    def _with(self, covariance: Matrix) -> Self:
        """With this covariance of the columns, (d - 1, d - 1), as near as one of rows may be."""
        sizes, last = np.sqrt(np.diag(covariance)), len(covariance)
        values, vectors = np.linalg.eigh(covariance / np.outer(sizes, sizes))
        # What the noise moves a direction's variance by: entries are independent, but for symmetry.
        squares, noise = np.square(vectors), np.square(self.known.deviations / np.outer(sizes, sizes))
        moved = 2.0 * np.sum(squares * (noise @ squares), axis=0) - np.diag(noise) @ np.square(squares)
        values = np.maximum(values - _SURELY * np.sqrt(np.maximum(moved, 0.0)), _LEAST_ALONE)
        raised = (vectors * values) @ vectors.T
        raised /= np.sqrt(np.outer(np.diag(raised), np.diag(raised)))
        products = np.zeros((last + 1, last + 1))
        products[:last, :last] = sizes[:, np.newaxis] * raised * sizes
        # No row varies in a direction in which the schema lets none vary.
        of_records, means = self.of_records, np.append(self.known.means, 1.0)
        half, means = half_of(of_records @ products @ of_records.T), of_records @ means
        rows = np.tile(means, (len(self.shares), 1))
        rows[:, :last] += self.white @ half[:last, :last].T
        return replace(self, rows=rows, lengths=np.linalg.norm(rows @ self.released.basis.T, axis=1))

    def psi(self, theta: Matrix) -> Vector:
        """Of weights (k, d)."""
        return np.asarray(self.contrasts.T @ theta).ravel()

    def curvature(self, psi: Vector, *, clipped: bool = True) -> Matrix:
        """Of psi, with the weights of rows held."""
        chances, kept = self._chances(psi)
        weights = np.einsum("nc,nc->n", chances, kept) if clipped else np.ones(len(chances))
        return self._products(chances, weights[:, np.newaxis] * chances, weights)

    def sampling(self, psi: Vector) -> Matrix:
        """The covariance of a record's clipped gradient."""
        chances, kept = self._chances(psi)
        weighted = chances * np.square(kept)
        total = weighted.sum(axis=1)
        return self._products(chances, weighted, total)

    def _chances(self, psi: Vector) -> tuple[Matrix, Matrix]:
        """Of each row and class: its chance, and by what a gradient with this label is multiplied."""
        theta = self.contrasts @ psi.reshape(self.contrasts.shape[1], -1)
        scores = np.clip(self.rows @ theta.T, -LARGEST_SCORE, LARGEST_SCORE)
        parts = np.exp(scores - scores.max(axis=1, keepdims=True))
        chances = parts / parts.sum(axis=1, keepdims=True)
        # |p - e_y|^2 = |p|^2 - 2 p_y + 1.
        apart = np.sqrt(np.maximum(np.square(chances).sum(axis=1)[:, np.newaxis] - 2.0 * chances + 1.0, 1e-12))
        return chances, np.minimum(1.0, self.released.clip / (apart * np.maximum(self.lengths, 1e-12)[:, np.newaxis]))

    def _products(self, chances: Matrix, weighted: Matrix, totals: Vector) -> Matrix:
        """Sum over rows and labels y of a_y (p - e_y)(p - e_y)^T x x x^T along psi. weighted: a, totals: its sums."""
        contrasts = self.contrasts
        # Of each row diag(a) - a p^T - p a^T + total p p^T, between contrasts.
        of_p, of_a = chances @ contrasts, weighted @ contrasts
        count, d = contrasts.shape[1], self.rows.shape[1]
        found = np.empty((count, d, count, d))
        for first in range(count):
            for second in range(first, count):
                factors = weighted @ (contrasts[:, first] * contrasts[:, second])
                factors -= of_a[:, first] * of_p[:, second] + of_p[:, first] * of_a[:, second]
                factors += totals * of_p[:, first] * of_p[:, second]
                block = (self.rows * (self.shares * factors)[:, np.newaxis]).T @ self.rows
                found[first, :, second, :] = block
                found[second, :, first, :] = block.T
        return found.reshape(count * d, count * d)
