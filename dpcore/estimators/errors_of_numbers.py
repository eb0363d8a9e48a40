"""The errors of weights of a number, without a map: dpcore.estimators.errors_of_weights, with more that is drawn.

With columns that nearly determine one another, one estimate of their covariances is sure of directions that are nothing
but noise, or of weights that no answer tells. So each draw has

- other covariances, within the noise of the release (dpcore.estimators.column_covariances). A direction of rows varies
  by more than 0: one whose variance comes out negative is drawn again, half-normal within its noise.
- another variance of residuals, within its noise and up to that of the label.

A weight's prior deviation is that of the label over that of its column: a column's deviation moves the label by about
its own. So what is unknown of one direction adds no more than that to the errors of other weights.

Which weights are measured is decided by draws that are less favourable: there a direction whose variance comes out
negative varies as little as may be. Of a weight that is not, nothing else but its own error is raised.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpcore.estimators.column_covariances import ColumnCovariances
from dpcore.estimators.curvatures import PRIOR_DEVIATION_OF_NUMBERS, OfNumbers
from dpcore.estimators.errors_of_weights import (
    MEASURABLE,
    Answer,
    Errors,
    Released,
    SeenAnswers,
    columns_and_rows,
    errors_of_sampling,
    half_of,
    level_places,
)
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.processors import one_blas_thread
from dpcore.rados.distribution import NumberMoments

WIDENED_OF_ROUNDS = 2.25
"""Variances count so many times: rows are not as they are made."""

_DRAWS = 24
_LEAST_ALONE = 0.003
"""Of a column's variance that others do not explain."""
_WITHIN = 0.5
"""The deviation of a variance that came out negative, over that of its noise: it is the smaller, the more negative."""
_MOST_WEIGHT = 2.0
"""Prior deviations of weights of columns that hardly vary, over `PRIOR_DEVIATION_OF_NUMBERS`, at most."""
_LEAST_VARIANCE = 0.02
"""Of residuals, over that of the label."""
_LEAST_SHARE = 1e-9


@dataclass(frozen=True)
class Doubts:
    """What is assumed of answers that no draw tells."""

    left: float = MEASURABLE
    """A weight is measured if the less favourable draws leave less than this share of its prior deviation."""
    moved: float = 0.0
    """How far clipping may move the mean gradient, in each whitened coordinate, over the deviation of residuals."""


OF_CLIPPED = Doubts(left=0.4, moved=0.025)
"""Of gradients. With `left` 0.5 86 of 100 intervals of abalone hold at epsilon 1, with this 98: noise hides that its
weights determine one another, and how large they are along that direction. `moved` is more than noise and sampling are
on tables of 20,000 rows, as rows of long tails move it by 0.02 to 0.06, and no answer tells by how much: moments have 7
times as much noise. With 0.01 88 of 100 intervals of diamonds hold, and 89 to 94 of the income of randhie, with this 95
or more; intervals of 28,000 rows are 1.9 times as wide, those of 5,000 1.1 to 1.4 times."""


def errors_of_numbers(
    theta: Vector, answers: Sequence[Answer], released: Released, doubts: Doubts = Doubts()
) -> Errors:
    """The errors of theta (d,), with a bias. answers: at least one. released: with moments and a loss of numbers."""
    # The matrices are so small that the threads of BLAS, which spin, take far longer than one.
    with one_blas_thread():
        drawn = _Drawn.of(theta, released, doubts.moved)
        seen = replace(SeenAnswers.of(theta, answers, released), prior=drawn.prior)
        total = drawn.errors(theta, seen, is_favourable=True)
        most = np.diag(drawn.errors(theta, seen, is_favourable=False))
        unknown = drawn.has_prior & (most > np.square(doubts.left * drawn.prior))
        total += np.diag(np.where(unknown, (2.0 * PRIOR_DEVIATION_OF_NUMBERS) ** 2, 0.0))
        total *= drawn.loss.widened
        # Rounding could leave a direction without any error, and others factor the matrix.
        total += _LEAST_SHARE * float(np.trace(total)) / len(total) * np.eye(len(total))
        return Errors(total, errors_of_sampling(theta, released))


