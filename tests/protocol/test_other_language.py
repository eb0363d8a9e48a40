"""A learner in another language, written from the proto files and docs/protocol.md alone, takes part."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from parties.data.dataset import load
from radofed.node_config import PolicyChoices
from tests.federation.material import SMALL
from tests.federation.processes import ProcessFederation
from tests.waiting import HANG_S, wait_until

HERE = Path(__file__).resolve().parent / "node"
PROTOS = Path(__file__).resolve().parents[2] / "protos"


@pytest.fixture(scope="module")
def node_learner(tmp_path_factory):
    """The program with its libraries, installed outside the repository."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node is not installed")
    directory = tmp_path_factory.mktemp("node")
    for name in ("package.json", "learner.mjs"):
        shutil.copy(HERE / name, directory / name)
    install = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock"]
    result = subprocess.run(install, cwd=directory, capture_output=True, text=True, timeout=HANG_S, check=False)
    if result.returncode != 0:
        pytest.skip(f"npm cannot install what the program needs: {result.stderr.strip().splitlines()[-1]}")
    return [node, str(directory / "learner.mjs")]


@pytest.mark.more
def test_node_asks_follows_verifies_and_opens(node_learner, tmp_path):
    random = np.random.RandomState(5)
    parties = {
        name: "x0,s,y\n"
        + "".join(f"{random.uniform(0, 1):.3f},{random.randint(2)},{random.randint(2)}\n" for _ in range(n))
        for name, n in {"a": 25, "b": 31, "c": 12}.items()
    }
    # Plain rados of a dozen rows tell much by the boolean feature, and its limit counts them.
    policy = PolicyChoices(
        designs=("plain",), allow_unprotected=True, smallest_cohort=3, epsilon="150", delta="1e-5", unbounded_queries=10
    )
    with ProcessFederation(tmp_path, parties=parties, schema=SMALL.to_toml(), policy=policy) as federation:
        federation.start_all("coordinator")
        wait_until(lambda: "listening" in federation.log("coordinator"), what="the coordinator")
        federation.start_all("a", "b", "c")
        (tmp_path / "schema.json").write_bytes(SMALL.canonical_bytes())
        environment = {
            k: v for k, v in os.environ.items() if k not in {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "GRPC_TRACE"}
        }
        result = subprocess.run(
            [*node_learner, str(PROTOS), str(federation.learner.directory), federation.address, "test",
             federation.learner.name, str(tmp_path / "schema.json"), "40"],
            capture_output=True, text=True, timeout=HANG_S, check=False, env=environment,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr[-3000:]
        answer = json.loads(result.stdout)
        assert (answer["parties"], answer["rows"]) == (["a", "b", "c"], 68)
        rados = np.array(answer["rados"])
        assert rados.shape == (40, 3)
        records = [load(federation.directory(name) / "data.csv", SMALL).records for name in "abc"]
        edges = np.vstack([(r.features >> 14) * r.labels[:, None].astype(np.int64) for r in records])
        assert (rados >= np.minimum(edges, 0).sum(0)).all()
        assert (rados <= np.maximum(edges, 0).sum(0)).all()
        # A sum of edges of the boolean and the bias has the parity of the number of rows that it takes.
        assert (((rados[:, 1] - rados[:, 2]) >> 16) % 2 == 0).all()
        assert len({tuple(row) for row in rados.tolist()}) > 30
