"""A comparison of groups: the difference of their means, or of their shares, with intervals and tests."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from typing import ClassVar

from dpcore.errors import ConfigurationError
from dpcore.evaluation.descriptive.description import rows_figure, share_figure
from dpcore.evaluation.descriptive.divisions import (
    ANY_OTHER,
    Division,
    Edges,
    check_columns,
    check_edges,
    divided_names,
    division_of,
    met,
)
from dpcore.evaluation.descriptive.inquiry import CountsInquiry, Key, Layout, Needed, as_edges
from dpcore.evaluation.descriptive.measured_columns import DIFFERENCE, MeasuredColumn, label_sentences, measured_columns
from dpcore.evaluation.descriptive.result import Figure, Result, tables_by_column
from dpcore.evaluation.descriptive.spread import Range, Spread, difference
from dpcore.evaluation.intervals import CellNoise, Count, interval_on_distribution
from dpcore.predicates.expressions import Predicate
from dpcore.records.features import nearest
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

_LEAST_P = 1e-6


@dataclass(frozen=True, kw_only=True)
class Compare(CountsInquiry):
    """Asks for a comparison of groups. Raises ConfigurationError if a field is out of range."""

    name: ClassVar[str] = "compare"
    column: str
    """What is compared: the mean of a number, otherwise the share of each level."""
    by: str
    """A column or a predicate that divides the rows into groups."""
    reference: str | None = None
    """The group that the others are compared with; None for the last that the schema names."""
    edges: Edges = field(default_factory=dict)
    """Public edges of the groups, if `by` is a number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "edges", as_edges(self.edges))
        if self.column == self.by:
            raise ConfigurationError(f"{self.column!r} is given twice: divide the rows by another column")

    def layout(self, schema: Schema) -> Layout:
        """See `CountsInquiry`."""
        return self._plan(schema).layout

    def needed(self, schema: Schema) -> tuple[Needed, ...]:
        """See `CountsInquiry`."""
        plan = self._plan(schema)
        groups, levels = len(plan.groups.levels), 1 if plan.levels is None else len(plan.levels.levels)
        words = f"each of the {groups} groups" if levels == 1 else f"each of the {levels} levels in each group"
        return (Needed(words, groups * levels, "divide into fewer groups"),)

    def read(self, schema: Schema, estimates: Estimates) -> Result:
        """See `CountsInquiry`."""
        reader = _Reader(self, self._plan(schema), estimates)
        figures = tuple(reader.figures())
        return Result(
            inquiry=self.name,
            figures=figures,
            rows=reader.most,
            confidence=self.confidence,
            deviation=reader.noise.deviation,
            sentences=(
                *self.meaning(),
                "A p-value is the smallest failure at which the interval of a difference leaves out 0: noise counts.",
                *label_sentences(schema, (self.column,)),
            ),
            tables=tables_by_column(figures),
            facts={"by": self.by, "reference": reader.reference},
        )

    def _plan(self, schema: Schema) -> "_Plan":
        check_columns(schema, [self.column])
        check_edges(self.edges, divided_names(schema, (self.by,)))
        groups = division_of(schema, self.by, self.edges)
        if len(groups.levels) < 2:
            raise ConfigurationError(f"{self.by!r} has one level, so there is nothing to compare: give another column")
        if self.reference is not None and self.reference not in groups.levels:
            hint = nearest(self.reference, groups.levels)
            raise ConfigurationError(f"there is no group {self.reference!r} of {self.by!r}; {hint}")
        column = measured_columns(schema).get(self.column)
        return _Plan(groups, column, division_of(schema, self.column) if column is None else None)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a comparison asks of a schema."""

    groups: Division
    column: MeasuredColumn | None
    """What is compared, if it has a mean."""
    levels: Division | None
    """Of what is compared, otherwise."""

    @cached_property
    def layout(self) -> Layout:
        """Keys: (what, group, place)."""
        found: dict[Key, Predicate] = {}
        for group, predicate in enumerate(self.groups.predicates):
            if self.levels is None:
                found["rows", group, 0] = predicate
            else:
                own = enumerate(self.levels.predicates)
                found |= {("level", group, place): met(predicate, each) for place, each in own}
        if self.column is not None:
            for what, asked in (("total", self.column.unit), ("squares", self.column.square)):
                found |= {(what, group, 0): met(each, asked) for group, each in enumerate(self.groups.predicates)}
        return Layout(found)


class _Reader:
    """Reads an answer."""

    def __init__(self, inquiry: Compare, plan: _Plan, estimates: Estimates) -> None:
        self._inquiry, self._plan, self._estimates = inquiry, plan, estimates
        self._sums = plan.layout.counts(estimates)
        self.noise, self.most = CellNoise.of(estimates), estimates.most_rows or estimates.rows
        named = [level for level in plan.groups.levels if level != ANY_OTHER]
        self.reference = named[-1] if inquiry.reference is None else inquiry.reference
        levels = 2 if plan.levels is None else len(plan.levels.levels)
        self._failure = inquiry.failure(len(plan.groups.levels) * (2 * levels + 1))

    def figures(self) -> Iterator[Figure]:
        """Of each group, then the differences."""
        if self._plan.column is not None:
            yield from self._means(self._plan.column)
        else:
            yield from self._shares()

    def _means(self, column: MeasuredColumn) -> Iterator[Figure]:
        names = self._plan.groups.levels
        spreads = {
            name: Spread(
                count=self._sums["rows", group, 0],
                total=self._sums["total", group, 0],
                squares=self._sums["squares", group, 0],
                noise=self.noise,
                quantisation=self._estimates.quantisation,
                slack=column.slack,
            )
            for group, name in enumerate(names)
        }
        for name, spread in spreads.items():
            yield rows_figure(name, spread.count, self.noise, self._failure, self.most)
        for name, spread in spreads.items():
            own = column.figures(name, spread, self._failure)
            yield from own if spread.is_measured else islice(own, 1)
        other = spreads[self.reference]
        for name, spread in spreads.items():
            if name == self.reference:
                continue
            words = f"{name}, less {self.reference}"
            if not (spread.is_measured and other.is_measured):
                yield column.no_difference(words)
                continue
            within = partial(_mean_difference, spread, other)
            yield column.difference(words, spread.mean - other.mean, within(self._failure), p_value(within))

    def _shares(self) -> Iterator[Figure]:
        levels, names = self._plan.levels, self._plan.groups.levels
        assert levels is not None, "what is compared is no number"
        counts = {
            name: [self._sums["level", group, place] for place in range(len(levels.levels))]
            for group, name in enumerate(names)
        }
        reach = self.noise.half_width(len(levels.levels), self._failure)
        for name, own in counts.items():
            low, high = (min(max(end, 0.0), float(self.most)) for end in (sum(own) - reach, sum(own) + reach))
            yield Figure("rows", "", name, "", "rows", min(max(sum(own), 0.0), float(self.most)), low, high)
        # Of two levels, one says all.
        shown = range(1 if len(levels.levels) == 2 else len(levels.levels))
        for name, own in counts.items():
            for place in shown:
                level = levels.levels[place]
                yield share_figure("share", levels.name, name, level, own, place, self.noise, self._failure, self.most)
        for name, own in counts.items():
            if name != self.reference:
                for place in shown:
                    yield self._share_difference(levels, name, own, counts[self.reference], place)

    def _share_difference(
        self, levels: Division, name: str, own: list[float], other: list[float], place: int
    ) -> Figure:
        words, level = f"{name}, less {self.reference}", levels.levels[place]
        least = self.noise.half_width(len(own), 1e-3)
        if min(sum(own), sum(other)) <= max(least, 1.0):
            return Figure(DIFFERENCE, levels.name, words, level, "points", None)
        shares = [min(max(each[place] / sum(each), 0.0), 1.0) for each in (own, other)]

        def within(failure: float) -> Range:
            ends = [self._share_range(each, place, failure) for each in (own, other)]
            return difference(shares[0], ends[0], shares[1], ends[1])

        low, high = (min(max(end, -1.0), 1.0) for end in within(self._failure))
        return Figure(
            DIFFERENCE, levels.name, words, level, "points", shares[0] - shares[1], low, high, p_value(within)
        )

    def _share_range(self, counts: list[float], place: int, failure: float) -> Range:
        own, rest = Count(counts[place], 1), Count(sum(counts) - counts[place], len(counts) - 1)
        found = interval_on_distribution(own, rest, self.noise, failure, self.most)
        return found.lower, found.upper


def _mean_difference(first: Spread, second: Spread, failure: float) -> Range:
    ends = [each.mean_interval(failure) or (0.0, 1.0) for each in (first, second)]
    return difference(first.mean, ends[0], second.mean, ends[1])


def p_value(within: Callable[[float], Range]) -> float:
    """The smallest failure at which an interval leaves out 0, by bisection; at least 1e-6."""
    low, high = math.log(_LEAST_P), math.log(1.0 - 1e-6)
    if _leaves_out(within(_LEAST_P)):
        return _LEAST_P
    for _ in range(20):
        middle = (low + high) / 2.0
        low, high = (low, middle) if _leaves_out(within(math.exp(middle))) else (middle, high)
    return math.exp(high)


def _leaves_out(interval: Range) -> bool:
    return interval[0] > 0.0 or interval[1] < 0.0
