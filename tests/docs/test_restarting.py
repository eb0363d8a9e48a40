"""The commands of docs/operating.md, "Stopping and restarting", and restarts in the middle of a query."""

import re
import signal
import sqlite3
from contextlib import closing

import pytest

from radofed.node_config import PolicyChoices
from tests.docs.examples import DOCS, rado
from tests.federation.material import STAYS
from tests.federation.processes import ProcessFederation
from tests.federation.processes import rado as rado_json
from tests.parties.test_node import ROWS
from tests.waiting import wait_until

SECTION = (DOCS / "operating.md").read_text().partition("### Stopping and restarting\n")[2].partition("\n### ")[0]
COMMANDS = re.findall(r"^ {4}(rado .*)$", SECTION, re.MULTILINE)
PARTIES = ("a", "b", "c")


@pytest.fixture
def federation(tmp_path):
    policy = PolicyChoices(designs=("moments",), smallest_cohort=3, epsilon="10", delta="1e-4")
    parties, sizes = dict.fromkeys(PARTIES, ROWS), dict.fromkeys(PARTIES, 3)
    with ProcessFederation(
        tmp_path, parties=parties, schema=STAYS.to_toml(), policy=policy, rows_at_least=sizes
    ) as made:
        (made.learner.directory / "schema.toml").write_text(STAYS.to_toml())
        yield made


def started(federation, name: str) -> None:
    sign = '"listening"' if name == "coordinator" else '"started"'
    before = federation.log(name).count(sign)
    federation.start(name)
    wait_until(lambda: federation.log(name).count(sign) > before, what=name)


def charges(federation, name: str) -> list[str]:
    """The states of all attempts in a party's ledger."""
    path = federation.directory(name) / "state" / "ledger.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as ledger:
        return [state for (state,) in ledger.execute("SELECT state FROM events")]


@pytest.mark.slow
def test_the_commands_run_and_every_node_restarts_within_a_query(federation):
    lab = federation.learner.directory
    rado("rado learner keygen --config learner.toml --bits 2048", lab)
    for name in ("coordinator", "a", "c"):
        started(federation, name)
    query = "rado learner query --config learner.toml --schema schema.toml --design moments --epsilon 1 --no-wait"
    rado(query, lab)
    # The query needs three parties, and waits for b.
    for name in ("a", "c"):
        wait_until(lambda name=name: '"accepted"' in federation.log(name), what=name)

    assert len(COMMANDS) == 3
    places = {"coordinator": federation.directory("coordinator"), "party": federation.directory("a"), "learner": lab}
    printed = {command.split()[1]: rado(command, places[command.split()[1]]) for command in COMMANDS}
    assert "2 of 3 answered; waiting for b" in printed["coordinator"]
    assert ", attempt 1: " in printed["party"]

    for name, number in (("coordinator", signal.SIGTERM), ("a", signal.SIGINT), ("c", signal.SIGTERM)):
        assert federation.stop(name, number) == 0
        started(federation, name)
    started(federation, "b")
    (listed,) = rado_json("learner", "list", "--config", str(federation.learner.config))["data"]["queries"]
    rado(f"rado learner fetch {listed['query_id'][:10]} --config learner.toml", lab)
    assert [charges(federation, name) for name in PARTIES] == [["charged"]] * 3
