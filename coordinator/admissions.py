"""Operators' answers that wait for their members: files in the coordinator's state directory.

The coordinator reads none of them: a member verifies its own by the federation's key.
"""

from pathlib import Path

from dpcore.errors import ConfigurationError
from radobase.files.reading import FileKind, read_bytes, with_remedy
from radobase.files.writing import BY_UMASK, write_durably
from radobase.logs import Log
from wire.transport import MAX_RESPONSE_BYTES

_SUFFIX = ".admission"
_FILE = FileKind(
    with_remedy("leave it with `rado coordinator admissions` once more"), limit_bytes=MAX_RESPONSE_BYTES - 1024
)


class Admissions:
    """One file for each member, by its name, which a roster has once. The directory may be absent."""

    def __init__(self, directory: Path, log: Log) -> None:
        self._directory, self._log = directory, log

    def leave(self, name: str, content: bytes) -> None:
        """Keep a member's answer in place of an older one. The caller has verified it."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(self._path(name), content, mode=BY_UMASK)

    def of(self, name: str) -> bytes:
        """A member's answer; empty if there is none, or it cannot be read, which is logged."""
        path = self._path(name)
        if not path.exists():
            return b""
        try:
            return read_bytes(path, _FILE)
        except ConfigurationError as error:
            self._log.refused("admission not read", peer=name, code="UNREADABLE", reason=str(error))
            return b""

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"
