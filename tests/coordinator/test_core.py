"""The core without sockets, on a controlled clock: time-outs, attempts, restarts, repeats, a failing disk."""

import asyncio
import dataclasses
import errno
import os
import shutil
import threading
from types import SimpleNamespace

import pytest

from coordinator.membership import Membership
from coordinator.store import Store
from coordinator.uploads import _checked
from dpcore.errors import ConfigurationError
from radobase.cluster_jobs import ClusterError
from radobase.logs import Log
from tests.federation.coordinator import PARTIES, refused
from tests.federation.coordinator_core import Bench, on_bench, refusal
from tests.waiting import HANG_S
from wire.envelopes import Envelope
from wire.errors import Code, WireError
from wire.query import Retry
from wire.status import PartyState, Phase

THREE = ("ann", "bob", "cat")


@on_bench
async def test_a_party_down_at_the_start_is_left_behind(bench):
    opened = await bench.ask()
    await bench.accept(opened, *THREE)
    await bench.turn(59)
    assert bench.phase(opened) is Phase.ANSWERING
    await bench.turn(1)
    assert bench.phase(opened) is Phase.PREPARING
    await bench.ready(opened, *THREE)
    await bench.contribute(opened, *THREE)
    await bench.settled()
    await bench.check_total(opened, THREE)
    assert (await bench.status(opened)).parties[3].state is PartyState.SILENT


@on_bench
async def test_too_few_answers_fail_by_name_and_cost_nothing(bench):
    opened = await bench.ask()
    await bench.accept(opened, "ann", "bob")
    await bench.refuse(opened, "cat")
    await bench.turn(60)
    status = await bench.status(opened)
    assert (status.phase, status.code) == (Phase.FAILED, Code.COHORT_TOO_SMALL)
    assert "Silent: dan; refused: cat (UNAVAILABLE)" in status.detail
    assert status.remaining_s == 0


