"""The manifest of a backup: whose it is, when it was made, and each file with its size and SHA-256."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from dpcore.errors import ConfigurationError
from radobase.files.databases import BESIDE
from radobase.files.reading import FileKind, parse_json

FORMAT = "radofed-backup"
FORMAT_VERSION = 1
OPERATOR = "operator"
"""Role, and name, in the backup of an operator's directory."""
MOST_FILES = 100_000
LIMIT_BYTES = 32 << 20
LARGEST_FILE_BYTES = (1 << 33) - 1
"""What the size field of a tar header holds, in octal."""
LONGEST_PATH = 150
"""In bytes of UTF-8: "files/PATH" fits the two name fields of a tar header, whichever "/" divides it."""
LONGEST_NAME = 90
DIGEST_BYTES = 32
LATEST_UNIX_S = (1 << 33) - 1
"""What the time field of a tar header holds, in octal: the year 2242."""

_ROLES = frozenset({"party", "coordinator", "learner", OPERATOR})


class BackupError(ConfigurationError):
    """A backup that is damaged, not what was asked for, or not a backup."""


def damaged(path: Path, cause: str) -> BackupError:
    """The error of an archive that is not as it was written. cause: such as "it is cut off"."""
    return BackupError(f"{path}: {cause}; give another copy of this backup, or an older backup")


_MANIFEST = FileKind(damaged, limit_bytes=LIMIT_BYTES)


class FileRole(StrEnum):
    """What a file of a backup is, which decides how it is checked."""

    FILE = "file"
    KEY = "key"
    LEDGER = "ledger"
    DATABASE = "database"


@dataclass(frozen=True)
class Entry:
    """One file."""

    path: str
    """Below the restored directory, with "/"."""
    size_bytes: int
    digest: bytes
    """SHA-256 of its content."""
    role: FileRole
    modified_at_unix_s: int


@dataclass(frozen=True)
class Missing:
    """Something that the node needs, or had, and the backup has not."""

    what: str
    why: str
    """And what that means, for people."""
    is_key: bool = False


