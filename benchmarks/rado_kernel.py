"""Claim: exact rado sums from compiled tables are at least 8 times as fast as the product in NumPy, both on all cores.

Compared, in the same run, with NumPy: unpack the bits and multiply with BLAS on all cores. All rows and rados at once
is the obvious code; blocks of 4096 rows were the fastest of those tried (8 to 1,000 rados by 4,096 to 200,000 rows).
The same blocks on one thread per core, with BLAS on one, also parallelise the unpacking. Doubles are exact here, but
nothing checks it; single precision is faster and not exact. Each candidate gets the bits in its preferred order: NumPy
one signature per row, the tables a group of eight rows per row, as the parties draw them; `rado_sums` takes NumPy's
order on one core.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import DTypeLike, NDArray
from threadpoolctl import threadpool_info

from benchmarks.measuring import (
    MEASURE_HEADER,
    Measure,
    Report,
    Table,
    Target,
    draw_seconds,
    ratio,
    require,
    take_turns,
)
from dpcore.rados.sums import add_rado_sums, rado_sums
from dpcore.rados.support import packed_width
from dpcore.records.computation import on_threads, sum_on_threads
from dpcore.records.records import BLOCK_ROWS, Records

ROWS, COORDINATES, RADOS = 200_000, 18, 1_000
FRACTION_BITS = 16
# 4096 rows of all 1,000 rados unpack into 32 MB of doubles; everything at once into 1.6 GB.
ROWS_AT_A_TIME = 4096

LEAST_RATIO = 8

OURS = "tables"
ONE_CORE = "tables, one core"
WHOLE = "tables, one core, signatures turned first"
DOUBLE = f"NumPy float64, {ROWS_AT_A_TIME} rows at a time"
THREADS = f"NumPy float64, {ROWS_AT_A_TIME} rows a thread"
SINGLE = f"NumPy float32, {ROWS_AT_A_TIME} rows at a time, not exact"
AT_ONCE = "NumPy float64, all at once"


@dataclass(frozen=True, eq=False)
class GivenBits:
    """The sums of given edges over given bits, (ceil(m/8), n), as a part of a sum over rows."""

    edges: NDArray[np.int64]
    groups: NDArray[np.uint8]

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, d)."""
        return self.groups.shape[1], self.edges.shape[1]

    def add(self, total: NDArray[np.int64], records: Records, first_row: int) -> None:
        """Add the blocks of these rows."""
        for first in range(first_row, first_row + records.rows, BLOCK_ROWS):
            stop = min(first + BLOCK_ROWS, first_row + records.rows)
            add_rado_sums(total, self.edges[first:stop], self.groups[first // 8 : packed_width(stop)])

    def on_one_core(self, rows: Records) -> NDArray[np.int64]:
        """The total over all rows without threads."""
        total = np.zeros(self.shape, dtype=np.int64)
        self.add(total, rows, 0)
        return total


def unpack_and_multiply(
    edges: NDArray[np.int64], selection: NDArray[np.uint8], kind: DTypeLike, rows: int
) -> NDArray[np.int64]:
    """What a user would write: (n, d) sums in floating point, `rows` at a time (a multiple of 8), then rounded."""
    factor = edges.astype(kind)
    sums = np.zeros((len(selection), factor.shape[1]), dtype=kind)
    for first in range(0, len(edges), rows):
        block = factor[first : first + rows]
        packed = selection[:, first // 8 : -(-(first + len(block)) // 8)]
        bits = np.unpackbits(packed, axis=1, count=len(block), bitorder="little")
        sums += bits.astype(kind) @ block
    rounded: NDArray[np.int64] = np.rint(sums).astype(np.int64)
    return rounded


def unpack_and_multiply_on_threads(edges: NDArray[np.int64], selection: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The same in doubles, a block of rows on a thread for each core, BLAS on the thread that calls it."""

    def block(first: int) -> NDArray[np.int64]:
        rows = slice(first, first + ROWS_AT_A_TIME)
        packed = selection[:, first // 8 : (first + ROWS_AT_A_TIME) // 8]
        return unpack_and_multiply(edges[rows], packed, np.float64, ROWS_AT_A_TIME)

    # `on_threads` keeps BLAS to one thread.
    zero = np.zeros((len(selection), edges.shape[1]), dtype=np.int64)
    total: NDArray[np.int64] = sum(on_threads(block, range(0, len(edges), ROWS_AT_A_TIME)), start=zero)
    return total


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    random = np.random.default_rng(1)
    one = 1 << FRACTION_BITS
    edges = random.integers(-one, one, size=(ROWS, COORDINATES), endpoint=True)
    selection = random.integers(0, 256, size=(RADOS, packed_width(ROWS)), dtype=np.uint8)
    part = GivenBits(edges, np.ascontiguousarray(selection.T))
    # Only their number is used.
    rows = Records(np.zeros((ROWS, 1), np.int32), np.ones(ROWS, np.int8), np.ones(ROWS, bool))
    exact: dict[str, Callable[[], NDArray[np.int64]]] = {
        OURS: lambda: sum_on_threads(part, rows),
        ONE_CORE: lambda: part.on_one_core(rows),
        WHOLE: lambda: rado_sums(edges, selection),
        DOUBLE: partial(unpack_and_multiply, edges, selection, np.float64, ROWS_AT_A_TIME),
        THREADS: lambda: unpack_and_multiply_on_threads(edges, selection),
        AT_ONCE: partial(unpack_and_multiply, edges, selection, np.float64, ROWS),
    }
    single = partial(unpack_and_multiply, edges, selection, np.float32, ROWS_AT_A_TIME)
    sums = exact[OURS]()
    require(all(np.array_equal(sums, way()) for way in exact.values()), "the sums differ")
    off = int(np.abs(sums - single()).max())
    seconds = take_turns(exact | {SINGLE: single})
    measures = [Measure.of(way, "s", values) for way, values in seconds.items()]
    ratios = [ratio(f"{way} / {OURS}", seconds[way], seconds[OURS]) for way in seconds if way != OURS]
    target = next(found.median for found in ratios if found.what == f"{DOUBLE} / {OURS}")
    setting = {
        "rows": ROWS,
        "coordinates": COORDINATES,
        "rados": RADOS,
        "fraction_bits": FRACTION_BITS,
        "blas_threads": _blas_threads(),
        "largest_error_of_single_precision_units": off,
    }
    return Report(
        "rado_kernel",
        (__doc__ or "").partition("\n")[0],
        setting,
        measures,
        ratios,
        [
            Table(f"Rado sums, m={ROWS:,} d={COORDINATES} n={RADOS:,}", MEASURE_HEADER, [m.cells() for m in measures]),
            Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
        ],
        [f"Single precision is off by up to {off} units of 2^-{FRACTION_BITS}; the others agree exactly."],
        targets=[Target(f"{DOUBLE} / {OURS}", "times", LEAST_RATIO, target, at_least=True)],
    )


def _blas_threads() -> int | None:
    """Threads that NumPy's BLAS uses, None if it does not report them."""
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=None)


draw = draw_seconds
