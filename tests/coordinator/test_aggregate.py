"""What the coordinator computes: chunks are checked whole, and products encrypt sums."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.aggregate import check_chunk, chunk_bytes, multiply
from dpcore.errors import ShapeError
from dpcore.paillier.secret import SecretKey
from dpcore.randomness import SeededRandom
from tests.coordinator.world import MANY_RADOS, refused
from wire.errors import Code
from wire.upload import Chunk

TEST_KEY = SecretKey.generate_test_key(SeededRandom(1), bits=128)


tables = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 1 << 60), min_size=width, max_size=width), min_size=1, max_size=6)
)


@settings(max_examples=50, deadline=None)
@given(tables)
def test_a_product_encrypts_the_sum_over_all_members(plaintexts):
    key = TEST_KEY.public_key
    obfuscator = pow(3, key.n, key.n_squared)
    uploads = [key.to_wire([key.raw_encrypt(value, obfuscator) for value in row]) for row in plaintexts]
    product = key.from_wire(multiply(key, iter(uploads)))
    assert TEST_KEY.decrypt_many(product) == [sum(column) % key.n for column in zip(*plaintexts, strict=True)]
    assert multiply(key, uploads[:1]) == uploads[0]


def test_chunks_that_do_not_match_are_refused():
    key = TEST_KEY.public_key
    width = key.ciphertext_bytes
    with pytest.raises(ShapeError):
        multiply(key, [])
    with pytest.raises(ShapeError):
        multiply(key, [b"\1" * width, b"\1" * 2 * width])


def test_lengths_follow_from_the_query(world):
    opened = world.open(world.query(rados=MANY_RADOS))
    lengths = [chunk_bytes(opened, index) for index in range(opened.chunks)]
    assert sum(lengths) == opened.ciphertexts * opened.public_key.ciphertext_bytes
    assert lengths[0] == lengths[1] == 512 * 1024
    assert 0 < lengths[2] < lengths[0]
    for index in (-1, opened.chunks):
        refused(Code.CHUNK_MALFORMED, chunk_bytes, opened, index)


def test_one_bad_ciphertext_refuses_the_chunk_and_is_named(world):
    opened = world.open(world.query(rados=200))
    (good,) = world.chunks(opened, "ann")
    check_chunk(opened, good)
    width = opened.public_key.ciphertext_bytes
    data = bytearray(good.ciphertexts)
    data[3 * width : 4 * width] = bytes(width)
    error = refused(Code.CIPHERTEXT_INVALID, check_chunk, opened, Chunk.of(0, bytes(data)))
    assert "ciphertext 3 " in error.detail
