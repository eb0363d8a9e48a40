"""Rows that the caller may see, as an oracle without noise: querying estimators use it in `fit(X, y)`."""

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

import numpy as np

from dpcore.estimators.base import Matrix, Vector
from dpcore.estimators.margin_losses import margin_loss
from dpcore.estimators.oracle import WHOLE, GradientEstimate
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Predicate, is_boolean
from dpcore.records.basis import Basis
from dpcore.records.encoding import store
from dpcore.records.feature_map import FeatureMap
from dpcore.records.margin_weights import LossName
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, Feature, Label, RealFeature, Schema
from dpcore.statistics.estimates import Estimates
from dpcore.statistics.label_noise import corrected_batch
from dpcore.statistics.moments import Moments

_BITS = 20
"""Fixed-point bits for values of predicates that are not Boolean."""

_SHORTEST = float(np.finfo(np.float64).tiny)


class RowOracle:
    """A `dpcore.estimators.oracle.Oracle` over rows: it adds no noise and refuses no query.

    edges: (m, d), y x of finite rows with the bias last. Each feature is scaled to [-1, 1] by its least and greatest
    value; one of two values is boolean, true at the larger. `in_given_units` undoes the scaling. The attribute `edges`
    holds the scaled ones.
    """

    epsilon = Fraction(1 << 62)
    """No noise is added, so any value is valid."""

    delta = Fraction(0)

    def __init__(self, edges: Matrix) -> None:
        self._signs = edges[:, -1]
        x = edges[:, :-1] * edges[:, -1:]
        lower, upper = x.min(axis=0), x.max(axis=0)
        self._centre = (lower + upper) / 2.0
        self._width = np.where(upper > lower, upper - lower, 1.0)
        scaled = np.where(upper > lower, np.clip(2.0 * ((x - lower) / self._width) - 1.0, -1.0, 1.0), 0.0)
        self.edges = np.column_stack([scaled, np.ones(len(x))]) * edges[:, -1:]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.edges)

    @property
    def d(self) -> int:
        """Coordinates, the bias included."""
        return int(self.edges.shape[1])

    @property
    def mean_square(self) -> float:
        """Mean square of the rows' lengths."""
        return float(np.square(self.edges).sum() / self.rows)

    @cached_property
    def schema(self) -> Schema:
        """A schema of features x0, x1, ... with values in [-1, 1]."""
        features = tuple(_feature(j, column) for j, column in enumerate(self._coordinates.T[:-1]))
        return Schema(name="rows", label=Label(column="label", positive=("1",)), features=features)

    def in_given_units(self, theta: Vector) -> Vector:
        """The same classifier (d,), the bias last, for rows that are not scaled."""
        slopes = 2.0 * theta[:-1] / self._width
        return np.append(slopes, theta[-1] - slopes @ self._centre)

    def statistic(
        self,
        predicates: Sequence[Predicate],
        *,
        part: Fraction = WHOLE,  # noqa: ARG002  (nothing is spent)
        tolerance: float | None = None,  # noqa: ARG002  (there is no other answer)
        confidence: float = 0.95,
        noise_rate: float = 0.0,
        feature_map: FeatureMap | None = None,
    ) -> Estimates:
        """Means over the rows, with the half-width for sampling."""
        asked, correction = corrected_batch(predicates, noise_rate)
        bits = 0 if all(map(is_boolean, asked)) else _BITS
        records = self._records if feature_map is None else self._records.mapped(feature_map)
        means = np.ldexp(sums(asked, self.schema, records, bits).astype(np.float64), -bits) / self.rows
        widths = correction.batch(None, 2.0**-bits if bits else 0.0).half_widths(self.rows, 1.0 - confidence)
        return Estimates(
            correction.apply(means), self.rows, confidence, widths.sampling, widths.quantisation, widths.noise, 0.0
        )

    def moments(
        self,
        *,
        part: Fraction = WHOLE,  # noqa: ARG002  (nothing is spent)
        norm_bound: Fraction | None = None,
        edge_weight: Fraction | None = None,  # noqa: ARG002  (there is no noise)
        feature_map: FeatureMap | None = None,
    ) -> Moments:
        """Exact sums of edges and of products; norm_bound, above 1: None clips nothing."""
        edges = self._mapped(feature_map)
        d = edges.shape[1]
        bound = np.sqrt(d) if norm_bound is None else float(norm_bound)
        if norm_bound is not None:
            # The bias, which is 1, is never clipped: dpcore.records.clipping.
            longest = np.sqrt(bound**2 - 1.0)
            lengths = np.maximum(np.linalg.norm(edges[:, :-1], axis=1), _SHORTEST)
            edges = np.column_stack([edges[:, :-1] * np.minimum(1.0, longest / lengths)[:, np.newaxis], edges[:, -1]])
        products = edges.T @ edges
        return Moments(
            edge_sum=edges.sum(axis=0),
            product_sum=(products + products.T) / 2.0,
            rows=self.rows,
            bias=True,
            norm_bound=float(bound),
            edge_noise=0.0,
            product_noise=np.zeros((d, d)),
        )

    def gradient(
        self,
        theta: Vector,
        *,
        clip: Fraction,
        part: Fraction = WHOLE,  # noqa: ARG002  (nothing is spent)
        loss: LossName = "logistic",
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
    ) -> GradientEstimate:
        """The exact mean."""
        edges = self._mapped(feature_map)
        vectors = edges if basis is None else edges @ basis.matrix.T
        lengths = np.maximum(np.linalg.norm(vectors, axis=1), _SHORTEST)
        weights = np.minimum(margin_loss(loss).weight(vectors @ theta), float(clip) / lengths)
        return GradientEstimate(mean=-(weights @ vectors) / self.rows, deviation=0.0, rows=self.rows)

    def _mapped(self, feature_map: FeatureMap | None) -> Matrix:
        if feature_map is None:
            return self.edges
        return feature_map.of(self._coordinates) * self._signs[:, np.newaxis]

    @property
    def _coordinates(self) -> Matrix:
        return self.edges * self._signs[:, np.newaxis]

    @cached_property
    def _records(self) -> Records:
        labels = np.where(self._signs > 0, 1, -1).astype(np.int8)
        return Records(store(self._coordinates), labels, np.ones(self.rows, dtype=np.bool_))


def _feature(j: int, column: Vector) -> Feature:
    if np.isin(column, (-1.0, 1.0)).all():
        return BooleanFeature(name=f"x{j}", true=("1",), false=("0",))
    return RealFeature(name=f"x{j}", lower=-1.0, upper=1.0)
