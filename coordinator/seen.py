"""When each member last made a call, for the operator's eyes. Nothing is decided by it."""

import asyncio
import sqlite3
import time
from collections.abc import Callable

from coordinator.store import Store
from wire.errors import WireError
from wire.roster import Member

SAVED_EVERY_S = 15.0
NEW_SAVED_EVERY_S = 1.0
"""A member that was not seen since the start does not stay "never" for longer."""


class LastSeen:
    """The times, in memory, and now and then in the store, where `rado coordinator status` reads them.

    clock: Unix seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._at: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._saved: set[str] = set()

    def note(self, member: Member) -> None:
        """A member makes a call, or a call of it has just ended."""
        self._at[member.name] = self._last[member.name] = int(self._clock())

    def since(self, unix_s: float) -> frozenset[str]:
        """Names of the members that made a call at this time or later, since the start. Call it from the event loop."""
        return frozenset(name for name, at_unix_s in self._last.items() if at_unix_s >= unix_s)

    def save(self) -> None:
        """Store what was noted since the last time. A disk that fails loses nothing that matters."""
        noted, self._at = self._at, {}
        if noted:
            try:
                self._store.remember_seen(noted)
                self._saved |= noted.keys()
            except (WireError, sqlite3.Error):
                self._at = {**noted, **self._at}

    async def run(self) -> None:
        """Save until cancelled."""
        waited_s = 0.0
        while True:
            await asyncio.sleep(NEW_SAVED_EVERY_S)
            waited_s += NEW_SAVED_EVERY_S
            if waited_s >= SAVED_EVERY_S or not self._at.keys() <= self._saved:
                await asyncio.to_thread(self.save)
                waited_s = 0.0
