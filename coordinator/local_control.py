"""What the coordinator's administrator may ask of the running node: radobase.local_status is the socket for it.

Threads call it; the node's state is read and changed in its event loop.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coordinator.config import CoordinatorConfig
from coordinator.core import Core
from coordinator.limits import under_way
from coordinator.open_queries import LiveQuery
from coordinator.watching import CoordinatorWatch
from dpcore.errors import RadofedError
from radobase.local_status import NotRunningError, StatusServer, read_status, send_command
from radobase.version import program_version

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
