"""Tables from files, streamed in blocks of rows on threads. Parties and the learner use it.

A file is a CsvTable or a ParquetTable, a table in memory an ArrowTable, a query in a database a DatabaseTable. They
give batches of Arrow columns. Columns become cells, which a schema interprets. Every error names the source and the
place in it, and quotes no cell.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

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
    summed,
)
from dpcore.records.features import TRIMMED, close_match, value_text
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from dpcore.records.texts import BLANKS
from radobase.failure import may_pass
from radobase.reading import FileKind, open_file
from radobase.tables.arrow_table import ArrowTable, same_headers
from radobase.tables.csv_table import CsvTable
from radobase.tables.database_source import DatabaseSource
from radobase.tables.database_table import DatabaseTable, KeyRange
from radobase.tables.parquet_table import (
    PARQUET,
    DirectoryState,
    FileList,
    ParquetFiles,
    ParquetTable,
    RowRange,
    is_pattern,
    is_text,
)
from radobase.tables.recoding import Occurrences, Recode

RowsRead = Callable[[int], None]
"""Progress callback: the number of rows read so far."""

FileState = tuple[int, int, int] | DirectoryState | None
"""Changes when a file is replaced or written to: inode, bytes, modification time; None if the file does not exist."""
TableSource = str | Path | FileList | ArrowTable | DatabaseSource
"""What a table is read from: the path of a file, of a directory, or with wildcards; a list of files; a table in memory;
or a query in a database."""
TablePart = RowRange | KeyRange
"""A part of a table, which another machine can read by itself."""
Result = TypeVar("Result")

# Blocks that are read ahead, for each thread.
_BLOCKS_AHEAD = 2
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_PLAIN = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
# What Arrow's parser of doubles reads.
_PLAIN_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$"
# None: the header says.
_DELIMITERS = {".csv": None, ".tsv": "\t"}
_TABLE = FileKind(
    lambda path, cause: DataError(f"{cause.lower()}; give one file, check its path and permissions", file=str(path))
)


@dataclass(frozen=True)
class TableBlock:
    """Consecutive rows of a table: the index of the first (from 0), their number, and the requested columns."""

    first_row: int
    rows: int
    cells: Mapping[WantedColumn, Cells]


@dataclass(frozen=True)
class IdentifiedRows:
    """Rows of a block as a party stores them, with the ids and the epochs of its rows: none without such a column."""

    stored: StoredRows
    ids: list[str]
    epochs: list[str]
    recoded: Occurrences
    """How often each entry of the recode file occurred."""


class Table(Protocol):
    """A table whose columns' names have been read."""

    path: str
    columns: tuple[str, ...]

    @property
    def index(self) -> Sequence[str]:
        """Columns that pandas wrote as the index of a frame. They can be read, and a draft leaves them out."""
        ...

    @property
    def state(self) -> FileState:
        """The file's state before it was opened."""
        ...

    @property
    def rows(self) -> int | None:
        """The number of rows that the file declares, None if it declares none. Use it only to allocate memory."""
        ...

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Arrow batches with at least `columns`, under their names.

        numbers: columns that may come as doubles, equal to the result of `numbers` on the texts. coded: columns of
        texts that may come dictionary-encoded. Both only save time.
        """
        ...

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error with this `sentence` about data row `row` (counted from 0) of this file."""
        ...


def as_source(data: Any) -> TableSource:
    """A path as it is, and an Arrow table or a data frame as an ArrowTable. Raises ConfigurationError otherwise."""
    return data if isinstance(data, str | Path | ArrowTable) else ArrowTable.of(data)


def open_table(source: TableSource) -> Table:
    """Open a file by its extension (.csv, .tsv, both also .gz, .parquet, .pq), a directory, or what is no file.

    A directory, a path with wildcards and a list are of Parquet files. Cells of a .csv are separated by commas,
    semicolons, tabs or vertical bars, as its header shows.

    Raises DataError if the file is absent, unreadable, of another kind, empty, or repeats a header.
    """
    table: Table
    if isinstance(source, ArrowTable):
        table = source
    else:
        table = _database(source) if isinstance(source, DatabaseSource) else _opened(source)
    if (sentence := same_headers(table.columns)) is not None:
        raise table.error(sentence)
    return table


def _database(source: DatabaseSource) -> DatabaseTable:
    if (file := source.file) is not None:
        _is_empty(file)
    return DatabaseTable(source)