@dataclass(frozen=True)
class Manifest:
    """What an archive says of itself."""

    role: str
    """A node's, or OPERATOR."""
    name: str
    federation: str
    created_at_unix_s: int
    program: str
    """The version that made the backup."""
    configuration: str
    """Path of the node's configuration, empty for an operator."""
    files: tuple[Entry, ...]
    outside: Mapping[str, str]
    """Where files were that the configuration names outside of its own directory: the directory in the backup, and the
    former one."""
    missing: tuple[Missing, ...]

    @property
    def whose(self) -> str:
        """Such as "party north of clinics"."""
        who = self.role if self.role == OPERATOR else f"{self.role} {self.name}"
        return f"{who} of {self.federation}"

    @property
    def has_keys(self) -> bool:
        """Whether a private key is in it."""
        return any(entry.role is FileRole.KEY for entry in self.files)

    def to_bytes(self) -> bytes:
        """As JSON. `of_text` is the inverse."""
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "role": self.role,
            "name": self.name,
            "federation": self.federation,
            "created_at_unix_s": self.created_at_unix_s,
            "program": self.program,
            "configuration": self.configuration,
            "files": [
                {
                    "path": e.path,
                    "bytes": e.size_bytes,
                    "sha256": e.digest.hex(),
                    "role": e.role.value,
                    "modified_at_unix_s": e.modified_at_unix_s,
                }
                for e in self.files
            ],
            "outside": dict(self.outside),
            "missing": [{"what": each.what, "why": each.why, "key": each.is_key} for each in self.missing],
        }
        return json.dumps(content, indent=1).encode()

    @classmethod
    def of_text(cls, text: str, archive: Path) -> "Manifest":
        """Read a manifest. Raises BackupError if it is none, is of a newer format, or names an impossible path."""
        content = parse_json(text, archive, _MANIFEST)
        version = content.get("format_version")
        if content.get("format") != FORMAT or not isinstance(version, int):
            raise damaged(archive, "its manifest is not that of a backup")
        if version > FORMAT_VERSION:
            raise BackupError(
                f"{archive}: a newer version of radofed made it (format {version}, this one reads {FORMAT_VERSION}); "
                "restore it with that version"
            )
        try:
            found = _read(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged(archive, f"its manifest is malformed ({error!r})") from error
        if fault := _fault(found):
            raise damaged(archive, fault)
        return found


def _read(content: Mapping[str, Any]) -> Manifest:
    return Manifest(
        _text(content["role"]),
        _text(content["name"]),
        _text(content["federation"]),
        _number(content["created_at_unix_s"]),
        _text(content["program"]),
        _text(content["configuration"]),
        tuple(
            Entry(
                _text(e["path"]),
                _number(e["bytes"]),
                bytes.fromhex(e["sha256"]),
                FileRole(e["role"]),
                _number(e["modified_at_unix_s"]),
            )
            for e in content["files"]
        ),
        {_text(key): _text(value) for key, value in content["outside"].items()},
        tuple(Missing(_text(each["what"]), _text(each["why"]), each["key"] is True) for each in content["missing"]),
    )


def _text(value: Any) -> str:
    # Only a text has this method, and it raises for a surrogate, which could not be printed.
    value.encode()
    return str(value)


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("not a number from 0")
    return value


def _fault(manifest: Manifest) -> str:
    """What is impossible in a manifest: part of a sentence, empty if nothing is."""
    return next(_faults(manifest), "")


def _faults(manifest: Manifest) -> Iterator[str]:
    paths = [entry.path for entry in manifest.files]
    if manifest.role not in _ROLES:
        yield f"it is of the unknown role {manifest.role!r}"
    if len(paths) > MOST_FILES:
        yield f"it has {len(paths)} files, more than {MOST_FILES}"
    for entry in manifest.files:
        yield from _entry_faults(entry)
    directories = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    if len(set(paths)) != len(paths) or not directories.isdisjoint(paths):
        yield "two of its files have the same place"
    databases = [entry.path for entry in manifest.files if entry.role in (FileRole.LEDGER, FileRole.DATABASE)]
    if not {path + end for path in databases for end in BESIDE}.isdisjoint(paths):
        yield "it has a file that would change a database"
    if (manifest.configuration in paths) is (manifest.role == OPERATOR):
        yield "it has no configuration, or one that its role does not have"
    if any(path_fault(place) for place in manifest.outside):
        yield "it names an impossible directory"
    if manifest.created_at_unix_s > LATEST_UNIX_S:
        yield "it has an impossible time"


def _entry_faults(entry: Entry) -> Iterator[str]:
    if fault := path_fault(entry.path):
        yield f"its file {entry.path!r} {fault}"
    if entry.size_bytes > LARGEST_FILE_BYTES or len(entry.digest) != DIGEST_BYTES:
        yield f"its file {entry.path!r} has an impossible size or digest"
    if entry.modified_at_unix_s > LATEST_UNIX_S:
        yield f"its file {entry.path!r} has an impossible time"


def path_fault(path: str) -> str:
    """Why a path cannot be in a backup: part of a sentence, empty if it can.

    A path is relative, below the directory that is restored, and the same on every system.
    """
    return next(_path_faults(path), "")


def _path_faults(path: str) -> Iterator[str]:
    parts = path.split("/")
    if path.startswith("/"):
        yield "has an absolute path"
    if ".." in parts:
        yield "leaves the directory (..)"
    if "" in parts or "." in parts:
        yield "has an empty part"
    if "\\" in path or not path.isprintable():
        yield "has a character that no file of a backup has"
    elif max(len(part.encode()) for part in parts) > LONGEST_NAME or len(path.encode()) > LONGEST_PATH:
        yield f"has a path of more than {LONGEST_PATH} bytes, or a name of more than {LONGEST_NAME}"
