"""Backups that are made every night: named by their time, the oldest deleted."""

import re
import time
from pathlib import Path

from dpcore.errors import ConfigurationError

_SUFFIX = ".backup"
_TIME = "%Y%m%dT%H%M%SZ"
_DIGITS = r"\d{8}T\d{6}Z"


def dated_file(directory: Path, source: Path, now_unix_s: float) -> Path:
    """A name for a backup of this configuration or operator's directory, by its time in UTC."""
    return directory / f"{source.stem}-{time.strftime(_TIME, time.gmtime(now_unix_s))}{_SUFFIX}"


def drop_oldest(directory: Path, source: Path, keep: int) -> list[Path]:
    """Delete all but the newest `keep` backups that `dated_file` named for this source; returns those deleted.

    Raises ConfigurationError if one cannot be deleted.
    """
    pattern = re.compile(re.escape(source.stem) + f"-{_DIGITS}{re.escape(_SUFFIX)}")
    oldest = sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))[:-keep]
    for path in oldest:
        try:
            path.unlink()
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}; delete older backups yourself") from error
    return oldest
