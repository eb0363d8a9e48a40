"""Columns whose mean, deviation and quantiles are asked: the schema's numbers, and a label that is a number or a count.

A value v has a place u in [0, 1] between the bounds, and z = 2 u - 1. Of a label on a scale of logarithms both are of
log v: its mean and deviation are the geometric ones, exp of those of log v.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TypeGuard

import numpy as np

from dpcore.estimators.private_histograms import Cells
from dpcore.evaluation.descriptive.divisions import label_edges, label_name
from dpcore.evaluation.descriptive.result import Figure
from dpcore.evaluation.descriptive.spread import Range, Spread, unit
from dpcore.evaluation.histograms import ColumnHistogram, histograms_of
from dpcore.evaluation.intervals import CellNoise
from dpcore.predicates.expressions import And, LabelAtLeast, LabelShare, LabelSquare, Not, Predicate
from dpcore.predicates.squares import SLACK, square
from dpcore.records.feature_map import stored
from dpcore.records.features import Count, EventTime, Limit, Number, RealFeature, Target
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

MEAN, DEVIATION = "mean", "standard deviation"
GEOMETRIC_MEAN, GEOMETRIC_DEVIATION = "geometric mean", "geometric standard deviation"
DIFFERENCE, MEAN_RATIO = "difference", "ratio of geometric means"


@dataclass(frozen=True, eq=False)
class MeasuredColumn:
    """A number of the schema, or its label."""

    feature: RealFeature
    """The number; of a label one with its bounds, which no query asks for."""
    label: Number | Count | None = None
    """None for a feature."""

    @property
    def name(self) -> str:
        """The column's name."""
        return self.feature.name

    @property
    def is_log(self) -> bool:
        """Whether u is the place of the value's logarithm."""
        return isinstance(self.label, Number) and self.label.log

    @property
    def unit(self) -> Predicate:
        """U."""
        return unit(self.name) if self.label is None else LabelShare()

    @property
    def square(self) -> Predicate:
        """z^2: from below, by at most `slack`."""
        return square(self.name) if self.label is None else LabelSquare()

    @property
    def slack(self) -> float:
        """By how much `square` may be below z^2, without the rounding of a query."""
        return SLACK if self.label is None else 0.0

    @property
    def quantities(self) -> tuple[str, str]:
        """What its mean and its deviation are called."""
        return (GEOMETRIC_MEAN, GEOMETRIC_DEVIATION) if self.is_log else (MEAN, DEVIATION)

    @property
    def _ends(self) -> Range:
        ends = self.feature.lower, self.feature.upper
        return (math.log(ends[0]), math.log(ends[1])) if self.is_log else ends

    def value(self, place: float) -> float:
        """The value at a place between the bounds."""
        low, high = self._ends
        found = low + (high - low) * place
        return math.exp(found) if self.is_log else found

    def size(self, share: float) -> float:
        """A difference of values whose places differ by this; on a scale of logarithms, their ratio."""
        low, high = self._ends
        found = (high - low) * share
        return math.exp(found) if self.is_log else found

    def figures(self, group: str, spread: Spread, failure: float) -> Iterator[Figure]:
        """The mean and the deviation of a group, in the column's units."""
        mean, deviation = self.quantities
        if not spread.is_measured:
            for quantity in (mean, deviation):
                yield Figure(quantity, self.name, group, "", "value", None, feature=self.feature)
            return
        ends = spread.mean_interval(failure) or (0.0, 1.0)
        estimate, low, high = map(self.value, (spread.mean, *ends))
        yield Figure(mean, self.name, group, "", "value", estimate, low, high, feature=self.feature)
        of_deviation = (spread.variance**0.5, *spread.deviation_interval(failure))
        estimate, low, high = map(self.size, of_deviation)
        yield Figure(deviation, self.name, group, "", "size", estimate, low, high, feature=self.feature)

    def difference(self, words: str, found: float, within: Range, p_value: float) -> Figure:
        """The figure of a difference of means u, and of its interval; on a scale of logarithms, a ratio."""
        estimate, low, high = map(self.size, (found, *within))
        quantity = MEAN_RATIO if self.is_log else DIFFERENCE
        return Figure(quantity, self.name, words, "", "size", estimate, low, high, p_value)

    def no_difference(self, words: str) -> Figure:
        """The figure of one that is not measured."""
        return Figure(MEAN_RATIO if self.is_log else DIFFERENCE, self.name, words, "", "size", None)

    def cells(self, edges: Sequence[Limit] | None, cells: int) -> "ColumnCells":
        """Those between public edges, or so many of one length. Raises ConfigurationError for edges out of order."""
        if self.label is not None:
            return LabelCells.of(self, self.label, edges, cells)
        return FeatureCells(
            self.feature,
            Cells.equal(self.feature, cells) if edges is None else Cells.between(self.feature, edges),
        )


