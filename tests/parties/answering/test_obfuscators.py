"""A party prepares obfuscators: those of a query from its acceptance, spare ones between queries."""

import pytest
from pydantic import ValidationError

from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SeededRandom, SystemRandom
from parties.answering.contribution import MOST_KEYS, Obfuscators
from parties.config import PartyConfig
from tests.waiting import wait_until

KEYS = [SecretKey.generate_test_key(SeededRandom(seed), bits=256).public_key for seed in range(MOST_KEYS + 1)]


@pytest.fixture
def obfuscators():
    made = Obfuscators(SystemRandom(), spare=7, idle_s=0.1)
    yield made
    made.close()


def test_what_is_expected_is_made_and_spare_ones_once_it_is_drawn(obfuscators):
    obfuscators.expect(KEYS[0], 12)
    source = obfuscators.source(KEYS[0])
    wait_until(lambda: source.ready == 12)
    source.draw_many(12)
    assert source.ready == 0
    obfuscators.rest(KEYS[0])
    wait_until(lambda: source.ready == 7)
    assert obfuscators.source(KEYS[0]) is source
    assert source.public_key == KEYS[0]


def test_the_last_keys_are_kept_and_older_ones_forgotten(obfuscators):
    first, second = (obfuscators.source(key) for key in KEYS[:2])
    first_again = obfuscators.source(KEYS[0])
    third = obfuscators.source(KEYS[2])
    assert first_again is first
    assert obfuscators.source(KEYS[0]) is first
    assert obfuscators.source(KEYS[2]) is third
    assert obfuscators.source(KEYS[1]) is not second
    # A contribution that was being encrypted from the discarded pool continues.
    second.prepare(5)
    assert len(set(second.draw_many(3))) == 3
    assert second.ready == 0


def test_a_query_that_comes_meanwhile_puts_the_spare_ones_off():
    obfuscators = Obfuscators(SystemRandom(), spare=7, idle_s=3600)
    obfuscators.rest(KEYS[0])
    waiting = obfuscators._until_spare
    obfuscators.rest(KEYS[0])
    assert waiting.finished.is_set()
    waiting = obfuscators._until_spare
    obfuscators.expect(KEYS[0], 2)
    assert waiting.finished.is_set()
    obfuscators.rest(KEYS[0])
    waiting = obfuscators._until_spare
    obfuscators.close()
    assert waiting.finished.is_set()


def test_a_timer_that_is_late_makes_nothing():
    obfuscators = Obfuscators(SystemRandom(), spare=7, idle_s=3600)
    obfuscators.rest(KEYS[0])
    timer = obfuscators._until_spare
    obfuscators.expect(KEYS[0], 2)
    timer.function()
    assert obfuscators.source(KEYS[0])._stock().kept == 0
    obfuscators.rest(KEYS[0])
    timer = obfuscators._until_spare
    obfuscators.close()
    timer.function()
    assert not obfuscators._pools


def test_without_spare_ones_nothing_waits():
    obfuscators = Obfuscators(SystemRandom(), spare=0, idle_s=0.0)
    obfuscators.rest(KEYS[0])
    assert obfuscators._until_spare is None
    obfuscators.close()


def test_closing_forgets_all(obfuscators):
    obfuscators.expect(KEYS[0], 5)
    source = obfuscators.source(KEYS[0])
    wait_until(lambda: source.ready == 5)
    obfuscators.close()
    assert source.ready == 0


@pytest.mark.usefixtures("small_comb")
def test_a_query_is_prepared_for_when_it_is_accepted_and_not_when_it_is_refused(ada):
    envelope = ada.world.ask()
    key, ciphertexts = ada.world.key.public_key, ada.world.open(envelope).ciphertexts
    assert ada.lifecycle.advance(ada.work(envelope))
    source = ada.lifecycle._obfuscators.source(key)
    wait_until(lambda: source.ready == ciphertexts)
    ada.lifecycle.compute(ada.work(envelope))
    assert source.ready == 0
    other = ada.world.ask(ada.world.query(max_parties=2, cohort_min=2))
    assert not ada.lifecycle.advance(ada.work(other))
    assert (ada.hub.accepted, source.ready) == ([True, False], 0)


@pytest.mark.parametrize("spare", [-1, (1 << 16) + 1, "many"])
def test_an_impossible_number_of_spare_ones_is_refused(spare):
    with pytest.raises(ValidationError, match="spare_obfuscators"):
        PartyConfig.model_validate({"spare_obfuscators": spare})


SHORT = SecretKey.generate_test_key(SeededRandom(9), bits=256, order_bits=40)


@pytest.mark.parametrize("own_base", [False, True])
def test_a_party_may_draw_from_a_base_of_its_own_under_a_key_with_a_subgroup(own_base):
    """Those that are expected, drawn and spare are of one pool."""
    key = SHORT.public_key
    made = Obfuscators(SystemRandom(), spare=3, idle_s=0.05, own_base=own_base)
    try:
        made.expect(key, 5)
        source = made.source(key)
        wait_until(lambda: source.ready == 5)
        assert source.public_key == (key.without_subgroup if own_base else key)
        inside = [pow(int(each), SHORT.short_opening.p_order, SHORT.p**2) == 1 for each in source.draw_many(5)]
        assert inside == [not own_base] * 5
        ciphertexts = key.encrypt_many([4, 5], source)
        assert SHORT.decrypt_many(ciphertexts) == [4, 5]
        made.rest(key)
        wait_until(lambda: source.ready == 3)
        assert made.source(key) is source
    finally:
        made.close()
