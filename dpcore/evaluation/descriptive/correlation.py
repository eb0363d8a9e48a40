"""Correlations and principal components of numbers, booleans and the label, from one release of moments.

Of coordinates in [-1, 1], with noisy sums of products P and of values S over n rows: C = P / n - (S / n)(S / n)^T, and
r_jk = C_jk / sqrt(C_jj C_kk).

No record is clipped: the norm bound is that of the longest. The square of a boolean, and of a label of two classes, is
1 in each row, and needs no answer.

A label that is a number or a count is a coordinate too: its moments have the sums of label times record, and of the
label's square, with their own noise.

The interval of r is by its linear part:

- the noise of the five sums that r depends on, which is independent;

- the sample: with both columns in units of their deviations, the linear part of one row is u v - r (u^2 + v^2) / 2.

Its mean square is at most (min(a, b) + |r| (a + b) / 2)^2 by Minkowski, with a and b the largest |u| and |v| that the
bounds allow, since E[u^4] <= a^2 and E[u^2 v^2] <= min(a, b)^2. No distribution is assumed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Protocol, cast

import numpy as np

from dpcore.errors import ConfigurationError, PlanError, SchemaError
from dpcore.estimators.oracle import WHOLE, MomentsOracle, Oracle
from dpcore.estimators.sulq import PrincipalComponents
from dpcore.evaluation.descriptive.divisions import check_columns, label_name
from dpcore.evaluation.descriptive.inquiry import Inquiry
from dpcore.evaluation.descriptive.measured_columns import is_measured
from dpcore.evaluation.descriptive.result import Figure, Result, Table
from dpcore.evaluation.intervals import CellNoise
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.queries.moments import norm_bound_of
from dpcore.rados.distribution import Moments, NumberMoments
from dpcore.records.feature_map import Column, FeatureMap, Term
from dpcore.records.features import Count, Label, Number
from dpcore.records.schema import Schema

CORRELATION, COMPONENT, LOADING = "correlation", "component", "loading"
_TOLD_APART = 3.0
"""A column whose variance is less than this many standard deviations of its noise may be constant."""


class MappedNumbers(Protocol):
    """What of an oracle answers moments of a label that is a number or a count over a feature map."""

    def number_moments(
        self, *, part: Fraction = WHOLE, norm_bound: Fraction | None = None, feature_map: FeatureMap | None = None
    ) -> NumberMoments:
        """As `NumberOracle.number_moments`, of mapped records."""
        ...


@dataclass(frozen=True, kw_only=True)
class Correlate(Inquiry):
    """Asks for moments of columns. Raises ConfigurationError if a field is out of range."""

    name: ClassVar[str] = "correlate"
    columns: tuple[str, ...] = ()
    """Numbers, booleans and the label; empty for all of them."""
    components: int = 2
    """The most principal components of the columns without the label."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.columns, str):
            raise ConfigurationError("columns are a list of names: write [name], even for a single one")
        object.__setattr__(self, "columns", tuple(self.columns))
        if self.components < 1:
            raise ConfigurationError(f"components is {self.components}: give at least 1")

    def check(self, schema: Schema) -> None:
        """See `Inquiry`."""
        if not (isinstance(schema.label, Label) or is_measured(schema.label)):
            raise SchemaError(
                f"correlate needs a label of two classes, a number or a count, and {schema.label.column!r} has "
                f"{schema.label.words}: give a schema with another label, or compare groups by `rado learner compare`"
            )
        if schema.weight is not None:
            raise SchemaError("a correlation counts all rows alike: give a schema file without [weight]")
        if not schema.bias:
            raise SchemaError("without a bias, moments do not have the columns' means: set bias = true")
        if len(self.features(schema)) + (label_name(schema) in self.names(schema)) < 2:
            raise ConfigurationError(
                "a correlation is of two columns: give at least two numbers, booleans or the label"
            )
        if not self.features(schema):
            raise ConfigurationError("give at least one number or boolean beside the label")

    def names(self, schema: Schema) -> tuple[str, ...]:
        """The columns, the label last. Raises ConfigurationError for a category."""
        check_columns(schema, self.columns)
        label = label_name(schema)
        categories = {each.name for each in schema.categories}
        if odd := next((name for name in self.columns if name in categories), None):
            raise ConfigurationError(
                f"{odd!r} is a category, which has no correlation: leave it out, and see `rado learner crosstab`"
            )
        own = [each.name for each in schema.groups if each.name not in categories]
        chosen = self.columns or (*own, label)
        return (*(name for name in chosen if name != label), *([label] if label in chosen else []))

    def features(self, schema: Schema) -> tuple[str, ...]:
        """The columns without the label."""
        return tuple(name for name in self.names(schema) if name != label_name(schema))

    def feature_map(self, schema: Schema) -> FeatureMap | None:
        """What leaves the other coordinates out; None if there are none."""
        places = [schema.coordinate(name) for name in self.features(schema)]
        if places == list(range(schema.d - 1)):
            return None
        return FeatureMap(tuple(Term(Column(place)) for place in places), bias=True)

    def norm_bound(self, schema: Schema) -> Fraction:
        """That of the longest record."""
        return norm_bound_of(real_features=0, unit_features=len(self.features(schema)), bias=True)

    def ask(self, oracle: Oracle, part: Fraction = WHOLE) -> Result:
        """See `Inquiry`."""
        return self.read_moments(oracle.schema, self.moments(oracle, part))

    def moments(self, oracle: MomentsOracle, part: Fraction = WHOLE) -> Moments | NumberMoments:
        """Ask."""
        schema = oracle.schema
        self.check(schema)
        norm_bound, feature_map = self.norm_bound(schema), self.feature_map(schema)
        if is_measured(schema.label):
            numbers = cast("MappedNumbers", oracle)
            return numbers.number_moments(part=part, norm_bound=norm_bound, feature_map=feature_map)
        return oracle.moments(part=part, norm_bound=norm_bound, feature_map=feature_map)

    def read_moments(self, schema: Schema, answered: Moments | NumberMoments) -> Result:
        """The figures of an answer."""
        names = self.names(schema)
        moments, square = _with_square(answered)
        found = _Correlations.of(schema, names, moments, square)
        pairs = len(names) * (len(names) - 1) // 2
        figures = (*found.figures(self.failure(pairs)), *self._components(schema, moments))
        return Result(
            inquiry=self.name,
            figures=figures,
            rows=moments.rows,
            confidence=self.confidence,
            deviation=float(moments.product_noise.max()),
            sentences=(*self.meaning(), *_explained(), *_of_label(schema, names)),
            tables=(*_matrix(names, figures), *_components_table(self.features(schema), figures)),
            facts={"columns": list(names)},
        )

    def check_measurable_moments(self, moments: Moments | NumberMoments, epsilon: float) -> None:
        """Raise PlanError if a column that is spread evenly between its bounds could not be told from a constant.

        moments: with the planned noise.
        """
        noise = max(float(np.diag(moments.product_noise).max()), getattr(moments, "square_noise", 0.0))
        largest = _TOLD_APART * noise / moments.rows
        if largest > 1.0 / 3.0:
            enough = float(f"{1.05 * epsilon * 3.0 * largest:.2g}")
            raise PlanError(
                f"at epsilon {epsilon:g} the noise on a variance is as large as that of an evenly spread column, so no "
                "correlation would be measured, and nothing was asked: give fewer columns, or about --epsilon "
                f"{enough:g}"
            )

    def _components(self, schema: Schema, moments: Moments) -> Iterator[Figure]:
        names = self.features(schema)
        fitted = PrincipalComponents(components=min(self.components, len(names))).fit_moments(moments)
        products = moments.product_sum[:-1, :-1] / moments.rows
        total = float(np.trace(products) - fitted.mean_ @ fitted.mean_)
        for number, (direction, variance) in enumerate(
            zip(fitted.components_, fitted.variances_, strict=True), start=1
        ):
            # Below it, noise alone may give the component.
            sure = variance > fitted.noise_
            share = float(variance) / total if sure and total > 0.0 else None
            yield Figure(COMPONENT, "", str(number), "", "share", share)
            sign = 1.0 if direction[np.argmax(np.abs(direction))] >= 0.0 else -1.0
            for name, weight in zip(names, direction.tolist(), strict=True):
                yield Figure(LOADING, name, str(number), "", "ratio", sign * weight if sure else None)


