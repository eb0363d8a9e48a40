"""The shapes of a model: what it adds to the score for each value of a column, or pair of columns, in their units.

A shape is centred: its mean is 0 under the spread of the values that learner.score_parts states. The means are in the
intercept, so that the shapes of a row's values and the intercept add up to its score.

Of a label that is a number, a count or a time to an event shapes are in its units (`UnitsOfScore`).

**Bands.** With the covariance C of theta, the half-width of the band at x is 1.96 sqrt(b(x)^T C b(x)), where b(x) are
the centred coordinates of the shape. It holds for one value at a time. A value of which the answers say too little has
no band: it is not measurable (learner.uncertainty).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, ModelError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import in_units
from dpcore.records.features import EventTime, Number, RealFeature, Target, measured, nearest
from dpcore.records.schema import Schema
from learner.score_parts import Linear, LinearScore, ScorePart, Source, intercept_of, parts_of
from learner.uncertainty import Limits, half_widths, measurable

if TYPE_CHECKING:
    from learner.model import Model


GRID = 48
"""Equal cells of a curve's grid, which has the knots too."""

LEVELS = [level / 6 for level in range(7)]
"""Of a pair's grid: quantiles of the column, beside the knots of the pair's functions."""

DECILES = [level / 10 for level in range(1, 10)]

Matrix = NDArray[np.float64]

SCORE = "the score"


@dataclass(frozen=True)
class UnitsOfScore:
    """What shapes add to if the label is a number, a count or a time to an event: `middle` + `unit` times the score."""

    words: str
    """What it is."""
    unit: float = 1.0
    middle: float = 0.0
    is_logarithm: bool = True
    """Whether what is added to it multiplies what is predicted."""

    @classmethod
    def of(cls, label: Target, *, is_rate: bool) -> Self:
        """is_rate: of a count, whether scores are logarithms of rates. Raises SchemaError for a label of classes."""
        if isinstance(label, EventTime):
            return cls(f"the logarithm of the hazard of {label.event}")
        if is_rate:
            return cls(f"the logarithm of the rate of {label.column}")
        ends = measured(label, "a shape in units").in_units(np.array([-1.0, 1.0]))
        is_logarithm = isinstance(label, Number) and label.log
        low, high = (np.log(ends) if is_logarithm else ends).tolist()
        words = f"the logarithm of {label.column}" if is_logarithm else label.column
        return cls(words, (high - low) / 2.0, (high + low) / 2.0, is_logarithm)

    def score(self, model: "Model") -> LinearScore:
        """The score of a model in these units."""
        theta = self.unit * model.theta
        if model.schema.bias:
            theta[-1] += self.middle
        covariance = None if model.covariance is None else self.unit**2 * model.covariance
        label = model.schema.label
        limits = Limits.of(label, is_rate=model.link == "log", unit=self.unit)
        return LinearScore(label.column, theta, model.schema, model.feature_map, covariance, limits)


def units_of(model: "Model") -> UnitsOfScore | None:
    """What the shapes of a model add to; None for a label of classes, whose shapes add to scores."""
    label = model.schema.label
    return UnitsOfScore.of(label, is_rate=model.link == "log") if label.coding.has_value else None


@dataclass(frozen=True)
class At:
    """What a shape adds at one value."""

    value: float | str
    """In the column's units, or its words."""
    adds: float
    band: float | None
    """Half-width; None if it is not known, or the value is not measurable."""
    share: float | None = None
    """Of the values that are exactly this one, as the model states it; None if it states none."""
    measurable: bool | None = None
    """None if bands are not known."""


