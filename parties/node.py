"""The party node: loads its data once, dials out for work, and takes every query forward until it is told to stop.

Threads: one polls; a few advance queries (verify, answer, upload); one computes contributions, so that a long one stops
neither polling nor answers. What any of them was doing when the process ends is on disk, and goes on from there.
"""

import fcntl
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dpcore.errors import ConfigurationError, DataError, RadofedError
from dpcore.randomness import RandomSource, SystemRandom
from parties.attempts import Attempts
from parties.client import CoordinatorClient
from parties.config import PartyConfig
from parties.database import LedgerBusyError, LedgerOwner
from parties.dataset import Dataset, load
from parties.handling import Holdings, QueryHandler, StoppedError, may_pass
from parties.ledger import Budget, Ledger
from parties.policy import Policy
from parties.rosters import Rosters
from parties.schema_file import load_schema
from parties.spool import Spools
from parties.work import Batch, Work
from wire.envelopes import SigningKey, load_public_key
from wire.logs import Log, start_logging
from wire.roster import Role
from wire.transport import LONG_POLL_S

ADVANCING_THREADS = 4
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
DRAIN_S = 10.0
# Short: whoever called tries again after a pause that ends when the node stops.
CALL_PATIENCE_S = 3.0
ROSTER_EVERY_S = 600.0


