"""A member's limits hold over all its connections: calls, kept bytes, and the connections themselves."""

import gc
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing

import pytest

from coordinator.connections import Connections, _address
from rado.v1 import member_service_pb2, party_service_pb2
from radobase.logs import Log
from tests.coordinator.raw_client import RawConnection, pump_until
from tests.coordinator.test_unfinished_messages import codes
from tests.federation.coordinator import Process, refused
from tests.waiting import HANG_S, wait_until
from wire.errors import Code
from wire.statements import Chunk

WORK = "/rado.v1.PartyService/FetchWork"


def connections(world, node, count: int, *, name: str = "ann", reads: bool = True) -> list[RawConnection]:
    return [RawConnection(node.address, world.tls(name), reads=reads) for _ in range(count)]


def test_calls_count_over_all_connections_until_they_end(world, node, clients, monkeypatch):
    monkeypatch.setattr("wire.gate.CALLS_AT_ONCE", 6)
    poll = party_service_pb2.FetchWorkRequest(cursor=0, wait_s=25).SerializeToString()
    opened = connections(world, node, 2)
    for connection in opened:
        for _ in range(4):
            connection.send(WORK, poll)
    both = lambda: [code for connection in opened for code in codes(connection)]  # noqa: E731 - asked again and again
    assert pump_until(opened, lambda: len(both()) >= 2)
    assert both() == [Code.CALLS_TOO_MANY] * 2
    refused(Code.CALLS_TOO_MANY, clients["ann"].work)
    clients["bob"].work()
    for connection in opened:
        connection.close()
    wait_until(lambda: not node.node._gate._calls)
    clients["ann"].work()
    assert not node.node._gate._uses


def test_responses_that_are_not_read_count_until_they_are_sent(world, node, clients, monkeypatch):
    """The first is kept, and the others are refused, on any connection. A response in reading counts too."""
    clients["lea"].submit(world.query())
    one = len(clients["ann"].work().SerializeToString())
    monkeypatch.setattr("wire.gate.HELD_BYTES", one + 100)
    opened = connections(world, node, 2, reads=False)
    for connection in opened:
        for _ in range(3):
            connection.send(WORK, b"")
    assert pump_until(opened, lambda: sum(len(connection.ended) for connection in opened) == 5)
    refused(Code.CALLS_TOO_MANY, clients["ann"].work)
    clients["bob"].work()
    for connection in opened:
        connection.close()
    wait_until(lambda: not node.node._gate._calls)
    assert len(clients["ann"].work().work) == 1


def test_requests_count_until_they_are_answered(world, node, clients, monkeypatch):
    poll = party_service_pb2.FetchWorkRequest(cursor=0, wait_s=25).SerializeToString()
    # A field that the message does not have, of 5000 bytes.
    padded = poll + b"\xfa\x07\x88\x27" + bytes(5000)
    assert party_service_pb2.FetchWorkRequest.FromString(padded).wait_s == 25
    monkeypatch.setattr("wire.gate.HELD_BYTES", 2 * len(padded) + 100)
    with closing(connections(world, node, 1)[0]) as connection:
        for _ in range(3):
            connection.send(WORK, padded)
        assert pump_until([connection], lambda: len(connection.ended) >= 1)
        assert codes(connection) == [Code.CALLS_TOO_MANY]
    wait_until(lambda: not node.node._gate._calls)


def test_a_refused_request_is_not_kept_in_memory(world, node, clients):
    """Without the help of Python's collection of garbage, which counts objects and not their bytes."""
    request = party_service_pb2.UploadChunkRequest(query_id=bytes(32), chunk=Chunk.of(0, bytes(500_000)).to_proto())
    clients["bob"].work()
    gc.collect()
    gc.disable()
    try:
        with closing(connections(world, node, 1)[0]) as connection:
            for _ in range(5):
                connection.send("/rado.v1.PartyService/UploadChunk", request.SerializeToString())
            assert pump_until([connection], lambda: len(connection.ended) == 5)
            assert codes(connection) == [Code.QUERY_UNKNOWN] * 5
        wait_until(lambda: not node.node._gate._calls)
        kept = [each for each in gc.get_objects() if isinstance(each, party_service_pb2.UploadChunkRequest)]
        assert [each for each in kept if each is not request] == []
    finally:
        gc.enable()


def test_the_oldest_connections_of_a_member_are_ended(world, node, clients, monkeypatch):
    monkeypatch.setattr("coordinator.connections.CONNECTIONS_AT_ONCE", 3)
    clients["bob"].work()
    opened = []
    for _ in range(5):
        opened += connections(world, node, 1)
        opened[-1].send(WORK, b"")
        assert pump_until(opened[-1:], lambda newest=opened[-1]: newest.ended)
    assert pump_until(opened, lambda: [each.is_up for each in opened] == [False, False, True, True, True])
    clients["bob"].work()
    for connection in opened:
        connection.close()


