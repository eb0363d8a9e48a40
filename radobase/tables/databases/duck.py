"""DuckDB files."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from dpcore.errors import ConfigurationError
from radobase.tables.databases.sessions import BATCH_ROWS, WRITES, Column, Selection, first_line
from radobase.tables.databases.source import DatabaseSource

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
