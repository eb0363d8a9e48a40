"""A party's table that the workers of its Ray cluster read themselves, each a part of it (`reads_table`).

    the node:   which files there are, how they are now, the rows of each row group
    a worker:   reads row groups, encodes them, and returns what the node keeps: labels, usable rows, digests
    a query:    a worker reads its part again, checks the digest of its records, and returns the sum over them

The node keeps 2 bytes and more a row, for any number of columns. A part is a run of whole blocks of BLOCK_ROWS rows, so
digests, row order and sums are those of one machine, bit for bit.

What a worker lost, could not read or returned for another part is done again: by another worker, or by this machine,
part by part.

An answer repeats what it is of: the job's random number, the part's number and rows, and the digest of the records that
were read. That finds mistakes. A worker that lies can falsify sums, as the party can (threat model, 4.14).
"""

import hashlib
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError, PlanError, SchemaError, SlotOverflowError
from dpcore.numbers.progress import Progress
from dpcore.records.coding import Labels
from dpcore.records.computation import RowPart, add_exactly
from dpcore.records.elsewhere import FeaturesElsewhere
from dpcore.records.encoding import StoredLabels, StoredRows, Tally, summed
from dpcore.records.records import BLOCK_ROWS, Records
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from parties.config import PartyCluster
from radobase.cluster_jobs import ClusterError, ClusterJob
from radobase.logs import Log
from radobase.tables.parquet_table import ParquetDirectory, ParquetTable, RowRange, row_ranges
from radobase.tables.recoding import Occurrences, Recode
from radobase.tables.tables import IdentifiedRows, RowsRead, Table, identified_blocks

LEAST_PART_ROWS = 1 << 17
"""Row groups with fewer rows are read together."""
DIGEST_BYTES = 32
# A worker holds few rows at a time, since many workers share a machine.
_RUN_BLOCKS = 4
_PART = b"rado.v1/part\0"
_NONCE_BYTES = 16
_MOST_NAME = 255
Result = TypeVar("Result")


class BlockDigest:
    """SHA-256 over the SHA-256 of each BLOCK_ROWS rows: machines can digest whole blocks, each on its own."""

    def __init__(self) -> None:
        self.blocks = bytearray()
        """The digests of blocks that are complete."""
        self._block, self._rows = hashlib.sha256(), 0

    def add(self, features: NDArray[np.int32]) -> None:
        """Add rows, (n, d). Their number in a call does not change the digest."""
        done = 0
        while done < len(features):
            rows = features[done : done + BLOCK_ROWS - self._rows]
            self._block.update(np.ascontiguousarray(rows, dtype="<i4").data)
            self._rows, done = self._rows + len(rows), done + len(rows)
            if self._rows == BLOCK_ROWS:
                self._end()

    def digest(self) -> bytes:
        """Of all rows. No rows can be added afterwards, unless whole blocks were."""
        if self._rows:
            self._end()
        return hashlib.sha256(self.blocks).digest()

    def _end(self) -> None:
        self.blocks += self._block.digest()
        self._block, self._rows = hashlib.sha256(), 0


@dataclass(frozen=True)
class Reading:
    """How the rows of a part become records. Sent to workers."""

    by_label: dict[str, Schema]
    """As `SharedSchema`."""
    id_column: str | None
    recode: Recode | None

    def blocks(self, rows: RowRange) -> Iterator[IdentifiedRows]:
        """The rows, block by block. Raises DataError."""
        return identified_blocks(rows, SharedSchema(self.by_label), self.id_column, None, None, self.recode)


