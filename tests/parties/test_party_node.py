"""The party as a process beside a real coordinator: starts without it, resumes, drains, and guards its state."""

import signal
import sqlite3
import subprocess
import sys
import threading

import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.randomness import SeededRandom, SeededRandomRefusedError
from parties.config import PartyConfig, split_target
from parties.node import Jobs, PartyNode
from parties.work import Work
from radofed.templates import PolicyChoices
from tests.federation import Federation, wait_until
from wire.envelopes import Envelope
from wire.errors import ConnectionLostError
from wire.logs import Log
from wire.status import PartyState, Phase

SCHEMA = """
schema_version = 1
name = "stays"
[label]
column = "stayed"
positive = ["yes"]
[[features]]
name = "age"
type = "real"
lower = 0
upper = 100
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
"""
CANARY = "61.803398"
ROWS = f"age,smoker,stayed\n{CANARY},yes,yes\n20,no,no\n30,yes,no\n"
ALLOWED = PolicyChoices(designs=("plain", "dp-feat"), allow_unprotected=True)


@pytest.fixture
def federation(tmp_path):
    with Federation(tmp_path, parties=dict.fromkeys(("ada", "bo", "cy"), ROWS), schema=SCHEMA, policy=ALLOWED) as made:
        yield made


def config(federation: Federation) -> PartyConfig:
    return PartyConfig.load(federation.member("ada").config)


def replace_in(path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_it_waits_for_a_coordinator_that_is_down_and_drains(federation):
    federation.start("ada")
    wait_until(lambda: '"no work"' in federation.log("ada"), what="a failed poll")
    federation.start("coordinator")
    wait_until(lambda: '"roster accepted"' in federation.log("ada"), timeout_s=60, what="the roster")
    assert federation.stop("ada") == 0
    log = federation.log("ada")
    assert '"stopped"' in log
    assert '"rows": 3' in log
    assert CANARY not in log


def test_it_drains_at_once_while_it_waits_for_work(federation):
    federation.start_all("coordinator", "ada")
    wait_until(lambda: '"roster accepted"' in federation.log("ada"), timeout_s=60, what="the roster")
    # Well within the long poll's 25 s, which is cut.
    assert federation.stop("ada", signal.SIGINT, timeout_s=15) == 0


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
    assert {"line": 3, "column": "age"}.items() <= fields[-1].items()
    assert CANARY not in caplog.text + str(fields)


def test_the_command_ends_with_4_on_a_data_error(federation):
    (federation.directory("ada") / "data.csv").write_text("age,smoker,stayed\n")
    federation.start("ada")
    assert federation.processes["ada"].wait(30) == 4


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


def test_a_remembered_roster_that_does_not_verify_is_refused(federation):
    state = federation.directory("ada") / "state"
    state.mkdir()
    (state / "roster.signed").write_bytes(b"not a roster")
    with pytest.raises(ConfigurationError, match="remembered roster"):
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
def test_an_address_that_is_none_is_refused(federation, target):
    replace_in(federation.member("ada").config, federation.address, target)
    with pytest.raises(ConfigurationError, match="host:port"):
        config(federation)


def test_addresses():
    assert split_target("rado.example.org:7443") == ("rado.example.org", 7443)
    assert split_target("[::1]:7443") == ("::1", 7443)


def test_a_party_needs_neither_scikit_learn_nor_ray_nor_the_secret_key():
    code = (
        "import sys, parties.node, parties.check; "
        "bad = [m for m in ('sklearn', 'ray', 'phe', 'dpcore.paillier.secret', 'learner', 'coordinator') "
        "if m in sys.modules]; assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class Recorder:
    """A handler that does what the test says and remembers what it was asked."""

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
        assert self.go_on.wait(10)
        self.computed.append((work.attempt, wanted()))


def jobs_of(recorder):
    stop = threading.Event()
    return Jobs(recorder, Log("test"), stop), stop


def some_work(attempt: int = 1, phase: Phase = Phase.ANSWERING, query: bytes = b"query") -> Work:
    return Work(Envelope(query, b"k" * 32, b"s" * 64), attempt, phase, PartyState.SILENT, None, frozenset())


def finish(jobs, stop):
    stop.set()
    jobs.drain()


def test_what_may_pass_is_tried_again_and_a_bug_is_not():
    recorder = Recorder([ConnectionLostError("hub", "cut"), ConnectionLostError("hub", "cut"), RuntimeError("bug")])
    jobs, stop = jobs_of(recorder)
    jobs.offer(some_work())
    assert recorder.done.wait(10)
    finish(jobs, stop)
    assert recorder.seen == [1, 1, 1]


def test_a_computation_that_is_superseded_is_no_longer_wanted_and_stops_nothing_else():
    recorder = Recorder(["compute", "other", "other", "other", "other"])
    jobs, stop = jobs_of(recorder)
    jobs.offer(some_work())
    assert recorder.computing.wait(10)
    jobs.offer(some_work(query=b"another"))
    wait_until(lambda: len(recorder.seen) == 2, timeout_s=10)
    jobs.offer(some_work(attempt=2))
    wait_until(lambda: len(recorder.seen) == 3, timeout_s=10)
    recorder.go_on.set()
    wait_until(lambda: len(recorder.seen) == 4, timeout_s=10)
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


def test_queries_that_are_over_are_not_kept():
    recorder = Recorder([])
    jobs, stop = jobs_of(recorder)
    jobs.offer(some_work())
    jobs.offer(some_work(phase=Phase.COMPLETE))
    wait_until(lambda: not jobs._jobs, timeout_s=10)
    finish(jobs, stop)