@dataclass(frozen=True)
class Shape:
    """What a column, or a pair of columns, adds to the score."""

    features: tuple[str, ...]
    """Names in the schema."""
    columns: tuple[str, ...]
    """What they are read from."""
    size: float
    """Standard deviation of what it adds, under the spread of the values."""
    noise: float | None
    """Root mean square of its band where it is measurable; None if it is nowhere, or not known."""
    measurable: float | None
    """The share of values that are; None if bands are not known."""
    adds_to: str = field(default=SCORE, kw_only=True)
    """What it adds to, in words."""

    @property
    def title(self) -> str:
        """The features' names."""
        return " and ".join(self.features)

    @property
    def kind(self) -> str:
        """curve, values or surface."""
        return {Curve: "curve", Values: "values", Surface: "surface"}[type(self)]

    @property
    def ends(self) -> tuple[float, float] | None:
        """The least and the most that it adds at a value that is drawn and measurable; None if none is."""
        known = [at.adds for at in self._drawn if at.measurable is not False]
        return (min(known), max(known)) if known else None

    @property
    def _drawn(self) -> Sequence[At]:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        found = {"features": list(self.features), "columns": list(self.columns), "kind": self.kind}
        low, high = self.ends or (None, None)
        ends = {"low": low, "high": high}
        return {**found, "size": self.size, "noise": self.noise, "measurable": self.measurable, **ends}


