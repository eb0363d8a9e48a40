"""Masks cancel over the whole cohort only."""

import hashlib
import hmac
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import TotalError
from dpcore.numbers.fixed_point import Encoding
from dpcore.paillier.masks import CohortAttempt, MaskKeyError, cohort_mask
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import ciphertext_count, mask_addends, open_total, pack, unpack_total
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom

QUERY_ID, DIGEST = hashlib.sha256(b"query").digest(), hashlib.sha256(b"cohort").digest()


def masks(names, shape, value_bits, *, attempt=1, digest=DIGEST, keys=None):
    keys = keys or {name: X25519PrivateKey.generate() for name in names}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    return {
        name: cohort_mask(
            name,
            keys[name],
            {peer: public[peer] for peer in names if peer != name},
            CohortAttempt(QUERY_ID, attempt, digest),
            shape=shape,
            value_bits=value_bits,
        )
        for name in names
    }


@given(st.integers(2, 6), st.integers(2, 62), st.integers(1, 5), st.integers(1, 9))
def test_the_whole_cohort_s_masks_cancel(count, value_bits, ciphertexts, slots):
    made = masks([f"party-{i}" for i in range(count)], (ciphertexts, slots), value_bits)
    total = sum(made.values()) & np.uint64((1 << value_bits) - 1)
    assert not total.any()
    assert all(int(mask.max()) < 1 << value_bits for mask in made.values())


def chi_square_of_uniform(values: np.ndarray, value_bits: int, cells: int = 64) -> float:
    """Pearson's statistic of the top bits, standardised: about N(0, 1) if the values are uniform mod 2^w."""
    counts = np.bincount((values.reshape(-1) >> np.uint64(value_bits - 6)).astype(int), minlength=cells)
    expected = values.size / cells
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return (statistic - (cells - 1)) / np.sqrt(2 * (cells - 1))


@pytest.mark.parametrize("value_bits", [20, 45])
def test_a_proper_subset_s_masks_are_uniform_and_nothing_less(value_bits):
    names = ["a", "b", "c", "d"]
    made = masks(names, (400, 63), value_bits)
    modulus = np.uint64((1 << value_bits) - 1)
    for size in (1, 2, 3):
        for subset in itertools.combinations(names, size):
            values = sum(made[name] for name in subset) & modulus
            assert abs(chi_square_of_uniform(values, value_bits)) < 6
            # Too even is as wrong as too uneven, and the test must reject a distribution that is not uniform.
            assert abs(chi_square_of_uniform(values >> np.uint64(1), value_bits)) > 50
    twice = (sum(made.values()) + made["a"]) & modulus
    assert abs(chi_square_of_uniform(twice, value_bits)) < 6


def test_a_coalition_that_knows_some_keys_sees_the_others_sum_and_no_part_of_it():
    """Promise P3: two of five members reveal their keys; parts of the other three stay uniform, all three cancel."""
    names, value_bits = ["a", "b", "c", "d", "e"], 40
    keys = {name: X25519PrivateKey.generate() for name in names}
    made = masks(names, (400, 63), value_bits, keys=keys)
    modulus = np.uint64((1 << value_bits) - 1)

    def known(name):
        """The part of a member's mask that the coalition of d and e can compute: its streams with d and e."""
        with_them = [
            masks([name, other], (400, 63), value_bits, keys={n: keys[n] for n in (name, other)}) for other in "de"
        ]
        return sum(pair[name] for pair in with_them)

    left = {name: (made[name] - known(name)) & modulus for name in "abc"}
    for part in ("a", "b", "c", "ab", "bc", "ac"):
        values = sum(left[name] for name in part) & modulus
        assert abs(chi_square_of_uniform(values, value_bits)) < 6
    assert not (sum(left.values()) & modulus).any()


def test_streams_of_other_attempts_cohorts_and_names_differ():
    keys = {name: X25519PrivateKey.generate() for name in ("a", "b")}
    first = masks(["a", "b"], (3, 5), 40, keys=keys)["a"]
    assert (first == masks(["a", "b"], (3, 5), 40, keys=keys)["a"]).all()
    assert (first != masks(["a", "b"], (3, 5), 40, keys=keys, attempt=2)["a"]).any()
    assert (first != masks(["a", "b"], (3, 5), 40, keys=keys, digest=bytes(32))["a"]).any()
    renamed = {"a": keys["a"], "c": keys["b"]}
    assert (first != masks(["a", "c"], (3, 5), 40, keys=renamed)["a"]).any()


