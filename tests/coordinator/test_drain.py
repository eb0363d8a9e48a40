"""`rado coordinator drain`: a real process finishes what runs and takes nothing new, until it is told otherwise.

The first tests are of the core; those with `start` run a coordinator in a process of its own.
"""

import json
import signal
import threading
import time

import pytest

from coordinator.limits import under_way
from coordinator.local_control import DrainEndedError, drain, undrain
from coordinator.status import node_state
from radobase.local_status import FILE, NotRunningError, StatusServer, fetch, read_status
from radobase.metrics import Reason
from radofed.cli.entry_point import run
from tests.coordinator.test_watching import Watched
from tests.federation.coordinator import PARTIES, Process, refused
from tests.federation.coordinator_core import on_bench, refusal
from tests.federation.processes import rado
from tests.waiting import HANG_S
from wire.errors import CATALOGUE, Code
from wire.query import Retry
from wire.status import Phase


@pytest.fixture
def start(world):
    started = []

    def start_process():
        started.append(Process(world))
        return started[-1]

    yield start_process
    for process in started:
        if process.process.poll() is None:
            process.stop(signal.SIGKILL)


def config(world) -> str:
    return str(world.directories["coordinator"] / "coordinator.toml")


@on_bench
async def test_a_drained_core_takes_no_query_and_completes_what_runs(bench):
    watched = Watched(bench)
    bench.wall = watched.membership.roster.issued_at_unix_s + 1.0
    opened = await bench.ask()
    assert await bench.core.begin_drain()
    assert not await bench.core.begin_drain()
    error = await refusal(Code.DRAINING, bench.ask())
    assert "An administrator drains the coordinator" in str(error)
    # What it knows already may be sent again.
    await bench.intake.query(opened.envelope, bench.world.member("lea"))
    assert await watched.reasons() == [Reason.NO_NEW_QUERIES]
    await bench.to_uploading(opened)
    await bench.contribute(opened, *PARTIES)
    assert under_way(bench.core.queries)
    await bench.settled()
    await bench.check_total(opened, PARTIES)
    assert not under_way(bench.core.queries)
    assert await bench.core.end_drain()
    assert not await bench.core.end_drain()
    assert await watched.reasons() == []
    await bench.ask()


@on_bench
async def test_a_lost_attempt_is_not_waited_for_and_its_retry_waits_for_the_end_of_the_drain(bench):
    opened = await bench.ask()
    await bench.to_uploading(opened)
    await bench.core.begin_drain()
    await bench.turn(60)
    assert bench.phase(opened) is Phase.LOST
    assert not under_way(bench.core.queries)
    lea = bench.world.member("lea")
    retry = Retry(opened.query_id, "lea", 2).sign(bench.world.keys["lea"])
    await refusal(Code.DRAINING, bench.intake.retry(retry, lea))
    assert bench.phase(opened) is Phase.LOST
    await bench.core.end_drain()
    await bench.intake.retry(retry, lea)
    assert bench.phase(opened) is Phase.ANSWERING
    # Repeating it changes nothing, so it is no new attempt.
    await bench.core.begin_drain()
    await bench.intake.retry(retry, lea)


@on_bench
async def test_a_crash_ends_a_drain(bench):
    await bench.core.begin_drain()
    await bench.crash()
    await bench.ask()


def test_the_code_is_one_that_callers_retry():
    assert CATALOGUE[Code.DRAINING].retry


