"""Parties as Ray actors: the same numbers, on loopback, behind a token. Ray starts in a process of its own here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.ray_nodes import needs_ray
from tests.waiting import HANG_S

pytestmark = needs_ray

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import json, os, pathlib, sys
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction

import grpc
import numpy as np

import radofed
from radofed.simulation import federation, run, workers
from radofed.simulation.workers import SimulationError, SimulationTimedOutError
from radofed.simulation.table import read_table

data = sys.argv[1]


def figures(**more):
    result = radofed.simulate(
        data, label="y", positive="1", parties=5, folds=2, seed=4, design="plain", rados=30, key_bits=2048, **more
    )
    return [[row.learner, row.test_error, row.auc] for row in result.rows]


def answers(**more):
    result = radofed.simulate(
        data, label="y", positive="1", parties=5, folds=2, seed=4, key_bits=2048,
        estimators={"asks": Asks()}, epsilon=1, **more
    )
    return [[row.learner, row.test_error, row.auc] for row in result.rows], Asks.seen.pop(), Asks.seen.pop()


class Asks:
    seen = []

    def fit_queries(self, oracle):
        queries = [['x["a"] >= 0', "y == 1"], ['x["a"] >= 0', 'clip((z["a"] + 2 * z["b"] + 3) / 4)']]
        found = [oracle.statistic(batch, part=Fraction(1, 2)).values.tolist() for batch in queries]
        Asks.seen.append(found)
        self.weight = found[0][0]

    def decision_function(self, X):
        return X[:, 0] - self.weight


def refusal(kind, call):
    try:
        call()
    except kind as error:
        return [str(error), error.exit_code]


def knock(address, metadata):
    try:
        ask = grpc.insecure_channel(address).unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")
        ask(b"", metadata=metadata, timeout=600)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


found = {"local": figures(workers=0), "local answers": answers(workers=0)}
assert "ray" not in sys.modules, "the way without workers imported Ray"
token = pathlib.Path.home() / ".ray" / "auth_token"
had_token = token.exists()

table = read_table(pathlib.Path(data), label="y", positive=["1"], schema=None, group_column=None)
names = run.party_names(5)
with workers.start_hosts(table.records, 4, names, workers=2, timeout_s=600) as hosts:
    import ray

    address = ray.get_runtime_context().gcs_address
    found["addresses"] = [address, *(node["NodeManagerAddress"] for node in ray.nodes())]
    found["dashboard"] = ray._private.worker._global_node.webui_url
    found["knocks"] = [
        knock(address, metadata)
        for metadata in (
            [("authorization", "Bearer " + os.environ["RAY_AUTH_TOKEN"])],
            [("authorization", "Bearer " + "0" * 64)],
            None,
        )
    ]
    run.start_hosts = lambda *_, **__: nullcontext(hosts)
    found["actors"] = figures(workers=2)
    found["sealed"] = figures(workers=2, encrypt=True)
    found["actors' answers"] = answers(workers=2)
    found["sealed answers"] = answers(workers=2, encrypt=True)

    asked = federation.SimulatedFederation(hosts, names, 4, None)
    request = radofed.RadosRequest(schema=table.schema, rados=30, design="plain")
    parts = np.array_split(np.arange(table.records.rows), 5)
    planned = asked.plan(run.DesignOptions(design="plain"), request, parts, 1)
    ask, shares = planned.ask, asked._shares(planned)
    query = replace(ask.opened.query, schema=replace(table.schema, features=table.schema.features[:1]))
    wrong = replace(ask, opened=replace(ask.opened, query=query))
    found["refused"] = refusal(SimulationError, lambda: hosts.residues(wrong, shares))
    hosts._timeout_s = 1e-9
    found["timed out"] = refusal(SimulationTimedOutError, lambda: hosts.residues(ask, shares))
assert not ray.is_initialized()
found["left a token"] = token.exists() and not had_token
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    random = np.random.RandomState(3)
    x = random.normal(size=(120, 3))
    y = (x[:, 0] + 0.3 * random.normal(size=120) > 0).astype(int)
    path = tmp_path_factory.mktemp("ray") / "t.csv"
    rows = [",".join(f"{value:.5f}" for value in row) + f",{label}" for row, label in zip(x, y, strict=True)]
    path.write_text("a,b,c,y\n" + "\n".join(rows) + "\n")
    return path


def python(code, *arguments):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        # Whatever else fills this machine's memory must not fail the test.
        env=clean | {"RAY_memory_monitor_refresh_ms": "0"},
        timeout=HANG_S,
    )


@pytest.mark.more
def test_actors_give_the_same_numbers_on_loopback_behind_a_token(table):
    result = python(SCRIPT, str(table))
    assert result.returncode == 0, result.stderr[-3000:]
    found = json.loads(result.stdout)
    assert found["local"] == found["actors"] == found["sealed"]
    assert len(found["local"]) == 6
    assert found["local answers"] == found["actors' answers"] == found["sealed answers"]
    _, *answers = found["local answers"]
    values = [value for fold in answers for batch in fold for value in batch]
    assert len(values) == len(set(values)) == 8
    assert all(address.startswith("127.") for address in found["addresses"])
    assert not found["dashboard"]
    sentence, code = found["refused"]
    assert "load them with this schema" in sentence
    assert code == 4
    sentence, code = found["timed out"]
    assert "took longer" in sentence
    assert code == 3
    assert found["knocks"] == ["OK", "UNAUTHENTICATED", "UNAUTHENTICATED"]
    assert not found["left a token"]


@pytest.mark.more
def test_ray_that_was_imported_before_is_refused():
    """It would have listened on every interface."""
    code = (
        "import ray\n"
        "from dpcore.errors import ConfigurationError\n"
        "from radobase.ray_cluster import start_on_loopback\n"
        "try:\n"
        "    start_on_loopback(cpus=1, object_bytes=0)\n"
        "except ConfigurationError as error:\n"
        "    print(error)\n"
        "assert not ray.is_initialized()\n"
    )
    result = python(code)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "limited to loopback" in result.stdout


@pytest.mark.slow
def test_a_cluster_that_runs_already_is_used_and_left_running(table):
    code = (
        "import os, sys\n"
        "os.environ |= {'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER': '0', 'RAY_AUTH_MODE': 'token'}\n"
        "os.environ['RAY_AUTH_TOKEN'] = 'ab' * 32\n"
        "import ray, radofed\n"
        "ray.init(num_cpus=2, include_dashboard=False, logging_level='ERROR', log_to_driver=False)\n"
        "options = dict(label='y', positive='1', parties=3, folds=2)\n"
        "theirs = radofed.simulate(sys.argv[1], workers=2, **options)\n"
        "again = radofed.simulate(sys.argv[1], workers=1, **options)\n"
        "assert ray.is_initialized()\n"
        "ours = radofed.simulate(sys.argv[1], workers=0, **options)\n"
        "errors = [[row.test_error for row in result.rows] for result in (theirs, again, ours)]\n"
        "assert errors[0] == errors[1] == errors[2]\n"
    )
    result = python(code, str(table))
    assert result.returncode == 0, result.stderr[-3000:]


@pytest.mark.slow
def test_the_command_takes_a_worker_for_each_cpu(table):
    code = "import sys\nfrom radofed.cli.entry_point import run\nsys.exit(run(sys.argv[1:]))"
    arguments = ["--data", str(table), "--label", "y", "--positive", "1", "--parties", "4", "--folds", "2"]
    result = python(code, "simulate", *arguments, "--format", "json")
    assert result.returncode == 0, result.stderr[-3000:]
    assert json.loads(result.stdout)["data"]["federation"]["workers"] == min(4, os.cpu_count() or 1)
