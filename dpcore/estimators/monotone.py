"""Scores that rise or fall with a column, whatever the other columns are: linear conditions on a model's weights.

A curve of an additive model is straight between neighbouring knots, so it rises if its slopes there are at least 0: a
condition for each interval, linear in the weights.

Of a point mass, only one at an end of the column's range can keep the order. Such a column is in no product, whose
slope would depend on another column.

The model becomes the nearest one that meets the conditions, in the coordinates of the answers
(dpcore.estimators.private_newton), where noise and curvature are of about one size in every direction.

The conditions are a convex cone, so no model that meets them gets further away: if the population's best model meets
them, its distance falls. The conditions use no rows: they cost no privacy.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import Matrix, Vector
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass
from dpcore.records.features import Group, close_match
from dpcore.records.schema import Schema

RISING, FALLING = 1, -1

_MOST_NAMES = 12

Directions = Mapping[int, int]
"""RISING or FALLING for coordinates of the schema."""


def directions_of(schema: Schema, increasing: str | Sequence[str], decreasing: str | Sequence[str]) -> Directions:
    """RISING or FALLING for each coordinate whose direction is given.

    increasing, decreasing: names of real and boolean features: a text, separated by commas, or a sequence. Raises
    ConfigurationError for another name, and for one that is given twice.
    """
    ordered = [feature.name for feature in ordered_features(schema)]
    found: dict[int, int] = {}
    for option, names, direction in (("increasing", increasing, RISING), ("decreasing", decreasing, FALLING)):
        for name in parts_of(names) if isinstance(names, str) else names:
            if name not in ordered:
                hint = known_names(name, ordered, marks=",")
                raise ConfigurationError(f"{option} names {name!r}: give real or boolean features; {hint}")
            if schema.coordinate(name) in found:
                raise ConfigurationError(f"a direction of {name!r} is given twice: give it once")
            found[schema.coordinate(name)] = direction
    return found


def parts_of(text: str) -> list[str]:
    """The parts of a text between commas, without blanks around them; none is empty."""
    return [part.strip() for part in text.split(",") if part.strip()]


def known_names(name: str, known: Sequence[str], *, marks: str) -> str:
    """A hint for a name that is not known: the most similar one, or the known ones. marks: what divides a text."""
    if any(mark in each for each in known for mark in marks):
        divided = f"give names that contain {' or '.join(marks)} in a list; "
    else:
        divided = ""
    if (near := close_match(name, known)) is not None:
        return f"{divided}did you mean {near!r}?"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    return f"{divided}known: {', '.join(map(repr, known[:_MOST_NAMES])) or 'none'}{more}"


def ordered_features(schema: Schema) -> list[Group]:
    """The features whose values have an order: numbers and flags."""
    return [feature for feature in schema.groups if feature.is_ordered]


def conditions(directions: Directions, feature_map: FeatureMap | None, width: int) -> Matrix:
    """Rows a such that the score has its directions if a . theta >= 0 for each: (conditions, width).

    feature_map: of theta; None if theta is over the schema's coordinates. width: the length of theta.
    """
    rows: list[Vector] = []
    for coordinate, direction in directions.items():
        if feature_map is None:
            rows.append(direction * np.eye(width)[coordinate])
            continue
        knots = _knots(feature_map, coordinate)
        for low, high in pairwise(knots):
            slopes = np.zeros(width)
            for place, term in enumerate(feature_map.terms):
                slopes[place] = _slope(term.function, coordinate, low, high)
            rows.append(direction * slopes)
        for place, term in enumerate(feature_map.terms):
            if isinstance(term.function, PointMass) and term.function.coordinate == coordinate:
                # At the upper end a jump goes up, at the lower end the curve goes up from a jump.
                rows.append(direction * (1 if term.function.at == ONE else -1) * np.eye(width)[place])
    return np.array(rows).reshape(len(rows), width)


def nearest(point: Vector, rows: Matrix) -> Vector:
    """The point nearest to `point` with rows @ x >= 0, up to rounding. point: (d,). rows: (conditions, d).

    By Moreau's decomposition (C. R. Acad. Sci. 255, 1962) it is point + rows^T weights, with the weights >= 0 that make
    it shortest.
    """
    if not len(rows) or (rows @ point >= 0).all():
        return point
    # The import takes a quarter of a second, and most models have no conditions.
    from scipy.optimize import nnls  # noqa: PLC0415  (lazy for the reason above)

    scaled = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    weights, _ = nnls(scaled.T, -point)
    return np.asarray(point + scaled.T @ weights)


def _knots(feature_map: FeatureMap, coordinate: int) -> Sequence[int]:
    hats = [term.function for term in feature_map.terms if isinstance(term.function, Hat)]
    found = {knot for hat in hats if hat.coordinate == coordinate for knot in (hat.left, hat.peak, hat.right)}
    return sorted({-ONE, ONE} | {knot for knot in found if knot is not None})


def _slope(function: object, coordinate: int, low: int, high: int) -> float:
    """The slope of a term between two neighbouring knots, per unit of the column's coordinate."""
    match function:
        case Column(at) if at == coordinate:
            return 1.0
        case Hat(at, left, peak, _) if at == coordinate and peak == high and left == low:
            return ONE / (high - low)
        case Hat(at, _, peak, right) if at == coordinate and peak == low and right == high:
            return -ONE / (high - low)
        case _:
            return 0.0
