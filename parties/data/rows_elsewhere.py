"""A party's table that the workers of its Ray cluster read themselves, each parts of it (`reads_table`).

    the node:   which files there are, how they are now, the rows of each row group
    a worker:   reads and keeps row groups, and returns what the node keeps: labels, usable rows, digests
    a query:    a worker returns the sum over each part that it keeps; a part that none keeps is read again

The node keeps 2 bytes and more a row, for any number of columns. A part is a run of whole blocks of BLOCK_ROWS rows, so
digests, row order and sums are those of one machine, bit for bit.

What a worker lost, could not read or returned for another part is done again: by another worker, or by this machine,
part by part.
"""

import itertools
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError, PlanError, SchemaError, SlotOverflowError
from dpcore.numbers.progress import Progress
from dpcore.records.computation import RowPart, add_exactly
from dpcore.records.elsewhere import FeaturesElsewhere
from dpcore.records.encoding import StoredLabels, StoredRows, Tally
from dpcore.records.records import BLOCK_ROWS, Records
from dpcore.records.shared_schema import SharedSchema
from parties.config import READ_AGAIN, PartyCluster
from parties.data.part_sums import (
    DIGEST_BYTES,
    DISK,
    MEMORY,
    PartOrder,
    Reading,
    failure,
    read_here,
    read_part,
    sum_here,
    sum_part,
)
from radobase.cluster_jobs import ClusterError
from radobase.logs import Log
from radobase.tables.database_table import DatabaseTable
from radobase.tables.parquet_table import ParquetFiles, ParquetTable, row_ranges
from radobase.tables.recoding import Recode
from radobase.tables.tables import IdentifiedRows, RowsRead, Table, TablePart
from radobase.warm_workers import WarmWorkers, Work, machine_of

LEAST_PART_ROWS = 1 << 17
"""Row groups with fewer rows are read together."""
_NONCE_BYTES = 16
_MOST_NAME = 255
_TABLES = itertools.count()
Result = TypeVar("Result")


@dataclass(frozen=True)
class RowsOnCluster:
    """Features stay with the workers of the party's cluster, which read the table themselves."""

    settings: PartyCluster
    log: Log
    workers: WarmWorkers


@dataclass(frozen=True)
class TableElsewhere:
    """What a party knows of such a table."""

    reading: Reading
    ranges: tuple[TablePart, ...]
    place: RowsOnCluster
    blocks: bytearray = field(default_factory=bytearray)
    """The digests of all blocks of features, as they were read first."""
    kept: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By the number of a part, the worker that keeps it, and where. One job at a time uses it."""

    @classmethod
    def of(
        cls,
        table: Table,
        schema: SharedSchema,
        id_column: str | None,
        epoch_column: str | None,
        recode: Recode | None,
        place: RowsOnCluster,
    ) -> "TableElsewhere":
        """Look at the files, and divide their rows. Raises DataError, ConfigurationError."""
        if epoch_column is not None or schema.first.weight is not None:
            raise ConfigurationError(
                "epochs and weights of rows need the rows on this machine: leave out epoch_column or the schema's "
                "weight, or set reads_table = false and rows_on_disk = true"
            )
        settings = place.settings
        reading = Reading(
            dict(schema.by_label), id_column, recode, next(_TABLES), settings.worker_memory_bytes, settings.worker_disk
        )
        return cls(reading, tuple(_parts(table)), place)

    @property
    def rows(self) -> int:
        """Their number."""
        return sum(each.rows for each in self.ranges)

    def expected(self, rows: TablePart) -> bytes:
        """The digests of a part's blocks, as they were read first."""
        first, last = rows.first_row // BLOCK_ROWS, -(-(rows.first_row + rows.rows) // BLOCK_ROWS)
        return bytes(self.blocks[first * DIGEST_BYTES : last * DIGEST_BYTES])


