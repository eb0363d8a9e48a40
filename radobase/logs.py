"""Structured logs: one JSON object a line on standard error or in a file.

Each line has an event and named fields. Fields are ids, counts, codes, durations, member names and the purpose that a
learner states; no field may hold a row, a key or a plaintext. Tests search a whole run's logs for a canary row.
"""

import json
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from dpcore.errors import ConfigurationError
from radobase.printing import json_text, moment
from radobase.reading import FileKind, parse_json, with_remedy

LEVELS = ("debug", "info", "warning", "error")
"""From the lowest on."""
REFUSALS_LOGGED = 10
"""The most refusals with the same event, peer and code that are logged within REFUSALS_WINDOW_S seconds."""
REFUSALS_WINDOW_S = 60.0
# The most kinds of refusals that are counted separately. A refused peer may claim any name, so further kinds are
# counted as one.
_MOST_KINDS = 100
MOST_LINE_BYTES = 16 * 1024
"""A longer line is replaced by one that names its event and length."""
MOST_EVENT_BYTES = 256 * 1024
"""The most bytes of lines with the same event that a node writes within EVENT_WINDOW_S seconds, debug lines aside."""
EVENT_WINDOW_S = 60.0


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
        return json_text(line, default=str)


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

    def refused(self, event: str, *, peer: str, code: str, severe: bool = False, **fields: Any) -> None:
        """A peer was refused: a warning with a rate limit, because a peer can cause any number of refusals.

        severe: logs an error instead of a warning.

        For one event, peer and code, logs the first REFUSALS_LOGGED of every REFUSALS_WINDOW_S seconds. At the end of
        that time the number of further ones is logged once, as event "refusals not logged".
        """
        with self._lock:
            kind, window = self._window((event, peer, code))
            window.count += 1
            first_left_out = window.count == REFUSALS_LOGGED + 1
            is_logged = window.count <= REFUSALS_LOGGED
        if is_logged:
            (self.error if severe else self.warning)(event, peer=peer, code=code, **fields)
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


_DAY_S = 86_400.0


class Daily:
    """Says when a warning that still holds is to be repeated: after a day."""

    def __init__(self) -> None:
        self._said_at_unix_s = float("-inf")

    def is_due(self, now_unix_s: float) -> bool:
        """Whether a day has passed since this last returned True; True at first."""
        if now_unix_s - self._said_at_unix_s < _DAY_S:
            return False
        self._said_at_unix_s = now_unix_s
        return True


@dataclass
class _Share:
    """What one event has used of its bytes in the current window, and how many lines were left out of it."""

    end: float
    used_bytes: int = 0
    left_out: int = 0


class BoundedLines(logging.StreamHandler[Any]):
    """Writes JSON lines, and bounds what any one event can write, so that none can fill the disk.

    Each event has its own share, so that a flood of one event hides no other. Once an event has used MOST_EVENT_BYTES
    within EVENT_WINDOW_S seconds, its further lines are counted and left out. The number is written as event "lines not
    logged" before the event's next line, or at the end. Debug lines are not bounded.
    """

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: monotonic seconds."""
        super().__init__(stream)
        self.setFormatter(JsonLines())
        self._clock = clock
        # An event is a text in the program, so there are few.
        self._shares: dict[str, _Share] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it. The logging module holds the handler's lock."""
        try:
            line = self.format(record)
            if len(line) > MOST_LINE_BYTES:
                fields = {"of": record.getMessage(), "characters": len(line)}
                line = self._line(record.name, "line too long", fields)
            if record.levelno > logging.DEBUG and not self._take(record, len(line.encode()) + 1):
                return
            self.stream.write(f"{line}\n")
            self.flush()
        except Exception:  # noqa: BLE001 - as every handler: the program goes on without its log
            self.handleError(record)

    def _take(self, record: logging.LogRecord, size_bytes: int) -> bool:
        """Use the event's share for a line. Returns False if too little is left of it."""
        event, now = record.getMessage(), self._clock()
        share = self._shares.get(event)
        if share is None or now >= share.end:
            if share is not None and share.left_out:
                self._sum_up(record.name, event, share)
            share = self._shares[event] = _Share(now + EVENT_WINDOW_S)
        if share.used_bytes + size_bytes > MOST_EVENT_BYTES:
            share.left_out += 1
            return False
        share.used_bytes += size_bytes
        return True

    def close(self) -> None:
        """Write how many lines were left out. The stream stays open."""
        with suppress(ValueError, OSError):  # the stream may be closed
            for event, share in self._shares.items():
                if share.left_out:
                    self._sum_up("log", event, share)
            self.flush()
        self._shares.clear()
        super().close()

    def _sum_up(self, node: str, event: str, share: _Share) -> None:
        summary = self._line(node, "lines not logged", {"of": event, "count": share.left_out})
        self.stream.write(f"{summary}\n")

    def _line(self, node: str, event: str, fields: dict[str, Any]) -> str:
        record = logging.LogRecord(node, logging.WARNING, "", 0, event, None, None)
        record.fields = fields
        return self.format(record)


