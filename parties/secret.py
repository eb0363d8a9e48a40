"""The party's secret: the 32-byte seed of its repeatable draws, kept for the life of its data."""

from pathlib import Path

from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import RandomSource
from dpcore.records.computation import SECRET_BYTES
from radobase.files.reading import FileKind, read_bytes, with_remedy
from radobase.files.writing import write_durably

_REMEDY = "restore it, or remove it to create a new one, which draws new noise for every table"
FILE = "secret"
_SECRET = FileKind(with_remedy(_REMEDY), limit_bytes=4096, secret=True, private=True)


def load_or_create(path: Path, random: RandomSource) -> bytes:
    """The secret in the file. Creates the file if it is missing, readable only by its owner.

    A new secret replaces one that was lost. Tables released under the old secret then get new noise and a new charge.
    Raises ConfigurationError if the file cannot be read or written, is not a secret, or is readable by other users.
    """
    try:
        return load(path) if path.exists() else _create(path, random)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be used ({error.strerror}); check its permissions") from error


def load(path: Path) -> bytes:
    """The secret in the file. Raises ConfigurationError as load_or_create does, also if there is no file."""
    # A restored copy may have wide permissions: who reads it can remove the noise that is derived from it.
    secret = read_bytes(path, _SECRET)
    if len(secret) != SECRET_BYTES:
        raise ConfigurationError(f"{path}: has {len(secret)} bytes, but a party's secret has {SECRET_BYTES}; {_REMEDY}")
    return secret


def _create(path: Path, random: RandomSource) -> bytes:
    secret = random.bytes(SECRET_BYTES)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Written atomically, and on disk before use: noise cannot be repeated once its secret is lost.
    write_durably(path, secret, temporary=path.with_name(f".{path.name}.new"))
    return secret