@on_bench
async def test_a_party_lost_in_its_upload_ends_the_attempt_and_the_next_is_exact(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    await bench.contribute(opened, *THREE)
    await bench.upload(opened, "dan")
    await bench.turn(60)
    assert (bench.phase(opened), bench.live(opened).round.attempt) == (Phase.LOST, 1)
    await bench.settled()
    assert bench.core.spool.used_bytes == 0
    await bench.retry(opened)
    (chunk,) = bench.world.chunks(opened, "dan")
    await refusal(Code.ATTEMPT_MISMATCH, bench.intake.chunk(opened.query_id, 1, chunk, bench.world.member("dan")))
    await bench.accept(opened, *THREE, attempt=2)
    await bench.refuse(opened, "dan", attempt=2)
    await bench.ready(opened, *THREE, attempt=2)
    await bench.contribute(opened, *THREE, attempt=2)
    await bench.settled()
    await bench.check_total(opened, THREE)


@on_bench
async def test_a_party_that_never_returns_ends_the_query_after_the_last_attempt(bench):
    opened = await bench.ask()
    for attempt in (1, 2):
        await bench.to_uploading(opened, attempt)
        await bench.contribute(opened, *THREE, attempt=attempt)
        await bench.turn(60)
        if attempt == 1:
            await bench.retry(opened)
    status = await bench.status(opened)
    assert (status.phase, status.code) == (Phase.FAILED, Code.ATTEMPTS_EXHAUSTED)
    assert "dan" in status.detail
    assert "ann" not in status.detail
    await bench.settled()
    assert bench.core.spool.used_bytes == 0


@on_bench
async def test_there_is_no_total_before_the_end(bench):
    opened = await bench.ask()
    for step in (bench.accept, bench.ready, bench.upload, bench.receipt):
        with pytest.raises(WireError) as none:
            _ = bench.live(opened).total
        assert none.value.code is Code.TOTAL_UNAVAILABLE
        await step(opened, *PARTIES)
    await bench.settled()
    assert len(bench.live(opened).total.receipts) == len(PARTIES)


@on_bench
async def test_a_query_expires_in_any_phase(bench):
    first = await bench.ask(not_after_unix_s=int(bench.wall) + 30)
    second = await bench.ask(not_after_unix_s=int(bench.wall) + 30)
    await bench.to_uploading(second)
    await bench.turn(29)
    assert bench.live(first).is_open
    await bench.turn(1)
    for opened in (first, second):
        assert (await bench.status(opened)).code == Code.QUERY_EXPIRED


@on_bench
async def test_statements_on_one_attempt_change_nothing_in_another(bench):
    """Late, early, repeated, in any order: messages of attempt 1 in attempt 2, and of attempt 2 before it began."""
    opened, world = await bench.ask(), bench.world
    said = {
        attempt: [
            (call, statement, world.member(name))
            for name in PARTIES
            for call, statement in (
                ("acceptance", world.acceptance(opened.query_id, name, attempt=attempt)),
                ("refusal", world.refusal(opened.query_id, name, attempt=attempt)),
                ("ready", world.ready(opened.query_id, name, attempt=attempt)),
            )
        ]
        for attempt in (1, 2, 3)
    }
    chunks = {name: world.chunks(opened, name)[0] for name in PARTIES}

    async def all_refused(attempt):
        before = bench.live(opened)
        for call, statement, member in said[attempt]:
            await refusal(Code.ATTEMPT_MISMATCH, getattr(bench.intake, call)(statement, member))
        for name, chunk in chunks.items():
            late = bench.intake.chunk(opened.query_id, attempt, chunk, world.member(name))
            await refusal(Code.ATTEMPT_MISMATCH, late)
        assert bench.live(opened) is before

    await all_refused(2)
    await bench.to_uploading(opened)
    first = bench.live(opened).cohort
    await bench.contribute(opened, *THREE)
    await all_refused(2)
    await bench.turn(60)
    await bench.retry(opened)
    assert bench.live(opened).round.attempt == 2
    old_receipt = world.receipt(opened, first, "ann", [chunks["ann"]])
    for _ in range(2):
        await all_refused(1)
        await all_refused(3)
        await refusal(Code.ATTEMPT_MISMATCH, bench.intake.receipt(old_receipt, world.member("ann")))
        if bench.phase(opened) is Phase.ANSWERING:
            await bench.to_uploading(opened, attempt=2)
    # A receipt of this attempt for the cohort of the last.
    for name in PARTIES:
        await bench.upload(opened, name, attempt=2)
    for_the_first = world.receipt(opened, first, "ann", [chunks["ann"]], attempt=2)
    await refusal(Code.RECEIPT_INVALID, bench.intake.receipt(for_the_first, world.member("ann")))
    await bench.receipt(opened, *PARTIES)
    await bench.settled()
    await bench.check_total(opened, PARTIES)


@on_bench
async def test_a_restart_at_every_step_changes_nothing(bench):
    opened = await bench.ask()
    await bench.crash()
    await bench.accept(opened, "ann")
    await bench.crash()
    await bench.accept(opened, "bob", "cat", "dan")
    await bench.crash()
    await bench.ready(opened, *PARTIES)
    await bench.crash()
    assert bench.phase(opened) is Phase.UPLOADING
    await bench.upload(opened, *THREE)
    await bench.crash()
    await bench.upload(opened, *PARTIES)
    await bench.receipt(opened, *THREE)
    await bench.crash()
    await bench.receipt(opened, *PARTIES[1:])
    await bench.settled()
    await bench.crash()
    await bench.check_total(opened, PARTIES)
    assert bench.core.spool.used_bytes == 0
    assert await bench.intake.query(opened.envelope, bench.world.member("lea")) == opened.query_id
    assert not (await bench.views.work(bench.world.member("ann"), 0, 0))[0]


@on_bench
async def test_a_crash_while_adding_makes_the_total_again_from_the_spool(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    await bench.contribute(opened, *THREE)
    await bench.upload(opened, "dan")
    bench.core.draining = True  # keeps the adding from beginning, as a crash between the commit and it would
    await bench.receipt(opened, "dan")
    await bench.settled()
    assert bench.phase(opened) is Phase.ADDING
    await bench.crash()
    await bench.settled()
    await bench.check_total(opened, PARTIES)


async def restored(bench, opened, *uploaded):
    """The coordinator after a restore: its backup has receipts, and no uploads."""
    await bench.settled()
    cursor = bench.core.revision
    shutil.rmtree(bench.config.spool_directory)
    await bench.turn(50)
    await bench.crash()
    round_ = bench.live(opened).round
    assert (round_.phase, round_.attempt, set(round_.receipts)) == (Phase.UPLOADING, 1, set())
    assert not bench.live(opened).receipts
    assert round_.remaining_s(bench.now) == round_.rules.upload_within_s
    for name in uploaded:
        ((work, _),) = (await bench.views.work(bench.world.member(name), cursor, 0))[0]
        assert (work.state, work.chunks_held) == (PartyState.UPLOADING, frozenset())


@on_bench
async def test_uploads_that_a_backup_lacks_are_asked_for_again(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    await bench.contribute(opened, *THREE)
    await restored(bench, opened, *THREE)
    await bench.contribute(opened, *PARTIES)
    await bench.crash()
    await bench.settled()
    await bench.check_total(opened, PARTIES)


@on_bench
async def test_uploads_that_a_backup_lacks_are_asked_for_again_while_they_were_added(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    await bench.contribute(opened, *THREE)
    await bench.upload(opened, "dan")
    bench.core.draining = True
    await bench.receipt(opened, "dan")
    assert bench.phase(opened) is Phase.ADDING
    await restored(bench, opened, *PARTIES)
    await bench.contribute(opened, *PARTIES)
    await bench.settled()
    await bench.check_total(opened, PARTIES)


@on_bench
async def test_phases_keep_their_remaining_time_over_a_restart_and_the_end_does_not_move(bench):
    opened = await bench.ask(not_after_unix_s=int(bench.wall) + 500)
    await bench.turn(20)
    await bench.core._save_times()
    await bench.crash(down_s=400)
    assert bench.live(opened).round.remaining_s(bench.now) == pytest.approx(40)
    assert bench.live(opened).round.expires_at - bench.now == pytest.approx(80)
    await bench.turn(39)
    assert bench.phase(opened) is Phase.ANSWERING
    await bench.turn(1)
    assert bench.phase(opened) is Phase.FAILED


@on_bench
async def test_a_query_that_expired_while_down_fails_at_the_first_tick(bench):
    opened = await bench.ask()
    await bench.crash(down_s=4000)
    await bench.turn(0)
    assert (await bench.status(opened)).code == Code.QUERY_EXPIRED


@on_bench
async def test_a_damaged_spool_ends_the_query_cleanly(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    await bench.contribute(opened, *THREE)
    await bench.upload(opened, "dan")
    path = next(bench.config.spool_directory.rglob("bob/0-*"))
    path.write_bytes(bytes(path.stat().st_size))
    await bench.receipt(opened, "dan")
    await bench.settled()
    status = await bench.status(opened)
    assert (status.code, status.detail) == (Code.INTERNAL, "The stored upload of bob was damaged.")
    await refusal(Code.INTERNAL, bench.views.total_chunk(bench.world.member("lea"), opened.query_id, 0))


def test_adding_waits_for_room_on_the_disk(world, monkeypatch):
    monkeypatch.setattr("coordinator.core.ADD_AGAIN_AFTER_S", 0.01)
    real, failures = os.fsync, [3]

    def failing(descriptor):
        if threading.current_thread().name.startswith("adding") and failures[0]:
            failures[0] -= 1
            raise OSError(errno.ENOSPC, "full")
        real(descriptor)

    @on_bench
    async def play(bench):
        opened = await bench.ask()
        await bench.to_uploading(opened)
        await bench.contribute(opened, *THREE)
        await bench.upload(opened, "dan")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing)
            await bench.receipt(opened, "dan")
            await bench.settled()
        assert not failures[0]
        await bench.check_total(opened, PARTIES)

    play(world)


def test_a_full_spool_refuses_the_chunk_and_takes_it_later(world):
    async def play():
        bench = await Bench(world, spool_bytes=4 * 1024).start()
        opened = await bench.ask()
        bench.config = world.with_limits(spool_bytes=3 * 1024)
        await bench.crash()
        await bench.to_uploading(opened)
        await bench.contribute(opened, *THREE)
        error = await refusal(Code.SPOOL_FULL, bench.upload(opened, "dan"))
        assert "party retries" in error.hint
        bench.config = world.with_limits(spool_bytes=4 * 1024)
        await bench.crash()
        await bench.contribute(opened, "dan")
        await bench.settled()
        await bench.check_total(opened, PARTIES)
        await bench.core.close()

    asyncio.run(play())


@on_bench
async def test_a_chunk_that_ends_after_its_attempt_leaves_nothing(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    spool, entered, go_on = bench.core.spool, threading.Event(), threading.Event()
    real = spool.put

    def slow(*args):
        entered.set()
        go_on.wait(HANG_S)
        return real(*args)

    spool.put = slow
    uploading = asyncio.create_task(bench.upload(opened, "ann"))
    await asyncio.to_thread(entered.wait, HANG_S)
    await bench.turn(60)
    await asyncio.sleep(0.05)
    go_on.set()
    await refusal(Code.PHASE_MISMATCH, uploading)
    assert spool.used_bytes == 0
    assert not list(bench.config.spool_directory.rglob("0-*"))


@on_bench
async def test_one_slow_upload_delays_no_other(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    real, go_on = bench.core.spool.put, threading.Event()

    def slow_for_ann(query_id, attempt, party, chunk):
        if party == "ann":
            go_on.wait(HANG_S)
        return real(query_id, attempt, party, chunk)

    bench.core.spool.put = slow_for_ann
    waiting = asyncio.create_task(bench.upload(opened, "ann"))
    await bench.contribute(opened, *PARTIES[1:])
    assert not waiting.done()
    go_on.set()
    await waiting
    await bench.receipt(opened, "ann")
    await bench.settled()
    await bench.check_total(opened, PARTIES)


@on_bench
async def test_a_caller_that_disconnects_does_not_interrupt_a_change(bench):
    """It is cancelled during the commit: the change is completed, and memory and store agree."""
    opened = await bench.ask()
    entered, go_on, real = threading.Event(), threading.Event(), bench.store.save

    def slow(*args, **options):
        entered.set()
        go_on.wait(HANG_S)
        return real(*args, **options)

    bench.store.save = slow
    call = asyncio.create_task(bench.accept(opened, "ann"))
    await asyncio.to_thread(entered.wait, HANG_S)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    go_on.set()
    await bench.settled()
    assert set(bench.store.load()[0].round_data["answers"]) == {"ann"} == set(bench.live(opened).round.answers)
    await bench.accept(opened, "bob")


@on_bench
async def test_parallel_calls_give_the_same_result_as_sequential_ones(bench):
    """Repeats and all parties at the same time: nothing is counted twice."""
    opened = await bench.ask()
    said = [(bench.world.acceptance(opened.query_id, name), bench.world.member(name)) for name in PARTIES]
    await asyncio.gather(*(bench.intake.acceptance(*each) for each in said * 3))
    await asyncio.gather(*(bench.ready(opened, name) for name in PARTIES * 3))
    await asyncio.gather(*(bench.upload(opened, name) for name in PARTIES * 3))
    await asyncio.gather(*(bench.receipt(opened, name) for name in PARTIES * 3))
    await bench.settled()
    await bench.check_total(opened, PARTIES)


@on_bench
async def test_forgotten_queries_never_run_again(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    await bench.contribute(opened, *PARTIES)
    await bench.settled()
    bench.wall += 86_400 - 1
    await bench.core._forget()
    await bench.check_total(opened, PARTIES)
    bench.wall += 2
    await bench.core._forget()
    await refusal(Code.QUERY_UNKNOWN, bench.status(opened))
    assert not list(bench.config.spool_directory.iterdir())
    await refusal(Code.QUERY_EXPIRED, bench.intake.query(opened.envelope, bench.world.member("lea")))


@on_bench
async def test_a_long_lived_query_is_remembered_after_it_was_forgotten(bench):
    opened = await bench.ask(not_after_unix_s=int(bench.wall) + 500_000)
    await bench.cancel(opened)
    bench.wall += 90_000
    await bench.core._forget()
    await refusal(Code.QUERY_UNKNOWN, bench.status(opened))
    await bench.crash()
    await refusal(Code.QUERY_CLOSED, bench.intake.query(opened.envelope, bench.world.member("lea")))


@on_bench
async def test_a_query_whose_slots_do_not_fit_its_key_is_refused(bench):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wire.query.ciphertext_count", _no_room)
        await refusal(Code.ENCODING_OVERFLOW, bench.ask())


def _no_room(*_):
    from dpcore.errors import PlanError

    raise PlanError("no room")


@on_bench
async def test_work_comes_once_per_change_and_ends_with_the_query(bench):
    ann = bench.world.member("ann")
    items, cursor = await bench.views.work(ann, 0, 0)
    assert not items
    opened = await bench.ask()
    ((work, _),), cursor = await bench.views.work(ann, cursor, 0)
    assert (Envelope.from_proto(work.query.to_proto()), work.state) == (opened.envelope, PartyState.SILENT)
    await bench.accept(opened, *THREE)
    items, cursor = await bench.views.work(ann, cursor, 0)
    assert not items, "the answers of others are not work"
    await bench.accept(opened, "dan")
    assert not (await bench.views.work(ann, cursor, 0))[0], "who has answered waits for the cohort"
    ((work, _),), _ = await bench.views.work(ann, 0, 0)
    assert (work.phase, work.state) == (Phase.PREPARING, PartyState.ACCEPTED), "who begins sees the phase"
    await bench.ready(opened, *PARTIES)
    ((work, _),), cursor = await bench.views.work(ann, cursor, 0)
    assert (work.phase, work.state) == (Phase.UPLOADING, PartyState.UPLOADING)
    await bench.cancel(opened)
    ((work, _),), cursor = await bench.views.work(ann, cursor, 0)
    assert work.phase is Phase.FAILED
    assert not (await bench.views.work(ann, cursor, 0))[0]
    assert not (await bench.views.work(ann, 0, 0))[0], "from the beginning, only what is open"


@on_bench
async def test_a_party_that_has_not_answered_sees_that_the_others_prepare(bench):
    dan = bench.world.member("dan")
    opened = await bench.ask()
    _, cursor = await bench.views.work(dan, 0, 0)
    await bench.accept(opened, *THREE)
    await bench.turn(60)
    ((work, _),), _ = await bench.views.work(dan, cursor, 0)
    assert (work.phase, work.state) == (Phase.PREPARING, PartyState.SILENT)


@on_bench
async def test_who_has_uploaded_is_told_of_the_end_only(bench):
    ann = bench.world.member("ann")
    opened = await bench.ask()
    await bench.to_uploading(opened)
    _, cursor = await bench.views.work(ann, 0, 0)
    await bench.contribute(opened, *PARTIES)
    await bench.settled()
    ((work, _),), _ = await bench.views.work(ann, cursor, 0)
    assert work.phase is Phase.COMPLETE
    assert bench.live(opened).revisions.work_revision - cursor > len(PARTIES), "there were steps in between"


@on_bench
async def test_a_receipt_with_the_last_chunk_is_one_call_also_after_a_crash_and_again(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    for name in PARTIES:
        *first, last = bench.world.chunks(opened, name)
        member, cohort = bench.world.member(name), bench.live(opened).cohort
        receipt = bench.world.receipt(opened, cohort, name, [*first, last])
        call = (opened.query_id, 1, last, member, receipt)
        if first:
            await refusal(Code.CHUNK_MISSING, bench.intake.chunk(*call))
        for chunk in first:
            await bench.intake.chunk(opened.query_id, 1, chunk, member)
        await bench.intake.chunk(*call)
        await bench.crash()
        await bench.intake.chunk(*call)
    await bench.settled()
    assert bench.phase(opened) is Phase.COMPLETE
    await bench.intake.chunk(*call)
    await bench.check_total(opened, PARTIES)


@on_bench
async def test_a_receipt_that_does_not_match_is_refused_with_its_chunk_too(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    chunks, cohort = bench.world.chunks(opened, "ann"), bench.live(opened).cohort
    for chunk in chunks[:-1]:
        await bench.intake.chunk(opened.query_id, 1, chunk, bench.world.member("ann"))
    ann, call = bench.world.member("ann"), (opened.query_id, 1, chunks[-1])
    wrong = bench.world.receipt(opened, cohort, "ann", chunks, upload_digest=bytes(32))
    await refusal(Code.RECEIPT_INVALID, bench.intake.chunk(*call, ann, wrong))
    of_bob = bench.world.receipt(opened, cohort, "bob", chunks)
    await refusal(Code.SENDER_MISMATCH, bench.intake.chunk(*call, ann, of_bob))
    assert not bench.live(opened).receipts
    await bench.intake.chunk(*call, ann, bench.world.receipt(opened, cohort, "ann", chunks))
    assert set(bench.live(opened).receipts) == {"ann"}


@on_bench
async def test_a_learner_that_waits_for_the_end_is_told_nothing_else(bench):
    lea = bench.world.member("lea")
    opened = await bench.ask()
    waiting = asyncio.ensure_future(bench.views.watch(lea, opened.query_id, 0, HANG_S, ends_only=True))
    await bench.to_uploading(opened)
    await bench.contribute(opened, *PARTIES[1:])
    await asyncio.sleep(0)
    assert not waiting.done()
    await bench.contribute(opened, PARTIES[0])
    await bench.settled()
    status, _ = await waiting
    assert status.phase is Phase.COMPLETE


@on_bench
async def test_a_lost_attempt_is_an_end_until_it_is_tried_again(bench):
    lea = bench.world.member("lea")
    opened = await bench.ask()
    await bench.to_uploading(opened)
    await bench.turn(180)
    status, cursor = await bench.views.watch(lea, opened.query_id, 0, HANG_S, ends_only=True)
    assert status.phase is Phase.LOST
    await bench.retry(opened)
    waiting = asyncio.ensure_future(bench.views.watch(lea, opened.query_id, cursor, HANG_S, ends_only=True))
    await asyncio.sleep(0)
    assert not waiting.done()
    await bench.cancel(opened)
    assert (await waiting)[0].phase is Phase.FAILED


@on_bench
async def test_a_party_that_gave_up_stays_out_after_a_crash(bench):
    opened = await bench.ask()
    await bench.accept(opened, *PARTIES)
    await bench.ready(opened, "ann", "bob")
    refused_after_all = bench.world.refusal(opened.query_id, "ann")
    await bench.intake.refusal(refused_after_all, bench.world.member("ann"))
    await bench.crash()
    await bench.intake.refusal(refused_after_all, bench.world.member("ann"))
    await refusal(Code.ANSWER_CONFLICT, bench.ready(opened, "ann"))
    await bench.ready(opened, "cat", "dan")
    assert bench.live(opened).round.cohort == ("bob", "cat", "dan")
    await bench.upload(opened, "bob")
    given_up = bench.world.refusal(opened.query_id, "cat")
    await bench.intake.refusal(given_up, bench.world.member("cat"))
    for _ in range(2):
        assert bench.phase(opened) is Phase.LOST
        assert (await bench.status(opened)).detail.endswith("this member of the cohort gave up: cat (UNAVAILABLE).")
        await bench.settled()
        assert bench.core.spool.used_bytes == 0
        await bench.crash()
        await bench.intake.refusal(given_up, bench.world.member("cat"))


@on_bench
async def test_draining_ends_long_polls_and_accepts_no_query(bench):
    polls = [
        asyncio.create_task(bench.views.work(bench.world.member("ann"), 0, 25)),
        asyncio.create_task(bench.views.work(bench.world.member("bob"), 0, 25)),
    ]
    await asyncio.sleep(0.05)
    await bench.core.begin_draining()
    for items, _ in await asyncio.wait_for(asyncio.gather(*polls), 20):
        assert not items
    await refusal(Code.DRAINING, bench.ask())


def test_the_limits_are_those_of_the_configuration(world):
    async def play():
        bench = await Bench(world, open_queries=2, open_queries_per_learner=2).start()
        await bench.ask()
        await bench.ask(learner="lou")
        await refusal(Code.QUERIES_TOO_MANY, bench.ask())
        await bench.crash()
        await refusal(Code.QUERIES_TOO_MANY, bench.ask())
        await bench.core.close()

    asyncio.run(play())


def test_an_unknown_query_is_unknown(world):
    async def play():
        bench = await Bench(world).start()
        refused(Code.QUERY_UNKNOWN, bench.core.find, b"\0" * 32)
        await bench.core.close()

    asyncio.run(play())


@on_bench
async def test_a_query_of_a_newer_or_an_older_version_is_refused(bench):
    await refusal(Code.FEATURE_MISSING, bench.ask(features=("a-later-feature", "base-0-3")))
    await refusal(Code.FEATURE_MISSING, bench.ask(features=("bound-totals", "committed-seeds")))


@on_bench
async def test_a_learner_cannot_send_another_s_retry(bench):
    opened = await bench.ask()
    envelope = Retry(opened.query_id, "lea", 2).sign(bench.world.keys["lea"])
    await refusal(Code.QUERY_UNKNOWN, bench.intake.retry(envelope, bench.world.member("lou")))


@on_bench
async def test_a_party_that_joined_after_the_query_does_not_upload_for_it(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    (chunk,) = bench.world.chunks(opened, "ann")
    joined = dataclasses.replace(bench.world.member("ann"), name="eve")
    await refusal(Code.QUERY_UNKNOWN, bench.intake.chunk(opened.query_id, 1, chunk, joined))


@on_bench
async def test_a_chunk_whose_directory_went_with_its_attempt_is_refused_by_its_code(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    (chunk,) = bench.world.chunks(opened, "ann")
    loop = asyncio.get_running_loop()

    def put(*_):
        asyncio.run_coroutine_threadsafe(bench.cancel(opened), loop).result(HANG_S)
        raise FileNotFoundError

    bench.core.spool.put = put
    await refusal(Code.QUERY_CLOSED, bench.intake.chunk(opened.query_id, 1, chunk, bench.world.member("ann")))


def membership(world, roster):
    world.config.roster.write_bytes(roster.sign(world.federation_key).to_bytes())
    return Membership(
        world.config.roster,
        federation=world.config.federation,
        name="coordinator",
        federation_key=world.federation_key.public_bytes,
        store=Store(world.root / "store.sqlite", world.config.federation),
        log=Log("test"),
    )


def test_a_roster_of_another_federation_is_not_served(world):
    world.federation_key._federation = "others"
    with pytest.raises(ConfigurationError, match="belongs to federation 'others'"):
        membership(world, dataclasses.replace(world.roster, federation="others"))


def test_a_roster_with_another_coordinator_is_not_served(world):
    renamed = tuple(
        dataclasses.replace(member, name="hub") if member.name == "coordinator" else member
        for member in world.roster.members
    )
    with pytest.raises(ConfigurationError, match="has no coordinator"):
        membership(world, dataclasses.replace(world.roster, members=renamed))


@pytest.mark.parametrize("product", ["none", "number", "long", "no unit"])
def test_a_worker_s_product_is_checked_like_an_upload(world, product):
    live = SimpleNamespace(opened=world.open(world.query()))
    width = live.opened.chunk_bytes(0)
    given = {"none": None, "number": 5, "long": b"\1" * 2 * width, "no unit": bytes(width)}[product]
    with pytest.raises(ClusterError, match="a worker returned"):
        _checked(live, 0, [given])
