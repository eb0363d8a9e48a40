"""The terms of a model over a feature map, in the units of the columns (docs/how-to/use-a-model-elsewhere.md)."""

import math
from collections.abc import Callable
from typing import Any, assert_never

from dpcore.errors import ModelError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term, in_units, stored
from dpcore.records.features import BooleanFeature, CategoryFeature, Group, RealFeature, ThresholdFeature
from dpcore.records.schema import Schema

RULES = (
    "margin = intercept + the sum of weight * value over `terms`; positive if margin > 0, else negative",
    "a term's value is its function minus its centre; a product is of the values of the terms at `first` and `second`",
    "line: 2 (v - lower) / (upper - lower) - 1 for the feature's value v, which must be within lower and upper",
    "hat: 1 at peak, 0 at left and beyond it, 0 at right and beyond it, linear between; null: it stays 1 on that side",
    "between: 1 if at_least <= v <= at_most, else 0",
    "truth: 1 if a boolean or threshold feature is true, else -1; a threshold is true if the value is >= threshold",
    "is: 1 if a category has this value, else 0; an unlisted value is none of them if unknown is 'zero'",
    "values are kept to 2^-30 of upper - lower, so a margin may differ by what the hats change over that distance",
)


def exported_terms(feature_map: FeatureMap, weights: list[float], schema: Schema) -> list[dict[str, Any]]:
    """A JSON value for each term. weights: one for each term.

    Raises ModelError if two knots of a hat are the same number in the units of their column.
    """
    groups = {name: group for group in schema.groups for name in group.coordinates}
    found = []
    for term, weight in zip(feature_map.terms, weights, strict=True):
        # Halving is by a power of two, so that the weight stays exact.
        common = {"centre": term.centre / ONE, "weight": weight * 0.5**term.halvings}
        found.append({**_function(term, schema, groups), **common})
    return found


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
