"""The services over real gRPC with mutual TLS on loopback: the whole path, and everything a member may send wrongly."""

import dataclasses
import secrets
import threading
import time

import pytest
from gmpy2 import mpz

from rado.v1 import ciphertext_pb2, learner_service_pb2, member_service_pb2, party_service_pb2
from tests.federation.coordinator import MANY_RADOS, PARTIES, refused
from tests.waiting import HANG_S
from wire.binding import Binding, OpeningSecret
from wire.envelopes import Envelope, MessageType
from wire.errors import Code
from wire.statements import Chunk
from wire.status import PartyState, Phase


@pytest.fixture
def asked(world, clients):
    """A small query, taken."""
    opened = world.open(world.query())
    assert clients["lea"].submit(opened.envelope) == opened.query_id
    return opened


@pytest.fixture
def uploading(clients, asked):
    """The same with its cohort fixed."""
    return asked, clients.to_uploading(asked.query_id)


@pytest.mark.more
def test_a_total_over_several_chunks_is_exact(world, clients):
    opened = world.open(world.query(rados=MANY_RADOS))
    assert opened.chunks == 3
    clients["lea"].submit(opened.envelope)
    cohort = clients.to_uploading(opened.query_id)
    for party in PARTIES:
        clients.contribute(opened, cohort, party)
    clients.check_total(opened, PARTIES)
    assert clients["lea"].total_chunk(opened.query_id, 2) == clients["lea"].total_chunk(opened.query_id, 2)


def test_a_refusal_leaves_a_smaller_cohort(clients, asked):
    members = ("ann", "bob", "dan")
    cohort = clients.to_uploading(asked.query_id, members)
    refused(Code.COHORT_EXCLUDED, clients["cat"].upload, asked.query_id, Chunk.of(0, b"x"))
    status, _ = clients["lea"].watch(asked.query_id)
    assert [p.state for p in status.parties] == [
        PartyState.UPLOADING, PartyState.UPLOADING, PartyState.REFUSED, PartyState.UPLOADING,
    ]  # fmt: skip
    assert status.parties[2].code == Code.UNAVAILABLE
    for party in members:
        clients.contribute(asked, cohort, party)
    clients.check_total(asked, members)


def test_parties_that_are_not_asked_see_nothing_and_are_not_waited_for(world, clients):
    """The query's binding names whom it asks; cat is of the roster, and has no seed."""
    asked = ("ann", "bob", "dan")
    opened = world.open(world.query(**bound_to(world, asked)))
    clients["lea"].submit(opened.envelope)
    assert not clients["cat"].work().work
    refused(Code.QUERY_UNKNOWN, clients["cat"].accept, world.acceptance(opened.query_id, "cat"))
    refused(Code.QUERY_UNKNOWN, clients["cat"].refuse, world.refusal(opened.query_id, "cat"))
    for party in asked:
        clients[party].accept(world.acceptance(opened.query_id, party))
    # Answering ended, as all who are asked have answered.
    status, _ = clients["lea"].watch(opened.query_id)
    assert status.phase is Phase.PREPARING
    assert [each.party for each in status.parties] == list(asked)


def test_a_query_that_asks_too_few_parties_for_its_cohort_is_refused(world, clients):
    envelope = world.query(**bound_to(world, ("ann", "bob")))
    caught = refused(Code.QUERY_INVALID, clients["lea"].submit, envelope)
    assert "the query asks 2 parties of the roster" in str(caught)


def bound_to(world, names) -> dict:
    """The fields of a query that asks these parties."""
    nonce, members = secrets.token_bytes(16), [party for party in world.roster.parties if party.name in names]
    binding = Binding.seal(OpeningSecret(bytes(range(32))), members, nonce)
    return {"nonce": nonce, "binding": binding}


