"""A learner's state on disk: the newest roster, and every query before it is sent.

roster.signed             the newest roster seen
rows                      how many rows each party last stated with a signature, when, and by which key, in JSON
queries/ID/query.signed   a query, on disk before it is sent
queries/ID/roster.signed  the roster that it was planned with
queries/ID/opening.key    the secret of its binding; erased once its total was opened, or cannot be opened any more
queries/ID/sent           exists once the coordinator has acknowledged the query
queries/ID/attempts       number of the last attempt that the learner signed, in decimal; absent for the first
queries/ID/ended          why it ended without a total, in JSON, as the coordinator said it; absent otherwise
"""

import json
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError
from radobase.failure import in_words
from radobase.reading import FileKind, read_bytes, read_json, with_remedy
from radobase.writing import overwrite_durably, publish_directory, sync_directory, write_durably
from wire.binding import OpeningSecret
from wire.envelopes import KEY_BYTES, Envelope, key_id
from wire.errors import Code, WireError
from wire.query import Query
from wire.roster import Member, Role, Roster, open_roster

_ROSTER, _QUERY, _SENT, _OPENING = "roster.signed", "query.signed", "sent", "opening.key"
_ATTEMPTS, _ENDED = "attempts", "ended"
_ENVELOPE = FileKind(with_remedy("restore the state directory from its copy"), limit_bytes=4 << 20, decides=True)
_SECRET = FileKind(
    with_remedy("restore it from its copy, or send a new query"),
    limit_bytes=KEY_BYTES,
    secret=True,
    private=True,
)
_NUMBER = FileKind(
    with_remedy("write the number of the last attempt that was started into it, in decimal"), limit_bytes=8
)
_END = FileKind(with_remedy("remove it"), limit_bytes=1 << 16)
_ROWS = "rows"
_ROWS_FILE = FileKind(with_remedy("remove it: parties state their rows again"), limit_bytes=1 << 20)
_LONGEST_DETAIL = 1000
_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class AskedQuery:
    """A signed query of this learner, with the roster that it was planned with."""

    query: Envelope
    roster: Envelope

    @property
    def query_id(self) -> bytes:
        """SHA-256 of the query's payload."""
        return self.query.payload_hash

    @property
    def not_asked(self) -> tuple[str, ...]:
        """The parties of the roster that the query does not ask."""
        query, roster = Query.from_bytes(self.query.payload), Roster.from_bytes(self.roster.payload)
        return tuple(party.name for party in roster.parties if not query.asks(party.name))


