"""The coordinator as a process: killed, drained, locked, refused; its roster, its certificate, its status, its log."""

import base64
import datetime as dt
import json
import re
import signal
import sqlite3
import threading
import time
from contextlib import closing

import grpc
import pytest

from coordinator import status
from coordinator.config import CoordinatorConfig
from dpcore.errors import ConfigurationError
from rado.v1 import cohort_pb2, learner_service_pb2, member_service_pb2, party_service_pb2, query_pb2
from radofed.cli.entry_point import run
from tests.federation.coordinator import MANY_RADOS, PARTIES, Client, Clients, Process, World, refused
from tests.radobase.scraping import scrape
from tests.waiting import HANG_S, wait_until
from wire.envelopes import Envelope, MessageType
from wire.errors import Code, ConnectionLostError, WireError
from wire.roster import Role, Roster
from wire.statements import Chunk, Ready, Receipt
from wire.status import Phase


@pytest.fixture
def start(world):
    started = []

    def start_process():
        started.append(Process(world))
        return started[-1]

    yield start_process
    for process in started:
        if process.process.poll() is None:
            process.stop(signal.SIGKILL)


@pytest.mark.more
def test_a_party_killed_during_an_upload_resumes_and_the_total_is_exact(world, start):
    opened = world.open(world.query(rados=MANY_RADOS))
    first = start()
    first.clients["lea"].submit(opened.envelope)
    cohort = first.clients.to_uploading(opened.query_id)
    first.clients.contribute(opened, cohort, "ann")
    chunks = {party: world.chunks(opened, party) for party in PARTIES}
    acknowledged = set()

    def upload(party):
        for chunk in chunks[party]:
            try:
                first.clients[party].upload(opened.query_id, chunk)
            except (ConnectionLostError, WireError):
                return
            acknowledged.add((party, chunk.index))

    uploads = [threading.Thread(target=upload, args=(party,)) for party in ("bob", "cat")]
    for thread in uploads:
        thread.start()
    while not acknowledged:
        time.sleep(0.001)
    first.process.send_signal(signal.SIGKILL)
    for thread in uploads:
        thread.join()
    first.clients.close()
    first.process.wait(HANG_S)

    second = start()
    for party in PARTIES[1:]:
        (work,) = second.clients[party].work().work
        assert {(party, index) for index in work.chunks_held} >= {a for a in acknowledged if a[0] == party}
        second.clients.contribute(opened, cohort, party)
    second.clients.check_total(opened, PARTIES)
    assert second.stop(signal.SIGKILL) == -signal.SIGKILL

    third = start()
    third.clients.check_total(opened, PARTIES)
    assert third.clients["lea"].submit(opened.envelope) == opened.query_id
    assert not third.clients["ann"].work().work


def test_sigterm_drains(world, start):
    with (world.directories["coordinator"] / "coordinator.toml").open("a") as config:
        config.write('\n[watch]\nsocket = "watch.sock"\n')
    process = start()
    query_id = process.clients["lea"].submit(world.query())
    outcome = []
    _, cursor = process.clients["lea"].watch(query_id)
    polling = threading.Thread(target=lambda: outcome.append(process.clients["lea"].watch(query_id, cursor, 25)))
    polling.start()
    socket = world.directories["coordinator"] / "watch.sock"
    wait_until(lambda: scrape(socket)("rado_calls_total", method="WatchQuery") == 2, what="the poll")
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(HANG_S) == 0
    polling.join()
    # A call that does not end while the coordinator drains is cut off, long before 25 s.
    assert outcome[0][0].phase is Phase.ANSWERING
    assert not world.config.address_file.exists()
    events = [event["event"] for event in process.events()]
    assert events[-2:] == ["draining", "stopped"]
    process.clients.close()
    assert start().clients["lea"].watch(query_id)[0].phase is Phase.ANSWERING


