"""A description of columns: rows, missing cells, means, standard deviations, quantiles and shares, also by group."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from dpcore.errors import ConfigurationError
from dpcore.evaluation.descriptive.divisions import (
    Division,
    Edges,
    check_columns,
    check_edges,
    column_names,
    divided_names,
    division_of,
    label_name,
    met,
)
from dpcore.evaluation.descriptive.inquiry import CountsInquiry, Key, Layout, Needed, as_edges
from dpcore.evaluation.descriptive.measured_columns import (
    ColumnCells,
    FeatureCells,
    MeasuredColumn,
    label_sentences,
    measured_columns,
)
from dpcore.evaluation.descriptive.result import Figure, Result, tables_by_column
from dpcore.evaluation.descriptive.spread import Spread
from dpcore.evaluation.histograms import MOST_CELLS, ColumnHistogram
from dpcore.evaluation.intervals import CellNoise, Count, interval_on_distribution
from dpcore.predicates.expressions import Constant, Predicate
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

USUAL_CELLS = 32
USUAL_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
MEDIAN = "median"
MISSING = "missing cells"


@dataclass(frozen=True, kw_only=True)
class Describe(CountsInquiry):
    """Asks for a description. Raises ConfigurationError if a field is out of range."""

    name: ClassVar[str] = "describe"
    columns: tuple[str, ...] = ()
    """Names of features, or of the label; empty for all."""
    by: str | None = None
    """A column or a predicate that divides the rows into groups; None for all rows."""
    edges: Edges = field(default_factory=dict)
    """Public edges of a number's cells, or of its groups, by column, in its units."""
    cells: int = USUAL_CELLS
    """Of each number without edges."""
    levels: tuple[float, ...] = USUAL_LEVELS
    """Of quantiles."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.columns, str):
            raise ConfigurationError("columns are a list of names: write [name], even for a single one")
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "levels", tuple(map(float, self.levels)))
        object.__setattr__(self, "edges", as_edges(self.edges))
        if not 1 <= self.cells <= MOST_CELLS:
            raise ConfigurationError(f"{self.cells} cells of a column: give 1 to {MOST_CELLS}")
        for level in self.levels:
            if not 0.0 < level < 1.0:
                raise ConfigurationError(f"the level of a quantile is {level}: it must be between 0 and 1")

    def layout(self, schema: Schema) -> Layout:
        """See `CountsInquiry`."""
        return self._plan(schema).layout

    def needed(self, schema: Schema) -> tuple[Needed, ...]:
        """See `CountsInquiry`: all rows or each group, and each level of a category in it."""
        plan, found = self._plan(schema), []
        groups = len(plan.groups.levels)
        if groups > 1:
            found.append(Needed(f"each of the {groups} groups", groups, "divide into fewer groups, describe less"))
        else:
            found.append(Needed("the group of all rows", 1, "describe fewer columns"))
        for each in plan.divisions:
            cells = len(each.levels) * groups
            where = f" in each of {groups} groups" if groups > 1 else ""
            words = f"each of the {len(each.levels)} levels of {each.name!r}{where}"
            found.append(Needed(words, cells, f"leave out {each.name!r}, describe fewer columns"))
        return tuple(found)

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
            sentences=(*self.meaning(), *self._explained(schema), *label_sentences(schema, self._plan(schema).names)),
            tables=tables_by_column(figures),
            facts={"by": self.by},
        )

    def _explained(self, schema: Schema) -> Iterator[str]:
        yield "The quantiles of one column in one group hold together; each is as exact as the column's cells."
        yield (
            "Missing cells are not sent: where the schema replaces them, their share is below that of the rows "
            "around the value that replaces them; where it leaves rows out, below the share of all rows left out."
        )
        if any(_may_leave_out(schema)):
            yield "The schema leaves some rows out; figures are of the others."

    def _plan(self, schema: Schema) -> "_Plan":
        check_columns(schema, self.columns)
        names = tuple(name for name in self.columns or column_names(schema) if name != self.by)
        if not names:
            raise ConfigurationError("nothing is left to describe: give a column beside the one that divides the rows")
        check_edges(self.edges, divided_names(schema, (*names, self.by)))
        return _Plan(self, schema, names)


def _may_leave_out(schema: Schema) -> Iterator[bool]:
    for part in (*schema.features, schema.label):
        for policy in part.policies:
            yield policy.choice == "zero-vector"


ALL = Division("", ("",), (Constant(value=True),))


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a description asks of a schema."""

    inquiry: Describe
    schema: Schema
    names: tuple[str, ...]

    @cached_property
    def groups(self) -> Division:
        """All rows are one group without a name."""
        by = self.inquiry.by
        return ALL if by is None else division_of(self.schema, by, self.inquiry.edges)

    @cached_property
    def numbers(self) -> dict[str, tuple[MeasuredColumn, ColumnCells]]:
        """The described columns that have a mean, with the cells of their histograms."""
        own = {name: each for name, each in measured_columns(self.schema).items() if name in self.names}
        edges, cells = self.inquiry.edges, self.inquiry.cells
        return {name: (each, each.cells(edges.get(name), cells)) for name, each in own.items()}

    @cached_property
    def divisions(self) -> tuple[Division, ...]:
        """Of the other columns."""
        return tuple(division_of(self.schema, name) for name in self.names if name not in self.numbers)

    @cached_property
    def layout(self) -> Layout:
        """Keys: (group, what, column, place)."""
        found: dict[Key, Predicate] = {}
        # People who decide on a query see the first ones: rows, then what is short.
        for level, group in zip(self.groups.levels, self.groups.predicates, strict=True):
            found[level, "rows", "", 0] = group
        for level, group in zip(self.groups.levels, self.groups.predicates, strict=True):
            for name, (column, cells) in self.numbers.items():
                parts = {"total": [column.unit], "squares": [column.square], "cell": cells.predicates}
                found |= {
                    (level, what, name, place): self._in(group, each)
                    for what, predicates in parts.items()
                    for place, each in enumerate(predicates)
                }
            for division in self.divisions:
                found |= {
                    (level, "level", division.name, place): self._in(group, each)
                    for place, each in enumerate(division.predicates)
                }
        return Layout(found)

    def _in(self, group: Predicate, predicate: Predicate) -> Predicate:
        return predicate if self.groups is ALL else met(group, predicate)


