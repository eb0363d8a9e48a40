"""The keys of the vectors' members, which tests/vectors/make_protocol_vectors.py derives from their names."""

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from wire.envelopes import SigningKey


def signing_key(name: str) -> SigningKey:
    private = hashlib.sha256(b"test key of " + name.encode()).digest()
    return SigningKey(Ed25519PrivateKey.from_private_bytes(private), "vectors")
