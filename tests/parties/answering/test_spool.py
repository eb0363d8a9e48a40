import errno
import os
from dataclasses import replace

import numpy as np
import pytest

from parties.answering.coordinator_calls import may_pass
from parties.answering.spool import SpoolFullError, SpoolLostError, Spools, SpoolUnreadableError
from radobase.writing import overwrite_durably
from wire.envelopes import sha256
from wire.errors import Code
from wire.statements import upload_digest

QUERY = b"q" * 32
CHUNKS = [b"a" * 1000, b"b" * 1000, b"c" * 500]


@pytest.fixture
def spools(tmp_path):
    return Spools(tmp_path / "spool", 10_000)


def write(spools, chunks=CHUNKS, *, attempt=1, needed=2500):
    return spools.write(QUERY, attempt, iter(chunks), needed_bytes=needed, width=500)


def found_again(spools, attempt=1):
    return spools.open(QUERY, attempt, masked=True)


def leftovers(spools):
    return sorted(path.name for path in spools.directory.rglob("*") if path.is_file())


def test_what_is_written_is_found_again(spools):
    written = write(spools)
    found = found_again(Spools(spools.directory, 10_000))
    assert found == written
    assert [found.chunk(i).ciphertexts for i in range(3)] == CHUNKS
    assert (found.ciphertexts, found.digest) == (5, upload_digest([sha256(c) for c in CHUNKS]))
    found.verify()
    assert spools.used_bytes() == 2500


def test_a_changed_cut_or_missing_chunk_is_noticed(spools):
    spool = write(spools)
    path = spool.path / "chunk-000001.bin"
    for damage in (b"x" + path.read_bytes()[1:], path.read_bytes()[:-1], None):
        path.unlink() if damage is None else path.write_bytes(damage)
        with pytest.raises(SpoolLostError):
            found_again(spools).verify()


def test_a_lack_of_memory_is_no_lost_contribution(spools, monkeypatch):
    spool = spools.write(QUERY, 1, iter(CHUNKS), needed_bytes=2500, width=500, values=np.arange(5))

    def full(*_):
        raise MemoryError

    monkeypatch.setattr("radobase.reading._open_regular", full)
    for read in (spool.verify, spool.values, lambda: spools.open(QUERY, 1)):
        with pytest.raises(SpoolUnreadableError):
            read()


def test_a_manifest_that_does_not_fit_into_memory_is_no_lost_contribution(spools, monkeypatch):
    write(spools)

    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr("radobase.reading.json.loads", full)
    with pytest.raises(SpoolUnreadableError):
        found_again(spools)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO, errno.EACCES, errno.ESTALE])
def test_a_failure_to_read_is_no_lost_contribution(spools, monkeypatch, number):
    spool = spools.write(QUERY, 1, iter(CHUNKS), needed_bytes=2500, width=500, values=np.arange(5))

    def fails(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("radobase.reading._open_regular", fails)
    for read in (spool.verify, spool.values, lambda: spools.open(QUERY, 1)):
        with pytest.raises(SpoolUnreadableError) as caught:
            read()
        assert may_pass(caught.value)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENOTDIR])
def test_a_file_that_is_not_there_is_a_lost_contribution(spools, monkeypatch, number):
    spool = write(spools)

    def fails(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("radobase.reading._open_regular", fails)
    with pytest.raises(SpoolLostError):
        spool.verify()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"chunks": ["zz"], "ciphertexts": 1}', b'{"chunks": []}'])
def test_a_damaged_manifest_is_noticed(spools, content):
    spool = write(spools)
    (spool.path / "manifest.json").write_bytes(content)
    with pytest.raises(SpoolLostError, match="manifest"):
        found_again(spools)


def test_a_spool_that_is_gone_is_lost(spools):
    write(spools)
    spools.remove(QUERY, 1)
    with pytest.raises(SpoolLostError):
        found_again(spools)
    spools.remove(QUERY, 1)
    assert leftovers(spools) == []


