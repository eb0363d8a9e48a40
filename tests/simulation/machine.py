"""What a simulated machine does to a process: durable steps, a kill between any two of them, a full disk."""

import errno
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.store import Store
from parties.database import PartyDatabase
from parties.history.database import HistoryDatabase


class KilledError(BaseException):
    """The process ended here. No handler may run afterwards: the machine restores the files of this moment."""


@dataclass
class Machine:
    """One node's directory. `kill_after`: durable steps until the process is killed; None for never.

    A step is an fsync or a commit. The kill happens before the step or after it, by `kill_before`.
    """

    name: str
    directory: Path
    steps: int = 0
    kill_after: int | None = None
    kill_before: bool = False
    disk_full: bool = False
    at_kill: Path | None = field(default=None, repr=False)

    def step(self, *, before: bool) -> None:
        """Called around every durable step of the running process."""
        if self.disk_full and before:
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.kill_after is None or before is not self.kill_before:
            return
        self.kill_after -= 1
        if self.kill_after < 0:
            self.kill_after = None
            self.at_kill = self.directory.with_name(f"{self.directory.name}.killed")
            shutil.copytree(self.directory, self.at_kill)
            raise KilledError(self.name)

    def freeze(self, stop: Callable[[], None]) -> None:
        """End a process that is between two calls as SIGKILL does: closing its files must not tidy them."""
        kept = self.directory.with_name(f"{self.directory.name}.killed")
        shutil.copytree(self.directory, kept)
        stop()
        shutil.rmtree(self.directory)
        kept.rename(self.directory)

    def recover(self) -> None:
        """After a kill: the files as they were at that moment, before the interpreter unwound the process."""
        if self.at_kill is not None:
            shutil.rmtree(self.directory)
            self.at_kill.rename(self.directory)
            self.at_kill = None


class Machines:
    """The machine whose code is running, and the hooks that report its durable steps to it."""

    def __init__(self) -> None:
        self._running: list[Machine] = []
        self.counted: Counter[str] = Counter()

    @contextmanager
    def running(self, machine: Machine) -> Iterator[None]:
        """Code inside runs on this machine."""
        self._running.append(machine)
        try:
            yield
        finally:
            self._running.pop()

    def step(self, kind: str, *, before: bool) -> None:
        if self._running:
            if before:
                self.counted[kind] += 1
            self._running[-1].step(before=before)

    def install(self, monkeypatch) -> None:
        """Replace fsync, which memory does not need, and observe commits."""

        def fsync(_descriptor: int) -> None:
            self.step("fsync", before=True)
            self.step("fsync", before=False)

        monkeypatch.setattr(os, "fsync", fsync)
        for owner, name in ((PartyDatabase, "transaction"), (HistoryDatabase, "transaction"), (Store, "_transaction")):
            monkeypatch.setattr(owner, name, self._observed(getattr(owner, name)))

    def _observed(self, transaction):
        machines = self

        def observed(self):
            # A nested transaction of a party is no step of its own.
            return transaction(self) if getattr(self, "_depth", 0) else outermost(self)

        @contextmanager
        def outermost(self):
            with transaction(self) as handle:
                connection = getattr(handle, "connection", handle)
                before = connection.total_changes
                yield handle
                # One that only reads is no step either.
                wrote = connection.total_changes != before
                if wrote:
                    try:
                        machines.step("commit", before=True)
                    except OSError as error:
                        raise _full() from error
            if wrote:
                with suppress(OSError):
                    machines.step("commit", before=False)

        return observed


def _full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error
