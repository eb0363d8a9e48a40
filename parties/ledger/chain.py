r"""The ledger's chain: one entry for each reservation and each charge, each bound to all entries before it.

An approval of several queries has an entry when it is given, and one when it ends before its time: a copy of the ledger
from between both has an older head.

    digest_0 = SHA-256("rado.v1/ledger-genesis\0" || owner || 16 random bytes of the file)
    digest_k = SHA-256("rado.v1/ledger-entry\0" || digest_(k-1) || content of entry k)

The content has the entry's number, its kind and every column of its event, each with type and length. The events are
the working state; `faults` recomputes the chain and compares it with them in both directions.

The head (the number and digest of the last entry) is kept outside of the file, beside it (parties.ledger.head) and by
other parties (wire.statements).

Numbers count from 1 without gaps, except that an acknowledgement (parties.ledger.acknowledgement) continues above every
head that others may hold.
"""

import sqlite3
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from wire.envelopes import sha256

NONCE_BYTES = 16
# A trail proves nothing to others: it is sealed, and compared only by the party that wrote it.
TRAIL_BYTES = 4
NONCE_KEY = "nonce"
"""Key of the random bytes, in hexadecimal, in the table `identity`."""

CHAIN_TABLE = """
CREATE TABLE chain (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,              -- reserved, charged or acknowledged; given or ended of an approval
    query_id BLOB NOT NULL,          -- this and the rest: the event as it then was
    attempt INTEGER NOT NULL,
    learner TEXT NOT NULL,
    epoch BLOB,
    bounds TEXT NOT NULL,
    lapses_at_unix_s REAL NOT NULL,
    cohort_digest BLOB,
    spool_digest BLOB,
    recorded_at_unix_s REAL NOT NULL,
    digest BLOB NOT NULL
) STRICT
"""

_CONTENT = (
    "query_id, attempt, learner, epoch, bounds, lapses_at_unix_s, cohort_digest, spool_digest, recorded_at_unix_s"
)
_APPROVAL_CONTENT = "approval_id, 0, '', NULL, terms, until_unix_s, NULL, NULL, changed_at_unix_s"
_OWNER = ("federation", "party", "source")

Value: TypeAlias = bytes | str | int | float | None


class EntryKind(StrEnum):
    """Kinds of entry. acknowledged: a charge for what a ledger that was set back no longer holds.

    given, ended: of an approval of several queries (parties.ledger.approvals).
    """

    RESERVED = "reserved"
    CHARGED = "charged"
    ACKNOWLEDGED = "acknowledged"
    GIVEN = "given"
    ENDED = "ended"


_OF_APPROVALS = (EntryKind.GIVEN.value, EntryKind.ENDED.value)


@dataclass(frozen=True)
class Head:
    """The chain's last entry: its number, 0 if there is none, and the digest after it, 32 bytes."""

    entries: int
    digest: bytes


def genesis(identity: Mapping[str, str]) -> bytes:
    """digest_0. identity: owner and random bytes, as in the table `identity`; what is missing counts as empty."""
    fields = (*_OWNER, NONCE_KEY)
    return sha256(b"rado.v1/ledger-genesis\0", *(_encoded(identity.get(key, "")) for key in fields))


def digest_after(before: bytes, number: int, kind: str, content: tuple[Value, ...]) -> bytes:
    """digest_k. before: digest_(k-1). content: the event's columns, in the order of the table."""
    return sha256(b"rado.v1/ledger-entry\0", before, *map(_encoded, (number, kind, *content)))


def genesis_of(connection: sqlite3.Connection) -> bytes:
    """digest_0 of an open ledger."""
    return genesis(dict(connection.execute("SELECT key, value FROM identity")))


def head(connection: sqlite3.Connection) -> Head:
    """The head, as stored."""
    row = connection.execute("SELECT number, digest FROM chain ORDER BY number DESC LIMIT 1").fetchone()
    return Head(0, genesis_of(connection)) if row is None else Head(*row)


