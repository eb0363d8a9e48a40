"""What a feature answers about itself, whatever its type, and what several types share."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.numbers.fixed_point import Mask
from dpcore.records.texts import (
    TEXT_STEPS,
    Form,
    SchemaFieldError,
    form_of,
    require_choice,
    require_impute,
    require_name,
    require_text,
    settle,
)

# Cells of one column, what encoding makes of them, and what policies do with unusual ones, for all types.


#: The form in which most texts are the same.
_LOOSEST = form_of(TEXT_STEPS)
#: The most distinct texts of a block that are compared in it: a column with more is no category.
_MOST_COMPARED = 1000

Floats = NDArray[np.float64]

Unusual = Literal["missing", "unreadable", "unlisted", "beyond"]
"""Cells that a policy is for: empty; no finite number; in none of the schema's texts; outside of the bounds."""


@dataclass(frozen=True)
class Numbers:
    """Cells of a numeric column: values (m,) float64, ignored where missing (m,); NaN or infinite if unreadable."""

    values: Floats
    missing: Mask


@dataclass(frozen=True)
class Texts:
    """Cells of a text column: codes (m,) index `texts`; -1 means that the cell is missing.

    booleans: the column was boolean: "true" and "false" match in any case, as some libraries make booleans of "True".
    """

    codes: NDArray[np.int64]
    texts: tuple[str, ...]
    booleans: bool = False


Cells = Numbers | Texts


class CellError(DataError):
    """A cell cannot be encoded; the caller adds its place in the file. row: from 0, None if all are concerned.

    sentence: the broken rule, without the cell's value, because errors appear in logs.
    """

    def __init__(self, row: int | None, column: str, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence, row=row, column=column)


@dataclass(frozen=True)
class Tally:
    """How many cells of one feature, or of the label, a policy changed, by what they are."""

    name: str
    missing: int = 0
    """Empty."""
    unreadable: int = 0
    """No finite number."""
    unlisted: int = 0
    """In none of the schema's texts, of which `alike` differ from one only in case, blanks or Unicode form."""
    alike: int = 0
    beyond: int = 0
    """Outside of the bounds. dpcore.records.encoding has the words."""

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
class EncodedColumn:
    """One encoded feature: (m,) float64, or (m, k) bool; dropped: (m,), rows that become zero vectors, or None."""

    values: Floats | Mask
    tally: Tally
    dropped: Mask | None = None


def as_numbers(column: str, cells: Cells) -> Numbers:
    """The cells of a column that was read as numbers."""
    assert isinstance(cells, Numbers), f"column {column!r} must be read as numbers"
    return cells


def as_texts(column: str, cells: Cells) -> Texts:
    """The cells of a column that was read as texts."""
    assert isinstance(cells, Texts), f"column {column!r} must be read as texts"
    return cells


def look_up(cells: Texts, meaning: Mapping[str, int]) -> NDArray[np.int64]:
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


class Changed:
    """Cells that one policy changes: a mask (m,), how many they are, and whether their rows become zero vectors."""

    def __init__(self, cells: Mask, *, drops: bool = False) -> None:
        self.cells, self.count = cells, int(np.count_nonzero(cells))
        self.dropped = cells if drops and self.count else None


NOTHING = Changed(np.zeros(0, dtype=np.bool_))


def missing_cells(column: str, policy: str, missing: Mask) -> Changed:
    """The missing cells. Raises CellError if the policy refuses them."""
    changed = Changed(missing, drops=policy == "zero-vector")
    if changed.count and policy == "refuse":
        sentence = 'the cell is empty; set missing = "impute" or "zero-vector" for the feature, or correct the file'
        raise CellError(int(missing.argmax()), column, sentence)
    return changed


_NO_NUMBER = (
    "is not a finite number; write it in the digits 0 to 9 with a decimal point, leave the cell empty if the value is "
    'not known, or set unreadable = "impute" or "zero-vector" for the feature'
)


def unreadable_cells(column: str, policy: str, unreadable: Mask, sentence: str = _NO_NUMBER) -> Changed:
    """The cells that are neither missing nor what the column is of. Raises CellError if the policy refuses them."""
    changed = Changed(unreadable, drops=policy == "zero-vector")
    if changed.count and policy == "refuse":
        raise CellError(int(unreadable.argmax()), column, sentence)
    return changed


def absent_cells(
    column: str, policies: tuple[str, str], cells: Texts, codes: NDArray[np.int64], sentence: str
) -> tuple[Changed, Changed]:
    """The missing cells, and those with a text that the schema does not list.

    policies: for missing cells, and for the others. codes: the meaning of each cell, as of `look_up`. sentence: what an
    unlisted cell is, and what to do. Raises CellError if a policy refuses a cell.
    """
    nothing = codes < 0
    if not nothing.any():
        return NOTHING, NOTHING
    absent = cells.codes < 0
    missing = missing_cells(column, policies[0], absent)
    changed = Changed(nothing & ~absent, drops=policies[1] == "zero-vector")
    if changed.count and policies[1] == "refuse":
        raise CellError(int(changed.cells.argmax()), column, sentence)
    return missing, changed


