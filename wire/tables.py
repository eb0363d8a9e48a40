"""Tables from files, streamed: CSV (also compressed) and Parquet, in blocks of rows, for parties and the learner alike.

CSV cells are texts and stay exact until the schema says what they are: an empty cell is missing, nothing else is.
Every error names the file and where in it: the line of a CSV (quoted line breaks counted), the row of a Parquet file.
None quotes a cell, nor the first line of a file, which may be a row where the header is missing.
"""

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dpcore.encoding import CellError, Cells, EncodedRows, Numbers, Source, Texts, encode, sources
from dpcore.errors import DataError
from dpcore.features import TRIMMED, close_match, value_text
from dpcore.schema import Schema

Progress = Callable[[int], None]

_CSV_BLOCK_BYTES = 1 << 20
_PARQUET_BATCH_ROWS = 1 << 14
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
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

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Arrow batches with at least `columns`, under their names."""
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
    try:
        if file.is_dir():
            raise DataError("is a directory; give one file", file=str(path))
        with file.open("rb") as stream:
            first = stream.read(1)
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise DataError(f"cannot be read ({cause}); check the path and its permissions", file=str(path)) from None
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
        self.path, self._delimiter = path, delimiter
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

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of `columns`, all of them texts; none where nothing follows the header."""
        if not self._has_rows:
            return
        names = [f"c{place}" for place in range(len(self.columns))]  # headers may be blank or repeat where unused
        wanted = [names[self.columns.index(column)] for column in columns]
        try:
            reader = pa.csv.open_csv(
                pa.input_stream(self.path, compression="gzip" if self._compressed else None),
                pa.csv.ReadOptions(
                    column_names=names, skip_rows_after_names=self._header_rows, block_size=_CSV_BLOCK_BYTES
                ),
                # An empty line of a table with one column is a missing cell.
                pa.csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1
                ),
                pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    include_columns=wanted,
                    null_values=[],
                    strings_can_be_null=False,
                ),
            )
            for batch in reader:
                yield batch.rename_columns(list(columns))
        except _UNREADABLE as error:
            raise self._unreadable(error) from None

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
        self.path = path
        try:
            with pq.ParquetFile(path) as file:
                self.columns = tuple(str(name).strip(TRIMMED) for name in file.schema_arrow.names)
                self._names = dict(zip(self.columns, file.schema_arrow.names, strict=True))
        except _UNREADABLE:
            raise self._unreadable() from None
        _check_header(self, self.columns)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Arrow batches of `columns`, in the file's own types."""
        try:
            with pq.ParquetFile(self.path) as file:
                names = [self._names[column] for column in columns]
                for batch in file.iter_batches(batch_size=_PARQUET_BATCH_ROWS, columns=names):
                    yield batch.select(names).rename_columns(list(columns))
        except _UNREADABLE:
            raise self._unreadable() from None

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about data row `row`, counted from 1 in its message."""
        return DataError(sentence, file=self.path, row=None if row is None else row + 1, column=column)

    def _unreadable(self) -> DataError:
        return self.error("is not a readable Parquet file: cut off, damaged or of another kind; write it again")


def read_blocks(table: Table, wanted: Sequence[Source], progress: Progress | None = None) -> Iterator[Block]:
    """The wanted columns of a table, block by block.

    progress: called with the number of rows read so far. Raises DataError for a column that is absent, a cell that is
    not a number where one is wanted, a malformed row, and a table without rows.
    """
    for source in wanted:
        if source.column not in table.columns:
            raise no_such_column(table, source.column)
    rows = 0
    for batch in table.batches(list(dict.fromkeys(source.column for source in wanted))):
        try:
            cells = {source: _cells(batch.column(source.column), source) for source in wanted}
        except CellError as error:
            raise located(table, error, rows) from None
        yield Block(rows, batch.num_rows, cells)
        rows += batch.num_rows
        if progress is not None:
            progress(rows)
    if rows == 0:
        raise table.error("there is a header but no rows; give a table with at least one row")


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
    before = _state(path)
    table = open_table(path)
    for block in read_blocks(table, sources(schema, label=label), progress):
        try:
            yield encode(schema, block.cells, block.rows, label=label)
        except CellError as error:
            raise located(table, error, block.first_row) from None
    if _state(path) != before:
        # The header was read before the rows: what was yielded may be of two files.
        raise table.error("changed while it was being read; wait until it is written, then read it again")


def read_observations(path: str | Path, schema: Schema) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """All rows of a file without their labels, for prediction: x (m, d) float64 in [-1, 1] and usable (m,).

    A row that is not usable is zero throughout; nothing can be predicted for it. Raises as encoded_blocks does.
    """
    blocks = list(encoded_blocks(path, schema, label=False))
    return np.concatenate([block.x for block in blocks]), np.concatenate([block.usable for block in blocks])


def _state(path: str | Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written to; None where there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _check_header(table: Table, columns: tuple[str, ...]) -> None:
    for name, count in Counter(columns).items():
        if name and count > 1:
            first, second = [place for place, other in enumerate(columns, start=1) if other == name][:2]
            raise table.error(f"columns {first} and {second} have the same header; rename one")


def _cells(array: pa.Array, source: Source) -> Cells:
    return numbers(array, source.column) if source.kind == "numbers" else texts(array, source.column)


def numbers(array: pa.Array, column: str) -> Numbers:
    """An Arrow column as doubles: texts are parsed as decimal numbers, empty ones and nulls are missing.

    Raises CellError for a text that is not a number and for a column of a type that has none.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return numbers(array.dictionary_decode(), column)
    if _is_text(kind):
        trimmed = _trim(array)
        array = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
        try:
            array = array.cast(pa.float64())
        except pa.ArrowInvalid:
            array = pa.array([_number(cell, row, column) for row, cell in enumerate(array.to_pylist())], pa.float64())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8()).cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        array = array.cast(pa.float64(), safe=False)
    else:
        raise CellError(None, column, f"the column is of type {kind}, not a number; convert it")
    missing = array.is_null().to_numpy(zero_copy_only=False)
    values = array.fill_null(0.0).to_numpy(zero_copy_only=False)
    return Numbers(np.asarray(values, dtype=np.float64), np.asarray(missing, dtype=np.bool_))


def texts(array: pa.Array, column: str) -> Texts:
    """An Arrow column as codes of its distinct texts (dpcore.features.value_text); empty texts and nulls are missing.

    Raises CellError for a column of a nested or binary type.
    """
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise CellError(None, column, f"the column is of type {kind}, which has no texts; convert it")
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    encoded = (_trim(array) if _is_text(array.type) else array).dictionary_encode()
    found = tuple("" if value is None else value_text(value) for value in encoded.dictionary.to_pylist())
    codes = encoded.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
    # One more place, for nulls; empty texts go where they go.
    places = np.array([*(place if text else -1 for place, text in enumerate(found)), -1], dtype=np.int64)
    return Texts(places[codes], found)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _trim(array: pa.Array) -> pa.Array:
    # Trimmed bytewise, which is exact in UTF-8 because what is trimmed is ASCII.
    return pc.ascii_trim(array.cast(pa.string()), characters=TRIMMED)


def _number(cell: str | None, row: int, column: str) -> float | None:
    """One cell as a number, for blocks that Arrow's parser refused; a leading plus is all that it is stricter about."""
    if cell is None:
        return None
    try:
        if "_" in cell:  # Python's own notation for literals, not a decimal number
            raise ValueError
        return float(cell)
    except ValueError:
        sentence = "is not a number; write it with a decimal point, or leave the cell empty"
        raise CellError(row, column, sentence) from None
