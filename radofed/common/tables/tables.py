"""Tables from files, streamed in blocks of rows on threads, for parties and the learner alike.

A file is a CsvTable or a ParquetTable, which give batches of Arrow columns; columns become cells, and cells what a
schema says that they are. Every error names the file and where in it, and quotes no cell.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dpcore.errors import DataError
from dpcore.numbers.processors import processors
from dpcore.records.encoding import (
    CellError,
    Cells,
    EncodedRows,
    Numbers,
    StoredRows,
    Texts,
    WantedColumn,
    encode,
    encode_stored,
    sources,
)
from dpcore.records.features import TRIMMED, close_match, value_text
from dpcore.records.schema import Schema
from radofed.common.files.reading import FileKind, open_file
from radofed.common.tables.csv_table import CsvTable
from radofed.common.tables.parquet_table import ParquetTable, is_text

RowsRead = Callable[[int], None]
"""Progress callback: how many rows have been read."""

FileState = tuple[int, int, int] | None
"""What changes when a file is replaced or written to: inode, bytes, time of the last change; None where it is gone."""
Result = TypeVar("Result")

# Blocks that are read before they are wanted, for each thread.
_BLOCKS_AHEAD = 2
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_PARQUET = (".parquet", ".pq")
_TABLE = FileKind(
    lambda path, cause: DataError(f"{cause.lower()}; give one file, check the path and its permissions", file=str(path))
)


@dataclass(frozen=True)
class TableBlock:
    """Consecutive rows of a table: the first one's index (from 0), how many, and the columns that were asked for."""

    first_row: int
    rows: int
    cells: Mapping[WantedColumn, Cells]


class Table(Protocol):
    """A file whose header has been read. state: of the file, as it was before."""

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

        numbers: columns that may come as doubles, the same ones as `numbers` makes of what
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
        is_empty = not stream.read(1)
    if is_empty:
        raise DataError("the file is empty; write a header line and rows", file=str(path))
    state, extension = _state(path), Path(name.removesuffix(".gz")).suffix
    table: Table
    if name.endswith(_PARQUET):
        table = ParquetTable(str(path), state)
    elif extension in _DELIMITERS:
        table = CsvTable(str(path), _DELIMITERS[extension], state)
    else:
        raise DataError(
            "the extension is unknown; give a .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq file", file=str(path)
        )
    for header, count in Counter(table.columns).items():
        if header and count > 1:
            first, second = [place for place, other in enumerate(table.columns, start=1) if other == header][:2]
            raise table.error(f"columns {first} and {second} have the same header; rename one")
    return table


def read_blocks(
    table: Table, wanted: Sequence[WantedColumn], progress: RowsRead | None = None
) -> Generator[TableBlock]:
    """The wanted columns of a table, block by block.

    progress: called with the number of rows read so far. Raises DataError for a column that is absent, a cell that is
    not a number where one is wanted, a malformed row, and a table without rows.
    """

    def read(block: TableBlock) -> TableBlock:
        return block

    return _each_block(table, wanted, read, progress)


def _each_block(
    table: Table, wanted: Sequence[WantedColumn], work: Callable[[TableBlock], Result], progress: RowsRead | None
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
            return work(TableBlock(first_row, batch.num_rows, read)), batch.num_rows
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


def _ahead(
    made: Callable[[pa.RecordBatch, int], Result], table: Table, wanted: Sequence[WantedColumn]
) -> Generator[Result]:
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
    path: str | Path, schema: Schema, *, label: bool, progress: RowsRead | None = None
) -> Iterator[EncodedRows]:
    """The rows of a file as the schema encodes them, block by block; labels only where `label` is true.

    Raises DataError for whatever the file or one of its cells is not, naming file, line (or row) and column, and after
    the last block where the file was written to meanwhile.
    """

    def encoded(block: TableBlock) -> EncodedRows:
        return encode(schema, block.cells, block.rows, label=label)

    table = open_table(path)
    yield from _each_block(table, sources(schema, label=label), encoded, progress)
    _check_unchanged(table)


def stored_blocks(table: Table, schema: Schema, progress: RowsRead | None = None) -> Iterator[StoredRows]:
    """The rows of a table with their labels as a party stores them, block by block; raises as encoded_blocks does."""

    def stored(block: TableBlock) -> StoredRows:
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


def cells(array: pa.Array, source: WantedColumn) -> Cells:
    """An Arrow column as `source` wants it; raises CellError as `numbers` and `texts` do."""
    return numbers(array, source.column) if source.kind == "numbers" else texts(array, source.column)


def numbers(array: pa.Array, column: str) -> Numbers:
    """An Arrow column as doubles: texts are parsed as decimal numbers, empty ones and nulls are missing.

    Raises CellError for a text that is not a number and for a column of a type that has none.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        return numbers(array.dictionary_decode(), column)
    if is_text(kind):
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
    if not array.null_count:
        return Numbers(array.to_numpy(), np.zeros(len(array), dtype=np.bool_))
    return Numbers(array.fill_null(0.0).to_numpy(), array.is_null().to_numpy(zero_copy_only=False))


def texts(array: pa.Array, column: str) -> Texts:
    """An Arrow column as codes of its distinct texts (dpcore.records.features.value_text).

    Empty texts and nulls are missing.

    The texts are those that occur, in the order in which they do. Raises CellError for a column of a nested or binary
    type.
    """
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise CellError(None, column, f"the column is of type {kind}, which has no texts; convert it")
    if pa.types.is_dictionary(kind):
        if not is_text(kind.value_type):
            return texts(array.dictionary_decode(), column)
        # Only what occurs is looked at: a dictionary may be that of the whole file.
        used = array.indices.dictionary_encode()
        of_used = texts(array.dictionary.take(used.dictionary), column)
        places = np.append(of_used.codes, -1)
        return Texts(places[_codes(used)], of_used.texts)
    encoded = (_trim(array) if is_text(kind) else array).dictionary_encode()
    found = tuple("" if value is None else value_text(value) for value in encoded.dictionary.to_pylist())
    # One more place, for nulls; empty texts go where they go.
    places = np.array([*(place if text else -1 for place, text in enumerate(found)), -1], dtype=np.int64)
    return Texts(places[_codes(encoded)], found)


def _codes(encoded: pa.DictionaryArray) -> NDArray[np.int64]:
    """Where in the dictionary each value is; one place behind it for nulls."""
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(encoded.dictionary))
    return np.asarray(indices.to_numpy(), dtype=np.int64)


def _trim(array: pa.Array) -> pa.Array:
    # Trimmed bytewise, which is exact in UTF-8 because what is trimmed is ASCII.
    return pc.ascii_trim(array.cast(pa.string()), characters=TRIMMED)


def _number(cell: str | None, row: int, column: str) -> float | None:
    """One cell as a number, for blocks that Arrow's parser refused: which cell it is, or digits of another script."""
    if cell is None:
        return None
    try:
        if "_" in cell:  # Python's own notation for literals, not a decimal number
            raise ValueError
        return float(cell)
    except ValueError:
        sentence = "is not a number; write it with a decimal point, or leave the cell empty"
        raise CellError(row, column, sentence) from None
