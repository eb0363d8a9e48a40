"""A query in a database, read as a table: only the wanted columns leave it, in one read-only session, in batches."""

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

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
        self.path, self.source = str(source), source
        self._query = source.query.strip().rstrip(";")
        self._database = _KINDS[source.kind](source)
        self.columns = tuple(name.strip(TRIMMED) for name in next(self._read(self._described)).names)

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Arrow batches of `columns`. They see one snapshot: that of one statement in one read-only session."""
        del coded
        if self.source.key is not None:
            self._keys(1 << 62)
        yield from self._read(lambda session: self._rows(session, columns, numbers, None))

    def between(
        self, keys: tuple[int, int], columns: Sequence[str], numbers: Collection[str]
    ) -> Generator[pa.RecordBatch]:
        """`batches` of the rows whose key is from the first to before the second."""
        yield from self._read(lambda session: self._rows(session, columns, numbers, keys))

    def key_ranges(self, rows: int) -> list["KeyRange"]:
        """The table in parts of so many consecutive rows by the source's key, the last of fewer.

        Raises DataError unless the key has whole numbers, each once.
        """
        firsts, highest, count = self._keys(rows)
        ends = [*firsts[1:], highest + 1]
        return [
            KeyRange(self.path, self.source, self.columns, place * rows, min(rows, count - place * rows), keys)
            for place, keys in enumerate(zip(firsts, ends, strict=True))
        ]

    def _keys(self, rows: int) -> tuple[list[int], int, int]:
        """The key of every so many-th row from the first on, the highest key, and the number of rows.

        Raises DataError unless every row has a whole number there, and each is there once.
        """
        name = self.source.key
        assert name is not None, "the source has a key"
        if name not in self.columns:
            raise self.error("there is no such column; check key_column and the query", column=name)
        key = _quoted(name)
        counted = self._select(f"count(*) AS n, count({key}) AS k, count(DISTINCT {key}) AS u, max({key}) AS z")
        numbered = self._select(f"{key} AS k, row_number() OVER (ORDER BY {key}) AS n")
        starts = f"SELECT k FROM ({numbered}) AS r WHERE (n - 1) % {rows} = 0 ORDER BY k"  # noqa: S608  (a number)
        [(count, present, different, highest)], found = (self._values(text) for text in (counted, starts))
        firsts = [first for (first,) in found]
        if not count:
            raise self.error("the query returns no row; correct it, or fill the table")
        if not count == present == different or not all(isinstance(each, int) for each in (highest, *firsts)):
            raise self.error("a key needs a whole number in every row, each once; name another column", column=name)
        return firsts, highest, count

    def _values(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a query of few."""
        found: list[tuple[Any, ...]] = []
        for batch in self._read(lambda session: session.batches(text)):
            found += zip(*batch.to_pydict().values(), strict=True)
        return found

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about row `row` of the query's result, counted from 1 in its message."""
        return DataError(sentence, file=self.path, row=None if row is None else row + 1, column=column)

    def _select(self, columns: str) -> str:
        # The configuration's query, which may be any; the session is what keeps it from writing.
        return f"SELECT {columns} FROM (\n{self._query}\n) AS q"  # noqa: S608

    def _described(self, session: Session) -> list[pa.Schema]:
        return [session.schema(self._select("*") + " LIMIT 0")]

    def _rows(
        self, session: Session, columns: Sequence[str], numbers: Collection[str], keys: tuple[int, int] | None
    ) -> Iterator[pa.RecordBatch]:
        [schema] = self._described(session)
        fields = {field.name.strip(TRIMMED): field for field in schema}
        for column in columns:
            if column not in fields:
                raise self.error("was removed while the table was being read; read it again", column=column)
        selection = self._database.selection(
            [Column(_quoted(fields[name].name), fields[name], name in numbers) for name in columns]
        )
        wanted = ", ".join(f"{sql} AS c{place}" for place, sql in enumerate(selection.expressions))
        text, is_empty = self._select(wanted), True
        if self.source.key is not None:
            key = _quoted(fields[self.source.key].name)
            text += "" if keys is None else f" WHERE {key} >= {keys[0]} AND {key} < {keys[1]}"
            text += f" ORDER BY {key}"
        # Closed before the session is, which another thread may be fetching from.
        with closing(session.batches(text)) as batches:
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


@dataclass
class KeyRange:
    """A Table: rows of a query whose keys are consecutive, which another machine can read by itself."""

    path: str
    """Of the whole table."""
    source: DatabaseSource
    columns: tuple[str, ...]
    first_row: int
    """In the whole table."""
    rows: int
    keys: tuple[int, int]
    """From the first to before the second."""
    index: tuple[str, ...] = ()
    state: None = None

    def check(self) -> None:
        """A database does not say whether rows have changed. What was read of them is compared by its digest."""

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """See `DatabaseTable`. Raises DataError if there are more or fewer rows than when they were counted."""
        del coded
        found = 0
        for batch in DatabaseTable(self.source).between(self.keys, columns, numbers):
            found += batch.num_rows
            if found <= self.rows:
                yield batch
        if found != self.rows:
            raise self.error("changed since its rows were counted; read the table again")

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """See `DatabaseTable`; the row is counted from the first of these rows."""
        number = None if row is None else self.first_row + row + 1
        return DataError(sentence, file=self.path, row=number, column=column)


def _quoted(column: str) -> str:
    """A column in SQL. Without "q.", SQLite takes an unknown column for a text."""
    return 'q."' + column.replace('"', '""') + '"'