@dataclass(frozen=True, eq=False)
class FeatureCells:
    """The cells of a feature."""

    feature: RealFeature
    own: Cells

    @property
    def predicates(self) -> list[Predicate]:
        """One for each cell."""
        return self.own.predicates()

    def histogram(self, schema: Schema, part: Estimates) -> ColumnHistogram:
        """From the estimates of `predicates`."""
        (found,) = histograms_of(schema, self.predicates, part).columns
        return found

    def shown(self, value: float) -> float:
        """A quantile's estimate, as it is."""
        return value

    def place_of_imputed(self) -> int:
        """The cell that holds the value that replaces missing cells, among the predicates."""
        value = stored(self.feature, float(self.feature.impute or 0.0))
        if value in self.own.points:
            return self.own.points.index(value)
        place = next(at for at, bound in enumerate(self.own.bounds[1:]) if value < bound)
        return len(self.own.points) + place


@dataclass(frozen=True, eq=False)
class LabelCells:
    """The cells of a label: below the first edge, between edges, and from the last on."""

    feature: RealFeature
    edges: tuple[float, ...]
    are_whole: bool
    """Whether values are whole numbers."""

    @classmethod
    def of(
        cls, column: MeasuredColumn, label: Number | Count, edges: Sequence[Limit] | None, cells: int
    ) -> "LabelCells":
        """See `MeasuredColumn.cells`. Without edges, those of a count are single numbers first, then wider."""
        whole = isinstance(label, Count)
        if edges is not None:
            inner = list(label_edges(label, edges))
            # A count is at least 4.5 where it is at least 5.
            return cls(column.feature, tuple(sorted({math.ceil(edge) for edge in inner}) if whole else inner), whole)
        inner = [column.value(place) for place in (np.arange(1, cells) / cells).tolist()]
        if isinstance(label, Count):
            inner = _growing(label.upper + 1, cells)
        return cls(column.feature, tuple(inner), whole)

    @property
    def predicates(self) -> list[Predicate]:
        """One for each cell. They exclude one another."""
        if not self.edges:
            return [Not(LabelAtLeast(Fraction(self.feature.upper) + 1))]
        ends = [LabelAtLeast(Fraction(edge)) for edge in self.edges]
        return [Not(ends[0]), *(And((low, Not(high))) for low, high in pairwise(ends)), ends[-1]]

    def shown(self, value: float) -> float:
        """A quantile's estimate; of a count, the nearest whole number."""
        return float(round(value)) if self.are_whole else value

    def histogram(self, schema: Schema, part: Estimates) -> ColumnHistogram:  # noqa: ARG002  (as of features)
        """From the estimates of `predicates`; statements as in `histograms_of`."""
        bounds = (self.feature.lower, *self.edges, self.feature.upper)
        ends = list(pairwise(bounds))
        if self.are_whole:
            # Up to the last whole number below the next edge.
            ends = [*((low, high - 1.0) for low, high in ends[:-1]), ends[-1]]
        counts = part.values * part.rows
        return ColumnHistogram(
            feature=self.feature,
            ends=tuple(ends),
            are_points=tuple(low == high for low, high in ends),
            counts=counts,
            noise=CellNoise.of(part),
            failure=1.0 - part.confidence,
            statements=len(ends),
            splits=max(len(ends) - 1, 1),
            most=part.most_rows or part.rows,
        )


def _growing(values: int, cells: int) -> list[float]:
    """Inner edges of at most so many cells of the whole numbers below `values`: single ones first, then wider ranges.

    Edge p is the larger of the one before, plus 1, and of values^(p / cells), rounded down: all are below `values`.
    """
    many, edges = min(values, cells), list[float]()
    for place in range(1, many):
        edges.append(max((edges[-1] if edges else 0.0) + 1.0, float(math.floor(values ** (place / many)))))
    return edges


ColumnCells = FeatureCells | LabelCells


def measured_columns(schema: Schema) -> Mapping[str, MeasuredColumn]:
    """All columns of the schema that have a mean, by name."""
    found = {each.name: MeasuredColumn(each) for each in schema.numbers}
    label = schema.label
    if is_measured(label):
        low, high = label.in_units(np.array([-1.0, 1.0])).tolist()
        name = label_name(schema)
        bounds = (label.lower, label.upper) if isinstance(label, Number) else (low, high)
        found[name] = MeasuredColumn(RealFeature(name=name, lower=bounds[0], upper=bounds[1]), label)
    return found


def is_measured(label: Target) -> TypeGuard[Number | Count]:
    """Whether a label is a number or a count."""
    return label.coding.is_measured


def label_sentences(schema: Schema, names: Sequence[str]) -> Iterator[str]:
    """What figures of the label mean, if it is among the names."""
    label, name = schema.label, label_name(schema)
    if name not in names:
        return
    if isinstance(label, Number) and label.log:
        yield (
            f"{name!r} is on a scale of logarithms: its mean is the geometric one, its standard deviation is a factor, "
            "and groups differ by a ratio. For sums and arithmetic means set log = false in the schema."
        )
    if isinstance(label, Count) and label.exposure is not None:
        yield f"{name!r} is as it was counted, not divided by its exposure, {label.exposure!r}."
    if isinstance(label, EventTime):
        yield (
            f"{name!r} counts rows with an event, however long they were followed: `rado learner survival` has curves "
            "and times."
        )
