"""What the coordinator shows this party: only work that a learner of the roster signed goes further.

A coordinator can show anything, at any pace, and an outsider who has its certificate can, too. An entry that no learner
signed costs a comparison of its key, or at most four signature checks. Nothing of it outlives the poll but a count: no
job, no thread, no line on disk, no signature or call of this party.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from parties.answering.coordinator_calls import CoordinatorCalls, WorkBatch
from parties.answering.decisions import check_signed
from parties.answering.lifecycle import QueryLifecycle
from parties.rosters import Rosters
from radobase.logs import Log
from wire.errors import Code, WireError
from wire.status import Work


@dataclass
class Unverified:
    """How many entries did not verify since the start, by code, and when the last one was shown."""

    entries: Counter[str] = field(default_factory=Counter)
    last_unix_s: float | None = None

    def add(self, code: str, entries: int) -> None:
        """Count entries. code: of the catalogue, or UNREADABLE; there are few."""
        self.entries[code] += entries
        self.last_unix_s = time.time()

    def status(self) -> dict[str, Any]:
        """In JSON types."""
        return {"entries": dict(self.entries), "last_unix_s": self.last_unix_s}


class ShownWork:
    """Follows the cursor, and offers what is signed. Use it from one thread.

    A sweep from cursor 0 lists all open queries. Attempts at queries that it does not list are over. So it keeps the
    queries of which this party holds something and that were not listed yet; what else is listed takes no memory.
    """

    def __init__(
        self,
        lifecycle: QueryLifecycle,
        offer: Callable[[Work], bool],
        rosters: Rosters,
        coordinator: CoordinatorCalls,
        log: Log,
    ) -> None:
        """offer: takes work, or returns False if there is no room for it."""
        self._lifecycle, self._offer, self._rosters = lifecycle, offer, rosters
        self._coordinator, self._log = coordinator, log
        self.cursor, self.is_sweeping = 0, True
        self._unlisted: set[bytes] | None = None
        """Queries of which this party holds something and that the sweep did not list yet; None before its start."""
        self._has_left_out, self._left_out_under = False, rosters.known
        """Whether something did not verify since the last restart, and under which roster."""
        self.unverified = Unverified()

    def restart(self) -> None:
        """Look at all open queries again, from the next poll on."""
        self.cursor, self.is_sweeping, self._unlisted = 0, True, None

    def hold(self, batch: WorkBatch, reason: str) -> bool:
        """Follow the cursor while this party answers nothing: what a learner signed is noted, and nothing else is done.

        reason: why nothing is answered, in words. Returns whether some of it was not signed, could not be read, or
        could not be noted, which is shown again then. Raises as `take`.
        """
        self.cursor, self.is_sweeping, self._unlisted = batch.cursor, False, None

        def note(signed: Iterable[Work]) -> bool:
            return not [work for work in signed if not self._lifecycle.note_unanswered(work, reason)]

        is_noted, is_junk = self._pass_on(batch, note)
        if not is_noted:
            self.restart()
        return is_junk or not is_noted

    def follow_roster(self) -> None:
        """Look at all open queries again if one did not verify and there is a newer roster. Call it before a poll.

        Raises what Rosters.refresh raises.
        """
        if not self._has_left_out:
            return
        is_newer = self._rosters.refresh_for_unverified(self._coordinator)
        if is_newer or self._rosters.known is not self._left_out_under:
            self._has_left_out = False
            self.restart()

    def take(self, batch: WorkBatch) -> bool:
        """Offer what is signed. Returns whether some of it was not, could not be read, or found no room.

        Raises what the ledger and Rosters.refresh raise.
        """
        if self.is_sweeping and self._unlisted is None:
            self._unlisted = self._lifecycle.held()
        has_room, is_junk = self._pass_on(batch, self._offer_all)
        self._move(batch)
        if not has_room:
            self.restart()
        return is_junk or not has_room

    def _pass_on(self, batch: WorkBatch, take: Callable[[Iterable[Work]], bool]) -> tuple[bool, bool]:
        """Give `take` what is signed, and note the rest. Returns whether it took all, and whether there is a rest."""
        if batch.unreadable:
            self._note("UNREADABLE", batch.unreadable)
        signed, others = self._verified(batch.work)
        has_taken = take(signed)
        if others:
            again, others = self._look_again(others)
            has_taken = take(again) and has_taken
        return has_taken, bool(others or batch.unreadable)

    def _verified(self, shown: Iterable[Work]) -> tuple[list[Work], list[tuple[Work, Code]]]:
        """The work that a learner signed; and the rest, with the code of what is wrong."""
        signed: list[Work] = []
        others: list[tuple[Work, Code]] = []
        for work in shown:
            try:
                check_signed(work, self._rosters.current)
            except WireError as error:
                others.append((work, error.code))
            else:
                signed.append(work)
        return signed, others

    def _look_again(self, others: list[tuple[Work, Code]]) -> tuple[list[Work], list[tuple[Work, Code]]]:
        """What goes further under the newest roster or because this party holds it; and the rest, which is noted.

        A query that this party accepted may end although its learner has left the roster.
        """
        signed: list[Work] = []
        if self._rosters.refresh_for_unverified(self._coordinator):
            signed, others = self._verified(work for work, _ in others)
        held = self._lifecycle.held()
        signed += [work for work, _ in others if work.query_id in held]
        others = [(work, code) for work, code in others if work.query_id not in held]
        for code, entries in Counter(code for _, code in others).items():
            self._note(code, entries)
        if others and not self._has_left_out:
            self._has_left_out, self._left_out_under = True, self._rosters.known
        return signed, others

    def _offer_all(self, signed: Iterable[Work]) -> bool:
        """Offer work. Returns whether there was room for all of it."""
        has_room = True
        for work in signed:
            if self._unlisted is not None:
                self._unlisted.discard(work.query_id)
            has_room = self._offer(work) and has_room
        return has_room

    def _note(self, code: str, entries: int) -> None:
        self.unverified.add(code, entries)
        self._log.refused("not verified", peer="coordinator", code=code, entries=entries)

    def _move(self, batch: WorkBatch) -> None:
        """Follow the cursor. A batch that shows nothing ends the sweep: what it did not list is over."""
        if batch.cursor < self.cursor:
            self._log.refused(
                "the coordinator restarted its cursor",
                peer="coordinator",
                code="RESTARTED",
                cursor=self.cursor,
                its_cursor=batch.cursor,
            )
            self.restart()
            return
        self.cursor = batch.cursor
        if self._unlisted is not None and not batch.work and not batch.unreadable:
            self._lifecycle.end_queries(self._unlisted)
            self.is_sweeping, self._unlisted = False, None
