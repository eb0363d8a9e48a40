"""A party whose whole directory is an older copy: over real processes it forgets nothing that it spent."""

import shutil
import sqlite3
import threading
from contextlib import closing

import pytest

from radofed.node_config import PolicyChoices
from tests.end_to_end.test_faults import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import wait_until

pytestmark = pytest.mark.more

ALLOWING = PolicyChoices(designs=("statistic",), epsilon="20", delta="1e-4")
ROWS = {"a": 400, "b": 300, "c": 500}


@pytest.fixture
def federation(tmp_path):
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(tmp_path, parties=parties, schema=SCHEMA, policy=ALLOWING, rows_at_least=ROWS) as made:
        (tmp_path / "schema.toml").write_text(SCHEMA)
        made.start_all()
        rado("learner", "keygen", "--config", str(made.learner.config), "--bits", "2048")
        for name in ROWS:
            wait_until(lambda name=name: '"ledger witnessed"' in made.log(name), what=f"{name}'s start")
        yield made


def ask(federation, column: str, *, code: int = 0, more: tuple[str, ...] = ()) -> None:
    where = ("--config", str(federation.learner.config), "--schema", str(federation.root / "schema.toml"))
    rado("learner", "statistic", f'x["{column}"] >= 0.5', *where, "--epsilon", "1", "--ask-again", *more, code=code)


def ledger(federation, *arguments: str, code: int = 0) -> dict:
    name, *rest = arguments
    return rado("ledger", name, "--config", str(federation.member("a").config), *rest, code=code)["data"]


def entries(federation) -> int:
    path = federation.directory("a") / "state" / "ledger.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as found:
        return found.execute("SELECT coalesce(max(number), 0) FROM chain").fetchone()[0]


def test_a_restored_directory_answers_nothing_until_it_is_acknowledged(federation):
    ask(federation, "x0")
    assert federation.stop("a") == 0
    directory, copy = federation.directory("a"), federation.root / "copy"
    shutil.copytree(directory, copy)
    federation.start("a")
    wait_until(lambda: federation.log("a").count('"ledger witnessed"') == 2, what="witnesses")
    ask(federation, "x1")
    spent = ledger(federation, "show")["scopes"][0]["spent"]["epsilon"]
    assert entries(federation) == 4
    assert ledger(federation, "verify", "--wait-s", "20")["ok"]
    assert federation.stop("a") == 0

    shutil.rmtree(directory)
    shutil.copytree(copy, directory)
    federation.start("a")
    wait_until(lambda: '"ledger set back"' in federation.log("a"), what="the evidence")
    # The others are a cohort of two, one short of what they accept: the query waits for a, and a is silent.
    accepted = federation.log("a").count('"accepted"')
    ask(federation, "x2", code=3, more=("--timeout-s", "6"))
    assert federation.log("a").count('"accepted"') == accepted == 2
    assert '"refused"' not in federation.log("a")
    assert entries(federation) == 2
    check = rado("party", "check", "--config", str(federation.member("a").config), code=1)["data"]
    (found,) = [finding for finding in check["findings"] if finding["name"] == "ledger"]
    assert "showed an entry that this party signed" in found["detail"]
    assert "acknowledge" in found["fix"]
    ledger(federation, "verify", "--wait-s", "20", code=1)
    federation.stop("a")

    asked = ledger(federation, "acknowledge", "--wait-s", "20", code=1)
    assert asked["own_entries"] == 2
    # The others hold its acceptance, the coordinator its receipt.
    assert {claim["held_by"]: claim["entries"] for claim in asked["claims"]} == {
        "b": 3, "c": 3, "the coordinator": 4, "the .head file": 2,
    }  # fmt: skip
    assert entries(federation) == 2
    assert ledger(federation, "acknowledge", "--wait-s", "20", "--yes")["ok"]
    # What it forgot is charged again, no less, and not the whole limit.
    now = ledger(federation, "show")["scopes"][0]["spent"]["epsilon"]
    assert spent <= now < 1.001 * spent
    federation.start("a")
    wait_until(lambda: federation.log("a").count('"ledger witnessed"') == 3, what="witnesses")
    ask(federation, "x3")
    assert ledger(federation, "verify", "--wait-s", "20")["ok"]


@pytest.mark.more
def test_a_copy_from_before_a_charge_is_noticed_when_it_is_put_back(federation):
    # The attempt waits for a third member, between a's acceptance and its charge.
    federation.stop("c")
    asking = threading.Thread(target=ask, args=(federation, "x0"))
    asking.start()
    wait_until(lambda: '"spooled"' in federation.log("a"), what="a's contribution")
    assert federation.stop("a") == 0
    directory, copy = federation.directory("a"), federation.root / "copy"
    shutil.copytree(directory, copy)
    federation.start("a")
    federation.start("c")
    asking.join()
    assert '"reservations held"' in federation.log("a")
    spent = ledger(federation, "show")["scopes"][0]["spent"]["epsilon"]
    assert federation.stop("a") == 0

    shutil.rmtree(directory)
    shutil.copytree(copy, directory)
    federation.start("a")
    # The members' heads are those of the copy. An honest coordinator also has the receipt, with that of the charge.
    wait_until(lambda: '"shown_by": "the coordinator"' in federation.log("a"), what="the evidence")
    with closing(sqlite3.connect(directory / "state" / "ledger.sqlite")) as found:
        wait_until(lambda: found.execute("SELECT attempt FROM seen_in_cohorts").fetchall() == [(1,)], what="members")
    assert federation.stop("a") == 0
    assert ledger(federation, "acknowledge", "--wait-s", "20", "--yes")["ok"]
    assert ledger(federation, "show")["scopes"][0]["spent"]["epsilon"] >= spent > 0
    federation.start("a")
    ask(federation, "x1")
