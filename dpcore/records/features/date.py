"""Days between declared bounds, and on request their year, month of the year and weekday.

A cell is 2024-12-31 (ISO 8601), or a time of that day without a zone, 2024-12-31 23:59. 31.12.2024, 12/31/24 or
20241231 are unreadable, because another reader would take them for other days, and so are times with a zone.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, nan
from typing import Any, ClassVar, Literal, Self

import numpy as np

from dpcore.numbers.fixed_point import Mask
from dpcore.records.features.category import CategoryFeature
from dpcore.records.features.described import (
    MISSING_POLICIES,
    Bound,
    Cells,
    Day,
    DescribedFeature,
    EncodedColumn,
    Floats,
    Limit,
    Missing,
    Numbers,
    OutOfBounds,
    Policy,
    Texts,
    Unreadable,
    Weights,
    as_texts,
    begin,
    for_missing,
    for_unreadable,
    missing_cells,
    on_unreadable,
    require_unreadable,
    unreadable_cells,
)
from dpcore.records.features.real import RealFeature
from dpcore.records.texts import (
    Form,
    SchemaFieldError,
    nearest,
    require_choice,
    require_impute,
    settle,
)

Part = Literal["year", "month", "weekday"]

PARTS: tuple[Part, ...] = ("year", "month", "weekday")
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December")  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MOST_YEARS = 100
"""Of `year`, which has a coordinate for each: more would be of a schema that is written to be large."""

_CELL = re.compile(r"([0-9-]{10})(?:[Tt ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?)?", re.ASCII)
#: A stored value is at most 1/300 of a day before the day that it stands for, at 9,999 years between the bounds.
_ROUNDING = 0.01
#: Of a day, and days, in a bound: more would make a bound of more than 63 bits.
_MOST_PARTS, _MOST_DAYS = 1 << 32, 1 << 24
#: Characters of a cell's form in an error, and forms that are named.
_LONGEST_FORM, _MOST_FORMS = 20, 3


def day_of(text: str) -> Day | None:
    """The day that a cell's text names, as in the module's docstring; None if it names none."""
    found = _CELL.fullmatch(text)
    return None if found is None else Day.of(found[1])


def require_day(field: str, value: object) -> Day:
    """`value`, a text or a date of TOML, whose text is the same, as a day."""
    found = Day.of(value if isinstance(value, str) else str(value))
    if found is None:
        shown = repr(value) if isinstance(value, str | int | float) else repr(str(value))
        raise SchemaFieldError(field, f"{shown} is no date; write year, month and day, such as 2024-12-31")
    return found


@dataclass(frozen=True, kw_only=True)
class Days(RealFeature):
    """The group of coordinates that has the day: a real in days after `since`, which is read and written as a date."""

    comparison_words: ClassVar[str] = (
        'a date feature: compare it with a date, such as "2024-12-31", using >=, >, < or <='
    )
    is_named: ClassVar[bool] = True
    since: Day

    def value(self, limit: Limit) -> float:
        """Days after `since`."""
        day = Day.of(limit) if isinstance(limit, str) else None
        if day is None:
            raise TypeError(f"{limit!r} is no date such as 2024-12-31, as the column's values are")
        return float(day.number - self.since.number)

    def written(self, value: float, digits: int | None = None) -> str:  # noqa: ARG002  (a date has all its digits)
        """The first day that is not before the value, so that "at least" and "below" mean the same of both."""
        days = ceil(value - _ROUNDING)
        try:
            return str(Day(self.since.number + days))
        except ValueError:  # beyond all dates, as the end of a range may be
            return f"{days} days after {self.since}"

    def in_json(self, value: float) -> float | str:
        """The same."""
        return self.written(value)

    def number(self, bound: Bound) -> Fraction:
        """Days after `since`. A whole day has to be written as the date that it is."""
        if isinstance(bound, Day):
            return Fraction(bound.number - self.since.number)
        if bound.denominator == 1:
            raise TypeError("a date feature is compared with dates")
        return bound - self.since.number

    def bound(self, number: Fraction) -> Bound:
        """The date that is so many days after `since`, or a fraction: the grids of estimators may divide days."""
        if number.denominator > _MOST_PARTS or abs(number) > _MOST_DAYS:
            raise ValueError("no date is so far, or divided so finely")
        found = number + self.since.number
        return found if found.denominator != 1 else Day(int(found))

    @property
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """One day, whatever its year, month and weekday."""
        return tuple(("for each day more", weights) for _, weights in super().changes)


_CELL_RULES = (
    (
        "a date is written 2024-12-31, and a time after it is ignored: its value is the number of days after "
        "`since`, its bounds are first and last; its groups add up, the others being of its year, month or weekday"
    ),
)


@dataclass(frozen=True, kw_only=True)
class DateFeature(DescribedFeature):
    """A day from `first` to `last`, texts as 2024-12-31, encoded as a real feature with these bounds in days."""

    type: ClassVar[str] = "date"
    reals: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[Literal["numbers", "texts"]] = "texts"
    replaces_column: ClassVar[bool] = False
    name: str
    column: str = ""
    first: str
    last: str
    since: str = ""
    """From where days are counted in exported models; `first` if it is empty. No coordinate depends on it."""
    parts: tuple[Part, ...] = ()
    """What is encoded beside the day: an indicator for each year, month of the year, or weekday."""
    missing: Missing = "refuse"
    impute: str | None = None
    out_of_bounds: OutOfBounds = "refuse"
    unreadable: Unreadable | None = None

    def __post_init__(self) -> None:
        path = begin(self)
        first, last = require_day(f"{path}.first", self.first), require_day(f"{path}.last", self.last)
        if first >= last:
            raise SchemaFieldError(f"{path}.first", f"{first} is not before last = {last}; write first < last")
        since = require_day(f"{path}.since", self.since or first)
        require_choice(f"{path}.missing", self.missing, MISSING_POLICIES)
        require_choice(f"{path}.out_of_bounds", self.out_of_bounds, ("refuse", "clip", "zero-vector"))
        require_unreadable(path, self.unreadable)
        require_impute(f"{path}.impute", self.impute, (self.missing, self.unreadable))
        if self.impute is not None:
            impute = require_day(f"{path}.impute", self.impute)
            if not first <= impute <= last:
                raise SchemaFieldError(f"{path}.impute", "is outside the bounds; choose a date within them")
            settle(self, impute=str(impute))
        parts = _require_parts(f"{path}.parts", self.parts)
        if "year" in parts and len(_years(first, last)) > MOST_YEARS:
            sentence = f"has a coordinate for each year, at most {MOST_YEARS}; bring first and last closer"
            raise SchemaFieldError(f"{path}.parts", f'"year" {sentence}, or leave it out')
        settle(self, first=str(first), last=str(last), since=str(since), parts=parts)

    def with_bounds(self, lower: Limit, upper: Limit) -> Self:
        """The feature with these bounds, from the first of which days are counted."""
        for limit in (lower, upper):
            self.days.value(limit)
        first, last = str(lower), str(upper)
        # Texts of dates have the order of the dates.
        impute = None if self.impute is None else min(max(self.impute, first), last)
        return replace(self, first=first, last=last, since=first, impute=impute)

    @property
    def cell_rules(self) -> tuple[str, ...]:
        """How a day is read."""
        return _CELL_RULES

    @property
    def version(self) -> int:
        """The first version that has dates."""
        return 3

    @property
    def versioned_key(self) -> str:
        """The type itself."""
        return "type"

    @cached_property
    def days(self) -> Days:
        """The group that has the day."""
        since = require_day("since", self.since)

        def after(text: str) -> float:
            return float(require_day("date", text).number - since.number)

        return Days(
            name=self.name,
            column=self.column,
            lower=after(self.first),
            upper=after(self.last),
            missing=self.missing,
            impute=None if self.impute is None else after(self.impute),
            out_of_bounds=self.out_of_bounds,
            unreadable=self.unreadable,
            since=since,
        )

    @cached_property
    def groups(self) -> tuple[Days | CategoryFeature, ...]:
        """The day, then a category for each part: a date has one year, one month and one weekday."""
        years = _years(*(require_day("bounds", text) for text in (self.first, self.last)))
        values = {"year": tuple(map(str, years)), "month": MONTHS, "weekday": WEEKDAYS}
        parts = (
            CategoryFeature(name=f"{self.name}.{part}", column=self.column, values=values[part]) for part in self.parts
        )
        return self.days, *parts

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, for those that are no date, and for those outside of the bounds."""
        return (
            for_missing(self.missing),
            for_unreadable(self.on_unreadable, "date such as 2024-12-31"),
            Policy("out_of_bounds", self.out_of_bounds, "beyond", "beyond the schema's bounds"),
        )

    @property
    def imputed_text(self) -> str:
        """The date."""
        return self.impute or ""

    @property
    def on_unreadable(self) -> Unreadable:
        """What happens to a cell that is no date."""
        return on_unreadable(self.missing, self.unreadable)

    def encode(self, cells: Cells, form: Form) -> EncodedColumn:
        """The day, linear between the bounds, then each part; a clipped date counts as the bound in its parts too."""
        read = as_texts(self.column, cells)
        found = map(day_of, read.texts)
        days = np.array([*(nan if day is None else day.number for day in found), nan])[read.codes]
        days -= self.days.since.number
        absent = read.codes < 0
        unreadable = np.isnan(days) & ~absent
        missing_cells(self.column, self.missing, absent)
        if unreadable.any():
            unreadable_cells(self.column, self.on_unreadable, unreadable, _no_dates(read, unreadable))
        encoded = self.days.encode(Numbers(days, absent), form)
        day = np.asarray(encoded.values, dtype=np.float64)
        values: Floats = np.column_stack([day, *self._parts_of(day)])
        return EncodedColumn(values, encoded.tally, encoded.dropped)

    def _parts_of(self, scaled: Floats) -> list[Floats]:
        """The indicators of each part, from the day's coordinate, which is exact to far less than a day."""
        span = self.days.upper - self.days.lower
        day = np.datetime64(self.first) + np.rint((scaled + 1.0) / 2.0 * span).astype(np.int64)
        month = day.astype("datetime64[M]").astype(np.int64)
        # The first of January 1970 was a Thursday.
        places = {
            "year": month // 12 + 1970 - int(self.first[:4]),
            "month": month % 12,
            "weekday": (day.astype(np.int64) + 3) % 7,
        }
        return [
            np.eye(len(group.coordinates))[places[part]]
            for part, group in zip(self.parts, self.groups[1:], strict=True)
        ]


