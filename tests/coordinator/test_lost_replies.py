"""Every call that changes state, repeated because its reply was lost: the effect is that of one call."""

import socket
import sqlite3
import threading
from contextlib import closing, suppress

import pytest

from coordinator.store import read_queries
from coordinator.uploads import TOTAL, scan
from rado.v1 import member_service_pb2
from tests.federation.coordinator import PARTIES, Client
from tests.federation.faults import Line
from tests.waiting import HANG_S, wait_until
from wire.status import Phase


class LosingLine(Line):
    """A line whose present connections can swallow what the coordinator answers, and then break."""

    def __init__(self, target: str) -> None:
        self.swallowed_bytes = 0
        self.connections = 0
        self._ends = set()
        self._swallowed = frozenset()
        super().__init__(target)

    def _pump(self, source, sink, counted) -> None:
        self._ends |= {source, sink}
        self.connections += counted
        with suppress(OSError):
            while data := source.recv(1 << 14):
                if source in self._swallowed and not counted:
                    self.swallowed_bytes += len(data)
                else:
                    sink.sendall(data)
        _end(source, sink)

    def swallow(self) -> None:
        self.swallowed_bytes, self._swallowed = 0, frozenset(self._ends)

    def cut(self) -> None:
        ends, self._ends = self._ends, set()
        _end(*ends)


def _end(*ends) -> None:
    """Shut down before closing: a close alone does not notify the peer while a thread still reads."""
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
    for end in ends:
        end.close()


class Lossy:
    """One member behind a losing line."""

    def __init__(self, world, name: str, address: str) -> None:
        self.world = world
        self.line = LosingLine(address)
        self.client = Client(world, name, self.line.address, give_up_after_s=HANG_S)

    def close(self) -> None:
        self.client.channel.close()
        self.line.close()

    def twice(self, call, *args) -> None:
        """Make a call whose reply is lost; the repeated call leaves the same state."""
        client, line = self.client, self.line
        client.call(client.members.FetchRoster, member_service_pb2.FetchRosterRequest())
        before, connections = durable(self.world), line.connections
        line.swallow()
        failures = []

        def make() -> None:
            try:
                call(*args)
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)

        calling = threading.Thread(target=make)
        calling.start()
        once = wait_until(lambda: settled(self.world, before), what=f"what {call.__name__} does")
        wait_until(lambda: line.swallowed_bytes, what="a reply to lose")
        line.cut()
        calling.join(HANG_S)
        assert not calling.is_alive()
        assert not failures, failures
        assert line.connections > connections, "it was sent again, over another connection"
        assert durable(self.world) == once


def durable(world):
    """All that the coordinator has on disk, except the remaining time."""
    queries = read_queries(world.config.store_file)
    for query in queries:
        query["round"].pop("remaining_s")
    with closing(sqlite3.connect(world.config.store_file)) as store:
        statements = sorted(store.execute("SELECT * FROM statements").fetchall())
        revision = store.execute("SELECT value FROM facts WHERE name = 'revision'").fetchone()
    return queries, statements, revision, scan(world.config.spool_directory)


def settled(world, before):
    """The state once it differs from before and nothing more is on its way; None until then."""
    now = durable(world)
    if now != durable(world):  # read between two of a change's files
        return None
    phases = {query["query_id"]: Phase[query["round"]["phase"]] for query in now[0]}
    to_be_dropped = any(part != TOTAL and phases[query_id].is_terminal for query_id, part, _ in now[3])
    return None if now == before or Phase.ADDING in phases.values() or to_be_dropped else now


@pytest.fixture
def lossy(world, node):
    members = {name: Lossy(world, name, node.address) for name in ("ann", "dan", "lea")}
    yield members
    for member in members.values():
        member.close()


def test_every_reply_lost_once_changes_nothing(world, clients, lossy):
    opened = world.open(world.query())
    query_id = opened.query_id
    ann, dan, lea = lossy["ann"], lossy["dan"], lossy["lea"]
    lea.twice(lea.client.submit, opened.envelope)

    ann.twice(ann.client.accept, world.acceptance(query_id, "ann"))
    dan.twice(dan.client.be_pending, world.pending(query_id, "dan"))
    dan.twice(dan.client.refuse, world.refusal(query_id, "dan"))
    for party in ("bob", "cat"):
        clients[party].accept(world.acceptance(query_id, party))
        clients[party].ready(world.ready(query_id, party))
    ann.twice(ann.client.ready, world.ready(query_id, "ann"))  # fixes the cohort

    cohort = clients["ann"].cohort()
    clients.contribute(opened, cohort, "bob")
    clients.contribute(opened, cohort, "cat")
    (chunk,) = world.chunks(opened, "ann")
    ann.twice(ann.client.upload, query_id, chunk)
    ann.twice(ann.client.give_receipt, world.receipt(opened, cohort, "ann", [chunk]))  # starts the adding
    clients.check_total(opened, PARTIES[:3])

    other = world.open(world.query())
    clients["lea"].submit(other.envelope)
    lea.twice(lea.client.cancel, other.query_id)
    # Two queries of one second have no order.
    phases = {query["query_id"]: query["round"]["phase"] for query in read_queries(world.config.store_file)}
    assert phases == {query_id: "COMPLETE", other.query_id: "FAILED"}
