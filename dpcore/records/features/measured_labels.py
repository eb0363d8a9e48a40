"""Labels that are measured: numbers between declared bounds, and counts.

Each has a value t in [-1, 1], linear between the bounds, or between their logarithms: queries and estimators compute
with t, and bounds never come from the data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from dpcore.numbers.fixed_point import ONE, Mask
from dpcore.records.coding import NUMBER, OFFSET_BITS, Coding
from dpcore.records.features.described import (
    CellError,
    Cells,
    Changed,
    Floats,
    MissingLabel,
    OutOfBounds,
    Policy,
    Tally,
    as_numbers,
    for_missing,
    for_unreadable,
)
from dpcore.records.features.described_label import LABEL_POLICIES, DescribedLabel, EncodedLabel
from dpcore.records.texts import (
    Form,
    SchemaFieldError,
    require_choice,
    require_name,
    require_number,
    require_text,
    settle,
    value_text,
)

MEASURED_VERSION = 5
"""The first version of schemas with labels that are numbers or counts."""

LARGEST_COUNT = 1_000_000
_LEAST_EXPOSURE, _LARGEST_EXPOSURE = 1e-9, 1e9
_OUT_OF_BOUNDS = ("refuse", "clip", "zero-vector")

_LN2 = math.log(2)
_TERMS = 12


def logarithm(values: Floats) -> Floats:
    """Natural logarithms of positive numbers, from operations that IEEE 754 rounds alike on every machine.

    2 artanh((r - 1) / (r + 1)) + e log 2 for v = r 2^e with r in [sqrt(1/2), sqrt(2)): the first terms of artanh's
    series that is left out is below 2^-56. A library's logarithm may differ in the last bit from one processor to the
    next.
    """
    fractions, exponents = np.frexp(values)
    below = fractions < math.sqrt(0.5)
    fractions, exponents = np.where(below, 2.0 * fractions, fractions), exponents - below
    ratio = (fractions - 1.0) / (fractions + 1.0)
    square = ratio * ratio
    series = np.full(np.shape(ratio), 1.0 / (2 * _TERMS - 1))
    for term in reversed(range(_TERMS - 1)):
        series = series * square
        series = series + 1.0 / (2 * term + 1)
    found: Floats = exponents * _LN2 + 2.0 * (ratio * series)
    return found


@dataclass(frozen=True, kw_only=True)
class Number(DescribedLabel):
    """A number v in [lower, upper], as t = 2 (v - lower) / (upper - lower) - 1, or the same of logarithms."""

    type: ClassVar[str] = "number"
    has_type_field: ClassVar[bool] = True
    reals: ClassVar[tuple[str, ...]] = ("lower", "upper")
    reads: ClassVar[Literal["numbers", "texts"]] = "numbers"
    version: ClassVar[int] = MEASURED_VERSION
    versioned_key: ClassVar[str] = "type"
    coding: ClassVar[Coding] = NUMBER
    column: str
    lower: float
    upper: float
    log: bool = False
    """Whether t is linear in the number's logarithm. Then `lower` is positive."""
    missing: MissingLabel = "refuse"
    """How a row is handled whose label is empty."""
    unreadable: MissingLabel = "refuse"
    """How one is handled whose label is no finite number."""
    out_of_bounds: OutOfBounds = "refuse"
    """What happens to a number beyond the bounds."""
    unit: str | None = None
    """What it is measured in, for people and for recode files."""

    def __post_init__(self) -> None:
        require_text("label.column", self.column)
        if self.unit is not None:
            require_name("label.unit", self.unit)
        lower, upper = require_number("label.lower", self.lower), require_number("label.upper", self.upper)
        if lower >= upper:
            raise SchemaFieldError("label.lower", f"{lower!r} is not below upper = {upper!r}; write lower < upper")
        if not math.isfinite(upper - lower):
            raise SchemaFieldError("label.upper", "is too far from lower for a double; bring the bounds closer")
        if not isinstance(self.log, bool):
            raise SchemaFieldError("label.log", f"{self.log!r} is not a boolean; write true or false")
        if self.log and lower <= 0:
            sentence = f"{lower!r} has no logarithm; write a positive bound, or log = false"
            raise SchemaFieldError("label.lower", sentence)
        settle(self, lower=lower, upper=upper)
        _check_policies(self)

    @property
    def words(self) -> str:
        """Its bounds."""
        scale = ", on a scale of logarithms" if self.log else ""
        return f"a number from {value_text(self.lower)} to {value_text(self.upper)}{scale}"

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, for those that are no number, and for those outside of the bounds."""
        return _policies(self)

    def with_bounds(self, column: str, lower: float, upper: float) -> "Number":  # noqa: ARG002  (it has one column)
        """The label with these bounds; on a scale of logarithms only if they have some. Raises SchemaFieldError."""
        return replace(self, lower=lower, upper=upper, log=self.log and lower > 0)

    def scaled(self, values: Floats) -> Floats:
        """Values within the bounds as t, rounded after each operation, in that order."""
        lower, upper = (np.float64(bound) for bound in (self.lower, self.upper))
        if self.log:
            values, lower, upper = logarithm(values), *logarithm(np.array([lower, upper]))
        return np.clip(2.0 * ((values - lower) / (upper - lower)) - 1.0, -1.0, 1.0)

    def in_units(self, t: Floats) -> Floats:
        """The numbers of values of t, also beyond [-1, 1], in the column's units.

        On a scale of logarithms the number whose logarithm is expected: for symmetric errors a median, no mean.
        """
        share = (np.asarray(t, dtype=np.float64) + 1.0) / 2.0
        if self.log:
            low, high = math.log(self.lower), math.log(self.upper)
            return np.exp(low + share * (high - low))
        return self.lower + share * (self.upper - self.lower)

    def read(self, stored: int) -> float:
        """A stored label in the column's units."""
        return float(self.in_units(np.array(stored / ONE)))

    def least_stored(self, bound: Fraction, *, above: bool) -> int:
        """The least stored label that counts as >= bound, or as > bound if `above`: exact up to the encoding."""
        if bound < Fraction(self.lower):
            return -ONE
        if bound > Fraction(self.upper):
            return ONE + 1
        return int(_stored(self.scaled(np.array([float(bound)])))[0]) + above

    def encode(self, columns: Sequence[Cells], form: Form) -> EncodedLabel:  # noqa: ARG002  (numbers have no form)
        """The number's t, in units of 2^-30."""
        read = as_numbers(self.column, columns[0])
        finite = np.isfinite(read.values) | read.missing
        _refuse_missing(self, read.missing)
        sentence = f"is not a finite number in the digits 0 to 9; {_UNREADABLE}"
        unreadable = _refused(self, ~finite, self.unreadable, sentence)
        filled = np.where(finite & ~read.missing, read.values, self.upper)
        beyond = _beyond(self, filled, self.lower, self.upper)
        dropped = read.missing | unreadable.cells
        if self.out_of_bounds == "zero-vector":
            dropped = dropped | beyond.cells
        labels = _stored(self.scaled(np.clip(filled, self.lower, self.upper)))
        tally = Tally(self.column, int(np.count_nonzero(read.missing)), unreadable.count, beyond=beyond.count)
        return EncodedLabel(labels, dropped, tally)


