"""What a worker of a party's cluster computes of a part of the table, and keeps of it (parties.data.rows_elsewhere).

A worker reads a part once and keeps its records as they are encoded, 4 bytes a coordinate and row: in memory as far as
its share of the machine reaches, then on disk if it may, else it reads the part again for every sum.

An answer repeats what it is of: the job's random number, the part's number and rows, and the digest of the records that
were read. That finds mistakes. A worker that lies can falsify sums, as the party can (threat model, 4.14).
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError, DataError
from dpcore.numbers.fixed_point import check_room, largest
from dpcore.records.coding import Labels
from dpcore.records.computation import RowPart, add_exactly
from dpcore.records.encoding import Tally, summed
from dpcore.records.records import BLOCK_ROWS, Records
from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from parties.data.disk_features import FeatureFile
from radobase.tables.recoding import Occurrences, Recode
from radobase.tables.tables import IdentifiedRows, TablePart, identified_blocks

DIGEST_BYTES = 32
MEMORY, DISK, NOT_KEPT = "memory", "disk", "not kept"
"""Where a worker keeps a part."""
# A worker holds few rows at a time, since many workers share a machine.
_RUN_BLOCKS = 4
_RUN_ROWS = _RUN_BLOCKS * BLOCK_ROWS
_PART = b"rado.v1/part\0"
_FAILED = "failed"
_GROUP = re.compile(r"^(?:0:|\d+:memory):(.*)$", re.MULTILINE)
_ANY = 1 << 62
# What Linux gives a group without a limit is larger than any machine.
_LIMITS = ("/sys/fs/cgroup{}/memory.max", "/sys/fs/cgroup/memory{}/memory.limit_in_bytes")


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
    """How the rows of a part become records, and where they may be kept. Sent to workers."""

    by_label: dict[str, Schema]
    """As `SharedSchema`."""
    id_column: str | None
    recode: Recode | None
    table: int
    """Which reading of the party's table. A worker keeps parts of the one that it was last asked for."""
    memory_bytes: int | None = None
    """For the records of a worker; None for half its machine's memory, divided among its workers."""
    disk: Path | None = None
    """A directory of the worker's machine for records that memory has no room for."""

    def blocks(self, rows: TablePart, threads: int | None) -> Iterator[IdentifiedRows]:
        """The rows, block by block, encoded on so many threads. Raises DataError."""
        return identified_blocks(rows, SharedSchema(self.by_label), self.id_column, None, None, self.recode, threads)

    @property
    def d(self) -> int:
        """The coordinates of a record."""
        return next(iter(self.by_label.values())).d


@dataclass(frozen=True)
class PartOrder:
    """What to do with one part."""

    nonce: bytes
    number: int
    rows: TablePart
    keep: bool = False
    """Whether to keep the part, if it is not yet kept."""
    workers: int = 1
    """How many share the machine."""
    release: tuple[int, ...] = ()
    """Parts that are no longer to be kept."""

    def identity(self, blocks: bytes) -> bytes:
        """What an answer about this part repeats."""
        place = b"".join(each.to_bytes(8, "big") for each in (self.number, self.rows.first_row, self.rows.rows))
        return hashlib.sha256(_PART + self.nonce + place + blocks).digest()


