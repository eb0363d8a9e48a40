"""What a database is for a table: a read-only session, the SQL of a column, and the cause of a failure in words."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

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
        """Whether the same query may succeed later although nobody corrects anything."""
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
