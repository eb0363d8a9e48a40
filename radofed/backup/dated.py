"""Backups that are made every night: named by their time, the oldest deleted."""

import re
import time
from pathlib import Path

from dpcore.errors import ConfigurationError
from radofed.backup.making import federation_of
from radofed.backup.manifest import OPERATOR
from radofed.node_config import load_node_config, role_of

_SUFFIX = ".backup"
_TIME = "%Y%m%dT%H%M%SZ"
_DIGITS = r"\d{8}T\d{6}Z"


def whose(config: Path | None, operator: Path | None) -> str:
    """Whose backup it is, for the name of its file: nodes that share a directory keep their own backups each.

    config: a node's. operator: or an operator's directory. Names have no point in them. Raises ConfigurationError.
    """
    if config is None:
        assert operator is not None, "one of them is given"
        return f"{federation_of(operator.resolve())}.{OPERATOR}"
    node = load_node_config(config)
    return f"{node.federation}.{role_of(config).value}.{node.name}"


def dated_file(directory: Path, owner: str, now_unix_s: float) -> Path:
    """A name for a backup, by its time in UTC. owner: of `whose`."""
    return directory / f"{owner}-{time.strftime(_TIME, time.gmtime(now_unix_s))}{_SUFFIX}"


def drop_oldest(directory: Path, owner: str, keep: int) -> list[Path]:
    """Delete all but the newest `keep` backups that `dated_file` named for this owner; returns those deleted.

    Raises ConfigurationError if one cannot be deleted.
    """
    pattern = re.compile(re.escape(owner) + f"-{_DIGITS}{re.escape(_SUFFIX)}")
    oldest = sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))[:-keep]
    for path in oldest:
        try:
            path.unlink()
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}; delete older backups yourself") from error
    return oldest
