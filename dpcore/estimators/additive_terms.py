"""The terms of an additive model: which functions of which columns, chosen from noisy histograms.

Each column has its coordinate; a real feature also hat functions at inner quantiles and its point masses. A pair has
the product of two ramps, each straight between the 5 % and the 95 % quantile and flat outside, or of a ramp and a flag.
Terms are centred at their means, so that records are shorter.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.estimators.private_histograms import Histogram
from dpcore.numbers.fixed_point import ONE, Matrix, Vector
from dpcore.records.feature_map import Column, FeatureMap, Function, Hat, PointMass, Product, Term
from dpcore.records.features import Group, close_match
from dpcore.records.schema import Schema

RAMP_LEVELS = (0.05, 0.95)

SLOPE, OTHER_COLUMNS = "slope", "categories and flags"
"""Kinds of the groups that are the columns themselves."""

PAIRS = "pairs"
"""The kind of the group of all products."""

_CLOSEST = ONE >> 12
"""Knots closer than this are one: hats between them would be steeper than noisy quantiles can say."""


@dataclass(frozen=True, eq=False)
class TermGroup:
    """Terms with one prior variance."""

    name: str
    """Of the column, if it is about one, and the kind."""
    kind: str
    """Groups of a kind have variances that are alike."""
    places: tuple[int, ...]
    """In the map."""
    covariance: Matrix
    """Of their weights under the prior, up to it."""

    @property
    def is_columns(self) -> bool:
        """Whether its terms are columns as they are."""
        return self.kind in (SLOPE, OTHER_COLUMNS)


@dataclass(frozen=True, eq=False)
class Block:
    """The terms of one column, as its histogram has them."""

    places: tuple[int, ...]
    means: Vector
    products: Matrix
    """Means of products of two of them."""


@dataclass(frozen=True, eq=False)
class AdditiveTerms:
    """A feature map, its groups of terms, and the mean square of a mapped record's length, the bias included."""

    feature_map: FeatureMap
    groups: tuple[TermGroup, ...]
    mean_square: float
    blocks: tuple[Block, ...] = ()
    """Of the columns that have histograms."""


class _Building:
    def __init__(self, schema: Schema, found: Mapping[int, Histogram]) -> None:
        self.schema, self.found = schema, found
        self.terms: list[Term] = []
        self.columns: dict[int, int] = {}
        self.squares: list[float] = []
        self.groups: list[TermGroup] = []

    def add(self, function: Function, coordinate: int) -> int:
        """Add a term that is centred at its mean. Returns its place."""
        values, weights = self.found[coordinate].values()
        at = FeatureMap((Term(_moved(function)),), bias=False).of(values[:, np.newaxis])[:, 0]
        mean = float(weights @ at)
        centre = min(max(round(mean * ONE), 0), ONE)
        return self._append(Term(function, centre), float(weights @ np.square(at - mean)))

    def add_column(self, coordinate: int, square: float) -> int:
        """Add a coordinate as it is."""
        self.columns[coordinate] = self._append(Term(Column(coordinate)), square)
        return self.columns[coordinate]

    def add_product(self, first: int, second: int) -> int:
        """Add a product of two terms, as if they were independent."""
        return self._append(Term(Product(first, second)), self.squares[first] * self.squares[second])

    def group(
        self, kind: str, places: Sequence[int], covariance: Matrix | None = None, *, column: str = "", number: int = 1
    ) -> None:
        """Terms that share a variance, by default independently. number: among the column's groups of this kind."""
        if places:
            name = f"{column}, {kind}" if column else kind
            name += f" {number}" if number > 1 else ""
            self.groups.append(
                TermGroup(name, kind, tuple(places), np.eye(len(places)) if covariance is None else covariance)
            )

    def block(self, coordinate: int) -> Block:
        """The terms that are of this coordinate alone."""
        of = [
            (place, term)
            for place, term in enumerate(self.terms)
            if not isinstance(term.function, Product) and term.function.coordinate == coordinate
        ]
        values, weights = self.found[coordinate].values()
        moved = FeatureMap(tuple(replace(term, function=_moved(term.function)) for _, term in of), bias=False)
        at = moved.of(values[:, np.newaxis])
        return Block(tuple(place for place, _ in of), weights @ at, (at * weights[:, np.newaxis]).T @ at)

    def _append(self, term: Term, square: float) -> int:
        self.terms.append(term)
        self.squares.append(square)
        return len(self.terms) - 1


def _moved(function: Function) -> Function:
    """The function of coordinate 0."""
    match function:
        case Hat(_, left, peak, right):
            return Hat(0, left, peak, right)
        case PointMass(_, at):
            return PointMass(0, at)
        case Column(_):
            return Column(0)
        case _:
            raise AssertionError(function)


def additive_terms(
    schema: Schema,
    found: Mapping[int, Histogram],
    *,
    knots: int,
    pairs: Collection[tuple[int, int]],
    directions: Collection[int] = (),
) -> AdditiveTerms:
    """The terms for a schema. found: the histogram of each real feature, by its coordinate.

    knots: inner knots of a feature; fewer if quantiles coincide. pairs: of coordinates. directions: coordinates in no
    pair and without a point mass inside the range.
    """
    building = _Building(schema, found)
    others, numbers = [], {group.name for group in schema.numbers}
    for group in schema.groups:
        for name in group.coordinates:
            coordinate = schema.coordinate(name)
            if group.name in numbers:
                values, weights = found[coordinate].values()
                place = building.add_column(coordinate, float(weights @ np.square(values)))
                building.group(SLOPE, [place], column=name)
                _add_bends(building, name, coordinate, knots, ordered=coordinate in directions)
            else:
                others.append(building.add_column(coordinate, group.mean_square))
    building.group(OTHER_COLUMNS, others)
    if pairs:
        _add_pairs(building, pairs)
    feature_map = FeatureMap(tuple(building.terms), schema.bias)
    blocks = tuple(building.block(coordinate) for coordinate in found)
    return AdditiveTerms(feature_map, tuple(building.groups), sum(building.squares) + float(schema.bias), blocks)