@pytest.mark.more
def test_a_person_at_a_party_decides_while_the_others_answer(world, clients):
    opened = world.open(world.query())
    query_id = opened.query_id
    clients["lea"].submit(opened.envelope)
    dan = clients["dan"]
    refused(Code.SENDER_MISMATCH, clients["ann"].be_pending, world.pending(query_id, "dan"))
    for _ in range(2):
        dan.be_pending(world.pending(query_id, "dan"))
    for party in ("ann", "bob", "cat"):
        clients[party].accept(world.acceptance(query_id, party))
    status, _ = clients["lea"].watch(query_id)
    assert (status.phase, status.parties[3].state) == (Phase.ANSWERING, PartyState.PENDING)
    assert dan.work().work[0].state == PartyState.PENDING.value, "a node that restarts reads where it stands"
    dan.accept(world.acceptance(query_id, "dan"))
    for party in PARTIES:
        clients[party].ready(world.ready(query_id, party))
    cohort = dan.cohort()
    for party in PARTIES:
        clients.contribute(opened, cohort, party)
    clients.check_total(opened, PARTIES)


@pytest.mark.more
def test_a_sleeping_party_does_not_hold_up_a_query_with_a_quorum_wait(world, clients):
    opened = world.open(world.query(quorum_wait_s=1))
    query_id, members = opened.query_id, ("ann", "bob", "cat")
    clients["lea"].submit(opened.envelope)
    for party in members:
        clients[party].accept(world.acceptance(query_id, party))
        clients[party].ready(world.ready(query_id, party))
    status = clients["lea"].until(query_id, Phase.UPLOADING)
    assert (status.parties[3].state, status.answering_ended_early) == (PartyState.SILENT, True)
    refused(Code.PHASE_MISMATCH, clients["dan"].accept, world.acceptance(query_id, "dan"))
    cohort = clients["ann"].cohort()
    for party in members:
        clients.contribute(opened, cohort, party)
    clients.check_total(opened, members)


def test_only_members_are_shown_the_cohort(clients, asked):
    clients.to_uploading(asked.query_id, ("ann", "bob", "dan"))
    assert clients["ann"].work().work[0].HasField("cohort")
    assert not clients["cat"].work().work[0].HasField("cohort")


def test_work_names_the_chunks_that_are_held(world, clients):
    opened = world.open(world.query(rados=MANY_RADOS))
    clients["lea"].submit(opened.envelope)
    clients.to_uploading(opened.query_id)
    chunks = world.chunks(opened, "bob")
    clients["bob"].upload(opened.query_id, chunks[2])
    clients["bob"].upload(opened.query_id, chunks[0])
    assert list(clients["bob"].work().work[0].chunks_held) == [0, 2]
    assert list(clients["ann"].work().work[0].chunks_held) == []
    status, _ = clients["lea"].watch(opened.query_id)
    assert (status.parties[1].chunks, status.chunks_expected) == (2, 3)


def test_a_repeated_chunk_is_harmless_and_other_bytes_are_refused(world, clients, uploading):
    opened, cohort = uploading
    (chunk,) = world.chunks(opened, "ann")
    clients["ann"].upload(opened.query_id, chunk)
    clients["ann"].upload(opened.query_id, chunk)
    (other,) = world.chunks(opened, "bob")
    refused(Code.CHUNK_CONFLICT, clients["ann"].upload, opened.query_id, other)
    for party in PARTIES:
        clients.contribute(opened, cohort, party)
    clients.check_total(opened, PARTIES)


