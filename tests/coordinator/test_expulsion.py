"""Rosters at a live coordinator: a removed member can do nothing more at once, and an expired roster begins nothing."""

import dataclasses
import threading
import time

import pytest
from cryptography.x509 import load_pem_x509_certificate

from coordinator import status
from rado.v1 import learner_service_pb2
from tests.coordinator.test_server import served_version
from tests.federation.coordinator import PARTIES, Client, Clients, refused
from tests.waiting import HANG_S, wait_until
from wire.envelopes import SigningKey
from wire.errors import Code, WireError
from wire.identity import tls_key_hash
from wire.query import Retry
from wire.roster import EXPIRY_SKEW_S, Role
from wire.statements import Acceptance, sign
from wire.status import PartyState, Phase

DAY_S = 86_400
FRESH = ("fresh-rosters",)


def reload(world, node, clients, version: int) -> None:
    node.on_loop(node.node.reload_roster)
    wait_until(lambda: served_version(clients["lea"]) == version)


def expire(world, ends: int, version: int = 2) -> None:
    """Sign a roster that ends then into the coordinator's file."""
    issued = ends - 90 * DAY_S
    roster = dataclasses.replace(world.roster, version=version, issued_at_unix_s=issued, not_after_unix_s=ends)
    world.config.roster.write_bytes(roster.sign(world.federation_key).to_bytes())


def lapsed() -> int:
    return int(time.time()) - EXPIRY_SKEW_S - 1


def test_a_removed_member_cannot_answer_upload_or_fetch_after_the_reload(world, node, clients):
    first, second = (world.open(world.query()) for _ in range(2))
    clients["lea"].submit(first.envelope)
    clients.to_uploading(first.query_id)
    clients["lea"].submit(second.envelope)
    chunk, *_ = world.chunks(first, "dan")
    world.new_roster(2, without=("dan",))
    reload(world, node, clients, 2)
    dan = clients["dan"]
    refused(Code.PEER_UNKNOWN, dan.work)
    refused(Code.PEER_UNKNOWN, dan.accept, world.acceptance(second.query_id, "dan"))
    refused(Code.PEER_UNKNOWN, dan.refuse, world.refusal(second.query_id, "dan"))
    refused(Code.PEER_UNKNOWN, dan.ready, world.ready(first.query_id, "dan"))
    refused(Code.PEER_UNKNOWN, dan.upload, first.query_id, chunk)
    refused(Code.PEER_UNKNOWN, served_version, dan)
    # Another member cannot bring its statements either.
    refused(Code.PEER_UNKNOWN, clients["ann"].accept, world.acceptance(second.query_id, "dan"))
    clients["ann"].accept(world.acceptance(second.query_id, "ann"))


def test_a_removed_learner_cannot_ask_or_fetch(world, node, clients):
    opened = world.open(world.query(learner="lou"))
    clients["lou"].submit(opened.envelope)
    world.new_roster(2, without=("lou",))
    reload(world, node, clients, 2)
    for call in (
        lambda: clients["lou"].submit(world.query(learner="lou")),
        lambda: clients["lou"].watch(opened.query_id),
        lambda: clients["lou"].total(opened.query_id),
        lambda: clients["lou"].cancel(opened.query_id),
    ):
        refused(Code.PEER_UNKNOWN, call)


def test_an_expired_roster_begins_nothing_and_finishes_what_is_paid_for(world, node, clients):
    """Its members can still refuse, finish a cohort's uploads, fetch totals and fetch the roster."""
    members = PARTIES[:3]
    first, second, third = (world.open(world.query(max_attempts=2)) for _ in range(3))
    clients["lea"].submit(first.envelope)
    cohort = clients.to_uploading(first.query_id, members)
    for opened in (second, third):
        clients["lea"].submit(opened.envelope)
    clients["ann"].accept(world.acceptance(second.query_id, "ann"))
    expire(world, lapsed())
    reload(world, node, clients, 2)
    for call in (
        lambda: clients["lea"].submit(world.query()),
        lambda: clients["bob"].accept(world.acceptance(second.query_id, "bob")),
        lambda: clients["ann"].ready(world.ready(second.query_id, "ann")),
    ):
        assert "Version 2 expired on" in refused(Code.ROSTER_EXPIRED, call).detail
    clients["bob"].refuse(world.refusal(second.query_id, "bob", Code.ROSTER_EXPIRED))
    clients["bob"].work()
    for name in members:
        clients.contribute(first, cohort, name)
    clients.check_total(first, members)
    clients["lea"].cancel(third.query_id)
    # The next version goes on.
    expire(world, int(time.time()) + 90 * DAY_S, version=3)
    reload(world, node, clients, 3)
    clients["lea"].submit(world.query())


