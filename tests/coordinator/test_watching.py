"""What a coordinator says to the machine's monitoring: queries by phase and outcome, members, and readiness."""

import asyncio
import datetime as dt

import pytest

from coordinator import local_control
from coordinator.local_control import SEEN_WITHIN_S, CoordinatorWatch
from coordinator.membership import LastSeen, Membership
from radobase.exposition import exposition
from radobase.logs import Log
from radobase.metrics import Reason
from tests.federation.coordinator import PARTIES
from tests.federation.coordinator_core import on_bench
from tests.radobase.scraping import read_page
from wire.envelopes import load_public_key
from wire.identity import OwnCertificate
from wire.roster import Role


class Watched:
    """The monitoring of a bench's core."""

    def __init__(self, bench):
        config = bench.config
        self.membership = Membership(
            config.roster,
            federation=config.federation,
            name=config.name,
            federation_key=load_public_key(config.federation_key),
            store=bench.store,
            log=Log("test"),
        )
        own = OwnCertificate(config.tls.files, config.federation, Role.COORDINATOR, config.name, Log("test"))
        self.certificate = own.certificate
        self.seen = LastSeen(bench.store, lambda: bench.wall)
        self.watch = CoordinatorWatch(config, own, bench.core, self.membership, self.seen)
        self.watch.is_serving = True

    async def scrape(self):
        # As the server does: from another thread.
        return read_page(exposition(await asyncio.to_thread(self.watch.samples)).decode())

    async def reasons(self):
        return await asyncio.to_thread(self.watch.reasons)


@on_bench
async def test_queries_are_counted_by_phase_and_outcome(bench):
    watched = Watched(bench)
    done, open_ = await bench.ask(), await bench.ask()
    await bench.to_uploading(done)
    found = await watched.scrape()
    assert (found("rado_queries", phase="uploading"), found("rado_queries", phase="answering")) == (1, 1)
    assert found("rado_queries_submitted_total") == 2
    await bench.upload(done, *PARTIES)
    found = await watched.scrape()
    assert found("rado_spool_bytes") == bench.core.spool.used_bytes > 0
    assert found("rado_spool_quota_bytes") == bench.config.limits.spool_bytes
    await bench.receipt(done, *PARTIES)
    await bench.settled()
    await bench.cancel(open_)
    found = await watched.scrape()
    assert (found("rado_queries", phase="complete"), found("rado_queries", phase="failed")) == (1, 1)
    for outcome in ("complete", "failed"):
        assert found("rado_queries_finished_total", outcome=outcome) == 1
    assert found("rado_attempts_lost_total") == 0


@on_bench
async def test_an_attempt_is_lost_once_whether_another_follows_or_not(bench):
    watched = Watched(bench)
    opened = await bench.ask()
    for attempt in (1, 2):
        await bench.to_uploading(opened, attempt)
        await bench.turn(60)
        assert (await watched.scrape())("rado_attempts_lost_total") == attempt
        if attempt == 1:
            await bench.retry(opened)
    cancelled = await bench.ask()
    await bench.to_uploading(cancelled)
    await bench.cancel(cancelled)
    assert (await watched.scrape())("rado_attempts_lost_total") == 3


@on_bench
async def test_members_that_made_a_call_are_counted_by_role(bench):
    watched = Watched(bench)
    for name in ("ann", "lea"):
        watched.seen.note(bench.world.member(name))
    found = await watched.scrape()
    assert (found("rado_members", role="party"), found("rado_members_seen", role="party")) == (4, 1)
    assert (found("rado_members", role="learner"), found("rado_members_seen", role="learner")) == (2, 1)
    # Saving does not forget them, time does.
    watched.seen.save()
    assert (await watched.scrape())("rado_members_seen", role="party") == 1
    bench.wall += SEEN_WITHIN_S + 1
    assert (await watched.scrape())("rado_members_seen", role="party") == 0


@on_bench
async def test_an_event_loop_that_does_not_answer_is_an_error_and_not_a_hanging_probe(bench):
    watched = Watched(bench)
    # This call blocks the event loop that it waits for.
    with pytest.MonkeyPatch.context() as patch, pytest.raises(TimeoutError):
        patch.setattr(local_control, "ANSWER_WITHIN_S", 0.01)
        watched.watch.reasons()
    assert Reason.STATE_UNREADABLE not in await watched.reasons()


@on_bench
async def test_each_state_has_its_reason(bench):
    watched = Watched(bench)
    bench.wall = watched.membership.roster.issued_at_unix_s
    assert await watched.reasons() == []
    watched.watch.is_serving = False
    assert await watched.reasons() == [Reason.STARTING]
    watched.watch.is_serving = True
    bench.wall = watched.membership.roster.not_after_unix_s + 1000.0
    assert await watched.reasons() == [Reason.ROSTER_EXPIRED]
    bench.wall = (watched.certificate.not_after + dt.timedelta(seconds=1)).timestamp()
    assert set(await watched.reasons()) == {Reason.ROSTER_EXPIRED, Reason.CERTIFICATE_EXPIRED}
    bench.wall = watched.membership.roster.issued_at_unix_s
    # No room for a chunk.
    limits = bench.config.limits.model_copy(update={"spool_bytes": 500_000})
    watched.watch._config = bench.config.model_copy(update={"limits": limits})
    assert await watched.reasons() == [Reason.SPOOL_FULL]
    await bench.core.begin_draining()
    assert await watched.reasons() == [Reason.DRAINING]
