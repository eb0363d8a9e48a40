"""Computes the total of a cohort from the spool. Chunks computed before a restart are not computed again.

**On this machine** chunk by chunk, in one separate thread: a large total delays neither uploads nor a small total.

**On the coordinator's own Ray cluster**, for uploads that are too large for one machine. They are read from the spool,
which verifies their hashes, and sent in runs: one chunk of several parties, for which a worker returns the product.

The products of a chunk are multiplied here, checked like an upload, and stored. The total has the same bytes as on one
machine. The work of a lost worker is sent again.

The cluster sees masked ciphertexts and the learner's public key. It can falsify a total, as the coordinator can.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from coordinator.config import CoordinatorCluster
from coordinator.open_queries import LiveQuery
from coordinator.spool import UploadSpool
from dpcore.errors import CiphertextError, ConfigurationError, ShapeError
from dpcore.paillier.public import PublicKey, multiply
from radobase.cluster.jobs import ITEM_BYTES, ClusterError, ClusterJob, check_in_background
from radobase.logs import Log
from wire.errors import Code, WireError
from wire.query import OpenedQuery
from wire.upload import Chunk


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
        upload_bytes = len(live.round.cohort) * sum(live.opened.chunk_bytes(index) for index in missing)
        return upload_bytes >= max(1, self._settings.from_bytes)

    def make(self, live: LiveQuery, stopping: Callable[[], bool]) -> None:
        """Compute and store the missing chunks of a total.

        If the cluster fails, logs it and leaves the rest to this machine: parties were charged, so a late total is
        better than none. Raises what reading and writing the spool raises.
        """
        missing = self._missing(live)
        about = {"query": live.query_id, "attempt": live.round.attempt}
        self._log.info("adding on the cluster", **about, chunks=len(missing), parties=len(live.round.cohort))
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
        opened, parties = live.opened, live.round.cohort
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
        uploads = (self._spool.read(live.query_id, live.round.attempt, party, index) for party in live.round.cohort)
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