def digest_at(connection: sqlite3.Connection, number: int) -> bytes | None:
    """The digest after an entry, genesis for 0. None if there is no such entry."""
    if number == 0:
        return genesis_of(connection)
    row = connection.execute("SELECT digest FROM chain WHERE number = ?", (number,)).fetchone()
    return None if row is None else bytes(row[0])


def trail(connection: sqlite3.Connection, entries: int) -> tuple[bytes, ...]:
    """The beginnings of the digests at numbers before a head, for `common_entries`; zeros where there is no entry."""
    numbers = _trail_numbers(entries)
    marks = ", ".join("?" * len(numbers))
    rows = connection.execute(f"SELECT number, digest FROM chain WHERE number IN ({marks})", numbers)  # noqa: S608
    digests = {0: genesis_of(connection), **dict(rows)}
    return tuple(digests.get(number, bytes(TRAIL_BYTES))[:TRAIL_BYTES] for number in numbers)


def common_entries(connection: sqlite3.Connection, entries: int, found: tuple[bytes, ...]) -> int | None:
    """The highest number up to which this ledger provably has the entries of a head with this trail, or None.

    It is at most half as far again from the head as the last common entry.
    """
    for number, beginning in zip(_trail_numbers(entries), found, strict=False):
        digest = digest_at(connection, number)
        if digest is not None and digest[:TRAIL_BYTES] == beginning:
            return number
    return None


