"""What a party says of a roster that expires soon, has expired or never expires; and that its node starts with it."""

import pytest

from parties.config import PartyConfig
from parties.node import PartyNode
from radobase.logs import Daily
from radofed.provision import renew_roster
from tests.parties.check_world import run
from tests.waiting import wait_until
from wire.envelopes import Envelope, SigningKey
from wire.roster import EXPIRY_SKEW_S, Roster

DAY_S = 86_400


def expires(served) -> int:
    envelope = Envelope.from_bytes((served.made.directory / "federation" / "roster.signed").read_bytes())
    return Roster.from_bytes(envelope.payload).not_after_unix_s


@pytest.mark.parametrize(
    ("before_s", "status", "says"),
    [
        (31 * DAY_S, "ok", ""),
        (29 * DAY_S, "advice", "expires in 29 days"),
        (-EXPIRY_SKEW_S + 60, "advice", "expired on"),
        (-EXPIRY_SKEW_S - 60, "failed", "expired on"),
    ],
)
def test_party_check_tells_when_the_roster_expires(served, before_s, status, says):
    found = run(served, now=expires(served) - before_s)
    assert found["roster"].status == status
    assert says in found["roster"].fix
    assert "expires: 20" in found["roster"].detail
    # The later checks still run.
    assert found["membership"].status == "ok"


def test_party_check_tells_that_a_roster_never_expires(offline):
    directory = offline.made.directory / "federation"
    key = SigningKey.load(directory / "federation.key", "test")
    roster = Roster.from_bytes(Envelope.from_bytes((directory / "roster.signed").read_bytes()).payload)
    old = Roster(roster.federation, 2, roster.issued_at_unix_s, roster.members)
    (offline.directory("coordinator") / "roster.signed").write_bytes(old.sign(key).to_bytes())
    offline.start("coordinator")
    wait_until(lambda: '"listening"' in offline.log("coordinator"), what="the coordinator")
    found = run(offline)["roster"]
    assert (found.status, "never expires" in found.fix) == ("advice", True)
    assert '"roster expiry"' in offline.log("coordinator")


def test_a_node_warns_once_a_day_and_takes_the_renewed_roster(offline, caplog):
    directory = offline.made.directory / "federation"
    config = PartyConfig.load(offline.member("ada").config)
    config.state_directory.mkdir()
    renew_roster(directory, days=7)
    (config.state_directory / "roster.signed").write_bytes((directory / "roster.signed").read_bytes())

    def said() -> list[str]:
        return [record.fields["reason"] for record in caplog.records if record.getMessage() == "roster expiry"]

    with PartyNode(config) as node:
        assert len(said()) == 1
        assert "expires in 6 days" in said()[0]
        node._warn_of_expiry()
        assert len(said()) == 1
        node._roster_warnings._said_at_unix_s -= DAY_S + 1
        node._warn_of_expiry()
        assert len(said()) == 2
        renew_roster(directory)
        assert node._rosters.offer(Envelope.from_bytes((directory / "roster.signed").read_bytes()))
        node._roster_warnings = Daily()
        node._warn_of_expiry()
        assert len(said()) == 2
