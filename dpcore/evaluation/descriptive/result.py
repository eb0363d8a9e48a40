"""What an inquiry found: figures, each with its interval."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from dpcore.data_frames import load_pandas
from dpcore.errors import ConfigurationError
from dpcore.queries.statement import PrivacyStatement
from dpcore.records.features import RealFeature
from dpcore.records.texts import nearest

Kind = Literal["rows", "share", "value", "size", "ratio", "points"]
"""How a figure is written: rows; a share in percent; a value or a size in the column's units, such as a mean or a
standard deviation; a plain number, such as an odds ratio; a difference of shares, in percentage points."""

_NOT_MEASURED = "not measured"
_MOST_LISTED = 12


@dataclass(frozen=True)
class Figure:
    """One figure."""

    quantity: str
    """Such as "mean", "share" or "median"."""
    column: str
    group: str
    """The group of rows; empty for all."""
    level: str
    """The column's level that it is about; empty for a figure of the whole column."""
    kind: Kind
    estimate: float | None
    """None if its rows cannot be told from none, or it cannot be told from a constant."""
    lower: float | None = None
    upper: float | None = None
    """Of the interval; both None if there is none, one is infinite if it is open on that side."""
    p_value: float | None = None
    """Of a test that nothing differs or depends; None if none was made."""
    feature: RealFeature | None = field(default=None, repr=False)
    """The number that a value or a size is of."""

    @property
    def half_width(self) -> float | None:
        """Half the length of the interval."""
        return None if self.lower is None or self.upper is None else (self.upper - self.lower) / 2.0

    def written(self, value: float) -> str:
        """A value of this figure for people."""
        if not math.isfinite(value):
            return "no limit"
        if self.kind == "value" and self.feature is not None:
            return self.feature.written(value, 6)
        if self.kind in ("share", "points"):
            return f"{100 * value:.2f} %" if self.kind == "share" else f"{100 * value:+.2f}"
        return f"{value:{'.0f' if self.kind == 'rows' else '.5g' if self.kind == 'size' else '.4g'}}"

    @property
    def words(self) -> tuple[str, str]:
        """The estimate and the interval."""
        interval = ""
        if self.lower is not None and self.upper is not None:
            interval = f"{self.written(self.lower)} to {self.written(self.upper)}"
        return _NOT_MEASURED if self.estimate is None else self.written(self.estimate), interval

    def to_dict(self) -> dict[str, Any]:
        """For JSON: dates as texts, an end without a limit as null."""

        def plain(value: float | None) -> float | str | None:
            if value is None or not math.isfinite(value):
                return None
            return value if self.feature is None or self.kind != "value" else self.feature.in_json(value)

        ends = {"estimate": plain(self.estimate), "lower": plain(self.lower), "upper": plain(self.upper)}
        names = {"column": self.column, "group": self.group, "level": self.level, "quantity": self.quantity}
        return {**names, **ends, "p_value": self.p_value}


