"""Parties that vanish: self-masks, and shares of the keys with which masks come off once some members did not upload.

Pairwise masks cancel over a whole cohort only (dpcore.paillier.masks). So that a total can be opened over the members
that uploaded, the survivors U, every member i adds a mask of its own, from a random seed b_i.

Before anything leaves, it deals shares of b_i and of its mask key s_i to all members A that accepted; t of
them give the secret back.

Afterwards each survivor gives, once, its share of b_i for every i in U, and of s_i for every other member of the cohort
C. So the self-masks of U come off, and the pairwise masks between U and the others.

    self-mask  AES-256-CTR(HKDF-SHA256(b_i, salt = cohort digest, info = "rado.v1/self-mask" || 00 || ...))
    of a tag   HKDF-SHA256(b_i, salt = cohort digest, 48 bytes, info = "rado.v1/self-mask-tag" || 00 || ...) mod p
    sealed     AES-256-GCM under HKDF-SHA256 of the X25519 agreement of the two share keys, salt = sharing digest

Share keys are not mask keys. Who learns the mask key of a member that vanished opens no share with it, be it one that
the member dealt or one that it was dealt.

- **Claim 1.** Let d members of A be dishonest, v = |A| - t and t - d > v^2. Coordinator, learner and these learn of the
  honest uploads for one cohort at most one sum, over t - d honest members or more, whatever sets they show.
- **Claim 2.** For t - d = v^2 with v > 1, a coordinator that shows members different sets U gets a sum over fewer.

Proofs: docs/explanation/proofs.md, "Parties that vanish". Assumes what `dpcore.paillier.masks` does, and that
AES-256-GCM is an authenticated cipher.

Bonawitz et al., "Practical Secure Aggregation" (CCS 2017), section 4; Bell et al. (CCS 2020) over a graph. There
members sign which U they were shown, in a round of their own, and 2 t > |A| + d suffices. The condition here saves it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from dpcore.errors import RadofedError
from dpcore.paillier.masks import PRIME, WIDE_BYTES, CohortAttempt
from dpcore.paillier.sharing import SHARE_BYTES, deal
from dpcore.randomness.sources import KeyedRandom, RandomSource

MOST_SHARERS = 100
"""The most parties of a query whose members may vanish: what a total carries grows with the square of them."""
SHARE_COMMITMENT_BYTES = 16
SELF_COMMITMENT_BYTES = 32
_NONCE_BYTES = 12
_TAG_BYTES = 16
SEALED_BYTES = _NONCE_BYTES + 2 * SHARE_BYTES + _TAG_BYTES
"""Of what one member deals to one other."""

_STREAM = b"rado.v1/self-mask\0"
_TAG = b"rado.v1/self-mask-tag\0"
_SELF_COMMITMENT = b"rado.v1/self-mask-commitment\0"
_SHARE_COMMITMENT = b"rado.v1/share-commitment\0"
_SEAL = b"rado.v1/share-seal\0"
_UNMASK = b"rado.v1/unmasking-seal\0"
_SURVIVORS = b"rado.v1/survivors\0"


class SealError(RadofedError):
    """What was sealed for this member or learner does not open with its key."""


class Secret(IntEnum):
    """What a share is of. The number is part of its commitment."""

    SELF_MASK = 1
    MASK_KEY = 2


def threshold(sharers: int, *, cohort_min: int, may_vanish: int) -> int:
    """t, of so many members that accepted: all but `may_vanish`, and at least the fewest that a total may be of."""
    return max(sharers - may_vanish, cohort_min)


def is_enough(sharers: int, needed: int, *, colluders: int) -> bool:
    """Whether claim 1 holds for t = `needed` if so many of the members that accepted collude.

    If it holds for t = the fewest of a total and t + v sharers, it does for every number of sharers.
    """
    return needed - colluders > (sharers - needed) ** 2


# Masks of one member.


def self_mask(
    seed: bytes, name: str, attempt: CohortAttempt, *, shape: tuple[int, int], value_bits: int
) -> NDArray[np.uint64]:
    """A member's own mask: uint64 `shape` = (ciphertexts, slots), below 2^value_bits. seed: b_i."""
    stream = np.empty(shape, dtype="<u8")
    KeyedRandom(_of_seed(seed, name, attempt, _STREAM, 32)).fill(stream)
    return np.asarray(stream & np.uint64((1 << value_bits) - 1), dtype=np.uint64)


def self_tag_mask(seed: bytes, name: str, attempt: CohortAttempt) -> int:
    """A member's own mask of its tag, in [0, p)."""
    return int.from_bytes(_of_seed(seed, name, attempt, _TAG, WIDE_BYTES), "big") % PRIME


def _of_seed(seed: bytes, name: str, attempt: CohortAttempt, domain: bytes, length: int) -> bytes:
    info = domain + attempt.query_id + attempt.number.to_bytes(4, "big") + _named(name)
    return HKDF(SHA256(), length, attempt.cohort_digest, info).derive(seed)


def _named(*names: str) -> bytes:
    octets = [name.encode() for name in names]
    return b"".join(len(name).to_bytes(1, "big") + name for name in octets)


# Shares. `attempt` has the digest of the sharing, the acceptances of A, in the place of the cohort's.


@dataclass(frozen=True)
class Dealt:
    """What a member deals, as it is signed. Of each member of A, in order, itself included."""

    self_commitment: bytes
    """To b_i, SELF_COMMITMENT_BYTES."""
    sealed: tuple[bytes, ...]
    """Two shares each, SEALED_BYTES."""
    self_shares: tuple[bytes, ...]
    """Commitments to the shares of b_i, SHARE_COMMITMENT_BYTES each."""
    key_shares: tuple[bytes, ...]
    """To those of s_i."""


