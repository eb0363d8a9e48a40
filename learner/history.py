"""What a learner asked and what became of it, read from its own disk: no coordinator is asked."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError, RadofedError
from learner.config import LearnerConfig
from learner.release import Release, possible_attempts
from learner.session import RELEASE_NAME_DIGITS
from learner.state import LearnerState
from wire.envelopes import load_public_key
from wire.query import Query
from wire.query_summary import QuerySummary
from wire.roster import Member, Roster


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
        return time.time() <= query.not_after_unix_s and not self._directory(query_id).exists()

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

    def _directory(self, query_id: bytes) -> Path:
        return self._config.releases_directory / query_id.hex()[:RELEASE_NAME_DIGITS]

    def read(self, query_id: bytes) -> AskedRead:
        """One query. Raises WireError(QUERY_UNKNOWN), ConfigurationError if its files are damaged."""
        query = Query.from_bytes(self._state.find(query_id).query.payload)
        asked, attempts = QuerySummary.of(query), possible_attempts(query, self._state.attempts_signed(query_id))
        directory = self._directory(query_id)
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