@dataclass(frozen=True)
class Curve(Shape):
    """The shape of a number."""

    line: tuple[At, ...]
    """At ascending values, beside a point mass if there is one."""
    points: tuple[At, ...]
    """At point masses."""
    lower: float
    """The schema's bound."""
    upper: float
    """The schema's bound."""
    deciles: tuple[float, ...]
    """Of the values that are no point masses, as the model's map states them; empty if they are taken to be uniform."""
    group: RealFeature

    def named(self, value: float | str) -> float | str:
        """A value as it is shown: a number, or a date as a text."""
        return value if isinstance(value, str) else self.group.in_json(value)

    @property
    def _drawn(self) -> Sequence[At]:
        return (*self.line, *self.points)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; band only if it is known, null where the value is not measurable."""
        bands = {"band": [at.band for at in self.line]} if self.measurable is not None else {}
        grid = {"x": [self.named(at.value) for at in self.line], "y": [at.adds for at in self.line], **bands}
        points = [_at(replace(at, value=self.named(at.value))) for at in self.points]
        deciles = [self.named(value) for value in self.deciles]
        bounds = {"lower": self.named(self.lower), "upper": self.named(self.upper), "deciles": deciles}
        return {**super().to_dict(), **bounds, **grid, "points": points}


@dataclass(frozen=True)
class Values(Shape):
    """The shape of a category or a flag: what each of its values adds."""

    values: tuple[At, ...]

    @property
    def _drawn(self) -> Sequence[At]:
        return self.values

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**super().to_dict(), "values": [_at(at) for at in self.values]}


@dataclass(frozen=True)
class Surface(Shape):
    """The shape of a pair. rows, columns_at: values of the first and the second; cells: of each row, at each column."""

    rows: tuple[float | str, ...]
    columns_at: tuple[float | str, ...]
    cells: tuple[tuple[At, ...], ...]

    @property
    def _drawn(self) -> Sequence[At]:
        return [at for row in self.cells for at in row]

    def to_dict(self) -> dict[str, Any]:
        """JSON values; y has a list for each value of the first feature."""
        bands = {} if self.measurable is None else {"band": [[at.band for at in row] for row in self.cells]}
        values = [[at.adds for at in row] for row in self.cells]
        return {**super().to_dict(), "x": [list(self.rows), list(self.columns_at)], "y": values, **bands}


@dataclass(frozen=True)
class Shapes:
    """All shapes of a model, and the intercept."""

    intercept: float
    intercept_band: float | None
    """Half-width; None if it is not known, or the intercept is not measurable."""
    ranked: tuple[Shape, ...]
    """The largest first."""
    label: str
    """What the score speaks for: of two classes the positive one, which a score above 0 says; else one of them."""
    is_stated: bool
    """Whether the feature map states how values spread."""
    mapped: bool
    """Whether the model has a feature map."""
    has_bands: bool
    """Whether the covariance of the model is known."""
    units: UnitsOfScore | None = None
    """What they add to; None of a label of classes, where it is the score."""

    @property
    def adds_to(self) -> str:
        """What they add to, in words."""
        return SCORE if self.units is None else self.units.words

    def chosen(self, columns: Sequence[str] = (), top: int | None = None) -> tuple[Shape, ...]:
        """The shapes of these columns, all if none is given, and their pairs; of them the `top` largest.

        A column may also be called by its feature's name. Raises ConfigurationError if there is none of that name, or
        top is less than 1.
        """
        known = {name for shape in self.ranked for name in (*shape.columns, *shape.features)}
        for column in columns:
            if column not in known:
                raise ConfigurationError(f"the model has no column {column!r}; {nearest(column, known)}")
        if top is not None and top < 1:
            raise ConfigurationError(f"--top is {top}: give a number of at least 1, or leave it out")
        wanted = set(columns) or known
        return tuple(shape for shape in self.ranked if wanted & {*shape.columns, *shape.features})[:top]

    def to_dict(self, shapes: Sequence[Shape]) -> dict[str, Any]:
        """JSON values: the whole ranking, and the values of these shapes."""
        ranking = [
            {
                "features": list(shape.features),
                "columns": list(shape.columns),
                "size": shape.size,
                "noise": shape.noise,
                "measurable": shape.measurable,
            }
            for shape in self.ranked
        ]
        start = {"positive": self.label, "intercept": self.intercept, "intercept_band": self.intercept_band}
        measure = {"spread": "stated by the feature map" if self.is_stated else "uniform", "bands": self.has_bands}
        measure |= {} if self.units is None else {"adds_to": self.units.words, "is_logarithm": self.units.is_logarithm}
        return {**start, **measure, "ranking": ranking, "shapes": [shape.to_dict() for shape in shapes]}


def _at(at: At) -> dict[str, Any]:
    found = {"value": at.value, "adds": at.adds, "band": at.band, "share": at.share}
    return {**found, "measurable": at.measurable}


def shapes_of(model: "Model", of: str | None = None) -> Shapes:
    """The shapes of a model, linear or with a feature map. Needs no rows.

    of: the class whose score they add to, which a label of several classes needs: beside the average of all classes.

    Raises ModelError if what a value adds, or its band, is too large for a double, ConfigurationError if no score is
    for `of`, or several are and none is chosen.
    """
    if (units := units_of(model)) is not None:
        if of is not None:
            raise ConfigurationError(f"{model.schema.label.column!r} has no classes: leave of={of!r} out")
        return _of_score(units.score(model), units)
    names = model.scoring.names
    if of is None and len(names) > 1:
        raise ConfigurationError(f"the model has a score for each of {len(names)} classes: give one, of={names[0]!r}")
    return _of_score(model.linear_scores[0 if of is None else model.scoring.place_of(of)])


def every_shapes(model: "Model") -> tuple[Shapes, ...]:
    """The shapes of each score of a model, as `shapes_of` has them."""
    if units_of(model) is not None:
        return (shapes_of(model),)
    return tuple(map(_of_score, model.linear_scores))


def _of_score(model: LinearScore, units: UnitsOfScore | None = None) -> Shapes:
    parts = parts_of(model)
    with np.errstate(over="ignore", invalid="ignore"):
        intercept, weights = intercept_of(model, parts)
        found = [_shape(model, part) for part in parts]
        found = found if units is None else [replace(each, adds_to=units.words) for each in found]
    if not all(np.isfinite([intercept, *(end for each in found for end in (each.size, each.noise or 0.0))])):
        raise ModelError("the model's weights are too large for its shapes to be computed; train again")
    band = None
    if model.covariance is not None and measurable(weights[np.newaxis], model.covariance, model.limits)[0]:
        band = float(half_widths(weights[np.newaxis], model.covariance)[0])
    return Shapes(
        intercept=intercept,
        intercept_band=band,
        ranked=tuple(sorted(found, key=lambda shape: (-shape.size, len(shape.features)))),
        label=model.name,
        is_stated=any(source.spread.is_stated for part in parts for source in part.sources),
        mapped=model.feature_map is not None,
        has_bands=model.covariance is not None,
        units=units,
    )


def band_of(model: Linear, part: ScorePart, x: Matrix) -> list[float | None]:
    """The half-width of a part's band for each row of x as the schema encodes it; None if there is none."""
    if model.covariance is None:
        return [None] * len(x)
    own, basis = model.covariance[np.ix_(part.places, part.places)], part.basis(x)
    found = zip(half_widths(basis, own).tolist(), measurable(basis, own, model.limits), strict=True)
    return [width if is_measurable else None for width, is_measurable in found]


