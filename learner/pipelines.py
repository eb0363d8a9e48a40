"""Models over a feature map as fitted scikit-learn pipelines of standard transformers.

Each function of a map is a weighted sum of what these transformers give for its coordinate:

    Column      the coordinate
    Hat         linear B-splines at the knots of all hats of that coordinate: any line with bends at these knots only
    PointMass   one column of a one-hot encoding

A product of functions of two coordinates is a weighted sum of these values and of their products in pairs. So one
logistic regression over all of them has the model's margins. Its coefficients are computed here; nothing is trained.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ModelError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Function, Hat, PointMass, Product, Term, in_units, stored
from dpcore.records.features import BooleanFeature, CategoryFeature, Group, RealFeature, ThresholdFeature
from dpcore.records.schema import Schema

# ruff: noqa: PLC0415  (scikit-learn is an extra, and slow to import)

Weights = NDArray[np.float64]


def steps_of(feature_map: FeatureMap, theta: Weights, width: int, classifier: Any) -> list[tuple[str, Any]]:
    """Fitted transformers by name, in order, for a pipeline that ends with `classifier`, which gets its coefficients.

    theta: (scores, feature_map.d). width: coordinates of an encoded row without the bias, which the first takes.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import FunctionTransformer

    # The transformers are those of the map, whatever the weights.
    parts = [_parts(feature_map, weights) for weights in theta]
    transformer = ColumnTransformer([found for part in parts[0] for found in part.transformers()])
    steps = [
        # A record keeps trunc(x 2^30), which decides on which side of a knot it is, and whether it is a point mass.
        ("scale", FunctionTransformer(np.dot, kw_args={"b": float(ONE)}, validate=True)),
        ("truncate", FunctionTransformer(np.trunc)),
        ("unscale", FunctionTransformer(np.dot, kw_args={"b": 1.0 / ONE})),
        ("terms", transformer),
    ]
    # Knots and values are parameters, so that fitting keeps no more of these rows than their width.
    rows: NDArray[np.float64] = np.array([[-1.0] * width, [1.0] * width])
    for _, step in steps:
        rows = step.fit_transform(rows)
    bias = theta[:, -1] if feature_map.bias else np.zeros(len(theta))
    classifier.coef_ = np.array([np.concatenate([part.coefficients() for part in each]) for each in parts])
    classifier.intercept_ = bias + np.array([sum(part.constant for part in each) for each in parts])
    classifier.n_features_in_ = classifier.coef_.shape[1]
    return steps


@dataclass(frozen=True)
class _Basis:
    """What a coordinate's functions are weighted sums of: splines at knots, values of point masses, and itself."""

    coordinate: int
    knots: tuple[int, ...]
    values: tuple[int, ...]
    line: bool

    @classmethod
    def of(cls, coordinate: int, functions: Iterable[Function]) -> "_Basis":
        knots: set[int] = set()
        values: set[int] = set()
        line = False
        for function in functions:
            match function:
                case Hat(_, left, peak, right):
                    knots.update(knot for knot in (left, peak, right) if knot is not None)
                case PointMass(_, at):
                    values.add(at)
                case _:
                    line = True
        return cls(coordinate, tuple(sorted(knots)), tuple(sorted(values)), line)

    @property
    def size(self) -> int:
        return len(self.knots) + len(self.values) + self.line

    def transformers(self, place: int, prefix: str) -> list[tuple[str, Any, list[int]]]:
        """What a ColumnTransformer has for the basis. place: the coordinate's place in what it takes."""
        from sklearn.preprocessing import OneHotEncoder, SplineTransformer

        found: list[tuple[str, Any, list[int]]] = []
        if self.knots:
            knots = np.array(self.knots, dtype=np.float64)[:, np.newaxis] / ONE
            found.append((f"{prefix} hats", SplineTransformer(degree=1, knots=knots), [place]))
        if self.values:
            values = [np.array(self.values, dtype=np.float64) / ONE]
            encoder = OneHotEncoder(categories=values, handle_unknown="ignore", sparse_output=False)
            found.append((f"{prefix} values", encoder, [place]))
        if self.line:
            found.append((f"{prefix} line", "passthrough", [place]))
        return found

    def weights(self, function: Function) -> Weights:
        """The function's weights, (size,), on what the transformers give."""
        found = np.zeros(self.size)
        match function:
            case Hat():
                # A line with bends at knots has, on the spline of each knot, its value there.
                found[: len(self.knots)] = [_hat_at(function, knot) for knot in self.knots]
            case PointMass(_, at):
                found[len(self.knots) + self.values.index(at)] = 1.0
            case _:
                found[-1] = 1.0
        return found


