"""Members that send a coordinator as much as they can: its memory stays below 200 MB under each flood.

Each flood has a coordinator of its own, as a process, and its load is bounded in number and in time.
"""

import itertools
import re
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from coordinator.connections import CONNECTIONS_AT_ONCE, UNIDENTIFIED_AT_ONCE
from dpcore.records.features import BooleanFeature, Label
from dpcore.records.schema import Schema
from rado.v1 import learner_service_pb2, party_service_pb2
from tests.coordinator.raw_client import RawConnection, pump_until
from tests.coordinator.test_server import Process
from tests.coordinator.test_unfinished_messages import peak_bytes
from tests.federation.coordinator import LEARNERS, MANY_RADOS, PARTIES, Client
from tests.waiting import HANG_S, wait_until
from wire.envelopes import MessageType
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError
from wire.gate import MESSAGES_AT_ONCE
from wire.query import MAX_QUERY_BYTES
from wire.statements import Chunk

MOST_BYTES = 200_000_000
FLOOD_S = 8.0
THREADS = 8
ALLOWED = UNIDENTIFIED_AT_ONCE + CONNECTIONS_AT_ONCE
LARGE = Schema(
    name="large",
    label=Label(column="y", positive=("1",)),
    features=tuple(BooleanFeature(name=f"f{n:05d}" + "x" * 300, true=("1",), false=("0",)) for n in range(700)),
)
"""Of the largest queries."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(), reason="reads the memory of a process as Linux shows it"
    ),
]


CONNECTIONS = 14
RETURNED_BYTES = 25_000_000
"""What a process may have more after a flood than before: gRPC and Python keep some."""


def resident_bytes(pid: int) -> int:
    return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])


@pytest.fixture
def process(world, capsys, request):
    """A coordinator; afterwards it still serves, and its peak is printed and checked."""
    process = Process(world, fresh=True)
    try:
        yield process
        assert process.clients["dan"].work().cursor >= 0
        peak = peak_bytes(process.process.pid)
        with capsys.disabled():
            sys.stdout.write(f"\n{request.node.name}: peak memory {peak / 1e6:.0f} MB\n")
        assert peak < MOST_BYTES
    finally:
        process.stop(signal.SIGKILL)


@pytest.fixture
def returning(process):
    """A coordinator whose memory is checked too once the flood is over."""
    for party in PARTIES:
        process.clients[party].work()
    before = resident_bytes(process.process.pid)
    yield process
    wait_until(lambda: resident_bytes(process.process.pid) < before + RETURNED_BYTES)


def repeatedly(function, at_least: int) -> None:
    """Call it from THREADS threads for FLOOD_S seconds, and so often."""
    end, ended = time.monotonic() + FLOOD_S, []

    def call(number: int) -> None:
        while time.monotonic() < end or len(ended) < at_least:
            with suppress(WireError, ConnectionLostError, TimedOutError):
                function(number)
            ended.append(number)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(call, range(THREADS)))


def test_unfinished_messages_of_a_member(world, returning):
    """A thousand streams, on as few connections as allow them."""
    flood = [RawConnection(returning.address, world.tls("ann")) for _ in range(16)]
    for connection in flood:
        for _ in range(64):
            connection.begin("/rado.v1.PartyService/UploadChunk")
    pump_until(flood, lambda: not any(connection.unsent_bytes for connection in flood), FLOOD_S)
    assert pump_until(flood, lambda: sum(len(connection.ended) for connection in flood) > 900)
    for connection in flood:
        connection.close()


def flood(process, world, name: str, method: str, message: bytes) -> None:
    """Complete messages of one member, on many connections and as many as these allow, while others work."""
    opened = [RawConnection(process.address, world.tls(name)) for _ in range(CONNECTIONS)]
    end = time.monotonic() + FLOOD_S
    while time.monotonic() < end or sum(len(connection.ended) for connection in opened) <= 200:
        for connection in opened:
            while connection.is_up and connection.open_streams < 64:
                connection.send(method, message)
        pump_until(opened, lambda: False, 0.2)
        process.clients["bob"].work()
        process.clients["lou"].call(
            process.clients["lou"].learner.ListQueries, learner_service_pb2.ListQueriesRequest()
        )
    assert pump_until(opened, lambda: sum(connection.is_up for connection in opened) <= CONNECTIONS_AT_ONCE)
    for connection in opened:
        connection.close()


def test_chunks_of_one_member_on_many_connections(world, returning):
    chunk = Chunk.of(0, bytes(524_000)).to_proto()
    request = party_service_pb2.UploadChunkRequest(query_id=bytes(32), attempt=1, chunk=chunk)
    flood(returning, world, "ann", "/rado.v1.PartyService/UploadChunk", request.SerializeToString())


def test_queries_of_one_member_on_many_connections(world, returning):
    query = world.keys["lea"].sign(MessageType.QUERY, bytes(524_000)).to_proto()
    request = learner_service_pb2.SubmitQueryRequest(query=query)
    flood(returning, world, "lea", "/rado.v1.LearnerService/SubmitQuery", request.SerializeToString())


def test_responses_that_one_member_does_not_read(world, returning):
    for learner in LEARNERS:
        for _ in range(3):
            returning.clients[learner].submit(world.query(schema=LARGE, learner=learner))
    opened = [RawConnection(returning.address, world.tls("ann"), reads=False) for _ in range(CONNECTIONS)]
    request = party_service_pb2.FetchWorkRequest(cursor=0, wait_s=0).SerializeToString()
    for connection in opened:
        for _ in range(64):
            connection.send("/rado.v1.PartyService/FetchWork", request)
    assert pump_until(opened, lambda: sum(len(connection.ended) for connection in opened) > 800)
    pump_until(opened, lambda: False, FLOOD_S)
    assert len(returning.clients["bob"].work().work) > 0
    for connection in opened:
        connection.close()
    for client in map(returning.clients.__getitem__, LEARNERS):
        client.channel.close()


def test_connections_of_one_member(world, returning):
    """Three hundred that each made a call, and as many that made none."""
    opened = []
    for number in range(600):
        opened.append(RawConnection(returning.address, world.tls("ann")))
        if number % 2:
            opened[-1].begin("/rado.v1.PartyService/UploadChunk")
        opened[-1].pump()
        if number % 50 == 0:
            returning.clients["bob"].work()
    assert pump_until(opened, lambda: sum(connection.is_up for connection in opened) <= ALLOWED)
    for connection in opened:
        connection.close()


def test_sockets_that_say_nothing_or_no_tls(returning):
    host, port = returning.address.rsplit(":", 1)
    with ExitStack() as opened:
        for number in range(1500):
            connection = opened.enter_context(socket.create_connection((host, int(port)), HANG_S))
            if number % 2:
                connection.sendall(b"\x16\x03\x01\x3f\xff" + bytes(1000))
        time.sleep(FLOOD_S)
        assert returning.clients["ann"].work().cursor >= 0


def test_polls(world, process):
    """Two thousand at once, on connections of all parties: each party may have few, and the rest are refused."""
    request = party_service_pb2.FetchWorkRequest(cursor=0, wait_s=25)
    with ExitStack() as opened:
        waiting = []
        for party in PARTIES:
            for _ in range(8):
                client = Client(world, party, process.address)
                opened.callback(client.channel.close)
                waiting += [client.party.FetchWork.future(request, timeout=HANG_S) for _ in range(63)]
        time.sleep(FLOOD_S)
        assert sum(not call.done() for call in waiting) == MESSAGES_AT_ONCE * len(PARTIES)
        for call in waiting:
            call.cancel()


def test_chunks(world, process):
    """The same chunks of three parties again and again, and bytes that are no ciphertexts."""
    opened = world.open(world.query(rados=MANY_RADOS))
    process.clients["lea"].submit(opened.envelope)
    process.clients.to_uploading(opened.query_id)
    chunks = world.chunks(opened, "ann")
    wrong = Chunk.of(1, b"\xff" * len(chunks[0].ciphertexts))
    clients = [Client(world, PARTIES[number % 3], process.address) for number in range(THREADS)]
    next_chunk = itertools.cycle([*chunks, wrong])
    repeatedly(lambda number: clients[number].upload(opened.query_id, next(next_chunk)), 100)
    for client in clients:
        client.channel.close()


def test_queries_of_the_largest_size(world, process):
    bytes_each = len(world.query(schema=LARGE).to_bytes())
    assert 0.8 < bytes_each / MAX_QUERY_BYTES < 1
    codes = []

    def submit(number: int) -> None:
        learner = LEARNERS[number % 2]
        try:
            process.clients[learner].submit(world.query(schema=LARGE, learner=learner))
        except WireError as error:
            codes.append(error.code)

    repeatedly(submit, 20)
    assert set(codes) == {Code.QUERIES_TOO_MANY}
