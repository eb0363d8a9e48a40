"""The errors of weights that noisy gradients found, and which of them are measurable at all.

With theta* the minimiser over the population, H the mean curvature, e the sampling error and P the answers' basis,

    answer_t = U_t U_t^T P (H (theta_t - theta*) + e) + noise of a known size,

U_t the directions that the answer was about. With theta* ~ N(0, prior^2 I) its posterior is normal (Bishop, Pattern
Recognition and Machine Learning, 2006, section 2.3.3); the result is its second moment around the stated weights.

H and the sampling covariance are estimated from rows made with the released moments, and what this leaves unknown is
drawn `_DRAWS` times, with a fixed seed. More: docs/explanation/proofs.md, "Errors of weights".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dpcore.estimators.curvatures import Curvatures, OfLogOdds
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.numbers.processors import one_blas_thread
from dpcore.rados.distribution import ClassMoments, Moments, NumberMoments
from dpcore.records.feature_map import Column, FeatureMap
from dpcore.records.schema import Schema

MEASURABLE = 0.5
"""A value is measurable if the answers left less than this share of its prior deviation."""

_DRAWS, _UNUSED = 16, 4
_BASE_ROWS, _LEVEL_ROWS, _MOST_LEVEL_ROWS = 3000, 200, 12_000
_CORRELATION = 0.3
"""Prior deviation of a correlation between two columns."""
_BENDING = 0.1
"""Squared error of an answer's linear model, for each coordinate, per squared distance from the stated weights."""
_LEAST_SHARE = 1e-9
_MOST_ERROR = 0.3
"""Relative, of the variance of a column that is a number."""
_SURELY = 2.0
_LEAST_ALONE = 0.003
"""Of a column's variance that others do not explain."""
_LEAST_VARIANCE = 1e-3
"""Of a column, whose values are between -1 and 1."""
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Answer:
    """A gradient's answer."""

    theta: Vector
    """(d,), where."""
    mean: Vector
    """(d,), with noise of this deviation in every coordinate."""
    deviation: float
    axes: Matrix
    """(d, k), the orthonormal directions that it is about, in the basis's coordinates."""


@dataclass(frozen=True, eq=False)
class Released:
    """What is known beside the answers."""

    schema: Schema
    moments: Moments | NumberMoments | ClassMoments
    basis: Matrix
    """P."""
    clip: float
    """C of all directions, of the logistic loss."""
    feature_map: FeatureMap | None = None
    loss: Curvatures | None = None
    """Another loss, which has a clip of its own."""
    widened: float = 1.0
    """Variances count so many times more."""
    products: Matrix | None = None
    """(d, d), mean products of the coordinates, if more is known of them than the moments tell."""

    @property
    def curvatures(self) -> Curvatures:
        """Those of the loss."""
        return self.loss or OfLogOdds(self.clip)


@dataclass(frozen=True, eq=False)
class Errors:
    """The second moments of theta - theta*, (d, d), symmetric."""

    covariance: Matrix
    """For noise, the choice of the rows, clipping and shrinkage."""
    sampling: Matrix
    """For the choice of the rows alone, of the same loss without clipping: rather too little than too much, because
    columns count as varying by `_SURELY` deviations of the noise more than they seem to."""


def errors_of_weights(theta: Vector, answers: Sequence[Answer], released: Released) -> Errors:
    """The errors of weights; see the module's docstring. answers: at least one."""
    # The matrices are so small that the threads of BLAS, which spin, take far longer than one.
    with one_blas_thread():
        return _errors(theta, answers, released)


def _errors(theta: Vector, answers: Sequence[Answer], released: Released) -> Errors:
    random = np.random.default_rng(0)
    columns = _Columns.of(released)
    d, products = len(theta), columns.products
    half = half_of(products)
    variance = float(theta @ products @ theta - (products[-1] @ theta) ** 2)
    loss = released.curvatures
    if variance > loss.separated**2:
        return Errors((2.0 * loss.prior) ** 2 * np.eye(d), (2.0 * loss.prior) ** 2 * np.eye(d))
    rows = _MadeRows.of(columns, released, random)
    seen = SeenAnswers.of(theta, answers, released)
    here = rows.curvature(theta)
    mean, root, total = theta, np.zeros((d, d)), np.zeros((d, d))
    for draw in range(_DRAWS):
        other = mean + root @ random.normal(size=d)
        factors = np.exp(loss.unknown[0] * random.normal() + loss.unknown[1] * random.normal(size=d))
        factors *= np.maximum(1.0 + columns.count_errors * random.normal(size=d), 0.1)
        path = [(here, theta), *((rows.curvature(at), at) for at in ((theta + other) / 2.0, other))]
        hessian = np.mean([found.hessian(half, factors, at) for found, at in path], axis=0)
        mean, variance_left = seen.posterior(hessian, here.sampling(half) / released.moments.rows)
        values, vectors = np.linalg.eigh(variance_left)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        if draw >= _UNUSED:
            total += root @ root.T + np.outer(theta - mean, theta - mean)
    total *= released.widened * loss.widened / (_DRAWS - _UNUSED)
    total += np.diag(np.where(may_be_constant(released), (2.0 * loss.prior) ** 2, 0.0))
    # Rounding could leave a direction without any error, and others factor the matrix.
    total += _LEAST_SHARE * float(np.trace(total)) / d * np.eye(d)
    return Errors(total, _sampling(theta, rows, columns, released.moments))


