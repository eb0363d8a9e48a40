"""A full spool at the coordinator, with real processes: parties retry, continue later, and send nothing twice."""

import json
import re
import signal

import numpy as np
import pytest

from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.decryption import create_key
from learner.requests import RadosRequest
from learner.session import Session
from radofed.node_config import PolicyChoices
from tests.federation.processes import ProcessFederation
from tests.waiting import HANG_S, wait_until
from wire.status import PartyState

SCHEMA = """
schema_version = 1
name = "stays"
[label]
column = "y"
positive = ["1"]
[[features]]
name = "x"
type = "boolean"
true = ["1"]
false = ["0"]
"""
ROWS = {"a": 40, "b": 50, "c": 60}
POLICY = PolicyChoices(
    designs=("dp-feat",),
    allow_unprotected=True,
    smallest_cohort=3,
    epsilon="1e4",
    delta="1e-2",
    unbounded_queries=100,
    rados_per_query=1000,
)
PLENTY_BYTES = 50_000_000_000


@pytest.fixture
def federation(tmp_path):
    tables = {name: "x,y\n" + "1,1\n0,0\n" * (rows // 2) for name, rows in ROWS.items()}
    with ProcessFederation(tmp_path, parties=tables, schema=SCHEMA, policy=POLICY) as federation:
        # A 2048-bit test key.
        create_key(federation.learner.directory / "paillier.jwk", bits=2048)
        yield federation


def restart_with(federation: ProcessFederation, spool_bytes: int) -> None:
    """Start the coordinator with this much room; the operator edits its file in between."""
    config = federation.member("coordinator").config
    text, changed = re.subn(r"(?m)^spool_bytes = [0-9_]+", f"spool_bytes = {spool_bytes}", config.read_text())
    assert changed == 1
    config.write_text(text)
    if "coordinator" in federation.processes:
        assert federation.stop("coordinator", signal.SIGTERM) == 0
    begun = federation.log("coordinator").count("listening")
    federation.start("coordinator")
    wait_until(lambda: federation.log("coordinator").count("listening") > begun, what="the coordinator")


def refused_chunks(federation: ProcessFederation) -> set[str]:
    lines = [json.loads(line) for line in federation.log("coordinator").splitlines()]
    return {line["peer"] for line in lines if line["event"] == "chunk refused" and line["code"] == "SPOOL_FULL"}


def test_uploads_wait_for_room_and_count_once(federation):
    restart_with(federation, PLENTY_BYTES)
    with Session(LearnerConfig.load(federation.learner.config), give_up_after_s=HANG_S) as learner:
        request = RadosRequest(
            schema=Schema.from_toml(SCHEMA),
            rados=50,
            design="dp-feat",
            sensitive="x",
            answer_within_s=120,
            prepare_within_s=120,
            upload_within_s=120,
        )
        plan = learner.plan(request)
        query_id = learner.ask(plan)
        # Accepted with space for all; then the disk has space for only two of three.
        restart_with(federation, 2 * plan.upload_bytes_per_party)
        federation.start_all(*ROWS)
        (late,) = wait_until(lambda: refused_chunks(federation), what="a refused chunk")

        def others_are_done() -> bool:
            states = {p.party: p.state for p in learner.status(query_id).parties}
            return [states[name] for name in ROWS if name != late] == [PartyState.UPLOADED] * 2

        wait_until(others_are_done, what="the two that found room")
        assert {p.party: p.chunks for p in learner.status(query_id).parties}[late] == 0
        restart_with(federation, PLENTY_BYTES)
        status = learner.watch(query_id, timeout_s=HANG_S)
        assert status.attempt == 1
        release = learner.fetch(query_id)
        assert release.party_rows == ROWS
        assert release.rows == sum(ROWS.values())
        # Half of the rows of each party are (x, bias) = (1, 1), the others, labelled -1, (1, -1).
        assert np.abs(release.rados[:, 1]).max() <= sum(ROWS.values()) / 2
        assert (release.rados[:, 0] >= 0).all()
