"""Histograms and quantiles of real columns, with intervals, from one noisy release of disjoint cells.

Columns are divided as in dpcore.estimators.private_histograms: F columns have a sensitivity of 2 F in L1 and L2^2. A
share of usable rows has an interval on the rows and one on the distribution.

Quantiles: with [L_i, U_i] for the share of the first i parts, the q-quantile is not below the lower end of part i + 1
if U_i < q, and not above the upper end of part i if L_i >= q: Woodruff's inversion (J. Am. Stat. Assoc. 47, 1952).

Intervals hold with probability at least `confidence` for all shares, and for all quantiles, for rows and distribution,
each separately.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.estimators.oracle import WHOLE, StatisticOracle, asked_part, check_pieces, failure_of
from dpcore.estimators.private_histograms import Cells
from dpcore.evaluation.intervals import (
    CellNoise,
    Count,
    Interval,
    Proportion,
    interval_on_distribution,
    interval_on_rows,
)
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.expressions import Affine, And, NonNegative, Not, Predicate
from dpcore.records.feature_map import in_units_of, stored
from dpcore.records.features import Group, Limit, RealFeature, nearest
from dpcore.records.held_back import HeldBack
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

USUAL_CELLS = 32
MOST_CELLS = 1024

_CROWDED = 0.5
_STEP_DIGITS = math.log10(2.0**30)

Range = tuple[float, float]


@dataclass(frozen=True)
class Part:
    """The share of usable rows with lower <= value < upper, in the column's units."""

    lower: float
    upper: float
    is_point: bool
    """Whether it is a single value instead, which is both ends. Next to one, a cell is open on that side."""
    share: Proportion

    def to_dict(self, feature: RealFeature) -> dict[str, Any]:
        """For JSON; ends of the feature's dates as texts."""
        ends = {"lower": feature.in_json(self.lower), "upper": feature.in_json(self.upper)}
        return {**ends, "is_point": self.is_point, **self.share.to_dict()}


@dataclass(frozen=True)
class Quantile:
    """The least value that a share `level` of usable rows does not exceed, in the column's units, with intervals."""

    level: float
    estimate: float
    on_rows: Range
    on_distribution: Range

    def to_dict(self, feature: RealFeature) -> dict[str, Any]:
        """For JSON; the feature's dates as texts."""
        return {
            "level": self.level,
            "estimate": feature.in_json(self.estimate),
            "on_rows": list(map(feature.in_json, self.on_rows)),
            "on_distribution": list(map(feature.in_json, self.on_distribution)),
        }


