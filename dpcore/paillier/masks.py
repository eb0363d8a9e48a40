"""Pairwise masks for secure aggregation: the whole cohort's total is exact, and any part of it is uniformly random.

Two members that share a mask derive a stream of numbers mod 2^w from an X25519 agreement. The member whose name sorts
first adds it to its slots, the other subtracts it. In the sum over the whole cohort all streams cancel.

Every two share one, or those that a graph joins (dpcore.paillier.mask_graph). In a sum over a part of the honest
members, or one that counts some of them more often, a stream of two honest ones remains if the graph on them is
connected: the slots are uniform mod 2^w to anyone who holds none of their private keys.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from gmpy2 import mpz
from numpy.typing import NDArray

from dpcore.errors import RadofedError, TotalError
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
        """`length` bytes that only the two keys' holders can derive. Raises MaskKeyError for a key of low order."""
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
    """One member's mask: uint64 `shape` = (ciphertexts, slots), below 2^value_bits; all members' sum to zero.

    peers: X25519 public keys of those that share a mask with it, by name. own_key must be fresh, for this attempt and
    cohort only. Raises as `pairs`.
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


# The tag of a total: one number modulo p = 2^130 - 5 that binds all values to one query, attempt and cohort.
#
# Member i with values x (L integers) sends, under pairwise masks (mod p) and encrypted, t_i = s_i + sum over j of
# alpha^j x_j (mod p). alpha is the attempt's coefficient, which members and learner derive from the query's seed; s_i
# is the pad that only this member and the learner derive. The learner accepts V if the tags' total is sum s_i + sum
# alpha^j V_j.
#
# - Claim 1: against a coordinator that lacks alpha and one member's pad, a forged total is accepted with a probability
#   of at most L / p < 2^-101 (L <= 2^28).
# - Claim 2: the tag reveals nothing beside the total, whatever the learner sends.
#
# With a colluding member, who knows alpha, the coordinator can add numbers, and cannot make a total without all other
# members' uploads. Members check their seed against the signed query's commitment, HKDF-SHA256(seed, salt = nonce).
#
# Assumes that HKDF-SHA256 of an X25519 agreement is pseudorandom (gap Diffie-Hellman); that HKDF-SHA256 is a
# pseudorandom function of its input key (claim 1); that SHA-256 has no collisions (claim 2). Proofs:
# docs/explanation/proofs.md, "The tag".


PRIME = (1 << 130) - 5
SEED_BYTES = 32
COMMITMENT_BYTES = 32
_COEFFICIENT = b"rado.v1/tag-coefficient\0"
_COMMITMENT = b"rado.v1/tag-seed-commitment\0"
_PAD = b"rado.v1/tag-pad\0"
_MASK = b"rado.v1/tag-mask\0"
# 2^-254 from uniform modulo the prime.
WIDE_BYTES = 48
# Values of one block, whose sum of products of 16-bit limbs stays below 2^53: exact in double precision.
_BLOCK = 1 << 12
_LIMB_BITS = 16
_VALUE_LIMBS = 64 // _LIMB_BITS
_POWER_LIMBS = -(-PRIME.bit_length() // _LIMB_BITS)


class TagError(TotalError):
    """A total's tag is not that of its values: it is not the sum that the cohort's members sent for this attempt."""

    def __init__(self) -> None:
        super().__init__(
            "the total's tag does not match its values: it is not what the members of the cohort sent for this attempt "
            "(the coordinator changed or replaced it, or a party is faulty); discard it and ask the operator why"
        )


def coefficient(seed: bytes, *, query_id: bytes, attempt: int) -> int:
    """Alpha of one attempt, in [0, p). seed: SEED_BYTES that the learner chose for the query."""
    info = _COEFFICIENT + attempt.to_bytes(4, "big")
    return _residue(HKDF(SHA256(), WIDE_BYTES, query_id, info).derive(seed))


def seed_commitment(seed: bytes, *, nonce: bytes) -> bytes:
    """The commitment of a query to its seed, 32 bytes. seed: SEED_BYTES. nonce: the query's."""
    return HKDF(SHA256(), COMMITMENT_BYTES, nonce, _COMMITMENT).derive(seed)


