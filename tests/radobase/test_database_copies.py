"""Copies of SQLite files."""

import sqlite3
import stat
from contextlib import closing

import pytest

from radobase.writing import copy_of, keep_before_update, kept_file, opened_copy

SECRET = b"a secret that must not stay" * 3


@pytest.fixture
def file(tmp_path):
    connection = sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None)
    with closing(connection):
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)")
        connection.execute("CREATE INDEX i ON t (b)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(number, b"%d" % number) for number in range(500)])
        connection.execute("INSERT INTO t VALUES (1000, ?)", (SECRET,))
        yield connection


def test_a_copy_has_what_is_in_the_write_ahead_log_and_needs_none(file):
    content = copy_of(file)
    with opened_copy(content) as copy:
        assert copy.execute("SELECT count(*), max(a) FROM t").fetchone() == (501, 1000)
    assert content[18:20] == b"\1\1"


def test_what_is_erased_from_a_copy_is_nowhere_in_it(file):
    assert SECRET in copy_of(file)
    content = copy_of(file, lambda copy: copy.execute("DELETE FROM t WHERE a = 1000"))
    assert SECRET not in content
    assert file.execute("SELECT count(*) FROM t").fetchone() == (501,)


@pytest.mark.parametrize("content", [b"", b"SQLite", b"another kind of file" * 200])
def test_what_is_no_database_is_refused(content):
    with pytest.raises(sqlite3.DatabaseError, match="does not begin"), opened_copy(content):
        pass


def test_a_damaged_database_is_refused(file):
    """Of one page the places of its rows are lost; the others can be read."""
    content = bytearray(copy_of(file))
    page = content.index(b"\x0d", 4096) // 4096 * 4096
    content[page + 8 : page + 40] = b"\xff" * 32
    with pytest.raises(sqlite3.DatabaseError, match=r"[Pp]age"), opened_copy(bytes(content)):
        pass


def test_a_copy_is_kept_once_for_each_version(file, tmp_path):
    path = tmp_path / "x.sqlite"
    keep_before_update(file, path, 1)
    before = kept_file(path, 1).read_bytes()
    assert stat.S_IMODE(kept_file(path, 1).stat().st_mode) == 0o600
    file.execute("DELETE FROM t")
    keep_before_update(file, path, 1)
    assert kept_file(path, 1).read_bytes() == before
    keep_before_update(file, path, 2)
    assert kept_file(path, 2).read_bytes() != before


def test_the_copy_is_kept_beside_the_file_that_a_link_leads_to(file, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/link").symlink_to(tmp_path / "x.sqlite")
    keep_before_update(file, tmp_path / "elsewhere/link", 1)
    assert (tmp_path / "x.sqlite.format-1").exists()
