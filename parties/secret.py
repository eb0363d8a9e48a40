"""The party's secret: 32 bytes that repeatable draws derive from, kept for the life of its data."""

import stat
from pathlib import Path

from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import RandomSource
from dpcore.records.computation import SECRET_BYTES
from radofed.common.files.reading import FileKind, read_bytes, with_remedy
from radofed.common.files.writing import write_durably

_REMEDY = "restore it, or remove it to begin a new one, which noises every table anew"
_SECRET = FileKind(with_remedy(_REMEDY), limit_bytes=4096, secret=True)


def load_or_create(path: Path, random: RandomSource) -> bytes:
    """The secret in the file, which is made where there is none, readable by its owner alone.

    A secret that was lost is replaced by another one: what was noised under the old one is then noised anew, and
    charged anew. Raises ConfigurationError where the file cannot be read or written, is no secret, or is open to
    everybody on the machine.
    """
    try:
        return _read(path) if path.exists() else _create(path, random)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be used ({error.strerror}); check its permissions") from error


def _read(path: Path) -> bytes:
    # A copy brought back from elsewhere, say. A group may be let in by whoever mounts the directory.
    if path.stat().st_mode & stat.S_IRWXO:
        raise ConfigurationError(
            f"{path}: everybody on this machine may read it, and take the noise off that is derived from it; run: "
            f"chmod 600 {path}"
        )
    secret = read_bytes(path, _SECRET)
    if len(secret) != SECRET_BYTES:
        raise ConfigurationError(f"{path}: has {len(secret)} bytes and a party's secret has {SECRET_BYTES}; {_REMEDY}")
    return secret


def _create(path: Path, random: RandomSource) -> bytes:
    secret = random.bytes(SECRET_BYTES)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all, and on disk before it is used: noise under a secret that is lost cannot be repeated.
    write_durably(path, secret, temporary=path.with_name(f".{path.name}.new"))
    return secret