def _is_empty(file: Path) -> bool:
    """Whether the file has no byte. Raises DataError if it cannot be opened or read."""
    try:
        with open_file(file, _TABLE) as stream:
            return not stream.read(1)
    except DataError as error:
        if may_pass(error.__cause__):
            error.passing()
        raise


def _opened(path: str | Path | FileList) -> Table:
    if isinstance(path, FileList):
        return ParquetFiles(path)
    file = Path(path)
    if file.is_dir() or is_pattern(file):
        return ParquetFiles(file)
    name = file.name.lower()
    if _is_empty(file):
        raise DataError("the file is empty; write a header line and rows", file=str(path))
    state, extension = _state(path), Path(name.removesuffix(".gz")).suffix
    if name.endswith(PARQUET):
        return ParquetTable(str(path), state)
    if extension in _DELIMITERS:
        return CsvTable(str(path), _DELIMITERS[extension], state)
    raise DataError(
        "the extension is unknown; give a .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq file", file=str(path)
    )


def read_blocks(
    table: Table, wanted: Sequence[WantedColumn], progress: RowsRead | None = None
) -> Generator[TableBlock]:
    """The wanted columns of a table, block by block.

    progress: callback with the number of rows read so far. Raises DataError if a column is absent, a cell is not a
    number but must be, a row is malformed, or the table has no rows.
    """

    def read(block: TableBlock) -> TableBlock:
        return block

    return _each_block(table, wanted, read, progress)


