"""Feature maps as people write them: in the columns' own units, and by the names of the schema.

    map_version = 1

    [[terms]]
    column = "age"                    # a coordinate of the schema, as it is

    [[terms]]
    name = "bends"                    # needed for a product only
    hats = "age"                      # a real feature
    knots = [20, 40, 65, 95]          # a hat at 40 and one at 65, each 0 from its neighbours on
    ends = true                       # also at 20 and at 95, which stay 1 beyond; default: false
    centre = 0.3                      # subtracted, from 0 to 1; or a list, one for each hat; default: 0
    halvings = 1                      # the term is divided by 2 so often; default: 0

    [[terms]]
    point = "income"                  # 1 where a real feature has this value
    at = 0

    [[terms]]
    hats = "admitted"                 # of a date, knots are dates; so is `at` of a point
    knots = [2020-01-01, 2020-03-01, 2024-12-31]

    [[terms]]
    product = ["bends", "smoker"]     # of each function of one entry and each of the other

Values are converted as records store them (dpcore.records.feature_map.stored). An entry is of several terms if it has
several hats. A column's name is that of its coordinate if none is given.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpcore.errors import PlanError, RadofedError, SchemaError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import MOST_TERMS, Column, FeatureMap, Function, Hat, PointMass, Product, Term, stored
from dpcore.records.features import RealFeature, nearest
from dpcore.records.schema import Schema

MAP_VERSION = 1

_KEYS = {
    "column": {"halvings"},
    "hats": {"knots", "ends", "centre", "halvings"},
    "point": {"at", "centre", "halvings"},
    "product": {"halvings"},
}
_WORDS = {"column": "column", "hats": "hats of", "point": "point mass of", "product": "product of"}


class FeatureMapError(SchemaError):
    """A feature map in the columns' units is malformed or does not fit the schema. The error names the term."""


def map_in_units(content: Mapping[str, Any], schema: Schema) -> FeatureMap:
    """The feature map of a file's content, as in the module's docstring. Raises FeatureMapError."""
    unknown = sorted(set(content) - {"map_version", "terms"})
    if unknown:
        raise FeatureMapError(f"{unknown[0]!r} is no key of a feature map; {nearest(unknown[0], ['terms'])}")
    if content.get("map_version") != MAP_VERSION or isinstance(content.get("map_version"), bool):
        raise FeatureMapError(f"map_version is {content.get('map_version')!r}: write map_version = {MAP_VERSION}")
    terms = content.get("terms")
    if not isinstance(terms, list) or not terms:
        raise FeatureMapError("there are no terms: write at least one [[terms]] table")
    building = _Building(schema)
    for number, entry in enumerate(terms, start=1):
        building.add(number, entry)
    try:
        found = FeatureMap(tuple(building.terms), schema.bias)
        found.check(schema)
    except RadofedError as error:
        raise FeatureMapError(str(error)) from error
    return found


@dataclass(frozen=True)
class _Entry:
    """One table of the file."""

    where: str
    """What errors call it."""
    places: tuple[int, ...]
    """Places of its terms."""
    columns: frozenset[str]
    """Columns of its terms."""
    is_product: bool


class _Building:
    def __init__(self, schema: Schema) -> None:
        self.terms: list[Term] = []
        self._schema = schema
        self._entries: dict[str, _Entry] = {}
        self._known: dict[Function, str] = {}

    def add(self, number: int, entry: object) -> None:
        """Add the terms of one table of the file."""
        if not isinstance(entry, dict):
            raise FeatureMapError(f"term {number} is no table: write [[terms]]")
        kinds = [kind for kind in _KEYS if kind in entry]
        if len(kinds) != 1:
            raise FeatureMapError(f"term {number}: give one of {', '.join(_KEYS)}")
        (kind,) = kinds
        where = f"term {number} ({_WORDS[kind]} {_shown(entry[kind])})"
        unknown = sorted(set(entry) - _KEYS[kind] - {kind, "name"})
        if unknown:
            raise FeatureMapError(f"{where}: {unknown[0]!r} is no key; {nearest(unknown[0], {*_KEYS[kind], 'name'})}")
        functions, columns = self._functions(where, kind, entry)
        if len(self.terms) + len(functions) > MOST_TERMS:
            raise FeatureMapError(f"{where}: the map becomes too long: give at most {MOST_TERMS} functions in all")
        halvings, centres = entry.get("halvings", 0), _centres(where, entry.get("centre", 0), len(functions))
        begin = len(self.terms)
        for function, centre in zip(functions, centres, strict=True):
            if function in self._known:
                raise FeatureMapError(f"{where}: {self._known[function]} has the same function: give each once")
            self._known[function] = where
            self.terms.append(_term(where, function, centre, halvings))
        name = entry.get("name", entry[kind] if kind == "column" else None)
        self._name(where, name, _Entry(where, tuple(range(begin, len(self.terms))), columns, kind == "product"))

    def _name(self, where: str, name: object, entry: _Entry) -> None:
        if name is None:
            return
        if not isinstance(name, str):
            raise FeatureMapError(f"{where}: the name {name!r} is no text; put it in quotation marks")
        if name in self._entries:
            raise FeatureMapError(f"{where}: {self._entries[name].where} is also called {name!r}: rename one")
        self._entries[name] = entry

    def _functions(self, where: str, kind: str, entry: dict[str, Any]) -> tuple[list[Function], frozenset[str]]:
        if kind == "product":
            return self._products(where, entry["product"])
        name = entry[kind]
        if not isinstance(name, str):
            raise FeatureMapError(f"{where}: {_shown(name)} is no text; put a name in quotation marks")
        if kind == "column":
            names = self._schema.coordinates[: self._schema.d - self._schema.bias]
            if name not in names:
                raise FeatureMapError(f"{where}: the schema has no coordinate {name!r}; {nearest(name, names)}")
            return [Column(self._schema.coordinate(name))], frozenset({self._schema.sources(name) or name})
        feature = self._real(where, name)
        coordinate, columns = self._schema.coordinate(name), frozenset({feature.column})
        if kind == "point":
            return [PointMass(coordinate, _within(where, feature, "at", entry.get("at")))], columns
        return _hats(where, coordinate, _knots(where, feature, entry), _ends(where, entry)), columns

    def _real(self, where: str, name: str) -> RealFeature:
        features = {group.name: group for group in self._schema.groups}
        if name not in features:
            raise FeatureMapError(f"{where}: the schema has no feature {name!r}; {nearest(name, features)}")
        numbers = {feature.name: feature for feature in self._schema.numbers}
        if name not in numbers:
            type_ = features[name].type
            raise FeatureMapError(f"{where}: {name!r} is a {type_} feature: hats and points are of real ones")
        return numbers[name]

    def _products(self, where: str, names: object) -> tuple[list[Function], frozenset[str]]:
        if not (isinstance(names, list) and len(names) == 2 and all(isinstance(name, str) for name in names)):
            raise FeatureMapError(f"{where}: write product = [NAME, NAME], of two terms before it")
        for name in names:
            if name not in self._entries:
                known = f"; {nearest(name, self._entries)}" if self._entries else ""
                raise FeatureMapError(f"{where}: no term before it is called {name!r}{known}")
            if self._entries[name].is_product:
                raise FeatureMapError(f"{where}: {name!r} is a product itself: name two other terms")
        first, second = (self._entries[name] for name in names)
        if shared := first.columns & second.columns:
            raise FeatureMapError(f"{where}: it is a product of column {min(shared)!r} with itself: name two columns")
        if len(self.terms) + len(first.places) * len(second.places) > MOST_TERMS:
            raise FeatureMapError(f"{where}: the map becomes too long: give at most {MOST_TERMS} functions in all")
        pairs = [sorted((a, b)) for a in first.places for b in second.places]
        return [Product(a, b) for a, b in pairs], first.columns | second.columns