@dataclass(frozen=True, eq=False)
class _Correlations:
    """Means, second moments and their noise, each over the rows, of columns in the order of the names."""

    names: Sequence[str]
    means: Vector
    products: Matrix
    mean_noise: Vector
    product_noise: Matrix
    rows: int

    @classmethod
    def of(cls, schema: Schema, names: Sequence[str], moments: Moments, square: tuple[float, float]) -> "_Correlations":
        """From the moments of the columns; the label's are sums of label times record.

        square: the mean of the label's square, and its noise.
        """
        rows, d = moments.rows, moments.d - 1
        size = len(names)
        products, noise = np.ones((size, size)), np.zeros((size, size))
        products[:d, :d], noise[:d, :d] = moments.product_sum[:-1, :-1] / rows, moments.product_noise[:-1, :-1] / rows
        means, mean_noise = np.zeros(size), np.zeros(size)
        means[:d], mean_noise[:d] = moments.product_sum[:-1, -1] / rows, moments.product_noise[:-1, -1] / rows
        if size > d:
            edges = moments.edge_sum / rows
            products[d, :d] = products[:d, d] = edges[:-1]
            noise[d, :d] = noise[:d, d] = mean_noise[d] = moments.edge_noise / rows
            means[d] = edges[-1]
            products[d, d], noise[d, d] = square
        signs = {each.name for each in schema.flags}
        for place, name in enumerate(names):
            if name in signs and place < d:
                products[place, place], noise[place, place] = 1.0, 0.0
        return cls(names, means, products, mean_noise, noise, rows)

    def figures(self, failure: float) -> Iterator[Figure]:
        """Of each pair."""
        for first in range(len(self.names)):
            for second in range(first):
                estimate, (low, high) = self._pair(first, second, failure)
                names = self.names[first], self.names[second]
                if estimate is None:
                    yield Figure(CORRELATION, names[0], "", names[1], "ratio", None)
                else:
                    yield Figure(CORRELATION, names[0], "", names[1], "ratio", estimate, low, high)

    def _pair(self, j: int, k: int, failure: float) -> tuple[float | None, tuple[float, float]]:
        m, p = self.means, self.products
        variances = p[j, j] - m[j] ** 2, p[k, k] - m[k] ** 2
        if any(
            v <= max(_TOLD_APART * self._variance_noise(at), 1e-12) for v, at in zip(variances, (j, k), strict=True)
        ):
            return None, (-1.0, 1.0)
        s, t = map(math.sqrt, variances)
        r = min(max(float((p[j, k] - m[j] * m[k]) / (s * t)), -1.0), 1.0)
        parts = (
            self.product_noise[j, k] / (s * t),
            r / (2.0 * s * s) * self.product_noise[j, j],
            r / (2.0 * t * t) * self.product_noise[k, k],
            (r * m[j] / (s * s) - m[k] / (s * t)) * self.mean_noise[j],
            (r * m[k] / (t * t) - m[j] / (s * t)) * self.mean_noise[k],
        )
        a, b = (1.0 + abs(m[j])) / s, (1.0 + abs(m[k])) / t
        sample = (min(a, b) + abs(r) * (a + b) / 2.0) / math.sqrt(self.rows)
        # The noise on moments is normal.
        reach = CellNoise(1.0, math.inf).deviations(1, failure) * math.hypot(sample, *parts)
        return r, (max(r - reach, -1.0), min(r + reach, 1.0))

    def _variance_noise(self, at: int) -> float:
        return math.hypot(self.product_noise[at, at], 2.0 * self.means[at] * self.mean_noise[at])


