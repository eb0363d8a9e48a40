"""A party's table as records: read once, checked against the schema's declared policies, and counted.

The reports (parties.data.load_report) are for the party only. Of their contents, only the number of rows goes on the
wire.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.coding import Coding, Labels
from dpcore.records.elsewhere import FeaturesElsewhere
from dpcore.records.encoding import (
    StoredRows,
)
from dpcore.records.held_back import RowKey, RowNumbers
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from parties.config import PartyConfig, RecodeTables
from parties.data.disk_features import RowsOnDisk
from parties.data.epochs import Epochs, EpochsRead, check_epoch_column
from parties.data.load_report import LoadReport, ReportBuilder
from parties.data.rows_elsewhere import RowsOnCluster, TableElsewhere, read_elsewhere
from radobase.logs import Log
from radobase.tables.recoding import Recode, columns_of, load_recode, read_recode
from radobase.tables.tables import RowsRead, Table, TableSource, identified_blocks, open_table
from radobase.warm_workers import WarmWorkers

# Large enough that freed memory goes back to the system immediately.
_SLAB_BYTES = 64 << 20
# More than any memory holds, but still a valid size to allocate. A damaged file may claim any number.
_MOST_ROWS = 1 << 40


@dataclass(frozen=True)
class Dataset:
    """A party's records, ready for any query with this schema, and the report about them."""

    schema: Schema
    records: Records
    report: LoadReport
    numbers: RowNumbers | None = None
    """The rows' numbers, for queries about a part of them; None if no key was given."""
    epochs: Epochs | None = None
    """Of the rows; None if no column names them."""
    others: tuple[tuple[Schema, Records], ...] = ()
    """The same rows under each further label of the schema, with the same features in memory."""


def load(
    source: TableSource,
    schema: Schema | SharedSchema,
    progress: RowsRead | None = None,
    *,
    row_key: RowKey | None = None,
    id_column: str | None = None,
    epoch_column: str | None = None,
    recode: Recode | None = None,
    place: RowsOnDisk | RowsOnCluster | None = None,
) -> Dataset:
    """Read a table through a schema into records of 32-bit fixed point.

    In addition to the records, it needs memory for a few blocks of rows and, unless the source declares the number of
    rows, a slab of records, independent of the file's size.

    progress: called with the number of rows read so far. row_key: to number the rows, by `id_column` if it is given,
    else by their places. epoch_column: names each row's epoch. recode: what the table writes otherwise. place: where
    the features are, if not in memory.

    Raises DataError, naming file, line (row for Parquet) and column, for a file that cannot be read, has no rows or
    lacks a column, for a cell that the schema's policy refuses, if the rows of one id are in two epochs, and if the
    records do not fit into memory.

    Raises ConfigurationError if the ids or the epochs are a column of the schema.
    """
    _check_id_column(schema, id_column, recode)
    check_epoch_column(schema, id_column, epoch_column, recode)
    table, shared = open_table(source), SharedSchema.of(schema)
    counted = ReportBuilder(table.path, shared, id_column, recode)
    own_column, first = None if row_key is None else id_column, shared.first
    try:
        codings = [each.label.coding for each in shared.schemas]
        kept: RowsOnDisk | TableElsewhere | None
        expected: int | None
        if isinstance(place, RowsOnCluster):
            kept = TableElsewhere.of(table, shared, own_column, epoch_column, recode, place)
            blocks, expected = read_elsewhere(kept, progress), kept.rows
        else:
            kept, expected = place, table.rows
            blocks = identified_blocks(table, shared, own_column, epoch_column, progress, recode)
        joined = _Joined(first.d, expected, codings, is_weighted=first.weight is not None, place=kept)
        by_id: list[NDArray[np.uint64]] = []
        read = _epochs_of(table, row_key, own_column, epoch_column)
        for block in blocks:
            counted.add(block)
            joined.add(block.stored)
            if row_key is not None and id_column is not None:
                by_id.append(row_key.of_ids(block.ids))
            if read is not None:
                read.add(block.ids, block.epochs, by_id[-1])
        records, *others = joined.records()
        found = None if read is None else read.epochs()
        numbers = None if row_key is None else RowNumbers(row_key, np.concatenate(by_id) if by_id else None)
    except MemoryError:
        raise DataError(
            "has more rows than fit into memory; use a machine with more memory, or fewer rows", file=table.path
        ) from None
    by_label = tuple(zip(shared.schemas[1:], others, strict=True))
    return Dataset(first, records, counted.report(), numbers, found, by_label)


def _epochs_of(table: Table, key: RowKey | None, id_column: str | None, epoch_column: str | None) -> EpochsRead | None:
    return EpochsRead(table, key, id_column, epoch_column) if key and id_column and epoch_column else None


def place_of(config: PartyConfig, log: Log, workers: WarmWorkers | None = None) -> RowsOnDisk | RowsOnCluster | None:
    """Where the party's configuration keeps features; None for memory. workers: those of the node; None for others."""
    if config.cluster is not None and config.cluster.reads_table:
        return RowsOnCluster(config.cluster, log, workers or WarmWorkers(config.cluster))
    return RowsOnDisk(config.state_directory) if config.rows_on_disk else None


