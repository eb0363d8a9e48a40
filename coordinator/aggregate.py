"""The coordinator's computations on ciphertexts: validates chunks and multiplies the chunks of a cohort.

Pure: bytes in, bytes out. The coordinator holds no secret key; a product encrypts the sum (dpcore.paillier.public).
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from dpcore.errors import CiphertextError, ShapeError
from dpcore.numbers.processors import processors
from dpcore.paillier.public import Ciphertext, PublicKey
from dpcore.paillier.threads import even_ranges, lock_released
from wire.errors import Code, WireError
from wire.query import OpenedQuery
from wire.upload import Chunk

# Least number of ciphertexts per thread, a quarter of a millisecond at 3072 bits.
_LEAST_RANGE = 32


def chunk_bytes(opened: OpenedQuery, index: int) -> int:
    """Length in bytes of chunk `index` of each upload and of the total. Raises WireError(CHUNK_MALFORMED)."""
    if not 0 <= index < opened.chunks:
        raise WireError(Code.CHUNK_MALFORMED, f"An upload has chunks 0 to {opened.chunks - 1}; this is chunk {index}.")
    per_chunk = opened.ciphertexts_per_chunk
    return min(per_chunk, opened.ciphertexts - index * per_chunk) * opened.public_key.ciphertext_bytes


def check_chunk(opened: OpenedQuery, chunk: Chunk) -> None:
    """Refuse a chunk of the wrong length or with a ciphertext that is not a unit mod n^2. Checks every ciphertext.

    Raises WireError(CHUNK_MALFORMED or CIPHERTEXT_INVALID).
    """
    expected = chunk_bytes(opened, chunk.index)
    if len(chunk.ciphertexts) != expected:
        raise WireError(
            Code.CHUNK_MALFORMED, f"Chunk {chunk.index} must have {expected} bytes; {len(chunk.ciphertexts)} arrived."
        )
    try:
        opened.public_key.validate(opened.public_key.from_wire(chunk.ciphertexts))
    except CiphertextError as error:
        raise WireError(Code.CIPHERTEXT_INVALID, f"In chunk {chunk.index}: {error}.") from error


def multiply(public_key: PublicKey, chunks: Iterable[bytes], *, threads: int | None = None) -> bytes:
    """The element-wise product of one chunk of every cohort member. It encrypts the sum of their plaintexts.

    chunks: validated, of one length, at least one. Each is read while the previous one is multiplied, so that memory
    does not grow with their number. threads: number of threads, None for one per processor; the bytes are the same for
    any number. Raises ShapeError if there are no chunks or their lengths differ, ValueError if threads < 1.
    """
    threads = processors() if threads is None else threads
    if threads < 1:
        raise ValueError(f"{threads} threads: give at least 1")
    each = iter(chunks)
    first = next(each, None)
    if first is None:
        raise ShapeError("no chunks: give one chunk of every member")
    product = public_key.from_wire(first)
    if threads == 1 or len(product) < 2 * _LEAST_RANGE:
        for chunk in each:
            _check_length(chunk, first)
            with lock_released():
                public_key.add_many(product, public_key.from_wire(chunk))
        return public_key.to_wire(product)
    parts = even_ranges(len(product), min(threads, len(product) // _LEAST_RANGE))
    width = public_key.ciphertext_bytes
    sums = [product[part.start : part.stop] for part in parts]

    def add(octets: memoryview, part: range, total: list[Ciphertext]) -> None:
        with lock_released():
            public_key.add_many(total, public_key.from_wire(octets[part.start * width : part.stop * width]))

    with ThreadPoolExecutor(len(parts), "multiplying") as pool:
        under_way: list[Future[None]] = []
        for chunk in each:
            _check_length(chunk, first)
            for future in under_way:
                future.result()
            octets = memoryview(chunk)
            under_way = [pool.submit(add, octets, part, total) for part, total in zip(parts, sums, strict=True)]
        for future in under_way:
            future.result()
    return b"".join(public_key.to_wire(total) for total in sums)


def _check_length(chunk: bytes, first: bytes) -> None:
    if len(chunk) != len(first):
        raise ShapeError(f"chunks of {len(first)} and {len(chunk)} bytes: give the same chunk of every member")
