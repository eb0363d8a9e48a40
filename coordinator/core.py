"""The coordinator without its sockets: queries in memory, advanced by rounds.step, stored, with spooled chunks.

Each change is one step: compute the next round (pure), commit it with the statement that caused it, then publish it and
run its actions. One lock orders the changes. Blocking work (the disk, big integers) runs in threads. A change that has
begun is completed even if its caller disconnects.
"""

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from coordinator.config import CoordinatorLimits
from coordinator.events import (
    Action,
    Added,
    AddingFailed,
    Answered,
    BecamePending,
    BecameReady,
    Cancelled,
    DropUploads,
    Event,
    Expelled,
    Finished,
    FixCohort,
    KeysShared,
    ReceiptGiven,
    Retried,
    StartAdding,
    Ticked,
    UnmaskingGiven,
    UploadsLost,
)
from coordinator.limits import Drain, Quotas, under_way
from coordinator.open_queries import LiveQuery, most_upload_bytes, restore
from coordinator.round_state import Round, Rules
from coordinator.rounds import begin, step
from coordinator.store import DAY_S, CountedQuery, Statement, Store, StoredQuery
from coordinator.uploads import Adding, ClusterSum, SpoolDamagedError, SpoolUnreadableError, UploadSpool
from dpcore.errors import ConfigurationError, RadofedError
from radobase.logs import Log
from radobase.metrics import LOST, Counts
from wire.envelopes import key_id
from wire.errors import Code, WireError
from wire.query import CLOCK_SKEW_S, OpenedQuery
from wire.roster import Role, Roster
from wire.status import Phase

TICK_S = 0.25
# Largest waiting time that a crash may add to a phase.
SAVE_TIMES_EVERY_S = 5.0
ADD_AGAIN_AFTER_S = 5.0
# Names of counts.
SUBMITTED = "queries submitted"
_SAID = {BecamePending: "pending", BecameReady: "ready", KeysShared: "keys shared", UnmaskingGiven: "unmasking"}
"""What a log calls events of parties about which it says no more."""
FINISHED = {Phase.COMPLETE: "queries complete", Phase.FAILED: "queries failed"}

T = TypeVar("T")