def test_a_query_that_runs_completes_while_a_new_one_is_refused(world, start, capsys):
    process = start()
    lea, state = process.clients["lea"], world.config.state_directory
    running = world.open(world.query())
    lea.submit(running.envelope)
    codes = []
    waiting = [threading.Thread(target=lambda: codes.append(drain(state, 60))) for _ in range(2)]
    for thread in waiting:
        thread.start()
    while read_status(state)["drained_since_unix_s"] is None:
        time.sleep(0.05)
    refused(Code.DRAINING, lea.submit, world.query())
    # Too little time: it says what is under way, and goes on.
    found = rado("coordinator", "drain", "--within", "0", "--config", config(world), code=3)["data"]
    assert (found["complete"], found["changed"]) == (False, False)
    (shown,) = found["under_way"]
    assert (shown["query_id"], shown["learner"], shown["phase"]) == (running.query_id.hex(), "lea", "answering")
    capsys.readouterr()
    assert run(["coordinator", "drain", "--within", "0", "--config", config(world)]) == 3
    printed = capsys.readouterr().out
    assert running.query_id.hex()[:16] in printed
    assert "waiting for ann, bob, cat, dan" in printed
    assert run(["coordinator", "status", "--config", config(world)]) == 0
    printed = capsys.readouterr().out
    assert "drained since" in printed
    assert "not ready: NO_NEW_QUERIES" in printed
    cohort = process.clients.to_uploading(running.query_id)
    for party in PARTIES:
        process.clients.contribute(running, cohort, party)
    for thread in waiting:
        thread.join(HANG_S)
    assert [each.is_complete for each in codes] == [True, True]
    assert sorted(each.changed for each in codes) == [False, True], "one of the two began it"
    # The total is still there to be fetched.
    process.clients.check_total(running, PARTIES)
    assert rado("coordinator", "undrain", "--config", config(world))["data"] == {"changed": True}
    assert rado("coordinator", "undrain", "--config", config(world))["data"] == {"changed": False}
    lea.submit(world.query())
    events = [line["event"] for line in process.events()]
    assert [e for e in events if e.startswith("drain")] == ["drain begun", "drain complete", "drain ended"]
    assert process.stop(signal.SIGTERM) == 0


def test_a_restart_ends_a_drain_and_the_waiting_command_says_so(world, start):
    process, state = start(), world.config.state_directory
    process.clients["lea"].submit(world.query())
    failed = []

    def wait(begun):
        try:
            drain(state, 60, on_wait=lambda _: begun.set())
        except (DrainEndedError, NotRunningError) as error:
            failed.append(error)

    def waiting():
        thread = threading.Thread(target=wait, args=[begun := threading.Event()])
        thread.start()
        assert begun.wait(HANG_S)
        return thread

    thread = waiting()
    undrain(state)
    thread.join(HANG_S)
    thread = waiting()
    process.stop(signal.SIGKILL)
    thread.join(HANG_S)
    ended, gone = failed
    assert isinstance(ended, DrainEndedError)
    assert "continue at its next start" in str(gone)
    assert start().clients["lea"].submit(world.query())


def test_without_a_coordinator_nothing_can_be_drained(world, capsys):
    for name in ("drain", "undrain"):
        assert run(["coordinator", name, "--config", config(world), "--format", "json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "NOT_RUNNING"


def test_the_socket_takes_these_commands_alone_and_from_its_user_alone(world, node):
    socket = world.config.state_directory / FILE
    assert socket.stat().st_mode & 0o777 == 0o600
    assert fetch(socket, "/status", limit_bytes=1 << 20, method="POST")[0] == 404
    assert fetch(socket, "/drain", limit_bytes=1 << 20)[0] == 404, "a command is no GET"
    assert fetch(socket, "/stop", limit_bytes=1 << 20, method="POST")[0] == 404
    assert read_status(world.config.state_directory)["drained_since_unix_s"] is None


def test_a_state_that_the_node_cannot_read_is_a_reason_why_it_is_not_ready(world):
    def read():
        raise TimeoutError

    assert node_state(world.config) == {"drained_since_unix_s": None, "not_ready": []}
    world.config.state_directory.mkdir(exist_ok=True)
    with StatusServer(world.config.state_directory, read):
        assert node_state(world.config) == {"drained_since_unix_s": None, "not_ready": ["STATE_UNREADABLE"]}
