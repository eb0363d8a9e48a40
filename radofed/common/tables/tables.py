"""Tables from files, streamed in blocks of rows: CSV (also compressed) and Parquet. Parties and the learner use it.

CSV cells are texts and stay exact until the schema interprets them. Only an empty cell is missing. Every error names
the file and the place in it: the line of a CSV file (counting quoted line breaks), the row of a Parquet file. No error
quotes a cell or the first line of a file, which may be a row if the header is missing.
"""

import csv
import gzip
import io
import zlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.numbers.processors import processors
from dpcore.records.encoding import CellError, Cells, EncodedRows, Source, StoredRows, encode, encode_stored, sources
from dpcore.records.features import TRIMMED, close_match
from dpcore.records.schema import Schema
from radofed.common.files.reading import FileKind, open_file
from radofed.common.tables.columns import cells, is_text

Progress = Callable[[int], None]
FileState = tuple[int, int, int] | None
"""Changes when a file is replaced or written to: inode, bytes, modification time; None if the file does not exist."""
Result = TypeVar("Result")

_CSV_BLOCK_BYTES = 1 << 20
_PARQUET_BATCH_ROWS = 1 << 14
# Bytes that Arrow reads ahead in a column of a row group. Without it Arrow holds whole row groups, at last the file.
_PARQUET_BUFFER_BYTES = 1 << 16
# Blocks that are read ahead, for each thread.
_BLOCKS_AHEAD = 2
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_TABLE = FileKind(
    lambda path, cause: DataError(f"{cause.lower()}; give one file, check its path and permissions", file=str(path))
)
_UNREADABLE = (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError, pa.ArrowException)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a table: the index of the first (from 0), their number, and the requested columns."""

    first_row: int
    rows: int
    cells: Mapping[Source, Cells]


class Table(Protocol):
    """A file whose header has been read and checked."""

    path: str
    columns: tuple[str, ...]
    state: FileState

    @property
    def rows(self) -> int | None:
        """The number of rows that the file declares, None if it declares none. Use it only to allocate memory."""
        ...

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches with at least `columns`, under their names.

        numbers: columns that may come as doubles, equal to the result of radofed.common.tables.columns.numbers on the
        texts. coded: columns of texts that may come dictionary-encoded. Both only save time.
        """
        ...

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error with this `sentence` about data row `row` (counted from 0) of this file."""
        ...


def open_table(path: str | Path) -> Table:
    """Open a table by its extension: .csv, .tsv (both also .gz), .parquet, .pq.

    Raises DataError if the file is absent, a directory, unreadable, of another kind, empty, or repeats a header.
    """
    file = Path(path)
    name = file.name.lower()
    with open_file(file, _TABLE) as stream:
        first = stream.read(1)
    if not first:
        raise DataError("the file is empty; write a header line and rows", file=str(path))
    if name.endswith(_PARQUET):
        return ParquetTable(str(path))
    extension = Path(name.removesuffix(".gz")).suffix
    if extension in _DELIMITERS:
        return CsvTable(str(path), _DELIMITERS[extension])
    raise DataError(
        "the extension is unknown; give a .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq file", file=str(path)
    )


class CsvTable:
    """A CSV file in UTF-8: one header line; cells with a delimiter or a line break are in double quotes."""

    def __init__(self, path: str, delimiter: str) -> None:
        self.path, self.state, self._delimiter = path, _state(path), delimiter
        self.columns: tuple[str, ...] = ()
        try:
            with self._text() as stream:
                reader = csv.reader(stream, delimiter=delimiter)
                header = next(((count, fields) for count, fields in enumerate(reader, start=1) if fields), None)
                self._has_rows = next(reader, None) is not None
            unclosed = self._unclosed_quote()
        except _UNREADABLE as error:
            raise self._unreadable(error) from None
        if header is None:
            raise self.error("the file is empty; write a header line and rows")
        if unclosed:
            raise self.error("a quotation mark is never closed; close it")
        self._header_rows, fields = header
        self.columns = tuple(field.strip(TRIMMED) for field in fields)
        _check_header(self, self.columns)
        if len(fields) == 1 and any(mark in fields[0] for mark in ";\t|"):
            raise self.error(f"the header seems to use a separator other than {delimiter!r}; save the file with it")

    rows = None

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches of `columns`, as texts except for `numbers` and `coded`. None if no rows follow the header.

        From the first block in which Arrow's reader refuses a number, such as a cell of blanks, all columns come as
        texts, which are parsed less strictly later. So the meaning of a cell does not depend on other cells.
        """
        if not self._has_rows:
            return
        types = dict.fromkeys(columns, pa.string())
        types |= dict.fromkeys(coded, pa.dictionary(pa.int32(), pa.string())) | dict.fromkeys(numbers, pa.float64())
        rows = 0
        try:
            if numbers:
                try:
                    for batch in self._stream(types):
                        yield batch
                        rows += batch.num_rows
                except pa.ArrowInvalid:
                    types = dict.fromkeys(columns, pa.string())
                else:
                    return
            for batch in self._stream(types):
                if rows < batch.num_rows:
                    yield batch.slice(rows)
                rows = max(0, rows - batch.num_rows)
        except _UNREADABLE as error:
            raise self._unreadable(error) from None

    def _stream(self, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """All rows, block by block: the columns of `types` in their order, as those types."""
        names = [f"c{place}" for place in range(len(self.columns))]  # headers may be blank or repeat where unused
        wanted = {names[self.columns.index(column)]: kind for column, kind in types.items()}
        reader = pa.csv.open_csv(
            pa.input_stream(self.path, compression="gzip" if self._compressed else None),
            pa.csv.ReadOptions(
                column_names=names, skip_rows_after_names=self._header_rows, block_size=_CSV_BLOCK_BYTES
            ),
            # An empty line of a table with one column is a missing cell.
            pa.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1),
            pa.csv.ConvertOptions(
                column_types=wanted,
                include_columns=list(wanted),
                null_values=[""],  # applies to numbers only
                strings_can_be_null=False,
            ),
        )
        for batch in reader:
            yield batch.rename_columns(list(types))

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about data row `row`, with the line on which it starts."""
        return DataError(sentence, file=self.path, line=None if row is None else self._line(row), column=column)

    @property
    def _compressed(self) -> bool:
        return self.path.lower().endswith(".gz")

    def _binary(self) -> Any:
        return gzip.open(self.path, "rb") if self._compressed else Path(self.path).open("rb")

    def _text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self._binary(), encoding="utf-8-sig", newline="")

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Data rows as (line on which the row starts, fields): a slow second reading, for errors only."""
        with self._text() as stream:
            reader = csv.reader(stream, delimiter=self._delimiter)
            begin = 1
            for count, fields in enumerate(reader, start=1):
                if count > self._header_rows and (fields or len(self.columns) == 1):
                    yield begin, fields
                begin = reader.line_num + 1

    def _line(self, row: int) -> int:
        try:
            return next(islice(self._records(), row, None))[0]
        except (StopIteration, *_UNREADABLE):
            return row + 2  # one line a row, after the header

    def _unclosed_quote(self) -> bool:
        """Whether a quotation mark is still open at the end of the file, so that rows are silently merged."""
        with self._binary() as stream:
            marks = sum(part.count(b'"') for part in iter(lambda: stream.read(_CSV_BLOCK_BYTES), b""))
        if marks % 2 == 0:  # in a well-formed file marks come in pairs; only other files need the slow check
            return False
        with self._text() as text:
            try:
                for _ in csv.reader(text, delimiter=self._delimiter, strict=True):
                    pass
            except csv.Error as error:
                return "unexpected end of data" in str(error)
        return False

    def _unreadable(self, error: Exception) -> DataError:
        """The error for a reader's exception, with the line if it can be found."""
        if isinstance(error, OSError | EOFError | zlib.error) and not isinstance(error, pa.ArrowException):
            return self.error(f"cannot be read ({error}); check the file, its permissions and its compression")
        line = 0
        try:
            for line, fields in self._records() if self.columns else ():
                if len(fields) != len(self.columns) and (fields or len(self.columns) > 1):
                    sentence = f"the row has {len(fields)} cells, but the header {len(self.columns)}; correct the row"
                    return DataError(sentence, file=self.path, line=line)
        except UnicodeDecodeError:
            # The decoder reads ahead, so the line can only be bounded from below.
            return self.error(f"the file is not UTF-8 (some line after {line}); save it as UTF-8")
        except _UNREADABLE:
            pass
        if isinstance(error, UnicodeDecodeError):
            return self.error("the file is not UTF-8; save it as CSV in UTF-8")
        if "straddling" in str(error):
            return self.error("a row is longer than 1 MiB; check for a missing quotation mark")
        # Arrow's message would quote the row.
        return self.error("is not a valid CSV; save it again from the program that made it")


