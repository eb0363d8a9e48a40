"""The parts of a model's score: what each feature adds, and each pair of features with products, centred.

    score = intercept + sum over parts of sum over the part's coordinates j of theta_j (phi_j - mean_j)

phi_j is a coordinate of a record after the feature map, mean_j its mean under the spread of the values
(learner.score_parts). The means of all parts are in the intercept, so that nothing is lost.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.encoding import Change, changes, main_cause
from dpcore.records.feature_map import FeatureMap, Hat, PointMass, Product, Term
from dpcore.records.features import Group, RealFeature
from dpcore.records.schema import Schema
from learner.uncertainty import OF_CLASSES, Limits, measurable
from radobase.tables.arrow_table import ArrowTable
from radobase.tables.tables import read_rows

if TYPE_CHECKING:
    from learner.model import Model


# How the values of a feature are taken to spread, without rows: what shapes are centred and ranked under.
#
# A category's listed values have equal shares, those that are not measurable left out (learner.score_parts), and so
# have the two values of a flag.
#
# A real feature is uniform within its bounds, unless the model's feature map states more: terms are centred at the
# means of their functions, so a centre above 0 is the share of a point mass, or a mean of a hat function.
#
# Then values have the shares of their point masses, and are otherwise uniform between neighbouring knots, with shares
# that reproduce the hats' means as well as possible. Features are taken to be independent of one another.


# Weight of the demand for equal shares between knots against that for a hat's mean: it decides what means leave open.
_EQUAL = 0.03

# Nodes of Gauss and Legendre, which are exact for cubic polynomials: so for squares of what is linear between knots.
_NODES = np.array([-1.0, 1.0]) / np.sqrt(3.0)


@dataclass(frozen=True, eq=False)
class Spread:
    """Values of a feature's coordinates, (n, width), and their shares, (n,), which add up to 1.

    Averages over them are exact for squares of functions that are linear between `knots`.
    """

    coordinates: NDArray[np.float64]
    shares: NDArray[np.float64]
    knots: tuple[int, ...] = ()
    """Of a real feature, in units of 2^-30, ascending, both bounds included."""
    shares_between: tuple[float, ...] = ()
    """Of neighbouring knots, without point masses."""
    points: tuple[tuple[int, float], ...] = ()
    """Values of point masses in units of 2^-30, with their shares."""
    is_stated: bool = False
    """Whether the feature map states the shares."""

    def quantiles(self, levels: list[float]) -> list[int]:
        """Values of a real feature that are no point masses at these levels from 0 to 1, in units of 2^-30."""
        reached = np.concatenate([[0.0], np.cumsum(self.shares_between)])
        if reached[-1] <= 0.0:
            reached = np.array(self.knots, dtype=np.float64) + ONE
        # Between knots without values the inverse is not unique.
        places = np.interp(levels, reached / reached[-1] + np.arange(len(reached)) * 1e-12, self.knots)
        return [round(float(place)) for place in places]


def spread_of(group: Group, coordinate: int, feature_map: FeatureMap | None) -> Spread:
    """The spread of a group whose first coordinate has this place in the schema."""
    if group.bounds is not None:
        return _of_real(coordinate, feature_map)
    count = len(group.codes)
    return Spread(group.codes, np.full(count, 1.0 / count))


def _of_real(coordinate: int, feature_map: FeatureMap | None) -> Spread:
    terms = [
        term
        for term in (() if feature_map is None else feature_map.terms)
        if isinstance(term.function, Hat | PointMass) and term.function.coordinate == coordinate
    ]
    is_stated = any(term.centre for term in terms)
    hats = [(term.function, term.centre / ONE) for term in terms if isinstance(term.function, Hat)]
    given = {hat.peak for hat, _ in hats} | {hat.left for hat, _ in hats} | {hat.right for hat, _ in hats}
    knots = sorted({-ONE, ONE, *(knot for knot in given if knot is not None)})
    points = {term.function.at: term.centre / ONE for term in terms if isinstance(term.function, PointMass)}
    # Centres are noisy, and their sum may be above 1.
    points = {at: share / max(1.0, sum(points.values())) for at, share in sorted(points.items())}
    rest = 1.0 - sum(points.values())
    between = _between(hats, knots, points, rest) if is_stated else np.diff(knots) / (2.0 * ONE) * rest
    middle, half = np.array([(low + high, high - low) for low, high in pairwise(knots)]).T / (2.0 * ONE)
    inside = (middle[:, np.newaxis] + half[:, np.newaxis] * _NODES).reshape(-1)
    values = np.concatenate([inside, [at / ONE for at in points]])
    shares = np.concatenate([np.repeat(between / len(_NODES), len(_NODES)), list(points.values())])
    return Spread(
        values[:, np.newaxis],
        shares / shares.sum(),
        tuple(knots),
        tuple(between.tolist()),
        tuple(points.items()),
        is_stated,
    )


def _between(
    hats: list[tuple[Hat, float]], knots: list[int], points: dict[int, float], rest: float
) -> NDArray[np.float64]:
    """The shares of neighbouring knots, (knots - 1,), which add up to `rest`. hats: with the means of all values."""
    count = len(knots) - 1
    if not hats or rest <= 0.0:
        return np.diff(knots) / (2.0 * ONE) * max(rest, 0.0)
    from scipy.optimize import lsq_linear  # noqa: PLC0415  (slow to import, and no command that only predicts needs it)

    at_knots = np.array([_values(hat, knots) for hat, _ in hats])
    # A hat is linear between neighbouring knots.
    averages = (at_knots[:, 1:] + at_knots[:, :-1]) / 2.0
    means = [mean - sum(_values(hat, list(points)) * list(points.values())) for hat, mean in hats]
    demands = np.vstack([averages, np.ones((1, count)), _EQUAL * np.eye(count)])
    wanted = np.concatenate([means, [rest], np.full(count, _EQUAL * rest / count)])
    found = np.asarray(lsq_linear(demands, wanted, (0.0, np.inf), method="bvls", tol=1e-15).x)
    total = float(found.sum())
    return found * (rest / total) if total > 0.0 else np.full(count, rest / count)


def _values(hat: Hat, at: list[int]) -> NDArray[np.float64]:
    alone = FeatureMap((Term(replace(hat, coordinate=0)),), bias=False)
    return alone.of(np.array(at, dtype=np.float64)[:, np.newaxis] / ONE)[:, 0]


Matrix = NDArray[np.float64]


class Linear(Protocol):
    """A score that is theta . x over encoded rows, mapped first if there is a map."""

    @property
    def theta(self) -> Matrix:
        """(d,)."""
        ...

    @property
    def schema(self) -> Schema:
        """How columns become coordinates."""
        ...

    @property
    def feature_map(self) -> FeatureMap | None:
        """What rows are mapped by; theta is then over its coordinates."""
        ...

    @property
    def covariance(self) -> Matrix | None:
        """(d, d), of theta; None if it is not known."""
        ...

    @property
    def limits(self) -> Limits:
        """From where on nothing is measurable."""
        ...


@dataclass(frozen=True, eq=False)
class LinearScore:
    """One score of a model."""

    name: str
    """What it speaks for: a class."""
    theta: Matrix
    schema: Schema
    feature_map: FeatureMap | None
    covariance: Matrix | None
    limits: Limits = OF_CLASSES


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
class ScorePart:
    """What one feature, or a pair of them, adds to the score."""

    sources: tuple[Source, ...]
    places: tuple[int, ...]
    """Of its coordinates in theta."""
    width: int
    """Of a row that the schema encodes."""
    functions: FeatureMap | None
    """The map whose last coordinates are the part's; None for a model without a map."""

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


