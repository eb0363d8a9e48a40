"""The proxy of the soak does what its methods say: otherwise a soak without faults would pass for one with them."""

import socket
import threading
import time
from contextlib import suppress

import pytest

from tests.federation.faults import Line
from tests.waiting import HANG_S


@pytest.fixture
def line():
    """A line to a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def echo(connection: socket.socket) -> None:
        with suppress(OSError):
            while data := connection.recv(1 << 14):
                connection.sendall(data)

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    made = Line(f"127.0.0.1:{listener.getsockname()[1]}")
    yield made
    made.close()
    listener.close()


def connect(line: Line) -> socket.socket:
    host, port = line.address.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)))
    connection.settimeout(HANG_S)
    return connection


def back(connection: socket.socket, sent: bytes) -> tuple[bytes, float]:
    """What comes back first, and after how many seconds."""
    begun = time.monotonic()
    connection.sendall(sent)
    return connection.recv(1 << 14), time.monotonic() - begun


def test_a_whole_line_lets_through(line):
    assert back(connect(line), b"all")[0] == b"all"


def test_a_cut_line_ends_connections_and_refuses_new_ones_until_it_is_healed(line):
    connection = connect(line)
    assert back(connection, b"all")[0] == b"all"
    line.cut()
    assert connection.recv(1) == b""
    with suppress(ConnectionError):
        assert connect(line).recv(1) == b""
    line.heal()
    assert back(connect(line), b"all")[0] == b"all"


def test_what_is_frozen_arrives_after_the_healing(line):
    connection = connect(line)
    line.freeze()
    connection.settimeout(0.5)
    with pytest.raises(TimeoutError):
        back(connection, b"all")
    line.heal()
    connection.settimeout(HANG_S)
    assert connection.recv(1 << 14) == b"all"


def test_a_delay_is_added_in_both_directions(line):
    connection = connect(line)
    line.delay(0.3)
    data, seconds = back(connection, b"all")
    assert data == b"all"
    assert seconds >= 0.6


def test_a_trickle_is_a_byte_a_second(line):
    connection = connect(line)
    line.trickle()
    assert back(connection, b"all")[0] == b"a"
    begun = time.monotonic()
    assert connection.recv(1 << 14) == b"l"
    assert time.monotonic() - begun > 0.5
