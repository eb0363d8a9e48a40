"""A party's table as records: read once, checked against the schema's declared policies, and counted.

The reports are for the party only. Of their contents, only the number of rows goes on the wire.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError, SlotOverflowError
from dpcore.numbers.progress import Progress
from dpcore.records.coding import SIGNS, Coding, Labels
from dpcore.records.computation import PartySecret, RowPart, add_exactly, sum_on_threads
from dpcore.records.elsewhere import FeaturesElsewhere
from dpcore.records.encoding import (
    Change,
    StoredLabels,
    StoredRows,
    Tally,
    changed_cells,
    changes,
    main_cause,
    summed,
)
from dpcore.records.features import Classes, EventTime, Target, measured
from dpcore.records.features.labels import MOST_CLASSES
from dpcore.records.held_back import RowKey, RowNumbers
from dpcore.records.records import BLOCK_ROWS, Records
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from parties.config import PartyCluster, PartyConfig
from parties.data.disk_features import RowsOnDisk
from parties.data.epochs import Epochs, EpochsRead, check_epoch_column
from parties.data.part_sums import BlockDigest
from parties.data.rows_elsewhere import RowsOnCluster, TableElsewhere, read_elsewhere, sum_elsewhere
from radobase.cluster_jobs import ITEM_BYTES, ClusterError, ClusterJob, check_in_background
from radobase.logs import Log
from radobase.printing import amount
from radobase.ray_cluster import require_ray
from radobase.schema_files import load_shared
from radobase.tables.recoding import Occurrences, Recode, columns_of, load_recode, recoded_words
from radobase.tables.tables import IdentifiedRows, RowsRead, Table, TableSource, identified_blocks, open_table
from radobase.warm_workers import WarmWorkers

# Large enough that freed memory goes back to the system immediately.
_SLAB_BYTES = 64 << 20
_NAME_BYTES = 16
_DIGEST = b"rado.v1/data-blocks\0"
_RECODED = b"recoded\0"
# More than any memory holds, but still a valid size to allocate. A damaged file may claim any number.
_MOST_ROWS = 1 << 40


@dataclass(frozen=True)
class LoadReport:
    """Result of loading: numbers of rows and, for each feature, the numbers of cells that a policy changed."""

    file: str
    rows: int
    zero_vectors: int
    """Rows that became zero vectors."""
    positive: int
    negative: int
    """Usable rows of each class; 0 if there are several."""
    tallies: tuple[Tally, ...]
    """One per feature, in the schema's order, then the label's."""
    digest: bytes = field(repr=False)
    """SHA-256 over all rows as encoded, in their order, over their ids, over their epochs if there are any, and over
    the digest of the recode file if there is one. It confirms a guess of all rows: `PartySecret.data_digest` makes of
    it what people may read."""
    changes: tuple[Change, ...] = ()
    """The same by policy, what lost most first."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """By feature, the cells whose value a policy replaced or clipped."""
    class_rows: tuple[tuple[str, int], ...] = ()
    """Name and usable rows of each class if there are several, or of each outcome of times to an event."""
    epochs: Mapping[str, int] = field(default_factory=dict)
    """Rows by epoch, "" for none."""
    measured: tuple[float, float] | None = None
    """The least and the greatest label of usable rows in its units, if it is a number or a count."""
    recoded: Mapping[str, int] = field(default_factory=dict)
    """By column of the schema, the cells that the recode file changed."""
    unused_recodes: tuple[str, ...] = ()
    """Sentences about spellings of the recode file that no cell has."""
    label: str = ""
    """The name of the label that its classes, labels and usable rows are of; empty if the schema has one."""
    others: tuple["LoadReport", ...] = ()
    """Of the same rows under each further label."""

    @property
    def all_changes(self) -> tuple[Change, ...]:
        """Those of every label."""
        return tuple(dict.fromkeys(change for each in (self, *self.others) for change in each.changes))

    @property
    def usable_by_label(self) -> dict[str, int]:
        """Usable rows under each label, by its name; empty if the schema has one."""
        return {each.label: each.rows - each.zero_vectors for each in (self, *self.others) if each.label}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences that the data officer should know, about problems that do not stop the party."""
        many = (change.clause for change in self._further if change.is_many)
        own = (*map(self._named, self._of_rows()), *self.unused_recodes, *many)
        # What was changed in features is the same under each label.
        return tuple(dict.fromkeys((*own, *(warning for each in self.others for warning in each.warnings))))

    def _named(self, sentence: str) -> str:
        return f"label {self.label!r}: {sentence}" if self.label else sentence

    @property
    def recoded_sentence(self) -> str:
        """What the recode file changed, such as "recoded: 1203 cells of sex"; empty if there is no such cell."""
        return f"recoded: {recoded_words(self.recoded)}" if self.recoded else ""

    @property
    def _further(self) -> Sequence[Change]:
        """The changes but that which left most rows out: `_of_rows` has its sentence."""
        return self.changes[1:] if main_cause(self.changes) else self.changes

    def _of_rows(self) -> Iterator[str]:
        usable, cause = self.rows - self.zero_vectors, main_cause(self.changes)
        if not usable:
            yield f"no row is usable, every row becomes a zero vector and contributes nothing: {cause}"
        elif self.class_rows:
            yield from self._of_classes(usable)
        elif self.measured is not None:
            lowest, highest = self.measured
            if lowest == highest:
                yield f"the label of all {usable} usable rows is {lowest:g}: this party cannot learn alone"
        elif not (self.positive and self.negative):
            side = "positive" if self.positive else "negative"
            whole = f"all {usable} usable rows are" if usable > 1 else "the only usable row is"
            yield f"{whole} {side}: this party can take part but cannot learn alone"
        if self.zero_vectors and usable:
            share = 100 * self.zero_vectors / self.rows
            become = "becomes a zero vector" if self.zero_vectors == 1 else "become zero vectors"
            yield f"{self.zero_vectors} of {self.rows} rows ({share:.1f} %) {become}: {cause}"
        if without := self.epochs.get("", 0):
            yield f"{without} of {self.rows} rows are in no epoch: only queries about all rows are answered from them"

    def _of_classes(self, usable: int) -> Iterator[str]:
        if len(self.class_rows) > MOST_CLASSES:  # a list of codes to be counted, most of which occur nowhere
            return
        absent = [repr(name) for name, rows in self.class_rows if not rows]
        if len(absent) == len(self.class_rows) - 1:
            (only,) = (name for name, rows in self.class_rows if rows)
            whole = f"all {usable} usable rows are" if usable > 1 else "the only usable row is"
            yield f"{whole} of class {only!r}: this party can take part but cannot learn alone"
        elif absent:
            yield f"no usable row is of class {', '.join(absent)}: what is learned of it comes from other parties"

    def sentences(self) -> list[str]:
        """The report for people, one sentence per line: the rows, then what each policy changed, most lost first."""
        sizes = f"{self.positive} positive, {self.negative} negative"
        if self.class_rows:
            present = sum(rows > 0 for _, rows in self.class_rows)
            sizes = f"{present} of {len(self.class_rows)} listed texts in {self.rows - self.zero_vectors} usable rows"
            if len(self.class_rows) <= MOST_CLASSES:
                sizes = ", ".join(f"{rows} {name!r}" for name, rows in self.class_rows)
        elif self.measured is not None:
            sizes = "labels from {:g} to {:g}".format(*self.measured)
        lines = [f"{self.file}: {amount(self.rows, 'row')}, {self._named(sizes)}"]
        lines += [self.recoded_sentence] if self.recoded else []
        lines += [f"warning: {warning}" for warning in (*map(self._named, self._of_rows()), *self.unused_recodes)]
        lines += [f"warning: {each.clause}" if each.is_many else each.sentence for each in self._further]
        return list(dict.fromkeys((*lines, *(line for each in self.others for line in each.sentences()))))


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
    counted = _Counted(table.path, shared, id_column, recode)
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
    """What the party's recode file says; None if it names none. Raises ConfigurationError."""
    return None if config.recode is None else load_recode(config.recode, schema)


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
    counted = _Counted(table.path, shared, id_column, recode)
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


