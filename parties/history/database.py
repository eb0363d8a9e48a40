"""The history's file: one SQLite database in the party's state directory, which the node and commands share.

The ledger decides what may be answered; this file explains it, and holds what people decided. It never replaces the
ledger: a lost history is made again from the ledger's charges, without what was asked.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dpcore.errors import ConfigurationError, RadofedError
from radobase.reading import check_unwritable
from radobase.writing import OWNER_ONLY

FILE = "history.sqlite"
# "radH": distinguishes a history from other SQLite files.
APPLICATION_ID = 0x72616448
FORMAT_VERSION = 1
BUSY_TIMEOUT_S = 30.0
LATE_S = 0.5
"""How long what may be written late waits for a transaction that writes it too: a commit syncs the disk five times."""
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_TABLES = """
CREATE TABLE identity (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE queries (
    query_id BLOB PRIMARY KEY,       -- SHA-256 of the signed payload
    shown_at_unix_s REAL NOT NULL,
    learner TEXT NOT NULL,
    kind TEXT NOT NULL,              -- as in the policy; empty if only the ledger knows the query
    contents TEXT NOT NULL,          -- in words, without predicates
    not_after_unix_s INTEGER NOT NULL,
    rows INTEGER,                    -- that this party would state
    bounds TEXT,                     -- what an attempt costs, as in the ledger; NULL if the query was refused before
    epoch BLOB,
    is_charged INTEGER NOT NULL,
    is_waiting INTEGER NOT NULL,     -- for a person's decision
    words TEXT,                      -- in words, with predicates; NULL once kept for long enough
    envelope BLOB                    -- the signed query; NULL once kept for long enough
) STRICT;
CREATE INDEX queries_by_time ON queries (shown_at_unix_s);
CREATE INDEX queries_by_learner ON queries (learner, shown_at_unix_s);
CREATE INDEX queries_that_wait ON queries (shown_at_unix_s) WHERE is_waiting = 1;
CREATE INDEX queries_without_charge ON queries (shown_at_unix_s) WHERE is_charged = 0;
CREATE TABLE events (
    query_id BLOB NOT NULL,
    attempt INTEGER NOT NULL,
    what TEXT NOT NULL,
    at_unix_s REAL NOT NULL,
    details TEXT NOT NULL,           -- a JSON object
    PRIMARY KEY (query_id, attempt, what)
) STRICT;
CREATE TABLE decisions (
    query_id BLOB NOT NULL,
    person TEXT NOT NULL,            -- who counts as one person
    user TEXT NOT NULL,              -- of the operating system
    name TEXT NOT NULL,              -- as given, or empty
    approves INTEGER NOT NULL,
    reason TEXT NOT NULL,
    at_unix_s REAL NOT NULL,
    PRIMARY KEY (query_id, person)
) STRICT;
CREATE TABLE pauses (
    paused_at_unix_s REAL NOT NULL,
    paused_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    resumed_at_unix_s REAL,          -- NULL while it lasts
    resumed_by TEXT
) STRICT;
"""

# Apart: a history that a version before 0.3.0 began lacks it.
_PURPOSES = """
CREATE TABLE purposes (
    query_id BLOB PRIMARY KEY,       -- of a query that has one, as long as its words are kept
    purpose TEXT NOT NULL
) STRICT
"""
# Likewise. Studies are kept as long as the query itself: they say for what something was answered.
_STUDIES = (
    """
CREATE TABLE studies (
    digest BLOB PRIMARY KEY,
    statement BLOB NOT NULL          -- what queries stated of it, as signed in them (wire.study)
) STRICT
""",
    """
CREATE TABLE study_of (
    query_id BLOB PRIMARY KEY,       -- of a query that names one
    digest BLOB NOT NULL
) STRICT
""",
)

# What was added later: a table, or a column of one, with the statement that adds it.
_DELEGATES = """
CREATE TABLE delegates (
    user TEXT NOT NULL,              -- who decides in place of another
    acts_for TEXT NOT NULL,          -- the user who named them, of the operating system
    named_at_unix_s REAL NOT NULL,
    until_unix_s REAL NOT NULL,
    reason TEXT NOT NULL,
    ended_at_unix_s REAL             -- NULL unless it was ended before
) STRICT
"""
_ACTS_FOR = "ALTER TABLE decisions ADD COLUMN acts_for TEXT NOT NULL DEFAULT ''"


class HistoryFileError(ConfigurationError):
    """A file that is not this party's history, or that is damaged."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(
            f"{path}: not this party's history ({cause}); move the file aside: the party makes a new one from its "
            "ledger, which knows every charge but not what was asked"
        )


