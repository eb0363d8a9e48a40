"""Packing alone, and through encryption, addition and decryption."""

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import PlanError, ShapeError, SlotOverflowError, TotalError
from dpcore.numbers.fixed_point import Encoding, plan_encoding
from dpcore.paillier.obfuscation import Obfuscator
from dpcore.paillier.packing import (
    CheckSlotError,
    PlaintextRangeError,
    ciphertext_count,
    from_total,
    mask_addends,
    open_total,
    pack,
    unpack_total,
)
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SeededRandom

TEST_KEY = SecretKey.generate_test_key(SeededRandom(b"packing"), bits=512)
OBFUSCATOR = Obfuscator(TEST_KEY.public_key, SeededRandom(b"obfuscator"), teeth=6, tables=2)
BITS = TEST_KEY.public_key.bits
ENCODING = Encoding(16, 45, 48)


@st.composite
def cohorts(draw):
    """(encoding, values (K, L), rows (K,), masks or None): sums stay within w bits, including the extremes."""
    parties = draw(st.integers(1, 5))
    encoding = plan_encoding(
        largest_sum=draw(st.sampled_from([2**7 - 1, 2**19, 2**42 - 1, 2**60 - 1])),
        max_parties=parties,
        fraction_bits=16,
    )
    length = draw(st.integers(1, 40))
    bound = encoding.largest_sum // parties
    seed = SeededRandom(draw(st.binary(max_size=8)))
    values = np.array([[seed.below(2 * bound + 1) - bound for _ in range(length)] for _ in range(parties)])
    values[:, 0] = draw(st.sampled_from([bound, -bound, 0]))
    rows = [seed.below(bound + 1) for _ in range(parties)]
    if not draw(st.booleans()):
        return encoding, values, rows, [None] * parties
    count, slots = ciphertext_count(length, encoding, BITS), encoding.slots_per_ciphertext(BITS)
    w = encoding.value_bits
    drawn = [[[seed.below(2**w) for _ in range(slots)] for _ in range(count)] for _ in range(parties - 1)]
    last = [[-sum(m[c][s] for m in drawn) % 2**w for s in range(slots)] for c in range(count)]
    return encoding, values, rows, [np.array(mask, dtype=np.uint64) for mask in [*drawn, last]]


@given(cohorts())
def test_encrypted_totals_are_the_sums_of_the_integers(cohort):
    encoding, values, rows, masks = cohort
    key = TEST_KEY.public_key
    total = None
    for party_values, party_rows, mask in zip(values, rows, masks, strict=True):
        plaintexts = pack(party_values, party_rows, encoding, BITS, mask)
        assert max(plaintexts) < 2 ** (BITS - 1)
        ciphertexts = key.from_wire(key.to_wire(key.encrypt_many(plaintexts, OBFUSCATOR)))
        key.validate(ciphertexts)
        if total is None:
            total = ciphertexts
        else:
            key.add_many(total, ciphertexts)
    opened = open_total(TEST_KEY.decrypt_many(total), values.shape[1], len(values), encoding, BITS, rows=sum(rows))
    assert opened.dtype == np.int64
    assert opened.tolist() == values.sum(axis=0).tolist()


@given(cohorts(), st.binary(max_size=8))
def test_a_masks_addends_turn_bare_plaintexts_into_masked_ones(cohort, seed):
    encoding, values, rows, _ = cohort
    shape = ciphertext_count(values.shape[1], encoding, BITS), encoding.slots_per_ciphertext(BITS)
    random, largest = SeededRandom(seed), (1 << encoding.value_bits) - 1
    mask = np.array([[random.below(largest + 1) for _ in range(shape[1])] for _ in range(shape[0])], dtype=np.uint64)
    mask.flat[:2] = 0, largest
    given = values[0], rows[0], encoding, BITS
    added_up = [int(bare + addend) for bare, addend in zip(pack(*given), mask_addends(*given, mask), strict=True)]
    assert added_up == pack(*given, mask)
    top_up = values[-1] // 3
    addends = mask_addends(*given, mask, top_up)
    added_up = [int(bare + addend) for bare, addend in zip(pack(*given), addends, strict=True)]
    assert added_up == pack(values[0] + top_up, rows[0], encoding, BITS, mask)


