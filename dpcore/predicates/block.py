"""A block of a party's rows, and exact operations on all its rows at once.

A result is bits (64 rows in a word), values (int32 in units of 2^-f) or sums of weighted coordinates (int64 in units of
2^-30, below 2^62). What joins bits, and compares features one by one, is compiled (dpcore.predicates.bits).
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.predicates.bits import WORD_ROWS, Bits
from dpcore.predicates.count_terms import deviance_terms, gain_terms
from dpcore.predicates.expressions import ErrorSort
from dpcore.records.coding import OFFSET_BITS
from dpcore.records.records import BLOCK_ROWS, Records

Values = NDArray[np.int32]
Sums = NDArray[np.int64]
Result = Bits | Values | Sums


class Block:
    """Up to `rows` consecutive rows of records, starting at `first`.

    coordinates: those of forms, in the numbering's order. fraction_bits: f, 0 to 30. Results of a row that is not
    usable are undefined, as are bits beyond the last row, except in `usable_bits`.
    """

    def __init__(self, records: Records, first: int, rows: int, coordinates: Sequence[int], fraction_bits: int) -> None:
        from dpcore.predicates.compiled import shared_bits  # noqa: PLC0415 - imports Numba

        self._shared_bits = shared_bits
        self.part = slice(first, min(first + rows, records.rows))
        self.features = np.asarray(records.features[self.part])
        self._columns = _columns(records, self.part, coordinates)
        self._coding, self._whole_labels = records.coding, records.labels[self.part]
        self._labels = self._coding.values(self._whole_labels)
        self.usable = records.usable[self.part]
        self.rows = len(self._labels)
        self._fraction_bits = fraction_bits
        self.usable_bits = self.pack(self.usable)

    @property
    def one(self) -> int:
        """The value 1, in units of 2^-f."""
        return 1 << self._fraction_bits

    def pack(self, mask: NDArray[np.bool_]) -> Bits:
        """The mask as bits: row i is bit i mod 64 of word i div 64. Bits beyond the last row are 0."""
        packed = np.packbits(mask, bitorder="little")
        if missing := -len(packed) % (WORD_ROWS // 8):
            packed = np.append(packed, np.zeros(missing, dtype=np.uint8))
        return packed.view("<u8")

    def unpack(self, bits: Result) -> NDArray[np.bool_]:
        """The rows' bits as a mask."""
        return np.unpackbits(bits.view(np.uint8), count=self.rows, bitorder="little").view(np.bool_)

    def total(self, result: Result | int) -> int:
        """The sum of bits or values over usable rows, in units of 2^-f. An integer is the number of bits that are 1."""
        if isinstance(result, int):
            return result * self.one
        if result.dtype.kind == "u":
            return self._shared_bits(cast("Bits", result), self.usable_bits) * self.one
        return int((result * self.usable).sum(dtype=np.int64))

    def each(self, result: Result) -> NDArray[np.int64]:
        """Bits or values in units of 2^-f; 0 in rows that are not usable."""
        shown = self.unpack(result) * np.int64(self.one) if result.dtype.kind == "u" else result
        return shown.astype(np.int64) * self.usable

    def positive(self) -> Bits:
        """The label is +1; of a time to an event, the event happened within the horizon."""
        intervals = self._coding.intervals
        return self.pack(self._labels < intervals if intervals else self._labels > 0)

    def of_class(self, code: int) -> Bits:
        """The label has this code, of several classes."""
        return self.pack(self._labels == code)

    def label_at_least(self, least: int) -> Bits:
        """A label that is a number or a count is >= least; both as stored."""
        return self.pack(self._labels >= least)

    def followed_beyond(self, interval: int) -> Bits:
        """The time to the event, or to when the row was censored, is after the end of this interval."""
        intervals = self._coding.intervals
        happened = (self._labels > interval) & (self._labels < intervals)
        return self.pack(happened | (self._labels > intervals + interval))

    def label_share(self, sign: int) -> Values:
        """floor(2^f s) of the label's place s between its bounds, from 0 to 1; sign -1 for 1 - s."""
        labels = self._labels.astype(np.int64)
        if self._coding.kind == "count":
            counted = labels if sign > 0 else self._coding.size - labels
            return ((counted << self._fraction_bits) // self._coding.size).astype(np.int32)
        # (1 + t) / 2 2^f = (labels + 2^30) 2^(f - 31).
        shift = STORED_FRACTION_BITS + 1 - self._fraction_bits
        return ((sign * labels + (1 << STORED_FRACTION_BITS)) >> shift).astype(np.int32)

    def label_square(self, sign: int) -> Values:
        """floor(2^f t^2) of a label's coordinate t; sign -1 for 1 - t^2. Exact: below 2^62 before the division."""
        labels, f = self._labels.astype(np.int64), self._fraction_bits
        if self._coding.kind == "count":
            size = self._coding.size
            square, whole = (2 * labels - size) ** 2, size * size
            counted = square if sign > 0 else whole - square
            # floor(2^f a / b), in two steps of bits, since a is below 2^40: q 2^h + floor(r 2^h / b).
            high = f // 2
            quotient, rest = np.divmod(counted << high, whole)
            low = f - high
            return ((quotient << low) + (rest << low) // whole).astype(np.int32)
        square, whole = labels * labels, 1 << 2 * STORED_FRACTION_BITS
        return ((square if sign > 0 else whole - square) >> 2 * STORED_FRACTION_BITS - f).astype(np.int32)

    def _exposures(self) -> NDArray[np.float64]:
        return np.exp(np.ldexp(self._coding.offsets(self._whole_labels).astype(np.float64), -OFFSET_BITS))

    def _fractions(self, shares: NDArray[np.float64], sign: int) -> Values:
        """floor(2^f v) of shares v, or of 1 - v if the sign is -1. They are held to [0, 1], whatever was computed."""
        inside = np.clip(shares if sign > 0 else 1.0 - shares, 0.0, 1.0)
        return np.floor(np.ldexp(inside, self._fraction_bits)).astype(np.int32)

    def label_exposure(self, sign: int, *largest: int) -> Values:
        """The exposure divided by its upper bound, the ratio `largest`; sign -1 for 1 less it."""
        return self._fractions(self._exposures() / float(Fraction(*largest)), sign)

    def _counts(self, most: int) -> NDArray[np.float64]:
        return np.minimum(self._labels, most).astype(np.float64)

    def count_share(self, sign: int, most: int) -> Values:
        """The count's share of a bound; sign -1 for 1 less it."""
        return self._fractions(self._counts(most) / most, sign)

    def count_deviance(self, sign: int, most: int, *numbers: int) -> Values:
        """Deviance terms from one rate. numbers: ratios of its logarithm and of what divides the terms."""
        centre, bound = _ratios(numbers)
        terms = deviance_terms(self._counts(most), self._exposures(), centre)
        return self._fractions(terms / float(bound), sign)

    def count_gain(self, sign: int, most: int, constant: int, scale: int, *rest: Any) -> Values:
        """Gains, or losses, divided by a bound. rest: ratios of centre, reach and bound (negative for losses), sums."""
        *numbers, sums = rest
        centre, reach, bound = _ratios(numbers)
        places = self._place_of_form(constant, scale, sums)
        scores = float(centre) + float(reach) * (2.0 * places - 1.0)
        gains = gain_terms(self._counts(most), self._exposures(), scores, centre)
        return self._fractions(np.maximum(gains / float(bound), 0.0), sign)

    def label_error(self, sort: int, sign: int, constant: int, scale: int, *rest: Any) -> Values:
        """An error of this place among `ErrorSort`, or 1 less it. rest: the ratio of the reach, sums."""
        *numbers, sums = rest
        (reach,) = map(float, _ratios(numbers))
        off = self._off(constant, scale, sums)
        match get_args(ErrorSort)[sort]:
            case "over":
                return self._fractions(np.clip(off / reach, 0.0, 1.0), sign)
            case "under":
                return self._fractions(np.clip(-off / reach, 0.0, 1.0), sign)
            case _:
                return self._fractions(np.minimum(np.square(off / reach), 1.0), sign)

    def label_beyond(self, constant: int, scale: int, *rest: Any) -> Bits:
        """The label is farther than the reach from the predicted place. rest: the ratio of the reach, sums."""
        *numbers, sums = rest
        (reach,) = map(float, _ratios(numbers))
        return self.pack(np.abs(self._off(constant, scale, sums)) > reach)

    def _off(self, constant: int, scale: int, sums: Sums) -> NDArray[np.float64]:
        """By how much the label's place is above the predicted one."""
        predicted = 2.0 * self._place_of_form(constant, scale, sums) - 1.0
        own = np.ldexp(self._coding.scaled(self._whole_labels, STORED_FRACTION_BITS), -STORED_FRACTION_BITS)
        off: NDArray[np.float64] = own - predicted
        return off

    def _place_of_form(self, constant: int, scale: int, sums: Sums) -> NDArray[np.float64]:
        """A form divided by its scale, from 0 to 1."""
        places: NDArray[np.float64] = np.clip(
            (np.ldexp(sums.astype(np.float64), -STORED_FRACTION_BITS) + constant) / scale, 0.0, 1.0
        )
        return places

    def weighted(self, *weights: int) -> Sums:
        """The sum of weight times coordinate. `weights` alternates between coordinate and weight."""
        sums = np.zeros(self.rows, dtype=np.int64)
        for column, weight in zip(weights[::2], weights[1::2], strict=True):
            sums += self._columns[column] * np.int64(weight)
        return sums

    def sum_at_least(self, least: int, sums: Sums) -> Bits:
        """A sum is >= least; both in units of 2^-30."""
        return self.pack(sums >= least)

    def clipped(self, sign: int, constant: int, scale: int, sums: Sums) -> Values:
        """floor(2^f min(1, max(0, (sign sum + constant) / scale))), sign 1 or -1; below 2^33 before scaling."""
        shift = STORED_FRACTION_BITS - self._fraction_bits
        shifted = sign * sums + (constant << STORED_FRACTION_BITS)
        bounded = np.clip(shifted, 0, scale << STORED_FRACTION_BITS)
        # floor(v 2^f / (scale 2^30)) = floor(v / (scale 2^(30 - f))).
        return (bounded // (scale << shift)).astype(np.int32)

    def lesser(self, first: Values, second: Values) -> Values:
        """The minimum of two values."""
        return np.minimum(first, second)

    def greater(self, first: Values, second: Values) -> Values:
        """The maximum of two values."""
        return np.maximum(first, second)

    def where(self, bits: Bits, values: Values) -> Values:
        """The minimum of bits and values: the value where the bit is 1, else 0."""
        return values * self.unpack(bits)

    def unless(self, bits: Bits, values: Values) -> Values:
        """The maximum of bits and values: 2^f where the bit is 1, else the value."""
        return np.where(self.unpack(bits), np.int32(self.one), values)


def _ratios(numbers: Sequence[int]) -> list[Fraction]:
    """Numerators and denominators, in turn, as numbers."""
    return [Fraction(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]


def _columns(records: Records, part: slice, columns: Sequence[int]) -> NDArray[np.int32]:
    """These coordinates of some rows, each one contiguous, since sums read whole columns: (len(columns), rows).

    In units of 2^-30. Rows are turned in runs that stay in a core's cache.
    """
    found = np.empty((len(columns), part.stop - part.start), dtype=np.int32)
    for first in range(part.start, part.stop, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, part.stop)
        found[:, first - part.start : last - part.start] = _coordinates(records, slice(first, last), columns)
    return found


def _coordinates(records: Records, part: slice, columns: Sequence[int]) -> NDArray[np.int32]:
    features, width = records.features[part], records.features.shape[1]
    if all(column < width for column in columns):
        return features.T[list(columns)]
    assert records.feature_map is not None, "only a map has coordinates after the schema's"
    from dpcore.records.compiled import mapped  # noqa: PLC0415 - imports Numba

    terms = mapped(np.require(features, requirements=("C", "A")), records.feature_map)
    return np.stack([features[:, column] if column < width else terms[:, column - width] for column in columns])