class ParquetTable:
    """A Parquet file. Only the requested columns are read."""

    def __init__(self, path: str) -> None:
        self.path, self.state = path, _state(path)
        try:
            with pq.ParquetFile(path) as file:
                self.rows: int = file.metadata.num_rows
                self.columns = tuple(str(name).strip(TRIMMED) for name in file.schema_arrow.names)
                self._names = dict(zip(self.columns, file.schema_arrow.names, strict=True))
                self._texts = {
                    name for name, kind in zip(self.columns, file.schema_arrow.types, strict=True) if is_text(kind)
                }
        except _UNREADABLE:
            raise self._unreadable() from None
        _check_header(self, self.columns)

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches of `columns`, in the file's own types except for `coded`."""
        del numbers
        names = [self._names[column] for column in columns]
        read_dictionary = [self._names[column] for column in coded if column in self._texts]
        try:
            with pq.ParquetFile(
                self.path, read_dictionary=read_dictionary, buffer_size=_PARQUET_BUFFER_BYTES, pre_buffer=False
            ) as file:
                for batch in file.iter_batches(batch_size=_PARQUET_BATCH_ROWS, columns=names):
                    yield batch.select(names).rename_columns(list(columns))
        except _UNREADABLE:
            raise self._unreadable() from None

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about data row `row`, counted from 1 in its message."""
        return DataError(sentence, file=self.path, row=None if row is None else row + 1, column=column)

    def _unreadable(self) -> DataError:
        return self.error("is not a readable Parquet file (truncated, damaged or of another kind); write it again")


def read_blocks(table: Table, wanted: Sequence[Source], progress: Progress | None = None) -> Generator[Block]:
    """The wanted columns of a table, block by block.

    progress: callback with the number of rows read so far. Raises DataError if a column is absent, a cell is not a
    number but must be, a row is malformed, or the table has no rows.
    """

    def read(block: Block) -> Block:
        return block

    return _each_block(table, wanted, read, progress)


def _each_block(
    table: Table, wanted: Sequence[Source], work: Callable[[Block], Result], progress: Progress | None
) -> Generator[Result]:
    """The result of `work` for each block, in order, computed on threads.

    Raises the same errors as read_blocks, also for CellErrors of `work`. The error is always that of the first block
    with one, after the results of the blocks before it.
    """
    for source in wanted:
        if source.column not in table.columns:
            raise no_such_column(table, source.column)

    def made(batch: pa.RecordBatch, first_row: int) -> tuple[Result, int]:
        try:
            read = {source: cells(batch.column(source.column), source) for source in wanted}
            return work(Block(first_row, batch.num_rows, read)), batch.num_rows
        except CellError as error:
            raise located(table, error, first_row) from None

    rows = 0
    with closing(_ahead(made, table, wanted)) as results:
        for result, more in results:
            yield result
            rows += more
            if progress is not None:
                progress(rows)
    if rows == 0:
        raise table.error("there is a header but no rows; give a table with at least one row")


def _ahead(made: Callable[[pa.RecordBatch, int], Result], table: Table, wanted: Sequence[Source]) -> Generator[Result]:
    """`made` for each batch and its first row, in order, computed on a thread per processor, a few batches ahead."""
    numeric, coded = ({source.column for source in wanted if source.kind == kind} for kind in ("numbers", "texts"))
    columns = list(dict.fromkeys(source.column for source in wanted))
    # If a column is wanted in both ways, its texts serve for both.
    batches = table.batches(columns, numbers=numeric - coded, coded=coded - numeric)
    threads = processors()
    pending: deque[Future[Result]] = deque()
    failure: DataError | None = None
    first_row = 0
    with ThreadPoolExecutor(threads, "encode") as pool:
        try:
            while failure is None:
                try:
                    batch = next(batches, None)
                except DataError as error:  # raised after the results before it
                    failure = error
                    break
                if batch is None:
                    break
                pending.append(pool.submit(made, batch, first_row))
                first_row += batch.num_rows
                if len(pending) > _BLOCKS_AHEAD * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
    if failure is not None:
        raise failure


def no_such_column(table: Table, column: str) -> DataError:
    """The error about a column that a table lacks. It quotes one of the table's headers only if it is nearly equal."""
    near = close_match(column, table.columns)
    hint = "check that the file has a header line" if near is None else f"did you mean {near!r}?"
    return table.error(f"there is no such column; {hint}", column=column)