def run(config: PartyConfig) -> None:
    """Be a party until SIGTERM or SIGINT, then stop at the next safe point.

    Raises ConfigurationError, DataError and the like before anything is sent; once it runs, only a signal ends it.
    """
    start_logging(config.log_level, config.log_file)
    node = PartyNode(config)
    # A handler may run between any two steps of the main thread: it only writes to a pipe, which takes no lock.
    told, tell = os.pipe()
    before = {
        number: signal.signal(number, lambda _number, _frame: os.write(tell, b"."))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        with node:
            os.read(told, 1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(told)
        os.close(tell)


class PartyNode:
    """A running party; a context manager. Everything that can be wrong with its files is raised on construction."""

    def __init__(self, config: PartyConfig, *, random_source: RandomSource | None = None) -> None:
        """Load keys, policy, schema, ledger and data. random_source: the system's where none is given.

        Raises ConfigurationError, SchemaError, LedgerFileError or DataError.
        """
        self._log = Log(f"party.{config.name}")
        self._config = config
        self._lock_file = _lock(config.state_directory)
        try:
            self._stop = threading.Event()
            self._drain_until = float("inf")
            # Polling has a connection of its own, which is cut when the node stops; uploads finish on the other.
            self._poll_client = self._client(give_up_after_s=0.0)
            self._client_for_queries = self._client(give_up_after_s=CALL_PATIENCE_S)
            policy = Policy.load(config.policy)
            self._rosters = Rosters(
                config.state_directory,
                federation=config.federation,
                federation_key=load_public_key(config.federation_key),
                log=self._log,
            )
            signing_key = SigningKey.load(config.signing_key)
            dataset = self._load()
            self._ledger = Ledger.open(
                config.ledger_file,
                LedgerOwner(config.federation, config.name, config.source),
                Budget(policy.limits.epsilon, policy.limits.delta),
            )
            attempts, spools = Attempts(self._ledger), Spools(config.state_directory / "spool", config.spool_bytes)
            spools.keep_only((held.query_id, held.attempt) for held in attempts.unfinished())
            self._handler = QueryHandler(
                Holdings(config.name, signing_key, policy, dataset.schema, dataset.records),
                attempts=attempts,
                spools=spools,
                rosters=self._rosters,
                coordinator=self._client_for_queries,
                random=random_source or SystemRandom(),
                log=self._log,
            )
            self._own_key = signing_key.public_bytes
        except BaseException:
            os.close(self._lock_file)
            raise
        self._jobs = Jobs(self._handler, self._log, self._stop, lambda: time.monotonic() < self._drain_until)
        self._cursor = 0
        # The queries seen in a sweep from cursor 0, while there is one.
        self._sweep: set[bytes] | None = set()
        self._poller = threading.Thread(target=self._poll, name="poll")

    def __enter__(self) -> Self:
        self._log.info("started", federation=self._config.federation, coordinator=self._config.coordinator)
        for sentence in self._ledger.state().sentences():
            self._log.info("ledger", state=sentence)
        self._poller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop, and return once it is done: a contribution in the making is dropped, an upload gets DRAIN_S more."""
        self._log.info("draining")
        self._drain_until = time.monotonic() + DRAIN_S
        self._stop.set()
        self._poll_client.close()
        self._poller.join()
        last_call = threading.Timer(DRAIN_S, self._client_for_queries.close)
        last_call.start()
        self._jobs.drain()
        last_call.cancel()
        self._client_for_queries.close()
        self._ledger.database.close()
        os.close(self._lock_file)
        self._log.info("stopped")

    def _client(self, give_up_after_s: float) -> CoordinatorClient:
        return CoordinatorClient(
            self._config.coordinator,
            self._config.tls.files,
            give_up_after_s=give_up_after_s,
            stopping=self._stop.is_set,
        )

    def _load(self) -> Dataset:
        config = self._config
        schema = load_schema(config.schema_file)
        try:
            dataset = load(config.data, schema)
        except DataError as error:
            # The sentence may quote a cell: it goes to whoever started the node, not into the log.
            place = {"file": error.file, "line": error.line, "row": error.row, "column": error.column}
            self._log.error("data refused", **{key: value for key, value in place.items() if value})
            raise
        report = dataset.report
        self._log.info(
            "data loaded",
            rows=report.rows,
            zero_vectors=report.zero_vectors,
            positive=report.positive,
            negative=report.negative,
        )
        for warning in report.warnings:
            self._log.warning("data", warning=warning)
        return dataset

    def _poll(self) -> None:
        pauses, asked_roster_at = _pauses(), float("-inf")
        while not self._stop.is_set():
            begun = time.monotonic()
            try:
                if begun - asked_roster_at > ROSTER_EVERY_S:
                    self._refresh_roster()
                    asked_roster_at = begun
                wait_s = 0 if self._sweep is not None else LONG_POLL_S
                batch = self._poll_client.fetch_work(self._cursor, wait_s)
                self._take(batch)
                pauses = _pauses()
                # A coordinator that does not hold its answers back must not be asked without end.
                pause_s = 0.5 if wait_s and not batch.work and time.monotonic() - begun < 0.5 else 0.0
            except RadofedError as error:
                if self._stop.is_set():
                    return
                pause_s = next(pauses)
                self._log.warning("no work", reason=str(error), again_in_s=round(pause_s, 1))
            except Exception as error:  # noqa: BLE001 - a party that stops polling is lost without a word
                pause_s = next(pauses)
                self._log.exception("polling failed", error=type(error).__name__)
            self._stop.wait(pause_s)

    def _refresh_roster(self) -> None:
        """Raises WireError(ROSTER_STALE) while none that verifies has been seen."""
        self._rosters.refresh(self._poll_client)
        known = self._rosters.current
        member = known.find(self._config.name, Role.PARTY)
        if member is None or member.signing_key != self._own_key:
            self._log.error("not in the roster", party=self._config.name, version=known.version)

    def _take(self, batch: Batch) -> None:
        """Hand out what came. A sweep from cursor 0 lists all that is open; its end shows what is not."""
        if batch.unreadable:
            self._log.warning("unreadable work", entries=batch.unreadable)
        for work in batch.work:
            self._jobs.offer(work)
        self._handler.end_expired()
        if batch.cursor < self._cursor:
            self._log.warning("the coordinator begins anew", cursor=self._cursor, its_cursor=batch.cursor)
            self._cursor, self._sweep = 0, set()
            return
        self._cursor = batch.cursor
        if self._sweep is None:
            return
        self._sweep.update(work.query_id for work in batch.work)
        if not batch.work and not batch.unreadable:
            self._handler.end_absent(self._sweep)
            self._sweep = None


@dataclass
class _Job:
    """One query: the newest work, whether it is to be looked at, and who is at it."""

    work: Work
    is_new: bool = True
    advancing: bool = False
    computing: bool = False


class Jobs:
    """Gives every query one advancing thread at a time and all of them one computing thread."""

    def __init__(
        self, handler: QueryHandler, log: Log, stop: threading.Event, may_finish: Callable[[], bool] = lambda: True
    ) -> None:
        """stop: set when the node stops. may_finish: whether uploads that are under way may go on after that."""
        self._handler, self._log, self._stop, self._may_finish = handler, log, stop, may_finish
        self._lock = threading.Lock()
        self._jobs: dict[bytes, _Job] = {}
        self._advancing = ThreadPoolExecutor(ADVANCING_THREADS, thread_name_prefix="advance")
        self._computing = ThreadPoolExecutor(1, thread_name_prefix="compute")

    def offer(self, work: Work) -> None:
        """Look at a query in the light of what the coordinator now says."""
        with self._lock:
            job = self._jobs.get(work.query_id)
            if job is None:
                job = self._jobs[work.query_id] = _Job(work)
            job.work, job.is_new = work, True
            self._start(job)

    def drain(self) -> None:
        """Wait until all threads have stopped."""
        self._computing.shutdown(cancel_futures=True)
        self._advancing.shutdown(cancel_futures=True)

    def _start(self, job: _Job) -> None:
        if job.is_new and not job.advancing and not self._stop.is_set():
            job.advancing = True
            self._advancing.submit(self._advance, job)

    def _advance(self, job: _Job) -> None:
        pauses = _pauses()
        while True:
            with self._lock:
                work = job.work
                if not job.is_new or self._stop.is_set():
                    job.advancing = False
                    if work.phase.is_terminal and not job.computing:
                        self._jobs.pop(work.query_id, None)
                    return
                job.is_new = False
            if self._advance_once(job, work):
                pauses = _pauses()
            else:
                self._stop.wait(next(pauses))
                with self._lock:
                    job.is_new = True

    def _advance_once(self, job: _Job, work: Work) -> bool:
        """Whether it went as far as it goes; otherwise it is to be tried again."""
        try:
            if self._handler.advance(work, lambda: self._is_current(job, work) and self._may_finish()):
                with self._lock:
                    if not job.computing and not self._stop.is_set():
                        job.computing = True
                        self._computing.submit(self._compute, job, work)
        except StoppedError:
            return True
        except LedgerBusyError as error:
            self._log.error("ledger busy", query=work.query_id, reason=str(error))
            return False
        except RadofedError as error:
            self._log.warning("trying again", query=work.query_id, reason=str(error))
            return not may_pass(error)
        except Exception as error:  # noqa: BLE001 - one query's failure must not stop the others
            self._log.exception("query failed", query=work.query_id, error=type(error).__name__)
        return True

    def _compute(self, job: _Job, work: Work) -> None:
        try:
            self._handler.compute(work, lambda: self._is_current(job, work) and not self._stop.is_set())
        except StoppedError:
            self._log.info("contribution dropped", query=work.query_id, attempt=work.attempt)
        except Exception as error:  # noqa: BLE001 - the thread must go on to the next query
            self._log.exception("computing failed", query=work.query_id, error=type(error).__name__)
        with self._lock:
            job.computing = False
            job.is_new = True
            self._start(job)

    @staticmethod
    def _is_current(job: _Job, work: Work) -> bool:
        return job.work.attempt == work.attempt and not job.work.phase.is_terminal


def _pauses() -> Iterator[float]:
    """Growing pauses with full jitter, in seconds."""
    longest_s = FIRST_PAUSE_S
    while True:
        # Jitter protects nobody; it spreads load.
        yield random.uniform(0.1, longest_s)  # noqa: S311
        longest_s = min(longest_s * 2, LONGEST_PAUSE_S)


def _lock(directory: Path) -> int:
    """Hold the state directory for this process. Raises ConfigurationError where another one has it."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{directory}: cannot be used for state ({error.strerror})") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ConfigurationError(
            f"{directory}: another party node is using this state directory; end it, or give this one its own"
        ) from error
    return descriptor
