"""Signed envelopes: Ed25519 over exact bytes, in a domain of version, federation, message type and signer's role.

Exactly the signed bytes are hashed, stored and forwarded. The domain separates federations, message types and roles: a
signature for one is never valid for another, also if a member has one key in two federations. The caller must check the
sender named inside a message against the key.
"""

import hashlib
import os
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from google.protobuf.unknown_fields import UnknownFieldSet

from dpcore.errors import ConfigurationError
from rado.v1 import envelope_pb2
from radobase.reading import Exposed, FileKind, read_bytes, with_remedy
from radobase.writing import create_durably, write_durably
from wire.codec import M, Wire
from wire.errors import Code, WireError

# Private keys in PEM files, with or without a passphrase.
#
# A file with a passphrase is encrypted PKCS #8, as `rado provision passphrase` and OpenSSL write it. A node has no
# person beside it, so the passphrase is read from the file that RADO_PASSPHRASE_FILE names, such as a credential of
# systemd. It protects copies of the key's file (backups, disks that are thrown away), and nothing on a machine that
# has both files.


ENVIRONMENT = "RADO_PASSPHRASE_FILE"
_PASSPHRASE = FileKind(
    with_remedy("write the passphrase in one line"),
    limit_bytes=1024,
    secret=True,
    private=True,
    exposed=Exposed("passphrase", "if others may have it and a copy of the keys, replace the keys"),
)
_MOST_BYTES = 1023
"""OpenSSL takes no longer passphrase."""


def load_private_key(path: Path, kind: FileKind) -> PrivateKeyTypes:
    """The key in a file. Raises ConfigurationError: the kind's error, or what to do about the passphrase.

    No message has the cause, which could reveal something about the secret.
    """
    pem = read_bytes(path, kind)
    try:
        return serialization.load_pem_private_key(pem, password=passphrase_for(path, pem))
    except ConfigurationError:
        raise
    except Exception as error:
        if _is_encrypted(pem):
            raise kind.error(path, f"does not open with the passphrase that {ENVIRONMENT} names") from error
        raise kind.error(path, "is not a readable private key") from error


def private_key_pem(path: Path, kind: FileKind) -> bytes:
    """The key of a file as unencrypted PKCS #8 PEM, for memory only. Raises what `load_private_key` raises."""
    return load_private_key(path, kind).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def passphrase_for(path: Path, pem: bytes) -> bytes | None:
    """The passphrase of a key's file; None if it has none. Raises ConfigurationError if none is named."""
    return _passphrase(path) if _is_encrypted(pem) else None


def set_passphrase(path: Path, kind: FileKind) -> bool:
    """Encrypt a key's file in place with the passphrase that is named. Returns False if it has one already.

    Raises ConfigurationError, and changes nothing, if no passphrase is named or the file holds no key.
    """
    passphrase = _passphrase(path)
    key = load_private_key(path, kind)
    if _is_encrypted(read_bytes(path, kind)):
        return False
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(passphrase),
    )
    write_durably(path, pem)
    return True


def _is_encrypted(pem: bytes) -> bool:
    return b"ENCRYPTED" in pem


def _passphrase(path: Path) -> bytes:
    name = os.environ.get(ENVIRONMENT)
    if not name:
        raise ConfigurationError(
            f"{path}: needs a passphrase; write it into a file that only you can read, and name that file in the "
            f"environment variable {ENVIRONMENT}"
        )
    found = read_bytes(Path(name), _PASSPHRASE).rstrip(b"\r\n")
    if not found:
        raise _PASSPHRASE.error(Path(name), "is empty")
    if len(found) > _MOST_BYTES:
        raise _PASSPHRASE.error(Path(name), f"is longer than {_MOST_BYTES} bytes; choose a shorter passphrase")
    return found


VERSION = b"rado.v1"
KEY_BYTES = 32
SIGNATURE_BYTES = 64
PEM_BYTES = 1 << 20
"""The most bytes of a PEM file. An authority's file may hold a chain of certificates."""

_SPOKEN_DIGITS = 30

