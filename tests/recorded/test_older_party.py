"""A party of version 0.1, run from the history of this repository, in a federation of this version."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from learner.release import Release
from tests import forked
from tests.federation import free_port, rado, wait_until
from tests.forked import Forked

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
LAST_OF_0_1 = "bb1e84a4b6b4d7824a433f5952e20dd5f3eaa687"
OLD, NEW = "ada", ("bo", "cy")


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """The code of 0.1. A copy of this repository may be without its history."""
    place = tmp_path_factory.mktemp("code")
    found = subprocess.run(["git", "archive", LAST_OF_0_1], cwd=ROOT, capture_output=True, check=False)
    if found.returncode:
        pytest.skip("the history of this repository is not here")
    subprocess.run(["tar", "x"], input=found.stdout, cwd=place, check=True)
    return place


def old_rado(code: Path, *arguments: str) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(code), str(code / "protos")])}
    return subprocess.Popen(
        [sys.executable, "-m", "radofed", *arguments],
        env=environment,
        cwd=code,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.fixture(scope="module")
def federation(code, tmp_path_factory):
    """0.1 provisioned it: its rosters have no expiry, which nodes of 0.1 cannot read."""
    root = tmp_path_factory.mktemp("federation")
    address = f"127.0.0.1:{free_port()}"
    parties = [part for name in (OLD, *NEW) for part in ("--party", f"{name}=60")]
    made = old_rado(
        code, "provision", "init", "--federation", "clinics", "--directory", str(root / "clinics"),
        "--coordinator", address, *parties, "--learner", "lab",
    )  # fmt: skip
    assert made.wait(60) == 0, made.communicate()[0]
    members = root / "clinics/members"
    for name in (OLD, *NEW):
        policy = members / name / "policy.toml"
        text = policy.read_text().replace("designs = []", 'designs = ["plain", "dp-feat"]')
        text = text.replace("allow_unprotected = false", "allow_unprotected = true")
        text = re.sub(r'^epsilon = ".*"', 'epsilon = "1000"', text, flags=re.MULTILINE)
        policy.write_text(text.replace("unbounded_queries = 0", "unbounded_queries = 10"))
        for file in ("schema.toml", "data.csv"):
            (members / name / file).write_bytes((HERE / "0.1" / file).read_bytes())
    nodes = []
    for role, name in (("coordinator", "coordinator"), *(("party", name) for name in NEW)):
        config = members / name / f"{role}.toml"
        nodes.append(Forked(forked.rado, (role, "start", "--config", str(config)), root / f"{name}.log"))
    wait_until(lambda: "listening" in (root / "coordinator.log").read_text(), what="the coordinator")
    old = old_rado(code, "party", "start", "--config", str(members / OLD / "party.toml"))
    rado("learner", "keygen", "--config", str(members / "lab/learner.toml"), "--bits", "2048")
    yield root
    old.kill()
    (root / "ada.log").write_bytes(old.communicate()[0])
    for node in nodes:
        node.kill()


def ask(federation: Path, *more: str, code: int = 0) -> dict:
    config = federation / "clinics/members/lab/learner.toml"
    schema = ("--schema", str(HERE / "0.1/schema.toml"))
    return rado("learner", "query", "--config", str(config), *schema, *more, code=code)


def test_it_takes_part_in_what_it_knows(federation):
    design = ("--design", "dp-feat", "--sensitive", "smoker", "--rados", "20")
    asked = ask(federation, *design, "--allow-older-nodes")["data"]
    assert set(Release.load(Path(asked["release"])).party_rows) == {OLD, *NEW}


def test_what_it_does_not_know_is_refused_with_a_sentence(federation):
    design = ("--design", "dp-feat", "--sensitive", "smoker", "--rados", "20")
    message = ask(federation, *design, code=6)["error"]["message"]
    assert f"{OLD} (FIELD_UNKNOWN): Update the older of the two nodes." in message
