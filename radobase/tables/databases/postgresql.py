"""PostgreSQL, through ADBC. Rows arrive by COPY in binary, as they are read."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from dpcore.errors import ConfigurationError
from radobase.files.permissions import ExposedKeyError, check_private
from radobase.tables.databases.packing import packed, type_name
from radobase.tables.databases.sessions import LOST, WRITES, AdbcSession, Column, Selection, first_line
from radobase.tables.databases.source import DatabaseSource

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
        if state.startswith(_QUOTED) and (message := _MESSAGE.search(text)):
            return f"the database refuses the query ({first_line(message[1])}); correct the query, or the user's rights"
        return f"the query failed (SQLSTATE {state or 'unknown'}; the server's log says more); correct query or table"


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
