"""A table that is four times as large as the memory that a node may use, and a worker of its cluster."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.records.features import Label, RealFeature
from dpcore.records.schema import Schema
from tests.ray_nodes import ROOT, needs_ray
from tests.waiting import HANG_S

COLUMNS, ROWS, FILES = 20, 5_000_000, 5
# The rows as records, a quarter of which is the limit.
RECORD_BYTES = 4 * (COLUMNS + 1) * ROWS
LIMIT_BYTES = RECORD_BYTES // 4


def write(path, rows, seed):
    random = np.random.default_rng(seed)
    columns = {f"c{place}": random.integers(0, 100, rows).astype(np.int16) for place in range(COLUMNS)}
    columns["y"] = np.where(columns["c0"] + random.integers(0, 60, rows) > 80, "yes", "no")
    pq.write_table(pa.table(columns), path, row_group_size=100_000)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    directory = tmp_path_factory.mktemp("large")
    (directory / "many").mkdir()
    for number in range(FILES):
        write(directory / "many" / f"{number}.parquet", ROWS // FILES, number)
    write(directory / "few.parquet", 5000, 9)
    features = tuple(
        RealFeature(name=f"c{place}", column=f"c{place}", lower=0.0, upper=100.0) for place in range(COLUMNS)
    )
    schema = Schema(
        name="large", label=Label(column="y", positive=("yes",), negative=("no",)), features=features, bias=True
    )
    (directory / "schema.toml").write_text(schema.to_toml())
    return directory


def said(table, place, limit_bytes, **cluster):
    arguments = (place, table, limit_bytes, *(f"{name}={value}" for name, value in cluster.items()))
    done = subprocess.run(
        [sys.executable, "-m", "tests.parties.data.limited", *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def alone(table):
    """What one machine with memory enough says."""
    found = said(table, "memory", 4 * RECORD_BYTES)["said"]
    assert found.startswith(f"{ROWS} ")
    return found


@pytest.mark.more
@pytest.mark.slow
def test_on_disk_it_is_as_in_memory(table, alone):
    assert "has more rows than fit into memory" in said(table, "memory", LIMIT_BYTES)["said"]
    assert said(table, "disk", LIMIT_BYTES)["said"] == alone


@pytest.mark.more
@pytest.mark.slow
@needs_ray
@pytest.mark.parametrize("rest", ["on disk", "read again"])
def test_workers_read_it_with_little_memory(table, alone, nodes, rest):
    """Each worker keeps what two fifths of its limit hold, or less where reading needs more than the others.

    The rest it keeps on disk, or reads for each sum.
    """
    nodes.fill(2)
    cluster = {"address": nodes.address, "token_file": nodes.token_file, "workers": 2}
    cluster |= {"worker_disk": table} if rest == "on disk" else {}
    found = said(table, "cluster", LIMIT_BYTES, **cluster, worker_memory_bytes=LIMIT_BYTES * 2 // 5)
    assert found["said"] == alone
    assert found["in_memory"] < found["parts"]
    assert (found["in_memory"] + found["on_disk"] == found["parts"]) == (rest == "on disk")
