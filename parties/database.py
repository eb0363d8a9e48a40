"""The party's durable file: one SQLite database with its ledger and the state of its attempts.

One file holds both, so that one transaction writes a reservation and its acceptance, or a charge and its attempt.

Once a transaction has ended, it is in this file and on disk, and no other file is needed to read it. A transaction
takes the write lock when it begins, so that what it reads stays true until it ends.

If it added an entry to the ledger's chain, the chain's head is in the file beside the ledger before it returns
(parties.ledger.head).
"""

import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from dpcore.errors import ConfigurationError, RadofedError
from parties.ledger import chain
from parties.ledger.chain import EntryKind, Head
from parties.ledger.charges import (
    ANCHOR_TABLES,
    APPROVAL_TABLES,
    AWAITS_HEAD,
    CHAINED_VERSION,
    COHORT_TABLES,
    EVENTS_TABLE,
    FORMAT_VERSION,
    ROW_EPOCH_TABLE,
    SHARINGS_TABLE,
    new_nonce,
    read_charge,
    update_format,
)
from parties.ledger.head import Account, LocalHead, Sums, difference, head_path
from radobase.reading import check_unwritable
from radobase.writing import copy_of, create_durably, keep_before_update, sync_directory

# "radL": distinguishes a ledger from other SQLite files.
APPLICATION_ID = 0x7261644C
BUSY_TIMEOUT_S = 30.0
BUSY_PAUSE_S = 0.02
# A rollback journal, because a ledger must be complete without other files. With a write-ahead log, charges stay
# outside the ledger's file until a checkpoint and are lost without an error if the log is lost, cut off or damaged;
# erased mask keys stay readable in it. A checkpoint after every transaction avoids that, but writes as much to disk as
# this journal and also waits for readers. The journal is truncated, not deleted: a commit then survives a power failure
# without a change of the directory (https://sqlite.org/pragma.html#pragma_synchronous).
JOURNAL_MODE = "truncate"
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

COPIED = "copied"
"""Key in `identity` of a copy: a backup, or what was kept before an update of the format."""

_TABLES = f"""
{EVENTS_TABLE};
{ANCHOR_TABLES}
{COHORT_TABLES}
{ROW_EPOCH_TABLE}
{APPROVAL_TABLES}
{SHARINGS_TABLE}
CREATE TABLE identity (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE attempts (
    query_id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL,
    answer BLOB NOT NULL,            -- the signed acceptance, as first sent
    answer_arrived INTEGER NOT NULL, -- whether the coordinator has it for certain
    rows INTEGER NOT NULL,
    spool_digest BLOB,
    not_after_unix_s INTEGER NOT NULL,
    mask_key BLOB,                   -- raw X25519 private key; NULL once the masked contribution is charged
    PRIMARY KEY (query_id, attempt)
) STRICT;
"""


class LedgerFileError(ConfigurationError):
    """A ledger file that is missing, damaged, or belongs to another owner."""

    def __init__(self, path: Path, sentence: str) -> None:
        self.path = path
        super().__init__(f"{path}: {sentence}")


class LedgerDamagedError(LedgerFileError):
    """A ledger that cannot be read. No copy can safely replace it: an older one forgets what was spent."""

    def __init__(self, path: Path, cause: str) -> None:
        self.cause = cause
        super().__init__(
            path,
            f"not a readable ledger ({cause}); stop this party, keep the file and ask the data officer. An older copy "
            "or a new ledger forgets what was spent: move the file aside, then run `rado ledger acknowledge`, which "
            "makes a new one and charges what was spent",
        )


class LedgerSetBackError(LedgerFileError):
    """A ledger that lacks entries which it had, or may lack some."""

    def __init__(self, path: Path, cause: str) -> None:
        self.cause = cause
        super().__init__(
            path,
            f"this ledger was lost or set back to an older copy ({cause}), so it forgot what was spent. Put the newest "
            "ledger and its .head file back if you have them; otherwise the data officer runs `rado ledger "
            "acknowledge`, which charges what was spent",
        )


class LedgerBusyError(RadofedError):
    """The ledger could not be read or written at this time. Nothing was changed."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(
            f"{path}: {cause}; nothing was changed: check its permissions, free disk space or stop the other process, "
            "then retry"
        )


class LedgerHeadError(LedgerBusyError):
    """The ledger was written, but not yet the head beside it. The next transaction writes it."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        RadofedError.__init__(
            self,
            f"{path}: cannot be written ({cause}); nothing leaves until it is: check its permissions and the disk's "
            "free space",
        )


@dataclass(frozen=True)
class LedgerOwner:
    """Owner of a ledger: a party of a federation, and one of its data sources by name."""

    federation: str
    party: str
    source: str