# An Ed25519 key has 120. Testing the primes of an RSA key of a megabyte would take hours.
_KEY_FILE_BYTES = 1 << 14
_KEY = FileKind(
    with_remedy("give an Ed25519 key in an unencrypted PEM file"), limit_bytes=_KEY_FILE_BYTES, private=True
)
_PUBLIC_KEY = FileKind(with_remedy("ask the operator for the file"), limit_bytes=_KEY_FILE_BYTES, decides=True)


class MessageType(StrEnum):
    """Message types that may be signed. The value is the message's name in the proto files."""

    ROSTER = "Roster"
    JOIN_REQUEST = "JoinRequest"
    ADMISSION = "Admission"
    QUERY = "Query"
    PAILLIER_KEY = "PaillierKey"
    CANCEL = "Cancel"
    ACCEPTANCE = "Acceptance"
    REFUSAL = "Refusal"
    PENDING = "Pending"
    READY = "Ready"
    KEY_SHARES = "KeyShares"
    RECEIPT = "Receipt"
    UNMASKING = "Unmasking"
    FEATURES = "Features"
    CHALLENGE = "Challenge"
    WITNESS = "Witness"
    RETRY = "Retry"


SIGNER_ROLE: dict[MessageType, str] = {
    MessageType.ROSTER: "federation",
    MessageType.JOIN_REQUEST: "member",
    MessageType.ADMISSION: "federation",
    MessageType.QUERY: "learner",
    MessageType.PAILLIER_KEY: "learner",
    MessageType.CANCEL: "learner",
    MessageType.ACCEPTANCE: "party",
    MessageType.REFUSAL: "party",
    MessageType.PENDING: "party",
    MessageType.READY: "party",
    MessageType.KEY_SHARES: "party",
    MessageType.RECEIPT: "party",
    MessageType.UNMASKING: "party",
    MessageType.FEATURES: "party",
    MessageType.CHALLENGE: "party",
    MessageType.WITNESS: "party",
    MessageType.RETRY: "learner",
}


def sha256(*parts: bytes) -> bytes:
    """SHA-256 of the concatenated parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


@lru_cache(1024)
def key_id(public_key: bytes) -> bytes:
    """SHA-256 of a raw Ed25519 public key."""
    return sha256(public_key)


@lru_cache(1024)
def fingerprint(public_key: bytes) -> str:
    """The key's id in hexadecimal, in groups of four, for people to compare over the telephone."""
    text = key_id(public_key).hex()
    return ":".join(text[i : i + 4] for i in range(0, len(text), 4))


def spoken(data: bytes) -> str:
    """30 digits for people to read to each other, in groups of five: SHA-256 of the data modulo 10^30.

    To find other data with the same digits takes about 10^30 attempts (2^99); who forges a file must find such data,
    as the other side is what its owner made.
    """
    digits = f"{int.from_bytes(sha256(data)) % 10**_SPOKEN_DIGITS:0{_SPOKEN_DIGITS}d}"
    return " ".join(digits[place : place + 5] for place in range(0, _SPOKEN_DIGITS, 5))


def same_digits(given: str, expected: str) -> bool:
    """Whether a person gave these spoken digits, with whatever spaces."""
    return "".join(given.split()) == "".join(expected.split())


def signed_bytes(federation: str, kind: MessageType, payload: bytes) -> bytes:
    """The bytes that the signature covers. No federation, kind or role contains a zero byte."""
    return b"\0".join((VERSION, federation.encode(), kind.value.encode(), SIGNER_ROLE[kind].encode(), payload))


