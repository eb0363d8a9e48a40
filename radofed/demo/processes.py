"""The demo's child processes. Their logs go to files; they end with the demo, however it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO, Any, Self

from dpcore.errors import RadofedError

# Longer than a node gives what it has begun (10 s).
STOP_WITHIN_S = 20.0
POLL_S = 0.05
LOG_LINES_SHOWN = 15


class ChildError(RadofedError):
    """A process of the demo ended too early or failed."""

    def __init__(self, name: str, sentence: str) -> None:
        self.name = name
        super().__init__(f"the demo's {name} {sentence}")


@dataclass(frozen=True)
class Child:
    """A running node."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise ChildError if the node has ended."""
        if (code := self.process.poll()) is not None:
            raise ChildError(self.name, f"ended early with exit code {code}; its log says why")


class Children:
    """Runs `rado` commands as child processes. Leaving the context ends those that still run."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._nodes: list[Child] = []
        self._running: list[subprocess.Popen[bytes]] = []
        logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, *arguments: str) -> Child:
        """Start a node that runs until it is stopped."""
        log = self._logs / f"{name}.log"
        with log.open("wb") as stream:
            process = self._popen(arguments, stdout=subprocess.DEVNULL, stderr=stream)
        child = Child(name, process, log)
        self._nodes.append(child)
        return child

    def run(self, name: str, *arguments: str, on_line: Callable[[str], None] | None = None) -> dict[str, Any]:
        """Run a command to its end and return the `data` of its JSON output.

        on_line: receives every line of its standard error. Raises ChildError if it fails, or if a node ends first.
        """
        log = self._logs / f"{name}.log"
        answer = self._logs / f"{name}.json"
        with answer.open("wb") as stream:
            process = self._popen((*arguments, "--format", "json"), stdout=stream, stderr=subprocess.PIPE)
        reader = threading.Thread(target=_copy_lines, args=(process.stderr, log, on_line), daemon=True)
        reader.start()
        while (code := process.poll()) is None:
            self.check()
            time.sleep(POLL_S)
        reader.join(STOP_WITHIN_S)
        try:
            found = json.loads(answer.read_bytes())
        except ValueError as error:
            raise ChildError(name, f"ended with exit code {code} and no answer: {last_lines(log)}") from error
        if found["status"] != "ok":
            raise ChildError(name, f"failed: {found['error']['message']}")
        data: dict[str, Any] = found["data"]
        return data

    def check(self) -> None:
        """Raise ChildError if a node has ended that was not stopped."""
        for node in self._nodes:
            if node.process in self._running:
                node.check()

    def stop(self) -> None:
        """Terminate all processes that still run; kill those that do not end within STOP_WITHIN_S."""
        for process in self._running:
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + STOP_WITHIN_S
        for process in self._running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _popen(self, arguments: Sequence[str], **streams: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "radofed.demo.child", str(os.getpid()), *arguments]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=self._logs, **streams)
        self._running.append(process)
        return process

    def logs_of_all(self) -> str:
        """The last lines of every node's log."""
        return "\n".join(f"--- {node.name}\n{last_lines(node.log)}" for node in self._nodes)


def _copy_lines(lines: IO[bytes], log: Path, on_line: Callable[[str], None] | None) -> None:
    with log.open("wb") as kept, lines:
        for line in lines:
            kept.write(line)
            kept.flush()
            if on_line is not None:
                on_line(line.decode(errors="replace").rstrip())


def wait_for(what: str, ready: Callable[[], bool], children: Children, timeout_s: float) -> None:
    """Return once `ready()` is true. Raises ChildError if a node ends before, or after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not ready():
        children.check()
        if time.monotonic() > end:
            raise ChildError(what, f"was not ready within {timeout_s:g} s")
        time.sleep(POLL_S)


def last_lines(log: Path, count: int = LOG_LINES_SHOWN) -> str:
    """The last `count` lines of a log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-count:])


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that they stop the children, too."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def has_content(path: Path) -> bool:
    """Whether a file exists and is not empty."""
    return path.exists() and path.stat().st_size > 0