def test_the_quota_holds_over_all_spools(spools):
    write(spools, attempt=1, needed=2500)
    with pytest.raises(SpoolFullError) as caught:
        write(spools, attempt=2, needed=7501)
    assert caught.value.code is Code.SPOOL_FULL
    assert (caught.value.needed_bytes, caught.value.available_bytes) == (7501, 7500)
    write(spools, attempt=2, needed=7500)
    spools.remove(QUERY, 2)
    write(spools, attempt=3, needed=7500)


def test_what_is_being_written_counts_too(spools):
    def chunks():
        with pytest.raises(SpoolFullError):
            write(spools, attempt=2, needed=2000)
        yield b"a" * 500

    write(spools, chunks(), needed=9000)
    write(spools, attempt=2, needed=2000)


def test_one_that_another_thread_removes_does_not_stop_the_next(spools, monkeypatch):
    """As where one query ends while another is answered."""
    write(spools, attempt=1, needed=9000)
    scandir = os.scandir

    def too_late(path):
        monkeypatch.setattr(os, "scandir", scandir)
        spools.remove(QUERY, 1)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", too_late)
    assert write(spools, attempt=2, needed=9000).hashes
    assert os.scandir is scandir


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("at", range(6))
def test_a_full_disk_leaves_nothing(spools, monkeypatch, number, at):
    """The disk is full at the at-th fsync: of a chunk, the manifest, or a directory."""
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) - 1 == at:
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SpoolFullError):
        write(spools)
    assert len(calls) == at + 1
    monkeypatch.undo()
    assert leftovers(spools) == []
    assert spools.used_bytes() == 0
    write(spools, needed=10_000)


def test_an_error_while_computing_leaves_nothing(spools):
    def chunks():
        yield b"a" * 500
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write(spools, chunks())
    assert leftovers(spools) == []
    write(spools, needed=10_000)


def test_a_crash_leaves_something_that_the_next_start_clears(spools):
    def chunks():
        yield b"a" * 500
        (other,) = spools.directory.iterdir()
        assert other.name.startswith("unfinished-")
        again = Spools(spools.directory, 10_000)
        assert leftovers(again) == []
        yield b"b" * 500

    with pytest.raises(FileNotFoundError):
        write(spools, chunks())


def test_writing_again_replaces(spools):
    write(spools)
    second = write(spools, [b"z" * 500], needed=500)
    assert found_again(spools) == second
    assert spools.used_bytes() == 500


def test_only_wanted_spools_are_kept(spools):
    write(spools, attempt=1)
    write(spools, attempt=2)
    assert spools.keep_only([(QUERY, 2)]) == 1
    found_again(spools, 2).verify()
    with pytest.raises(SpoolLostError):
        found_again(spools)


def write_bare(spools, values):
    return spools.write(QUERY, 1, iter(CHUNKS), needed_bytes=3000, width=500, values=values)


def test_a_bare_contribution_keeps_its_integers_and_is_removed_separately(spools):
    values = np.array([-(2**40), 0, 7], dtype=np.int64)
    write_bare(spools, values)
    masked = write(spools)
    bare = Spools(spools.directory, 10_000).open(QUERY, 1)
    assert bare.path != masked.path
    assert (bare.values() == values).all()
    assert spools.keep_only([(QUERY, 1)]) == 0
    spools.remove_bare(QUERY, 1)
    with pytest.raises(SpoolLostError):
        spools.open(QUERY, 1)
    found_again(spools).verify()
    assert "values.bin" not in leftovers(spools)
    write_bare(spools, values)
    spools.remove(QUERY, 1)
    assert leftovers(spools) == []


def test_a_bare_contribution_reserves_the_space_of_its_masked_one(spools):
    """Otherwise another query could take the space, and the cohort would wait for this party in vain."""
    write_bare(spools, np.arange(3))
    assert spools.used_bytes() == 2 * 2500 + 24
    with pytest.raises(SpoolFullError):
        write(spools, attempt=2, needed=10_000 - 5024 + 1)
    write(spools, [b"f" * 500], attempt=2, needed=10_000 - 5024)
    write(spools, needed=2500)
    assert spools.used_bytes() == 2 * 2500 + 24 + 500
    spools.remove_bare(QUERY, 1)
    assert spools.used_bytes() == 2500 + 500