class LearnerState:
    """The state directory of one learner. Every method raises ConfigurationError if the disk fails."""

    def __init__(self, directory: Path, federation_key: bytes) -> None:
        self._directory = directory
        self._federation_key = federation_key
        self._queries = directory / "queries"
        try:
            self._queries.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(directory, error) from error

    def newest_roster(self) -> Envelope | None:
        """The newest roster seen, verified, or None."""
        path = self._directory / _ROSTER
        if not path.exists():
            return None
        envelope = _read(path)
        open_roster(envelope, self._federation_key)
        return envelope

    def newest_version(self) -> int:
        """The version of the newest roster seen, 0 before the first."""
        envelope = self.newest_roster()
        return 0 if envelope is None else open_roster(envelope, self._federation_key).version

    def accept_roster(self, envelope: Envelope, federation: str) -> Roster:
        """Verify a roster of this federation, and store it if it is the newest.

        Raises WireError(SIGNATURE_INVALID, MESSAGE_MALFORMED, FEDERATION_MISMATCH), and WireError(ROSTER_STALE) if a
        newer roster, or another one of the same version, is stored.
        """
        known = self.newest_roster()
        if known is None:
            roster = open_roster(envelope, self._federation_key)
        else:
            version = open_roster(known, self._federation_key).version
            roster = open_roster(envelope, self._federation_key, at_least_version=version)
            if roster.version == version and envelope.payload != known.payload:
                raise WireError(Code.ROSTER_STALE, f"There are two rosters of version {version}.")
        # Before it is stored: one of a higher version would take the place of this federation's for ever.
        if roster.federation != federation:
            raise WireError(Code.FEDERATION_MISMATCH, f"The roster is of federation {roster.federation!r}.")
        if known is None or envelope.payload != known.payload:
            _write(self._directory / _ROSTER, envelope.to_bytes())
        return roster

    def rows_stated(self, roster: Roster) -> dict[str, int]:
        """How many rows parties last stated, in statements signed with the keys that the roster lists, by name."""
        found = {}
        for name, stated in self._all_rows().items():
            member = roster.find(name, Role.PARTY)
            if member is not None and key_id(member.signing_key).hex() == stated["key"]:
                found[name] = int(stated["rows"])
        return found

    def rows_of(self, parties: Iterable[Member], roster: Roster) -> dict[str, int | None]:
        """How many rows parties of the roster have, by name: as last stated, otherwise as the roster states."""
        stated = self.rows_stated(roster)
        return {member.name: stated.get(member.name, member.rows_at_least) for member in parties}

    def note_rows(self, rows: Mapping[str, int], roster: Roster, at_unix_s: int) -> None:
        """Record what parties of a roster stated in verified statements on a query of this time, if that is newer."""
        known = self._all_rows()
        newer = {
            member.name: {"rows": rows[member.name], "at_unix_s": at_unix_s, "key": key_id(member.signing_key).hex()}
            for member in roster.parties
            if member.name in rows and at_unix_s >= known.get(member.name, {"at_unix_s": 0})["at_unix_s"]
        }
        if newer and {**known, **newer} != known:
            _write(self._directory / _ROWS, json.dumps({**known, **newer}, indent=1).encode())

    def _all_rows(self) -> dict[str, dict[str, Any]]:
        path = self._directory / _ROWS
        known = read_json(path, _ROWS_FILE) if path.exists() else {}
        for stated in known.values():
            fields = stated if isinstance(stated, dict) else {}
            numbers = [fields.get("rows"), fields.get("at_unix_s")]
            if not (all(type(each) is int and each > 0 for each in numbers) and isinstance(fields.get("key"), str)):
                raise _ROWS_FILE.error(path, "not the rows that parties stated")
        return known

    def remember(self, asked: AskedQuery, opening: OpeningSecret) -> None:
        """Write a query and the secret of its binding to disk, as a whole or not at all. Idempotent."""
        directory = self._directory_of(asked.query_id)
        if self.has(asked.query_id):
            return
        unfinished = directory.with_name(f".{directory.name}.unfinished")
        try:
            for left in (unfinished, directory):
                shutil.rmtree(left, ignore_errors=True)
            unfinished.mkdir()
            contents = {
                _ROSTER: asked.roster.to_bytes(),
                _OPENING: opening.private_bytes,
                _QUERY: asked.query.to_bytes(),
            }
            for name, content in contents.items():
                overwrite_durably(unfinished / name, content)
            publish_directory(unfinished, directory)
        except OSError as error:
            raise _unusable(directory, error) from error

    def opening(self, query_id: bytes) -> OpeningSecret | None:
        """The secret of a query's binding; None if it was erased."""
        path = self._directory_of(query_id) / _OPENING
        if not path.exists():
            return None
        secret = read_bytes(path, _SECRET)
        if len(secret) != KEY_BYTES:
            raise _SECRET.error(path, "not an opening key")
        return OpeningSecret(secret)

    def erase_opening(self, query_id: bytes) -> None:
        """Overwrite and delete the secret of a query's binding. A file system may keep older copies of its blocks."""
        path = self._directory_of(query_id) / _OPENING
        if not path.exists():
            return
        try:
            overwrite_durably(path, bytes(KEY_BYTES))
            path.unlink()
            sync_directory(path.parent)
        except OSError as error:
            raise _unusable(path, error) from error

    def mark_sent(self, query_id: bytes) -> None:
        """Record that the coordinator has acknowledged the query."""
        # Not synchronised: if it is lost, the same bytes are sent once more.
        _write(self._directory_of(query_id) / _SENT, b"", synced=False)

    def is_sent(self, query_id: bytes) -> bool:
        """Whether the coordinator has acknowledged the query."""
        return (self._directory_of(query_id) / _SENT).exists()

    def note_attempt(self, query_id: bytes, attempt: int) -> None:
        """Record, before it leaves, that the learner signs an attempt. Attempts are never forgotten."""
        if attempt > self.attempts_signed(query_id):
            _write(self._directory_of(query_id) / _ATTEMPTS, str(attempt).encode())

    def attempts_signed(self, query_id: bytes) -> int:
        """The number of the last attempt that the learner signed; the query itself is the signature of the first."""
        path = self._directory_of(query_id) / _ATTEMPTS
        if not path.exists():
            return 1
        text = read_bytes(path, _NUMBER)
        if not text.isdigit() or int(text) < 1:
            raise _NUMBER.error(path, "not a number of attempts")
        return int(text)

    def note_end(self, query_id: bytes, code: str, detail: str) -> None:
        """Record why a query of this directory ended without a total. Idempotent."""
        directory = self._directory_of(query_id)
        if (directory / _QUERY).exists() and not (directory / _ENDED).exists():
            ended = {"code": code, "detail": detail[:_LONGEST_DETAIL], "at_unix_s": int(time.time())}
            _write(directory / _ENDED, json.dumps(ended).encode())

    def end(self, query_id: bytes) -> dict[str, Any] | None:
        """The code, detail and time of a query's end without a total; None if it is not known to have ended so."""
        path = self._directory_of(query_id) / _ENDED
        return read_json(path, _END) if path.exists() else None

    def newest_queries(self) -> list[bytes]:
        """The ids of all queries in this directory, by the time at which they were written, newest first."""

        def written_at(query_id: bytes) -> float:
            return (self._directory_of(query_id) / _QUERY).stat().st_mtime

        return sorted(self.query_ids(), key=written_at, reverse=True)

    def find(self, query_id: bytes) -> AskedQuery:
        """A query of this directory. Raises WireError(QUERY_UNKNOWN) if there is none with this id."""
        directory = self._directory_of(query_id)
        if not self.has(query_id):
            raise WireError(Code.QUERY_UNKNOWN, f"{self._directory} has no query {query_id.hex()}.")
        asked = AskedQuery(_read(directory / _QUERY), _read(directory / _ROSTER))
        if asked.query_id != query_id:
            raise ConfigurationError(f"{directory}: contains another query; restore the directory from its copy")
        return asked

    def has(self, query_id: bytes) -> bool:
        """Whether this directory has a query."""
        return (self._directory_of(query_id) / _QUERY).exists()

    def query_ids(self) -> tuple[bytes, ...]:
        """The ids of all queries in this directory, sorted."""
        names = (path.parent.name for path in self._queries.glob(f"*/{_QUERY}"))
        # A copy of a query's directory has another name and is ignored.
        return tuple(sorted(bytes.fromhex(name) for name in names if _ID.fullmatch(name)))

    def _directory_of(self, query_id: bytes) -> Path:
        return self._queries / query_id.hex()


def _read(path: Path) -> Envelope:
    try:
        return Envelope.from_bytes(read_bytes(path, _ENVELOPE))
    except WireError as error:
        raise _ENVELOPE.error(path, "damaged") from error


def _write(path: Path, content: bytes, *, synced: bool = True) -> None:
    try:
        write_durably(path, content, synced=synced)
    except OSError as error:
        raise _unusable(path, error) from error


def _unusable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{path}: cannot be used ({in_words(error)})")