def _call_later(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    # A pending summary must not keep a node from ending.
    timer.daemon = True
    timer.start()


def start_logging(level: str = "info", file: Path | None = None) -> None:
    """Send every log line to standard error, or to a file."""
    handler = BoundedLines(sys.stderr if file is None else file.open("a", encoding="utf-8"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


# The end of a node's log file, as people read it: newest first, at most so much of it.


TAIL_BYTES = 256 << 10
"""This much of the file's end is read."""
_LINE = FileKind(with_remedy("see log_file in the configuration"), limit_bytes=TAIL_BYTES)


@dataclass(frozen=True)
class LogLine:
    """One line. If this program did not write it, level is empty, the time None, and event the whole line."""

    at_unix_s: float | None
    level: str
    event: str
    fields: Mapping[str, str] = field(default_factory=dict)
    """By name, as text."""

    def __str__(self) -> str:
        return " ".join([self.event, *(f"{name}={value}" for name, value in self.fields.items())])


def newest(path: Path, level: str, most: int, *, most_shown_bytes: int = TAIL_BYTES) -> list[LogLine]:
    """The newest lines of at least this level, newest first. most_shown_bytes: of all of them as text.

    Lines of other programs count as errors. Raises ConfigurationError if the file cannot be read.
    """
    found: list[LogLine] = []
    size = 0
    for text in reversed(_end_of(path)):
        line = _read(text, path)
        if LEVELS.index(line.level or "error") < LEVELS.index(level):
            continue
        size += len(text)
        if len(found) == most or size > most_shown_bytes:
            break
        found.append(line)
    return found


def _end_of(path: Path) -> list[str]:
    """The last whole lines of the file that have TAIL_BYTES together."""
    try:
        # A named pipe must not make the reader wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigurationError(f"{path}: no file with a log; see log_file in the configuration")
            start = max(0, found.st_size - TAIL_BYTES)
            file.seek(start)
            content = file.read(TAIL_BYTES)
    except OSError as error:
        raise ConfigurationError(f"{path}: the log cannot be read ({error.strerror}); check log_file") from error
    lines = content.decode(errors="replace").split("\n")
    return [line for line in (lines[1:] if start else lines) if line.strip()]


def _read(text: str, path: Path) -> LogLine:
    try:
        line = parse_json(text, path, _LINE)
        level, at = line.pop("level"), moment(line.pop("time"), 0.0)
        del line["node"]
        event = str(line.pop("event"))
        fields = {name: value if isinstance(value, str) else json.dumps(value) for name, value in line.items()}
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, ConfigurationError):
        return LogLine(None, "", text)
    return LogLine(at, level, event, fields) if level in LEVELS else LogLine(None, "", text)
