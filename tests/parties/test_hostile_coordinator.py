"""A live coordinator that answers every poll at once, with junk or with queries that no one asked: what it costs."""

import logging
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from parties.config import PartyConfig
from parties.node import PartyNode
from parties.polling import LONGEST_UNREADABLE_PAUSE_S, POLL_EVERY_S, POLLS_AT_ONCE, PollingPace
from rado.v1 import member_service_pb2, member_service_pb2_grpc, party_service_pb2, party_service_pb2_grpc
from radofed.common.logs import BoundedLines
from tests.certificates import server_credentials
from tests.waiting import wait_until
from wire.envelopes import Envelope
from wire.identity import TlsFiles
from wire.status import PartyState, Phase, Work

RUN_S = 3.0
RESPONSE_BYTES = 1 << 20
# The pauses allow POLLS_AT_ONCE and one every POLL_EVERY_S after that, however busy the machine is.
MOST_POLLS = POLLS_AT_ONCE + RUN_S / POLL_EVERY_S + 2
MOST_LOG_BYTES = 64 * 1024


def junk() -> list[party_service_pb2.Work]:
    """Entries of about 100 bytes that this version cannot read."""
    entry = party_service_pb2.Work(attempt=1, phase=99, chunks_held=[1] * 90)
    return [entry] * (RESPONSE_BYTES // entry.ByteSize())


def one_junk() -> list[party_service_pb2.Work]:
    return junk()[:1]


def strangers() -> list[party_service_pb2.Work]:
    """Well-formed work whose queries are noise, each of them new and signed by another key."""
    return [
        Work(
            Envelope(secrets.token_bytes(900), secrets.token_bytes(32), secrets.token_bytes(64)),
            1,
            Phase.ANSWERING,
            PartyState.SILENT,
            None,
            frozenset(),
        ).to_proto()
        for _ in range(RESPONSE_BYTES // 1100)
    ]


class Hostile(party_service_pb2_grpc.PartyServiceServicer, member_service_pb2_grpc.MemberServiceServicer):
    """Answers every poll at once. calls: their number by name. fails_at: the number of a poll that fails."""

    fails_at = 0

    def __init__(self, roster: Envelope, entries) -> None:
        self.roster, self.entries = roster, entries
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
        return party_service_pb2.FetchWorkResponse(work=self.entries(), cursor=self.cursor)


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
def answered_by_ada(offline, entries, *, fails_at=0):
    """A node of ada, whose coordinator shows it these entries."""
    home = offline.directory("coordinator")
    # No other party runs, and this one shall act on what it is shown.
    policy = offline.directory("ada") / "policy.toml"
    policy.write_text(policy.read_text().replace("required_witnesses = 1", "required_witnesses = 0"))
    roster = Envelope.from_bytes((home / "roster.signed").read_bytes())
    hostile = Hostile(roster, entries)  # type: ignore[abstract]  # only the calls that a party makes
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
    with answered_by_ada(offline, list, fails_at=3) as coordinator:
        wait_until(lambda: len(coordinator.asked_from) >= 4, what="a poll after the failure")
    assert coordinator.asked_from[:4] == [0, 0, 2, 0]


@pytest.mark.parametrize("entries", [junk, one_junk, pytest.param(strangers, marks=pytest.mark.slow)])
def test_a_coordinator_that_never_lets_a_party_wait_wears_it_out_neither_by_polls_nor_by_logs(offline, log, entries):
    with answered_by_ada(offline, entries) as hostile:
        time.sleep(RUN_S)
        polls = hostile.calls["FetchWork"]
    assert 1 < polls <= MOST_POLLS
    if entries is not strangers:
        # The pauses double.
        assert polls <= 8
    assert log.stat().st_size < MOST_LOG_BYTES
    assert "unreadable work" in log.read_text() or entries is strangers


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_honest_coordinator_s_burst_is_not_slowed():
    clock = Clock()
    pace = PollingPace(clock)
    assert [pace.pause_s(handling_s=1.0, is_unreadable=False) for _ in range(POLLS_AT_ONCE)] == [0.0] * POLLS_AT_ONCE
    assert pace.pause_s(handling_s=0.0, is_unreadable=False) == POLL_EVERY_S
    clock.now += POLLS_AT_ONCE * POLL_EVERY_S * 2
    assert pace.pause_s(handling_s=1.0, is_unreadable=False) == 0.0


def test_short_queries_without_end_are_not_slowed_because_each_is_charged():
    clock = Clock()
    pace = PollingPace(clock)
    for _ in range(100):
        for phase in Phase:
            assert pace.pause_s(handling_s=1.0, is_unreadable=False) == 0.0
            if phase is Phase.UPLOADING:
                pace.charged()


def test_charges_are_not_saved_up():
    pace = PollingPace(Clock())
    for _ in range(100):
        pace.charged()
    pauses = [pace.pause_s(handling_s=0.0, is_unreadable=False) for _ in range(POLLS_AT_ONCE + 1)]
    assert pauses == [0.0] * POLLS_AT_ONCE + [POLL_EVERY_S]


def test_a_coordinator_without_end_is_polled_slowly_and_leaves_the_processor_idle():
    clock = Clock()
    pace = PollingPace(clock)
    polls = 0
    while clock.now < 100:
        clock.now += pace.pause_s(handling_s=0.0, is_unreadable=False)
        polls += 1
    assert POLLS_AT_ONCE + 100 / POLL_EVERY_S - 2 <= polls <= POLLS_AT_ONCE + 100 / POLL_EVERY_S + 2
    assert pace.pause_s(handling_s=3.0, is_unreadable=False) == 12.0


def test_pauses_after_unreadable_answers_double_until_one_can_be_read():
    clock = Clock()
    pace = PollingPace(clock)
    pauses = [pace.pause_s(handling_s=0.0, is_unreadable=True) for _ in range(7)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_UNREADABLE_PAUSE_S, LONGEST_UNREADABLE_PAUSE_S]
    assert pace.pause_s(handling_s=0.0, is_unreadable=False) == 0.0
    assert pace.pause_s(handling_s=0.0, is_unreadable=True) == 0.5
