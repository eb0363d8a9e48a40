"""Writes and reads the archive of a backup: a tar file of a manifest and the files that it lists, in its order."""

import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from dpcore.errors import ConfigurationError
from radobase.failure import in_words
from radobase.files.databases import MAGIC
from radobase.files.reading import FileKind, open_file
from radobase.files.writing import OWNER_ONLY, created_file
from radofed.backup.manifest import (
    LARGEST_FILE_BYTES,
    LIMIT_BYTES,
    MOST_FILES,
    BackupError,
    Entry,
    FileRole,
    Manifest,
    damaged,
)

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