class _Counted:
    """Builds a report block by block."""

    def __init__(self, file: str, schema: SharedSchema, id_column: str | None, recode: Recode | None) -> None:
        self._file, self._id_column = file, id_column or ""
        self._recode, self._occurrences = recode, Occurrences()
        self._without_id = self._rows = 0
        self._tallies = tuple(Tally(feature.name) for feature in schema.first.features)
        self._schema = schema
        names = schema.labels if len(schema.labels) > 1 else ("",)
        self._of_labels = [_CountedLabel(name, each.label) for name, each in zip(names, schema.schemas, strict=True)]
        # One for each array, so that the digest does not depend on the blocks in which a source gives its rows.
        self._of_features, self._of_ids = BlockDigest(), hashlib.sha256()
        weight = schema.first.weight
        self._of_weights, self._weight_tallies = hashlib.sha256(), [] if weight is None else [Tally(weight.column)]
        self._of_epochs = hashlib.sha256()
        self._epochs: Counter[str] = Counter()

    def add(self, block: IdentifiedRows) -> None:
        rows, ids, epochs = block.stored, block.ids, block.epochs
        self._occurrences.update(block.recoded)
        self._rows += len(rows.usable)
        *of_features, of_label = rows.tallies
        tallies = (of_label, *(each.tally for each in rows.others))
        for own, given, tally in zip(self._of_labels, rows.of_labels, tallies, strict=True):
            own.add(given, tally)
        self._tallies = summed([self._tallies, of_features])
        if isinstance(rows.features, FeaturesElsewhere):
            self._of_features.blocks = rows.features.table.blocks
        else:
            self._of_features.add(rows.features)
        if rows.weights is not None and rows.weight_tally is not None:
            self._of_weights.update(np.ascontiguousarray(rows.weights, dtype="<u2").data)
            self._weight_tallies = [self._weight_tallies[0] + rows.weight_tally]
        self._without_id += ids.count("")
        self._epochs.update(epochs)
        for texts, digest in ((ids, self._of_ids), (epochs, self._of_epochs)):
            for text in texts:
                encoded = text.encode()
                digest.update(len(encoded).to_bytes(8, "big") + encoded)

    def report(self) -> LoadReport:
        first, *others = self._of_labels
        recoded: dict[str, int] = {}
        unused: tuple[str, ...] = ()
        if self._recode is not None:
            recoded, unused = self._recode.counts(self._occurrences), tuple(self._recode.unused(self._occurrences))
        digest, schema = self._digest(), self._schema.first
        changed = changed_cells(schema, [*self._tallies, *self._weight_tallies])
        said: dict[str, Any] = {"changed": changed, "epochs": dict(self._epochs)}
        said |= {"recoded": recoded, "unused_recodes": unused}
        return replace(
            self._report(first, digest),
            others=tuple(self._report(each, digest) for each in others),
            **said,
        )

    def _report(self, label: "_CountedLabel", digest: bytes) -> LoadReport:
        schema = replace(self._schema.first, label=label.label)
        tallies = (*self._tallies, label.tally, *self._weight_tallies)
        counts: dict[str, Any] = {"id_column": self._id_column, "without_id": self._without_id, "label": label.name}
        found = changes(schema, tallies, self._rows, **counts)
        sizes = (self._rows, self._rows - label.usable, label.positive, label.negative)
        said: dict[str, Any] = {"changes": found, "class_rows": label.by_class, "label": label.name}
        return LoadReport(self._file, *sizes, tallies, digest, **said, measured=label.values.of(label.label))

    def _digest(self) -> bytes:
        first, *others = self._of_labels
        hashes: list[Any] = [self._of_features, first.of_labels, first.of_usable, self._of_ids]
        hashes += [self._of_epochs] if self._epochs else []
        # The schema's digest says how many labels there are and if there is a weight: no number of hashes has two
        # meanings.
        hashes += [each for label in others for each in (label.of_labels, label.of_usable)]
        hashes += [self._of_weights] if self._weight_tallies else []
        parts = (self._schema.digest, *(each.digest() for each in hashes))
        if self._recode is not None:
            # No number of digests has the same length as one with this.
            parts = (*parts, _RECODED, self._recode.digest)
        return hashlib.sha256(_DIGEST + b"".join(parts)).digest()


