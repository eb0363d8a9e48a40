"""Numbers between declared bounds."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.fixed_point import Mask
from dpcore.records.features.described import (
    MISSING_POLICIES,
    NOTHING,
    Bound,
    CellError,
    Cells,
    Changed,
    Comparison,
    EncodedColumn,
    Floats,
    Limit,
    Missing,
    OneGroup,
    OutOfBounds,
    Policy,
    Tally,
    Unreadable,
    Weights,
    any_of,
    as_numbers,
    begin,
    for_missing,
    for_unreadable,
    missing_cells,
    on_unreadable,
    require_unreadable,
    unreadable_cells,
)
from dpcore.records.texts import (
    Form,
    SchemaFieldError,
    require_choice,
    require_impute,
    require_name,
    require_number,
    settle,
    value_text,
)

UNIT_VERSION = 5
"""The first version of schemas with units."""


@dataclass(frozen=True, kw_only=True)
class RealFeature(OneGroup):
    """A number v in [lower, upper], encoded as 2 (v - lower) / (upper - lower) - 1. Bounds never come from the data."""

    type: ClassVar[str] = "real"
    reals: ClassVar[tuple[str, ...]] = ("lower", "upper", "impute")
    reads: ClassVar[Literal["numbers", "texts"]] = "numbers"
    is_ordered: ClassVar[bool] = True
    comparison: ClassVar[Comparison] = "number"
    comparison_words: ClassVar[str] = "a real feature: compare it with a number using >=, >, < or <="
    is_one_hot: ClassVar[bool] = False
    scaled_coordinates: ClassVar[int] = 1
    unit_groups: ClassVar[int] = 0
    replaces_column: ClassVar[bool] = False
    is_named: ClassVar[bool] = False
    """Whether its values are read and shown as texts, such as dates; then they are whole numbers."""
    name: str
    column: str = ""
    lower: float
    upper: float
    missing: Missing = "refuse"
    impute: float | None = None
    out_of_bounds: OutOfBounds = "refuse"
    unreadable: Unreadable | None = None
    unit: str | None = None
    """What it is measured in, for people and for recode files; it changes no coordinate."""

    def __post_init__(self) -> None:
        path = begin(self)
        lower, upper = require_number(f"{path}.lower", self.lower), require_number(f"{path}.upper", self.upper)
        if lower >= upper:
            raise SchemaFieldError(f"{path}.lower", f"{lower!r} is not below upper = {upper!r}; write lower < upper")
        if not math.isfinite(upper - lower):
            raise SchemaFieldError(f"{path}.upper", "is too far from lower for a double; bring the bounds closer")
        require_choice(f"{path}.missing", self.missing, MISSING_POLICIES)
        require_choice(f"{path}.out_of_bounds", self.out_of_bounds, ("refuse", "clip", "zero-vector"))
        require_unreadable(path, self.unreadable)
        if self.unit is not None:
            require_name(f"{path}.unit", self.unit)
        require_impute(f"{path}.impute", self.impute, (self.missing, self.unreadable))
        if self.impute is not None:
            settle(self, impute=require_number(f"{path}.impute", self.impute))
            if not lower <= self.impute <= upper:
                raise SchemaFieldError(f"{path}.impute", "is outside the bounds; choose a value within them")
        settle(self, lower=lower, upper=upper)

    @property
    def version(self) -> int:
        """The first version with a unit, if there is one."""
        return super().version if self.unit is None else UNIT_VERSION

    @property
    def versioned_key(self) -> str:
        """The field that needs a version after the first."""
        return "unreadable" if self.unit is None else "unit"

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The one coordinate, named as the feature."""
        return (self.name,)

    @property
    def squared_range(self) -> int:
        """The coordinate is from -1 to 1."""
        return 4

    @property
    def mean_square(self) -> float:
        """Of a uniform coordinate in [-1, 1]."""
        return 1 / 3

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper."""
        return self.lower, self.upper

    def written(self, value: float, digits: int | None = None) -> str:
        """A value in the column's units as people write it. digits: at most so many; None for all."""
        return value_text(value) if digits is None else f"{value:.{digits}g}"

    def in_json(self, value: float) -> float | str:
        """A value in the column's units for JSON: a number, or a text if it is not read as one."""
        return value

    def with_bounds(self, lower: Limit, upper: Limit) -> Self:
        """The feature with these bounds."""
        low, high = self.value(lower), self.value(upper)
        impute = None if self.impute is None else min(max(self.impute, low), high)
        return replace(self, lower=low, upper=high, impute=impute)

    def value(self, limit: Limit) -> float:
        """A bound or an edge in the column's units. Raises TypeError for one of another type."""
        if isinstance(limit, str):
            raise TypeError(f"{limit!r} is no number, as the column's values are")
        return limit

    def number(self, bound: Bound) -> Fraction:
        """What a predicate's bound is in the column's units. Raises TypeError for a bound of another type."""
        if not isinstance(bound, Fraction):
            raise TypeError("a real feature is compared with numbers")
        return bound

    def bound(self, number: Fraction) -> Bound:
        """The predicate's bound that has this value. Raises ValueError if there is none."""
        return number

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, for those that are no number, and for those outside of the bounds."""
        return (
            for_missing(self.missing),
            for_unreadable(self.on_unreadable),
            Policy("out_of_bounds", self.out_of_bounds, "beyond", "beyond the schema's bounds"),
        )

    @property
    def imputed_text(self) -> str:
        """The number, with at most six digits."""
        return "" if self.impute is None else f"{self.impute:g}"

    @property
    def codes(self) -> NDArray[np.float64]:
        """None: numbers are not listed."""
        return np.zeros((0, 1))

    @property
    def levels(self) -> tuple[tuple[str, ...], NDArray[np.float64]]:
        """None: numbers are not listed."""
        return (), self.codes

    @property
    def changes(self) -> tuple[tuple[str, Weights], ...]:
        """One unit of the column."""
        return ((f"for each {self.unit or 'unit'} more", ((self.name, 2.0 / (self.upper - self.lower)),)),)

    @property
    def start(self) -> Weights:
        """Of the number 0."""
        return ((self.name, -(self.upper + self.lower) / (self.upper - self.lower)),)

    def draw(self, random: np.random.Generator, rows: int) -> NDArray[np.float64]:
        """Uniform between the bounds."""
        return random.uniform(-1.0, 1.0, (rows, 1))

    @property
    def on_unreadable(self) -> Unreadable:
        """What happens to a cell that is no finite number."""
        return on_unreadable(self.missing, self.unreadable)

    def encode(self, cells: Cells, form: Form) -> EncodedColumn:  # noqa: ARG002  (numbers have no form)
        """Linear between the bounds."""
        read = as_numbers(self.column, cells)
        filled, substitute = read.values, self.lower if self.impute is None else self.impute
        missing = missing_cells(self.column, self.missing, read.missing)
        if missing.count:
            filled = np.where(read.missing, substitute, filled)
        # If there is a NaN, it is both minimum and maximum, and the comparisons fail.
        if len(filled) == 0 or (filled.min() >= self.lower and filled.max() <= self.upper):
            return EncodedColumn(self._scaled(filled), Tally(self.name, missing.count), missing.dropped)
        finite = np.isfinite(filled)
        unreadable = NOTHING if finite.all() else unreadable_cells(self.column, self.on_unreadable, ~finite)
        if unreadable.count:
            filled = np.where(finite, filled, substitute)
        # Imputed values are within the bounds.
        above = filled > self.upper
        beyond = self._beyond(above | (filled < self.lower), above)
        if beyond.count:
            filled = np.clip(filled, self.lower, self.upper)
        tally = Tally(self.name, missing.count, unreadable.count, beyond=beyond.count)
        return EncodedColumn(self._scaled(filled), tally, any_of(missing.dropped, unreadable.dropped, beyond.dropped))

    def _scaled(self, bounded: Floats) -> Floats:
        """2 ((v - lower) / (upper - lower)) - 1, rounded after each operation, in that order; v within the bounds."""
        scaled: Floats = bounded - self.lower
        scaled /= self.upper - self.lower
        scaled *= 2.0
        scaled -= 1.0
        return scaled

    def _beyond(self, beyond: Mask, above: Mask) -> Changed:
        """The cells outside of the bounds. above: beyond the upper one. Raises CellError if the policy refuses them."""
        changed = Changed(beyond, drops=self.out_of_bounds == "zero-vector")
        if changed.count and self.out_of_bounds == "refuse":
            row = int(beyond.argmax())
            side, bound = ("above", "upper") if above[row] else ("below", "lower")
            limit = self.written(self.upper if above[row] else self.lower)
            raise CellError(
                row,
                self.column,
                f'is {side} the schema\'s {bound} bound {limit}; set out_of_bounds = "clip" or "zero-vector", or '
                "correct the file",
            )
        return changed
