"""Paillier keys with a subgroup on the wire: what is read and refused, and the feature that queries name for it."""

import time
from dataclasses import replace

import pytest

from tests.federation.learner import World
from tests.federation.material import short_opening_key
from wire.envelopes import MessageType, SigningKey
from wire.errors import Code, WireError
from wire.features import Feature
from wire.query import PaillierKey, open_query

SIGNER = SigningKey.generate("clinics")
SUBGROUP = short_opening_key().short_opening


def refused(make, code, detail):
    with pytest.raises(WireError) as caught:
        make()
    assert caught.value.code is code
    assert detail in caught.value.detail


@pytest.fixture
def world(learner_key):
    return World(learner_key, {"ada": 100, "bo": 200, "cy": 300})


@pytest.fixture
def opened(world):
    return world.ask()


def subgroup_key(**changes):
    """The message of a key with short opening, with fields of its subgroup changed."""
    message = PaillierKey("learner", short_opening_key().public_key, 5, 6).to_proto()
    for name, value in changes.items():
        setattr(message.subgroup, name, value)
    return message.SerializeToString()


def test_every_field_of_a_subgroup_is_signed_and_read():
    key = PaillierKey("learner", short_opening_key().public_key, 5, 6)
    read = PaillierKey.from_bytes(key.sign(SIGNER).payload)
    assert read == key
    assert read.public_key.subgroup == short_opening_key().short_opening.subgroup
    assert subgroup_key() == key.to_bytes()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"generator": b"\0" + SUBGROUP.generator.to_bytes(256).lstrip(b"\0")}, "generator has leading zeros"),
        ({"generator": b""}, "not between 1 and n"),
        ({"generator": b"\1"}, "not between 1 and n"),
        ({"generator": b"\xff" * 256}, "not between 1 and n"),
        ({"generator": (short_opening_key().public_key.n - 1).to_bytes(256)}, "small order"),
        ({"order_bits": 511}, "said to have 511 bits, not 512 to 2048"),
        ({"order_bits": 0}, "said to have 0 bits"),
        ({"order_bits": 2049}, "said to have 2049 bits"),
    ],
)
def test_a_malformed_subgroup_is_refused(changes, says):
    refused(lambda: PaillierKey.from_bytes(subgroup_key(**changes)), Code.KEY_INVALID, says)


@pytest.mark.parametrize("named", [True, False], ids=["named without one", "not named with one"])
def test_a_key_has_a_subgroup_if_and_only_if_the_query_names_its_feature(world, opened, named):
    now, public_key = int(time.time()), short_opening_key().public_key
    features = tuple(sorted({*opened.query.features, Feature.SHORT_OPENING.value}))

    def ask(public_key, features):
        key = PaillierKey("learner", public_key, now - 5, now + 10**7).sign(world.learner_key)
        query = replace(opened.query, paillier_key=key, features=features)
        return world.learner_key.sign(MessageType.QUERY, query.to_bytes())

    good = ask(public_key, features)
    assert open_query(good, world.roster, now_unix_s=now).public_key == public_key
    bad = ask(public_key.without_subgroup, features) if named else ask(public_key, opened.query.features)
    refused(lambda: open_query(bad, world.roster, now_unix_s=now), Code.QUERY_INVALID, "names short-opening")
