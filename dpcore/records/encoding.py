"""Encoding of columns as coordinates, for a party's records and for a learner's predictions.

Every operation is one or two IEEE-754 double operations in a fixed order, so that two parties with the same schema
encode the same cell to the same coordinate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.records.features import (
    BooleanFeature,
    CategoryFeature,
    Feature,
    Label,
    RealFeature,
    ThresholdFeature,
    value_text,
)
from dpcore.records.schema import Schema
from dpcore.records.text_forms import Form, form_of

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
    """How many cells of one feature, or of the label, each policy changed.

    empty: how many of the cells that made zero vectors were missing.
    """

    name: str
    imputed: int = 0
    clipped: int = 0
    zero_vectors: int = 0
    empty: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        """The sum of both tallies, with the name of the first."""
        return Tally(
            self.name,
            self.imputed + other.imputed,
            self.clipped + other.clipped,
            self.zero_vectors + other.zero_vectors,
            self.empty + other.empty,
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


@dataclass(frozen=True)
class _Column:
    """One encoded feature, and masks (m,) of the rows that a policy changed, None if it changed none.

    values: (m,) float64, or (m, k) bool for coordinates that are 0 or 1.
    """

    values: Floats | Mask
    imputed: Mask | None = None
    clipped: Mask | None = None
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
    return WantedColumn(feature.column, "numbers" if isinstance(feature, RealFeature | ThresholdFeature) else "texts")


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
        empty = _missing_cells(own) if feature.missing == "zero-vector" else None
        counts = (_count(mask) for mask in (column.imputed, column.clipped, column.dropped, empty))
        tallies.append(Tally(feature.name, *counts))
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


def _missing_cells(cells: Cells) -> Mask:
    return cells.missing if isinstance(cells, Numbers) else cells.codes < 0


def _count(mask: Mask | None) -> int:
    return 0 if mask is None else int(np.count_nonzero(mask))


def in_form(cells: Texts, form: Form) -> Texts:
    """The cells with their texts in a form (dpcore.records.text_forms); a cell whose text is then empty is missing."""
    texts = tuple(map(form, cells.texts))
    if texts == cells.texts:
        return cells
    places = np.array([*(place if text else -1 for place, text in enumerate(texts)), -1], dtype=np.int64)
    return Texts(places[cells.codes], texts, cells.booleans)


def _encode_feature(feature: Feature, cells: Cells, form: Form) -> _Column:
    if isinstance(feature, RealFeature | ThresholdFeature):
        assert isinstance(cells, Numbers), f"column {feature.column!r} must be read as numbers"
        return _encode_real(feature, cells) if isinstance(feature, RealFeature) else _encode_threshold(feature, cells)
    assert isinstance(cells, Texts), f"column {feature.column!r} must be read as texts"
    if isinstance(feature, BooleanFeature):
        return _encode_boolean(feature, cells, form)
    return _encode_category(feature, cells, form)


def _encode_real(feature: RealFeature, cells: Numbers) -> _Column:
    filled, substitute = cells.values, feature.lower if feature.impute is None else feature.impute
    if cells.missing.any():
        filled = np.where(cells.missing, substitute, filled)
    imputed, dropped = _missing(feature, cells.missing)
    # If there is a NaN, it is both minimum and maximum, and the comparisons fail.
    if len(filled) == 0 or (filled.min() >= feature.lower and filled.max() <= feature.upper):
        return _Column(_scaled(feature, filled), imputed, None, dropped)
    unreadable = ~np.isfinite(filled)
    if unreadable.any():
        filled = np.where(unreadable, substitute, filled)
        imputed, dropped = _unreadable(feature, unreadable, imputed, dropped)
    # Imputed values are within the bounds.
    above = filled > feature.upper
    beyond = above | (filled < feature.lower)
    if not beyond.any():
        return _Column(_scaled(feature, filled), imputed, None, dropped)
    if feature.out_of_bounds == "refuse":
        row = int(beyond.argmax())
        side, bound = ("above", "upper") if above[row] else ("below", "lower")
        limit = value_text(feature.upper if above[row] else feature.lower)
        raise CellError(
            row,
            feature.column,
            f'is {side} the schema\'s {bound} bound {limit}; set out_of_bounds = "clip" or "zero-vector", or '
            "correct the file",
        )
    scaled = _scaled(feature, np.clip(filled, feature.lower, feature.upper))
    if feature.out_of_bounds == "clip":
        return _Column(scaled, imputed, beyond, dropped)
    return _Column(scaled, imputed, None, _either(dropped, beyond))


def _scaled(feature: RealFeature, bounded: Floats) -> Floats:
    """2 ((v - lower) / (upper - lower)) - 1, rounded after each operation, in that order; v within the bounds."""
    scaled: Floats = bounded - feature.lower
    scaled /= feature.upper - feature.lower
    scaled *= 2.0
    scaled -= 1.0
    return scaled


def _encode_threshold(feature: ThresholdFeature, cells: Numbers) -> _Column:
    imputed, dropped = _missing(feature, cells.missing)
    unreadable = ~(np.isfinite(cells.values) | cells.missing)
    if unreadable.any():
        imputed, dropped = _unreadable(feature, unreadable, imputed, dropped)
    high = cells.values >= feature.threshold
    if imputed is not None:
        high = np.where(imputed, bool(feature.impute), high)
    return _Column(np.where(high, 1.0, -1.0), imputed, None, dropped)


def _encode_boolean(feature: BooleanFeature, cells: Texts, form: Form) -> _Column:
    codes = _look_up(cells, dict.fromkeys(feature.true, 1) | dict.fromkeys(feature.false, 0), form)
    imputed, dropped = _absent(feature, cells, codes, "is neither in true nor in false of the schema")
    true = codes == 1
    if imputed is not None:
        true = np.where(imputed, bool(feature.impute), true)
    return _Column(np.where(true, 1.0, -1.0), imputed, None, dropped)


def _encode_category(feature: CategoryFeature, cells: Texts, form: Form) -> _Column:
    places = {text: place for place, text in enumerate(feature.values)}
    codes = _look_up(cells, places, form)
    imputed, dropped = _absent(feature, cells, codes, "is a category that the schema does not list in values")
    if imputed is not None and feature.impute is not None:
        codes = np.where(imputed, places[feature.impute], codes)
    return _Column(codes[:, None] == np.arange(len(places)), imputed, None, dropped)


def _labelled(schema: Schema, cells: Mapping[WantedColumn, Cells], usable: Mask) -> tuple[NDArray[np.int8], Tally]:
    """Labels, +1 in unusable rows, and their tally. Clears `usable` for the rows whose label is dropped."""
    label, form = schema.label, form_of(schema.texts)
    label_cells = cells[WantedColumn(label.column, "texts")]
    assert isinstance(label_cells, Texts), "labels must be read as texts"
    label_cells = in_form(label_cells, form)
    labels, dropped = _encode_label(label, label_cells, form)
    usable &= ~dropped
    labels[~usable] = 1
    return labels, Tally(label.column, zero_vectors=_count(dropped), empty=_count(_missing_cells(label_cells)))


def _encode_label(label: Label, cells: Texts, form: Form) -> tuple[NDArray[np.int8], Mask]:
    codes = _look_up(cells, dict.fromkeys(label.positive, 1) | dict.fromkeys(label.negative or (), 0), form)
    missing = cells.codes < 0
    dropped = codes < 0 if label.negative is not None else missing
    if label.missing == "refuse" and dropped.any():
        row = int(dropped.argmax())
        found = "there is no label" if missing[row] else "is in neither positive nor negative of the schema's label"
        raise CellError(row, label.column, f'{found}; set label.missing = "zero-vector", or correct the file')
    return np.where(codes == 1, np.int8(1), np.int8(-1)), dropped


def _look_up(cells: Texts, of_listed: Mapping[str, int], form: Form) -> NDArray[np.int64]:
    """The meaning of each cell, -1 if it is missing or unknown; one Python step per distinct text.

    cells: in the form. of_listed: the meaning of each text of the schema, which is brought into the form here.
    """
    meaning = {form(text): value for text, value in of_listed.items()}
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


def _missing(feature: Feature, missing: Mask) -> tuple[Mask | None, Mask | None]:
    """Masks (imputed, dropped) of the missing cells. Raises CellError if the policy refuses them."""
    if not missing.any():
        return None, None
    if feature.missing == "refuse":
        sentence = 'the cell is empty; set missing = "impute" or "zero-vector" for the feature, or correct the file'
        raise CellError(int(missing.argmax()), feature.column, sentence)
    return (missing, None) if feature.missing == "impute" else (None, missing)


def _absent(
    feature: BooleanFeature | CategoryFeature, cells: Texts, codes: NDArray[np.int64], unknown_is: str
) -> tuple[Mask | None, Mask | None]:
    """Masks (imputed, dropped) of the missing and unknown cells. codes: the meaning of each cell, as of `_look_up`.

    An unknown cell that stays zero is in neither mask. Raises CellError if a policy refuses a cell.
    """
    nothing = codes < 0
    if not nothing.any():
        return None, None
    missing = cells.codes < 0
    imputed, dropped = _missing(feature, missing)
    unknown = nothing & ~missing
    if not unknown.any():
        return imputed, dropped
    if feature.unknown == "refuse":
        choices = '"zero", "impute" or "zero-vector"' if feature.type == "category" else '"impute" or "zero-vector"'
        sentence = f"{unknown_is}; add it, set unknown = {choices}, or correct the file"
        raise CellError(int(unknown.argmax()), feature.column, sentence)
    if feature.unknown == "impute":
        return _either(imputed, unknown), dropped
    return (imputed, _either(dropped, unknown)) if feature.unknown == "zero-vector" else (imputed, dropped)


def _either(first: Mask | None, second: Mask) -> Mask:
    return second if first is None else first | second


def _unreadable(
    feature: RealFeature | ThresholdFeature, unreadable: Mask, imputed: Mask | None, dropped: Mask | None
) -> tuple[Mask | None, Mask | None]:
    """Masks (imputed, dropped) with the unreadable cells added. Raises CellError if the policy refuses them."""
    match feature.on_unreadable:
        case "impute":
            return _either(imputed, unreadable), dropped
        case "zero-vector":
            return imputed, _either(dropped, unreadable)
    sentence = (
        "is not a finite number; write it with a decimal point, leave the cell empty if the value is not known, or set "
        'unreadable = "impute" or "zero-vector" for the feature'
    )
    raise CellError(int(unreadable.argmax()), feature.column, sentence)
