"""Messages that are never complete: none of an expelled member is received, of others few and not for long."""

import re
import signal
import threading
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from radobase.logs import REFUSALS_LOGGED
from tests.coordinator.raw_client import (
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    RawConnection,
    pump_until,
)
from tests.coordinator.test_server import Process, served_version
from tests.federation.coordinator import refused
from tests.waiting import HANG_S, wait_until
from wire.errors import CODE_METADATA_KEY, Code, WireError
from wire.gate import MESSAGES_AT_ONCE

UPLOAD = "/rado.v1.PartyService/UploadChunk"
CONNECTIONS, STREAMS = 8, 50
# Its messages would take 400 MiB. What eight TLS connections and unread windows take is well below.
MOST_GROWTH_BYTES = 100 << 20


def peak_bytes(pid: int) -> int:
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])


def codes(connection: RawConnection) -> list[str]:
    """The code that each stream ended with, as far as they have ended."""
    found = (re.search(rb"[A-Z]+_[A-Z_]+", headers) for headers in connection.ended.values())
    return [code[0].decode() if code else "" for code in found]


@pytest.mark.more
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process as Linux shows it")
def test_an_expelled_member_cannot_fill_the_memory(world):
    process = Process(world, fresh=True)
    try:
        world.new_roster(3, without=("dan",))
        process.process.send_signal(signal.SIGHUP)
        wait_until(lambda: served_version(process.clients["lea"]) == 3)
        before = peak_bytes(process.process.pid)
        flood = [RawConnection(process.address, world.tls("dan")) for _ in range(CONNECTIONS)]
        for connection in flood:
            for _ in range(STREAMS):
                connection.begin(UPLOAD)
        pump_until(flood, lambda: not any(connection.unsent_bytes for connection in flood))
        assert peak_bytes(process.process.pid) - before < MOST_GROWTH_BYTES
        # The others are served meanwhile.
        process.clients["ann"].work()
        assert pump_until(flood, lambda: all(len(connection.ended) == STREAMS for connection in flood))
        for connection in flood:
            assert codes(connection) == [Code.PEER_UNKNOWN] * STREAMS
            connection.close()
        events = [event for event in process.events() if event["level"] != "debug"]
        # Neither gRPC nor asyncio logs anything about it.
        assert {event["node"] for event in events} == {"coordinator"}
        said = [event for event in events if event["event"] == "call refused"]
        assert [event["code"] for event in said] == [Code.PEER_UNKNOWN] * REFUSALS_LOGGED
        assert said[0]["peer"].endswith("/party/dan")
    finally:
        process.stop(signal.SIGKILL)


def logged(caplog, event: str, code: Code) -> int:
    return sum(r.getMessage() == event and r.fields["code"] == code for r in caplog.records)


def expel(world, node, clients, name: str) -> None:
    world.new_roster(2, without=(name,))
    node.on_loop(node.node.reload_roster)
    wait_until(lambda: served_version(clients["lea"]) == 2)


def test_a_member_has_few_messages_on_the_way_and_none_once_it_is_expelled(world, node, clients, caplog):
    flood = [RawConnection(node.address, world.tls("ann")) for _ in range(2)]
    streams = 3 * MESSAGES_AT_ONCE // 4
    for connection in flood:
        for _ in range(streams):
            connection.begin(UPLOAD)
    beyond = 2 * streams - MESSAGES_AT_ONCE
    both = lambda: [code for connection in flood for code in codes(connection)]  # noqa: E731 - asked again and again
    assert pump_until(flood, lambda: len(both()) == beyond and not any(c.unsent_bytes for c in flood))
    assert both() == [Code.CALLS_TOO_MANY] * beyond
    # So are its own other calls meanwhile, but no other member's.
    refused(Code.CALLS_TOO_MANY, clients["ann"].work)
    clients["bob"].work()
    expel(world, node, clients, "ann")
    assert pump_until(flood, lambda: len(both()) == 2 * streams)
    assert sorted(both()) == [Code.CALLS_TOO_MANY] * beyond + [Code.PEER_UNKNOWN] * MESSAGES_AT_ONCE
    assert logged(caplog, "call refused", Code.CALLS_TOO_MANY) == REFUSALS_LOGGED
    assert logged(caplog, "call ended", Code.PEER_UNKNOWN) == REFUSALS_LOGGED
    for connection in flood:
        connection.close()