class PartyDatabase:
    """The open file. Threads of one process may share it; other processes may also open it."""

    def __init__(self, path: Path, owner: LedgerOwner, *, create: bool = True, anchored: bool = True) -> None:
        """Open the file. If it is missing, create it if `create` is set.

        Updates a file of an older format, or with the write-ahead log of earlier versions. Without `create` the file
        stays unchanged: a copy in memory is updated instead, and `set_back` says what would be refused. anchored: False
        to acknowledge a ledger that was set back: it is accepted, and the head beside it stays until `anchor`.

        Raises:
            LedgerFileError: the file is not a ledger or belongs to another party or data source, its subclass.
            LedgerDamagedError: the file or its chain is damaged.
            LedgerSetBackError: the ledger contradicts the head beside it.
            LedgerBusyError: it cannot be opened at this time.
        """
        self.path = path
        self.head_path = head_path(path)
        self.created = False
        if not path.exists():
            if not create:
                raise LedgerFileError(path, "there is no ledger yet; the party creates it when it first starts")
            if anchored and self.head_path.exists():
                raise LedgerSetBackError(path, f"it is missing, and {self.head_path.name} is there")
            self.created = _create(path, owner)
        self._writes, self._anchored, self._awaits_head = create, anchored, False
        self._lock = threading.RLock()
        self._depth = 0
        try:
            self._connection = _connect(path, owner, update=create, older=anchored and self.head_path.exists())
        except sqlite3.Error as error:
            raise _failed(path, error) from error
        if create:
            try:
                self._check_chain()
            except BaseException:
                self.close()
                raise

    def _check_chain(self) -> None:
        """Refuse a chain that contradicts itself, the events or the head beside it; then write the head."""
        if found := self.chain_faults():
            raise LedgerDamagedError(self.path, found[0])
        if not self._anchored:
            return
        if cause := self.set_back():
            raise LedgerSetBackError(self.path, cause)
        local = LocalHead.read(self.head_path)
        with self.transaction() as connection:
            # The process may have died between a commit and the head.
            self._awaits_head = local is None or local.head != chain.head(connection)
        with self.transaction() as connection:
            connection.execute("DELETE FROM identity WHERE key = ?", (AWAITS_HEAD,))

    def chain_faults(self) -> list[str]:
        """What contradicts the chain of entries, one sentence each."""
        with self.transaction() as connection:
            return chain.faults(connection)

    def set_back(self) -> str:
        """Why this ledger may lack entries, by its own file and the head beside it; empty if nothing says so.

        Raises ConfigurationError if the head is damaged.
        """
        with self.transaction() as connection:
            # Now no other process writes entries, so that the head is not of a moment before its own.
            local = LocalHead.read(self.head_path)
            identity = dict(connection.execute("SELECT key, value FROM identity"))
            if COPIED in identity:
                return "it is a copy, such as `rado ledger backup` makes, and later entries may be missing"
            if local is None and AWAITS_HEAD in identity:
                return ""
            there = None if local is None else chain.digest_at(connection, local.head.entries)
            return difference(local, chain.genesis_of(connection), chain.head(connection), there)

    def append(self, kind: EntryKind, query_id: bytes, attempt: int, *, number: int | None = None) -> Head:
        """Add an entry to the chain, within the caller's transaction: chain.append."""
        with self.transaction() as connection:
            self._awaits_head = True
            return chain.append(connection, kind, query_id, attempt, number=number)

    def append_approval(self, kind: EntryKind, approval_id: bytes) -> Head:
        """Add an entry for an approval as it now is, within the caller's transaction: chain.append_approval."""
        with self.transaction() as connection:
            self._awaits_head = True
            return chain.append_approval(connection, kind, approval_id)

    def account(self) -> tuple[Head, Account]:
        """The head of the chain, and what this party writes for itself at it."""
        with self.transaction() as connection:
            return _account(connection)

    def anchor(self) -> None:
        """Write the head of a ledger that was opened with `anchored=False`. Raises LedgerHeadError."""
        self._anchored = self._awaits_head = True
        with self.transaction():
            pass

    def backup(self) -> bytes:
        """A consistent copy of the ledger, without mask keys. Restoring it is noticed at the next start.

        No disk block ever holds a key of it. Raises sqlite3.Error.
        """
        with self._lock:
            return copy_of(self._connection, _mark_as_copy)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write everything inside atomically. A nested transaction is part of the outer one.

        If the block raises, the outermost transaction is rolled back: do not catch the error inside it.

        Raises:
            LedgerBusyError: the file cannot be written.
            LedgerDamagedError: it cannot be read.
            LedgerFileError: another program gave it a write-ahead log.
            LedgerHeadError: everything was written except the head.
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
                    self._write_head()
            except BaseException as error:
                if outermost and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise _failed(self.path, error) from error
                raise

    def _write_head(self) -> None:
        """Write the head if an entry was added since it was last written. Everything else is committed already."""
        if not (self._awaits_head and self._anchored and self._writes):
            return
        identity = dict(self._connection.execute("SELECT key, value FROM identity"))
        head, account = _account(self._connection)
        found = LocalHead.of(identity, chain.genesis(identity), head, account)
        try:
            found.write(self.head_path)
        except OSError as error:
            raise LedgerHeadError(self.head_path, str(error.strerror or error)) from error
        self._awaits_head = False

    def _check_journal_mode(self) -> None:
        """The mode cannot change during the transaction; before it, any other connection may change it."""
        (mode,) = self._connection.execute("PRAGMA journal_mode").fetchone()
        if self._writes and mode != JOURNAL_MODE:
            raise LedgerFileError(
                self.path, f"another program set its journal mode to {mode}; stop that program and restart this party"
            )


