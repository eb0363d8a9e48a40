"""The tag of a total: its polynomial, its masks and pads, and what a coordinator can no longer do."""

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from dpcore.paillier.masks import (
    PRIME,
    SEED_BYTES,
    CohortAttempt,
    MaskKeyError,
    TagError,
    check_tag,
    coefficient,
    is_low_order,
    pad,
    polynomial,
    tag_mask,
)

QUERY_ID, DIGEST = hashlib.sha256(b"query").digest(), hashlib.sha256(b"cohort").digest()
ATTEMPT = CohortAttempt(QUERY_ID, 1, DIGEST)
EXTREMES = [-(2**63), 2**63 - 1, 0, 1, -1]
LOW_ORDER = [
    bytes(32),
    b"\1" + bytes(31),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
]


def plainly(values, alpha):
    """Horner's rule, one value at a time."""
    total = 0
    for value in reversed(values):
        total = (total + value) * alpha % PRIME
    return total


@given(
    st.lists(st.one_of(st.sampled_from(EXTREMES), st.integers(-(2**63), 2**63 - 1)), max_size=40),
    st.one_of(st.sampled_from([0, 1, 2, PRIME - 1]), st.integers(0, PRIME - 1)),
)
def test_the_polynomial_is_that_of_horner_s_rule(values, alpha):
    assert polynomial(np.array(values, dtype=np.int64), alpha) == plainly(values, alpha)


@pytest.mark.parametrize("length", [4095, 4096, 4097, 8192, 10_000])
def test_the_polynomial_of_several_blocks(length):
    values = np.random.default_rng(length).integers(-(2**63), 2**63, length, dtype=np.int64)
    alpha = coefficient(bytes(SEED_BYTES), query_id=QUERY_ID, attempt=1)
    assert polynomial(values, alpha) == plainly(values.tolist(), alpha)


def test_the_coefficient_differs_in_query_attempt_and_seed():
    seed, other = bytes(SEED_BYTES), b"\1" * SEED_BYTES
    drawn = [
        coefficient(seed, query_id=QUERY_ID, attempt=1),
        coefficient(seed, query_id=QUERY_ID, attempt=2),
        coefficient(seed, query_id=DIGEST, attempt=1),
        coefficient(other, query_id=QUERY_ID, attempt=1),
    ]
    assert len(set(drawn)) == 4
    assert all(1 << 100 < number < PRIME for number in drawn)


@given(st.integers(2, 6))
def test_the_masks_of_the_whole_cohort_cancel_and_those_of_a_part_do_not(count):
    keys = {f"party-{i}": X25519PrivateKey.generate() for i in range(count)}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    masks = {
        name: tag_mask(name, keys[name], {peer: public[peer] for peer in public if peer != name}, ATTEMPT)
        for name in keys
    }
    assert sum(masks.values()) % PRIME == 0
    for left_out in masks:
        assert sum(mask for name, mask in masks.items() if name != left_out) % PRIME != 0


def test_a_pad_is_derived_by_the_member_and_the_learner_alone_for_one_attempt_and_cohort():
    member, learner, stranger = (X25519PrivateKey.generate() for _ in range(3))
    member_public, learner_public = (key.public_key().public_bytes_raw() for key in (member, learner))
    own = pad(member, learner_public, "a", ATTEMPT)
    assert own == pad(learner, member_public, "a", ATTEMPT)
    others = {
        pad(stranger, member_public, "a", ATTEMPT),
        pad(member, learner_public, "b", ATTEMPT),
        pad(member, learner_public, "a", CohortAttempt(QUERY_ID, 2, DIGEST)),
        pad(member, learner_public, "a", CohortAttempt(QUERY_ID, 1, QUERY_ID)),
        pad(member, learner_public, "a", CohortAttempt(DIGEST, 1, DIGEST)),
        own,
    }
    assert len(others) == 6


def test_pads_masks_and_the_pairwise_mask_streams_come_from_different_labels():
    mine, theirs = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    public = theirs.public_key().public_bytes_raw()
    derived = {ATTEMPT.derive(mine, public, label, "a", "b", peer="b", length=32) for label in LABELS}
    assert len(derived) == len(LABELS)


LABELS = [b"rado.v1/mask\0", b"rado.v1/tag-mask\0", b"rado.v1/tag-pad\0"]


