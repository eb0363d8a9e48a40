"""Schedules queries: one thread at a time per query, one contribution at a time in total, no thread while waiting."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from dpcore.errors import RadofedError
from parties.answering.failures import StoppedError, may_pass
from parties.answering.lifecycle import QueryLifecycle
from radobase.logs import Log
from wire.status import Work

# As many as a coordinator has open by default: an upload occupies its thread while other queries need answers.
ADVANCING_THREADS = 16
# Queries handled at one time; far more than an honest coordinator has open.
MOST_QUERIES = 256
MOST_BYTES = 64 << 20
"""The most memory of the work of all these queries: a query may have half a megabyte, and a cohort some more."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


def pauses() -> Iterator[float]:
    """Growing pauses with full jitter, in seconds."""
    longest_s = FIRST_PAUSE_S
    while True:
        # Jitter is not for security; it spreads load.
        yield random.uniform(0.1, longest_s)  # noqa: S311
        longest_s = min(longest_s * 2, LONGEST_PAUSE_S)


@dataclass
class _Job:
    """One query: its newest work, whether that is new, which threads handle it, and its retry timer."""

    work: Work
    held_bytes: int = 0
    is_new: bool = True
    advancing: bool = False
    computing: bool = False
    pauses: Iterator[float] = field(default_factory=pauses)
    retry: threading.Timer | None = None

    @property
    def is_idle(self) -> bool:
        return not (self.is_new or self.advancing or self.computing or self.retry)


class Jobs:
    """Gives every query one advancing thread at a time and all of them one computing thread.

    A query that waits for a retry occupies no thread. Idle queries are not kept.
    """

    def __init__(
        self, lifecycle: QueryLifecycle, log: Log, stop: threading.Event, may_finish: Callable[[], bool] = lambda: True
    ) -> None:
        """stop: set when the node stops. may_finish: whether running uploads may continue after that."""
        self._lifecycle, self._log, self._stop, self._may_finish = lifecycle, log, stop, may_finish
        self._lock = threading.Lock()
        self._jobs: dict[bytes, _Job] = {}
        self._held_bytes = 0
        self._advancing = ThreadPoolExecutor(ADVANCING_THREADS, thread_name_prefix="advance")
        self._computing = ThreadPoolExecutor(1, thread_name_prefix="compute")

    def offer(self, work: Work) -> bool:
        """Handle a query, given the coordinator's newest work for it. Returns False if there is no room for it."""
        with self._lock:
            job = self._jobs.get(work.query_id)
            more_bytes = work.held_bytes - (0 if job is None else job.held_bytes)
            is_full = job is None and len(self._jobs) >= MOST_QUERIES
            if is_full or self._held_bytes + more_bytes > MOST_BYTES:
                self._log.refused("too many queries at once", peer="coordinator", code="TOO_MANY", query=work.query_id)
                return False
            if job is None:
                job = self._jobs[work.query_id] = _Job(work)
            self._held_bytes += more_bytes
            job.work, job.held_bytes, job.is_new = work, work.held_bytes, True
            self._go_on(job)
            return True

    def drain(self) -> None:
        """Wait until all threads have stopped. Call it after `stop` is set."""
        # Earlier holders of the lock have submitted their work; later ones see that the node is stopping.
        with self._lock:
            for job in self._jobs.values():
                if job.retry is not None:
                    job.retry.cancel()
        self._computing.shutdown(cancel_futures=True)
        self._advancing.shutdown(cancel_futures=True)

    def _go_on(self, job: _Job) -> None:
        """Start the next step of a query, or drop the query if it is idle. The caller holds the lock."""
        if job.is_new and not job.advancing and not self._stop.is_set():
            if job.retry is not None:
                job.retry.cancel()
                job.retry = None
            job.advancing = True
            self._advancing.submit(self._advance, job)
        if job.is_idle and self._jobs.get(job.work.query_id) is job:
            del self._jobs[job.work.query_id]
            self._held_bytes -= job.held_bytes

    def _advance(self, job: _Job) -> None:
        with self._lock:
            work, job.is_new = job.work, False
        done = self._advance_once(job, work)
        with self._lock:
            job.advancing = False
            if done:
                job.pauses = pauses()
            elif not job.is_new and not self._stop.is_set():
                job.retry = threading.Timer(next(job.pauses), self._try_again, [job])
                job.retry.daemon = True
                job.retry.start()
            self._go_on(job)

    def _try_again(self, job: _Job) -> None:
        with self._lock:
            if job.retry is not threading.current_thread():  # cancelled too late
                return
            job.retry, job.is_new = None, True
            self._go_on(job)

    def _advance_once(self, job: _Job, work: Work) -> bool:
        """Advance a query. Returns False if it needs a retry."""
        try:
            if self._lifecycle.advance(work, lambda: self._is_current(job, work) and self._may_finish()):
                with self._lock:
                    if not job.computing and not self._stop.is_set():
                        job.computing = True
                        self._computing.submit(self._compute, job, work)
        except StoppedError:
            return True
        except RadofedError as error:
            if may_pass(error):
                self._log.refused(
                    "trying again",
                    peer="coordinator",
                    code=type(error).__name__,
                    query=work.query_id,
                    reason=str(error),
                )
                return False
            self._log.error("query failed", query=work.query_id, reason=str(error))
        except Exception as error:  # noqa: BLE001 - one query's failure must not stop the others
            self._log.exception("query failed", query=work.query_id, error=type(error).__name__)
        return True

    def _compute(self, job: _Job, work: Work) -> None:
        try:
            self._lifecycle.compute(work, lambda: self._is_current(job, work) and not self._stop.is_set())
        except StoppedError:
            self._log.info("contribution dropped", query=work.query_id, attempt=work.attempt)
        except Exception as error:  # noqa: BLE001 - the thread must go on to the next query
            self._log.exception("computing failed", query=work.query_id, error=type(error).__name__)
        with self._lock:
            job.computing = False
            job.is_new = True
            self._go_on(job)

    @staticmethod
    def _is_current(job: _Job, work: Work) -> bool:
        return job.work.attempt == work.attempt and not job.work.phase.is_terminal
