"""The process that connects to a Ray cluster for one job: `python -m radobase.ray_driver DESCRIPTOR`.

radobase.cluster_jobs starts it, sends (settings, version, function, shared), then items (number, payload), and
closes the connection at the end. The driver answers ("ready", None), then ("item", (number, whether it is done, result
or reason)) for each item, and ("failed", sentence) if it cannot continue.
"""

import os
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from dpcore.errors import RadofedError
from radobase.cluster_jobs import run_item
from radobase.ray_cluster import connect, last_line

_WAIT_S = 0.2


class _Tasks:
    """Items under way. One thread submits items, the other returns results."""

    def __init__(self, ray: Any, connection: Connection, start: tuple[Any, ...]) -> None:
        settings, self._version, self._function, shared = start
        self._ray, self._connection, self._timeout_s = ray, connection, settings.timeout_s
        self._shared = ray.put(shared)
        # No retries by Ray: a lost item is loaded from its source again. Each is tried once, on any free processor.
        self._task = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy="SPREAD")(run_item)
        self._changed = threading.Condition()
        self._under_way: dict[Any, int] = {}
        self._failure: str | None = None

    def submit(self) -> None:
        """Submit items until the connection closes, which ends the process even if Ray is waiting."""
        while True:
            try:
                number, payload = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            try:
                task = self._task.remote(self._version, self._function, self._shared, payload)
            except Exception as error:  # noqa: BLE001 - Ray's own, of many classes
                with self._changed:
                    self._failure = last_line(error)
                    self._changed.notify()
                return
            with self._changed:
                self._under_way[task] = number
                self._changed.notify()

    def give_back(self) -> None:
        """Return results as items complete, until the cluster fails."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._under_way or self._failure)
                if self._failure:
                    raise RadofedError(self._failure)
                tasks = list(self._under_way)
            done, _ = self._ray.wait(tasks, num_returns=1, timeout=_WAIT_S)
            for task in done:
                with self._changed:
                    number = self._under_way.pop(task)
                self._connection.send(("item", (number, *self._outcome(task))))

    def _outcome(self, task: Any) -> tuple[bool, Any]:
        """(True, its result), or (False, why it was lost). Raises RadofedError if the task itself failed."""
        exceptions = self._ray.exceptions
        try:
            return True, self._ray.get(task, timeout=self._timeout_s)
        except exceptions.RayTaskError as error:
            raise RadofedError(f"a worker of the cluster failed: {last_line(error)}") from error
        except exceptions.RayError as error:
            return False, last_line(error)


def main(descriptor: int) -> None:
    """Serve one job."""
    connection = Connection(descriptor)
    try:
        start = connection.recv()
        tasks = _Tasks(connect(start[0].address, start[0].token_file), connection, start)
        connection.send(("ready", None))
        threading.Thread(target=tasks.submit, daemon=True).start()
        tasks.give_back()
    except Exception as error:  # noqa: BLE001 - the parent must receive any error
        connection.send(("failed", last_line(error)))
    finally:
        # Ray's own shutdown may wait for a cluster that no longer exists.
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