def recode_of(config: PartyConfig, schema: Schema | SharedSchema) -> Recode | None:
    """What the party's recode file, or its configuration, says; None if there is neither. Raises ConfigurationError."""
    match config.recode:
        case None:
            return None
        case RecodeTables():
            return read_recode(config.recode.model_dump(), schema, "party.toml, recode")
        case _:
            return load_recode(config.recode, schema)


def _check_id_column(schema: Schema | SharedSchema, id_column: str | None, recode: Recode | None) -> None:
    """Raise ConfigurationError if the ids are values that queries are about: a part would be a choice by values."""
    if id_column is not None and id_column in columns_of(schema, recode):
        raise ConfigurationError(
            f"id_column {id_column!r} is a column of the schema, and whether a row is held back must not depend on "
            "what is learned: name a column of ids, or leave id_column out"
        )


def check(
    schema: Schema | SharedSchema,
    source: TableSource,
    progress: RowsRead | None = None,
    *,
    id_column: str | None = None,
    epoch_column: str | None = None,
    recode: Recode | None = None,
) -> LoadReport:
    """Read a whole table as `load` does and report, without keeping records. Raises as `load` does."""
    _check_id_column(schema, id_column, recode)
    check_epoch_column(schema, id_column, epoch_column, recode)
    table, shared = open_table(source), SharedSchema.of(schema)
    counted = ReportBuilder(table.path, shared, id_column, recode)
    # Any key compares ids.
    key = RowKey(bytes(32), "", "", "")
    read = _epochs_of(table, key, id_column, epoch_column)
    for block in identified_blocks(table, shared, id_column, epoch_column, progress, recode):
        counted.add(block)
        if read is not None:
            read.add(block.ids, block.epochs, key.of_ids(block.ids))
    if read is not None:
        read.epochs()
    return counted.report()


class _Joined:
    """Joins blocks of rows. There is room for all `expected` rows at first, if the number is known, else it grows."""

    _features: NDArray[np.int32]

    def __init__(
        self,
        d: int,
        expected: int | None,
        codings: Sequence[Coding],
        *,
        is_weighted: bool,
        place: RowsOnDisk | TableElsewhere | None = None,
    ) -> None:
        """codings: of each label. place: where features are; None for memory."""
        self._slab_rows = max(1, _SLAB_BYTES // (4 * d))
        rows = self._slab_rows if expected is None else min(max(expected, 0), _MOST_ROWS)
        self._place = place
        if isinstance(place, TableElsewhere):
            features: Any = FeaturesElsewhere(rows, d, place)
            self._features = features
        else:
            self._features = np.empty((rows, d), dtype=np.int32) if place is None else place.resized(None, rows, d)
        self._of_labels = [_JoinedLabels(coding, rows) for coding in codings]
        self._weights = np.empty(rows, dtype=np.uint16) if is_weighted else None
        self._filled = 0

    def add(self, block: StoredRows) -> None:
        stop = self._filled + len(block.usable)
        if stop > len(self._features):
            self._resize(max(stop, self._filled + self._slab_rows))
        here = slice(self._filled, stop)
        if not isinstance(self._features, FeaturesElsewhere):
            self._features[here] = block.features
        if self._weights is not None and block.weights is not None:
            self._weights[here] = block.weights
        for own, given in zip(self._of_labels, block.of_labels, strict=True):
            own.labels[here], own.usable[here] = given.labels, given.usable
        self._filled = stop

    def records(self) -> list[Records]:
        """All rows, in order, under each label; the features are in memory once. No rows can be added afterwards."""
        if self._filled < len(self._features):
            self._resize(self._filled)
        first, *others = self._of_labels
        if not others:
            only = (self._features, first.labels, first.usable)
            return [Records(*only, coding=first.coding, weights=self._weights)]
        # Features are 0 where no label makes a row usable, so they are checked with all rows that any does.
        signs, any_usable = np.ones(self._filled, dtype=np.int8), np.zeros(self._filled, dtype=np.bool_)
        for each in self._of_labels:
            any_usable |= each.usable
        whole = Records(self._features, signs, any_usable, weights=self._weights)
        return [whole.labelled(each.labels, each.usable, each.coding) for each in self._of_labels]

    def _resize(self, rows: int) -> None:
        if isinstance(self._place, RowsOnDisk):
            self._features = self._place.resized(self._features, rows, self._features.shape[1])
        else:
            # In place: Linux moves an allocation of this size by its page tables, without a copy. No other array shows
            # it.
            self._features.resize((rows, self._features.shape[1]), refcheck=False)
        if self._weights is not None:
            self._weights.resize(rows, refcheck=False)
        for each in self._of_labels:
            each.resize(rows)


class _JoinedLabels:
    """The labels of joined rows, and which rows are usable under them."""

    def __init__(self, coding: Coding, rows: int) -> None:
        self.coding = coding
        self.labels: Labels = np.empty(coding.shape(rows), dtype=coding.dtype)
        self.usable = np.empty(rows, dtype=np.bool_)

    def resize(self, rows: int) -> None:
        self.labels.resize(self.coding.shape(rows), refcheck=False)
        self.usable.resize(rows, refcheck=False)
