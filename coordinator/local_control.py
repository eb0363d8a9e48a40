"""The running node and its machine: commands of its administrator, readiness and metrics for monitoring.

radobase.local_status is the socket for the commands.

Threads call it; the node's state is read and changed in its event loop.
"""

import asyncio
import datetime as dt
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from coordinator.config import CoordinatorConfig
from coordinator.core import FINISHED, SUBMITTED, Core
from coordinator.limits import REFUSED, under_way
from coordinator.membership import LastSeen, Membership
from coordinator.open_queries import LiveQuery
from dpcore.errors import RadofedError
from radobase.local_status import NotRunningError, StatusServer, read_status, send_command
from radobase.metrics import (
    CERTIFICATE_EXPIRY,
    LOST,
    ROSTER_EXPIRY,
    SHARED,
    Counts,
    Metric,
    MetricKind,
    Reason,
    Room,
    Sample,
    build_sample,
    traffic_samples,
)
from radobase.version import program_version
from wire.gate import ALLOWED_ROLES, calls_of
from wire.identity import OwnCertificate
from wire.roster import Role
from wire.statements import CHUNK_BYTES
from wire.status import Phase

# What a running coordinator says to the machine's monitoring: whether it is ready, and its metrics.


SEEN_WITHIN_S: Final = 300.0
"""A party polls at least every half minute: one that made no call for this long is away."""
ANSWER_WITHIN_S: Final = 4.0

_STATUS = "`rado coordinator status`"
QUERIES = Metric("rado_queries", MetricKind.GAUGE, "Queries that are not forgotten, by phase.", _STATUS, ("phase",))
SUBMITTED_QUERIES = Metric(
    "rado_queries_submitted_total", MetricKind.COUNTER, "Queries accepted from learners since the start.", "its own log"
)
FINISHED_QUERIES = Metric(
    "rado_queries_finished_total", MetricKind.COUNTER, "Queries that ended since the start, by outcome.", "its own log",
    ("outcome",),
)  # fmt: skip
ATTEMPTS_LOST = Metric(
    "rado_attempts_lost_total", MetricKind.COUNTER,
    "Attempts since the start whose cohort was fixed and that ended without a total: its members may have charged.",
    "its own log",
)  # fmt: skip
REFUSED_QUERIES = Metric(
    "rado_queries_refused_total", MetricKind.COUNTER,
    "Queries that the coordinator refused since the start because of a limit, by its key in `[limits]`.",
    "its own log", ("limit",),
)  # fmt: skip
MEMBERS = Metric("rado_members", MetricKind.GAUGE, "Parties and learners of the roster.", "the roster", ("role",))
MEMBERS_SEEN = Metric(
    "rado_members_seen", MetricKind.GAUGE,
    f"Members that made a call within {SEEN_WITHIN_S:.0f} seconds. Parties always do; learners only when they ask.",
    _STATUS, ("role",),
)  # fmt: skip
CALLS = Metric(
    "rado_calls_total", MetricKind.COUNTER,
    "Calls of members that the coordinator admitted since the start, by method of the protocol.",
    "its own network", ("method",),
)  # fmt: skip
METRICS = (
    *SHARED, QUERIES, SUBMITTED_QUERIES, FINISHED_QUERIES, REFUSED_QUERIES, ATTEMPTS_LOST, CALLS, MEMBERS,
    MEMBERS_SEEN,
)  # fmt: skip
"""All metrics of a coordinator."""

T = TypeVar("T")


class CoordinatorWatch:
    """Reads the state of a node in its event loop. Other threads call `reasons` and `samples`.

    Construct it in the event loop.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        own: OwnCertificate,
        core: Core,
        membership: Membership,
        seen: LastSeen,
    ) -> None:
        self.is_serving = False
        """Set it when the node listens."""
        self._config, self._own = config, own
        self._core, self._membership, self._seen = core, membership, seen
        self._loop = asyncio.get_running_loop()

    @property
    def counts(self) -> Counts:
        """Where events are counted."""
        return self._core.counts

    def reasons(self) -> list[Reason]:
        """Why the coordinator would not take a query now, empty if it would. Raises what reading its state raises."""
        return self._read(lambda: list(self._reasons()))

    def samples(self) -> list[Sample]:
        """All metrics but readiness."""
        return self._read(lambda: list(self._samples()))

    def _read(self, read: Callable[[], T]) -> T:
        """Read where nothing changes meanwhile. Raises TimeoutError if the event loop does not get to it."""

        async def call() -> T:
            return read()

        return self.in_loop(call)

    def in_loop(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the node's event loop, from another thread. Raises TimeoutError if it takes too long."""
        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(ANSWER_WITHIN_S)

    def _reasons(self) -> Iterator[Reason]:
        now = self._core.wall_clock()
        if self._core.draining:
            yield Reason.DRAINING
            return
        if not self.is_serving:
            yield Reason.STARTING
            return
        if self._core.drain.is_on:
            yield Reason.NO_NEW_QUERIES
        if dt.datetime.fromtimestamp(now, dt.UTC) > self._own.certificate.not_after:
            yield Reason.CERTIFICATE_EXPIRED
        if self._membership.roster.is_expired(now):
            yield Reason.ROSTER_EXPIRED
        if self._room().lacks(CHUNK_BYTES):
            yield Reason.SPOOL_FULL

    def _room(self) -> Room:
        return Room.of(self._config.spool_directory, self._core.spool.used_bytes, self._config.limits.spool_bytes)

    def _samples(self) -> Iterator[Sample]:
        roster, counts = self._membership.roster, self.counts
        yield build_sample(Role.COORDINATOR.value)
        yield Sample(CERTIFICATE_EXPIRY, self._own.certificate.not_after.timestamp())
        yield Sample(ROSTER_EXPIRY, roster.not_after_unix_s or float("inf"))
        yield from traffic_samples(counts)
        yield from self._room().samples()
        phases = Counter(live.round.phase for live in self._core.queries)
        yield from (Sample(QUERIES, phases[phase], {"phase": phase.word}) for phase in Phase)
        yield Sample(SUBMITTED_QUERIES, counts.get(SUBMITTED))
        for phase, name in FINISHED.items():
            yield Sample(FINISHED_QUERIES, counts.get(name), {"outcome": phase.word})
        for limit, name in REFUSED.items():
            yield Sample(REFUSED_QUERIES, counts.get(name), {"limit": limit})
        yield Sample(ATTEMPTS_LOST, counts.get(LOST))
        for method in ALLOWED_ROLES:
            yield Sample(CALLS, counts.get(calls_of(method)), {"method": method.rpartition("/")[2]})
        seen = self._seen.since(self._core.wall_clock() - SEEN_WITHIN_S)
        for role in (Role.PARTY, Role.LEARNER):
            names = {member.name for member in roster.members if member.role is role}
            yield Sample(MEMBERS, len(names), {"role": role.value})
            yield Sample(MEMBERS_SEEN, len(names & seen), {"role": role.value})


