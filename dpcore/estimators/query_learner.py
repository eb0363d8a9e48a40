"""Base of the estimators by statistical queries: they query an oracle, and give a linear classifier over its schema.

`fit_queries(oracle)` asks for counts only. Afterwards `theta_` (d,) is over the schema's coordinates, the bias last;
`coef_` = theta_ as (1, d), `intercept_` zero, `classes_` [-1, 1]. A row that is not usable is encoded as zero and
predicted -1. `fit(X, y)` queries rows like a federation without noise (dpcore.estimators.row_oracle).
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from numpy.typing import ArrayLike

from dpcore.errors import SchemaError
from dpcore.estimators.base import LinearClassifier, Vector
from dpcore.estimators.oracle import StatisticOracle
from dpcore.estimators.row_oracle import RowOracle
from dpcore.predicates.expressions import And, Equals, Flag, LabelIs, Not, Predicate
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
