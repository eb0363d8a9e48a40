"""An administrator's drain: the coordinator takes no new query and no retry, and completes the attempts under way.

It lasts until the administrator ends it, or the process ends. Parties and learners stay connected: uploads, totals and
cancellations go on as usual. The coordinator does not end by itself, because a service manager would start it again.
"""

from collections.abc import Iterable

from coordinator.live import LiveQuery
from wire.errors import Code, WireError
from wire.status import Phase

_SENTENCE = "An administrator drains the coordinator: attempts that are under way continue, and none begins."


class Drain:
    """Whether the coordinator is drained. Use it from one event loop."""

    def __init__(self) -> None:
        self.since_unix_s: float | None = None
        """When the drain began, None without one."""
        self._is_complete = False

    @property
    def is_on(self) -> bool:
        """Whether nothing new is taken."""
        return self.since_unix_s is not None

    def begin(self, now_unix_s: float) -> bool:
        """Take nothing new from now on. Returns False if it was drained before."""
        if self.is_on:
            return False
        self.since_unix_s = now_unix_s
        return True

    def end(self) -> bool:
        """Take queries again. Returns False if it was not drained."""
        was_on, self.since_unix_s, self._is_complete = self.is_on, None, False
        return was_on

    def check(self) -> None:
        """Raise WireError(DRAINING) while the coordinator is drained."""
        if self.is_on:
            raise WireError(Code.DRAINING, _SENTENCE)

    def completes(self, queries: Iterable[LiveQuery]) -> bool:
        """Whether nothing is under way any more, for the first time in this drain."""
        if not self.is_on or self._is_complete or under_way(queries):
            return False
        self._is_complete = True
        return True


def under_way(queries: Iterable[LiveQuery]) -> list[LiveQuery]:
    """Queries with an attempt that runs. A lost attempt waits for its learner, on disk: it needs no coordinator."""
    return [live for live in queries if live.is_open and live.round.phase is not Phase.LOST]
