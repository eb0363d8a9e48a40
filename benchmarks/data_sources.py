"""Claim: 5,000,000 x 18 come from PostgreSQL into a contribution at no less than half the speed of Parquet's rows.

And in less than 512 MiB above the process before, with the records themselves. The contribution is 1,000 rados of
design plain, before its encryption, whose time does not depend on the rows. The way to records alone is measured too,
and has the same target. The server is one of its own on loopback, with the settings of a fresh installation except that
it forces nothing to disk; it was just filled, as the file was just written. Each candidate runs in its own process,
which imports its dependencies before the clock starts. Processor time is that of the process and of the server, which
share the processors. The digests of the records are compared.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import adbc_driver_postgresql.dbapi  # imported before the clock starts
import numpy as np
from matplotlib.figure import Figure

from benchmarks.data_path import FILES, NAMES, REALS, REPEATS, ROWS, SCHEMA, peak_bytes, write
from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, Target, draw_seconds, ratio, require
from dpcore.numbers.processors import one_blas_thread
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs.base import PlainDesign
from dpcore.randomness.sources import SystemRandom
from dpcore.records.computation import Computation
from dpcore.records.records import Records
from parties.data.dataset import load
from radobase.tables.database_source import DatabaseSource
from tests.postgresql import PROGRAMS, PostgreSqlServer

PARQUET, POSTGRESQL = "Parquet", "PostgreSQL"
MOST_MIB = 512
RADOS, FRACTION_BITS = 1_000, 24
_TICKS_S = os.sysconf("SC_CLK_TCK")


def _fill(server: PostgreSqlServer, file: Path) -> None:
    columns = [f"{name} {'float8' if place < REALS else 'int4'}" for place, name in enumerate([*NAMES, "label"])]
    server.execute(
        f"CREATE TABLE patients ({', '.join(columns)})",
        f"COPY patients FROM '{file}' CSV HEADER",
        "VACUUM (FREEZE, ANALYZE) patients",
    )


def _measured(address: str, server: Path) -> dict[str, float | str]:
    """Seconds, processor time, peak bytes above those at the start, and the digest, measured in a new process."""
    before = _processor_s(server)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.data_sources", address], capture_output=True, text=True, check=True
    )
    time.sleep(0.5)  # until the server has collected the session's process
    found: dict[str, float | str] = json.loads(done.stdout)
    return {**found, "processor": float(found["processor"]) + _processor_s(server) - before}


def _processor_s(server: Path) -> float:
    """Processor time of the server's processes that have ended (proc(5): cutime and cstime)."""
    process = (server / "data/postmaster.pid").read_text().partition("\n")[0]
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / _TICKS_S


def _work(address: str) -> None:
    is_file = address.endswith(".parquet")
    source = Path(address) if is_file else DatabaseSource.of(address, "SELECT * FROM patients")
    query = RadosQuery(RADOS, PlainDesign())
    # The compiled kernel, as a node loads it before it is ready.
    _contribution(query, Records(np.zeros((2, SCHEMA.d), np.int32), np.ones(2, np.int8), np.ones(2, np.bool_)))
    before, start, used = peak_bytes(), time.perf_counter(), time.process_time()
    records = load(source, SCHEMA).records
    seconds, processor = time.perf_counter() - start, time.process_time() - used
    peak = peak_bytes() - before
    _contribution(query, records)
    whole, whole_peak = time.perf_counter() - start, peak_bytes() - before
    found = {"seconds": seconds, "processor": processor, "bytes": peak, "whole": whole, "whole_bytes": whole_peak}
    print(json.dumps({**found, "digest": records.digest.hex()}))


def _contribution(query: RadosQuery, records: Records) -> None:
    with one_blas_thread():
        query.contribution(records, FRACTION_BITS, Computation(SystemRandom()))


def run(*, everything: bool = False) -> Report:  # noqa: ARG001 - every benchmark takes it; this one has one size
    return measure(ROWS)


def measure(rows: int) -> Report:
    """The report for a table of this many rows."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        directory.chmod(0o711)  # the server's user reads the file
        write(directory, rows)
        (directory / "server").mkdir()
        require(PROGRAMS is not None, "PostgreSQL's server is not installed")
        server = PostgreSqlServer(directory / "server")
        try:
            _fill(server, directory / FILES[1])
            (directory / FILES[1]).unlink()
            addresses = {PARQUET: str(directory / FILES[0]), POSTGRESQL: server.address()}
            return _report(addresses, directory / "server", rows)
        finally:
            server.end()
            shutil.rmtree(directory / "server")


def _report(addresses: dict[str, str], server: Path, rows: int) -> Report:
    found: dict[str, list[dict[str, float | str]]] = {way: [] for way in addresses}
    for _ in range(REPEATS):
        for way, address in addresses.items():
            found[way].append(_measured(address, server))
    digests = {one["digest"] for ones in found.values() for one in ones}
    require(len(digests) == 1, "the records differ")
    records_mib = rows * (4 * SCHEMA.d + 2) / 2**20

    def values(way: str, what: str) -> list[float]:
        return [float(one[what]) / (2**20 if "bytes" in what else 1) for one in found[way]]

    kinds = {
        "records": ("seconds", "s"),
        "contribution": ("whole", "s"),
        "records, processor time": ("processor", "s"),
        "peak memory": ("whole_bytes", "MiB"),
    }
    measures = {
        what: [Measure.of(f"{way}, {what}", unit, values(way, key)) for way in addresses]
        for what, (key, unit) in kinds.items()
    }
    ratios = {
        what: ratio(f"{POSTGRESQL} / {PARQUET}, {what}", values(POSTGRESQL, key), values(PARQUET, key))
        for what, (key, unit) in kinds.items()
        if unit == "s"
    }
    speeds = [
        Target(f"speed from PostgreSQL to {what} relative to Parquet", "", 0.5, 1 / ratios[what].median, at_least=True)
        for what in ("contribution", "records")
    ]
    peak = measures["peak memory"][-1].median
    memory = Target("peak memory from PostgreSQL above the process before", "MiB", MOST_MIB, peak, at_least=False)
    listed = [measure for ones in measures.values() for measure in ones]
    title = f"From a database to records and a contribution, m={rows:,} d={SCHEMA.d}"
    tables = [
        Table(title, MEASURE_HEADER, [m.cells() for m in listed]),
        Table("Ratios", MEASURE_HEADER, [one.cells() for one in ratios.values()]),
    ]
    notes = [f"The records alone take {records_mib:.0f} MiB.", "Processor time includes the server's."]
    setting = {"rows": rows, "coordinates": SCHEMA.d, "rados": RADOS, "driver": adbc_driver_postgresql.__version__}
    claim = (__doc__ or "").partition("\n")[0]
    return Report("data_sources", claim, setting, listed, [*ratios.values()], tables, notes, [*speeds, memory])


def draw(report: Report, figure: Figure) -> None:
    """The times, without the memory."""
    draw_seconds(replace(report, measures=[m for m in report.measures if m.unit == "s"]), figure)


if __name__ == "__main__":
    _work(sys.argv[1])
