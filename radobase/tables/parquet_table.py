"""Parquet files as batches of Arrow columns; errors name the file and the row, counted from 1, and quote no cell."""

import hashlib
import os
import re
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import DataError
from dpcore.records.features import TRIMMED
from radobase.failure import may_pass
from radobase.tables.arrow_table import index_of, invalid, opened

_BATCH_ROWS = 1 << 14
# Bytes that Arrow reads ahead in a column of a row group. Without it Arrow holds whole row groups, at last the file.
_BUFFER_BYTES = 1 << 16
_UNREADABLE = (OSError, EOFError, UnicodeDecodeError, pa.ArrowException)


class ParquetTable:
    """A Parquet file. Only the requested columns are read."""

    def __init__(self, path: str, state: tuple[int, int, int] | None = None) -> None:
        """Read the columns' names. state: the file's state before it was opened. Raises DataError."""
        self.path, self.state = path, state
        try:
            with opened(path) as source, pq.ParquetFile(source) as file:
                self.rows: int = file.metadata.num_rows
                self.group_rows = tuple(file.metadata.row_group(each).num_rows for each in range(file.num_row_groups))
                self.columns = tuple(str(name).strip(TRIMMED) for name in file.schema_arrow.names)
                self.index = index_of(file.schema_arrow)
                self._names = dict(zip(self.columns, file.schema_arrow.names, strict=True))
                self._texts = {
                    name for name, kind in zip(self.columns, file.schema_arrow.types, strict=True) if is_text(kind)
                }
        except MemoryError:
            raise
        except _UNREADABLE as error:
            raise self._unreadable(error) from None

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Arrow batches of `columns`, in the file's own types except for `coded`."""
        del numbers
        yield from self._read(columns, coded, None)

    def between(
        self, first: int, stop: int, columns: Sequence[str], coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """`batches` of the rows from `first` to before `stop`. Only their row groups are read."""
        ends = list(accumulate(self.group_rows))
        groups = [
            number
            for number, (end, rows) in enumerate(zip(ends, self.group_rows, strict=True))
            if rows and end > first and end - rows < stop
        ]
        row = ends[groups[0]] - self.group_rows[groups[0]] if groups else stop
        for batch in self._read(columns, coded, groups):
            skipped, left = max(0, first - row), stop - row
            row += batch.num_rows
            if skipped < batch.num_rows:
                yield batch.slice(skipped, min(batch.num_rows, left) - skipped)
            if row >= stop:
                return

    def _read(
        self, columns: Sequence[str], coded: Collection[str], groups: Sequence[int] | None
    ) -> Generator[pa.RecordBatch]:
        names = [self._names[column] for column in columns]
        read_dictionary = [self._names[column] for column in coded if column in self._texts]
        try:
            with (
                opened(self.path) as source,
                pq.ParquetFile(
                    source, read_dictionary=read_dictionary, buffer_size=_BUFFER_BYTES, pre_buffer=False
                ) as file,
            ):
                for read in file.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups, columns=names):
                    batch = read.select(names).rename_columns(list(columns))
                    self._check(batch)
                    yield batch
        except MemoryError:
            raise
        except _UNREADABLE as error:
            raise self._unreadable(error) from None

    def _check(self, batch: pa.RecordBatch) -> None:
        """Arrow takes texts and codes as they are in the file, and later steps rely on them."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                sentence = invalid(column.type, "write the file again")
                raise self.error(sentence, column=name) from None

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about data row `row`, counted from 1 in its message."""
        return DataError(sentence, file=self.path, row=None if row is None else row + 1, column=column)

    def _unreadable(self, error: Exception) -> DataError:
        if isinstance(error, OSError) and may_pass(error):
            return self.error(
                f"cannot be read ({os.strerror(error.errno or 0)}); check the file and its disk"
            ).passing()
        return self.error("is not a readable Parquet file (truncated, damaged or of another kind); write it again")


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts that are not dictionary-encoded."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


# Several Parquet files as one table: those of a directory or of a pattern, with the columns of `name=value` folders
# (Hive partitions); or a list of files.
#
# Files are read in the order of their paths, byte by byte, or in the list's, so that a row has the same number every
# time.


PARQUET = (".parquet", ".pq")
# Programs that write data sets keep their own files under such names, and write missing values as this folder.
_IGNORED = ("_", ".")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_WILD = re.compile(r"[*?\[]")

DirectoryState = tuple[tuple[str, int, int, int], ...]
"""Changes when one of the files is added, removed, replaced or written to."""


@dataclass(frozen=True)
class FileList:
    """Parquet files that are one table, in this order."""

    paths: tuple[Path, ...]

    @property
    def name(self) -> str:
        """What the ledger would call the data; the configuration asks for a name of its own."""
        return self.paths[0].name

    def __str__(self) -> str:
        return f"{self.paths[0]} and {len(self.paths) - 1} more"


