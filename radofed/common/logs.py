"""Structured logs: one JSON object a line on standard error or in a file.

Each line has an event and named fields. Fields are ids, counts, codes, durations and member names; no field may hold a
row, a key or a plaintext. Tests search a whole run's logs for a canary row.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REFUSALS_LOGGED = 10
"""The most refusals with the same event, peer and code that are logged within REFUSALS_WINDOW_S seconds."""
REFUSALS_WINDOW_S = 60.0
# The most kinds of refusals that are counted separately. A refused peer may claim any name, so further kinds are
# counted as one.
_MOST_KINDS = 100


def quiet_grpc() -> None:
    """Keep gRPC's own lines, which are not JSON, off standard error. An operator's GRPC_VERBOSITY takes precedence.

    Call this before the first import of gRPC, which reads the variable.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        fields = getattr(record, "fields", {})
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "node": record.name,
            "event": record.getMessage(),
        }
        line |= {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


@dataclass
class _Window:
    """The number of refusals of one kind until the window's end."""

    end: float
    count: int = 0


class Log:
    """A logger that takes fields by name. Bytes print as hexadecimal."""

    def __init__(
        self,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        """clock: monotonic seconds. later: calls a function after some seconds; by default in a thread."""
        self._logger = logging.getLogger(name)
        self._clock, self._later = clock, later or _call_later
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str, str], _Window] = {}

    def debug(self, event: str, **fields: Any) -> None:
        """Details for developers."""
        self._logger.debug(event, extra={"fields": fields})

    def info(self, event: str, **fields: Any) -> None:
        """A normal event."""
        self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Something was refused or will be retried."""
        self._logger.warning(event, extra={"fields": fields})

    def refused(self, event: str, *, peer: str, code: str, **fields: Any) -> None:
        """A peer was refused: a warning with a rate limit, because a peer can cause any number of refusals.

        For one event, peer and code, logs the first REFUSALS_LOGGED of every REFUSALS_WINDOW_S seconds. At the end of
        that time the number of further ones is logged once, as event "refusals not logged".
        """
        with self._lock:
            kind, window = self._window((event, peer, code))
            window.count += 1
            first_left_out = window.count == REFUSALS_LOGGED + 1
            is_logged = window.count <= REFUSALS_LOGGED
        if is_logged:
            self.warning(event, peer=peer, code=code, **fields)
        elif first_left_out:
            self._later(max(0.0, window.end - self._clock()), lambda: self._sum_up(kind))

    def _window(self, kind: tuple[str, str, str]) -> tuple[tuple[str, str, str], _Window]:
        """The window that counts a refusal. The caller holds the lock.

        A window with refusals that were not logged stays until it is summed up.
        """
        now = self._clock()
        for old in [k for k, w in self._windows.items() if w.end <= now and w.count <= REFUSALS_LOGGED]:
            del self._windows[old]
        if kind not in self._windows and len(self._windows) >= _MOST_KINDS:
            kind = ("any event", "any of many", "any")
        return kind, self._windows.setdefault(kind, _Window(now + REFUSALS_WINDOW_S))

    def _sum_up(self, kind: tuple[str, str, str]) -> None:
        with self._lock:
            window = self._windows.pop(kind)
        event, peer, code = kind
        self.warning("refusals not logged", of=event, peer=peer, code=code, count=window.count - REFUSALS_LOGGED)

    def error(self, event: str, **fields: Any) -> None:
        """Something failed."""
        self._logger.error(event, extra={"fields": fields})

    def exception(self, event: str, **fields: Any) -> None:
        """An unexpected failure, with its trace, which shows code but no values."""
        self._logger.error(event, extra={"fields": fields}, exc_info=True)  # noqa: LOG014 - called in handlers


def _call_later(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    # A pending summary must not keep a node from ending.
    timer.daemon = True
    timer.start()


def start_logging(level: str = "info", file: Path | None = None) -> None:
    """Send every log line to standard error, or to a file."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr) if file is None else logging.FileHandler(file)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
