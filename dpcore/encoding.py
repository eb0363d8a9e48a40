"""Columns to coordinates: arrays in, arrays out, the same for a party's records and a learner's predictions.

Every operation is one or two IEEE-754 double operations in a fixed order, so that two parties with the same schema
encode the same cell to the same coordinate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.features import (
    BooleanFeature,
    CategoryFeature,
    Feature,
    Label,
    RealFeature,
    ThresholdFeature,
    value_text,
)
from dpcore.schema import Schema

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Source(NamedTuple):
    """A column, and how it is to be read: as numbers or as texts."""

    column: str
    kind: Literal["numbers", "texts"]


@dataclass(frozen=True)
class Numbers:
    """Cells of a numeric column: values (m,) float64, missing (m,); what a missing cell's value is does not matter."""

    values: Floats
    missing: Mask


@dataclass(frozen=True)
class Texts:
    """Cells of a column of texts: codes (m,) index `texts`, -1 where the cell is missing."""

    codes: NDArray[np.int64]
    texts: tuple[str, ...]


Cells = Numbers | Texts


class CellError(DataError):
    """A cell that cannot be encoded; `row` counts from 0 within the arrays that were given, None where all are alike.

    sentence: the rule that is broken, without the cell's value: errors end in logs and on screens.

    Who knows the file turns it into a DataError that says where in the file the cell stands.
    """

    def __init__(self, row: int | None, column: str, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence, row=row, column=column)


@dataclass(frozen=True)
class Tally:
    """What was done to the cells of one feature (or of the label): numbers of cells."""

    name: str
    imputed: int = 0
    clipped: int = 0
    zero_vectors: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        """Both tallies together; `name` is the first one's."""
        return Tally(
            self.name,
            self.imputed + other.imputed,
            self.clipped + other.clipped,
            self.zero_vectors + other.zero_vectors,
        )


@dataclass(frozen=True)
class EncodedRows:
    """Rows as the schema encodes them.

    x: (m, d) float64 in [-1, 1], coordinates in the schema's order. labels: (m,) int8 in {-1, +1}, or None where they
    were not asked for. usable: (m,); a row that is not has x = 0, the bias too, and label +1, so that the number of
    rows never depends on values. tallies: one for each feature, in order, then the label's where it was asked for.
    """

    x: Floats
    labels: NDArray[np.int8] | None
    usable: Mask
    tallies: tuple[Tally, ...]


@dataclass(frozen=True)
class _Column:
    """One encoded feature: values (m,) or (m, k), and masks of the rows where a policy acted."""

    values: Floats
    imputed: Mask
    clipped: Mask
    dropped: Mask


def sources(schema: Schema, *, label: bool) -> tuple[Source, ...]:
    """The columns that encoding needs and how each is read, without repetition; the label's where `label` is true."""
    needed = [source_of(feature) for feature in schema.features]
    return tuple(dict.fromkeys([*needed, Source(schema.label.column, "texts")] if label else needed))


def source_of(feature: Feature) -> Source:
    """The column of one feature and how it is read."""
    return Source(feature.column, "numbers" if isinstance(feature, RealFeature | ThresholdFeature) else "texts")


def encode(schema: Schema, cells: Mapping[Source, Cells], rows: int, *, label: bool) -> EncodedRows:
    """Encode `rows` rows.

    cells: an entry for each of `sources(schema, label=label)`, each of length `rows`. Raises CellError for the first
    cell, feature by feature, that a policy refuses.
    """
    x = np.empty((rows, schema.d))
    usable = np.ones(rows, dtype=np.bool_)
    tallies = []
    start = 0
    for feature in schema.features:
        column = _encode_feature(feature, cells[source_of(feature)])
        width = len(feature.coordinates)
        x[:, start : start + width] = column.values.reshape(rows, width)
        start += width
        usable &= ~column.dropped
        counts = (int(mask.sum()) for mask in (column.imputed, column.clipped, column.dropped))
        tallies.append(Tally(feature.name, *counts))
    if schema.bias:
        x[:, start] = 1.0
    labels = None
    if label:
        label_cells = cells[Source(schema.label.column, "texts")]
        assert isinstance(label_cells, Texts), "labels are to be read as texts"
        labels, dropped = _encode_label(schema.label, label_cells)
        usable &= ~dropped
        labels[~usable] = 1
        tallies.append(Tally(schema.label.column, zero_vectors=int(dropped.sum())))
    x[~usable] = 0.0
    return EncodedRows(x, labels, usable, tuple(tallies))


def _encode_feature(feature: Feature, cells: Cells) -> _Column:
    if isinstance(feature, RealFeature | ThresholdFeature):
        assert isinstance(cells, Numbers), f"column {feature.column!r} is to be read as numbers"
        return _encode_real(feature, cells) if isinstance(feature, RealFeature) else _encode_threshold(feature, cells)
    assert isinstance(cells, Texts), f"column {feature.column!r} is to be read as texts"
    return _encode_boolean(feature, cells) if isinstance(feature, BooleanFeature) else _encode_category(feature, cells)