@pytest.mark.parametrize("damage", ["changed", "lost"])
def test_changed_or_lost_integers_are_noticed(spools, damage):
    path = write_bare(spools, np.arange(3)).path / "values.bin"
    path.unlink() if damage == "lost" else path.write_bytes(b"\1" + path.read_bytes()[1:])
    with pytest.raises(SpoolLostError, match="values"):
        spools.open(QUERY, 1).values()


def full_but_for_what_is_taken(path, content):
    """Writes to a disk without room for another file."""
    if not path.exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    overwrite_durably(path, content)


def test_the_masked_one_is_written_into_the_space_reserved_with_the_bare_one(spools, monkeypatch):
    bare = write_bare(spools, np.arange(3)).path
    taken = {file.name: file.stat() for file in (bare / "room").iterdir()}
    assert all(stat.st_blocks * 512 >= stat.st_size > 0 for stat in taken.values())
    monkeypatch.setattr("parties.answering.spool.overwrite_durably", full_but_for_what_is_taken)
    masked = write(spools, [chunk.replace(b"b", b"m") for chunk in CHUNKS])
    masked.verify()
    assert {file.name: (file.stat().st_ino, file.stat().st_size) for file in masked.path.iterdir()} == {
        name: (stat.st_ino, stat.st_size) for name, stat in taken.items()
    }
    # There was no charge, and the cohort differs: the same space is used again.
    again = write(spools, [chunk.replace(b"b", b"n") for chunk in CHUNKS])
    again.verify()
    assert again.digest != masked.digest
    spools.open(QUERY, 1).verify()
    spools.remove(QUERY, 1)
    assert leftovers(spools) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_reserved_space_survives_an_interrupted_masking(spools, monkeypatch, restarts):
    write_bare(spools, np.arange(3))

    def cut_off():
        yield b"m" * 1000
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(spools, cut_off())
    with pytest.raises(SpoolLostError):
        found_again(spools)
    spools = Spools(spools.directory, 10_000) if restarts else spools
    monkeypatch.setattr("parties.answering.spool.overwrite_durably", full_but_for_what_is_taken)
    write(spools)
    assert [found_again(spools).chunk(index).ciphertexts for index in range(3)] == CHUNKS


def test_a_disk_without_room_for_the_masked_one_refuses_the_bare_one(spools, monkeypatch):
    def full(_descriptor, _offset, length):
        raise OSError(errno.ENOSPC, f"{length} bytes more")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SpoolFullError, match="the disk is full"):
        write_bare(spools, np.arange(3))
    assert leftovers(spools) == []


@pytest.mark.parametrize("lacks", ["the call", "support"])
def test_room_is_taken_where_the_system_cannot_allocate(spools, monkeypatch, lacks):
    if lacks == "the call":
        monkeypatch.delattr(os, "posix_fallocate")
    else:

        def unsupported(*_):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

        monkeypatch.setattr(os, "posix_fallocate", unsupported)
    room = write_bare(spools, np.arange(3)).path / "room"
    assert sorted(file.stat().st_size for file in room.glob("chunk-*")) == [500, 1000, 1000]
    write(spools).verify()


def test_a_bare_contribution_without_reserved_space_is_still_masked(spools):
    """As an earlier version wrote it."""
    room = write_bare(spools, np.arange(3)).path / "room"
    for file in room.iterdir():
        file.unlink()
    room.rmdir()
    write(spools).verify()


def test_integers_of_another_length_are_not_read(spools):
    """The manifest was changed with them."""
    spool = spools.write(QUERY, 1, iter(CHUNKS), needed_bytes=2500, width=500, values=np.arange(5))
    file = spool.path / "values.bin"
    file.write_bytes(b"seven b")
    with pytest.raises(SpoolLostError, match="changed"):
        replace(spool, values_hash=sha256(b"seven b")).values()
