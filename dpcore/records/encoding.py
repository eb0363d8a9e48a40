"""Encoding of columns as coordinates: one or two IEEE-754 double operations in a fixed order, alike everywhere."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS, Mask
from dpcore.records.coding import Labels
from dpcore.records.features import Feature, Target
from dpcore.records.features.described import CellError, Cells, Floats, Numbers, Tally, Texts
from dpcore.records.features.described_label import DescribedLabel
from dpcore.records.schema import Schema
from dpcore.records.texts import Form, form_of
from dpcore.records.weight import NO_WEIGHT, Weight, WeightUnits

__all__ = [
    "CellError",
    "Cells",
    "EncodedRows",
    "Numbers",
    "StoredLabels",
    "StoredRows",
    "Tally",
    "Texts",
    "WantedColumn",
    "encode",
    "encode_stored",
    "in_form",
    "source_of",
    "sources",
    "store",
]


_LABEL_FIELD = re.compile(r"\blabel\.(?=[a-z_])")


class WantedColumn(NamedTuple):
    """A column, and whether to read it as numbers or as texts."""

    column: str
    kind: Literal["numbers", "texts"]


@dataclass(frozen=True)
class EncodedRows:
    """Rows encoded by a schema."""

    x: Floats
    """(m, d) float64 in [-1, 1], coordinates in the schema's order."""
    labels: Labels | None
    """In the coding of the schema's label; None if they were not requested."""
    usable: Mask
    """(m,); an unusable row has x = 0, including the bias, and label 1, so that the number of rows never depends on
    values."""
    tallies: tuple[Tally, ...]
    """One per feature, in order, then that of the label if labels were requested."""


@dataclass(frozen=True)
class StoredRows:
    """Encoded rows as a party keeps them: features (m, d) int32 in units of 2^-30; the rest as in EncodedRows."""

    features: NDArray[np.int32]
    labels: Labels
    usable: Mask
    tallies: tuple[Tally, ...]
    weights: WeightUnits | None = None
    """(m,); None if the schema has no weight."""
    weight_tally: Tally | None = None
    others: tuple["StoredLabels", ...] = ()
    """Under further labels of the schema. Features are then 0 only in rows that no label makes usable."""

    def leave_out(self, rows: Mask) -> None:
        """Make these rows (m,) unusable."""
        self.features[rows] = 0
        for each in self.of_labels:
            each.labels[rows], each.usable[rows] = 1, False

    @property
    def of_labels(self) -> "tuple[StoredRows | StoredLabels, ...]":
        """What is stored under each label, its own first."""
        return (self, *self.others)


@dataclass(frozen=True)
class StoredLabels:
    """One of several labels of stored rows: a row may be usable under one label and not under another."""

    labels: Labels
    usable: Mask
    tally: Tally


