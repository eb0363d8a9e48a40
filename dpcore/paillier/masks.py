"""Pairwise masks for secure aggregation: the whole cohort's total is exact, and any part of it is uniformly random.

Every two members derive a stream of numbers mod 2^w from an X25519 agreement. The member whose name sorts first adds it
to its slots, the other subtracts it. In the sum over the whole cohort all streams cancel.

In the sum over a proper subset, or one that counts a member twice, some stream of two honest members remains: the slots
are uniform mod 2^w to anyone who holds neither private key.

    shared = X25519(own private key, the peer's public key)
    key    = HKDF-SHA256(shared, salt = cohort digest,
                         info = "rado.v1/mask" || 00 || query id || u32(attempt) || u8(|a|) || a || u8(|b|) || b)
    stream = AES-256-CTR(key, initial counter 0), 8 little-endian bytes a slot, reduced mod 2^w

with a the lesser and b the greater of the two names by code point. The stream covers the slots ciphertext by
ciphertext, slot 0 first.

The construction is that of Bonawitz et al., "Practical Secure Aggregation" (CCS 2017), section 4, without its recovery
from drop-outs. Assumes that HKDF of an X25519 agreement (gap Diffie-Hellman) and AES-256 in counter mode are
pseudorandom. The key binds the cohort's digest: members that were shown different cohorts have streams that do not
cancel.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from dpcore.errors import RadofedError
from dpcore.randomness.sources import KeyedRandom

_DOMAIN = b"rado.v1/mask\0"


@dataclass(frozen=True)
class CohortAttempt:
    """One attempt with one cohort: what masks and pads are derived for."""

    query_id: bytes
    number: int
    """From 1."""
    cohort_digest: bytes
    """32 bytes."""

    def derive(
        self, own_key: X25519PrivateKey, peer_key: bytes, domain: bytes, *names: str, peer: str, length: int
    ) -> bytes:
        """`length` bytes that only the holders of the two keys can derive (the module's docstring).

        names: of the two parties in the order of code points, or of the one party. peer: named in the error. Raises
        MaskKeyError if the peer's key is of low order.
        """
        octets = [name.encode() for name in names]
        named = b"".join(len(name).to_bytes(1, "big") + name for name in octets)
        info = domain + self.query_id + self.number.to_bytes(4, "big") + named
        return HKDF(SHA256(), length, self.cohort_digest, info).derive(agreed(own_key, peer_key, peer))

    def pairs(
        self, own_name: str, own_key: X25519PrivateKey, peers: Mapping[str, bytes], domain: bytes, *, length: int
    ) -> Iterator[tuple[bool, bytes]]:
        """What a member derives with each peer: whether it adds it (the peer subtracts it then), and `length` bytes.

        Raises MaskKeyError if a peer's key is of low order, ValueError if own_name is among the peers.
        """
        if own_name in peers:
            raise ValueError(f"{own_name!r} is among its own peers: leave it out")
        for peer, public in peers.items():
            lesser, greater = sorted((own_name, peer))
            yield own_name == lesser, self.derive(own_key, public, domain, lesser, greater, peer=peer, length=length)


class MaskKeyError(RadofedError):
    """No secret can be agreed with a peer's mask key, because it is of low order."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        super().__init__(f"the mask key of {peer!r} is of low order: refuse the cohort and ask that party to update")


def cohort_mask(
    own_name: str,
    own_key: X25519PrivateKey,
    peers: Mapping[str, bytes],
    attempt: CohortAttempt,
    *,
    shape: tuple[int, int],
    value_bits: int,
) -> NDArray[np.uint64]:
    """One member's mask: uint64 `shape` = (ciphertexts, slots), each entry below 2^value_bits.

    peers: the raw X25519 public keys of all other members, by name. The masks of all members sum to zero mod
    2^value_bits. own_key must be fresh for this attempt and used for this cohort only.

    Raises MaskKeyError if a peer's key is of low order, ValueError if own_name is among the peers.
    """
    total, stream = np.zeros(shape, dtype=np.uint64), np.empty(shape, dtype="<u8")
    for is_added, key in attempt.pairs(own_name, own_key, peers, _DOMAIN, length=32):
        # The array is reused for each peer: a cohort of hundreds has a stream for every two members.
        KeyedRandom(key).fill(stream)
        # Unsigned arithmetic is mod 2^64, of which 2^w is a divisor.
        if is_added:
            total += stream
        else:
            total -= stream
    return np.asarray(total & np.uint64((1 << value_bits) - 1), dtype=np.uint64)


def agreed(own_key: X25519PrivateKey, peer_key: bytes, peer: str) -> bytes:
    """The X25519 agreement with a peer's raw public key, 32 bytes. Raises MaskKeyError if that is of low order."""
    try:
        return own_key.exchange(X25519PublicKey.from_public_bytes(peer_key))
    except ValueError as error:
        raise MaskKeyError(peer) from error
