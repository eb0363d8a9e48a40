"""A query in a database, read as a table: only the wanted columns leave it, in one read-only session, in batches."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TypeVar

import pyarrow as pa

from dpcore.errors import DataError
from dpcore.records.features import TRIMMED
from radobase.tables.arrow_table import invalid
from radobase.tables.database_source import DatabaseSource
from radobase.tables.databases import Column, Database, Duck, Session, Sqlite
from radobase.tables.postgresql import PostgreSql

Result = TypeVar("Result")

_KINDS: Mapping[str, Callable[[DatabaseSource], Database]] = {
    "postgresql": PostgreSql,
    "sqlite": Sqlite,
    "duckdb": Duck,
}


class DatabaseTable:
    """The rows of a query. Errors name the row of its result, counted from 1, and quote no cell."""

    index: tuple[str, ...] = ()
    state: tuple[int, int, int] | None = None
    rows: int | None = None

    def __init__(self, source: DatabaseSource) -> None:
        """Read the columns' names. Raises DataError, and ConfigurationError if the driver is not installed."""
        self.path = str(source)
        self._query = source.query.strip().rstrip(";")
        self._database = _KINDS[source.kind](source)
        self.columns = tuple(name.strip(TRIMMED) for name in next(self._read(self._described)).names)

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Arrow batches of `columns`. They see one snapshot: that of one statement in one read-only session."""
        del coded
        yield from self._read(lambda session: self._rows(session, columns, numbers))

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about row `row` of the query's result, counted from 1 in its message."""
        return DataError(sentence, file=self.path, row=None if row is None else row + 1, column=column)

    def _select(self, columns: str) -> str:
        # The configuration's query, which may be any; the session is what keeps it from writing.
        return f"SELECT {columns} FROM (\n{self._query}\n) AS q"  # noqa: S608

    def _described(self, session: Session) -> list[pa.Schema]:
        return [session.schema(self._select("*") + " LIMIT 0")]

    def _rows(self, session: Session, columns: Sequence[str], numbers: Collection[str]) -> Iterator[pa.RecordBatch]:
        [schema] = self._described(session)
        fields = {field.name.strip(TRIMMED): field for field in schema}
        for column in columns:
            if column not in fields:
                raise self.error("was removed while the table was being read; read it again", column=column)
        selection = self._database.selection(
            [Column(_quoted(fields[name].name), fields[name], name in numbers) for name in columns]
        )
        wanted = ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(selection.expressions))
        is_empty = True
        # Closed before the session is, which another thread may be fetching from.
        with closing(session.batches(self._select(wanted))) as batches:
            for batch in batches:
                named = pa.RecordBatch.from_arrays(list(selection.unpack(batch.columns)), list(columns))
                self._check(named)
                is_empty = is_empty and not named.num_rows
                yield named
        if is_empty:
            raise self.error("the query returns no row; correct it, or fill the table")

    def _check(self, batch: pa.RecordBatch) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                raise self.error(invalid(column.type, "correct the table"), column=name) from None

    def _read(self, work: Callable[[Session], Iterable[Result]]) -> Iterator[Result]:
        """What `work` gives, in a session of its own."""
        try:
            with self._database.session() as session:
                yield from work(session)
        except self._database.failures as error:
            # The driver's message may quote cells.
            found = self.error(self._database.cause(error))
            raise (found.passing() if self._database.may_pass(error) else found) from None


def _quoted(column: str) -> str:
    """A column in SQL. Without "q.", SQLite takes an unknown column for a text."""
    return 'q."' + column.replace('"', '""') + '"'
