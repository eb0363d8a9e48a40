"""The comb, the short exponents, and the uniqueness of obfuscators."""

import os
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import gmpy2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import PlanError
from dpcore.paillier.obfuscation import Comb, Obfuscator
from dpcore.paillier.public import PublicKey
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SeededRandom, SystemRandom

TEST_KEY = SecretKey.generate_test_key(SeededRandom(b"obfuscation"), bits=512)
PUBLIC = TEST_KEY.public_key
BASE = 3**300 % PUBLIC.n_squared


@given(st.data(), st.integers(1, 7), st.integers(1, 5), st.integers(1, 300))
def test_the_comb_is_a_power(data, teeth, tables, exponent_bits):
    comb = Comb(BASE, PUBLIC.n, exponent_bits, teeth=teeth, tables=tables)
    exponents = [0, 1, 2**exponent_bits - 1, data.draw(st.integers(0, 2**exponent_bits - 1))]
    for exponent in exponents:
        if exponent < 2**exponent_bits:
            assert comb.power(exponent) == pow(BASE, exponent, PUBLIC.n_squared)


def test_the_default_comb_is_a_power():
    comb = Comb(BASE, PUBLIC.n, 256, teeth=12)
    random = SeededRandom(2)
    for exponent in [random.bits(256) for _ in range(20)]:
        assert comb.power(exponent) == pow(BASE, exponent, PUBLIC.n_squared)


def test_many_powers_at_once_keep_their_order_and_drop_surplus_bits():
    comb = Comb(BASE, PUBLIC.n, 13, teeth=3, tables=2)
    exponents = np.array([[0xFF, 0xFF], [0x01, 0x20], [0x02, 0x00]], dtype=np.uint8)
    expected = [pow(BASE, e, PUBLIC.n_squared) for e in (2**13 - 1, 1, 2)]
    assert comb.power_digits(comb.digits(exponents)) == expected


def test_exponents_out_of_range_are_refused():
    comb = Comb(BASE, PUBLIC.n, 10, teeth=2, tables=2)
    for exponent in (-1, 1024):
        with pytest.raises(ValueError):
            comb.power(exponent)


@pytest.mark.parametrize(("teeth", "tables", "bits"), [(0, 1, 8), (17, 1, 8), (1, 0, 8), (1, 1, 0)])
def test_an_invalid_comb_is_refused(teeth, tables, bits):
    with pytest.raises(PlanError, match="teeth"):
        Comb(BASE, PUBLIC.n, bits, teeth=teeth, tables=tables)


def test_a_comb_may_have_the_most_teeth(monkeypatch):
    monkeypatch.setattr("dpcore.paillier.obfuscation.MAXIMUM_TEETH", 3)
    assert Comb(BASE, PUBLIC.n, 8, teeth=3).power(6) == pow(BASE, 6, PUBLIC.n_squared)
    with pytest.raises(PlanError, match="choose 1 to 3"):
        Comb(BASE, PUBLIC.n, 8, teeth=4)


@pytest.mark.parametrize(("teeth", "tables"), [(3, 1), (3, 4), (1, 2)])
def test_a_table_has_an_entry_for_each_subset_of_its_teeth(teeth, tables):
    comb = Comb(BASE, PUBLIC.n, 30, teeth=teeth, tables=tables)
    assert [len(part) for table in comb._tables for part in table] == [2**teeth] * (2 * tables)


def test_obfuscators_are_nth_powers_of_jacobi_symbol_one():
    obfuscator = Obfuscator(PUBLIC, SeededRandom(1), teeth=6, tables=2)
    drawn = obfuscator.draw_many(40)
    # An n-th power encrypts zero.
    assert TEST_KEY.decrypt_many(drawn) == [0] * 40
    assert all(gmpy2.jacobi(o % PUBLIC.n, PUBLIC.n) == 1 for o in drawn)
    # h itself is a non-residue mod both primes, so odd exponents give non-residues and even ones residues. A square as
    # base would give residues only.
    residues = sum(gmpy2.legendre(o % TEST_KEY.p, TEST_KEY.p) == 1 for o in drawn)
    assert 5 < residues < 35


def test_no_obfuscator_repeats():
    obfuscator = Obfuscator(PUBLIC, SystemRandom(), teeth=6, tables=2)
    drawn = [*obfuscator.draw_many(1500), obfuscator.draw()]
    assert len(set(drawn)) == 1501
    assert obfuscator.draw_many(0) == []
    with pytest.raises(ValueError):
        obfuscator.draw_many(-1)


def test_each_encryptor_has_its_own_base():
    first = Obfuscator(PUBLIC, SystemRandom(), teeth=2, tables=1)
    second = Obfuscator(PUBLIC, SystemRandom(), teeth=2, tables=1)
    assert first._comb.power(1) != second._comb.power(1)


def test_the_draws_are_the_powers_of_the_random_exponents():
    source = SeededRandom(9)
    obfuscator = Obfuscator(PUBLIC, source, teeth=5, tables=3)
    twin = SeededRandom(9)
    x = twin.below(PUBLIC.n)
    base = pow(-x * x % PUBLIC.n, PUBLIC.n, PUBLIC.n_squared)
    exponents = [int.from_bytes(twin.bytes(32), "little") for _ in range(5)]
    assert obfuscator.draw_many(5) == [pow(base, e, PUBLIC.n_squared) for e in exponents]