class HistoryBusyError(RadofedError):
    """The history could not be read or written at this time. Nothing was changed."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(
            f"{path}: {cause}; nothing was changed: check its permissions, free disk space or stop the other process, "
            "then retry"
        )


class HistoryDatabase:
    """The open file. Threads of one process may share it; other processes may also open it."""

    def __init__(
        self, path: Path, *, federation: str, party: str, create: bool = True, late_s: float | None = LATE_S
    ) -> None:
        """Open the file. If it is missing, create it if `create` is set.

        late_s: how long `later` may wait for a transaction; None: until one comes.

        Raises HistoryFileError if the file is another's, damaged or missing, HistoryBusyError if it cannot be opened
        at this time.
        """
        self.path = path
        self._lock, self._depth = threading.RLock(), 0
        self._late: list[Callable[[sqlite3.Connection], object]] = []
        self._late_s = late_s
        self._timer: threading.Timer | None = None
        if not create and not path.exists():
            raise ConfigurationError(f"{path}: there is no history yet; the party creates it when it first starts")
        try:
            if create:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Before SQLite opens it: predicates may name people.
                path.touch(mode=OWNER_ONLY, exist_ok=True)
            # It has what people decided.
            check_unwritable(path)
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            raise HistoryBusyError(path, str(error)) from error
        try:
            # What is erased is overwritten, not only unlinked. The journal is truncated, as the ledger's is.
            with self.reading() as connection:
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA journal_mode = TRUNCATE")
            with self.transaction() as connection:
                self._check(connection, {"federation": federation, "party": party}, create=create)
        except BaseException:
            self._connection.close()
            raise

    def _check(self, connection: sqlite3.Connection, owner: dict[str, str], *, create: bool) -> None:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if not tables and create:
            for statement in (*_TABLES.split(";\n"), _PURPOSES, *_STUDIES, _DELEGATES, _ACTS_FOR):
                connection.execute(statement)
            connection.executemany("INSERT INTO identity VALUES (?, ?)", owner.items())
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            return
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise HistoryFileError(self.path, "it is another kind of file")
        if version != FORMAT_VERSION:
            raise HistoryFileError(self.path, f"it has format {version}, and this version reads {FORMAT_VERSION}")
        held = dict(connection.execute("SELECT key, value FROM identity"))
        if held != owner:
            raise HistoryFileError(self.path, f"it belongs to {held.get('party')!r} of {held.get('federation')!r}")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
        if "purposes" not in tables:
            connection.execute(_PURPOSES)
            # No query of a version before 0.3.0 is answered any more.
            connection.execute("UPDATE queries SET is_waiting = 0")
        if "studies" not in tables:
            for statement in _STUDIES:
                connection.execute(statement)
        if "delegates" not in tables:
            connection.execute(_DELEGATES)
            connection.execute(_ACTS_FOR)

    def close(self) -> None:
        """Close the file. `flush` first: what is still to be written late is discarded."""
        with self._lock:
            self._late.clear()
            self._stop_timer()
            self._connection.close()

    def later(self, write: Callable[[sqlite3.Connection], object]) -> None:
        """Write with the next transaction, or a moment later. If the process is killed before, it is not written."""
        with self._lock:
            self._late.append(write)
            self._wait()

    def flush(self) -> None:
        """Write what is to be written late. Raises as `transaction` does."""
        with self._lock:
            if self._late:
                with self.transaction():
                    pass

    def _wait(self) -> None:
        if self._late_s is None or self._timer is not None:
            return
        self._timer = threading.Timer(self._late_s, self._flush_late)
        self._timer.daemon = True
        self._timer.start()

    def _flush_late(self) -> None:
        with self._lock:
            if self._timer is not threading.current_thread():  # cancelled too late
                return
            self._timer = None
            with suppress(HistoryBusyError, HistoryFileError):
                self.flush()
            if self._late:
                self._wait()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write everything inside atomically; it is on disk on return. A nested transaction is part of the outer one.

        What is to be written late is written first, by the same commit.

        Raises HistoryBusyError, or HistoryFileError for a damaged file.
        """
        with self._lock, self._translated():
            outermost, late = self._depth == 0, len(self._late)
            if outermost:
                self._connection.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                for write in self._late if outermost else ():
                    write(self._connection)
                yield self._connection
            except BaseException:
                self._depth -= 1
                if outermost and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            self._depth -= 1
            if outermost:
                self._connection.execute("COMMIT")
                del self._late[:late]
                if not self._late:
                    self._stop_timer()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read what is committed, without waiting for writers. Raises as `transaction` does.

        `flush` first to read what is written late.
        """
        with self._lock, self._translated():
            yield self._connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
                raise HistoryFileError(self.path, str(error)) from error
            raise HistoryBusyError(self.path, str(error)) from error
