"""Labels of classes, and all types of labels by name.

What needs one type asks for it by `two_classes`, `several_classes` or `measured`, which refuse the others: no query and
no estimator computes something else in silence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpcore.errors import SchemaError
from dpcore.numbers.fixed_point import Mask
from dpcore.records.coding import SIGNS, Coding, class_codes
from dpcore.records.features.category import PREFIX_VERSION, begun_with, check_prefix
from dpcore.records.features.described import (
    FIRST_VERSION,
    CellError,
    Cells,
    Changed,
    MissingLabel,
    Policy,
    Tally,
    Texts,
    alike,
    as_texts,
    for_missing,
    look_up,
)
from dpcore.records.features.described_label import LABEL_POLICIES, DescribedLabel, EncodedLabel
from dpcore.records.features.event_time import EventTime
from dpcore.records.features.measured_labels import Count, Number
from dpcore.records.texts import (
    Form,
    SchemaFieldError,
    require_choice,
    require_disjoint,
    require_text,
    require_texts,
    settle,
)

MOST_CLASSES = 100
"""That are learned: a query for moments has as many sums of records as there are classes."""
MOST_COUNTED = 10_000
"""That are counted, by statistics: the levels of a column of codes (dpcore.evaluation.descriptive.levels)."""

_EITHER = " | "
"""Between the texts of a class, in its name."""


@dataclass(frozen=True, kw_only=True)
class Label(DescribedLabel):
    """A label of two classes."""

    type: ClassVar[str] = "two-classes"
    has_type_field: ClassVar[bool] = False
    compared: ClassVar[tuple[tuple[str, ...], ...]] = (("positive", "negative"),)
    version: ClassVar[int] = FIRST_VERSION
    versioned_key: ClassVar[str] = "positive"
    coding: ClassVar[Coding] = SIGNS
    words: ClassVar[str] = "two classes"
    column: str
    positive: tuple[str, ...]
    """The texts that mean +1."""
    negative: tuple[str, ...] | None = None
    """Those that mean -1; None: all others."""
    missing: MissingLabel = "refuse"
    """How a row is handled whose label is empty or, if `negative` is given, in neither list."""

    def __post_init__(self) -> None:
        require_text("label.column", self.column)
        positive = tuple(sorted(require_texts("label.positive", self.positive)))
        settle(self, positive=positive)
        if self.negative is not None:
            negative = tuple(sorted(require_texts("label.negative", self.negative)))
            require_disjoint("label.positive", positive, negative, "positive and negative")
            settle(self, negative=negative)
        require_choice("label.missing", self.missing, LABEL_POLICIES)

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, and for those in neither list."""
        words = "in neither positive nor negative of the schema's label"
        return for_missing(self.missing), Policy("missing", self.missing, "unlisted", words)

    @property
    def names(self) -> tuple[str, str]:
        """What to call the classes, negative first: by all their texts, or "not " and the positive name."""
        positive = _EITHER.join(self.positive)
        return (f"not {positive}" if self.negative is None else _EITHER.join(self.negative)), positive

    def encode(self, columns: Sequence[Cells], form: Form) -> EncodedLabel:
        """-1 or +1."""
        cells = as_texts(self.column, columns[0])
        meaning = {form(text): 1 for text in self.positive} | {form(text): 0 for text in self.negative or ()}
        codes, missing = look_up(cells, meaning), cells.codes < 0
        dropped = codes < 0 if self.negative is not None else missing
        if self.missing == "refuse" and dropped.any():
            row = int(dropped.argmax())
            what = "there is no label" if missing[row] else "is in neither positive nor negative of the schema's label"
            raise CellError(row, self.column, f'{what}; set label.missing = "zero-vector", or correct the file')
        labels = np.where(codes == 1, np.int8(1), np.int8(-1))
        return EncodedLabel(labels, dropped, _tally(self.column, cells, missing, dropped, meaning))