class _Reader:
    """Reads an answer."""

    def __init__(self, inquiry: Describe, plan: _Plan, estimates: Estimates) -> None:
        self._inquiry, self._plan, self._estimates = inquiry, plan, estimates
        self._sums = plan.layout.counts(estimates)
        self.noise = CellNoise.of(estimates)
        self.most = estimates.most_rows or estimates.rows
        groups = len(plan.groups.levels)
        each = 1 + 3 * len(plan.numbers) + sum(len(division.levels) for division in plan.divisions)
        self._failure = inquiry.failure(groups * each + len(plan.names))

    def figures(self) -> Iterator[Figure]:
        """Those of all rows or groups, then of each column."""
        for level in self._plan.groups.levels:
            yield rows_figure(level, self._sums[level, "rows", "", 0], self.noise, self._failure, self.most)
        for name in self._plan.names:
            yield self._missing(name)
            for level in self._plan.groups.levels:
                yield from self._column(name, level)

    def _column(self, name: str, level: str) -> Iterator[Figure]:
        if name in self._plan.numbers:
            yield from self._number(name, level)
            return
        division = next(each for each in self._plan.divisions if each.name == name)
        counts = [self._sums[level, "level", name, place] for place in range(len(division.levels))]
        measured = self._spread(level).is_measured
        for place, text in enumerate(division.levels):
            yield share_figure(
                "share", name, level, text, counts, place, self.noise, self._failure, self.most, measured=measured
            )

    def _spread(self, level: str, name: str = "", slack: float = 0.0) -> Spread:
        total, squares = (self._sums.get((level, what, name, 0), 0.0) for what in ("total", "squares"))
        count = self._sums[level, "rows", "", 0]
        return Spread(count, total, squares, self.noise, self._estimates.quantisation, slack)

    def _number(self, name: str, level: str) -> Iterator[Figure]:
        column, cells = self._plan.numbers[name]
        spread = self._spread(level, name, column.slack)
        yield from column.figures(level, spread, self._failure)
        histogram = self._histogram(name, level, cells) if spread.is_measured else None
        for at in self._inquiry.levels:
            found: tuple[float | None, float | None, float | None] = (None, None, None)
            if histogram is not None:
                quantile = histogram.quantile(at)
                found = (cells.shown(quantile.estimate), *quantile.on_distribution)
            yield Figure(level_words(at), name, level, "", "value", *found, feature=column.feature)

    def _histogram(self, name: str, level: str, cells: ColumnCells) -> ColumnHistogram:
        layout, values = self._plan.layout.batch, self._estimates.values
        count = len(cells.predicates)
        own = [self._plan.layout.predicates[level, "cell", name, place] for place in range(count)]
        places = {predicate: place for place, predicate in enumerate(layout)}
        part = replace(
            self._estimates,
            values=values[[places[each] for each in own]],
            confidence=1.0 - self._failure,
        )
        return cells.histogram(self._plan.schema, part)

    def _missing(self, name: str) -> Figure:
        """What is known of the share of missing cells, over all groups."""
        schema = self._plan.schema
        label = name == label_name(schema)
        part = (
            schema.label
            if label
            else next(each for each in schema.features if name in {group.name for group in each.groups})
        )
        policy = part.policies[0].choice
        upper = {"refuse": lambda: 0.0, "impute": lambda: self._imputed(name), "zero-vector": self._left_out}[policy]()
        return Figure(MISSING, name, "", "", "share", 0.0 if policy == "refuse" else None, 0.0, upper)

    def _left_out(self) -> float:
        counts = [self._sums[level, "rows", "", 0] for level in self._plan.groups.levels]
        reach = self.noise.half_width(len(counts), self._failure)
        return min(max(1.0 - (sum(counts) - reach) / self.most, 0.0), 1.0)

    def _imputed(self, name: str) -> float:
        """The upper end of the share of rows that have the value that replaces missing cells, or share its cell."""
        levels = self._plan.groups.levels
        if name in self._plan.numbers:
            _, cells = self._plan.numbers[name]
            assert isinstance(cells, FeatureCells), "no label is replaced"
            count = len(cells.predicates)
            counts = [sum(self._sums[level, "cell", name, place] for level in levels) for place in range(count)]
            return self._upper(counts, cells.place_of_imputed())
        division = next(each for each in self._plan.divisions if each.name == name)
        counts = [
            sum(self._sums[level, "level", name, place] for level in levels) for place in range(len(division.levels))
        ]
        group = next(each for each in self._plan.schema.groups if each.name == name)
        impute = group.impute
        at = division.levels.index(impute) if isinstance(impute, str) else 0 if impute else 1
        return self._upper(counts, at)

    def _upper(self, counts: Sequence[float], at: int) -> float:
        groups = len(self._plan.groups.levels)
        own = Count(counts[at], groups)
        rest = Count(sum(counts) - counts[at], groups * (len(counts) - 1))
        return interval_on_distribution(own, rest, self.noise, self._failure, self.most).upper


