"""Encoding of columns as coordinates, for a party's records and for a learner's predictions.

Every operation is one or two IEEE-754 double operations in a fixed order, so that two parties with the same schema
encode the same cell to the same coordinate.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.records.features import (
    BooleanFeature,
    CategoryFeature,
    Feature,
    RealFeature,
    ThresholdFeature,
    Unusual,
    value_text,
)
from dpcore.records.schema import Schema
from dpcore.records.text_forms import TEXT_STEPS, Form, form_of

#: The form in which most texts are the same.
_LOOSEST = form_of(TEXT_STEPS)
#: The most distinct texts of a block that are compared in it: a column with more is no category.
_MOST_COMPARED = 1000

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class WantedColumn(NamedTuple):
    """A column, and whether to read it as numbers or as texts."""

    column: str
    kind: Literal["numbers", "texts"]


@dataclass(frozen=True)
class Numbers:
    """Cells of a numeric column: values (m,) float64, missing (m,) bool. The values of missing cells are ignored.

    A cell that is neither missing nor a finite number is unreadable, and its value is NaN or infinite.
    """

    values: Floats
    missing: Mask


@dataclass(frozen=True)
class Texts:
    """Cells of a text column: codes (m,) index `texts`; -1 means that the cell is missing.

    booleans: the column was of type boolean. Its texts "true" and "false" match a schema's texts in any case: a library
    that reads "True" and "False" from a CSV makes booleans of them.
    """

    codes: NDArray[np.int64]
    texts: tuple[str, ...]
    booleans: bool = False


Cells = Numbers | Texts


class CellError(DataError):
    """A cell cannot be encoded. row: counted from 0 in the given arrays, None if the error concerns all rows.

    sentence: the broken rule, without the cell's value, because errors appear in logs.

    The caller that knows the file turns this error into a DataError with the cell's place in the file.
    """

    def __init__(self, row: int | None, column: str, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence, row=row, column=column)


@dataclass(frozen=True)
class Tally:
    """How many cells of one feature, or of the label, a policy changed, by what they are.

    missing: empty. unreadable: no finite number. unlisted: in none of the schema's texts, of which `alike` differ from
    one only in case, blanks or Unicode form. beyond: outside of the bounds. dpcore.records.changed_cells has the words.
    """

    name: str
    missing: int = 0
    unreadable: int = 0
    unlisted: int = 0
    alike: int = 0
    beyond: int = 0

    def count(self, cells: Unusual) -> int:
        """How many cells are of this kind."""
        return int(getattr(self, cells))

    def __add__(self, other: "Tally") -> "Tally":
        """The sum of both tallies, with the name of the first."""
        return Tally(
            self.name,
            self.missing + other.missing,
            self.unreadable + other.unreadable,
            self.unlisted + other.unlisted,
            self.alike + other.alike,
            self.beyond + other.beyond,
        )


@dataclass(frozen=True)
class EncodedRows:
    """Rows encoded by a schema.

    x: (m, d) float64 in [-1, 1], coordinates in the schema's order. labels: (m,) int8 in {-1, +1}, or None if they were
    not requested. usable: (m,); an unusable row has x = 0, including the bias, and label +1, so that the number of rows
    never depends on values. tallies: one per feature, in order, then that of the label if labels were requested.
    """

    x: Floats
    labels: NDArray[np.int8] | None
    usable: Mask
    tallies: tuple[Tally, ...]


@dataclass(frozen=True)
class StoredRows:
    """Encoded rows in the fixed point of a party's records.

    features: (m, d) int32 in units of 2^-30, `store` of the coordinates. The other fields are as in EncodedRows, with
    labels.
    """

    features: NDArray[np.int32]
    labels: NDArray[np.int8]
    usable: Mask
    tallies: tuple[Tally, ...]

    def leave_out(self, rows: Mask) -> None:
        """Make these rows (m,) unusable."""
        self.features[rows], self.labels[rows], self.usable[rows] = 0, 1, False


@dataclass(frozen=True)
class _Column:
    """One encoded feature, and how many cells a policy changed.

    values: (m,) float64, or (m, k) bool for coordinates that are 0 or 1. dropped: (m,), the rows that become zero
    vectors; None if none does.
    """

    values: Floats | Mask
    tally: Tally
    dropped: Mask | None = None


def store(features: NDArray[np.float64], out: NDArray[np.int32] | None = None) -> NDArray[np.int32]:
    """Features as integers in units of 2^-30, truncated toward zero: trunc(x * 2^30), any shape.

    The product is exact, because a power of two only changes the exponent. out: an array of the same shape for the
    result; None for a new one. Raises DataError if a feature is NaN or outside [-1, 1].
    """
    x = np.asarray(features, dtype=np.float64)
    # If any value is NaN, the extremes are NaN too, and comparisons with NaN are false.
    if x.size and not (x.min() >= -1.0 and x.max() <= 1.0):
        raise DataError("a feature is not a number in [-1, 1]: scale it by its declared bounds before storing it")
    stored = np.empty(x.shape, dtype=np.int32) if out is None else out
    # A conversion from double to integer truncates toward zero.
    np.copyto(stored, x * float(1 << STORED_FRACTION_BITS), casting="unsafe")
    return stored


def sources(schema: Schema, *, label: bool) -> tuple[WantedColumn, ...]:
    """The distinct columns that encoding needs and how to read them, including the label's if `label` is true."""
    needed = [source_of(feature) for feature in schema.features]
    return tuple(dict.fromkeys([*needed, WantedColumn(schema.label.column, "texts")] if label else needed))


