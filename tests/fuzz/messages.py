"""Targets: what a peer sends. A hostile member signs what it likes, so payloads are signed after they are changed."""

from collections.abc import Callable
from fractions import Fraction

import grpc
import numpy as np
from google.protobuf.message import DecodeError, Message

from coordinator.membership import Admissions
from dpcore.errors import RadofedError
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.evaluation import check
from dpcore.predicates.expressions import FormCoordinates
from dpcore.records.compiled import mapped
from learner.decryption import open_total
from rado.v1 import (
    ciphertext_pb2,
    cohort_pb2,
    envelope_pb2,
    join_pb2,
    party_service_pb2,
    query_pb2,
    release_pb2,
    roster_pb2,
)
from radobase.logs import Log
from radofed.joining.installing import Admission
from radofed.joining.requests import ReceivedRequest
from tests.fuzz import world
from tests.fuzz.mutation import messages_near, octets_near, texts_near
from tests.fuzz.target import Target, written
from tests.wire.every_query import STUDY
from tests.wire.test_query_kinds import KINDS, SCHEMA
from wire.binding import Binding, montgomery_key
from wire.codec import parse, rational_from_proto, rational_to_proto
from wire.envelopes import Envelope, MessageType
from wire.errors import Code, WireError
from wire.features import Features, open_features
from wire.query import Cancel, PaillierKey, Query, Retry, open_query, open_retry, setting_of
from wire.query_kinds import feature_map_from_proto, feature_map_to_proto, kind_bytes, read_kind, write_kind
from wire.roster import Roster, open_from, open_roster
from wire.statements import (
    Acceptance,
    Challenge,
    Chunk,
    Cohort,
    KeyShares,
    Pending,
    Ready,
    Receipt,
    Refusal,
    Unmasking,
    Witness,
    check_receipts,
    open_challenge,
    open_statement,
    open_witness,
    witnessed_head,
)
from wire.status import QueryStatus, Total, Work
from wire.study import Study
from wire.training import Training
from wire.transport import MAX_MESSAGE_BYTES, MAX_RESPONSE_BYTES, translate


def reads_back(value, read):
    """A message that is written reads back as the same value."""
    assert read(value.to_bytes()) == value
    return value


def read_roster(payload: bytes) -> None:
    envelope = world.KEYS["federation"].sign(MessageType.ROSTER, payload)
    roster = reads_back(open_roster(envelope, world.KEYS["federation"].public_bytes), Roster.from_bytes)
    for party in roster.parties:
        montgomery_key(party.signing_key)


def read_query(payload: bytes) -> None:
    """As coordinator and party read a query; then what a party's policy and its ledger ask of the kind."""
    opened = open_query(world.KEYS["lea"].sign(MessageType.QUERY, payload), world.ROSTER, now_unix_s=world.NOW)
    query = reads_back(opened.query, Query.from_bytes)
    assert 1 <= opened.chunks <= opened.ciphertexts
    for index in (0, opened.chunks - 1):
        opened.chunk_bytes(index)
    assert query.kind.scope in ("record", "joint", "marginal", "none")
    assert query.kind.words()
    assert kind_bytes(query.kind)
    query.kind.amounts  # noqa: B018 - a property that computes
    query.binding.unseal("ann", world.KEYS["ann"], query.nonce)


def read_cost(payload: bytes) -> None:
    """The privacy cost of a query at a party, as its ledger counts it."""
    query = Query.from_bytes(payload)
    query.kind.protection(setting_of(query)).cost((world.ROWS,), query.delta)


def read_key(payload: bytes) -> None:
    key = PaillierKey.from_bytes(
        open_from(
            world.KEYS["lea"].sign(MessageType.PAILLIER_KEY, payload),
            MessageType.PAILLIER_KEY,
            world.MEMBERS["lea"],
            "fuzz",
        )
    )
    assert PaillierKey.from_bytes(key.sign(world.KEYS["lea"]).payload) == key


def read_cancel(payload: bytes) -> None:
    cancel = Cancel.from_bytes(payload)
    assert Cancel.from_bytes(cancel.sign(world.KEYS["lea"]).payload) == cancel


