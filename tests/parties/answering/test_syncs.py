"""How often an attempt waits for the disk: commits and syncs are counted, on any disk."""

import os
from collections import Counter

import pytest

from tests.federation.party import ready
from wire.status import Phase

pytestmark = pytest.mark.usefixtures("small_comb")

LEDGER_COMMITS = 4
"""Reserved, ready, charged, ended: each before what depends on it leaves."""
HISTORY_COMMITS = 3
"""Shown, accepted, with whom: each before what it notes happens. What follows is written by the next of them."""
FILE_SYNCS = 13
"""Two contributions of a chunk each, with their directories, and the head beside the ledger after two entries."""


@pytest.fixture
def counted(ada, monkeypatch):
    """Commits that wrote something, by file, and syncs of files and directories."""
    found, seen, sync = Counter(), {}, os.fsync

    def count(name, connection):
        def traced(statement):
            if statement == "COMMIT":
                found[name] += connection.total_changes != seen[name]
                seen[name] = connection.total_changes

        seen[name] = connection.total_changes
        connection.set_trace_callback(traced)

    count("ledger", ada.ledger.database._connection)
    count("history", ada.history.database._connection)
    monkeypatch.setattr("radobase.writing.os.fsync", lambda file: (found.update(["file"]), sync(file)))
    return found


def attempt(ada):
    envelope, cohort = ready(ada)
    ada.upload(envelope, cohort)
    ada.lifecycle.advance(ada.work(envelope, phase=Phase.COMPLETE))
    return envelope


def test_an_attempt_waits_for_the_disk_as_often_as_its_promises_need(ada, counted):
    attempt(ada)
    counted.clear()
    attempt(ada)
    assert dict(counted) == {"ledger": LEDGER_COMMITS, "history": HISTORY_COMMITS, "file": FILE_SYNCS}


def test_what_is_written_late_is_there_for_whoever_reads(ada, counted):
    envelope = attempt(ada)
    before = counted["history"]
    assert [event.what for event in ada.history.events([envelope.payload_hash])[envelope.payload_hash]] == [
        "accepted", "cohort", "uploaded", "charged", "ended"
    ]  # fmt: skip
    assert counted["history"] == before + 1