class _Kept(Protocol):
    """A part that is kept."""

    place: str
    blocks: bytes
    """The digests of its blocks."""

    def add(self, features: NDArray[np.int32]) -> None:
        """Keep the next rows."""
        ...

    def runs(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        """See `_runs`."""
        ...


class _InMemory:
    place, blocks = MEMORY, b""

    def __init__(self, rows: int, d: int) -> None:
        self._features, self._filled = np.empty((rows, d), dtype=np.int32), 0

    def add(self, features: NDArray[np.int32]) -> None:
        self._features[self._filled : self._filled + len(features)] = features
        self._filled += len(features)

    def runs(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        for first in range(0, len(self._features), _RUN_ROWS):
            yield first, self._features[first : first + _RUN_ROWS]


class _OnDisk:
    place, blocks = DISK, b""

    def __init__(self, file: FeatureFile, rows: int, d: int) -> None:
        """Raises DataError if the disk has no room."""
        self._file, self._rows, self._d, self._filled = file, rows, d, 0
        self._first = file.room_for(rows, d)

    def __del__(self) -> None:
        # Also of a part that could not be read to its end.
        if hasattr(self, "_first"):
            self._file.give_back(self._first, self._rows, self._d)

    def add(self, features: NDArray[np.int32]) -> None:
        self._file.write(self._first + self._filled * self._d * features.itemsize, features)
        self._filled += len(features)

    def runs(self) -> Iterator[tuple[int, NDArray[np.int32]]]:
        run = np.empty((min(self._rows, _RUN_ROWS), self._d), dtype=np.int32)
        for first in range(0, self._rows, _RUN_ROWS):
            rows = run[: self._rows - first]
            self._file.read(self._first + first * self._d * run.itemsize, rows)
            yield first, rows


class KeptParts:
    """The parts of one table that a worker keeps."""

    def __init__(self) -> None:
        self._table = -1
        self._parts: dict[int, _Kept] = {}
        self._memory_bytes, self._most_bytes = 0, _ANY
        self._sizes: dict[int, int] = {}
        self._file: FeatureFile | None = None

    def found(self, reading: Reading, order: PartOrder) -> _Kept | None:
        """A part that is kept. What is of another reading of the table, or to be released, is no longer kept."""
        if reading.table != self._table:
            self.__init__()  # type: ignore[misc]  # nothing of the other is left
            self._table = reading.table
        for number in order.release:
            self._parts.pop(number, None)
            self._memory_bytes -= self._sizes.pop(number, 0)
        return self._parts.get(order.number)

    def begun(self, reading: Reading, order: PartOrder) -> _Kept | None:
        """Room for a part, which is kept once `keep` is called; None if it is not to be kept, or nowhere."""
        if not order.keep:
            return None
        size_bytes, room = 4 * reading.d * order.rows.rows, reading.memory_bytes
        if room is None:
            room = machine_bytes() // 2 // order.workers
        if self._memory_bytes + size_bytes <= min(room, self._most_bytes):
            try:
                return _InMemory(order.rows.rows, reading.d)
            except MemoryError:
                pass
        if reading.disk is None:
            return None
        try:
            self._file = self._file or FeatureFile(reading.disk)
            return _OnDisk(self._file, order.rows.rows, reading.d)
        except DataError:
            # No directory, or no room: the part is read again.
            return None

    def keep(self, number: int, part: _Kept, size_bytes: int) -> None:
        """Keep a part whose rows were all added."""
        self._parts[number] = part
        if part.place == MEMORY:
            self._sizes[number] = size_bytes
            self._memory_bytes += size_bytes

    def halve(self) -> bool:
        """Keep half in memory from now on. Whether anything was released."""
        self._most_bytes = self._memory_bytes // 2
        is_smaller = bool(self._sizes)
        while self._sizes and self._memory_bytes > self._most_bytes:
            number, size_bytes = self._sizes.popitem()
            self._memory_bytes -= size_bytes
            del self._parts[number]
        return is_smaller


def machine_bytes() -> int:
    """The memory of this machine, or of the container or other group that limits this process."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        groups = ["", *_GROUP.findall(Path("/proc/self/cgroup").read_text())]
    except OSError:
        groups = [""]
    for path in {each.format(group.rstrip("/")) for each in _LIMITS for group in groups}:
        try:
            found.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return min(found)


def read_part(state: dict[str, Any], reading: Reading, order: PartOrder) -> tuple[Any, ...]:
    """What a node keeps of a part's rows, or the sentence why it cannot be read."""
    return _answered(partial(read_here, threads=1), state, reading, order)


def sum_part(state: dict[str, Any], shared: tuple[Reading, RowPart, Any, Any], payload: tuple[Any, ...]) -> Any:
    """The sum over a part's records, or the sentence why it cannot be computed."""
    return _answered(partial(sum_here, threads=1), state, shared, payload)


def failure(answer: tuple[Any, ...]) -> str | None:
    """The sentence of an answer that has one."""
    return str(answer[1]) if len(answer) == 2 and answer[0] == _FAILED else None


def _answered(
    function: Callable[[dict[str, Any], Any, Any], tuple[Any, ...]], state: dict[str, Any], shared: Any, payload: Any
) -> tuple[Any, ...]:
    while True:
        try:
            return function(state, shared, payload)
        except MemoryError:
            if _kept_parts(state).halve():
                continue
            return _FAILED, "it has too little memory for a few blocks of rows; give it more, or run fewer at a time"
        except (ConfigurationError, DataError) as error:  # such as a driver that is not installed there
            return _FAILED, str(error)


def _kept_parts(state: dict[str, Any]) -> KeptParts:
    found = state.setdefault("parts", KeptParts())
    assert isinstance(found, KeptParts), "nothing else is under this name"
    return found


def read_here(state: dict[str, Any], reading: Reading, order: PartOrder, threads: int | None = None) -> tuple[Any, ...]:
    """`read_part` that raises DataError or MemoryError. threads: a worker has one, since others share its machine."""
    parts, rows = _kept_parts(state), order.rows
    parts.found(reading, order)
    room, digest, occurrences = parts.begun(reading, order), BlockDigest(), Occurrences()
    labels: list[list[tuple[Labels, NDArray[np.bool_]]]] = []
    tallies: list[Sequence[Tally]] = []
    ids: list[str] = []
    for block in reading.blocks(rows, threads):
        stored = block.stored
        digest.add(stored.features)
        if room is not None:
            room.add(_checked(stored.features).features)
        labels.append([(each.labels, each.usable) for each in stored.of_labels])
        tallies.append((*stored.tallies, *(each.tally for each in stored.others)))
        ids += block.ids
        occurrences.update(block.recoded)
    digest.digest()
    encoded = [text.encode() for text in ids]
    return (
        _placed(parts, order, room, digest, reading.d),
        order.identity(bytes(digest.blocks)),
        bytes(digest.blocks),
        tuple(tuple(map(np.concatenate, zip(*each, strict=True))) for each in zip(*labels, strict=True)),
        tuple(astuple(each) for each in summed(tallies)),
        np.array([len(each) for each in encoded], dtype=np.int64),
        b"".join(encoded),
        tuple((*place, count) for place, count in occurrences.items()),
    )


def _placed(parts: KeptParts, order: PartOrder, room: _Kept | None, digest: BlockDigest, d: int) -> str:
    """Where a part is kept whose rows were all read."""
    if room is None:
        return NOT_KEPT
    room.blocks = bytes(digest.blocks)
    parts.keep(order.number, room, 4 * d * order.rows.rows)
    return room.place


def sum_here(
    state: dict[str, Any],
    shared: tuple[Reading, RowPart, Any, Any],
    payload: tuple[PartOrder, Labels, NDArray[np.bool_], NDArray[np.int64] | None],
    threads: int | None = None,
) -> tuple[Any, ...]:
    """`sum_part` that raises DataError or MemoryError. threads: as for `read_here`."""
    reading, part, feature_map, coding = shared
    order, labels, usable, factors = payload
    parts, rows, total = _kept_parts(state), order.rows, np.zeros(part.shape, dtype=np.int64)

    def add(first: int, read: Records) -> None:
        run = slice(first, min(first + read.rows, len(usable)))
        if run.start < run.stop:
            records = read.between(0, run.stop - first).labelled(labels[run], usable[run], coding)
            records = records if feature_map is None else records.mapped(feature_map)
            if factors is None:
                part.add(total, records, rows.first_row + first)
            else:
                _add_counted(total, part, records, factors[run])

    if (kept := parts.found(reading, order)) is not None:
        # The answer is about the files as they were read. If they are others, the table is to be read again.
        rows.check()
        for first, features in kept.runs():
            add(first, Records.known(features))
        return kept.place, order.identity(kept.blocks), total
    room, digest = parts.begun(reading, order), BlockDigest()
    for first, features in _runs(reading, rows, threads):
        digest.add(features)
        if room is not None:
            room.add(features)
        add(first, _checked(features))
    digest.digest()
    return _placed(parts, order, room, digest, reading.d), order.identity(bytes(digest.blocks)), total


def _add_counted(total: NDArray[np.int64], part: RowPart, records: Records, factors: NDArray[np.int64]) -> None:
    """Add rows, each as often as its factor says: rows of equal factors together."""
    for factor in np.unique(factors[factors > 0]).tolist():
        added = np.zeros_like(total)
        part.add(added, records.at(np.flatnonzero(factors == factor)), 0)
        check_room(largest(added) * factor)
        add_exactly(total, added * factor)


def _checked(features: NDArray[np.int32]) -> Records:
    """Records of these features that have no label yet. Raises SchemaError if a value is out of range."""
    return Records(features, np.ones(len(features), dtype=np.int8), np.ones(len(features), dtype=np.bool_))


def _runs(reading: Reading, rows: TablePart, threads: int | None) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """The features of a part in runs of whole blocks, except for the last: (row in the part, features).

    A run is to be used before the next is asked for, which has the same memory.
    """
    run: NDArray[np.int32] | None = None
    first = filled = 0
    for block in reading.blocks(rows, threads):
        features, done = block.stored.features, 0
        if run is None:
            run = np.empty((min(rows.rows, _RUN_ROWS), features.shape[1]), dtype=np.int32)
        while done < len(features):
            taken = features[done : done + len(run) - filled]
            run[filled : filled + len(taken)] = taken
            filled, done = filled + len(taken), done + len(taken)
            if filled == len(run):
                yield first, run
                first, filled = first + filled, 0
    if run is not None and filled:
        yield first, run[:filled]