def deal_keys(
    dealer: str,
    *,
    seed: bytes,
    mask_key: bytes,
    share_key: X25519PrivateKey,
    members: Mapping[str, bytes],
    needed: int,
    attempt: CohortAttempt,
    random: RandomSource,
) -> Dealt:
    """Shares of b_i and of a raw mask key. members: share keys of A by name, in order. needed: t.

    Raises MaskKeyError if a member's share key is of low order, and ValueError as `deal` does.
    """
    own = [deal(secret, threshold=needed, members=len(members), random=random) for secret in (seed, mask_key)]
    sealed, commitments = [], []
    for (name, public), of_seed, of_key in zip(members.items(), *own, strict=True):
        key = attempt.derive(share_key, public, _SEAL, dealer, name, peer=name, length=32)
        nonce = random.bytes(_NONCE_BYTES)
        sealed.append(nonce + AESGCM(key).encrypt(nonce, of_seed + of_key, None))
        pair = ((Secret.SELF_MASK, of_seed), (Secret.MASK_KEY, of_key))
        commitments.append([share_commitment(share, of, dealer, name, attempt) for of, share in pair])
    of_seeds, of_keys = zip(*commitments, strict=True)
    return Dealt(self_commitment(seed, dealer, attempt), tuple(sealed), tuple(of_seeds), tuple(of_keys))


def open_share(
    sealed: bytes,
    of: Secret,
    dealer: str,
    dealer_key: bytes,
    name: str,
    share_key: X25519PrivateKey,
    attempt: CohortAttempt,
) -> bytes:
    """One of the two shares that a dealer sealed for this member. dealer_key: its public share key.

    Raises SealError if it does not open or has another length, MaskKeyError if the dealer's key is of low order.
    """
    key = attempt.derive(share_key, dealer_key, _SEAL, dealer, name, peer=dealer, length=32)
    pair = _opened(key, sealed, b"", f"what {dealer} dealt")
    if len(pair) != 2 * SHARE_BYTES:
        raise SealError(f"what {dealer} dealt has {len(pair)} bytes, not {2 * SHARE_BYTES}")
    return pair[:SHARE_BYTES] if of is Secret.SELF_MASK else pair[SHARE_BYTES:]


def self_commitment(seed: bytes, dealer: str, attempt: CohortAttempt) -> bytes:
    """The commitment to a member's b_i."""
    return _digest(_SELF_COMMITMENT, attempt, _named(dealer), seed)


def share_commitment(share: bytes, of: Secret, dealer: str, name: str, attempt: CohortAttempt) -> bytes:
    """The commitment to what a dealer dealt to a member. The share is uniform, so it hides it."""
    return _digest(_SHARE_COMMITMENT, attempt, bytes([of]), _named(dealer, name), share)[:SHARE_COMMITMENT_BYTES]


def _digest(domain: bytes, attempt: CohortAttempt, *parts: bytes) -> bytes:
    head = domain + attempt.query_id + attempt.number.to_bytes(4, "big") + attempt.cohort_digest
    return sha256(head + b"".join(parts)).digest()


# Unmasking. `attempt` has the cohort's digest again.


def survivors_digest(survivors: Sequence[str], attempt: CohortAttempt) -> bytes:
    """What a member binds itself to: one set U of one cohort. survivors: in the cohort's order."""
    count = len(survivors).to_bytes(4, "big")
    return sha256(_SURVIVORS + attempt.cohort_digest + count + _named(*survivors)).digest()


def seal_unmasking(
    shares: Iterable[bytes | None],
    name: str,
    share_key: X25519PrivateKey,
    opening_key: bytes,
    survivors: bytes,
    attempt: CohortAttempt,
    random: RandomSource,
) -> bytes:
    """Shares of one member, for the learner. shares: for each member of the cohort in order; None for none.

    survivors: `survivors_digest`. Raises MaskKeyError if the opening key is of low order.
    """
    key = attempt.derive(share_key, opening_key, _UNMASK, name, peer="the learner", length=32)
    nonce = random.bytes(_NONCE_BYTES)
    octets = b"".join(b"\xff" * SHARE_BYTES if share is None else share for share in shares)
    return nonce + AESGCM(key).encrypt(nonce, octets, survivors)


def unmasking_bytes(members: int) -> int:
    """How long what `seal_unmasking` sealed is, of a cohort of so many members."""
    return _NONCE_BYTES + members * SHARE_BYTES + _TAG_BYTES


def open_unmasking(
    sealed: bytes,
    members: int,
    name: str,
    share_key: bytes,
    opening_key: X25519PrivateKey,
    survivors: bytes,
    attempt: CohortAttempt,
) -> tuple[bytes, ...]:
    """What `seal_unmasking` sealed, of a cohort of so many members. share_key: the member's public one.

    Raises SealError if it does not open or has another length.
    """
    key = attempt.derive(opening_key, share_key, _UNMASK, name, peer=name, length=32)
    octets = _opened(key, sealed, survivors, f"the unmasking of {name}")
    if len(octets) != members * SHARE_BYTES:
        raise SealError(f"the unmasking of {name} has {len(octets)} bytes, not {members * SHARE_BYTES}")
    return tuple(octets[at : at + SHARE_BYTES] for at in range(0, len(octets), SHARE_BYTES))


def _opened(key: bytes, sealed: bytes, bound: bytes, what: str) -> bytes:
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
    except (InvalidTag, ValueError) as error:
        raise SealError(f"{what} does not open with its key") from error