@dataclass(frozen=True, eq=False)
class ColumnHistogram:
    """One column."""

    feature: RealFeature
    ends: tuple[Range, ...]
    """Of its parts in ascending order, in its units."""
    are_points: tuple[bool, ...]
    counts: NDArray[np.float64] = field(repr=False)
    """(parts,), noisy numbers of rows."""
    noise: CellNoise
    failure: float
    """Of all of a family's statements, of which `statements` are shares and `splits` cumulative shares."""
    statements: int
    splits: int
    most: int
    """No number of rows is larger."""

    @property
    def name(self) -> str:
        """The feature's name."""
        return self.feature.name

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Every part with its share."""
        total = float(self.counts.sum())
        rest = len(self.counts) - 1
        return tuple(
            Part(low, high, is_point, self._proportion(Count(count, 1), Count(total - count, rest), self.statements))
            for (low, high), is_point, count in zip(self.ends, self.are_points, self.counts.tolist(), strict=True)
        )

    @cached_property
    def reached(self) -> tuple[Proportion, ...]:
        """C_i, the shares of the first i + 1 parts, for all parts but the last; estimates do not decrease."""
        sums, parts = np.cumsum(self.counts).tolist(), len(self.counts)
        found = [
            self._proportion(Count(below, at), Count(sums[-1] - below, parts - at), self.splits)
            for at, below in enumerate(sums[:-1], start=1)
        ]
        rough = np.array([each.estimate for each in found])
        # The mean of the least non-decreasing curve above the estimates and of the greatest below.
        smooth = (np.maximum.accumulate(rough) + np.minimum.accumulate(rough[::-1])[::-1]) / 2.0
        return tuple(
            Proportion(value, each.on_rows, each.on_distribution)
            for value, each in zip(smooth.tolist(), found, strict=True)
        )

    def quantile(self, level: float) -> Quantile:
        """The quantile at this level. Raises ConfigurationError unless the level is between 0 and 1."""
        if not 0.0 < level < 1.0:
            raise ConfigurationError(f"the level of a quantile is {level}: it must be between 0 and 1")
        on_rows = self._range(level, [each.on_rows for each in self.reached])
        drawn = [each.on_distribution for each in self.reached if each.on_distribution is not None]
        on_distribution = self._range(level, drawn)
        estimate = min(max(self._estimate(level), on_rows[0]), on_rows[1])
        return Quantile(level, estimate, on_rows, on_distribution)

    def advice(self) -> str | None:
        """What to ask next if one cell has more than half of the rows, and so shows little; None otherwise."""
        total = float(self.counts.sum())
        for (low, high), is_point, count in zip(self.ends, self.are_points, self.counts.tolist(), strict=True):
            if not is_point and count > _CROWDED * total > 0.0:
                lower, upper = self.feature.written(low, 9), self.feature.written(high, 9)
                return (
                    f"{100 * min(count / total, 1.0):.0f} % of {self.name} is between {lower} and {upper}, one of its "
                    "cells. A second query, charged like this one, shows more with --edges "
                    f"{self.name}={lower}:{upper}:{USUAL_CELLS}"
                )
        return None

    def to_dict(self) -> dict[str, Any]:
        """The shares, for JSON."""
        return {
            "column": self.name,
            "parts": [part.to_dict(self.feature) for part in self.parts],
            "advice": self.advice(),
        }

    def _proportion(self, a: Count, b: Count, statements: int) -> Proportion:
        failure, total = self.failure / statements, a.value + b.value
        return Proportion(
            estimate=min(max(a.value / total, 0.0), 1.0) if total > 0.0 else 0.5,
            on_rows=interval_on_rows(a, b, self.noise, failure),
            on_distribution=interval_on_distribution(a, b, self.noise, failure, self.most),
        )

    def _range(self, level: float, reached: Sequence[Interval]) -> Range:
        below = [at for at, each in enumerate(reached) if each.upper < level]
        above = [at for at, each in enumerate(reached) if each.lower >= level]
        lower = self.ends[below[-1] + 1][0] if below else self.ends[0][0]
        upper = self.ends[above[0]][1] if above else self.ends[-1][1]
        # Both hold; without noise, bounds of neighbouring splits may cross by rounding.
        return min(lower, upper), max(lower, upper)

    def _estimate(self, level: float) -> float:
        """As if the values were spread evenly within each cell."""
        reached = [0.0, *(each.estimate for each in self.reached), 1.0]
        at = bisect_left(reached, level, lo=1) - 1
        low, high = self.ends[at]
        return low + (high - low) * (level - reached[at]) / (reached[at + 1] - reached[at])


@dataclass(frozen=True, eq=False)
class Histograms:
    """Histograms of several columns from one release; the module's docstring says which intervals hold jointly."""

    columns: tuple[ColumnHistogram, ...]
    rows: int
    """What parties state, usable or not."""
    confidence: float
    deviation: float
    """The noise's standard deviation on a part, in rows."""
    part: HeldBack | None = None
    """The part of the rows that it is about; None for all."""

    def to_dict(self) -> dict[str, Any]:
        """The shares, for JSON."""
        return {**self._facts(), "columns": [column.to_dict() for column in self.columns]}

    def quantiles_to_dict(self, levels: Sequence[float]) -> dict[str, Any]:
        """The quantiles at these levels, for JSON. Raises ConfigurationError if a level is not between 0 and 1."""
        columns = [
            {
                "column": column.name,
                "quantiles": [column.quantile(level).to_dict(column.feature) for level in levels],
                "advice": column.advice(),
            }
            for column in self.columns
        ]
        return {**self._facts(), "columns": columns}

    def meaning(self, what: str) -> tuple[str, ...]:
        """What the intervals of `what`, shares or quantiles, hold for, in words."""
        holds = (
            f"The intervals of all {what} hold together with probability at least {100 * self.confidence:g} %: on the "
            "parties' usable rows over the noise, and for new rows over the noise and the sample."
        )
        drawn = (
            "New rows are drawn as these were: independently, from one distribution, that of the parties together in "
            "proportion to their rows."
        )
        if self.part is None or not self.part.pieces:
            return holds, drawn
        series = (
            f"These are the rows of {self.part.words()}. The intervals of all {self.part.pieces} questions hold "
            "together, and earlier answers may have chosen each, as it is about rows of its own."
        )
        return holds, drawn, series

    def _facts(self) -> dict[str, Any]:
        part = None if self.part is None else self.part.to_dict()
        return {"rows": self.rows, "part": part, "confidence": self.confidence, "deviation": self.deviation}


def histogram_predicates(
    schema: Schema, columns: Sequence[str], *, cells: int = USUAL_CELLS, edges: Mapping[str, Sequence[Limit]] = {}
) -> tuple[Predicate, ...]:
    """The batch that asks for histograms of real features, by name.

    cells: of each column without edges, from 1 to MOST_CELLS. edges: public ones by column, in its units (dates:
    texts), never from the data; cells beyond reach to the bounds. Raises ConfigurationError.
    """
    if not columns:
        raise ConfigurationError("there is no column: give the name of at least one real feature")
    if not 1 <= cells <= MOST_CELLS:
        raise ConfigurationError(f"{cells} cells of a column: give 1 to {MOST_CELLS}")
    chosen = [_real_feature(schema, name) for name in columns]
    for name in columns:
        if list(columns).count(name) > 1:
            raise ConfigurationError(f"column {name!r} is given twice: give it once")
    for name, given in edges.items():
        if name not in columns:
            raise ConfigurationError(f"there are edges of {name!r}, which is not asked for: {nearest(name, columns)}")
        if len(given) > MOST_CELLS:
            raise ConfigurationError(f"there are {len(given)} edges of {name!r}: give at most {MOST_CELLS}")
    divided = [
        Cells.between(feature, edges[feature.name]) if feature.name in edges else Cells.equal(feature, cells)
        for feature in chosen
    ]
    return tuple(predicate for each in divided for predicate in each.predicates())


