"""A `rado` command as a child of the demo: it ends when the process that started it ends.

The demo stops its children itself. This is for a demo that cannot, because it was killed (SIGKILL).

On Linux a child is forked from a process that has imported what commands need (radofed.cli.ready) and does nothing else
(multiprocessing's fork server), so that imports are made and compiled sums are loaded once. Elsewhere it is
`python -m radofed.demo.child PARENT ...`.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing import forkserver
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

LOOK_EVERY_S = 0.5
_READY = "radofed.cli.ready"
# The fork server listens at a socket in the directory for temporary files, whose path has at most 107 bytes.
_FORKS = sys.platform == "linux" and len(os.fsencode(tempfile.gettempdir())) <= 64


def begin() -> None:
    """Start the process that children are forked from, if they are: it imports what they need while the demo begins."""
    if _FORKS:
        forkserver.set_forkserver_preload([_READY])
        forkserver.ensure_running()


class ChildProcess:
    """A command that runs in a directory, with its output and its log in files."""

    def __init__(self, arguments: Sequence[str], directory: Path, output: Path, log: Path) -> None:
        """Start it."""
        self._process: Any
        if _FORKS:
            begin()
            about = (tuple(arguments), str(directory), str(output), str(log))
            self._process = multiprocessing.get_context("forkserver").Process(target=_forked, args=about, daemon=True)
            self._process.start()
            return
        command = [sys.executable, "-m", "radofed.demo.child", str(os.getpid()), *arguments]
        with output.open("wb") as out, log.open("wb") as err:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=directory)

    @property
    def pid(self) -> int:
        """The process's number."""
        found: int = self._process.pid
        return found

    @property
    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        found: int | None = self._process.exitcode if _FORKS else self._process.poll()
        return found

    def terminate(self) -> None:
        """Ask it to end."""
        if self.code is None:
            self._process.terminate()

    def end(self, within_s: float) -> None:
        """Wait until it has ended; kill it if it takes longer."""
        if _FORKS:
            self._process.join(within_s)
        else:
            end = time.monotonic() + within_s
            while self.code is None and time.monotonic() < end:
                time.sleep(LOOK_EVERY_S / 10)
        if self.code is None:
            self._process.kill()
            self._process.join() if _FORKS else self._process.wait()


def _forked(arguments: tuple[str, ...], directory: str, output: str, log: str) -> None:
    """What a forked child does: the same as the command in a process of its own."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "the demo started this process"
    threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(directory)
    sys.argv[1:] = arguments
    _main()


def _main() -> None:
    """Run `python -m radofed`: its commands import the demo."""
    runpy.run_module("radofed", run_name="__main__")


def _end_after(sentinel: int) -> None:
    """End this process at once when the demo has ended. Nodes survive being killed at any moment."""
    wait([sentinel])
    os._exit(1)


def end_with(parent: int) -> None:
    """The same for a process whose parent is the demo."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=(int(sys.argv.pop(1)),), daemon=True).start()
    _main()
