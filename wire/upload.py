"""Chunks of ciphertexts, and the digest of an upload."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rado.v1 import ciphertext_pb2
from wire.codec import Wire
from wire.envelopes import sha256
from wire.errors import Code, WireError

CHUNK_BYTES = 512 * 1024


@dataclass(frozen=True)
class Chunk(Wire[ciphertext_pb2.Chunk]):
    """Consecutive fixed-width ciphertexts with their position. `content_hash` is verified at construction."""

    index: int
    ciphertexts: bytes
    content_hash: bytes

    def __post_init__(self) -> None:
        if len(self.ciphertexts) > CHUNK_BYTES:
            raise WireError(Code.MESSAGE_TOO_LARGE)
        if not self.ciphertexts or sha256(self.ciphertexts) != self.content_hash:
            raise WireError(Code.CHUNK_MALFORMED, f"The hash of chunk {self.index} does not match its content.")

    @classmethod
    def of(cls, index: int, ciphertexts: bytes) -> "Chunk":
        """A chunk of these bytes."""
        return cls(index, ciphertexts, sha256(ciphertexts))


def ciphertexts_per_chunk(ciphertext_bytes: int) -> int:
    """The number of whole ciphertexts that fit in a chunk, at least one."""
    return max(1, CHUNK_BYTES // ciphertext_bytes)


def chunk_ranges(ciphertexts: int, per_chunk: int) -> Iterator[range]:
    """The ciphertexts of each chunk, in order."""
    for start in range(0, ciphertexts, per_chunk):
        yield range(start, min(start + per_chunk, ciphertexts))


def upload_digest(chunk_hashes: Sequence[bytes]) -> bytes:
    """The digest in a receipt: SHA-256 of a domain, the number of chunks and every chunk's hash."""
    return sha256(b"rado.v1/upload\0", len(chunk_hashes).to_bytes(4, "big"), *chunk_hashes)
