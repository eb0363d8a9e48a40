"""The journal of a learner of several rounds: what it has asked, so that a run that was interrupted goes on.

A learner is deterministic given its answers. Run again with the same journal, it asks the same questions in the same
order: what was answered already is read from the releases on disk and costs nothing, what was asked and not fetched is
followed, and only then is something new asked. A round is charged when parties send it, once.

A journal is one JSON file: format, and for each round the digest of what was asked (the kind of query as it travels)
and the query's id.
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
"""Told a sentence about the progress."""


class JournalError(ConfigurationError):
    """A file that is no journal, or the journal of another run."""


_JOURNAL = FileKind(
    with_remedy("give another file, at the cost of asking everything anew", JournalError),
    limit_bytes=64 << 20,
)


class SessionSource:
    """Answers over gRPC, each a release that is saved; with a journal, also those of an interrupted run.

    journal: its file, made where there is none; None keeps none. on_status: called with the status of what is followed.
    Raises JournalError where the file is no journal.
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
        """What the parties of the newest roster state, in all."""
        return sum(member.rows_at_least or 0 for member in self._session.fetch_roster().parties)

    def plan(self, request: Request) -> Plan:
        """See learner.federation.AnswerSource."""
        return self._session.plan(request)

    def answer(self, plan: Plan) -> Release:
        """The release of this round: read, followed, or asked.

        Raises JournalError where the journal has another question at this place, another run is at work with it, or
        it belongs to another learner's state; and what Session.run raises.
        """
        asked = _digest_of(plan.query)
        with self._locked():
            release = self._resumed(asked)
            if release is None:
                release = self._asked(asked, plan)
        self._next += 1
        return release

    def _asked(self, asked: str, plan: Plan) -> Release:
        # On disk here, then in the journal, then sent: whatever the journal has can be followed.
        query_id = self._session.prepare(plan)
        self._record(asked, query_id)
        self._note(f"round {self._next + 1}: asking, query {query_id.hex()[:16]}")
        return self._followed(query_id)

    def _followed(self, query_id: bytes) -> Release:
        self._session.send(query_id)
        self._session.watch(query_id, self._on_status, self._timeout_s)
        return self._session.fetch(query_id)

    def _resumed(self, asked: str) -> Release | None:
        """The release of a round that the journal has; None where it is to be asked, for the first time or anew."""
        if self._next >= len(self._rounds):
            return None
        entry, last = self._rounds[self._next], self._next == len(self._rounds) - 1
        if entry["asked"] != asked:
            raise JournalError(
                f"{self._path}: round {self._next + 1} asked something else: it is the journal of another run; give "
                "the same learner, schema, options and members as then, or another journal"
            )
        query_id = bytes.fromhex(entry["query_id"])
        if self._session.release_directory(query_id).exists():
            self._note(f"round {self._next + 1}: answered already, query {query_id.hex()[:16]}")
            return self._session.fetch(query_id)
        if query_id not in self._session.asked():
            raise JournalError(
                f"{self._path}: round {self._next + 1} was asked from another state directory: go on with that one, or "
                "give another journal, which asks and pays for everything anew"
            )
        self._note(f"round {self._next + 1}: following query {query_id.hex()[:16]}")
        try:
            return self._followed(query_id)
        except WireError as error:
            # It ended without a total: nothing was released, and the round may be asked again. All else may pass, and
            # the query goes on.
            ended = isinstance(error, QueryEndedError) or error.code in (Code.QUERY_EXPIRED, Code.QUERY_UNKNOWN)
            if not (ended and last):
                raise
            self._note(f"round {self._next + 1}: query {query_id.hex()[:16]} ended ({error}); asking anew")
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other runs out for one round; raises JournalError where one is, or was, at work."""
        if self._path is None:
            yield
            return
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise JournalError(f"{self._path}: cannot be opened ({error.strerror}); choose another place") from error
        try:
            self._lock(descriptor)
            # A journal is replaced when it is written, so the lock alone does not tell.
            if _read(self._path) != self._rounds:
                raise JournalError(f"{self._path}: another run wrote to it meanwhile: start again, and one at a time")
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise JournalError(f"{self._path}: another run is at work with it: wait until it ends") from error

    def _record(self, asked: str, query_id: bytes) -> None:
        """Durably, before anything is sent. What is asked anew takes the place of what ended."""
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
    """What names a question, whenever it is asked: its schema and its kind, noise included."""
    return sha256(query.schema.digest + kind_bytes(query.kind)).hex()


def _read(path: Path) -> list[dict[str, str]]:
    text = read_text(path, _JOURNAL) if path.exists() else ""
    # Empty: made and locked by a run that asked nothing.
    if not text:
        return []
    content = parse_json(text, path, _JOURNAL)
    rounds = content.get("rounds") if content.get("format") == FORMAT else None
    if not isinstance(rounds, list) or content.get("format_version") != FORMAT_VERSION:
        raise JournalError(f"{path}: no journal of this version of radofed; give another file")
    for entry in rounds:
        if not isinstance(entry, dict) or set(entry) != {"asked", "query_id"} or not _is_hex(entry["query_id"]):
            raise JournalError(f"{path}: malformed; give another file, at the cost of asking everything anew")
    return rounds


def _is_hex(text: object) -> bool:
    try:
        return isinstance(text, str) and len(bytes.fromhex(text)) == 32
    except ValueError:
        return False