def _with_square(answered: Moments | NumberMoments) -> tuple[Moments, tuple[float, float]]:
    """The moments, with the mean of the label's square and its noise: 1 without noise of two classes."""
    if isinstance(answered, Moments):
        return answered, (1.0, 0.0)
    moments = Moments(
        edge_sum=answered.label_sum,
        product_sum=answered.product_sum,
        rows=answered.rows,
        bias=answered.bias,
        norm_bound=answered.norm_bound,
        edge_noise=answered.sum_noise,
        product_noise=answered.product_noise,
    )
    return moments, (answered.square_sum / answered.rows, answered.square_noise / answered.rows)


def _of_label(schema: Schema, names: Sequence[str]) -> Iterator[str]:
    label, name = schema.label, label_name(schema)
    if isinstance(label, Number) and label.log and name in names:
        yield f"Correlations with {name!r} are with its logarithm."
    if isinstance(label, Count) and label.exposure is not None and name in names:
        yield f"Correlations with {name!r} are with what was counted, not divided by its exposure."


def _explained() -> Iterator[str]:
    yield (
        "A column whose variance is within its noise may be constant: its correlations are not measured. Intervals "
        "assume no distribution of the values between the schema's bounds."
    )
    yield (
        "Components are of the columns without the label, scaled to [-1, 1] by the schema's bounds; a component is the "
        "share of their variance. Rows that the schema leaves out would count as rows of zeros."
    )


def _matrix(names: Sequence[str], figures: Sequence[Figure]) -> Iterator[Table]:
    by_pair = {(each.column, each.level): each for each in figures if each.quantity == CORRELATION}
    rows = []
    for first, name in enumerate(names):
        cells = []
        for second, other in enumerate(names[:-1]):
            if second >= first:
                cells.append("1" if second == first else "")
                continue
            estimate, interval = by_pair[name, other].words
            cells.append(f"{estimate} ({interval})" if interval else estimate)
        rows.append((name, *cells))
    yield Table("correlations", ("column", *names[:-1]), tuple(rows[1:]), tuple(range(1, len(names))))


def _components_table(names: Sequence[str], figures: Sequence[Figure]) -> Iterator[Table]:
    shares = [each for each in figures if each.quantity == COMPONENT]
    loadings = {(each.group, each.column): each for each in figures if each.quantity == LOADING}
    rows = tuple(
        (each.group, each.words[0], *(loadings[each.group, name].words[0] for name in names)) for each in shares
    )
    header = ("component", "of the variance", *names)
    yield Table("principal components", header, rows, tuple(range(1, len(header))))
