"""Sums over a party's rows, run by run: on threads here; where somebody has more machines, on those.

What is summed over rows is independent of how rows are cut, because it is integers: any cut into runs of whole blocks,
in any order, on any machine, gives the same total bit for bit.
"""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpcore.numbers.integer_bounds import check_room, largest
from dpcore.numbers.processors import one_blas_thread, processors
from dpcore.progress import Progress
from dpcore.records.records import BLOCK_ROWS, Records

RUN_BLOCKS = 16
"""Blocks of BLOCK_ROWS rows that one step takes at most: the grain of progress and of sharing."""

# Steps for each thread, so that none waits long for the last one.
_STEPS_EACH = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


class RowPart(Protocol):
    """What a run of rows adds to the total. It can be pickled, so that another process can compute it.

    shape: of the total.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the total."""
        ...

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:
        """Add what these rows give to `total`, in place. Safe to call from several threads, each with its own total.

        records: consecutive rows of the party's, the first of which is its row `first_row`, a multiple of BLOCK_ROWS;
        whole blocks of BLOCK_ROWS, but for the party's last.
        """
        ...


class RowSums(Protocol):
    """How a part is summed over all rows."""

    def __call__(self, part: RowPart, records: Records, progress: Progress | None = None) -> NDArray[np.int64]:
        """The total over all rows: int64, `part.shape`. Raises what the part or `progress` raises."""
        ...


SumOverRows: TypeAlias = Callable[[RowPart, Records], NDArray[np.int64]]
"""A `RowSums` whose progress is somebody else's business, or a Computation's `total`."""


def on_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result]:
    """What `function` gives for each item, in order, computed on a thread for each processor; on none for one item.

    Whoever stops taking results, by an error or otherwise, stops the work: items that were not begun are left out, and
    no thread is left running. BLAS has one thread meanwhile, on one processor too: other processes may share it.
    """
    threads = min(processors(), len(items))
    with one_blas_thread():
        if threads <= 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(threads) as pool:
            # `map` cancels what was not begun when it is closed or fails; leaving the pool waits for the rest.
            yield from pool.map(one_blas_thread()(function), items)


def sum_on_threads(part: RowPart, records: Records, progress: Progress | None = None) -> NDArray[np.int64]:
    """The total over all rows, runs of blocks on a thread for each processor."""
    blocks = -(-records.rows // BLOCK_ROWS)
    run_rows = BLOCK_ROWS * min(RUN_BLOCKS, -(-blocks // (_STEPS_EACH * processors())))
    # A thread takes a total that is free and puts it back, so there are as many as threads and none is used by two.
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


def add_exactly(total: NDArray[np.int64], added: NDArray[np.int64]) -> None:
    """Add to a total what some of the rows gave, in place. Both: int64, of one shape.

    Each may be exact and their sum not: raises SlotOverflowError where that might leave int64; the total is then as it
    was.
    """
    check_room(largest(total) + largest(added))
    total += added
