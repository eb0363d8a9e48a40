"""Chunks on disk: written atomically, within the quota, found again, never replaced."""

import errno
import os
import threading

import pytest

from coordinator.uploads import SpoolDamagedError, SpoolUnreadableError, UploadSpool, scan
from tests.federation.coordinator import refused
from tests.waiting import HANG_S
from wire.errors import Code
from wire.statements import Chunk

ID, OTHER = b"\1" * 32, b"\2" * 32


@pytest.fixture
def spool(tmp_path):
    return UploadSpool(tmp_path / "spool", 1000)


def files(tmp_path):
    return sorted(path for path in (tmp_path / "spool").rglob("*") if path.is_file())


def chunk(index, content=b"0123456789"):
    return Chunk.of(index, content)


def test_what_was_put_is_there_after_a_restart(spool, tmp_path):
    assert spool.put(ID, 1, "ann", chunk(0))
    assert spool.put(ID, 1, "ann", chunk(2, b"two"))
    assert spool.put(ID, 1, "bob-2", chunk(0, b"bob"))
    assert spool.put_total(ID, chunk(0, b"total"))
    again = UploadSpool(tmp_path / "spool", 1000)
    assert sorted(again.held(ID, 1, "ann")) == [0, 2]
    assert again.held(ID, 1, "ann")[2].content_hash == chunk(2, b"two").content_hash
    assert again.read(ID, 1, "ann", 2) == b"two"
    assert again.read(ID, 1, "bob-2", 0) == b"bob"
    assert again.read_total(ID, 0) == b"total"
    assert again.used_bytes == spool.used_bytes == 16
    assert (again.count(ID, 1, "ann"), again.count(ID, 2, "ann"), again.count(OTHER, 1, "ann")) == (2, 0, 0)


def test_a_chunk_is_never_replaced(spool):
    assert spool.put(ID, 1, "ann", chunk(0))
    assert not spool.put(ID, 1, "ann", chunk(0))
    assert spool.is_repeat(ID, 1, "ann", chunk(0))
    refused(Code.CHUNK_CONFLICT, spool.put, ID, 1, "ann", chunk(0, b"other"))
    refused(Code.CHUNK_CONFLICT, spool.is_repeat, ID, 1, "ann", chunk(0, b"other"))
    assert spool.read(ID, 1, "ann", 0) == b"0123456789"
    assert spool.put(ID, 2, "ann", chunk(0, b"other"))
    assert spool.used_bytes == 15


def test_of_many_writers_of_one_index_one_wins(tmp_path):
    spool = UploadSpool(tmp_path / "spool", 10**6)
    outcomes = []

    def write(number):
        try:
            outcomes.append(spool.put(ID, 1, "ann", chunk(0, bytes([number]) * 10)))
        except Exception as error:  # noqa: BLE001 - counted below
            outcomes.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(True) == 1
    assert {getattr(o, "code", None) for o in outcomes if o is not True} == {Code.CHUNK_CONFLICT}
    assert len(files(tmp_path)) == 1
    assert spool.used_bytes == 10


def test_the_quota_holds_over_all_queries_and_frees_again(tmp_path):
    spool = UploadSpool(tmp_path / "spool", 25)
    spool.put(ID, 1, "ann", chunk(0))
    spool.put(OTHER, 1, "ann", chunk(0))
    refused(Code.SPOOL_FULL, spool.put, ID, 1, "bob", chunk(0))
    assert len(files(tmp_path)) == 2
    spool.put(ID, 1, "bob", chunk(0, b"12345"))
    spool.put_total(ID, chunk(0))  # takes the place of the uploads, so it is not counted
    spool.drop_attempt(ID, 1)
    assert spool.used_bytes == 10
    spool.put(ID, 2, "bob", chunk(0))
    spool.drop_query(ID)
    spool.drop_query(ID)
    assert spool.used_bytes == 10
    assert not spool.held_total(ID)
    assert len(files(tmp_path)) == 1


