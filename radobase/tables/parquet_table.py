"""Parquet files as batches of Arrow columns; errors name the file and the row, counted from 1, and quote no cell."""

import os
from collections.abc import Collection, Generator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from dpcore.errors import DataError
from dpcore.records.features import TRIMMED
from radobase.files.faults import may_pass
from radobase.tables.arrow_table import index_of
from radobase.tables.opening import invalid, opened

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
                self.columns = tuple(str(name).strip(TRIMMED) for name in file.schema_arrow.names)
                self.index = index_of(file.schema_arrow)
                self._names = dict(zip(self.columns, file.schema_arrow.names, strict=True))
                self._texts = {
                    name for name, kind in zip(self.columns, file.schema_arrow.types, strict=True) if is_text(kind)
                }
        except _UNREADABLE as error:
            raise self._unreadable(error) from None

    def batches(
        self, columns: Sequence[str], *, numbers: Collection[str] = (), coded: Collection[str] = ()
    ) -> Generator[pa.RecordBatch]:
        """Arrow batches of `columns`, in the file's own types except for `coded`."""
        del numbers
        names = [self._names[column] for column in columns]
        read_dictionary = [self._names[column] for column in coded if column in self._texts]
        try:
            with (
                opened(self.path) as source,
                pq.ParquetFile(
                    source, read_dictionary=read_dictionary, buffer_size=_BUFFER_BYTES, pre_buffer=False
                ) as file,
            ):
                for read in file.iter_batches(batch_size=_BATCH_ROWS, columns=names):
                    batch = read.select(names).rename_columns(list(columns))
                    self._check(batch)
                    yield batch
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
