"""The party as a process with a real coordinator: starts without it, resumes, drains, and guards its state."""

import json
import os
import signal
import sqlite3
import stat
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from pathlib import Path

import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.randomness.sources import SeededRandom, SeededRandomRefusedError
from parties.answering.coordinator_calls import StoppedError, WorkBatch
from parties.answering.jobs import ADVANCING_THREADS, Jobs
from parties.config import PartyConfig
from parties.node import PartyNode
from parties.policy import Policy
from radobase.configuration import split_target
from radobase.logs import Log
from radofed.node_config import PolicyChoices
from tests.federation.material import STAYS
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import HANG_S, wait_until
from wire.envelopes import Envelope
from wire.errors import ConnectionLostError
from wire.statements import Cohort
from wire.status import PartyState, Phase, Work
from wire.transport import LONG_POLL_S

SCHEMA = STAYS.to_toml()
CANARY = "61.803398"
ROWS = f"age,smoker,stayed\n{CANARY},yes,yes\n20,no,no\n30,yes,no\n"
ALLOWED = PolicyChoices(designs=("plain", "dp-feat"), allow_unprotected=True)


@pytest.fixture
def federation(tmp_path):
    with ProcessFederation(
        tmp_path, parties=dict.fromkeys(("ada", "bo", "cy"), ROWS), schema=SCHEMA, policy=ALLOWED
    ) as made:
        yield made


def config(federation: ProcessFederation) -> PartyConfig:
    return PartyConfig.load(federation.member("ada").config)


