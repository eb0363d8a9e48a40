"""Oracles: how querying estimators see a federation. They answer sum queries within one budget and show no row.

An estimator with `fit_queries(oracle)` runs with any oracle: over gRPC, in a simulation, or in a test.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError
from dpcore.numbers.fixed_point import Matrix, Vector
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Predicate, is_boolean
from dpcore.rados.distribution import ClassMoments, Moments, NumberMoments
from dpcore.records.clipping import Basis
from dpcore.records.encoding import store
from dpcore.records.feature_map import FeatureMap
from dpcore.records.held_back import HeldBack
from dpcore.records.losses import LossName, margin_loss
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, Classes, Feature, Label, RealFeature, Schema
from dpcore.statistics.accuracy import Estimates, corrected_batch
from dpcore.statistics.adaptive import Adaptive, Way

WHOLE = Fraction(1)


@dataclass(frozen=True, eq=False)
class GradientEstimate:
    """The mean over m records of the clipped gradient of a loss, with noise. Raises DataError, ConfigurationError."""

    mean: NDArray[np.float64]
    """(d,) float64, of several classes (k, d), read-only."""
    deviation: float
    """The standard deviation of the noise on each coordinate."""
    rows: int
    """m, public."""

    def __post_init__(self) -> None:
        mean = np.array(self.mean, dtype=np.float64)
        if mean.ndim not in (1, 2) or not np.isfinite(mean).all():
            raise DataError("a gradient is not finite: decode the release again, or run its query again")
        if self.rows < 1 or not self.deviation >= 0:
            raise ConfigurationError("a gradient needs rows >= 1 and deviation >= 0: pass those of the release")
        mean.setflags(write=False)
        object.__setattr__(self, "mean", mean)


class Asked(Protocol):
    """Base of the oracle protocols below. An estimator takes the narrowest of them that it needs.

    `part`, of every query: the fraction of the budget's squared mu (of its epsilon, if delta is 0) that one release
    takes; an estimator's parts add up to at most 1. The composition of all answers is (epsilon, delta)-private,
    even if queries depend on earlier ones (Dong, Roth and Su 2022, Corollary 2).

    A query raises, before any party receives it, PlanError if it is infeasible, ConfigurationError if an argument is
    out of range or the parts exceed 1, OracleRefusedError.
    """

    @property
    def schema(self) -> Schema:
        """How rows become coordinates."""
        ...


class StatisticOracle(Asked, Protocol):
    """An oracle that answers statistical queries."""

    @property
    def rows(self) -> int:
        """A lower bound on the number of rows, as parties state it; used for planning."""
        ...

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of the whole budget."""
        ...

    @property
    def delta(self) -> Fraction:
        """Delta of the whole budget; 0 for pure differential privacy."""
        ...

    def statistic(
        self,
        predicates: Sequence[Predicate],
        *,
        part: Fraction = WHOLE,
        tolerance: float | None = None,
        confidence: float = 0.95,
        noise_rate: float = 0.0,
        feature_map: FeatureMap | None = None,
    ) -> Estimates:
        """Estimates of E[phi(x, y)] for a batch of predicates, in one release.

        tolerance: what all estimates together must keep with probability `confidence`; None accepts any. noise_rate:
        eta, the known rate at which labels are flipped; estimates are for the unflipped labels. feature_map: what
        records are mapped by before forms are evaluated.
        """
        ...


def check_all_rows(oracle: Asked) -> None:
    """Raise ConfigurationError if the oracle answers about a part of the rows: guarantees count for a known number."""
    if getattr(oracle, "held_back", None) is not None:
        raise ConfigurationError(
            "a guarantee needs a known number of rows, and how many are left if some are held back is not known: hold "
            "none back, or choose an estimator without a guarantee"
        )


