"""Malicious members, over real gRPC: messages that no node sends, and keys that no learner should make."""

import secrets

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from gmpy2 import mpz

from coordinator.intake import STATEMENT_BYTES
from coordinator.membership import MOST_PARTIES
from dpcore.paillier.packing import pack
from dpcore.paillier.public import PublicKey
from rado.v1 import cohort_pb2, envelope_pb2, learner_service_pb2, party_service_pb2, query_pb2
from tests.federation.coordinator import PARTIES, ROWS, refused
from wire.envelopes import Envelope, MessageType
from wire.errors import Code
from wire.query import MAX_QUERY_BYTES, MAX_VALUES, Query
from wire.statements import MAX_SEALED_BYTES, Acceptance, Chunk, Cohort, LedgerHead, Pending, Ready, Receipt, Refusal
from wire.status import PartyState, Phase, Total, Work
from wire.transport import MAX_RESPONSE_BYTES

LAST_U32 = (1 << 32) - 1


@pytest.fixture
def asked(world, clients):
    """A small query, taken."""
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    return opened


def state(world, clients, opened):
    """What the learner and a party can see of a query, except the remaining time."""
    status, cursor = clients["lea"].watch(opened.query_id)
    return status.phase, status.attempt, status.parties, cursor, clients["bob"].work().work


def test_a_statement_blown_up_by_repeated_fields_does_not_reach_the_cohort(world, clients, asked):
    """Protobuf lets the last of many equal fields win: half a megabyte of them is a valid acceptance."""
    key, query_id = world.keys["ann"], asked.query_id
    padding = cohort_pb2.Ready(party="ann").SerializeToString() * 100_000

    def padded(kind: MessageType, payload: bytes) -> Envelope:
        return key.sign(kind, padding + payload)

    rows, digest = ROWS["ann"], b"\1" * 32
    acceptance = Acceptance(query_id, 1, "ann", rows, secrets.token_bytes(32), 1).to_bytes()
    # It says what the short one says: only its size is wrong.
    assert Acceptance.from_bytes(padding + acceptance).rows == rows
    before = state(world, clients, asked)
    ann = clients["ann"]
    for send, kind, payload in (
        (ann.accept, MessageType.ACCEPTANCE, acceptance),
        (ann.refuse, MessageType.REFUSAL, Refusal(query_id, 1, "ann", Code.UNAVAILABLE).to_bytes()),
        (ann.be_pending, MessageType.PENDING, Pending(query_id, 1, "ann").to_bytes()),
        (ann.ready, MessageType.READY, Ready(query_id, 1, "ann").to_bytes()),
        (ann.give_receipt, MessageType.RECEIPT, Receipt(query_id, 1, "ann", digest, digest, 1, 1).to_bytes()),
    ):
        refused(Code.MESSAGE_TOO_LARGE, send, padded(kind, payload))
    assert state(world, clients, asked) == before
    clients.to_uploading(query_id)


def test_the_largest_statements_are_taken():
    longest, most = "p" * 63, (1 << 64) - 1
    digest = b"\1" * 32
    head = LedgerHead((1 << 63) - 1, digest, bytes(MAX_SEALED_BYTES))
    key = X25519PrivateKey.generate().public_key().public_bytes_raw()
    for statement in (
        Acceptance(digest, LAST_U32, longest, most, key, most, head),
        Refusal(digest, LAST_U32, longest, max(Code, key=len)),
        Pending(digest, LAST_U32, longest),
        Ready(digest, LAST_U32, longest),
        Receipt(digest, LAST_U32, longest, digest, digest, LAST_U32, LAST_U32, head),
    ):
        assert len(statement.to_bytes()) <= STATEMENT_BYTES


