"""What a coordinator makes instead of a total, through real encryption (promise P2).

Each attack works on a total without a binding, which shows that it is one, and fails on a bound total.
"""

import numpy as np
import pytest

from dpcore.errors import TotalError
from dpcore.paillier.masks import PRIME, TagError, coefficient, polynomial
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import pack
from dpcore.paillier.secret import SecretKey
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import plain_design
from dpcore.randomness.sources import SystemRandom
from tests.federation import material
from tests.federation.cohort import OUTSIDER, ROWS, CohortInMemory
from tests.federation.material import SMALL as SCHEMA
from wire.errors import Code, WireError

# Two ciphertexts of values at least, so that they can be exchanged.
KIND = RadosQuery(70, plain_design(SCHEMA))


@pytest.fixture(scope="module")
def secret() -> SecretKey:
    return material.secret_key(3072)


@pytest.fixture(scope="module")
def obfuscator(secret) -> Obfuscator:
    return Obfuscator(secret.public_key, SystemRandom())


@pytest.fixture(scope="module")
def cohort(secret, obfuscator) -> CohortInMemory:
    return CohortInMemory(KIND, secret, obfuscator, max_attempts=2)


def edited(cohort: CohortInMemory, additions: dict[int, int]) -> list[bytes]:
    """The honest product with numbers added to the plaintexts of some ciphertexts, which needs no key."""
    key = cohort.opened.public_key
    (product,) = cohort.product([cohort.chunks[name] for name in ROWS])
    ciphertexts = key.from_wire(product)
    return [key.to_wire(key.add_plaintexts(ciphertexts, [additions.get(i, 0) for i in range(len(ciphertexts))]))]


def from_the_public_key_alone(cohort: CohortInMemory, values) -> list[bytes]:
    """A total that uses no upload: the values, with every check slot as the cohort's row counts demand."""
    key, encoding = cohort.opened.public_key, cohort.opened.query.encoding
    nothing = np.zeros(len(values), dtype=np.int64)
    packed = [
        pack(values if first else nothing, rows, encoding, key.bits)
        for first, rows in zip((True, False, False), ROWS.values(), strict=True)
    ]
    plaintexts = [sum(each) for each in zip(*packed, strict=True)]
    plaintexts += [1] * (cohort.opened.ciphertexts - len(plaintexts))
    return [key.to_wire(key.encrypt_many(plaintexts, cohort.obfuscator))]


def expect(cohort: CohortInMemory, products, values) -> None:
    """Its check slots hold, so the total would open to what the attacker wants; its tag does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("learner.decryption.check_tag", lambda *_: None)
        assert np.array_equal(cohort.open_products(products).values, values)
    with pytest.raises(TagError):
        cohort.open_products(products)


def honest(cohort: CohortInMemory):
    return sum(cohort.vectors.values())


def test_a_total_made_from_the_public_key_alone(cohort):
    wanted = np.arange(cohort.opened.query.length, dtype=np.int64)
    expect(cohort, from_the_public_key_alone(cohort, wanted), wanted)


@pytest.mark.parametrize("bit", [0, 5])
def test_a_number_added_to_a_value(cohort, bit):
    slot = cohort.opened.query.encoding.slot_bits
    wanted = honest(cohort).copy()
    wanted[1] += 1 << bit
    expect(cohort, edited(cohort, {0: 1 << (2 * slot + bit)}), wanted)


def test_half_of_the_modulus_added_to_a_value(cohort):
    """2^(w-1): a linear tag modulo 2^w would accept it half of the time."""
    encoding = cohort.opened.query.encoding
    half = 1 << (encoding.value_bits - 1)
    wanted = honest(cohort).copy()
    wanted[1] += -half if wanted[1] >= 0 else half
    expect(cohort, edited(cohort, {0: half << (2 * encoding.slot_bits)}), wanted)


def test_two_ciphertexts_exchanged(cohort):
    key, width = cohort.opened.public_key, cohort.opened.public_key.ciphertext_bytes
    assert cohort.opened.value_ciphertexts >= 2
    (product,) = cohort.product([cohort.chunks[name] for name in ROWS])
    swapped = product[width : 2 * width] + product[:width] + product[2 * width :]
    per_ciphertext = cohort.opened.query.encoding.slots_per_ciphertext(key.bits) - 1
    values = honest(cohort)
    # The last ciphertext is not full: what stands beyond it is cut off.
    wanted = np.concatenate([np.append(values[per_ciphertext:], np.zeros(per_ciphertext, np.int64))[:per_ciphertext]])
    wanted = np.concatenate([wanted, values[:per_ciphertext]])[: len(values)]
    if cohort.opened.value_ciphertexts == 2:
        expect(cohort, [swapped], wanted)


def test_the_total_of_another_query_with_the_same_question_and_rows(cohort, secret, obfuscator):
    """Row counts are public, so an adaptive learner's next answer could be replaced by an earlier one."""
    earlier = CohortInMemory(KIND, secret, obfuscator)
    earlier.vectors = {name: vector + 1 for name, vector in earlier.vectors.items()}
    earlier.contribute()
    replayed = earlier.product([earlier.chunks[name] for name in ROWS])
    expect(cohort, replayed, honest(earlier))


