"""What a learner says while its coordinator is out of reach, through a line that a test cuts and heals."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.federation.faults import Line
from tests.learner.test_session import REQUEST
from tests.waiting import HANG_S, wait_until
from wire.errors import ConnectionLostError


@pytest.fixture
def line(setting):
    """A line between the learner and its coordinator, which its file and its configuration name."""
    address = setting.config.coordinator
    line = Line(address)
    setting.config = setting.config.model_copy(update={"coordinator": line.address})
    setting.config_file.write_text(setting.config_file.read_text().replace(address, line.address))
    yield line
    line.close()


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr("learner.client.TRYING_AFTER_S", 0.5)


@pytest.fixture
def beside():
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_it_says_what_it_tries_and_goes_on_once_it_can(setting, line, soon, beside):
    said: list[str] = []
    line.cut()
    with setting.session(note=said.append, give_up_after_s=60.0) as session:
        roster = beside.submit(session.fetch_roster)
        wait_until(lambda: said, what="the sentence")
        assert not roster.done()
        line.heal()
        assert roster.result(HANG_S).version == 1
        wait_until(lambda: len(said) == 2, what="the end of it")
    assert said == [
        f"trying to reach the coordinator at {line.address}, for at most 60 s",
        "connected to the coordinator",
    ]


def test_it_says_so_before_the_first_attempt_has_failed(setting, line, soon, beside):
    """Connections open, and nothing answers: the first attempt alone takes many seconds."""
    said: list[str] = []
    line.freeze()
    with setting.session(note=said.append, give_up_after_s=0.0) as session:
        roster = beside.submit(session.fetch_roster)
        wait_until(lambda: said, what="the sentence")
        assert not roster.done()
        line.cut()
        with pytest.raises(ConnectionLostError):
            roster.result(HANG_S)
    assert len(said) == 1


def test_it_says_nothing_while_a_connected_coordinator_takes_its_time(setting, soon):
    said: list[str] = []
    setting.stub.on_submit = lambda _: time.sleep(1.5)
    with setting.session(note=said.append) as session:
        session.ask(session.plan(REQUEST))
    assert said == []


@pytest.mark.more
def test_a_command_says_it_and_a_session_in_python_warns(setting, line, caplog):
    line.cut()
    sentence = f"trying to reach the coordinator at {line.address}, for at most 60 s"
    process = subprocess.Popen(
        [sys.executable, "-m", "radofed", "learner", "list", "--config", str(setting.config_file)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == f"{sentence}\n"
    finally:
        process.kill()
        process.wait()
    # It says so after two seconds, and a busy machine takes some itself.
    with setting.session(give_up_after_s=8.0) as session, pytest.raises(ConnectionLostError):
        session.fetch_roster()
    # Other tests of this process may log at any time.
    assert [said for said in caplog.messages if "reach" in said] == [sentence.replace("60 s", "8 s")]
