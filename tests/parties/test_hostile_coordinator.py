"""A live coordinator that answers every poll at once, with junk or with queries that no one asked: what it costs."""

import logging
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import repeat

import grpc
import pytest

from parties.client import (
    BUSY_AT_ONCE_S,
    BUSY_PER_ATTEMPT_S,
    BUSY_SHARE,
    LONGEST_BUSY_PAUSE_S,
    LONGEST_JUNK_PAUSE_S,
    POLL_EVERY_S,
    POLLS_AT_ONCE,
    PollingPace,
)
from parties.config import PartyConfig
from parties.node import PartyNode
from rado.v1 import member_service_pb2, member_service_pb2_grpc, party_service_pb2, party_service_pb2_grpc
from radobase.logs import BoundedLines
from tests.federation.material import server_credentials
from tests.hostile.junk import (
    KINDS,
    RESPONSE_BYTES,
    Known,
    Response,
    Showing,
    disk_state,
    known_of,
    nothing,
    unreadable,
)
from tests.waiting import wait_until
from wire.envelopes import Envelope
from wire.errors import Code
from wire.identity import TlsFiles
from wire.status import MOST_WORK, Phase

RUN_S = 3.0
MOST_LOG_BYTES = 64 * 1024


KNOWN = Known(bytes(32), bytes(32), ())


def one_unreadable(known: Known) -> party_service_pb2.FetchWorkResponse:
    return party_service_pb2.FetchWorkResponse(work=unreadable(known).work[:1])


class Hostile(party_service_pb2_grpc.PartyServiceServicer, member_service_pb2_grpc.MemberServiceServicer):
    """Answers every poll at once. calls: their number by name. fails_at: the number of a poll that fails."""

    fails_at = 0

    def __init__(self, roster: Envelope, make) -> None:
        self.roster, self.make = roster, make
        self.cursor = 0
        self.asked_from: list[int] = []
        self.calls: dict[str, int] = {}
        self.lock = threading.Lock()

    def count(self, name: str) -> None:
        with self.lock:
            self.calls[name] = self.calls.get(name, 0) + 1

    def FetchRoster(self, request, context):  # noqa: N802 - gRPC's names
        self.count("FetchRoster")
        return member_service_pb2.FetchRosterResponse(roster=self.roster.to_proto())

    def SubmitFeatures(self, request, context):  # noqa: N802
        return party_service_pb2.SubmitFeaturesResponse()

    def AskWitnesses(self, request, context):  # noqa: N802
        return party_service_pb2.AskWitnessesResponse()

    def FetchWitnesses(self, request, context):  # noqa: N802
        return party_service_pb2.FetchWitnessesResponse()

    def SubmitAnswer(self, request, context):  # noqa: N802
        self.count("SubmitAnswer")
        return party_service_pb2.SubmitAnswerResponse()

    def FetchWork(self, request, context):  # noqa: N802
        self.count("FetchWork")
        self.asked_from.append(request.cursor)
        if len(self.asked_from) == self.fails_at:
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        self.cursor += 1
        response = self.make(KNOWN)
        response.cursor = self.cursor
        return response


def without_witnesses(offline) -> None:
    """No other party runs, and ada shall act on what it is shown."""
    policy = offline.directory("ada") / "policy.toml"
    policy.write_text(policy.read_text().replace("required_witnesses = 1", "required_witnesses = 0"))


def query(path, text: str) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(text).fetchone()[0]


@pytest.fixture
def log(tmp_path):
    """What a node writes, as its command writes it."""
    path = tmp_path / "node.log"
    with path.open("a", encoding="utf-8") as stream:
        handler = BoundedLines(stream)
        root = logging.getLogger()
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        yield path
        root.removeHandler(handler)
        root.setLevel(level)


@contextmanager
def answered_by_ada(offline, make, *, fails_at=0):
    """A node of ada, whose coordinator shows it these responses."""
    home = offline.directory("coordinator")
    without_witnesses(offline)
    roster = Envelope.from_bytes((home / "roster.signed").read_bytes())
    hostile = Hostile(roster, make)  # type: ignore[abstract]  # only the calls that a party makes
    hostile.fails_at = fails_at
    server = grpc.server(ThreadPoolExecutor(8))
    party_service_pb2_grpc.add_PartyServiceServicer_to_server(hostile, server)
    member_service_pb2_grpc.add_MemberServiceServicer_to_server(hostile, server)
    files = TlsFiles(home / "ca.pem", home / "certificate.pem", home / "tls.key")
    assert server.add_secure_port(offline.address, server_credentials(files))
    server.start()
    try:
        with PartyNode(PartyConfig.load(offline.member("ada").config)):
            yield hostile
    finally:
        server.stop(0).wait()


def test_after_a_failed_poll_a_party_looks_at_all_open_queries_again(offline):
    """A coordinator that was restored from a backup counts changes again, perhaps up to the party's own cursor."""
    with answered_by_ada(offline, nothing, fails_at=3) as coordinator:
        wait_until(lambda: len(coordinator.asked_from) >= 4, what="a poll after the failure")
    assert coordinator.asked_from[:4] == [0, 0, 2, 0]


@pytest.mark.variants(1)
@pytest.mark.parametrize("make", [unreadable, one_unreadable])
def test_a_coordinator_that_never_lets_a_party_wait_wears_it_out_neither_by_polls_nor_by_logs(offline, log, make):
    with answered_by_ada(offline, make) as hostile:
        wait_until(lambda: hostile.calls.get("FetchWork", 0) > 1, what="the first polls")
        time.sleep(RUN_S)
        polls = hostile.calls["FetchWork"]
    # The pauses double.
    assert polls <= 8
    assert log.stat().st_size < MOST_LOG_BYTES
    assert "not verified" in log.read_text()