@dataclass(frozen=True)
class TableElsewhere:
    """What a party knows of such a table."""

    reading: Reading
    ranges: tuple[RowRange, ...]
    blocks: bytearray
    """The digests of all blocks of features, as they were read first."""

    @classmethod
    def of(
        cls, table: Table, schema: SharedSchema, id_column: str | None, epoch_column: str | None, recode: Recode | None
    ) -> "TableElsewhere":
        """Look at the files, and divide their rows. Raises DataError, ConfigurationError."""
        if not isinstance(table, ParquetTable | ParquetDirectory):
            raise ConfigurationError(
                f"{table.path} is no Parquet: workers read Parquet files alone; write the table so, or set "
                "reads_table = false"
            )
        if epoch_column is not None or schema.first.weight is not None:
            raise ConfigurationError(
                "epochs and weights of rows need the rows on this machine: leave out epoch_column or the schema's "
                "weight, or set reads_table = false and rows_on_disk = true"
            )
        if not table.rows:
            raise table.error("there is a header but no rows; give a table with at least one row")
        reading = Reading(dict(schema.by_label), id_column, recode)
        return cls(reading, tuple(row_ranges(table, LEAST_PART_ROWS, BLOCK_ROWS)), bytearray())

    @property
    def rows(self) -> int:
        """Their number."""
        return sum(each.rows for each in self.ranges)

    def expected(self, rows: RowRange) -> bytes:
        """The digests of a part's blocks, as they were read first."""
        first, last = rows.first_row // BLOCK_ROWS, -(-(rows.first_row + rows.rows) // BLOCK_ROWS)
        return bytes(self.blocks[first * DIGEST_BYTES : last * DIGEST_BYTES])


# What workers compute.


def read_part(reading: Reading, payload: tuple[bytes, int, RowRange]) -> tuple[Any, ...]:
    """What a node keeps of a part's rows, or the sentence why it cannot be read."""
    return _answered(_read_part, reading, payload)


