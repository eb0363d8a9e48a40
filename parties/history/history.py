"""What this party was asked and what became of it: written by its node, read by people.

Every query that verified is noted before anything is answered, also one that is refused. Nothing is noted of what no
learner signed. What follows is noted when it has happened; what the ledger knows of a query is read from the ledger, so
that a crash between both loses nothing that was charged.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from dpcore.errors import RadofedError
from parties.history.database import HistoryDatabase, HistoryFileError
from parties.ledger.charges import Charge, bounds_text, read_charge
from parties.policy import Policy
from radobase.reading import FileKind, parse_json, with_remedy
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.query import OpenedQuery, Query
from wire.study import Study

MOST_WITHOUT_CHARGE = 10_000
"""The newest queries that cost nothing are kept, this many of them: nothing else limits how many a learner sends."""
MOST_OF_LEARNER_WITHOUT_CHARGE = 1000
"""Of them of one learner, so that none pushes out those of the others."""
MOST_BYTES_WITHOUT_CHARGE = 256 << 20
"""The signed queries among them that are kept take at most this many bytes."""
MOST_BYTES_OF_LEARNER_WITHOUT_CHARGE = 32 << 20
"""Of them those of one learner."""
ID_DIGITS = 64
"""Hexadecimal digits of a query's id."""
KEPT_REFUSALS = 20
"""The last refusals that `rado party check` looks at."""
# Forgetting is cheap, and nothing grows by much meanwhile.
_FORGET_EVERY = 64


class What(StrEnum):
    """What happened to a query. The value is stored."""

    WAITS = "waits for a decision"
    REFUSED = "refused"
    ACCEPTED = "accepted"
    COHORT = "cohort"
    CHARGED = "charged"
    UPLOADED = "uploaded"
    ENDED = "ended"
    UNANSWERED = "not answered"


@dataclass(frozen=True)
class Happened:
    """One event of a query."""

    attempt: int
    what: What
    at_unix_s: float
    details: Mapping[str, Any]
    """By name, as `History.happened` was given them."""


@dataclass(frozen=True)
class Shown:
    """A query that this party was shown."""

    query_id: bytes
    shown_at_unix_s: float
    learner: str
    kind: str
    """Empty if only the ledger knows the query."""
    contents: str
    not_after_unix_s: int
    rows: int | None
    """Of this party."""
    charge: Charge | None
    """Of one attempt, None if the query was refused before that was known."""
    words: str | None
    envelope: Envelope | None
    """None once they were kept for long enough."""
    purpose: str = ""
    """As the learner stated it; empty without one, or once it was kept for long enough."""
    study: Study | None = None
    """The study that the query names; None without one."""

    @property
    def query(self) -> Query | None:
        """What was signed, if it is still kept and is of version 0.2.1 or later."""
        if self.envelope is None:
            return None
        try:
            return Query.from_bytes(self.envelope.payload)
        except WireError:
            return None


@dataclass(frozen=True)
class Refused:
    """One refusal. detail never quotes a cell."""

    at_unix_s: float
    query_id: str
    """Hexadecimal."""
    attempt: int
    code: Code
    detail: str
    """A sentence, such as the differing fields of a schema; may be empty."""

    @classmethod
    def of(cls, query_id: bytes, attempt: int, at_unix_s: float, details: Mapping[str, Any]) -> "Refused":
        """From a stored event."""
        return cls(at_unix_s, query_id.hex(), attempt, Code(details["code"]), details["detail"])


@dataclass(frozen=True)
class HistoryPage:
    """Which queries to read, newest first. Raises ValueError if limit is below 1."""

    limit: int = 50
    offset: int = 0
    learner: str | None = None
    """Only this learner's. since, until: Unix seconds, the first included."""
    since_unix_s: float = 0.0
    until_unix_s: float = float("inf")

    def __post_init__(self) -> None:
        if self.limit < 1 or self.offset < 0:
            raise ValueError("a page has at least one query, and starts at 0 or later")