def retry(world, clients, opened):
    signed = Retry(opened.query_id, "lea", 2).sign(world.keys["lea"])
    lea = clients["lea"]
    lea.call(lea.learner.RetryQuery, learner_service_pb2.RetryQueryRequest(retry=signed.to_proto()))


def test_a_retry_needs_a_roster_that_has_not_expired(world, node, clients):
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    clients.to_uploading(opened.query_id)
    clients["ann"].refuse(world.refusal(opened.query_id, "ann"))
    clients["lea"].until(opened.query_id, Phase.LOST)
    expire(world, lapsed())
    reload(world, node, clients, 2)
    refused(Code.ROSTER_EXPIRED, retry, world, clients, opened)


def test_a_coordinator_starts_with_an_expired_roster_and_says_so(world, start_node, caplog):
    expire(world, lapsed())
    node = start_node(world.config)
    clients = Clients(world, node.address)
    refused(Code.ROSTER_EXPIRED, clients["lea"].submit, world.query())
    clients.close()
    (said,) = [record for record in caplog.records if record.getMessage() == "roster expiry"]
    assert said.levelname == "ERROR"
    assert "rado provision renew-roster" in said.fields["reason"]


@pytest.mark.parametrize(
    ("days", "warning"), [(31, ""), (29.5, "expires in 29 days"), (0.5, "expires in 0 days"), (None, "never expires")]
)
def test_the_status_and_the_log_tell_when_the_roster_expires(world, start_node, caplog, days, warning):
    if days is None:
        roster = dataclasses.replace(world.roster, version=2, not_after_unix_s=0)
        world.config.roster.write_bytes(roster.sign(world.federation_key).to_bytes())
    else:
        expire(world, int(time.time() + days * DAY_S))
    assert status.read(world.config)["roster"] is None
    start_node(world.config).close()
    found = status.read(world.config)["roster"]
    assert (found["version"], found["members"]) == (2, len(world.roster.members))
    assert found["expires"] == ("never" if days is None else found["expires"])
    said = [record.fields["reason"] for record in caplog.records if record.getMessage() == "roster expiry"]
    assert bool(said) is bool(warning)
    for sentence in (found["warning"], *said):
        assert warning in sentence
        assert bool(sentence) is bool(warning)


def test_a_party_s_claim_of_a_newer_roster_excludes_that_party_alone(world, node, clients):
    """Without this check one member could stop every cohort: each other member would refuse it as stale."""
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)

    def stating(version: int):
        plain = Acceptance.from_bytes(world.acceptance(opened.query_id, "ann").payload)
        return sign(dataclasses.replace(plain, roster_version=version), world.keys["ann"])

    assert "ann has version 2" in refused(Code.ROSTER_STALE, clients["ann"].accept, stating(2)).detail
    refused(Code.MESSAGE_MALFORMED, clients["ann"].accept, stating(0))
    clients["ann"].accept(stating(1))


def test_a_removed_member_leaves_the_answers_before_the_cohort_is_fixed(world, node, clients):
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    for party in PARTIES:
        clients[party].accept(world.acceptance(opened.query_id, party))
    for party in ("ann", "bob", "dan"):
        clients[party].ready(world.ready(opened.query_id, party))
    world.new_roster(2, without=("dan",))
    reload(world, node, clients, 2)
    states = {p.party: (p.state, p.code) for p in clients["lea"].until(opened.query_id, Phase.PREPARING).parties}
    wait_until(lambda: clients["lea"].watch(opened.query_id)[0].parties[3].code == Code.PEER_UNKNOWN)
    assert states["ann"][0] is PartyState.READY
    clients["cat"].ready(world.ready(opened.query_id, "cat"))
    clients["lea"].until(opened.query_id, Phase.UPLOADING)
    cohort = clients["ann"].cohort()
    assert [a.party for a in cohort.open(world.roster)] == ["ann", "bob", "cat"]
    for party in PARTIES[:3]:
        clients.contribute(opened, cohort, party)
    clients.check_total(opened, PARTIES[:3])


