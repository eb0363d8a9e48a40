"""A party with fewer rows than the roster states says so, in its check and in its node's log."""

import json

import pytest

from parties.state_directory import StatedRows
from radobase.logs import Log
from tests.federation.processes import ProcessFederation, rado
from tests.parties.check_world import ALLOWED, PARTIES, run
from tests.parties.test_node import ROWS, SCHEMA
from tests.waiting import wait_until
from wire.roster import Member, Role, Roster, certificate_san


@pytest.fixture
def federation(tmp_path):
    with ProcessFederation(
        tmp_path,
        parties=dict.fromkeys(PARTIES, ROWS),
        schema=SCHEMA,
        policy=ALLOWED,
        rows_at_least={"ada": 3, "bo": 1200},
    ) as made:
        made.start("coordinator")
        wait_until(lambda: '"listening"' in made.log("coordinator"), what="the coordinator")
        yield made


def warnings(federation, name):
    lines = [json.loads(line) for line in federation.log(name).splitlines()]
    return [(line["stated"], line["rows"]) for line in lines if line["event"] == "fewer rows than stated"]


def test_the_check_and_the_node_compare_the_rows_with_the_roster(federation):
    assert run(federation)["stated-rows"].status == "ok", "as many as stated"
    assert "states no number" in run(federation, "cy")["stated-rows"].detail
    found = run(federation, "bo")["stated-rows"]
    assert (found.status, found.detail) == ("advice", "the roster states at least 1200 rows, and the table has 3")
    assert "rado provision replace-key" in found.fix

    federation.start_all("ada", "bo")
    wait_until(lambda: warnings(federation, "bo"), what="the warning")
    wait_until(lambda: '"roster accepted"' in federation.log("ada"), what="the roster")
    data = federation.directory("ada") / "data.csv"
    data.write_text(ROWS.replace("20,no,no\n", ""))
    for _ in range(2):
        # A third of the rows is gone, and a person has to accept that.
        rado("party", "reload", "--config", str(federation.member("ada").config), code=1)
    assert warnings(federation, "ada") == [(3, 2)], "once, when the rows became fewer"
    assert warnings(federation, "bo") == [(1200, 3)]
    data.write_text(f"{ROWS}40,no,no\n")
    assert run(federation)["stated-rows"].status == "ok", "more than stated"


def test_the_log_has_each_shortfall_once(caplog):
    def listing(rows):
        hub = Member(Role.COORDINATOR, "hub", b"", certificate_san("test", Role.COORDINATOR, "hub"))
        ada = Member(Role.PARTY, "ada", bytes(32), certificate_san("test", Role.PARTY, "ada"), rows)
        return Roster("test", 1, 1, (hub, ada))

    looks = StatedRows("ada", Log("test"))
    for roster, rows in [(None, 1), (listing(None), 1), (listing(5), 5), (listing(5), 4), (listing(5), 4)]:
        looks.look(roster, rows)
    assert caplog.messages == ["fewer rows than stated"]
    looks.look(listing(6), 4)
    assert len(caplog.messages) == 2


def test_a_statement_that_is_far_below_the_table_is_advice(federation):
    data = federation.directory("ada") / "data.csv"
    header, *rows = ROWS.splitlines()
    data.write_text("\n".join([header, *rows * 4]) + "\n")
    assert run(federation)["stated-rows"].status == "ok", "four times as many"
    data.write_text("\n".join([header, *rows * 4, rows[0]]) + "\n")
    found = run(federation)["stated-rows"]
    assert (found.status, found.detail) == ("advice", "the roster states at least 3 rows, and the table has 13")
    assert "--rows" in found.fix