@pytest.mark.parametrize("key", LOW_ORDER)
def test_keys_of_low_order_are_recognised_and_refused(key):
    assert is_low_order(key)
    with pytest.raises(MaskKeyError, match="mallory"):
        pad(X25519PrivateKey.generate(), key, "mallory", ATTEMPT)
    with pytest.raises(MaskKeyError, match="mallory"):
        tag_mask("a", X25519PrivateKey.generate(), {"mallory": key}, ATTEMPT)


def test_a_usual_key_is_not_of_low_order():
    assert not any(is_low_order(X25519PrivateKey.generate().public_key().public_bytes_raw()) for _ in range(20))


def tagged(values, alpha, pads):
    return (sum(pads) + polynomial(values, alpha)) % PRIME


class TestWhatACoordinatorTries:
    """It multiplies the tag's plaintext and adds to it, without knowing alpha or the pads."""

    values = np.array([3, -5, 2**40], dtype=np.int64)
    alpha = coefficient(b"\5" * SEED_BYTES, query_id=QUERY_ID, attempt=1)
    pads = (11 << 120, 7 << 100)

    def tag(self):
        return tagged(self.values, self.alpha, self.pads)

    def test_the_honest_total_opens_for_any_carry(self):
        check_tag(self.tag(), self.values, self.alpha, self.pads)
        check_tag(self.tag() + PRIME, self.values, self.alpha, self.pads)

    @pytest.mark.parametrize("place", [0, 1, 2])
    @pytest.mark.parametrize("change", [1, -1, 1 << 13, 1 << 61])
    def test_an_edit_of_a_value_fails(self, place, change):
        edited = self.values.copy()
        edited[place] += change
        with pytest.raises(TagError, match="does not match"):
            check_tag(self.tag(), edited, self.alpha, self.pads)

    @pytest.mark.parametrize("factor", [0, 2, -1, 1 << 13])
    def test_a_multiple_of_the_whole_total_fails(self, factor):
        with pytest.raises(TagError):
            check_tag(factor * self.tag() % PRIME, factor * self.values, self.alpha, self.pads)

    def test_swapped_values_fail(self):
        with pytest.raises(TagError):
            check_tag(self.tag(), self.values[::-1].copy(), self.alpha, self.pads)

    def test_a_total_made_from_the_public_key_alone_fails(self):
        nothing = np.zeros(3, dtype=np.int64)
        with pytest.raises(TagError):
            check_tag(0, nothing, self.alpha, self.pads)

    def test_the_total_of_another_attempt_fails(self):
        other = coefficient(b"\5" * SEED_BYTES, query_id=QUERY_ID, attempt=2)
        with pytest.raises(TagError):
            check_tag(tagged(self.values, other, self.pads), self.values, self.alpha, self.pads)

    @pytest.mark.parametrize("plaintext", [-1, 2 * PRIME])
    def test_a_plaintext_beyond_the_sum_of_the_members_tags_fails(self, plaintext):
        honest = self.tag()
        shifted = honest + PRIME * ((plaintext - honest) // PRIME + (plaintext > 0))
        with pytest.raises(TagError):
            check_tag(shifted, self.values, self.alpha, self.pads)


def test_forgeries_pass_as_seldom_as_the_proof_says(monkeypatch):
    """With a prime of 8 bits the bound L / p is large enough to be observed."""
    small = 251
    monkeypatch.setattr("dpcore.paillier.masks.PRIME", small)
    values, forged = np.array([1, 2, 3], dtype=np.int64), np.array([4, 2, 7], dtype=np.int64)
    passed = 0
    for alpha in range(small):
        try:
            check_tag((9 + polynomial(values, alpha)) % small, forged, alpha, [9])
        except TagError:
            continue
        passed += 1
    assert 1 <= passed <= 3


def test_a_member_is_not_its_own_peer():
    """Its mask with itself would not cancel."""
    key = X25519PrivateKey.generate()
    with pytest.raises(ValueError, match="own peers"):
        tag_mask("a", key, {"a": key.public_key().public_bytes_raw()}, ATTEMPT)


def test_a_plaintext_of_as_many_primes_as_members_is_refused():
    """Each tag is below the prime, so their sum is below that."""
    nothing, pads = np.zeros(3, dtype=np.int64), (7, PRIME - 7)
    for plaintext in (0, PRIME):
        check_tag(plaintext, nothing, TestWhatACoordinatorTries.alpha, pads)
    with pytest.raises(TagError):
        check_tag(2 * PRIME, nothing, TestWhatACoordinatorTries.alpha, pads)