def check_pieces(oracle: Asked) -> None:
    """Raise ConfigurationError if the oracle is for a series of questions that are not about rows of their own.

    Intervals for a proportion on new rows are those of rows drawn independently of the question.
    """
    adaptive: Adaptive | None = getattr(oracle, "adaptive", None)
    if adaptive is not None and adaptive.way is not Way.SPLIT:
        raise ConfigurationError(
            "intervals for new rows hold in a series if each question is about rows of its own: give "
            f"adaptive=Adaptive({adaptive.questions}, Way.SPLIT)"
        )


def asked_part(oracle: Asked) -> HeldBack | None:
    """The part of the rows that the oracle's last answer is about; None for all."""
    found: HeldBack | None = getattr(oracle, "asked_part", getattr(oracle, "held_back", None))
    return found


def failure_of(confidence: float, about: HeldBack | None) -> float:
    """The probability with which the statements about one answer may fail: of a piece of k, one k-th."""
    return (1.0 - confidence) / max(1, 0 if about is None else about.pieces)


def check_left(oracle: Asked, needed: Fraction = WHOLE, *, shrinks: bool = False) -> None:
    """Raise ConfigurationError, before the first query, if less of the budget is left than the estimator will ask for.

    shrinks: whether the estimator's `part` sets what it asks for.
    """
    left: Fraction = getattr(oracle, "left", WHOLE)
    if needed <= left:
        return
    smaller = f"set part to {left} or less, or " if shrinks and left else ""
    raise ConfigurationError(
        f"the estimator's queries take {float(needed):.4g} of the budget, and {float(left):.4g} of it is left, so it "
        f"asks nothing: {smaller}give it an oracle of its own, with federation.within(epsilon, delta)"
    )


class MomentsOracle(Asked, Protocol):
    """An oracle that answers moments."""

    def moments(
        self,
        *,
        part: Fraction = WHOLE,
        norm_bound: Fraction | None = None,
        edge_weight: Fraction | None = None,
        feature_map: FeatureMap | None = None,
    ) -> Moments:
        """Noisy sums of edges and of products, of records clipped to length `norm_bound`.

        norm_bound: the clipping norm R; None leaves the choice to the oracle. edge_weight: a, as for
        `dpcore.queries.moments.edge_multiplier`: the smaller, the less noise on products. feature_map: what records are
        mapped by before they are clipped; sums are then of its coordinates.
        """
        ...


class GradientOracle(Asked, Protocol):
    """An oracle that answers gradients."""

    def gradient(
        self,
        theta: NDArray[np.float64],
        *,
        clip: Fraction,
        part: Fraction = WHOLE,
        loss: LossName = "logistic",
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
        class_weights: tuple[int, ...] = (),
    ) -> GradientEstimate:
        """The mean over records of the gradient of `loss` at theta (d,), each record's clipped to length `clip`.

        basis: P; records are first transformed to P e, and theta and the gradient are in those coordinates.
        feature_map: as in `MomentsOracle`; e is then the edge of the mapped record. class_weights: k; a record of class
        c adds k_c / max k times its clipped gradient.
        """
        ...


