"""A key with short opening over real processes: with and without a party that draws obfuscators of its own."""

import re

import numpy as np
import pytest

from learner.config import LearnerConfig
from learner.decryption import load_key
from learner.requests import RadosRequest
from learner.session import Session
from radofed.node_config import PolicyChoices
from tests.federation.material import SMALL
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import HANG_S, wait_until
from wire.features import Feature
from wire.query import PaillierKey

pytestmark = pytest.mark.more

ROWS = {"a": 40, "b": 50, "c": 60}
ALLOWING = PolicyChoices(
    designs=("dp-feat",),
    allow_unprotected=True,
    smallest_cohort=3,
    epsilon="1e4",
    delta="1e-2",
    unbounded_queries=100,
    rados_per_query=1000,
)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    tables = {name: "x0,s,y\n" + "0.25,1,1\n0.75,0,0\n" * (rows // 2) for name, rows in ROWS.items()}
    root = tmp_path_factory.mktemp("short")
    with ProcessFederation(root, parties=tables, schema=SMALL.to_toml(), policy=ALLOWING) as federation:
        federation.serve("--short-opening", "--bits", "2048")
        yield federation


def opened(federation) -> None:
    with Session(LearnerConfig.load(federation.learner.config), give_up_after_s=HANG_S) as learner:
        plan = learner.plan(RadosRequest(schema=SMALL, rados=50, design="dp-feat", sensitive="s"))
        assert Feature.SHORT_OPENING in plan.query.features
        assert PaillierKey.from_bytes(plan.query.paillier_key.payload).public_key == learner.key.public_key
        query_id = learner.ask(plan)
        learner.watch(query_id, timeout_s=HANG_S)
        release = learner.fetch(query_id)
    assert release.party_rows == ROWS
    # Of every signature the bias is half of the positive rows less half of the negative ones, or less.
    assert np.abs(release.rados[:, -1]).max() <= sum(ROWS.values()) / 2


def test_totals_open_whoever_draws_from_the_subgroup(federation):
    assert load_key(federation.learner.directory / "paillier.jwk").secret.short_opening is not None
    opened(federation)
    config = federation.member("b").config
    own = "own_obfuscators = true\nspare_obfuscators = "
    text, changed = re.subn(r"(?m)^spare_obfuscators = ", own, config.read_text())
    assert changed == 1
    config.write_text(text)
    federation.stop("b")
    begun = federation.log("b").count("started")
    federation.start("b")
    wait_until(lambda: federation.log("b").count("started") > begun, what="the party")
    opened(federation)


def test_a_rotated_key_keeps_short_opening(federation):
    path = federation.learner.directory / "paillier.jwk"
    former = load_key(path)
    said = rado("learner", "rotate-key", "--bits", "2048", "--config", str(federation.learner.config))
    assert said["data"]["short_opening"]
    assert load_key(path).public_key != former.public_key
    opened(federation)