def _account(connection: sqlite3.Connection) -> tuple[Head, Account]:
    # Many queries have the same bounds, so there are far fewer distinct charges than events.
    rows = connection.execute("SELECT bounds, learner, epoch, count(*) FROM events GROUP BY bounds, learner, epoch")
    sums = _sums_of(tuple(rows))
    head = chain.head(connection)
    return head, Account(sums, chain.trail(connection, head.entries))


@lru_cache(maxsize=2)
def _sums_of(charges: tuple[tuple[str, str, bytes | None, int], ...]) -> Sums:
    """The sums of charges as the ledger writes them, each with its count. Each head is asked for twice."""
    return Sums.of_charges({read_charge(*charge): count for *charge, count in charges})


def _connect(path: Path, owner: LedgerOwner, *, update: bool, older: bool) -> sqlite3.Connection:
    """older: whether a ledger of an earlier format is an older copy, because there is the head of a newer one."""
    check_unwritable(path)
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        # Before any change: a file that is not a ledger stays unchanged.
        version = _check_identity(connection, path, owner)
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise LedgerDamagedError(path, found)
        if update and older and version < CHAINED_VERSION:
            raise LedgerSetBackError(path, f"it has format {version}, and a ledger of a newer format was here")
        # A completed transaction survives a power failure. EXTRA, because FULL does not cover a deleted journal.
        connection.execute("PRAGMA synchronous = EXTRA")
        # An erased mask key is overwritten, not only unlinked.
        connection.execute("PRAGMA secure_delete = ON")
        if update:
            _set_journal_mode(connection)
        if version != FORMAT_VERSION:
            if update:
                _keep(connection, path, version)
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
    """Merge the write-ahead log of an earlier version into the file and stop using one.

    Raises sqlite3.OperationalError if others keep the file open for longer than BUSY_TIMEOUT_S.
    """
    end = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {JOURNAL_MODE}")
        except sqlite3.OperationalError as error:
            # SQLite's timeout does not apply to this statement. The low byte is the primary code.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
            time.sleep(BUSY_PAUSE_S)
        else:
            return


def _keep(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Keep a copy of a ledger before its format is updated. Raises LedgerBusyError if that cannot be done."""
    try:
        keep_before_update(connection, path, version, _mark_as_copy)
    except OSError as error:
        cause = f"no copy can be kept before its update from format {version} ({error.strerror or error})"
        raise LedgerBusyError(path, cause) from error


def _mark_as_copy(copy: sqlite3.Connection) -> None:
    copy.execute("UPDATE attempts SET mask_key = NULL")
    if copy.execute("SELECT 1 FROM sqlite_master WHERE name = 'sharings'").fetchone():
        copy.execute("DELETE FROM sharings")
    copy.execute("INSERT OR REPLACE INTO identity VALUES (?, '1')", (COPIED,))


def _copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Copy the content to memory and close the file."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.backup(copy)
    connection.close()
    return copy


def _failed(path: Path, error: sqlite3.Error) -> RadofedError:
    """The party's error for an error of SQLite."""
    # Errors that Python's module itself raises, such as on a closed connection, have no code.
    if getattr(error, "sqlite_errorcode", None) in _DAMAGED:
        return LedgerDamagedError(path, str(error))
    return LedgerBusyError(path, str(error))


def _check_identity(connection: sqlite3.Connection, path: Path, owner: LedgerOwner) -> int:
    """Check that the file is this owner's ledger and return its format."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise LedgerFileError(
            path, "not a ledger; give the path of this party's ledger, or of a new file for data never queried"
        )
    if not 1 <= version <= FORMAT_VERSION:
        raise LedgerFileError(
            path, f"a ledger of format {version}; this version reads up to format {FORMAT_VERSION}; update radofed"
        )
    held = dict(connection.execute("SELECT key, value FROM identity"))
    for key, mine in asdict(owner).items():
        if held.get(key) != mine:
            raise LedgerFileError(
                path,
                f"the ledger of {key} {held.get(key)!r}, but this is {key} {mine!r}; use one ledger for each data "
                "source, and set data_source if the same rows only moved to another file",
            )
    return int(version)


def _create(path: Path, owner: LedgerOwner) -> bool:
    """Complete a ledger before it gets its name, so that a crash leaves no ledger rather than an empty one.

    Returns False if another process created one first.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        create_durably(temporary, b"")
        with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.executescript(f"BEGIN;{_TABLES}COMMIT;")
            connection.executemany("INSERT INTO identity VALUES (?, ?)", [*asdict(owner).items(), new_nonce()])
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        sync_directory(path.parent)
        return True
    except (OSError, sqlite3.Error) as error:
        raise LedgerFileError(path, f"cannot be created ({error}); check the directory and its free space") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