@dataclass(frozen=True)
class Envelope(Wire[envelope_pb2.Signed]):
    """A signed payload, as it travels."""

    payload: bytes
    key_id: bytes
    signature: bytes

    @property
    def payload_hash(self) -> bytes:
        """SHA-256 of the payload; of a query, its id."""
        return sha256(self.payload)

    @classmethod
    def from_proto(cls, message: envelope_pb2.Signed) -> "Envelope":
        """Raises WireError(MESSAGE_MALFORMED) if a part is missing or of the wrong length."""
        if (
            not message.payload
            or len(message.key_id) != KEY_BYTES
            or len(message.signature) != SIGNATURE_BYTES
            or len(UnknownFieldSet(message))
        ):
            raise WireError(Code.MESSAGE_MALFORMED, "A signed envelope is incomplete.")
        return super().from_proto(message)

    def open(self, kind: MessageType, federation: str, public_key: bytes) -> bytes:
        """The payload, after verifying the signature for this kind, federation and key.

        Raises WireError(SIGNATURE_INVALID).
        """
        if self.key_id != key_id(public_key):
            raise WireError(Code.SIGNATURE_INVALID, f"The {kind} is signed with another key.")
        signed = signed_bytes(federation, kind, self.payload)
        try:
            Ed25519PublicKey.from_public_bytes(public_key).verify(self.signature, signed)
        except (InvalidSignature, ValueError) as error:
            raise WireError(
                Code.SIGNATURE_INVALID,
                f"The {kind} was altered, or signed as another type, for another federation or before version 0.2.1.",
            ) from error
        return self.payload


class SigningKey:
    """An Ed25519 private key, held by the member that signs with it for one federation. Prints as its fingerprint."""

    def __init__(self, private_key: Ed25519PrivateKey, federation: str) -> None:
        """federation: the name in the domain of every signature."""
        self._private_key, self._federation = private_key, federation
        self.public_bytes = private_key.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return f"SigningKey({fingerprint(self.public_bytes)[:19]}...)"

    @classmethod
    def generate(cls, federation: str) -> "SigningKey":
        """A new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate(), federation)

    @classmethod
    def load(cls, path: Path, federation: str) -> "SigningKey":
        """Read a PKCS #8 PEM file. Raises ConfigurationError, also if other users can read the file."""
        return cls(_private_key(path), federation)

    def save(self, path: Path) -> None:
        """Write the key to a file that only its owner can read. Refuses to overwrite."""
        pem = self._private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        create_durably(path, pem)

    def agreement_key(self) -> X25519PrivateKey:
        """The X25519 private key of the same key pair (RFC 8032, section 5.1.5, and RFC 7748)."""
        digest = hashlib.sha512(self._private_key.private_bytes_raw()).digest()
        return X25519PrivateKey.from_private_bytes(digest[:KEY_BYTES])

    def sign(self, kind: MessageType, payload: bytes) -> Envelope:
        """Sign a payload as this kind of message."""
        signature = self._private_key.sign(signed_bytes(self._federation, kind, payload))
        return Envelope(payload, key_id(self.public_bytes), signature)


class Signable(Wire[M]):
    """A message that its sender signs, as one kind."""

    KIND: ClassVar[MessageType]

    def sign(self, signing_key: SigningKey) -> Envelope:
        """The envelope that travels."""
        return signing_key.sign(self.KIND, self.to_bytes())


def public_key_of(path: Path) -> bytes:
    """The raw public half of the signing key in a PKCS #8 PEM file. Raises ConfigurationError, as SigningKey.load."""
    return _private_key(path).public_key().public_bytes_raw()


def _private_key(path: Path) -> Ed25519PrivateKey:
    key = load_private_key(path, _KEY)
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError(f"{path}: not an Ed25519 key; make one with `rado provision`")
    return key


def load_public_key(path: Path) -> bytes:
    """The raw bytes of an Ed25519 public key in a PEM file, such as the pinned one. Raises ConfigurationError."""
    pem = read_bytes(path, _PUBLIC_KEY)
    try:
        key = serialization.load_pem_public_key(pem)
    except Exception as error:
        raise _PUBLIC_KEY.error(path, f"is not a readable public key ({error})") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError(f"{path}: not an Ed25519 public key; ask the operator for the file")
    return key.public_bytes_raw()


def save_public_key(path: Path, public_key: bytes) -> None:
    """Write a raw Ed25519 public key as PEM."""
    key = Ed25519PublicKey.from_public_bytes(public_key)
    path.write_bytes(key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