def column_histograms(
    columns: Sequence[str],
    oracle: StatisticOracle,
    *,
    cells: int = USUAL_CELLS,
    edges: Mapping[str, Sequence[Limit]] = {},
    confidence: float = 0.95,
    part: Fraction = WHOLE,
) -> Histograms:
    """Histograms on the federation's rows; one release. Arguments and errors as of `histogram_predicates`."""
    if isinstance(columns, str):
        raise ConfigurationError("columns are a list of names: write [name], even for a single one")
    predicates = histogram_predicates(oracle.schema, columns, cells=cells, edges=edges)
    check_pieces(oracle)
    estimates = oracle.statistic(predicates, part=part, confidence=confidence)
    return histograms_of(oracle.schema, predicates, estimates, part=asked_part(oracle))


def histograms_of(
    schema: Schema, predicates: Sequence[Predicate], estimates: Estimates, *, part: HeldBack | None = None
) -> Histograms:
    """The histograms that such a batch was answered with. Raises ConfigurationError for another batch."""
    batches: dict[str, list[tuple[int, int, int]]] = {}
    for place, predicate in enumerate(predicates):
        name, low, high = _interval_of(predicate)
        batches.setdefault(name, []).append((low, high, place))
    counts, every = estimates.values * estimates.rows, estimates.most_rows or estimates.rows
    noise = CellNoise.of(estimates)
    if noise.deviation == 0.0:
        # Undo the rounding of the division by the rows: counts are integers.
        counts = np.rint(counts)
    statements = len(predicates)
    columns = []
    for name, parts in batches.items():
        ascending = sorted(parts)
        feature = _real_feature(schema, name)
        ends, are_points = _ends(feature, ascending)
        columns.append(
            ColumnHistogram(
                feature=feature,
                ends=ends,
                are_points=are_points,
                counts=counts[[place for *_, place in ascending]],
                noise=noise,
                failure=failure_of(estimates.confidence, part),
                statements=statements,
                splits=statements - len(batches),
                most=every,
            )
        )
    return Histograms(tuple(columns), every, estimates.confidence, noise.deviation, part)


def _real_feature(schema: Schema, name: str) -> RealFeature:
    features: dict[str, Group] = {group.name: group for group in schema.groups}
    if name not in features:
        raise ConfigurationError(f"schema {schema.name!r} has no feature {name!r}; {nearest(name, features)}")
    numbers = {feature.name: feature for feature in schema.numbers}
    if name not in numbers:
        raise ConfigurationError(
            f"{name!r} is a {features[name].type} feature, and histograms are of real ones: ask for its values by "
            "`rado learner statistic`"
        )
    return numbers[name]


_OTHER = "the release is not of histograms: give one that `rado learner histogram` or `quantiles` asked for"


def _interval_of(predicate: Predicate) -> tuple[str, int, int]:
    """(name, low, high) of a predicate of `Cells`: whether low <= the stored value < high."""
    match predicate:
        case And(
            parts=(
                NonNegative(form=Affine(weights=((name, scale),), constant=low)),
                Not(part=NonNegative(form=Affine(weights=((same, other),), constant=high))),
            )
        ) if (name, scale, other) == (same, ONE, ONE):
            return name, -low, -high
    raise ConfigurationError(_OTHER)


def _ends(feature: RealFeature, parts: Sequence[tuple[int, int, int]]) -> tuple[tuple[Range, ...], tuple[bool, ...]]:
    """The ends of ascending parts in the column's units, and which are points. Raises ConfigurationError for gaps."""
    lows, highs = [low for low, *_ in parts], [high for _, high, _ in parts]
    if lows != [-ONE, *highs[:-1]] or highs[-1] != ONE + 1 or any(low > high for low, high, _ in parts):
        raise ConfigurationError(_OTHER)
    span = feature.upper - feature.lower
    # Records tell steps of span / 2^31 apart: more digits would be those of the rounding.
    digits = math.floor(_STEP_DIGITS - math.log10(span))
    points = {-ONE: feature.lower, ONE: feature.upper}
    if feature.lower < 0.0 < feature.upper:
        # A bound that records cannot tell from zero stays the bound.
        points.setdefault(stored(feature, 0.0), 0.0)

    def units(value: int) -> float:
        return points[value] if value in points else round(in_units_of(feature, value), digits)

    are_points = tuple(low in points and high == low + 1 for low, high in zip(lows, highs, strict=True))
    return tuple(
        # A cell after a point begins one step later.
        (units(low), units(low)) if is_point else (units(low - (low - 1 in points)), units(high))
        for low, high, is_point in zip(lows, highs, are_points, strict=True)
    ), are_points
