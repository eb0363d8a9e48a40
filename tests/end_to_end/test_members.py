"""The digits of a member's key are the same wherever people read them: at its own node, and at every other member."""

import pytest

from tests.federation.processes import ProcessFederation, rado
from tests.parties.check_world import ALLOWED, PARTIES
from tests.parties.test_node import ROWS, SCHEMA
from tests.waiting import wait_until


@pytest.fixture
def federation(tmp_path):
    with ProcessFederation(
        tmp_path, parties=dict.fromkeys(PARTIES, ROWS), schema=SCHEMA, policy=ALLOWED, rows_at_least={"bo": 3}
    ) as made:
        made.start_all("coordinator", "ada")
        wait_until(lambda: '"roster accepted"' in made.log("ada"), what="the roster")
        yield made


def test_members_read_the_same_digits(federation):
    bo, ada = (["--config", str(federation.member(name).config)] for name in ("bo", "ada"))
    checked = rado("party", "check", *bo)["data"]["findings"]
    own = next(each["detail"] for each in checked if each["name"] == "signing-key").rpartition(": ")[2]
    assert sorted(map(len, own.split())) == [5] * 6

    at_party = {each["name"]: each for each in rado("party", "members", *ada)["data"]["members"]}
    assert at_party["bo"]["digits"] == own
    rado("party", "accept", "bo", *ada, "--fingerprint", at_party["bo"]["digits"])
    listed = rado("learner", "members", "--config", str(federation.learner.config))["data"]
    assert listed["roster_version"] == 1
    at_learner = {each["name"]: each for each in listed["members"]}
    signed = rado("provision", "roster", str(federation.root / "federation" / "federation"))["data"]["members"]
    assert {name: each["digits"] for name, each in at_party.items()} == {
        name: each["digits"] for name, each in at_learner.items()
    }
    assert {name: each["digits"] or None for name, each in at_learner.items()} == {
        each["name"]: each["fingerprint"] for each in signed
    }
    assert len({each["digits"] for each in at_learner.values()} - {""}) == len(PARTIES) + 1
    assert (at_learner["bo"]["rows_at_least"], at_learner["ada"]["rows_at_least"]) == (3, None)


def test_a_removed_party_says_that_it_is_not_in_the_roster(federation):
    """It never sees the roster that leaves it out: the coordinator answers none of its calls."""
    ada, hub = (federation.member(name).config for name in ("ada", "coordinator"))
    operator = federation.root / "federation" / "federation"

    def status() -> dict:
        return rado("party", "status", "--config", str(ada))["data"]

    assert "NOT_IN_ROSTER" not in status()["not_ready"]
    rado("provision", "remove", str(operator), "ada")
    rado("coordinator", "roster", str(operator / "roster.signed"), "--config", str(hub))
    found = wait_until(lambda: (s := status())["not_ready"] and "NOT_IN_ROSTER" in s["not_ready"] and s, what="it")
    assert found["roster_version"] == 1
    assert "COORDINATOR_UNREACHABLE" not in found["not_ready"]
