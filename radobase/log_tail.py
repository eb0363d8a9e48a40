"""The end of a node's log file, as people read it: newest first, at most so much of it."""

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpcore.errors import ConfigurationError
from radobase.files.reading import FileKind, parse_json, with_remedy
from radobase.logs import LEVELS
from radobase.printing import moment

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
