"""Claim: a table four times as large as the memory limit is read and summed in twice the time of one machine, at most.

The table is one of Parquet files. What is measured is what a training by `newton` asks: reading it, moments, and eight
gradients. Beside each other, in the same run and in turn:

- one machine with memory enough;
- one machine that keeps the records on disk (`rows_on_disk`), within the limit;
- a Ray cluster on this machine whose workers read the table (`reads_table`), each within the limit, as the node is.
  They keep two fifths of the limit in memory, and the rest on disk (`worker_disk`), or nowhere, and read it again.

The limit is Linux's RLIMIT_DATA, a quarter of the records' size beyond what a process has after its start: what it
allocates beyond that fails. Files that are read or mapped do not count, as the system may drop them from its memory. It
need not here, so disks are faster than those of a machine whose memory is full. The start of the cluster's workers,
which stay as long as their node, is reported beside the ratio. All digests of data and sums are compared.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, Target, ratio, require
from dpcore.records.features import Label, RealFeature
from dpcore.records.schema import Schema
from tests.parties.data.limited import GRADIENTS
from tests.ray_nodes import ROOT, RayNodes

ROWS, FILES, REALS, COUNTS = 8_000_000, 8, 12, 12
GROUP_ROWS = 200_000
WORKERS = 2
REPEATS = 3
MOST_RATIO = 2.0
MEMORY, DISK, KEPT, AGAIN = (
    "one machine, memory enough",
    "one machine, records on disk",
    "cluster, rest on the workers' disks",
    "cluster, rest read again for each sum",
)


def write(directory: Path, rows: int) -> int:
    """The table, a small one of the same columns, and their schema. Returns the bytes of the table's records."""
    names = [*(f"real{place:02}" for place in range(REALS)), *(f"count{place:02}" for place in range(COUNTS))]
    bounds = dict.fromkeys(names[:REALS], (-1.0, 1.0)) | dict.fromkeys(names[REALS:], (0.0, 100.0))
    features = tuple(RealFeature(name=name, column=name, lower=low, upper=up) for name, (low, up) in bounds.items())
    label = Label(column="y", positive=("yes",), negative=("no",))
    schema = Schema(name="large", label=label, features=features, bias=True)
    (directory / "schema.toml").write_text(schema.to_toml())
    (directory / "many").mkdir()
    for number in range(FILES):
        _write(directory / "many" / f"{number}.parquet", rows // FILES, number, names)
    _write(directory / "few.parquet", 5000, FILES, names)
    return 4 * schema.d * (rows // FILES) * FILES


def _write(path: Path, rows: int, seed: int, names: list[str]) -> None:
    random = np.random.default_rng(seed)
    columns: dict[str, np.ndarray] = {name: random.uniform(-1, 1, rows).astype(np.float32) for name in names[:REALS]}
    columns |= {name: random.integers(0, 100, rows).astype(np.int16) for name in names[REALS:]}
    columns["y"] = np.where(columns[names[0]] + random.normal(0, 0.5, rows) > 0, "yes", "no")
    pq.write_table(pa.table(columns), path, row_group_size=GROUP_ROWS)


def _measured(place: str, directory: Path, limit_bytes: int, **cluster: object) -> dict[str, float | str]:
    """Seconds and what was said by a new process."""
    settings = [f"{name}={value}" for name, value in cluster.items()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.parties.data.limited", place, directory, str(limit_bytes), *settings],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float | str] = json.loads(done.stdout)
    require("read_s" in found, f"{place}: {found['said']}")
    return {**found, "seconds": float(found["read_s"]) + float(found["sums_s"])}


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    return measure(ROWS, REPEATS)


def measure(rows: int, repeats: int) -> Report:
    """The report for a table of this many rows."""
    found: dict[str, list[dict[str, float | str]]] = {way: [] for way in (MEMORY, DISK, KEPT, AGAIN)}
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        record_bytes = write(directory, rows)
        limit_bytes = record_bytes // 4
        nodes = RayNodes(directory, nodes=WORKERS)
        cluster = {"address": nodes.address, "token_file": nodes.token_file, "workers": WORKERS}
        cluster["worker_memory_bytes"] = limit_bytes * 2 // 5
        try:
            for _ in range(repeats):
                found[MEMORY].append(_measured("memory", directory, 2 * record_bytes))
                found[DISK].append(_measured("disk", directory, limit_bytes))
                found[KEPT].append(_measured("cluster", directory, limit_bytes, **cluster, worker_disk=directory))
                found[AGAIN].append(_measured("cluster", directory, limit_bytes, **cluster))
        finally:
            nodes.end()
    require(len({one["said"] for ones in found.values() for one in ones}) == 1, "digests or sums differ")
    return _report(found, rows, record_bytes, limit_bytes)


def _report(found: dict[str, list[dict[str, float | str]]], rows: int, record_bytes: int, limit_bytes: int) -> Report:
    def values(way: str, what: str) -> list[float]:
        return [float(one[what]) for one in found[way]]

    measures = [
        Measure.of(f"{way}: {what}", "s", values(way, key))
        for way in found
        for key, what in (("start_s", "start"), ("read_s", "reading"), ("sums_s", f"{1 + GRADIENTS} sums"))
    ]
    ratios = {
        (way, key): ratio(f"{way}{what}", values(way, key), values(MEMORY, key))
        for key, what in (("seconds", ""), ("processor_s", ", processor time"))
        for way in (DISK, KEPT, AGAIN)
    }
    tables = [
        Table(
            f"{rows:,} rows, {record_bytes / 1e6:.0f} MB of records, a limit of {limit_bytes / 1e6:.0f} MB",
            MEASURE_HEADER,
            [one.cells() for one in measures],
        ),
        Table(
            f"Reading and {1 + GRADIENTS} sums, beside {MEMORY}",
            MEASURE_HEADER,
            [one.cells() for one in ratios.values()],
        ),
    ]
    targets = [
        Target(f"{way}, beside {MEMORY}", "times", MOST_RATIO, ratios[way, "seconds"].median, at_least=False)
        for way in (DISK, KEPT)
    ]
    notes = ["The limit is RLIMIT_DATA of the node and of each worker. The start is no part of the ratios."]
    for way in (KEPT, AGAIN):
        one = found[way][-1]
        notes.append(f"{way}: {one['in_memory']} of {one['parts']} parts in memory, {one['on_disk']} on disk.")
    setting = {"rows": rows, "record_bytes": record_bytes, "limit_bytes": limit_bytes, "workers": WORKERS}
    claim = (__doc__ or "").partition("\n")[0]
    return Report("larger_tables", claim, setting, measures, [*ratios.values()], tables, notes, targets)


def draw(report: Report, figure: Figure) -> None:
    """The ratios, with minimum and maximum."""
    axes = figure.subplots()
    shown = report.ratios[::-1]
    spread = [[m.median - m.minimum for m in shown], [m.maximum - m.median for m in shown]]
    axes.barh([m.what for m in shown], [m.median for m in shown], xerr=spread, color="tab:blue")
    axes.axvline(MOST_RATIO, linestyle=":")
    axes.set_xlabel(f"times {MEMORY} (median, min to max)")