def located(table: Table, error: CellError, first_row: int) -> DataError:
    """The error about a cell of a block, with its place in the file."""
    row = None if error.row is None else first_row + error.row
    return table.error(error.sentence, row=row, column=error.column)


def encoded_blocks(
    path: str | Path, schema: Schema, *, label: bool, progress: Progress | None = None
) -> Iterator[EncodedRows]:
    """The rows of a file as the schema encodes them, block by block; labels only if `label` is true.

    Raises DataError for a fault of the file or a cell, naming file, line (or row) and column, and after the last block
    if the file was written to meanwhile.
    """

    def encoded(block: Block) -> EncodedRows:
        return encode(schema, block.cells, block.rows, label=label)

    table = open_table(path)
    yield from _each_block(table, sources(schema, label=label), encoded, progress)
    _check_unchanged(table)


def stored_blocks(table: Table, schema: Schema, progress: Progress | None = None) -> Iterator[StoredRows]:
    """The rows of a table with their labels as a party stores them, block by block. Raises as encoded_blocks does."""

    def stored(block: Block) -> StoredRows:
        return encode_stored(schema, block.cells, block.rows)

    yield from _each_block(table, sources(schema, label=True), stored, progress)
    _check_unchanged(table)


def read_observations(path: str | Path, schema: Schema) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """All rows of a file without their labels, for prediction: x (m, d) float64 in [-1, 1] and usable (m,).

    A row that is not usable is all zeros, and nothing can be predicted for it. Raises as encoded_blocks does.
    """
    blocks = list(encoded_blocks(path, schema, label=False))
    return np.concatenate([block.x for block in blocks]), np.concatenate([block.usable for block in blocks])


def _state(path: str | Path) -> FileState:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _check_unchanged(table: Table) -> None:
    if _state(table.path) != table.state:
        # The header was read before the rows: the rows may come from two versions of the file.
        raise table.error("changed while it was being read; wait until it is written, then read it again")


def _check_header(table: Table, columns: tuple[str, ...]) -> None:
    for name, count in Counter(columns).items():
        if name and count > 1:
            first, second = [place for place, other in enumerate(columns, start=1) if other == name][:2]
            raise table.error(f"columns {first} and {second} have the same header; rename one")
