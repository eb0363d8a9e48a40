"""Survival by group: curves with numbers at risk, medians, restricted means, and the log-rank test, in one release.

What is computed is in dpcore.evaluation.life_table.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from dpcore.errors import ConfigurationError, DataError
from dpcore.estimators.hazards import cell_predicates
from dpcore.evaluation.descriptive.divisions import Division, Edges, check_edges, division_of, met
from dpcore.evaluation.descriptive.inquiry import CountsInquiry, Layout, Needed, as_edges
from dpcore.evaluation.descriptive.result import Figure, Result, Table, p_words
from dpcore.evaluation.intervals import CellNoise
from dpcore.evaluation.life_table import LogRank, SurvivalCurve, event_table, log_rank, survival_curve
from dpcore.predicates.expressions import Constant
from dpcore.records.features import EventTime, event_time
from dpcore.records.schema import Schema
from dpcore.statistics.accuracy import Estimates

SURVIVAL, AT_RISK, QUANTILE, RESTRICTED_MEAN = "survival", "at risk", "median", "restricted mean"
LOG_RANK, HAZARD_RATIO = "log-rank", "hazard ratio"


@dataclass(frozen=True, kw_only=True)
class Survival(CountsInquiry):
    """Asks in which interval times end, and how, by group. Raises ConfigurationError if a field is out of range."""

    name: ClassVar[str] = "survival"
    by: str | None = None
    """A column or a predicate that divides the rows into groups; None for all rows together."""
    edges: Edges = field(default_factory=dict)
    """Public edges of the groups, if `by` is a number."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "edges", as_edges(self.edges))

    def groups(self, schema: Schema) -> Division:
        """The groups. Raises ConfigurationError, PredicateError, SchemaError if the label is no time to an event."""
        label = event_time(schema.label, "survival")
        if self.by in (label.column, label.event):
            raise ConfigurationError(f"{self.by!r} is of the label, whose times are estimated: group by another column")
        check_edges(self.edges, [each.name for each in schema.numbers if each.name == self.by])
        if self.by is None:
            return Division("", ("",), (Constant(True),))
        return division_of(schema, self.by, self.edges)

    def layout(self, schema: Schema) -> Layout:
        """See `CountsInquiry`; keys: (group, cell)."""
        groups, cells = self.groups(schema), cell_predicates(_label(schema).borders)
        return Layout(
            {
                (group, cell): each if self.by is None else met(predicate, each)
                for group, predicate in enumerate(groups.predicates)
                for cell, each in enumerate(cells)
            }
        )

    def needed(self, schema: Schema) -> tuple[Needed, ...]:
        """See `CountsInquiry`: a group's rows are a sum over its cells, whose noise adds up."""
        groups = len(self.groups(schema).levels)
        words = f"each of {groups} groups" if groups > 1 else "the group of all rows"
        return (Needed(words, groups, "take fewer groups, or a schema of fewer intervals"),)

    def read(self, schema: Schema, estimates: Estimates) -> Result:
        """See `CountsInquiry`."""
        return _Reader(self, schema, estimates).result()