def test_a_writer_that_outlives_its_attempt_meets_no_other_at_the_same_file(spool, tmp_path, monkeypatch):
    entered, go_on, real = threading.Event(), threading.Event(), os.fsync
    spool.put(ID, 1, "ann", chunk(1))  # the directories are there

    def slow(descriptor):
        if not entered.is_set():
            entered.set()
            go_on.wait(HANG_S)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    outcomes = []

    def write():
        try:
            outcomes.append(spool.put(ID, 1, "ann", chunk(0)))
        except FileNotFoundError:
            outcomes.append("its directory was gone")

    first, second = threading.Thread(target=write), threading.Thread(target=write)
    first.start()
    assert entered.wait(HANG_S)
    spool.drop_attempt(ID, 1)
    second.start()
    second.join(0.2)
    assert second.is_alive(), "it waits for the first"
    go_on.set()
    first.join()
    second.join()
    assert outcomes == ["its directory was gone", True]
    assert spool.used_bytes == 10
    spool.drop_attempt(ID, 1)
    assert spool.used_bytes == 0
    assert not files(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO], ids=["full", "quota", "broken"])
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failing_disk_leaves_nothing(spool, tmp_path, monkeypatch, call, number):
    spool.put(ID, 1, "ann", chunk(0))
    before = files(tmp_path)
    real, calls = getattr(os, call), []

    def failing(descriptor, *rest):
        calls.append(descriptor)
        if call == "write" and len(calls) == 1:
            return real(descriptor, rest[0][:4])  # a part is written before the disk is full
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        if number == errno.EIO:
            with pytest.raises(OSError, match="error"):
                spool.put(ID, 1, "ann", chunk(1))
        else:
            refused(Code.SPOOL_FULL, spool.put, ID, 1, "ann", chunk(1))
    assert files(tmp_path) == before
    assert spool.used_bytes == 10
    assert list(spool.held(ID, 1, "ann")) == [0]
    assert spool.put(ID, 1, "ann", chunk(1)), "once there is room it goes on"


def test_a_directory_that_cannot_be_synchronised_leaves_nothing(spool, tmp_path, monkeypatch):
    """The last fsync, after the rename, fails: the chunk was not acknowledged and must not be there."""
    spool.put(ID, 1, "ann", chunk(0))
    real, calls = os.fsync, []

    def failing(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "full")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    refused(Code.SPOOL_FULL, spool.put, ID, 1, "ann", chunk(1))
    assert len(files(tmp_path)) == 1


def test_every_put_is_synchronised_with_its_directory(spool, monkeypatch):
    real, synchronised = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda d: (synchronised.append(os.fstat(d).st_mode >> 12), real(d)))
    spool.put(ID, 1, "ann", chunk(0))
    assert synchronised == [4, 4, 4, 8, 4], "three new directories' parents, the file, its directory"


def test_unfinished_files_are_removed_at_start(spool, tmp_path):
    spool.put(ID, 1, "ann", chunk(0))
    (good,) = files(tmp_path)
    good.with_name(good.name.replace("0-", "1-") + ".part").write_bytes(b"half")
    again = UploadSpool(tmp_path / "spool", 1000)
    assert files(tmp_path) == [good]
    assert list(again.held(ID, 1, "ann")) == [0]


def test_damage_is_noticed_at_reading(spool, tmp_path):
    spool.put(ID, 1, "ann", chunk(0))
    (path,) = files(tmp_path)
    path.write_bytes(b"012345678X")
    with pytest.raises(SpoolDamagedError, match="chunk 0 of ann"):
        spool.read(ID, 1, "ann", 0)
    path.unlink()
    with pytest.raises(SpoolDamagedError):
        spool.read(ID, 1, "ann", 0)
    with pytest.raises(SpoolDamagedError):
        spool.read(ID, 1, "ann", 5)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), MemoryError()])
def test_a_read_that_may_succeed_later_is_not_damage(spool, monkeypatch, error):
    def fail(*_):
        raise error

    spool.put(ID, 1, "ann", chunk(0))
    with monkeypatch.context() as broken:
        broken.setattr("radobase.reading._open_regular", fail)
        with pytest.raises(SpoolUnreadableError):
            spool.read(ID, 1, "ann", 0)
    assert spool.read(ID, 1, "ann", 0) == b"0123456789"


def test_after_a_restart_only_what_is_of_use_stays(tmp_path):
    spool = UploadSpool(tmp_path / "spool", 1000)
    third = b"\3" * 32
    for query_id in (ID, OTHER, third):
        for attempt in (1, 2):
            spool.put(query_id, attempt, "ann", chunk(0))
        spool.put_total(query_id, chunk(0))
    (tmp_path / "spool" / ("ff" * 32) / "1").mkdir(parents=True)
    spool.keep_only({ID: 2, OTHER: None})
    assert not spool.held(ID, 1, "ann")
    assert spool.held(ID, 2, "ann")
    assert not spool.held(OTHER, 2, "ann")
    assert spool.held_total(OTHER)
    assert not spool.held_total(third)
    assert {path.name for path in (tmp_path / "spool").iterdir()} == {ID.hex(), OTHER.hex()}
    assert spool.used_bytes == 10


def test_scanning_continues_if_a_directory_is_deleted_meanwhile(spool, tmp_path, monkeypatch):
    """As a status command next to a running coordinator does."""
    spool.put(ID, 1, "ann", chunk(0))
    spool.put(OTHER, 1, "ann", chunk(0))
    real = os.scandir

    def vanishing(path):
        if str(path).endswith(OTHER.hex()):
            spool.drop_query(OTHER)
        return real(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    assert list(scan(tmp_path / "spool")) == [(ID, "1", "ann")]


def test_scanning_a_missing_directory_finds_nothing(tmp_path):
    assert scan(tmp_path / "nowhere") == {}
