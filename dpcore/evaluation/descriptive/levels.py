"""The frequent levels of a column of codes, found among public candidates by one histogram.

The candidates are the values that the schema lists, for its label or for a category: all codes of a public list, or all
first characters that codes can have. Each is a predicate, and no two hold of one row, so a row that is replaced moves
two counts by 1, however many candidates there are.

With k candidates, let w be what the noise on no count exceeds, with probability 1 - b for all k together: each exceeds
it with probability b / k at most. A candidate is listed if its noisy count is above T >= w. Then, with probability
1 - b,

- every listed candidate has at least T - w rows, and more than none;
- every candidate with more than T + w rows is listed.

What rows have that is no candidate cannot be found: parties send sums of a length that is known before they look. It is
counted as the rest.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, assert_never

from dpcore.errors import ConfigurationError, PlanError
from dpcore.evaluation.descriptive.divisions import label_name
from dpcore.evaluation.descriptive.inquiry import CountsInquiry, Layout, Needed
from dpcore.evaluation.descriptive.result import Figure, Result, Table
from dpcore.evaluation.intervals import CellNoise
from dpcore.numbers.rationals import upper
from dpcore.predicates.expressions import Equals, LabelClass
from dpcore.records.features import CategoryFeature, Classes, Missing, nearest
from dpcore.records.schema import Schema, feature_lines, label_lines
from dpcore.statistics.accuracy import Estimates

ROWS, OTHERS = "rows", "no listed level"


@dataclass(frozen=True, kw_only=True)
class Levels(CountsInquiry):
    """Counts the candidates of a column, and lists the frequent ones. Raises ConfigurationError."""

    name: ClassVar[str] = "levels"
    column: str | None = None
    """The label's column or a category; None for the label."""
    at_least: int = 0
    """T, in rows; what the noise on no count exceeds, if that is more."""
    extend: tuple[str, ...] = ()
    """What may follow a level: candidates of the next question are each listed level with each of these."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at_least < 0:
            raise ConfigurationError(f"at_least is {self.at_least}: give a number of rows, or leave it out")
        if len(set(self.extend)) < len(self.extend) or "" in self.extend:
            raise ConfigurationError("extend has a text twice, or an empty one: give different texts")

    def listed(self, schema: Schema) -> Classes | CategoryFeature:
        """What lists the candidates. Raises ConfigurationError if the column lists none."""
        if self.column in (None, schema.label.column, label_name(schema)) and isinstance(schema.label, Classes):
            return schema.label
        categories = {each.name: each for each in schema.categories}
        if self.column in categories:
            return categories[self.column]
        words = "the label" if self.column is None else repr(self.column)
        raise ConfigurationError(
            f'{words} lists no candidates: name a category, or take a schema whose label has type = "classes" and '
            f"lists them; {nearest(self.column or '', (*categories, label_name(schema)))}"
        )

    def layout(self, schema: Schema) -> Layout:
        """See `CountsInquiry`; keys: values."""
        found = self.listed(schema)
        if isinstance(found, Classes):
            return Layout({value: LabelClass(value) for value in found.values})
        return Layout({value: Equals(found.name, value) for value in found.values})

    def needed(self, schema: Schema) -> tuple[Needed, ...]:
        """See `CountsInquiry`: nothing is needed of each candidate, most of which no row has."""
        del schema
        return ()

    def reach(self, schema: Schema, noise: CellNoise) -> float:
        """w, in rows."""
        return noise.half_width(1, (1.0 - self.confidence) / len(self.listed(schema).values))

    def check_measurable(self, schema: Schema, noise: CellNoise, rows: int, epsilon: float) -> None:
        """Raise PlanError if no level could be told from the noise, or if T is within it."""
        reach = self.reach(schema, noise)
        least = self.at_least or rows
        if least and least < reach:
            enough = float(f"{1.05 * epsilon * reach / least:.2g}")
            what = f"levels of {least} rows" if self.at_least else f"a level of all {rows} rows"
            raise PlanError(
                f"the noise on {len(self.listed(schema).values)} counts reaches {upper(reach, 0)} rows, so that {what} "
                f"cannot be told from none: ask with an epsilon of about {enough:g}, or for levels of more rows"
            )

    def promises(self, schema: Schema, noise: CellNoise) -> tuple[str, ...]:
        """See `CountsInquiry`."""
        reach = self.reach(schema, noise)
        return self._promise(reach, max(float(self.at_least), reach), len(self.listed(schema).values))

    def _promise(self, reach: float, threshold: float, candidates: int) -> tuple[str, ...]:
        least, percent = math.floor(threshold - reach), f"{100 * self.confidence:g} %"
        told = f"at least {least} rows" if least > 1 else "at least one row"
        rule = f"A level is listed if its count with noise is above {upper(threshold, 1)}."
        together = f"With probability {percent} over the noise, for all {candidates} candidates together"
        every = f"each with more than {upper(threshold + reach, 1)} rows is listed"
        return (rule, f"{together}, each listed level has {told}, and {every}.")

    def read(self, schema: Schema, estimates: Estimates) -> Result:
        """See `CountsInquiry`."""
        listed, noise = self.listed(schema), CellNoise.of(estimates)
        counts, rows = self.layout(schema).counts(estimates), estimates.most_rows or estimates.rows
        reach = self.reach(schema, noise)
        threshold = max(float(self.at_least), reach)
        chosen = sorted((value for value in listed.values if counts[value] > threshold), key=lambda v: -counts[v])
        column, figures = listed.column, []
        for value in chosen:
            count = counts[value]
            figures.append(Figure(ROWS, column, "", value, "rows", count, max(count - reach, 0.0), count + reach))
        found = sum(counts[value] for value in chosen)
        of_rest = noise.half_width(max(len(chosen), 1), 1.0 - self.confidence) if chosen else 0.0
        rest = rows - found
        ends = max(rest - of_rest, 0.0), max(rest + of_rest, 0.0)
        figures.append(Figure(ROWS, column, "", OTHERS, "rows", max(rest, 0.0), *ends))
        piece = _piece(listed, chosen)
        following = tuple(self._next(listed, chosen))
        return Result(
            inquiry=self.name,
            figures=tuple(figures),
            rows=rows,
            confidence=self.confidence,
            deviation=noise.deviation,
            sentences=(
                *self._promise(reach, threshold, len(listed.values)),
                *self._words(len(chosen), piece, following),
            ),
            tables=(_table(column, figures),),
            facts={
                "column": column,
                "candidates": len(listed.values),
                "threshold": threshold,
                "reach": reach,
                "levels": chosen,
                "schema": "\n".join(piece),
                "next": "\n".join(following),
            },
        )

    def _next(self, listed: Classes | CategoryFeature, chosen: list[str]) -> Iterator[str]:
        """The label whose candidates are longer."""
        longer = [f"{value}{more}" for value in chosen for more in self.extend]
        if len(longer) < 2:
            return
        prefix = max(map(len, longer))
        label = Classes(
            column=listed.column, values=tuple(longer), prefix=prefix, missing="zero-vector", unlisted="zero-vector"
        )
        yield from label_lines(label, f"{listed.column} of {prefix} characters")

    def _words(self, chosen: int, piece: list[str], following: tuple[str, ...]) -> Iterator[str]:
        yield (
            f"The others are the rows of all parties less those of the {chosen} listed levels: rows with other texts, "
            "with rarer ones, and rows that are not usable."
        )
        if piece:
            yield "A piece of a schema, on which all parties have to agree:"
            yield from piece
        else:
            yield "No level has so many rows: ask with a larger epsilon, or take shorter prefixes."
        if following:
            yield "The label of the next question, with longer candidates:"
            yield from following


def _piece(listed: Classes | CategoryFeature, chosen: list[str]) -> list[str]:
    """The lines of a category with these values, in the candidates' order; none without any."""
    if not chosen:
        return []
    values = tuple(value for value in listed.values if value in set(chosen))
    match listed:
        case CategoryFeature():
            # A value that is imputed may be rare.
            is_imputed = listed.missing == "impute" and listed.impute in values
            missing: Missing = "zero-vector" if listed.missing == "impute" and not is_imputed else listed.missing
            impute = listed.impute if is_imputed else None
            return feature_lines(replace(listed, values=values, unknown="zero", missing=missing, impute=impute))
        case Classes():
            own: dict[str, Any] = {"name": listed.column, "column": listed.column, "prefix": listed.prefix}
            return feature_lines(CategoryFeature(**own, values=values, missing="zero-vector", unknown="zero"))
        case _:
            assert_never(listed)


def _table(column: str, figures: list[Figure]) -> Table:
    rows = tuple((each.level, *each.words) for each in figures)
    return Table(f"levels of {column}", ("level", "rows", "interval"), rows, (1, 2))
