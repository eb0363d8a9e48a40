"""The journal of an estimator of several rounds: its queries, so that an interrupted run can resume.

An estimator is deterministic given its answers. Run again with the same journal, it sends the same queries in the same
order. Answers that were fetched are read from the releases on disk and cost nothing. Queries that were sent and not
fetched are followed. Only then are new queries sent. Each round is charged once, when parties send it.

A journal is one JSON file: format, and for each round the digest of the query (schema and serialised kind) and the
query's id.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcore.errors import ConfigurationError
from learner.planning import Plan
from learner.release import Release
from learner.requests import Request
from learner.session import OnStatus, QueryEndedError, Session
from radofed.common.files.reading import FileKind, parse_json, read_text, with_remedy
from radofed.common.files.writing import write_durably
from wire.envelopes import sha256
from wire.errors import Code, WireError
from wire.query import Query
from wire.query_kinds import kind_bytes

FORMAT = "radofed-journal"
FORMAT_VERSION = 1

Note = Callable[[str], None]
"""Callback that receives a sentence about the progress."""


class JournalError(ConfigurationError):
    """A file is not a journal, or is the journal of another run."""


_JOURNAL = FileKind(
    with_remedy("give another file; all queries are then sent and charged again", JournalError),
    limit_bytes=4 << 20,
)


class SessionSource:
    """Answers over gRPC, each saved as a release; with a journal, also those of an interrupted run.

    journal: its file, which is created if it does not exist; None keeps no journal. on_status: called with each status
    of the query that is followed. Raises JournalError if the file is not a journal.
    """

    def __init__(
        self,
        session: Session,
        journal: Path | None = None,
        *,
        on_status: OnStatus | None = None,
        timeout_s: float | None = None,
        note: Note | None = None,
    ) -> None:
        self._session, self._path, self._on_status, self._timeout_s = session, journal, on_status, timeout_s
        self._note = note or (lambda _: None)
        self._rounds = [] if journal is None else _read(journal)
        self._next = 0

    @property
    def rows(self) -> int:
        """The total of the rows that the parties of the newest roster state."""
        return sum(member.rows_at_least or 0 for member in self._session.fetch_roster().parties)

    def plan(self, request: Request) -> Plan:
        """See learner.federation.AnswerSource."""
        return self._session.plan(request)

    def answer(self, plan: Plan) -> Release:
        """The release of this round: read from disk, followed, or newly queried.

        Raises JournalError if the journal has another query in this round, another run is using it, or it belongs to
        another state directory; and what Session.run raises.
        """
        asked = _digest_of(plan.query)
        with self._locked():
            release = self._resumed(asked)
            if release is None:
                release = self._asked(asked, plan)
        self._next += 1
        return release

    def _asked(self, asked: str, plan: Plan) -> Release:
        # On disk here, then in the journal, then sent: every query in the journal can be followed.
        query_id = self._session.prepare(plan)
        self._record(asked, query_id)
        self._note(f"round {self._next + 1}: sending query {query_id.hex()[:16]}")
        return self._followed(query_id)

    def _followed(self, query_id: bytes) -> Release:
        self._session.send(query_id)
        self._session.watch(query_id, self._on_status, self._timeout_s)
        return self._session.fetch(query_id)

    def _resumed(self, asked: str) -> Release | None:
        """The release of a round in the journal; None if the round's query must be sent, or sent again."""
        if self._next >= len(self._rounds):
            return None
        entry, last = self._rounds[self._next], self._next == len(self._rounds) - 1
        if entry["asked"] != asked:
            raise JournalError(
                f"{self._path}: round {self._next + 1} had another query, so this is the journal of another run; "
                "give the same estimator, schema, options and members as in that run, or another journal"
            )
        query_id = bytes.fromhex(entry["query_id"])
        if self._session.release_directory(query_id).exists():
            self._note(f"round {self._next + 1}: already answered, query {query_id.hex()[:16]}")
            return self._session.fetch(query_id)
        if query_id not in self._session.asked():
            raise JournalError(
                f"{self._path}: round {self._next + 1} was sent from another state directory: use that one, or give "
                "another journal; all queries are then sent and charged again"
            )
        self._note(f"round {self._next + 1}: following query {query_id.hex()[:16]}")
        try:
            return self._followed(query_id)
        except WireError as error:
            # The query ended without a total: nothing was released, and the round may be sent again. Other errors may
            # be temporary, and the query continues.
            ended = isinstance(error, QueryEndedError) or error.code in (Code.QUERY_EXPIRED, Code.QUERY_UNKNOWN)
            if not (ended and last):
                raise
            self._note(f"round {self._next + 1}: query {query_id.hex()[:16]} ended ({error}); sending the round again")
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the journal for one round. Raises JournalError if another run is using it, or has changed it."""
        if self._path is None:
            yield
            return
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise JournalError(f"{self._path}: cannot be opened ({error.strerror}); choose another place") from error
        try:
            self._lock(descriptor)
            # Writing replaces the file, so the lock alone does not detect another run.
            if _read(self._path) != self._rounds:
                raise JournalError(
                    f"{self._path}: another run changed it in the meantime: start again, with one run at a time"
                )
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalError(f"{self._path}: another run is using it: wait until it ends") from error

    def _record(self, asked: str, query_id: bytes) -> None:
        """Record a query durably, before it is sent. A query that is sent again replaces the one that ended."""
        rounds = [*self._rounds[: self._next], {"asked": asked, "query_id": query_id.hex()}]
        if self._path is not None:
            content = {"format": FORMAT, "format_version": FORMAT_VERSION, "rounds": rounds}
            try:
                write_durably(self._path, (json.dumps(content, indent=2) + "\n").encode())
            except OSError as error:
                raise JournalError(
                    f"{self._path}: cannot be written ({error.strerror}); choose another place"
                ) from error
        self._rounds = rounds


def _digest_of(query: Query) -> str:
    """Identifies a query independently of its time: a hash of its schema and its kind, including the noise."""
    return sha256(query.schema.digest + kind_bytes(query.kind)).hex()


def _read(path: Path) -> list[dict[str, str]]:
    try:
        text = read_text(path, _JOURNAL)
    except JournalError as error:
        # `path.exists()` would raise OSError for a name that is too long or a directory that cannot be searched.
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise
    # Empty: created and locked by a run that sent nothing.
    if not text:
        return []
    content = parse_json(text, path, _JOURNAL)
    rounds = content.get("rounds") if content.get("format") == FORMAT else None
    if not isinstance(rounds, list) or content.get("format_version") != FORMAT_VERSION:
        raise JournalError(f"{path}: not a journal of this version of radofed; give another file")
    for entry in rounds:
        if not isinstance(entry, dict) or set(entry) != {"asked", "query_id"} or not _is_hex(entry["query_id"]):
            raise JournalError(f"{path}: malformed; give another file; all queries are then sent and charged again")
    return rounds


def _is_hex(text: object) -> bool:
    try:
        return isinstance(text, str) and len(bytes.fromhex(text)) == 32
    except ValueError:
        return False
