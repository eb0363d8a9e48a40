"""A member and the coordinator, with the learner, tell two parties of a cohort different things.

Both parties' uploads are decrypted, and the colluding member's masks are taken out of them. If both were shown the
same, what is left is their total, which a coalition may learn. Otherwise it is random.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.paillier.masks import CohortAttempt, cohort_mask
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import plain_design
from dpcore.randomness.sources import SystemRandom
from parties.answering.contribution import masked_chunks
from tests.federation import material
from tests.federation.cohort import CohortInMemory
from tests.federation.material import SMALL as SCHEMA
from wire.cohort import Acceptance, Cohort, sign


@dataclass(frozen=True)
class View:
    """What one party is shown. member_key: the colluding member's mask key in it."""

    acceptances: tuple[Acceptance, ...]
    member_key: X25519PrivateKey

    def digest(self, cohort: CohortInMemory) -> bytes:
        signed = tuple(sign(acceptance, cohort.keys[acceptance.party]) for acceptance in self.acceptances)
        return Cohort(cohort.opened.query_id, cohort.attempt, signed).digest


@pytest.fixture(scope="module")
def cohort() -> CohortInMemory:
    secret = material.secret_key()
    return CohortInMemory(RadosQuery(4, plain_design(SCHEMA)), secret, Obfuscator(secret.public_key, SystemRandom()))


@pytest.fixture
def honest_view(cohort) -> View:
    return View(tuple(cohort.acceptances), cohort.mask_keys["c"])


def without_the_member_s_mask(cohort: CohortInMemory, party: str, view: View) -> np.ndarray:
    """A party's slots for what it was shown, less the mask that the member c shares with it."""
    opened, encoding = cohort.opened, cohort.opened.query.encoding
    chunks = masked_chunks(
        opened,
        cohort.vectors[party],
        cohort.bare[party],
        own_name=party,
        own_key=cohort.mask_keys[party],
        acceptances=view.acceptances,
        cohort_digest=view.digest(cohort),
        alpha=cohort.coefficient(party),
    )
    (first, *_), width = cohort.secret.decrypt_many(opened.public_key.from_wire(b"".join(chunks))), encoding.slot_bits
    count = encoding.slots_per_ciphertext(opened.public_key.bits)
    slots = np.array([int(first >> (width * slot)) % (1 << width) for slot in range(count)], dtype=np.uint64)
    mask = cohort_mask(
        "c",
        view.member_key,
        {party: cohort.mask_keys[party].public_key().public_bytes_raw()},
        CohortAttempt(opened.query_id, cohort.attempt, view.digest(cohort)),
        shape=(opened.value_ciphertexts, count),
        value_bits=encoding.value_bits,
    )
    return slots + mask[0]


def values_that_open(cohort: CohortInMemory, shown_a: View, shown_b: View) -> int:
    """How many of the values of a and b open to their sum."""
    left = without_the_member_s_mask(cohort, "a", shown_a) + without_the_member_s_mask(cohort, "b", shown_b)
    bits, length = cohort.opened.query.encoding.value_bits, cohort.opened.query.length
    # Both offsets are 2^(w-1), and vanish together.
    wanted = (cohort.vectors["a"] + cohort.vectors["b"]).astype(np.uint64)
    modulus = np.uint64((1 << bits) - 1)
    return int(np.count_nonzero((left[1 : 1 + length] & modulus) == (wanted & modulus)))


def test_parties_that_are_shown_the_same_are_opened_together(cohort, honest_view):
    assert values_that_open(cohort, honest_view, honest_view) == cohort.opened.query.length


def expect_nothing(cohort: CohortInMemory, shown_a: View, shown_b: View) -> None:
    # Each of them opens by chance with a probability of 2^-value_bits.
    assert cohort.opened.query.encoding.value_bits > 24
    assert values_that_open(cohort, shown_a, shown_b) == 0


def test_a_member_that_shows_two_mask_keys(cohort, honest_view):
    key = X25519PrivateKey.generate()
    a, b, c = honest_view.acceptances
    other = View((a, b, replace(c, mask_key=key.public_key().public_bytes_raw())), key)
    expect_nothing(cohort, honest_view, other)


def test_a_member_that_shows_two_row_counts(cohort, honest_view):
    a, b, c = honest_view.acceptances
    expect_nothing(cohort, honest_view, replace(honest_view, acceptances=(a, b, replace(c, rows=c.rows + 1))))


def test_a_cohort_in_another_order(cohort, honest_view):
    expect_nothing(cohort, honest_view, replace(honest_view, acceptances=honest_view.acceptances[::-1]))
