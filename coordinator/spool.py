"""Uploaded chunks and totals on disk.

SPOOL/QUERY/ATTEMPT/PARTY/INDEX-HASH and SPOOL/QUERY/total/INDEX-HASH, with the query's id and the content's SHA-256 in
hexadecimal. A file under its final name is complete and durable: it is written under a temporary name, synchronised and
renamed, and its directory synchronised, before the acknowledgement.
"""

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import RadofedError
from radobase.files.reading import FileKind, read_bytes, with_remedy
from radobase.files.writing import make_directory, write_durably
from wire.envelopes import sha256
from wire.errors import Code, WireError
from wire.upload import CHUNK_BYTES, Chunk

TOTAL = "total"
_UNFINISHED = ".part"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class SpoolDamagedError(Exception):
    """A stored chunk is missing or differs from what was acknowledged."""

    def __init__(self, owner: str, index: int) -> None:
        self.owner, self.index = owner, index
        super().__init__(f"chunk {index} of {owner} differs from what was stored")


class SpoolUnreadableError(RadofedError):
    """A stored chunk cannot be read at this time. A retry may succeed."""


_CHUNK = FileKind(
    with_remedy("check the disk and the spool's permissions", SpoolUnreadableError), limit_bytes=CHUNK_BYTES
)


@dataclass(frozen=True)
class Stored:
    """One chunk that is on disk."""

    content_hash: bytes
    size_bytes: int


_Key = tuple[bytes, str, str]


class UploadSpool:
    """All chunks of one coordinator. Thread-safe. Uploads of different parties do not block each other.

    quota_bytes: limit on the uploads of all queries in total. Totals do not count, because they replace their
    uploads. Unfinished files of an earlier process are removed at construction.
    """

    def __init__(self, directory: Path, quota_bytes: int) -> None:
        self._directory = directory
        self._quota_bytes = quota_bytes
        self._lock = threading.Lock()
        self._writers: dict[_Key, threading.Lock] = {}
        directory.mkdir(parents=True, exist_ok=True)
        for unfinished in directory.rglob(f"*{_UNFINISHED}"):
            unfinished.unlink()
        self._index: dict[_Key, dict[int, Stored]] = scan(directory)
        self._used_bytes = sum(
            chunk.size_bytes for (_, part, _), held in self._index.items() if part != TOTAL for chunk in held.values()
        )

    @property
    def used_bytes(self) -> int:
        """Size of the uploads on disk or being written."""
        return self._used_bytes

    def put(self, query_id: bytes, attempt: int, party: str, chunk: Chunk) -> bool:
        """Store a chunk durably. Returns False if the same bytes are already stored.

        Raises WireError(CHUNK_CONFLICT) if other bytes are stored, WireError(SPOOL_FULL) if the quota or the disk is
        full, and any other OSError unchanged. After an error nothing of the chunk is left.
        """
        return self._put((query_id, str(attempt), party), chunk, counted=True)

    def put_total(self, query_id: bytes, chunk: Chunk) -> bool:
        """Store a chunk of the total, as `put` does."""
        return self._put((query_id, TOTAL, TOTAL), chunk, counted=False)

    def held(self, query_id: bytes, attempt: int, party: str) -> Mapping[int, Stored]:
        """This party's chunks, by index."""
        return self._held((query_id, str(attempt), party))

    def held_total(self, query_id: bytes) -> Mapping[int, Stored]:
        """The total's chunks, by index."""
        return self._held((query_id, TOTAL, TOTAL))

    def is_repeat(self, query_id: bytes, attempt: int, party: str, chunk: Chunk) -> bool:
        """Whether these bytes are already stored. Raises WireError(CHUNK_CONFLICT) if others are."""
        return _same(self._stored((query_id, str(attempt), party), chunk.index), chunk)

    def read(self, query_id: bytes, attempt: int, party: str, index: int) -> bytes:
        """One chunk's bytes.

        Raises SpoolDamagedError if they differ from what was stored, SpoolUnreadableError if the disk fails.
        """
        return self._read((query_id, str(attempt), party), index)

    def read_total(self, query_id: bytes, index: int) -> bytes:
        """One chunk of the total, as `read` does."""
        return self._read((query_id, TOTAL, TOTAL), index)

    def count(self, query_id: bytes, attempt: int, party: str) -> int:
        """Number of this party's stored chunks."""
        with self._lock:
            return len(self._index.get((query_id, str(attempt), party), ()))

    def drop_attempt(self, query_id: bytes, attempt: int) -> None:
        """Remove an attempt's uploads, if there are any."""
        # Its writers' locks stay, so that a late writer and a new one never write the same file.
        self._drop(lambda key: key[:2] == (query_id, str(attempt)), self._query_directory(query_id) / str(attempt))

    def drop_query(self, query_id: bytes) -> None:
        """Remove all files of a query, including its total."""
        self._drop(lambda key: key[0] == query_id, self._query_directory(query_id))
        with self._lock:
            for key in [key for key in self._writers if key[0] == query_id]:
                del self._writers[key]

    def keep_only(self, attempts: Mapping[bytes, int | None]) -> None:
        """After a restart: remove all queries except these, and all their uploads except those of the given attempt.

        attempts: the attempt that uploads or adds, by query; None if only the total is still needed.
        """
        for query_id, part in {key[:2] for key in self._index}:
            if query_id not in attempts:
                self.drop_query(query_id)
            elif part not in (TOTAL, str(attempts[query_id])):
                self.drop_attempt(query_id, int(part))
        known = {query_id.hex() for query_id in attempts}
        for left_over in self._directory.iterdir():
            if left_over.name not in known:
                shutil.rmtree(left_over, ignore_errors=True)

    def _query_directory(self, query_id: bytes) -> Path:
        return self._directory / query_id.hex()

    def _path(self, key: _Key, index: int, content_hash: bytes) -> Path:
        query_id, part, owner = key
        directory = self._query_directory(query_id) / part
        return (directory if part == TOTAL else directory / owner) / f"{index}-{content_hash.hex()}"

    def _held(self, key: _Key) -> Mapping[int, Stored]:
        with self._lock:
            return dict(self._index.get(key, {}))

    def _stored(self, key: _Key, index: int) -> Stored | None:
        with self._lock:
            return self._index.get(key, {}).get(index)

    def _put(self, key: _Key, chunk: Chunk, *, counted: bool) -> bool:
        with self._lock:
            writer = self._writers.setdefault(key, threading.Lock())
        size_bytes = len(chunk.ciphertexts)
        with writer:
            if _same(self._stored(key, chunk.index), chunk):
                return False
            with self._lock:
                if counted and self._used_bytes + size_bytes > self._quota_bytes:
                    raise WireError(Code.SPOOL_FULL)
                self._used_bytes += size_bytes if counted else 0
            try:
                _write_chunk(self._path(key, chunk.index, chunk.content_hash), chunk.ciphertexts, self._directory)
            except OSError as error:
                with self._lock:
                    self._used_bytes -= size_bytes if counted else 0
                if error.errno in _FULL:
                    raise WireError(Code.SPOOL_FULL) from error
                raise
            with self._lock:
                self._index.setdefault(key, {})[chunk.index] = Stored(chunk.content_hash, size_bytes)
        return True

    def _read(self, key: _Key, index: int) -> bytes:
        stored = self._stored(key, index)
        if stored is None:
            raise SpoolDamagedError(key[2], index)
        try:
            data = read_bytes(self._path(key, index, stored.content_hash), _CHUNK)
        except SpoolUnreadableError as error:
            cause = error.__cause__
            if isinstance(cause, OSError | MemoryError) and not isinstance(cause, FileNotFoundError):
                raise
            raise SpoolDamagedError(key[2], index) from error
        if sha256(data) != stored.content_hash:
            raise SpoolDamagedError(key[2], index)
        return data

    def _drop(self, belongs: Callable[[_Key], bool], directory: Path) -> None:
        with self._lock:
            for key in [key for key in self._index if belongs(key)]:
                held = self._index.pop(key)
                self._used_bytes -= sum(c.size_bytes for c in held.values()) if key[1] != TOTAL else 0
        shutil.rmtree(directory, ignore_errors=True)