class _Reader:
    """Reads an answer."""

    def __init__(self, inquiry: Survival, schema: Schema, estimates: Estimates) -> None:
        self._inquiry, self._label = inquiry, _label(schema)
        self._groups, counts = inquiry.groups(schema), inquiry.layout(schema).counts(estimates)
        self._noise, self._most = CellNoise.of(estimates), estimates.most_rows or estimates.rows
        cells = 2 * len(self._label.borders) + 1
        found = {
            level: [counts[group, cell] for cell in range(cells)] for group, level in enumerate(self._groups.levels)
        }
        self._table = event_table((0.0, *self._label.borders), found, self._noise.deviation)
        self._failure = inquiry.failure(len(found) * (len(self._label.borders) + 2) + 1)
        self._curves = {level: survival_curve(self._table, level, self._failure) for level in self._groups.levels}
        self._test, self._untested = self._compared()

    def result(self) -> Result:
        """All figures."""
        return Result(
            inquiry=self._inquiry.name,
            figures=(*self._of_curves(), *self._of_test()),
            rows=self._most,
            confidence=self._inquiry.confidence,
            deviation=self._noise.deviation,
            sentences=(*self._inquiry.meaning(), *self._sentences()),
            tables=(self._summaries(), *map(self._curve_table, self._groups.levels)),
            facts={
                "time": self._label.column,
                "borders": list(self._label.borders),
                "by": self._groups.name or None,
                "groups": list(self._groups.levels),
            },
        )

    def _compared(self) -> tuple[LogRank | None, str]:
        if len(self._groups.levels) < 2:
            return None, ""
        try:
            return log_rank(self._table, self._failure), ""
        except DataError as error:
            return None, str(error)

    def _of_curves(self) -> Iterator[Figure]:
        column = self._label.column
        for group, curve in self._curves.items():
            for place, time in enumerate(self._label.borders):
                level = f"{time:g}"
                if place >= len(curve.times):
                    yield Figure(SURVIVAL, column, group, level, "share", None)
                    continue
                risk, reach = float(curve.at_risk[place]), float(curve.at_risk_half_width[place])
                yield Figure(AT_RISK, column, group, level, "rows", risk, max(risk - reach, 0.0), risk + reach)
                ends = float(curve.lower[place]), float(curve.upper[place])
                yield Figure(SURVIVAL, column, group, level, "share", float(curve.survival[place]), *ends)
            yield self._median(curve, group)
            yield self._mean(curve, group)

    def _median(self, curve: SurvivalCurve, group: str) -> Figure:
        found = curve.quantile()
        if math.isinf(found.lower):
            return Figure(QUANTILE, self._label.column, group, "", "size", None)
        estimate = None if math.isinf(found.value) else found.value
        return Figure(QUANTILE, self._label.column, group, "", "size", estimate, found.lower, found.upper)

    def _mean(self, curve: SurvivalCurve, group: str) -> Figure:
        try:
            found = curve.restricted_mean()
        except DataError:
            return Figure(RESTRICTED_MEAN, self._label.column, group, "", "size", None)
        level = f"{curve.times[-1]:g}"
        return Figure(RESTRICTED_MEAN, self._label.column, group, level, "size", found.value, found.lower, found.upper)

    def _of_test(self) -> Iterator[Figure]:
        if len(self._groups.levels) < 2:
            return
        by = self._groups.name
        if self._test is None:
            yield Figure(LOG_RANK, by, "", "", "ratio", None)
            return
        yield Figure(LOG_RANK, by, "", "", "ratio", self._test.statistic, p_value=self._test.p_value)
        if (ratio := self._test.hazard_ratio) is not None:
            yield Figure(HAZARD_RATIO, by, "", self._ratio_of, "ratio", ratio.value, ratio.lower, ratio.upper)

    @property
    def _ratio_of(self) -> str:
        """Of which group to which the hazard ratio is."""
        return f"{self._groups.levels[1]} to {self._groups.levels[0]}"

    def _sentences(self) -> Iterator[str]:
        yield "Times are known by interval: those who were censored in one count as followed through half of it."
        for group, curve in self._curves.items():
            of_group, last = f" of {group!r}" if group else "", float(curve.times[-1]) if len(curve.times) else 0.0
            if len(curve.times) and math.isinf(curve.quantile().value):
                yield f"The median{of_group} is not reached by {last:g}, where survival is above a half."
            if curve.ends_early:
                yield (
                    f"The curve{of_group} ends at {last:g}: later, the people at risk cannot be told from the noise. "
                    "Ask with a larger epsilon, or for fewer groups or intervals."
                )
        if self._test is not None:
            yield (
                f"Log-rank with noise: {self._test.statistic:.4g}, degrees of freedom {self._test.degrees}, p-value "
                f"{p_words(self._test.p_value)}, over the first {self._test.intervals} intervals."
            )
            ratio = self._test.hazard_ratio
            if self._test.degrees == 1 and ratio is None:
                yield "No hazard ratio is given: its events say too little at this noise."
            elif ratio is not None:
                yield (
                    f"Hazard ratio, {self._ratio_of}: {ratio.value:.4g} ({ratio.lower:.4g} to {ratio.upper:.4g}). It "
                    "is slightly too close to 1: by about 3 % if half of one group's people at risk have the event in "
                    "each interval, and the other group's hazard is half as large."
                )
        elif self._untested:
            yield f"No log-rank test was made: {self._untested}."

    def _summaries(self) -> Table:
        rows = []
        for group, curve in self._curves.items():
            median, mean = self._median(curve, group), self._mean(curve, group)
            up_to = f" (to {mean.level})" if mean.level else ""
            rows.append((group or "all", *median.words, f"{mean.words[0]}{up_to}", mean.words[1]))
        header = (self._groups.name or "rows", "median", "interval", "restricted mean", "interval")
        return Table(f"time to the event: {self._label.column}", header, tuple(rows), (1, 2, 3, 4))

    def _curve_table(self, group: str) -> Table:
        curve, rows = self._curves[group], []
        for place, time in enumerate(curve.times.tolist()):
            survival, lower, upper = (
                f"{100 * float(values[place]):.2f} %" for values in (curve.survival, curve.lower, curve.upper)
            )
            risk, reach = float(curve.at_risk[place]), float(curve.at_risk_half_width[place])
            rows.append((f"{time:g}", f"{risk:.0f} +- {reach:.0f}", survival, f"{lower} to {upper}"))
        title = f"survival of {group}" if group else "survival"
        return Table(title, ("time", "at risk before", "survival", "interval"), tuple(rows), (0, 1, 2, 3))


def _label(schema: Schema) -> EventTime:
    return event_time(schema.label, "survival")