def polynomial(values: NDArray[np.int64], alpha: int) -> int:
    """h(values) = sum over j = 1..L of alpha^j values[j - 1] mod p, for (L,) int64; by matrices of 16-bit limbs."""
    length = len(values)
    if not length:
        return 0
    block = min(_BLOCK, length)
    powers = [mpz(alpha)]
    for _ in range(block - 1):
        powers.append(powers[-1] * alpha % PRIME)
    # Shifted to be unsigned; the shift's own polynomial is subtracted at the end.
    shifted = np.zeros(-(-length // block) * block, dtype=np.uint64)
    shifted[:length] = np.asarray(values, dtype=np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    limbs = shifted.astype("<u8", copy=False).view("<u2").reshape(-1, block, _VALUE_LIMBS)
    factors = _limbs_of(powers)
    step, total = powers[-1], mpz(0)
    for part in limbs[::-1]:
        products = (part.T.astype(np.float64) @ factors).astype(np.int64)
        total = (total * step + _recombined(products)) % PRIME
    return int((total - (mpz(1) << 63) * _geometric(alpha, length)) % PRIME)


def _limbs_of(numbers: Sequence[int]) -> NDArray[np.float64]:
    """(count, _POWER_LIMBS): each number below p in limbs of 16 bits, the lowest first."""
    width = _POWER_LIMBS * _LIMB_BITS // 8
    serial = b"".join(int(number).to_bytes(width, "little") for number in numbers)
    return np.frombuffer(serial, dtype="<u2").reshape(len(numbers), _POWER_LIMBS).astype(np.float64)


def _recombined(products: NDArray[np.int64]) -> mpz:
    """Sum of products[a, b] 2^(16 (a + b))."""
    rows = ((a, b, int(products[a, b])) for a in range(_VALUE_LIMBS) for b in range(_POWER_LIMBS))
    return sum((mpz(product) << (_LIMB_BITS * (a + b)) for a, b, product in rows), mpz(0))


def _geometric(alpha: int, length: int) -> int:
    """Alpha + alpha^2 + ... + alpha^length mod p."""
    if alpha % PRIME == 1:
        return length % PRIME
    return alpha * (pow(alpha, length, PRIME) - 1) * pow(alpha - 1, -1, PRIME) % PRIME


def pad(own_key: X25519PrivateKey, peer_key: bytes, party: str, attempt: CohortAttempt) -> int:
    """The pad of one member's tag, in [0, p), of its mask key and the learner's opening key, for both.

    party: the member's name. Raises MaskKeyError if the peer's key is of low order.
    """
    return _residue(attempt.derive(own_key, peer_key, _PAD, party, peer=party, length=WIDE_BYTES))


def tag_mask(own_name: str, own_key: X25519PrivateKey, peers: Mapping[str, bytes], attempt: CohortAttempt) -> int:
    """One member's mask of its tag, in [0, p); all members' sum to zero mod p. As `cohort_mask`."""
    pairs = attempt.pairs(own_name, own_key, peers, _MASK, length=WIDE_BYTES)
    return sum(_residue(uniform) if is_added else -_residue(uniform) for is_added, uniform in pairs) % PRIME


def check_tag(plaintext: int, values: NDArray[np.int64], alpha: int, pads: Sequence[int], mask: int = 0) -> None:
    """Raise TagError unless the decrypted tag of a total is that of its values, with the pads of every member.

    mask: what is left of the members' masks of their tags.
    """
    expected = (sum(pads) + mask + polynomial(values, alpha)) % PRIME
    if not 0 <= plaintext < len(pads) * PRIME or plaintext % PRIME != expected:
        raise TagError


@lru_cache(1024)
def is_low_order(public_key: bytes) -> bool:
    """Whether an X25519 public key (32 bytes) agrees with every private key on zero."""
    try:
        # Every private key is a multiple of the cofactor, so any one decides.
        X25519PrivateKey.from_private_bytes(bytes(32)).exchange(X25519PublicKey.from_public_bytes(public_key))
    except ValueError:
        return True
    return False


def _residue(uniform: bytes) -> int:
    return int.from_bytes(uniform, "big") % PRIME