def _shape(model: Linear, part: ScorePart) -> Shape:
    rows, shares = part.nodes
    weights = model.theta[list(part.places)]
    size = float(np.sqrt(shares @ np.square(part.basis(rows) @ weights)))
    noise = known = None
    if model.covariance is not None:
        bands = np.array(band_of(model, part, rows), dtype=np.float64)
        has = np.isfinite(bands) & (shares > 0)
        known = float(shares[has].sum())
        noise = float(np.sqrt(shares[has] @ np.square(bands[has]) / known)) if known else None
    names = tuple(source.group.name for source in part.sources)
    shape = names, part.columns, size, noise, known
    if len(part.sources) == 2:
        first, second = (_axis(model.schema, part, number) for number in (0, 1))
        cells = [
            _ats(model, part, second[0], (np.repeat(row[np.newaxis], len(second[1]), axis=0), second[1]))
            for row in first[1]
        ]
        return Surface(*shape, tuple(first[0]), tuple(second[0]), tuple(map(tuple, cells)))
    (source,) = part.sources
    if source.group.bounds is not None:
        return _curve(model, part, source, source.group.bounds, shape)
    words, coordinates = source.group.levels
    return Values(*shape, tuple(_ats(model, part, words, (coordinates,))))


def _curve(
    model: Linear,
    part: ScorePart,
    source: Source,
    bounds: tuple[float, float],
    shape: tuple[tuple[str, ...], tuple[str, ...], float, float | None, float | None],
) -> Curve:
    spread = source.spread
    deciles = spread.quantiles(DECILES) if spread.is_stated else []
    grid = {*(-ONE + 2 * ONE * number // GRID for number in range(GRID + 1)), *part.knots[0], *deciles}
    # One step beside a point mass, whose own value is apart.
    drawn = sorted(grid)
    beside = [at if at not in part.points[0] else at - 1 if at == ONE else at + 1 for at in drawn]
    shares = dict(spread.points) if spread.is_stated else {}
    points = sorted(part.points[0])

    def units(at: Sequence[int]) -> list[float | str]:
        return [in_units(model.schema, source.start, each) for each in at]

    def ats(shown: Sequence[int], at: Sequence[int]) -> list[At]:
        return _ats(model, part, units(shown), (np.array(at, dtype=np.float64)[:, np.newaxis] / ONE,))

    masses = [replace(found, share=shares.get(at)) for found, at in zip(ats(points, points), points, strict=True)]
    marks = tuple(in_units(model.schema, source.start, each) for each in deciles)
    return Curve(*shape, tuple(ats(drawn, beside)), tuple(masses), *bounds, marks, source.number)


def _ats(model: Linear, part: ScorePart, values: Sequence[float | str], coordinates: tuple[Matrix, ...]) -> list[At]:
    if not values:
        return []
    x = part.rows(coordinates)
    adds = part.basis(x) @ model.theta[list(part.places)]
    found = zip(values, adds.tolist(), band_of(model, part, x), strict=True)
    is_known = model.covariance is not None
    return [At(value, float(each), band, None, band is not None if is_known else None) for value, each, band in found]


def _axis(schema: Schema, part: ScorePart, number: int) -> tuple[list[float | str], Matrix]:
    """The values of one side of a pair's grid, and their coordinates, (values, width)."""
    source = part.sources[number]
    if source.group.bounds is None:
        words, coordinates = source.group.levels
        return list(words), coordinates
    at = sorted({-ONE, ONE, *source.spread.quantiles(LEVELS), *part.knots[number], *part.points[number]})
    found = [source.number.in_json(in_units(schema, source.start, each)) for each in at]
    return found, np.array(at, dtype=np.float64)[:, np.newaxis] / ONE