def test_what_no_member_signed_costs_a_party_no_signature_no_job_and_no_byte_on_disk(offline, log):
    """All kinds of junk, a megabyte a poll, from a coordinator with a valid certificate."""
    without_witnesses(offline)
    known, shown = known_of(offline), []

    def responses():
        # What is verified at once in between lets the pauses start again, so that the party polls at its fastest.
        for make in KINDS.values():
            yield nothing(known)
            yield make(known)
            shown.append(make)
        yield from repeat(Response())

    with Showing(offline, responses()) as showing, PartyNode(PartyConfig.load(offline.member("ada").config)) as node:
        wait_until(lambda: showing.calls["poll"] > 1, what="the first polls")
        before = disk_state(offline, "ada")
        wait_until(lambda: len(shown) == len(KINDS) and showing.calls["poll"] > 2 * len(KINDS), what="all junk")
        assert disk_state(offline, "ada") == before
        assert (showing.calls["answer"], showing.calls["witness"], showing.calls["ready"]) == (0, 0, 0)
        assert node._jobs._jobs == {}
        assert node._lifecycle.held() == set()
        assert node._lifecycle._sent_refusals._sent == {}
        assert node._guard._answered_lately == {}
        counted = node.status()["unverified"]["entries"]
    assert set(counted) == {
        "UNREADABLE", "CHALLENGE", Code.PEER_UNKNOWN, Code.SIGNATURE_INVALID,
    }  # fmt: skip
    # Of a response MOST_WORK entries are looked at, and the others are counted.
    assert counted[Code.PEER_UNKNOWN] == MOST_WORK
    assert counted["UNREADABLE"] > RESPONSE_BYTES // 2 // 2
    # Unverified rosters are asked for at a pace that falls.
    assert showing.calls["roster"] <= 6
    assert log.stat().st_size < MOST_LOG_BYTES
    history = offline.directory("ada") / "state" / "history.sqlite"
    assert query(history, "SELECT count(*) FROM queries") == query(history, "SELECT count(*) FROM events") == 0


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_honest_coordinator_s_burst_is_not_slowed():
    clock = Clock()
    pace = PollingPace(clock)
    handling_s = BUSY_AT_ONCE_S / POLLS_AT_ONCE
    pauses = [pace.pause_s(handling_s=handling_s, is_junk=False) for _ in range(POLLS_AT_ONCE)]
    assert pauses == pytest.approx([0.0] * POLLS_AT_ONCE)
    assert pace.pause_s(handling_s=0.0, is_junk=False) == POLL_EVERY_S
    clock.now += BUSY_AT_ONCE_S / BUSY_SHARE
    assert pace.pause_s(handling_s=BUSY_AT_ONCE_S, is_junk=False) == 0.0


def test_short_queries_without_end_are_not_slowed_because_each_is_charged():
    clock = Clock()
    pace = PollingPace(clock)
    for _ in range(100):
        for phase in Phase:
            assert pace.pause_s(handling_s=BUSY_PER_ATTEMPT_S / len(Phase), is_junk=False) == 0.0
            if phase is Phase.UPLOADING:
                pace.charged()


def test_charges_are_not_saved_up():
    pace = PollingPace(Clock())
    for _ in range(100):
        pace.charged()
    pauses = [pace.pause_s(handling_s=0.0, is_junk=False) for _ in range(POLLS_AT_ONCE + 1)]
    assert pauses == [0.0] * POLLS_AT_ONCE + [POLL_EVERY_S]


def test_a_coordinator_without_end_is_polled_slowly():
    clock = Clock()
    pace = PollingPace(clock)
    polls = 0
    while clock.now < 100:
        clock.now += pace.pause_s(handling_s=0.0, is_junk=False)
        polls += 1
    assert POLLS_AT_ONCE + 100 / POLL_EVERY_S - 2 <= polls <= POLLS_AT_ONCE + 100 / POLL_EVERY_S + 2


@pytest.mark.parametrize("waits_s", [0.0, 1.0, 20.0])
def test_polls_and_steps_of_queries_leave_the_processor_idle_however_long_the_coordinator_lets_it_wait(waits_s):
    clock = Clock()
    pace = PollingPace(clock)
    busy_s = 0.0
    while clock.now < 3600:
        for _ in range(10):
            pace.worked(0.02)
        clock.now += waits_s + 0.3 + pace.pause_s(handling_s=0.1, is_junk=False)
        busy_s += 0.3
    assert busy_s <= 3600 * BUSY_SHARE + BUSY_AT_ONCE_S + 1
    if waits_s < 5:
        assert busy_s >= 3600 * BUSY_SHARE


def test_no_step_of_a_query_lets_the_others_wait_for_long():
    pace = PollingPace(Clock())
    pace.worked(1000.0)
    assert pace.pause_s(handling_s=0.0, is_junk=False) == pytest.approx(LONGEST_BUSY_PAUSE_S)


def test_pauses_after_junk_double_until_there_is_none():
    clock = Clock()
    pace = PollingPace(clock)
    pauses = [pace.pause_s(handling_s=0.0, is_junk=True) for _ in range(7)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_JUNK_PAUSE_S, LONGEST_JUNK_PAUSE_S]
    assert pace.pause_s(handling_s=0.0, is_junk=False) == 0.0
    assert pace.pause_s(handling_s=0.0, is_junk=True) == 0.5