def test_connections_at_work_are_not_cut_and_one_more_is_refused(world, node, clients, monkeypatch):
    """Where the oldest were cut, its program came back as the newest, and so on without end."""
    monkeypatch.setattr("coordinator.connections.CONNECTIONS_AT_ONCE", 3)
    poll = party_service_pb2.FetchWorkRequest(cursor=0, wait_s=25).SerializeToString()
    (idle,) = connections(world, node, 1)
    idle.send(WORK, b"")
    assert pump_until([idle], lambda: idle.ended)
    at_work = connections(world, node, 3)
    for connection in at_work:
        connection.send(WORK, poll)
    # Of four connections the one without a call goes.
    assert pump_until([idle, *at_work], lambda: not idle.is_up)
    assert pump_until(at_work, lambda: len(node.node._gate._calls) == 3)
    (late,) = connections(world, node, 1)
    late.send(WORK, b"")
    assert pump_until([late], lambda: late.ended)
    assert codes(late) == [Code.CALLS_TOO_MANY]
    assert all(connection.is_up for connection in at_work)
    at_work[0].close()
    wait_until(lambda: len(node.node._gate._calls) == 2)
    late.send(WORK, b"")
    assert pump_until([late], lambda: len(late.ended) == 2)
    assert codes(late) == [Code.CALLS_TOO_MANY, ""]
    for connection in [late, *at_work[1:]]:
        connection.close()


@pytest.mark.more
def test_connections_without_a_call_are_few_and_end_soon(world, node, clients, monkeypatch):
    """One of each member that has none, and few others."""
    monkeypatch.setattr("coordinator.connections.UNIDENTIFIED_AT_ONCE", 3)
    clients["ann"].work()
    absent = len(world.roster.members) - 1
    opened = []
    for _ in range(absent + 5):
        opened += connections(world, node, 1)
    assert pump_until(opened, lambda: sum(each.is_up for each in opened) == absent + 3)
    monkeypatch.setattr("coordinator.connections.IDENTIFIED_WITHIN_S", 0.0)
    assert pump_until(opened, lambda: not any(each.is_up for each in opened))
    # A connection of a member without calls stays.
    connected = clients["ann"].channel
    clients["ann"].call(clients["ann"].members.FetchRoster, member_service_pb2.FetchRosterRequest())
    assert connected is clients["ann"].channel
    for connection in opened:
        connection.close()


@pytest.mark.more
def test_strangers_do_not_take_the_last_descriptor(world):
    """Ending a connection takes a descriptor. Where none was left, no stranger was ended and no member got in."""
    process = Process(world, fresh=True, descriptors=128)
    host, port = process.address.split(":")
    try:
        with ExitStack() as opened:
            strangers = [opened.enter_context(socket.create_connection((host, int(port)), HANG_S)) for _ in range(300)]
            # Of all that were accepted a quarter of the room is left. The others are refused at once.
            wait_until(lambda: sum(is_open(each) for each in strangers) <= 48)
            process.clients["ann"].work()
            assert any(is_open(each) for each in strangers)
        assert "connections not looked at" not in {event["event"] for event in process.events()}
    finally:
        process.stop(signal.SIGTERM)


def is_open(stranger: socket.socket) -> bool:
    """Whether the server keeps the connection. It may have sent something."""
    stranger.setblocking(False)
    try:
        while stranger.recv(4096):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def test_a_coordinator_asks_for_the_descriptors_that_its_members_need():
    """Many systems grant 1,024 until a process asks for more, and a thousand parties have a connection each."""
    code = (
        "import resource; from coordinator.connections import make_room; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1])); "
        "print(make_room(5), make_room(1000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    few, many, soft = map(int, printed.split())
    assert soft == min(65_536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    fit = max(soft // 2, soft - 256)
    # Eight connections of each member, one of each that is not known yet, and 256 of strangers: twice.
    assert (few, many) == (min(fit, 2048), min(fit, 2 * (8000 + 1000 + 256)))


@pytest.mark.more
def test_a_coordinator_says_that_it_has_too_few_descriptors(world):
    process = Process(world, fresh=True, descriptors=64)
    process.stop(signal.SIGTERM)
    (said,) = (event for event in process.events() if event["event"] == "few descriptors")
    assert said["connections"] == 32 < said["needed"]


def test_other_sockets_of_the_process_are_left_alone():
    """Those of other ports, and those that connect to this one."""
    with ExitStack() as opened:
        listener, other = (opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        port = listener.getsockname()[1]
        pairs = []
        for each in (listener, other):
            client = opened.enter_context(socket.create_connection(each.getsockname()))
            pairs.append((client, opened.enter_context(each.accept()[0])))
        now = time.monotonic()
        found = Connections(port, Log("test"), clock=lambda: now)
        found.look()
        now += 1000
        found.look()
        (ended, _), (kept, server) = pairs
        assert ended.recv(1) == b""
        server.sendall(b"x")
        assert kept.recv(1) == b"x"


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:50000", ("127.0.0.1", 50000)),
        ("ipv6:%5B::1%5D:50000", ("::1", 50000)),
        ("ipv6:[::ffff:10.0.0.1]:7", ("10.0.0.1", 7)),
        ("unix:/run/socket", None),
    ],
)
def test_addresses_in_grpc_s_form(peer, address):
    assert _address(peer) == address