class Core:
    """All queries of one coordinator. Use it from one event loop, and call `start` first.

    cluster: computes large totals. clock: monotonic seconds, for durations. wall_clock: Unix seconds, for the signed
    expiry times of queries.
    """

    def __init__(
        self,
        store: Store,
        spool: UploadSpool,
        limits: CoordinatorLimits,
        log: Log,
        *,
        cluster: ClusterSum | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.spool = spool
        self.clock = clock
        self.wall_clock = wall_clock
        self.work_changed = asyncio.Condition()
        self.status_changed = asyncio.Condition()
        self.draining = False
        """Whether the process ends."""
        self.drain = Drain()
        self.counts = Counts()
        self._quotas = Quotas(limits, self.counts)
        self._store = store
        self._limits = limits
        self._log = log
        self._live: dict[bytes, LiveQuery] = {}
        self._lock = asyncio.Lock()
        self._carried: set[asyncio.Task[Any]] = set()
        # A separate thread: a commit must not queue behind uploads.
        self._store_thread = ThreadPoolExecutor(1, "store")
        self._adding = Adding(spool, cluster)
        self._revision = store.revision

    @property
    def revision(self) -> int:
        """The newest revision over all queries."""
        return self._revision

    @property
    def queries(self) -> tuple[LiveQuery, ...]:
        """All queries that are not forgotten, in the order of their submission."""
        return tuple(self._live.values())

    def get(self, query_id: bytes) -> LiveQuery | None:
        """The query, or None if it is unknown or forgotten."""
        return self._live.get(query_id)

    def find(self, query_id: bytes) -> LiveQuery:
        """The query. Raises WireError(QUERY_UNKNOWN)."""
        live = self.get(query_id)
        if live is None:
            raise WireError(Code.QUERY_UNKNOWN)
        return live

    def chunk_count(self, live: LiveQuery) -> Callable[[str], int]:
        """Function that gives the number of stored chunks of a party in the current attempt."""
        return partial(self.spool.count, live.query_id, live.round.attempt)

    async def start(self) -> None:
        """Resume the queries in the store. Raises ConfigurationError if one cannot be read."""
        for stored in self._store.load():
            self._live[stored.query_id] = self._restore(stored)
        self._restore_quotas()
        useful = {live.query_id: _attempt_of_use(live) for live in self.queries if live.round.phase is not Phase.FAILED}
        await asyncio.to_thread(self.spool.keep_only, useful)
        for live in self.queries:
            if parties := self._without_uploads(live):
                self._log.warning("uploads not on disk", query=live.query_id, parties=sorted(parties))
                await self.move(live.query_id, UploadsLost(live.round.attempt, parties))
            elif live.round.phase is Phase.ADDING:
                self._background(self._add(live))
        if self._live:
            self._log.info("resumed", queries=len(self._live), open=sum(live.is_open for live in self.queries))

    def _without_uploads(self, live: LiveQuery) -> frozenset[str]:
        """Members of the cohort with a receipt whose upload is not on disk: a backup has no uploads."""
        if _attempt_of_use(live) is None:
            return frozenset()
        count = self.chunk_count(live)
        return frozenset(party for party in live.round.receipts if count(party) < live.chunks)

    def _restore_quotas(self) -> None:
        """Count what was asked within a day."""
        for asked in self._store.asked():
            if asked.at_unix_s > self.wall_clock() - DAY_S:
                self._quotas.add(asked)

    def _restore(self, stored: StoredQuery) -> LiveQuery:
        try:
            return restore(stored, now=self.clock(), now_unix_s=self.wall_clock())
        except (RadofedError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ConfigurationError(
                f"the store's query {stored.query_id.hex()} cannot be read ({error}); use the program that wrote it, "
                "or move the state directory away"
            ) from error

    async def carry(self, change: Coroutine[Any, Any, T]) -> T:
        """Run a change to its end even if the caller is cancelled (the peer disconnected)."""
        return await asyncio.shield(self._begin(change))

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work without a waiting caller. Logs its errors."""

        async def logged() -> None:
            try:
                await work
            except Exception:  # noqa: BLE001 - there is no caller to notify
                self._log.exception("background work failed")

        self._begin(logged())

    def _begin(self, change: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(change)
        self._carried.add(task)
        task.add_done_callback(self._settled)
        return task

    def _settled(self, task: asyncio.Task[Any]) -> None:
        self._carried.discard(task)
        if not task.cancelled():
            task.exception()  # seen by the caller, or the caller has disconnected

    async def _in_store(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._store_thread, call)

    async def take(self, opened: OpenedQuery, rules: Rules) -> None:
        """Accept a verified query. Has no effect if the query is already known.

        Raises WireError(QUERIES_TOO_MANY, QUERY_TOO_LARGE, SPOOL_FULL if its uploads might not fit at this time,
        QUERY_INVALID if it expires too late, QUERY_CLOSED if it ran before and was forgotten, or DRAINING).
        """
        await self.carry(self._take(opened, rules))

    async def _take(self, opened: OpenedQuery, rules: Rules) -> None:
        async with self._lock:
            if opened.query_id in self._live:
                return
            if self.draining:
                raise WireError(Code.DRAINING)
            self.drain.check()
            if await self._in_store(partial(self._store.was_forgotten, opened.query_id)):
                raise WireError(Code.QUERY_CLOSED)
            now, now_unix_s = self.clock(), self.wall_clock()
            upload_bytes = most_upload_bytes(opened, rules)
            self._quotas.check(opened, upload_bytes, [live for live in self.queries if live.is_open], now_unix_s)
            round_ = begin(rules, now=now, expires_at=now + opened.query.not_after_unix_s - now_unix_s)
            revisions = await self._in_store(
                partial(
                    self._store.add_query,
                    opened.envelope,
                    opened.query.learner,
                    submitted_at_unix_s=int(now_unix_s),
                    not_after_unix_s=opened.query.not_after_unix_s,
                    round_data=round_.to_dict(now),
                    upload_bytes=upload_bytes,
                )
            )
            live = LiveQuery(opened, round_, int(now_unix_s), revisions)
            self._live[live.query_id] = live
            self._quotas.add(CountedQuery(live.query_id, live.learner, int(now_unix_s), upload_bytes))
            self._revision = revisions.revision
            self.counts.add(SUBMITTED)
            self._log.info(
                "query submitted",
                query=live.query_id,
                learner=live.learner,
                ciphertexts=live.ciphertexts,
                chunks=live.chunks,
            )
        await self._tell(work=True)

    async def move(
        self,
        query_id: bytes,
        event: Event,
        *,
        statement: Statement | None = None,
        check: Callable[[LiveQuery], None] | None = None,
    ) -> LiveQuery:
        """Apply one event and return the new state of the query, durable. A repeated statement changes nothing.

        check: called for a valid new event; an error that it raises refuses the event. Raises WireError.
        """
        return await self.carry(self._move(query_id, event, statement, check))

    async def _move(
        self,
        query_id: bytes,
        event: Event,
        statement: Statement | None,
        check: Callable[[LiveQuery], None] | None,
    ) -> LiveQuery:
        async with self._lock:
            before = self.find(query_id)
            now = self.clock()
            following, actions = step(before.round, event, now)
            if following is before.round:
                return before
            if check is not None:
                check(before)
            lost = event.parties if isinstance(event, UploadsLost) else frozenset()
            work_changed = _concerns_parties(before.round, following) or bool(lost)
            finished_at = self.wall_clock() if following.phase.is_terminal else None
            revisions = await self._in_store(
                partial(
                    self._store.save,
                    query_id,
                    following.to_dict(now),
                    work_changed=work_changed,
                    finished_at_unix_s=finished_at,
                    statement=statement,
                    lost=lost,
                )
            )
            live = before.moved(following, revisions, finished_at, statement)
            self._live[query_id] = live
            self._revision = revisions.revision
            self.counts.add(LOST, int(_loses(before.round, following)))
            self._log_event(live, event)
            for action in actions:
                self._act(live, action)
        await self._tell(work=work_changed)
        return live

    def begin_expelling(self, roster: Roster) -> None:
        """Begin `expel` without waiting for it."""
        self._background(self.expel(roster))

    async def expel(self, roster: Roster) -> None:
        """Take parties that this roster does not list, or not with the keys of their answers, out of open queries."""
        for live in self.queries:
            # Twice: an attempt that is lost by this may be followed by another, which waits for the same parties.
            for _ in range(2):
                current = self._live.get(live.query_id)
                if current is not None and current.is_open and (parties := _unlisted(current, roster)):
                    await self.move(live.query_id, Expelled(parties))

    async def _tell(self, *, work: bool) -> None:
        self._note_drain()
        async with self.status_changed:
            self.status_changed.notify_all()
        if work:
            async with self.work_changed:
                self.work_changed.notify_all()

    async def chunk_stored(self) -> None:
        """Notify watching learners that a chunk arrived."""
        await self._tell(work=False)

    def _act(self, live: LiveQuery, action: Action) -> None:
        about = {"query": live.query_id, "attempt": live.round.attempt}
        match action:
            case FixCohort(attempt, members):
                rows = sum(live.round.answers[party].rows for party in members)
                self._log.info("cohort fixed", query=live.query_id, attempt=attempt, members=list(members), rows=rows)
            case StartAdding():
                self._background(self._add(live))
            case DropUploads(attempt):
                self._background(asyncio.to_thread(self.spool.drop_attempt, live.query_id, attempt))
                if attempt != live.round.attempt or live.round.phase is Phase.LOST:
                    self._log.warning("attempt lost", query=live.query_id, attempt=attempt)
            case Finished(""):
                self.counts.add(FINISHED[Phase.COMPLETE])
                self._log.info("complete", **about)
            case Finished(Code.ONLY_ASKED):
                self.counts.add(FINISHED[Phase.COMPLETE])
                self._log.info("question answered", **about, detail=live.round.detail)
            case Finished(code):
                self.counts.add(FINISHED[Phase.FAILED])
                self._log.warning("failed", **about, code=code, detail=live.round.detail)
                self._background(asyncio.to_thread(self.spool.drop_query, live.query_id))

    def _log_event(self, live: LiveQuery, event: Event) -> None:
        about = {"query": live.query_id}
        match event:
            case Answered(attempt, party, answer) if answer.accepted:
                self._log.info("answer", **about, attempt=attempt, party=party, rows=answer.rows)
            case Answered(attempt, party, answer):
                self._log.info("refusal", **about, attempt=attempt, party=party, code=answer.code)
            case Expelled(parties):
                self._log.warning("removed from the query", **about, parties=sorted(parties))
            case BecamePending() | BecameReady() | KeysShared() | UnmaskingGiven():
                self._log.info(_SAID[type(event)], **about, attempt=event.attempt, party=event.party)
            case ReceiptGiven(attempt, party, _):
                self._log.info("receipt", **about, attempt=attempt, party=party, chunks=live.chunks)
            case Added(attempt):
                self._log.info("added", **about, attempt=attempt, chunks=live.chunks)
            case Cancelled():
                self._log.info("cancelled", **about)
            case Retried(attempt):
                self._log.info("retried", **about, attempt=attempt)
            case Ticked() | AddingFailed():
                self._log.info("phase ended", **about, attempt=live.round.attempt, phase=live.round.phase.word)

    async def _add(self, live: LiveQuery) -> None:
        """Compute the total. Retries while the disk fails, until it is stored or the query ends."""

        def stopping() -> bool:
            now_live = self._live.get(live.query_id)
            return self.draining or now_live is None or now_live.round.phase is not Phase.ADDING

        outcome: Added | AddingFailed | None = None
        while not stopping():
            try:
                if outcome is None and await self._adding.make(live, stopping):
                    outcome = Added(live.round.attempt)
                if outcome is not None:
                    await self.move(live.query_id, outcome)
            except SpoolDamagedError as error:
                if stopping():  # the query ended, and its chunks were deleted
                    break
                self._log.error("spool damaged", query=live.query_id, party=error.owner, chunk=error.index)
                outcome = AddingFailed(live.round.attempt, f"The stored upload of {error.owner} was damaged.")
            except (WireError, SpoolUnreadableError, OSError, sqlite3.Error) as error:
                self._log.warning("adding failed, trying again", query=live.query_id, error=str(error))
                await asyncio.sleep(ADD_AGAIN_AFTER_S)
            except Exception:  # noqa: BLE001 - a bug must end the query, not leave it waiting
                self._log.exception("adding failed", query=live.query_id)
                outcome = AddingFailed(live.round.attempt, "The total could not be computed.")
                await asyncio.sleep(ADD_AGAIN_AFTER_S)
        current = self._live.get(live.query_id)
        if current is None or current.round.phase is Phase.FAILED:
            await asyncio.to_thread(self.spool.drop_query, live.query_id)

    async def run(self) -> None:
        """Run the clock until cancelled."""
        saved_at = self.clock()
        while True:
            await asyncio.sleep(TICK_S)
            try:
                await self.tick()
                if self.clock() - saved_at >= SAVE_TIMES_EVERY_S:
                    saved_at = self.clock()
                    await self.carry(self._save_times())
                    await self.carry(self._forget())
            except Exception:  # noqa: BLE001 - the clock must continue after any failure
                self._log.exception("tick failed")

    async def tick(self) -> None:
        """End the phases that have timed out."""
        for live in self.queries:
            if live.is_open and live.round.remaining_s(self.clock()) <= 0:
                await self._tick(live)

    async def _tick(self, live: LiveQuery) -> None:
        try:
            await self.move(live.query_id, Ticked())
        except Exception:  # noqa: BLE001 - the other queries must still time out
            self._log.exception("tick failed", query=live.query_id)

    async def _save_times(self) -> None:
        async with self._lock:
            now = self.clock()
            times = {live.query_id: live.round.to_dict(now) for live in self.queries if live.is_open}
            if times:
                await self._in_store(partial(self._store.save_times, times))

    async def _forget(self) -> None:
        async with self._lock:
            forgotten = self._forgettable()
            if not forgotten:
                return
            # An expired query is refused by its expiry time, with the same clock skew, so its id is not stored.
            expired_before_unix_s = self.wall_clock() - CLOCK_SKEW_S - 1
            await self._in_store(partial(self._store.forget, forgotten, expired_before_unix_s=expired_before_unix_s))
            for query_id in forgotten:
                del self._live[query_id]
        for query_id in forgotten:
            await asyncio.to_thread(self.spool.drop_query, query_id)
            self._log.info("forgotten", query=query_id)
        await self._tell(work=False)

    def _forgettable(self) -> list[bytes]:
        """Finished queries that were kept long enough, or that exceed the number kept per learner."""
        before = self.wall_clock() - self._limits.keep_finished_s
        finished = [(live.finished_at_unix_s, live) for live in self.queries if live.finished_at_unix_s is not None]
        later: Counter[str] = Counter()
        found = []
        for finished_at, live in sorted(finished, key=lambda each: each[0], reverse=True):
            if finished_at < before or later[live.learner] >= self._limits.finished_per_learner:
                found.append(live.query_id)
            later[live.learner] += 1
        return found

    async def begin_drain(self) -> bool:
        """Take no new query and no retry. What is taken before the return is under way. False if it was so before."""
        async with self._lock:
            changed = self.drain.begin(self.wall_clock())
        if changed:
            self._log.warning("drain begun", under_way=len(under_way(self.queries)))
            self._note_drain()
        return changed

    def _note_drain(self) -> None:
        if self.drain.completes(self.queries):
            self._log.info("drain complete", queries=len(self._live))

    async def end_drain(self) -> bool:
        """Take queries again. Returns False if the coordinator was not drained."""
        changed = self.drain.end()
        if changed:
            self._log.info("drain ended")
        return changed

    async def begin_draining(self) -> None:
        """Accept no new query, and end all long polls: the process ends."""
        self.draining = True
        await self._tell(work=True)

    async def close(self) -> None:
        """Complete all changes and store the remaining times. Do not use the core afterwards."""
        await self.begin_draining()
        while self._carried:
            await asyncio.wait(set(self._carried))
        await self._save_times()
        self._store_thread.shutdown()
        self._adding.close()


def _unlisted(live: LiveQuery, roster: Roster) -> frozenset[str]:
    """The query's parties that the roster does not list, or not with the key that signed their acceptance."""

    def is_listed(name: str) -> bool:
        member, acceptance = roster.find(name, Role.PARTY), live.acceptances.get(name)
        return member is not None and (acceptance is None or acceptance.key_id == key_id(member.signing_key))

    return frozenset(name for name in live.round.rules.parties if not is_listed(name))


def _concerns_parties(before: Round, following: Round) -> bool:
    """Whether a party that waits has something to do now, or something of the query is over.

    One that has answered waits for the cohort, and one that has uploaded for the end.
    """
    if (before.phase, before.attempt) == (following.phase, following.attempt):
        return False
    if following.phase is Phase.PREPARING and not following.rules.may_vanish:
        return len(following.answers) < len(following.rules.parties)
    return following.phase is not Phase.ADDING


def _loses(before: Round, following: Round) -> bool:
    """Whether an attempt ends, after its cohort was fixed, without a total: its members charged, or may have."""
    is_over = following.phase in (Phase.LOST, Phase.FAILED) or following.attempt != before.attempt
    return is_over and before.phase in (Phase.UPLOADING, Phase.UNMASKING, Phase.ADDING)


def _attempt_of_use(live: LiveQuery) -> int | None:
    needs_uploads = live.round.phase in (Phase.UPLOADING, Phase.UNMASKING, Phase.ADDING)
    return live.round.attempt if needs_uploads else None
