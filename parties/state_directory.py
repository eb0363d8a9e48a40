"""Opens the files that a party's node keeps over restarts, and says in its log what an operator should know."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dpcore.errors import ConfigurationError
from dpcore.randomness.sources import RandomSource
from dpcore.records.computation import SECRET_BYTES
from parties.config import PartyConfig
from parties.database import APPLICATION_ID, COPIED, LedgerOwner, PartyDatabase
from parties.history.database import APPLICATION_ID as HISTORY_ID
from parties.history.database import FILE as HISTORY_FILE
from parties.history.database import HistoryDatabase
from parties.history.history import History, What
from parties.ledger import chain
from parties.ledger.charges import FORMAT_VERSION, update_format
from parties.ledger.ledger import Ledger
from parties.policy import Policy
from radobase.failure import in_words
from radobase.logs import Log
from radobase.reading import FileKind, read_bytes, with_remedy
from radobase.writing import copy_of, write_durably
from wire.roster import Role, Roster


def open_ledger(config: PartyConfig, policy: Policy, log: Log, *, has_run: bool) -> Ledger:
    """Open or create the ledger. has_run: whether this party has run before. Raises LedgerFileError."""
    owner = LedgerOwner(config.federation, config.name, config.source)
    ledger = Ledger.open(config.ledger_file, owner, policy.limits.of_ledger)
    if ledger.database.created and has_run:
        # An operator who lost a ledger must notice now, not later.
        log.warning("new ledger created", ledger=config.ledger_file, source=config.source)
    return ledger


def open_history(config: PartyConfig, ledger: Ledger, log: Log, on_noted: Callable[[What], None]) -> History:
    """Open or create the history, and add what only the ledger knows. Raises HistoryFileError."""
    file = config.state_directory / HISTORY_FILE
    history = History(HistoryDatabase(file, federation=config.federation, party=config.name), on_noted)
    try:
        if added := history.complete(ledger.charged_queries()):
            log.info("history completed", queries=added)
    except BaseException:
        history.database.close()
        raise
    return history


# Locks that give one process at a time a party's state directory and ledger.


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


# The party's secret: the 32-byte seed of its repeatable draws, kept for the life of its data.


_REMEDY = "restore it, or remove it to create a new one, which draws new noise for every table"
FILE = "secret"
_SECRET = FileKind(with_remedy(_REMEDY), limit_bytes=4096, secret=True, private=True)


def load_or_create(path: Path, random: RandomSource) -> bytes:
    """The secret in the file. Creates the file if it is missing, readable only by its owner.

    A new secret replaces one that was lost. Tables released under the old secret then get new noise and a new charge.
    Raises ConfigurationError if the file cannot be read or written, is not a secret, or is readable by other users.
    """
    try:
        return load(path) if path.exists() else _create(path, random)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be used ({error.strerror}); check its permissions") from error


def load(path: Path) -> bytes:
    """The secret in the file. Raises ConfigurationError as load_or_create does, also if there is no file."""
    # A restored copy may have wide permissions: who reads it can remove the noise that is derived from it.
    secret = read_bytes(path, _SECRET)
    if len(secret) != SECRET_BYTES:
        raise ConfigurationError(f"{path}: has {len(secret)} bytes, but a party's secret has {SECRET_BYTES}; {_REMEDY}")
    return secret


def _create(path: Path, random: RandomSource) -> bytes:
    secret = random.bytes(SECRET_BYTES)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Written atomically, and on disk before use: noise cannot be repeated once its secret is lost.
    write_durably(path, secret, temporary=path.with_name(f".{path.name}.new"))
    return secret


# Compares a party's rows with those that it stated when it joined (`rado provision request --rows`).
#
# The statement is a lower bound, in the roster: learners plan the noise and guarantee errors with it. A table with
# many times as many rows is planned for as if it were small, until it has answered once. One with fewer makes these
# figures wrong, so the party's people should know.


FIX = (
    "Check that the table is whole. If it is, ask the operator for a roster that states fewer rows: a new request with "
    "--rows, and rado provision replace-key."
)


OUTDATED_FACTOR = 4
"""A statement is old once the table has more than this many times its rows."""
OUTDATED = (
    "Learners without an answer from this party plan with the stated number: too few rows make models simpler than "
    "they need be. Ask the operator for a roster that states the present number: a new request with --rows, and rado "
    "provision replace-key."
)


def stated_rows(roster: Roster, party: str) -> int | None:
    """How many rows the roster says that the party has at least; None if it says nothing."""
    member = roster.find(party, Role.PARTY)
    return None if member is None else member.rows_at_least


class StatedRows:
    """Warns in the node's log if it has fewer rows than stated, once for each such pair of numbers."""

    def __init__(self, party: str, log: Log) -> None:
        self._party, self._log = party, log
        self._warned: tuple[int, int] | None = None

    def look(self, roster: Roster | None, rows: int) -> None:
        """Compare the present rows with the newest roster, if one is known."""
        stated = None if roster is None else stated_rows(roster, self._party)
        if stated is None or rows >= stated or self._warned == (rows, stated):
            return
        self._warned = (rows, stated)
        self._log.warning("fewer rows than stated", rows=rows, stated=stated, reason=FIX)


# Copies of a party's databases for a backup, and the check of a copy before it is restored.


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
    kept = "SELECT 1 FROM attempts WHERE mask_key IS NOT NULL UNION ALL SELECT 1 FROM sharings"
    if connection.execute(kept).fetchone():
        return "has a mask key"
    found = chain.faults(connection)
    return f"is damaged ({found[0]})" if found else ""