def read_retry(payload: bytes) -> None:
    retry = open_retry(world.KEYS["lea"].sign(MessageType.RETRY, payload), world.opened(), world.ROSTER)
    assert Retry.from_bytes(retry.sign(world.KEYS["lea"]).payload) == retry


def read_join_request(payload: bytes) -> None:
    """As the operator reads a member's file, signed by the key that it names if that is a known one."""
    signed = world.KEYS["ann"].sign(MessageType.JOIN_REQUEST, payload).to_bytes()
    path = written("join-request", "dot.request", signed)
    request = ReceivedRequest.load(path).request
    assert request.to_bytes() == payload
    assert request.member.name
    assert request.fingerprint


def read_admission(payload: bytes) -> None:
    """As a member reads the operator's file, also when it was left at the coordinator."""
    signed = world.KEYS["federation"].sign(MessageType.ADMISSION, payload).to_proto()
    file = join_pb2.AdmissionFile(federation_key=world.KEYS["federation"].public_bytes, admission=signed)
    path = written("admission", "dot.admission", file.SerializeToString())
    content = Admissions(path.parent, Log("fuzz")).of("dot")
    assert content == path.read_bytes()
    assert Admission.of_bytes(content, path) == Admission.load(path)


def signed_by_party(kind: MessageType, payload: bytes) -> Envelope:
    return world.KEYS[signer(kind, payload)].sign(kind, payload)


def statement(statement_type):
    def read(payload: bytes) -> None:
        said, member = open_statement(statement_type, signed_by_party(statement_type.KIND, payload), world.ROSTER)
        assert member.name == said.party
        reads_back(said, statement_type.from_bytes)
        if statement_type in (Acceptance, Receipt):
            envelope = signed_by_party(statement_type.KIND, payload)
            assert witnessed_head(envelope, said.party, world.ROSTER) == said.ledger_head

    return read


def opened_by(kind: MessageType, statement_type, open_it):
    def read(payload: bytes) -> None:
        said, _ = open_it(signed_by_party(kind, payload), world.ROSTER)
        reads_back(said, statement_type.from_bytes)

    return read


PAYLOADS: dict[MessageType, tuple[type[Message], Callable[[bytes], None], tuple[str, ...]]] = {
    MessageType.ROSTER: (roster_pb2.Roster, read_roster,
                         ("wire.roster.Roster.from_bytes", "wire.roster.Member.from_proto")),
    MessageType.QUERY: (query_pb2.Query, read_query,
                 ("wire.query.Query.from_bytes", "wire.query.Query.from_proto", "wire.envelopes.Envelope.from_proto")),
    MessageType.PAILLIER_KEY: (query_pb2.PaillierKey, read_key,
                               ("wire.query.PaillierKey.from_bytes", "wire.query.PaillierKey.from_proto")),
    MessageType.CANCEL: (query_pb2.Cancel, read_cancel, ("wire.query.Cancel.from_bytes",)),
    MessageType.ACCEPTANCE: (cohort_pb2.Acceptance, statement(Acceptance),
                      ("wire.statements.Acceptance.from_bytes", "wire.statements.LedgerHead.from_proto")),
    MessageType.REFUSAL: (cohort_pb2.Refusal, statement(Refusal), ("wire.statements.Refusal.from_bytes",)),
    MessageType.PENDING: (cohort_pb2.Pending, statement(Pending), ("wire.statements.Pending.from_bytes",)),
    MessageType.READY: (cohort_pb2.Ready, statement(Ready), ("wire.statements.Ready.from_bytes",)),
    MessageType.KEY_SHARES: (cohort_pb2.KeyShares, statement(KeyShares), ("wire.statements.KeyShares.from_bytes",)),
    MessageType.UNMASKING: (cohort_pb2.Unmasking, statement(Unmasking), ("wire.statements.Unmasking.from_bytes",)),
    MessageType.RECEIPT: (cohort_pb2.Receipt, statement(Receipt), ("wire.statements.Receipt.from_bytes",)),
    MessageType.FEATURES: (roster_pb2.Features, opened_by(MessageType.FEATURES, Features, open_features),
                    ("wire.features.Features.from_bytes",)),
    MessageType.CHALLENGE: (cohort_pb2.Challenge, opened_by(MessageType.CHALLENGE, Challenge, open_challenge),
                     ("wire.statements.Challenge.from_bytes",)),
    MessageType.WITNESS: (cohort_pb2.Witness, opened_by(MessageType.WITNESS, Witness, open_witness),
                   ("wire.statements.Witness.from_bytes",)),
    MessageType.RETRY: (query_pb2.Retry, read_retry, ("wire.query.Retry.from_bytes",)),
    MessageType.JOIN_REQUEST: (join_pb2.JoinRequest, read_join_request,
                        ("radofed.joining.requests._FILE", "radofed.joining.requests.JoinRequest.from_proto")),
    MessageType.ADMISSION: (join_pb2.Admission, read_admission,
                     ("radofed.joining.installing._FILE", "coordinator.membership._FILE")),
}  # fmt: skip
"""Of every kind of signed message: its form, its reader, and what that covers."""


