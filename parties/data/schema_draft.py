"""Drafts a schema from a file, for a person to revise. A draft depends on the data; a schema in use must not.

There is one rule, for `rado schema infer` and for simulations. A number is bounded by two quantiles, and clipped, since
a few far values would otherwise leave the others a small part of the range. A draft refuses no record that it can read:
cells beyond the bounds are clipped, an unlisted text is 0 in every indicator of its category, and any other cell that
cannot be encoded makes its row a zero vector. With `refuse`, one such cell keeps a party from starting, and others see
its absence: the protected record then decides who takes part.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.records.encoding import CellError, Numbers, Texts, in_form
from dpcore.records.features import Missing, close_match
from dpcore.records.schema import BIAS, BooleanFeature, CategoryFeature, Feature, Label, RealFeature, Schema
from dpcore.records.text_forms import DRAFTED_TEXTS, form_of
from radofed.common.printing import listed
from radofed.common.tables.tables import TableSource, no_such_column, numbers, open_table, texts

DRAFT_NAME = "records"
"""The same for every table: the digest covers a schema's name, and parties' files have different names."""
MOST_CATEGORIES = 30

#: The form in which a drafted schema compares texts.
_FORM = form_of(DRAFTED_TEXTS)
#: Largest number of distinct texts that is counted; a column of texts with more is not a category.
_MOST_TEXTS = 1000
#: The quantiles that bound a number.
LOWEST_QUANTILE, HIGHEST_QUANTILE = 0.005, 0.995
#: Quantiles of a column use at most this many values, evenly spaced over the file.
_MOST_VALUES = 1 << 20
#: Texts that mark a missing number.
_MISSING_MARKS = frozenset({"?", "na", "n/a", "nan", "null", "none", "-", "."})
_TRUE = ("1", "yes", "y", "true", "t", "on", "+1", "positive", "pos")


@dataclass
class _Seen:
    """Statistics of one column so far."""

    name: str
    rows: int = 0
    missing: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    overflowed: bool = False
    numeric: bool = True
    infinite: bool = False
    marks: set[str] = field(default_factory=set)
    lowest: float = math.inf
    highest: float = -math.inf
    sample: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    stride: int = 1
    numbers: int = 0
    previous: float | None = None
    consecutive: bool = True
    unreadable: str = ""

    @property
    def present(self) -> int:
        return self.rows - self.missing

    def add(self, array: pa.Array) -> None:
        self.rows += len(array)
        try:
            cells = in_form(texts(array, self.name), _FORM)
        except CellError as error:
            self.unreadable = error.sentence
            return
        self.missing += int((cells.codes < 0).sum())
        self._count(cells)
        if self.numeric:
            self._measure(array, cells)

    def _count(self, cells: Texts) -> None:
        if self.overflowed:
            return
        tallies = np.bincount(cells.codes[cells.codes >= 0], minlength=len(cells.texts))
        for text, count in zip(cells.texts, tallies.tolist(), strict=True):
            if count:
                self.counts[text] += count
        if len(self.counts) > _MOST_TEXTS:
            self.overflowed = True

    def _measure(self, array: pa.Array, cells: Texts) -> None:
        marks = [text for text in cells.texts if text.casefold() in _MISSING_MARKS]
        if marks:
            self.marks.update(marks)
            kept = np.isin(cells.codes, [cells.texts.index(text) for text in marks], invert=True)
            array = pc.filter(array, pa.array(kept))
        read: Numbers = numbers(array, self.name)
        values = read.values[~read.missing]
        if not np.isfinite(values).all():
            self.numeric, self.infinite = False, bool(np.isinf(values).any())
        elif len(values):
            self.lowest, self.highest = min(self.lowest, float(values.min())), max(self.highest, float(values.max()))
            self._keep(values)
            chain = values if self.previous is None else np.concatenate([[self.previous], values])
            self.consecutive = self.consecutive and bool((np.diff(chain) == 1).all())
            self.previous = float(values[-1])

    def _keep(self, values: NDArray[np.float64]) -> None:
        """Keep every stride-th number of the column."""
        self.sample = np.concatenate([self.sample, values[-self.numbers % self.stride :: self.stride]])
        self.numbers += len(values)
        while len(self.sample) > _MOST_VALUES:
            self.sample, self.stride = self.sample[::2], 2 * self.stride


def infer(
    source: TableSource,
    label_column: str | None = None,
    positive: Sequence[str] | None = None,
    *,
    name: str = DRAFT_NAME,
    left_out: str | None = None,
    bounded: Collection[str] = (),
) -> tuple[Schema, list[str]]:
    """Draft a schema called `name` from a table, with notes for the person who revises it.

    A column of numbers becomes a real, bounded by quantiles and clipped, a column with two values a boolean, a column
    with up to 30 texts a category. Constant and empty columns, row numbers and free text are left out, and the column
    `left_out`. bounded: columns of numbers whose bounds will be replaced. Without `label_column` the last column is the
    label; without `positive` the label must have two values.
    Raises DataError for a file that cannot be read, ConfigurationError if no label or no feature can be drafted.
    """
    table = open_table(source)
    named = [column for column in table.columns if column]
    if not named:
        raise table.error("no column has a header; write one")
    notes: list[str] = []
    if label_column is None:
        label_column = named[-1]
        notes.append(f"The draft takes the last column, {label_column!r}, as the label.")
    elif label_column not in named:
        raise no_such_column(table, label_column)
    seen = {column: _Seen(column) for column in named}
    for batch in table.batches(named):
        for column, stats in seen.items():
            stats.add(batch.column(column))
    if not seen[label_column].rows:
        raise table.error("there is a header but no rows; give a table with at least one row")
    label = _label(seen.pop(label_column), positive, notes)
    seen.pop(left_out or "", None)
    features = [feature for stats in seen.values() if (feature := _feature(stats, notes)) is not None]
    if unnamed := len(table.columns) - len(named):
        notes.append(f"{unnamed} column(s) without a header are left out.")
    if not features:
        raise ConfigurationError(
            f"{table.path}: no column besides the label can be a feature; write the schema by hand"
        )
    drafted = [feature.column for feature in features if isinstance(feature, RealFeature)]
    notes.insert(0, _privacy_note([column for column in drafted if column not in bounded], bool(bounded)))
    return Schema(name=name, label=label, features=tuple(features), texts=DRAFTED_TEXTS), notes


def _privacy_note(by_quantiles: Sequence[str], some_are_given: bool) -> str:
    """by_quantiles: columns whose bounds are quantiles of the data."""
    private = "values and imputed values are not private, and no figure counts them."
    agree = "Give every party the same file."
    if not by_quantiles:
        return f"This draft depends on the data: its {private} {agree}"
    whose = f"the bounds of {listed(list(map(repr, by_quantiles)))}" if some_are_given else "its bounds"
    return (
        f"This draft depends on the data: {whose} (0.5 % and 99.5 % quantiles, beyond which numbers are clipped), "
        f"{private} Replace the bounds by limits of the domain that all parties agree on. {agree}"
    )


def _label(seen: _Seen, positive: Sequence[str] | None, notes: list[str]) -> Label:
    if seen.missing:
        notes.append(f"{seen.missing} rows have no label in {seen.name!r}: they become zero vectors.")
    if positive is not None:
        positive = [*map(_FORM, positive)]
        if not seen.overflowed and (absent := [text for text in positive if text not in seen.counts]):
            near = close_match(absent[0], seen.counts)
            hint = "check the values of the column" if near is None else f"did you mean {near!r}?"
            raise ConfigurationError(f"column {seen.name!r} never has the positive value {absent[0]!r}; {hint}")
    elif len(seen.counts) == 2:
        positive = [_true_of(seen, notes)]
    else:
        raise ConfigurationError(
            f"the label's column {seen.name!r} has {'many' if seen.overflowed else len(seen.counts)} different values, "
            "not two; specify which column is the label, and which of its values are positive"
        )
    negative = None if seen.overflowed else [text for text in seen.counts if text not in positive]
    return Label(
        column=seen.name,
        positive=tuple(positive),
        negative=tuple(negative) if negative else None,
        missing="zero-vector",
    )


def _useless(seen: _Seen) -> str | None:
    """Why a column cannot be a feature, or None if it may be one."""
    if seen.unreadable:
        return seen.unreadable
    if len(seen.counts) <= 1 and not seen.overflowed:
        return "it is constant" if seen.counts else "it is empty"
    if seen.numeric and seen.consecutive and seen.present > 2 and seen.highest - seen.lowest == seen.present - 1:
        return "it counts the rows"
    return None


def _feature(seen: _Seen, notes: list[str]) -> Feature | None:
    """The drafted feature of a column, or None with a note if the column is left out."""
    if (reason := _useless(seen)) is not None:
        notes.append(f"{seen.name!r} is left out: {reason}.")
        return None
    marked = sum(seen.counts[mark] for mark in seen.marks)
    different = len(seen.counts)
    missing: Missing = "impute" if seen.missing else "zero-vector"
    name = "".join(" " if ord(character) < 32 or ord(character) == 127 else character for character in seen.name)
    name = f"{name}_column" if name == BIAS else name
    if different == 2 and not marked:
        true = _true_of(seen, notes)
        false = next(text for text in seen.counts if text != true)
        impute = seen.counts[true] >= seen.counts[false] if seen.missing else None
        if impute is not None:
            notes.append(_imputes(seen, true if impute else false))
        return BooleanFeature(
            name=name,
            column=seen.name,
            true=(true,),
            false=(false,),
            missing=missing,
            unknown="zero-vector",
            impute=impute,
        )
    if seen.numeric and seen.lowest < seen.highest:
        return _real(seen, name, notes)
    if different <= MOST_CATEGORIES and not seen.overflowed:
        values = tuple(sorted(seen.counts))
        impute_text = max(values, key=seen.counts.__getitem__) if seen.missing else None
        if impute_text is not None:
            notes.append(_imputes(seen, impute_text))
        return CategoryFeature(
            name=name, column=seen.name, values=values, missing=missing, unknown="zero", impute=impute_text
        )
    if seen.infinite:
        kind = "it has infinite numbers; make them finite, or empty if the value is not known"
    elif not seen.overflowed and different == seen.present:
        kind = "every row has a different text, as an id has"
    else:
        kind = f"it has over {MOST_CATEGORIES} different texts"
    notes.append(f"{seen.name!r} is left out: {kind}.")
    return None


def _imputes(seen: _Seen, text: str) -> str:
    return f"{seen.name!r} has missing cells: the draft imputes the most frequent text, {text!r}; choose a constant."


def _real(seen: _Seen, name: str, notes: list[str]) -> RealFeature:
    lower, upper = map(float, np.quantile(seen.sample, [LOWEST_QUANTILE, HIGHEST_QUANTILE]))
    if not lower < upper:  # nearly constant
        lower, upper = outward(seen.lowest, seen.highest)
    empty = seen.missing > 0 or bool(seen.marks)
    if seen.marks:
        marks = ", ".join(repr(mark) for mark in sorted(seen.marks))
        notes.append(
            f"{seen.name!r} has numbers and {marks}: their rows become zero vectors; make those cells empty to impute."
        )
    median: float | None = None
    missing: Missing = "zero-vector"
    if empty:
        median, missing = min(max(float(np.median(seen.sample)), lower), upper), "impute"
        notes.append(f"{seen.name!r} has missing cells: the draft imputes the median, {median:g}; choose a constant.")
    return RealFeature(
        name=name,
        column=seen.name,
        lower=lower,
        upper=upper,
        missing=missing,
        impute=median,
        out_of_bounds="clip",
        unreadable="zero-vector",
    )


def _true_of(seen: _Seen, notes: list[str]) -> str:
    """The true one of a column's two texts: a common word for true, otherwise the greater text."""
    first, second = sorted(seen.counts, key=lambda text: (text.casefold() in _TRUE, *_order(text)))
    if (first.casefold() in _TRUE) == (second.casefold() in _TRUE):
        notes.append(f"{seen.name!r} has the values {first!r} and {second!r}: {second!r} is taken as true.")
    return second


def _order(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return 0.0, text


def outward(lowest: float, highest: float) -> tuple[float, float]:
    """Bounds at or beyond lowest < highest, rounded outwards to two significant digits of their distance."""
    distance = Decimal(highest) - Decimal(lowest)
    step = Decimal(1).scaleb(distance.adjusted() - 1)
    # Rounding a decimal to a double may move the bound inwards, past the value. Then the value is the bound.
    lower = float((Decimal(lowest) / step).to_integral_value(ROUND_FLOOR) * step)
    upper = float((Decimal(highest) / step).to_integral_value(ROUND_CEILING) * step)
    return min(lower, lowest), max(upper, highest)