class ClassOracle(Asked, Protocol):
    """An oracle that answers moments and gradients of a label of several classes, within one budget."""

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of the whole budget."""
        ...

    def class_moments(
        self,
        *,
        part: Fraction = WHOLE,
        norm_bound: Fraction | None = None,
        edge_weight: Fraction | None = None,
        feature_map: FeatureMap | None = None,
        products_of_each_class: bool = False,
    ) -> ClassMoments:
        """Noisy sums of the records of each class and of products, of all records or of each class.

        The other arguments are those of `MomentsOracle`.
        """
        ...

    def class_gradient(
        self,
        theta: Matrix,
        *,
        clip: Fraction,
        part: Fraction = WHOLE,
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
        class_weights: tuple[int, ...] = (),
    ) -> GradientEstimate:
        """The mean (k, d) over records of the gradient of the multinomial logistic loss at theta (k, d), clipped.

        basis: P; records are first transformed to P x, and theta and the gradient are in those coordinates.
        feature_map: as in `GradientOracle`; x is then the mapped record. class_weights: as there.
        """
        ...


class NumberOracle(Asked, Protocol):
    """An oracle that answers moments and gradients of a label that is a number or a count, within one budget."""

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of the whole budget."""
        ...

    def number_moments(
        self,
        *,
        part: Fraction = WHOLE,
        norm_bound: Fraction | None = None,
        edge_weight: Fraction | None = None,
        feature_map: FeatureMap | None = None,
    ) -> NumberMoments:
        """Noisy sums of label times record, of the label's square and of products; arguments as of `MomentsOracle`."""
        ...

    def number_gradient(
        self,
        theta: Vector,
        *,
        loss: LossName,
        clip: Fraction,
        part: Fraction = WHOLE,
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
    ) -> GradientEstimate:
        """The mean (d,) over records of the gradient of a family's loss at theta (d,): "squared" or "poisson".

        basis: P; records are first transformed to P x, and theta and the gradient are in those coordinates.
        feature_map: as in `GradientOracle`; x is then the mapped record.
        """
        ...


class MomentsAndGradients(MomentsOracle, GradientOracle, Protocol):
    """An oracle that answers both, within one budget."""


class Oracle(StatisticOracle, MomentsAndGradients, Protocol):
    """A federation that answers every kind of query within (epsilon, delta) in total."""


# Rows that the caller may see, as an oracle without noise: querying estimators use it in `fit(X, y)`.


_BITS = 20
"""Fixed-point bits for values of predicates that are not Boolean."""

_SHORTEST = float(np.finfo(np.float64).tiny)


