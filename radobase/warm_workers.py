"""Workers of an organisation's Ray cluster that stay as long as the node, each with a state in which work keeps things.

As radobase.cluster_jobs, in a process of its own (radobase.ray_driver), but this one is started once: an item waits for
no process to start, and finds what the worker kept of it.

A worker that is lost is replaced by one that keeps nothing yet. The driver's messages are read as data only.
"""

import os
import secrets
import socket
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator
from typing import Any

from dpcore.numbers.processors import one_blas_thread
from radobase.cluster_jobs import (
    ATTEMPTS,
    IDLE_S,
    ITEMS_PER_WORKER,
    ClusterError,
    ClusterSettings,
    Driver,
    check_version,
)

_ALL_UP_S = 60.0
_MOST_HOST = 200

Work = Callable[[dict[str, Any], Any, Any], Any]
"""function(state, shared, payload): computes a result on a worker. state: what the worker keeps. See `ClusterJob`."""


class WarmWorkers(Driver):
    """The workers of one node. One job at a time has them; others wait."""

    def __init__(self, settings: ClusterSettings) -> None:
        """No process is started before the first job."""
        super().__init__(settings)
        self._lock = threading.Lock()
        self._job, self._begun, self._wanted = 0, 0.0, 0
        self._names: dict[int, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the workers that are there: their machine, their process and a number, which no two have."""
        return tuple(self._names.values())

    @property
    def expected(self) -> int:
        """How many there are, once those that still start are there, which takes a minute at most."""
        is_new = time.monotonic() - self._begun < _ALL_UP_S
        return max(1, self._wanted if is_new else len(self._names))

    def close(self) -> None:
        """End the process and the workers. The next job starts others."""
        with self._lock:
            self._forget()

    def results(
        self,
        function: Work,
        shared: Any,
        count: int,
        load: Callable[[int, str], Any],
        owner: Callable[[int], str | None],
        idle: Callable[[], None] = lambda: None,
    ) -> Generator[tuple[int, str, Any]]:
        """Yield (number, worker, result) of each item 0 to count - 1, once each, in the order of completion.

        load(number, worker): the item's payload; called again if its worker was lost. owner(number): the worker that
        should do it, None for any; if it is not there, any. idle is called each second while no result arrives.

        Exceptions of these propagate and end the job, and the workers stay. Raises ClusterError if the cluster cannot
        be used or fails, an item is lost repeatedly, or no result arrives for timeout_s; then the workers are ended.
        """
        while not self._lock.acquire(timeout=IDLE_S):
            idle()
        try:
            self._begin(function, shared, idle)
            yield from self._given_out(count, load, owner, idle)
        except ClusterError:
            self._forget()
            raise
        finally:
            self._lock.release()

    def _begin(self, function: Work, shared: Any, idle: Callable[[], None]) -> None:
        """Tell the workers what the job is. If their process has ended since the last job, start another."""
        self._job += 1
        if self._connection is not None:
            try:
                self._tell("job", (self._job, function, shared))
            except ClusterError:
                self._forget()
            else:
                return
        self._connect((), idle)
        self._wanted, self._begun = self._receive(idle), time.monotonic()
        self._tell("job", (self._job, function, shared))

    def _given_out(
        self,
        count: int,
        load: Callable[[int, str], Any],
        owner: Callable[[int], str | None],
        idle: Callable[[], None],
    ) -> Generator[tuple[int, str, Any]]:
        items = _Items(count, owner, self.names)
        while items.left:
            for slot, name in self._names.items():
                while (number := items.given(slot, name)) is not None:
                    self._tell("item", (slot, self._job, number, load(number, name)))
            match self._message(idle):
                case "item", (job, *_) if job != self._job:
                    continue  # of a job that was given up
                case "item", (_, int(number), bool(is_done), value) if items.taken_back(number):
                    pass
                case "worker" | "gone" as kind, (int(slot), str(name)):
                    self._note(kind, slot, name, items)
                    continue
                case _:
                    raise ClusterError("the cluster returned a result that was not requested")
            if not is_done:
                items.lose(number, value)
                continue
            if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], str):
                raise ClusterError("the cluster returned a result without its worker")
            items.left -= 1
            yield number, *value

    def _note(self, kind: str, slot: int, name: str, items: "_Items") -> None:
        """A worker is there, or gone: then others do what it owned."""
        if kind == "worker":
            self._names[slot] = name
        elif (gone := self._names.pop(slot, None)) is not None:
            items.free(gone)

    def _tell(self, kind: str, content: Any) -> None:
        self._send((kind, content))

    def _forget(self) -> None:
        self._names.clear()
        self._end()


class _Items:
    """The items of one job: which wait, and which are under way."""

    def __init__(self, count: int, owner: Callable[[int], str | None], names: tuple[str, ...]) -> None:
        self.left = count
        # By owner, and those that have none.
        self._waiting: dict[str | None, deque[int]] = defaultdict(deque)
        self._under_way: dict[int, int] = {}
        self._given, self._lost = Counter[int](), Counter[int]()
        for number in range(count):
            name = owner(number)
            self._waiting[name if name in names else None].append(number)

    def given(self, slot: int, name: str) -> int | None:
        """The next item for a worker: one of its own, or one without an owner. None if it has enough, or there is none.

        It is under way then.
        """
        waiting = self._waiting[name] or self._waiting[None]
        if self._given[slot] == ITEMS_PER_WORKER or not waiting:
            return None
        number = waiting.popleft()
        self._under_way[number] = slot
        self._given[slot] += 1
        return number

    def taken_back(self, number: int) -> bool:
        """Whether an item was under way. It is not any more."""
        slot = self._under_way.pop(number, None)
        if slot is not None:
            self._given[slot] -= 1
        return slot is not None

    def lose(self, number: int, reason: Any) -> None:
        """An item is to be done again, by any worker. Raises ClusterError if it was lost often."""
        self._lost[number] += 1
        if self._lost[number] == ATTEMPTS:
            raise ClusterError(f"the cluster lost an item of work {ATTEMPTS} times: {reason}")
        self._waiting[None].appendleft(number)

    def free(self, name: str) -> None:
        """What a worker owned has no owner any more."""
        self._waiting[None].extend(self._waiting.pop(name, ()))


class WarmWorker:
    """What runs on a worker. BLAS has one thread there, because workers share the machine."""

    def __init__(self) -> None:
        self._state: dict[str, Any] = {}
        # A machine that starts again may give a process the same number.
        self._name = f"{socket.gethostname()[:_MOST_HOST]}/{os.getpid()}/{secrets.token_hex(2)}"

    def called(self, version: str) -> str:
        """Its name. Raises ClusterError if the worker's program has another version: it might compute otherwise."""
        check_version(version)
        return self._name

    def run(self, function: Work, shared: Any, payload: Any) -> tuple[str, Any]:
        """The function's result, and whose it is."""
        with one_blas_thread():
            return self._name, function(self._state, shared, payload)


def machine_of(name: str) -> str:
    """The machine of a worker of this name."""
    return name.partition("/")[0]