def rows_figure(level: str, count: float, noise: CellNoise, failure: float, most: int) -> Figure:
    """How many rows a group has: of these rows, so over the noise alone."""
    reach = noise.half_width(1, failure)
    low, high = (min(max(end, 0.0), float(most)) for end in (count - reach, count + reach))
    return Figure("rows", "", level, "", "rows", min(max(count, 0.0), float(most)), low, high)


def share_figure(
    quantity: str,
    column: str,
    group: str,
    level: str,
    counts: Sequence[float],
    place: int,
    noise: CellNoise,
    failure: float,
    most: int,
    *,
    measured: bool = True,
) -> Figure:
    """The share of one of the cells that `counts` counts."""
    if not measured:
        return Figure(quantity, column, group, level, "share", None)
    own, rest = Count(counts[place], 1), Count(sum(counts) - counts[place], max(len(counts) - 1, 1))
    total = own.value + rest.value
    if total <= 0.0:
        return Figure(quantity, column, group, level, "share", None)
    found = interval_on_distribution(own, rest, noise, failure, most)
    estimate = min(max(own.value / total, 0.0), 1.0)
    return Figure(quantity, column, group, level, "share", estimate, found.lower, found.upper)


def level_words(level: float) -> str:
    """A quantile's name."""
    return MEDIAN if level == 0.5 else f"quantile {level:g}"