def test_the_largest_cohort_fits_a_message_with_the_largest_query():
    """And so does its total's description: what one member sends cannot make another's fetching fail."""

    def largest(payload_bytes: int) -> Envelope:
        return Envelope(b"x" * payload_bytes, b"\1" * 32, b"\2" * 64)

    statement = largest(STATEMENT_BYTES)
    cohort = Cohort(b"\1" * 32, LAST_U32, (statement,) * MOST_PARTIES)
    chunks_held = frozenset(range(MAX_VALUES // 31 // 1024 + 1))
    work = Work(
        largest(MAX_QUERY_BYTES), LAST_U32, Phase.UPLOADING, PartyState.UPLOADING, cohort, chunks_held=chunks_held
    )
    other_fields_bytes = 16 * 1024
    assert work.to_proto().ByteSize() <= MAX_RESPONSE_BYTES - other_fields_bytes
    total = Total(cohort, (statement,) * MOST_PARTIES, LAST_U32, LAST_U32)
    assert total.to_proto().ByteSize() <= MAX_RESPONSE_BYTES - other_fields_bytes


@pytest.mark.variants(2)
@pytest.mark.parametrize("query_id", [b"", b"\1" * 31, b"\1" * 33, b"\1" * 1000], ids=len)
def test_ids_of_a_wrong_length_are_refused(world, clients, query_id):
    ann, lea = clients["ann"], clients["lea"]
    refused(Code.QUERY_UNKNOWN, ann.upload, query_id, Chunk.of(0, b"x"))
    refused(Code.QUERY_UNKNOWN, lea.watch, query_id)
    refused(Code.QUERY_UNKNOWN, lea.cancel, query_id)
    refused(Code.QUERY_UNKNOWN, lea.total, query_id)
    refused(Code.QUERY_UNKNOWN, lea.total_chunk, query_id, 0)
    said = cohort_pb2.Ready(query_id=query_id, attempt=1, party="ann").SerializeToString()
    code = Code.MESSAGE_TOO_LARGE if len(said) > STATEMENT_BYTES else Code.MESSAGE_MALFORMED
    refused(code, ann.ready, world.keys["ann"].sign(MessageType.READY, said))


@pytest.mark.parametrize("attempt", [0, 2, LAST_U32])
def test_attempts_that_do_not_run_are_refused(world, clients, asked, attempt):
    query_id, key = asked.query_id, world.keys["ann"]
    before = state(world, clients, asked)
    acceptance = cohort_pb2.Acceptance(
        query_id=query_id, attempt=attempt, party="ann", rows=10, mask_key=b"\1" * 32, roster_version=1
    ).SerializeToString()
    ready = cohort_pb2.Ready(query_id=query_id, attempt=attempt, party="ann").SerializeToString()
    code = Code.MESSAGE_MALFORMED if attempt == 0 else Code.ATTEMPT_MISMATCH
    refused(code, clients["ann"].accept, key.sign(MessageType.ACCEPTANCE, acceptance))
    refused(code, clients["ann"].ready, key.sign(MessageType.READY, ready))
    refused(Code.ATTEMPT_MISMATCH, clients["ann"].upload, query_id, Chunk.of(0, b"x"), attempt)
    assert state(world, clients, asked) == before


def test_indices_beyond_an_upload_or_a_total_are_refused(world, clients, asked):
    cohort = clients.to_uploading(asked.query_id)
    (chunk,) = world.chunks(asked, "ann")
    for index in (1, 1 << 31, LAST_U32):
        refused(Code.CHUNK_MALFORMED, clients["ann"].upload, asked.query_id, Chunk.of(index, chunk.ciphertexts))
    for party in PARTIES:
        clients.contribute(asked, cohort, party)
    clients.check_total(asked, PARTIES)
    for index in (1, 1 << 31, LAST_U32):
        refused(Code.CHUNK_MALFORMED, clients["lea"].total_chunk, asked.query_id, index)


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    "signed",
    [
        None,
        envelope_pb2.Signed(),
        envelope_pb2.Signed(payload=b"x"),
        envelope_pb2.Signed(payload=b"x", key_id=b"\1" * 32, signature=b"\1" * 63),
        envelope_pb2.Signed(payload=b"x", key_id=b"\1" * 33, signature=b"\1" * 64),
        envelope_pb2.Signed(key_id=b"\1" * 32, signature=b"\1" * 64),
    ],
    ids=["none", "empty", "payload alone", "short signature", "long key id", "no payload"],
)
def test_incomplete_envelopes_are_refused(clients, signed):
    ann, lea = clients["ann"], clients["lea"]
    for client, method, request in (
        (lea, lea.learner.SubmitQuery, learner_service_pb2.SubmitQueryRequest(query=signed)),
        (lea, lea.learner.CancelQuery, learner_service_pb2.CancelQueryRequest(cancel=signed)),
        (ann, ann.party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(acceptance=signed)),
        (ann, ann.party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(refusal=signed)),
        (ann, ann.party.SubmitAnswer, party_service_pb2.SubmitAnswerRequest(pending=signed)),
        (ann, ann.party.SubmitReady, party_service_pb2.SubmitReadyRequest(ready=signed)),
        (ann, ann.party.SubmitReceipt, party_service_pb2.SubmitReceiptRequest(receipt=signed)),
    ):
        refused(Code.MESSAGE_MALFORMED, client.call, method, request)


def query_with_modulus(world, modulus: bytes) -> Envelope:
    good = Query.from_bytes(world.query().payload)
    message = query_pb2.PaillierKey.FromString(good.paillier_key.payload)
    message.modulus = modulus
    certified = world.keys["lea"].sign(MessageType.PAILLIER_KEY, message.SerializeToString())
    return world.query(paillier_key=certified)


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    "modulus",
    [
        b"",
        b"\1",
        ((1 << 2047) + 2).to_bytes(256, "big"),
        b"\0" + ((1 << 2048) - 1).to_bytes(256, "big"),
        ((1 << 2047) - 1).to_bytes(256, "big"),
        ((1 << 16384) + 1).to_bytes(2049, "big"),
        b"\xff" * 400_000,
    ],
    ids=["none", "one", "even", "leading zero", "2047 bits", "16385 bits", "400 kB"],
)
def test_a_useless_modulus_is_refused(world, clients, modulus):
    refused(Code.KEY_INVALID, clients["lea"].submit, query_with_modulus(world, modulus))
    assert not clients["ann"].work().work


