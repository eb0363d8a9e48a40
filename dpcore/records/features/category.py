"""Columns of a few listed values."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dpcore.records.features.described import (
    MISSING_POLICIES,
    Cells,
    Comparison,
    EncodedColumn,
    Missing,
    OneGroup,
    Policy,
    Tally,
    Texts,
    UnknownCategory,
    Weights,
    absent_cells,
    alike,
    any_of,
    as_texts,
    begin,
    for_missing,
    look_up,
)
from dpcore.records.texts import (
    LONGEST,
    Form,
    SchemaFieldError,
    nearest,
    require_choice,
    require_impute,
    require_texts,
    settle,
    value_text,
)

_UNLISTED = (
    "is a category that the schema does not list in values; add it, "
    'set unknown = "zero", "impute" or "zero-vector", or correct the file'
)
_PREFIX_RULE = (
    "a category with a `prefix` compares only so many of the first code points of the cell's text, as `texts` leaves "
    "it, with its values"
)
PREFIX_VERSION = 5
"""The first version of schemas with prefixes."""


def require_prefixes(path: str, prefix: int, values: Iterable[str], form: Form) -> None:
    """Check that no value, in this form, is longer than the prefix: no cell would be it. Raises SchemaFieldError."""
    if longer := [value for value in values if len(form(value)) > prefix]:
        raise SchemaFieldError(
            f"{path}.values",
            f"{longer[0]!r} has more than the {prefix} characters of prefix; shorten it, or raise prefix",
        )


def check_prefix(path: str, prefix: object, values: Iterable[str]) -> None:
    """Check a number of first characters, and that no value is longer. Raises SchemaFieldError."""
    if type(prefix) is not int or not 1 <= prefix <= LONGEST:
        sentence = f"{prefix!r} is no number of characters; write one from 1 to {LONGEST}, or leave it out"
        raise SchemaFieldError(f"{path}.prefix", sentence)
    require_prefixes(path, prefix, values, str)


def begun_with(cells: Texts, prefix: int | None) -> Texts:
    """The cells with so many of the first characters of each text; None: as they are."""
    if prefix is None:
        return cells
    return Texts(cells.codes, tuple(text[:prefix] for text in cells.texts), cells.booleans)


@dataclass(frozen=True, kw_only=True)
class CategoryFeature(OneGroup):
    """One of a list of values, one-hot encoded as 0/1; unknown = "zero": all 0 for one that is not listed."""

    type: ClassVar[str] = "category"
    reals: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[Literal["numbers", "texts"]] = "texts"
    is_ordered: ClassVar[bool] = False
    comparison: ClassVar[Comparison] = "value"
    comparison_words: ClassVar[str] = "a category feature: compare it with one of its values using == or !="
    is_one_hot: ClassVar[bool] = True
    scaled_coordinates: ClassVar[int] = 0
    unit_groups: ClassVar[int] = 1
    replaces_column: ClassVar[bool] = False
    name: str
    column: str = ""
    values: tuple[str, ...]
    missing: Missing = "refuse"
    unknown: UnknownCategory = "refuse"
    impute: str | None = None
    prefix: int | None = None
    """How many of the first characters of a cell's text are its value; None: the whole text."""

    def __post_init__(self) -> None:
        path = begin(self)
        values = require_texts(f"{path}.values", self.values)
        if self.prefix is not None:
            check_prefix(path, self.prefix, values)
        require_choice(f"{path}.missing", self.missing, MISSING_POLICIES)
        require_choice(f"{path}.unknown", self.unknown, ("refuse", "zero", "impute", "zero-vector"))
        require_impute(f"{path}.impute", self.impute, (self.missing, self.unknown))
        if self.impute is not None:
            impute: object = self.impute
            text = impute if isinstance(impute, str) else value_text(impute)
            if text not in values:
                raise SchemaFieldError(f"{path}.impute", f"{text!r} is not in values; {nearest(text, values)}")
            settle(self, impute=text)
        settle(self, values=values)

    @property
    def version(self) -> int:
        """The first version with a prefix, if there is one."""
        return super().version if self.prefix is None else PREFIX_VERSION

    @property
    def versioned_key(self) -> str:
        """The field that needs a version after the first."""
        return "prefix"

    @property
    def cell_rules(self) -> tuple[str, ...]:
        """How a prefix is compared."""
        return () if self.prefix is None else (_PREFIX_RULE,)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """One coordinate per value, named "feature=value", in the listed order."""
        return tuple(f"{self.name}={value}" for value in self.values)

    @property
    def squared_range(self) -> int:
        """Two values differ in two indicators by 1; a value that is not listed differs from another in one."""
        return 2

    @property
    def mean_square(self) -> float:
        """One of the indicators is 1."""
        return 1 / len(self.values)

    @property
    def bounds(self) -> None:
        """None: texts have no bounds."""
        return None

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, and for those that are not among the values."""
        unknown = Policy("unknown", self.unknown, "unlisted", "not among the schema's values")
        return for_missing(self.missing), unknown

    @property
    def imputed_text(self) -> str:
        """The value in quotation marks."""
        return "" if self.impute is None else repr(self.impute)

    @property
    def codes(self) -> NDArray[np.float64]:
        """Of the listed values."""
        return np.eye(len(self.values))

    @property
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """The listed values, and any other if rows with one are kept."""
        if self.unknown != "zero":
            return self.values, self.codes
        return (*self.values, "any other value"), np.vstack([self.codes, np.zeros((1, len(self.values)))])

    @property
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """Each other value instead of the first."""
        first, *others = zip(self.values, self.coordinates, strict=True)
        return tuple((f"{value} instead of {first[0]}", ((name, 1.0), (first[1], -1.0))) for value, name in others)

    @property
    def start(self) -> Weights:
        """Of the first value."""
        return ((self.coordinates[0], 1.0),)

    def draw(self, random: np.random.Generator, rows: int) -> NDArray[np.float64]:
        """Each value as often as one that is not listed, whose place is beyond the last."""
        values = random.integers(0, len(self.values) + 1, rows)
        return np.asarray(np.eye(len(self.values) + 1)[values, :-1])

    def encode(self, cells: Cells, form: Form) -> EncodedColumn:
        """1 in the place of the cell's value, 0 elsewhere."""
        read = begun_with(as_texts(self.column, cells), self.prefix)
        places = {form(text): place for place, text in enumerate(self.values)}
        codes = look_up(read, places)
        missing, unlisted = absent_cells(self.column, (self.missing, self.unknown), read, codes, _UNLISTED)
        for changed, policy in ((missing, self.missing), (unlisted, self.unknown)):
            if changed.count and policy == "impute" and self.impute is not None:
                codes = np.where(changed.cells, places[form(self.impute)], codes)
        tally = Tally(self.name, missing.count, 0, unlisted.count, alike(read, unlisted, places))
        dropped = any_of(missing.dropped, unlisted.dropped)
        return EncodedColumn(codes[:, None] == np.arange(len(places)), tally, dropped)
