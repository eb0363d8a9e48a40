"""The journal of an estimator of several rounds: its queries, so that an interrupted run can resume.

An estimator is deterministic given its answers. Run again with the same journal, it sends the same queries in the same
order. Answers that were fetched are read from the releases on disk and cost nothing. Queries that were sent and not
fetched are followed. Only then are new queries sent. Each round is charged once, when parties send it.

A journal is one JSON file: format, and for each round the digest of the query (schema and serialised kind), the query's
id, and the ids of queries of the round that ended without a total and were replaced ("ended", absent where there are
none). Attempts of these may have been charged, and every figure under collusion counts them.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NotRequired, TypedDict

from dpcore.errors import ConfigurationError
from learner.answer_source import RoundEndedError, RoundLostError
from learner.composition import Unanswered
from learner.history import AskedBefore, AskedBeforeError, NotAskedBeforeError, opened_releases, question_digest
from learner.planning import Plan
from learner.release import Release
from learner.requests import BudgetRequest, Request
from learner.session import AttemptLostError, OnStatus, QueryEndedError, Session
from radobase.printing import listed
from radobase.reading import FileKind, parse_json, read_text, with_remedy
from radobase.writing import write_durably
from wire.errors import Code, WireError
from wire.query import Query
from wire.training import Training

FORMAT = "radofed-journal"
FORMAT_VERSION = 1


class Entry(TypedDict):
    """One round of a journal."""

    asked: str
    query_id: str
    ended: NotRequired[list[str]]


ASK_AGAIN = "--ask-again"
"""The option of `rado learner train` that asks a round again."""

Note = Callable[[str], None]
"""Callback that receives a sentence about the progress."""


class JournalError(ConfigurationError):
    """A file is not a journal, or is the journal of another run."""


_JOURNAL = FileKind(
    with_remedy("give another file; all queries are then sent and charged again", JournalError),
    limit_bytes=4 << 20,
    decides=True,
)


class SessionSource:
    """Answers over gRPC, each saved as a release; with a journal, also those of an interrupted run.

    - journal: its file, which is created if it does not exist; None keeps no journal.
    - asks_again: whether a round whose query ended without a total is asked again, and a question that was asked
      before, outside of the journal. reuses: whether such a question is answered by the earlier answer, at no cost.
    - asks: False to send nothing. on_status: called with each status of the query that is followed.

    Raises JournalError if the file is not a journal.
    """

    def __init__(
        self,
        session: Session,
        journal: Path | None = None,
        *,
        asks_again: bool = False,
        reuses: bool = False,
        asks: bool = True,
        on_status: OnStatus | None = None,
        timeout_s: float | None = None,
        note: Note | None = None,
    ) -> None:
        self._session, self._path, self._on_status, self._timeout_s = session, journal, on_status, timeout_s
        self._asks_again, self._reuses, self._asks = asks_again, reuses, asks
        self._requests: dict[bytes, Request] = {}
        self._note = note or (lambda _: None)
        self._rounds = [] if journal is None else _read(journal)
        self._next = 0
        self._unopened: list[bytes] = []
        self._warned: set[str] = set()

    def with_journal(self, journal: Path) -> "SessionSource":
        """The same session with this journal, for a training. Raises JournalError if the file is not a journal."""
        return SessionSource(
            self._session,
            journal,
            asks_again=self._asks_again,
            reuses=self._reuses,
            asks=self._asks,
            on_status=self._on_status,
            timeout_s=self._timeout_s,
            note=self._note,
        )

    @property
    def session(self) -> Session:
        """The session that it asks by."""
        return self._session

    @property
    def asks_all(self) -> bool:
        """Whether every answer is asked for: none is taken from disk, and no interrupted run goes on."""
        return self._asks and not self._reuses and not self._rounds

    @property
    def timeout_s(self) -> float | None:
        """The longest wait for an answer; None without a limit."""
        return self._timeout_s

    @property
    def rows(self) -> int:
        """The total of the rows that the accepted parties stated: in their last statements, otherwise in the roster."""
        return self._session.stated_rows()

    @property
    def persons(self) -> int:
        """0: parties state their persons in answers about persons only."""
        return 0

    def plan(self, request: Request) -> Plan:
        """See learner.answer_source.AnswerSource."""
        plan = self._session.plan(request)
        self._requests = {plan.query_id: request}
        return plan

    def answer(self, plan: Plan) -> Release:
        """The release of this round: read from disk, followed, or newly queried.

        Raises:
            JournalError: the journal has another query in this round, is in use, or belongs to another state directory.
            RoundLostError: an attempt was lost.
            RoundEndedError: the round's query of an earlier run ended without a total, and `asks_again` is false.
            AskedBeforeError: the question was asked before, and neither `asks_again` nor `reuses` is set.
            NotAskedBeforeError: there is no earlier answer, and nothing may be sent.
        """
        self._warn(plan)
        asked = question_digest(plan.query)
        self._unopened = []
        with self._locked():
            release = self._resumed(asked)
            if release is None:
                release = self._asked(asked, plan)
        self._next += 1
        return release

    def _warn(self, plan: Plan) -> None:
        """Note each warning, and who is not asked, once, whatever the number of rounds."""
        not_asked = [f"{plan.not_asked}."] if plan.not_asked else []
        for sentence in (*not_asked, *(f"Warning: {warning}." for warning in plan.warnings)):
            if sentence not in self._warned:
                self._warned.add(sentence)
                self._note(sentence)

    @property
    def training(self) -> Training | None:
        """What the queries of the journal's last round announced; None without a round, or an announcement.

        A party's people may have decided on it, so whoever continues the training announces the same.
        """
        if not self._rounds:
            return None
        payload = self._session.payload_of(bytes.fromhex(self._rounds[-1]["query_id"]))
        return None if payload is None else Query.from_bytes(payload).training

    @property
    def earlier(self) -> list[Release]:
        """Every release of this learner on disk, oldest first, but those of the journal, which this run asks for."""
        own = {entry["query_id"] for entry in self._rounds}
        return [one for one in opened_releases(self._session.config) if one.query_id.hex() not in own]

    @property
    def unanswered(self) -> list[Unanswered]:
        """The queries of the last round that have no opened total, in the order in which they were sent."""
        return [self._session.unanswered(query_id) for query_id in self._unopened]

    def release_directory(self, release: Release) -> Path:
        """Where a release of this source is saved."""
        return self._session.release_directory(release.query_id)

    def _asked(self, asked: str, plan: Plan) -> Release:
        if (earlier := self._before(plan)) is not None:
            return self._reused(asked, earlier)
        self._ask_first(plan)
        if self._unopened:
            attempts = 1 + sum(query.attempts for query in self.unanswered)
            self._note(
                f"Warning: round {self._next + 1}: under collusion {attempts} attempts count, with those of the "
                "queries that ended, so the round exceeds its part of the budget"
            )
        self._note_other_parties(plan)
        # On disk here, then in the journal, then sent: every query in the journal can be followed.
        query_id = self._session.prepare(plan)
        self._record(asked, query_id)
        return self._followed(query_id, "sending")

    def _ask_first(self, plan: Plan) -> None:
        """Ask parties about what they may not accept. Raises WireError(COHORT_TOO_SMALL) if too few would."""
        request = self._requests.get(plan.query_id)
        if request is None:
            return
        is_first = self._next == 0 and not self._unopened
        if is_first and request.training is not None and isinstance(request, BudgetRequest) and request.part < 1:
            for sentence in self._session.check_training(request, plan, self._timeout_s):
                self._note(sentence)
        else:
            self._session.check_accepted(request, plan)

    def _before(self, plan: Plan) -> AskedBefore | None:
        """The earlier query whose answer is to be used. A run may ask the same again in another round of its own."""
        if self._asks_again and not self._reuses:
            return None
        own = [] if self._path is None else self._rounds[: self._next]
        earlier = self._session.asked_before(plan, {bytes.fromhex(entry["query_id"]) for entry in own})
        if earlier is None and not self._asks:
            raise NotAskedBeforeError
        if earlier is not None and not self._reuses:
            raise AskedBeforeError(earlier)
        return earlier

    def _reused(self, asked: str, earlier: AskedBefore) -> Release:
        self._record(asked, earlier.query_id)
        self._note(f"round {self._next + 1}: {earlier.words}; nothing is charged for it")
        if earlier.release is None:
            return self._followed(earlier.query_id, "following")
        return self._session.fetch(earlier.query_id)

    def _note_other_parties(self, plan: Plan) -> None:
        """Note which parties this round asks that the round before did not ask, and which it asks no more."""
        if self._next == 0:
            return
        before = self._session.parties_of(bytes.fromhex(self._rounds[self._next - 1]["query_id"]))
        after = plan.query.binding.parties
        if before is None or before == after:
            return
        changes = [("now asked", after - before), ("not asked any more", before - after)]
        words = "; ".join(f"{what}: {listed(sorted(names))}" for what, names in changes if names)
        self._note(f"Warning: round {self._next + 1} asks other parties than the round before ({words})")

    def _followed(self, query_id: bytes, verb: str) -> Release:
        """Send a query and follow it. verb: what is noted of it, unless the display names it: a round is one line."""
        number, digits = self._next + 1, query_id.hex()[:16]
        if self._on_status is not None or not self._session.shows_progress:
            self._note(f"round {number}: {verb} query {digits}")
        # It may be sent from here on, so it counts until its total is opened.
        self._unopened.append(query_id)
        self._session.send(query_id)
        try:
            label = f"round {number}, query {digits}"
            self._session.watch(query_id, self._on_status, self._timeout_s, label=label)
        except AttemptLostError as error:
            raise RoundLostError(str(error), self._session.attempts(query_id)) from error
        release = self._session.fetch(query_id)
        self._unopened.remove(query_id)
        return release

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
        self._unopened = [bytes.fromhex(ended) for ended in entry.get("ended", [])]
        released = self._session.release_directory(query_id).exists()
        wanted = {*self._unopened} if released else {query_id, *self._unopened}
        if not wanted <= set(self._session.asked()):
            raise JournalError(
                f"{self._path}: round {self._next + 1} was sent from another state directory: use that one, or give "
                "another journal; all queries are then sent and charged again"
            )
        if released:
            self._note(f"round {self._next + 1}: already answered, query {query_id.hex()[:16]}")
            return self._session.fetch(query_id)
        try:
            return self._followed(query_id, "following")
        except WireError as error:
            # The query ended without a total: this learner opened nothing, and the round may be sent again. The ended
            # query stays in the journal, as its attempts may have been charged, also if the coordinator says that all
            # parties refused: under collusion it may lie. Other errors may be temporary, and the query continues.
            ended = isinstance(error, QueryEndedError) or error.code in (Code.QUERY_EXPIRED, Code.QUERY_UNKNOWN)
            if not (ended and last):
                raise
            name = (
                f"round {self._next + 1}: query {query_id.hex()[:16]} ended without a total ({str(error).rstrip('.')})"
            )
            if not self._asks_again:
                attempts = sum(query.attempts for query in self.unanswered)
                raise RoundEndedError(f"{name}. {ASK_AGAIN} asks the round again", attempts) from error
            self._note(f"{name}; sending the round again")
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
        """Record a query durably, before it is sent. It replaces one of the same round that ended, which is kept."""
        entry: Entry = {"asked": asked, "query_id": query_id.hex()}
        if self._unopened:
            entry["ended"] = [ended.hex() for ended in self._unopened]
        rounds = [*self._rounds[: self._next], entry]
        if self._path is not None:
            content = {"format": FORMAT, "format_version": FORMAT_VERSION, "rounds": rounds}
            try:
                write_durably(self._path, (json.dumps(content, indent=2) + "\n").encode())
            except OSError as error:
                raise JournalError(
                    f"{self._path}: cannot be written ({error.strerror}); choose another place"
                ) from error
        self._rounds = rounds


def query_ids_of(path: Path) -> list[bytes]:
    """The ids of the queries that a journal's run was answered with, in order. Raises JournalError."""
    return [bytes.fromhex(entry["query_id"]) for entry in _read(path)]


def _read(path: Path) -> list[Entry]:
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
        if not _is_entry(entry):
            raise JournalError(f"{path}: malformed; give another file; all queries are then sent and charged again")
    return rounds


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or set(entry) - {"ended"} != {"asked", "query_id"}:
        return False
    ended = entry.get("ended", [])
    return isinstance(ended, list) and all(map(_is_hex, [entry["query_id"], *ended]))


def _is_hex(text: object) -> bool:
    try:
        return isinstance(text, str) and len(bytes.fromhex(text)) == 32
    except ValueError:
        return False