def alike(cells: Texts, unlisted: Changed, listed: Collection[str]) -> int:
    """How many of the unlisted cells would be listed if texts were compared after every step of a schema's `texts`."""
    if not unlisted.count or len(cells.texts) > _MOST_COMPARED:
        return 0
    known = set(map(_LOOSEST, listed))
    same = np.array([*(_LOOSEST(text) in known for text in cells.texts), False])
    return int(np.count_nonzero(same[cells.codes] & unlisted.cells))


def any_of(*masks: Mask | None) -> Mask | None:
    """The rows in any of these masks; None if there is none."""
    given = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(given) if len(given) > 1 else given[0] if given else None


Missing = Literal["refuse", "impute", "zero-vector"]
OutOfBounds = Literal["refuse", "clip", "zero-vector"]
UnknownBoolean = Literal["refuse", "impute", "zero-vector"]
UnknownCategory = Literal["refuse", "zero", "impute", "zero-vector"]
MissingLabel = Literal["refuse", "zero-vector"]
Unreadable = Literal["refuse", "impute", "zero-vector"]

MISSING_POLICIES = ("refuse", "impute", "zero-vector")

Comparison = Literal["number", "value", "flag"]
"""What a predicate compares a group with: a bound, a listed value, or nothing, because the group is true or false."""

