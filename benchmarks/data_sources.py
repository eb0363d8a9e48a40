"""Claim: 5,000,000 x 18 come from PostgreSQL into records at no less than half the speed of the same rows from Parquet.

And in less than 512 MiB above the process before, beside the records themselves. The server is one of its own on
loopback, with the settings of a fresh installation except that it forces nothing to disk; it was just filled, as the
file was just written. Each candidate runs in its own process, which imports its dependencies before the clock starts.
The digests of the records are compared.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import adbc_driver_postgresql.dbapi  # imported before the clock starts
from matplotlib.figure import Figure

from benchmarks.data_path import FILES, NAMES, REALS, REPEATS, ROWS, SCHEMA, peak_bytes, write
from benchmarks.measuring import MEASURE_HEADER, Measure, Report, Table, Target, draw_seconds, ratio, require
from parties.data.dataset import load
from radofed.common.tables.databases.source import DatabaseSource
from tests.postgresql import PROGRAMS, PostgreSqlServer

PARQUET, POSTGRESQL = "Parquet", "PostgreSQL"
MOST_MIB = 512


def _fill(server: PostgreSqlServer, file: Path) -> None:
    columns = [f"{name} {'float8' if place < REALS else 'int4'}" for place, name in enumerate([*NAMES, "label"])]
    server.execute(
        f"CREATE TABLE patients ({', '.join(columns)})",
        f"COPY patients FROM '{file}' CSV HEADER",
        "VACUUM (FREEZE, ANALYZE) patients",
    )


def _measured(address: str) -> dict[str, str]:
    """Seconds, peak bytes above those at the start, and the digest of the records, measured in a new process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.data_sources", address], capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _work(address: str) -> None:
    is_file = address.endswith(".parquet")
    source = Path(address) if is_file else DatabaseSource.of(address, "SELECT * FROM patients")
    before, start = peak_bytes(), time.perf_counter()
    records = load(source, SCHEMA).records
    seconds, peak = time.perf_counter() - start, peak_bytes() - before
    print(json.dumps({"seconds": str(seconds), "bytes": str(peak), "digest": records.digest.hex()}))


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
            return _report({PARQUET: str(directory / FILES[0]), POSTGRESQL: server.address()}, rows)
        finally:
            server.end()
            shutil.rmtree(directory / "server")


def _report(addresses: dict[str, str], rows: int) -> Report:
    found: dict[str, list[dict[str, str]]] = {way: [] for way in addresses}
    for _ in range(REPEATS):
        for way, address in addresses.items():
            found[way].append(_measured(address))
    digests = {one["digest"] for ones in found.values() for one in ones}
    require(len(digests) == 1, "the records differ")
    records_mib = rows * (4 * SCHEMA.d + 2) / 2**20
    seconds = {way: [float(one["seconds"]) for one in ones] for way, ones in found.items()}
    beside = {way: [float(one["bytes"]) / 2**20 - records_mib for one in ones] for way, ones in found.items()}
    measures = [Measure.of(way, "s", seconds[way]) for way in addresses]
    measures += [Measure.of(f"{way}, peak memory beside the records", "MiB", beside[way]) for way in addresses]
    slower = ratio(f"{POSTGRESQL} / {PARQUET}, seconds", seconds[POSTGRESQL], seconds[PARQUET])
    memory = measures[-1]
    targets = [
        Target("speed from PostgreSQL relative to Parquet", "", 0.5, 1 / slower.median, at_least=True),
        Target("peak memory from PostgreSQL beside the records", "MiB", MOST_MIB, memory.median, at_least=False),
    ]
    title = f"From a database to records, m={rows:,} d={SCHEMA.d}"
    tables = [
        Table(title, MEASURE_HEADER, [m.cells() for m in measures]),
        Table("Ratio", MEASURE_HEADER, [slower.cells()]),
    ]
    notes = [f"The records alone take {records_mib:.0f} MiB."]
    setting = {"rows": rows, "coordinates": SCHEMA.d, "driver": adbc_driver_postgresql.__version__}
    claim = (__doc__ or "").partition("\n")[0]
    return Report("data_sources", claim, setting, measures, [slower], tables, notes, targets)


def draw(report: Report, figure: Figure) -> None:
    """The times, without the memory."""
    draw_seconds(replace(report, measures=[m for m in report.measures if m.unit == "s"]), figure)


if __name__ == "__main__":
    _work(sys.argv[1])