def store(features: NDArray[np.float64], out: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
    """Features as integers in units of 2^-30, truncated toward zero, exactly: trunc(x * 2^30), any shape.

    out: for the result; None for a new one. Raises DataError if a feature is NaN or outside [-1, 1].
    """
    x = np.asarray(features, dtype=np.float64)
    # If any value is NaN, the extremes are NaN too, and comparisons with NaN are false.
    if x.size and not (x.min() >= -1.0 and x.max() <= 1.0):
        raise DataError("a feature is not a number in [-1, 1]: scale it by its declared bounds before storing it")
    stored = np.empty(x.shape, dtype=np.int32) if out is None else out
    # A conversion from double to integer truncates toward zero.
    np.copyto(stored, x * float(1 << STORED_FRACTION_BITS), casting="unsafe")
    return stored


def sources(schema: Schema, *, label: bool, others: Sequence[Target] = ()) -> tuple[WantedColumn, ...]:
    """The distinct columns that encoding needs and how to read them, including the label's if `label` is true.

    others: further labels.
    """
    needed = [source_of(feature) for feature in schema.features]
    if label and schema.weight is not None:
        needed.append(_of_weight(schema.weight))
    needed += [column for each in (*([schema.label] if label else []), *others) for column in _of_label(each)]
    return tuple(dict.fromkeys(needed))


def _of_label(label: Target) -> list[WantedColumn]:
    return [WantedColumn(*each) for each in zip(label.columns, label.readings, strict=True)]


def _of_weight(weight: Weight) -> WantedColumn:
    return WantedColumn(weight.column, "numbers")


def source_of(feature: Feature) -> WantedColumn:
    """The column of one feature and how to read it."""
    return WantedColumn(feature.column, feature.reads)


def encode(schema: Schema, cells: Mapping[WantedColumn, Cells], rows: int, *, label: bool) -> EncodedRows:
    """Encode `rows` rows of cells, one entry for each of `sources`. Raises CellError for the first cell refused."""
    x = np.empty((rows, schema.d))
    usable, tallies = _fill(schema, cells, x)
    labels = None
    if label:
        labels, tally = _labelled(schema, schema.label, cells, usable)
        tallies.append(tally)
    x[~usable] = 0.0
    return EncodedRows(x, labels, usable, tuple(tallies))


def encode_stored(
    schema: Schema,
    cells: Mapping[WantedColumn, Cells],
    rows: int,
    others: Sequence[Target] = (),
    names: Sequence[str] = (),
) -> StoredRows:
    """Encode `rows` rows with labels as a party stores them: `store` of `encode`, without creating doubles.

    others: further labels of the same schema. names: what the schema file calls each label, its own first, if it has
    several. Raises CellError for the first cell refused, in the words of that file.
    """
    own_name, *other_names = names or ("",) * (1 + len(others))
    features = np.empty((rows, schema.d), dtype=np.int32)
    usable, tallies = _fill(schema, cells, features)
    found = []
    for each, name in zip(others, other_names, strict=True):
        under = usable.copy()
        of_label, tally = _labelled(schema, each, cells, under, name)
        found.append(StoredLabels(of_label, under, tally))
    labels, tally = _labelled(schema, schema.label, cells, usable, own_name)
    features[~np.logical_or.reduce([usable, *(each.usable for each in found)])] = 0
    weights = weight_tally = None
    if schema.weight is not None:
        weights, weight_tally = schema.weight.encode(cells[_of_weight(schema.weight)])
    return StoredRows(features, labels, usable, (*tallies, tally), weights, weight_tally, tuple(found))


def _fill(schema: Schema, cells: Mapping[WantedColumn, Cells], x: NDArray[Any]) -> tuple[Mask, list[Tally]]:
    """Write the features and the bias into x, (m, d). Returns which rows stay usable, and tallies."""
    usable = np.ones(len(x), dtype=np.bool_)
    tallies = []
    start = 0
    form = form_of(schema.texts)
    for feature in schema.features:
        own = cells[source_of(feature)]
        if isinstance(own, Texts):
            own = in_form(own, form)
        column = feature.encode(own, form)
        stop = start + len(feature.coordinates)
        _put(column.values, x[:, start:stop])
        start = stop
        if column.dropped is not None:
            usable &= ~column.dropped
        tallies.append(column.tally)
    if schema.bias:
        _put(np.ones((len(x), 1), dtype=np.bool_), x[:, start:])
    return usable, tallies


def _put(values: Floats | Mask, place: NDArray[Any]) -> None:
    """Write an encoded feature into its columns, of doubles or of stored integers."""
    if place.dtype == np.float64:
        place[:] = values.reshape(place.shape)
    elif values.dtype == np.bool_:
        place[:] = values
        place <<= STORED_FRACTION_BITS
    else:
        store(np.asarray(values, dtype=np.float64).reshape(place.shape), out=place)


def in_form(cells: Texts, form: Form) -> Texts:
    """The cells with their texts in a form (dpcore.records.texts); a cell whose text is then empty is missing."""
    texts = tuple(map(form, cells.texts))
    if texts == cells.texts:
        return cells
    places = np.array([*(place if text else -1 for place, text in enumerate(texts)), -1], dtype=np.int64)
    return Texts(places[cells.codes], texts, cells.booleans)


def _labelled(
    schema: Schema, label: Target, cells: Mapping[WantedColumn, Cells], usable: Mask, name: str = ""
) -> tuple[Labels, Tally]:
    """Labels, 1 in unusable rows, and their tally. Clears `usable` for the rows whose label is dropped.

    name: what a schema file with several labels calls it.
    """
    form = form_of(schema.texts)
    found = [cells[column] for column in _of_label(label)]
    try:
        encoded = label.encode([in_form(each, form) if isinstance(each, Texts) else each for each in found], form)
    except CellError as error:
        raise CellError(error.row, error.column or label.column, _in_file(error.sentence, name)) from None
    labels = encoded.labels
    usable &= ~encoded.dropped
    labels[~usable] = 1
    return labels, encoded.tally


def _in_file(words: str, name: str) -> str:
    """Words about fields of `label`, as a file with several labels writes them. name: the label's, or empty."""
    return _LABEL_FIELD.sub(lambda _: f"labels.{name}.", words) if name else words


# What a schema's policies changed in a table, what lost most first: for the owner of the table. No cell is quoted, and
# nothing of it goes on the wire.


MANY = 0.1
"""The share of a column's cells from which on a change is warned of."""

NO_ID = "no id"
"""The choice of the one policy that no schema states: rows have ids, and one without is left out."""

# What each choice does to one cell, and to several.
_EFFECTS = {
    "zero-vector": ("leaves its row out", "leaves their rows out"),
    NO_ID: ("its row is left out", "their rows are left out"),
    "zero": ("sets all its indicators to 0", "sets all their indicators to 0"),
    "impute": ("replaces it by {impute}", "replaces them by {impute}"),
    "clip": ("moves it to the nearest bound", "moves them to the nearest bound"),
    NO_WEIGHT: ("gives its row the weight 0", "gives their rows the weight 0"),
}
# A row that is left out loses every cell, a clipped cell only its distance from the bound.
_LOSSES = {"zero-vector": 0, NO_ID: 0, "zero": 1, "impute": 1, NO_WEIGHT: 1, "clip": 2}


@dataclass(frozen=True)
class Change:
    """Cells of one column that one policy changed."""

    column: str
    cells: int
    rows: int
    """Of the table."""
    found: str
    """What they are."""
    policy: str
    """The policy's key in the schema."""
    choice: str
    """Its value."""
    impute: str = ""
    """The value that the schema imputes, as text."""
    alike: int = 0
    """How many of them differ from a listed text only in case, blanks or Unicode form."""
    also: str = ""
    """Another column in which some of them are, of a label with two columns, which count as one cell."""

    @property
    def leaves_out(self) -> bool:
        """Whether the rows of these cells are not usable."""
        return self.choice in ("zero-vector", NO_ID)

    @property
    def is_many(self) -> bool:
        """Whether so many cells are changed that people should know."""
        return self.cells >= MANY * self.rows

    @property
    def clause(self) -> str:
        """The change in words, to follow a colon."""
        one, several = _EFFECTS[self.choice]
        effect = (one if self.cells == 1 else several).format(impute=self.impute)
        counted = "the cell" if self.rows == 1 else f"{self.cells} of {self.rows} cells"
        words = f"{counted} {'is' if self.cells == 1 else 'are'} {self.found}"
        alike = "" if not self.alike else f"; {self.alike} of them would match without case, blanks and Unicode form"
        rule = "" if self.choice == NO_ID else f'{self.policy} = "{self.choice}" '
        where = f"columns {self.column!r} or {self.also!r}" if self.also else f"column {self.column!r}"
        return f"in {where} {words}, and {rule}{effect}{alike}"

    @property
    def sentence(self) -> str:
        """The change in words, to stand alone, without a full stop."""
        return f"{self.clause[:1].upper()}{self.clause[1:]}"

    def to_dict(self) -> dict[str, Any]:
        """In JSON types."""
        named = {"column": self.column, "policy": self.policy, "choice": self.choice}
        counts = {"cells": self.cells, "rows": self.rows, "alike": self.alike, "many": self.is_many}
        return {**named, **counts, "sentence": self.sentence}


def summed(blocks: Iterable[Sequence[Tally]]) -> tuple[Tally, ...]:
    """The tallies of a table from those of its blocks, at least one, in the same order."""
    return tuple(sum(of_one[1:], of_one[0]) for of_one in zip(*blocks, strict=True))


def changes(
    schema: Schema,
    tallies: Sequence[Tally],
    rows: int,
    *,
    id_column: str = "",
    without_id: int = 0,
    label: str = "",
) -> tuple[Change, ...]:
    """All that the schema's policies changed in a table of this many rows, what lost most first.

    Rows that are left out come before cells whose value is lost, and these before clipped ones; the most cells first.
    tallies: one per feature, in the schema's order, then that of the label and of the weight if there are.

    without_id:
    the number of rows without an id in `id_column`. label: what a schema file with several calls the label.
    """
    parts: list[Feature | Target | Weight] = [*schema.features, schema.label]
    parts += [] if schema.weight is None else [schema.weight]
    found = [each for part, tally in zip(parts, tallies, strict=False) for each in _changes(part, tally, rows)]
    found = [replace(each, policy=_in_file(each.policy, label)) for each in found]
    if without_id:
        found.append(Change(id_column, without_id, rows, "empty", "id_column", NO_ID))
    return tuple(sorted(found, key=lambda change: (_LOSSES[change.choice], -change.cells)))


def changed_cells(schema: Schema, tallies: Sequence[Tally]) -> dict[str, int]:
    """For each feature, how many of its cells have a value that is not theirs, in rows that stay; so of the weight.

    tallies: as of `changes`, perhaps without that of the label.
    """
    found = {
        feature.name: sum(change.cells for change in _changes(feature, tally, 0) if not change.leaves_out)
        for feature, tally in zip(schema.features, tallies, strict=False)
    }
    if schema.weight is not None:
        found[f"weight {schema.weight.column}"] = sum(
            change.cells for change in _changes(schema.weight, tallies[-1], 0)
        )
    return found


def main_cause(found: Sequence[Change]) -> str:
    """What left most rows out, as a clause; "" if no row is left out."""
    return found[0].clause if found and found[0].leaves_out else ""


def why_unusable(found: Sequence[Change], *, rows: int, usable: int) -> str | None:
    """A clause that says how many rows are not usable, with the main cause; None if all are usable."""
    if usable == rows:
        return None
    counted = f"{rows - usable} of {rows} rows {'is' if rows - usable == 1 else 'are'} not usable"
    return f"{counted if usable else 'no row is usable'}: {main_cause(found)}"


def _changes(part: Feature | Target | Weight, tally: Tally, rows: int) -> Iterator[Change]:
    """The changes of one column, where there are any."""
    if isinstance(part, DescribedLabel | Weight):
        prefix, impute = "weight." if isinstance(part, Weight) else "label.", ""
    else:
        prefix, impute = "", part.imputed_text
    for policy in part.policies:
        if cells := tally.count(policy.cells):
            alike = tally.alike if policy.cells == "unlisted" else 0
            column, *also = policy.columns or (part.column,)
            key = f"{prefix}{policy.key}"
            yield Change(column, cells, rows, policy.words, key, policy.choice, impute, alike, *also)
