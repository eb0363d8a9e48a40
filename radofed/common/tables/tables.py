"""Tables from files, streamed: CSV (also compressed) and Parquet, in blocks of rows, for parties and the learner alike.

CSV cells are texts and stay exact until the schema says what they are: an empty cell is missing, nothing else is.
Every error names the file and where in it: the line of a CSV (quoted line breaks counted), the row of a Parquet file.
None quotes a cell, nor the first line of a file, which may be a row where the header is missing.
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
"""What changes when a file is replaced or written to: inode, bytes, time of the last change; None where it is gone."""
Result = TypeVar("Result")

_CSV_BLOCK_BYTES = 1 << 20
_PARQUET_BATCH_ROWS = 1 << 14
# What is read ahead of a column of a row group; without it Arrow holds whole row groups, and in the end the file.
_PARQUET_BUFFER_BYTES = 1 << 16
# Blocks that are read before they are wanted, for each thread.
_BLOCKS_AHEAD = 2
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_TABLE = FileKind(
    lambda path, cause: DataError(f"{cause.lower()}; give one file, check the path and its permissions", file=str(path))
)
_UNREADABLE = (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError, pa.ArrowException)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a table: the first one's index (from 0), how many, and the columns that were asked for."""

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
        """Rows as the file says before they are read, None where it does not: to make room, not to rely on."""
        ...

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches with at least `columns`, under their names.

        numbers: columns that may come as doubles, the same ones as radofed.common.tables.columns.numbers makes of what
        comes otherwise. coded: columns of texts that may come dictionary-encoded. Both are only faster.
        """
        ...

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error that says `sentence` about data row `row` (counted from 0) of this file."""
        ...


def open_table(path: str | Path) -> Table:
    """Open a table by its extension: .csv, .tsv (both also .gz), .parquet, .pq.

    Raises DataError where the file is absent, a directory, unreadable, of another kind, empty, or has one header twice.
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
    """A CSV file in UTF-8: one header line, cells in double quotes where they hold a delimiter or a line break."""

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
            raise self.error("a quotation mark opens and never closes; close it")
        self._header_rows, fields = header
        self.columns = tuple(field.strip(TRIMMED) for field in fields)
        _check_header(self, self.columns)
        if len(fields) == 1 and any(mark in fields[0] for mark in ";\t|"):
            raise self.error(f"the header looks separated by something else than {delimiter!r}; save the file with it")

    rows = None

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Arrow batches of `columns`, texts but for `numbers` and `coded`; none where nothing follows the header.

        From the first block on in which Arrow's reader refuses a number, such as a cell of blanks alone, everything
        comes as texts, of which more is understood: what a cell means does not depend on the others.
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
                null_values=[""],  # of numbers alone
                strings_can_be_null=False,
            ),
        )
        for batch in reader:
            yield batch.rename_columns(list(types))

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about data row `row`, with the line on which it begins."""
        return DataError(sentence, file=self.path, line=None if row is None else self._line(row), column=column)

    @property
    def _compressed(self) -> bool:
        return self.path.lower().endswith(".gz")

    def _binary(self) -> Any:
        return gzip.open(self.path, "rb") if self._compressed else Path(self.path).open("rb")

    def _text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self._binary(), encoding="utf-8-sig", newline="")

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Data rows as (line on which it begins, fields): a slow second reading, for errors only."""
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
        """Whether the last row runs into the end of the file within quotation marks, swallowing rows without a word."""
        with self._binary() as stream:
            marks = sum(part.count(b'"') for part in iter(lambda: stream.read(_CSV_BLOCK_BYTES), b""))
        if marks % 2 == 0:  # in a well-formed file marks come in pairs: the slow look is for the others
            return False
        with self._text() as text:
            try:
                for _ in csv.reader(text, delimiter=self._delimiter, strict=True):
                    pass
            except csv.Error as error:
                return "unexpected end of data" in str(error)
        return False

    def _unreadable(self, error: Exception) -> DataError:
        """What a reader's exception means, with the line where one can be found."""
        if isinstance(error, OSError | EOFError | zlib.error) and not isinstance(error, pa.ArrowException):
            return self.error(f"cannot be read ({error}); check the file, its permissions and its compression")
        line = 0
        try:
            for line, fields in self._records() if self.columns else ():
                if len(fields) != len(self.columns) and (fields or len(self.columns) > 1):
                    sentence = f"the row has {len(fields)} cells and the header {len(self.columns)}; mend the row"
                    return DataError(sentence, file=self.path, line=line)
        except UnicodeDecodeError:
            # The decoder reads ahead, so that the line can only be bounded from below.
            return self.error(f"the file is not UTF-8 (some line after {line}); save it as UTF-8")
        except _UNREADABLE:
            pass
        if isinstance(error, UnicodeDecodeError):
            return self.error("the file is not UTF-8; save it as CSV in UTF-8")
        if "straddling" in str(error):
            return self.error("a row is longer than 1 MiB: often a quotation mark is missing; mend the file")
        # What Arrow says of a row quotes it.
        return self.error("is not a valid CSV; save it again from the program that made it")