def test_the_stream_is_what_the_protocol_says():
    """Writes HKDF out, so that another implementation can be checked against the same steps."""
    mine, theirs = (
        X25519PrivateKey.from_private_bytes(bytes(31) + b"\1"),
        X25519PrivateKey.from_private_bytes(b"\2" * 32),
    )
    public = theirs.public_key().public_bytes_raw()
    shared = mine.exchange(X25519PublicKey.from_public_bytes(public))
    info = b"rado.v1/mask\0" + QUERY_ID + b"\0\0\0\2" + b"\4east" + b"\5north"
    extracted = hmac.digest(DIGEST, shared, "sha256")
    key = hmac.digest(extracted, info + b"\1", "sha256")
    octets = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(2 * 3 * 8))
    stream = [int.from_bytes(octets[i : i + 8], "little") for i in range(0, 48, 8)]
    attempt, arguments = CohortAttempt(QUERY_ID, 2, DIGEST), {"shape": (2, 3), "value_bits": 33}
    east = cohort_mask("east", mine, {"north": public}, attempt, **arguments)
    assert east.reshape(-1).tolist() == [value % 2**33 for value in stream]
    north = cohort_mask("north", theirs, {"east": mine.public_key().public_bytes_raw()}, attempt, **arguments)
    assert north.reshape(-1).tolist() == [-value % 2**33 for value in stream]


def test_a_key_of_low_order_is_refused():
    with pytest.raises(MaskKeyError, match="mallory"):
        cohort_mask(
            "a",
            X25519PrivateKey.generate(),
            {"mallory": bytes(32)},
            CohortAttempt(QUERY_ID, 1, DIGEST),
            shape=(1, 2),
            value_bits=8,
        )


def test_masked_and_unmasked_totals_agree_bit_for_bit_and_a_part_fails():
    """Under encryption, with masks added to ciphertexts afterwards, as a party does; a 1024-bit test key."""
    secret = SecretKey.generate_test_key(SystemRandom(), bits=1024)
    key, encoding = secret.public_key, Encoding(fraction_bits=16, value_bits=30, slot_bits=32)
    obfuscator = Obfuscator(key, SystemRandom(), teeth=4, tables=2)
    rows = {"a": 5, "b": 700, "c": 41}
    vectors = {name: np.random.RandomState(i).randint(-(2**27), 2**27, 70) for i, name in enumerate(rows)}
    shape = (ciphertext_count(70, encoding, key.bits), encoding.slots_per_ciphertext(key.bits))
    made = masks(list(rows), shape, encoding.value_bits)
    plain, masked = {}, {}
    for name, vector in vectors.items():
        bare = pack(vector, rows[name], encoding, key.bits)
        wanted = pack(vector, rows[name], encoding, key.bits, made[name])
        plain[name] = key.encrypt_many(bare, obfuscator)
        addends = mask_addends(vector, rows[name], encoding, key.bits, made[name])
        masked[name] = key.add_plaintexts(plain[name], addends)
        assert secret.decrypt_many(masked[name]) == wanted

    def opened(uploads, members):
        product = list(uploads[members[0]])
        for name in members[1:]:
            key.add_many(product, uploads[name])
        return secret.decrypt_many(product)

    everyone = list(rows)
    expected = sum(vectors.values())
    for uploads in (plain, masked):
        values = open_total(opened(uploads, everyone), 70, 3, encoding, key.bits, rows=746)
        assert (values == expected).all()
    for part in (["a"], ["a", "b"], ["b", "c"], ["a", "b", "c", "c"]):
        with pytest.raises(TotalError):
            open_total(opened(masked, part), 70, len(part), encoding, key.bits, rows=sum(rows[n] for n in part))
        _, checks = unpack_total(opened(masked, part), 70, len(part), encoding, key.bits)
        # Not a constant that a coordinator could correct: every ciphertext's check slot is off by another number.
        assert len(set(checks.tolist())) == len(checks)


def test_a_member_is_not_its_own_peer():
    """Its mask with itself would not cancel."""
    key = X25519PrivateKey.generate()
    with pytest.raises(ValueError, match="own peers"):
        cohort_mask(
            "a",
            key,
            {"a": key.public_key().public_bytes_raw()},
            CohortAttempt(QUERY_ID, 1, DIGEST),
            shape=(1, 2),
            value_bits=40,
        )
