"""The log: one JSON object a line, and a rate limit so that a refused peer cannot fill it."""

import io
import json
import logging
import os
import subprocess
import sys

import pytest

from radobase.logs import (
    EVENT_WINDOW_S,
    MOST_EVENT_BYTES,
    MOST_LINE_BYTES,
    REFUSALS_LOGGED,
    REFUSALS_WINDOW_S,
    BoundedLines,
    JsonLines,
    Log,
)
from tests.waiting import HANG_S, wait_until
from wire.errors import Code


def own(caplog) -> list[logging.LogRecord]:
    """The records without those of earlier tests' nodes, whose timers still run."""
    return [record for record in caplog.records if record.name == "test.log"]


class Written:
    """A log with a clock that the test moves. `lines` are its output."""

    def __init__(self, caplog):
        self.now, self.waiting, self.caplog = 0.0, [], caplog
        self.log = Log(
            "test.log", clock=lambda: self.now, later=lambda s, call: self.waiting.append((self.now + s, call))
        )

    def go_on(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self.waiting if at <= self.now]
        self.waiting = [(at, call) for at, call in self.waiting if at > self.now]
        for call in due:
            call()

    def refuse(self, times: int, *, event="call refused", peer="bo", code=Code.ROLE_FORBIDDEN) -> None:
        for number in range(times):
            self.log.refused(event, peer=peer, code=code, number=number)

    def taken(self) -> list[dict]:
        found = [json.loads(JsonLines().format(record)) for record in own(self.caplog)]
        self.caplog.clear()
        return found


@pytest.fixture
def written(caplog):
    caplog.set_level(logging.DEBUG)
    return Written(caplog)


def test_identical_refusals_beyond_the_limit_are_summed_up(written):
    written.refuse(REFUSALS_LOGGED + 500)
    lines = written.taken()
    assert [line["number"] for line in lines] == list(range(REFUSALS_LOGGED))
    assert {(line["event"], line["peer"], line["code"]) for line in lines} == {("call refused", "bo", "ROLE_FORBIDDEN")}
    written.go_on(REFUSALS_WINDOW_S - 1)
    written.refuse(1)
    assert written.taken() == []
    written.go_on(1)
    (summary,) = written.taken()
    assert summary["event"] == "refusals not logged"
    assert (summary["of"], summary["peer"], summary["code"]) == ("call refused", "bo", "ROLE_FORBIDDEN")
    assert summary["count"] == 501
    assert summary["level"] == "warning"
    written.refuse(1)
    assert len(written.taken()) == 1


def test_exactly_the_limit_is_logged_without_a_summary(written):
    written.refuse(REFUSALS_LOGGED)
    assert written.waiting == []
    written.go_on(REFUSALS_WINDOW_S)
    written.refuse(REFUSALS_LOGGED)
    assert len(written.taken()) == 2 * REFUSALS_LOGGED


def test_other_events_peers_and_codes_are_counted_separately(written):
    written.refuse(REFUSALS_LOGGED + 1)
    written.taken()
    for other in ({"peer": "cy"}, {"code": Code.PEER_UNKNOWN}, {"event": "chunk refused"}):
        written.refuse(1, **other)
    assert len(written.taken()) == 3


def test_a_peer_that_claims_many_names_fills_neither_the_log_nor_the_memory(written):
    for number in range(5000):
        written.refuse(1, peer=f"name-{number}")
    assert len(written.taken()) <= 100 + REFUSALS_LOGGED
    assert len(written.waiting) == 1
    written.go_on(REFUSALS_WINDOW_S)
    (summary,) = written.taken()
    assert summary["count"] == 5000 - 100 - REFUSALS_LOGGED
    written.refuse(1, peer="name-1")
    assert written.taken()[0]["peer"] == "name-1"


