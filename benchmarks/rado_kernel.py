"""Claim: checked, exact rado sums cost about what NumPy's best floating-point product of unpacked bits costs.

The other ways, in the same run: unpack bits and multiply with BLAS. All rados at once is what one would write first; a
few at a time is the fastest block that was found; doubles are exact here, but nothing checks it; single precision is
not exact.
"""

from functools import partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import DTypeLike, NDArray
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]  # scikit-learn brings it

from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, ratio, require, take_turns
from dpcore.rados.kernel import rado_sums
from dpcore.rados.signatures import packed_width

ROWS, COORDINATES, RADOS = 200_000, 18, 1_000
FRACTION_BITS = 16
# A block of 8 x 200,000 doubles, 13 MB; all at once is 1.6 GB.
RADOS_AT_A_TIME = 8

OURS = "rado_sums"
DOUBLE = f"NumPy float64, {RADOS_AT_A_TIME} rados at a time"
SINGLE = f"NumPy float32, {RADOS_AT_A_TIME} at a time, not exact"
AT_ONCE = "NumPy float64, all at once"


def unpack_and_multiply(
    edges: NDArray[np.int64], selection: NDArray[np.uint8], kind: DTypeLike, rados: int
) -> NDArray[np.int64]:
    """What a user would write: (n, d) sums in floating point, `rados` at a time, rounded to integers."""
    factor = edges.astype(kind)
    blocks = []
    for first in range(0, len(selection), rados):
        packed = selection[first : first + rados]
        bits = np.unpackbits(packed, axis=1, count=len(edges), bitorder="little")
        blocks.append(bits.astype(kind) @ factor)
    sums: NDArray[np.int64] = np.rint(np.concatenate(blocks)).astype(np.int64)
    return sums


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    random = np.random.default_rng(1)
    one = 1 << FRACTION_BITS
    edges = random.integers(-one, one, size=(ROWS, COORDINATES), endpoint=True)
    selection = random.integers(0, 256, size=(RADOS, packed_width(ROWS)), dtype=np.uint8)
    exact = rado_sums(edges, selection)
    require(
        bool((exact == unpack_and_multiply(edges, selection, np.float64, RADOS_AT_A_TIME)).all()), "the sums differ"
    )
    off = int(np.abs(exact - unpack_and_multiply(edges, selection, np.float32, RADOS_AT_A_TIME)).max())
    seconds = take_turns(
        {
            OURS: lambda: rado_sums(edges, selection),
            DOUBLE: partial(unpack_and_multiply, edges, selection, np.float64, RADOS_AT_A_TIME),
            SINGLE: partial(unpack_and_multiply, edges, selection, np.float32, RADOS_AT_A_TIME),
            AT_ONCE: partial(unpack_and_multiply, edges, selection, np.float64, RADOS),
        }
    )
    measures = [Measure.of(way, "s", values) for way, values in seconds.items()]
    ratios = [ratio(f"{way} / {OURS}", seconds[way], seconds[OURS]) for way in (DOUBLE, SINGLE, AT_ONCE)]
    setting = {
        "rows": ROWS,
        "coordinates": COORDINATES,
        "rados": RADOS,
        "fraction_bits": FRACTION_BITS,
        "blas_threads": _blas_threads(),
        "largest_error_of_single_precision_units": off,
    }
    tables = [
        Table(f"Rado sums, m={ROWS:,} d={COORDINATES} n={RADOS:,}", MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
    ]
    notes = [f"Single precision is off by up to {off} units of 2^-{FRACTION_BITS}; the others agree exactly."]
    return Report("rado_kernel", (__doc__ or "").partition("\n")[0], setting, measures, ratios, tables, notes)


def _blas_threads() -> int | None:
    """Threads that NumPy's BLAS uses, None where it does not tell."""
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=None)


def draw(report: Report, figure: Figure) -> None:
    """Seconds, with minimum and maximum."""
    axes = figure.subplots()
    shown = report.measures[::-1]
    spread = [[m.median - m.minimum for m in shown], [m.maximum - m.median for m in shown]]
    axes.barh([m.what for m in shown], [m.median for m in shown], xerr=spread, color="tab:blue")
    axes.set_xlabel("seconds (median, min to max)")
