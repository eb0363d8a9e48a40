"""Numbers of PostgreSQL, all those of a row in one value.

The server's sending and the driver's decoding cost about as much for a value of 8 bytes as for one of 200. So the
numbers of a row cross as one value: their binary forms, 8 bytes each and big-endian, one after another.

The binary form of a line segment (`lseg`) is that of four float8 in a row, which its constructors neither check nor
change (PostgreSQL 15 documentation, 8.8). One function writes those four, where `float8send` takes a call for each.

A segment with a NULL is NULL. So NULL crosses as the NaN whose sign bit is set, and every NaN of the table as that
whose sign bit is not: what arrives is what the columns hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from radobase.tables.databases.sessions import Column

# Each converts to float8 and back without a change: 53 bits hold every int4, and a float4 is also a float8.
_EXACT = frozenset({"int2", "int4", "float4", "float8"})
# The doubles that Arrow makes of these are those that PostgreSQL makes of them: both round to nearest.
_AS_NUMBERS = frozenset({"int8"})
_FLOATS = frozenset({"float4", "float8"})
_FLOAT8 = "pg_catalog.float8"
_NULL = f"pg_catalog.float8um('NaN'::{_FLOAT8})"
_NULL_BITS = np.uint64(0xFFF8000000000000)
_BYTES = 8
# Numbers that one function sends, most first.
_SENT = (4, 2, 1)


def type_name(column: Column) -> str:
    """PostgreSQL's name of a column's type."""
    return str((column.kind.metadata or {}).get(b"POSTGRESQL:type", b"").decode())


@dataclass(frozen=True)
class Packed:
    """Columns that cross as one value."""

    places: tuple[int, ...]
    """Of the columns in the result."""
    columns: tuple[Column, ...]

    @property
    def expression(self) -> str:
        """The SQL of the value, of type bytea."""
        left, parts = [_float8(column) for column in self.columns], []
        while left:
            count = next(count for count in _SENT if count <= len(left))
            parts.append(_sent(*left[:count]))
            left = left[count:]
        return _joined(parts)

    def unpack(self, values: pa.Array) -> list[pa.Array]:
        """The columns of the values, in the types that they have unpacked. Raises ArrowInvalid for other values."""
        return [
            _column(bits, None if column.is_number else column.kind.type)
            for column, bits in zip(self.columns, _transposed(values, len(self.columns)), strict=True)
        ]


def packed(columns: Sequence[Column]) -> Packed | None:
    """The columns that are worth packing; None if they are fewer than two."""
    places = tuple(place for place, column in enumerate(columns) if _packs(column))
    return Packed(places, tuple(columns[place] for place in places)) if len(places) > 1 else None


def _packs(column: Column) -> bool:
    """Whether a column crosses as a float8 unchanged."""
    name = type_name(column)
    return name in _EXACT or (column.is_number and name in _AS_NUMBERS)


def _float8(column: Column) -> str:
    number = f"{column.sql}::{_FLOAT8}"
    if type_name(column) in _FLOATS:
        # Strict, and the second argument unless the first is smaller.
        number = f"pg_catalog.float8smaller({number}, 'NaN'::{_FLOAT8})"
    return f"COALESCE({number}, {_NULL})"


def _point(x: str, y: str) -> str:
    return f"pg_catalog.point({x}, {y})"


def _sent(*numbers: str) -> str:
    """The bytes of one, two or four numbers."""
    if len(numbers) == 1:
        return f"pg_catalog.float8send({numbers[0]})"
    if len(numbers) == 2:
        return f"pg_catalog.point_send({_point(*numbers)})"
    first, second, third, fourth = numbers
    return f"pg_catalog.lseg_send(pg_catalog.lseg({_point(first, second)}, {_point(third, fourth)}))"


def _joined(parts: Sequence[str]) -> str:
    """The bytes of all parts, joined in pairs: one after another, many columns would be copied as many times."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"pg_catalog.byteacat({_joined(parts[:middle])}, {_joined(parts[middle:])})"


def _transposed(values: pa.Array, width: int) -> NDArray[np.uint64]:
    """The bits of the doubles of each value, (width, m), in this machine's order of bytes."""
    size, rows = _BYTES * width, len(values)
    if not pa.types.is_binary(values.type) or values.null_count:
        raise pa.ArrowInvalid("not packed")
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32, rows + 1, 4 * values.offset)
    if not rows:
        return np.empty((width, 0), np.uint64)
    if not np.array_equal(ends, ends[0] + size * np.arange(rows + 1, dtype=np.int32)):
        raise pa.ArrowInvalid("not packed")
    bits = np.array(np.frombuffer(data, np.uint64, width * rows, int(ends[0])).reshape(rows, width).T, order="C")
    return bits if np.dtype(np.uint64).newbyteorder(">").isnative else bits.byteswap(inplace=True)


def _column(bits: NDArray[np.uint64], kind: pa.DataType | None) -> pa.Array:
    is_null = bits == _NULL_BITS
    array = pa.array(bits.view(np.float64), mask=is_null) if is_null.any() else pa.array(bits.view(np.float64))
    return array if kind is None else array.cast(kind, safe=False)
