"""What a learner asked and what became of it, read from its own disk: no coordinator is asked."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError, RadofedError
from learner.config import LearnerConfig
from learner.release import Release, possible_attempts
from learner.state import LearnerState
from radobase.printing import json_text, local_time
from wire.envelopes import load_public_key, sha256
from wire.query import Query
from wire.query_kinds import kind_bytes
from wire.query_summary import QuerySummary
from wire.roster import Member, Roster
from wire.study import Study

RELEASE_NAME_DIGITS = 16


@dataclass(frozen=True)
class AskedRead:
    """One query of a learner."""

    query_id: bytes
    asked: QuerySummary
    outcome: str
    """In words."""
    attempts: int
    """How many may have a total."""
    opened_attempt: int | None = None
    cohort: dict[str, int] | None = None
    """Rows of each party."""
    cohort_digest: str | None = None
    privacy: dict[str, Any] | None = None
    release: str | None = None
    """Directory of the opened total. This and the four fields before it are None if none was opened."""

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, in JSON types."""
        return {
            "query_id": self.query_id.hex(),
            "shown_at_unix_s": self.asked.created_at_unix_s,
            "learner": self.asked.learner,
            "kind": self.asked.kind,
            "asked": self.asked.words,
            "purpose": self.asked.purpose or None,
            "study": None if self.asked.study is None else self.asked.study.to_dict(),
            "outcome": self.outcome,
            "attempts_possible": self.attempts,
            "opened_attempt": self.opened_attempt,
            "cohort": self.cohort,
            "cohort_digest": self.cohort_digest,
            "privacy": self.privacy,
            "release": self.release,
        }


class LearnerHistory:
    """The history of one learner. Changes nothing. Raises ConfigurationError if its state directory is missing."""

    def __init__(self, config: LearnerConfig) -> None:
        if not config.state_directory.is_dir():
            raise ConfigurationError(f"{config.state_directory}: this learner has asked nothing yet")
        self._config = config
        self._state = LearnerState(config.state_directory, load_public_key(config.federation_key))

    @property
    def query_ids(self) -> Sequence[bytes]:
        """The ids of all queries, newest first."""
        return self._state.newest_queries()

    def is_open(self, query_id: bytes) -> bool:
        """Whether the query was sent, may still get a total, and was not opened here. Raises as `read` does."""
        if not self._state.is_sent(query_id) or self._state.end(query_id) is not None:
            return False
        query = Query.from_bytes(self._state.find(query_id).query.payload)
        return time.time() <= query.not_after_unix_s and not self.directory(query_id).exists()

    def is_sent(self, query_id: bytes) -> bool:
        """Whether the coordinator has acknowledged the query."""
        return self._state.is_sent(query_id)

    def not_asked(self, query_id: bytes) -> tuple[str, ...]:
        """The parties of the query's roster that it does not ask. Raises as `read` does."""
        return self._state.find(query_id).not_asked

    @property
    def newest_query(self) -> Query | None:
        """The newest query; None before the first."""
        ids = self.query_ids
        return Query.from_bytes(self._state.find(ids[0]).query.payload) if ids else None

    @property
    def roster(self) -> Roster | None:
        """The newest roster that was seen; None before the first."""
        envelope = self._state.newest_roster()
        return None if envelope is None else Roster.from_bytes(envelope.payload)

    def rows_of(self, parties: Iterable[Member], roster: Roster) -> dict[str, int | None]:
        """As `learner.session.Session.rows_of`."""
        return self._state.rows_of(parties, roster)

    def directory(self, query_id: bytes) -> Path:
        """Where its release is, if it was opened here."""
        return self._config.releases_directory / query_id.hex()[:RELEASE_NAME_DIGITS]

    def read(self, query_id: bytes) -> AskedRead:
        """One query. Raises WireError(QUERY_UNKNOWN), ConfigurationError if its files are damaged."""
        query = Query.from_bytes(self._state.find(query_id).query.payload)
        asked, attempts = QuerySummary.of(query), possible_attempts(query, self._state.attempts_signed(query_id))
        directory = self.directory(query_id)
        if directory.exists():
            try:
                release = Release.load(directory)
            except RadofedError as error:
                return AskedRead(query_id, asked, f"opened, but its release cannot be read: {error}", attempts)
            if release.query_id == query_id:
                return AskedRead(
                    query_id,
                    asked,
                    f"opened in attempt {release.cohort.attempt}",
                    attempts,
                    release.cohort.attempt,
                    release.party_rows,
                    release.cohort.digest.hex(),
                    release.statement.to_dict(),
                    str(directory),
                )
        if (end := self._state.end(query_id)) is not None:
            return AskedRead(query_id, asked, f"ended: {end['code']} {end['detail']}".rstrip(), attempts)
        outcome = "sent" if self._state.is_sent(query_id) else "never acknowledged"
        return AskedRead(query_id, asked, f"{outcome}; not opened here", attempts)


