"""The parts of a model's score: what each feature adds, and each pair of features with products, centred.

    score = intercept + sum over parts of sum over the part's coordinates j of theta_j (phi_j - mean_j)

phi_j is a coordinate of a record after the feature map, mean_j its mean under the spread of the values
(learner.shapes.spread). The means of all parts are in the intercept, so that nothing is lost.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from dpcore.records.feature_map import FeatureMap, Hat, PointMass, Product, Term
from dpcore.records.features import Group, RealFeature
from dpcore.records.schema import Schema
from learner.covariance import measurable
from learner.shapes.spread import Spread, spread_of

if TYPE_CHECKING:
    from learner.model import Model

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Source:
    """A group, the place of its first coordinate in the schema, and how its values are taken to spread."""

    group: Group
    start: int
    spread: Spread

    @property
    def number(self) -> RealFeature:
        """The group, which is one number."""
        return cast("RealFeature", self.group)

    @property
    def stop(self) -> int:
        """The place after its last coordinate."""
        return self.start + len(self.group.coordinates)


@dataclass(frozen=True, eq=False)
class Part:
    """What one feature, or a pair of them, adds to the score. places: of its coordinates in theta.

    width: of a row that the schema encodes. functions: the map whose last coordinates are the part's; None for a model
    without a map.
    """

    sources: tuple[Source, ...]
    places: tuple[int, ...]
    width: int
    functions: FeatureMap | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The source columns, in the schema's order."""
        return tuple(source.group.column for source in self.sources)

    def rows(self, coordinates: tuple[Matrix, ...]) -> Matrix:
        """Rows with these coordinates of the sources, each (n, its width), and zero elsewhere."""
        found = np.zeros((len(coordinates[0]), self.width))
        for source, values in zip(self.sources, coordinates, strict=True):
            found[:, source.start : source.stop] = values
        return found

    def basis(self, x: Matrix) -> Matrix:
        """phi_j - mean_j of the part's coordinates: (n, places). x: (n, width), rows as the schema encodes them."""
        return self.values(x) - self.means

    @property
    def nodes(self) -> tuple[Matrix, Matrix]:
        """Rows under the spread of the sources' values, (n, width), and their shares, (n,)."""
        first, *others = (source.spread for source in self.sources)
        if not others:
            return self.rows((first.coordinates,)), first.shares
        (second,) = others
        left, right = (grid.reshape(-1) for grid in np.indices((len(first.shares), len(second.shares))))
        rows = self.rows((first.coordinates[left], second.coordinates[right]))
        return rows, first.shares[left] * second.shares[right]

    @cached_property
    def means(self) -> Matrix:
        """The means of the part's coordinates, (places,)."""
        rows, shares = self.nodes
        return np.asarray(shares @ self.values(rows))

    @property
    def knots(self) -> tuple[frozenset[int], ...]:
        """For each source the knots of the part's functions, in units of 2^-30."""
        terms = () if self.functions is None else self.functions.terms
        hats = [term.function for term in terms if isinstance(term.function, Hat)]
        found = [(hat.coordinate, knot) for hat in hats for knot in (hat.left, hat.peak, hat.right) if knot is not None]
        return tuple(frozenset(knot for at, knot in found if at == source.start) for source in self.sources)

    @property
    def points(self) -> tuple[frozenset[int], ...]:
        """For each source the values of the part's point masses, in units of 2^-30."""
        terms = () if self.functions is None else self.functions.terms
        found = [term.function for term in terms if isinstance(term.function, PointMass)]
        return tuple(frozenset(each.at for each in found if each.coordinate == source.start) for source in self.sources)

    def values(self, x: Matrix) -> Matrix:
        """phi_j of the part's coordinates, not centred: (n, places)."""
        if not self.places:
            return np.zeros((len(x), 0))
        if self.functions is None:
            return x[:, list(self.places)]
        return self.functions.of(x)[:, -len(self.places) :]


