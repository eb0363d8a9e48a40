"""The weight of a row, a number from 0 to a public bound.

A party stores u = w / upper in units of 2^-ROW_WEIGHT_BITS, an integer from 0 to 2^ROW_WEIGHT_BITS. So a row of the
largest weight counts as a row does without weights. Queries for moments and gradients sum u times what a record adds;
others are about the same schema without its weight (`Schema.unweighted`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import SchemaError, ShapeError
from dpcore.numbers.fixed_point import Mask
from dpcore.records.features.described import CellError, Cells, Policy, Tally, as_numbers
from dpcore.records.texts import SchemaFieldError, require_choice, require_number, require_text, settle

WEIGHT_VERSION = 5
ROW_WEIGHT_BITS = 10
FULL_WEIGHT = 1 << ROW_WEIGHT_BITS
"""u of a row with the largest weight."""

WeightUnits = NDArray[np.uint16]
"""(m,), from 0 to FULL_WEIGHT."""

NO_WEIGHT: Literal["no-weight"] = "no-weight"
NoWeight = Literal["refuse", "no-weight"]
Beyond = Literal["refuse", "clip", "no-weight"]

# From this many different weights on, sums are made bit by bit.
_MOST_SUMS_BY_WEIGHT = 64


@dataclass(frozen=True, kw_only=True)
class Weight:
    """Which column has the rows' weights, and what becomes of unusual ones. Raises SchemaFieldError."""

    reals: ClassVar[tuple[str, ...]] = ("upper",)
    column: str
    upper: float
    """The largest weight, a limit of the domain: a record is protected whatever its weight is up to it."""
    missing: NoWeight = "refuse"
    """What becomes of an empty weight: "no-weight" is the weight 0."""
    unreadable: NoWeight = "refuse"
    """What becomes of one that is no finite number, or is negative."""
    out_of_bounds: Beyond = "refuse"
    """What becomes of one above `upper`."""

    def __post_init__(self) -> None:
        require_text("weight.column", self.column)
        upper = require_number("weight.upper", self.upper)
        if not upper > 0:
            raise SchemaFieldError("weight.upper", f"{upper!r} is not positive; write the largest weight")
        settle(self, upper=upper)
        for name, known in (("missing", NoWeight), ("unreadable", NoWeight), ("out_of_bounds", Beyond)):
            require_choice(f"weight.{name}", getattr(self, name), get_args(known))

    @property
    def policies(self) -> tuple[Policy, ...]:
        """For empty cells, for those that are no weight, and for those above the bound."""
        return (
            Policy("missing", self.missing, "missing", "empty"),
            Policy("unreadable", self.unreadable, "unreadable", "no finite number from 0"),
            Policy("out_of_bounds", self.out_of_bounds, "beyond", "above the weight's upper bound"),
        )

    def encode(self, cells: Cells) -> tuple[WeightUnits, Tally]:
        """Weights (m,) in stored units, and what policies changed. Raises CellError for the first cell refused."""
        read = as_numbers(self.column, cells)
        with np.errstate(invalid="ignore"):
            unreadable = ~(np.isfinite(read.values) & (read.values >= 0)) & ~read.missing
            beyond = (read.values > self.upper) & ~unreadable & ~read.missing
        for name, found, words in (
            ("missing", read.missing, "there is no weight"),
            ("unreadable", unreadable, "is not a finite number from 0 in the digits 0 to 9"),
            ("out_of_bounds", beyond, "is above weight.upper"),
        ):
            self._refuse(name, found, words)
        none = read.missing | unreadable
        if self.out_of_bounds == NO_WEIGHT:
            none = none | beyond
        weights = np.where(none, 0.0, np.minimum(np.where(none, 0.0, read.values), self.upper))
        units = np.floor(weights / self.upper * FULL_WEIGHT + 0.5).astype(np.uint16)
        counts = (int(np.count_nonzero(each)) for each in (read.missing, unreadable, beyond))
        missing, not_read, above = counts
        return units, Tally(self.column, missing, not_read, beyond=above)

    def _refuse(self, name: str, cells: Mask, words: str) -> None:
        if getattr(self, name) == "refuse" and cells.any():
            choices = ' or "clip"' if name == "out_of_bounds" else ""
            sentence = f'{words}; set weight.{name} = "{NO_WEIGHT}"{choices}, or correct the file'
            raise CellError(int(cells.argmax()), self.column, sentence)


def check_weights(weights: WeightUnits, rows: int) -> None:
    """Raise ShapeError or SchemaError if these are no stored weights of so many rows."""
    if weights.shape != (rows,) or weights.dtype != np.uint16:
        raise ShapeError(f"weights are {weights.dtype} of shape {weights.shape}: give uint16 ({rows},)")
    # Every bound of the sensitivity rests on it.
    if int(weights.max(initial=0)) > FULL_WEIGHT:
        raise SchemaError("a weight is above the schema's bound: encode weights by the schema")


def weighted_sum(
    weights: WeightUnits, sums: Callable[[NDArray[np.intp]], NDArray[np.int64]], length: int
) -> NDArray[np.int64]:
    """floor(sum_i u_i v_i / 2^ROW_WEIGHT_BITS) of integer vectors v_i of this length, exactly.

    sums: the sum of the vectors at these places, ascending. It is asked for once for each weight, or bit of weights.
    """
    whole, rest = np.zeros(length, dtype=np.int64), np.zeros(length, dtype=np.int64)
    for factor, places in _parts(weights):
        # In two parts, so that nothing overflows that fits as a whole.
        high, low = np.divmod(sums(places), FULL_WEIGHT)
        whole += factor * high
        rest += factor * low
    found: NDArray[np.int64] = whole + (rest >> ROW_WEIGHT_BITS)
    return found


def _parts(weights: WeightUnits) -> list[tuple[int, NDArray[np.intp]]]:
    """Factors and places of rows: the weight of a row is the sum of the factors of the parts that it is in."""
    distinct = [value for value in np.unique(weights).tolist() if value]
    if len(distinct) <= _MOST_SUMS_BY_WEIGHT:
        return [(value, np.flatnonzero(weights == value)) for value in distinct]
    bits = [(1 << bit, np.flatnonzero(weights & (1 << bit))) for bit in range(ROW_WEIGHT_BITS + 1)]
    return [(factor, places) for factor, places in bits if len(places)]


def weighted_squared(squared: Fraction | int, values: int) -> Fraction:
    """An upper bound of max |s - s'|^2 for weighted sums of records' vectors v of so many values.

    squared: a bound D^2 of max |v - v'|^2 over a set of vectors that has 0, that of a row that is not usable.

    Before rounding, the sums differ by u v - u' v' with u, u' in [0, 1], two vectors in the convex hull of the set. Its
    diameter is that of the set: |u v - u' v'| is convex in each, so its maximum is at 0 or v, and at 0 or v'.

    So it is at most D. All that is needed is the bound on weights, which in stored units is 2^ROW_WEIGHT_BITS.

    A party then rounds down its sum of all rows, which moves each of N values by less than 1, so |s - s'|^2 <= (D +
    sqrt(N))^2 = D^2 + N + 2 sqrt(D^2 N); the root is rounded up. A record that leaves is the same with v' = 0.
    """
    return Fraction(squared) + values + 2 * (isqrt(ceil(Fraction(squared) * values)) + 1)
