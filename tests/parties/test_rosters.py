"""The rosters that a party accepts while it answers queries."""

import pytest

from wire.envelopes import SigningKey

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
