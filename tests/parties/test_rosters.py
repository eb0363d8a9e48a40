"""The rosters that a party accepts while it answers queries."""

import pytest

from parties.rosters import Rosters
from radofed.common.logs import Log
from wire.envelopes import SigningKey
from wire.errors import Code, WireError

pytestmark = pytest.mark.usefixtures("small_comb")


def test_a_newer_roster_is_fetched_if_the_query_needs_it(ada):
    ada.world.version = 2
    ada.world.party_keys["dee"] = SigningKey.generate()
    assert ada.go(ada.world.ask(ada.world.query(roster_version=2)))
    assert ada.rosters.current.version == 2


def test_a_roster_that_goes_back_is_rejected(ada, world):
    world.version = 3
    assert ada.rosters.offer(world.roster_envelope)
    ada.restart()
    world.version = 2
    assert not ada.rosters.offer(world.roster_envelope)
    world.version = 3
    world.party_keys["dee"] = SigningKey.generate()
    assert not ada.rosters.offer(world.roster_envelope)
    world.version, world.federation_key = 4, SigningKey.generate()
    assert not ada.rosters.offer(world.roster_envelope)
    assert ada.rosters.current.version == 3
    assert ada.rosters.current.find("dee", ada.rosters.current.parties[0].role) is None


def rosters(directory, world, federation):
    key = world.federation_key.public_bytes
    return Rosters(directory, federation=federation, federation_key=key, log=Log("party.test"))


def test_before_the_first_roster_there_is_none_to_use(world, tmp_path):
    with pytest.raises(WireError) as caught:
        _ = rosters(tmp_path, world, world.roster.federation).current
    assert caught.value.code is Code.ROSTER_STALE


def test_a_roster_of_another_federation_is_rejected(world, tmp_path):
    """One key may sign for two federations."""
    others = rosters(tmp_path, world, "others")
    assert not others.offer(world.roster_envelope)
    assert others.known is None