def opened_releases(config: LearnerConfig) -> list[Release]:
    """Every release on this learner's disk, oldest first; none before the first query. Raises as `Release.load`."""
    if not config.state_directory.is_dir():
        return []
    history = LearnerHistory(config)
    found = [directory for query_id in history.query_ids if (directory := history.directory(query_id)).exists()]
    return [Release.load(directory) for directory in reversed(found)]


# The same question twice: what this learner asked before is found on its disk, so that no answer is paid for twice.
#
# Two queries ask the same if schema, kind with its noise, part of the rows, feature map and asked parties are the
# same, whatever their purposes and studies are: an answer that was given for others is found, with these.


REUSE = "--reuse (in Python reuse=True)"
ASK_AGAIN = "--ask-again (in Python ask_again=True)"


@dataclass(frozen=True)
class AskedBefore:
    """An earlier query that asks the same."""

    query_id: bytes
    asked_at_unix_s: int
    release: Path | None
    """The directory of its answer; None if it has none yet."""
    other_purpose: str = ""
    """What it is for, if that was signed and is not what is asked for now; empty otherwise. Parties agreed to that
    purpose."""
    other_study: Study | None = None
    """Likewise, the study that it is part of."""

    @property
    def words(self) -> str:
        """What became of it, as a clause."""
        what = "its answer is not fetched yet" if self.release is None else f"the answer is in {self.release}"
        purpose = f" for the purpose {json_text(self.other_purpose)}" if self.other_purpose else ""
        purpose += "" if self.other_study is None else f" in the study {self.other_study.short}"
        return (
            f"query {self.query_id.hex()[:16]} asked the same parties the same{purpose} on "
            f"{local_time(self.asked_at_unix_s)}, and {what}"
        )


class AskedBeforeError(ConfigurationError):
    """A question was asked before, and no option says that it may be charged again. Nothing was sent."""

    def __init__(self, earlier: AskedBefore, reuse: str = f"{REUSE} takes it from there") -> None:
        """reuse: how to have the earlier answer, a clause."""
        self.earlier = earlier
        super().__init__(f"{earlier.words}: {reuse}, at no cost; {ASK_AGAIN} asks again, and is charged again")


class NotAskedBeforeError(ConfigurationError):
    """Nothing may be asked, and there is no earlier answer to the question."""

    def __init__(self) -> None:
        super().__init__(
            f"no answer to this question, with this budget, cohort and these parties, is on disk: leave {REUSE} out to "
            "ask it"
        )


def question_digest(query: Query) -> str:
    """Identifies a query by what it asks, not by time and parties: a hash of schema, kind, part, map, epoch, unit."""
    message = query.to_proto()
    parts = (part.SerializeToString(deterministic=True) for part in (message.held_back, message.feature_map))
    epoch = [] if query.epoch is None else [b"epoch\0", query.epoch.encode()]
    unit = [] if query.persons is None else [b"persons\0", message.persons.SerializeToString(deterministic=True)]
    return sha256(query.schema.digest, kind_bytes(query.kind), *parts, *epoch, *unit).hex()


def asks_the_same(query: Query, payload: bytes) -> bool:
    """Whether an earlier query, serialised, asks the same. Reading one takes long, so most are compared as bytes."""
    if kind_bytes(query.kind) not in payload or query.schema.digest not in payload:
        return False
    earlier = Query.from_bytes(payload)
    same_parties = (query.binding and query.binding.parties) == (earlier.binding and earlier.binding.parties)
    return same_parties and question_digest(earlier) == question_digest(query)