def test_the_total_of_another_attempt(cohort, secret, obfuscator):
    fresh = CohortInMemory(KIND, secret, obfuscator, max_attempts=2)
    first = fresh.product([fresh.chunks[name] for name in ROWS])
    first_values = honest(fresh)
    fresh.vectors = {name: vector - 3 for name, vector in fresh.vectors.items()}
    fresh.contribute(attempt=2)
    expect(fresh, first, first_values)


def test_the_honest_total_opens(cohort):
    assert np.array_equal(cohort.open_products(edited(cohort, {})).values, honest(cohort))


def test_a_bound_total_without_its_tag_or_with_another_s(cohort):
    key = cohort.opened.public_key
    last = cohort.opened.ciphertexts - 1
    (product,) = cohort.product([cohort.chunks[name] for name in ROWS])
    nothing = key.to_wire(key.encrypt_many([0], cohort.obfuscator))
    with pytest.raises(TagError):
        cohort.open_products([product[: -key.ciphertext_bytes] + nothing])
    for addition in (1, PRIME - 1, 1 << 100):
        with pytest.raises(TagError):
            cohort.open_products(edited(cohort, {last: addition}))


# A colluding member knows the coefficient and its own pad: it can shift values, as by sending others, and no more.


@pytest.fixture(scope="module")
def bound(secret, obfuscator) -> CohortInMemory:
    return CohortInMemory(KIND, secret, obfuscator)


def shifted(cohort: CohortInMemory, alpha: int, number: int = 7):
    """The honest total with a number added to a value, and to the tag with this coefficient; and the shift."""
    shift = np.zeros(cohort.opened.query.length, dtype=np.int64)
    shift[1] = number
    tag = polynomial(shift, alpha)
    slot, last = cohort.opened.query.encoding.slot_bits, cohort.opened.ciphertexts - 1
    (product,) = edited(cohort, {})
    # A member knows its own residue, so it can keep the sum in the range of three parties. Anybody else guesses once.
    (sum_of_tags,) = cohort.secret.decrypt_many(cohort.opened.public_key.from_wire(product)[last:])
    if sum_of_tags + tag >= len(ROWS) * PRIME:
        tag -= PRIME
    return edited(cohort, {0: number << (2 * slot), last: tag}), shift


def test_a_colluding_member_can_shift_values_as_it_could_by_lying(bound):
    products, shift = shifted(bound, bound.coefficient("a"))
    assert np.array_equal(bound.open_products(products).values, honest(bound) + shift)


def test_a_party_outside_the_cohort_shifts_values_only_if_it_was_asked(secret, obfuscator, bound):
    """So the learner asks the parties alone that it accepted: tests/learner/test_asked_parties.py."""
    careless = CohortInMemory(KIND, secret, obfuscator, asked=(*ROWS, OUTSIDER))
    products, shift = shifted(careless, careless.coefficient(OUTSIDER))
    assert np.array_equal(careless.open_products(products).values, honest(careless) + shift)
    # A seed that was sealed for another party, and one for another query, are of no use.
    with pytest.raises(WireError) as caught:
        bound.coefficient(OUTSIDER)
    assert caught.value.code is Code.PARTY_NOT_ASKED
    with pytest.raises(WireError) as caught:
        bound.opened.query.binding.unseal("a", bound.keys[OUTSIDER], bound.opened.query.nonce)
    assert caught.value.code is Code.SEED_MISMATCH
    products, _ = shifted(bound, careless.coefficient(OUTSIDER))
    with pytest.raises(TagError):
        bound.open_products(products)


def test_a_colluding_member_learns_from_a_refusal_whether_a_value_wraps(bound):
    """Not protected: threat model, 4.1, "What a coordinator learns by spoiling"."""
    alpha = bound.coefficient("a")
    half = 1 << (bound.opened.query.encoding.value_bits - 1)
    room = half - 1 - int(honest(bound)[1])
    assert bound.open_products(shifted(bound, alpha, room)[0]).values[1] == half - 1
    with pytest.raises(TagError):
        bound.open_products(shifted(bound, alpha, room + 1)[0])


def test_a_colluding_member_cannot_make_a_total_without_the_others_uploads(bound):
    wanted = np.arange(bound.opened.query.length, dtype=np.int64)
    key = bound.opened.public_key
    forged = key.from_wire(from_the_public_key_alone(bound, wanted)[0])
    tag = polynomial(wanted, bound.coefficient("a"))
    shifted = key.add_plaintexts(forged, [0] * (len(forged) - 1) + [tag])
    with pytest.raises(TotalError):
        bound.open_products([key.to_wire(shifted)])


def test_the_members_and_the_learner_derive_one_coefficient(bound):
    assert {bound.coefficient(name) for name in ROWS} == {
        coefficient(bound.opening.seed, query_id=bound.opened.query_id, attempt=1)
    }
