"""PostgreSQL, through ADBC. Rows arrive by COPY in binary, as they are read."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from radobase.reading import ExposedKeyError, check_private
from radobase.tables.database_source import DatabaseSource
from radobase.tables.databases import LOST, WRITES, AdbcSession, Column, Selection, first_line

# Numbers of PostgreSQL, all those of a row in one value.
#
# The server's sending and the driver's decoding cost about as much for a value of 8 bytes as for one of 200. So the
# numbers of a row cross as one value: their binary forms, 8 bytes each and big-endian, one after another.
#
# The binary form of a line segment (`lseg`) is that of four float8 in a row, which its constructors neither check nor
# change (PostgreSQL 15 documentation, 8.8). One function writes those four, where `float8send` takes a call for each.
#
# A segment with a NULL is NULL. So NULL crosses as the NaN whose sign bit is set, and every NaN of the table as that
# whose sign bit is not: what arrives is what the columns hold.


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


_BATCH_BYTES = 4 << 20
# SQLSTATE is in the message of errors that Arrow passes on. PostgreSQL 15 documentation, appendix A.
_IS_TLS = re.compile(r"SSL|certificate")
_UNVERIFIED = (
    "the server must show a certificate for the name in the source: name the authority that signed it by sslrootcert "
    "in the source, or ask the server's administrator"
)
_UNREACHED = (
    "check the source, that the server runs and admits this user, and the password in PGPASSWORD, PGPASSFILE or "
    "password_file"
)
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_MESSAGE = re.compile(r"(?:ERROR|FATAL):\s+(.*)")
# Classes whose messages quote the query or names, and never a value of a row.
_QUOTED = ("0A", "28", "3D", "3F", "42")
_LOST_STATES = ("08", "57P")
# No connection, a transaction to repeat, no resources, a lock, an administrator: such a fault ends by itself.
_PASSING_STATES = ("08", "40", "53", "55P03", "57")
_CANCELLED = (
    "the server cancelled the query (SQLSTATE 57014: this user's statement_timeout, or an administrator); raise that "
    "limit, or ask the server's administrator"
)
# Why a connection fails until a person corrects something: libpq's own reasons, and the server's in English. The server
# may answer in another language.
_TO_CORRECT = re.compile(
    r"authentication failed|no pg_hba.conf entry|does not exist|not permitted to log in|permission denied|fe_sendauth|"
    r"certificate|does not support SSL|invalid"
)
_AS_THEY_ARE = frozenset(
    {"bool", "int2", "int4", "int8", "float4", "float8", "text", "varchar", "bpchar", "name", "bytea"}
)
# Casting "money" needs a step in between; its own binary form counts the smallest units of a currency.
_VIA_NUMERIC = frozenset({"money"})

# One snapshot for the session; the order of the rows of an unchanged table does not depend on other scans or workers.
_SETTINGS = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL synchronize_seqscans = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO'",
)


class PostgreSql:
    """A Database. See PostgreSQL 15 documentation, 13.2.2: all statements of a transaction see one snapshot."""

    failures: tuple[type[Exception], ...]

    def __init__(self, source: DatabaseSource) -> None:
        """Raises ConfigurationError if the driver is not installed."""
        self._source = source
        try:
            from adbc_driver_manager import Error  # noqa: PLC0415  (an extra)
            from adbc_driver_postgresql import dbapi  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            raise ConfigurationError(f"{missing.name} is not installed: install radofed[postgresql]") from missing
        self._connect = dbapi.connect
        self.failures = (Error, OSError, pa.ArrowException)

    @contextmanager
    def session(self) -> Iterator[AdbcSession]:
        """See Database. Raises ConfigurationError for a password file that other users can read."""
        if (file := self._source.password_file) is not None:
            try:
                check_private(file)
            except ExposedKeyError as error:
                sentence = f"{file}: other users can read or change the password (mode {error.mode:04o}); change it if "
                raise ConfigurationError(f"{sentence}others had access, and run: {error.fix}") from None
            except OSError as error:
                sentence = f"{file}: cannot be read ({error.strerror}); give a password_file in the format of .pgpass"
                raise ConfigurationError(sentence) from error
        connection = self._connect(self._source.connection(), autocommit=True)
        try:
            session = AdbcSession(connection, {"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            for statement in _SETTINGS:
                session.execute(statement)
            yield session
        finally:
            connection.close()

    def selection(self, columns: Sequence[Column]) -> Selection:
        """See Database."""
        group = packed(columns)
        if group is None:
            return Selection([_expression(column) for column in columns])
        alone = [place for place in range(len(columns)) if place not in group.places]

        def unpack(arrays: Sequence[pa.Array]) -> list[pa.Array]:
            values, *others = arrays
            found = dict(zip([*group.places, *alone], [*group.unpack(values), *others], strict=True))
            return [found[place] for place in range(len(columns))]

        return Selection([group.expression, *(_expression(columns[place]) for place in alone)], unpack)

    def may_pass(self, error: Exception) -> bool:
        """See Database. What cannot be told from a fault that passes counts as one: then the node tries again."""
        text, state = str(error), _sqlstate(error)
        if "Failed to connect" in text:
            return _TO_CORRECT.search(first_line(text.rpartition("failed: ")[2])) is None
        return state.startswith(_PASSING_STATES) or (not state and "server closed" in text)

    def cause(self, error: Exception) -> str:
        """See Database."""
        text, state = str(error), _sqlstate(error)
        if "Failed to connect" in text:
            reason = first_line(text.rpartition("failed: ")[2])
            return f"cannot connect ({reason}); {_UNVERIFIED if _IS_TLS.search(reason) else _UNREACHED}"
        if state == "25006":
            return WRITES
        if state.startswith(_LOST_STATES) or (not state and "server closed" in text):
            return LOST
        if state == "57014":
            return _CANCELLED
        if state.startswith(_QUOTED) and (message := _MESSAGE.search(text)):
            return f"the database refuses the query ({first_line(message[1])}); correct the query, or the user's rights"
        to_do = "read it again later" if state.startswith(_PASSING_STATES) else "correct query or table"
        return f"the query failed (SQLSTATE {state or 'unknown'}; the server's log says more); {to_do}"


def _sqlstate(error: Exception) -> str:
    return getattr(error, "sqlstate", None) or (found[1] if (found := _STATE.search(str(error))) else "")


def _expression(column: Column) -> str:
    """The SQL of a column as numbers or texts."""
    sql, name = column.sql, type_name(column)
    if name in _VIA_NUMERIC:
        sql, name = f"{sql}::numeric", "numeric"
    if name == "numeric":
        return f"{sql}::float8" if column.is_number else f"{sql}::text"
    is_time = pa.types.is_temporal(column.kind.type) and not pa.types.is_interval(column.kind.type)
    is_native = name in _AS_THEY_ARE or is_time or pa.types.is_nested(column.kind.type)
    return sql if is_native else f"{sql}::text"
