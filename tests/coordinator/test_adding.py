"""Computing totals during failures of the disk, the database, the spool and the code itself."""

import json
import logging
import sqlite3
import threading

import pytest

from coordinator import uploads
from dpcore.errors import ConfigurationError
from tests.federation.coordinator import MANY_RADOS, PARTIES
from tests.federation.coordinator_core import on_bench
from tests.waiting import HANG_S, wait_until
from wire.errors import Code
from wire.status import Phase


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr("coordinator.core.ADD_AGAIN_AFTER_S", 0.01)


def test_a_bug_in_the_adding_ends_the_query_and_is_logged(world, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("a bug")

    @on_bench
    async def play(bench):
        opened = await bench.ask()
        await bench.to_uploading(opened)
        monkeypatch.setattr(uploads, "multiply", broken)
        await bench.contribute(opened, *PARTIES)
        await bench.settled()
        status = await bench.status(opened)
        assert (status.phase, status.code, status.detail) == (
            Phase.FAILED, Code.INTERNAL, "The total could not be computed.",
        )  # fmt: skip
        assert not list(bench.config.spool_directory.rglob("0-*"))

    play(world)
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == ["adding failed"]


@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), OSError("gone"), RuntimeError("a bug")])
def test_a_commit_that_fails_after_the_adding_does_not_leave_the_query_behind(world, monkeypatch, error):
    """The total is there already; the commit is tried again, and after a bug's failure the query ends."""

    @on_bench
    async def play(bench):
        opened = await bench.ask()
        await bench.to_uploading(opened)
        await bench.contribute(opened, *PARTIES[:3])
        await bench.upload(opened, "dan")
        real, failures = bench.store.save, [2]

        def save(query_id, round_data, **options):
            if round_data["phase"] in ("COMPLETE", "FAILED") and failures[0]:
                failures[0] -= 1
                raise error
            return real(query_id, round_data, **options)

        monkeypatch.setattr(bench.store, "save", save)
        await bench.receipt(opened, "dan")
        await bench.settled()
        assert not failures[0]
        if isinstance(error, RuntimeError):
            assert (await bench.status(opened)).code == Code.INTERNAL
        else:
            await bench.check_total(opened, PARTIES)

    play(world)


def test_a_query_cancelled_in_the_middle_of_its_adding_leaves_nothing_and_no_false_alarm(world, monkeypatch, caplog):
    entered, go_on, real = threading.Event(), threading.Event(), uploads.multiply

    def slow(key, uploads):
        entered.set()
        go_on.wait(HANG_S)
        return real(key, uploads)

    monkeypatch.setattr(uploads, "multiply", slow)

    @on_bench
    async def play(bench):
        import asyncio

        opened = await bench.ask(rados=MANY_RADOS)
        await bench.to_uploading(opened)
        await bench.contribute(opened, *PARTIES)
        await asyncio.to_thread(entered.wait, HANG_S)
        await bench.cancel(opened)
        await asyncio.to_thread(wait_until, lambda: not bench.core.spool.used_bytes, what="the deletion")
        go_on.set()
        await bench.settled()
        assert (await bench.status(opened)).code == Code.CANCELLED
        assert not [path for path in bench.config.spool_directory.rglob("*") if path.is_file()]

    play(world)
    assert not [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]


def test_a_failure_without_a_waiting_caller_is_logged(world, caplog):
    @on_bench
    async def play(bench):
        opened = await bench.ask()

        def broken(*_):
            raise RuntimeError("a bug")

        bench.core.spool.drop_query = broken
        await bench.cancel(opened)
        await bench.settled()
        del bench.core.spool.drop_query

    play(world)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert record.getMessage() == "background work failed"
    assert record.exc_info[0] is RuntimeError


def test_a_damaged_store_is_refused_at_start_by_the_querys_id(world):
    @on_bench
    async def play(bench):
        opened = await bench.ask()
        data = bench.live(opened).round.to_dict(bench.now)
        for damage in ({**data, "phase": "ADDING"}, {**data, "phase": "SLEEPING"}, {"attempt": 1}):
            with sqlite3.connect(bench.config.store_file) as store:
                store.execute("UPDATE queries SET round = ?", (json.dumps(damage),))
            with pytest.raises(ConfigurationError, match=opened.query_id.hex()):
                await bench.crash()
        with sqlite3.connect(bench.config.store_file) as store:
            store.execute("UPDATE queries SET round = ?", (json.dumps(data),))
        await bench.crash()
        assert bench.phase(opened) is Phase.ANSWERING

    play(world)
