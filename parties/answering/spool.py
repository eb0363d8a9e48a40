"""Encrypted contributions on the party's disk: written atomically, and the same bytes for every retry.

Each contribution is written into its own directory under a temporary name. Every file is forced to disk before the
directory is renamed. The manifest contains the hash of every chunk.

An attempt has up to two: the bare one, without masks and with the integers that it encrypts, written before the cohort
is known; and the masked one, which is sent. The bare one is deleted once the masked one is charged.

The disk space of the masked one is reserved with the bare one, as files of the same lengths inside its directory, which
it overwrites in place. Allocated space is taken as long as the machine runs: after a power failure the files may be
gone, and are made when they are written.

A spare file is deleted at that time, to free space for the charge. So a disk that fills up in between does not stop the
party, unless the file system copies on write.
"""

import errno
import json
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpcore.errors import RadofedError
from dpcore.queries.kind import MAX_VALUES
from radobase.reading import FileKind, read_bytes, read_json
from radobase.writing import overwrite_durably, publish_directory, reserve
from wire.envelopes import sha256
from wire.errors import Code, WireError
from wire.statements import CHUNK_BYTES, Chunk, upload_digest

_MANIFEST = "manifest.json"
_VALUES = "values.bin"
_MASKED = "-masked"
_ROOM = "room"
_SPARE = "spare.bin"
# A charge changes about ten pages of 4 KiB in the ledger's file; the journal keeps their old content until it ends.
_SPARE_BYTES = 256 * 1024
_UNFINISHED = "unfinished-"
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SpoolFullError(WireError):
    """A contribution does not fit on the disk or in the quota."""

    def __init__(self, *, needed_bytes: int, available_bytes: int | None, cause: str) -> None:
        self.needed_bytes, self.available_bytes, self.cause = needed_bytes, available_bytes, cause
        super().__init__(Code.SPOOL_FULL, f"This party's contribution needs {needed_bytes} bytes and {cause}.")


class SpoolLostError(RadofedError):
    """A spooled contribution that is missing or was changed."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(f"{path}: {cause}; the attempt cannot be uploaded; send a new query")


class SpoolUnreadableError(RadofedError):
    """A spooled contribution that cannot be read at this time. A retry may succeed, and no attempt is lost by it."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(f"{path}: {cause}; check the disk, the open files and the memory of this machine")


# The manifest has 68 bytes for each chunk of 512 KiB.
_MANIFESTS = FileKind(SpoolLostError, limit_bytes=16 << 20)
_CHUNK = FileKind(SpoolLostError, limit_bytes=CHUNK_BYTES)
_INTEGERS = FileKind(SpoolLostError, limit_bytes=8 * MAX_VALUES)


@dataclass(frozen=True)
class Spool:
    """A complete contribution on disk."""

    path: Path
    hashes: tuple[bytes, ...]
    ciphertexts: int
    values_hash: bytes

    @property
    def digest(self) -> bytes:
        """The digest over all chunks' hashes, which the receipt signs."""
        return upload_digest(self.hashes)

    def chunk(self, index: int) -> Chunk:
        """One chunk, verified by its hash in the manifest. Raises SpoolLostError or SpoolUnreadableError."""
        path = _chunk_path(self.path, index)
        with _only_lost_files(path):
            data = read_bytes(path, _CHUNK)
        if sha256(data) != self.hashes[index]:
            raise SpoolLostError(path, "was changed")
        return Chunk(index, data, self.hashes[index])

    def values(self) -> NDArray[np.int64]:
        """The integers that a bare contribution encrypts, (length,). Raises SpoolLostError or SpoolUnreadableError."""
        path = self.path / _VALUES
        with _only_lost_files(path):
            data = read_bytes(path, _INTEGERS)
            if sha256(data) != self.values_hash or len(data) % 8:
                raise SpoolLostError(path, "was changed")
            return np.frombuffer(data, dtype="<i8").astype(np.int64)

    def verify(self) -> None:
        """Read and verify every chunk. Raises SpoolLostError or SpoolUnreadableError."""
        for index in range(len(self.hashes)):
            self.chunk(index)


