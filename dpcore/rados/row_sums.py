"""Sums over a party's rows, run by run: on threads here; where somebody has more machines, on those.

What is summed over rows is independent of how rows are cut, because it is integers: any cut into runs of whole blocks,
in any order, on any machine, gives the same total bit for bit.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpcore.rados.edges import BLOCK_ROWS, Records

Progress = Callable[[int, int], None]
"""Told (rows done, rows). It may raise to stop the work."""

RUN_BLOCKS = 16
"""Blocks of BLOCK_ROWS rows that one step takes: the grain of progress and of sharing."""


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

        records: consecutive rows of the party's, the first of which is its row `first_row`, a multiple of BLOCK_ROWS.
        """
        ...


class RowSums(Protocol):
    """How a part is summed over all rows."""

    def __call__(self, part: RowPart, records: Records, progress: Progress | None = None) -> NDArray[np.int64]:
        """The total over all rows: int64, `part.shape`. Raises what the part or `progress` raises."""
        ...


def sum_on_threads(part: RowPart, records: Records, progress: Progress | None = None) -> NDArray[np.int64]:
    """The total over all rows, runs of blocks on a thread for each processor."""
    run_rows = RUN_BLOCKS * BLOCK_ROWS
    starts = range(0, records.rows, run_rows)
    threads = min(os.cpu_count() or 1, len(starts))
    totals = [np.zeros(part.shape, dtype=np.int64) for _ in range(threads)]
    free = list(totals)

    def run(first_row: int) -> int:
        total = free.pop()
        try:
            part.add(total, records.between(first_row, first_row + run_rows), first_row)
        finally:
            free.append(total)
        return min(run_rows, records.rows - first_row)

    done = 0
    with ThreadPoolExecutor(threads) as pool:
        try:
            for rows in pool.map(run, starts):
                done += rows
                if progress is not None:
                    progress(done, records.rows)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return np.asarray(np.sum(totals, axis=0))
