"""Ports for servers that start later."""

import itertools
import socket

from tests.federation import processes
from tests.federation.processes import PORTS, free_port


def test_a_port_is_given_once_and_one_that_is_taken_is_left_out(monkeypatch):
    taken = free_port()
    monkeypatch.setattr(processes, "_places", itertools.count(PORTS.index(taken)))
    with socket.create_server(("127.0.0.1", taken)):
        given = [free_port() for _ in range(5)]
    assert len({taken, *given}) == 6
    assert set(given) <= set(PORTS)
