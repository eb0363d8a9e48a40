"""The party's durable file: one SQLite database that holds its ledger and the state of its attempts.

Both are in one file so that a reservation and the acceptance that it stands for, or a charge and the attempt that it
pays, are written in one transaction. Once a transaction has ended it is in this file and on disk, and no other file is
needed to read it. It takes the write lock at its beginning, so that what it reads stays true until it ends, for all
processes.
"""

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dpcore.errors import ConfigurationError, RadofedError
from parties.ledger.format import EVENTS_TABLE, FORMAT_VERSION, update_format
from radofed.common.files.writing import create_durably, sync_directory

# "radL": tells a ledger from any other SQLite file.
APPLICATION_ID = 0x7261644C
BUSY_TIMEOUT_S = 30.0
BUSY_PAUSE_S = 0.02
# A rollback journal, because a ledger must be whole without the files beside it. In a write-ahead log charges stay
# outside the ledger's file until a checkpoint, and are lost without an error where the log is lost, cut off or damaged;
# erased mask keys stay readable in it. A checkpoint after every transaction would cure that, but forces as much to disk
# as this journal does, and waits for readers as it does. The journal is truncated, not deleted: a commit then survives
# a power failure without a change of the directory (https://sqlite.org/pragma.html#pragma_synchronous).
JOURNAL_MODE = "truncate"
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_TABLES = f"""
{EVENTS_TABLE};
CREATE TABLE identity (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE attempts (
    query_id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL,
    answer BLOB NOT NULL,            -- the signed acceptance, as it was first sent
    answer_arrived INTEGER NOT NULL, -- whether the coordinator acknowledged it
    rows INTEGER NOT NULL,
    spool_digest BLOB,
    not_after_unix_s INTEGER NOT NULL,
    mask_key BLOB,                   -- raw X25519 private key; NULL once its masks are in what was charged
    PRIMARY KEY (query_id, attempt)
) STRICT;
"""


class LedgerFileError(ConfigurationError):
    """A ledger file that is missing, damaged, or another's."""

    def __init__(self, path: Path, sentence: str) -> None:
        self.path = path
        super().__init__(f"{path}: {sentence}")


class LedgerDamagedError(LedgerFileError):
    """A ledger that cannot be read. No copy of it is safe to put in its place: an older one forgets what was spent."""

    def __init__(self, path: Path, cause: str) -> None:
        self.cause = cause
        super().__init__(
            path,
            f"not a readable ledger ({cause}); stop this party, keep the file and ask the data officer. An older copy "
            "or a new ledger forgets what was spent: begin a new one only once epsilon, delta and unbounded_queries of "
            "the policy are lowered by what was",
        )


class LedgerBusyError(RadofedError):
    """The ledger could not be read or written just now; nothing was changed."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(
            f"{path}: {cause}; nothing was changed: check its permissions, free disk space or end the other process, "
            "then retry"
        )


@dataclass(frozen=True)
class LedgerOwner:
    """Whom a ledger counts for: a party of a federation, and one of its data sources by name."""

    federation: str
    party: str
    source: str


class PartyDatabase:
    """The open file. Threads of one process share it; other processes may have it open too."""

    def __init__(self, path: Path, owner: LedgerOwner, *, create: bool = True) -> None:
        """Open the file, or create it where there is none and `create` says so.

        A file of an older format, or with a write-ahead log as earlier versions made it, is brought to the present
        one. Without `create` the file is left as it is: the format of a copy in memory is changed instead.

        Raises LedgerFileError where the file is not a ledger, is damaged, or is another party's or data source's,
        LedgerBusyError where it cannot be opened at present.
        """
        self.path = path
        self.created = False
        if not path.exists():
            if not create:
                raise LedgerFileError(path, "there is no ledger yet; the party makes it when it first starts")
            self.created = _create(path, owner)
        self._writes = create
        self._lock = threading.RLock()
        self._depth = 0
        try:
            self._connection = _connect(path, owner, update=create)
        except sqlite3.Error as error:
            raise _failed(path, error) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything inside is written whole, or not at all; a transaction inside another is part of it.

        Where the block raises, nothing of the outermost transaction is kept: an error inside must not be caught there.
        Raises LedgerBusyError where the file cannot be written, LedgerDamagedError where it cannot be read,
        LedgerFileError where another program gave it a write-ahead log.
        """
        with self._lock:
            outermost = self._depth == 0
            try:
                if outermost:
                    self._connection.execute("BEGIN IMMEDIATE")
                    self._check_journal_mode()
                self._depth += 1
                try:
                    yield self._connection
                finally:
                    self._depth -= 1
                if outermost:
                    self._connection.execute("COMMIT")
            except BaseException as error:
                if outermost and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise _failed(self.path, error) from error
                raise

    def _check_journal_mode(self) -> None:
        """The mode cannot change while the transaction lasts; before it, every other connection may change it."""
        (mode,) = self._connection.execute("PRAGMA journal_mode").fetchone()
        if self._writes and mode != JOURNAL_MODE:
            raise LedgerFileError(
                self.path, f"another program set its journal mode to {mode}; end that program and restart this party"
            )