_DETAILS = FileKind(with_remedy("move the file aside"), limit_bytes=16 << 20)
# What an event changes in its query.
_FLAGS = {
    What.CHARGED: ("is_charged", 1),
    What.WAITS: ("is_waiting", 1),
    **dict.fromkeys((What.REFUSED, What.ACCEPTED, What.ENDED), ("is_waiting", 0)),
}
_DETAILS_OF = "SELECT details FROM events WHERE query_id = ? AND attempt = ? AND what = ?"
_SHOWN = """SELECT query_id, shown_at_unix_s, learner, kind, contents, not_after_unix_s, rows, bounds, epoch, words,
(SELECT purpose FROM purposes WHERE purposes.query_id = queries.query_id),
(SELECT statement FROM study_of JOIN studies USING (digest) WHERE study_of.query_id = queries.query_id),
envelope FROM queries"""
_WAITING = "WHERE is_waiting = 1 AND not_after_unix_s >= ?"
_COUNTED = "SELECT count(*) FROM queries"
_COUNTED_UNANSWERED = """SELECT count(DISTINCT query_id) FROM events AS came WHERE what = ? AND at_unix_s >= ? AND
NOT EXISTS (SELECT 1 FROM events WHERE query_id = came.query_id AND what <> ?)"""
# Beyond a number of rows or bytes, counted from the newest on: of each learner, and of all together.
_LEARNERS_OLDER = """SELECT query_id FROM (
    SELECT query_id, row_number() OVER (PARTITION BY learner ORDER BY shown_at_unix_s DESC) AS place
    FROM queries WHERE is_charged = 0) WHERE place > ?"""
_OLDER = "SELECT query_id FROM queries WHERE is_charged = 0 ORDER BY shown_at_unix_s DESC LIMIT -1 OFFSET ?"
_BEYOND = """SELECT query_id FROM (
    SELECT query_id, sum(length(envelope)) OVER ({part} ORDER BY shown_at_unix_s DESC) AS bytes
    FROM queries WHERE is_charged = 0 AND envelope IS NOT NULL) WHERE bytes > ?"""
_WITHOUT_ENVELOPE = _SHOWN.replace("envelope FROM queries", "NULL FROM queries")


