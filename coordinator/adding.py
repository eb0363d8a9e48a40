"""The total of a cohort, made from the spool; what was made before a restart is not made again."""

from collections.abc import Callable

from coordinator.aggregate import multiply
from coordinator.live import LiveQuery
from coordinator.spool import Spool
from wire.upload import Chunk


def add(spool: Spool, live: LiveQuery, stopping: Callable[[], bool]) -> bool:
    """Multiply the cohort's chunks and store the products; blocks. False where it was stopped before the end.

    The uploads stay: who calls drops them once the round is complete. Raises SpoolDamagedError where a chunk is not
    what was acknowledged, WireError(SPOOL_FULL) or OSError where the disk fails.
    """
    attempt, cohort = live.round.attempt, live.round.cohort
    made = spool.held_total(live.query_id)
    for index in range(live.chunks):
        if stopping():
            return False
        if index not in made:
            uploads = (spool.read(live.query_id, attempt, party, index) for party in cohort)
            spool.put_total(live.query_id, Chunk.of(index, multiply(live.opened.public_key, uploads)))
    return True