def _trail_numbers(entries: int) -> list[int]:
    """entries, then entries - 1, - 2, - 3, - 4, - 6, - 8, - 12 and so on, and 0."""
    powers = [1 << power for power in range(entries.bit_length())]
    back = sorted({*powers, *(power + power // 2 for power in powers)})
    return [entries, *(entries - step for step in back if step < entries), 0]


def acknowledged_up_to(connection: sqlite3.Connection) -> int:
    """The number of the newest acknowledgement, 0 if there is none. Heads below it no longer count."""
    (number,) = connection.execute(
        "SELECT coalesce(max(number), 0) FROM chain WHERE kind = ?", (EntryKind.ACKNOWLEDGED.value,)
    ).fetchone()
    return int(number)


def append(
    connection: sqlite3.Connection, kind: EntryKind, query_id: bytes, attempt: int, *, number: int | None = None
) -> Head:
    """Add an entry for an event as it now is, within the caller's transaction. Returns the new head.

    number: of an acknowledgement, above the last entry's; by default the next number. Raises sqlite3.DatabaseError if
    the file is damaged.
    """
    last = head(connection)
    number = last.entries + 1 if number is None else number
    content = connection.execute(
        f"SELECT {_CONTENT} FROM events WHERE query_id = ? AND attempt = ?",  # noqa: S608 - no outside text
        (query_id, attempt),
    ).fetchone()
    if content is None:
        # The event is there: it is found by an index, which nothing has compared with the table.
        error = sqlite3.DatabaseError(f"the index of events lacks {_named(query_id, attempt)}")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
    return _insert(connection, last, number, kind, content)


def append_approval(connection: sqlite3.Connection, kind: EntryKind, approval_id: bytes) -> Head:
    """Add an entry for an approval as it now is, within the caller's transaction. Returns the new head.

    Its terms stand where an event has its bounds, and its attempt is 0, which no event has.
    """
    last = head(connection)
    content = connection.execute(
        f"SELECT {_APPROVAL_CONTENT} FROM approvals WHERE approval_id = ?",  # noqa: S608 - no outside text
        (approval_id,),
    ).fetchone()
    return _insert(connection, last, last.entries + 1, kind, content)


def _insert(
    connection: sqlite3.Connection, last: Head, number: int, kind: EntryKind, content: tuple[Value, ...]
) -> Head:
    digest = digest_after(last.digest, number, kind.value, content)
    marks = ", ".join("?" * (len(content) + 3))
    connection.execute(f"INSERT INTO chain VALUES ({marks})", (number, kind.value, *content, digest))  # noqa: S608
    return Head(number, digest)


def append_all(connection: sqlite3.Connection) -> None:
    """Add an entry for each event of a ledger that had no chain, in the order in which they were recorded."""
    for query_id, attempt, state in connection.execute(
        "SELECT query_id, attempt, state FROM events ORDER BY rowid"
    ).fetchall():
        append(connection, EntryKind(state), query_id, attempt)


def faults(connection: sqlite3.Connection) -> list[str]:
    """What contradicts the chain, one sentence each; empty if nothing does."""
    try:
        return [*_broken(connection), *_differing(connection), *_differing_approvals(connection)]
    except (sqlite3.Error, ValueError) as error:
        return [f"the chain is not readable ({error})"]


def _broken(connection: sqlite3.Connection) -> Iterator[str]:
    """Entries that do not follow from those before them."""
    last, before = 0, genesis_of(connection)
    for number, kind, *content, digest in connection.execute(
        f"SELECT number, kind, {_CONTENT}, digest FROM chain ORDER BY number"  # noqa: S608 - no outside text
    ):
        if number != last + 1 and not (kind == EntryKind.ACKNOWLEDGED.value and number > last):
            yield f"entry {number}: follows entry {last}; entries are missing"
        if kind not in set(EntryKind):
            yield f"entry {number}: is of the unknown kind {kind!r}"
        if digest_after(before, number, kind, tuple(content)) != digest:
            yield f"entry {number} ({_named(content[0], content[1])}): its content differs from its digest"
        last, before = number, digest


def _differing(connection: sqlite3.Connection) -> Iterator[str]:
    """Events without their entry, and entries of charges without their event."""
    newest: dict[bool, dict[tuple[Value, ...], list[Value]]] = {False: {}, True: {}}
    for kind, *content in connection.execute(f"SELECT kind, {_CONTENT} FROM chain ORDER BY number"):  # noqa: S608
        if kind in _OF_APPROVALS:
            continue
        newest[kind != EntryKind.RESERVED.value][tuple(content[:2])] = content
    charged = set()
    for state, *content in connection.execute(f"SELECT state, {_CONTENT} FROM events ORDER BY rowid"):  # noqa: S608
        is_charged = state == EntryKind.CHARGED.value
        key = tuple(content[:2])
        if is_charged:
            charged.add(key)
        if newest[is_charged].get(key) != content:
            yield f"{_named(*key)}: is {state} otherwise than the chain says"
    for key in newest[True]:
        if key not in charged:
            yield f"{_named(*key)}: is charged in the chain, but the ledger does not count it"


def _differing_approvals(connection: sqlite3.Connection) -> Iterator[str]:
    """Approvals that were given or ended otherwise than the chain says, and those that only one of both has."""
    newest: dict[Value, tuple[str, list[Value]]] = {}
    for kind, *content in connection.execute(
        f"SELECT kind, {_CONTENT} FROM chain WHERE kind IN (?, ?) ORDER BY number",  # noqa: S608 - no outside text
        _OF_APPROVALS,
    ):
        newest[content[0]] = (kind, content)
    there = {}
    for state, *content in connection.execute(f"SELECT state, {_APPROVAL_CONTENT} FROM approvals"):  # noqa: S608
        there[content[0]] = (state, content)
    for approval_id in {*newest, *(key for key, (state, _) in there.items() if state in _OF_APPROVALS)}:
        if newest.get(approval_id) != there.get(approval_id):
            found = approval_id.hex()[:16] if isinstance(approval_id, bytes) else repr(approval_id)
            yield f"approval {found}: is otherwise than the chain says"


def _named(query_id: Value, attempt: Value) -> str:
    found = query_id.hex()[:16] if isinstance(query_id, bytes) else repr(query_id)
    return f"query {found}, attempt {attempt!r}"


def _encoded(value: Value) -> bytes:
    """A value with its type and length, so that no two lists of values have the same bytes."""
    match value:
        case None:
            return b"n"
        case bytes():
            return b"b" + len(value).to_bytes(8, "big") + value
        case str():
            text = value.encode()
            return b"t" + len(text).to_bytes(8, "big") + text
        case int():
            return b"i" + value.to_bytes(8, "big", signed=True)
        case float():
            return b"d" + struct.pack(">d", value)