def replace_in(path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_it_waits_for_a_coordinator_that_is_down_and_drains(federation):
    federation.start("ada")
    wait_until(lambda: '"no work"' in federation.log("ada"), what="a failed poll")
    federation.start("coordinator")
    wait_until(lambda: '"roster accepted"' in federation.log("ada"), what="the roster")
    assert federation.stop("ada") == 0
    log = federation.log("ada")
    assert '"stopped"' in log
    assert '"rows": 3' in log
    assert CANARY not in log


def test_a_charge_pays_for_polls(federation):
    """Uploads report each charge once (tests/parties/answering/test_uploads.py): here to the node's own pace."""
    with PartyNode(config(federation)) as node:
        charged = []
        node._pace.charged = lambda: charged.append("pace")
        node._row_guard.note_charged = lambda: charged.append("rows")
        node._lifecycle._uploads._on_charged()
        assert charged == ["pace", "rows"]
        # Nor is a step of a query free.
        assert node._lifecycle._on_worked == node._pace.worked


def test_a_node_that_answers_nothing_forgets_too(federation, monkeypatch):
    """What comes meanwhile is noted, so that it must be bounded meanwhile."""
    with PartyNode(config(federation)) as node:
        forgotten = []
        monkeypatch.setattr(node._history, "forget", lambda **_: forgotten.append(True))
        monkeypatch.setattr(node._lifecycle, "end_expired", lambda: forgotten.append(False))
        node._answered = False
        node._tidy()
        assert forgotten
        assert all(forgotten)


def test_a_node_that_stops_answering_looks_again_at_what_it_was_shown(federation, monkeypatch):
    """A query of the last poll may have been stopped before anything of it was noted."""
    node = PartyNode(config(federation))
    try:
        monkeypatch.setattr(PartyNode, "_may_answer", False)
        node._answered, node._shown.cursor, node._shown.is_sweeping = True, 5, False
        node._take(WorkBatch((), 6))
        assert (node._answered, node._shown.cursor, node._shown.is_sweeping) == (False, 0, True)
        node._take(WorkBatch((), 6))
        assert (node._shown.cursor, node._shown.is_sweeping) == (6, False)
        assert node._held_by() == "this party waited until its privacy ledger was confirmed"
    finally:
        node._opened.close()


def test_a_node_that_might_not_answer_for_a_moment_looks_again_at_what_stopped(federation, monkeypatch):
    """A newer roster is without the only witness, and the next look finds another one before work is taken."""
    node = PartyNode(config(federation))
    try:
        monkeypatch.setattr(PartyNode, "_may_answer", False)
        node._jobs.offer(some_work())
        wait_until(lambda: not node._jobs._jobs)
        monkeypatch.setattr(PartyNode, "_may_answer", True)
        node._answered, node._shown.cursor, node._shown.is_sweeping = True, 5, False
        # What is not listed any more is over: a sweep that has not begun must not end by the batch of another cursor.
        monkeypatch.setattr(node._lifecycle, "end_queries", lambda absent: pytest.fail("the sweep ended"))
        node._take(WorkBatch((), 6))
        assert (node._answered, node._shown.cursor, node._shown.is_sweeping) == (True, 0, True)
        monkeypatch.undo()
        monkeypatch.setattr(PartyNode, "_may_answer", True)
        node._take(WorkBatch((), 6))
        assert (node._shown.cursor, node._shown.is_sweeping) == (6, False)
    finally:
        node._opened.close()


def test_a_poll_is_ended_when_a_query_stops(federation):
    """So that it looks at once, and not after half a minute."""
    federation.start("coordinator")
    node = PartyNode(config(federation))
    client, found = node._poll_client, []
    try:
        assert node._jobs._on_stopped == client.end_poll
        wait_until(lambda: reached(client), what="the coordinator")
        begun = time.monotonic()
        poll = threading.Thread(target=lambda: found.append(client.fetch_work(0, LONG_POLL_S)))
        poll.start()
        wait_until(lambda: client._running_poll is not None)
        client.end_poll()
        poll.join(HANG_S)
        # Also if it does not run yet; once.
        client.end_poll()
        found += [client.fetch_work(7, LONG_POLL_S), client.fetch_work(0, 0)]
        assert [(batch.was_ended, batch.cursor) for batch in found[:2]] == [(True, 0), (True, 7)]
        assert not found[2].was_ended
        assert time.monotonic() - begun < LONG_POLL_S - 1
    finally:
        node._opened.close()


def reached(client):
    with suppress(ConnectionLostError):
        return client.fetch_work(0, 0) is not None
    return False


def test_two_nodes_cannot_use_one_state_directory(federation):
    first = PartyNode(config(federation))
    with pytest.raises(ConfigurationError, match="another party node"):
        PartyNode(config(federation))
    with first:
        pass
    with PartyNode(config(federation)):
        pass


def test_a_data_error_is_raised_at_start_and_its_values_stay_out_of_the_log(federation, caplog):
    (federation.directory("ada") / "data.csv").write_text(f"age,smoker,stayed\n30,yes,no\n{CANARY}9e9,no,yes\n")
    with caplog.at_level("DEBUG"), pytest.raises(DataError) as caught:
        PartyNode(config(federation))
    assert caught.value.line == 3
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    assert fields[-1] == {"reason": str(caught.value)}
    assert CANARY not in caplog.text + str(fields) + str(caught.value)


def test_the_command_ends_with_4_on_a_data_error_and_quotes_no_cell(federation):
    (federation.directory("ada") / "data.csv").write_text(f"age,smoker,stayed\n30,{CANARY},no\n")
    federation.start("ada")
    assert federation.processes["ada"].wait(HANG_S) == 4
    said = federation.log("ada")
    assert "line 2, column 'smoker'" in said
    assert CANARY not in said


def test_two_nodes_cannot_use_one_ledger(federation):
    directory = federation.directory("ada")
    with PartyNode(config(federation)):
        text = (directory / "party.toml").read_text()
        other = directory / "other.toml"
        ledger = directory / "link.sqlite"
        ledger.symlink_to(directory / "state" / "ledger.sqlite")
        other.write_text(f'ledger = "{ledger.name}"\n' + text.replace('"state"', '"other"'))
        with pytest.raises(ConfigurationError, match=r"another party node is using ledger .*link\.sqlite"):
            PartyNode(PartyConfig.load(other))
    with PartyNode(PartyConfig.load(other)):
        pass


def test_a_node_that_fails_to_start_holds_nothing(federation):
    path = federation.directory("ada") / "data.csv"
    good = path.read_text()
    path.write_text("nothing")
    with pytest.raises(DataError):
        PartyNode(config(federation))
    path.write_text(good)
    with PartyNode(config(federation)):
        pass


def test_it_drains_immediately_while_it_waits_and_a_new_ledger_with_an_old_roster_is_a_warning(federation, caplog):
    federation.start_all("coordinator", "ada")
    wait_until(lambda: '"roster accepted"' in federation.log("ada"), what="the roster")
    # Well within the long poll's 25 s, which is cut.
    assert federation.stop("ada", signal.SIGINT) == 0
    assert "new ledger created" not in federation.log("ada")
    for left in (federation.directory("ada") / "state").glob("ledger.sqlite*"):
        left.unlink()
    with caplog.at_level("WARNING"), PartyNode(config(federation)):
        pass
    assert "new ledger created" in caplog.messages


def test_sighup_reloads_the_policy_and_keeps_it_if_the_new_one_is_invalid(federation):
    policy = federation.directory("ada") / "policy.toml"
    federation.start("ada")
    wait_until(lambda: '"started"' in federation.log("ada"), what="the node")

    def hang_up(event: str) -> dict:
        seen = federation.log("ada").count(f'"{event}"')
        federation.processes["ada"].send_signal(signal.SIGHUP)
        wait_until(lambda: federation.log("ada").count(f'"{event}"') > seen, what=event)
        return json.loads(next(line for line in reversed(federation.log("ada").splitlines()) if f'"{event}"' in line))

    replace_in(policy, 'designs = ["plain", "dp-feat"]', 'designs = ["dp-feat"]')
    assert hang_up("policy reloaded")["designs"] == ["dp-feat"]
    replace_in(policy, 'designs = ["dp-feat"]', 'designs = ["dp-feet"]')
    assert "designs" in hang_up("policy refused")["reason"]
    replace_in(policy, 'designs = ["dp-feet"]', "designs = []")
    assert hang_up("policy reloaded")["designs"] == []
    assert federation.stop("ada") == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux delivers a signal to the thread that is named")
def test_signals_count_whichever_thread_receives_them(federation):
    """The main thread waits meanwhile: a handler in Python would run when it goes on, which is never."""
    federation.start("ada")
    wait_until(lambda: '"no work"' in federation.log("ada"), what="the thread that polls")
    process = federation.processes["ada"]

    def signal_another_thread(number: signal.Signals) -> None:
        threads = {int(entry.name) for entry in Path(f"/proc/{process.pid}/task").iterdir()}
        os.kill(max(threads - {process.pid}), number)

    signal_another_thread(signal.SIGHUP)
    wait_until(lambda: '"policy reloaded"' in federation.log("ada"), what="the reload")
    signal_another_thread(signal.SIGTERM)
    assert process.wait(HANG_S) == 0


def test_a_policy_that_was_read_again_governs_queries_and_ledger(federation):
    policy = federation.directory("ada") / "policy.toml"
    with PartyNode(config(federation)) as node:
        replace_in(policy, 'epsilon = "10"', 'epsilon = "2"')
        replace_in(policy, "unbounded_queries = 0", "unbounded_queries = 7")
        node.policy.ask()
        limits = node._ledger.limits
        assert (limits.lifetime.epsilon, limits.unbounded_events) == (2, 7)
        assert node._lifecycle._party.policy == Policy.load(policy)
        policy.write_text("designs = [")
        node.policy.ask()
        assert node._ledger.limits == limits
        assert node._lifecycle._party.policy.designs == ("plain", "dp-feat")


def test_data_are_read_when_a_person_asks(federation):
    """What changes on disk while the node runs is not seen before a reload or the next start."""
    with PartyNode(config(federation)) as node:
        (federation.directory("ada") / "data.csv").write_text("age,smoker,stayed\n30,yes,no\n")
        assert node._lifecycle._party.records.rows == 3
    with PartyNode(config(federation)) as node:
        assert node._lifecycle._party.records.rows == 1


def test_a_one_class_party_takes_part_with_a_warning(federation, caplog):
    (federation.directory("ada") / "data.csv").write_text("age,smoker,stayed\n30,yes,no\n40,no,no\n")
    with caplog.at_level("INFO"), PartyNode(config(federation)):
        pass
    warnings = [r.fields["warning"] for r in caplog.records if r.getMessage() == "data"]
    assert len(warnings) == 1
    assert "negative" in warnings[0]


def test_a_seeded_source_is_refused(federation):
    with pytest.raises(SeededRandomRefusedError):
        PartyNode(config(federation), random_source=SeededRandom(1))


def test_a_ledger_of_another_source_is_refused(federation):
    with PartyNode(config(federation)):
        pass
    directory = federation.directory("ada")
    (directory / "data.csv").rename(directory / "other.csv")
    replace_in(directory / "party.toml", '"data.csv"', '"other.csv"')
    with pytest.raises(ConfigurationError, match="data_source"):
        PartyNode(config(federation))
    path = directory / "party.toml"
    path.write_text(f'data_source = "data.csv"\n{path.read_text()}')
    with PartyNode(config(federation)):
        pass


def test_a_stored_roster_that_does_not_verify_is_refused(federation):
    state = federation.directory("ada") / "state"
    state.mkdir()
    (state / "roster.signed").write_bytes(b"not a roster")
    with pytest.raises(ConfigurationError, match="stored roster"):
        PartyNode(config(federation))


def test_another_member_s_certificate_is_refused_at_the_start(federation):
    other = federation.directory("bo")
    for name in ("certificate.pem", "tls.key"):
        (federation.directory("ada") / name).write_bytes((other / name).read_bytes())
    with pytest.raises(ConfigurationError, match="use its own certificate"):
        PartyNode(config(federation))


def test_the_ledger_is_where_the_configuration_says(federation):
    directory = federation.directory("ada")
    path = directory / "party.toml"
    path.write_text(f'ledger = "books/ada.sqlite"\n{path.read_text()}')
    with PartyNode(config(federation)):
        pass
    with sqlite3.connect(directory / "books" / "ada.sqlite") as ledger:
        assert ledger.execute("SELECT value FROM identity WHERE key = 'source'").fetchone() == ("data.csv",)


@pytest.mark.parametrize("target", ["host", "host:", ":1", "host:0", "host:65536", "::1:7443", "ho st:1", "host:1x"])
def test_an_invalid_address_is_refused(federation, target):
    replace_in(federation.member("ada").config, federation.address, target)
    with pytest.raises(ConfigurationError, match="host:port"):
        config(federation)


def test_addresses():
    assert split_target("rado.example.org:7443") == ("rado.example.org", 7443)
    assert split_target("[::1]:7443") == ("::1", 7443)


class Recorder:
    """A handler that the test controls and that records its calls."""

    def __init__(self, steps):
        self.steps, self.seen, self.computed = list(steps), [], []
        self.done = threading.Event()
        self.computing = threading.Event()
        self.go_on = threading.Event()

    def advance(self, work, wanted):
        self.seen.append(work.attempt)
        step = self.steps.pop(0) if self.steps else None
        if not self.steps:
            self.done.set()
        if isinstance(step, Exception):
            raise step
        return step == "compute"

    def compute(self, work, wanted):
        self.computing.set()
        assert self.go_on.wait(HANG_S)
        self.computed.append((work.attempt, wanted()))


def jobs_of(recorder):
    stop = threading.Event()
    return Jobs(recorder, Log("test"), stop), stop


def some_work(attempt: int = 1, phase: Phase = Phase.ANSWERING, query: bytes = b"query") -> Work:
    return Work(Envelope(query, b"k" * 32, b"s" * 64), attempt, phase, PartyState.SILENT, None, frozenset())


def finish(jobs, stop):
    stop.set()
    jobs.drain()


def test_a_temporary_failure_is_retried_and_a_bug_is_not():
    recorder = Recorder([ConnectionLostError("hub", "cut"), ConnectionLostError("hub", "cut"), RuntimeError("bug")])
    jobs, stop = jobs_of(recorder)
    jobs.offer(some_work())
    assert recorder.done.wait(HANG_S)
    finish(jobs, stop)
    assert recorder.seen == [1, 1, 1]


def test_what_stopped_is_told_once_it_can_be_offered_again():
    recorder, told = Recorder([StoppedError("held")]), []
    stop = threading.Event()
    jobs = Jobs(recorder, Log("test"), stop, on_stopped=lambda: told.append(jobs.have_stopped()))
    jobs.offer(some_work())
    wait_until(lambda: told)
    finish(jobs, stop)
    assert told == [True]


def test_a_superseded_computation_stops_and_stops_no_other():
    recorder = Recorder(["compute", "other", "other", "other", "other"])
    jobs, stop = jobs_of(recorder)
    jobs.offer(some_work())
    assert recorder.computing.wait(HANG_S)
    jobs.offer(some_work(query=b"another"))
    wait_until(lambda: len(recorder.seen) == 2)
    jobs.offer(some_work(attempt=2))
    wait_until(lambda: len(recorder.seen) == 3)
    recorder.go_on.set()
    wait_until(lambda: len(recorder.seen) == 4)
    finish(jobs, stop)
    assert recorder.computed == [(1, False)]
    assert recorder.seen == [1, 1, 2, 2]


def test_nothing_is_begun_once_the_node_stops():
    recorder = Recorder([])
    jobs, stop = jobs_of(recorder)
    stop.set()
    jobs.offer(some_work())
    jobs.drain()
    assert recorder.seen == []


@pytest.mark.parametrize("phase", [Phase.ANSWERING, Phase.COMPLETE])
def test_idle_queries_are_not_kept(phase):
    recorder = Recorder([ConnectionLostError("hub", "cut"), "compute"])
    recorder.go_on.set()
    jobs, stop = jobs_of(recorder)
    for number in range(20):
        jobs.offer(some_work(phase=phase, query=b"query %d" % number))
    wait_until(lambda: not jobs._jobs)
    assert len(recorder.seen) == 22
    finish(jobs, stop)


def test_queries_that_wait_for_a_retry_hold_no_thread():
    stuck = {b"stuck %d" % number for number in range(ADVANCING_THREADS)}
    seen = []

    class Handler:
        def advance(self, work, wanted):
            seen.append(work.query.payload)
            if work.query.payload in stuck:
                raise ConnectionLostError("hub", "cut")
            return False

    jobs, stop = jobs_of(Handler())
    try:
        for query in stuck:
            jobs.offer(some_work(query=query))
        wait_until(lambda: stuck <= set(seen))
        jobs.offer(some_work(query=b"another"))
        wait_until(lambda: b"another" in seen)
        wait_until(lambda: len(seen) > len(stuck) + 1, what="another try")
    finally:
        finish(jobs, stop)


def test_new_work_does_not_wait_for_a_pause(monkeypatch):
    monkeypatch.setattr("parties.answering.jobs.pauses", lambda: repeat(3600.0))
    recorder = Recorder([ConnectionLostError("hub", "cut"), None])
    jobs, stop = jobs_of(recorder)
    jobs.offer(some_work())
    wait_until(lambda: any(job.retry for job in jobs._jobs.values()))
    jobs.offer(some_work(attempt=2))
    wait_until(lambda: recorder.seen == [1, 2])
    wait_until(lambda: not jobs._jobs)
    finish(jobs, stop)


def test_a_flood_of_queries_is_bounded(monkeypatch, caplog):
    monkeypatch.setattr("parties.answering.jobs.MOST_QUERIES", 3)
    recorder = Recorder(["compute"])
    jobs, stop = jobs_of(recorder)
    jobs.offer(some_work())
    assert recorder.computing.wait(HANG_S)
    monkeypatch.setattr(recorder, "advance", lambda work, wanted: recorder.go_on.wait(HANG_S) and False)
    for number in range(10):
        jobs.offer(some_work(query=b"query %d" % number))
    assert len(jobs._jobs) == 3
    assert caplog.messages.count("too many queries at once") == 8
    recorder.go_on.set()
    wait_until(lambda: not jobs._jobs)
    finish(jobs, stop)


def test_the_work_of_all_queries_takes_bounded_memory(monkeypatch):
    work = [some_work(query=bytes(1000) + b"%d" % number) for number in range(4)]
    monkeypatch.setattr("parties.answering.jobs.MOST_BYTES", 3 * work[0].held_bytes)
    recorder = Recorder(["compute"])
    jobs, stop = jobs_of(recorder)
    assert jobs.offer(work[0])
    assert recorder.computing.wait(HANG_S)
    monkeypatch.setattr(recorder, "advance", lambda work, wanted: recorder.go_on.wait(HANG_S) and False)
    assert [jobs.offer(each) for each in work[1:]] == [True, True, False]
    # Newer work takes the place of the older one of its query, if there is room.
    cohort = Cohort(b"q" * 32, 1, (Envelope(bytes(10), b"k" * 32, b"s" * 64),))
    assert jobs.offer(work[2])
    assert not jobs.offer(replace(work[2], cohort=cohort))
    assert not jobs.offer(replace(work[2], retry=cohort.acceptances[0]))
    assert not jobs.offer(replace(work[2], chunks_held=frozenset({1})))
    recorder.go_on.set()
    wait_until(lambda: not jobs._jobs)
    assert jobs._held_bytes == 0
    finish(jobs, stop)


def status_of(federation, name="ada", code=0):
    return rado("party", "status", "--config", str(federation.member(name).config), code=code)


def test_a_running_node_says_how_it_is(federation):
    status_of(federation, code=2)
    federation.start("ada")
    found = wait_until(lambda: '"started"' in federation.log("ada") and status_of(federation)["data"], what="ada")
    assert found["pid"] == federation.processes["ada"].pid
    assert (found["party"], found["rows"], found["attempts"]) == ("ada", ROWS.count("\n") - 1, [])
    # No coordinator runs here.
    assert (found["last_contact_unix_s"], found["ledger_confirmed"], found["paused"]) == (None, False, None)
    assert found["unverified"] == {"entries": {}, "last_unix_s": None}
    rado("party", "pause", "--config", str(federation.member("ada").config), "--name", "Ann")
    assert status_of(federation)["data"]["paused"]["by"].startswith("Ann (")
    socket = federation.directory("ada") / "state" / "node.sock"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    # A node that was killed leaves its socket; the next one replaces it.
    federation.kill("ada")
    assert socket.exists()
    status_of(federation, code=2)
    started = federation.log("ada").count('"started"')
    federation.start("ada")
    wait_until(lambda: federation.log("ada").count('"started"') > started, what="ada")
    assert status_of(federation)["data"]["paused"]
    assert federation.stop("ada") == 0
    assert not socket.exists()
    status_of(federation, code=2)