def signer(kind: MessageType, payload: bytes) -> str:
    """The party that the payload names, or ann."""
    try:
        name = PAYLOADS[kind][0].FromString(payload).party
    except (AttributeError, DecodeError):  # the parser under test says what is wrong
        name = ""
    return name if name in world.PARTIES else "ann"


def payload_target(kind: MessageType) -> Target:
    form, read, covers = PAYLOADS[kind]
    seeds = [form.FromString(payload) for payload in world.statements()[kind]]
    return Target(f"payload-{kind.value.lower()}", read, messages_near(seeds), MAX_MESSAGE_BYTES, covers)


def read_envelope(data: bytes) -> None:
    envelope = reads_back(Envelope.from_bytes(data), Envelope.from_bytes)
    for kind in MessageType:
        assert not opens(envelope, kind) or kind is MessageType.ROSTER


def opens(envelope: Envelope, kind: MessageType) -> bool:
    try:
        envelope.open(kind, "fuzz", world.KEYS["federation"].public_bytes)
    except RadofedError:
        return False
    return True


def read_cohort(data: bytes) -> None:
    cohort = Cohort.from_proto(parse(cohort_pb2.Cohort, data))
    assert Cohort.from_proto(cohort.to_proto()) == cohort
    assert len(cohort.digest) == 32
    cohort.open(world.ROSTER)


def read_total(data: bytes) -> None:
    """As the learner reads the answer of a hostile coordinator."""
    total = Total.from_proto(from_grpc(release_pb2.Total, data))
    check_receipts(total.receipts, total.cohort, world.ROSTER, chunks=total.chunks, ciphertexts=total.ciphertexts)
    open_total(
        total, [world.chunk().ciphertexts], world.opened(), world.ROSTER, world.secret_key(), opening=world.OPENING
    )


def read_ciphertexts(data: bytes) -> None:
    """Decryption of any integers of the right width, under an honest header."""
    key = world.opened().public_key
    key.validate(ciphertexts := key.from_wire(data))
    assert key.to_wire(ciphertexts) == data
    world.secret_key().decrypt_many(ciphertexts[:1])


def round_trip(value_type, form):
    """A reader of messages of the coordinator, which read back as the same value."""

    def read(data: bytes) -> None:
        value = value_type.from_proto(from_grpc(form, data))
        assert value_type.from_proto(value.to_proto()) == value

    return read


def read_status(data: bytes) -> None:
    round_trip(QueryStatus, release_pb2.QueryStatus)(data)
    assert QueryStatus.from_proto(from_grpc(release_pb2.QueryStatus, data)).phase.word


def read_one_kind(data: bytes) -> None:
    kind = read_kind(parse(query_pb2.Query, data), SCHEMA)
    message = query_pb2.Query(honest_parties=2)
    write_kind(kind, message)
    assert read_kind(message, SCHEMA) == kind


def read_feature_map(data: bytes) -> None:
    """A map, in its one form, and its coordinates of a few rows."""
    feature_map = feature_map_from_proto(parse(query_pb2.FeatureMap, data), SCHEMA)
    assert feature_map_from_proto(feature_map_to_proto(feature_map), SCHEMA) == feature_map
    assert len(feature_map.names(SCHEMA)) == feature_map.d
    features = np.array([[at] * SCHEMA.d for at in (-ONE, 0, 1, ONE)], dtype=np.int32)
    assert np.abs(mapped(features, feature_map).astype(np.int64)).max() <= ONE


