"""Tables in memory: Arrow tables, and data frames that hand their columns over by Arrow's protocols.

No library of data frames is needed: a frame of pandas, polars or another library has `__arrow_c_stream__` (the Arrow
PyCapsule interface) or the older `__dataframe__` (the dataframe interchange protocol).
"""

import math
import os
import re
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.features import TRIMMED

# Files as Arrow opens them, and what it says of columns that it cannot read.


def opened(path: str) -> pa.NativeFile:
    """The file for Arrow to read, which takes a name as text only if it is UTF-8. Raises OSError."""
    return pa.OSFile(os.fsencode(path), "r")


def invalid(kind: pa.DataType, remedy: str) -> str:
    """The sentence on a column of this type that holds something else. remedy: what to do if it is of texts."""
    if pa.types.is_decimal(kind):
        # Such as a database's integers of 128 bits, which have up to 39 digits.
        return f"holds a number beyond its type {kind}; convert the column, such as by CAST(... AS DOUBLE)"
    if pa.types.is_dictionary(kind):
        return f"holds a text that is not UTF-8, or a code without a value; {remedy}"
    return f"holds a text that is not UTF-8; {remedy}"


_BATCH_ROWS = 1 << 14
_NO_VALUE = ("NoneType", "NAType", "NaTType")
_NOT_CONVERTED = (pa.ArrowException, TypeError, ValueError, NotImplementedError)
INDEX_NAME = re.compile(r"__index_level_[0-9]+__")
"""The name of an index that has none."""


class ArrowTable:
    """An Arrow table, as the other kinds of tables are read. path: what errors call it."""

    state: tuple[int, int, int] | None = None

    def __init__(self, table: pa.Table, path: str = "the table") -> None:
        self.path, self._table = path, table
        self.index: tuple[str, ...] = ()
        self.columns = tuple(str(name).strip(TRIMMED) for name in table.column_names)

    @classmethod
    def of(cls, data: Any) -> "ArrowTable":
        """The table of an Arrow table, or of a data frame without its index; nothing is copied that Arrow can share.

        Raises ConfigurationError if it is neither, or if Arrow does not know the type of one of its columns.
        """
        if hasattr(data, "to_frame") and not hasattr(data, "columns"):
            raise ConfigurationError(f"data is a {type(data).__name__}, one column: give a frame with all columns")
        try:
            table = _arrow(data)
        except _NOT_CONVERTED as error:
            raise _not_converted(data, error) from error
        if table is None:
            raise ConfigurationError(
                f"data is a {type(data).__name__}: give a file's path, an Arrow table, or a data frame that has "
                "__arrow_c_stream__ or __dataframe__, as those of pandas and polars have"
            )
        listed = index_of(table.schema)
        found = cls(table.select([place for place, name in enumerate(table.column_names) if name not in listed]))
        found.index = listed
        return found

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self._table.num_rows)

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Arrow batches of `columns`, in their own types. NaN becomes null: libraries of frames use it for no value."""
        del numbers, coded
        names = [self.columns.index(column) for column in columns]
        chosen = self._table.select(names).rename_columns(list(columns))
        for batch in chosen.to_batches(max_chunksize=_BATCH_ROWS):
            for name, column in zip(columns, batch.columns, strict=True):
                try:
                    column.validate(full=True)
                except pa.ArrowInvalid:
                    sentence = invalid(column.type, "make the table again")
                    raise self.error(sentence, column=name) from None
            yield pa.RecordBatch.from_arrays([_nan_as_null(column) for column in batch.columns], list(columns))

    def error(self, sentence: str, *, row: int | None = None, column: str | None = None) -> DataError:
        """The error about row `row`, counted from 1 in its message."""
        return DataError(sentence, file=self.path, row=None if row is None else row + 1, column=column)


def index_of(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that pandas wrote as the index of a frame, by its metadata and by their names."""
    listed = (schema.pandas_metadata or {}).get("index_columns", ())
    return tuple(name for name in schema.names if name in listed or INDEX_NAME.fullmatch(name))


def same_headers(columns: Iterable[Any]) -> str | None:
    """A sentence about two columns with the same header, counted from 1; None if there are none. "" is no header."""
    places: dict[str, int] = {}
    for place, header in enumerate(columns, start=1):
        if header and places.setdefault(header, place) != place:
            return f"columns {places[header]} and {place} have the same header; rename one"
    return None


def _not_converted(data: Any, error: Exception) -> ConfigurationError:
    """The error about a frame that Arrow does not take. It names the first column at fault, if columns can be selected.

    The library's message may quote cells, so it is left out.
    """
    kind, columns = type(data).__name__, getattr(data, "columns", ())
    names = list(columns) if isinstance(columns, Iterable) else []
    if (sentence := same_headers(map(str, names))) is not None:
        return ConfigurationError(f"a {kind} cannot be converted to an Arrow table: {sentence}")
    for name in names:
        try:
            part = data[[name]]
        except (TypeError, LookupError, ValueError):  # no frame from which columns can be selected
            break
        try:
            _arrow(part)
        except _NOT_CONVERTED as cause:
            if hasattr(data[name], "sparse"):
                return ConfigurationError(f"column {str(name)!r} of a {kind} is sparse: make it dense, or leave it out")
            return ConfigurationError(
                f"column {str(name)!r} of a {kind} cannot be converted to an Arrow column ({type(cause).__name__}): "
                f"{_odd_cell(data[name])}give all its cells one type, such as text or dense floating point, or leave "
                "the column out"
            )
    return ConfigurationError(
        f"a {kind} cannot be converted to an Arrow table ({type(error).__name__}): give each column a single type"
    )


def _odd_cell(column: Any) -> str:
    """Words on the first cell of another type than most have; empty if cells cannot be looked at, or all have one."""
    cells = column if isinstance(column, Iterable) else ()
    kinds = [(row, type(cell).__name__) for row, cell in enumerate(cells, start=1) if not _is_no_value(cell)]
    counted = Counter(kind for _, kind in kinds)
    usual = max(counted, key=counted.__getitem__, default="")
    odd = next(((row, kind) for row, kind in kinds if kind != usual), None)
    return "" if odd is None else f"row {odd[0]} is of the type {odd[1]}, and most are of the type {usual}; "


def _is_no_value(cell: Any) -> bool:
    return type(cell).__name__ in _NO_VALUE or (isinstance(cell, float) and math.isnan(cell))


def _nan_as_null(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


def _arrow(data: Any) -> pa.Table | None:
    if isinstance(data, pa.Table):
        table = data
    elif isinstance(data, pa.RecordBatch):
        table = pa.Table.from_batches([data])
    elif hasattr(data, "__arrow_c_stream__"):
        table = pa.RecordBatchReader.from_stream(data).read_all()
    elif hasattr(data, "__dataframe__"):
        from pyarrow.interchange import from_dataframe  # noqa: PLC0415  (only old data frames need it)

        table = from_dataframe(data)
    else:
        return None
    return table