def test_the_log_is_structured_and_holds_no_payload(world, start):
    process = start()
    opened = world.open(world.query())
    process.clients["lea"].submit(opened.envelope)
    cohort = process.clients.to_uploading(opened.query_id, PARTIES[:3])
    for party in PARTIES[:3]:
        process.clients.contribute(opened, cohort, party)
    process.clients.check_total(opened, PARTIES[:3])
    process.stop(signal.SIGTERM)
    events = process.events()
    said = {event["event"]: event for event in events}
    assert {"listening", "query submitted", "answer", "refusal", "ready", "cohort fixed", "chunk", "receipt", "added",
            "complete"} <= set(said)  # fmt: skip
    assert said["cohort fixed"] | {"members": ["ann", "bob", "cat"], "rows": 60} == said["cohort fixed"]
    assert said["refusal"] | {"party": "dan", "code": "UNAVAILABLE", "attempt": 1} == said["refusal"]
    text = process.log.read_text()
    for party in PARTIES[:3]:
        assert world.chunks(opened, party)[0].ciphertexts[:32].hex() not in text
    assert max(map(len, text.splitlines())) < 1000


def test_the_log_repeats_nothing_of_what_members_send(world, start):
    """At any place in a message, whether it parses, verifies or neither."""
    canary = "canary-row-4711"
    process, key = start(), world.keys["ann"]
    opened = world.open(world.query())
    process.clients["lea"].submit(opened.envelope)
    process.clients.to_uploading(opened.query_id)
    ann, lea = process.clients["ann"], process.clients["lea"]
    digest = b"\1" * 32
    payloads = [
        canary.encode(),
        Ready(opened.query_id, 1, canary).to_bytes(),
        Receipt(opened.query_id, 1, canary, digest, digest, 1, 1).to_bytes(),
        cohort_pb2.Refusal(query_id=opened.query_id, attempt=1, party="ann", code=canary).SerializeToString(),
        query_pb2.Cancel(query_id=opened.query_id, learner=canary).SerializeToString(),
        opened.envelope.payload.replace(b"\x12\x03lea", b"\x12\x0f" + canary.encode(), 1),
    ]
    for payload in payloads:
        for signed in (key.sign(kind, payload).to_proto() for kind in MessageType):
            for client, method, request in (
                (lea, lea.learner.SubmitQuery, learner_service_pb2.SubmitQueryRequest(query=signed)),
                (lea, lea.learner.CancelQuery, learner_service_pb2.CancelQueryRequest(cancel=signed)),
                (ann, ann.party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(acceptance=signed)),
                (ann, ann.party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(refusal=signed)),
                (ann, ann.party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(pending=signed)),
                (ann, ann.party.SubmitReady, party_service_pb2.SubmitReadyRequest(ready=signed)),
                (ann, ann.party.SubmitReceipt, party_service_pb2.SubmitReceiptRequest(receipt=signed)),
            ):
                with pytest.raises(WireError):
                    client.call(method, request)
    with pytest.raises(WireError):
        ann.upload(opened.query_id, Chunk.of(0, canary.encode()))
    for service, method in (("PartyService", "UploadChunk"), ("LearnerService", "SubmitQuery")):
        raw = ann.channel.unary_unary(f"/rado.v1.{service}/{method}")
        with pytest.raises(grpc.RpcError):
            raw(b"\xff" + canary.encode(), timeout=HANG_S)
    assert process.stop(signal.SIGTERM) == 0
    text = process.log.read_text()
    assert "chunk refused" in text
    for form in (canary, canary.encode().hex(), base64.b64encode(canary.encode()).decode()):
        assert form not in text
    assert "call failed" not in text


def test_sighup_reads_a_newer_roster_and_keeps_it_from_a_worse_one(world, start):
    process = start()
    version = lambda: served_version(process.clients["lea"])  # noqa: E731 - read again and again below
    assert version() == 1
    world.new_roster(3, without=("dan",))
    process.process.send_signal(signal.SIGHUP)
    wait_until(lambda: version() == 3)
    refused(Code.PEER_UNKNOWN, process.clients["dan"].work)
    for worse in (
        lambda: world.new_roster(2),
        lambda: world.new_roster(3),
        lambda: world.config.roster.write_bytes(b"x"),
    ):
        worse()
        before = len(process.events())
        process.process.send_signal(signal.SIGHUP)
        wait_until(lambda before=before: any(e["event"] == "roster refused" for e in process.events()[before:]))
        assert version() == 3


