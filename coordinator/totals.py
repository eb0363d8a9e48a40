"""The total of a cohort, made from the spool; what was made before a restart is not made again.

**On this machine** chunk by chunk, in one thread of its own: a large total holds up neither uploads nor a small total.

**On the coordinator's own Ray cluster**, where a query's uploads are more than one machine should add. Uploads were
checked when they came. They are read from the spool, which verifies their hashes, and go out in runs: one chunk of
several parties, of which a worker gives back the product. Products of one chunk are multiplied here, checked as an
upload is, and stored. Multiplication mod n^2 is exact and has no order, so the total's bytes are those that one machine
makes. What a worker had when it was lost is read from the spool and sent again.

The cluster sees masked ciphertexts and the learner's public key. It can falsify a total, as the coordinator can.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from coordinator.aggregate import check_chunk, chunk_bytes, multiply
from coordinator.config import CoordinatorCluster
from coordinator.live import LiveQuery
from coordinator.spool import UploadSpool
from dpcore.errors import CiphertextError, ConfigurationError, ShapeError
from dpcore.paillier.public import PublicKey
from radofed.common.cluster.jobs import ITEM_BYTES, ClusterError, ClusterJob, check_in_background
from radofed.common.logs import Log
from wire.errors import WireError
from wire.upload import Chunk


class _StoppedError(Exception):
    """The total is not wanted any more, or the coordinator drains."""


class ClusterSum:
    """Makes totals on a cluster. Raises ConfigurationError where Ray is not installed."""

    def __init__(self, settings: CoordinatorCluster, spool: UploadSpool, log: Log) -> None:
        self._settings, self._spool, self._log = settings, spool, log
        check_in_background(settings, log)

    def wants(self, live: LiveQuery) -> bool:
        """Whether what is missing of a total is large enough for the cluster."""
        missing = self._missing(live)
        upload_bytes = len(live.round.cohort) * sum(chunk_bytes(live.opened, index) for index in missing)
        return upload_bytes >= max(1, self._settings.from_bytes)

    def make(self, live: LiveQuery, stopping: Callable[[], bool]) -> None:
        """Make and store the chunks of a total that are not there.

        Where the cluster fails, that is logged and the rest is left to this machine: parties were charged, and a total
        that comes later is worth more to them than none. Raises what reading and writing the spool raises.
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
        length = max(1, ITEM_BYTES // chunk_bytes(opened, 0))
        runs = [parties[first : first + length] for first in range(0, len(parties), length)]

        def load(number: int) -> list[bytes]:
            index = missing[number // len(runs)]
            run = runs[number % len(runs)]
            return [self._spool.read(live.query_id, live.round.attempt, party, index) for party in run]

        def idle() -> None:
            if stopping():
                raise _StoppedError

        # Chunks go out one after the other, so only those of the items under way are unfinished.
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
    """What a worker computes, on its one processor: the product of the same chunk of several parties."""
    return multiply(public_key, uploads, threads=1)


def _checked(live: LiveQuery, index: int, products: list[bytes]) -> Chunk:
    """A chunk of the total. What workers give back is checked like what parties upload."""
    if not all(isinstance(product, bytes) for product in products):
        raise ClusterError("a worker gave back no product: bytes are needed")
    try:
        chunk = Chunk.of(index, multiply(live.opened.public_key, products))
        check_chunk(live.opened, chunk)
    except (WireError, CiphertextError, ShapeError) as error:
        raise ClusterError(f"a worker gave back no product: {error}") from error
    return chunk


class Adding:
    """Makes totals, on a cluster where there is one for them, otherwise here.

    A chunk's ciphertexts are shared out over all processors (coordinator.aggregate.multiply), with the interpreter's
    lock released, so that statements and uploads are taken meanwhile. In memory there are one product and two uploads
    of a chunk, however many parties there are.
    """

    def __init__(self, spool: UploadSpool, cluster: ClusterSum | None = None) -> None:
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
