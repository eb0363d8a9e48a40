"""Base of the estimators by statistical queries: they query an oracle, and give a linear classifier over its schema.

`fit_queries(oracle)` asks for counts only. Afterwards `theta_` (d,) is over the schema's coordinates, the bias last;
`coef_` = theta_ as (1, d), `intercept_` zero, `classes_` [-1, 1]. A row that is not usable is encoded as zero and
predicted -1. `fit(X, y)` queries rows like a federation without noise (dpcore.estimators.oracle).
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self, assert_never

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcore.errors import SchemaError
from dpcore.estimators.base import LinearClassifier, Matrix, Vector
from dpcore.estimators.oracle import RowOracle, StatisticOracle
from dpcore.predicates.expressions import And, AtLeast, Equals, Flag, LabelIs, Not, Predicate
from dpcore.records.features import BooleanFeature, CategoryFeature, Group, RealFeature, ThresholdFeature
from dpcore.records.schema import Schema

CLASSES = (LabelIs(positive=True), LabelIs(positive=False))
"""The two classes, positive first; they exclude each other."""


class QueryClassifier(LinearClassifier):
    """A linear classifier sign(theta . x) estimated by querying an oracle; a subclass defines the queries."""

    @abstractmethod
    def _learn(self, oracle: StatisticOracle) -> Vector:
        """Theta (d,), finite, over the coordinates of oracle.schema, which has a bias."""

    def fit_queries(self, oracle: StatisticOracle) -> Self:
        """Fit by querying; returns self.

        Raises SchemaError if the schema has no bias, or no feature of a kind that the estimator can use,
        ConfigurationError if a parameter is out of range, and what `oracle.statistic` raises.
        """
        schema = oracle.schema
        if not schema.bias:
            raise SchemaError(
                f"schema {schema.name!r} has no bias, which this estimator needs for its threshold: set bias = true"
            )
        self._keep_encoded(self._learn(oracle))
        return self

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit to rows, without noise; returns self. A column of two values is a boolean feature; any other is real.

        X, y, errors: as for `RadoClassifier.fit`, and what `fit_queries` raises.
        """
        rows = RowOracle(self._edges(X, y))
        self._keep(rows.in_given_units(self._learn(rows)))
        return self


@dataclass(frozen=True)
class Literal:
    """A condition that is affine in one encoded coordinate: scale z + offset is 1 if it holds, else 0."""

    text: str
    """Its description."""
    predicate: Predicate
    """The condition."""
    position: int
    """Of the coordinate."""
    scale: float
    offset: float

    def negated(self) -> "Literal":
        """The complement; a category's also holds for values that are not listed."""
        return Literal(f"not {self.text}", Not(self.predicate), self.position, -self.scale, 1.0 - self.offset)


def flags(schema: Schema) -> tuple[Literal, ...]:
    """One literal for each boolean and threshold feature, in order."""
    return tuple(Literal(each.name, Flag(each.name), schema.coordinate(each.name), 0.5, 0.5) for each in schema.flags)


def indicators(schema: Schema) -> tuple[Literal, ...]:
    """One literal for each listed value of each category feature, in order."""
    return tuple(
        Literal(f"{feature.name} = {value}", Equals(feature.name, value), schema.coordinate(coordinate), 1.0, 0.0)
        for feature in schema.categories
        for value, coordinate in zip(feature.values, feature.coordinates, strict=True)
    )


def add_literal(theta: Vector, literal: Literal, weight: float) -> None:
    """Add `weight` to the score theta (d,), the bias last, for rows where the literal holds; in place."""
    theta[literal.position] += weight * literal.scale
    theta[-1] += weight * literal.offset


def all_of(parts: Sequence[Predicate]) -> Predicate:
    """The conjunction of one or more predicates, flattened, so that mutually exclusive atoms are recognised."""
    flat = [atom for part in parts for atom in (part.parts if isinstance(part, And) else (part,))]
    return flat[0] if len(flat) == 1 else And(tuple(flat))


# Counts of every feature against the label, in a region: one batch of mutually exclusive predicates per feature.
#
# A boolean or threshold feature has two cells, a category one for each listed value, a real feature `bins` of equal
# width. Each cell is counted among positive and among negative labels. A record is in one cell of a feature, so a
# feature adds 2 to the batch's sensitivity, as does the pair of class counts.


_GRID_BITS = 24
"""A cut is rounded to this many bits of its feature's range, so that its fraction is short."""


@dataclass(frozen=True)
class Contingency:
    """The batch for `features` among rows of `region` (predicates that must all hold; () for every usable row)."""

    features: tuple[Group, ...]
    """At least one."""
    region: tuple[Predicate, ...] = ()
    bins: int = 16
    """Of a real feature, at least 2."""

    def predicates(self) -> tuple[Predicate, ...]:
        """The region's positive and negative rows, then those in each cell of each feature."""
        batch = [all_of((*self.region, label)) for label in CLASSES]
        for feature in self.features:
            for cell in cells(feature, self.bins):
                batch += [all_of((*self.region, cell, label)) for label in CLASSES]
        return tuple(batch)

    def split(self, values: NDArray[np.float64]) -> tuple[Vector, tuple[Matrix, ...]]:
        """The answers as class totals (2,) and a table (cells, 2) for each feature; positive labels first.

        If a feature's cells cover all rows, they sum to totals too: k cells give a class total with k times the noise's
        variance. The totals returned are the means of all these, weighted by the inverse variances.
        """
        pairs = values.reshape(-1, 2)
        totals, weight, start, tables = pairs[0].copy(), 1.0, 1, []
        for feature in self.features:
            count = len(cells(feature, self.bins))
            table = pairs[start : start + count]
            start += count
            tables.append(table)
            # A value that is not listed is in no cell of a category.
            if not feature.is_one_hot:
                totals += table.sum(axis=0) / count
                weight += 1.0 / count
        return totals / weight, tuple(tables)


def cells(feature: Group, bins: int) -> tuple[Predicate, ...]:
    """A feature's cells, mutually exclusive; a real feature's from low to high."""
    match feature:
        case CategoryFeature():
            return tuple(Equals(feature.name, value) for value in feature.values)
        case BooleanFeature() | ThresholdFeature():
            return Flag(feature.name), Not(Flag(feature.name))
        case RealFeature():
            return _bins(feature, bins)
        case _:
            assert_never(feature)


def _bins(feature: RealFeature, bins: int) -> tuple[Predicate, ...]:
    edges = [AtLeast(feature.name, feature.bound(at)) for at in cuts(feature, bins - 1)]
    inner = [all_of((low, Not(high))) for low, high in itertools.pairwise(edges)]
    return Not(edges[0]), *inner, edges[-1]


def cuts(feature: RealFeature, count: int) -> tuple[Fraction, ...]:
    """`count` bounds that divide a real feature's declared range almost evenly: each is a short dyadic fraction."""
    lower, upper = Fraction(feature.lower), Fraction(feature.upper)
    unit = Fraction(2) ** (math.frexp(feature.upper - feature.lower)[1] - _GRID_BITS)
    return tuple(round((lower + (upper - lower) * k / (count + 1)) / unit) * unit for k in range(1, count + 1))


def encoded(feature: RealFeature, bound: Fraction) -> float:
    """The encoded coordinate, in [-1, 1], of a bound in the feature's units."""
    lower, upper = Fraction(feature.lower), Fraction(feature.upper)
    return float(2 * (bound - lower) / (upper - lower) - 1)