def read_table(data: bytes) -> None:
    """A table of predicates, in its one canonical form. Of tables with an odd number of bytes, forms are over a map."""
    from wire.query_kinds import read_predicates, write_predicates

    feature_map = world.FEATURE_MAP if len(data) % 2 else None
    coordinates = FormCoordinates(SCHEMA, feature_map)
    message = parse(query_pb2.StatisticQuery, data)
    predicates = read_predicates(message, coordinates)
    check(predicates, SCHEMA, feature_map)
    again = query_pb2.StatisticQuery()
    write_predicates(predicates, coordinates, again)
    assert list(again.predicates) == list(message.predicates)
    assert list(again.nodes) == list(message.nodes)


TRAINING = Training(
    b"n" * 32,
    "newton",
    "rounds=10",
    SCHEMA.digest,
    Fraction(1, 2),
    Fraction(1, 10**6),
    10,
    3,
    1_700_000_000,
    1_800_000_000,
)


def read_study(data: bytes) -> None:
    """What is read is written back, and shown on one line each."""
    study = Study.from_bytes(data)
    assert Study.from_bytes(study.to_bytes()) == study
    assert all(line.isprintable() or not line.isascii() for line in study.lines())
    assert "\n" not in "".join(study.lines())


def read_training(data: bytes) -> None:
    """What is read is written back, and shown on one line."""
    training = Training.from_bytes(data)
    assert Training.from_bytes(training.to_bytes()) == training
    assert training.words.isprintable()


def read_binding(data: bytes) -> None:
    binding = Binding.from_proto(parse(query_pb2.Binding, data))
    assert Binding.from_proto(binding.to_proto()) == binding
    for party in world.PARTIES:
        binding.unseal(party, world.KEYS[party], b"n" * 16)


def read_rational(data: bytes) -> None:
    value = rational_from_proto(parse(query_pb2.Rational, data))
    # The smallest 64-bit integer is read and cannot be written.
    if value.numerator != -(1 << 63):
        assert rational_from_proto(rational_to_proto(value)) == value


def from_grpc(message_type, data: bytes):
    """A message as gRPC parses it, before any code of ours sees it."""
    try:
        return message_type.FromString(data)
    except DecodeError as error:
        raise WireError(Code.MESSAGE_MALFORMED) from error


class FailedCall(grpc.RpcError):
    """What gRPC raises for a call that a hostile peer ended: a code, a sentence, trailing metadata."""

    def __init__(self, status: int, code: object, details: str | None) -> None:
        self._status, self._code, self._details = status, code, details

    def trailing_metadata(self):
        return None if self._code is None else (("rado-code", self._code), ("other", b"\0"))

    def code(self):
        return list(grpc.StatusCode)[self._status % len(grpc.StatusCode)]

    def details(self):
        return self._details


def read_failure(data: bytes) -> None:
    code, _, details = data[1:].partition(b"|")
    text = code.decode(errors="replace")
    for found in (text, code, None):
        error, _ = translate(FailedCall(data[0] if data else 0, found, details.decode(errors="replace")), "hub:1")
        assert isinstance(error, RadofedError)


def _kind_seeds() -> list[query_pb2.Query]:
    seeds = []
    for kind in KINDS:
        message = query_pb2.Query(honest_parties=2)
        write_kind(kind, message)
        seeds.append(message)
    return seeds


def _statuses() -> list[release_pb2.QueryStatus]:
    parties = [release_pb2.PartyProgress(party=name, state=2, code="BUDGET_EXCEEDED") for name in world.PARTIES]
    said = envelope_pb2.Signed(payload=b"an acceptance", key_id=bytes(32), signature=bytes(64))
    asked = [release_pb2.PartyProgress(party=name, state=3, rows=7, acceptance=said) for name in world.PARTIES]
    waiting = [release_pb2.PartyProgress(party=name, state=8) for name in world.PARTIES]
    query_id = world.opened().query_id
    return [
        release_pb2.QueryStatus(query_id=query_id, attempt=1, phase=2, parties=parties, code=""),
        release_pb2.QueryStatus(query_id=query_id, attempt=1, phase=6, parties=asked, code="ONLY_ASKED"),
        release_pb2.QueryStatus(query_id=query_id, attempt=1, phase=2, parties=waiting, answering_ended_early=True),
    ]