DRAIN: Final = "/drain"
UNDRAIN: Final = "/undrain"


class LocalControl:
    """The state of a node, and its administrator's commands."""

    def __init__(self, config: CoordinatorConfig, core: Core, watch: CoordinatorWatch) -> None:
        self._config, self._core, self._watch = config, core, watch
        self._started_unix_s = time.time()

    def server(self) -> StatusServer:
        """The server of this node. Raises OSError."""
        commands: Mapping[str, Callable[[], Mapping[str, Any]]] = {DRAIN: self.drain, UNDRAIN: self.undrain}
        return StatusServer(self._config.state_directory, self.status, commands)

    def status(self) -> dict[str, Any]:
        """Process, readiness and drain, in JSON types. under_way: queries with an attempt that runs."""
        reasons = self._watch.reasons()
        return self._watch.in_loop(self._status) | {"not_ready": [reason.value for reason in reasons]}

    async def _status(self) -> dict[str, Any]:
        drain = self._core.drain
        return {
            "coordinator": self._config.name,
            "federation": self._config.federation,
            "version": program_version(),
            "pid": os.getpid(),
            "started_at_unix_s": self._started_unix_s,
            "drained_since_unix_s": drain.since_unix_s,
            "under_way": [self._query(live) for live in under_way(self._core.queries)],
        }

    def _query(self, live: LiveQuery) -> dict[str, Any]:
        round_ = live.round
        return {
            "query_id": live.query_id.hex(),
            "learner": live.learner,
            "phase": round_.phase.word,
            "attempt": round_.attempt,
            "remaining_s": round(round_.remaining_s(self._core.clock()), 1),
            "parties": [
                {
                    "party": party,
                    "state": round_.party_state(party).word,
                    "code": round_.answers[party].code if party in round_.answers else "",
                }
                for party in round_.rules.parties
            ],
            "code": round_.code,
            "answering_ended_early": round_.answering_ended_early,
        }

    def drain(self) -> dict[str, Any]:
        """Take no new query. changed: False if it was drained before."""
        return {"changed": self._watch.in_loop(self._core.begin_drain)}

    def undrain(self) -> dict[str, Any]:
        """Take queries again. changed: False if it was not drained."""
        return {"changed": self._watch.in_loop(self._core.end_drain)}


# `rado coordinator drain` and `undrain`, at the coordinator's host: asks the running node, and waits for it.


LOOKS_EVERY_S: Final = 0.5


class DrainEndedError(RadofedError):
    """The coordinator takes queries again, although this command did not ask for it."""


@dataclass(frozen=True)
class Drained:
    """A drain that is over, or as far as it came in time."""

    changed: bool
    """Whether this command began it."""
    since_unix_s: float
    under_way: list[dict[str, Any]]
    """Queries with an attempt that still runs, as the node states them."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is under way."""
        return not self.under_way


def drain(
    state_directory: Path,
    within_s: float,
    *,
    on_wait: Callable[[int], None] = lambda _: None,
    looks_every_s: float = LOOKS_EVERY_S,
) -> Drained:
    """Let the running coordinator take nothing new, and wait for the attempts under way, at most within_s seconds.

    on_wait: called with their number once the wait begins. Raises NotRunningError if no coordinator runs or it ends
    meanwhile, DrainEndedError if it takes queries again. It stays drained afterwards, also if attempts still run.
    """
    end = time.monotonic() + within_s
    changed, has_waited = bool(send_command(state_directory, DRAIN)["changed"]), False
    while True:
        try:
            found = read_status(state_directory)
        except NotRunningError as error:
            raise NotRunningError(
                "the coordinator ended while it was drained; queries that were open continue at its next start"
            ) from error
        since = found["drained_since_unix_s"]
        if since is None:
            raise DrainEndedError(
                "the coordinator takes queries again: it was started again, or `rado coordinator undrain` ended the "
                "drain; give the command again"
            )
        if not found["under_way"] or time.monotonic() >= end:
            return Drained(changed, since, found["under_way"])
        if not has_waited:
            on_wait(len(found["under_way"]))
            has_waited = True
        time.sleep(min(looks_every_s, max(0.0, end - time.monotonic())))


def undrain(state_directory: Path) -> bool:
    """Let the running coordinator take queries again. Returns False if it was not drained. Raises NotRunningError."""
    return bool(send_command(state_directory, UNDRAIN)["changed"])
