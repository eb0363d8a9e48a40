"""Processes of `rado` that a fork server starts, which has imported a node's modules once: 50 ms instead of a second.

They are as real as those that a shell starts: own sessions, signals, files and sockets. What has to do with a start
itself (imports, memory, the command line) needs `ProcessFederation(fresh=True)`.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from radofed.cli.entry_point import _command, main

# The fork server imports this module too, and the parser of all commands takes 20 ms.
_command()
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "radofed.cli.commands",
        "parties.node",
        "coordinator.server",
        "dpcore.records.compiled_edges",
        "dpcore.records.compiled_gradients",
        "dpcore.rados.compiled_kernel",
        "dpcore.rados.compiled_support",
        __name__,
    ]
)


def rado(*arguments: str) -> None:
    """`rado ARGUMENTS`, for Forked."""
    sys.argv = ["rado", *arguments]
    main()


def _run(function: Callable[..., None], arguments: tuple[str, ...], log: str, environment: dict[str, str]) -> None:
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)


class Forked:
    """function(*arguments) in a process of its own, with the methods of subprocess.Popen that tests use.

    function: of a module that takes little to import.
    """

    def __init__(self, function: Callable[..., None], arguments: tuple[str, ...], log: Path) -> None:
        job = (function, arguments, str(log), dict(os.environ))
        # A daemon in the sense of multiprocessing: it is ended with this process.
        self._process = _SERVER.Process(target=_run, args=job, daemon=True)
        self._process.start()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("rado", timeout_s or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
