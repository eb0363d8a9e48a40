"""Schedules queries: one thread at a time per query, one contribution at a time in total, no thread while waiting."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from dpcore.errors import RadofedError
from parties.answering.coordinator_calls import CoordinatorCalls, StoppedError, WorkBatch, may_pass
from parties.answering.decisions import check_signed
from parties.answering.lifecycle import QueryLifecycle
from parties.members import Rosters
from radobase.logs import Log
from wire.errors import Code, WireError
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
        self,
        lifecycle: QueryLifecycle,
        log: Log,
        stop: threading.Event,
        may_finish: Callable[[], bool] = lambda: True,
        on_stopped: Callable[[], None] = lambda: None,
    ) -> None:
        """stop: set when the node stops. may_finish: whether running uploads may continue after that.

        on_stopped: called after `have_stopped` became true, from any thread.
        """
        self._lifecycle, self._log, self._stop, self._may_finish = lifecycle, log, stop, may_finish
        self._on_stopped = on_stopped
        self._lock = threading.Lock()
        self._jobs: dict[bytes, _Job] = {}
        self._held_bytes = 0
        self._has_stopped = threading.Event()
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

    def have_stopped(self) -> bool:
        """Whether a query stopped since the last call, as this party might not answer: it has to be offered again.

        The reason may be over already: a newer roster without a witness of the ledger, and at once another witness.
        """
        has_stopped = self._has_stopped.is_set()
        self._has_stopped.clear()
        return has_stopped

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
            self._has_stopped.set()
            self._on_stopped()
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


# What the coordinator shows this party: only work that a learner of the roster signed goes further.
#
# A coordinator can show anything, at any pace, and an outsider who has its certificate can, too. An entry that no
# learner signed costs a comparison of its key, or at most four signature checks. Nothing of it outlives the poll but a
# count: no job, no thread, no line on disk, no signature or call of this party.


@dataclass
class Unverified:
    """How many entries did not verify since the start, by code, and when the last one was shown."""

    entries: Counter[str] = field(default_factory=Counter)
    last_unix_s: float | None = None

    def add(self, code: str, entries: int) -> None:
        """Count entries. code: of the catalogue, or UNREADABLE; there are few."""
        self.entries[code] += entries
        self.last_unix_s = time.time()

    def status(self) -> dict[str, Any]:
        """In JSON types."""
        return {"entries": dict(self.entries), "last_unix_s": self.last_unix_s}


class ShownWork:
    """Follows the cursor, and offers what is signed. Use it from one thread.

    A sweep from cursor 0 lists all open queries. Attempts at queries that it does not list are over. So it keeps the
    queries of which this party holds something and that were not listed yet; what else is listed takes no memory.
    """

    def __init__(
        self,
        lifecycle: QueryLifecycle,
        offer: Callable[[Work], bool],
        rosters: Rosters,
        coordinator: CoordinatorCalls,
        log: Log,
    ) -> None:
        """offer: takes work, or returns False if there is no room for it."""
        self._lifecycle, self._offer, self._rosters = lifecycle, offer, rosters
        self._coordinator, self._log = coordinator, log
        self.cursor, self.is_sweeping = 0, True
        self._unlisted: set[bytes] | None = None
        """Queries of which this party holds something and that the sweep did not list yet; None before its start."""
        self._has_left_out, self._left_out_under = False, rosters.known
        """Whether something did not verify since the last restart, and under which roster."""
        self.unverified = Unverified()

    def restart(self) -> None:
        """Look at all open queries again, from the next poll on."""
        self.cursor, self.is_sweeping, self._unlisted = 0, True, None

    def hold(self, batch: WorkBatch, reason: str) -> bool:
        """Follow the cursor while this party answers nothing: what a learner signed is noted, and nothing else is done.

        reason: why nothing is answered, in words. Returns whether some of it was not signed, could not be read, or
        could not be noted, which is shown again then. Raises as `take`.
        """
        if batch.was_ended:
            return False
        self.cursor, self.is_sweeping, self._unlisted = batch.cursor, False, None

        def note(signed: Iterable[Work]) -> bool:
            return not [work for work in signed if not self._lifecycle.note_unanswered(work, reason)]

        is_noted, is_junk = self._pass_on(batch, note)
        if not is_noted:
            self.restart()
        return is_junk or not is_noted

    def follow_roster(self) -> None:
        """Look at all open queries again if one did not verify and there is a newer roster. Call it before a poll.

        Raises what Rosters.refresh raises.
        """
        if not self._has_left_out:
            return
        is_newer = self._rosters.refresh_for_unverified(self._coordinator)
        if is_newer or self._rosters.known is not self._left_out_under:
            self._has_left_out = False
            self.restart()

    def take(self, batch: WorkBatch) -> bool:
        """Offer what is signed. Returns whether some of it was not, could not be read, or found no room.

        Raises what the ledger and Rosters.refresh raise.
        """
        if batch.was_ended:
            # It lists nothing, and what is not listed is not over.
            return False
        if self.is_sweeping and self._unlisted is None:
            self._unlisted = self._lifecycle.held()
        has_room, is_junk = self._pass_on(batch, self._offer_all)
        self._move(batch)
        if not has_room:
            self.restart()
        return is_junk or not has_room

    def _pass_on(self, batch: WorkBatch, take: Callable[[Iterable[Work]], bool]) -> tuple[bool, bool]:
        """Give `take` what is signed, and note the rest. Returns whether it took all, and whether there is a rest."""
        if batch.unreadable:
            self._note("UNREADABLE", batch.unreadable)
        signed, others = self._verified(batch.work)
        has_taken = take(signed)
        if others:
            again, others = self._look_again(others)
            has_taken = take(again) and has_taken
        return has_taken, bool(others or batch.unreadable)

    def _verified(self, shown: Iterable[Work]) -> tuple[list[Work], list[tuple[Work, Code]]]:
        """The work that a learner signed; and the rest, with the code of what is wrong."""
        signed: list[Work] = []
        others: list[tuple[Work, Code]] = []
        for work in shown:
            try:
                check_signed(work, self._rosters.current)
            except WireError as error:
                others.append((work, error.code))
            else:
                signed.append(work)
        return signed, others

    def _look_again(self, others: list[tuple[Work, Code]]) -> tuple[list[Work], list[tuple[Work, Code]]]:
        """What goes further under the newest roster or because this party holds it; and the rest, which is noted.

        A query that this party accepted may end although its learner has left the roster.
        """
        signed: list[Work] = []
        if self._rosters.refresh_for_unverified(self._coordinator):
            signed, others = self._verified(work for work, _ in others)
        held = self._lifecycle.held()
        signed += [work for work, _ in others if work.query_id in held]
        others = [(work, code) for work, code in others if work.query_id not in held]
        for code, entries in Counter(code for _, code in others).items():
            self._note(code, entries)
        if others and not self._has_left_out:
            self._has_left_out, self._left_out_under = True, self._rosters.known
        return signed, others

    def _offer_all(self, signed: Iterable[Work]) -> bool:
        """Offer work. Returns whether there was room for all of it."""
        has_room = True
        for work in signed:
            if self._unlisted is not None:
                self._unlisted.discard(work.query_id)
            has_room = self._offer(work) and has_room
        return has_room

    def _note(self, code: str, entries: int) -> None:
        self.unverified.add(code, entries)
        self._log.refused("not verified", peer="coordinator", code=code, entries=entries)

    def _move(self, batch: WorkBatch) -> None:
        """Follow the cursor. A batch that shows nothing ends the sweep: what it did not list is over."""
        if batch.cursor < self.cursor:
            self._log.refused(
                "the coordinator restarted its cursor",
                peer="coordinator",
                code="RESTARTED",
                cursor=self.cursor,
                its_cursor=batch.cursor,
            )
            self.restart()
            return
        self.cursor = batch.cursor
        if self._unlisted is not None and not batch.work and not batch.unreadable:
            self._lifecycle.end_queries(self._unlisted)
            self.is_sweeping, self._unlisted = False, None
