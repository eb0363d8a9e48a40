"""Masks come off over the members that uploaded, by shares of their keys, and nothing else comes off."""

import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from gmpy2 import is_prime
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from dpcore.paillier import sharing
from dpcore.paillier.masks import PRIME, CohortAttempt, cohort_mask, tag_mask
from dpcore.paillier.sharing import SHARE_BYTES, Recovery, SharesError, deal
from dpcore.paillier.survivors import (
    SEALED_BYTES,
    SealError,
    Secret,
    deal_keys,
    is_enough,
    open_share,
    open_unmasking,
    seal_unmasking,
    self_commitment,
    self_mask,
    self_tag_mask,
    share_commitment,
    survivors_digest,
    threshold,
)
from dpcore.randomness.sources import SeededRandom, SystemRandom
from tests.dpcore.paillier.test_masks import chi_square_of_uniform

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "survivors.json").read_text())
QUERY_ID = hashlib.sha256(b"query").digest()
SHARING = CohortAttempt(QUERY_ID, 1, hashlib.sha256(b"sharing").digest())
COHORT = CohortAttempt(QUERY_ID, 1, hashlib.sha256(b"cohort").digest())
NAMES = ("a", "b", "c", "d", "e")


@given(st.integers(1, 8), st.integers(0, 4), st.binary(min_size=32, max_size=32), st.randoms(use_true_random=False))
def test_any_shares_as_many_as_the_threshold_give_the_secret_back(needed, more, secret, order):
    shares = deal(secret, threshold=needed, members=needed + more, random=SystemRandom())
    assert {len(share) for share in shares} == {SHARE_BYTES}
    places = order.sample(range(1, needed + more + 1), needed)
    assert Recovery(places).secret({place: shares[place - 1] for place in places}) == secret


def test_one_share_less_than_the_threshold_fits_every_secret():
    """Two of three shares of a secret, and a third that makes them shares of another one."""
    assert is_prime(sharing.PRIME, 50)
    shares = deal(b"s" * 32, threshold=3, members=3, random=SystemRandom())
    other = b"t" * 32
    first, second, third = (sharing._weight(place, (1, 2, 3)) for place in (1, 2, 3))
    known = first * int.from_bytes(shares[0], "big") + second * int.from_bytes(shares[1], "big")
    fitting = (int.from_bytes(other, "big") - known) * pow(int(third), -1, sharing.PRIME) % sharing.PRIME
    forged = {1: shares[0], 2: shares[1], 3: int(fitting).to_bytes(SHARE_BYTES, "big")}
    assert Recovery([1, 2, 3]).secret(forged) == other


def test_shares_below_the_threshold_are_uniform():
    drawn = [deal(bytes(32), threshold=2, members=2, random=SystemRandom())[1] for _ in range(4000)]
    # The first byte is the carry of a prime above 2^256.
    values = np.frombuffer(b"".join(share[1:9] for share in drawn), dtype=">u8").astype(np.uint64)
    assert abs(chi_square_of_uniform(values, 64)) < 6


def test_shares_that_are_none_of_one_secret_are_refused():
    shares = deal(b"s" * 32, threshold=2, members=3, random=SystemRandom())
    recovery = Recovery([1, 3])
    for wrong, sentence in (
        ({1: shares[0]}, "missing"),
        ({1: shares[0], 3: b"\xff" * SHARE_BYTES}, "modulo the prime"),
        ({1: shares[0], 3: shares[2][1:]}, "modulo the prime"),
        ({1: bytes(SHARE_BYTES), 3: (594).to_bytes(SHARE_BYTES, "big")}, "one secret"),
    ):
        with pytest.raises(SharesError, match=sentence):
            recovery.secret(wrong)
    for places in ([], [1, 1], [0, 1]):
        with pytest.raises(ValueError, match="places"):
            Recovery(places)
    for needed, members, secret in ((0, 3, bytes(32)), (4, 3, bytes(32)), (2, 3, bytes(31))):
        with pytest.raises(ValueError, match="shares"):
            deal(secret, threshold=needed, members=members, random=SystemRandom())


class Members:
    """Five members that accepted, and what each of them dealt; t = 4."""

    def __init__(self, random=None) -> None:
        random = random or SystemRandom()
        self.mask_keys = {name: X25519PrivateKey.from_private_bytes(random.bytes(32)) for name in NAMES}
        self.share_keys = {name: X25519PrivateKey.from_private_bytes(random.bytes(32)) for name in NAMES}
        self.seeds = {name: random.bytes(32) for name in NAMES}
        self.public = {name: key.public_key().public_bytes_raw() for name, key in self.share_keys.items()}
        self.dealt = {
            name: deal_keys(
                name,
                seed=self.seeds[name],
                mask_key=self.mask_keys[name].private_bytes_raw(),
                share_key=self.share_keys[name],
                members=self.public,
                needed=4,
                attempt=SHARING,
                random=random,
            )
            for name in NAMES
        }

    def share(self, of, dealer, name):
        sealed = self.dealt[dealer].sealed[NAMES.index(name)]
        return open_share(sealed, of, dealer, self.public[dealer], name, self.share_keys[name], SHARING)