def _years(first: Day, last: Day) -> range:
    return range(int(str(first)[:4]), int(str(last)[:4]) + 1)


def _require_parts(field: str, parts: Any) -> tuple[Part, ...]:
    """Known parts, each once, in their usual order, which does not depend on how a schema lists them."""
    if not isinstance(parts, list | tuple):
        raise SchemaFieldError(field, f"{parts!r} is not a list; write one, such as {list(PARTS)}")
    for part in parts:
        if part not in PARTS:
            raise SchemaFieldError(field, f"{part!r} is not one of {', '.join(PARTS)}; {nearest(str(part), PARTS)}")
        if parts.count(part) > 1:
            raise SchemaFieldError(field, f"{part!r} is in the list twice; remove one")
    return tuple(part for part in PARTS if part in parts)


def _no_dates(cells: Texts, unreadable: Mask) -> str:
    """What is wrong with cells that are no dates: how many, and their form, 9 for digits and a for letters."""
    forms: Counter[str] = Counter()
    for code, count in Counter(cells.codes[unreadable].tolist()).items():
        forms[written_form(cells.texts[code])] += count
    said = ", ".join(f"{form} ({count})" for form, count in forms.most_common(_MOST_FORMS))
    more = f" and {len(forms) - _MOST_FORMS} other forms" if len(forms) > _MOST_FORMS else ""
    return (
        "is not a date; write year, month and day, such as 2024-12-31, leave the cell empty if it is not known, or set "
        'unreadable = "impute" or "zero-vector" for the feature. Cells without a date among the rows that were read '
        f"with it, by form: {said}{more}"
    )


def written_form(text: str) -> str:
    """How a cell is written: 9 for a digit, a for a letter, its signs, and ? for what is none of them."""
    kinds = ["9" if c.isdigit() else "a" if c.isalpha() else c if " " <= c <= "~" else "?" for c in text]
    return "".join(kinds[:_LONGEST_FORM]) + "..." * (len(kinds) > _LONGEST_FORM)