class Spools:
    """All contributions of one party, within a quota in bytes. One process uses a directory at a time."""

    def __init__(self, directory: Path, quota_bytes: int) -> None:
        """Creates the directory, and removes contributions that a crash left unfinished."""
        self.directory, self._quota_bytes = directory, quota_bytes
        self._lock = threading.Lock()
        self._promised_bytes = 0
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in directory.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left)

    def used_bytes(self) -> int:
        """Disk space of all complete contributions, including what bare ones will need once they are masked."""
        total = 0
        for directory in self.directory.iterdir():
            if directory.name.startswith(_UNFINISHED):
                continue
            if not directory.name.endswith(_MASKED):
                total += 2 * _size(directory, "chunk-*.bin") + _size(directory, _VALUES)
            elif not directory.with_name(directory.name.removesuffix(_MASKED)).exists():
                total += _size(directory, "chunk-*.bin")
        return total

    def write(
        self,
        query_id: bytes,
        attempt: int,
        chunks: Iterable[bytes],
        *,
        needed_bytes: int,
        width: int,
        values: NDArray[np.int64] | None = None,
    ) -> Spool:
        """Write a contribution atomically. Replaces one of the same attempt and kind.

        needed_bytes: its disk space, for the quota; a masked one uses the space that its bare one reserved. width:
        bytes of a ciphertext. values: the integers of a bare contribution; None for a masked one.

        Raises SpoolFullError if the quota or the disk is full, and what `chunks` raises; then deletes everything
        written, except the reserved space of a masked one.
        """
        final = self._path(query_id, attempt, masked=values is None)
        bare = self._path(query_id, attempt, masked=False)
        if values is None and bare.exists():
            return self._write_in_room(bare, final, chunks, needed_bytes, width)
        self._discard(final)
        self._promise(needed_bytes)
        unfinished = final.with_name(_UNFINISHED + final.name)
        try:
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(mode=0o700)
            spool = _write(unfinished, chunks, width, values)
            if values is not None:
                _take_room(unfinished)
            publish_directory(unfinished, final)
        except BaseException as error:
            for left in (unfinished, final):
                shutil.rmtree(left, ignore_errors=True)
            _name_a_full_disk(error, needed_bytes)
            raise
        finally:
            with self._lock:
                self._promised_bytes -= needed_bytes
        return replace(spool, path=final)

    def _write_in_room(self, bare: Path, final: Path, chunks: Iterable[bytes], needed_bytes: int, width: int) -> Spool:
        """Write a masked contribution over the space that its bare one reserved. A failure keeps the reservation."""
        room = bare / _ROOM
        try:
            if final.exists():
                # Made for an earlier cohort and not charged: its files become the reserved space.
                shutil.rmtree(room, ignore_errors=True)
                final.rename(room)
            room.mkdir(mode=0o700, exist_ok=True)
            spool = _write(room, chunks, width, None)
            publish_directory(room, final)
            (bare / _SPARE).unlink(missing_ok=True)
        except OSError as error:
            _name_a_full_disk(error, needed_bytes)
            raise
        return replace(spool, path=final)

    def open(self, query_id: bytes, attempt: int, *, masked: bool = False) -> Spool:
        """The contribution of the manifest. Its contents are verified when they are read.

        Raises SpoolLostError or SpoolUnreadableError.
        """
        path = self._path(query_id, attempt, masked=masked)
        with _only_lost_files(path / _MANIFEST):
            manifest = read_json(path / _MANIFEST, _MANIFESTS)
        try:
            hashes = tuple(bytes.fromhex(text) for text in manifest["chunks"])
            return Spool(path, hashes, int(manifest["ciphertexts"]), bytes.fromhex(manifest["values"]))
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise SpoolLostError(path, "its manifest was changed") from error

    def remove(self, query_id: bytes, attempt: int) -> None:
        """Remove both contributions of an attempt, if there are any."""
        self.remove_bare(query_id, attempt)
        self._discard(self._path(query_id, attempt, masked=True))

    def remove_bare(self, query_id: bytes, attempt: int) -> None:
        """Remove the contribution without masks, including its integers."""
        self._discard(self._path(query_id, attempt, masked=False))

    def _discard(self, path: Path) -> None:
        if path.exists():
            # Renamed first: if the removal is interrupted, the next start completes it.
            rubbish = path.with_name(f"{_UNFINISHED}removed-{path.name}")
            path.rename(rubbish)
            shutil.rmtree(rubbish, ignore_errors=True)

    def keep_only(self, wanted: Iterable[tuple[bytes, int]]) -> int:
        """Remove all contributions except those of these attempts. Returns the number removed."""
        names = {self._path(*attempt, masked=masked).name for attempt in wanted for masked in (False, True)}
        stray = [path for path in self.directory.iterdir() if path.name not in names]
        for path in stray:
            shutil.rmtree(path, ignore_errors=True)
        return len(stray)

    def _promise(self, needed_bytes: int) -> None:
        with self._lock:
            free = self._quota_bytes - self.used_bytes() - self._promised_bytes
            if needed_bytes > free:
                raise SpoolFullError(
                    needed_bytes=needed_bytes,
                    available_bytes=max(0, free),
                    cause=f"{max(0, free)} are left of spool_bytes = {self._quota_bytes}",
                )
            self._promised_bytes += needed_bytes

    def _path(self, query_id: bytes, attempt: int, *, masked: bool) -> Path:
        return self.directory / f"{query_id.hex()}-{attempt}{_MASKED if masked else ''}"


