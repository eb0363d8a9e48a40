"""Locks that give one process at a time a party's state directory and ledger."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dpcore.errors import ConfigurationError
from parties.config import PartyConfig
from radobase.files.faults import in_words


@contextmanager
def lock_party(config: PartyConfig) -> Iterator[None]:
    """Lock the state directory and the ledger of a party. Raises ConfigurationError if another process holds one.

    Two nodes would spool two contributions to one attempt. The ledger has a separate file: SQLite locks its own.
    """
    ledger = config.ledger_file.resolve()
    with ExitStack() as held:
        directory = config.state_directory
        held.callback(os.close, _lock(directory / "lock", f"state_directory {directory}"))
        held.callback(os.close, _lock(ledger.with_name(f"{ledger.name}.lock"), f"ledger {config.ledger_file}"))
        yield


def _lock(path: Path, what: str) -> int:
    """Lock `what` for this process with a separate file. Raises ConfigurationError if another process holds it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be written ({in_words(error)})") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ConfigurationError(
            f"another party node is using {what}; stop it, or give this node its own state directory and data source"
        ) from error
    return descriptor
