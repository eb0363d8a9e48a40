"""A directory of Parquet files as one table, with the columns of `name=value` folders (Hive partitions).

Files are read in the order of their paths, byte by byte, so that a row has the same number every time.
"""

import os
from collections.abc import Collection, Generator, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from dpcore.errors import DataError
from dpcore.records.features import TRIMMED
from radobase.files.faults import may_pass
from radobase.tables.parquet_table import ParquetTable

PARQUET = (".parquet", ".pq")
# Programs that write data sets keep their own files under such names, and write missing values as this folder.
_IGNORED = ("_", ".")
_NULL = "__HIVE_DEFAULT_PARTITION__"

DirectoryState = tuple[tuple[str, int, int, int], ...]
"""Changes when a file of the directory is added, removed, replaced or written to."""


class ParquetDirectory:
    """The rows of all files. Only the requested columns are read, and one file at a time is open."""

    def __init__(self, directory: Path) -> None:
        """Read the columns' names and the numbers of rows. Raises DataError if two files have different columns."""
        self.path = str(directory)
        self.columns: tuple[str, ...] = ()
        self.index: tuple[str, ...] = ()
        self.state = self.state_now()
        self._parts: list[tuple[ParquetTable, dict[str, str | None]]] = []
        if not self.state:
            # What a mount that is late looks like.
            sentence = "is a directory without a .parquet or .pq file; give a file, or a directory with some"
            raise self.error(sentence).passing()
        for path, *_ in self.state:
            if not path.lower().endswith(PARQUET):
                raise self.error(f"has the file {path!r}, which is no .parquet or .pq file; move it elsewhere")
            self._add(ParquetTable(str(directory / path)), self._folders(path))
        self.rows = sum(table.rows for table, _ in self._parts)

    def state_now(self) -> DirectoryState:
        """The state of all files, in the order in which they are read. Raises DataError if a folder cannot be read."""
        found = []
        try:
            for path in _paths(Path(self.path)):
                status = Path(self.path, path).stat()
                found.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError as error:
            fault = self.error(f"cannot be read ({error.strerror}); check its folders and their permissions")
            raise (fault.passing() if may_pass(error) else fault) from None
        return tuple(found)

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
        if self._parts and (other := sorted(set(columns) ^ set(self.columns))):
            first = self._parts[0][0].path
            has, lacks = (table.path, first) if other[0] in columns else (first, table.path)
            raise self.error(
                f"{has} has this column and {lacks} does not; write all files with the same columns", column=other[0]
            )
        self.columns, self.index = self.columns or columns, self.index or table.index
        self._parts.append((table, folders))

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Arrow batches of `columns`, in each file's own types; those of folders are texts."""
        for table, folders in self._parts:
            own = [column for column in columns if column not in folders]
            # A file's number of rows is in batches of any column.
            read = own or list(table.columns[:1])
            for batch in table.batches(read, numbers=numbers, coded=coded):
                cells = [
                    pa.repeat(pa.scalar(folders[column], pa.string()), batch.num_rows)
                    if column in folders
                    else batch.column(column)
                    for column in columns
                ]
                yield pa.RecordBatch.from_arrays(cells, names=list(columns))

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about data row `row`, with its file, and counted from 1 in that file."""
        if row is None:
            return DataError(sentence, file=self.path, column=column)
        for table, _ in self._parts:
            if row < table.rows:
                return table.error(sentence, row=row, column=column)
            row -= table.rows
        raise AssertionError("the row is one of the files'")


def _paths(directory: Path) -> Iterator[str]:
    """The files in all folders, in the order of their relative paths."""

    def refuse(error: OSError) -> None:
        raise error

    found = []
    for folder, folders, files in os.walk(directory, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(_IGNORED)]
        found += [Path(folder, name).relative_to(directory) for name in files if not name.startswith(_IGNORED)]
    yield from sorted((path.as_posix() for path in found), key=os.fsencode)
