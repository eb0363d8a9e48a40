"""Turns: one member's calls one after another, and few of them waiting, so that no member takes the others' threads."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from wire.errors import Code, WireError


class Turns:
    """Used from one event loop. at_once: how many calls of one member may be here, the one at work included.

    code: what a call beyond these is refused with.
    """

    def __init__(self, at_once: int, code: Code) -> None:
        self._at_once = at_once
        self._code = code
        self._here: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def take(self, member: str) -> AsyncIterator[None]:
        """Wait for this member's turn and hold it. Raises WireError where too many of its calls are here already."""
        if self._here[member] >= self._at_once:
            raise WireError(self._code, f"{self._at_once} calls of {member} are at work already; send fewer at once.")
        self._here[member] += 1
        try:
            async with self._locks.setdefault(member, asyncio.Lock()):
                yield
        finally:
            self._here[member] -= 1
            if not self._here[member]:
                del self._here[member], self._locks[member]
