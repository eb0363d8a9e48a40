"""Feature maps: public functions of the schema's coordinates that every party applies before clipping.

A map replaces a record's coordinates by terms (f(x) - centre) 2^-halvings, one for each of its functions f:

    Column      the coordinate itself, in [-1, 1]
    Hat         piecewise linear in a real feature: 0 at `left`, 1 at `peak`, 0 at `right`
    PointMass   1 where a real feature has one value, else 0
    Product     the product of two other terms of the map, before they are halved

A map is data, never code: it is signed with the query, and its cost for each row is bounded by its length. All values
are integers in units of 2^-30, as records store them, so that every machine computes the same (docs/protocol.md,
section 6). The bias, if the schema has one, stays the last coordinate.

**Sensitivity.** A map changes nothing in it. Each value is in [-1, 1] (`Term`), a record's vector is clipped after the
map, and a bound on the sums follows from the clipping norm alone: it holds for any two vectors within that norm, and so
for the images of any two records (dpcore.accounting.noise_shares).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import PlanError, SchemaError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.features import RealFeature
from dpcore.records.schema import BIAS, Schema

MOST_TERMS = 4096
MOST_HALVINGS = 8

_MOST_DESCRIBED = 8


@dataclass(frozen=True)
class Column:
    """The coordinate at this place in the schema."""

    coordinate: int


@dataclass(frozen=True)
class Hat:
    """A hat function of a real feature's coordinate. Knots are in units of 2^-30, left < peak < right. PlanError.

    left, right: where it is zero; None if it stays 1 on that side. Rising, floor(2^30 (x - left) / (peak - left)), and
    falling 2^30 - floor(2^30 (x - peak) / (right - peak)): the hats of a row of knots add up to exactly 2^30.
    """

    coordinate: int
    left: int | None
    peak: int
    right: int | None

    def __post_init__(self) -> None:
        knots = [knot for knot in (self.left, self.peak, self.right) if knot is not None]
        if len(knots) < 2:
            raise PlanError("a hat without left and right is constant: give at least one of them")
        if sorted(set(knots)) != knots:
            raise PlanError(f"knots {knots} of a hat are not in ascending order: sort them, and give each once")
        if not all(-ONE <= knot <= ONE for knot in knots):
            raise PlanError(f"knots {knots} of a hat are beyond the schema's bounds, -2^30 to 2^30: move them inside")


@dataclass(frozen=True)
class PointMass:
    """Whether a real feature's coordinate is exactly this value, in units of 2^-30. Raises PlanError out of range."""

    coordinate: int
    at: int

    def __post_init__(self) -> None:
        if not -ONE <= self.at <= ONE:
            raise PlanError(f"the value {self.at} of a point mass is beyond the schema's bounds: move it inside")


@dataclass(frozen=True)
class Product:
    """floor(2^-30 a b) of the centred values a and b of two earlier terms, by their places in the map."""

    first: int
    second: int


Function = Column | Hat | PointMass | Product


@dataclass(frozen=True)
class Term:
    """One coordinate of a map's output: (f(x) - centre) 2^-halvings, truncated toward zero.

    Raises PlanError if the centre or the halvings are out of range.
    """

    function: Function
    centre: int = 0
    """In units of 2^-30; from 0 to 1 for hats and point masses, 0 for others, so that the value is in [-1, 1]."""
    halvings: int = 0
    """Smaller terms have less of a record's length and a stronger prior."""

    def __post_init__(self) -> None:
        most = ONE if isinstance(self.function, Hat | PointMass) else 0
        if not 0 <= self.centre <= most:
            raise PlanError(
                f"the centre {self.centre} is out of range: give 0 to 2^30 for a hat or point mass, and 0 for others"
            )
        if not 0 <= self.halvings <= MOST_HALVINGS:
            raise PlanError(f"halvings is {self.halvings}: give 0 to {MOST_HALVINGS}")