def sum_part(shared: tuple[Reading, RowPart, Any, Any], payload: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sum over a part's records, or the sentence why it cannot be computed."""
    return _answered(_sum_part, shared, payload)


def _answered(function: Callable[[Any, Any], tuple[Any, ...]], shared: Any, payload: Any) -> tuple[Any, ...]:
    where = f"{socket.gethostname()[: _MOST_NAME - 20]}/{os.getpid()}"
    try:
        return (where, *function(shared, payload))
    except MemoryError:
        return where, "a worker has too little memory for a few blocks of rows; give it more, or run fewer at a time"
    except DataError as error:
        return where, str(error)


def _identity(nonce: bytes, number: int, rows: RowRange, blocks: bytes) -> bytes:
    place = b"".join(each.to_bytes(8, "big") for each in (number, rows.first_row, rows.rows))
    return hashlib.sha256(_PART + nonce + place + blocks).digest()


def _read_part(reading: Reading, payload: tuple[bytes, int, RowRange]) -> tuple[Any, ...]:
    nonce, number, rows = payload
    digest, occurrences = BlockDigest(), Occurrences()
    labels: list[list[tuple[Labels, NDArray[np.bool_]]]] = []
    tallies: list[Sequence[Tally]] = []
    ids: list[str] = []
    for block in reading.blocks(rows):
        stored = block.stored
        digest.add(stored.features)
        labels.append([(each.labels, each.usable) for each in stored.of_labels])
        tallies.append((*stored.tallies, *(each.tally for each in stored.others)))
        ids += block.ids
        occurrences.update(block.recoded)
    digest.digest()
    encoded = [text.encode() for text in ids]
    return (
        _identity(nonce, number, rows, bytes(digest.blocks)),
        bytes(digest.blocks),
        tuple(tuple(map(np.concatenate, zip(*each, strict=True))) for each in zip(*labels, strict=True)),
        tuple(astuple(each) for each in summed(tallies)),
        np.array([len(each) for each in encoded], dtype=np.int64),
        b"".join(encoded),
        tuple((*place, count) for place, count in occurrences.items()),
    )


def _sum_part(shared: tuple[Reading, RowPart, Any, Any], payload: tuple[Any, ...]) -> tuple[Any, ...]:
    reading, part, feature_map, coding = shared
    nonce, number, rows, labels, usable = payload
    digest, total = BlockDigest(), np.zeros(part.shape, dtype=np.int64)
    for first, features in _runs(reading, rows):
        digest.add(features)
        run = slice(first, min(first + len(features), len(usable)))
        if run.start >= run.stop:
            continue
        kept = np.where(usable[run][:, np.newaxis], features[: run.stop - first], np.int32(0))
        part.add(total, Records(kept, labels[run], usable[run], feature_map, coding), rows.first_row + first)
    digest.digest()
    return _identity(nonce, number, rows, bytes(digest.blocks)), total


def _runs(reading: Reading, rows: RowRange) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """The features of a part in runs of whole blocks, except for the last: (row in the part, features)."""
    run: NDArray[np.int32] | None = None
    first = filled = 0
    for block in reading.blocks(rows):
        features, done = block.stored.features, 0
        if run is None:
            run = np.empty((min(rows.rows, _RUN_BLOCKS * BLOCK_ROWS), features.shape[1]), dtype=np.int32)
        while done < len(features):
            taken = features[done : done + len(run) - filled]
            run[filled : filled + len(taken)] = taken
            filled, done = filled + len(taken), done + len(taken)
            if filled == len(run):
                yield first, run
                first, filled = first + filled, 0
    if run is not None and filled:
        yield first, run[:filled]


# What the node does.


class PartJob:
    """One pass over the parts of a table on a cluster, and on this machine where that fails. Logs what was done."""

    def __init__(self, settings: PartyCluster, log: Log, table: TableElsewhere, rows: int) -> None:
        """rows: how many of the table's are wanted, from the first on."""
        self.nonce = secrets.token_bytes(_NONCE_BYTES)
        self._settings, self._log, self._rows = settings, log, rows
        self._ranges = [each for each in table.ranges if each.first_row < rows]
        self._workers, self._sent, self._here = Counter[str](), Counter[int](), 0

    def results(
        self,
        functions: tuple[Callable[[Any, Any], tuple[Any, ...]], Callable[[Any, Any], tuple[Any, ...]]],
        shared: Any,
        payload: Callable[[int, RowRange], Any],
        checked: Callable[[int, RowRange, tuple[Any, ...]], Result],
        idle: Callable[[], None],
    ) -> Generator[tuple[int, Result]]:
        """(number, result) of each part, once each. functions: what a worker and what this machine calls.

        payload: of a part's number and rows. checked: the result of an answer without its worker's name; raises
        ClusterError if it is none. Raises what the function raises on this machine.
        """
        begun, left = time.monotonic(), dict(enumerate(self._ranges))

        def load(number: int) -> Any:
            self._sent[number] += 1
            return payload(number, self._ranges[number])

        def here(number: int) -> tuple[int, Result]:
            rows = left[number]
            self._here += 1
            try:
                found = checked(number, rows, functions[1](shared, payload(number, rows)))
            except ClusterError as error:
                sentence = f"cannot be computed on this machine either ({error}); read it again (`rado party reload`)"
                raise DataError(sentence, file=rows.path) from error
            del left[number]
            return number, found

        try:
            with ClusterJob(self._settings, functions[0], shared) as job:
                for number, answer in job.results(len(left), load, idle):
                    try:
                        found = self._from_worker(number, answer, checked)
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
        self._log.info(
            "cluster read the table",
            rows=self._rows,
            parts=len(self._ranges),
            again=sum(self._sent.values()) - len(self._sent),
            on_this_machine=self._here,
            seconds=round(time.monotonic() - begun, 3),
            workers=dict(self._workers),
        )

    def _from_worker(
        self, number: int, answer: Any, checked: Callable[[int, RowRange, tuple[Any, ...]], Result]
    ) -> Result:
        rows = self._ranges[number]
        if not isinstance(answer, tuple) or len(answer) < 2 or not isinstance(answer[0], str):
            raise ClusterError("a worker returned no answer about a part")
        where, *rest = answer
        if len(rest) == 1:
            raise ClusterError(f"worker {where[:_MOST_NAME]}: {rest[0]}")
        found = checked(number, rows, tuple(rest))
        self._workers[where[:_MOST_NAME]] += 1
        return found


def read_elsewhere(
    settings: PartyCluster, log: Log, table: TableElsewhere, progress: RowsRead | None
) -> Iterator[IdentifiedRows]:
    """What the node keeps of each part's rows, in their order, with features elsewhere. Notes digests in the table.

    Raises DataError.
    """
    job = PartJob(settings, log, table, table.rows)
    early: dict[int, tuple[IdentifiedRows, bytes]] = {}
    following = rows = 0

    def payload(number: int, part: RowRange) -> Any:
        return job.nonce, number, part

    def checked(number: int, part: RowRange, answer: tuple[Any, ...]) -> tuple[IdentifiedRows, bytes]:
        return _kept(table, job.nonce, number, part, answer)

    for number, found in job.results((read_part, _read_part), table.reading, payload, checked, lambda: None):
        early[number] = found
        while following in early:
            block, digests = early.pop(following)
            table.blocks.extend(digests)
            yield block
            rows, following = rows + len(block.stored.usable), following + 1
            if progress is not None:
                progress(rows)


def _kept(
    table: TableElsewhere, nonce: bytes, number: int, rows: RowRange, answer: tuple[Any, ...]
) -> tuple[IdentifiedRows, bytes]:
    """A worker's answer as rows without features. Raises ClusterError unless it is one about this part."""
    schemas, count = tuple(table.reading.by_label.values()), rows.rows
    try:
        identity, blocks, labels, tallied, lengths, joined, recoded = answer
        if identity != _identity(nonce, number, rows, blocks):
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
        features: Any = FeaturesElsewhere(count, schemas[0].d, table, rows.first_row)
        stored = StoredRows(features, first, usable, tuple(tallies[:known]), others=others)
        return IdentifiedRows(stored, ids, [], Counter({(a, b): int(n) for a, b, n in recoded})), blocks
    except (TypeError, ValueError, AttributeError, KeyError, IndexError, SchemaError) as error:
        raise ClusterError("a worker returned no rows of a part") from error


def sum_elsewhere(
    settings: PartyCluster, log: Log, part: RowPart, records: Records, progress: Progress | None
) -> NDArray[np.int64]:
    """The sum of a part over records whose features are elsewhere. As `RowSums`; raises DataError if a file changed."""
    features = records.features
    assert isinstance(features, FeaturesElsewhere), "the records are elsewhere"
    table: TableElsewhere = features.table
    if features.first:
        raise PlanError("a sum over rows elsewhere begins with the first row: ask for all rows")
    job, done = PartJob(settings, log, table, records.rows), 0

    def payload(number: int, rows: RowRange) -> Any:
        here = records.between(rows.first_row, rows.first_row + rows.rows)
        labels = here.labels.copy()
        labels[~here.usable] = 1
        return job.nonce, number, rows, labels, np.array(here.usable)

    def checked(number: int, rows: RowRange, answer: tuple[Any, ...]) -> int:
        if len(answer) != 2 or answer[0] != _identity(job.nonce, number, rows, table.expected(rows)):
            raise ClusterError("a sum is of another part, or of rows that changed since the table was read")
        added = answer[1]
        if not isinstance(added, np.ndarray) or added.dtype != np.int64 or added.shape != part.shape:
            raise ClusterError("a worker returned no sum of the query's shape")
        try:
            add_exactly(total, added)
        except SlotOverflowError as error:
            raise ClusterError("a worker returned a sum that is impossible for these rows") from error
        return rows.rows

    def report() -> None:
        if progress is not None:
            progress(min(done, records.rows), records.rows)

    total = np.zeros(part.shape, dtype=np.int64)
    shared = (table.reading, part, records.feature_map, records.coding)
    for _, rows in job.results((sum_part, _sum_part), shared, payload, checked, report):
        done += rows
        report()
    return total
