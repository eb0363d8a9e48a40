"""Copies of the coordinator's store for a backup, and the check of a copy before it is restored."""

import sqlite3
from contextlib import closing
from pathlib import Path

from coordinator.store import SCHEMA_VERSION
from dpcore.errors import ConfigurationError
from radobase.files.databases import copy_of


def store_copy(path: Path) -> bytes:
    """The store with everything that was committed, also while the coordinator runs. Raises ConfigurationError."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
            return copy_of(connection)
    except sqlite3.Error as error:
        raise ConfigurationError(f"{path}: cannot be copied ({error}); check the file and its permissions") from error


def store_fault(connection: sqlite3.Connection, federation: str) -> str:
    """Why the copy of a store must not be restored: part of a sentence, empty if nothing speaks against it.

    Raises sqlite3.Error if it cannot be read.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        return f"has version {version} of a store, and this version reads {SCHEMA_VERSION}"
    owner = connection.execute("SELECT value FROM facts WHERE name = 'federation'").fetchone()
    return "" if owner == (federation,) else "is the store of another federation"
