"""Approvals of several queries over real processes: a training of ten rounds needs one decision."""

import json
import signal
import sys
from pathlib import Path

import pytest

from parties.config import PartyConfig
from parties.policy import Policy
from radofed.node_config import PolicyChoices
from tests.end_to_end import test_approval
from tests.end_to_end.test_approval import asking, at
from tests.end_to_end.test_main_job import SCHEMA
from tests.federation.processes import Forked, rado, run_rado
from tests.waiting import HANG_S, wait_until

ROUNDS = 10


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    before = test_approval.ALLOWING
    test_approval.ALLOWING = PolicyChoices(designs=("statistic", "moments", "gradient"), epsilon="20", delta="1e-4")
    try:
        root = tmp_path_factory.mktemp("standing")
        # It says that it was told, and hangs: nothing waits for it.
        told = f"import sys; from pathlib import Path; Path({str(root / 'told')!r}).write_text(sys.stdin.read())"
        command = [sys.executable, "-c", f"{told}; import time; time.sleep(1000)"]
        with asking(root, settings=f"notify = {{command = {json.dumps(command)}, timeout_s = 600}}\n") as federation:
            (federation.root / "schema.toml").write_text(SCHEMA)
            yield federation
    finally:
        test_approval.ALLOWING = before


def train(federation, name: str, *options: str) -> Forked:
    """A learner's process that trains newton in ten rounds."""
    model = federation.root / f"{name}.json"
    return Forked(
        run_rado,
        (
            *("learner", "train", "--estimator", "newton", "--rounds", str(ROUNDS), "--epsilon", "1"),
            *("--config", str(federation.learner.config), "--schema", str(federation.root / "schema.toml")),
            *("--output", str(model), "--cohort-min", "4", "--answer-within", "3d"),
            *options,
        ),
        federation.root / f"{name}.log",
    )


def pending(federation) -> list[dict]:
    return rado("party", "pending", *at(federation, "a"))["data"]["pending"]


def one_that_waits(federation, log: Path) -> str:
    found = wait_until(lambda: pending(federation), what=f"a query at a: {log.read_text() if log.exists() else ''}")
    assert len(found) == 1
    return found[0]["query_id"]


def read(path: Path) -> dict | None:
    text = path.read_text() if path.exists() else ""
    return json.loads(text) if text else None


def approvals(federation) -> list[dict]:
    return rado("party", "approvals", "--all", *at(federation, "a"))["data"]["approvals"]


def history(federation) -> list[dict]:
    """Without questions whether it would accept."""
    shown = rado("ledger", "history", *at(federation, "a"))["data"]["queries"]
    return [each for each in shown if not each["decision"].startswith("only asked")]


@pytest.mark.more
def test_a_training_of_ten_rounds_needs_one_decision(federation):
    first = train(federation, "first")
    query_id = one_that_waits(federation, federation.root / "first.log")
    told = wait_until(lambda: read(federation.root / "told"), what="people to be told")
    assert told["queries"][0]["query_id"] == query_id
    assert told["queries"][0]["training"].startswith('training of newton with "rounds=10": at most epsilon 1 ')
    # The learner may stop while people think.
    first.send_signal(signal.SIGINT)
    first.wait(HANG_S)
    given = rado("party", "approve", query_id[:12], *at(federation, "a"), "--for", "training", "--reason", "study 17")
    assert given["data"]["state"] == "in force"
    assert given["data"]["terms"]["queries"] == ROUNDS
    again = train(federation, "first")
    again.wait(HANG_S)
    assert (federation.root / "first.json").exists(), (federation.root / "first.log").read_text()
    (approval,) = approvals(federation)
    assert approval["attempts_charged"] == len(approval["queries"]) == ROUNDS
    assert [act["kind"] for act in approval["people"]] == ["approved"]
    queries = history(federation)
    assert len(queries) == ROUNDS
    for each in queries:
        assert approval["approval_id"][:16] in each["decision"]
    assert pending(federation) == []

    # Another training is another: it waits again, also with the same terms.
    second = train(federation, "second", "--ask-again")
    waiting = one_that_waits(federation, federation.root / "second.log")
    rado("party", "refuse", waiting, *at(federation, "a"))
    second.wait(HANG_S)
    assert len(history(federation)) == ROUNDS + 1
    assert Policy.load(PartyConfig.load(federation.member("a").config).policy).approval.everything
