"""Copies of a party's databases for a backup, and the check of a copy before it is restored."""

import sqlite3

from parties.config import PartyConfig
from parties.database import APPLICATION_ID, COPIED, LedgerOwner, PartyDatabase
from parties.history.database import APPLICATION_ID as HISTORY_ID
from parties.history.database import FILE as HISTORY_FILE
from parties.history.database import HistoryDatabase
from parties.ledger import chain
from parties.ledger.format import FORMAT_VERSION, update_format
from radobase.files.databases import copy_of


def ledger_copy(config: PartyConfig) -> bytes | None:
    """The ledger with every charge and no mask key, marked as a copy; None if there is none yet.

    Also while the node runs. Raises LedgerFileError or LedgerBusyError.
    """
    if not config.ledger_file.exists():
        return None
    owner = LedgerOwner(config.federation, config.name, config.source)
    database = PartyDatabase(config.ledger_file, owner, create=False)
    try:
        return database.backup()
    finally:
        database.close()


def history_copy(config: PartyConfig) -> bytes | None:
    """The history; None if there is none yet. Also while the node runs. Raises HistoryFileError or HistoryBusyError."""
    path = config.state_directory / HISTORY_FILE
    if not path.exists():
        return None
    database = HistoryDatabase(path, federation=config.federation, party=config.name, create=False)
    try:
        with database.reading() as connection:
            return copy_of(connection)
    finally:
        database.close()


def history_fault(connection: sqlite3.Connection, federation: str, party: str) -> str:
    """Why the copy of a history must not be restored, as `ledger_fault` says it. Raises sqlite3.Error."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != HISTORY_ID:
        return "is no history"
    identity = dict(connection.execute("SELECT key, value FROM identity"))
    return "" if identity == {"federation": federation, "party": party} else "is the history of another party"


def ledger_fault(connection: sqlite3.Connection, federation: str, party: str) -> str:
    """Why the copy of a ledger must not be restored: part of a sentence, empty if nothing speaks against it.

    A ledger that is not marked as a copy would not be noticed as an older one, and forget what was spent. connection:
    to the copy, in memory; an older format is updated there. Raises sqlite3.Error or ValueError if it cannot be read.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        return "is no ledger"
    if not 1 <= version <= FORMAT_VERSION:
        return f"has format {version} of a ledger, and this version reads up to {FORMAT_VERSION}"
    identity = dict(connection.execute("SELECT key, value FROM identity"))
    if (identity.get("federation"), identity.get("party")) != (federation, party):
        return f"is the ledger of {identity.get('party')!r} of {identity.get('federation')!r}"
    if COPIED not in identity:
        return "is not marked as a copy"
    if version < FORMAT_VERSION:
        update_format(connection)
    if connection.execute("SELECT 1 FROM attempts WHERE mask_key IS NOT NULL").fetchone():
        return "has a mask key"
    found = chain.faults(connection)
    return f"is damaged ({found[0]})" if found else ""