class History:
    """The history of one party."""

    def __init__(self, database: HistoryDatabase, on_noted: Callable[[What], None] = lambda _: None) -> None:
        """on_noted: called for each event of an attempt, the first time."""
        self.database, self._on_noted = database, on_noted
        self._since_forgotten = 0

    def shown(self, opened: OpenedQuery, *, rows: int, charge: Charge | None, now_unix_s: float) -> None:
        """Note a query that verified, durably. A later call only adds what an attempt costs."""
        query = opened.query
        bounds, epoch = (None, None) if charge is None else (bounds_text(charge), charge.epoch)
        row = (query.learner, query.kind.name, query.kind.contents, query.not_after_unix_s, rows, bounds, epoch)
        with self.database.transaction() as connection:
            known = connection.execute("SELECT bounds FROM queries WHERE query_id = ?", (opened.query_id,)).fetchone()
            if known is None:
                connection.execute(
                    "INSERT INTO queries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?)",
                    (opened.query_id, now_unix_s, *row, query.words, opened.envelope.to_bytes()),
                )
                if query.purpose:
                    values = (opened.query_id, query.purpose)
                    connection.execute("INSERT OR REPLACE INTO purposes VALUES (?, ?)", values)
                if query.study is not None:
                    digest, statement = query.study.digest, query.study.to_bytes()
                    connection.execute("INSERT OR IGNORE INTO studies VALUES (?, ?)", (digest, statement))
                    connection.execute("INSERT OR REPLACE INTO study_of VALUES (?, ?)", (opened.query_id, digest))
                self._since_forgotten += 1
            elif known[0] is None and bounds is not None:
                connection.execute(
                    "UPDATE queries SET bounds = ?, epoch = ? WHERE query_id = ?", (bounds, epoch, opened.query_id)
                )

    def happened(self, query_id: bytes, attempt: int, what: What, now_unix_s: float, **details: Any) -> None:
        """Note an event, durably. The newest of the same kind in an attempt replaces the others.

        A refusal for the reason that is noted changes nothing: a coordinator may cause it at any pace.
        """
        with self.database.transaction() as connection:
            noted = _note(connection, query_id, attempt, what, now_unix_s, json.dumps(details))
        self._count(what, noted)

    def happened_late(self, query_id: bytes, attempt: int, what: What, now_unix_s: float, **details: Any) -> None:
        """Note an event as `happened` does, but with the next one, or a moment later.

        For what the ledger knows too, so that a crash loses nothing that counts. Of a query that waits for a person it
        is noted at once.
        """
        if self.waits(query_id):
            self.happened(query_id, attempt, what, now_unix_s, **details)
            return
        with self.database.reading() as connection:
            noted = connection.execute(_DETAILS_OF, (query_id, attempt, what.value)).fetchone()
        event = (query_id, attempt, what, now_unix_s, json.dumps(details))
        self.database.later(lambda connection: _note(connection, *event))
        self._count(what, noted)

    def _count(self, what: What, noted: tuple[str] | None) -> None:
        if noted is None:
            self._since_forgotten += 1
            self._on_noted(what)

    def has(self, query_id: bytes, attempt: int, what: What) -> bool:
        """Whether an event is noted."""
        with self._up_to_date() as connection:
            return connection.execute(_DETAILS_OF, (query_id, attempt, what.value)).fetchone() is not None

    def count_unanswered(self, since_unix_s: float) -> int:
        """How many queries came since then while this party answered nothing, and were not answered yet or at all."""
        with self._up_to_date() as connection:
            found: tuple[int] = connection.execute(
                _COUNTED_UNANSWERED, (What.UNANSWERED.value, since_unix_s, What.UNANSWERED.value)
            ).fetchone()
        return found[0]

    def data_digest(self, query_id: bytes, attempt: int) -> str:
        """The digest of the rows with which this party accepted an attempt; empty if that was not noted."""
        key = (query_id, attempt, What.ACCEPTED.value)
        with self._up_to_date() as connection:
            row = connection.execute(_DETAILS_OF, key).fetchone()
        with self.readable():
            return "" if row is None else str(self._details(row[0]).get("data", ""))

    def complete(self, charged: Iterable[tuple[bytes, str, float]]) -> int:
        """Add what only the ledger knows: queries that were charged before there was a history. Returns their number.

        charged: of each query that the ledger charged the id, the learner and the time.
        """
        added = 0
        with self.database.transaction() as connection:
            for query_id, learner, at_unix_s in charged:
                added += connection.execute(
                    "INSERT OR IGNORE INTO queries VALUES (?, ?, ?, '', '', 0, NULL, NULL, NULL, 1, 0, NULL, NULL)",
                    (query_id, at_unix_s, learner),
                ).rowcount
                connection.execute("UPDATE queries SET is_charged = 1 WHERE query_id = ?", (query_id,))
        return added

    def forget(self, *, whole_before_unix_s: float, predicates_before_unix_s: float, at_once: bool = True) -> None:
        """Delete queries that were shown before the one time, and what older ones asked in detail.

        at_once: False to wait until some queries were added.
        """
        if not at_once and self._since_forgotten < _FORGET_EVERY:
            return
        self._since_forgotten = 0
        with self.database.transaction() as connection:
            connection.execute("DELETE FROM queries WHERE shown_at_unix_s < ?", (whole_before_unix_s,))
            for older, most in ((_LEARNERS_OLDER, MOST_OF_LEARNER_WITHOUT_CHARGE), (_OLDER, MOST_WITHOUT_CHARGE)):
                connection.execute(f"DELETE FROM queries WHERE query_id IN ({older})", (most,))  # noqa: S608
            connection.execute(
                "UPDATE queries SET words = NULL, envelope = NULL WHERE shown_at_unix_s < ? AND envelope IS NOT NULL",
                (predicates_before_unix_s,),
            )
            for part, most in (
                ("PARTITION BY learner", MOST_BYTES_OF_LEARNER_WITHOUT_CHARGE),
                ("", MOST_BYTES_WITHOUT_CHARGE),
            ):
                beyond = _BEYOND.format(part=part)
                connection.execute(
                    f"UPDATE queries SET words = NULL, envelope = NULL WHERE query_id IN ({beyond})",  # noqa: S608
                    (most,),
                )
            connection.execute(
                "DELETE FROM purposes WHERE query_id NOT IN (SELECT query_id FROM queries WHERE words IS NOT NULL)"
            )
            connection.execute("DELETE FROM study_of WHERE query_id NOT IN (SELECT query_id FROM queries)")
            connection.execute("DELETE FROM studies WHERE digest NOT IN (SELECT digest FROM study_of)")
            # A refusal of a query that a learner signed, and that could not be opened, has no query here.
            for table, kept in (("events", MOST_WITHOUT_CHARGE), ("decisions", 0)):
                connection.execute(
                    f"DELETE FROM {table} WHERE query_id NOT IN (SELECT query_id FROM queries) "  # noqa: S608
                    f"AND rowid <= (SELECT max(rowid) - {kept} FROM {table})"
                )

    def page(self, page: HistoryPage) -> list[Shown]:
        """Queries without their envelopes, newest first."""
        conditions, values = ["shown_at_unix_s >= ?", "shown_at_unix_s < ?"], [page.since_unix_s, page.until_unix_s]
        if page.learner is not None:
            conditions.append("learner = ?")
            values.append(page.learner)  # type: ignore[arg-type]  # a row of several types
        text = f"{_WITHOUT_ENVELOPE} WHERE {' AND '.join(conditions)} ORDER BY shown_at_unix_s DESC LIMIT ? OFFSET ?"
        with self._up_to_date() as connection:
            return self._shown(connection.execute(text, (*values, page.limit, page.offset)).fetchall())

    def count(self, page: HistoryPage) -> int:
        """The number of queries on this page and all that follow or precede it."""
        learner = "" if page.learner is None else " AND learner = ?"
        values = [page.since_unix_s, page.until_unix_s, *([] if page.learner is None else [page.learner])]
        text = f"SELECT count(*) FROM queries WHERE shown_at_unix_s >= ? AND shown_at_unix_s < ?{learner}"  # noqa: S608
        with self._up_to_date() as connection:
            (found,) = connection.execute(text, values).fetchone()
        return int(found)

    def find(self, prefix: str) -> list[Shown]:
        """The queries whose id begins with these hexadecimal digits, with their envelopes; at most two.

        Raises ValueError if these are no digits, or too many.
        """
        first, last = (bytes.fromhex(prefix.ljust(ID_DIGITS, filler)) for filler in "0f")
        with self._up_to_date() as connection:
            rows = connection.execute(f"{_SHOWN} WHERE query_id BETWEEN ? AND ? LIMIT 2", (first, last)).fetchall()
        return self._shown(rows)

    def events(self, query_ids: Iterable[bytes]) -> dict[bytes, list[Happened]]:
        """The events of these queries, in the order in which they happened."""
        found: dict[bytes, list[Happened]] = {query_id: [] for query_id in query_ids}
        with self._up_to_date() as connection:
            for query_id, events in found.items():
                for attempt, what, at_unix_s, details in connection.execute(
                    "SELECT attempt, what, at_unix_s, details FROM events WHERE query_id = ? ORDER BY at_unix_s, rowid",
                    (query_id,),
                ).fetchall():
                    with self.readable():
                        events.append(Happened(attempt, What(what), at_unix_s, self._details(details)))
        return found

    def refusals(self, most: int = KEPT_REFUSALS) -> list[Refused]:
        """The last refusals, oldest first; also of queries that a learner signed and that could not be opened."""
        with self._up_to_date() as connection:
            rows = connection.execute(
                "SELECT query_id, attempt, at_unix_s, details FROM events WHERE what = ? ORDER BY rowid DESC LIMIT ?",
                (What.REFUSED.value, most),
            ).fetchall()[::-1]
        with self.readable():
            return [Refused.of(query_id, attempt, at, self._details(text)) for query_id, attempt, at, text in rows]

    @contextmanager
    def _up_to_date(self) -> Iterator[sqlite3.Connection]:
        """For reading, with what is written late."""
        self.database.flush()
        with self.database.reading() as connection:
            yield connection

    def _shown(self, rows: Iterable[tuple[Any, ...]]) -> list[Shown]:
        with self.readable():
            return [_shown(row) for row in rows]

    def _details(self, text: str) -> dict[str, Any]:
        return parse_json(text, self.database.path, _DETAILS)

    @contextmanager
    def readable(self) -> Iterator[None]:
        """Inside, what this program did not write raises HistoryFileError."""
        try:
            yield
        except (RadofedError, ValueError, TypeError, KeyError) as error:
            cause = f"an entry that cannot be read: {type(error).__name__}"
            raise HistoryFileError(self.database.path, cause) from error

    def waits(self, query_id: bytes) -> bool:
        """Whether a query waits for a decision, as far as this history knows."""
        with self.database.reading() as connection:
            row = connection.execute("SELECT is_waiting FROM queries WHERE query_id = ?", (query_id,)).fetchone()
        return row is not None and bool(row[0])

    def waiting_ids(self) -> set[bytes]:
        """The ids of all queries that wait for a decision, also of expired ones."""
        with self.database.reading() as connection:
            return {query_id for (query_id,) in connection.execute("SELECT query_id FROM queries WHERE is_waiting = 1")}

    def waiting(self, now_unix_s: float) -> list[Shown]:
        """Queries that wait for a decision and have not expired, with their envelopes, oldest first.

        That a person has decided since does not matter here (parties.history.approvals).
        """
        with self.database.reading() as connection:
            rows = connection.execute(f"{_SHOWN} {_WAITING} ORDER BY shown_at_unix_s", (now_unix_s,)).fetchall()
        return self._shown(rows)

    def oldest_waiting_unix_s(self, now_unix_s: float) -> float | None:
        """When the oldest of those that `waiting` would return was shown; None if none waits."""
        with self.database.reading() as connection:
            found: tuple[float | None] = connection.execute(
                f"SELECT min(shown_at_unix_s) FROM queries {_WAITING}",  # noqa: S608
                (now_unix_s,),
            ).fetchone()
        return found[0]

    def count_waiting(self, now_unix_s: float) -> int:
        """How many `waiting` would return, without reading them."""
        with self.database.reading() as connection:
            found: tuple[int] = connection.execute(f"{_COUNTED} {_WAITING}", (now_unix_s,)).fetchone()
        return found[0]