@pytest.mark.more
def test_a_message_that_is_not_complete_in_time_ends_its_call(world, node, clients, monkeypatch, caplog):
    monkeypatch.setattr("wire.gate.MESSAGE_WITHIN_S", 0.2)
    with closing(RawConnection(node.address, world.tls("ann"))) as connection:
        for _ in range(MESSAGES_AT_ONCE):
            connection.begin(UPLOAD)
        assert pump_until([connection], lambda: len(connection.ended) == MESSAGES_AT_ONCE)
        assert codes(connection) == [Code.MESSAGE_MALFORMED] * MESSAGES_AT_ONCE
        assert b"not complete within 0.2 s" in connection.ended[1]
    assert logged(caplog, "call refused", Code.MESSAGE_MALFORMED) == REFUSALS_LOGGED
    clients["ann"].work()


def test_a_caller_that_disconnects_leaves_no_unfinished_message(world, node, clients):
    connection = RawConnection(node.address, world.tls("ann"))
    for _ in range(MESSAGES_AT_ONCE):
        connection.begin(UPLOAD)
    assert pump_until([connection], lambda: len(node.node._gate._calls) == MESSAGES_AT_ONCE)
    refused(Code.CALLS_TOO_MANY, clients["ann"].work)
    connection.close()

    def works() -> bool:
        try:
            clients["ann"].work()
        except WireError:
            return False
        return True

    wait_until(works)


def test_a_connection_s_streams_and_windows_are_bounded(world, node):
    with closing(RawConnection(node.address, world.tls("ann"))) as connection:
        for _ in range(4):
            connection.begin(UPLOAD)
        # A server that measured the line would have raised the window by now.
        assert pump_until([connection], lambda: not connection.unsent_bytes)
        assert connection.settings[MAX_CONCURRENT_STREAMS] == 64
        assert connection.settings[INITIAL_WINDOW_SIZE] <= 65535


def test_a_call_without_a_message_is_refused(clients):
    with pytest.raises(grpc.RpcError) as caught:
        clients["ann"].channel.stream_unary(UPLOAD)(iter([]), timeout=HANG_S)
    assert dict(caught.value.trailing_metadata())[CODE_METADATA_KEY] == Code.MESSAGE_MALFORMED


def test_calls_that_wait_end_when_their_member_is_expelled_and_others_go_on(world, node, clients):
    def poll(name):
        return lambda: clients[name].work(0, 20)

    def watch():
        list(health_pb2_grpc.HealthStub(clients["dan"].channel).Watch(health_pb2.HealthCheckRequest(), timeout=HANG_S))

    def reflect():
        stop = threading.Event()

        def requests():
            yield reflection_pb2.ServerReflectionRequest(list_services="")
            stop.wait(HANG_S)

        try:
            list(reflection_pb2_grpc.ServerReflectionStub(clients["dan"].channel).ServerReflectionInfo(requests()))
        finally:
            stop.set()

    ended = {}

    def call(what, function):
        try:
            ended[what] = function()
        except grpc.RpcError as error:
            ended[what] = dict(error.trailing_metadata()).get(CODE_METADATA_KEY)
        except WireError as error:
            ended[what] = error.code

    waiting = {"poll": poll("dan"), "watch": watch, "reflect": reflect, "other": poll("bob")}
    threads = [threading.Thread(target=call, args=each, daemon=True) for each in waiting.items()]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(node.node._gate._calls) == len(waiting))
    expel(world, node, clients, "dan")
    for thread in threads[:3]:
        thread.join(HANG_S)
    assert ended == dict.fromkeys(("poll", "watch", "reflect"), Code.PEER_UNKNOWN)
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    threads[3].join(HANG_S)
    assert len(ended["other"].work) == 1
