"""What the coordinator computes on ciphertexts: is a chunk valid, and what is the product of a cohort's chunks.

Pure: bytes in, bytes out. The coordinator holds no secret key; a product encrypts the sum (dpcore.paillier.public).
"""

from collections.abc import Iterable

from dpcore.errors import CiphertextError, ShapeError
from dpcore.paillier.public import PublicKey
from wire.errors import Code, WireError
from wire.query import OpenedQuery
from wire.upload import Chunk


def chunk_bytes(opened: OpenedQuery, index: int) -> int:
    """How long chunk `index` of every upload, and of the total, is. Raises WireError(CHUNK_MALFORMED)."""
    if not 0 <= index < opened.chunks:
        raise WireError(Code.CHUNK_MALFORMED, f"An upload has chunks 0 to {opened.chunks - 1}, this is {index}.")
    per_chunk = opened.ciphertexts_per_chunk
    return min(per_chunk, opened.ciphertexts - index * per_chunk) * opened.public_key.ciphertext_bytes


def check_chunk(opened: OpenedQuery, chunk: Chunk) -> None:
    """Refuse a chunk of the wrong length or with one ciphertext that is not a unit mod n^2; nothing is ever skipped.

    Raises WireError(CHUNK_MALFORMED or CIPHERTEXT_INVALID).
    """
    expected = chunk_bytes(opened, chunk.index)
    if len(chunk.ciphertexts) != expected:
        raise WireError(
            Code.CHUNK_MALFORMED, f"Chunk {chunk.index} has {expected} bytes, {len(chunk.ciphertexts)} came."
        )
    try:
        opened.public_key.validate(opened.public_key.from_wire(chunk.ciphertexts))
    except CiphertextError as error:
        raise WireError(Code.CIPHERTEXT_INVALID, f"In chunk {chunk.index}: {error}.") from error


def multiply(public_key: PublicKey, chunks: Iterable[bytes]) -> bytes:
    """The product, element by element, of one chunk of every cohort member; encrypts the sum of their plaintexts.

    chunks: validated, of one length, at least one. Raises ShapeError otherwise.
    """
    each = iter(chunks)
    first = next(each, None)
    if first is None:
        raise ShapeError("no chunks: give one of every member")
    product = public_key.from_wire(first)
    for chunk in each:
        public_key.add_many(product, public_key.from_wire(chunk))
    return public_key.to_wire(product)
