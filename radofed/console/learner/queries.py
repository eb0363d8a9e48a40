"""What the learner asked, and one query while it runs."""

import re

from dpcore.errors import ConfigurationError
from learner.config import LearnerConfig
from learner.history import LearnerHistory
from learner.progress import advice, party_words, progress_sentence
from radofed.console.learner.following import Following
from radofed.console.pages import Answer, Goto, Shown, Visit
from wire.status import Phase, QueryStatus

AT_ONCE = 20
_ID = re.compile(r"[0-9a-f]{64}")


def query_id_of(visit: Visit) -> bytes:
    """The query that a path names. Raises ConfigurationError."""
    if not _ID.fullmatch(visit.path["query"]):
        raise ConfigurationError("this is not the whole id of a query: open it from the page of queries")
    return bytes.fromhex(visit.path["query"])


def page_of(visit: Visit, count: int) -> tuple[int, int | None, int | None]:
    """The first entry to show, and those of the newer and the older page. query: skip."""
    text = visit.query.get("skip", "")
    skip = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return skip, (max(0, skip - AT_ONCE) if skip else None), (skip + AT_ONCE if skip + AT_ONCE < count else None)


class Queries:
    """The pages of queries, and what may be done with one."""

    def __init__(self, config: LearnerConfig, following: Following) -> None:
        self._config, self._following = config, following

    def history(self, visit: Visit) -> Answer:
        """As `rado learner history`."""
        # Before the first query there is no directory.
        reader = LearnerHistory(self._config) if self._config.state_directory.is_dir() else None
        ids = () if reader is None else reader.query_ids
        skip, newer, older = page_of(visit, len(ids))
        found = [] if reader is None else [reader.read(query_id) for query_id in ids[skip : skip + AT_ONCE]]
        values = {"queries": found, "count": len(ids), "newer": newer, "older": older, "following": self._following}
        return Shown("learner/queries.html", "Queries", values)

    def query(self, visit: Visit, template: str = "learner/query.html") -> Answer:
        """As `rado learner history QUERY` and `rado learner status`. query: seen, the phase that the page shows."""
        query_id = query_id_of(visit)
        reader = LearnerHistory(self._config)
        followed = self._following.of(query_id)
        status = None if followed is None else followed.status
        found = reader.read(query_id)
        runs = followed is not None and followed.runs
        values = {
            "found": found,
            "runs": runs,
            "ended": found.outcome.startswith("ended"),
            "sent": reader.is_sent(query_id),
            "followed": followed,
            "status": status,
            "sentence": "" if status is None else progress_sentence(status),
            "advice": "" if status is None else advice(status),
            "parties": [] if status is None else self._parties(query_id, status, reader),
            "lost": status is not None and status.phase is Phase.LOST,
            # When this changes, a screen reader hears it.
            "phase": f"{found.outcome} {runs} {'' if status is None else f'{status.attempt} {status.phase.word}'}",
            "seen": visit.query.get("seen"),
        }
        return Shown(template, f"Query {query_id.hex()[:16]}", values)

    @staticmethod
    def _parties(query_id: bytes, status: QueryStatus, reader: LearnerHistory) -> list[tuple[str, str]]:
        """Every party of the query's roster, and where it stands."""
        asked = [(each.party, party_words(each, status)) for each in status.parties]
        return asked + [(name, "not asked") for name in reader.not_asked(query_id)]

    def now(self, visit: Visit) -> Answer:
        """What changes of the page of a query."""
        return self.query(visit, "learner/query_now.html")

    def follow(self, visit: Visit) -> Answer:
        """As `rado learner send` and `rado learner fetch`."""
        query_id = query_id_of(visit)
        LearnerHistory(self._config).read(query_id)
        self._following.start(query_id)
        return Goto(f"queries/{query_id.hex()}")

    def cancel(self, visit: Visit) -> Answer:
        """As `rado learner cancel`."""
        query_id = query_id_of(visit)
        with self._following.session() as session:
            session.cancel(query_id)
        return Goto(f"queries/{query_id.hex()}")

    def retry(self, visit: Visit) -> Answer:
        """As `rado learner retry`. form: attempt, the one that was lost, so that a second click starts no other."""
        query_id = query_id_of(visit)
        with self._following.session() as session:
            if str(session.status(query_id).attempt) == visit.form.get("attempt"):
                session.retry(query_id)
        self._following.start(query_id)
        return Goto(f"queries/{query_id.hex()}")