class RowOracle:
    """An `Oracle` over rows: it adds no noise and refuses no query.

    edges: (m, d), y x of finite rows with the bias last. Features are scaled to [-1, 1] by their least and greatest
    value; one of two values is boolean. `in_given_units` undoes the scaling.
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
        records = self._records if feature_map is None else self._records.mapped(feature_map)
        return _means(predicates, self.schema, records, confidence, noise_rate)

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
        class_weights: tuple[int, ...] = (),
    ) -> GradientEstimate:
        """The exact mean."""
        edges = self._mapped(feature_map)
        vectors = edges if basis is None else edges @ basis.matrix.T
        lengths = np.maximum(np.linalg.norm(vectors, axis=1), _SHORTEST)
        weights = np.minimum(margin_loss(loss).weight(vectors @ theta), float(clip) / lengths)
        if class_weights:
            weights = weights * _factors(class_weights)[(self._signs > 0).astype(np.intp)]
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


class ClassRowOracle:
    """A `ClassOracle` over rows, which answers statistics too: it adds no noise and refuses no query.

    rows: (m, d), finite, with the bias last, scaled as by `RowOracle`. codes: (m,), from 0 to below `classes`.
    """

    epsilon = RowOracle.epsilon
    delta = RowOracle.delta

    def __init__(self, rows: Matrix, codes: NDArray[np.int64], classes: int) -> None:
        scaled = RowOracle(rows)
        self._rows, self._codes, self._classes, self.in_given_units = (
            scaled.edges,
            codes,
            classes,
            scaled.in_given_units,
        )
        label = Classes(column="label", values=tuple(map(str, range(classes))))
        self.schema = replace(scaled.schema, label=label)

    @classmethod
    def encoded(cls, schema: Schema, rows: Matrix, codes: NDArray[np.int64]) -> "ClassRowOracle":
        """Over rows (m, d) as this schema encodes them."""
        oracle = cls.__new__(cls)
        oracle._rows, oracle._codes, oracle._classes = rows, codes, schema.label.classes  # noqa: SLF001  (its own)
        oracle.schema, oracle.in_given_units = schema, lambda theta: theta
        return oracle

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self._rows)

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
        """As `RowOracle.statistic`."""
        records = self._records if feature_map is None else self._records.mapped(feature_map)
        return _means(predicates, self.schema, records, confidence, noise_rate)

    def class_moments(
        self,
        *,
        part: Fraction = WHOLE,  # noqa: ARG002  (nothing is spent)
        norm_bound: Fraction | None = None,  # noqa: ARG002  (nothing is clipped: there is no noise to be bounded)
        edge_weight: Fraction | None = None,  # noqa: ARG002  (there is no noise)
        feature_map: FeatureMap | None = None,
        products_of_each_class: bool = False,
    ) -> ClassMoments:
        """Exact sums."""
        rows = self._mapped(feature_map)
        d = rows.shape[1]
        member = (self._codes == np.arange(self._classes)[:, np.newaxis]).astype(np.float64)
        products = rows.T @ rows
        return ClassMoments(
            class_sums=member @ rows,
            product_sum=(products + products.T) / 2.0,
            rows=len(rows),
            bias=True,
            norm_bound=float(np.sqrt(d)),
            sum_noise=0.0,
            product_noise=np.zeros((d, d)),
            class_products=self._class_products(rows) if products_of_each_class else None,
        )

    def _class_products(self, rows: Matrix) -> NDArray[np.float64]:
        parts = (rows[self._codes == code] for code in range(self._classes))
        return np.array([part.T @ part for part in parts])

    def class_gradient(
        self,
        theta: Matrix,
        *,
        clip: Fraction,
        part: Fraction = WHOLE,  # noqa: ARG002  (nothing is spent)
        basis: Basis | None = None,
        feature_map: FeatureMap | None = None,
        class_weights: tuple[int, ...] = (),
    ) -> GradientEstimate:
        """The exact mean."""
        mapped = self._mapped(feature_map)
        rows = mapped if basis is None else mapped @ basis.matrix.T
        scores = rows @ theta.T
        apart = np.exp(scores - scores.max(axis=1, keepdims=True))
        apart /= apart.sum(axis=1, keepdims=True)
        apart[np.arange(len(rows)), self._codes] -= 1.0
        lengths = np.linalg.norm(apart, axis=1) * np.linalg.norm(rows, axis=1)
        apart *= np.minimum(1.0, float(clip) / np.maximum(lengths, _SHORTEST))[:, np.newaxis]
        if class_weights:
            apart *= _factors(class_weights)[self._codes][:, np.newaxis]
        return GradientEstimate(mean=apart.T @ rows / len(rows), deviation=0.0, rows=len(rows))

    def _mapped(self, feature_map: FeatureMap | None) -> Matrix:
        return self._rows if feature_map is None else feature_map.of(self._rows)

    @cached_property
    def _records(self) -> Records:
        usable = np.ones(self.rows, dtype=np.bool_)
        return Records(store(self._rows), self._codes.astype(np.int8), usable, coding=self.schema.label.coding)


def _factors(class_weights: tuple[int, ...]) -> Vector:
    """Each weight over the largest."""
    return np.array(class_weights) / max(class_weights)


def _means(
    predicates: Sequence[Predicate], schema: Schema, records: Records, confidence: float, noise_rate: float
) -> Estimates:
    """The means of predicates over rows, with the half-width for sampling."""
    asked, correction = corrected_batch(predicates, noise_rate)
    bits = 0 if all(map(is_boolean, asked)) else _BITS
    means = np.ldexp(sums(asked, schema, records, bits).astype(np.float64), -bits) / records.rows
    widths = correction.batch(None, 2.0**-bits if bits else 0.0).half_widths(records.rows, 1.0 - confidence)
    return Estimates(
        correction.apply(means), records.rows, confidence, widths.sampling, widths.quantisation, widths.noise, 0.0
    )


def _feature(j: int, column: Vector) -> Feature:
    if np.isin(column, (-1.0, 1.0)).all():
        return BooleanFeature(name=f"x{j}", true=("1",), false=("0",))
    return RealFeature(name=f"x{j}", lower=-1.0, upper=1.0)