def _each_block(
    table: Table,
    wanted: Sequence[WantedColumn],
    work: Callable[[TableBlock], Result],
    progress: RowsRead | None,
    threads: int | None = None,
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
            return work(TableBlock(first_row, batch.num_rows, read)), batch.num_rows
        except CellError as error:
            raise located(table, error, first_row) from None

    rows = 0
    with closing(_ahead(made, table, wanted, threads or processors())) as results:
        for result, more in results:
            yield result
            rows += more
            if progress is not None:
                progress(rows)
    if rows == 0:
        raise table.error("there is a header but no rows; give a table with at least one row")


def _ahead(
    made: Callable[[pa.RecordBatch, int], Result], table: Table, wanted: Sequence[WantedColumn], threads: int
) -> Generator[Result]:
    """`made` for each batch and its first row, in order, computed on so many threads, a few batches ahead."""
    numeric, coded = ({source.column for source in wanted if source.kind == kind} for kind in ("numbers", "texts"))
    columns = list(dict.fromkeys(source.column for source in wanted))
    # If a column is wanted in both ways, its texts serve for both.
    batches = table.batches(columns, numbers=numeric - coded, coded=coded - numeric)
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
            batches.close()
    if failure is not None:
        raise failure


def no_such_column(table: Table, column: str) -> DataError:
    """The error about a column that a table lacks. It quotes one of the table's headers only if it is nearly equal."""
    near = close_match(column, table.columns)
    match table:
        case DatabaseTable():
            check = "check the query"
        case ArrowTable() if column in table.index:
            return table.error("it is the frame's index, which is not read: give frame.reset_index()", column=column)
        case ArrowTable():
            check = f"check the names of {table.path}'s columns"
        case _:
            check = "check that the file has a header line"
    # The wrong name may be the table's, or what asks for it.
    hint = f"; {check}" if near is None else f", but there is {near!r}: correct the name that is wrong"
    return table.error(f"there is no such column{hint}", column=column)


def located(table: Table, error: CellError, first_row: int) -> DataError:
    """The error about a cell of a block, with its place in the file."""
    row = None if error.row is None else first_row + error.row
    return table.error(error.sentence, row=row, column=error.column)


def encoded_blocks(
    source: TableSource, schema: Schema, *, label: bool, progress: RowsRead | None = None
) -> Iterator[EncodedRows]:
    """The rows of a table as the schema encodes them, block by block; labels only if `label` is true.

    Raises DataError for a fault of the file or a cell, naming file, line (or row) and column, and after the last block
    if the file was written to meanwhile.
    """

    def encoded(block: TableBlock) -> EncodedRows:
        return encode(schema, block.cells, block.rows, label=label)

    table = open_table(source)
    yield from _each_block(table, sources(schema, label=label), encoded, progress)
    _check_unchanged(table)


def stored_blocks(table: Table, schema: Schema, progress: RowsRead | None = None) -> Iterator[StoredRows]:
    """The rows of a table with their labels as a party stores them, block by block. Raises as encoded_blocks does."""
    for block in identified_blocks(table, schema, None, progress=progress):
        yield block.stored


def identified_blocks(
    table: Table,
    schema: Schema | SharedSchema,
    id_column: str | None,
    epoch_column: str | None = None,
    progress: RowsRead | None = None,
    recode: Recode | None = None,
    threads: int | None = None,
) -> Iterator[IdentifiedRows]:
    """stored_blocks with the ids and the epochs of each block's rows, under each label of the schema.

    Neither is a column of the schema. An empty cell is the text "". A row without an id is not usable. One pass reads
    all, so that they are of one snapshot.

    recode: what the table writes otherwise than the schema. threads: that encode, beside the one that reads; None for
    one per processor. Raises as encoded_blocks does, and names columns as the table does.
    """
    shared = SharedSchema.of(schema)
    first, others, names = shared.first, shared.others, shared.labels if shared.others else ()
    wanted = sources(first, label=True, others=others)
    own = {source: source if recode is None else recode.own(source) for source in wanted}
    ids, epochs = (None if name is None else WantedColumn(name, "texts") for name in (id_column, epoch_column))

    def texts(block: TableBlock, column: WantedColumn | None) -> list[str]:
        if column is None:
            return []
        found = block.cells[column]
        assert isinstance(found, Texts), "the column is wanted as texts"
        known = (*found.texts, "")
        return [known[code] for code in found.codes.tolist()]

    def identified(block: TableBlock) -> IdentifiedRows:
        given: Mapping[WantedColumn, Cells] = {source: block.cells[own[source]] for source in wanted}
        occurrences = Occurrences()
        if recode is not None:
            given, occurrences = recode.apply(given)
        try:
            stored = encode_stored(first, given, block.rows, others, names)
        except CellError as error:
            raise CellError(error.row, _own_name(own, error.column), error.sentence) from None
        found = texts(block, ids)
        if ids is not None:
            stored.leave_out(np.array([not text for text in found], dtype=np.bool_))
        return IdentifiedRows(stored, found, texts(block, epochs), occurrences)

    more = [column for column in (ids, epochs) if column is not None]
    yield from _each_block(table, [*own.values(), *more], identified, progress, threads)
    _check_unchanged(table)


def _own_name(own: Mapping[WantedColumn, WantedColumn], column: str | None) -> str:
    return next((found.column for wanted, found in own.items() if wanted.column == column), column or "")


def read_rows(source: TableSource, schema: Schema) -> EncodedRows:
    """All rows of a table without their labels, for prediction: x is (m, d). Raises as encoded_blocks does."""
    blocks = list(encoded_blocks(source, schema, label=False))
    x, usable = (np.concatenate(parts) for parts in zip(*((block.x, block.usable) for block in blocks), strict=True))
    return EncodedRows(x, None, usable, summed(block.tallies for block in blocks))


def numbers_of(source: TableSource, column: str) -> NDArray[np.float64]:
    """The numbers of a column (m,), NaN where a cell has none. Raises DataError as `read_blocks` does."""
    wanted, parts = WantedColumn(column, "numbers"), []
    for block in read_blocks(open_table(source), [wanted]):
        found = block.cells[wanted]
        assert isinstance(found, Numbers), "the column is wanted as numbers"
        parts.append(np.where(found.missing, np.nan, found.values))
    return np.concatenate(parts)


def _state(path: str | Path) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _check_unchanged(table: Table) -> None:
    if isinstance(table, RowRange | KeyRange):
        # They check themselves.
        return
    if isinstance(table, ParquetFiles):
        found: FileState = table.state_now()
    else:
        found = None if isinstance(table, ArrowTable | DatabaseTable) else _state(table.path)
    if found != table.state:
        # The header was read before the rows: the rows may come from two versions of the file.
        raise table.error("changed while it was being read; wait until it is written, then read it again").passing()


def cells(array: pa.Array, source: WantedColumn) -> Cells:
    """An Arrow column as the cells that `source` needs. Raises the same errors as `numbers` and `texts`."""
    return numbers(array, source.column) if source.kind == "numbers" else texts(array, source.column)


def numbers(array: pa.Array, column: str) -> Numbers:
    """An Arrow column as doubles. Texts are parsed as decimal numbers; empty texts and nulls are missing.

    A text that is not a number is NaN, which the schema's policy for unreadable cells decides about; so is a number in
    the digits of another script. Raises CellError if the column has a type that is not numeric.
    """
    array = _stored(array, column)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return numbers(_decoded(array), column)
    if is_text(kind):
        trimmed = _trim(array)
        array = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
        try:
            array = array.cast(pa.float64())
        except pa.ArrowInvalid:
            array = _parsed(array)
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

    Empty texts and nulls are missing. Cells of a boolean type are "true" and "false", and marked as such.

    The texts are in the order of their first occurrence. Raises CellError if the column has a nested or binary type.
    """
    array = _stored(array, column)
    kind = array.type
    if pa.types.is_nested(kind) or any(of_kind(kind) for of_kind in _BINARY):
        raise CellError(None, column, f"the column is of type {kind}, which has no texts; convert it")
    if pa.types.is_dictionary(kind):
        if not is_text(kind.value_type):
            return texts(_decoded(array), column)
        # Only texts that occur are examined: the dictionary may be that of the whole file.
        used = array.indices.dictionary_encode()
        of_used = texts(_takeable(array.dictionary).take(used.dictionary), column)
        places = np.append(of_used.codes, -1)
        return Texts(places[_codes(used)], of_used.texts)
    if pa.types.is_decimal(kind) and kind.bit_width < 128:  # Arrow encodes only the wider ones
        array = array.cast(pa.decimal128(kind.precision, kind.scale))
    encoded = (_trim(array) if is_text(kind) else array).dictionary_encode()
    try:
        values = encoded.dictionary.to_pylist()
    except (OverflowError, ValueError):  # dates and times that Python has no values for
        values = encoded.dictionary.cast(pa.string()).to_pylist()
    found = tuple("" if value is None else value_text(value) for value in values)
    # One more place, for nulls; empty texts have the same code.
    places = np.array([*(place if text else -1 for place, text in enumerate(found)), -1], dtype=np.int64)
    return Texts(places[_codes(encoded)], found, booleans=pa.types.is_boolean(kind))


def _stored(array: pa.Array, column: str) -> pa.Array:
    """The texts, numbers or booleans in which an extension type stores its values. Other arrays are left as they are.

    Raises CellError if it stores something else, as intervals and UUIDs do.
    """
    kind = array.type
    if not isinstance(kind, pa.BaseExtensionType):
        return array
    stored = array.storage
    if kind.extension_name == "arrow.bool8":
        return stored.cast(pa.bool_())
    if kind.extension_name == "pandas.period":
        # They are stored as whole numbers, which would be read as if they were the cells.
        raise CellError(None, column, "the column is of periods; make them dates, such as by .dt.to_timestamp()")
    if is_text(stored.type) or any(of_kind(stored.type) for of_kind in _PLAIN):
        return stored
    raise CellError(None, column, f"the column is of type {kind}, which is neither text nor number; convert it")


def _decoded(array: pa.DictionaryArray) -> pa.Array:
    return _takeable(array.dictionary).take(array.indices)


def _takeable(values: pa.Array) -> pa.Array:
    """Values that Arrow can pick from: it has no such kernel for the views of texts that polars hands over."""
    return values.cast(pa.large_string()) if pa.types.is_string_view(values.type) else values


def _codes(encoded: pa.DictionaryArray) -> NDArray[np.int64]:
    """The index of each value in the dictionary; for nulls the index after its end."""
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(encoded.dictionary))
    return np.asarray(indices.to_numpy(), dtype=np.int64)


def _trim(array: pa.Array) -> pa.Array:
    # Trimmed bytewise, which is exact in UTF-8 because the trimmed characters are ASCII.
    return pc.ascii_trim(array.cast(pa.string()), characters=TRIMMED)


def _parsed(array: pa.Array) -> pa.Array:
    """Texts as doubles, for blocks that Arrow's parser refused: it reads what is plain, Python the other cells."""
    plain = pc.match_substring_regex(array, _PLAIN_NUMBER)
    found = pc.if_else(plain, array, None).cast(pa.float64()).to_numpy(zero_copy_only=False).copy()
    others = np.flatnonzero(pc.invert(plain).fill_null(False).to_numpy(zero_copy_only=False))
    missing = array.is_null().to_numpy(zero_copy_only=False)
    for place, cell in zip(others, array.take(pa.array(others)).to_pylist(), strict=True):
        number = _number(cell)
        missing[place] = number is None
        found[place] = math.nan if number is None else number
    return pa.array(found, mask=missing)


def _number(cell: str) -> float | None:
    """One cell as a number, in the digits 0 to 9; NaN if it is none, None if it is of blanks only."""
    text = cell.strip(BLANKS)
    if not text:
        return None
    try:
        # Python also reads the digits of other scripts, which other programs take for texts, and 1_0.
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan
