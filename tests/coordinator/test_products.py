"""The coordinator's computations: every ciphertext of a chunk is checked, and products encrypt sums."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.uploads import check_chunk
from dpcore.errors import ShapeError
from dpcore.paillier.public import PublicKey, multiply
from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SeededRandom
from tests.federation.coordinator import MANY_RADOS, refused
from wire.errors import Code
from wire.statements import Chunk

TEST_KEY = SecretKey.generate_test_key(SeededRandom(1), bits=128)


tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 1 << 60), min_size=width, max_size=width), min_size=1, max_size=6)
)


@given(tables)
def test_a_product_encrypts_the_sum_over_all_members(plaintexts):
    key = TEST_KEY.public_key
    obfuscator = pow(3, key.n, key.n_squared)
    uploads = [key.to_wire([key.raw_encrypt(value, obfuscator) for value in row]) for row in plaintexts]
    product = key.from_wire(multiply(key, iter(uploads)))
    assert TEST_KEY.decrypt_many(product) == [sum(column) % key.n for column in zip(*plaintexts, strict=True)]
    assert multiply(key, uploads[:1]) == uploads[0]


def uploads_of(members, length):
    key, random = TEST_KEY.public_key, SeededRandom(2)
    return [key.to_wire([1 + random.below(key.n_squared - 1) for _ in range(length)]) for _ in range(members)]


@pytest.mark.parametrize("length", [1, 63, 64, 131])
def test_any_number_of_threads_makes_the_same_bytes(length):
    key, uploads = TEST_KEY.public_key, uploads_of(4, length)
    products = [1] * length
    for upload in uploads:
        products = [a * int(b) % key.n_squared for a, b in zip(products, key.from_wire(upload), strict=True)]
    for threads in (None, 1, 2, 3, 8):
        assert multiply(key, iter(uploads), threads=threads) == key.to_wire(products)


@pytest.mark.parametrize(
    ("length", "threads", "by_caller"), [(64, 1, True), (63, 2, True), (64, 2, False), (64, 3, False)]
)
def test_the_caller_multiplies_alone_if_there_is_little_to_divide(length, threads, by_caller, monkeypatch):
    """A thread gets at least 32 ciphertexts."""
    multiplied, add = [], PublicKey.add_many

    def noted(key, total, ciphertexts):
        multiplied.append((threading.get_ident() == threading.main_thread().ident, len(total)))
        add(key, total, ciphertexts)

    monkeypatch.setattr(PublicKey, "add_many", noted)
    multiply(TEST_KEY.public_key, uploads_of(2, length), threads=threads)
    assert multiplied == ([(True, length)] if by_caller else [(False, 32)] * 2)


@pytest.mark.parametrize("threads", [1, 2])
def test_no_more_than_three_chunks_are_in_memory_however_many_members_there_are(threads):
    alive, most = [0], [0]

    class Counted(bytes):
        def __del__(self):
            alive[0] -= 1

    def uploads():
        for octets in originals:
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            yield Counted(octets)

    originals = uploads_of(20, 100)
    assert multiply(TEST_KEY.public_key, uploads(), threads=threads) == multiply(TEST_KEY.public_key, originals)
    # The first, the one that is multiplied, and the next.
    assert most[0] <= 4
    assert alive[0] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_chunks_that_do_not_match_are_refused(threads):
    key = TEST_KEY.public_key
    with pytest.raises(ShapeError):
        multiply(key, [], threads=threads)
    for lengths in ((1, 2), (2, 1), (100, 100, 101, 100), (100, 99)):
        chunks = [upload for length in lengths for upload in uploads_of(1, length)]
        with pytest.raises(ShapeError, match="same chunk"):
            multiply(key, chunks, threads=threads)


def test_less_than_one_thread_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        multiply(TEST_KEY.public_key, uploads_of(2, 1), threads=0)


def test_lengths_follow_from_the_query(world):
    opened = world.open(world.query(rados=MANY_RADOS))
    lengths = [opened.chunk_bytes(index) for index in range(opened.chunks)]
    assert sum(lengths) == opened.ciphertexts * opened.public_key.ciphertext_bytes
    assert lengths[0] == lengths[1] == 512 * 1024
    assert 0 < lengths[2] < lengths[0]
    for index in (-1, opened.chunks):
        refused(Code.CHUNK_MALFORMED, opened.chunk_bytes, index)


def test_one_bad_ciphertext_refuses_the_chunk_and_is_named(world):
    opened = world.open(world.query(rados=200))
    (good,) = world.chunks(opened, "ann")
    check_chunk(opened, good)
    width = opened.public_key.ciphertext_bytes
    data = bytearray(good.ciphertexts)
    data[3 * width : 4 * width] = bytes(width)
    error = refused(Code.CIPHERTEXT_INVALID, check_chunk, opened, Chunk.of(0, bytes(data)))
    assert "ciphertext 3 " in error.detail