def _size(directory: Path, pattern: str) -> int:
    """Bytes of its files of these names. Another thread may be removing a file, or the directory during the scan."""
    total = 0
    with suppress(FileNotFoundError):
        for file in directory.glob(pattern):
            with suppress(FileNotFoundError):
                total += file.stat().st_size
    return total


@contextmanager
def _only_lost_files(path: Path) -> Iterator[None]:
    """Raise SpoolUnreadableError for a failure to read that may pass: a charged attempt must not be lost by it."""
    try:
        yield
    except MemoryError as error:
        raise SpoolUnreadableError(path, "does not fit in this machine's memory") from error
    except SpoolLostError as error:
        cause = error.__cause__
        may_pass = isinstance(cause, OSError) and cause.errno not in _GONE
        if may_pass or isinstance(cause, MemoryError):
            raise SpoolUnreadableError(error.path, error.cause) from cause
        raise


def _chunk_path(directory: Path, index: int) -> Path:
    return directory / f"chunk-{index:06d}.bin"


def _name_a_full_disk(error: BaseException, needed_bytes: int) -> None:
    """Raise SpoolFullError if the error means a full disk."""
    if isinstance(error, OSError) and error.errno in _FULL:
        raise SpoolFullError(needed_bytes=needed_bytes, available_bytes=None, cause="the disk is full") from error


def _write(directory: Path, chunks: Iterable[bytes], width: int, values: NDArray[np.int64] | None) -> Spool:
    """Write into a directory, over existing files. The caller must then call `publish_directory`."""
    hashes, ciphertexts = [], 0
    for index, data in enumerate(chunks):
        overwrite_durably(_chunk_path(directory, index), data)
        hashes.append(sha256(data))
        ciphertexts += len(data) // width
    plain = b"" if values is None else values.astype("<i8", copy=False).tobytes()
    if plain:
        overwrite_durably(directory / _VALUES, plain)
    values_hash = sha256(plain)
    manifest = {
        "chunks": [digest.hex() for digest in hashes],
        "ciphertexts": ciphertexts,
        "values": values_hash.hex(),
    }
    overwrite_durably(directory / _MANIFEST, json.dumps(manifest).encode())
    return Spool(directory, tuple(hashes), ciphertexts, values_hash)


def _take_room(bare: Path) -> None:
    """Reserve disk space for the masked contribution, as files of the bare one's lengths, and for the charge."""
    room = bare / _ROOM
    room.mkdir(mode=0o700)
    sizes = {room / file.name: file.stat().st_size for file in (*bare.glob("chunk-*.bin"), bare / _MANIFEST)}
    for path, size_bytes in (sizes | {bare / _SPARE: _SPARE_BYTES}).items():
        reserve(path, size_bytes)