def source_of(feature: Feature) -> WantedColumn:
    """The column of one feature and how to read it."""
    return WantedColumn(feature.column, feature.reads)


def encode(schema: Schema, cells: Mapping[WantedColumn, Cells], rows: int, *, label: bool) -> EncodedRows:
    """Encode `rows` rows.

    cells: an entry for each of `sources(schema, label=label)`, each of length `rows`. Raises CellError for the first
    cell, feature by feature, that a policy refuses.
    """
    x = np.empty((rows, schema.d))
    usable, tallies = _fill(schema, cells, x)
    labels = None
    if label:
        labels, tally = _labelled(schema, cells, usable)
        tallies.append(tally)
    x[~usable] = 0.0
    return EncodedRows(x, labels, usable, tuple(tallies))


def encode_stored(schema: Schema, cells: Mapping[WantedColumn, Cells], rows: int) -> StoredRows:
    """Encode `rows` rows with labels as a party stores them: equals `store` of `encode`, without creating doubles.

    cells: an entry for each of `sources(schema, label=True)`. Raises CellError as `encode` does.
    """
    features = np.empty((rows, schema.d), dtype=np.int32)
    usable, tallies = _fill(schema, cells, features)
    labels, tally = _labelled(schema, cells, usable)
    features[~usable] = 0
    return StoredRows(features, labels, usable, (*tallies, tally))


def _fill(schema: Schema, cells: Mapping[WantedColumn, Cells], x: NDArray[Any]) -> tuple[Mask, list[Tally]]:
    """Write the features and the bias into x, (m, d) of doubles or of stored integers.

    Returns a mask of the rows that the features leave usable, and the features' tallies. The caller clears other rows.
    """
    usable = np.ones(len(x), dtype=np.bool_)
    tallies = []
    start = 0
    form = form_of(schema.texts)
    for feature in schema.features:
        own = cells[source_of(feature)]
        if isinstance(own, Texts):
            own = in_form(own, form)
        column = _encode_feature(feature, own, form)
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
    """The cells with their texts in a form (dpcore.records.text_forms); a cell whose text is then empty is missing."""
    texts = tuple(map(form, cells.texts))
    if texts == cells.texts:
        return cells
    places = np.array([*(place if text else -1 for place, text in enumerate(texts)), -1], dtype=np.int64)
    return Texts(places[cells.codes], texts, cells.booleans)


def _encode_feature(feature: Feature, cells: Cells, form: Form) -> _Column:
    match feature:
        case RealFeature():
            return _encode_real(feature, _as_numbers(feature, cells))
        case ThresholdFeature():
            return _encode_threshold(feature, _as_numbers(feature, cells))
        case BooleanFeature():
            return _encode_boolean(feature, _as_texts(feature, cells), form)
        case CategoryFeature():
            return _encode_category(feature, _as_texts(feature, cells), form)
        case _:
            assert_never(feature)


def _as_numbers(feature: Feature, cells: Cells) -> Numbers:
    assert isinstance(cells, Numbers), f"column {feature.column!r} must be read as numbers"
    return cells


def _as_texts(feature: Feature, cells: Cells) -> Texts:
    assert isinstance(cells, Texts), f"column {feature.column!r} must be read as texts"
    return cells