@dataclass(frozen=True, eq=False)
class _Drawn:
    """What is unknown of the rows, beside the weights."""

    loss: OfNumbers
    means: Vector
    """(d,), the bias included."""
    sizes: Vector
    """(d - 1,), deviations of columns."""
    correlations: Matrix
    """(d - 1, d - 1), as released; noise may have made eigenvalues negative."""
    deviations: Matrix
    """(d - 1, d - 1), what noise hides of each."""
    of_records: Matrix
    """As of dpcore.estimators.errors_of_weights."""
    count_errors: Vector
    """(d,), relative, of the counts of levels."""
    lengths: Vector
    """(n,), |z| of made rows."""
    weights: Matrix
    """(n, d), by which they count for a coordinate."""
    rows: int
    """m."""
    variance: tuple[float, float, float]
    """Of residuals: the estimate, the deviation of its noise, and the most that it may be."""
    moved: Matrix
    """(d, d), the covariance of what clipping adds to a mean gradient."""
    prior: Vector
    """(d,), deviations."""
    has_prior: NDArray[np.bool_]
    """(d,): weights of columns, not of levels or the bias."""

    @classmethod
    def of(cls, theta: Vector, released: Released, moved: float) -> Self:
        moments, loss, basis = released.moments, released.loss, released.basis
        assert isinstance(moments, NumberMoments), "a number's moments"
        assert isinstance(loss, OfNumbers), "a number's loss"
        found = columns_and_rows(released, np.random.default_rng(0))
        known = ColumnCovariances.of(moments, released.schema)
        sizes = np.sqrt(np.diag(known.covariance))
        estimate, noise = _residual_variance(theta, moments)
        most = max(moments.square_sum / moments.rows - float(moments.label_sum[-1] / moments.rows) ** 2, loss.variance)
        is_column = np.ones(moments.d, dtype=np.bool_)
        is_column[-1] = False
        for places in level_places(released.schema):
            is_column[places] = False
        prior = np.full(moments.d, PRIOR_DEVIATION_OF_NUMBERS)
        widest = _MOST_WEIGHT * PRIOR_DEVIATION_OF_NUMBERS
        prior[:-1][is_column[:-1]] = np.minimum(np.sqrt(most) / sizes, widest)[is_column[:-1]]
        return cls(
            loss,
            np.append(known.means, 1.0),
            sizes,
            known.covariance / np.outer(sizes, sizes),
            known.deviations / np.outer(sizes, sizes),
            found.of_records,
            found.count_errors,
            np.linalg.norm(found.rows @ basis.T, axis=1),
            found.weights,
            moments.rows,
            (estimate, noise, most),
            np.asarray(moved**2 * np.clip(estimate, _LEAST_VARIANCE * most, most) * np.linalg.inv(basis.T @ basis)),
            prior,
            is_column,
        )

    def errors(self, theta: Vector, seen: SeenAnswers, *, is_favourable: bool) -> Matrix:
        """The second moments of theta - theta*, (d, d), the mean of draws with a fixed seed."""
        random = np.random.default_rng(0)
        d, total = len(theta), np.zeros((len(theta), len(theta)))
        for _ in range(_DRAWS):
            half = half_of(self._products(random, is_favourable=is_favourable))
            curved, squares = replace(self.loss, variance=self._variance(random)).of(self.lengths, self.lengths)
            factors = (curved @ self.weights) * np.maximum(1.0 + self.count_errors * random.normal(size=d), 0.1)
            sampling = (half * (squares @ self.weights)) @ half.T / self.rows
            mean, left = seen.posterior((half * factors) @ half.T, sampling + self.moved)
            total += left + np.outer(theta - mean, theta - mean)
        return total / _DRAWS

    def _products(self, random: np.random.Generator, *, is_favourable: bool) -> Matrix:
        """Mean products of the coordinates, (d, d)."""
        d = len(self.means)
        upper = np.triu(random.normal(size=self.correlations.shape), 1)
        values, vectors = np.linalg.eigh(self.correlations + self.deviations * (upper + upper.T))
        if is_favourable:
            # What the noise moves a direction's variance by: entries are independent, but for symmetry.
            squares, noise = np.square(vectors), np.square(self.deviations)
            moved = 2.0 * np.sum(squares * (noise @ squares), axis=0) - np.diag(noise) @ np.square(squares)
            again = _WITHIN * np.sqrt(np.maximum(moved, 0.0)) * np.abs(random.normal(size=d - 1))
            values = np.where(values < _LEAST_ALONE, again, values)
        raised = (vectors * np.maximum(values, _LEAST_ALONE)) @ vectors.T
        sizes = self.sizes / np.sqrt(np.diag(raised))
        products = np.outer(self.means, self.means)
        products[:-1, :-1] += sizes[:, np.newaxis] * raised * sizes
        return np.asarray(self.of_records @ products @ self.of_records.T)

    def _variance(self, random: np.random.Generator) -> float:
        """Of residuals of t."""
        estimate, noise, most = self.variance
        return float(np.clip(abs(estimate + noise * random.normal()), _LEAST_VARIANCE * most, most))


def _residual_variance(theta: Vector, moments: NumberMoments) -> tuple[float, float]:
    """Of residuals of t under theta (d,), and the deviation of its noise."""
    m, squares = moments.rows, np.square(theta)
    left = moments.square_sum - 2.0 * theta @ moments.label_sum + theta @ moments.product_sum @ theta
    noise = np.square(moments.product_noise)
    # An entry beside the diagonal stands twice, with one noise.
    products = 2.0 * float(squares @ noise @ squares) - float(np.diag(noise) @ np.square(squares))
    variance = moments.square_noise**2 + 4.0 * float(squares.sum()) * moments.sum_noise**2 + products
    return float(left) / m, float(np.sqrt(variance)) / m
