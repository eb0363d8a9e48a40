"""Views of members. A long poll ends at a change, at its timeout, or when the coordinator drains."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from coordinator.core import Core
from coordinator.open_queries import LiveQuery
from coordinator.witnesses import WitnessExchange
from wire.errors import Code, WireError
from wire.roster import Member
from wire.status import Phase, QueryStatus, Total, Work
from wire.transport import LONG_POLL_S
from wire.upload import Chunk

# Every change wakes all waiting calls. A learner may follow its open queries from several windows.
WAITING_PER_MEMBER = 32

T = TypeVar("T")


class Views:
    """The core as a party or a learner sees it, each only its own part. `caller` is the certificate's member.

    At most WAITING_PER_MEMBER long polls of a member wait at one time; further ones return immediately.
    """

    def __init__(self, core: Core, witnesses: WitnessExchange) -> None:
        self._core = core
        self._witnesses = witnesses
        self._waiting: Counter[str] = Counter()

    async def work(self, caller: Member, cursor: int, wait_s: float) -> tuple[tuple[tuple[Work, int], ...], int]:
        """A party's changed work since the cursor, each entry with the cursor after it; and the next cursor.

        The wait also ends once another party's challenge is due.

        Cursor 0 gives all open queries. A cursor above the current one (the coordinator lost its state) counts as 0.
        """
        since = cursor if cursor <= self._core.revision else 0

        def changed() -> tuple[LiveQuery, ...]:
            return tuple(
                live
                for live in self._core.queries
                if live.revisions.work_revision > since
                and (since or live.is_open)
                and caller.name in live.round.rules.parties
            )

        def look() -> tuple[tuple[LiveQuery, ...], tuple[str, ...]] | None:
            seen = changed(), self._witnesses.due(caller)
            return seen if any(seen) else None

        await self._wait(caller, self._core.work_changed, look, wait_s)
        in_order = sorted(changed(), key=lambda live: live.revisions.work_revision)
        items = tuple((self._work(live, caller.name), live.revisions.work_revision) for live in in_order)
        # There was no await since the queries were read: no change is between them and this revision.
        return items, self._core.revision

    async def wake(self) -> None:
        """Let the long polls of parties look again."""
        async with self._core.work_changed:
            self._core.work_changed.notify_all()

    def _work(self, live: LiveQuery, party: str) -> Work:
        uploading = live.round.phase is Phase.UPLOADING and party in live.round.cohort
        held = self._core.spool.held(live.query_id, live.round.attempt, party) if uploading else {}
        return live.work_for(party, frozenset(held))

    async def watch(self, caller: Member, query_id: bytes, cursor: int, wait_s: float) -> tuple[QueryStatus, int]:
        """A query's status and cursor, once the cursor changes or the wait ends. Raises WireError."""

        def changed() -> bool:
            return self._cursor(self._own(caller, query_id)) != cursor

        await self._wait(caller, self._core.status_changed, changed, wait_s)
        live = self._own(caller, query_id)
        return self._status(live), self._cursor(live)

    def statuses(self, caller: Member) -> tuple[QueryStatus, ...]:
        """All queries of a learner that are not forgotten, newest first."""
        return tuple(self._status(live) for live in reversed(self._core.queries) if live.learner == caller.name)

    def total(self, caller: Member, query_id: bytes) -> Total:
        """A complete total without its ciphertexts. Raises WireError."""
        return self._own(caller, query_id).total

    async def total_chunk(self, caller: Member, query_id: bytes, index: int) -> Chunk:
        """One chunk of a complete total. Raises WireError."""
        live = self._own(caller, query_id)
        _ = live.total, live.opened.chunk_bytes(index)
        return Chunk.of(index, await asyncio.to_thread(self._core.spool.read_total, query_id, index))

    def _own(self, caller: Member, query_id: bytes) -> LiveQuery:
        live = self._core.find(query_id)
        if live.learner != caller.name:
            raise WireError(Code.QUERY_UNKNOWN)
        return live

    def _status(self, live: LiveQuery) -> QueryStatus:
        return live.status(self._core.chunk_count(live), self._core.clock())

    def _cursor(self, live: LiveQuery) -> int:
        return live.status_cursor(self._core.chunk_count(live))

    async def _wait(self, caller: Member, condition: asyncio.Condition, look: Callable[[], T], wait_s: float) -> T:
        """The first true result of `look`, or its result at the timeout or when the coordinator drains."""
        if wait_s <= 0 or self._waiting[caller.name] >= WAITING_PER_MEMBER:
            return look()
        self._waiting[caller.name] += 1
        try:
            async with asyncio.timeout(min(wait_s, LONG_POLL_S)), condition:
                while not (seen := look()) and not self._core.draining:
                    await condition.wait()
                return seen
        except TimeoutError:
            return look()
        finally:
            self._waiting[caller.name] -= 1