class _CountedLabel:
    """The rows of a table under one label, block by block."""

    def __init__(self, name: str, label: Target) -> None:
        self.name, self.label, self.tally = name, label, Tally(label.column)
        self.usable = self.positive = 0
        self.values = _Extremes()
        self.of_labels, self.of_usable = hashlib.sha256(), hashlib.sha256()
        self._of_classes = np.zeros(label.classes, dtype=np.int64)
        self._outcomes: Counter[str] = Counter()

    def add(self, rows: StoredRows | StoredLabels, tally: Tally) -> None:
        labels, usable, coding = rows.labels, rows.usable, self.label.coding
        self.usable += int(np.count_nonzero(usable))
        self.tally += tally
        if coding.classes:
            self._of_classes += np.bincount(labels[usable], minlength=coding.classes)
        elif isinstance(self.label, EventTime):
            self._outcomes.update(dict(self.label.outcomes(labels[usable])))
        elif coding.is_measured:
            self.values.add(coding.values(labels)[usable])
        else:
            self.positive += int(np.count_nonzero(usable & (labels == 1)))
        self.of_labels.update(np.ascontiguousarray(labels, dtype=coding.dtype.newbyteorder("<")).data)
        self.of_usable.update(np.ascontiguousarray(usable).data)

    @property
    def negative(self) -> int:
        return self.usable - self.positive if self.label.coding == SIGNS else 0

    @property
    def by_class(self) -> tuple[tuple[str, int], ...]:
        """As LoadReport.class_rows."""
        if isinstance(self.label, Classes):
            return tuple(zip(self.label.values, self._of_classes.tolist(), strict=True))
        return tuple(self._outcomes.items())


