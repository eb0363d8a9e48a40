"""Models over a feature map as fitted scikit-learn pipelines of standard transformers.

Each function of a map is a weighted sum of what these transformers give for its coordinate:

    Column      the coordinate
    Hat         linear B-splines at the knots of all hats of that coordinate: any line with bends at these knots only
    PointMass   one column of a one-hot encoding

A product of functions of two coordinates is a weighted sum of these values and of their products in pairs. So one
logistic regression over all of them has the model's margins. Its coefficients are computed here; nothing is trained.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Function, Hat, PointMass, Product, Term

# ruff: noqa: PLC0415  (scikit-learn is an extra, and slow to import)

Weights = NDArray[np.float64]


def steps_of(feature_map: FeatureMap, theta: Weights, width: int, classifier: Any) -> list[tuple[str, Any]]:
    """Fitted transformers by name, in order, for a pipeline that ends with `classifier`, which gets its coefficients.

    theta: (feature_map.d,). width: coordinates of an encoded row without the bias, which the first of them takes.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import FunctionTransformer

    parts = _parts(feature_map, theta)
    transformer = ColumnTransformer([found for part in parts for found in part.transformers()])
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
    bias = float(theta[-1]) if feature_map.bias else 0.0
    classifier.coef_ = np.concatenate([part.coefficients() for part in parts])[np.newaxis, :]
    classifier.intercept_ = np.array([bias + sum(part.constant for part in parts)])
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
