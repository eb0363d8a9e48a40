"""The total of a cohort, made from the spool; what was made before a restart is not made again."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from coordinator.aggregate import multiply
from coordinator.cluster import ClusterSum
from coordinator.live import LiveQuery
from coordinator.spool import Spool
from wire.upload import Chunk


class Adding:
    """Multiplies chunk by chunk in one thread of its own: a large total holds up neither uploads nor a small total.

    A chunk's ciphertexts are shared out over all processors (coordinator.aggregate.multiply), with the interpreter's
    lock released, so that statements and uploads are taken meanwhile. In memory there are one product and two uploads
    of a chunk, however many parties there are.
    """

    def __init__(self, spool: Spool, cluster: ClusterSum | None = None) -> None:
        self._spool, self._cluster = spool, cluster
        self._thread = ThreadPoolExecutor(1, "adding")
        # Large totals take turns on the cluster: each would start a process, and none may take the uploads' threads.
        self._cluster_thread = ThreadPoolExecutor(1, "cluster")

    async def make(self, live: LiveQuery, stopping: Callable[[], bool]) -> bool:
        """Multiply the cohort's chunks and store the products. False where it was stopped before the end.

        The uploads stay: who calls drops them once the round is complete. Raises SpoolDamagedError where a chunk is not
        what was acknowledged, WireError(SPOOL_FULL) or OSError where the disk fails.
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
        """End the threads."""
        self._thread.shutdown()
        self._cluster_thread.shutdown()
