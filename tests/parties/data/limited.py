"""A process that reads a table and sums over it with little memory: `python -m tests.parties.data.limited PLACE ...`.

It prints the digest of the data and that of the sums, with the times, as JSON; or the error. Memory is limited by
RLIMIT_DATA, which counts what a process allocates and not the files that it reads or maps.
"""

import hashlib
import json
import logging
import os
import resource
import sys
import time
from contextlib import ExitStack, suppress
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
from parties.data.cluster_row_sums import ClusterRowSums
from parties.data.dataset import load
from parties.data.disk_features import RowsOnDisk
from parties.data.rows_elsewhere import RowsOnCluster
from radobase.logs import Log
from radobase.warm_workers import WarmWorkers
from tests.waiting import HANG_S

GRADIENTS = 8
"""As many as a training by `newton` asks."""
_HAD: list[int] = []
_TICKS_S = os.sysconf("SC_CLK_TCK")


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


def limited(function, more_bytes, state, shared, payload):
    """The function's result on a worker of a cluster, within a limit. For functools.partial."""
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


def warm_worker(state, directory, payload):
    """`warm_up` on a worker, so slowly that each worker has its turn."""
    if not state.setdefault("warm", False):
        warm_up(Path(directory))
        state["warm"] = True
    time.sleep(0.05)
    return 0


def kinds(schema: Schema):
    """What is asked."""
    theta = tuple((1 << 20) * (place % 3 - 1) for place in range(schema.d))
    yield MomentsQuery(Clip(Fraction(2), bias=True), 7, 3)
    for _ in range(GRADIENTS):
        yield GradientQuery("logistic", theta, Fraction(1), 3)


def main(place: str, directory: Path, more_bytes: int, cluster: dict[str, str]) -> dict[str, object]:
    """Read the table with the features in "memory", on "disk" or with a "cluster", whose settings these are."""
    known, log = Schema.from_toml((directory / "schema.toml").read_text()), Log("party")
    sums, kept, noted = sum_on_threads, RowsOnDisk(directory) if place == "disk" else None, Noted()
    begun = time.perf_counter()
    with ExitStack() as opened:
        if place == "cluster":
            settings = PartyCluster.model_validate({"timeout_s": HANG_S, "reads_table": True, **cluster})
            workers = warm_workers(settings, more_bytes, directory)
            opened.callback(workers.close)
            noted.workers |= set(workers.names)
            kept, sums = RowsOnCluster(settings, log, workers), ClusterRowSums(settings, log)
            logging.getLogger().addHandler(noted)
            logging.getLogger().setLevel(logging.INFO)
        warm_up(directory)
        used, begun = processor_s(noted.workers), [begun, time.perf_counter()]
        limit(more_bytes)
        data = load(directory / "many", known, place=kept)
        begun.append(time.perf_counter())
        digest = hashlib.sha256()
        for kind in kinds(known):
            found = kind.contribution(data.records, 10, Computation(SeededRandom(3), row_sums=sums))
            digest.update(np.ascontiguousarray(found).tobytes())
        begun.append(time.perf_counter())
        start_s, read_s, sums_s = np.diff(begun).round(3).tolist()
        used = processor_s(noted.workers) - used
    assert not noted.here, "some parts were done by this process"
    said = f"{data.records.rows} {data.report.digest.hex()} {digest.hexdigest()}"
    return {"said": said, "start_s": start_s, "read_s": read_s, "sums_s": sums_s, "processor_s": used, **noted.places}


def processor_s(workers: set[str]) -> float:
    """Of this process and those workers, which are on this machine."""
    found = time.process_time()
    for name in workers:
        with suppress(OSError):
            fields = Path("/proc", name.split("/")[1], "stat").read_text().rpartition(")")[2].split()
            found += (int(fields[11]) + int(fields[12])) / _TICKS_S
    return found


class Noted(logging.Handler):
    """Adds up the parts that the node did itself. Prints what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.here, self.workers, self.places = 0, set(), {}

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record."""
        fields = getattr(record, "fields", {})
        self.here += fields.get("on_this_machine", 0)
        self.workers |= set(fields.get("workers", ()))
        self.places = {name: fields[name] for name in ("parts", "in_memory", "on_disk") if name in fields}
        sys.stderr.write(f"{record.getMessage()} {fields}\n")


def warm_workers(settings: PartyCluster, more_bytes: int, directory: Path) -> WarmWorkers:
    """Workers that are there, with their libraries loaded. What they are asked later is limited."""
    # By its name, which workers can import: this module is __main__.
    from tests.parties.data import limited as by_name

    class Limited(WarmWorkers):
        def results(self, function, *about):
            return super().results(partial(by_name.limited, function, more_bytes), *about)

    workers, begun = Limited(settings), time.monotonic()
    while len(workers.names) < workers.expected or time.monotonic() - begun < 0.1:
        count = 4 * settings.workers
        about = (by_name.warm_worker, str(directory), count, lambda *_: 0, lambda _: None)
        assert len(list(WarmWorkers.results(workers, *about))) == count
    return workers


if __name__ == "__main__":
    try:
        place, directory, more_bytes, *cluster = sys.argv[1:]
        settings = dict(each.split("=", 1) for each in cluster)
        sys.stdout.write(json.dumps(main(place, Path(directory), int(more_bytes), settings)) + "\n")
    except RadofedError as error:
        sys.stdout.write(json.dumps({"said": str(error)}) + "\n")