def test_addends_are_refused_for_a_mask_of_another_shape():
    with pytest.raises(ShapeError, match="mask"):
        mask_addends(np.zeros(13, dtype=np.int64), 1, ENCODING, BITS, np.zeros((1, 10), dtype=np.uint64))
    for top_up in (np.zeros(12, dtype=np.int64), np.zeros(13, dtype=np.int32)):
        with pytest.raises(ShapeError, match="the top-up is"):
            mask_addends(np.zeros(13, dtype=np.int64), 1, ENCODING, BITS, np.zeros((2, 10), dtype=np.uint64), top_up)


def contributions(masked=False):
    """Three parties of 10, 20 and 40 rows, 13 values each: two plaintexts of ten slots."""
    random = SeededRandom(5)
    values = [np.array([random.below(2001) - 1000 for _ in range(13)]) for _ in range(3)]
    masks = [None] * 3
    if masked:
        modulus = 1 << ENCODING.value_bits
        drawn = [[[random.below(modulus) for _ in range(10)] for _ in range(2)] for _ in range(2)]
        last = [[(-drawn[0][c][s] - drawn[1][c][s]) % modulus for s in range(10)] for c in range(2)]
        masks = [np.array(mask, dtype=np.uint64) for mask in [*drawn, last]]
    packed = [pack(v, r, ENCODING, BITS, m) for v, r, m in zip(values, (10, 20, 40), masks, strict=True)]
    return values, packed


def added(*plaintexts):
    return [sum(column) for column in zip(*plaintexts, strict=True)]


def test_masks_that_sum_to_zero_change_nothing():
    values, plain = contributions()
    _, masked = contributions(masked=True)
    assert all(a != b for a, b in zip(plain, masked, strict=True))
    for packed in (plain, masked):
        total = open_total(added(*packed), 13, 3, ENCODING, BITS, rows=70)
        assert total.tolist() == sum(values).tolist()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("chosen", [(0, 1), (1, 2), (0, 0, 1, 2), (0, 0, 2), (1, 1, 2), (0,)])
def test_a_total_of_other_than_the_whole_cohort_fails_the_check_slot(chosen, masked):
    _, packed = contributions(masked)
    with pytest.raises(CheckSlotError) as refused:
        open_total(added(*[packed[i] for i in chosen]), 13, 3, ENCODING, BITS, rows=70)
    assert refused.value.ciphertext == 0
    assert refused.value.expected_rows == 70
    assert refused.value.found_rows != 70


def test_the_first_ciphertext_that_fails_is_named():
    _, packed = contributions()
    total = added(*packed)
    total[1] -= packed[0][1]
    with pytest.raises(CheckSlotError) as refused:
        open_total(total, 13, 3, ENCODING, BITS, rows=70)
    assert refused.value.ciphertext == 1
    values, checks = unpack_total(added(*packed), 13, 3, ENCODING, BITS)
    assert checks.tolist() == [70, 70]
    assert values.shape == (13,)


def test_the_layout_is_check_slot_then_values_then_padding():
    encoding = Encoding(0, 6, 8)
    (plaintext,) = pack(np.array([3, -4], dtype=np.int64), 9, encoding, 41)
    assert plaintext.to_bytes(5, "little") == bytes([32 + 9, 32 + 3, 32 - 4, 32, 32])


@pytest.mark.parametrize("bits", [1, 40])
def test_a_plaintext_beyond_its_slots_is_refused(bits):
    _, packed = contributions()
    total = added(*packed)
    total[1] += 1 << (480 + bits - 1)
    with pytest.raises(PlaintextRangeError) as refused:
        unpack_total(total, 13, 3, ENCODING, BITS)
    assert (refused.value.ciphertext, refused.value.allowed_bits) == (1, 480)