def is_pattern(path: str | Path) -> bool:
    """Whether a path has wildcards (`*`, `?`, `[`), and is no file or directory itself."""
    return _WILD.search(str(path)) is not None and not Path(path).exists()


class ParquetFiles:
    """The rows of all files. Only the requested columns are read, and one file at a time is open."""

    def __init__(self, source: Path | FileList) -> None:
        """Read the columns' names and the numbers of rows. source: a directory, a pattern, or a list.

        Raises DataError if two files have different columns.
        """
        self.path, self._source = str(source), source
        self.columns: tuple[str, ...] = ()
        self.index: tuple[str, ...] = ()
        self.state = self.state_now()
        self.parts: list[tuple[ParquetTable, dict[str, str | None]]] = []
        """The files in order, each with the columns that its folders name."""
        if not self.state:
            # What a mount that is late looks like.
            what = "matches no" if is_pattern(self.path) else "is a directory without a"
            raise self.error(f"{what} .parquet or .pq file; give a file, or a directory with some").passing()
        base = self._base
        for path, *_ in self.state:
            if not path.lower().endswith(PARQUET):
                raise self.error(f"has the file {path!r}, which is no .parquet or .pq file; move it elsewhere")
            folders = {} if isinstance(source, FileList) else self._folders(path)
            self._add(ParquetTable(str(base / path)), folders)
        self.rows = sum(table.rows for table, _ in self.parts)

    @property
    def _base(self) -> Path:
        """The directory that files are named in: of a pattern, the one above its first wildcard."""
        if isinstance(self._source, FileList):
            return Path()
        if not is_pattern(self._source):
            return self._source
        parts = self._source.parts
        return Path(*parts[: next(place for place, part in enumerate(parts) if _WILD.search(part))])

    def state_now(self) -> DirectoryState:
        """The state of all files, in the order in which they are read. Raises DataError if a folder cannot be read."""
        found = []
        try:
            for path in self._listed():
                status = (self._base / path).stat()
                found.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError as error:
            where = f"{error.filename}: " if isinstance(self._source, FileList) else ""
            fault = self.error(f"{where}cannot be read ({error.strerror}); check its folders and their permissions")
            raise (fault.passing() if may_pass(error) else fault) from None
        return tuple(found)

    def _listed(self) -> Iterator[str]:
        if isinstance(self._source, FileList):
            names = [str(path) for path in self._source.paths]
            if twice := next((name for name in names if names.count(name) > 1), None):
                raise self.error(f"names {twice} twice; name each file once")
            yield from names
        elif is_pattern(self._source):
            base = self._base
            found = (path.relative_to(base) for path in base.glob(str(self._source.relative_to(base))))
            shown = [path for path in found if not any(part.startswith(_IGNORED) for part in path.parts)]
            yield from sorted((path.as_posix() for path in shown), key=os.fsencode)
        else:
            yield from _paths(self._source)

    def _folders(self, path: str) -> dict[str, str | None]:
        """The columns that a file's folders name. A folder without "=" names none."""
        found: dict[str, str | None] = {}
        for folder in path.split("/")[:-1]:
            name, mark, value = folder.partition("=")
            if mark:
                column = unquote(name).strip(TRIMMED)
                if column in found:
                    raise self.error("two folders of a file name this column; rename one", column=column)
                found[column] = None if value == _NULL else unquote(value)
        return found

    def _add(self, table: ParquetTable, folders: dict[str, str | None]) -> None:
        if twice := sorted(set(table.columns) & set(folders)):
            raise table.error("is a column of the file and the name of a folder; rename one", column=twice[0])
        columns = (*table.columns, *folders)
        if self.parts and (other := sorted(set(columns) ^ set(self.columns))):
            first = self.parts[0][0].path
            has, lacks = (table.path, first) if other[0] in columns else (first, table.path)
            raise self.error(
                f"{has} has this column and {lacks} does not; write all files with the same columns", column=other[0]
            )
        self.columns, self.index = self.columns or columns, self.index or table.index
        self.parts.append((table, folders))

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Arrow batches of `columns`, in each file's own types; those of folders are texts."""
        for table, folders in self.parts:
            own = [column for column in columns if column not in folders]
            # A file's number of rows is in batches of any column.
            read = own or list(table.columns[:1])
            for batch in table.batches(read, numbers=numbers, coded=coded):
                yield _with_folders(batch, columns, folders)

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about data row `row`, with its file, and counted from 1 in that file."""
        if row is None:
            return DataError(sentence, file=self.path, column=column)
        for table, _ in self.parts:
            if row < table.rows:
                return table.error(sentence, row=row, column=column)
            row -= table.rows
        raise AssertionError("the row is one of the files'")


def _with_folders(batch: pa.RecordBatch, columns: Sequence[str], folders: dict[str, str | None]) -> pa.RecordBatch:
    """The columns of a file's batch and of its folders, in this order."""
    cells = [
        pa.repeat(pa.scalar(folders[column], pa.string()), batch.num_rows)
        if column in folders
        else batch.column(column)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(cells, names=list(columns))


def _paths(directory: Path) -> Iterator[str]:
    """The files in all folders, in the order of their relative paths."""

    def refuse(error: OSError) -> None:
        raise error

    found = []
    for folder, folders, files in os.walk(directory, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(_IGNORED)]
        found += [Path(folder, name).relative_to(directory) for name in files if not name.startswith(_IGNORED)]
    yield from sorted((path.as_posix() for path in found), key=os.fsencode)


# Parts of such a table, which several machines read.


_TAIL_BYTES = 8
"""The length of the footer, and four letters."""
# Arrow refuses larger ones itself.
_MOST_FOOTER_BYTES = 1 << 30


@dataclass(frozen=True)
class FileRows:
    """Rows `first` to before `stop` of one file, and how the file was when its rows were counted."""

    path: str
    folders: dict[str, str | None]
    first: int
    stop: int
    size_bytes: int
    written_ns: int
    footer: bytes
    """SHA-256 of the file's footer, which has the place of every page."""

    def check(self) -> None:
        """Raise DataError if the file is missing or another one."""
        if file_state(self.path) != (self.size_bytes, self.written_ns, self.footer):
            raise DataError("changed since its rows were counted; read the table again", file=self.path)


@dataclass
class RowRange:
    """A Table: consecutive rows of a Parquet file or directory, which another machine can read by itself."""

    path: str
    """Of the whole table."""
    columns: tuple[str, ...]
    first_row: int
    """In the whole table."""
    files: tuple[FileRows, ...]
    index: tuple[str, ...] = ()
    state: None = None

    @property
    def rows(self) -> int:
        """How many rows these are."""
        return sum(each.stop - each.first for each in self.files)

    def check(self) -> None:
        """Raise DataError if one of its files is missing or another one."""
        for file in self.files:
            file.check()

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """See `ParquetFiles`. Raises DataError if a file is another one, before its rows and after them."""
        del numbers
        for file in self.files:
            file.check()
            table, folders = ParquetTable(file.path), file.folders
            own = [column for column in columns if column not in folders] or list(table.columns[:1])
            for batch in table.between(file.first, file.stop, own, coded):
                yield _with_folders(batch, columns, folders)
            file.check()

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """See `ParquetFiles`; the row is counted from the first of these rows."""
        if row is None:
            return DataError(sentence, file=self.path, column=column)
        for file in self.files:
            rows = file.stop - file.first
            if row < rows:
                return DataError(sentence, file=file.path, row=file.first + row + 1, column=column)
            row -= rows
        raise AssertionError("the row is one of the files'")


def file_state(path: str) -> tuple[int, int, bytes]:
    """The size, the time of the last writing and the footer's digest of a Parquet file. Raises DataError."""
    try:
        with Path(path).open("rb") as file:
            found = os.fstat(file.fileno())
            file.seek(max(0, found.st_size - _TAIL_BYTES))
            footer_bytes = int.from_bytes(file.read(_TAIL_BYTES)[:4], "little") + _TAIL_BYTES
            if footer_bytes > min(found.st_size, _MOST_FOOTER_BYTES):
                raise DataError("is not a readable Parquet file (truncated or damaged); write it again", file=path)
            file.seek(found.st_size - footer_bytes)
            return found.st_size, found.st_mtime_ns, hashlib.sha256(file.read(footer_bytes)).digest()
    except OSError as error:
        sentence = f"cannot be read ({os.strerror(error.errno or 0)}); every machine must find it under this path"
        raise DataError(sentence, file=path) from None


def row_ranges(table: ParquetTable | ParquetFiles, least_rows: int, whole_rows: int) -> list[RowRange]:
    """The table in parts of whole row groups, each of `least_rows` or more if there are so many.

    A part ends at the next multiple of `whole_rows`, so that it also has the first rows of another row group. Raises
    DataError if a file cannot be read.
    """
    files = table.parts if isinstance(table, ParquetFiles) else [(table, {})]
    ends = list(accumulate(rows for file, _ in files for rows in file.group_rows))
    cuts, rows = [0], ends[-1] if ends else 0
    for end in ends:
        cut = min(rows, -(-end // whole_rows) * whole_rows)
        if cut - cuts[-1] >= least_rows:
            cuts.append(cut)
    if cuts[-1] < rows:
        cuts.append(rows)
    states = [file_state(file.path) for file, _ in files]
    firsts = list(accumulate((file.rows for file, _ in files), initial=0))
    found = []

    def path(file: ParquetTable) -> str:
        return str(Path(file.path).absolute())

    for first, stop in pairwise(cuts):
        own = tuple(
            FileRows(
                str(Path(file.path).absolute()), folders, max(0, first - start), min(file.rows, stop - start), *state
            )
            for (file, folders), start, state in zip(files, firsts, states, strict=False)
            if start < stop and start + file.rows > first
        )
        found.append(RowRange(table.path, table.columns, first, own, tuple(table.index)))
    return found