def scan(directory: Path) -> dict[_Key, dict[int, Stored]]:
    """Chunks stored under a spool directory. Reads only names and sizes, and changes nothing."""
    found: dict[_Key, dict[int, Stored]] = {}
    # Not rglob, which fails if a running coordinator deletes a directory during the scan.
    for folder, _, names in os.walk(directory):
        place = Path(folder).relative_to(directory).parts
        if len(place) not in (2, 3):
            continue
        for name in names:
            index, _, content_hash = name.partition("-")
            if len(content_hash) != 64:
                continue
            with contextlib.suppress(ValueError, FileNotFoundError):
                key = (bytes.fromhex(place[0]), place[1], place[2] if len(place) == 3 else TOTAL)
                size_bytes = (Path(folder) / name).stat().st_size
                found.setdefault(key, {})[int(index)] = Stored(bytes.fromhex(content_hash), size_bytes)
    return found


def _same(stored: Stored | None, chunk: Chunk) -> bool:
    if stored is not None and stored.content_hash != chunk.content_hash:
        raise WireError(Code.CHUNK_CONFLICT, f"It is chunk {chunk.index}.")
    return stored is not None


def _write_chunk(path: Path, data: bytes, root: Path) -> None:
    """Write `path` atomically and durably."""
    try:
        make_directory(path.parent, root)
        write_durably(path, data, temporary=path.with_name(path.name + _UNFINISHED))
    except OSError:
        path.unlink(missing_ok=True)
        raise
