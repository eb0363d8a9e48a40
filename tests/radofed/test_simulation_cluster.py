"""A simulation on a Ray cluster of three nodes that runs already: how many actors it takes, and what a loss changes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ray_nodes import RayNodes, needs_ray
from tests.waiting import HANG_S

ROOT = Path(__file__).resolve().parents[2]

LOSS = """
import json, sys
import numpy as np
import ray
from radofed.simulation import federation, run, workers
from radofed.simulation.designs import DesignOptions
from dpcore.paillier.secret import SecretKey
from dpcore.numbers.fixed_point import ONE
from dpcore.records.records import Records
from dpcore.randomness.sources import SystemRandom
from dpcore.records.schema import Label, RealFeature, Schema

schema = Schema(
    name="s",
    label=Label(column="y", positive=("1",), negative=("0",)),
    features=tuple(RealFeature(name=name, lower=-1.0, upper=1.0) for name in "ab"),
)


def released(parties, rows, *, encrypt=False, progress=None, workers_=0):
    whole = parties * rows
    features = np.random.default_rng(1).integers(-ONE, ONE, (whole, 3)).astype(np.int32)
    records = Records(features, np.ones(whole, np.int8), np.ones(whole, np.bool_))
    names, parts = run.party_names(parties), np.array_split(np.arange(whole), parties)
    secret = material.secret_key() if encrypt else None
    with workers.start_hosts(records, 1, names, workers=workers_, timeout_s=600) as hosts:
        asked = federation.SimulatedFederation(hosts, names, 1, secret)
        options = DesignOptions(design="plain", rados=20)
        planned = asked.plan(options, options.request(schema, [[rows] * parties]), parts, 1)
        actors = list(getattr(hosts, "_actors", ()))
        values = asked.ask(planned, progress).tolist()
        return values, len(actors), sum(new is not old for new, old in zip(getattr(hosts, "_actors", ()), actors))


def strike(done, whole):
    if done == 1:
        print("strike", flush=True)
        sys.stdin.readline()


ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
found = {
    "thousand": released(1000, 20, workers_=2),
    "lost": released(12, 50, encrypt=True, progress=strike, workers_=2),
}
ray.shutdown()
found |= {"thousand here": released(1000, 20), "lost here": released(12, 50)}
print(json.dumps(found), flush=True)
"""


@pytest.fixture
def nodes(tmp_path_factory):
    """A cluster of its own: of three nodes of one processor, two have an actor, and one is left for the lost one."""
    started = RayNodes(tmp_path_factory.mktemp("ray"), nodes=3)
    yield started
    started.end()


@pytest.mark.slow
@needs_ray
def test_a_thousand_parties_need_two_actors_and_a_node_that_is_lost_changes_nothing(nodes, tmp_path):
    """Uploads are under way when a node is killed: its parties continue on another node with the same keys."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    errors = tmp_path / "errors"
    with (
        errors.open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", LOSS, nodes.address], cwd=ROOT, env=nodes.environment, stderr=log, **pipes
        ) as script,
    ):
        assert script.stdout.readline() == "strike\n", errors.read_text()[-3000:]
        nodes.remove_node_of_actor()
        said, _ = script.communicate("struck\n", timeout=HANG_S)
    assert script.returncode == 0, errors.read_text()[-3000:]
    # Ray says on the way what was lost.
    found = json.loads(said.splitlines()[-1])
    assert (found["thousand"][1:], found["lost"][1:]) == ([2, 0], [2, 1])
    assert found["thousand"][0] == found["thousand here"][0]
    assert found["lost"][0] == found["lost here"][0]
    assert len(set(found["lost"][0])) == 60
