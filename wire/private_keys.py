"""Private keys in PEM files, with or without a passphrase.

A file with a passphrase is encrypted PKCS #8, as `rado provision passphrase` and OpenSSL write it. A node has no person
beside it, so the passphrase is read from the file that RADO_PASSPHRASE_FILE names, such as a credential of systemd. It
protects copies of the key's file (backups, disks that are thrown away), and nothing on a machine that has both files.
"""

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from dpcore.errors import ConfigurationError
from radobase.files.permissions import Exposed
from radobase.files.reading import FileKind, read_bytes, with_remedy
from radobase.files.writing import write_durably

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