@dataclass(frozen=True, kw_only=True)
class Classes(DescribedLabel):
    """A label of several classes, each one text; the code of a class is its place in `values`, from 0."""

    type: ClassVar[str] = "classes"
    has_type_field: ClassVar[bool] = True
    compared: ClassVar[tuple[tuple[str, ...], ...]] = (("values",),)
    column: str
    values: tuple[str, ...]
    """The classes' texts; the code of a class is its place, from 0. More than MOST_CLASSES are counted only."""
    missing: MissingLabel = "refuse"
    """How a row is handled whose label is empty."""
    unlisted: MissingLabel = "refuse"
    """How one is handled whose label is not among the values."""
    prefix: int | None = None
    """How many of the first characters of a cell's text are its value; None: the whole text."""

    def __post_init__(self) -> None:
        require_text("label.column", self.column)
        values = require_texts("label.values", self.values)
        if not 2 <= len(values) <= MOST_COUNTED:
            sentence = f"has {len(values)} classes; list 2 to {MOST_CLASSES}, or up to {MOST_COUNTED} to count them"
            raise SchemaFieldError("label.values", sentence)
        if self.prefix is not None:
            check_prefix("label", self.prefix, values)
        settle(self, values=values)
        require_choice("label.missing", self.missing, LABEL_POLICIES)
        require_choice("label.unlisted", self.unlisted, LABEL_POLICIES)

    @property
    def version(self) -> int:
        """A later one with a prefix, or with more classes than are learned."""
        return PREFIX_VERSION if self.prefix is not None or len(self.values) > MOST_CLASSES else 4

    @property
    def versioned_key(self) -> str:
        """The field that needs the version."""
        return "prefix" if self.prefix is not None else "values" if len(self.values) > MOST_CLASSES else "type"

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The code of each class."""
        return {value: place for place, value in enumerate(self.values)}

    @property
    def coding(self) -> Coding:
        """The place of a class among the values."""
        return class_codes(len(self.values))

    @property
    def words(self) -> str:
        """Their number."""
        return f"{len(self.values)} classes"

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, and for those that are not among the values."""
        unlisted = Policy("unlisted", self.unlisted, "unlisted", "not among the values of the schema's label")
        return for_missing(self.missing), unlisted

    def encode(self, columns: Sequence[Cells], form: Form) -> EncodedLabel:
        """The place of each cell's text among the values."""
        cells = begun_with(as_texts(self.column, columns[0]), self.prefix)
        meaning = {form(text): place for place, text in enumerate(self.values)}
        codes, missing = look_up(cells, meaning), cells.codes < 0
        dropped = codes < 0
        if self.missing == "refuse" and missing.any():
            sentence = 'there is no label; set label.missing = "zero-vector", or correct the file'
            raise CellError(int(missing.argmax()), self.column, sentence)
        if self.unlisted == "refuse" and (unlisted := dropped & ~missing).any():
            sentence = (
                "is a class that the schema's label does not list in values; add it, set label.unlisted = "
                '"zero-vector", or correct the file'
            )
            raise CellError(int(unlisted.argmax()), self.column, sentence)
        tally = _tally(self.column, cells, missing, dropped, meaning)
        return EncodedLabel(codes.astype(self.coding.dtype), dropped, tally)


def _tally(column: str, cells: Texts, missing: Mask, dropped: Mask, meaning: Mapping[str, int]) -> Tally:
    unlisted = Changed(dropped & ~missing)
    return Tally(column, int(np.count_nonzero(missing)), 0, unlisted.count, alike(cells, unlisted, meaning))


Target = Label | Classes | Number | Count | EventTime
"""The label of a schema, of any type."""
LABEL_TYPES: Mapping[str, type[Target]] = {kind.type: kind for kind in (Label, Classes, Number, Count, EventTime)}


def two_classes(target: Target, what: str) -> Label:
    """The label, if it has two classes. Raises SchemaError for another; `what` needs two, as a singular subject."""
    if not isinstance(target, Label):
        raise _other(target, what, "a label of two classes (positive and negative values)")
    return target


def several_classes(target: Target, what: str) -> Classes:
    """The label, if it is of several classes. Raises SchemaError for another, which `what` does not take."""
    if not isinstance(target, Classes):
        raise _other(target, what, 'a label of several classes (type = "classes")')
    if target.classes > MOST_CLASSES:
        raise SchemaError(
            f"{what} takes up to {MOST_CLASSES} classes, and {target.column!r} has {target.classes}: count them with "
            "`rado learner levels`, and make the frequent ones the values of a category or of a label"
        )
    return target


def measured(target: Target, what: str) -> Number | Count:
    """The label, if it is a number or a count. Raises SchemaError for another, which `what` does not take."""
    if not isinstance(target, Number | Count):
        raise _other(target, what, 'a label that is a number or a count (type = "number" or "count")')
    return target


def event_time(target: Target, what: str) -> EventTime:
    """The label, if it is a time to an event. Raises SchemaError for another, which `what` does not take."""
    if not isinstance(target, EventTime):
        raise _other(target, what, 'a label that is a time to an event (type = "event")')
    return target


def with_value(target: Target, what: str) -> Number | Count | EventTime:
    """The label, if its coding has a value t. Raises SchemaError for another, which `what` does not take."""
    return target if isinstance(target, EventTime) else measured(target, what)


def _other(target: Target, what: str, needed: str) -> SchemaError:
    return SchemaError(f"{what} needs {needed}, and {target.column!r} is a label of {target.words}: change the label")