def _encode_real(feature: RealFeature, cells: Numbers) -> _Column:
    _refuse_not_finite(feature.column, cells)
    imputed, dropped = _missing(feature, cells.missing)
    present = ~cells.missing
    below, above = present & (cells.values < feature.lower), present & (cells.values > feature.upper)
    beyond = below | above
    if feature.out_of_bounds == "refuse" and beyond.any():
        row = int(beyond.argmax())
        side, bound = ("above", "upper") if above[row] else ("below", "lower")
        limit = value_text(feature.upper if above[row] else feature.lower)
        raise CellError(
            row,
            feature.column,
            f'is {side} the schema\'s {bound} bound {limit}; set out_of_bounds = "clip" or "zero-vector", or mend the '
            "file",
        )
    fill = feature.lower if feature.impute is None else feature.impute
    bounded = np.clip(np.where(cells.missing, fill, cells.values), feature.lower, feature.upper)
    scaled = 2.0 * ((bounded - feature.lower) / (feature.upper - feature.lower)) - 1.0
    if feature.out_of_bounds == "clip":
        return _Column(scaled, imputed, beyond, dropped)
    return _Column(scaled, imputed, np.zeros_like(beyond), dropped | beyond)


def _encode_threshold(feature: ThresholdFeature, cells: Numbers) -> _Column:
    _refuse_not_finite(feature.column, cells)
    imputed, dropped = _missing(feature, cells.missing)
    high = np.where(cells.missing, bool(feature.impute), cells.values >= feature.threshold)
    return _Column(np.where(high, 1.0, -1.0), imputed, np.zeros_like(imputed), dropped)


def _encode_boolean(feature: BooleanFeature, cells: Texts) -> _Column:
    meaning = dict.fromkeys(feature.true, 1) | dict.fromkeys(feature.false, 0)
    codes = _look_up(cells, meaning)
    imputed, dropped = _missing(feature, cells.codes < 0)
    unknown = (codes < 0) & (cells.codes >= 0)
    _refuse_unknown(feature, unknown, "is neither in true nor in false of the schema")
    imputed, dropped = _also(unknown, feature.unknown, imputed, dropped)
    true = np.where(imputed, bool(feature.impute), codes == 1)
    return _Column(np.where(true, 1.0, -1.0), imputed, np.zeros_like(imputed), dropped)


def _encode_category(feature: CategoryFeature, cells: Texts) -> _Column:
    places = {text: place for place, text in enumerate(feature.values)}
    codes = _look_up(cells, places)
    imputed, dropped = _missing(feature, cells.codes < 0)
    unknown = (codes < 0) & (cells.codes >= 0)
    _refuse_unknown(feature, unknown, "is a category that the schema does not list in values")
    imputed, dropped = _also(unknown, feature.unknown, imputed, dropped)
    if feature.impute is not None:
        codes = np.where(imputed, places[feature.impute], codes)
    one_hot = codes[:, None] == np.arange(len(places))
    return _Column(one_hot.astype(np.float64), imputed, np.zeros_like(imputed), dropped)


def _encode_label(label: Label, cells: Texts) -> tuple[NDArray[np.int8], Mask]:
    meaning = dict.fromkeys(label.positive, 1) | dict.fromkeys(label.negative or (), 0)
    codes = _look_up(cells, meaning)
    missing = cells.codes < 0
    unknown = (codes < 0) & ~missing if label.negative is not None else np.zeros_like(missing)
    if label.missing == "refuse" and (missing | unknown).any():
        row = int((missing | unknown).argmax())
        found = "there is no label" if missing[row] else "is in neither positive nor negative of the schema's label"
        raise CellError(row, label.column, f'{found}; set label.missing = "zero-vector", or mend the file')
    return np.where(codes == 1, 1, -1).astype(np.int8), missing | unknown


def _look_up(cells: Texts, meaning: Mapping[str, int]) -> NDArray[np.int64]:
    """What each cell means, -1 where it is missing or means nothing; one Python step for each distinct text."""
    table = np.array([*(meaning.get(text, -1) for text in cells.texts), -1], dtype=np.int64)
    return table[cells.codes]


def _missing(feature: Feature, missing: Mask) -> tuple[Mask, Mask]:
    """Masks (imputed, dropped) of the cells that are missing; raises CellError where the policy refuses them."""
    if feature.missing == "refuse" and missing.any():
        sentence = 'the cell is empty; set missing = "impute" or "zero-vector" for the feature, or mend the file'
        raise CellError(int(missing.argmax()), feature.column, sentence)
    nothing = np.zeros_like(missing)
    return (missing, nothing) if feature.missing == "impute" else (nothing, missing)


def _also(unknown: Mask, policy: str, imputed: Mask, dropped: Mask) -> tuple[Mask, Mask]:
    """The masks with the unknown cells in the one that their policy names; "zero" is in neither."""
    if policy == "impute":
        return imputed | unknown, dropped
    return (imputed, dropped | unknown) if policy == "zero-vector" else (imputed, dropped)


def _refuse_unknown(feature: BooleanFeature | CategoryFeature, unknown: Mask, found: str) -> None:
    if feature.unknown == "refuse" and unknown.any():
        row = int(unknown.argmax())
        choices = '"zero", "impute" or "zero-vector"' if feature.type == "category" else '"impute" or "zero-vector"'
        raise CellError(row, feature.column, f"{found}; add it, set unknown = {choices}, or mend the file")


def _refuse_not_finite(column: str, cells: Numbers) -> None:
    bad = ~np.isfinite(cells.values) & ~cells.missing
    if bad.any():
        sentence = "is not a finite number; leave the cell empty where nothing is known"
        raise CellError(int(bad.argmax()), column, sentence)