def served_version(client: Client) -> int:
    response = client.call(client.members.FetchRoster, member_service_pb2.FetchRosterRequest())
    return Roster.from_bytes(Envelope.from_proto(response.roster).payload).version


def test_an_older_roster_is_refused_at_start(world, start_node):
    world.new_roster(5)
    start_node(world.config).close()
    world.new_roster(4)
    refused(Code.ROSTER_STALE, start_node, world.config)
    world.new_roster(5, without=("dan",))
    refused(Code.ROSTER_STALE, start_node, world.config)
    world.new_roster(6)
    start_node(world.config)


def test_a_roster_of_more_parties_than_a_message_holds_is_refused(world, start_node, monkeypatch):
    monkeypatch.setattr("coordinator.membership.MOST_PARTIES", 3)
    with pytest.raises(ConfigurationError, match="has 4 parties; at most 3"):
        start_node(world.config)
    monkeypatch.setattr("coordinator.membership.MOST_PARTIES", 4)
    start_node(world.config)


def test_a_roster_by_another_key_is_refused_at_start(world, start_node, tmp_path_factory, secret_key):
    other = World(tmp_path_factory.mktemp("other"), secret_key)
    world.config.roster.write_bytes(other.roster_envelope.to_bytes())
    refused(Code.SIGNATURE_INVALID, start_node, world.config)


def test_two_coordinators_cannot_share_a_state_directory(world, node, start_node):
    with pytest.raises(ConfigurationError, match="another coordinator"):
        start_node(world.config)


def test_a_port_that_is_taken_is_refused(world, node, start_node, tmp_path):
    config = world.config.model_copy(update={"listen": node.address, "state_directory": tmp_path / "second"})
    with pytest.raises(ConfigurationError, match="cannot listen"):
        start_node(config)
    assert not config.address_file.exists()


@pytest.mark.parametrize("listen", ["7443", "host:", "host:http", ":7443", "host:70000"])
def test_an_invalid_address_is_refused(world, listen):
    with pytest.raises(ConfigurationError, match="host:port"):
        _ = world.config.model_copy(update={"listen": listen}).host_and_port


def test_a_wrong_or_expired_certificate_is_refused_at_start(world, start_node):
    def with_tls(files):
        tls = world.config.tls.model_copy(update={"ca": files.ca, "certificate": files.certificate, "key": files.key})
        return world.config.model_copy(update={"tls": tls})

    with pytest.raises(ConfigurationError, match="belongs to"):
        start_node(with_tls(world.tls("ann")))
    long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=500)
    with pytest.raises(ConfigurationError, match="expired"):
        start_node(with_tls(world.certified(Role.COORDINATOR, "coordinator", long_ago)))


def test_status_of_a_running_and_of_a_stopped_coordinator(world, start_node):
    down = status.read(world.config)
    assert (down["running"], down["health"], down["queries"]) == (False, "UNREACHABLE", [])
    assert down["cause"]
    node = start_node(world.config)
    clients = Clients(world, node.address)
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    cohort = clients.to_uploading(opened.query_id, PARTIES[:3])
    clients.contribute(opened, cohort, "ann")
    up = status.read(world.config)
    assert {each["name"]: each["role"] for each in up["members"]} == dict.fromkeys(PARTIES, "party") | {
        "lea": "learner",
        "lou": "learner",
    }
    assert (up["running"], up["health"], up["address"], up["spool_bytes"]) == (True, "SERVING", node.address, 1024)
    clients.close()
    node.close()
    stopped = status.read(world.config)
    assert not stopped["running"]
    for seen in (up, stopped):
        (query,) = seen["queries"]
        assert query["query_id"] == opened.query_id.hex()
        assert (query["phase"], query["attempt"], query["learner"]) == ("uploading", 1, "lea")
        assert 0 < query["remaining_s"] <= 60
        assert [p["state"] for p in query["parties"]] == ["uploaded", "uploading", "uploading", "refused"]
        assert [p["chunks"] for p in query["parties"]] == [1, 0, 0, 0]
        assert (query["kind"], query["answering_ended_early"]) == ("plain", False)
        json.dumps(seen)
    times = {each["name"]: each["last_seen_unix_s"] for each in stopped["members"]}
    created = opened.query.created_at_unix_s
    assert times.pop("lou") is None
    assert all(created <= at <= time.time() for at in times.values()), times


