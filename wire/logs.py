"""Structured logs: one JSON object a line on standard error or in a file.

What is logged is named: an event and its fields. No field may hold a row, a key or a plaintext; fields are ids, counts,
codes, durations and member names. Tests search a whole run's logs for a canary row.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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


class Log:
    """A logger that takes fields by name. Bytes print as hexadecimal."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """For developers."""
        self._logger.debug(event, extra={"fields": fields})

    def info(self, event: str, **fields: Any) -> None:
        """Something happened as it should."""
        self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Something was refused or will be tried again."""
        self._logger.warning(event, extra={"fields": fields})

    def error(self, event: str, **fields: Any) -> None:
        """Something failed."""
        self._logger.error(event, extra={"fields": fields})

    def exception(self, event: str, **fields: Any) -> None:
        """Something failed that should not have; with the trace, which holds code but no values."""
        self._logger.error(event, extra={"fields": fields}, exc_info=True)  # noqa: LOG014 - called in handlers


def start_logging(level: str = "info", file: Path | None = None) -> None:
    """Send every log line to standard error, or to a file."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr) if file is None else logging.FileHandler(file)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
