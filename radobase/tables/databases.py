"""Databases as sources of tables: read-only sessions, the SQL of a column, causes of failures; DuckDB and SQLite.

PostgreSQL has a file of its own. Each driver is an extra, and is imported when it is used.
"""

import re
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa

from dpcore.errors import ConfigurationError
from radobase.tables.database_source import DatabaseSource

BATCH_ROWS = 1 << 14

WRITES = "the query writes, and the session is read-only; give a query that only reads"
LOST = "the connection was lost while rows were read; check the database, then read it again"


class Session(Protocol):
    """An open read-only session."""

    def schema(self, query: str) -> pa.Schema:
        """The columns of a query that returns no row."""
        ...

    def batches(self, query: str) -> Generator[pa.RecordBatch]:
        """The rows of a query, a batch in memory at a time."""
        ...


class Database(Protocol):
    """A kind of database."""

    failures: tuple[type[Exception], ...]
    """Exceptions that its driver raises."""

    def session(self) -> AbstractContextManager[Session]:
        """A read-only session, in which one query sees one snapshot.

        Raises ConfigurationError if the driver is not installed, DataError if the file cannot be opened.
        """
        ...

    def selection(self, columns: Sequence["Column"]) -> "Selection":
        """What to select for columns, as numbers or texts."""
        ...

    def cause(self, error: Exception) -> str:
        """The cause of a failure, and its remedy. Quotes no cell and no password."""
        ...

    def may_pass(self, error: Exception) -> bool:
        """Whether the same query may succeed later without a correction."""
        ...


@dataclass(frozen=True)
class Column:
    """A column of the query's result."""

    sql: str
    """Quoted."""
    kind: pa.Field
    """Its type."""
    is_number: bool
    """it is read as doubles, not as texts."""


def _as_they_are(arrays: Sequence[pa.Array]) -> Sequence[pa.Array]:
    return arrays


@dataclass(frozen=True)
class Selection:
    """What a query selects."""

    expressions: Sequence[str]
    """The SQL of what is selected."""
    unpack: Callable[[Sequence[pa.Array]], Sequence[pa.Array]] = _as_they_are
    """Makes the columns of its arrays."""


class AdbcSession:
    """A Session of a DB-API connection of ADBC."""

    def __init__(self, connection: Any, options: dict[str, str]) -> None:
        self._connection, self._options = connection, options

    def execute(self, statement: str) -> None:
        """Execute a statement that returns no rows."""
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def schema(self, query: str) -> pa.Schema:
        """See Session."""
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetch_record_batch().schema

    def batches(self, query: str) -> Generator[pa.RecordBatch]:
        """See Session."""
        with self._connection.cursor(adbc_stmt_kwargs=self._options) as cursor:
            cursor.execute(query)
            # fetch_record_batch's reader drops the SQLSTATE of what fails after the first rows; this one, which the
            # cursor's own methods read with, keeps it.
            from adbc_driver_manager._reader import AdbcRecordBatchReader  # noqa: PLC0415  (an extra)

            stream = cursor.fetch_arrow()
            with AdbcRecordBatchReader._import_from_c(stream.address) as reader:  # noqa: SLF001
                yield from _fetched_ahead(iter(reader), cursor.adbc_cancel)


def _fetched_ahead(batches: Iterator[pa.RecordBatch], cancel: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """The batches, each fetched on a thread while the one before is worked on, so that the server never waits.

    cancel: ends a fetch that waits for the server, if no more batches are wanted.
    """
    with ThreadPoolExecutor(1, "fetch") as pool:
        coming = pool.submit(next, batches, None)
        try:
            while (batch := coming.result()) is not None:
                coming = pool.submit(next, batches, None)
                yield batch
        finally:
            if not coming.done():
                with suppress(Exception):  # a driver that cannot: the fetch ends by itself
                    cancel()


def first_line(text: str) -> str:
    """The first line of a driver's message."""
    return text.strip().partition("\n")[0].strip()


# DuckDB files.


# A query that needs more, such as a large sort, continues on disk, beside the database. No extension is fetched over
# the network, and a query cannot name Python's variables.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "256MB",
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
    "preserve_insertion_order": True,
}


