"""Writing files: the content and mode after each step that can fail."""

import errno
import os
import stat
import threading

import pytest

from radobase.writing import (
    BY_UMASK,
    create_durably,
    created_file,
    make_directory,
    new_file,
    overwrite_durably,
    publish_directory,
    reserve,
    sync_directory,
    write_durably,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def calls(monkeypatch):
    """The system calls that make content and names durable, in order."""
    made = []
    for name in ("write", "fsync", "replace", "rename"):
        real = getattr(os, name)

        def noted(*arguments, name=name, real=real):
            kind = name
            if name == "fsync":
                kind = "fsync directory" if stat.S_ISDIR(os.fstat(arguments[0]).st_mode) else "fsync file"
            made.append(kind)
            return real(*arguments)

        monkeypatch.setattr(os, name, noted)
    return made


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def fails_at(monkeypatch, call, at):
    """Make the at-th use of a call fail as on a full disk; all others work."""
    real, seen = getattr(os, call), []

    def failing(*arguments):
        seen.append(arguments)
        if len(seen) - 1 == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(os, call, failing)


def test_content_is_on_disk_before_its_name_and_the_name_before_the_return(path, calls):
    write_durably(path, b"new")
    assert calls == ["write", "fsync file", "replace", "fsync directory"]
    assert path.read_bytes() == b"new"


def test_content_that_may_be_lost_in_a_power_failure_is_only_renamed(path, calls):
    write_durably(path, b"new", synced=False)
    assert calls == ["write", "replace"]


@pytest.mark.parametrize("before", [None, b"old"])
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("name", [None, ".file.new"])
def test_a_full_disk_leaves_the_old_content_or_nothing(path, monkeypatch, before, call, name):
    if before is not None:
        path.write_bytes(before)
    fails_at(monkeypatch, call, 0)
    with pytest.raises(OSError, match="No space"):
        write_durably(path, b"new", temporary=None if name is None else path.with_name(name))
    monkeypatch.undo()
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == (
        {} if before is None else {"file": b"old"}
    )


def test_a_short_write_goes_on(path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, view: real(descriptor, view[:3]))
    write_durably(path, b"0123456789")
    assert path.read_bytes() == b"0123456789"


@pytest.mark.parametrize(
    ("given", "umask", "expected"),
    [(None, 0, 0o600), (BY_UMASK, 0o022, 0o644), (BY_UMASK, 0, 0o644), (BY_UMASK, 0o077, 0o600)],
)
def test_modes(path, given, umask, expected):
    path.write_bytes(b"old")
    path.chmod(0o640)
    left = path.with_name(".left")
    left.write_bytes(b"of a crash")
    left.chmod(0o777)
    before = os.umask(umask)
    try:
        write_durably(path, b"new", temporary=left, **({} if given is None else {"mode": given}))
    finally:
        os.umask(before)
    assert (mode(path), path.read_bytes()) == (expected, b"new")
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_link_left_in_the_temporary_file_s_place_is_not_followed(path, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"precious")
    left = path.with_name(".left")
    left.symlink_to(other)
    write_durably(path, b"new", temporary=left)
    assert (other.read_bytes(), path.read_bytes(), path.is_symlink()) == (b"precious", b"new", False)


def test_readers_and_other_writers_never_see_a_part(path):
    contents = [bytes([letter]) * 100_000 for letter in b"abcd"]
    write_durably(path, contents[0])
    seen, stop = set(), threading.Event()

    def read():
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=lambda c=c: [write_durably(path, c) for _ in range(20)]) for c in contents]
    for thread in (reader, *writers):
        thread.start()
    for writer in writers:
        writer.join()
    stop.set()
    reader.join()
    assert seen <= set(contents)
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_new_secret_belongs_to_its_owner_and_replaces_nothing(path, calls):
    before = os.umask(0)
    try:
        create_durably(path, b"secret")
    finally:
        os.umask(before)
    assert calls == ["write", "fsync file", "fsync directory"]
    assert (mode(path), path.read_bytes()) == (0o600, b"secret")
    with pytest.raises(FileExistsError):
        create_durably(path, b"other")
    assert path.read_bytes() == b"secret"


@pytest.mark.parametrize(("call", "at"), [("write", 0), ("fsync", 0), ("fsync", 1)])
def test_a_secret_that_does_not_fit_leaves_nothing(path, monkeypatch, call, at):
    fails_at(monkeypatch, call, at)
    with pytest.raises(OSError, match="No space"):
        create_durably(path, b"secret")
    assert list(path.parent.iterdir()) == []


def test_reserved_space_is_overwritten_in_place(path, calls):
    reserve(path, 100_000)
    reserved = path.stat()
    assert reserved.st_blocks * 512 >= reserved.st_size == 100_000
    calls.clear()
    overwrite_durably(path, b"x" * 50_000)
    assert calls == ["write", "fsync file"]
    assert (path.stat().st_ino, path.read_bytes(), mode(path)) == (reserved.st_ino, b"x" * 50_000, 0o600)


def test_a_long_file_gets_its_name_when_it_is_complete(path, calls):
    with created_file(path) as file:
        file.write(b"all of it")
        assert not path.exists()
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"all of it", 0o600)
    assert [call for call in calls if call != "write"] == ["fsync file", "rename", "fsync directory"]
    with pytest.raises(FileExistsError), created_file(path) as file:
        file.write(b"another")
    with pytest.raises(KeyError), created_file(path.with_name("other")):
        raise KeyError
    assert path.read_bytes() == b"all of it"
    assert list(path.parent.iterdir()) == [path]


def test_a_directory_is_published_whole(tmp_path, calls):
    draft, final = tmp_path / "draft", tmp_path / "final"
    draft.mkdir()
    with new_file(draft / "a") as file:
        file.write(b"content")
    publish_directory(draft, final)
    assert calls == ["fsync file", "fsync directory", "rename", "fsync directory"]
    assert (final / "a").read_bytes() == b"content"
    with pytest.raises(FileExistsError), new_file(final / "a"):
        pass


def test_each_new_directory_s_name_is_on_disk(tmp_path, calls):
    make_directory(tmp_path / "a" / "b", tmp_path)
    assert (tmp_path / "a" / "b").is_dir()
    assert calls == ["fsync directory"] * 2
    make_directory(tmp_path / "a" / "b", tmp_path)
    assert calls == ["fsync directory"] * 2


def test_only_a_directory_is_synchronised_as_one(path):
    path.write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        sync_directory(path)