def _parts(table: Table) -> list[TablePart]:
    """The table in parts of whole blocks. Raises ConfigurationError if it has none, DataError."""
    match table:
        case ParquetTable() | ParquetFiles():
            if not table.rows:
                raise table.error("there is a header but no rows; give a table with at least one row")
            return [*row_ranges(table, LEAST_PART_ROWS, BLOCK_ROWS)]
        case DatabaseTable() if table.source.key is not None:
            return [*table.key_ranges(-(-LEAST_PART_ROWS // BLOCK_ROWS) * BLOCK_ROWS)]
    raise ConfigurationError(
        f"{table.path} is neither Parquet nor a database with a key_column, which workers can read in parts: write the "
        "table as Parquet, or set reads_table = false"
    )


# What the node does.


class PartJob:
    """One pass over the parts of a table on a cluster, and on this machine where that fails. Logs what was done."""

    def __init__(self, table: TableElsewhere, rows: int) -> None:
        """rows: how many of the table's are wanted, from the first on."""
        self.nonce = secrets.token_bytes(_NONCE_BYTES)
        self._table, self._rows, self._log = table, rows, table.place.log
        self._ranges = [each for each in table.ranges if each.first_row < rows]
        self._workers, self._sent, self._here = Counter[str](), Counter[int](), 0
        self._shares = _Shares(table)
        self._was_kept = 0

    def results(
        self,
        functions: tuple[Work, Work],
        shared: Any,
        payload: Callable[[PartOrder], Any],
        checked: Callable[[PartOrder, tuple[Any, ...]], Result],
        idle: Callable[[], None],
    ) -> Generator[tuple[int, Result]]:
        """(number, result) of each part, once each. functions: what a worker and what this machine calls.

        payload: of what is to be done with a part. checked: the result of an answer; raises ClusterError if it is none.
        Raises what the function raises on this machine.
        """
        begun, left = time.monotonic(), dict(enumerate(self._ranges))

        def load(number: int, worker: str) -> Any:
            self._sent[number] += 1
            # A part whose worker was lost may be what its machine had no memory for.
            return payload(self._shares.order(self.nonce, number, worker, may_keep=self._sent[number] == 1))

        def here(number: int) -> tuple[int, Result]:
            order = PartOrder(self.nonce, number, left[number])
            self._here += 1
            try:
                found = checked(order, functions[1]({}, shared, payload(order)))
            except ClusterError as error:
                sentence = f"cannot be computed on this machine either ({error}); read it again (`rado party reload`)"
                raise DataError(sentence, file=order.rows.path) from error
            del left[number]
            return number, found

        results = self._table.place.workers.results(functions[0], shared, len(left), load, self._owner, idle)
        try:
            with closing(results):
                for number, worker, answer in results:
                    try:
                        found = self._from_worker(number, worker, answer, checked)
                    except ClusterError as error:
                        self._log.warning("cluster failed in a part, doing it on this machine", reason=str(error))
                        yield here(number)
                        continue
                    del left[number]
                    yield number, found
        except (ClusterError, ConfigurationError) as error:
            parts = len(left)
            self._log.warning("cluster failed, doing the rest on this machine", parts=parts, reason=str(error))
        for number in list(left):
            idle()
            yield here(number)
        self._say(time.monotonic() - begun)

    def _owner(self, number: int) -> str | None:
        if number == 0:
            self._shares.divide()
        return self._shares.owner(number)

    def _from_worker(
        self, number: int, worker: str, answer: Any, checked: Callable[[PartOrder, tuple[Any, ...]], Result]
    ) -> Result:
        if not isinstance(answer, tuple) or not answer:
            raise ClusterError("a worker returned no answer about a part")
        if (reason := failure(answer)) is not None:
            raise ClusterError(f"worker {worker[:_MOST_NAME]}: {reason}")
        found = checked(PartOrder(self.nonce, number, self._ranges[number]), answer)
        self._was_kept += self._shares.owner(number) == worker
        self._shares.note(number, worker, answer[0])
        self._workers[worker[:_MOST_NAME]] += 1
        return found

    def _say(self, seconds: float) -> None:
        places = Counter(place for _, place in self._table.kept.values())
        self._log.info(
            "cluster read the table",
            rows=self._rows,
            parts=len(self._ranges),
            kept=self._was_kept,
            again=sum(self._sent.values()) - len(self._sent),
            on_this_machine=self._here,
            in_memory=places[MEMORY],
            on_disk=places[DISK],
            seconds=round(seconds, 3),
            workers=dict(self._workers),
        )


class _Shares:
    """Which worker keeps which parts: each about as many rows as the others, so that none waits for another."""

    def __init__(self, table: TableElsewhere) -> None:
        self._table = table
        self._rows, self._release = Counter[str](), defaultdict[str, list[int]](list)
        self._machines = Counter[str]()

    def divide(self) -> None:
        """Forget what lost workers kept, and take from those that keep more than their share."""
        names = self._table.place.workers.names
        self._machines = Counter(map(machine_of, names))
        for number, (worker, _) in list(self._table.kept.items()):
            rows = self._table.ranges[number].rows
            if worker in names and self._rows[worker] + rows <= self._most_rows:
                self._rows[worker] += rows
                continue
            del self._table.kept[number]
            self._release[worker].append(number)

    def owner(self, number: int) -> str | None:
        """Who keeps a part."""
        return self._table.kept.get(number, (None,))[0]

    def order(self, nonce: bytes, number: int, worker: str, *, may_keep: bool) -> PartOrder:
        """What this worker is to do with a part."""
        rows, owner = self._table.ranges[number], self.owner(number)
        keep = may_keep and (owner == worker or self._rows[worker] + rows.rows <= self._most_rows)
        if keep and owner != worker:
            # Until its answer says otherwise.
            self._rows[worker] += rows.rows
        names = self._table.place.workers.names
        workers = sum(machine_of(each) == machine_of(worker) for each in names)
        return PartOrder(nonce, number, rows, keep, max(1, workers), tuple(self._release.pop(worker, ())))

    def note(self, number: int, worker: str, place: Any) -> None:
        """Where a worker that answered keeps a part."""
        if place in (MEMORY, DISK):
            self._table.kept[number] = worker, place
        elif self.owner(number) == worker:
            del self._table.kept[number]

    @property
    def _most_rows(self) -> int:
        """The most rows that a worker keeps: its share, and one part."""
        ranges = self._table.ranges
        return -(-self._table.rows // self._table.place.workers.expected) + max(each.rows for each in ranges)


def read_elsewhere(table: TableElsewhere, progress: RowsRead | None) -> Iterator[IdentifiedRows]:
    """What the node keeps of each part's rows, in their order, with features elsewhere. Notes digests in the table.

    Raises DataError.
    """
    job = PartJob(table, table.rows)
    early: dict[int, tuple[IdentifiedRows, bytes]] = {}
    following = rows = 0

    def checked(order: PartOrder, answer: tuple[Any, ...]) -> tuple[IdentifiedRows, bytes]:
        return _kept(table, order, answer)

    for number, found in job.results((read_part, read_here), table.reading, lambda order: order, checked, lambda: None):
        early[number] = found
        while following in early:
            block, digests = early.pop(following)
            table.blocks.extend(digests)
            yield block
            rows, following = rows + len(block.stored.usable), following + 1
            if progress is not None:
                progress(rows)
    if len(table.kept) < len(table.ranges):
        disk = table.place.settings.worker_disk
        reason = READ_AGAIN if disk is None else f"worker_disk {disk} has no room for the rest, or cannot be written to"
        parts, kept = len(table.ranges), len(table.kept)
        table.place.log.warning("each sum reads the table again", parts=parts, kept=kept, reason=reason)


def _kept(table: TableElsewhere, order: PartOrder, answer: tuple[Any, ...]) -> tuple[IdentifiedRows, bytes]:
    """A worker's answer as rows without features. Raises ClusterError unless it is one about this part."""
    schemas, count = tuple(table.reading.by_label.values()), order.rows.rows
    try:
        _, identity, blocks, labels, tallied, lengths, joined, recoded = answer
        if identity != order.identity(blocks):
            raise ClusterError("a worker returned the rows of another part")
        ends = np.cumsum(lengths).tolist()
        ids = [joined[end - length : end].decode() for end, length in zip(ends, lengths.tolist(), strict=True)]
        tallies = [Tally(str(name), *map(int, counts)) for name, *counts in tallied]
        for target, (own, usable) in zip((each.label for each in schemas), labels, strict=True):
            if own.shape != target.coding.shape(count) or own.dtype != target.coding.dtype:
                raise ClusterError("a worker returned labels of another form")
            if usable.shape != (count,) or usable.dtype != np.bool_:
                raise ClusterError("a worker returned usable rows of another form")
            target.coding.check(own)
        known = len(schemas[0].features) + 1
        if len(blocks) != -(-count // BLOCK_ROWS) * DIGEST_BYTES or len(ids) not in (0, count):
            raise ClusterError("a worker returned another number of rows than its part has")
        (first, usable), *further = labels
        others = tuple(
            StoredLabels(own, mask, tally) for (own, mask), tally in zip(further, tallies[known:], strict=True)
        )
        features: Any = FeaturesElsewhere(count, schemas[0].d, table, order.rows.first_row)
        stored = StoredRows(features, first, usable, tuple(tallies[:known]), others=others)
        return IdentifiedRows(stored, ids, [], Counter({(a, b): int(n) for a, b, n in recoded})), blocks
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, SchemaError) as error:
        raise ClusterError("a worker returned no rows of a part") from error


def sum_elsewhere(part: RowPart, records: Records, progress: Progress | None) -> NDArray[np.int64]:
    """The sum of a part over records whose features are elsewhere. As `RowSums`; raises DataError if a file changed."""
    features = records.features
    assert isinstance(features, FeaturesElsewhere), "the records are elsewhere"
    table: TableElsewhere = features.table
    if features.first:
        raise PlanError("a sum over rows elsewhere begins with the first row: ask for all rows")
    job, done = PartJob(table, records.rows), 0

    def payload(order: PartOrder) -> Any:
        here = records.between(order.rows.first_row, order.rows.first_row + order.rows.rows)
        labels = here.labels.copy()
        labels[~here.usable] = 1
        return order, labels, np.array(here.usable), here.features.factors

    def checked(order: PartOrder, answer: tuple[Any, ...]) -> int:
        if len(answer) != 3 or answer[1] != order.identity(table.expected(order.rows)):
            raise ClusterError("a sum is of another part, or of rows that changed since the table was read")
        added = answer[2]
        if not isinstance(added, np.ndarray) or added.dtype != np.int64 or added.shape != part.shape:
            raise ClusterError("a worker returned no sum of the query's shape")
        try:
            add_exactly(total, added)
        except SlotOverflowError as error:
            raise ClusterError("a worker returned a sum that is impossible for these rows") from error
        return order.rows.rows

    def report() -> None:
        if progress is not None:
            progress(min(done, records.rows), records.rows)

    total = np.zeros(part.shape, dtype=np.int64)
    shared = (table.reading, part, records.feature_map, records.coding)
    for _, rows in job.results((sum_part, sum_here), shared, payload, checked, report):
        done += rows
        report()
    return total