class ParquetTable:
    """A Parquet file; only the columns that are asked for are read."""

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
        """Arrow batches of `columns`, in the file's own types but for `coded`."""
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
        return self.error("is not a readable Parquet file: cut off, damaged or of another kind; write it again")


def read_blocks(table: Table, wanted: Sequence[Source], progress: Progress | None = None) -> Generator[Block]:
    """The wanted columns of a table, block by block.

    progress: called with the number of rows read so far. Raises DataError for a column that is absent, a cell that is
    not a number where one is wanted, a malformed row, and a table without rows.
    """

    def read(block: Block) -> Block:
        return block

    return _each_block(table, wanted, read, progress)


def _each_block(
    table: Table, wanted: Sequence[Source], work: Callable[[Block], Result], progress: Progress | None
) -> Generator[Result]:
    """What `work` makes of each block, in order, on threads; raises as read_blocks does and CellErrors of `work` too.

    Whatever the threads do, the error is the one of the first block that has one, after the results of those before it.
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
    """`made` of each batch and its first row, in order, on a thread for each processor, a few batches ahead."""
    numeric, coded = ({source.column for source in wanted if source.kind == kind} for kind in ("numbers", "texts"))
    columns = list(dict.fromkeys(source.column for source in wanted))
    # Where a column is wanted in both ways, its texts say both.
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
                except DataError as error:  # told once those before it are told
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
    """The error about a column that a table lacks. Of its own headers only one that is nearly the same is quoted."""
    near = close_match(column, table.columns)
    hint = "see whether the file has a header line" if near is None else f"did you mean {near!r}?"
    return table.error(f"there is no such column; {hint}", column=column)


def located(table: Table, error: CellError, first_row: int) -> DataError:
    """The error about a cell of a block, told with its place in the file."""
    row = None if error.row is None else first_row + error.row
    return table.error(error.sentence, row=row, column=error.column)


def encoded_blocks(
    path: str | Path, schema: Schema, *, label: bool, progress: Progress | None = None
) -> Iterator[EncodedRows]:
    """The rows of a file as the schema encodes them, block by block; labels only where `label` is true.

    Raises DataError for whatever the file or one of its cells is not, naming file, line (or row) and column, and after
    the last block where the file was written to meanwhile.
    """

    def encoded(block: Block) -> EncodedRows:
        return encode(schema, block.cells, block.rows, label=label)

    table = open_table(path)
    yield from _each_block(table, sources(schema, label=label), encoded, progress)
    _check_unchanged(table)


def stored_blocks(table: Table, schema: Schema, progress: Progress | None = None) -> Iterator[StoredRows]:
    """The rows of a table with their labels as a party stores them, block by block; raises as encoded_blocks does."""

    def stored(block: Block) -> StoredRows:
        return encode_stored(schema, block.cells, block.rows)

    yield from _each_block(table, sources(schema, label=True), stored, progress)
    _check_unchanged(table)


def read_observations(path: str | Path, schema: Schema) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """All rows of a file without their labels, for prediction: x (m, d) float64 in [-1, 1] and usable (m,).

    A row that is not usable is zero throughout; nothing can be predicted for it. Raises as encoded_blocks does.
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
        # The header was read before the rows: what was yielded may be of two files.
        raise table.error("changed while it was being read; wait until it is written, then read it again")


def _check_header(table: Table, columns: tuple[str, ...]) -> None:
    for name, count in Counter(columns).items():
        if name and count > 1:
            first, second = [place for place, other in enumerate(columns, start=1) if other == name][:2]
            raise table.error(f"columns {first} and {second} have the same header; rename one")
