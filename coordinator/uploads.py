"""Uploads of a cohort: kept on disk, checked, and multiplied to the total.

Chunks computed before a restart are not computed again.

**On this machine** chunk by chunk, in one separate thread: a large total delays neither uploads nor a small total.

**On the coordinator's own Ray cluster**, for uploads that are too large for one machine. They are read from the spool,
which verifies their hashes, and sent in runs: one chunk of several parties, for which a worker returns the product.

The products of a chunk are multiplied here, checked like an upload, and stored. The total has the same bytes as on one
machine. The work of a lost worker is sent again.

The cluster sees masked ciphertexts and the learner's public key. It can falsify a total, as the coordinator can.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from coordinator.config import CoordinatorCluster
from coordinator.open_queries import LiveQuery
from dpcore.errors import CiphertextError, ConfigurationError, RadofedError, ShapeError
from dpcore.paillier.public import PublicKey, multiply
from radobase.cluster_jobs import ITEM_BYTES, ClusterError, ClusterJob, check_in_background
from radobase.logs import Log
from radobase.reading import FileKind, read_bytes, with_remedy
from radobase.writing import make_directory, write_durably
from wire.envelopes import sha256
from wire.errors import Code, WireError
from wire.query import OpenedQuery
from wire.statements import CHUNK_BYTES, Chunk

# Uploaded chunks and totals on disk.
#
# SPOOL/QUERY/ATTEMPT/PARTY/INDEX-HASH and SPOOL/QUERY/total/INDEX-HASH, with the query's id and the content's SHA-256
# in hexadecimal. A file under its final name is complete and durable: it is written under a temporary name,
# synchronised and renamed, and its directory synchronised, before the acknowledgement.


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


class _StoppedError(Exception):
    """The total is no longer needed, or the coordinator is draining."""


class ClusterSum:
    """Computes totals on a cluster. Raises ConfigurationError if Ray is not installed."""

    def __init__(self, settings: CoordinatorCluster, spool: UploadSpool, log: Log) -> None:
        self._settings, self._spool, self._log = settings, spool, log
        check_in_background(settings, log)

    def wants(self, live: LiveQuery) -> bool:
        """Whether the missing part of a total is large enough for the cluster."""
        missing = self._missing(live)
        upload_bytes = len(live.round.summed) * sum(live.opened.chunk_bytes(index) for index in missing)
        return upload_bytes >= max(1, self._settings.from_bytes)

    def make(self, live: LiveQuery, stopping: Callable[[], bool]) -> None:
        """Compute and store the missing chunks of a total.

        If the cluster fails, logs it and leaves the rest to this machine: parties were charged, so a late total is
        better than none. Raises what reading and writing the spool raises.
        """
        missing = self._missing(live)
        about = {"query": live.query_id, "attempt": live.round.attempt}
        self._log.info("adding on the cluster", **about, chunks=len(missing), parties=len(live.round.summed))
        try:
            self._make(live, missing, stopping)
        except _StoppedError:
            return
        except (ClusterError, ConfigurationError) as error:
            self._log.warning("cluster failed, adding on this machine", **about, reason=str(error))

    def _missing(self, live: LiveQuery) -> list[int]:
        made = self._spool.held_total(live.query_id)
        return [index for index in range(live.chunks) if index not in made]

    def _make(self, live: LiveQuery, missing: Sequence[int], stopping: Callable[[], bool]) -> None:
        opened, parties = live.opened, live.round.summed
        length = max(1, ITEM_BYTES // opened.chunk_bytes(0))
        runs = [parties[first : first + length] for first in range(0, len(parties), length)]

        def load(number: int) -> list[bytes]:
            index = missing[number // len(runs)]
            run = runs[number % len(runs)]
            return [self._spool.read(live.query_id, live.round.attempt, party, index) for party in run]

        def idle() -> None:
            if stopping():
                raise _StoppedError

        # Chunks are sent in order, so only those of the items in progress are unfinished.
        unfinished: dict[int, list[bytes]] = {}
        with ClusterJob(self._settings, product_of_run, opened.public_key, idle) as job:
            for number, product in job.results(len(missing) * len(runs), load, idle):
                idle()
                products = unfinished.setdefault(number // len(runs), [])
                products.append(product)
                if len(products) == len(runs):
                    index = missing[number // len(runs)]
                    self._spool.put_total(live.query_id, _checked(live, index, unfinished.pop(number // len(runs))))


def product_of_run(public_key: PublicKey, uploads: list[bytes]) -> bytes:
    """The product of the same chunk of several parties, computed by a worker on one processor."""
    return multiply(public_key, uploads, threads=1)


def _checked(live: LiveQuery, index: int, products: list[bytes]) -> Chunk:
    """A chunk of the total. Checks the workers' products like uploads of parties."""
    if not all(isinstance(product, bytes) for product in products):
        raise ClusterError("a worker returned no product: expected bytes")
    try:
        chunk = Chunk.of(index, multiply(live.opened.public_key, products))
        check_chunk(live.opened, chunk)
    except (WireError, CiphertextError, ShapeError) as error:
        raise ClusterError(f"a worker returned no valid product: {error}") from error
    return chunk