def test_a_member_that_is_refused_is_not_seen(world, start_node):
    node = start_node(world.config)
    clients = Clients(world, node.address)
    with pytest.raises(WireError):
        clients["bob"].call(clients["bob"].learner.ListQueries, learner_service_pb2.ListQueriesRequest())
    clients["ann"].work()
    clients.close()
    node.close()
    times = {each["name"]: each["last_seen_unix_s"] for each in status.read(world.config)["members"]}
    assert (times["ann"] is None, times["bob"]) == (False, None)


def test_last_seen_survives_a_restart_and_a_store_of_an_earlier_version(world, start_node):
    node = start_node(world.config)
    clients = Clients(world, node.address)
    clients["ann"].work()
    clients.close()
    node.close()

    def ann():
        return next(each for each in status.read(world.config)["members"] if each["name"] == "ann")

    before = ann()["last_seen_unix_s"]
    start_node(world.config).close()
    assert ann()["last_seen_unix_s"] == before
    with closing(sqlite3.connect(world.config.store_file)) as store, store:
        store.execute("DROP TABLE seen")
    assert ann()["last_seen_unix_s"] is None
    start_node(world.config).close()
    assert ann()["last_seen_unix_s"] is None


@pytest.mark.more
def test_the_status_in_words_is_short_and_newest_first(world, start_node, capsys):
    node = start_node(world.config)
    clients = Clients(world, node.address)
    asked = [clients["lea"].submit(world.query()) for _ in range(3)]
    for party in ("ann", "bob"):
        clients[party].accept(world.acceptance(asked[0], party))
    clients["cat"].refuse(world.refusal(asked[2], "cat"))
    clients["lea"].cancel(asked[2])
    clients.close()
    node.close()
    with closing(sqlite3.connect(world.config.store_file)) as store, store:
        for age_s, query_id in zip((100, 300, 200), asked, strict=True):
            change = "UPDATE queries SET submitted_at_unix_s = submitted_at_unix_s - ? WHERE query_id = ?"
            store.execute(change, (age_s, query_id))
    file = world.directories["coordinator"] / "coordinator.toml"
    assert run(["coordinator", "status", "--config", str(file)]) == 2
    out = capsys.readouterr().out
    assert re.search(r"^ann +party +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+, \d+ s ago$", out, re.MULTILINE)
    assert re.search(r"^lou +learner +never$", out, re.MULTILINE)
    waiting = re.escape("2 of 4 answered; waiting for cat, dan")
    assert re.search(
        rf" {asked[0].hex()[:16]}  lea +plain  answering  1 of 2 +\d+ (?:s|min) +{waiting}$", out, re.MULTILINE
    )
    ended = re.escape("1 of 4 answered; refused: cat (UNAVAILABLE); not waited for: ann, bob, dan; CANCELLED")
    assert re.search(rf" {asked[2].hex()[:16]}  lea +plain  failed +1 of 2 +{ended}$", out, re.MULTILINE)
    assert re.findall("[0-9a-f]{16}", out) == [asked[at].hex()[:16] for at in (0, 2, 1)]
    assert run(["coordinator", "status", "--config", str(file), "--limit", "1"]) == 2
    out = capsys.readouterr().out
    assert "2 older queries; --limit shows more" in out
    assert [query.hex()[:16] in out for query in asked] == [True, False, False]
    assert run(["coordinator", "status", "--config", str(file), "--format", "json"]) == 2
    assert len(json.loads(capsys.readouterr().out)["data"]["queries"]) == 3


def test_unknown_keys_of_the_configuration_are_refused(world):
    path = world.directories["coordinator"] / "coordinator.toml"
    path.write_text(path.read_text() + "\n[limits]\nspool_byte = 5\n" if "[limits]" not in path.read_text() else
                    path.read_text().replace("[limits]", "[limits]\nspool_byte = 5"))  # fmt: skip
    with pytest.raises(ConfigurationError, match="spool_bytes"):
        CoordinatorConfig.load(path)