@dataclass(frozen=True)
class FeatureMap:
    """The terms, in order; hashable. bias: whether records end with a bias, which follows the terms.

    Raises PlanError if there is none or there are too many, a term occurs twice, or a product is not of two different
    earlier terms that are no products.
    """

    terms: tuple[Term, ...]
    bias: bool

    def __post_init__(self) -> None:
        if not 1 <= len(self.terms) <= MOST_TERMS:
            raise PlanError(f"a feature map has 1 to {MOST_TERMS} terms, and this one {len(self.terms)}")
        functions = [term.function for term in self.terms]
        if len(set(functions)) != len(functions):
            raise PlanError("a function occurs twice in a feature map: give each once")
        for place, function in enumerate(functions):
            if isinstance(function, Product):
                self._check_product(place, function)

    def _check_product(self, place: int, product: Product) -> None:
        if not 0 <= product.first < product.second < place:
            raise PlanError(
                f"the product at place {place} is of the terms {product.first} and {product.second}: name two "
                "different terms before it, in their order"
            )
        for operand in (product.first, product.second):
            if isinstance(self.terms[operand].function, Product):
                raise PlanError(f"the product at place {place} is of a product: name two of the other terms")

    @property
    def d(self) -> int:
        """Number of coordinates of a mapped record, including the bias."""
        return len(self.terms) + self.bias

    def check(self, schema: Schema) -> None:
        """Raise SchemaError, with the term's name, if the map does not fit; products are of different columns."""
        if schema.bias != self.bias:
            raise SchemaError("the feature map and the schema differ in the bias: make the map for this schema")
        real = {feature.name for feature in schema.numbers}
        width = schema.d - schema.bias
        for place, term in enumerate(self.terms):
            function = term.function
            if isinstance(function, Product):
                first, second = (self._source(operand, schema) for operand in (function.first, function.second))
                if first == second:
                    raise SchemaError(f"term {place} is a product of column {first!r} with itself: name two columns")
                continue
            if not 0 <= function.coordinate < width:
                raise SchemaError(
                    f"term {place} is of coordinate {function.coordinate}, and the schema has coordinates 0 to "
                    f"{width - 1} besides the bias"
                )
            name = schema.coordinates[function.coordinate]
            if isinstance(function, Hat | PointMass) and name not in real:
                raise SchemaError(f"term {place} is a hat or point mass of {name!r}, which is no real feature")

    def _source(self, place: int, schema: Schema) -> str | None:
        function = self.terms[place].function
        assert not isinstance(function, Product), "products of products are refused"
        return schema.sources(schema.coordinates[function.coordinate])

    def of(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mapped rows in real units, for predictions: (rows, self.d), within 2^-28 of the integers."""
        # A record keeps trunc(x 2^30), which decides on which side of a knot it is.
        stored = np.trunc(np.asarray(x, dtype=np.float64) * ONE)
        found = np.empty((len(stored), self.d))
        centred: list[NDArray[np.float64]] = []
        for place, term in enumerate(self.terms):
            value = _values(term.function, stored, centred) - term.centre / ONE
            centred.append(value)
            found[:, place] = value * 0.5**term.halvings
        if self.bias:
            found[:, -1] = x[:, -1]
        return found

    def names(self, schema: Schema, longest: int | None = None) -> tuple[str, ...]:
        """A name for each coordinate of a mapped record, such as "age~40" or "age*income"; longest: of names in it."""
        names: list[str] = []
        known = schema.coordinates if longest is None else tuple(_cut(name, longest) for name in schema.coordinates)
        reals = {feature.name: feature for feature in schema.numbers}
        for term in self.terms:
            match term.function:
                case Column(coordinate):
                    names.append(known[coordinate])
                case Hat(coordinate, _, peak, _):
                    feature = reals[schema.coordinates[coordinate]]
                    names.append(f"{known[coordinate]}~{feature.written(in_units_of(feature, peak), 6)}")
                case PointMass(coordinate, value):
                    feature = reals[schema.coordinates[coordinate]]
                    names.append(f"{known[coordinate]}={feature.written(in_units_of(feature, value), 6)}")
                case Product(first, second):
                    names.append(f"{names[first]}*{names[second]}")
        return (*names, BIAS) if self.bias else tuple(names)

    def columns(self, place: int, schema: Schema) -> tuple[str, ...]:
        """The source columns that a mapped record's coordinate depends on: () for the bias, two for a product."""
        if place == len(self.terms) and self.bias:
            return ()
        function = self.terms[place].function
        if isinstance(function, Product):
            return self.columns(function.first, schema) + self.columns(function.second, schema)
        column = schema.sources(schema.coordinates[function.coordinate])
        return () if column is None else (column,)

    def words(self, schema: Schema) -> str:
        """The map in words, such as "12 hats, 2 point masses, 5 products (features age, dose)".

        At most `_MOST_DESCRIBED` functions are described; where a person decides, each is shown (wire.query_summary).
        """
        functions = [term.function for term in self.terms]
        of = {schema.coordinates[f.coordinate] for f in functions if not isinstance(f, Product)}
        parts = [
            f"{count} {one if count == 1 else many}"
            for kind, one, many in (
                (Column, "coordinate", "coordinates"),
                (Hat, "hat", "hats"),
                (PointMass, "point mass", "point masses"),
                (Product, "product", "products"),
            )
            if (count := sum(isinstance(function, kind) for function in functions))
        ]
        shaped = f" ({'feature' if len(of) == 1 else 'features'} {', '.join(sorted(of))})" if 0 < len(of) <= 4 else ""
        shapes = [place for place, function in enumerate(functions) if not isinstance(function, Column)]
        described = [self.described(place, schema) for place in shapes] if len(shapes) <= _MOST_DESCRIBED else []
        return f"{', '.join(parts)}{shaped}{': ' * bool(described)}{'; '.join(described)}"

    def described(self, place: int, schema: Schema) -> str:
        """The term at `place` in words and the column's units: "age rising from 20 to 40, less 0.3, over 2"."""
        halvings = self.terms[place].halvings
        return f"{self._centred(place, schema)}{f', over {1 << halvings}' if halvings else ''}"

    def _centred(self, place: int, schema: Schema) -> str:
        """The same before halving, which is what products are of."""
        term = self.terms[place]
        said = ""
        match term.function:
            case Column(coordinate):
                said = schema.coordinates[coordinate]
            case Hat(coordinate, left, peak, right):
                low, top, high = (
                    None if knot is None else _written(schema, coordinate, knot) for knot in (left, peak, right)
                )
                rise = f"rising from {low} to {top}" if low else f"1 up to {top}"
                said = f"{schema.coordinates[coordinate]} {rise}{f', falling to {high}' if high else ''}"
            case PointMass(coordinate, value):
                said = f"{schema.coordinates[coordinate]} = {_written(schema, coordinate, value)}"
            case Product(first, second):
                said = f"({self._centred(first, schema)}) * ({self._centred(second, schema)})"
        return f"{said}{f', less {term.centre / ONE:.6g}' if term.centre else ''}"

    def to_list(self) -> list[dict[str, Any]]:
        """The terms as JSON values, in units of 2^-30 of the coordinates. See `from_list`."""
        return [_to_dict(term) for term in self.terms]

    @classmethod
    def from_list(cls, terms: list[dict[str, Any]], *, bias: bool) -> "FeatureMap":
        """The map of `to_list`. Raises PlanError if a term is malformed."""
        return cls(tuple(map(_from_dict, terms)), bias)


def _cut(name: str, longest: int) -> str:
    return name if len(name) <= longest else f"{name[:longest]}..."


def _values(function: Function, stored: NDArray[np.float64], centred: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    match function:
        case Column(coordinate):
            return np.asarray(stored[:, coordinate] / ONE)
        case Hat(coordinate, left, peak, right):
            x = stored[:, coordinate]
            below = np.ones_like(x) if left is None else (x - left) / (peak - left)
            above = np.ones_like(x) if right is None else (right - x) / (right - peak)
            return np.asarray(np.clip(np.where(x <= peak, below, above), 0.0, 1.0))
        case PointMass(coordinate, at):
            return np.where(stored[:, coordinate] == at, 1.0, 0.0)
        case Product(first, second):
            return centred[first] * centred[second]


_KINDS: dict[str, type[Function]] = {"column": Column, "hat": Hat, "point_mass": PointMass, "product": Product}


def _to_dict(term: Term) -> dict[str, Any]:
    (kind,) = (name for name, each in _KINDS.items() if isinstance(term.function, each))
    return {"function": kind, **vars(term.function), "centre": term.centre, "halvings": term.halvings}


def _from_dict(content: dict[str, Any]) -> Term:
    try:
        values = dict(content)
        kind = _KINDS[values.pop("function")]
        centre, halvings = values.pop("centre"), values.pop("halvings")
        whole = [value for value in (*values.values(), centre, halvings) if value is not None]
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in whole):
            raise PlanError("a term of a feature map has a value that is not a whole number")
        return Term(kind(**values), centre, halvings)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PlanError(f"a term of a feature map is malformed ({error})") from error


def in_units(schema: Schema, coordinate: int, value: int) -> float:
    """A value of a real feature's coordinate, in units of 2^-30, in the column's units."""
    return in_units_of(_real(schema, coordinate), value)


def _written(schema: Schema, coordinate: int, value: int) -> str:
    """The same, as people write it."""
    feature = _real(schema, coordinate)
    return feature.written(in_units_of(feature, value), 10)


def in_units_of(feature: RealFeature, value: int) -> float:
    """A value of a real feature as records store it, in units of 2^-30, in the column's units."""
    return feature.lower + (value / ONE + 1) / 2 * (feature.upper - feature.lower)


def in_steps(schema: Schema, coordinate: int, value: float) -> int:
    """A value of a real feature's column as it is stored: in units of 2^-30, within the bounds."""
    return stored(_real(schema, coordinate), value)


def stored(feature: RealFeature, value: float) -> int:
    """A value in a real feature's units as records store it, in units of 2^-30 (dpcore.records.encoding.store)."""
    within = min(max(value, feature.lower), feature.upper)
    # In the order of dpcore.records.encoding, in which no step is beyond a double.
    return int((2 * ((within - feature.lower) / (feature.upper - feature.lower)) - 1) * ONE)


def _real(schema: Schema, coordinate: int) -> RealFeature:
    name = schema.coordinates[coordinate]
    for feature in schema.numbers:
        if feature.name == name:
            return feature
    raise SchemaError(f"{name!r} is no real feature, and has no units")
