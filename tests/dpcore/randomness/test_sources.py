"""The system's source and the seeded one: distribution, determinism, threads, forks."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import REKEY_AFTER_BYTES, KeyedRandom, SeededRandom, SystemRandom, require_system

SOURCES = [SystemRandom(), SeededRandom(1)]


@pytest.mark.parametrize("random", [*SOURCES, KeyedRandom(bytes(32))], ids=["system", "seeded", "keyed"])
class TestEverySource:
    def test_bytes_have_the_requested_length(self, random):
        assert [len(random.bytes(count)) for count in (0, 1, 15, 16, 17, 1000)] == [0, 1, 15, 16, 17, 1000]

    def test_a_negative_count_is_refused(self, random):
        with pytest.raises(ValueError):
            random.bytes(-1)

    def test_bytes_are_uniform(self, random):
        counts = np.bincount(random.uint8(1 << 18), minlength=256)
        expected = (1 << 18) / 256
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        # 255 degrees of freedom: both sides, each beyond seven standard deviations or with probability below 1e-9.
        assert 130 < chi_square < 420

    def test_uint8_is_a_read_only_view(self, random):
        drawn = random.uint8(10)
        assert drawn.dtype == np.uint8
        assert drawn.shape == (10,)
        assert not drawn.flags.writeable

    def test_arrays_are_filled(self, random):
        out = np.zeros((3, 100), dtype=np.uint64)
        random.fill(out)
        assert out.all()
        assert len(np.unique(out)) == 300

    def test_only_contiguous_arrays_are_filled(self, random):
        with pytest.raises(ValueError, match="contiguous"):
            random.fill(np.zeros((4, 4), dtype=np.uint8)[:, :2])

    def test_bits_reach_both_ends(self, random):
        assert random.bits(0) == 0
        drawn = [random.bits(3) for _ in range(500)]
        assert set(drawn) == set(range(8))
        assert max(random.bits(65).bit_length() for _ in range(100)) == 65

    def test_below_is_uniform(self, random):
        counts = np.bincount([random.below(3) for _ in range(9000)], minlength=3)
        assert counts.size == 3
        # Standard deviation 45: within six of them.
        assert np.abs(counts - 3000).max() < 270

    def test_below_takes_any_size(self, random):
        assert random.below(1) == 0
        bound = (1 << 3000) + 1
        drawn = [random.below(bound) for _ in range(20)]
        assert all(0 <= number < bound for number in drawn)
        assert len(set(drawn)) == 20

    def test_an_empty_range_is_refused(self, random, monkeypatch):
        draws = iter(range(100))
        # A draw that never fits would try for ever.
        monkeypatch.setattr(type(random), "bytes", lambda self, count: bytes([next(draws)] * count))
        with pytest.raises(ValueError, match="at least 1"):
            random.below(0)


def test_a_seed_repeats_its_stream_however_it_is_divided():
    whole = SeededRandom(7).bytes(100)
    other = SeededRandom(7)
    filled = np.empty(10, dtype=np.uint8)
    drawn = other.bytes(3) + other.bytes(40)
    other.fill(filled)
    assert drawn + filled.tobytes() + other.uint8(47).tobytes() == whole
    assert SeededRandom(b"7").bytes(100) == whole
    assert SeededRandom(8).bytes(100) != whole


def test_the_seeded_stream_is_aes_of_a_counter_under_the_hash_of_the_seed():
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    digest = hashes.Hash(hashes.SHA256())
    digest.update(b"7")
    block_cipher = Cipher(algorithms.AES256(digest.finalize()), modes.ECB()).encryptor()
    expected = b"".join(block_cipher.update(counter.to_bytes(16, "big")) for counter in range(3))
    assert SeededRandom(7).bytes(48) == expected


def test_two_system_sources_differ():
    assert SystemRandom().bytes(32) != SystemRandom().bytes(32)


def test_a_draw_beyond_the_life_of_a_key_is_whole_and_fresh():
    random = SystemRandom()
    first = random.bytes(REKEY_AFTER_BYTES + 5)
    assert len(first) == REKEY_AFTER_BYTES + 5
    assert random.bytes(64) not in first


def test_keys_are_replaced_after_their_life(monkeypatch):
    keyed = []
    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda count: keyed.append(count) or real(count))
    random = SystemRandom()
    for _ in range(4):
        random.bytes(REKEY_AFTER_BYTES // 2)
    assert keyed == [32, 32]


@pytest.mark.parametrize("random", SOURCES, ids=["system", "seeded"])
def test_threads_share_a_source_without_repeating(random):
    with ThreadPoolExecutor(4) as pool:
        drawn = [
            block for blocks in pool.map(lambda _: [random.bytes(16) for _ in range(500)], range(4)) for block in blocks
        ]
    assert len(drawn) == len(set(drawn)) == 2000


def test_a_forked_child_draws_other_bytes():
    random = SystemRandom()
    random.bytes(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, random.bytes(32))
        os._exit(0)
    os.close(writer)
    from_child = os.read(reader, 32)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert len(from_child) == 32
    assert random.bytes(32) != from_child


def test_a_grandchild_with_a_familiar_process_id_still_draws_other_bytes(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 4321)
    random = SystemRandom()
    random.bytes(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, random.bytes(32))
        os._exit(0)
    os.close(writer)
    from_child = os.read(reader, 32)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert random.bytes(32) != from_child


def test_a_node_refuses_a_seed():
    require_system(SystemRandom())
    with pytest.raises(ConfigurationError, match="SystemRandom"):
        require_system(SeededRandom(1))
    with pytest.raises(ConfigurationError):
        require_system(KeyedRandom(os.urandom(32)))


def test_a_key_repeats_its_stream_and_another_bit_of_it_does_not():
    key = bytes(range(32))
    whole = KeyedRandom(key).bytes(100)
    other = KeyedRandom(key)
    assert other.bytes(3) + other.uint8(97).tobytes() == whole
    for bit in (0, 100, 255):
        changed = (int.from_bytes(key, "big") ^ 1 << bit).to_bytes(32, "big")
        assert KeyedRandom(changed).bytes(100) != whole


def test_the_keyed_stream_is_aes_of_a_counter():
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    block_cipher = Cipher(algorithms.AES256(bytes(range(32))), modes.ECB()).encryptor()
    expected = b"".join(block_cipher.update(counter.to_bytes(16, "big")) for counter in range(3))
    assert KeyedRandom(bytes(range(32))).bytes(48) == expected


def test_each_stream_of_a_key_starts_at_its_own_counter():
    """Stream s is AES of s (8 bytes, big-endian) followed by an ascending 8-byte counter."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    key = bytes(range(32))
    block_cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    for stream in (0, 1, 255, 256, 2**64 - 1):
        expected = b"".join(
            block_cipher.update(stream.to_bytes(8, "big") + counter.to_bytes(8, "big")) for counter in range(3)
        )
        assert KeyedRandom(key, stream).bytes(48) == expected
    assert KeyedRandom(key).bytes(48) == KeyedRandom(key, 0).bytes(48)
    for nowhere in (-1, 2**64):
        with pytest.raises(ValueError, match="stream"):
            KeyedRandom(key, nowhere)


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), ((1 << 18) - 1,), (3, 1 << 18), (1 << 18, 4)])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint64])
def test_an_array_is_filled_with_the_streams_next_bytes(shape, kind):
    filled, given = KeyedRandom(bytes(32), 3), KeyedRandom(bytes(32), 3)
    for _ in range(2):
        out = np.ones(shape, dtype=kind)
        filled.fill(out)
        assert out.tobytes() == given.bytes(out.nbytes)
    assert filled.bytes(7) == given.bytes(7)


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match="32 bytes"):
        KeyedRandom(bytes(length))
