"""No member, and no query, takes what the others need: threads, memory, the spool, the store, time."""

import asyncio
import threading

import pytest

from coordinator import intake, service, uploads
from tests.federation.coordinator import MANY_RADOS, PARTIES
from tests.federation.coordinator_core import on_bench, refusal, run_on
from tests.waiting import HANG_S, wait_until
from wire.errors import Code
from wire.statements import Acceptance
from wire.status import Phase


def stalled(bench, party):
    """The spool, which keeps one party's chunks waiting; the event that lets them go on."""
    real, go_on = bench.core.spool.put, threading.Event()

    def put(query_id, attempt, owner, chunk):
        if owner == party:
            go_on.wait(HANG_S)
        return real(query_id, attempt, owner, chunk)

    bench.core.spool.put = put
    return go_on


@on_bench
async def test_a_party_that_sends_many_chunks_at_once_takes_one_thread(bench):
    """A few wait in memory; further ones are refused temporarily."""
    opened = await bench.ask()
    await bench.to_uploading(opened)
    go_on = stalled(bench, "ann")
    uploads = [asyncio.create_task(bench.upload(opened, "ann")) for _ in range(intake.CHUNKS_AT_ONCE)]
    await asyncio.sleep(0.05)
    try:
        error = await asyncio.wait_for(refusal(Code.SPOOL_FULL, bench.upload(opened, "ann")), 30)
        assert "16 calls of ann" in error.detail
        await bench.contribute(opened, *PARTIES[1:])
        assert not any(upload.done() for upload in uploads)
    finally:
        go_on.set()
    await asyncio.gather(*uploads)
    assert bench.core.spool.used_bytes == 4 * 1024
    await bench.contribute(opened, "ann")
    await bench.settled()
    await bench.check_total(opened, PARTIES)