@pytest.mark.parametrize(("teeth", "tables"), [(3, 1), (4, 2), (5, 8)])
def test_a_table_has_the_dimensions_that_are_asked_for(teeth, tables):
    comb = Obfuscator(PUBLIC, SeededRandom(9), teeth=teeth, tables=tables)._comb
    assert (comb.teeth, len(comb._tables)) == (teeth, tables)


def test_a_single_draw_takes_a_single_exponent():
    one_by_one, at_once = (Obfuscator(PUBLIC, SeededRandom(9), teeth=2, tables=1) for _ in range(2))
    assert [one_by_one.draw() for _ in range(3)] == at_once.draw_many(3)


def test_exponents_have_half_of_the_bits_or_the_given_number():
    assert Obfuscator(PUBLIC, SeededRandom(1), teeth=2, tables=1).exponent_bits == 256
    odd = PublicKey.for_tests((1 << 512) + 1)
    assert Obfuscator(odd, SeededRandom(1), teeth=2, tables=1).exponent_bits == 257
    assert Obfuscator(PUBLIC, SeededRandom(1), short_exponent_bits=512, teeth=2, tables=1).exponent_bits == 512
    for bad in (511, 513, 0, -1):
        with pytest.raises(PlanError, match="choose 512 to 512"):
            Obfuscator(PUBLIC, SeededRandom(1), short_exponent_bits=bad)


@pytest.mark.more
def test_the_table_grows_with_what_is_drawn_and_changes_no_draw():
    grown, fixed = Obfuscator(PUBLIC, SeededRandom(3)), Obfuscator(PUBLIC, SeededRandom(3), teeth=5, tables=1)
    teeth = [grown.teeth]
    for count in (1, 5, 60, 400):
        assert grown.draw_many(count) == fixed.draw_many(count)
        teeth.append(grown.teeth)
    # Exponents of 256 bits: a larger table pays only for thousands of draws.
    assert teeth == [4, 4, 4, 6, 8]
    grown.prepare(20_000)
    assert grown.teeth == 12
    assert fixed.teeth == 5


# In multiplications, with exponents of 256 bits and 8 tables: a table of t teeth takes 1.5 * 8 * 2^t, a power with it
# 8 d + 1.6 (d - 1) for d = ceil(256 / 8 t). So 4, 6, 8 and 12 teeth take 192, 768, 3072 and 49152, and 75.2, 56, 36.8
# and 27.2 a power; 10 teeth save nothing against 8. At 41 draws 6 teeth are cheaper than 4 whose table is there, at
# 121 draws 8 are cheaper than 6.
@pytest.mark.parametrize(
    ("teeth", "count", "chosen"),
    [
        (4, 40, 4), (4, 41, 6), (4, 120, 6), (4, 121, 8), (4, 4800, 8), (4, 4801, 12), (6, 160, 6), (6, 161, 8),
        (8, 0, 8), (8, 5120, 8), (8, 5121, 12), (12, 0, 12), (12, 10**6, 12),
    ],
)  # fmt: skip
def test_the_table_is_the_cheapest_one(teeth, count, chosen, monkeypatch):
    obfuscator = Obfuscator(PUBLIC, SeededRandom(1))
    monkeypatch.setattr(obfuscator, "_build", lambda teeth: SimpleNamespace(teeth=teeth))
    obfuscator._comb = obfuscator._build(teeth)
    obfuscator.prepare(count)
    assert obfuscator.teeth == chosen


def test_many_small_draws_grow_the_table_too():
    obfuscator = Obfuscator(PUBLIC, SystemRandom())
    for _ in range(400):
        obfuscator.draw_many(3)
    assert obfuscator.teeth == 8
    obfuscator.prepare(2)
    obfuscator.prepare(0)
    assert obfuscator.teeth == 8


def test_the_forecast_is_what_was_drawn():
    obfuscator = Obfuscator(PUBLIC, SystemRandom())
    for count, teeth in ((40, 4), (1, 6)):
        obfuscator.draw_many(count)
        obfuscator.prepare(0)
        assert obfuscator.teeth == teeth


def test_a_draw_uses_the_old_table_while_another_thread_builds():
    obfuscator = Obfuscator(PUBLIC, SystemRandom())
    with obfuscator._building:
        assert TEST_KEY.decrypt_many(obfuscator.draw_many(600)) == [0] * 600
        assert obfuscator.teeth == 4
    obfuscator.prepare(600)
    assert obfuscator.teeth == 8


def test_several_threads_draw_at_once():
    obfuscator = Obfuscator(PUBLIC, SystemRandom())
    with ThreadPoolExecutor(4) as threads:
        drawn = [each for part in threads.map(obfuscator.draw_many, [300, 1, 700, 20]) for each in part]
    assert len(set(drawn)) == 1021
    assert TEST_KEY.decrypt_many(drawn) == [0] * 1021


def test_a_base_that_shares_a_factor_is_refused():
    with pytest.raises(ValueError, match="factor"):
        Comb(TEST_KEY.p, PUBLIC.n, 8, teeth=2)


def test_a_forked_child_draws_other_obfuscators():
    obfuscator = Obfuscator(PUBLIC, SystemRandom(), teeth=6, tables=2)
    obfuscator.draw()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, PUBLIC.to_wire(obfuscator.draw_many(3)))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        from_child = PUBLIC.from_wire(pipe.read())
    assert os.waitpid(child, 0)[1] == 0
    assert len(from_child) == 3
    assert not set(from_child) & set(obfuscator.draw_many(3))