def parts_of(model: Linear) -> tuple[ScorePart, ...]:
    """The parts of a score: of each feature in the schema's order, then of each pair with products."""
    sources, of_coordinate = _sources(model.schema, model.feature_map)
    places: dict[tuple[int, ...], list[int]] = {(number,): [] for number in range(len(sources))}
    for place in range(len(model.theta)):
        features = _features(model, place, of_coordinate)
        if features:
            places.setdefault(features, []).append(place)
    sources = [_centred(model, source, places[(number,)]) for number, source in enumerate(sources)]
    return tuple(
        ScorePart(
            tuple(sources[number] for number in features),
            tuple(places[features]),
            model.schema.d,
            _only(model.feature_map, places[features]),
        )
        for features in sorted(places, key=lambda each: (len(each), each))
    )


def intercept_of(model: Linear, parts: tuple[ScorePart, ...]) -> tuple[float, NDArray[np.float64]]:
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


def _centred(model: Linear, source: Source, places: list[int]) -> Source:
    """A category's source whose levels that are not measurable have no share, so that their noise moves no other.

    places: of its coordinates in theta. Levels are left out, the least known first, until all differ measurably from
    their mean; if fewer than two are left, all have their shares.
    """
    if model.covariance is None or not source.group.is_one_hot:
        return source
    part = ScorePart((source,), tuple(places), model.schema.d, _only(model.feature_map, places))
    values = part.values(part.rows((source.spread.coordinates,)))
    covariance = model.covariance[np.ix_(places, places)]
    kept = np.ones(len(values), dtype=np.bool_)
    while kept.sum() > 1:
        apart = values - values[kept].mean(axis=0)
        if measurable(apart[kept], covariance, model.limits).all():
            shares = np.where(kept, source.spread.shares, 0.0)
            return replace(source, spread=replace(source.spread, shares=shares / shares.sum()))
        variances = np.einsum("ij,jk,ik->i", apart, covariance, apart) / np.maximum(
            np.square(apart).sum(axis=1), np.finfo(np.float64).tiny
        )
        kept[np.argmax(np.where(kept, variances, -1.0))] = False
    return source