def test_the_top_slot_may_be_full():
    total = [(1 << 480) - 1, (1 << 480) - 1]
    unpack_total(total, 13, 3, ENCODING, BITS)


def test_an_empty_party_and_a_plaintext_of_zero_are_opened():
    encoding, values = Encoding(0, 6, 8), np.array([-32, 5], dtype=np.int64)
    assert open_total(pack(values, 0, encoding, 41), 2, 1, encoding, 41, rows=0).tolist() == [-32, 5]
    # Every slot of 0 is the smallest value of one party.
    values, checks = unpack_total([mpz(0)], 2, 1, encoding, 41)
    assert (values.tolist(), checks.tolist()) == ([-32, -32], [-32])


def test_a_wrong_number_of_plaintexts_is_refused():
    _, packed = contributions()
    for total in (added(*packed)[:1], [*added(*packed), 0], []):
        with pytest.raises(TotalError, match="fetch them all"):
            unpack_total(total, 13, 3, ENCODING, BITS)


@pytest.mark.parametrize(("length", "count"), [(1, 1), (9, 1), (10, 2), (18, 2), (19, 3)])
def test_ciphertext_count(length, count):
    assert ciphertext_count(length, ENCODING, BITS) == count
    assert len(pack(np.zeros(length, dtype=np.int64), 1, ENCODING, BITS)) == count


def test_the_size_of_a_real_query():
    assert ciphertext_count(2000 * 500, Encoding(16, 43, 48), 3072) == 16130


def test_no_values_and_no_room_are_refused():
    with pytest.raises(PlanError, match="at least one"):
        ciphertext_count(0, ENCODING, BITS)
    with pytest.raises(PlanError, match="longer key"):
        ciphertext_count(1, ENCODING, 96)
    assert ciphertext_count(1, ENCODING, 97) == 1


def test_rows_that_do_not_fit_the_check_slot_are_refused():
    encoding = Encoding(0, 6, 8)
    values = np.zeros(1, dtype=np.int64)
    assert unpack_total(pack(values, 31, encoding, 41), 1, 1, encoding, 41)[1].tolist() == [31]
    for rows in (32, -1):
        with pytest.raises(SlotOverflowError, match="0 to 31 rows"):
            pack(values, rows, encoding, 41)
        with pytest.raises(SlotOverflowError):
            open_total([0], 1, 1, encoding, 41, rows=rows)


def test_rows_that_do_not_fit_say_how_many_bits_they_need():
    with pytest.raises(SlotOverflowError) as refused:
        pack(np.zeros(1, dtype=np.int64), 32, Encoding(0, 6, 8), 41)
    # With its sign: 7 bits hold -64 to 63.
    assert (refused.value.needed_bits, refused.value.available_bits) == (7, 6)


def test_arrays_of_another_shape_or_type_are_refused():
    values = np.zeros(13, dtype=np.int64)
    for bad in (values.reshape(1, 13), values.astype(np.float64), values.astype(np.int32)):
        with pytest.raises(ShapeError, match="int64"):
            pack(bad, 1, ENCODING, BITS)
    for bad in (
        np.zeros((1, 10), dtype=np.uint64),
        np.zeros((2, 9), dtype=np.uint64),
        np.zeros((2, 10), dtype=np.int64),
    ):
        with pytest.raises(ShapeError, match="uint64"):
            pack(values, 1, ENCODING, BITS, bad)


@pytest.mark.parametrize("parties", [0, ENCODING.max_parties + 1])
def test_more_contributions_than_a_slot_holds_are_refused(parties):
    with pytest.raises(PlanError, match="contributions in one slot"):
        from_total(np.zeros(3, dtype=np.uint64), parties, ENCODING)


def test_a_negative_plaintext_is_refused():
    with pytest.raises(PlaintextRangeError):
        unpack_total([-1], 2, 1, ENCODING, BITS)