def test_a_receipt_before_its_chunks_is_refused(world, clients, uploading):
    opened, cohort = uploading
    chunks = world.chunks(opened, "ann")
    error = refused(Code.CHUNK_MISSING, clients["ann"].give_receipt, world.receipt(opened, cohort, "ann", chunks))
    assert "the first is 0" in error.detail


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    "change",
    [
        {"cohort_digest": b"\1" * 32},
        {"upload_digest": b"\1" * 32},
        {"chunks": 7},
        {"ciphertexts": 7},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_receipt_for_something_else_is_refused(world, clients, uploading, change):
    opened, cohort = uploading
    chunks = world.chunks(opened, "ann")
    clients["ann"].upload(opened.query_id, chunks[0])
    wrong = world.receipt(opened, cohort, "ann", chunks, **change)
    refused(Code.RECEIPT_INVALID, clients["ann"].give_receipt, wrong)
    right = world.receipt(opened, cohort, "ann", chunks)
    clients["ann"].give_receipt(right)
    clients["ann"].give_receipt(right)
    refused(Code.ANSWER_CONFLICT, clients["ann"].give_receipt, wrong)


def test_malformed_chunks_are_refused(world, clients, uploading):
    opened, _ = uploading
    (chunk,) = world.chunks(opened, "ann")
    data, send = chunk.ciphertexts, clients["ann"].upload
    refused(Code.CHUNK_MALFORMED, send, opened.query_id, Chunk.of(1, data))
    refused(Code.CHUNK_MALFORMED, send, opened.query_id, Chunk.of(0, data[:-1]))
    refused(Code.CHUNK_MALFORMED, send, opened.query_id, Chunk.of(0, data + data))
    for proto in (
        ciphertext_pb2.Chunk(index=0, ciphertexts=data, content_hash=b"\0" * 32),
        ciphertext_pb2.Chunk(index=0, ciphertexts=data),
        ciphertext_pb2.Chunk(),
    ):
        request = party_service_pb2.UploadChunkRequest(query_id=opened.query_id, attempt=1, chunk=proto)
        refused(Code.CHUNK_MALFORMED, clients["ann"].call, clients["ann"].party.UploadChunk, request)
    assert not list(clients["ann"].work().work[0].chunks_held)


def test_ciphertexts_that_are_no_units_are_refused(world, clients, uploading):
    opened, _ = uploading
    key = opened.public_key
    (good,) = world.chunks(opened, "ann")
    for bad in (
        0,
        key.n_squared,
        key.n,
        world.secret_key.p,
        key.n_squared - key.n,
        (1 << 8 * key.ciphertext_bytes) - 1,
    ):
        data = good.ciphertexts[: -key.ciphertext_bytes] + int(mpz(bad)).to_bytes(key.ciphertext_bytes, "big")
        refused(Code.CIPHERTEXT_INVALID, clients["ann"].upload, opened.query_id, Chunk.of(0, data))
    assert not list(clients["ann"].work().work[0].chunks_held)


def test_uploads_out_of_place_are_refused(world, clients, asked):
    (chunk,) = world.chunks(asked, "ann")
    send = clients["ann"].upload
    refused(Code.QUERY_UNKNOWN, send, b"\0" * 32, chunk)
    refused(Code.PHASE_MISMATCH, send, asked.query_id, chunk)
    clients.to_uploading(asked.query_id)
    refused(Code.ATTEMPT_MISMATCH, send, asked.query_id, chunk, attempt=2)
    refused(Code.ATTEMPT_MISMATCH, send, asked.query_id, chunk, attempt=0)
    clients["lea"].cancel(asked.query_id)
    refused(Code.QUERY_CLOSED, send, asked.query_id, chunk)


def test_messages_beyond_the_limit_are_refused(clients, uploading):
    opened, _ = uploading
    big = ciphertext_pb2.Chunk(index=0, ciphertexts=b"x" * (512 * 1024 + 1), content_hash=b"\0" * 32)
    huge = ciphertext_pb2.Chunk(index=0, ciphertexts=b"x" * (2 * 1024 * 1024), content_hash=b"\0" * 32)
    for chunk in (big, huge):
        request = party_service_pb2.UploadChunkRequest(query_id=opened.query_id, attempt=1, chunk=chunk)
        refused(Code.MESSAGE_TOO_LARGE, clients["ann"].call, clients["ann"].party.UploadChunk, request)


def test_a_query_is_accepted_once_for_any_repetition(clients, world, asked):
    assert clients["lea"].submit(asked.envelope) == asked.query_id
    assert len(clients["ann"].work().work) == 1
    refused(Code.SENDER_MISMATCH, clients["lou"].submit, asked.envelope)
    clients["lea"].cancel(asked.query_id)
    clients["lea"].cancel(asked.query_id)
    assert clients["lea"].submit(asked.envelope) == asked.query_id
    status, _ = clients["lea"].watch(asked.query_id)
    assert (status.phase, status.code) == (Phase.FAILED, Code.CANCELLED)
    refused(Code.CANCELLED, clients["lea"].total, asked.query_id)
    refused(Code.QUERY_CLOSED, clients["ann"].accept, world.acceptance(asked.query_id, "ann"))


def test_tampered_and_foreign_queries_are_refused(world, clients):
    good = world.query()
    submit = clients["lea"].submit
    tampered = bytearray(good.payload)
    tampered[tampered.index(b"lea") + 20] ^= 1
    refused(Code.SIGNATURE_INVALID, submit, dataclasses.replace(good, signature=b"\1" * 64))
    refused(Code.SIGNATURE_INVALID, submit, dataclasses.replace(good, payload=bytes(tampered)))
    refused(Code.SENDER_MISMATCH, submit, world.query(learner="lou"))
    refused(Code.FEDERATION_MISMATCH, submit, world.query(federation="other"))
    refused(Code.PEER_UNKNOWN, submit, world.keys["lea"].sign(MessageType.QUERY, _with_learner(good.payload)))
    refused(Code.ROSTER_STALE, submit, world.query(roster_version=2))
    refused(Code.QUERY_EXPIRED, submit, world.query(now=time.time() - 5000))
    refused(Code.QUERY_EXPIRED, submit, world.query(now=time.time() + 5000))
    refused(Code.QUERY_INVALID, submit, world.query(max_parties=6, cohort_min=5, honest_parties=1, encoding=_wide()))
    refused(Code.FIELD_UNKNOWN, submit, world.keys["lea"].sign(MessageType.QUERY, good.payload + b"\xf8\x07\x01"))
    refused(Code.MESSAGE_MALFORMED, submit, world.keys["lea"].sign(MessageType.QUERY, b"\xff"))
    refused(Code.SIGNATURE_INVALID, submit, world.keys["ann"].sign(MessageType.QUERY, good.payload))
    refused(Code.MESSAGE_MALFORMED, clients["lea"].call, clients["lea"].learner.SubmitQuery,
            learner_service_pb2.SubmitQueryRequest())  # fmt: skip
    assert not clients["ann"].work().work


def _with_learner(payload: bytes) -> bytes:
    return payload.replace(b"\x12\x03lea", b"\x12\x03zoe", 1)


def _wide():
    from dpcore.numbers.fixed_point import plan_encoding

    return plan_encoding(largest_sum=1000 << 16, max_parties=6, fraction_bits=16)


def test_statements_of_others_are_refused(world, clients, asked):
    by_bob = world.acceptance(asked.query_id, "bob")
    refused(Code.SENDER_MISMATCH, clients["ann"].accept, by_bob)
    forged = dataclasses.replace(by_bob, signature=world.acceptance(asked.query_id, "bob").signature)
    refused(Code.SIGNATURE_INVALID, clients["bob"].accept, forged)
    refused(Code.SENDER_MISMATCH, clients["ann"].ready, world.ready(asked.query_id, "bob"))
    refused(Code.SENDER_MISMATCH, clients["ann"].refuse, world.refusal(asked.query_id, "bob"))
    refused(Code.MESSAGE_MALFORMED, clients["ann"].call, clients["ann"].party.SubmitAnswer,
            party_service_pb2.SubmitAnswerRequest())  # fmt: skip
    refused(Code.MESSAGE_MALFORMED, clients["ann"].accept, Envelope(b"", b"\0" * 32, b"\0" * 64))


def test_a_second_answer_must_be_the_first(world, clients, asked):
    first = world.acceptance(asked.query_id, "ann")
    clients["ann"].accept(first)
    clients["ann"].accept(first)
    refused(Code.ANSWER_CONFLICT, clients["ann"].accept, world.acceptance(asked.query_id, "ann"))
    refused(Code.PHASE_MISMATCH, clients["bob"].ready, world.ready(asked.query_id, "bob"))
    refused(Code.ATTEMPT_MISMATCH, clients["bob"].accept, world.acceptance(asked.query_id, "bob", attempt=2))
    refused(Code.QUERY_UNKNOWN, clients["bob"].accept, world.acceptance(b"\7" * 32, "bob"))


def test_a_party_that_gives_up_is_not_waited_for(world, clients, asked):
    for party in PARTIES:
        clients[party].accept(world.acceptance(asked.query_id, party))
    clients["ann"].refuse(refusal := world.refusal(asked.query_id, "ann"))
    clients["ann"].refuse(refusal)
    status = clients["lea"].until(asked.query_id, Phase.PREPARING)
    assert [(p.party, p.state) for p in status.parties if p.code == "UNAVAILABLE"] == [("ann", PartyState.REFUSED)]
    for party in PARTIES[1:]:
        clients[party].ready(world.ready(asked.query_id, party))
    assert [a.party for a in clients["bob"].cohort().open(world.roster)] == list(PARTIES[1:])
    # No one else can give up in its name, and its own acceptance no longer counts.
    refused(Code.SENDER_MISMATCH, clients["ann"].refuse, world.refusal(asked.query_id, "bob"))
    refused(Code.ANSWER_CONFLICT, clients["ann"].accept, world.acceptance(asked.query_id, "ann"))


def test_a_learner_sees_only_its_own_queries(clients, asked):
    lou = clients["lou"]
    refused(Code.QUERY_UNKNOWN, lou.watch, asked.query_id)
    refused(Code.QUERY_UNKNOWN, lou.total, asked.query_id)
    refused(Code.QUERY_UNKNOWN, lou.total_chunk, asked.query_id, 0)
    refused(Code.QUERY_UNKNOWN, lou.cancel, asked.query_id)
    refused(Code.SENDER_MISMATCH, lou.cancel, asked.query_id, learner="lea")
    listed = lou.call(lou.learner.ListQueries, learner_service_pb2.ListQueriesRequest())
    assert not listed.queries
    lea = clients["lea"]
    (own,) = lea.call(lea.learner.ListQueries, learner_service_pb2.ListQueriesRequest()).queries
    assert own.query_id == asked.query_id
    refused(Code.TOTAL_UNAVAILABLE, lea.total, asked.query_id)
    refused(Code.CHUNK_MALFORMED, _complete(clients, asked).total_chunk, asked.query_id, 1)


def _complete(clients, opened):
    cohort = clients.to_uploading(opened.query_id)
    for party in PARTIES:
        clients.contribute(opened, cohort, party)
    clients["lea"].until(opened.query_id, Phase.COMPLETE)
    return clients["lea"]


def test_open_queries_are_limited(world, clients):
    for _ in range(4):
        clients["lea"].submit(world.query())
    refused(Code.QUERIES_TOO_MANY, clients["lea"].submit, world.query())
    first = clients["lou"].submit(world.query(learner="lou"))
    clients["lou"].cancel(first)
    clients["lou"].submit(world.query(learner="lou"))


def test_a_long_poll_ends_at_a_change(world, clients):
    seen = []
    cursor = clients["ann"].work().cursor
    waiting = threading.Thread(target=lambda: seen.append(clients["ann"].work(cursor, 25)))
    waiting.start()
    time.sleep(0.3)
    assert waiting.is_alive()
    begun = time.monotonic()
    query_id = clients["lea"].submit(world.query())
    waiting.join(HANG_S)
    assert time.monotonic() - begun < 20, "the poll ended by itself"
    (work,) = seen[0].work
    assert Envelope.from_proto(work.query).payload_hash == query_id
    # The next poll waits again, and ends with nothing.
    assert not clients["ann"].work(seen[0].cursor, 1).work


def test_a_watch_ends_at_a_chunk(world, clients, uploading):
    opened, _ = uploading
    _, cursor = clients["lea"].watch(opened.query_id)
    (chunk,) = world.chunks(opened, "ann")
    clients["ann"].upload(opened.query_id, chunk)
    status, after = clients["lea"].watch(opened.query_id, cursor, 20)
    assert after != cursor
    assert status.parties[0].chunks == 1


def test_the_roster_is_served_to_all(world, clients):
    for name in ("ann", "lea"):
        response = clients[name].call(clients[name].members.FetchRoster, member_service_pb2.FetchRosterRequest())
        assert Envelope.from_proto(response.roster) == world.roster_envelope
        assert abs(response.server_time_unix_ms / 1000 - time.time()) < 30


@pytest.mark.parametrize("limit", ["RESPONSE_BYTES", "MOST_WORK"])
def test_work_beyond_one_message_comes_in_parts(world, clients, monkeypatch, limit):
    ids = {clients["lea"].submit(world.query()) for _ in range(4)}
    monkeypatch.setattr(f"coordinator.service.{limit}", 1)
    found, cursor = set(), 0
    for _ in range(4):
        response = clients["ann"].work(cursor)
        (work,) = response.work
        found.add(Envelope.from_proto(work.query).payload_hash)
        cursor = response.cursor
    assert found == ids
    assert not clients["ann"].work(cursor).work


def test_a_cursor_from_the_future_counts_as_none(clients, asked):
    assert len(clients["ann"].work(10**9).work) == 1