def may_be_constant(released: Released) -> NDArray[np.bool_]:
    """Which weights (d,) are of numbers that may be the same in all rows, as far as the moments tell; of no map.

    Such a column is a multiple of the bias, and no answer tells their weights apart: only what they add up to. The loss
    of hazards has no bias.
    """
    found = np.zeros(released.moments.d, dtype=np.bool_)
    if released.feature_map is not None or not released.schema.bias or released.schema.label.coding.intervals:
        return found
    sums, m, names = released.moments.product_sum, released.moments.rows, {n.name for n in released.schema.numbers}
    variances = np.diag(sums) / m - np.square(sums[-1] / m)
    surely = variances > np.maximum(_SURELY * np.diag(released.moments.product_noise) / m, _LEAST_SHARE)
    is_number = np.array([name in names for name in released.schema.coordinates], dtype=np.bool_)
    return np.asarray(is_number & ~surely)


def _sampling(
    theta: Vector, rows: "_MadeRows", columns: "_Columns", moments: Moments | NumberMoments | ClassMoments
) -> Matrix:
    """See `Errors.sampling`."""
    wider = columns.products + _SURELY * np.diag(np.diag(moments.product_noise)) / moments.rows
    half = half_of(columns.of_records @ wider @ columns.of_records.T)
    whole = replace(rows, lengths=np.zeros(len(rows.lengths))).curvature(theta)
    hessian = whole.hessian(half, np.ones(len(theta)), theta)
    inverse = np.linalg.pinv(hessian, rcond=_LEAST_SHARE, hermitian=True)
    return np.asarray(inverse @ whole.sampling(half) @ inverse / moments.rows)


def errors_of_sampling(theta: Vector, released: Released) -> Matrix:
    """See `Errors.sampling`; of a model without a map."""
    columns = _Columns.of(released)
    rows = _MadeRows.of(columns, released, np.random.default_rng(0))
    return _sampling(theta, rows, columns, released.moments)