class Adding:
    """Computes totals: on the cluster if one is configured and the total is large, otherwise on this machine.

    A chunk's ciphertexts are divided among all processors (dpcore.paillier.public.multiply). The interpreter's lock is
    released, so statements and uploads are processed meanwhile. Memory holds one product and two uploads of a chunk,
    for any number of parties.
    """

    def __init__(self, spool: UploadSpool, cluster: ClusterSum | None = None) -> None:
        self._spool, self._cluster = spool, cluster
        self._thread = ThreadPoolExecutor(1, "adding")
        # Large totals run on the cluster one at a time: each starts a process, and none may take the uploads' threads.
        self._cluster_thread = ThreadPoolExecutor(1, "cluster")

    async def make(self, live: LiveQuery, stopping: Callable[[], bool]) -> bool:
        """Multiply the cohort's chunks and store the products. Returns False if it was stopped early.

        Keeps the uploads: the caller deletes them once the round is complete. Raises SpoolDamagedError if a chunk
        differs from what was acknowledged, WireError(SPOOL_FULL) or OSError if the disk fails.
        """
        loop = asyncio.get_running_loop()
        if self._cluster is not None and self._cluster.wants(live):
            await loop.run_in_executor(self._cluster_thread, self._cluster.make, live, stopping)
        made = self._spool.held_total(live.query_id)
        for index in range(live.chunks):
            if stopping():
                return False
            if index not in made:
                await loop.run_in_executor(self._thread, self._make_chunk, live, index)
        return True

    def _make_chunk(self, live: LiveQuery, index: int) -> None:
        uploads = (self._spool.read(live.query_id, live.round.attempt, party, index) for party in live.round.summed)
        self._spool.put_total(live.query_id, Chunk.of(index, multiply(live.opened.public_key, uploads)))

    def close(self) -> None:
        """Stop the threads."""
        self._thread.shutdown()
        self._cluster_thread.shutdown()


def check_chunk(opened: OpenedQuery, chunk: Chunk) -> None:
    """Refuse a chunk of the wrong length or with one ciphertext that is not a unit mod n^2; nothing is ever skipped.

    Raises WireError(CHUNK_MALFORMED or CIPHERTEXT_INVALID).
    """
    expected = opened.chunk_bytes(chunk.index)
    if len(chunk.ciphertexts) != expected:
        raise WireError(
            Code.CHUNK_MALFORMED, f"Chunk {chunk.index} has {expected} bytes, not {len(chunk.ciphertexts)}."
        )
    try:
        opened.public_key.validate(opened.public_key.from_wire(chunk.ciphertexts))
    except CiphertextError as error:
        raise WireError(Code.CIPHERTEXT_INVALID, f"In chunk {chunk.index}: {error}.") from error