@dataclass(frozen=True, kw_only=True)
class Count(DescribedLabel):
    """A whole number from 0 to `upper`, perhaps counted over an exposure such as a time or an area."""

    type: ClassVar[str] = "count"
    has_type_field: ClassVar[bool] = True
    reals: ClassVar[tuple[str, ...]] = ("exposure_lower", "exposure_upper")
    reads: ClassVar[Literal["numbers", "texts"]] = "numbers"
    version: ClassVar[int] = MEASURED_VERSION
    versioned_key: ClassVar[str] = "type"
    column: str
    upper: int
    exposure: str | None = None
    """The column of the exposure; None if all rows have the same."""
    exposure_lower: float | None = None
    exposure_upper: float | None = None
    """Its bounds, both positive."""
    missing: MissingLabel = "refuse"
    """How a row is handled whose label or exposure is empty."""
    unreadable: MissingLabel = "refuse"
    """How one is handled whose label is no whole number from 0, or whose exposure is no positive number."""
    out_of_bounds: OutOfBounds = "refuse"
    """What happens to a count above `upper`, and to an exposure beyond its bounds."""

    def __post_init__(self) -> None:
        require_text("label.column", self.column)
        if isinstance(self.upper, bool) or not isinstance(self.upper, int) or not 1 <= self.upper <= LARGEST_COUNT:
            sentence = f"{self.upper!r} is no whole number from 1 to {LARGEST_COUNT}; write the largest count"
            raise SchemaFieldError("label.upper", sentence)
        given = (self.exposure, self.exposure_lower, self.exposure_upper)
        if any(part is None for part in given) and any(part is not None for part in given):
            sentence = "exposure, exposure_lower and exposure_upper belong together; write all three, or none"
            raise SchemaFieldError("label.exposure", sentence)
        if self.exposure is not None:
            if require_text("label.exposure", self.exposure) == self.column:
                raise SchemaFieldError("label.exposure", "is the label's column; name the column of the exposure")
            lower = require_number("label.exposure_lower", self.exposure_lower)
            upper = require_number("label.exposure_upper", self.exposure_upper)
            if not _LEAST_EXPOSURE <= lower < upper <= _LARGEST_EXPOSURE:
                sentence = f"bounds from {lower:g} to {upper:g}: write two from 1e-9 to 1e9, the lower one first"
                raise SchemaFieldError("label.exposure_lower", sentence)
            settle(self, exposure_lower=lower, exposure_upper=upper)
        _check_policies(self)

    @property
    def columns(self) -> tuple[str, ...]:
        """Its own, then that of the exposure if there is one."""
        return (self.column,) if self.exposure is None else (self.column, self.exposure)

    @property
    def coding(self) -> Coding:
        """Counts, with logarithms of exposures if there are any."""
        return Coding("count", self.upper, self.exposure is not None)

    @property
    def words(self) -> str:
        """Its bound and its exposure."""
        over = "" if self.exposure is None else f" over an exposure, {self.exposure!r}"
        return f"a count up to {self.upper}{over}"

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, for those that are no count or exposure, and for those outside of the bounds."""
        return _policies(self)

    def with_bounds(self, column: str, lower: float, upper: float) -> "Count":
        """The label with this upper bound, or these of its exposure. Raises SchemaFieldError."""
        if column == self.exposure:
            return replace(self, exposure_lower=lower, exposure_upper=upper)
        if lower != 0 or upper != math.floor(upper):
            raise SchemaFieldError("label.upper", f"bounds from {lower:g} to {upper:g}: write two whole numbers from 0")
        return replace(self, upper=int(upper))

    def over(self, exposure: str, lower: float, upper: float) -> "Count":
        """The label, counted over an exposure with these bounds. Raises SchemaFieldError."""
        return replace(self, exposure=exposure, exposure_lower=lower, exposure_upper=upper)

    def in_units(self, t: Floats) -> Floats:
        """The numbers of values of t: upper (t + 1) / 2."""
        found: Floats = (np.asarray(t, dtype=np.float64) + 1.0) * (self.upper / 2.0)
        return found

    def read(self, stored: int) -> float:
        """A stored count."""
        return float(stored)

    def least_stored(self, bound: Fraction, *, above: bool) -> int:
        """The least count that is >= bound, or > bound if `above`."""
        return min(math.floor(bound) + 1 if above else math.ceil(bound), self.upper + 1)

    def encode(self, columns: Sequence[Cells], form: Form) -> EncodedLabel:  # noqa: ARG002  (numbers have no form)
        """The counts, beside the logarithms of exposures if there are any."""
        read = as_numbers(self.column, columns[0])
        whole = read.missing | ((read.values >= 0) & (read.values == np.floor(read.values)) & np.isfinite(read.values))
        sentence = f"is not a whole number from 0 on in the digits 0 to 9, as a count is; make it one, or {_UNREADABLE}"
        _refuse_missing(self, read.missing)
        unreadable = _refused(self, ~whole, self.unreadable, sentence)
        counts = np.where(whole & ~read.missing, read.values, 0.0)
        beyond = _beyond(self, counts, 0.0, float(self.upper))
        missing, unread, outside = read.missing, unreadable.cells, beyond.cells
        labels = np.clip(counts, 0.0, float(self.upper)).astype(np.int32)
        if self.exposure is not None:
            offsets, *found = self._offsets(columns[1])
            missing, unread, outside = missing | found[0], unread | found[1], outside | found[2]
            labels = np.column_stack([labels, offsets])
        dropped = missing | unread | outside if self.out_of_bounds == "zero-vector" else missing | unread
        sizes = [int(np.count_nonzero(each)) for each in (missing, unread, outside)]
        return EncodedLabel(labels, dropped, Tally(self.column, sizes[0], sizes[1], beyond=sizes[2]))

    def _offsets(self, cells: Cells) -> tuple[np.ndarray, Mask, Mask, Mask]:
        """The logarithms of exposures, and which are missing, no exposure, and beyond the bounds."""
        assert self.exposure is not None, "there is an exposure"
        assert self.exposure_lower is not None, "with bounds"
        assert self.exposure_upper is not None, "with both"
        read = as_numbers(self.exposure, cells)
        _refuse_missing(self, read.missing, self.exposure)
        positive = read.missing | ((read.values > 0) & np.isfinite(read.values))
        sentence = (
            "is not a positive number: what was not exposed has no rate; leave out rows without exposure by "
            'label.unreadable = "zero-vector", or correct the file'
        )
        unread = _refused(self, ~positive, self.unreadable, sentence, self.exposure)
        filled = np.where(positive & ~read.missing, read.values, self.exposure_upper)
        beyond = _beyond(self, filled, self.exposure_lower, self.exposure_upper, self.exposure)
        logarithms = logarithm(np.clip(filled, self.exposure_lower, self.exposure_upper))
        offsets = np.rint(np.ldexp(logarithms, OFFSET_BITS)).astype(np.int32)
        return offsets, read.missing, unread.cells, beyond.cells


_UNREADABLE = 'set label.unreadable = "zero-vector", or correct the file'


def _stored(t: Floats) -> np.ndarray:
    return np.trunc(t * float(ONE)).astype(np.int32)


def _check_policies(label: Number | Count) -> None:
    require_choice("label.missing", label.missing, LABEL_POLICIES)
    require_choice("label.unreadable", label.unreadable, LABEL_POLICIES)
    require_choice("label.out_of_bounds", label.out_of_bounds, _OUT_OF_BOUNDS)


def _policies(label: Number | Count) -> tuple[Policy, ...]:
    what = "finite number" if label.type == Number.type else "count or exposure"
    found = (
        for_missing(label.missing),
        for_unreadable(label.unreadable, what),
        Policy("out_of_bounds", label.out_of_bounds, "beyond", "beyond the bounds of the schema's label"),
    )
    return tuple(each._replace(columns=label.columns) for each in found)


def _refuse_missing(label: Number | Count, missing: Mask, column: str | None = None) -> None:
    if label.missing == "refuse" and missing.any():
        what = "there is no label" if column is None else "there is no exposure"
        sentence = f'{what}; set label.missing = "zero-vector", or correct the file'
        raise CellError(int(missing.argmax()), column or label.column, sentence)


def _refused(label: Number | Count, cells: Mask, policy: str, sentence: str, column: str | None = None) -> Changed:
    """These cells, which a policy leaves out or refuses. Raises CellError."""
    changed = Changed(cells)
    if changed.count and policy == "refuse":
        raise CellError(int(cells.argmax()), column or label.column, sentence)
    return changed


def _beyond(label: Number | Count, values: Floats, lower: float, upper: float, column: str | None = None) -> Changed:
    """The cells beyond the bounds. Raises CellError if the policy refuses them."""
    below, above = values < lower, values > upper
    changed = Changed(below | above)
    if changed.count and label.out_of_bounds == "refuse":
        row = int(changed.cells.argmax())
        side, bound = ("above", upper) if above[row] else ("below", lower)
        sentence = (
            f"is {side} the bound {value_text(bound)} of the schema's label; set label.out_of_bounds = "
            '"clip" or "zero-vector", or correct the file'
        )
        raise CellError(row, column or label.column, sentence)
    return changed