_DAY = re.compile(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_FIRST_DAY, _LAST_DAY = (int(np.datetime64(text).astype(np.int64)) for text in ("0001-01-01", "9999-12-31"))


@dataclass(frozen=True, order=True)
class Day:
    """A day of the Gregorian calendar, from year 1 to 9999, without Python's clock. Raises ValueError beyond."""

    number: int
    """Days after 1970-01-01."""

    def __post_init__(self) -> None:
        if not _FIRST_DAY <= self.number <= _LAST_DAY:
            raise ValueError("no date has so many days")

    @classmethod
    def of(cls, text: str) -> "Day | None":
        """The day that is written so, as in 2024-12-31; None if it is written otherwise or there is no such day."""
        if not _DAY.fullmatch(text):
            return None
        try:
            return cls(int(np.datetime64(text).astype(np.int64)))
        except ValueError:  # the 30th of February
            return None

    def __str__(self) -> str:
        return str(np.datetime64(self.number, "D"))


Bound = Fraction | Day
"""What a predicate compares a number or a date with. A fraction beside dates is in days after 1970-01-01."""

FIRST_VERSION, SCHEMA_VERSION = 1, 5
"""The versions of schemas that this version reads and writes."""


class Policy(NamedTuple):
    """What a schema does with unusual cells. key: the field. choice: its value. words: what the cells are.

    columns: whose cells they are, of a label with two columns; () for its own column alone.
    """

    key: str
    choice: str
    cells: Unusual
    words: str
    columns: tuple[str, ...] = ()


Limit = float | str
"""A bound or an edge in a column's units, as a person gives it: a number, or a date as a text."""

Weights = tuple[tuple[str, float], ...]
"""Coordinates with a weight for each."""


class DescribedGroup(ABC):
    """What other modules ask of a group of coordinates that one column is encoded as: a number, a flag or a category.

    Estimators, predicates and pictures see groups only: a feature made of known groups needs no change in them.
    """

    name: str
    """Its name in predicates, and the only coordinate's or the start of each coordinate's name."""
    column: str
    """The column of its feature."""
    type: ClassVar[str]
    """In a schema the name of the feature that is this group alone."""
    is_ordered: ClassVar[bool]
    """Whether a model can be made to rise or fall with it."""
    comparison: ClassVar[Comparison]
    """With what a predicate compares it."""
    comparison_words: ClassVar[str]
    """The same, in an error."""
    is_one_hot: ClassVar[bool]
    """Whether at most one coordinate is 1 and the others are 0."""
    scaled_coordinates: ClassVar[int]
    """How many coordinates are anywhere in [-1, 1]."""
    unit_groups: ClassVar[int]
    """1 if the other coordinates have the squared length 1, or 0 for a value that is not listed; else 0."""

    @property
    @abstractmethod
    def coordinates(self) -> tuple[str, ...]:
        """The names of its coordinates, in order."""

    @property
    @abstractmethod
    def squared_range(self) -> int:
        """The largest squared distance of the codings of two cells, rounded up. Noise of a joint design rests on it."""

    @property
    @abstractmethod
    def mean_square(self) -> float:
        """The mean square of each of its coordinates, if all values are equally likely."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest value, in the column's units; None if its values are no numbers."""

    @property
    @abstractmethod
    def codes(self) -> NDArray[np.float64]:
        """The coding of each value, (values, coordinates), for means over them; no value if they are numbers."""

    @property
    @abstractmethod
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """The words and the codings of the values to show, (values, coordinates); no value if they are numbers."""

    @property
    @abstractmethod
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """Changes of a cell in words, and what each adds to the coordinates."""

    @property
    @abstractmethod
    def start(self) -> Weights:
        """The coordinates that are not 0 in the row of the intercept: of 0, false, or the first value."""

    @abstractmethod
    def draw(self, random: np.random.Generator, rows: int) -> NDArray[np.float64]:
        """Codings of made-up cells, independent and evenly spread, (rows, coordinates)."""


class DescribedFeature(ABC):
    """What other modules ask of a feature of a schema: how one column is read, and which groups encode it."""

    name: str
    column: str
    type: ClassVar[str]
    """Its name in a schema."""
    reals: ClassVar[tuple[str, ...]]
    """The fields that are doubles."""
    reads: ClassVar[Literal["numbers", "texts"]]
    """How its cells are read."""
    replaces_column: ClassVar[bool]
    """Whether no other feature may derive from its column."""

    @property
    def cell_rules(self) -> tuple[str, ...]:
        """What an exported model says about its cells beside the rules for all features."""
        return ()

    @property
    @abstractmethod
    def groups(self) -> "tuple[DescribedGroup, ...]":
        """Its groups of coordinates, in order."""

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the coordinates of all groups, in order."""
        return tuple(name for group in self.groups for name in group.coordinates)

    @property
    def squared_range(self) -> int:
        """A bound on the squared distance of the codings of two cells: the sum of the groups'."""
        return sum(group.squared_range for group in self.groups)

    def with_bounds(self, lower: Limit, upper: Limit) -> Self:  # noqa: ARG002  (those that have bounds override it)
        """The feature with these bounds, an imputed value moved into them. Raises TypeError, SchemaFieldError."""
        raise TypeError(f"a {self.type} feature has no bounds")

    @property
    def version(self) -> int:
        """The first version of schemas that has the feature as it is."""
        return FIRST_VERSION if getattr(self, "unreadable", None) is None else 2

    @property
    def versioned_key(self) -> str:
        """The field that needs a version after the first."""
        return "unreadable"

    @abstractmethod
    def encode(self, cells: Cells, form: Form) -> EncodedColumn:
        """The coordinates of the cells of its column, texts in this form. Raises CellError if a policy refuses one."""

    @property
    @abstractmethod
    def policies(self) -> tuple[Policy, ...]:
        """What the schema does with its unusual cells, empty ones first."""

    @property
    @abstractmethod
    def imputed_text(self) -> str:
        """The value that it imputes, as people write it; "" if it imputes none."""


class OneGroup(DescribedGroup, DescribedFeature):
    """A feature that is a single group of coordinates."""

    @property
    def groups(self) -> tuple[Self, ...]:
        """The feature itself."""
        return (self,)


#: The codings of false and of true, (2, 1).
FALSE_TRUE = np.array([[-1.0], [1.0]])
FALSE_TRUE.setflags(write=False)


def for_missing(choice: str) -> Policy:
    """The policy for empty cells."""
    return Policy("missing", choice, "missing", "empty")


def for_unreadable(choice: str, what: str = "finite number") -> Policy:
    """The policy for cells that are neither empty nor what a column is of."""
    return Policy("unreadable", choice, "unreadable", f"unreadable (no {what})")


def on_unreadable(missing: Missing, unreadable: Unreadable | None) -> Unreadable:
    """The policy for cells that are no finite number: `unreadable`, or what its absence means.

    They are never imputed unless the schema says so: a column that is wholly misread must not become a constant.
    """
    if unreadable is not None:
        return unreadable
    return "refuse" if missing == "refuse" else "zero-vector"


def require_unreadable(path: str, value: object) -> None:
    """Check the field `unreadable`, which need not be set."""
    if value is not None:
        require_choice(f"{path}.unreadable", value, MISSING_POLICIES)


def require_boolean_impute(path: str, value: object, policies: tuple[str | None, ...]) -> None:
    """Check that `impute` is true or false if one of the policies uses it, and not given otherwise."""
    require_impute(f"{path}.impute", value, policies)
    if value is not None and not isinstance(value, bool):
        raise SchemaFieldError(f"{path}.impute", f"{value!r} is not a boolean; write true or false")


def begin(feature: DescribedFeature) -> str:
    """Check the fields of all features, set the default column, and return the path of the feature's fields."""
    path = f"features.{require_name('features.name', feature.name)}"
    settle(feature, column=require_text(f"{path}.column", feature.column or feature.name))
    return path
