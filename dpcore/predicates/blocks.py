"""A block of a party's rows, and the exact operations on all its rows at once.

An operation gives one of three kinds of results:

- bits: 64 rows in a word;
- values: int32 in units of 2^-f;
- sums of weighted coordinates: int64 in units of 2^-30.

Nothing overflows within the bounds of `expressions`: a sum is below 2^62 in magnitude.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.fixed_point import STORED_FRACTION_BITS
from dpcore.records.records import Records

WORD_ROWS = 64

Bits = NDArray[np.uint64]
Values = NDArray[np.int32]
Sums = NDArray[np.int64]
Result = Bits | Values | Sums


class Block:
    """Up to `rows` consecutive rows of records, starting at `first`.

    columns: the needed coordinates, in the order by which the methods number them: the schema's by their places, then
    those of the feature map. fraction_bits: f, 0 to 30.

    Bits beyond the last row are undefined, except in `usable_bits`, where they are 0. Results of a row that is not
    usable are undefined too: a caller that adds up must leave them out.
    """

    def __init__(self, records: Records, first: int, rows: int, columns: Sequence[int], fraction_bits: int) -> None:
        self.part = slice(first, min(first + rows, records.rows))
        # One contiguous run for each coordinate: operations read whole columns.
        self._columns = np.ascontiguousarray(_coordinates(records, self.part, columns).T)
        self._labels = records.labels[self.part]
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
        words = np.zeros(-(-self.rows // WORD_ROWS), dtype="<u8")
        words.view(np.uint8)[: -(-self.rows // 8)] = np.packbits(mask, bitorder="little")
        return words

    def unpack(self, bits: Result) -> NDArray[np.bool_]:
        """The rows' bits as a mask."""
        return np.unpackbits(bits.view(np.uint8), count=self.rows, bitorder="little").view(np.bool_)

    def total(self, result: Result) -> int:
        """The sum of bits or values over usable rows, in units of 2^-f."""
        if result.dtype.kind == "u":
            return int(np.bitwise_count(result & self.usable_bits).sum(dtype=np.int64)) * self.one
        return int((result * self.usable).sum(dtype=np.int64))

    def each(self, result: Result) -> NDArray[np.int64]:
        """Bits or values in units of 2^-f; 0 in rows that are not usable."""
        shown = self.unpack(result) * np.int64(self.one) if result.dtype.kind == "u" else result
        return shown.astype(np.int64) * self.usable

    def true(self) -> Bits:
        """1 in every row."""
        return np.full(-(-self.rows // WORD_ROWS), ~np.uint64(0), dtype="<u8")

    def positive(self) -> Bits:
        """The label is +1."""
        return self.pack(self._labels > 0)

    def column_at_least(self, column: int, least: int) -> Bits:
        """A coordinate is >= least; both in units of 2^-30."""
        return self.pack(self._columns[column] >= least)

    def complement(self, bits: Bits) -> Bits:
        """1 - bits."""
        return ~bits

    def both(self, first: Bits, second: Bits) -> Bits:
        """The minimum of two bits."""
        return first & second

    def either(self, first: Bits, second: Bits) -> Bits:
        """The maximum of two bits."""
        return first | second

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
        """floor(2^f min(1, max(0, (sign sum + constant) / scale))), where sign is 1 or -1.

        Assumes |constant| < 2^33 and |sign sum + constant| < 2^33: in units of 2^-30 both are below 2^63.
        """
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


def _coordinates(records: Records, part: slice, columns: Sequence[int]) -> NDArray[np.int32]:
    """These coordinates of some rows: (rows, len(columns)), in units of 2^-30."""
    features, width = records.features[part], records.features.shape[1]
    if all(column < width for column in columns):
        return features[:, list(columns)]
    assert records.feature_map is not None, "only a map has coordinates after the schema's"
    from dpcore.records.compiled_map import mapped  # noqa: PLC0415 - imports Numba

    terms = mapped(np.require(features, requirements=("C", "A")), records.feature_map)
    found = np.empty((len(features), len(columns)), dtype=np.int32)
    for place, column in enumerate(columns):
        found[:, place] = features[:, column] if column < width else terms[:, column - width]
    return found
