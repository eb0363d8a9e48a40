"""The store: every commit survives, whenever the process dies."""

import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from coordinator.store import SCHEMA_VERSION, Revisions, Statement, Store, read_queries
from dpcore.errors import ConfigurationError
from tests.federation.coordinator import refused
from wire.envelopes import Envelope, MessageType, sha256
from wire.errors import Code

QUERY = Envelope(b"a query", b"\1" * 32, b"\2" * 64)
SAID = Statement(1, "ann", MessageType.ACCEPTANCE, Envelope(b"yes", b"\3" * 32, b"\4" * 64))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "coordinator.sqlite"


@pytest.fixture
def store(path):
    store = Store(path, "test")
    yield store
    store.close()


def add(store, envelope=QUERY, **round_data):
    return store.add_query(
        envelope, "lea", submitted_at_unix_s=100, not_after_unix_s=900, round_data={"attempt": 1, **round_data}
    )


def test_a_query_and_its_statements_come_back(store, path):
    assert add(store) == Revisions(1, 1)
    saved = store.save(
        QUERY.payload_hash, {"attempt": 1, "x": 1.5}, work_changed=False, finished_at_unix_s=None, statement=SAID
    )
    assert saved == Revisions(2, 1)
    saved = store.save(QUERY.payload_hash, {"attempt": 1, "x": 2}, work_changed=True, finished_at_unix_s=200.5)
    assert saved == Revisions(3, 3)
    store.close()
    again = Store(path, "test")
    (stored,) = again.load()
    assert stored.envelope == QUERY
    assert (stored.revisions, stored.submitted_at_unix_s, stored.finished_at_unix_s) == (saved, 100, 200.5)
    assert stored.round_data == {"attempt": 1, "x": 2}
    assert stored.statements == (SAID,)
    assert again.revision == 3
    again.close()


def test_only_the_last_attempts_statements_are_loaded(store):
    add(store)
    store.save(QUERY.payload_hash, {"attempt": 1}, work_changed=False, finished_at_unix_s=None, statement=SAID)
    store.save(QUERY.payload_hash, {"attempt": 2}, work_changed=True, finished_at_unix_s=None)
    assert store.load()[0].statements == ()


def test_a_commit_is_atomic(store):
    add(store)
    store.save(QUERY.payload_hash, {"attempt": 1}, work_changed=False, finished_at_unix_s=None, statement=SAID)
    with pytest.raises(sqlite3.IntegrityError):
        store.save(QUERY.payload_hash, {"attempt": 9}, work_changed=True, finished_at_unix_s=None, statement=SAID)
    with pytest.raises(sqlite3.IntegrityError):
        add(store)
    assert store.revision == 2
    assert store.load()[0].round_data == {"attempt": 1}


def test_times_are_saved_without_a_revision(store):
    add(store)
    store.save_times({QUERY.payload_hash: {"attempt": 1, "remaining_s": 3}})
    (stored,) = store.load()
    assert (stored.round_data["remaining_s"], stored.revisions, store.revision) == (3, Revisions(1, 1), 1)


def test_finished_queries_are_forgotten_but_their_ids_known_until_they_expire(store):
    other = Envelope(b"another", b"\1" * 32, b"\2" * 64)
    add(store)
    add(store, other)
    store.save(QUERY.payload_hash, {"attempt": 1}, work_changed=True, finished_at_unix_s=200, statement=SAID)
    store.forget([QUERY.payload_hash], expired_before_unix_s=0)
    assert [stored.envelope for stored in store.load()] == [other]
    assert store._connection.execute("SELECT count(*) FROM statements").fetchone() == (0,)
    assert store.was_forgotten(QUERY.payload_hash)
    assert not store.was_forgotten(other.payload_hash)
    store.forget([], expired_before_unix_s=901)
    assert not store.was_forgotten(QUERY.payload_hash)


def test_the_roster_is_remembered(store, path):
    assert store.roster() is None
    store.remember_roster(1, QUERY)
    store.remember_roster(2, SAID.envelope)
    assert Store(path, "test").roster() == SAID.envelope


def test_foreign_files_are_refused(store, path, tmp_path):
    store.close()
    with pytest.raises(ConfigurationError, match="belongs to federation 'test'"):
        Store(path, "other")
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(ConfigurationError, match="version"):
        Store(path, "test")
    (tmp_path / "text").write_text("this is not a database, whatever its name says" * 50)
    with pytest.raises(ConfigurationError, match="not a coordinator's store"):
        Store(tmp_path / "text", "test")


def test_a_full_disk_changes_nothing_and_has_a_code(store):
    add(store)
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    big = {"attempt": 1, "big": "x" * 100_000}
    refused(Code.SPOOL_FULL, store.save, QUERY.payload_hash, big, work_changed=True, finished_at_unix_s=None)
    assert store.load()[0].round_data == {"attempt": 1}
    assert store.revision == 1
    store._connection.execute("PRAGMA max_page_count = 1000000")
    store.save(QUERY.payload_hash, big, work_changed=True, finished_at_unix_s=None)


WRITER = """
import sys
from pathlib import Path
from coordinator.store import Statement, Store
from wire.envelopes import Envelope, MessageType
store = Store(Path(sys.argv[1]), "test")
query = Envelope(b"a query", b"1" * 32, b"2" * 64)
if not store.load():
    store.add_query(query, "lea", submitted_at_unix_s=1, not_after_unix_s=2, round_data={"attempt": 1, "n": 0})
n = store.load()[0].round_data["n"]
while True:
    n += 1
    said = Statement(1, f"p{n}", MessageType.READY, query)
    data = {"attempt": 1, "n": n}
    saved = store.save(query.payload_hash, data, work_changed=False, finished_at_unix_s=None, statement=said)
    print(n, saved.revision, flush=True)
"""


def test_what_was_acknowledged_survives_kill_9(path):
    for _ in range(3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True,
                                  env=os.environ | {"PYTHONPATH": os.pathsep.join([".", "protos"])})  # fmt: skip
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(20)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
        writer.wait()
        writer.stdout.close()
        n, revision = map(int, next(line for line in reversed(lines) if line.endswith("\n")).split())
        store = Store(path, "test")
        (stored,) = store.load()
        assert stored.round_data["n"] in (n, n + 1)
        assert store.revision == stored.revisions.revision >= revision
        assert {s.party for s in stored.statements} == {f"p{i}" for i in range(1, stored.round_data["n"] + 1)}
        store.close()


def test_reading_next_to_a_running_coordinator_changes_nothing(store, path):
    add(store, x=1)
    (row,) = read_queries(path)
    assert (row["query_id"], row["learner"], row["round"]) == (sha256(b"a query"), "lea", {"attempt": 1, "x": 1})
    store.close()
    assert len(read_queries(path)) == 1


def test_a_file_with_text_that_is_none_is_no_store(store, path):
    """SQLite quotes its damaged schema in an error, which Python then cannot decode."""
    store.close()
    content = path.read_bytes()
    assert b"CREATE TABLE queries" in content
    path.write_bytes(content.replace(b"CREATE TABLE queries", b"CREATE TABLE \x8d\xfferies"))
    with pytest.raises(sqlite3.Error):
        read_queries(path)
    with pytest.raises(ConfigurationError, match="move the file away or restore it"):
        Store(path, "clinics")
