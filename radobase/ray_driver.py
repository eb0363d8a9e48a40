"""The process that connects to a Ray cluster: `python -m radobase.ray_driver DESCRIPTOR`.

Nothing imports it: it runs as a process of its own. The first message says what for:

- (settings, version, function, shared): for one job (radobase.cluster_jobs). Then items (number, payload) come.
- (settings, version): for the life of a node (radobase.warm_workers). Then ("job", (job, function, shared)) and
  ("item", (worker, job, number, payload)) come.

The driver answers ("ready", None), then ("item", (number, whether it is done, result or reason)) for each item, and
("failed", sentence) if it cannot continue.

For the life of a node it also says how many workers there will be, ("worker", (worker, name)) when one is there and
("gone", (worker, reason)) when it is lost; items have their job before their number, and results their worker's name.
It ends when the connection closes.
"""

import os
import sys
import threading
import time
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any

from dpcore.errors import RadofedError
from radobase.cluster_jobs import ATTEMPTS, LONGEST_PAUSE_S, run_item
from radobase.ray_cluster import connect, last_line
from radobase.warm_workers import WarmWorker

_WAIT_S = 0.2


class _Work:
    """What is under way. One thread submits items, the other returns results."""

    def __init__(self, ray: Any, connection: Connection, timeout_s: float) -> None:
        self._ray, self._connection, self._timeout_s = ray, connection, timeout_s
        self._changed = threading.Condition()
        self._under_way: dict[Any, Any] = {}
        self._failure: str | None = None

    def submit(self) -> None:
        """Submit items until the connection closes, which ends the process even if Ray is waiting."""
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            try:
                self._take(*message)
            except Exception as error:  # noqa: BLE001 - Ray's own, of many classes
                with self._changed:
                    self._failure = last_line(error)
                    self._changed.notify()
                return

    def _take(self, first: Any, second: Any) -> None:
        raise NotImplementedError

    def _note(self, task: Any, what: Any) -> None:
        with self._changed:
            self._under_way[task] = what
            self._changed.notify()

    def give_back(self) -> None:
        """Return results as items complete, until the cluster fails."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._under_way or self._failure, self._patience())
                if self._failure:
                    raise RadofedError(self._failure)
                tasks = list(self._under_way)
            done = self._ray.wait(tasks, num_returns=1, timeout=_WAIT_S)[0] if tasks else ()
            for task in done:
                with self._changed:
                    what = self._under_way.pop(task)
                self._give(what, *self._outcome(task))

    def _patience(self) -> float | None:
        """How long to wait for something to be under way."""
        return None

    def _give(self, what: Any, is_done: bool, value: Any) -> None:
        self._connection.send(("item", (what, is_done, value)))

    def _outcome(self, task: Any) -> tuple[bool, Any]:
        """(True, its result), or (False, why it was lost). Raises RadofedError if the task itself failed."""
        exceptions = self._ray.exceptions
        try:
            return True, self._ray.get(task, timeout=self._timeout_s)
        except exceptions.RayTaskError as error:
            raise RadofedError(f"a worker of the cluster failed: {last_line(error)}") from error
        except exceptions.RayError as error:
            return False, last_line(error)


class _Tasks(_Work):
    """One job: each item is tried once, on any free processor."""

    def __init__(self, ray: Any, connection: Connection, start: tuple[Any, ...]) -> None:
        settings, self._version, self._function, shared = start
        super().__init__(ray, connection, settings.timeout_s)
        self._shared = ray.put(shared)
        # No retries by Ray: a lost item is loaded from its source again.
        self._task = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(run_item)

    def _take(self, first: Any, second: Any) -> None:
        self._note(self._task.remote(self._version, self._function, self._shared, second), first)


class _Workers(_Work):
    """Workers that stay, at most one for each processor of the cluster. One that is lost is replaced."""

    def __init__(self, ray: Any, connection: Connection, start: tuple[Any, ...]) -> None:
        settings, self._version = start
        super().__init__(ray, connection, settings.timeout_s)
        self._job: tuple[int, Any, Any] | None = None
        self._kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(
            WarmWorker
        )
        self._count = min(settings.workers, int(ray.cluster_resources()["CPU"]))
        self._workers: dict[int, Any] = {}
        # By place: how many workers there have been, how many of them were lost since one was there, and when the next
        # one starts.
        self._numbers, self._lost, self._next = Counter[int](), Counter[int](), dict.fromkeys(range(self._count), 0.0)

    def announce(self) -> None:
        """Say how many workers there will be, and start them."""
        self._connection.send(("workers", self._count))
        self._start_due()

    def _take(self, first: Any, second: Any) -> None:
        if first == "job":
            job, function, shared = second
            self._job = job, function, self._ray.put(shared)
            return
        place, job, number, payload = second
        assert self._job is not None, "a job comes before its items"
        with self._changed:
            task = self._workers[place].run.remote(*self._job[1:], payload)
            self._note(task, (place, self._numbers[place], job, number))

    def _patience(self) -> float | None:
        self._start_due()
        return _WAIT_S if self._next else None

    def _start_due(self) -> None:
        for place, when in list(self._next.items()):
            if when <= time.monotonic():
                del self._next[place]
                self._numbers[place] += 1
                self._workers[place] = worker = self._kind.remote()
                self._under_way[worker.called.remote(self._version)] = (place, self._numbers[place], None, None)

    def _give(self, what: Any, is_done: bool, value: Any) -> None:
        place, count, job, number = what
        if not is_done and count == self._numbers[place] and place not in self._next:
            self._replace(place, str(value))
        if job is not None:
            self._connection.send(("item", (job, number, is_done, value)))
        elif is_done:
            self._lost[place] = 0
            self._connection.send(("worker", (place, value)))

    def _replace(self, place: int, reason: str) -> None:
        self._lost[place] += 1
        if self._lost[place] == ATTEMPTS:
            raise RadofedError(f"a worker of the cluster was lost {ATTEMPTS} times: {reason}")
        self._connection.send(("gone", (place, reason)))
        # Ray may take a moment to notice that a machine is lost, and would start the next one there.
        self._next[place] = time.monotonic() + min(LONGEST_PAUSE_S, 0.1 * 4 ** (self._lost[place] - 1))


def main(descriptor: int) -> None:
    """Serve one job, or a node."""
    connection = Connection(descriptor)
    try:
        start = connection.recv()
        ray = connect(start[0].address, start[0].token_file)
        work = (_Tasks if len(start) == 4 else _Workers)(ray, connection, start)
        connection.send(("ready", None))
        if isinstance(work, _Workers):
            work.announce()
        threading.Thread(target=work.submit, daemon=True).start()
        work.give_back()
    except Exception as error:  # noqa: BLE001 - the parent must receive any error
        connection.send(("failed", last_line(error)))
    finally:
        # Ray's own shutdown may wait for a cluster that no longer exists.
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