def parts_of(model: "Model") -> tuple[Part, ...]:
    """The parts of a model: of each feature in the schema's order, then of each pair with products."""
    sources, of_coordinate = _sources(model.schema, model.feature_map)
    places: dict[tuple[int, ...], list[int]] = {(number,): [] for number in range(len(sources))}
    for place in range(len(model.theta)):
        features = _features(model, place, of_coordinate)
        if features:
            places.setdefault(features, []).append(place)
    sources = [_centred(model, source, places[(number,)]) for number, source in enumerate(sources)]
    return tuple(
        Part(
            tuple(sources[number] for number in features),
            tuple(places[features]),
            model.schema.d,
            _only(model.feature_map, places[features]),
        )
        for features in sorted(places, key=lambda each: (len(each), each))
    )


def intercept_of(model: "Model", parts: tuple[Part, ...]) -> tuple[float, NDArray[np.float64]]:
    """What remains of the score at the parts' means, and the weights (d,) of theta that it is the sum of."""
    weights = np.zeros(len(model.theta))
    for part in parts:
        weights[list(part.places)] = part.means
    if model.schema.bias:
        weights[-1] = 1.0
    return float(weights @ model.theta), weights


def _sources(schema: Schema, feature_map: FeatureMap | None) -> tuple[list[Source], list[int]]:
    """The groups in order, and for each coordinate but the bias the number of its group."""
    sources: list[Source] = []
    of_coordinate: list[int] = []
    for number, group in enumerate(schema.groups):
        start = len(of_coordinate)
        sources.append(Source(group, start, spread_of(group, start, feature_map)))
        of_coordinate += [number] * len(group.coordinates)
    return sources, of_coordinate


def _centred(model: "Model", source: Source, places: list[int]) -> Source:
    """A category's source whose levels that are not measurable have no share, so that their noise moves no other.

    places: of its coordinates in theta. Levels are left out, the least known first, until all differ measurably from
    their mean; if fewer than two are left, all have their shares.
    """
    if model.covariance is None or not source.group.is_one_hot:
        return source
    part = Part((source,), tuple(places), model.schema.d, _only(model.feature_map, places))
    values = part.values(part.rows((source.spread.coordinates,)))
    covariance = model.covariance[np.ix_(places, places)]
    kept = np.ones(len(values), dtype=np.bool_)
    while kept.sum() > 1:
        apart = values - values[kept].mean(axis=0)
        if measurable(apart[kept], covariance).all():
            shares = np.where(kept, source.spread.shares, 0.0)
            return replace(source, spread=replace(source.spread, shares=shares / shares.sum()))
        variances = np.einsum("ij,jk,ik->i", apart, covariance, apart) / np.maximum(
            np.square(apart).sum(axis=1), np.finfo(np.float64).tiny
        )
        kept[np.argmax(np.where(kept, variances, -1.0))] = False
    return source


def _features(model: "Model", place: int, of_coordinate: list[int]) -> tuple[int, ...]:
    """The numbers of the features that a coordinate of theta is a function of, ascending: none for the bias."""
    if model.feature_map is None:
        return (of_coordinate[place],) if place < len(of_coordinate) else ()
    if place == len(model.feature_map.terms):
        return ()
    function = model.feature_map.terms[place].function
    if isinstance(function, Product):
        operands = (_features(model, each, of_coordinate) for each in (function.first, function.second))
        return tuple(sorted(number for operand in operands for number in operand))
    return (of_coordinate[function.coordinate],)


def _only(feature_map: FeatureMap | None, places: list[int]) -> FeatureMap | None:
    """The map whose last terms are those at these places, after those that they are products of."""
    if feature_map is None or not places:
        return None
    functions = [feature_map.terms[place].function for place in places]
    operands = {
        place for function in functions if isinstance(function, Product) for place in (function.first, function.second)
    }
    kept = [*sorted(operands - set(places)), *places]
    moved = {place: number for number, place in enumerate(kept)}

    def renumbered(term: Term) -> Term:
        function = term.function
        if not isinstance(function, Product):
            return term
        return replace(term, function=Product(moved[function.first], moved[function.second]))

    return FeatureMap(tuple(renumbered(feature_map.terms[place]) for place in kept), bias=False)
