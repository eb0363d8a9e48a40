"""Claim: exact sums of 10,000 predicates over a million rows take a fraction of the time of NumPy on whole columns.

Compared, in the same run, with the obvious code: the same predicates as NumPy expressions on whole columns of doubles,
one after the other, with & and | of masks and a count at the end. It is timed on the first predicates and the time is
scaled to all of them. The sums that both compute are compared.
"""

import tracemalloc
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import count

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, draw_seconds, ratio, require, take_turns
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import check, sums
from dpcore.predicates.expressions import Predicate
from dpcore.predicates.frontend import x, y
from dpcore.records.features import Label, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema

ROWS, COORDINATES, PREDICATES = 1_000_000, 20, 10_000
ONE_BY_ONE = 250
REPEATS = 2

OURS = "sums"
NUMPY = f"NumPy, whole columns, {ONE_BY_ONE} predicates scaled to all"
CHECK = "check and sensitivity"

Columns = NDArray[np.float64]
Labels = NDArray[np.int8]
Mask = Callable[[Columns, Labels], NDArray[np.bool_]]

SCHEMA = Schema(
    name="benchmark",
    label=Label(column="label", positive=("1",)),
    features=tuple(RealFeature(name=f"f{i:02}", lower=-1, upper=1) for i in range(COORDINATES - 1)),
)


def _batch(random: np.random.Generator) -> list[tuple[Predicate, Mask]]:
    """Distinct predicates of two or three comparisons or labels, and each as a NumPy function of columns (d, m)."""
    found: dict[Predicate, Mask] = {}
    while len(found) < PREDICATES:
        i, j = (int(place) for place in random.integers(COORDINATES - 1, size=2))
        # 13 bits, so that double, decimal and stored bound are the same number.
        a, b = (int(k) / (1 << 13) for k in random.integers(-(1 << 13), 1 << 13, size=2))
        first, second = x[f"f{i:02}"] >= Fraction(a), x[f"f{j:02}"] >= Fraction(b)
        kinds: list[tuple[Predicate, Mask]] = [
            (first & (y == 1), partial(_and_positive, i, a)),
            (first & ~second & (y == 1), partial(_and_not_and_positive, i, a, j, b)),
            (first | ~second, partial(_or_not, i, a, j, b)),
            (~first & (y == -1), partial(_not_and_negative, i, a)),
        ]
        predicate, mask = kinds[len(found) % len(kinds)]
        found.setdefault(predicate, mask)
    return list(found.items())


def _and_positive(i: int, a: float, columns: Columns, labels: Labels) -> NDArray[np.bool_]:
    held: NDArray[np.bool_] = (columns[i] >= a) & (labels == 1)
    return held


def _and_not_and_positive(i: int, a: float, j: int, b: float, columns: Columns, labels: Labels) -> NDArray[np.bool_]:
    held: NDArray[np.bool_] = (columns[i] >= a) & ~(columns[j] >= b) & (labels == 1)
    return held


def _or_not(i: int, a: float, j: int, b: float, columns: Columns, labels: Labels) -> NDArray[np.bool_]:
    del labels
    held: NDArray[np.bool_] = (columns[i] >= a) | ~(columns[j] >= b)
    return held


def _not_and_negative(i: int, a: float, columns: Columns, labels: Labels) -> NDArray[np.bool_]:
    held: NDArray[np.bool_] = ~(columns[i] >= a) & (labels == -1)
    return held


def _one_by_one(masks: list[Mask], columns: Columns, labels: Labels) -> list[int]:
    return [int(mask(columns, labels).sum()) for mask in masks]


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    random = np.random.default_rng(1)
    features = random.integers(-ONE, ONE, size=(ROWS, COORDINATES), dtype=np.int32, endpoint=True)
    features[:, -1] = ONE
    records = Records(features, random.choice(np.array([-1, 1], dtype=np.int8), ROWS), np.ones(ROWS, dtype=np.bool_))
    columns = np.ldexp(features.T.astype(np.float64), -30)
    predicates, masks = zip(*_batch(random), strict=True)
    naive = partial(_one_by_one, list(masks[:ONE_BY_ONE]), columns, records.labels)
    ours = partial(sums, predicates, SCHEMA, records, 0)
    require(ours()[:ONE_BY_ONE].tolist() == naive(), "the sums differ")
    seconds = take_turns(
        {
            OURS: ours,
            NUMPY: naive,
            CHECK: partial(_checked, predicates),
        },
        REPEATS,
    )
    seconds[NUMPY] = [value * PREDICATES / ONE_BY_ONE for value in seconds[NUMPY]]
    measures = [Measure.of(way, "s", values) for way, values in seconds.items()]
    ratios = [ratio(f"{way} / {OURS}", seconds[way], seconds[OURS]) for way in (NUMPY,)]
    peak = _peak_bytes(ours)
    setting = {
        "rows": ROWS,
        "coordinates": COORDINATES,
        "predicates": PREDICATES,
        "predicates_one_by_one": ONE_BY_ONE,
        "peak_bytes_besides_records": peak,
    }
    title = f"Sums of predicates, m={ROWS:,} d={COORDINATES} M={PREDICATES:,}"
    tables = [
        Table(title, MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
    ]
    notes = [f"Besides the records' {records.features.nbytes / 2**20:.0f} MiB, sums took up to {peak / 2**20:.0f} MiB."]
    return Report("predicates", (__doc__ or "").partition("\n")[0], setting, measures, ratios, tables, notes)


def _checked(predicates: Sequence[Predicate]) -> None:
    check(predicates, SCHEMA)
    # Results are cached: a batch in another order is another batch.
    shift = next(_SHIFTS)
    batch_sensitivity([*predicates[shift:], *predicates[:shift]])


_SHIFTS = count(1)


def _peak_bytes(work: Callable[[], object]) -> int:
    """The peak memory of Python and NumPy, above that at the start."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


draw = draw_seconds