def test_masks_of_those_that_uploaded_come_off():
    members, shape, bits = Members(), (3, 5), 40
    modulus = np.uint64((1 << bits) - 1)
    mask_keys = {name: key.public_key().public_bytes_raw() for name, key in members.mask_keys.items()}
    survivors, vanished = NAMES[:4], NAMES[4]

    def peers(name):
        return {peer: public for peer, public in mask_keys.items() if peer != name}

    total, tag = np.zeros(shape, dtype=np.uint64), 0
    for name in survivors:
        key = members.mask_keys[name]
        total += cohort_mask(name, key, peers(name), COHORT, shape=shape, value_bits=bits)
        total += self_mask(members.seeds[name], name, COHORT, shape=shape, value_bits=bits)
        tag += tag_mask(name, key, peers(name), COHORT) + self_tag_mask(members.seeds[name], name, COHORT)
    recovery = Recovery([1, 2, 3, 4])

    def recovered(of, dealer):
        return recovery.secret({NAMES.index(name) + 1: members.share(of, dealer, name) for name in survivors})

    for name in survivors:
        seed = recovered(Secret.SELF_MASK, name)
        assert self_commitment(seed, name, SHARING) == members.dealt[name].self_commitment
        total -= self_mask(seed, name, COHORT, shape=shape, value_bits=bits)
        tag -= self_tag_mask(seed, name, COHORT)
    lost = X25519PrivateKey.from_private_bytes(recovered(Secret.MASK_KEY, vanished))
    others = {name: mask_keys[name] for name in survivors}
    # The sum of the vanished member's own masks is what the survivors' lack.
    total += cohort_mask(vanished, lost, others, COHORT, shape=shape, value_bits=bits)
    assert not (total & modulus).any()
    assert (tag + tag_mask(vanished, lost, others, COHORT)) % PRIME == 0


def test_self_masks_are_uniform_and_differ_by_everything_that_they_are_for():
    bits = 40

    def stream(seed=b"s" * 32, name="a", attempt=COHORT):
        return self_mask(seed, name, attempt, shape=(400, 63), value_bits=bits)

    first = stream()
    assert abs(chi_square_of_uniform(first, bits)) < 6
    assert (first == stream()).all()
    for other in (stream(b"t" * 32), stream(name="b"), stream(attempt=SHARING)):
        assert (first != other).any()


def test_a_share_opens_for_its_recipient_and_its_sharing_alone():
    members = Members()
    share = members.share(Secret.SELF_MASK, "a", "b")
    commitment = members.dealt["a"].self_shares[1]
    assert share_commitment(share, Secret.SELF_MASK, "a", "b", SHARING) == commitment
    assert share_commitment(share, Secret.MASK_KEY, "a", "b", SHARING) != commitment
    sealed, public = members.dealt["a"].sealed[1], members.public["a"]
    assert len(sealed) == SEALED_BYTES
    wrong = (
        (sealed, "a", public, "c", members.share_keys["c"], SHARING),
        (sealed, "b", public, "b", members.share_keys["b"], SHARING),
        (sealed, "a", public, "b", members.share_keys["b"], COHORT),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), "a", public, "b", members.share_keys["b"], SHARING),
        (b"", "a", public, "b", members.share_keys["b"], SHARING),
    )
    for octets, dealer, key, name, own, attempt in wrong:
        with pytest.raises(SealError):
            open_share(octets, Secret.SELF_MASK, dealer, key, name, own, attempt)


def test_who_learns_the_mask_key_of_a_member_that_vanished_opens_no_share():
    """Both what it dealt and what it was dealt are sealed with another key."""
    members = Members()
    for dealer, name in itertools.product("e", "abcd"):
        sealed = members.dealt[dealer].sealed[NAMES.index(name)]
        key, public = members.mask_keys["e"], members.public[name]
        with pytest.raises(SealError):
            open_share(sealed, Secret.SELF_MASK, dealer, public, name, key, SHARING)
    with pytest.raises(SealError):
        sealed, public = members.dealt["a"].sealed[4], members.public["a"]
        open_share(sealed, Secret.SELF_MASK, "a", public, "e", members.mask_keys["e"], SHARING)


def test_an_unmasking_opens_for_the_learner_and_its_survivors_alone():
    opening, member = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    public, key = member.public_key().public_bytes_raw(), opening.public_key().public_bytes_raw()
    digest = survivors_digest("ab", COHORT)
    sealed = seal_unmasking((b"x" * 33, None), "a", member, key, digest, COHORT, SystemRandom())
    assert open_unmasking(sealed, 2, "a", public, opening, digest, COHORT) == (b"x" * 33, b"\xff" * 33)
    for arguments in (
        (sealed, 3, "a", public, opening, digest, COHORT),
        (sealed, 2, "b", public, opening, digest, COHORT),
        (sealed, 2, "a", public, member, digest, COHORT),
        (sealed, 2, "a", public, opening, survivors_digest("a", COHORT), COHORT),
        (sealed, 2, "a", public, opening, digest, SHARING),
    ):
        with pytest.raises(SealError):
            open_unmasking(*arguments)