def _connect(path: Path, owner: LedgerOwner, *, update: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        # Before anything is changed: a file that is no ledger stays as it is.
        version = _check_identity(connection, path, owner)
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise LedgerDamagedError(path, found)
        # A transaction that ended survives a power failure. EXTRA, for FULL does not cover a journal that is deleted.
        connection.execute("PRAGMA synchronous = EXTRA")
        # A mask key that was dropped is overwritten, not only unlinked.
        connection.execute("PRAGMA secure_delete = ON")
        if update:
            _set_journal_mode(connection)
        if version != FORMAT_VERSION:
            connection = connection if update else _copy(connection)
            update_format(connection)
    except ValueError as error:
        connection.close()
        raise LedgerDamagedError(path, str(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _set_journal_mode(connection: sqlite3.Connection) -> None:
    """Carry a write-ahead log of an earlier version over into the file, and do without one from now on.

    Raises sqlite3.OperationalError where others have the file open for longer than BUSY_TIMEOUT_S.
    """
    end = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {JOURNAL_MODE}")
        except sqlite3.OperationalError as error:
            # SQLite's own timeout does not hold for this statement. The low byte is the primary code.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
            time.sleep(BUSY_PAUSE_S)
        else:
            return


def _copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The same content in memory; the file is closed."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.backup(copy)
    connection.close()
    return copy


def _failed(path: Path, error: sqlite3.Error) -> RadofedError:
    """What SQLite's error means for whoever runs the party."""
    # Errors that Python's module raises by itself, as on a closed connection, have no code.
    if getattr(error, "sqlite_errorcode", None) in _DAMAGED:
        return LedgerDamagedError(path, str(error))
    return LedgerBusyError(path, str(error))


def _check_identity(connection: sqlite3.Connection, path: Path, owner: LedgerOwner) -> int:
    """The file's format, once it is known to be this owner's ledger."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise LedgerFileError(
            path, "not a ledger; give the path of this party's ledger, or of a new file for data never asked"
        )
    if not 1 <= version <= FORMAT_VERSION:
        raise LedgerFileError(
            path, f"a ledger of format {version}, this version reads up to {FORMAT_VERSION}; update radofed"
        )
    held = dict(connection.execute("SELECT key, value FROM identity"))
    for key, mine in asdict(owner).items():
        if held.get(key) != mine:
            raise LedgerFileError(
                path,
                f"the ledger of {key} {held.get(key)!r}, and this is {key} {mine!r}; give its own ledger to each data "
                "source, and set data_source where the same rows only moved to another file",
            )
    return int(version)


def _create(path: Path, owner: LedgerOwner) -> bool:
    """Make a ledger whole before it gets its name, so that a crash leaves none rather than an empty one.

    False where another process made one first.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        create_durably(temporary, b"")
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.executescript(f"BEGIN;{_TABLES}COMMIT;")
            connection.executemany("INSERT INTO identity VALUES (?, ?)", asdict(owner).items())
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        sync_directory(path.parent)
        return True
    except (OSError, sqlite3.Error) as error:
        raise LedgerFileError(path, f"cannot be made ({error}); check the directory and its free space") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
