"""A learner whose key has short opening: its file, its certificates, and totals of parties that draw as they like."""

import json
import time
from dataclasses import replace

import gmpy2
import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.paillier import secret as secret_module
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import pack
from dpcore.paillier.public import PublicKey
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom
from learner.decryption import LearnerKey, create_key, load_key, load_key_of, open_total, retired_file, rotate_key
from radobase.writing import create_durably
from tests.federation.learner import REQUEST, World, random_values, to_chunks
from tests.federation.material import secret_key, short_opening_key
from tests.learner.test_opening import ROWS
from tests.learner.test_retries_and_features import states
from wire.envelopes import SigningKey
from wire.features import OWN_FEATURES, Feature
from wire.query import PaillierKey

NOW = 1_800_000_000


def keys_of(monkeypatch, *secrets):
    """Let the next keys be these, made once; returns what was asked for."""
    asked, left = [], iter(secrets)

    def generate(random, *, bits, with_short_opening):
        asked.append((bits, with_short_opening))
        return next(left)

    monkeypatch.setattr(SecretKey, "generate", staticmethod(generate))
    return asked


@pytest.mark.more
def test_a_key_with_short_opening_is_made_only_if_asked_for(tmp_path):
    plain, short = (create_key(tmp_path / f"{of}.jwk", 2048, with_short_opening=of) for of in (False, True))
    assert plain.public_key.subgroup is None
    assert short.public_key.subgroup is not None
    assert create_key(tmp_path / "default.jwk", 2048).public_key.subgroup is None
    assert load_key(tmp_path / "True.jwk") == short


def test_rotation_keeps_short_opening_unless_told(tmp_path, monkeypatch):
    path, short, plain = tmp_path / "paillier.jwk", short_opening_key(), secret_key()
    asked = keys_of(monkeypatch, short, short_opening_key(3072), plain, short)
    first = create_key(path, 2048, with_short_opening=True, now_unix_s=NOW)
    rotate_key(path, 3072)
    rotate_key(path, 2048, with_short_opening=False)
    assert [with_short for _, with_short in asked] == [True, True, False]
    # A query may be under the key with its subgroup, or without.
    for public_key in (first.public_key, first.public_key.without_subgroup):
        assert load_key_of(path, public_key) == first
    assert retired_file(path, first.public_key) == retired_file(path, first.public_key.without_subgroup)
    rotate_key(path, 2048, with_short_opening=True)
    assert asked[-1] == (2048, True)
    with pytest.raises(ConfigurationError, match="restore the file of the key"):
        load_key_of(path, PublicKey((1 << 2047) | 1))


def test_a_damaged_subgroup_is_refused_without_showing_it(tmp_path):
    jwk = {**short_opening_key().to_jwk(), "not_before_unix_s": NOW}
    hidden = jwk["short_opening"]["p_order"]
    jwk["short_opening"] = {**jwk["short_opening"], "q_order": hidden}
    path = tmp_path / "key.jwk"
    create_durably(path, json.dumps(jwk).encode())
    with pytest.raises(ConfigurationError, match="other orders than the key says") as caught:
        load_key(path)
    assert str(path) in str(caught.value)
    assert hidden not in str(caught.value)


def test_a_certificate_has_the_subgroup_only_for_nodes_that_know_it():
    key, signer = LearnerKey(short_opening_key(), NOW), SigningKey.generate("clinics")
    certified = [
        PaillierKey.from_bytes(key.certify("lea", signer, with_subgroup=known).payload) for known in (True, False)
    ]
    assert [each.public_key for each in certified] == [key.public_key, key.public_key.without_subgroup]
    assert key.certify("lea", signer) == key.certify("lea", signer, with_subgroup=True)


@pytest.fixture
def short_world():
    return World(LearnerKey(short_opening_key(), int(time.time()) - 100), {"ada": 100, "bo": 200, "cy": 300})


def total_of(world, opened, keys, seeds=(0, 1, 2)):
    """A total whose members draw obfuscators for these keys, and the values that it is of."""
    total, query, public = world.total(opened, ROWS), opened.query, opened.public_key
    contributions = [random_values(opened, seed) for seed in seeds]
    values, products = sum(contributions), None
    for own, key, rows in zip(contributions, keys, ROWS.values(), strict=True):
        plaintexts = pack(np.asarray(own, dtype=np.int64), rows, query.encoding, public.bits)
        # The first member sends the whole tag.
        plaintexts.append(world.tag(opened, total.cohort, values) if products is None else 0)
        source = Obfuscator(key, SystemRandom(), short_exponent_bits=512, teeth=4, tables=2)
        ciphertexts = public.encrypt_many(plaintexts, source)
        if products is None:
            products = ciphertexts
        else:
            public.add_many(products, ciphertexts)
    return total, products, values


