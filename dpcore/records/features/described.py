"""What a feature answers about itself, whatever its type, and what several types share."""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpcore.records.features.cells import Cells, EncodedColumn, Unusual
from dpcore.records.features.field_checks import (
    SchemaFieldError,
    require_choice,
    require_impute,
    require_name,
    require_text,
    settle,
)
from dpcore.records.text_forms import Form

Missing = Literal["refuse", "impute", "zero-vector"]
OutOfBounds = Literal["refuse", "clip", "zero-vector"]
UnknownBoolean = Literal["refuse", "impute", "zero-vector"]
UnknownCategory = Literal["refuse", "zero", "impute", "zero-vector"]
MissingLabel = Literal["refuse", "zero-vector"]
Unreadable = Literal["refuse", "impute", "zero-vector"]

MISSING_POLICIES = ("refuse", "impute", "zero-vector")

Comparison = Literal["number", "value", "flag"]
"""What a predicate compares a feature with: a bound, a listed value, or nothing, because the feature is true or false.
"""


class Policy(NamedTuple):
    """What a schema does with unusual cells. key: the field. choice: its value. words: what the cells are."""

    key: str
    choice: str
    cells: Unusual
    words: str


Weights = tuple[tuple[str, float], ...]
"""Coordinates with a weight for each."""


class DescribedFeature(ABC):
    """What other modules ask of a feature. They do not ask for its type, so a new type has to answer all of this."""

    name: str
    column: str
    type: ClassVar[str]
    reals: ClassVar[tuple[str, ...]]
    reads: ClassVar[Literal["numbers", "texts"]]
    is_ordered: ClassVar[bool]
    comparison: ClassVar[Comparison]
    comparison_words: ClassVar[str]
    is_one_hot: ClassVar[bool]
    scaled_coordinates: ClassVar[int]
    unit_groups: ClassVar[int]
    replaces_column: ClassVar[bool]
    """type: its name in a schema. reals: the fields that are doubles. reads: how its cells are read. is_ordered:
    whether a model can be made to rise or fall with it. comparison: with what a predicate compares it; comparison_words
    says so in an error. is_one_hot: whether at most one coordinate is 1 and the others are 0. scaled_coordinates: how
    many coordinates are anywhere in [-1, 1]. unit_groups: how many groups of other coordinates have the squared length
    1, or 0 for a value that is not listed. replaces_column: whether no other feature may derive from its column."""

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

    @abstractmethod
    def encode(self, cells: Cells, form: Form) -> EncodedColumn:
        """The coordinates of the cells of its column, which were read as `reads` says.

        form: of texts, in which cells already are. Raises CellError if a policy refuses a cell.
        """

    @property
    @abstractmethod
    def policies(self) -> tuple[Policy, ...]:
        """What the schema does with its unusual cells, empty ones first."""

    @property
    @abstractmethod
    def imputed_text(self) -> str:
        """The value that it imputes, as people write it; "" if it imputes none."""

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


#: The codings of false and of true, (2, 1).
FALSE_TRUE = np.array([[-1.0], [1.0]])
FALSE_TRUE.setflags(write=False)


def for_missing(choice: str) -> Policy:
    """The policy for empty cells."""
    return Policy("missing", choice, "missing", "empty")


def for_unreadable(choice: str) -> Policy:
    """The policy for cells that are neither empty nor a finite number."""
    return Policy("unreadable", choice, "unreadable", "unreadable (no finite number)")


def on_unreadable(missing: Missing, unreadable: Unreadable | None) -> Unreadable:
    """The policy for cells that are no finite number: `unreadable`, or what its absence means.

    Without it they are refused where missing cells are refused too; otherwise their rows become zero vectors. They are
    imputed only if the schema says so: a column that is wholly misread must not become a constant.
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
