"""What a party's computation over its records uses: randomness, its secret, row sums and progress."""

import hmac
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import ConfigurationError
from dpcore.numbers.fixed_point import check_room, largest
from dpcore.numbers.processors import one_blas_thread, processors
from dpcore.numbers.progress import Progress
from dpcore.randomness.sources import RandomSource
from dpcore.records.held_back import RowNumbers
from dpcore.records.persons import PersonRows
from dpcore.records.records import BLOCK_ROWS, Records

# Sums over a party's rows, run by run, on threads. They are integers, so the total is the same for any runs of whole
# blocks, in any order, on any machine.


RUN_BLOCKS = 16
"""The most blocks of BLOCK_ROWS rows per step, which is the unit of progress and of work for threads."""

# Steps per thread, so that no thread waits long for the last one.
_STEPS_EACH = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


class RowPart(Protocol):
    """What a run of rows adds to the total of this shape. Pickled for other processes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the total."""
        ...

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:
        """Add the sum of these rows to `total` in place. Thread-safe if each thread has its own total.

        records: whole blocks of BLOCK_ROWS rows from `first_row` on, except for the party's last block.
        """
        ...


class RowSums(Protocol):
    """Sums a part over all rows."""

    def __call__(self, part: RowPart, records: Records, progress: Progress | None = None) -> NDArray[np.int64]:
        """The total over all rows: int64, `part.shape`. Raises what the part or `progress` raises."""
        ...


SumOverRows: TypeAlias = Callable[[RowPart, Records], NDArray[np.int64]]
"""A `RowSums` without progress, or a Computation's `total`."""


def on_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
    """The results of `function` for each item, in order, computed on one thread per processor; on none for one item.

    Closing the generator, or an error, stops the work: items that have not started are skipped, and no thread is left
    running. BLAS uses one thread meanwhile, also on one processor, because other processes may share it.
    """
    threads = min(processors(), len(items))
    with one_blas_thread():
        if threads <= 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(threads) as pool:
            # `map` cancels items that have not started when it is closed or fails. Leaving the pool waits for the rest.
            yield from pool.map(one_blas_thread()(function), items)


def sum_on_threads(part: RowPart, records: Records, progress: Progress | None = None) -> NDArray[np.int64]:
    """The total over all rows, computed in runs of blocks on one thread per processor."""
    blocks = -(-records.rows // BLOCK_ROWS)
    run_rows = BLOCK_ROWS * min(RUN_BLOCKS, -(-blocks // (_STEPS_EACH * processors())))
    # A thread takes a free total and puts it back: there are as many as threads, and no two threads share one.
    free: list[NDArray[np.int64]] = []

    def run(first_row: int) -> int:
        try:
            total = free.pop()
        except IndexError:
            total = np.zeros(part.shape, dtype=np.int64)
        part.add(total, records.between(first_row, first_row + run_rows), first_row)
        free.append(total)
        return min(run_rows, records.rows - first_row)

    done = 0
    with closing(on_threads(run, range(0, records.rows, run_rows))) as runs:
        for rows in runs:
            done += rows
            if progress is not None:
                progress(done, records.rows)
    whole = free.pop()
    for total in free:
        add_exactly(whole, total)
    return whole


class SummedKind(Protocol):
    """A kind of query whose contribution without noise is a sum over rows."""

    def sums(self, records: Records, fraction_bits: int, progress: Progress | None = None, /) -> NDArray[np.int64]:
        """The contribution without noise, of any of the rows."""
        ...


@dataclass(frozen=True)
class SumsPart:
    """A RowPart: what `kind.sums` adds for a run of rows."""

    kind: SummedKind
    fraction_bits: int
    length: int

    @property
    def shape(self) -> tuple[int, ...]:
        """See `RowPart`."""
        return (self.length,)

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:  # noqa: ARG002  (any rows)
        """See `RowPart`."""
        add_exactly(total, self.kind.sums(records, self.fraction_bits))


def add_exactly(total: NDArray[np.int64], added: NDArray[np.int64]) -> None:
    """Add the sum of some rows to a total, in place. Both are int64 of the same shape. Raises SlotOverflowError."""
    check_room(largest(total) + largest(added))
    total += added


SECRET_BYTES = 32
_DATA = b"rado.v1/data-digest\0"
_EPOCH = b"rado.v1/row-epoch\0"


@dataclass(frozen=True)
class PartySecret:
    """The secret of a party's pseudorandom function (HMAC-SHA-256), from which its repeatable draws derive.

    One-bit rounding and the noise of a noised table repeat their draws.

    Raises ConfigurationError if the secret is shorter.
    """

    secret: bytes = field(repr=False)
    """At least 32 bytes that the party keeps for the lifetime of its data and shares with no one."""
    schema_digest: bytes
    """Digest of the schema that encodes the records."""

    def __post_init__(self) -> None:
        if len(self.secret) < SECRET_BYTES:
            raise ConfigurationError(f"a party's secret has {len(self.secret)} bytes; it needs {SECRET_BYTES} or more")

    def key(self, domain: bytes, message: bytes) -> bytes:
        """The 32-byte key for one purpose under this schema. domain: unique to the purpose, ends in a zero byte."""
        return hmac.digest(self.secret, domain + self.schema_digest + message, "sha256")

    def of_epoch(self, name: str) -> "PartySecret":
        """The secret for one epoch's rows: equal rows of two epochs, or of an epoch and all rows, draw independently.

        With one draw for both, the answers about one epoch would depend on the rows of another.
        """
        return replace(self, secret=self.key(_EPOCH, name.encode()))

    def data_digest(self, digest: bytes) -> str:
        """What identifies the party's data to its people: 64 hexadecimal digits, which confirm no guess of the rows."""
        return self.key(_DATA, digest).hex()


@dataclass(frozen=True)
class Computation:
    """The inputs of a party's contribution to a query, besides its records. Each kind uses those that it needs."""

    random: RandomSource
    """Source of noise and rado signatures; the operating system's at a node."""
    secret: PartySecret | None = None
    """For draws that repeat."""
    row_sums: RowSums = sum_on_threads
    """Sums over rows, on threads or on the party's cluster; it does not change the result."""
    progress: Progress | None = None
    """Callback `(rows done, m_p)`, which may raise to stop the computation."""
    numbers: RowNumbers | None = None
    """The rows' numbers, for a part of the rows."""

    def sums(self, kind: "SummedKind", records: Records, fraction_bits: int, length: int) -> NDArray[np.int64]:
        """`kind.sums` of these records: where the rows are, if they are elsewhere, else on one thread: int64 (length,).

        Raises what `kind.sums` and the row sums raise.
        """
        if records.are_elsewhere:
            return self.total(SumsPart(kind, fraction_bits, length), records)
        return kind.sums(records, fraction_bits, self.progress)

    @property
    def persons(self) -> PersonRows:
        """Which rows are whose. Raises ConfigurationError if rows have no ids."""
        if self.numbers is None or self.numbers.by_id is None:
            raise ConfigurationError("the rows have no ids, so it is not known whose they are: give the party's")
        return PersonRows(self.numbers.by_id)

    def total(self, part: RowPart, records: Records) -> NDArray[np.int64]:
        """The sum of a part over all rows: int64, `part.shape`."""
        return self.row_sums(part, records, self.progress)
