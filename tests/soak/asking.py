"""A learner's process in the soak: asks queries one after another, follows, retries and fetches them.

Run as a program, with a job as JSON. It may be killed at any point; started again, it continues from its state
directory. What a query ended with is appended to the job's file of outcomes, one JSON object a line. This file imports
no test, so that it needs no path.
"""

import json
import sys
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpcore.errors import RadofedError
from dpcore.predicates.notation import parse
from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.requests import StatisticRequest
from learner.session import AttemptLostError, QueryEndedError, Session
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.query import Query
from wire.status import Phase

# The least Laplace scale, 1/64, at sensitivity 2: noise differs from 0 with a probability below 2^-90.
EPSILON = Fraction(128)
PAUSE_S = 0.3
GRACE_S = 15.0
"""How long after its expiry a query may be shown as open: the coordinator's tick, and its restart."""
RETRIED_OF_256 = 200


@dataclass(frozen=True)
class Job:
    """What a process asks. phase_s: seconds for each phase. expires_after_s: of every query."""

    config: str
    schema: str
    predicates: list[str]
    outcomes: str
    queries: int
    cohort_min: int
    colluders: int
    phase_s: int
    expires_after_s: int


def request(job: Job) -> StatisticRequest:
    """The count of every party's own rows."""
    return StatisticRequest(
        Schema.from_toml(job.schema),
        tuple(parse(text) for text in job.predicates),
        epsilon=EPSILON,
        pure=True,
        cohort_min=job.cohort_min,
        colluders=job.colluders,
        max_rows=1000,
        answer_within_s=job.phase_s,
        prepare_within_s=job.phase_s,
        upload_within_s=job.phase_s,
        expires_after_s=job.expires_after_s,
    )


class Asking:
    """One run of the process."""

    def __init__(self, job: Job, session: Session) -> None:
        self.job, self.session = job, session
        self.outcomes = Path(job.outcomes)
        known = self.outcomes.read_text().splitlines() if self.outcomes.exists() else []
        self.ended = {bytes.fromhex(line["query"]) for line in map(read, known) if line}
        self.lost_for_good: set[bytes] = set()

    def note(self, query_id: bytes, **outcome: object) -> None:
        # One write: a line is there whole, or its end is missing.
        with self.outcomes.open("a") as file:
            file.write(json.dumps({"query": query_id.hex(), "at_unix_s": time.time(), **outcome}) + "\n")
        self.ended.add(query_id)

    def run(self) -> None:
        """Returns once all queries have ended."""
        for query_id in self.session.asked():
            self.follow(query_id)
        while len(self.session.asked()) < self.job.queries:
            try:
                query_id = self.session.prepare(self.session.plan(request(self.job)))
            except (ConnectionLostError, TimedOutError, WireError):
                time.sleep(PAUSE_S)
            else:
                self.follow(query_id)
        while waiting := [query_id for query_id in self.session.asked() if query_id not in self.ended]:
            for query_id in waiting:
                self.look(query_id)
            time.sleep(PAUSE_S)

    def follow(self, query_id: bytes) -> None:
        """Until the query has ended, or its attempt was lost and no other is started."""
        while query_id not in self.ended and query_id not in self.lost_for_good:
            self.look(query_id)
            time.sleep(PAUSE_S)

    def look(self, query_id: bytes) -> None:
        """Send the query, retry its lost attempt or fetch its total: whatever comes next."""
        begun = time.time()
        try:
            self.session.send(query_id)
            status = self.session.status(query_id)
            if status.phase is Phase.LOST and retried(query_id, status.attempt):
                self.session.retry(query_id)
            elif status.phase is Phase.LOST:
                self.lost_for_good.add(query_id)
            if not status.phase.is_terminal:
                if begun > self.not_after_unix_s(query_id) + GRACE_S:
                    self.note(query_id, violation=f"in phase {status.phase.word} after its deadline")
                    return
                self.session.watch(query_id, timeout_s=2)
            self.fetch(query_id)
        except QueryEndedError as error:
            self.note(query_id, code=error.code.value, detail=error.detail)
        except (AttemptLostError, ConnectionLostError, TimedOutError):
            pass  # looked at again
        except WireError as error:
            # A query that was never sent, and expired meanwhile.
            if error.code is Code.QUERY_EXPIRED:
                self.note(query_id, code=error.code.value, detail=error.detail)
        except RadofedError as error:
            self.note(query_id, violation=f"{type(error).__name__}: {error}")

    def fetch(self, query_id: bytes) -> None:
        self.session.watch(query_id, timeout_s=1)
        self.session.fetch(query_id)
        self.note(query_id, release=str(self.session.release_directory(query_id)))

    def not_after_unix_s(self, query_id: bytes) -> int:
        envelope = self.session._state.find(query_id).query
        return Query.from_bytes(envelope.payload).not_after_unix_s


def retried(query_id: bytes, attempt: int) -> bool:
    """Whether the learner starts another attempt: the same answer after a restart."""
    return query_id[attempt] < RETRIED_OF_256


def read(line: str) -> dict:
    """A line of the file of outcomes; empty if a process was killed while it wrote the line."""
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return {}


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    with Session(LearnerConfig.load(Path(job.config)), give_up_after_s=3) as session:
        sys.stdout.write('{"event": "started"}\n')
        sys.stdout.flush()
        Asking(job, session).run()


if __name__ == "__main__":
    main()