def _hat_at(hat: Hat, knot: int) -> float:
    end = hat.left if knot < hat.peak else hat.right
    if knot == hat.peak or end is None:
        return 1.0
    return max(0.0, (knot - end) / (hat.peak - end))


class _Shape:
    """The terms of one coordinate that are no products."""

    def __init__(self, basis: _Basis, terms: Iterable[tuple[Term, float]]) -> None:
        self._basis, self._terms = basis, tuple(terms)

    def transformers(self) -> list[tuple[str, Any, list[int]]]:
        return self._basis.transformers(self._basis.coordinate, f"{self._basis.coordinate}")

    def coefficients(self) -> Weights:
        weighted = (self._basis.weights(term.function) * weight for term, weight in self._terms)
        return sum(weighted, np.zeros(self._basis.size))

    @property
    def constant(self) -> float:
        return -sum(term.centre / ONE * weight for term, weight in self._terms)


@dataclass(frozen=True, eq=False)
class _Pair:
    """The products of terms of two coordinates."""

    first: _Basis
    second: _Basis
    products: tuple[tuple[Term, Term, float], ...]

    @cached_property
    def _table(self) -> Weights:
        """Weights on the products of (values of the first, 1) and (values of the second, 1)."""
        found = np.zeros((self.first.size + 1, self.second.size + 1))
        for a, b, weight in self.products:
            left = np.append(self.first.weights(a.function), -a.centre / ONE)
            right = np.append(self.second.weights(b.function), -b.centre / ONE)
            found += weight * np.outer(left, right)
        return found

    def transformers(self) -> list[tuple[str, Any, list[int]]]:
        from sklearn.compose import ColumnTransformer
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import PolynomialFeatures

        both = [*self.first.transformers(0, "first"), *self.second.transformers(1, "second")]
        pairs = PolynomialFeatures(degree=2, interaction_only=True, include_bias=False)
        steps = Pipeline([("both", ColumnTransformer(both)), ("pairs", pairs)])
        places = [self.first.coordinate, self.second.coordinate]
        return [(f"{places[0]} and {places[1]}", steps, places)]

    def coefficients(self) -> Weights:
        # Single values come first, then all pairs in the order of their places (sklearn's PolynomialFeatures).
        m, n = self.first.size, self.second.size
        pairs = np.zeros((m + n, m + n))
        pairs[:m, m:] = self._table[:m, :n]
        return np.concatenate([self._table[:m, n], self._table[m, :n], pairs[np.triu_indices(m + n, 1)]])

    @property
    def constant(self) -> float:
        return float(self._table[-1, -1])


def _parts(feature_map: FeatureMap, theta: Weights) -> list[_Shape | _Pair]:
    shapes: dict[int, list[tuple[Term, float]]] = {}
    pairs: dict[tuple[int, int], list[tuple[Term, Term, float]]] = {}
    for term, weight in zip(feature_map.terms, theta.tolist(), strict=False):  # the bias is no term
        halved = weight * 0.5**term.halvings
        if isinstance(term.function, Product):
            a, b = feature_map.terms[term.function.first], feature_map.terms[term.function.second]
            key = (_coordinate(a), _coordinate(b))
            pairs.setdefault(key, []).append((a, b, halved))
        else:
            shapes.setdefault(_coordinate(term), []).append((term, halved))
    found: list[_Shape | _Pair] = [
        _Shape(_Basis.of(coordinate, (term.function for term, _ in terms)), terms)
        for coordinate, terms in shapes.items()
    ]
    for (first, second), products in pairs.items():
        bases = (
            _Basis.of(first, (a.function for a, _, _ in products)),
            _Basis.of(second, (b.function for _, b, _ in products)),
        )
        found.append(_Pair(*bases, tuple(products)))
    return found


