"""Drafts a schema from a file, for a person to revise. A draft depends on the data; a schema in use must not.

There is one rule, for `rado schema infer` and for simulations. A number is bounded by two quantiles, and clipped, since
a few far values would otherwise leave the others a small part of the range. A draft refuses no record that it can read:
cells beyond the bounds are clipped, an unlisted text is 0 in every indicator of its category, and any other cell that
cannot be encoded makes its row a zero vector. With `refuse`, one such cell keeps a party from starting, and others see
its absence: the protected record then decides who takes part.
"""

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

from dpcore.errors import ConfigurationError
from dpcore.records.features import Day, Feature, Limit, close_match
from dpcore.records.schema import Schema
from dpcore.records.texts import DRAFTED_TEXTS
from parties.data.draft_columns import Seen
from parties.data.draft_features import draft_feature
from parties.data.draft_label import draft_label
from radobase.printing import amount, listed
from radobase.tables.tables import Table, TableSource, no_such_column, open_table

DRAFT_NAME = "records"
"""The same for every table: the digest covers a schema's name, and parties' files have different names."""


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

    A column of numbers becomes a real, bounded by quantiles and clipped, one of dates a date, bounded by the months of
    quantiles, a column with two values a boolean, one with up to 30 texts a category. Others are left out with a note,
    such as ids and free text, and so is the column `left_out`. bounded: columns whose bounds will be replaced. Without
    `label_column` the last column is the label; without `positive` the label must have two values.
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
    seen = _read(table, named)
    label = draft_label(seen.pop(label_column), positive, notes)
    seen.pop(left_out or "", None)
    before = len(notes)
    features = [feature for one in seen.values() if (feature := _feature(table, one, notes, bounded)) is not None]
    notes += [f"The frame's index {name!r} is no column." for name in table.index if name not in table.columns]
    if unnamed := len(table.columns) - len(named):
        notes.append(f"Left out, for want of a header: {amount(unnamed, 'column')}.")
    if not features:
        why = "".join(f"\n  {note}" for note in notes[before:])
        raise ConfigurationError(
            f"{table.path}: no column besides the label can be a feature; correct the table, or write the "
            f"schema by hand{why}"
        )
    drafted = [each.column for each in features if any(group.bounds is not None for group in each.groups)]
    notes.insert(0, _privacy_note([column for column in drafted if column not in bounded], bool(bounded)))
    return Schema(name=name, label=label, features=tuple(features), texts=DRAFTED_TEXTS), notes


def _read(table: Table, columns: Sequence[str]) -> dict[str, Seen]:
    """The statistics of each column."""
    seen = {column: Seen(column) for column in columns}
    for batch in table.batches(columns):
        for column, stats in seen.items():
            stats.add(batch.column(column))
    if not seen[columns[0]].rows:
        raise table.error("there is a header but no rows; give a table with at least one row")
    return seen


def _feature(table: Table, seen: Seen, notes: list[str], bounded: Collection[str]) -> Feature | None:
    place = ""
    if seen.first_text is not None and seen.numbers:
        found = table.error("", row=seen.first_text)
        place = f"row {found.row}" if found.line is None else f"line {found.line}"
    return draft_feature(seen, notes, is_index=seen.name in table.index, is_bounded=seen.name in bounded, place=place)


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


# Bounds of the domain in a drafted schema, in place of those that its data suggest.


def parsed(text: str) -> tuple[str, Limit, Limit]:
    """The column, the lower and the upper bound of "COLUMN=LOWER:UPPER". Raises ConfigurationError."""
    column, _, bounds = text.rpartition("=")
    lower, _, upper = bounds.partition(":")
    try:
        return column, _limit(lower), _limit(upper)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ConfigurationError(
            f"bounds {text!r}: write COLUMN=LOWER:UPPER, such as age=0:120 or admitted=2019-01-01:2024-12-31"
        ) from error


def _limit(text: str) -> Limit:
    return float(Fraction(text)) if Day.of(text) is None else text


def bounded(draft: Schema, bounds: Mapping[str, tuple[Limit, Limit]]) -> Schema:
    """The draft with these bounds, by column. A value that it imputes is moved to the nearest within them.

    Raises ConfigurationError for a column that is no number or date of the draft, or has bounds of the other type,
    SchemaFieldError for bounds that are none.
    """
    numbers = {group.column for group in draft.numbers}
    for column in bounds:
        if column not in numbers:
            near = close_match(column, numbers)
            hint = "look at the draft without bounds" if near is None else f"did you mean {near!r}?"
            raise ConfigurationError(f"bounds of {column!r}: the draft has no such number; {hint}")

    def with_bounds(feature: Feature) -> Feature:
        try:
            return feature.with_bounds(*bounds[feature.column])
        except TypeError as error:
            raise ConfigurationError(f"bounds of {feature.column!r}: {error}") from error

    changed = (with_bounds(feature) if feature.column in bounds else feature for feature in draft.features)
    return Schema(name=draft.name, label=draft.label, features=tuple(changed), bias=draft.bias, texts=draft.texts)