def test_the_default_timer_logs_the_summary(caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr("radobase.logs.REFUSALS_WINDOW_S", 0.05)
    # The clock stands, so that the window does not end before all refusals are counted.
    log = Log("test.log", clock=lambda: 0.0)
    for _ in range(REFUSALS_LOGGED + 3):
        log.refused("call refused", peer="bo", code=Code.ROLE_FORBIDDEN)
    wait_until(lambda: own(caplog)[-1].getMessage() == "refusals not logged", what="the summary")
    assert own(caplog)[-1].fields["count"] == 3


TALK = """
import socket, sys, threading
from radobase.logs import quiet_grpc
{quiet}
import grpc
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
channel = grpc.secure_channel(f"127.0.0.1:{{port}}", grpc.ssl_channel_credentials())
failed = threading.Event()
channel.subscribe(
    lambda state: state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and failed.set(), try_to_connect=True
)
plain, _ = listener.accept()
plain.sendall(b"HTTP/1.1 400 Bad Request\\r\\n\\r\\n")
plain.recv(10000)
plain.close()
listener.close()
failed.wait()
print("failed")
channel.close()
"""


@pytest.mark.parametrize(
    ("quiet", "verbosity", "speaks"), [("", None, True), ("quiet_grpc()", None, False), ("quiet_grpc()", "INFO", True)]
)
def test_grpc_logs_nothing_unless_the_operator_asks(quiet, verbosity, speaks):
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    if verbosity is not None:
        environment["GRPC_VERBOSITY"] = verbosity
    done = subprocess.run(
        [sys.executable, "-c", TALK.format(quiet=quiet)],
        env=environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=HANG_S,
    )
    assert done.stdout == "failed\n", done.stderr
    assert bool(done.stderr) is speaks, done.stderr


class Lines:
    """A handler that writes to a string, with a clock that the test moves."""

    def __init__(self):
        self.now, self.stream = 0.0, io.StringIO()
        self.handler = BoundedLines(self.stream, clock=lambda: self.now)

    def write(self, event: str, *, times: int = 1, level: int = logging.WARNING, **fields) -> None:
        for _ in range(times):
            record = logging.LogRecord("node", level, "", 0, event, None, None)
            record.fields = fields
            self.handler.handle(record)

    def read(self) -> list[dict]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    @property
    def size_bytes(self) -> int:
        return len(self.stream.getvalue().encode())


@pytest.mark.parametrize("level", [logging.INFO, logging.WARNING, logging.ERROR])
def test_no_event_fills_the_disk_and_none_hides_another(level):
    lines = Lines()
    lines.write("flood", times=5000, level=level, filler="x" * 500)
    assert MOST_EVENT_BYTES - 1000 < lines.size_bytes <= MOST_EVENT_BYTES
    shown = len(lines.read())
    lines.write("charged", level=logging.INFO)
    assert lines.read()[-1]["event"] == "charged"
    lines.now += EVENT_WINDOW_S
    lines.write("flood", level=level)
    summary, last = lines.read()[-2:]
    assert (summary["event"], summary["of"], summary["count"]) == ("lines not logged", "flood", 5000 - shown)
    assert summary["level"] == "warning"
    assert last["event"] == "flood"


def test_bytes_are_counted_and_not_characters():
    lines = Lines()
    lines.write("flood", times=2000, filler="\u20ac" * 500)
    assert lines.size_bytes <= MOST_EVENT_BYTES


def test_what_was_left_out_is_said_when_the_log_ends():
    lines = Lines()
    lines.write("flood", times=5000, filler="x" * 500)
    lines.handler.close()
    assert lines.read()[-1]["event"] == "lines not logged"


def test_a_line_that_is_too_long_is_named_only():
    lines = Lines()
    lines.write("roster refused", reason="x" * MOST_LINE_BYTES)
    (line,) = lines.read()
    assert (line["event"], line["of"]) == ("line too long", "roster refused")
    assert line["characters"] > MOST_LINE_BYTES


def test_debug_lines_are_not_bounded():
    lines = Lines()
    lines.write("chunk", times=2000, level=logging.DEBUG, filler="x" * 500)
    assert len(lines.read()) == 2000


def test_a_node_s_log_is_bounded(tmp_path):
    code = (
        "from pathlib import Path; from radobase.logs import Log, start_logging\n"
        f"start_logging('info', Path({str(tmp_path / 'log')!r}))\n"
        "log = Log('node')\n"
        "for _ in range(5000): log.error('flood', filler='x' * 500)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG_S)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert (tmp_path / "log").stat().st_size <= MOST_EVENT_BYTES + 500
    assert lines[-1]["event"] == "lines not logged"
    assert len(lines) - 1 + lines[-1]["count"] == 5000
