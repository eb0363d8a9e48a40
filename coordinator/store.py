"""The coordinator's durable state: one SQLite file. Every commit is on disk before it is acknowledged.

One transaction changes a query's row, its revisions and the statement that caused the change. Revisions come from one
counter that only grows; parties and learners use them as cursors.
"""

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from radobase.reading import FileKind, check_unwritable, parse_json, with_remedy
from radobase.writing import copy_of
from wire.envelopes import Envelope, MessageType
from wire.errors import Code, WireError

SCHEMA_VERSION = 2
DAY_S = 86_400
"""What learners asked is kept for so long: their limits count it."""
_STORE = FileKind(with_remedy("move the file away or restore it"))
# What reading a cell of another type or content may raise.
_DAMAGED = (sqlite3.DatabaseError, ValueError, KeyError, TypeError, AttributeError, OverflowError)

_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE roster (only INTEGER PRIMARY KEY CHECK (only = 1), version INTEGER NOT NULL, envelope BLOB NOT NULL);
CREATE TABLE queries (
    query_id BLOB PRIMARY KEY,
    learner TEXT NOT NULL,
    envelope BLOB NOT NULL,
    submitted_at_unix_s INTEGER NOT NULL,
    not_after_unix_s INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    work_revision INTEGER NOT NULL,
    round TEXT NOT NULL,
    finished_at_unix_s REAL
);
CREATE TABLE statements (
    query_id BLOB NOT NULL REFERENCES queries ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    party TEXT NOT NULL,
    kind TEXT NOT NULL,
    envelope BLOB NOT NULL,
    PRIMARY KEY (query_id, attempt, party, kind)
) WITHOUT ROWID;
CREATE TABLE forgotten (query_id BLOB PRIMARY KEY, not_after_unix_s INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE features (
    party TEXT PRIMARY KEY, signed_at_unix_s INTEGER NOT NULL, envelope BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE heads (
    party TEXT PRIMARY KEY, entries INTEGER NOT NULL, envelope BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE seen (member TEXT PRIMARY KEY, at_unix_s INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE asked (
    query_id BLOB PRIMARY KEY, learner TEXT NOT NULL, at_unix_s INTEGER NOT NULL, upload_bytes INTEGER NOT NULL
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Statement:
    """A party's signed statement on one attempt, or the learner's retry that started it."""

    attempt: int
    party: str
    """The signer."""
    kind: MessageType
    envelope: Envelope
    ledger_entries: int = 0
    """Of the ledger head that it carries, 0 for none."""


@dataclass(frozen=True)
class CountedQuery:
    """A query as it counts towards its learner's limits."""

    query_id: bytes
    learner: str
    at_unix_s: int
    upload_bytes: int
    """Of the largest cohort that it allows."""


@dataclass(frozen=True)
class Revisions:
    """Revisions of a query."""

    revision: int
    """The last change of any kind."""
    work_revision: int
    """The last change of phase or attempt."""


@dataclass(frozen=True)
class StoredQuery:
    """One query as last committed."""

    query_id: bytes
    envelope: Envelope
    submitted_at_unix_s: int
    revisions: Revisions
    round_data: Mapping[str, Any]
    """For Round.from_dict."""
    finished_at_unix_s: float | None
    statements: tuple[Statement, ...]
    """Of the last attempt."""


class Store:
    """The coordinator's SQLite file. Thread-safe. Every method is one transaction and blocks until it is on disk.

    Raises ConfigurationError if the file belongs to another federation or has another version. A full disk raises
    WireError(SPOOL_FULL) and changes nothing.
    """

    def __init__(self, path: Path, federation: str) -> None:
        self._lock = threading.Lock()
        self._path = path
        check_unwritable(path)
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._prepare(path, federation)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"{path}: not a coordinator's store ({error}); move the file away or restore it"
            ) from error

    def _prepare(self, path: Path, federation: str) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version == 0:
            with self._transaction() as cursor:
                for statement in _TABLES.split(";"):
                    cursor.execute(statement)
                cursor.execute("INSERT INTO facts VALUES ('federation', ?), ('revision', '0')", (federation,))
                cursor.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        elif version != SCHEMA_VERSION:
            raise ConfigurationError(
                f"{path}: another version of radofed wrote it (format {version}, this one has {SCHEMA_VERSION}): let "
                "it end the open queries, then move the file away; the coordinator makes a new one"
            )
        owner = self._fact("federation")
        if owner != federation:
            raise ConfigurationError(
                f"{path}: belongs to federation {owner!r}; use one state directory for each federation"
            )

    def close(self) -> None:
        """Close the file. No data is lost without this call."""
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """For reading what this class wrote. Raises ConfigurationError if the file was damaged since."""
        try:
            with self._lock:
                yield self._connection
        except _DAMAGED as error:
            raise _STORE.error(self._path, f"contains an entry that cannot be read ({error!r})") from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._lock:
            cursor = self._connection.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    cursor.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                    raise WireError(Code.SPOOL_FULL) from error
                raise
            finally:
                cursor.close()

    def _fact(self, name: str) -> str:
        with self._reading() as connection:
            (value,) = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
            return str(value)

    @property
    def revision(self) -> int:
        """The counter's current value."""
        fact = self._fact("revision")
        with self._reading():
            return int(fact)

    def roster(self) -> Envelope | None:
        """The newest roster that was accepted."""
        with self._reading() as connection:
            row = connection.execute("SELECT envelope FROM roster").fetchone()
            return None if row is None else Envelope.from_bytes(row[0])

    def remember_roster(self, version: int, envelope: Envelope) -> None:
        """Store this roster as the newest. The caller must compare versions first."""
        with self._transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO roster VALUES (1, ?, ?)", (version, envelope.to_bytes()))

    def remember_features(self, party: str, signed_at_unix_s: int, envelope: Envelope) -> None:
        """Store a party's statement of its features, unless a newer one is stored."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO features VALUES (?, ?, ?) ON CONFLICT (party) DO UPDATE SET"
                " signed_at_unix_s = excluded.signed_at_unix_s, envelope = excluded.envelope"
                " WHERE excluded.signed_at_unix_s > features.signed_at_unix_s",
                (party, signed_at_unix_s, envelope.to_bytes()),
            )

    def features(self) -> dict[str, Envelope]:
        """The newest statement of features of every party that sent one."""
        with self._reading() as connection:
            rows = connection.execute("SELECT party, envelope FROM features").fetchall()
            return {party: Envelope.from_bytes(envelope) for party, envelope in rows}

    def remember_seen(self, at_unix_s: Mapping[str, int]) -> None:
        """Store when these members last made a call."""
        with self._transaction() as cursor:
            cursor.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?)", list(at_unix_s.items()))

    def newest_head(self, party: str) -> Envelope | None:
        """The party's statement with the most ledger entries."""
        with self._reading() as connection:
            row = connection.execute("SELECT envelope FROM heads WHERE party = ?", (party,)).fetchone()
            return None if row is None else Envelope.from_bytes(row[0])

    def was_forgotten(self, query_id: bytes) -> bool:
        """Whether this query ran, ended and was forgotten: it must never run again."""
        with self._lock:
            row = self._connection.execute("SELECT 1 FROM forgotten WHERE query_id = ?", (query_id,)).fetchone()
        return row is not None

    def add_query(
        self,
        envelope: Envelope,
        learner: str,
        *,
        submitted_at_unix_s: int,
        not_after_unix_s: int,
        round_data: Mapping[str, Any],
        upload_bytes: int = 0,
    ) -> Revisions:
        """Store a new query, and that its learner asked it. Raises sqlite3.IntegrityError if it is already stored."""
        with self._transaction() as cursor:
            revision = _next_revision(cursor)
            cursor.execute(
                "INSERT INTO queries VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                (
                    envelope.payload_hash,
                    learner,
                    envelope.to_bytes(),
                    submitted_at_unix_s,
                    not_after_unix_s,
                    revision,
                    revision,
                    json.dumps(round_data),
                ),
            )
            cursor.execute("DELETE FROM asked WHERE at_unix_s < ?", (submitted_at_unix_s - DAY_S,))
            asked = CountedQuery(envelope.payload_hash, learner, submitted_at_unix_s, upload_bytes)
            cursor.execute("INSERT OR IGNORE INTO asked VALUES (?, ?, ?, ?)", astuple(asked))
        return Revisions(revision, revision)

    def asked(self) -> list[CountedQuery]:
        """What was asked lately, oldest first."""
        with self._reading() as connection:
            return _read_asked(connection)

    def save(
        self,
        query_id: bytes,
        round_data: Mapping[str, Any],
        *,
        work_changed: bool,
        finished_at_unix_s: float | None,
        statement: Statement | None = None,
        lost: Iterable[str] = (),
    ) -> Revisions:
        """Store a query's next state, with the statement that caused it, and the ledger head that this carries.

        lost: parties whose receipts of this attempt are removed.
        """
        with self._transaction() as cursor:
            revision = _next_revision(cursor)
            cursor.executemany(
                "DELETE FROM statements WHERE query_id = ? AND attempt = ? AND party = ? AND kind = ?",
                [(query_id, round_data["attempt"], party, MessageType.RECEIPT) for party in lost],
            )
            if statement is not None:
                cursor.execute(
                    "INSERT INTO statements VALUES (?, ?, ?, ?, ?)",
                    (query_id, statement.attempt, statement.party, statement.kind, statement.envelope.to_bytes()),
                )
                if statement.ledger_entries:
                    cursor.execute(
                        "INSERT INTO heads VALUES (?, ?, ?) ON CONFLICT (party) DO UPDATE SET"
                        " entries = excluded.entries, envelope = excluded.envelope"
                        " WHERE excluded.entries > heads.entries",
                        (statement.party, statement.ledger_entries, statement.envelope.to_bytes()),
                    )
            (work_revision,) = cursor.execute(
                "UPDATE queries SET round = ?, revision = ?, finished_at_unix_s = ?,"
                " work_revision = CASE WHEN ? THEN ? ELSE work_revision END WHERE query_id = ? RETURNING work_revision",
                (json.dumps(round_data), revision, finished_at_unix_s, work_changed, revision, query_id),
            ).fetchone()
        return Revisions(revision, work_revision)

    def save_times(self, rounds: Mapping[bytes, Mapping[str, Any]]) -> None:
        """Store the remaining times of open queries. Does not change their revisions."""
        with self._transaction() as cursor:
            cursor.executemany(
                "UPDATE queries SET round = ? WHERE query_id = ?",
                [(json.dumps(round_data), query_id) for query_id, round_data in rounds.items()],
            )

    def load(self) -> list[StoredQuery]:
        """All queries, in the order of their submission. Raises ConfigurationError if one cannot be read."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT query_id, envelope, submitted_at_unix_s, revision, work_revision, round, finished_at_unix_s"
                " FROM queries ORDER BY submitted_at_unix_s, query_id"
            ).fetchall()
            return [self._load(*row) for row in rows]

    def _load(
        self,
        query_id: bytes,
        envelope: bytes,
        submitted_at_unix_s: int,
        revision: int,
        work_revision: int,
        round_text: str,
        finished_at_unix_s: float | None,
    ) -> StoredQuery:
        round_data = parse_json(round_text, self._path, _STORE)
        rows = self._connection.execute(
            "SELECT attempt, party, kind, envelope FROM statements WHERE query_id = ? AND attempt = ?",
            (query_id, round_data["attempt"]),
        )
        return StoredQuery(
            query_id,
            Envelope.from_bytes(envelope),
            submitted_at_unix_s,
            Revisions(revision, work_revision),
            round_data,
            finished_at_unix_s,
            tuple(Statement(at, party, MessageType(kind), Envelope.from_bytes(data)) for at, party, kind, data in rows),
        )

    def forget(self, query_ids: Sequence[bytes], *, expired_before_unix_s: float) -> None:
        """Remove queries. Keeps their ids until the queries have expired and cannot run again."""
        with self._transaction() as cursor:
            ids = [(query_id,) for query_id in query_ids]
            cursor.executemany(
                "INSERT INTO forgotten SELECT query_id, not_after_unix_s FROM queries WHERE query_id = ?", ids
            )
            cursor.executemany("DELETE FROM queries WHERE query_id = ?", ids)
            cursor.execute("DELETE FROM forgotten WHERE not_after_unix_s < ?", (expired_before_unix_s,))


def _next_revision(cursor: sqlite3.Cursor) -> int:
    (value,) = cursor.execute(
        "UPDATE facts SET value = CAST(value AS INTEGER) + 1 WHERE name = 'revision' RETURNING CAST(value AS INTEGER)"
    ).fetchone()
    return int(value)


@contextlib.contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Changes nothing; a coordinator may be using the file. Raises sqlite3.Error, also for text that is none."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=10)) as connection:
        try:
            yield connection
        except UnicodeDecodeError as error:
            raise sqlite3.DatabaseError(str(error)) from error


def read_queries(path: Path) -> list[dict[str, Any]]:
    """Every query's id, envelope, learner, times and round. Changes nothing; a coordinator may be using the file.

    Raises sqlite3.Error if the file cannot be read, ConfigurationError if its content is malformed.
    """
    with _read_only(path) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute(
            "SELECT query_id, envelope, learner, submitted_at_unix_s, not_after_unix_s, finished_at_unix_s, round"
            " FROM queries ORDER BY submitted_at_unix_s, query_id"
        ).fetchall()
        return [{**dict(row), "round": parse_json(row["round"], path, _STORE)} for row in rows]


def read_asked(path: Path) -> list[CountedQuery]:
    """What was asked lately, oldest first. Changes nothing; a coordinator may be using the file.

    Raises sqlite3.Error if the file cannot be read.
    """
    with _read_only(path) as connection:
        return _read_asked(connection)


def _read_asked(connection: sqlite3.Connection) -> list[CountedQuery]:
    rows = connection.execute(
        "SELECT query_id, learner, at_unix_s, upload_bytes FROM asked ORDER BY at_unix_s, query_id"
    ).fetchall()
    return [CountedQuery(bytes(query_id), str(learner), int(at), int(size)) for query_id, learner, at, size in rows]


def read_roster(path: Path) -> Envelope | None:
    """The newest roster that was served, or None. Changes nothing; a coordinator may be using the file.

    Raises sqlite3.Error if the file cannot be read, WireError if its content is malformed.
    """
    with _read_only(path) as connection:
        row = connection.execute("SELECT envelope FROM roster").fetchone()
    return None if row is None else Envelope.from_bytes(row[0])


def read_seen(path: Path) -> dict[str, int]:
    """When each member last made a call, Unix seconds. Changes nothing; a coordinator may be using the file.

    Raises sqlite3.Error if the file cannot be read.
    """
    with _read_only(path) as connection:
        rows = connection.execute("SELECT member, at_unix_s FROM seen").fetchall()
    return {str(member): at_unix_s for member, at_unix_s in rows if isinstance(at_unix_s, int)}


# Copies of the coordinator's store for a backup, and the check of a copy before it is restored.


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