class Duck:
    """A Database. One statement sees one snapshot; nothing can write, in this or another process, while it is open."""

    failures: tuple[type[Exception], ...]

    def __init__(self, source: DatabaseSource) -> None:
        """Raises ConfigurationError if DuckDB is not installed."""
        self._source = source
        try:
            import duckdb  # noqa: PLC0415  (an extra)
        except ModuleNotFoundError as missing:
            raise ConfigurationError(f"{missing.name} is not installed: install radofed[duckdb]") from missing
        self._duckdb = duckdb
        self._quoted = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
        self.failures = (duckdb.Error, OSError, pa.ArrowException)

    @contextmanager
    def session(self) -> Iterator["_Session"]:
        """See Database."""
        with self._duckdb.connect(self._source.place, read_only=True, config=_SETTINGS) as connection:
            yield _Session(self._duckdb, connection)

    def selection(self, columns: Sequence[Column]) -> Selection:
        """See Database."""
        return Selection([column.sql for column in columns])

    def cause(self, error: Exception) -> str:
        """See Database."""
        text = str(error)
        if "read-only mode" in text and "Cannot execute" in text:
            return WRITES
        if isinstance(error, self._quoted):
            return f"the database refuses the query ({first_line(text)}); correct source and query"
        if isinstance(error, self._duckdb.OutOfMemoryException):
            return "the query needs more memory than a reader may use; leave out sorts and joins, or store their result"
        if isinstance(error, self._duckdb.IOException):
            return "cannot be opened or read; check that it is a DuckDB file and that no other process writes to it"
        return f"the query failed ({type(error).__name__}); correct query or table"

    def may_pass(self, error: Exception) -> bool:
        """See Database: another process has the file open."""
        return isinstance(error, self._duckdb.IOException) and "lock" in str(error)


class _Session:
    def __init__(self, duckdb: Any, connection: Any) -> None:
        self._duckdb, self._connection = duckdb, connection

    def schema(self, query: str) -> pa.Schema:
        """See Session."""
        return self._relation(query).to_arrow_reader(1).schema

    def batches(self, query: str) -> Generator[pa.RecordBatch]:
        """See Session."""
        yield from self._relation(query).to_arrow_reader(BATCH_ROWS)

    def _relation(self, query: str) -> Any:
        # DuckDB would execute all statements of a text, one after another.
        if len(self._connection.extract_statements(query)) != 1:
            raise self._duckdb.ParserException("give one statement")
        return self._connection.sql(query)


# SQLite, through ADBC.
#
# A cell of SQLite has a type of its own, whatever its column declares (SQLite documentation, "Datatypes In SQLite"),
# but an Arrow column has one, which the driver takes from the first rows. So each cell comes as a text, a missing one
# as "".


_PREPARE = re.compile(r"Failed to prepare query: (.*)")
_LOCKED = re.compile(r"database( table)? is locked")
# dpcore.records.features.value_text in SQL: integers below 2^53 as such, other doubles in the fewest digits that read
# back. SQLite prints at most 16 digits without "!".
_TEXT = """CASE typeof({0}) WHEN 'null' THEN '' WHEN 'real' THEN CASE
 WHEN abs({0}) < 9007199254740992 AND {0} = CAST({0} AS INTEGER) THEN CAST(CAST({0} AS INTEGER) AS TEXT)
 WHEN CAST(printf('%.15g', {0}) AS REAL) = {0} THEN printf('%.15g', {0})
 WHEN CAST(printf('%.16g', {0}) AS REAL) = {0} THEN printf('%.16g', {0})
 ELSE printf('%!.17g', {0}) END ELSE CAST({0} AS TEXT) END"""


class Sqlite:
    """A Database. One statement sees one snapshot (SQLite documentation, "Isolation In SQLite")."""

    failures: tuple[type[Exception], ...]

    def __init__(self, source: DatabaseSource) -> None:
        """Raises ConfigurationError if the driver is not installed."""
        self._source = source
        try:
            from adbc_driver_manager import Error  # noqa: PLC0415  (an extra)
            from adbc_driver_sqlite import dbapi  # noqa: PLC0415
        except ModuleNotFoundError as missing:
            raise ConfigurationError(f"{missing.name} is not installed: install radofed[sqlite]") from missing
        self._connect = dbapi.connect
        self.failures = (Error, OSError, UnicodeDecodeError, pa.ArrowException)

    @contextmanager
    def session(self) -> Iterator[AdbcSession]:
        """See Database."""
        address = f"file:{quote(str(Path(self._source.place).absolute()))}?mode=ro"
        with self._connect(address, autocommit=True) as connection:
            yield AdbcSession(connection, {"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})

    def selection(self, columns: Sequence[Column]) -> Selection:
        """See Database."""
        return Selection([_TEXT.format(column.sql) for column in columns])

    def cause(self, error: Exception) -> str:
        """See Database."""
        if isinstance(error, UnicodeDecodeError):
            return "a text is not UTF-8; correct the table, or leave the column out of the schema"
        text = str(error)
        if "readonly database" in text:
            return WRITES
        if self.may_pass(error):
            return "another process has locked the database; read it again once that process is done"
        if prepare := _PREPARE.search(text):
            return f"the database refuses the query ({first_line(prepare[1])}); correct source and query"
        if "failed to open" in text:
            return "cannot be opened; check the file, its permissions and those of its directory"
        return "cannot be read to the end (damaged, locked or removed, or the query fails); check file and query"

    def may_pass(self, error: Exception) -> bool:
        """See Database: another process holds a lock."""
        return _LOCKED.search(str(error)) is not None
