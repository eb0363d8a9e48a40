"""The binding of a query: the learner's opening key, and the tag's seed, sealed for every party that is asked.

What the tag proves: dpcore.paillier.masks. The coordinator reads neither the seed nor a pad. Every party gets the seed
in bytes of its own, so the binding also commits to it: a party that reads another seed than the others refuses.

A seed is sealed to a party's Ed25519 signing key of the roster, as a point of Curve25519 (RFC 7748, section 4.1), so
that a federation needs no further keys:

    shared = X25519(opening key, party's key)
    sealed = seed XOR HKDF-SHA256(shared, salt = the query's nonce, 32 bytes,
                                  info = "rado.v1/tag-seed" || 00 || u8(|party|) || party)

The query's signature protects it from changes. Using one key pair for Ed25519 and for such an X25519 agreement is
secure: Thormarker, "On using the same key pair for Ed25519 and an X25519 based KEM" (IACR ePrint 2021/509), theorem 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Annotated

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpcore.paillier.masks import COMMITMENT_BYTES, SEED_BYTES, agreed, is_low_order, seed_commitment
from rado.v1 import query_pb2
from wire.codec import Travels, Wire
from wire.envelopes import KEY_BYTES, SigningKey
from wire.errors import Code, WireError
from wire.roster import Member

_FIELD_PRIME = (1 << 255) - 19


@dataclass(frozen=True)
class OpeningSecret:
    """Held by the learner only, from the query until its total is opened: the private half of the opening key."""

    private_bytes: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.private_bytes) != KEY_BYTES:
            raise WireError(Code.MESSAGE_MALFORMED, "An opening key must have 32 bytes.")

    @property
    def key(self) -> X25519PrivateKey:
        """The private key."""
        return X25519PrivateKey.from_private_bytes(self.private_bytes)

    @property
    def public_bytes(self) -> bytes:
        """The opening key, which travels."""
        return self.key.public_key().public_bytes_raw()

    @property
    def seed(self) -> bytes:
        """The seed of the tag's coefficient."""
        return HKDF(SHA256(), SEED_BYTES, None, b"rado.v1/tag-seed-of-query\0").derive(self.private_bytes)


@dataclass(frozen=True)
class Binding(Wire[query_pb2.Binding]):
    """What a query carries."""

    opening_key: bytes
    """32 bytes."""
    sealed_seeds: Annotated[tuple[tuple[str, bytes], ...], Travels("seeds")]
    """(party's name, 32 bytes), ascending by name. Other parties are not asked."""
    commitment: bytes
    """To the seed, 32 bytes."""

    def __post_init__(self) -> None:
        names = [name for name, _ in self.sealed_seeds]
        checks = {
            "the opening key is a 32-byte X25519 key of high order": len(self.opening_key) == KEY_BYTES
            and not is_low_order(self.opening_key),
            "sealed seeds have 32 bytes": all(len(seed) == SEED_BYTES for _, seed in self.sealed_seeds),
            "a commitment has 32 bytes": len(self.commitment) == COMMITMENT_BYTES,
            "sealed seeds are in the order of names, each name once": names == sorted(set(names)),
        }
        for rule, holds in checks.items():
            if not holds:
                raise WireError(Code.QUERY_INVALID, f"It must hold that {rule}.")

    @classmethod
    def seal(cls, secret: OpeningSecret, parties: Sequence[Member], nonce: bytes) -> "Binding":
        """The binding for these parties. nonce: the query's."""
        seed, key = secret.seed, secret.key
        sealed = {
            party.name: _xored(seed, _pad(key, montgomery_key(party.signing_key), nonce, party.name))
            for party in parties
        }
        return cls(secret.public_bytes, tuple(sorted(sealed.items())), seed_commitment(seed, nonce=nonce))

    @cached_property
    def parties(self) -> frozenset[str]:
        """The names of the parties that are asked."""
        return frozenset(name for name, _ in self.sealed_seeds)

    def check_sealed_for(self, party: Member, secret: OpeningSecret, nonce: bytes) -> None:
        """Raise WireError(PARTY_NOT_ASKED) unless the learner sealed its seed for this party with this key."""
        sealed = _xored(secret.seed, _pad(secret.key, montgomery_key(party.signing_key), nonce, party.name))
        if dict(self.sealed_seeds).get(party.name) != sealed:
            raise WireError(Code.PARTY_NOT_ASKED, f"Its seed was sealed for another key of {party.name!r}.")

    def unseal(self, party: str, signing_key: SigningKey, nonce: bytes) -> bytes:
        """The seed that all parties of the query have, as this party reads it.

        Raises WireError(PARTY_NOT_ASKED) if none is sealed for it, and WireError(SEED_MISMATCH) if another one is than
        the query commits to: the parties' coefficients would differ, and the learner could open one party's sum.
        """
        sealed = dict(self.sealed_seeds).get(party)
        if sealed is None:
            raise WireError(Code.PARTY_NOT_ASKED, f"The query has no seed for {party!r}.")
        seed = _xored(sealed, _pad(signing_key.agreement_key(), self.opening_key, nonce, party))
        if seed_commitment(seed, nonce=nonce) != self.commitment:
            raise WireError(Code.SEED_MISMATCH, f"The seed for {party!r} is another than the query commits to.")
        return seed


@lru_cache(maxsize=1024)
def montgomery_key(ed25519_key: bytes) -> bytes:
    """The X25519 public key of the same key pair: u = (1 + y) / (1 - y) (RFC 7748, section 4.1).

    Raises WireError(KEY_INVALID) if the key's point has no such u or one of low order.
    """
    y = int.from_bytes(ed25519_key, "little") & ((1 << 255) - 1)
    u = (1 + y) * pow(1 - y, _FIELD_PRIME - 2, _FIELD_PRIME) % _FIELD_PRIME
    public = u.to_bytes(KEY_BYTES, "little")
    if is_low_order(public):
        raise WireError(Code.KEY_INVALID, "A signing key of the roster is of low order.")
    return public


def _pad(own: X25519PrivateKey, peer: bytes, nonce: bytes, party: str) -> bytes:
    name = party.encode()
    info = b"rado.v1/tag-seed\0" + len(name).to_bytes(1, "big") + name
    return HKDF(SHA256(), SEED_BYTES, nonce, info).derive(agreed(own, peer, party))


def _xored(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