@on_bench
async def test_chunks_that_waited_for_their_turn_until_the_attempt_was_over_are_refused(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    go_on = stalled(bench, "ann")
    uploads = [asyncio.create_task(bench.upload(opened, "ann")) for _ in range(3)]
    await asyncio.sleep(0.05)
    await bench.turn(60)
    go_on.set()
    for upload in uploads:
        await refusal(Code.PHASE_MISMATCH, upload)
    await bench.settled()
    assert bench.core.spool.used_bytes == 0
    assert not list(bench.config.spool_directory.rglob("0-*"))


@on_bench
async def test_long_polls_beyond_some_of_one_member_do_not_wait(bench):
    ann, bob = bench.world.member("ann"), bench.world.member("bob")
    polls = [asyncio.create_task(bench.views.work(ann, 0, 25)) for _ in range(service.WAITING_PER_MEMBER)]
    await asyncio.sleep(0.05)
    items, _ = await asyncio.wait_for(bench.views.work(ann, 0, 25), 20)
    assert not items
    others = asyncio.create_task(bench.views.work(bob, 0, 25))
    await asyncio.sleep(0.05)
    assert not others.done()
    assert not any(poll.done() for poll in polls)
    await bench.ask()
    for items, _ in await asyncio.gather(*polls, others):
        assert len(items) == 1
    one_more = asyncio.create_task(bench.views.work(ann, bench.core.revision, 25))
    await asyncio.sleep(0.05)
    assert not one_more.done(), "those that ended count no more"
    one_more.cancel()


@pytest.mark.more
@run_on(open_queries=12, open_queries_per_learner=12)
async def test_totals_in_progress_delay_no_upload(bench):
    """More of them than there are threads for uploads."""
    real, go_on = uploads.multiply, threading.Event()

    def slow(*args):
        go_on.wait(HANG_S)
        return real(*args)

    uploads.multiply = slow
    try:
        waiting = [await bench.ask() for _ in range(8)]
        for opened in waiting:
            await bench.to_uploading(opened)
            await bench.contribute(opened, *PARTIES)
        assert {bench.phase(opened) for opened in waiting} == {Phase.ADDING}
        late = await bench.ask()
        await bench.to_uploading(late)
        await asyncio.wait_for(bench.contribute(late, *PARTIES), HANG_S / 4)
    finally:
        go_on.set()
        uploads.multiply = real
    await bench.settled()
    for opened in (*waiting, late):
        await bench.check_total(opened, PARTIES)


@on_bench
async def test_a_small_total_does_not_wait_for_a_large_one(bench):
    large, small = await bench.ask(rados=MANY_RADOS), await bench.ask()
    for opened in (large, small):
        await bench.to_uploading(opened)
    real, entered, go_on, order = uploads.multiply, threading.Event(), threading.Event(), []

    def recorded(key, uploads):
        entered.set()
        go_on.wait(HANG_S)
        product = real(key, uploads)
        order.append(len(product))
        return product

    uploads.multiply = recorded
    try:
        await bench.contribute(large, *PARTIES)
        await asyncio.to_thread(entered.wait, HANG_S)
        await bench.contribute(small, *PARTIES)
        go_on.set()
        await bench.settled()
    finally:
        uploads.multiply = real
    assert order.index(1024) == 1, "after the chunk that was in the making, before the two others"
    for opened in (large, small):
        await bench.check_total(opened, PARTIES)


@run_on(spool_bytes=7 * 1024)
async def test_a_query_is_accepted_only_if_its_uploads_fit(bench):
    """Otherwise two cohorts could each fill half the spool and wait until both are lost, but charged."""
    first = await bench.ask()
    error = await refusal(Code.SPOOL_FULL, bench.ask())
    assert "4096 bytes" in error.detail
    assert "3072 of 7168" in error.detail
    assert (await bench.ask(max_parties=3)).query.max_parties == 3
    await bench.cancel(first)
    await refusal(Code.QUERY_TOO_LARGE, bench.ask(rados=MANY_RADOS))
    await bench.ask()


@run_on(query_life_s=10_000)
async def test_a_query_that_ends_too_far_away_is_refused(bench):
    """Its id would have to be stored for that long."""
    await bench.ask(not_after_unix_s=int(bench.wall) + 10_000)
    for end in (int(bench.wall) + 10_001, (1 << 63) - 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("wire.query.PaillierKey.from_bytes", _valid_for_ever(bench))
            error = await refusal(Code.QUERY_INVALID, bench.ask(not_after_unix_s=end))
        assert "10000 s" in error.detail


def _valid_for_ever(bench):
    from wire.query import PaillierKey

    key = PaillierKey("lea", bench.world.secret_key.public_key, 0, (1 << 63) - 1)
    return lambda _: key


@run_on(finished_per_learner=3)
async def test_a_learner_that_sends_and_cancels_endlessly_keeps_only_a_few(bench):
    others = await bench.ask(learner="lou")
    await bench.cancel(others)
    asked = []
    for _ in range(10):
        asked.append(await bench.ask())
        await bench.cancel(asked[-1])
        await bench.turn(1)
    still_open = await bench.ask()
    await bench.core._forget()
    kept = {live.query_id for live in bench.core.queries}
    assert kept == {opened.query_id for opened in (others, *asked[-3:], still_open)}
    await bench.crash()
    assert {live.query_id for live in bench.core.queries} == kept
    for opened in asked[:-3]:
        await refusal(Code.QUERY_CLOSED, bench.intake.query(opened.envelope, bench.world.member("lea")))


@on_bench
async def test_a_learner_that_sends_many_queries_at_once_is_read_one_at_a_time(bench):
    real, go_on, reading = intake.open_query, threading.Event(), []

    def slow(envelope, *args, **options):
        reading.append(envelope)
        go_on.wait(HANG_S)
        return real(envelope, *args, **options)

    async def reads(count):
        """The reader is at as many queries at once, and not at more while it has time."""
        await asyncio.to_thread(wait_until, lambda: len(reading) >= count, what="the reader")
        await asyncio.sleep(0.05)
        assert len(reading) == count

    intake.open_query = slow
    try:
        asked = [asyncio.create_task(bench.ask()) for _ in range(intake.QUERIES_AT_ONCE)]
        await reads(1)
        await refusal(Code.QUERIES_TOO_MANY, bench.ask())
        others = asyncio.create_task(bench.ask(learner="lou"))
        await reads(2)
        go_on.set()
        await asyncio.gather(*asked, others)
    finally:
        intake.open_query = real
    assert len(bench.core.queries) == intake.QUERIES_AT_ONCE + 1


@on_bench
async def test_a_row_count_that_fills_the_query_excludes_no_other_party(bench):
    opened = await bench.ask()
    said = bench.world.acceptance(opened.query_id, "ann", rows=opened.query.max_rows)
    assert Acceptance.from_bytes(said.payload).rows == 1000
    await bench.intake.acceptance(said, bench.world.member("ann"))
    await bench.accept(opened, *PARTIES[1:])
    await bench.ready(opened, *PARTIES)
    assert bench.live(opened).round.cohort == PARTIES[1:]
