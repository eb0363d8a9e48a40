"""A passphrase for the private keys of a directory: a member's, or the operator's."""

from pathlib import Path

from dpcore.errors import ConfigurationError
from radobase.files.reading import FileKind, with_remedy
from wire.private_keys import set_passphrase

_KEYS = "*.key"
_KEY = FileKind(with_remedy("give a directory of one member, or of the operator"), limit_bytes=1 << 20, secret=True,
                private=True)  # fmt: skip


def set_passphrases(directory: Path) -> list[str]:
    """Encrypt each private key of a directory that has no passphrase yet; returns their names.

    Raises ConfigurationError if there is none, no passphrase is named, or one of them is no key; those before it are
    encrypted then, and all can still be read.
    """
    files = sorted(directory.glob(_KEYS))
    if not files:
        raise ConfigurationError(
            f"{directory}: has no file {_KEYS}; give a directory of one member, or of the operator"
        )
    return [file.name for file in files if set_passphrase(file, _KEY)]