def _coordinate(term: Term) -> int:
    assert isinstance(term.function, Column | Hat | PointMass), "products of products are refused"
    return term.function.coordinate


# The terms of a model over a feature map, in the units of the columns (docs/how-to/use-a-model-elsewhere.md).


RULES = (
    "a term's value is its function minus its centre; a product is of the values of the terms at `first` and `second`",
    "line: 2 (v - lower) / (upper - lower) - 1 for the feature's value v, which must be within lower and upper",
    "hat: 1 at peak, 0 at left and beyond it, 0 at right and beyond it, linear between; null: it stays 1 on that side",
    "between: 1 if at_least <= v <= at_most, else 0",
    "truth: 1 if a boolean or threshold feature is true, else -1; a threshold is true if the value is >= threshold",
    "is: 1 if a category has this value, else 0; an unlisted value is none of them if unknown is 'zero'",
    "values are kept to 2^-30 of upper - lower, so a margin may differ by what the hats change over that distance",
)


def exported_terms(feature_map: FeatureMap, schema: Schema) -> list[dict[str, Any]]:
    """A JSON value for each term, without its weight.

    Raises ModelError if two knots of a hat are the same number in the units of their column.
    """
    groups = {name: group for group in schema.groups for name in group.coordinates}
    return [{**_function(term, schema, groups), "centre": term.centre / ONE} for term in feature_map.terms]


def _function(term: Term, schema: Schema, groups: dict[str, Group]) -> dict[str, Any]:
    match term.function:
        case Product(first, second):
            return {"function": "product", "first": first, "second": second}
        case Column(coordinate):
            return _column(schema.coordinates[coordinate], groups)
        case Hat() as hat:
            return {"function": "hat", "feature": schema.coordinates[hat.coordinate], **_knots(hat, schema)}
        case PointMass(coordinate, at):
            (feature,) = (each for each in schema.numbers if each.name == schema.coordinates[coordinate])
            return {"function": "between", "feature": feature.name, **_interval(feature, at)}


def _column(name: str, groups: dict[str, Group]) -> dict[str, Any]:
    feature = groups[name]
    match feature:
        case RealFeature():
            return {"function": "line", "feature": name, "lower": feature.lower, "upper": feature.upper}
        case CategoryFeature():
            value = feature.values[feature.coordinates.index(name)]
            return {"function": "is", "feature": feature.name, "value": value}
        case BooleanFeature() | ThresholdFeature():
            return {"function": "truth", "feature": name}
        case _:
            assert_never(feature)


def _knots(hat: Hat, schema: Schema) -> dict[str, float | None]:
    units = {"left": hat.left, "peak": hat.peak, "right": hat.right}
    knots = {name: None if unit is None else in_units(schema, hat.coordinate, unit) for name, unit in units.items()}
    ordered = [knot for knot in knots.values() if knot is not None]
    if sorted(set(ordered)) != ordered:
        raise ModelError(
            f"two knots of {schema.coordinates[hat.coordinate]!r} are the same double in the units of its column: use "
            "the model with radofed, or train again with wider bounds"
        )
    return knots


def _interval(feature: RealFeature, at: int) -> dict[str, float]:
    """The least and the greatest double of the column that is stored as `at`; in the wrong order if none is."""
    first = _first(feature, lambda value: stored(feature, value) >= at)
    beyond = _first(feature, lambda value: stored(feature, value) > at)
    last = feature.upper if beyond > feature.upper else math.nextafter(beyond, -math.inf)
    return {"at_least": first, "at_most": last}


def _first(feature: RealFeature, reached: Callable[[float], bool]) -> float:
    """The least double from lower to upper that has reached it, as all above it have; above upper if none has."""
    if reached(feature.lower):
        return feature.lower
    if not reached(feature.upper):
        return math.nextafter(feature.upper, math.inf)
    below, above = feature.lower, feature.upper
    while math.nextafter(below, math.inf) < above:
        middle = below / 2 + above / 2
        if not below < middle < above:
            middle = math.nextafter(below, math.inf)
        below, above = (below, middle) if reached(middle) else (middle, above)
    return above