class _Extremes:
    """The least and the greatest of stored labels that are numbers or counts."""

    def __init__(self) -> None:
        self._lowest: int | None = None
        self._highest: int | None = None

    def add(self, labels: Labels) -> None:
        if len(labels):
            lowest, highest = int(labels.min()), int(labels.max())
            self._lowest = lowest if self._lowest is None else min(self._lowest, lowest)
            self._highest = highest if self._highest is None else max(self._highest, highest)

    def of(self, label: Target) -> tuple[float, float] | None:
        """In the label's units; None without any."""
        if self._lowest is None or self._highest is None:
            return None
        known = measured(label, "a range of labels")
        return known.read(self._lowest), known.read(self._highest)


# The data that a party's node holds.


MOST_LOGGED = 20
"""The most changes of cells that are logged: those that lost most."""


class DataAwayError(DataError):
    """The table is not there now: its server starts, or its mount is late. A node's service manager tries again."""

    exit_code = 2


@dataclass(frozen=True)
class HeldData:
    """Rows, and what belongs to them."""

    dataset: Dataset
    secret: PartySecret
    digest: str
    """`PartySecret.data_digest` of the rows."""
    loaded_unix_s: float
    """When."""
    name: str = field(default_factory=lambda: token_hex(_NAME_BYTES))
    """A random one for each load, also of rows that are as before: whether they are does not show in the ledger."""

    @classmethod
    def load(
        cls,
        config: PartyConfig,
        seed: bytes,
        node_log: Log,
        progress: RowsRead | None = None,
        workers: WarmWorkers | None = None,
    ) -> Self:
        """Read the schema, the recode file and the table that the configuration names. Logs counts, never a cell.

        seed: the party's secret. progress: as in parties.data.dataset.load. workers: as in `place_of`. Raises
        DataAwayError if the table may be there later, SchemaError, DataError or ConfigurationError.
        """
        schema = load_shared(config.schema_file)
        row_key = RowKey(seed, config.federation, config.name, config.source)
        try:
            ids, epochs = config.id_column, config.epoch_column
            recode = recode_of(config, schema)
            columns: dict[str, Any] = {"id_column": ids, "epoch_column": epochs, "recode": recode}
            place = place_of(config, node_log, workers)
            dataset = load(config.table, schema, progress, row_key=row_key, place=place, **columns)
        except DataError as error:
            node_log.error("data refused", reason=str(error))
            if error.may_pass:
                raise DataAwayError(str(error)) from error
            raise
        report, secret = dataset.report, PartySecret(seed, dataset.schema.digest)
        held = cls(dataset, secret, PartySecret(seed, schema.digest).data_digest(report.digest), time.time())
        node_log.info(
            "data loaded",
            rows=report.rows,
            zero_vectors=report.zero_vectors,
            positive=report.positive,
            negative=report.negative,
            **({"class_rows": dict(report.class_rows)} if 0 < len(report.class_rows) <= MOST_CLASSES else {}),
            **({"usable_by_label": report.usable_by_label} if report.others else {}),
            **({"recoded": dict(report.recoded)} if report.recoded else {}),
            digest=held.digest,
        )
        for warning in report.warnings:
            node_log.warning("data", warning=warning)
        found = report.all_changes
        for change in found[:MOST_LOGGED]:
            node_log.info("cells changed", **change.to_dict())
        if len(found) > MOST_LOGGED:
            node_log.info("cells changed", further=len(found) - MOST_LOGGED, see="rado schema check")
        return held