def _add_bends(building: _Building, name: str, coordinate: int, knots: int, *, ordered: bool) -> None:
    """The hats and point masses of a real feature."""
    found = building.found[coordinate]
    inner = _apart([round(float(q) * ONE) for q in found.quantiles([at / (knots + 1) for at in range(1, knots + 1)])])
    row = [-ONE, *inner, ONE]
    hats = [building.add(Hat(coordinate, *row[at - 1 : at + 2]), coordinate) for at in range(1, len(row) - 1)]
    building.group("bends", hats, _smooth(len(hats)), column=name)
    points = [at for at in found.points if not ordered or at in (-ONE, ONE)]
    for number, at in enumerate(points, start=1):
        place = building.add(PointMass(coordinate, at), coordinate)
        building.group("point mass", [place], column=name, number=number)


def _add_pairs(building: _Building, pairs: Collection[tuple[int, int]]) -> None:
    """The products of pairs: of a real feature its ramp, which is a term too, and of a flag the flag."""
    places = {coordinate: place for coordinate, place in building.columns.items() if coordinate not in building.found}
    ramps = []
    for coordinate in sorted({coordinate for pair in pairs for coordinate in pair} & building.found.keys()):
        low, high = (round(float(q) * ONE) for q in _levels(building.found[coordinate]))
        if high - low >= _CLOSEST:
            places[coordinate] = building.add(Hat(coordinate, low, high, None), coordinate)
            ramps.append(places[coordinate])
    building.group("ramps", ramps)
    crossed = [sorted((places[first], places[second])) for first, second in pairs if {first, second} <= places.keys()]
    building.group(PAIRS, [building.add_product(first, second) for first, second in crossed])


def _levels(found: Histogram) -> Vector:
    """The quantiles of all values, point masses included, between which ramps rise."""
    values, weights = found.values()
    order = np.argsort(values)
    return np.interp(RAMP_LEVELS, np.cumsum(weights[order]), values[order])


def _apart(knots: Sequence[int]) -> list[int]:
    """Ascending knots inside the bounds, none closer to another than `_CLOSEST`."""
    kept = [-ONE]
    for knot in sorted(knots):
        if knot - kept[-1] >= _CLOSEST and ONE - knot >= _CLOSEST:
            kept.append(knot)
    assert all(low < high for low, high in pairwise(kept)), "knots ascend"
    return kept[1:]


def _smooth(count: int) -> Matrix:
    """The covariance of weights whose second differences are independent, zero beyond both ends; mean variance 1."""
    if not count:
        return np.zeros((0, 0))
    second = 2.0 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)
    covariance = np.linalg.inv(second @ second)
    return np.asarray(covariance / np.mean(np.diag(covariance)))


# Scores that rise or fall with a column, whatever the other columns are: linear conditions on a model's weights.
#
# A curve is straight between knots, so it rises if its slopes there are at least 0. Of a point mass, only one at an end
# of the range can keep the order, and no product can. The model becomes the nearest one in the conditions' convex cone,
# in the coordinates of the answers, so it gets no further from a best model in the cone. The conditions use no rows:
# they cost no privacy.
#
# Of several classes, in the schema's order, the log odds of each class against the one before rise. Then so does the
# chance of this class or a later one, for each class (a monotone likelihood ratio), and of two classes it is the same
# as for one score.


RISING, FALLING = 1, -1

_MOST_NAMES = 12

Directions = Mapping[int, int]
"""RISING or FALLING for coordinates of the schema."""


def directions_of(schema: Schema, increasing: str | Sequence[str], decreasing: str | Sequence[str]) -> Directions:
    """RISING or FALLING for each coordinate whose direction is given, by names: a text with commas, or a sequence.

    Raises ConfigurationError for another name than a real or boolean feature's, or one given twice.
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
    """Rows a, (conditions, width), such that the score has its directions if a . theta >= 0 for each."""
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


def conditions_of_classes(rows: Matrix, classes: int) -> Matrix:
    """Those of weights (k d,), class by class, whose differences between neighbouring classes meet `rows`, (any, d)."""
    found: Matrix = np.kron(np.diff(np.eye(classes), axis=0), rows).astype(np.float64)
    return found


def nearest(point: Vector, rows: Matrix) -> Vector:
    """The point nearest to `point` with rows @ x >= 0, up to rounding. point: (d,). rows: (conditions, d).

    By Moreau's decomposition (C. R. Acad. Sci. 255, 1962) it is point + rows^T weights, with the weights >= 0 that make
    it shortest.
    """
    if not len(rows) or (rows @ point >= 0).all():
        return point
    # The import takes a quarter of a second, and most models have no conditions.
    from scipy.optimize import lsq_linear  # noqa: PLC0415  (lazy for the reason above)

    size = np.linalg.norm(rows, axis=1)
    scaled = rows[size > 0] / size[size > 0, np.newaxis]
    # scipy.optimize.nnls of versions 1.15 to 1.17 errs if conditions depend on each other (scipy's issue 25389).
    # Several classes have far more coordinates than conditions, whose span is all that matters.
    axes, small = np.linalg.qr(scaled.T)
    weights = lsq_linear(small, -(axes.T @ point), (0.0, np.inf), method="bvls", tol=1e-15).x
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
