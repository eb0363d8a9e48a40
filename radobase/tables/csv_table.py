"""CSV files, also compressed, as batches of Arrow columns.

Cells are texts and stay exact until the schema interprets them. Only an empty cell is missing. Every error names the
file and the line (counting quoted line breaks). No error quotes a cell or the first line of a file, which may be a row
if the header is missing.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from dpcore.errors import DataError
from dpcore.records.features import TRIMMED
from radobase.failure import may_pass
from radobase.tables.arrow_table import opened

_BLOCK_BYTES = 1 << 20
_UNREADABLE = (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError, pa.ArrowException)
# The first line by which spreadsheets are told the separator; they do not show it.
_TOLD = re.compile(r"\ufeff?(\"?)sep=(.)\1\r?\n?", re.IGNORECASE)
_LONG_ROW = "a row is longer than 1 MiB; check for a missing quotation mark"
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""The separators that are detected, in words."""


class _LongRowError(csv.Error):
    """A row is longer than _BLOCK_BYTES."""


class CsvTable:
    """A CSV file in UTF-8: one header line; cells with a delimiter or a line break are in double quotes.

    delimiter: between cells.
    """

    def __init__(self, path: str, delimiter: str | None, state: tuple[int, int, int] | None = None) -> None:
        """Read the header. delimiter: None detects it. state: the file's state before it was opened. Raises DataError.

        Detection reads the header alone, so that no value of a row decides how a file is read.
        """
        self.path, self.state = path, state
        self.columns: tuple[str, ...] = ()
        told = self._told()
        self.delimiter = told or (self._detected() if delimiter is None else delimiter)
        begin = 1 if told is None else 2
        try:
            with self._text() as stream:
                rows = self._rows(stream)
                numbered = islice(enumerate(rows, start=1), begin - 1, None)
                header = next(((count, fields) for count, (_, fields) in numbered if fields), None)
                first = next(rows, None)
                self._has_rows = first is not None
            unclosed = self._unclosed_quote()
        except _UNREADABLE as error:
            raise self._unreadable(error) from None
        if header is None:
            raise self.error("the file is empty; write a header line and rows")
        if unclosed:
            raise self.error("a quotation mark is never closed; close it")
        self._header_rows, fields = header
        self.columns = tuple(field.strip(TRIMMED) for field in fields)
        if len(fields) == 1 and (others := separators_of([fields[0]]) - {self.delimiter}):
            used = " or ".join(SEPARATORS[mark] for mark in sorted(others))
            expected = SEPARATORS[self.delimiter]
            raise self.error(f"the header seems to be separated by {used}, not {expected}; name the file .csv")
        cells = len(fields) if first is None else len(first[1]) or len(fields)
        if cells != len(fields) and (len(fields) == 1 or fields[0].startswith("#")):
            raise self.error(
                f"the header has {len(fields)} cells, and the first row {cells}; delete the lines before that of the "
                "columns' names, such as a comment"
            )

    rows = None
    index: tuple[str, ...] = ()

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Arrow batches of `columns`, as texts except for `numbers` and `coded`. No batch if no rows follow the header.

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
            pa.input_stream(opened(self.path), compression="gzip" if self._compressed else None),
            pa.csv.ReadOptions(column_names=names, skip_rows_after_names=self._header_rows, block_size=_BLOCK_BYTES),
            # An empty line of a table with one column is a missing cell.
            pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1),
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

    def _told(self) -> str | None:
        """The separator that a first line such as "sep=;" states, None without one. Raises DataError for others."""
        try:
            with self._text() as stream:
                found = _TOLD.fullmatch(stream.readline(_BLOCK_BYTES + 1))
        except _UNREADABLE as error:
            raise self._unreadable(error) from None
        if found is not None and found[2] not in SEPARATORS:
            words = ", ".join(SEPARATORS.values())
            raise self.error(f"its first line states a separator that is none of {words}; save it with one of them")
        return None if found is None else found[2]

    def _detected(self) -> str:
        """The only separator of the header; a comma if it has none. Raises DataError if it has several."""
        try:
            with self._text() as stream:
                found = separators_of(iter(lambda: stream.readline(_BLOCK_BYTES + 1), ""))
        except _UNREADABLE as error:
            raise self._unreadable(error) from None
        if len(found) > 1:
            first, *others = sorted(found, key=list(SEPARATORS).index)
            rest = " and ".join(SEPARATORS[mark] for mark in others)
            raise self.error(
                f"the header has {SEPARATORS[first]} and {rest}, and any of them may separate the columns; put each "
                "column's name that contains one in double quotes, or rename it"
            )
        return found.pop() if found else ","

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
            for count, (begin, fields) in enumerate(self._rows(stream), start=1):
                if count > self._header_rows and (fields or len(self.columns) == 1):
                    yield begin, fields

    def _rows(self, stream: io.TextIOWrapper, *, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """All rows as (line on which the row starts, fields). Holds one row of at most 1 MiB in memory.

        Raises _LongRowError for a longer one, which Arrow's reader refuses too.
        """
        length = 0

        def lines() -> Iterator[str]:
            nonlocal length
            # A line may be as long as the file, if it has no line breaks.
            while line := stream.readline(_BLOCK_BYTES + 1):
                length += len(line)
                if length > _BLOCK_BYTES:
                    raise _LongRowError
                yield line

        reader = csv.reader(lines(), delimiter=self.delimiter, strict=strict)
        begin = 1
        for fields in reader:
            length = 0
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
            marks = sum(part.count(b'"') for part in iter(lambda: stream.read(_BLOCK_BYTES), b""))
        if marks % 2 == 0:  # in a well-formed file marks come in pairs; only other files need the slow check
            return False
        with self._text() as text:
            try:
                for _ in self._rows(text, strict=True):
                    pass
            except csv.Error as error:
                return "unexpected end of data" in str(error)
        return False

    def _unreadable(self, error: Exception) -> DataError:  # noqa: PLR0911 - one for each cause
        """The error for a reader's exception, with the line if it can be found."""
        if isinstance(error, OSError | EOFError | zlib.error) and not isinstance(error, pa.ArrowException):
            found = self.error(f"cannot be read ({error}); check the file, its permissions and its compression")
            return found.passing() if may_pass(error) else found
        line = 0
        if isinstance(error, _LongRowError):
            return self.error(_LONG_ROW)
        try:
            for line, fields in self._records() if self.columns else ():
                if len(fields) != len(self.columns) and (fields or len(self.columns) > 1):
                    sentence = f"the row has {len(fields)} cells, but the header {len(self.columns)}; correct the row"
                    return DataError(sentence, file=self.path, line=line)
        except UnicodeDecodeError:
            # The decoder reads ahead, so the line can only be bounded from below.
            return self.error(f"the file is not UTF-8 (some line after {line}); save it as UTF-8")
        except _LongRowError:
            return self.error(f"{_LONG_ROW} (some line after {line})")
        except _UNREADABLE:
            pass
        if isinstance(error, UnicodeDecodeError):
            return self.error("the file is not UTF-8; save it as CSV in UTF-8")
        if "straddling" in str(error):
            return self.error(_LONG_ROW)
        # Arrow's message would quote the row.
        return self.error("is not a valid CSV; save it again from the program that made it")


class _Outside:
    """Follows a record to find the separators outside quoted cells. found: those so far.

    A cell is quoted if its first character is a quotation mark, whichever separator precedes it. A doubled mark within
    it closes the cell and opens it again, which has the same effect.
    """

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.is_quoted, self._starts_cell = False, True

    def read(self, text: str) -> None:
        """Follow more of the record."""
        for character in text:
            if character == '"' and (self.is_quoted or self._starts_cell):
                self.is_quoted, self._starts_cell = not self.is_quoted, self.is_quoted
            elif not self.is_quoted:
                self._starts_cell = character in SEPARATORS
                if self._starts_cell:
                    self.found.add(character)


def separators_of(lines: Iterable[str]) -> set[str]:
    """The separators outside quoted cells in the first record: the first line that is not empty.

    Lines that a quoted line break joins to it belong to it. At most 1 MiB is read.
    """
    outside, length = _Outside(), 0
    for line in lines:
        outside.read(line.strip("\r\n") if not outside.is_quoted else line)
        length += len(line)
        if length > _BLOCK_BYTES or (line.strip("\r\n") and not outside.is_quoted):
            break
    return outside.found