def _encode_real(feature: RealFeature, cells: Numbers) -> _Column:
    filled, substitute = cells.values, feature.lower if feature.impute is None else feature.impute
    missing = _settled(feature, cells.missing)
    if missing.count:
        filled = np.where(cells.missing, substitute, filled)
    # If there is a NaN, it is both minimum and maximum, and the comparisons fail.
    if len(filled) == 0 or (filled.min() >= feature.lower and filled.max() <= feature.upper):
        return _Column(_scaled(feature, filled), Tally(feature.name, missing.count), missing.dropped)
    finite = np.isfinite(filled)
    unreadable = _NOTHING if finite.all() else _unreadable(feature, ~finite)
    if unreadable.count:
        filled = np.where(finite, filled, substitute)
    # Imputed values are within the bounds.
    above = filled > feature.upper
    beyond = _beyond(feature, above | (filled < feature.lower), above)
    if beyond.count:
        filled = np.clip(filled, feature.lower, feature.upper)
    tally = Tally(feature.name, missing.count, unreadable.count, beyond=beyond.count)
    return _Column(_scaled(feature, filled), tally, _any(missing.dropped, unreadable.dropped, beyond.dropped))


def _scaled(feature: RealFeature, bounded: Floats) -> Floats:
    """2 ((v - lower) / (upper - lower)) - 1, rounded after each operation, in that order; v within the bounds."""
    scaled: Floats = bounded - feature.lower
    scaled /= feature.upper - feature.lower
    scaled *= 2.0
    scaled -= 1.0
    return scaled


def _encode_threshold(feature: ThresholdFeature, cells: Numbers) -> _Column:
    missing = _settled(feature, cells.missing)
    finite = np.isfinite(cells.values)
    unreadable = _NOTHING if finite.all() else _unreadable(feature, ~(finite | cells.missing))
    high = cells.values >= feature.threshold
    for changed in (missing, unreadable):
        if changed.count:
            high = np.where(changed.cells, bool(feature.impute), high)
    tally = Tally(feature.name, missing.count, unreadable.count)
    return _Column(np.where(high, 1.0, -1.0), tally, _any(missing.dropped, unreadable.dropped))


def _encode_boolean(feature: BooleanFeature, cells: Texts, form: Form) -> _Column:
    meaning = {form(text): 1 for text in feature.true} | {form(text): 0 for text in feature.false}
    codes = _look_up(cells, meaning)
    missing, unlisted = _absent(feature, cells, codes, "is neither in true nor in false of the schema")
    true = codes == 1
    for changed in (missing, unlisted):
        if changed.count:
            true = np.where(changed.cells, bool(feature.impute), true)
    tally = Tally(feature.name, missing.count, 0, unlisted.count, _alike(cells, unlisted, meaning))
    return _Column(np.where(true, 1.0, -1.0), tally, _any(missing.dropped, unlisted.dropped))


def _encode_category(feature: CategoryFeature, cells: Texts, form: Form) -> _Column:
    places = {form(text): place for place, text in enumerate(feature.values)}
    codes = _look_up(cells, places)
    missing, unlisted = _absent(feature, cells, codes, "is a category that the schema does not list in values")
    for changed, policy in ((missing, feature.missing), (unlisted, feature.unknown)):
        if changed.count and policy == "impute" and feature.impute is not None:
            codes = np.where(changed.cells, places[form(feature.impute)], codes)
    tally = Tally(feature.name, missing.count, 0, unlisted.count, _alike(cells, unlisted, places))
    dropped = _any(missing.dropped, unlisted.dropped)
    return _Column(codes[:, None] == np.arange(len(places)), tally, dropped)


def _labelled(schema: Schema, cells: Mapping[WantedColumn, Cells], usable: Mask) -> tuple[NDArray[np.int8], Tally]:
    """Labels, +1 in unusable rows, and their tally. Clears `usable` for the rows whose label is dropped."""
    label, form = schema.label, form_of(schema.texts)
    found = cells[WantedColumn(label.column, "texts")]
    assert isinstance(found, Texts), "labels must be read as texts"
    found = in_form(found, form)
    meaning = {form(text): 1 for text in label.positive} | {form(text): 0 for text in label.negative or ()}
    codes, missing = _look_up(found, meaning), found.codes < 0
    dropped = codes < 0 if label.negative is not None else missing
    if label.missing == "refuse" and dropped.any():
        row = int(dropped.argmax())
        what = "there is no label" if missing[row] else "is in neither positive nor negative of the schema's label"
        raise CellError(row, label.column, f'{what}; set label.missing = "zero-vector", or correct the file')
    labels = np.where(codes == 1, np.int8(1), np.int8(-1))
    usable &= ~dropped
    labels[~usable] = 1
    empty, unlisted = int(np.count_nonzero(missing)), _Changed(dropped & ~missing)
    return labels, Tally(label.column, empty, 0, unlisted.count, _alike(found, unlisted, meaning))


def _look_up(cells: Texts, meaning: Mapping[str, int]) -> NDArray[np.int64]:
    """The meaning of each cell, -1 if it is missing or unknown; one Python step per distinct text."""
    of_text = _meaning_in_any_case if cells.booleans else _meaning
    table = np.array([*(of_text(text, meaning) for text in cells.texts), -1], dtype=np.int64)
    return table[cells.codes]


def _meaning(text: str, meaning: Mapping[str, int]) -> int:
    return meaning.get(text, -1)


def _meaning_in_any_case(text: str, meaning: Mapping[str, int]) -> int:
    """The meaning of the text itself; otherwise that of the only text that differs from it in case, if there is one."""
    if text in meaning:
        return meaning[text]
    found = [value for other, value in meaning.items() if other.casefold() == text.casefold()]
    return found[0] if len(found) == 1 else -1


class _Changed:
    """Cells that one policy changes: a mask (m,), how many they are, and whether their rows become zero vectors."""

    def __init__(self, cells: Mask, *, drops: bool = False) -> None:
        self.cells, self.count = cells, int(np.count_nonzero(cells))
        self.dropped = cells if drops and self.count else None


_NOTHING = _Changed(np.zeros(0, dtype=np.bool_))


def _settled(feature: Feature, missing: Mask) -> _Changed:
    """The missing cells. Raises CellError if the policy refuses them."""
    changed = _Changed(missing, drops=feature.missing == "zero-vector")
    if changed.count and feature.missing == "refuse":
        sentence = 'the cell is empty; set missing = "impute" or "zero-vector" for the feature, or correct the file'
        raise CellError(int(missing.argmax()), feature.column, sentence)
    return changed


def _unreadable(feature: RealFeature | ThresholdFeature, unreadable: Mask) -> _Changed:
    """The cells that are neither missing nor finite numbers. Raises CellError if the policy refuses them."""
    changed = _Changed(unreadable, drops=feature.on_unreadable == "zero-vector")
    if changed.count and feature.on_unreadable == "refuse":
        sentence = (
            "is not a finite number; write it with a decimal point, leave the cell empty if the value is not known, or "
            'set unreadable = "impute" or "zero-vector" for the feature'
        )
        raise CellError(int(unreadable.argmax()), feature.column, sentence)
    return changed


def _beyond(feature: RealFeature, beyond: Mask, above: Mask) -> _Changed:
    """The cells outside of the bounds. above: beyond the upper one. Raises CellError if the policy refuses them."""
    changed = _Changed(beyond, drops=feature.out_of_bounds == "zero-vector")
    if changed.count and feature.out_of_bounds == "refuse":
        row = int(beyond.argmax())
        side, bound = ("above", "upper") if above[row] else ("below", "lower")
        limit = value_text(feature.upper if above[row] else feature.lower)
        raise CellError(
            row,
            feature.column,
            f'is {side} the schema\'s {bound} bound {limit}; set out_of_bounds = "clip" or "zero-vector", or '
            "correct the file",
        )
    return changed


def _absent(
    feature: BooleanFeature | CategoryFeature, cells: Texts, codes: NDArray[np.int64], sentence: str
) -> tuple[_Changed, _Changed]:
    """The missing cells, and those with a text that the schema does not list.

    codes: the meaning of each cell, as of `_look_up`. sentence: what an unlisted cell is. Raises CellError if a policy
    refuses a cell.
    """
    nothing = codes < 0
    if not nothing.any():
        return _NOTHING, _NOTHING
    absent = cells.codes < 0
    missing = _settled(feature, absent)
    changed = _Changed(nothing & ~absent, drops=feature.unknown == "zero-vector")
    if changed.count and feature.unknown == "refuse":
        choices = '"zero", "impute" or "zero-vector"' if feature.is_one_hot else '"impute" or "zero-vector"'
        sentence = f"{sentence}; add it, set unknown = {choices}, or correct the file"
        raise CellError(int(changed.cells.argmax()), feature.column, sentence)
    return missing, changed


def _alike(cells: Texts, unlisted: _Changed, listed: Collection[str]) -> int:
    """How many of the unlisted cells would be listed if texts were compared after every step of a schema's `texts`."""
    if not unlisted.count or len(cells.texts) > _MOST_COMPARED:
        return 0
    known = set(map(_LOOSEST, listed))
    alike = np.array([*(_LOOSEST(text) in known for text in cells.texts), False])
    return int(np.count_nonzero(alike[cells.codes] & unlisted.cells))


def _any(*masks: Mask | None) -> Mask | None:
    """The rows in any of these masks; None if there is none."""
    given = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(given) if len(given) > 1 else given[0] if given else None
