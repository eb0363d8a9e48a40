"""Claim: a file of 5,000,000 x 18 becomes checked records in seconds, in little more memory than the records take.

Compared, in the same run, with what a user would write: pyarrow's whole table, its columns stacked into a NumPy matrix
of doubles, and scikit-learn's MinMaxScaler. That rejects no cell, counts nothing, takes the bounds from the data, and
does not notice a file that changes during the read. Each candidate runs in its own process, which imports its
dependencies before the clock starts; the file was just written, so it is in memory. Column sums are compared.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.preprocessing import MinMaxScaler

from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, draw_seconds, ratio, require
from dpcore.numbers.fixed_point import ONE
from dpcore.records.features import Label, RealFeature
from dpcore.records.schema import Schema
from parties.data.dataset import load

ROWS, REALS, COUNTS = 5_000_000, 12, 5
WRITTEN_ROWS = 250_000
MOST_COUNT = 100
REPEATS = 3

SCHEMA = Schema(
    name="benchmark",
    label=Label(column="label", positive=("1",), negative=("0",)),
    features=(
        *(RealFeature(name=f"real{i:02}", lower=-1, upper=1) for i in range(REALS)),
        *(RealFeature(name=f"count{i}", lower=0, upper=MOST_COUNT) for i in range(COUNTS)),
    ),
)
NAMES = [feature.column for feature in SCHEMA.features]

OURS, THEIRS = "load", "pyarrow, all at once, and MinMaxScaler"
FILES = ("data.parquet", "data.csv")


def write(directory: Path, rows: int) -> None:
    """The same table as Parquet and as CSV: reals of six decimals, counts, and a label."""
    random = np.random.default_rng(1)
    parquet = csv = None
    for first in range(0, rows, WRITTEN_ROWS):
        here = min(WRITTEN_ROWS, rows - first)
        columns: dict[str, NDArray[np.generic]] = {}
        for name in NAMES[:REALS]:
            columns[name] = np.round(random.uniform(-1, 1, here), 6)
        for name in NAMES[REALS:]:
            columns[name] = random.integers(0, MOST_COUNT, here, endpoint=True)
        for name, column in columns.items():
            # Makes the data's own bounds, which MinMaxScaler uses, equal to the schema's.
            column[:2] = (-1, 1) if name in NAMES[:REALS] else (0, MOST_COUNT)
        table = pa.table({**columns, "label": random.integers(0, 2, here)})
        if parquet is None or csv is None:
            parquet = pq.ParquetWriter(directory / FILES[0], table.schema)
            csv = pa.csv.CSVWriter(directory / FILES[1], table.schema)
        parquet.write_table(table)
        csv.write_table(table)
    assert parquet is not None
    assert csv is not None
    parquet.close()
    csv.close()


def _ours(path: Path) -> NDArray[np.float64]:
    records = load(path, SCHEMA).records
    return np.append(
        np.asarray(records.features[:, :-1].sum(axis=0, dtype=np.int64)) / ONE, records.labels.sum(dtype=int)
    )


def _theirs(path: Path) -> NDArray[np.float64]:
    table = pq.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
    x = np.column_stack([table[name].to_numpy() for name in NAMES])
    x = MinMaxScaler(feature_range=(-1, 1), copy=False).fit_transform(x)
    y = np.where(table["label"].to_numpy() == 1, 1, -1).astype(np.int8)
    return np.append(x.sum(axis=0), y.sum(dtype=int))


WAYS: dict[str, Callable[[Path], NDArray[np.float64]]] = {OURS: _ours, THEIRS: _theirs}


def peak_bytes() -> int:
    """The peak memory of this process, from Linux's /proc."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def _measured(way: str, path: Path) -> dict[str, object]:
    """Seconds, peak bytes above those at the start, and the columns' sums, measured in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.data_path", way, str(path)], capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def _work(way: str, path: Path) -> None:
    """The work of the measuring process: prints its result as JSON on standard output."""
    before, start = peak_bytes(), time.perf_counter()
    sums = WAYS[way](path)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "bytes": peak_bytes() - before, "sums": sums.tolist()}))


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        write(directory, ROWS)
        return _report(directory)


def _report(directory: Path) -> Report:
    measures, ratios = [], []
    rates = []
    file_bytes = {name: (directory / name).stat().st_size for name in FILES}
    record_bytes = ROWS * (4 * SCHEMA.d + 2)
    for name in FILES:
        found = {way: [] for way in WAYS}  # type: dict[str, list[dict[str, object]]]
        for _ in range(REPEATS):
            for way in WAYS:
                found[way].append(_measured(way, directory / name))
        ours, theirs = (np.array(found[way][0]["sums"]) for way in WAYS)
        # Storing truncates each value by less than 2^-30.
        require(bool((np.abs(ours - theirs) <= ROWS * 2.0**-30 + 1e-3).all()), "the sums of the columns differ")
        kind = Path(name).suffix.removeprefix(".")
        seconds = {way: [float(str(one["seconds"])) for one in found[way]] for way in WAYS}
        held = {way: [float(str(one["bytes"])) / 2**20 for one in found[way]] for way in WAYS}
        measures += [Measure.of(f"{kind}: {way}", "s", seconds[way]) for way in WAYS]
        measures += [Measure.of(f"{kind}: {way}, peak memory", "MiB", held[way]) for way in WAYS]
        ratios += [
            ratio(f"{kind}: {THEIRS} / {OURS}, seconds", seconds[THEIRS], seconds[OURS]),
            ratio(f"{kind}: {THEIRS} / {OURS}, peak memory", held[THEIRS], held[OURS]),
        ]
        rates.append(f"{kind} {ROWS / Measure.of('', '', seconds[OURS]).median / 1e6:.1f} million rows a second")
    setting = {"rows": ROWS, "coordinates": SCHEMA.d, "file_bytes": file_bytes, "record_bytes": record_bytes}
    title = f"From a file to records, m={ROWS:,} d={SCHEMA.d}"
    tables = [
        Table(title, MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Ratios", MEASURE_HEADER, [r.cells() for r in ratios]),
    ]
    notes = [
        f"{OURS} reads {', '.join(rates)}; the records alone take {record_bytes / 2**20:.0f} MiB.",
        "Peak memory is the peak of the process above its memory after its imports.",
    ]
    return Report("data_path", (__doc__ or "").partition("\n")[0], setting, measures, ratios, tables, notes)


def draw(report: Report, figure: Figure) -> None:
    """The times, without the memory."""
    draw_seconds(replace(report, measures=[m for m in report.measures if m.unit == "s"]), figure)


if __name__ == "__main__":
    _work(sys.argv[1], Path(sys.argv[2]))
