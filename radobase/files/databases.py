"""Copies of SQLite files: consistent while others write, and kept before a program updates a file's format."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from radobase.files.writing import write_durably

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
