"""A table of two columns: counts and shares with intervals, a test of independence, and an odds ratio of 2 x 2."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpcore.errors import ConfigurationError
from dpcore.evaluation.descriptive.description import share_figure
from dpcore.evaluation.descriptive.divisions import Division, Edges, check_edges, divided_names, division_of, met
from dpcore.evaluation.descriptive.independence import independence
from dpcore.evaluation.descriptive.inquiry import CountsInquiry, Layout, Needed, as_edges
from dpcore.evaluation.descriptive.result import Figure, Result, Table, p_words
from dpcore.evaluation.descriptive.spread import Range, difference
from dpcore.evaluation.intervals import CellNoise, Count, interval_on_distribution
from dpcore.numbers.fixed_point import Matrix
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

ROWS, OF_ALL, OF_ROW, OF_COLUMN = "rows", "share of all", "share of the row", "share of the column"
CHI_SQUARE, ODDS_RATIO = "chi-square", "odds ratio"


@dataclass(frozen=True, kw_only=True)
class Crosstab(CountsInquiry):
    """Asks for a table of two divisions of the rows. Raises ConfigurationError if a field is out of range."""

    name: ClassVar[str] = "crosstab"
    down: str
    """A column or a predicate, whose levels are the table's rows."""
    across: str
    """Another, whose levels are the table's columns."""
    edges: Edges = field(default_factory=dict)
    """Public edges of numbers, by column."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "edges", as_edges(self.edges))
        if self.down == self.across:
            raise ConfigurationError(f"{self.down!r} is given twice: give two different columns")

    def divisions(self, schema: Schema) -> tuple[Division, Division]:
        """Both. Raises ConfigurationError, PredicateError."""
        check_edges(self.edges, divided_names(schema, (self.down, self.across)))
        first, second = (division_of(schema, text, self.edges) for text in (self.down, self.across))
        for each in (first, second):
            if len(each.levels) < 2:
                raise ConfigurationError(
                    f"{each.name!r} has one level, so nothing can depend on it: give another column"
                )
        return first, second

    def layout(self, schema: Schema) -> Layout:
        """See `CountsInquiry`."""
        down, across = self.divisions(schema)
        return Layout(
            {
                (row, column): met(first, second)
                for row, first in enumerate(down.predicates)
                for column, second in enumerate(across.predicates)
            }
        )

    def needed(self, schema: Schema) -> tuple[Needed, ...]:
        """See `CountsInquiry`."""
        down, across = self.divisions(schema)
        cells = len(down.levels) * len(across.levels)
        words = f"each of the {cells} cells of {down.name!r} and {across.name!r}"
        return (Needed(words, cells, "take fewer ranges or columns of fewer levels"),)

    def read(self, schema: Schema, estimates: Estimates) -> Result:
        """See `CountsInquiry`."""
        down, across = self.divisions(schema)
        counts = np.array(list(self.layout(schema).counts(estimates).values()))
        shape = len(down.levels), len(across.levels)
        reader = _Reader(self, down, across, counts.reshape(shape), estimates)
        return Result(
            inquiry=self.name,
            figures=(*reader.figures, *reader.tests),
            rows=reader.most,
            confidence=self.confidence,
            deviation=reader.noise.deviation,
            sentences=(*self.meaning(), *reader.sentences()),
            tables=reader.tables(),
            facts={"down": {"name": down.name, "levels": list(down.levels)},
                   "across": {"name": across.name, "levels": list(across.levels)}},
        )  # fmt: skip


class _Reader:
    """Reads an answer."""

    def __init__(
        self, inquiry: Crosstab, down: Division, across: Division, counts: Matrix, estimates: Estimates
    ) -> None:
        self._down, self._across, self._counts = down, across, counts
        self.noise, self.most = CellNoise.of(estimates), estimates.most_rows or estimates.rows
        rows, columns = counts.shape
        self._failure = inquiry.failure((rows + 1) * (columns + 1) + 3 * rows * columns + 1)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """Counts, then shares."""
        return (*self._rows(), *self._shares())

    def _rows(self) -> Iterator[Figure]:
        rows, columns = self._counts.shape
        ends = (*self._down.levels, ""), (*self._across.levels, "")
        for row, group in enumerate(ends[0]):
            for column, level in enumerate(ends[1]):
                own = self._counts[row if row < rows else slice(None), column if column < columns else slice(None)]
                count, reach = float(np.sum(own)), self.noise.half_width(int(np.size(own)), self._failure)
                estimate, low, high = (
                    min(max(each, 0.0), float(self.most)) for each in (count, count - reach, count + reach)
                )
                yield Figure(ROWS, self._across.name, group, level, "rows", estimate, low, high)

    def _shares(self) -> Iterator[Figure]:
        flat = self._counts.ravel().tolist()
        for row, group in enumerate(self._down.levels):
            for column, level in enumerate(self._across.levels):
                places = {
                    OF_ALL: (flat, row * len(self._across.levels) + column),
                    OF_ROW: (self._counts[row].tolist(), column),
                    OF_COLUMN: (self._counts[:, column].tolist(), row),
                }
                for quantity, (counts, place) in places.items():
                    yield share_figure(
                        quantity, self._across.name, group, level, counts, place, self.noise, self._failure, self.most
                    )

    @cached_property
    def tests(self) -> tuple[Figure, ...]:
        """The chi-square, and the odds ratio of a 2 x 2 table."""
        names = f"{self._down.name}, {self._across.name}"
        found = independence(self._counts, self.noise)
        statistic, p_value = (None, None) if found is None else (found.statistic, found.p_value)
        tests = [Figure(CHI_SQUARE, names, "", "", "ratio", statistic, p_value=p_value)]
        if self._counts.shape == (2, 2):
            estimate, (low, high) = odds_ratio(self._counts, self.noise, self._failure, self.most)
            words = f"{self._across.levels[0]}, {self._down.levels[0]} to {self._down.levels[1]}"
            tests.append(Figure(ODDS_RATIO, names, "", words, "ratio", estimate, low, high))
        return tuple(tests)

    def sentences(self) -> Iterator[str]:
        """What the test and the odds ratio say."""
        chi, *odds = self.tests
        if chi.estimate is None:
            yield "No test of independence was made: the rows cannot be told from none."
        else:
            rows, columns = self._counts.shape
            yield (
                f"Chi-square with noise: {chi.estimate:.4g}, {(rows - 1) * (columns - 1)} degrees of freedom, p-value "
                f"{p_words(chi.p_value)}, by tables that are made up as if both were independent, with the noise."
            )
        for each in odds:
            yield (
                f"Odds ratio of {each.level}: {', '.join(filter(None, each.words))}. It is 1 if they are independent."
            )
        yield "No cell is left out: a small count is shown with its interval, which may begin at 0."

    def tables(self) -> tuple[Table, ...]:
        """Of each quantity, a table."""
        by_place = {(each.quantity, each.group, each.level): each for each in self.figures}
        tables = []
        for quantity in (ROWS, OF_ALL, OF_ROW, OF_COLUMN):
            total = ("",) if quantity == ROWS else ()
            across, down = (*self._across.levels, *total), (*self._down.levels, *total)
            rows = tuple(
                (group or "total", *(_cell(by_place[quantity, group, level]) for level in across)) for group in down
            )
            title = f"{quantity}: {self._down.name} by {self._across.name}"
            header = (self._down.name, *(level or "total" for level in across))
            tables.append(Table(title, header, rows, tuple(range(1, len(header)))))
        return tuple(tables)


def _cell(figure: Figure) -> str:
    estimate, interval = figure.words
    return f"{estimate} ({interval})" if interval else estimate


def odds_ratio(counts: Matrix, noise: CellNoise, failure: float, most: int) -> tuple[float | None, Range]:
    """The odds of the first column in the first row, over those in the second, with an interval.

    The rows have independent noise and, given their sizes, independent samples: intervals for their log odds are
    combined by `difference`. If one has no estimate, each is used to its end, with half of the failure (a union bound).
    """
    logs: list[float | None] = []
    for row in counts.tolist():
        share = min(max(row[0] / sum(row), 0.0), 1.0) if sum(row) > 0.0 else 0.0
        logs.append(_log_odds(share) if 0.0 < share < 1.0 else None)
    first, second = logs
    sure = first is not None and second is not None
    intervals = []
    for row in counts.tolist():
        own = interval_on_distribution(
            Count(row[0], 1), Count(row[1], 1), noise, failure if sure else failure / 2, most
        )
        intervals.append((_log_odds(own.lower), _log_odds(own.upper)))
    if first is None or second is None:
        low, high = intervals[0][0] - intervals[1][1], intervals[0][1] - intervals[1][0]
        return None, (math.exp(low), _exp(high))
    low, high = difference(first, intervals[0], second, intervals[1])
    return math.exp(first - second), (math.exp(low), _exp(high))


def _log_odds(share: float) -> float:
    if share <= 0.0:
        return -math.inf
    return math.inf if share >= 1.0 else math.log(share / (1.0 - share))


def _exp(value: float) -> float:
    return math.inf if value > 700.0 else math.exp(value)