@dataclass(frozen=True)
class Table:
    """A table for people."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[int, ...]
    """The columns that end at the right."""


@dataclass(frozen=True, eq=False)
class Result:
    """The figures of one inquiry. It is text, a dictionary, or a table of pandas."""

    inquiry: str
    """Its name, such as "describe" or "survival"."""
    figures: tuple[Figure, ...]
    rows: int
    """What parties state, usable or not."""
    confidence: float
    deviation: float
    """The standard deviation of the noise on each count, in rows; of moments, the largest on a sum of products."""
    sentences: tuple[str, ...]
    """What the figures are, hold for and assume."""
    tables: tuple[Table, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else is in the dictionary."""
    privacy: PrivacyStatement | None = None
    """Of the release that answered it; None if there is none, as without noise."""

    def one(self, quantity: str, column: str | None = None, *, group: str = "", level: str | None = None) -> Figure:
        """The figure of this quantity. Raises ConfigurationError unless there is exactly one.

        group: without one it is the figure of all rows, or of the only group that has such a figure.
        """
        alike = [
            each
            for each in self.figures
            if each.quantity == quantity and column in (None, each.column) and level in (None, each.level)
        ]
        found = [each for each in alike if each.group == group] or ([] if group else alike)
        if len(found) != 1:
            raise ConfigurationError(self._not_one(quantity, len(found)))
        return found[0]

    def _not_one(self, quantity: str, found: int) -> str:
        """Why there is not exactly one figure, and what there is."""
        named = [each for each in self.figures if each.quantity == quantity]
        if not named:
            return f"there is no {quantity!r} here; {nearest(quantity, (each.quantity for each in self.figures))}"
        many = f"{found} figures of {quantity!r} fit" if found else f"no figure of {quantity!r} fits"
        ways = {
            "column": dict.fromkeys(each.column for each in named if each.column),
            "group": dict.fromkeys(each.group for each in named if each.group),
            "level": dict.fromkeys(each.level for each in named if each.level is not None),
        }
        known = "; ".join(f"{name}: {_listed(values)}" for name, values in ways.items() if values)
        return f"{many}: {f'choose one by its {known}' if known else 'leave its column, group and level out'}"

    def with_privacy(self, statement: PrivacyStatement) -> Self:
        """The same with the statement of the release that answered it."""
        return replace(self, privacy=statement)

    @property
    def text(self) -> str:
        """The tables and the sentences."""
        lines: list[str] = []
        for table in self.tables:
            lines += [table.title, *_aligned(table), ""]
        privacy = [] if self.privacy is None else self.privacy.short_sentences()
        return "\n".join([*lines, *self.sentences, *privacy])

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "inquiry": self.inquiry,
            "rows": self.rows,
            "confidence": self.confidence,
            "deviation": self.deviation,
            **self.facts,
            "figures": [each.to_dict() for each in self.figures],
            "sentences": list(self.sentences),
            "privacy": None if self.privacy is None else self.privacy.to_dict(),
        }

    def to_columns(self) -> dict[str, list[Any]]:
        """A list for each column of `to_pandas`, for other frames and R's as.data.frame: NaN in place of None.

        Estimates and ends are texts if one of them is a date.
        """
        rows = [each.to_dict() for each in self.figures]
        found = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        for name in ("estimate", "lower", "upper", "p_value"):
            values = [math.nan if value is None else value for value in found.get(name, ())]
            dated = any(isinstance(value, str) for value in values)
            found[name] = [str(value) if dated else float(value) for value in values]
        return found

    def to_pandas(self) -> Any:
        """A data frame with one row for each figure. Raises ConfigurationError if pandas is not installed."""
        return load_pandas("to_dict()").DataFrame([each.to_dict() for each in self.figures])


def tables_by_column(figures: Sequence[Figure]) -> tuple[Table, ...]:
    """A table of each column's figures, in order."""
    tables = []
    for column in dict.fromkeys(each.column for each in figures):
        own = [each for each in figures if each.column == column]
        grouped = any(each.group for each in own)
        rows = []
        for each in own:
            what = each.quantity if not each.level else f"{each.quantity} of {each.level}"
            tested = () if all(other.p_value is None for other in own) else (p_words(each.p_value),)
            rows.append((*((each.group,) if grouped else ()), what, *each.words, *tested))
        header = (*(("group",) if grouped else ()), "quantity", "estimate", "interval")
        first = len(header) - 2
        if rows and len(rows[0]) > len(header):
            header = (*header, "p-value")
        tables.append(Table(column or "all", header, tuple(rows), (first, first + 1)))
    return tuple(tables)


def p_words(value: float | None) -> str:
    """A p-value for people; small ones as a bound."""
    if value is None:
        return ""
    return "below 0.0001" if value < 1e-4 else f"{value:.4f}"


def _aligned(table: Table) -> list[str]:
    cells = (table.header, *table.rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in table.numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _listed(names: Collection[str]) -> str:
    """The first names, for an error."""
    return ", ".join([*map(repr, list(names)[:_MOST_LISTED]), *["..."] * (len(names) > _MOST_LISTED)])