@pytest.mark.parametrize("own_base", [(), (1,), (0, 1, 2)], ids=["none", "one", "all"])
def test_a_total_opens_whoever_of_its_members_draws_from_the_subgroup(short_world, small_chunks, own_base, monkeypatch):
    """Members of own_base have obfuscators of their own, as a party that does not know the generator."""
    opened = short_world.ask()
    assert Feature.SHORT_OPENING in opened.query.features
    key, secret = opened.public_key, short_world.key.secret
    keys = [key.without_subgroup if place in own_base else key for place in range(3)]
    total, products, values = total_of(short_world, opened, keys)
    exponents, raising = [], secret_module._raising

    def noted(count, threads):
        def raised(bases, exponent, prime):
            exponents.extend([exponent] * len(bases))
            return raising(count, threads)(bases, exponent, prime)

        return raised

    monkeypatch.setattr(secret_module, "_raising", noted)
    chunks, opening = to_chunks(opened, products), short_world.openings[opened.query_id]
    result = open_total(total, chunks, opened, short_world.roster, secret, opening=opening)
    assert np.array_equal(result.values, values)
    short = secret.short_opening
    full = len(exponents) - sum(exponent in (short.p_order, short.q_order) for exponent in exponents)
    assert full == (2 * opened.ciphertexts if own_base else 0)


def test_what_a_hostile_coordinator_puts_outside_the_subgroup_opens_to_the_same_total(short_world, small_chunks):
    """It may multiply n-th powers of its own into a total: the plaintexts and the learner's answer are the same."""
    opened = short_world.ask()
    total, products, values = total_of(short_world, opened, [opened.public_key] * 3)
    n, n_squared = opened.public_key.n, opened.public_key.n_squared
    spoiled = [int(c * gmpy2.powmod(2 + place, n, n_squared) % n_squared) for place, c in enumerate(products)]
    opening = short_world.openings[opened.query_id]
    for ciphertexts in (products, spoiled, [*spoiled[:1], *products[1:]]):
        chunks = to_chunks(opened, ciphertexts)
        result = open_total(total, chunks, opened, short_world.roster, short_world.key.secret, opening=opening)
        assert np.array_equal(result.values, values)


def test_a_total_under_another_generator_is_refused(short_world, small_chunks):
    opened = short_world.ask()
    total, products, _ = total_of(short_world, opened, [opened.public_key] * 3)
    subgroup = opened.public_key.subgroup
    other = replace(subgroup, generator=pow(subgroup.generator, 2, opened.public_key.n))
    opened = replace(opened, public_key=replace(opened.public_key, subgroup=other))
    with pytest.raises(ConfigurationError, match="give the file of the key that the query was sent with"):
        open_total(
            total, to_chunks(opened, products), opened, short_world.roster, short_world.key.secret,
            opening=short_world.openings[opened.query_id],
        )  # fmt: skip


@pytest.mark.parametrize("lacking", ["none", "ada", "coordinator"])
def test_the_generator_is_sent_if_every_node_knows_what_it_is(setting, lacking):
    setting.world.key = LearnerKey(short_opening_key(), int(time.time()) - 100)
    states(setting)
    older = tuple(name for name in OWN_FEATURES if name != Feature.SHORT_OPENING)
    if lacking == "coordinator":
        setting.stub.own_features = older
    elif lacking == "ada":
        setting.stub.features[0] = setting.world.features("ada", older)
    with setting.session() as session:
        session._key = setting.world.key
        plan = session.plan(REQUEST)
        key = PaillierKey.from_bytes(plan.query.paillier_key.payload).public_key
        assert session.key.secret.opens(key)
    assert (key.subgroup is None) == (lacking != "none")
    assert (Feature.SHORT_OPENING in plan.query.features) == (lacking == "none")
    said = "not every node that is asked states the feature short-opening"
    assert any(said in sentence for sentence in plan.sentences()) == (lacking != "none")