def _hats(where: str, coordinate: int, knots: list[int], ends: bool) -> list[Function]:
    padded = [None, *knots, None] if ends else knots
    if len(knots) < (2 if ends else 3):
        raise FeatureMapError(f"{where}: give at least three knots, or two and ends = true")
    return [
        Hat(coordinate, left, peak, right)
        for left, peak, right in zip(padded, padded[1:], padded[2:], strict=False)
        if peak is not None
    ]


def _knots(where: str, feature: RealFeature, entry: dict[str, Any]) -> list[int]:
    knots = entry.get("knots")
    if not isinstance(knots, list) or not knots:
        raise FeatureMapError(f"{where}: give its knots, such as knots = [20, 40, 65]")
    found = [_within(where, feature, "knot", knot) for knot in knots]
    for at in range(1, len(found)):
        if found[at - 1] >= found[at]:
            low, high = knots[at - 1], knots[at]
            equal = str(low) == str(high) if feature.is_named else low <= high
            raise FeatureMapError(
                f"{where}: knots {low} and {high} are "
                + ("the same, as records store them: move them apart" if equal else "not in ascending order: sort them")
            )
    return found


def _ends(where: str, entry: dict[str, Any]) -> bool:
    ends = entry.get("ends", False)
    if not isinstance(ends, bool):
        raise FeatureMapError(f"{where}: ends is {ends!r}: write true or false")
    return ends


def _within(where: str, feature: RealFeature, what: str, value: object) -> int:
    """A value of a column as it is stored."""
    number = _named(where, feature, what, value) if feature.is_named else _number(where, what, value)
    if not feature.lower <= number <= feature.upper:
        raise FeatureMapError(
            f"{where}: {what} {value} is beyond the schema's bounds, {feature.written(feature.lower, 6)} to "
            f"{feature.written(feature.upper, 6)}: move it inside"
        )
    return stored(feature, number)


def _named(where: str, feature: RealFeature, what: str, value: object) -> float:
    """A date of a file, a text or TOML's own, in the column's units."""
    try:
        return feature.value(str(value))
    except TypeError as error:
        raise FeatureMapError(f"{where}: {what} {error}") from error


def _centres(where: str, centre: object, functions: int) -> list[int]:
    given = centre if isinstance(centre, list) else [centre] * functions
    if len(given) != functions:
        raise FeatureMapError(f"{where}: there are {len(given)} centres and {functions} functions: give one for each")
    found = [_number(where, "centre", each) for each in given]
    for each in found:
        if not 0.0 <= each <= 1.0:
            raise FeatureMapError(f"{where}: centre {each} is out of range: give 0 to 1")
    return [round(each * ONE) for each in found]


def _term(where: str, function: Function, centre: int, halvings: object) -> Term:
    if isinstance(halvings, bool) or not isinstance(halvings, int):
        raise FeatureMapError(f"{where}: halvings is {halvings!r}: give a whole number")
    try:
        return Term(function, centre, halvings)
    except PlanError as error:
        raise FeatureMapError(f"{where}: {error}") from error


def _number(where: str, what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FeatureMapError(f"{where}: {what} is {_shown(value)}: give a number")
    number = float(value) if abs(value) < 1e300 else math.inf
    if not math.isfinite(number):
        raise FeatureMapError(f"{where}: {what} is no finite number")
    return number


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]} ..."
