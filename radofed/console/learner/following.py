"""Queries that the console asks and follows, each in a thread, until their releases are saved.

A query is on disk before it is sent, so that a console that ends, or is killed, loses nothing: the next one follows it.
"""

import threading
import time
from dataclasses import dataclass, field

from dpcore.errors import RadofedError
from learner.config import LearnerConfig
from learner.history import LearnerHistory
from learner.session import Session
from radobase.failure import Failure
from radobase.logs import Log
from wire.status import QueryStatus

PAGE_GIVES_UP_AFTER_S = 3.0
"""How long a page tries to reach the coordinator."""
_log = Log("console")


@dataclass
class Followed:
    """What is known of a query that is followed. since_s: monotonic, the start of its phase. fault: why it stopped."""

    status: QueryStatus | None = None
    since_s: float = field(default_factory=time.monotonic)
    note: str = ""
    fault: str = ""
    runs: bool = True

    @property
    def waited_s(self) -> float:
        """How long the phase has been watched."""
        return time.monotonic() - self.since_s

    def see(self, status: QueryStatus) -> None:
        """Take a new status in."""
        last = self.status
        if last is None or (last.attempt, last.phase) != (status.attempt, status.phase):
            self.since_s = time.monotonic()
        self.status = status


class Following:
    """The queries that one console follows."""

    def __init__(self, config: LearnerConfig) -> None:
        self._config = config
        self._followed: dict[bytes, Followed] = {}
        self._lock = threading.Lock()

    def session(self, note: list[str] | None = None) -> Session:
        """A session for one page, which gives up soon. note: receives what a command would note."""
        notes = [] if note is None else note
        return Session(self._config, give_up_after_s=PAGE_GIVES_UP_AFTER_S, note=notes.append, progress=False)

    def of(self, query_id: bytes) -> Followed | None:
        """What is known of a query; None if this console does not follow it."""
        return self._followed.get(query_id)

    def start(self, query_id: bytes) -> None:
        """Send a query that is on disk, unless it was sent, and follow it. Does nothing if it is followed."""
        with self._lock:
            known = self._followed.get(query_id)
            if known is not None and known.runs:
                return
            followed = self._followed[query_id] = Followed()
        # The thread ends with the console: what it has not done is on disk.
        threading.Thread(target=self._run, args=(query_id, followed), daemon=True).start()

    def resume(self) -> None:
        """Follow every query that was sent, and neither opened nor ended. For the start of a console."""
        if not self._config.state_directory.is_dir():
            return
        try:
            history = LearnerHistory(self._config)
            open_queries = [query_id for query_id in history.query_ids if history.is_open(query_id)]
        except RadofedError as error:
            _log.warning(f"queries of before are not followed: {error}")
            return
        for query_id in open_queries:
            self.start(query_id)

    def _run(self, query_id: bytes, followed: Followed) -> None:
        def note(sentence: str) -> None:
            followed.note = sentence

        try:
            with Session(self._config, note=note, progress=False) as session:
                session.send(query_id)
                if not session.release_directory(query_id).exists():
                    session.watch(query_id, followed.see)
                session.fetch(query_id)
        except Exception as error:  # noqa: BLE001 - the page says it, as a command would
            followed.fault = Failure.of(error).message
        finally:
            followed.runs = False
