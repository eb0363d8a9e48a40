"""Renewal of a roster by the offline federation key."""

import dataclasses
import datetime as dt
import json

import pytest

from dpcore.errors import ConfigurationError
from parties.members import Rosters
from radobase.logs import Log
from radofed.provision import ROSTER_DAYS, provision, renew_roster
from tests.federation.processes import rado
from wire.envelopes import Envelope, SigningKey, load_public_key
from wire.roster import Role, open_roster

NOW = dt.datetime(2030, 5, 1, 12, tzinfo=dt.UTC)
PARTIES = ["north", "south", "east"]


@pytest.fixture
def made(tmp_path):
    return provision(
        tmp_path / "fed", federation="clinics", coordinator_address="localhost:7443", parties=PARTIES, now=NOW
    )


@pytest.fixture
def federation(made):
    return made.directory / "federation"


def stored(federation):
    envelope = Envelope.from_bytes((federation / "roster.signed").read_bytes())
    return open_roster(envelope, load_public_key(federation / "federation.pub"))


def days(count: float) -> dt.timedelta:
    return dt.timedelta(days=count)


def test_a_new_federation_s_roster_expires_after_ninety_days(federation, made):
    roster = stored(federation)
    assert roster.not_after_unix_s == int((NOW + days(90)).timestamp())
    (coordinator,) = made.of(Role.COORDINATOR)
    assert (coordinator.directory / "roster.signed").read_bytes() == (federation / "roster.signed").read_bytes()
    assert "expires on 2030-07-30 12:00 UTC" in "\n".join(made.sentences())


def test_a_renewal_is_the_next_version_with_a_new_expiry_and_the_same_members(federation):
    before = stored(federation)
    found = renew_roster(federation, now=NOW + days(80))
    after = stored(federation)
    assert found.roster == after
    assert (after.version, after.members) == (2, before.members)
    assert after.issued_at_unix_s == int((NOW + days(80)).timestamp())
    assert after.not_after_unix_s == int((NOW + days(80 + ROSTER_DAYS)).timestamp())
    assert renew_roster(federation, days=7, now=NOW + days(81)).roster.not_after_unix_s == int(
        (NOW + days(88)).timestamp()
    )
    assert stored(federation).version == 3


def test_a_roster_of_version_0_1_gets_an_expiry(federation):
    key = SigningKey.load(federation / "federation.key", "clinics")
    old = dataclasses.replace(stored(federation), not_after_unix_s=0)
    (federation / "roster.signed").write_bytes(old.sign(key).to_bytes())
    assert renew_roster(federation, now=NOW).roster.not_after_unix_s > 0


def test_a_party_takes_the_renewed_roster(federation, tmp_path):
    (tmp_path / "state").mkdir()
    rosters = Rosters(
        tmp_path / "state",
        federation="clinics",
        federation_key=load_public_key(federation / "federation.pub"),
        log=Log("test"),
    )
    for version in (1, 2):
        assert rosters.offer(Envelope.from_bytes((federation / "roster.signed").read_bytes()))
        assert rosters.current.version == version
        renew_roster(federation, now=NOW)


def test_members_are_removed_by_name(federation):
    found = renew_roster(federation, without=["south"], now=NOW)
    assert [member.name for member in found.removed] == ["south"]
    assert [member.name for member in stored(federation).parties] == ["north", "east"]
    assert "removed: party south" in found.sentences()


@pytest.mark.parametrize("name", ["coordinator", "souht"])
def test_who_is_not_a_party_or_learner_is_not_removed(federation, name):
    before = stored(federation)
    with pytest.raises(ConfigurationError, match=f"no party or learner {name}"):
        renew_roster(federation, without=["south", name], now=NOW)
    assert stored(federation) == before


def test_the_coordinator_s_newer_roster_is_continued(federation, tmp_path):
    newer = tmp_path / "served.signed"
    older = (federation / "roster.signed").read_bytes()
    renew_roster(federation, without=["south"], now=NOW)
    newer.write_bytes((federation / "roster.signed").read_bytes())
    (federation / "roster.signed").write_bytes(older)
    found = renew_roster(federation, newest=newer, now=NOW)
    assert (found.roster.version, len(found.roster.parties)) == (3, 2)
    # An older one beside a newer one changes nothing.
    newer.write_bytes(older)
    assert renew_roster(federation, newest=newer, now=NOW).roster.version == 4


def test_two_rosters_of_one_version_are_refused(federation, tmp_path):
    other = tmp_path / "other.signed"
    older = (federation / "roster.signed").read_bytes()
    renew_roster(federation, without=["south"], now=NOW)
    other.write_bytes((federation / "roster.signed").read_bytes())
    (federation / "roster.signed").write_bytes(older)
    renew_roster(federation, now=NOW)
    with pytest.raises(ConfigurationError, match="two different rosters of version 2"):
        renew_roster(federation, newest=other, now=NOW)


def test_another_federation_s_roster_and_no_roster_are_refused(federation, tmp_path):
    other = provision(tmp_path / "other", federation="other", coordinator_address="localhost:1", parties=PARTIES)
    for newest in (other.directory / "federation" / "roster.signed", tmp_path / "absent"):
        with pytest.raises(ConfigurationError, match="--roster"):
            renew_roster(federation, newest=newest, now=NOW)
    (federation / "roster.signed").write_bytes(b"x")
    with pytest.raises(ConfigurationError, match="not a roster"):
        renew_roster(federation, now=NOW)


def test_a_clock_before_the_last_issue_is_refused(federation):
    with pytest.raises(ConfigurationError, match="clock shows 2030-04-30"):
        renew_roster(federation, now=NOW - days(1))


@pytest.mark.parametrize("count", [0, -1, 3651])
def test_days_out_of_range_are_refused(federation, tmp_path, count):
    with pytest.raises(ConfigurationError, match="from 1 to 3650"):
        renew_roster(federation, days=count, now=NOW)
    with pytest.raises(ConfigurationError, match="from 1 to 3650"):
        provision(
            tmp_path / "x", federation="x", coordinator_address="h:1", parties=PARTIES, roster_days=count, now=NOW
        )
    assert not (tmp_path / "x").exists()


def test_the_command_prints_version_expiry_and_members(tmp_path):
    directory = tmp_path / "fed"
    arguments = ["--federation", "clinics", "--directory", str(directory), "--coordinator", "localhost:7443"]
    init = rado("provision", "init", *arguments, "--party", "north", "--party", "south", "--roster-days", "30")
    expires = dt.datetime.strptime(init["data"]["roster_expires"], "%Y-%m-%d %H:%M %Z").replace(tzinfo=dt.UTC)
    assert 29 <= (expires - dt.datetime.now(dt.UTC)).days <= 30
    found = rado("provision", "renew-roster", str(directory / "federation"), "--remove", "south")["data"]
    json.dumps(found)
    assert (found["version"], found["removed"]) == (2, ["south"])
    fingerprints = {member["name"]: member["fingerprint"] for member in init["data"]["members"]}
    assert {m["name"]: m["fingerprint"] for m in found["members"]} == {
        name: value for name, value in fingerprints.items() if name != "south"
    }
    assert found["not_after_unix_s"] == stored(directory / "federation").not_after_unix_s
    rado("provision", "renew-roster", str(tmp_path / "absent"), code=4)