@pytest.mark.parametrize(
    ("sharers", "cohort_min", "may_vanish", "expected"), [(5, 4, 1, 4), (4, 4, 1, 4), (10, 4, 3, 7)]
)
def test_the_threshold_leaves_the_fewest_of_a_cohort(sharers, cohort_min, may_vanish, expected):
    assert threshold(sharers, cohort_min=cohort_min, may_vanish=may_vanish) == expected


def excluded(honest: int, alone: int, more: int, vanish: int, needed: int) -> bool:
    """Whether a sum over `alone` honest members can be opened of a cohort with `more` honest ones besides.

    Members that were shown this cohort may leave out as many as it has above the threshold, others `vanish`. Every one
    that the sum lacks has to be left out by `needed` honest members. A member leaves itself in. As a flow.
    """
    lacking = list(range(alone, alone + more))
    surplus = max(0, alone + more - needed)
    capacity = [min(surplus, vanish) if j < alone else vanish for j in range(honest)]
    size = 2 + honest + len(lacking)
    flow = np.zeros((size, size), dtype=np.int32)
    for j in range(honest):
        flow[0, 1 + j] = capacity[j]
        for at, i in enumerate(lacking):
            flow[1 + j, 1 + honest + at] = int(i != j)
    flow[1 + honest : size - 1, size - 1] = needed
    return maximum_flow(csr_array(flow), 0, size - 1).flow_value == needed * len(lacking)


def can_open_fewer(needed: int, vanish: int) -> bool:
    """Whether any choice of sets opens a sum over fewer than t - d = `needed` honest members. v = `vanish`."""
    honest = needed + vanish
    return any(
        excluded(honest, alone, more, vanish, needed)
        for alone in range(1, needed)
        for more in range(needed - alone, honest - alone + 1)
    )


@pytest.mark.parametrize("vanish", [1, 2, 3])
def test_the_condition_is_what_no_choice_of_sets_can_go_below(vanish):
    """Claims 1 and 2, by search over every size of cohort and of what the sum lacks."""
    for needed in range(1, vanish**2 + 4):
        colluders = 2
        safe = is_enough(needed + colluders + vanish, needed + colluders, colluders=colluders)
        assert safe == (needed > vanish**2)
        if safe:
            assert not can_open_fewer(needed, vanish)
    assert vanish == 1 or can_open_fewer(vanish**2, vanish)


def test_the_vectors_are_what_is_computed():
    found = vectors()
    assert found == VECTORS


def vectors() -> dict:
    """From given randomness: what another implementation has to compute too."""
    members = Members(SeededRandom(b"survivors"))
    dealt, digest = members.dealt["a"], survivors_digest(NAMES[:4], COHORT)
    stream = self_mask(members.seeds["a"], "a", COHORT, shape=(2, 3), value_bits=33)
    opening = X25519PrivateKey.from_private_bytes(b"o" * 32)
    public = opening.public_key().public_bytes_raw()
    shares = [members.share(Secret.SELF_MASK, dealer, "b") for dealer in NAMES[:4]]
    shares.append(members.share(Secret.MASK_KEY, "e", "b"))
    sealed = seal_unmasking(shares, "b", members.share_keys["b"], public, digest, COHORT, SeededRandom(b"nonce"))
    return {
        "prime": str(sharing.PRIME),
        "threshold": 4,
        "query_id": QUERY_ID.hex(),
        "attempt": 1,
        "sharing_digest": SHARING.cohort_digest.hex(),
        "cohort_digest": COHORT.cohort_digest.hex(),
        "members": [
            {
                "name": name,
                "seed": members.seeds[name].hex(),
                "mask_key": members.mask_keys[name].private_bytes_raw().hex(),
                "share_key": members.share_keys[name].private_bytes_raw().hex(),
                "self_mask_share_of_a": members.share(Secret.SELF_MASK, "a", name).hex(),
                "mask_key_share_of_a": members.share(Secret.MASK_KEY, "a", name).hex(),
                "sealed_by_a": dealt.sealed[at].hex(),
                "self_mask_share_commitment": dealt.self_shares[at].hex(),
                "mask_key_share_commitment": dealt.key_shares[at].hex(),
            }
            for at, name in enumerate(NAMES)
        ],
        "self_commitment_of_a": dealt.self_commitment.hex(),
        "self_mask_of_a": {"value_bits": 33, "slots": stream.reshape(-1).tolist()},
        "self_tag_mask_of_a": str(self_tag_mask(members.seeds["a"], "a", COHORT)),
        "survivors": list(NAMES[:4]),
        "survivors_digest": digest.hex(),
        "opening_key": opening.private_bytes_raw().hex(),
        "unmasking_of_b": sealed.hex(),
    }