def _note(
    connection: sqlite3.Connection, query_id: bytes, attempt: int, what: What, now_unix_s: float, text: str
) -> tuple[str] | None:
    """Write an event. text: its details. Returns those that were noted before, None for none."""
    key = (query_id, attempt, what.value)
    noted: tuple[str] | None = connection.execute(_DETAILS_OF, key).fetchone()
    if noted is None or what is not What.REFUSED or noted[0] != text:
        connection.execute("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?)", (*key, now_unix_s, text))
    if what in _FLAGS:
        column, value = _FLAGS[what]
        connection.execute(
            f"UPDATE queries SET {column} = ? WHERE query_id = ? AND {column} <> ?",  # noqa: S608
            (value, query_id, value),
        )
    return noted


def _shown(row: tuple[Any, ...]) -> Shown:
    query_id, at_unix_s, learner, kind, contents, not_after, rows, bounds, epoch, words, purpose, study, envelope = row
    return Shown(
        query_id,
        at_unix_s,
        learner,
        kind,
        contents,
        not_after,
        rows,
        None if bounds is None else read_charge(bounds, learner, epoch),
        words,
        None if envelope is None else Envelope.from_bytes(envelope),
        purpose or "",
        None if study is None else Study.from_bytes(study),
    )


# Under which policies a party decided: each decision in the history names the policy's digest and its limits.