@pytest.mark.parametrize(
    "modulus",
    [
        (1 << 2203) - 1,  # a Mersenne prime
        3**1300,
        (1 << 2048) - 1,  # 3 * 5 * 17 * 257 * ...
        (1 << 2047) + 1,
    ],
    ids=["prime", "power of three", "many small factors", "other small factors"],
)
def test_a_malformed_modulus_harms_only_its_learner(world, clients, modulus):
    """It looks like a valid one; the coordinator multiplies modulo its square, and nothing fails or hangs."""
    key = PublicKey(modulus)
    envelope = query_with_modulus(world, modulus.to_bytes(-(-key.bits // 8), "big"))
    opened = world.open(envelope)
    lea = clients["lea"]
    lea.submit(envelope)
    cohort = clients.to_uploading(opened.query_id)
    product = [mpz(1), mpz(1)]
    for party in PARTIES:
        plaintexts = [*pack(world.values(opened, party), ROWS[party], opened.query.encoding, key.bits), mpz(7)]
        ciphertexts = [key.raw_encrypt(plaintext, mpz(1)) for plaintext in plaintexts]
        product = [a * b % key.n_squared for a, b in zip(product, ciphertexts, strict=True)]
        chunk = Chunk.of(0, key.to_wire(ciphertexts))
        clients[party].upload(opened.query_id, chunk)
        clients[party].give_receipt(world.receipt(opened, cohort, party, [chunk]))
    lea.until(opened.query_id, Phase.COMPLETE)
    assert key.from_wire(lea.total_chunk(opened.query_id, 0).ciphertexts) == product
    sound = world.open(world.query())
    lea.submit(sound.envelope)
    cohort = clients.to_uploading(sound.query_id)
    for party in PARTIES:
        clients.contribute(sound, cohort, party)
    clients.check_total(sound, PARTIES)
