"""What the coordinator's administrator may ask of the running node: radobase.local_status is the socket for it.

Threads call it; the node's state is read and changed in its event loop.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from coordinator.config import CoordinatorConfig
from coordinator.core import Core
from coordinator.drain import under_way
from coordinator.live import LiveQuery
from coordinator.watching import CoordinatorWatch
from radobase.local_status import StatusServer
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
