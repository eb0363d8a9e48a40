import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.errors import Code, WireError
from wire.statements import CHUNK_BYTES, Chunk, chunk_ranges, ciphertexts_per_chunk, upload_digest


@given(st.integers(1, 5000), st.integers(1, 700))
def test_ranges_cover_every_ciphertext_once(ciphertexts, per_chunk):
    ranges = list(chunk_ranges(ciphertexts, per_chunk))
    assert [i for r in ranges for i in r] == list(range(ciphertexts))
    assert all(len(r) == per_chunk for r in ranges[:-1])
    assert len(ranges) == -(-ciphertexts // per_chunk)


def test_a_chunk_is_its_hash():
    chunk = Chunk.of(3, b"abc")
    assert Chunk.from_proto(chunk.to_proto()) == chunk
    for data, hash_ in ((b"abd", chunk.content_hash), (b"", hashlib.sha256(b"").digest()), (b"abc", b"")):
        with pytest.raises(WireError) as caught:
            Chunk(3, data, hash_)
        assert caught.value.code is Code.CHUNK_MALFORMED
    with pytest.raises(WireError) as caught:
        Chunk.of(0, bytes(CHUNK_BYTES + 1))
    assert caught.value.code is Code.MESSAGE_TOO_LARGE
    assert Chunk.of(0, bytes(CHUNK_BYTES)).index == 0


def test_a_chunk_holds_whole_ciphertexts():
    assert ciphertexts_per_chunk(768) == 682
    assert [ciphertexts_per_chunk(CHUNK_BYTES + more) for more in (-1, 0, 1)] == [1, 1, 1]
    assert ciphertexts_per_chunk(768) * 768 <= CHUNK_BYTES < (ciphertexts_per_chunk(768) + 1) * 768


def test_upload_digest_depends_on_order_and_count():
    a, b = hashlib.sha256(b"a").digest(), hashlib.sha256(b"b").digest()
    assert len({upload_digest(x) for x in ([a, b], [b, a], [a], [a, b, b], [])}) == 5
    assert upload_digest([a]) == hashlib.sha256(b"rado.v1/upload\0" + b"\0\0\0\1" + a).digest()
