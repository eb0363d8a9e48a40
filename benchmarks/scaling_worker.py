"""Run by scaling, a process for each curve or point: `python -m benchmarks.scaling_worker JOB`, JSON on the last line.

JOB is JSON. `contribution`: sizes, each with m, d and n; prints the seconds of each repeat of each, and the peak memory
of the process while it computed. `parties`: their number, rows (in total), columns, rados, key_bits, repeats, workers;
prints the seconds of each repeat, from the planned query to the opened total, the processor time of this process, and
its peak memory, in total and above that before the first query. With workers it is coordinator and learner alone,
without them it is all. The total is compared with the unencrypted one. Memory is in bytes, null if the system does not
report it.
"""

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import require, take_turns
from benchmarks.node_processes import schema_of
from dpcore.numbers.fixed_point import ONE
from dpcore.paillier.secret import SecretKey
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import PlainDesign
from dpcore.randomness.sources import SystemRandom
from dpcore.records.computation import Computation
from dpcore.records.records import Records
from learner.requests import RadosRequest
from radofed.simulation.federation import PlannedFold, SimulatedFederation
from radofed.simulation.workers import start_hosts

SEED = 1
FRACTION_BITS = 16
TIMEOUT_S = 600.0


def contribution(sizes: list[dict[str, int]]) -> dict[str, Any]:
    """A party's contribution to plain rados: signatures drawn and summed."""
    # Sizes that differ in n alone, or are fewer of the same rows, share one table.
    tables = {d: random_records(max(size["m"] for size in sizes), d) for d in {size["d"] for size in sizes}}
    works = {
        str(place): partial(
            RadosQuery(size["n"], PlainDesign()).contribution,
            tables[size["d"]].between(0, size["m"]),
            FRACTION_BITS,
            Computation(SystemRandom()),
        )
        for place, size in enumerate(sizes)
    }
    count_anew()
    seconds = take_turns(works)
    return {"seconds": list(seconds.values()), "most_bytes": memory("VmHWM")}


def parties(job: dict[str, int]) -> dict[str, Any]:
    """Encrypted queries over simulated parties."""
    names = [f"party-{i:04}" for i in range(job["parties"])]
    records = random_records(job["rows"], job["columns"] + 1)
    parts = np.array_split(np.arange(job["rows"]), job["parties"])
    secret = SecretKey.generate(SystemRandom(), bits=job["key_bits"])
    request = RadosRequest(schema_of(job["columns"]), job["rados"], design="plain")
    seconds, processor_seconds = [], []
    with start_hosts(records, SEED, names, workers=job["workers"], timeout_s=TIMEOUT_S) as hosts:
        federation = SimulatedFederation(hosts, names, SEED, secret)

        def plan(fold: int) -> PlannedFold:
            return federation.plan(None, request, parts, fold)

        before = count_anew()
        for fold in range(job["repeats"] + 1):
            planned = plan(fold)
            begun, busy = time.perf_counter(), time.process_time()
            total = federation.ask(planned)
            seconds.append(time.perf_counter() - begun)
            processor_seconds.append(time.process_time() - busy)
        most = memory("VmHWM")
        plain = SimulatedFederation(hosts, names, SEED, None).ask(planned)
    require(np.array_equal(total, plain), "the encrypted total differs from the one without encryption")
    beyond = None if most is None or before is None else most - before
    return {
        "seconds": seconds[1:],
        "processor_seconds": processor_seconds[1:],
        "most_bytes": most,
        "most_bytes_beyond": beyond,
    }


def random_records(rows: int, d: int) -> Records:
    """Random coordinates, the last of them a bias, and random labels."""
    random = np.random.default_rng(SEED)
    features = random.integers(-ONE, ONE, size=(rows, d), dtype=np.int32, endpoint=True)
    features[:, -1] = ONE
    labels = random.choice(np.array([-1, 1], dtype=np.int8), rows)
    return Records(features, labels, np.ones(rows, dtype=np.bool_))


def count_anew() -> int | None:
    """Current memory; also resets the peak (Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return None
    return memory("VmRSS")


def memory(field: str) -> int | None:
    """A field of /proc/self/status in bytes, None unless on Linux."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    job = json.loads(sys.argv[1])
    print(json.dumps(contribution(job["sizes"]) if "sizes" in job else parties(job)))


if __name__ == "__main__":
    main()