_DECIDED = f"""SELECT at_unix_s, coalesce(json_extract(details, '$.policy'), ''),
    coalesce(json_extract(details, '$.limits'), '') FROM events
    WHERE what IN ('{What.ACCEPTED.value}', '{What.REFUSED.value}') AND at_unix_s < ? AND json_valid(details)
    ORDER BY at_unix_s, rowid"""  # noqa: S608  (constants of this program)


@dataclass(frozen=True)
class PolicyRead:
    """Decisions in a row under one policy."""

    digest: str
    """`Policy.digest`."""
    limits: str
    """In words. first, last: their times."""
    first_unix_s: float
    last_unix_s: float
    decisions: int


@dataclass(frozen=True)
class PoliciesRead:
    """The policies of all decisions that are kept, oldest first."""

    policies: tuple[PolicyRead, ...]
    unknown: int
    """Decisions that name none."""

    @property
    def limits(self) -> tuple[PolicyRead, ...]:
        """As `policies`, with those in a row joined that have equal limits, under the digest of the last."""
        found: list[PolicyRead] = []
        for each in self.policies:
            if found and found[-1].limits == each.limits:
                last = found.pop()
                decisions = last.decisions + each.decisions
                found.append(replace(each, first_unix_s=last.first_unix_s, decisions=decisions))
            else:
                found.append(each)
        return tuple(found)


def facts_of(policy: Policy) -> dict[str, str]:
    """What a decision's event says of the policy that it followed."""
    return {"policy": policy.digest, "limits": str(policy.limits.of_ledger)}


def policies_of(database: HistoryDatabase, before_unix_s: float) -> PoliciesRead:
    """The policies of the decisions before a time. Raises what HistoryDatabase raises."""
    database.flush()
    with database.reading() as connection:
        return _joined(connection.execute(_DECIDED, (before_unix_s,)).fetchall())


def _joined(decisions: Iterable[tuple[float, str, str]]) -> PoliciesRead:
    found: list[PolicyRead] = []
    unknown = 0
    for at_unix_s, digest, limits in decisions:
        if not digest:
            unknown += 1
        elif found and (found[-1].digest, found[-1].limits) == (digest, limits):
            found.append(replace(found[-1], last_unix_s=at_unix_s, decisions=found.pop().decisions + 1))
        else:
            found.append(PolicyRead(digest, limits, at_unix_s, at_unix_s, 1))
    return PoliciesRead(tuple(found), unknown)