def half_of(products: Matrix) -> Matrix:
    """B with B B^T = S, (d, d): the columns' sizes times the symmetric root of their correlations.

    B F B^T, F diagonal, has curvature F of the columns. If F is between a and b, it is between a S and b S, as the
    curvature of rows is whose weights are between a and b.

    So no direction in which rows do not vary has curvature, and what is unknown of it moves no other
    (docs/explanation/proofs.md, "Errors of weights").
    """
    sizes = np.sqrt(np.maximum(np.diag(products), _TINY))
    values, vectors = np.linalg.eigh(products / np.outer(sizes, sizes))
    return np.asarray(sizes[:, np.newaxis] * ((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T))


@dataclass(frozen=True, eq=False)
class ColumnsAndRows:
    """What is known of columns, for other losses."""

    count_errors: Vector
    """(d,), relative, of the counts of levels."""
    of_records: Matrix
    """Q, (d, d): Q x = x for every record, and n Q = 0 for every n that the schema makes n . x = 0."""
    rows: Matrix
    """(n, d), made."""
    shares: Vector
    """(n,)."""
    weights: Matrix
    """(n, d), by which rows count for a coordinate."""


def columns_and_rows(released: Released, random: np.random.Generator) -> ColumnsAndRows:
    """Of a model without a map."""
    columns = _Columns.of(released)
    rows = _MadeRows.of(columns, released, random)
    return ColumnsAndRows(columns.count_errors, columns.of_records, rows.mapped, rows.shares, rows.weights)


@dataclass(frozen=True, eq=False)
class SeenAnswers:
    """The answers."""

    basis: Matrix
    answers: tuple[Answer, ...]
    squared_steps: tuple[float, ...]
    """|phi_t - phi|^2, from the stated weights to where each was asked."""
    prior: float | Vector
    """The deviation of each of theta*."""

    @classmethod
    def of(cls, theta: Vector, answers: Sequence[Answer], released: Released) -> Self:
        """Those to the stated weights (d,)."""
        steps = (np.linalg.solve(released.basis.T, one.theta - theta) for one in answers)
        squares = tuple(float(step @ step) for step in steps)
        return cls(released.basis, tuple(answers), squares, released.curvatures.prior)

    def posterior(self, hessian: Matrix, sampling: Matrix) -> tuple[Vector, Matrix]:
        """The mean (d,) and covariance (d, d) of theta*. sampling: (d, d), of the error of a mean over the rows."""
        d = len(hessian)
        pulled = self.basis @ hessian
        curvature = float(np.trace(pulled @ self.basis.T)) / d
        information, weighted = np.zeros((d, d)), np.zeros(d)
        for one, square in zip(self.answers, self.squared_steps, strict=True):
            variance = one.deviation**2 + _BENDING * curvature**2 * square / d + _TINY**0.25
            projected = one.axes @ one.axes.T / variance
            information += projected
            weighted += projected @ (pulled @ one.theta - one.mean)
        noise = np.linalg.inv(information)
        prior = np.broadcast_to(np.square(self.prior), d)
        spread = (pulled * prior) @ pulled.T + self.basis @ sampling @ self.basis.T + noise
        gain = np.linalg.solve(spread, pulled * prior).T
        left = np.diag(prior) - gain @ (pulled * prior)
        return gain @ (noise @ weighted), (left + left.T) / 2.0


@dataclass(frozen=True, eq=False)
class _Curvature:
    """Of made rows at one theta."""

    factors: Vector
    """(d,), mean of w (1 - w) column by column."""
    squares: Vector
    """(d,), mean of w^2 column by column."""
    along: float
    """That of the scores squared."""

    def hessian(self, half: Matrix, factors: Vector, theta: Vector) -> Matrix:
        """H for these factors of curvature, (d,). half: B."""
        found = (half * (self.factors * factors)) @ half.T
        pull = found @ theta
        whole = float(theta @ pull)
        if self.along >= whole:
            return np.asarray(found)
        return np.asarray(found - (1.0 - self.along / whole) * np.outer(pull, pull) / whole)

    def sampling(self, half: Matrix) -> Matrix:
        """V. half: B."""
        return np.asarray((half * self.squares) @ half.T)


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of the schema, and the mean products of the map's coordinates as the moments show them."""

    schema: Schema
    places: NDArray[np.intp]
    """Of each coordinate of the schema in theta, -1 if it is in no term by itself."""
    categories: tuple[NDArray[np.intp], ...]
    """Their coordinates in the schema."""
    products: Matrix
    """(d, d)."""
    count_errors: Vector
    """(d,), relative, of the count of a level; 0 for others."""
    of_records: Matrix
    """Q, (d, d): Q x = x for every record, and n Q = 0 for every n that the schema makes n . x = 0."""

    @classmethod
    def of(cls, released: Released) -> Self:
        schema, m = released.schema, released.moments.rows
        places = np.arange(schema.d, dtype=np.intp)
        if released.feature_map is not None:
            places = np.full(schema.d, -1, dtype=np.intp)
            places[-1] = released.moments.d - 1
            for place, term in enumerate(released.feature_map.terms):
                if isinstance(term.function, Column):
                    places[term.function.coordinate] = place
        categories = level_places(schema)
        levels = [places[each] for each in categories]
        products, errors, of_records = _cleaned(released.moments, levels, _complete(schema))
        found = cls(schema, places, tuple(categories), products / m, errors, of_records)
        if released.products is not None:
            return replace(found, products=released.products)
        return found.centred(released.moments) if released.loss and not released.feature_map else found

    def centred(self, moments: Moments | NumberMoments | ClassMoments) -> Self:
        """With covariances in which no column is lost in the noise, and none is quite a combination of others.

        A flag is 1 or -1, and a level 1 or 0: their means tell their variances. Others are shrunk as by `_cleaned`.
        """
        m, last = moments.rows, len(self.products) - 1
        noise = moments.product_noise[:last, :last] / m
        means, reals = moments.product_sum[-1, :last] / m, {each.name for each in self.schema.numbers}
        levels = {int(place) for each in self.categories for place in each}
        is_number = np.array([name in reals for name in self.schema.coordinates[:last]], dtype=np.bool_)
        is_level = np.array([place in levels for place in range(last)], dtype=np.bool_)
        means = np.where(is_level, np.diag(self.products)[:last], means)
        together = moments.product_sum[:last, :last] / m - np.outer(means, means)
        least = np.maximum(np.diag(noise), _LEAST_VARIANCE)
        known = np.where(is_level, means * (1.0 - means), 1.0 - means**2)
        variances = np.where(is_number, np.maximum(np.diag(together), least), np.maximum(known, _LEAST_VARIANCE))
        expected = _CORRELATION**2 * np.outer(variances, variances)
        together = together * expected / (expected + np.square(noise))
        for each in self.categories:
            together[np.ix_(each, each)] = -np.outer(means[each], means[each])
        roots = np.sqrt(variances)
        correlations = together / np.outer(roots, roots)
        np.fill_diagonal(correlations, 1.0)
        values, vectors = np.linalg.eigh(correlations)
        raised = (vectors * np.maximum(values, _LEAST_ALONE)) @ vectors.T
        products, errors = np.ones_like(self.products), self.count_errors.copy()
        products[:last, :last] = roots[:, np.newaxis] * raised * roots + np.outer(means, means)
        products[-1, :last] = products[:last, -1] = means
        products = self.of_records @ products @ self.of_records.T
        errors[:last] = np.where(is_number, np.minimum(np.diag(noise) / variances, _MOST_ERROR), errors[:last])
        return replace(self, products=products, count_errors=errors)

    @property
    def singles(self) -> list[int]:
        """The coordinates in the schema of the features that are no categories."""
        taken = {int(place) for each in self.categories for place in each}
        return [place for place in range(self.schema.d - 1) if place not in taken]

    def means(self, coordinates: Sequence[int] | NDArray[np.intp], level: int | None) -> Vector:
        """Of these coordinates, in all rows or in those of a level (a coordinate)."""
        at = self.places[coordinates]
        if level is None:
            return np.asarray(self.products[-1, at])
        place = self.places[level]
        return np.asarray(self.products[place, at] / self.products[place, place])


def level_places(schema: Schema) -> list[NDArray[np.intp]]:
    """The coordinates of each category."""
    return [
        np.array([schema.coordinate(name) for name in feature.coordinates], dtype=np.intp)
        for feature in schema.categories
    ]


def _complete(schema: Schema) -> list[bool]:
    """Of each category, whether every record has one of its levels."""
    return [schema.bias and each.unknown != "zero" for each in schema.categories]


def _cleaned(
    moments: Moments | NumberMoments | ClassMoments,
    categories: Sequence[NDArray[np.intp]],
    complete: Sequence[bool],
) -> tuple[Matrix, Vector, Matrix]:
    """The sums of products, shrunk towards independent columns; relative errors of the counts of levels, (d,); and Q.

    A category whose levels may have all rows counts as complete too: what rows without a level would tell is not known.
    """
    m, sums, noise = moments.rows, moments.product_sum.copy(), np.maximum(moments.product_noise, _LEAST_SHARE)
    errors, of_records = np.zeros(moments.d), np.eye(moments.d)
    keep_all = np.zeros(sums.shape, dtype=np.bool_)
    exclusive = np.zeros(sums.shape, dtype=np.bool_)
    for places, is_complete in zip(categories, complete, strict=True):
        exclusive[np.ix_(places, places)] = True
        weights = [1.0 / np.square(noise[places, at]) for at in (places, -1)]
        found = (sums[places, places] * weights[0] + sums[places, -1] * weights[1]) / sum(weights)
        deviation = 1.0 / np.sqrt(sum(weights))
        counts = np.maximum(found, np.maximum(0.5 * deviation, 1.0))
        if is_complete or counts.sum() > m - _SURELY * np.linalg.norm(deviation):
            counts *= m / counts.sum()
            of_records[np.ix_(places, places)] -= counts[:, np.newaxis] / m
            of_records[places, -1] += counts / m
        sums[places, places] = sums[places, -1] = sums[-1, places] = counts
        errors[places] = deviation / counts
    np.fill_diagonal(exclusive, val=False)
    keep_all[-1] = keep_all[:, -1] = True
    squares = np.maximum(np.diag(sums), np.maximum(np.diag(noise), _LEAST_SHARE * m))
    independent = np.where(exclusive, 0.0, np.outer(sums[-1], sums[-1]) / m)
    expected = _CORRELATION**2 * np.outer(squares, squares)
    keep = np.where(exclusive, 0.0, np.where(keep_all, 1.0, expected / (expected + np.square(noise))))
    cleaned = independent + keep * (sums - independent)
    np.fill_diagonal(cleaned, squares)
    values, vectors = np.linalg.eigh(of_records @ cleaned @ of_records.T)
    raised = (vectors * np.maximum(values, _LEAST_SHARE * m)) @ vectors.T
    return np.asarray(of_records @ raised @ of_records.T), errors, of_records


@dataclass(frozen=True, eq=False)
class _MadeRows:
    """Rows that are made from the moments."""

    mapped: Matrix
    """(n, d)."""
    weights: Matrix
    """(n, d), by which rows count for a coordinate."""
    shares: Vector
    """(n,), by which they count for all."""
    lengths: Vector
    """(n,), |z|."""
    loss: Curvatures

    @classmethod
    def of(cls, columns: _Columns, released: Released, random: np.random.Generator) -> Self:
        levels = [int(level) for each in columns.categories for level in each]
        count = max(1, min(_LEVEL_ROWS, _MOST_LEVEL_ROWS // max(len(levels), 1)))
        if levels:
            x = np.vstack([_rows_of(columns, level, count, random) for level in levels])
            shares = np.repeat(np.diag(columns.products)[columns.places[levels]], count)
        else:
            x = _rows_of(columns, None, _BASE_ROWS, random)
            shares = np.ones(_BASE_ROWS)
        mapped = x if released.feature_map is None else released.feature_map.of(x)
        weights = np.square(mapped) * shares[:, np.newaxis]
        for number, level in enumerate(levels):
            weights[:, columns.places[level]] = 0.0
            weights[number * count : (number + 1) * count, columns.places[level]] = 1.0
        lengths = np.linalg.norm(mapped @ released.basis.T, axis=1)
        return cls(
            mapped,
            weights / np.maximum(weights.sum(axis=0), _TINY),
            shares / shares.sum(),
            lengths,
            released.curvatures,
        )

    def curvature(self, theta: Vector) -> _Curvature:
        """At theta, with labels as likely as its scores say."""
        scores = self.mapped @ theta
        curved, squares = self.loss.of(scores, self.lengths)
        along = float("inf") if not self.loss.by_score else float(self.shares @ (curved * np.square(scores)))
        return _Curvature(curved @ self.weights, squares @ self.weights, along)


def _rows_of(columns: _Columns, level: int | None, count: int, random: np.random.Generator) -> Matrix:
    """Rows as the schema encodes them, (count, width), with independent columns, in which `level` is set, if given."""
    x = np.zeros((count, columns.schema.d))
    x[:, -1] = 1.0
    for category in columns.categories:
        if level in category:
            x[:, level] = 1.0
            continue
        chances = np.maximum(columns.means(category, level), 0.0)
        chances = np.append(chances, max(0.0, 1.0 - chances.sum()))
        chosen = random.choice(len(chances), size=count, p=chances / chances.sum())
        listed = chosen < len(category)
        x[np.flatnonzero(listed), category[chosen[listed]]] = 1.0
    # A model may have no term for a column that never varies.
    singles = [place for place in columns.singles if columns.places[place] >= 0]
    reals = {each.name for each in columns.schema.numbers}
    numbers = [place for place in singles if columns.schema.coordinates[place] in reals]
    flags = [place for place in singles if place not in numbers]
    means = np.clip(columns.means(flags, level), -1.0, 1.0) if flags else np.zeros(0)
    x[:, flags] = np.where(random.random((count, len(flags))) < (1.0 + means) / 2.0, 1.0, -1.0)
    if numbers:
        values, vectors = np.linalg.eigh(_covariance(columns, numbers, level))
        drawn = random.normal(size=(count, len(numbers))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        x[:, numbers] = np.clip(columns.means(numbers, level) + drawn, -1.0, 1.0)
    return x


def _covariance(columns: _Columns, numbers: list[int], level: int | None) -> Matrix:
    """Of numbers, within the levels of the category that a level belongs to."""
    places = columns.places[numbers]
    means = columns.products[-1, places]
    found = columns.products[np.ix_(places, places)] - np.outer(means, means)
    if level is None:
        return np.asarray(found)
    category = next(each for each in columns.categories if level in each)
    shifts = np.array([columns.means(numbers, int(each)) - means for each in category])
    shares = np.diag(columns.products)[columns.places[category]]
    return np.asarray(found - (shifts.T * shares) @ shifts)
