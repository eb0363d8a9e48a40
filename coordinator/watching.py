"""What a running coordinator says to the machine's monitoring: whether it is ready, and its metrics."""

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

from coordinator.config import CoordinatorConfig
from coordinator.core import FINISHED, SUBMITTED, Core
from coordinator.limits import REFUSED
from coordinator.membership import LastSeen, Membership
from radobase.watching.metrics import (
    CERTIFICATE_EXPIRY,
    LOST,
    ROSTER_EXPIRY,
    SHARED,
    Counts,
    Kind,
    Metric,
    Room,
    Sample,
    build_sample,
    traffic_samples,
)
from radobase.watching.readiness import Reason
from wire.identity import OwnCertificate
from wire.roster import Role
from wire.status import Phase
from wire.upload import CHUNK_BYTES

SEEN_WITHIN_S: Final = 300.0
"""A party polls at least every half minute: one that made no call for this long is away."""
ANSWER_WITHIN_S: Final = 4.0

_STATUS = "`rado coordinator status`"
QUERIES = Metric("rado_queries", Kind.GAUGE, "Queries that are not forgotten, by phase.", _STATUS, ("phase",))
SUBMITTED_QUERIES = Metric(
    "rado_queries_submitted_total", Kind.COUNTER, "Queries accepted from learners since the start.", "its own log"
)
FINISHED_QUERIES = Metric(
    "rado_queries_finished_total", Kind.COUNTER, "Queries that ended since the start, by outcome.", "its own log",
    ("outcome",),
)  # fmt: skip
ATTEMPTS_LOST = Metric(
    "rado_attempts_lost_total", Kind.COUNTER,
    "Attempts since the start whose cohort was fixed and that ended without a total: its members may have charged.",
    "its own log",
)  # fmt: skip
REFUSED_QUERIES = Metric(
    "rado_queries_refused_total", Kind.COUNTER,
    "Queries that the coordinator refused since the start because of a limit, by its key in `[limits]`.",
    "its own log", ("limit",),
)  # fmt: skip
MEMBERS = Metric("rado_members", Kind.GAUGE, "Parties and learners of the roster.", "the roster", ("role",))
MEMBERS_SEEN = Metric(
    "rado_members_seen", Kind.GAUGE,
    f"Members that made a call within {SEEN_WITHIN_S:.0f} seconds. Parties always do; learners only when they ask.",
    _STATUS, ("role",),
)  # fmt: skip
METRICS = (*SHARED, QUERIES, SUBMITTED_QUERIES, FINISHED_QUERIES, REFUSED_QUERIES, ATTEMPTS_LOST, MEMBERS, MEMBERS_SEEN)
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
        seen = self._seen.since(self._core.wall_clock() - SEEN_WITHIN_S)
        for role in (Role.PARTY, Role.LEARNER):
            names = {member.name for member in roster.members if member.role is role}
            yield Sample(MEMBERS, len(names), {"role": role.value})
            yield Sample(MEMBERS_SEEN, len(names & seen), {"role": role.value})