# A party's sums over rows on its own Ray cluster, for tables that are too large for one machine.
#
# Sends runs of whole blocks of rows to workers, which return the sum of each run. The sums are integers: the total
# equals that of threads of this machine, bit for bit. A run that is lost with a worker is sent again.
#
# Anyone with access to the cluster can read rows, rado signatures and noise: only the party may have access.


_ROW_BYTES_BESIDE_FEATURES = 9
"""At most: labels of 8 bytes, and whether the row is usable."""


class ClusterRowSums:
    """A dpcore.records.computation.RowSums. Raises ConfigurationError if Ray is not installed."""

    def __init__(self, settings: PartyCluster, log: Log) -> None:
        self._settings, self._log = settings, log
        if settings.reads_table:
            # Loading the table shows it.
            require_ray()
        else:
            check_in_background(settings, log)

    def __call__(self, part: RowPart, records: Records, progress: Progress | None = None) -> NDArray[np.int64]:
        """See RowSums. If the cluster fails, logs it and sums on this machine. Raises DataError if a file changed."""
        if records.are_elsewhere:
            return sum_elsewhere(part, records, progress)
        if records.rows < self._settings.from_rows:
            return sum_on_threads(part, records, progress)
        try:
            return self._sum(part, records, progress)
        except (ClusterError, ConfigurationError) as error:
            self._log.warning("cluster failed, summing on this machine", rows=records.rows, reason=str(error))
            return sum_on_threads(part, records, progress)

    def _sum(self, part: RowPart, records: Records, progress: Progress | None) -> NDArray[np.int64]:
        row_bytes = records.features.itemsize * records.features.shape[1] + _ROW_BYTES_BESIDE_FEATURES
        run_rows = BLOCK_ROWS * max(1, ITEM_BYTES // (BLOCK_ROWS * row_bytes))

        def load(number: int) -> tuple[Any, ...]:
            # Workers get only the values of rows that count (dpcore.records.held_back).
            run = records.between(number * run_rows, (number + 1) * run_rows).zeroed()
            return number * run_rows, np.asarray(run.features), run.labels, run.usable, run.feature_map, run.coding

        def report() -> None:
            if progress is not None:
                progress(done, records.rows)

        total = np.zeros(part.shape, dtype=np.int64)
        done = 0
        with ClusterJob(self._settings, sum_of_run, part) as job:
            for number, added in job.results(-(-records.rows // run_rows), load, report):
                if not isinstance(added, np.ndarray) or added.dtype != np.int64 or added.shape != total.shape:
                    raise ClusterError("a worker returned no sum of the query's shape")
                try:
                    add_exactly(total, added)
                except SlotOverflowError as error:
                    raise ClusterError("a worker returned a sum that is impossible for these rows") from error
                done += min(run_rows, records.rows - number * run_rows)
                report()
        return total


def sum_of_run(part: RowPart, payload: tuple[Any, ...]) -> NDArray[np.int64]:
    """The sum of a run of rows, computed by a worker. payload: (first row, fields of Records)."""
    first_row, *fields = payload
    total = np.zeros(part.shape, dtype=np.int64)
    part.add(total, Records(*fields), first_row)
    return total
