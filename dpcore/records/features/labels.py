"""Labels: the column to predict. A label describes itself, as a feature does: its fields, and what its cells mean.

A type of label is a class here. What needs one type asks for it by `two_classes` or `several_classes`, which refuse the
others: no query and no estimator computes something else in silence.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import SchemaError
from dpcore.numbers.fixed_point import Mask
from dpcore.records.features.described import (
    FIRST_VERSION,
    CellError,
    Changed,
    MissingLabel,
    Policy,
    Tally,
    Texts,
    alike,
    for_missing,
    look_up,
)
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
"""A label's codes are 8 bits, and a query for moments has as many sums of records as there are classes."""

_EITHER = " | "
"""Between the texts of a class, in its name."""
_POLICIES = ("refuse", "zero-vector")


@dataclass(frozen=True)
class EncodedLabel:
    """Labels of rows."""

    codes: NDArray[np.int8]
    """(m,), undefined where dropped."""
    dropped: Mask
    """(m,)."""
    tally: Tally
    """Of what policies changed."""


class DescribedLabel(ABC):
    """What other modules ask of a label, whatever its type."""

    type: ClassVar[str]
    """Its name in a schema."""
    has_type_field: ClassVar[bool]
    """Whether a schema writes the type: the first type has no such field."""
    compared: ClassVar[tuple[tuple[str, ...], ...]]
    """Lists of texts that cells are compared with: no text of them may be in the other, or twice in one."""
    column: str

    @property
    @abstractmethod
    def version(self) -> int:
        """The first version of schemas that has it."""

    @property
    @abstractmethod
    def versioned_key(self) -> str:
        """The field that needs a version after the first."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """0 if a label is -1 or +1; else the number of classes, whose codes count from 0."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What it is, in a few words."""

    @property
    @abstractmethod
    def policies(self) -> tuple[Policy, ...]:
        """What the schema does with its unusual cells, empty ones first."""

    @property
    @abstractmethod
    def lenient(self) -> Self:
        """The same, but no cell is refused: a row whose label is not known is dropped."""

    @abstractmethod
    def encode(self, cells: Texts, form: Form) -> EncodedLabel:
        """The labels of cells, whose texts are in this form. Raises CellError if a policy refuses a cell."""


@dataclass(frozen=True, kw_only=True)
class Label(DescribedLabel):
    """A label of two classes."""

    type: ClassVar[str] = "two-classes"
    has_type_field: ClassVar[bool] = False
    compared: ClassVar[tuple[tuple[str, ...], ...]] = (("positive", "negative"),)
    version: ClassVar[int] = FIRST_VERSION
    versioned_key: ClassVar[str] = "positive"
    classes: ClassVar[int] = 0
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
        require_choice("label.missing", self.missing, _POLICIES)

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

    @property
    def lenient(self) -> Self:
        """With empty cells, and those in neither list, dropped."""
        return replace(self, missing="zero-vector")

    def encode(self, cells: Texts, form: Form) -> EncodedLabel:
        """-1 or +1."""
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
    version: ClassVar[int] = 4
    versioned_key: ClassVar[str] = "type"
    column: str
    values: tuple[str, ...]
    """The classes' texts; the code of a class is its place, from 0."""
    missing: MissingLabel = "refuse"
    """How a row is handled whose label is empty."""
    unlisted: MissingLabel = "refuse"
    """How one is handled whose label is not among the values."""

    def __post_init__(self) -> None:
        require_text("label.column", self.column)
        values = require_texts("label.values", self.values)
        if not 2 <= len(values) <= MOST_CLASSES:
            raise SchemaFieldError("label.values", f"has {len(values)} classes; list 2 to {MOST_CLASSES}")
        settle(self, values=values)
        require_choice("label.missing", self.missing, _POLICIES)
        require_choice("label.unlisted", self.unlisted, _POLICIES)

    @property
    def classes(self) -> int:
        """k, the number of values."""
        return len(self.values)

    @property
    def words(self) -> str:
        """Their number."""
        return f"{len(self.values)} classes"

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, and for those that are not among the values."""
        unlisted = Policy("unlisted", self.unlisted, "unlisted", "not among the values of the schema's label")
        return for_missing(self.missing), unlisted

    @property
    def lenient(self) -> Self:
        """With empty and unlisted cells dropped."""
        return replace(self, missing="zero-vector", unlisted="zero-vector")

    def encode(self, cells: Texts, form: Form) -> EncodedLabel:
        """The place of each cell's text among the values."""
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
        return EncodedLabel(codes.astype(np.int8), dropped, _tally(self.column, cells, missing, dropped, meaning))


def _tally(column: str, cells: Texts, missing: Mask, dropped: Mask, meaning: Mapping[str, int]) -> Tally:
    unlisted = Changed(dropped & ~missing)
    return Tally(column, int(np.count_nonzero(missing)), 0, unlisted.count, alike(cells, unlisted, meaning))


Target = Label | Classes
"""The label of a schema, of any type."""
LABEL_TYPES: Mapping[str, type[Label | Classes]] = {Label.type: Label, Classes.type: Classes}


def two_classes(target: Target, what: str) -> Label:
    """The label, if it has two classes. Raises SchemaError for another; `what` needs two, as a singular subject."""
    if not isinstance(target, Label):
        raise _other(target, what, "a label of two classes (positive and negative values)")
    return target


def several_classes(target: Target, what: str) -> Classes:
    """The label, if it is of several classes. Raises SchemaError for another, which `what` does not take."""
    if not isinstance(target, Classes):
        raise _other(target, what, 'a label of several classes (type = "classes")')
    return target


def _other(target: Target, what: str, needed: str) -> SchemaError:
    return SchemaError(f"{what} needs {needed}, and {target.column!r} is a label of {target.words}: change the label")
