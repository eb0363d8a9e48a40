"""Writes and reads the archive of a backup: a tar file of a manifest and the files that it lists, in its order."""

import json
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from dpcore.errors import ConfigurationError
from radobase.failure import in_words
from radobase.reading import FileKind, open_file, parse_json
from radobase.writing import BESIDE, MAGIC, OWNER_ONLY, created_file

# The manifest of a backup: whose it is, when it was made, and each file with its size and SHA-256.

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


MANIFEST = "manifest.json"
FILES = "files/"
_BLOCK = 512
_END = bytes(2 * _BLOCK)
_PIECE_BYTES = 1 << 20
_CHECKED = frozenset({FileRole.LEDGER, FileRole.DATABASE})
_ARCHIVE = FileKind(lambda path, cause: BackupError(f"{path}: {cause}; give the file of a backup"))


@dataclass(frozen=True)
class Item:
    """A file for a backup."""

    path: str
    content: bytes | tuple[Path, FileKind]
    """Its bytes, or the path and kind of a file that is large and does not change."""
    modified_at_unix_s: int
    role: FileRole = FileRole.FILE

    def pieces(self) -> Iterator[bytes]:
        """The content, piece by piece. Raises the error of the file's kind."""
        if isinstance(self.content, bytes):
            yield self.content
            return
        with open_file(*self.content) as file:
            yield from iter(lambda: file.read(_PIECE_BYTES), b"")

    def entry(self) -> Entry:
        """The item's line in the manifest. Reads the content."""
        digest, size_bytes = sha256(), 0
        for piece in self.pieces():
            digest.update(piece)
            size_bytes += len(piece)
        return Entry(self.path, size_bytes, digest.digest(), self.role, self.modified_at_unix_s)


def write_archive(path: Path, manifest: Manifest, items: Sequence[Item]) -> Manifest:
    """Write a new archive, for its owner only, and return its manifest with the files. It is complete or absent.

    manifest: its `files` are replaced. Raises ConfigurationError if it cannot be written, or a file changed meanwhile.
    """
    if len(items) > MOST_FILES:
        raise ConfigurationError(f"{path}: more than {MOST_FILES} files for one backup; move old releases elsewhere")
    manifest = replace(manifest, files=tuple(item.entry() for item in items))
    content = manifest.to_bytes()
    for entry in manifest.files:
        if entry.size_bytes > LARGEST_FILE_BYTES:
            raise ConfigurationError(f"{entry.path}: has 8 GiB or more; move it elsewhere, and save it by itself")
    try:
        with created_file(path) as file:
            _write_member(file, MANIFEST, len(content), manifest.created_at_unix_s, iter([content]))
            for item, entry in zip(items, manifest.files, strict=True):
                digest = _write_member(
                    file, FILES + entry.path, entry.size_bytes, entry.modified_at_unix_s, item.pieces()
                )
                if digest != entry.digest:
                    raise ConfigurationError(f"{entry.path}: changed while it was copied; run the command again")
            file.write(_END)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written ({in_words(error)})") from error
    return manifest


def _write_member(file: BinaryIO, name: str, size_bytes: int, at_unix_s: int, pieces: Iterator[bytes]) -> bytes:
    """Write one member of `size_bytes`, and return the digest of what was written."""
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = size_bytes, OWNER_ONLY, at_unix_s
    file.write(info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict"))
    digest, left = sha256(), size_bytes
    for piece in pieces:
        digest.update(piece)
        # A file that grows must not fill the disk before the caller compares its digest.
        file.write(piece[:left])
        left -= min(left, len(piece))
    file.write(bytes(_padded(size_bytes) - size_bytes))
    return digest.digest()


class Archive:
    """An open archive whose manifest was read and whose length fits it. Nothing else is verified before `verify`."""

    def __init__(self, path: Path, file: BinaryIO, size_bytes: int) -> None:
        """Raises BackupError if the file is no backup, is cut off, or its manifest cannot be used."""
        self.path, self._file = path, file
        length = self._header(MANIFEST)
        if length > LIMIT_BYTES:
            raise damaged(path, "its manifest is too long")
        try:
            text = b"".join(self._content(length)).decode()
        except UnicodeDecodeError as error:
            raise damaged(path, "its manifest is no text") from error
        self.manifest = Manifest.of_text(text, path)
        self._start = file.tell()
        expected = self._start + sum(_BLOCK + _padded(entry.size_bytes) for entry in self.manifest.files) + len(_END)
        if size_bytes != expected:
            what = "is cut off" if size_bytes < expected else "is longer than it says"
            raise damaged(path, f"it {what} ({size_bytes} bytes instead of {expected})")

    def verify(self, check: Callable[[Entry, bytes], None]) -> None:
        """Read all of it, and compare each file with its digest. Raises BackupError.

        check: called with the verified content of each database, and of the configuration.
        """
        for entry in self._entries():
            if entry.role in _CHECKED or entry.path == self.manifest.configuration:
                check(entry, b"".join(self.pieces(entry)))
            else:
                self._check_plain(entry)
        if self._file.read() != _END:
            raise damaged(self.path, "something follows its last file")

    def _check_plain(self, entry: Entry) -> None:
        """A database that is called a plain file would not be checked as one."""
        pieces = self.pieces(entry)
        if next(pieces, b"").startswith(MAGIC):
            raise damaged(self.path, f"{entry.path} is a database, and its manifest says another")
        for _ in pieces:
            pass

    def extract(self, write: Callable[[Entry, Iterator[bytes]], None]) -> None:
        """Call `write` with each file and its pieces, in order. Raises BackupError as `verify` does."""
        for entry in self._entries():
            write(entry, self.pieces(entry))

    def _entries(self) -> Iterator[Entry]:
        """Each entry, with the file at the beginning of its content. The caller consumes the content."""
        self._file.seek(self._start)
        for entry in self.manifest.files:
            if self._header(FILES + entry.path) != entry.size_bytes:
                raise damaged(self.path, f"{entry.path} has another size than its manifest says")
            yield entry

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        """The content of the entry that is next. Raises BackupError at its end if it differs from its digest."""
        digest = sha256()
        for piece in self._content(entry.size_bytes):
            digest.update(piece)
            yield piece
        if digest.digest() != entry.digest:
            raise damaged(self.path, f"{entry.path} is not what was saved (its SHA-256 differs)")

    def _header(self, name: str) -> int:
        """Read the header of a plain file with this name, and return its size in bytes."""
        block = self._file.read(_BLOCK)
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError) as error:
            raise damaged(self.path, f"it is no backup, or is damaged where {name} should be") from error
        if info.type != tarfile.REGTYPE or info.name != name:
            raise damaged(self.path, f"it has {info.name!r} where the file {name} should be")
        return info.size

    def _content(self, size_bytes: int) -> Iterator[bytes]:
        left = size_bytes
        while left and (piece := self._file.read(min(left, _PIECE_BYTES))):
            left -= len(piece)
            yield piece
        if left:
            raise damaged(self.path, "it is cut off")
        self._file.read(_padded(size_bytes) - size_bytes)


@contextmanager
def opened_archive(path: Path) -> Iterator[Archive]:
    """An archive to read. Raises BackupError, also if reading fails inside the block."""
    with open_file(path, _ARCHIVE) as file:
        size_bytes = file.seek(0, 2)
        file.seek(0)
        yield Archive(path, file, size_bytes)


def _padded(size_bytes: int) -> int:
    return size_bytes + -size_bytes % _BLOCK
