"""`rado coordinator drain` and `undrain`, at the coordinator's host: asks the running node, and waits for it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coordinator.local_control import DRAIN, UNDRAIN
from dpcore.errors import RadofedError
from radobase.local_status import NotRunningError, read_status, send_command

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