def test_a_removed_member_that_is_silent_is_not_waited_for(world, node, clients):
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    for party in PARTIES[:3]:
        clients[party].accept(world.acceptance(opened.query_id, party))
    world.new_roster(2, without=("dan",))
    reload(world, node, clients, 2)
    clients["lea"].until(opened.query_id, Phase.PREPARING)


def test_an_attempt_with_a_removed_member_is_lost_at_once(world, node, clients):
    """And the next attempt does not wait for that member."""
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    cohort = clients.to_uploading(opened.query_id)
    clients.contribute(opened, cohort, "dan")
    world.new_roster(2, without=("dan",))
    reload(world, node, clients, 2)
    clients["lea"].until(opened.query_id, Phase.LOST)
    retry(world, clients, opened)
    for party in PARTIES[:3]:
        clients[party].accept(world.acceptance(opened.query_id, party, attempt=2))
    clients["lea"].until(opened.query_id, Phase.PREPARING)


def test_a_member_that_changed_its_key_answers_again_only_in_the_next_attempt(world, node, clients):
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    clients.to_uploading(opened.query_id)
    fresh = SigningKey.generate("test")
    members = tuple(
        dataclasses.replace(m, signing_key=fresh.public_bytes) if m.name == "dan" else m for m in world.roster.members
    )
    roster = dataclasses.replace(world.roster, version=2, members=members)
    world.config.roster.write_bytes(roster.sign(world.federation_key).to_bytes())
    reload(world, node, clients, 2)
    clients["lea"].until(opened.query_id, Phase.LOST)
    retry(world, clients, opened)
    assert clients["lea"].watch(opened.query_id)[0].attempt == 2
    world.keys["dan"] = fresh
    clients["dan"].accept(world.acceptance(opened.query_id, "dan", attempt=2))


def test_a_member_that_was_removed_while_the_coordinator_was_down_is_expelled_at_the_start(world, start_node):
    node = start_node(world.config)
    clients = Clients(world, node.address)
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    clients.to_uploading(opened.query_id)
    clients.close()
    node.close()
    world.new_roster(2, without=("dan",))
    node = start_node(world.config)
    clients = Clients(world, node.address)
    assert clients["lea"].watch(opened.query_id)[0].phase is Phase.LOST
    clients.close()


def list_tls_keys(world, version: int, **files) -> None:
    """Sign a roster that lists the TLS keys of these members' files into the coordinator's file."""
    hashes = {name: tls_key_hash(load_pem_x509_certificate(tls.certificate.read_bytes()).public_key())
              for name, tls in files.items()}  # fmt: skip
    members = tuple(
        dataclasses.replace(member, tls_key_hash=hashes.get(member.name, b"")) for member in world.roster.members
    )
    roster = dataclasses.replace(world.roster, version=version, members=members)
    world.config.roster.write_bytes(roster.sign(world.federation_key).to_bytes())


def test_a_tls_key_that_was_replaced_is_out_at_once(world, node, clients):
    """Its certificate is valid for a year, and of the federation's authority; a call that waits ends, too."""
    new = world.certified(Role.PARTY, "ann")
    list_tls_keys(world, 2, ann=world.tls("ann"), bob=world.tls("bob"))
    reload(world, node, clients, 2)
    stranger = Client(world, "ann", node.address, tls=new)
    refused(Code.PEER_UNKNOWN, stranger.work)
    clients["ann"].work()
    ended = []

    def wait() -> None:
        try:
            clients["ann"].work(0, 20)
        except WireError as error:
            ended.append(error.code)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    wait_until(lambda: len(node.node._gate._calls) == 1)
    list_tls_keys(world, 3, ann=new, bob=world.tls("bob"))
    reload(world, node, clients, 3)
    waiting.join(HANG_S)
    assert ended == [Code.PEER_UNKNOWN]
    refused(Code.PEER_UNKNOWN, clients["ann"].work)
    stranger.work()
    clients["bob"].work()
    # Of other members the roster lists no TLS key.
    clients["dan"].work()
    stranger.channel.close()
