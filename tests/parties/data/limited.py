"""A process that reads a table and sums over it with little memory: `python -m tests.parties.data.limited PLACE ...`.

It prints the digest of the data and that of the sums, or the error. Memory is limited by RLIMIT_DATA, which counts what
a process allocates and not the files that it maps.
"""

import hashlib
import logging
import resource
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

from dpcore.errors import RadofedError
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, sum_on_threads
from dpcore.records.schema import Schema
from parties.config import PartyCluster
from parties.data.dataset import ClusterRowSums, load
from parties.data.disk_features import RowsOnDisk
from parties.data.rows_elsewhere import RowsOnCluster
from radobase.logs import Log
from radobase.warm_workers import WarmWorkers
from tests.waiting import HANG_S

_HAD: list[int] = []


def limit(more_bytes: int) -> None:
    """Allow this process so much more memory than it had when this was first called."""
    if not _HAD:
        status = Path("/proc/self/status").read_text()
        _HAD.extend(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (_HAD[0] + more_bytes, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def unlimited() -> None:
    """Allow this process what it was allowed at first."""
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def limited(function, more_bytes, directory, state, shared, payload):
    """The function's result on a worker of a cluster, within a limit. For functools.partial."""
    if not _HAD:
        warm_up(Path(directory))
    limit(more_bytes)
    try:
        return function(state, shared, payload)
    finally:
        unlimited()


def warm_up(directory: Path) -> None:
    """Load libraries and compiled code, which take memory however few rows there are."""
    schema = Schema.from_toml((directory / "schema.toml").read_text())
    data = load(directory / "few.parquet", schema)
    for kind in kinds(schema):
        kind.contribution(data.records, 10, Computation(SeededRandom(3)))


def kinds(schema: Schema):
    """What is asked."""
    theta = tuple((1 << 20) * (place % 3 - 1) for place in range(schema.d))
    yield GradientQuery("logistic", theta, Fraction(1), 3)
    yield MomentsQuery(Clip(Fraction(2), bias=True), 7, 3)


def main(place: str, table: str, more_bytes: str, address: str = "", token_file: str = "") -> str:
    """Read the table with the features in "memory", on "disk" or with a "cluster"."""
    known, log, sums, kept = (
        Schema.from_toml(Path(table, "schema.toml").read_text()),
        Log("party"),
        sum_on_threads,
        None,
    )
    if place == "disk":
        kept = RowsOnDisk(Path(table))
    elif place == "cluster":
        settings = PartyCluster(
            address=address,
            token_file=Path(token_file),
            workers=2,
            timeout_s=HANG_S,
            reads_table=True,
            worker_memory_bytes=int(more_bytes),
            worker_disk=Path(table),
        )
        kept = RowsOnCluster(settings, log, with_limit(settings, int(more_bytes), table))
        sums = ClusterRowSums(settings, log)
    warm_up(Path(table))
    noted = Noted()
    if place == "cluster":
        logging.getLogger().addHandler(noted)
        logging.getLogger().setLevel(logging.INFO)
    limit(int(more_bytes))
    data = load(Path(table) / "many", known, place=kept)
    digest = hashlib.sha256()
    for kind in kinds(known):
        found = kind.contribution(data.records, 10, Computation(SeededRandom(3), row_sums=sums))
        digest.update(np.ascontiguousarray(found).tobytes())
    assert not noted.here, "some parts were done by this process"
    return f"{data.records.rows} {data.report.digest.hex()} {digest.hexdigest()}"


class Noted(logging.Handler):
    """Adds up the parts that the node did itself. Prints what is logged."""

    here = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record."""
        fields = getattr(record, "fields", {})
        self.here += fields.get("on_this_machine", 0)
        sys.stderr.write(f"{record.getMessage()} {fields}\n")


def with_limit(settings, more_bytes, directory):
    """Workers that are limited, to twice as much: Ray allocates in them, too."""
    # By its name, which workers can import: this module is __main__.
    from tests.parties.data.limited import limited as by_name

    class Limited(WarmWorkers):
        def results(self, function, *about):
            return super().results(partial(by_name, function, 2 * more_bytes, directory), *about)

        def _connect(self, *about):
            # Ray's own processes are not limited.
            unlimited()
            super()._connect(*about)
            limit(more_bytes)

    return Limited(settings)


if __name__ == "__main__":
    try:
        sys.stdout.write(main(*sys.argv[1:]) + "\n")
    except RadofedError as error:
        sys.stdout.write(f"{error}\n")
