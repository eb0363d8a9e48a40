"""Writes files durably. Every role writes its state through this module.

After a crash a file has the old content, the new content or does not exist; it never has a part. Written content is on
disk. New content is written to a temporary file in the same directory, synced to disk and renamed. Then the directory
is synced too, because it holds the name.
"""

import errno
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

OWNER_ONLY = 0o600
"""The mode of a file that only its owner may read."""
BY_UMASK = 0o644
"""The mode of a file whose readers the process's umask determines. Never one that others may write to."""
UMASK = 0o022
"""What the program's umask takes away at least: others never write to what it makes."""

_NO_ALLOCATION = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})


def write_durably(
    path: Path, content: bytes, *, mode: int = OWNER_ONLY, temporary: Path | None = None, synced: bool = True
) -> None:
    """Create or replace a file atomically. It is on disk on return.

    mode: of the new file, before the umask. temporary: its name until it is complete, if only one process at a time
    writes the file; None: a new name each time. synced: False only renames, which is enough for content that may be
    lost in a power failure.

    Raises OSError and removes the temporary file.
    """
    if temporary is None:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    else:
        # A leftover of a crash could have another mode.
        temporary.unlink(missing_ok=True)
    try:
        with _opened(temporary, os.O_EXCL, mode, synced=synced) as descriptor:
            _write_whole(descriptor, content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if synced:
        sync_directory(path.parent)


def create_durably(path: Path, content: bytes) -> None:
    """Create a file that only its owner may read, such as a secret. It is on disk on return.

    Raises FileExistsError if the file exists, and OSError if it cannot be written; then no file is left.
    """
    try:
        with _opened(path, os.O_EXCL) as descriptor:
            _write_whole(descriptor, content)
        sync_directory(path.parent)
    except FileExistsError:
        raise
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def overwrite_durably(path: Path, content: bytes) -> None:
    """Overwrite a file in place, or create one that only its owner may read. On disk on return, but not atomic.

    Keeps the disk blocks of the old content, which `reserve` may have allocated. Raises OSError.
    """
    with _opened(path) as descriptor:
        _write_whole(descriptor, content)
        os.ftruncate(descriptor, len(content))


def reserve(path: Path, size_bytes: int) -> None:
    """Allocate disk space for `overwrite_durably`: a file of this size that only its owner may read. Raises OSError.

    A power failure may free it again: it holds nothing.
    """
    with _opened(path, synced=False) as descriptor:
        _allocate(descriptor, size_bytes)


@contextmanager
def created_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that only its owner may read, for content that does not fit in memory. On disk after the block.

    It gets its name at the end of the block. Raises FileExistsError if the name is taken, and OSError; if the block
    raises, no file is left.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with _opened(temporary, os.O_EXCL) as descriptor, os.fdopen(descriptor, "wb", closefd=False) as file:
            yield file
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


@contextmanager
def new_file(path: Path, mode: int = BY_UMASK) -> Iterator[BinaryIO]:
    """A new file to write to, in a directory that `publish_directory` publishes. It is on disk after the block.

    mode: before the umask. Raises OSError.
    """
    with _opened(path, os.O_EXCL, mode) as descriptor, os.fdopen(descriptor, "wb", closefd=False) as file:
        yield file


def publish_directory(unfinished: Path, final: Path) -> None:
    """Give a directory its final name atomically. Its files must be on disk already. Raises OSError."""
    sync_directory(unfinished)
    unfinished.rename(final)
    sync_directory(final.parent)


def make_directory(directory: Path, root: Path) -> None:
    """Create a directory below `root`, with its parents. Each new name is on disk on return. Raises OSError."""
    if directory == root or directory.is_dir():
        return
    make_directory(directory.parent, root)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory's names to disk, after files were created, renamed or removed. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tighten_umask() -> None:
    """Keep other users from writing to any file or directory that this process makes, whatever umask it was given.

    Also to those that libraries make, such as SQLite. For the start of a program, before it has threads.
    """
    os.umask(os.umask(UMASK) | UMASK)


@contextmanager
def _opened(path: Path, flags: int = 0, mode: int = OWNER_ONLY, *, synced: bool = True) -> Iterator[int]:
    """A descriptor to write to. The content is on disk after the block."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, mode)
    try:
        yield descriptor
        if synced:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_whole(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _allocate(descriptor: int, size_bytes: int) -> None:
    """Allocate space for a file. Writes zeros if the system has no call for that."""
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except AttributeError:
        _write_whole(descriptor, bytes(size_bytes))
    except OSError as error:
        if error.errno not in _NO_ALLOCATION:
            raise
        _write_whole(descriptor, bytes(size_bytes))


# Copies of SQLite files: consistent while others write, and kept before a program updates a file's format.


MAGIC = b"SQLite format 3\0"
"""How every SQLite file begins."""
BESIDE = ("-journal", "-wal", "-shm")
"""Ends of the names of files beside a database that SQLite reads as a part of it."""

Edit = Callable[[sqlite3.Connection], object]


def copy_of(connection: sqlite3.Connection, edit: Edit | None = None) -> bytes:
    """The content of a database as one file, with everything that was committed, also in a write-ahead log.

    edit: changes the copy first, for example to erase a secret. The copy is made in memory, so that no disk block ever
    holds what `edit` erases. Raises sqlite3.Error.
    """
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with closing(copy):
        connection.backup(copy)
        if edit is not None:
            copy.execute("PRAGMA secure_delete = ON")
            edit(copy)
        # Free pages, and the unused parts of others, are left behind. The copy needs no write-ahead log.
        copy.execute("VACUUM")
        return bytes(copy.serialize())


@contextmanager
def opened_copy(content: bytes) -> Iterator[sqlite3.Connection]:
    """The database of a file's content, in memory. Raises sqlite3.Error if it is none, or is damaged."""
    if not content.startswith(MAGIC):
        raise sqlite3.DatabaseError("it does not begin as a database does")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.deserialize(content)
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(str(found))
        yield connection


def kept_file(path: Path, version: int) -> Path:
    """Where the copy of a file is kept whose format had this version: "NAME.format-VERSION" beside it."""
    return path.with_name(f"{path.name}.format-{version}")


def keep_before_update(connection: sqlite3.Connection, path: Path, version: int, edit: Edit | None = None) -> None:
    """Keep a copy of a database beside it before its format is updated, unless one is kept already.

    The copy is for its owner only, and on disk on return. Raises sqlite3.Error, and OSError if it cannot be written;
    then nothing is left, and the caller must not update.
    """
    kept = kept_file(path.resolve(), version)
    if not kept.exists():
        write_durably(kept, copy_of(connection, edit))