def targets() -> list[Target]:
    opened, cohort = world.opened(), world.cohort()
    bound = world.statements()[MessageType.QUERY]
    total, chunk = world.total().to_proto(), world.chunk().to_proto()
    work = party_service_pb2.Work(
        query=opened.envelope.to_proto(), attempt=1, phase=3, state=6, cohort=cohort.to_proto(), chunks_held=[0]
    )
    statistics = [seed.statistic for seed in _kind_seeds() if seed.WhichOneof("kind") == "statistic"]
    wire = opened.public_key.ciphertext_bytes
    numbers = [1, 2, opened.public_key.n, opened.public_key.n_squared - 1, opened.public_key.n + 1]
    small = [number.to_bytes(wire, "big") for number in numbers]
    queries = [query_pb2.Query.FromString(payload) for payload in bound]
    sealed = Binding.seal(world.OPENING, [world.MEMBERS[name] for name in world.PARTIES], b"n" * 16)
    return [
        *(payload_target(kind) for kind in MessageType),
        Target("cost-of-query", read_cost, messages_near(queries), 512 * 1024, (), examples=30),
        Target("envelope", read_envelope,
               messages_near([world.ROSTER_ENVELOPE.to_proto(), envelope_pb2.Signed(payload=b"x", key_id=bytes(32))]),
               MAX_MESSAGE_BYTES, ("wire.envelopes.Envelope.from_bytes", "wire.envelopes.parse")),
        Target("cohort", read_cohort, messages_near([cohort.to_proto()]), MAX_RESPONSE_BYTES,
               ("wire.statements.Cohort.from_proto",)),
        Target("total", read_total, messages_near([total]), MAX_RESPONSE_BYTES,
               ("wire.status.Total.from_proto", "learner.decryption.open_total")),
        Target("ciphertexts", read_ciphertexts, octets_near(small), 512 * 1024,
               ("dpcore.paillier.public.PublicKey.from_wire",)),
        Target("work", round_trip(Work, party_service_pb2.Work),
               messages_near([work]), MAX_RESPONSE_BYTES, ("wire.status.Work.from_proto",)),
        Target("status", read_status, messages_near(_statuses()), MAX_RESPONSE_BYTES,
               ("wire.status.QueryStatus.from_proto", "wire.status.PartyProgress.from_proto")),
        Target("chunk", round_trip(Chunk, ciphertext_pb2.Chunk),
               messages_near([chunk]), MAX_MESSAGE_BYTES, ("wire.statements.Chunk.from_proto",)),
        Target("kinds", read_one_kind, messages_near(_kind_seeds()), 512 * 1024, ("wire.query_kinds.read_kind",)),
        Target("predicate-table", read_table, messages_near(statistics), 512 * 1024,
               ("wire.query_kinds.read_predicates",)),
        Target("feature-map", read_feature_map, messages_near([feature_map_to_proto(world.FEATURE_MAP)]), 512 * 1024,
               ("wire.query_kinds.feature_map_from_proto",)),
        Target("binding", read_binding, messages_near([sealed.to_proto()]), 512 * 1024,
               ("wire.binding.Binding.from_proto",)),
        Target("study", read_study, messages_near([STUDY.to_proto()]), 8 * 1024, ("wire.study.Study.from_bytes",)),
        Target("announced-training", read_training, messages_near([TRAINING.to_proto()]), 8 * 1024,
               ("wire.training.Training.from_bytes",)),
        Target("rational", read_rational, messages_near([query_pb2.Rational(numerator=1, denominator=3)]), 64,
               ("wire.codec.rational_from_proto",)),
        Target("failed-call", read_failure,
               texts_near(["\1UNAVAILABLE|The party cannot contribute now. x.", "\6ROSTER_STALE|x. y", "\10|"]), 8192,
               ("wire.transport.translate",)),
    ]  # fmt: skip