def _features(model: Linear, place: int, of_coordinate: list[int]) -> tuple[int, ...]:
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


# The explanation of one row: what each column, and each pair of columns, adds to its score.


@dataclass(frozen=True)
class Contribution:
    """What one column, or a pair, adds to the score of a row."""

    columns: tuple[str, ...]
    adds: float


@dataclass(frozen=True)
class Explanation:
    """The intercept and the contributions, which add up to the score.

    There is no prediction if the schema makes the row a zero vector: the score is then NaN, and nothing is contributed.
    """

    score: float
    label: int
    """+1, -1, or 0 without a prediction; of several classes the code that is predicted, or -1 without one; of labels
    without classes 1, or 0 without one."""
    intercept: float
    contributions: tuple[Contribution, ...]
    """The largest first."""
    reason: str = ""
    """Why there is no prediction: the column and its policy."""
    changes: tuple[Change, ...] = ()
    """What the schema's policies changed in the row."""
    of: str = ""
    """What the score speaks for: the positive class, or one of several."""
    value: float | None = None
    """The prediction of a number, a count or a time, as `Model.predict` has it; None of classes, and without one."""
    scores: tuple[tuple[str, float], ...] = ()
    """All scores of the row by what they speak for, of several classes beside their average."""


def explain(model: "Model", row: Mapping[str, Any], of: str | None = None) -> Explanation:
    """What each column and pair adds to the score of a row, beside its mean (learner.score_parts).

    of: the class whose score it is, of several; None for the one that is predicted. Scores of several classes are
    beside their average (learner.scoring).

    row: the value of each column, in the column's units, as a table for predictions has it; None for an empty cell.
    Columns that the schema does not name are ignored.

    Raises:
        DataError: a column is absent, or the schema refuses a value, as `learner.predictions.predict` says.
        ConfigurationError: the row is no mapping, a value is of a type that no table has, or no score is for `of`.
    """
    scoring = model.scoring
    place = 0 if of is None else scoring.place_of(of)
    if not isinstance(row, Mapping):
        raise ConfigurationError(f"the row is {type(row).__name__}: give a mapping from columns to values")
    try:
        table = pa.table({str(column): pa.array([value]) for column, value in row.items()})
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"a value of the row cannot be read ({type(error).__name__}): give numbers, texts, True, False or None"
        ) from error
    rows = read_rows(ArrowTable(table, "the row"), model.schema)
    x = rows.x
    found = changes(model.schema, rows.tallies, 1)
    label, prediction = scoring.undecided, None
    if rows.usable[0] and scoring.has_classes:
        label = int(scoring.predicted(model.scores(x))[0])
    elif rows.usable[0]:
        label, prediction = 1, float(model.predictions(model.scores(x))[0])
    if of is None and len(scoring.names) > 1 and rows.usable[0]:
        place = scoring.codes.index(label)
    scores = model.linear_scores
    score = scores[place]
    parts = parts_of(score)
    intercept = intercept_of(score, parts)[0]
    if not rows.usable[0]:
        return Explanation(math.nan, label, intercept, (), main_cause(found), found, score.name)
    adds: dict[tuple[str, ...], float] = {}
    for part in parts:
        value = float(part.basis(x)[0] @ score.theta[list(part.places)])
        adds[part.columns] = adds.get(part.columns, 0.0) + value
    coordinates = x if model.feature_map is None else model.feature_map.of(x)
    values = tuple((each.name, float((coordinates @ each.theta)[0])) for each in scores)
    ranked = sorted(adds.items(), key=lambda each: -abs(each[1]))
    contributions = tuple(Contribution(*each) for each in ranked)
    return Explanation(values[place][1], label, intercept, contributions, "", found, score.name, prediction, values)
