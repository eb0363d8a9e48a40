"""A small federation with keys that anyone may know, so that every input of the corpus stays valid."""

import hashlib
from fractions import Fraction
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.numbers.fixed_point import ONE, Encoding
from dpcore.predicates.expressions import Affine, Clipped, Flag, LabelIs, NonNegative
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.queries.statistic import StatisticQuery
from dpcore.rados.designs import PlainDesign
from dpcore.records.clipping import Clip
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term
from dpcore.records.held_back import HeldBack, Part
from rado.v1 import join_pb2
from radofed.certificates import make_request
from radofed.joining.requests import JoinRequest
from tests.federation.material import query_of, roster_of, secret_key
from tests.wire.every_query import STUDY
from tests.wire.test_query_kinds import KINDS, SCHEMA
from wire.binding import Binding, OpeningSecret
from wire.envelopes import MessageType, SigningKey, sha256
from wire.errors import Code, WireError
from wire.features import OWN_FEATURES, Feature, Features
from wire.query import OpenedQuery, PaillierKey, Query, open_query
from wire.roster import Role
from wire.statements import (
    Acceptance,
    Challenge,
    Chunk,
    Cohort,
    KeyShares,
    LedgerHead,
    Pending,
    Ready,
    Receipt,
    Refusal,
    Unmasking,
    Witness,
    name_of,
    sign,
    upload_digest,
)
from wire.status import Total

FEDERATION = "fuzz"
NOW = 1_790_000_000
PARTIES = ("ann", "bob", "cat")
ROWS = 50


def octets(name: str) -> bytes:
    """32 bytes that depend on the name alone."""
    return hashlib.sha256(name.encode()).digest()


def signing_key(name: str) -> SigningKey:
    return SigningKey(Ed25519PrivateKey.from_private_bytes(octets(name)), FEDERATION)


KEYS = {name: signing_key(name) for name in ("federation", *PARTIES, "lea")}
OPENING = OpeningSecret(octets("opening"))


def mask_key(party: str) -> bytes:
    return X25519PrivateKey.from_private_bytes(octets(f"mask of {party}")).public_key().public_bytes_raw()


_STATED = dict.fromkeys(PARTIES, 100)
_PARTIES = {name: KEYS[name] for name in PARTIES}
_DATES = {"version": 3, "issued_at_unix_s": NOW - 1000, "not_after_unix_s": NOW + 10**7}
ROSTER = roster_of(FEDERATION, _PARTIES, KEYS["lea"], rows=_STATED, **_DATES)
MEMBERS = {member.name: member for member in ROSTER.members}
ROSTER_ENVELOPE = ROSTER.sign(KEYS["federation"])


@cache
def paillier_key() -> PaillierKey:
    return PaillierKey("lea", secret_key().public_key, NOW - 1000, NOW + 10**7)


def _query(kind, **changes) -> Query:
    is_local = isinstance(kind, StatisticQuery) and kind.is_local
    fields = {
        "federation": FEDERATION,
        "learner": "lea",
        "nonce": octets("nonce")[:16],
        "roster_version": 3,
        "schema": SCHEMA,
        "kind": kind,
        "encoding": Encoding(0 if is_local else 10, 55, 64),
        "paillier_key": paillier_key().sign(KEYS["lea"]),
        "max_parties": 4,
        "cohort_min": 2,
        "binding": Binding.seal(OPENING, [MEMBERS[name] for name in PARTIES], octets("nonce")[:16]),
    }
    return query_of(NOW - 10, **fields | {"not_after_unix_s": NOW + 3600} | changes)


FEATURE_MAP = FeatureMap(
    (
        Term(Column(0)),
        Term(Hat(0, None, -5, ONE), ONE // 3, 1),
        Term(Hat(0, -ONE, 0, None)),
        Term(PointMass(0, 7), 9),
        Term(Column(1)),
        Term(Product(1, 4), 0, 2),
    ),
    SCHEMA.bias,
)


@cache
def queries() -> tuple[Query, ...]:
    """The query of the corpus, one that uses every feature, and one of every kind and design that its slots hold."""
    part = HeldBack(Fraction(1, 5), Part.HELD_BACK)
    about_part = _query(next(kind for kind in KINDS if kind.takes_parts and _fits(kind)), held_back=part)
    mapped = _query(MomentsQuery(Clip(Fraction(2), bias=True), 77, 1000), feature_map=FEATURE_MAP)
    form = Affine((("1: age~50", 4), ("5: age~50*smoker", -3)), 2)
    about_map = (NonNegative(form) & LabelIs(positive=True), Clipped(form, 5), Flag("smoker"))
    counted = _query(StatisticQuery(about_map, SCHEMA, GaussianShares(1000), FEATURE_MAP), feature_map=FEATURE_MAP)
    features = (Feature.BASE.value, Feature.QUESTION.value, Feature.STUDY.value)
    more = {"features": features, "quorum_wait_s": 5, "purpose": "Study 17", "study": STUDY}
    plain = (_query(RadosQuery(2, PlainDesign()), **fields) for fields in ({}, more))
    return (*plain, *(_query(kind) for kind in KINDS if _fits(kind)), about_part, mapped, counted)


def _fits(kind) -> bool:
    try:
        _query(kind)
    except WireError as error:
        return error.code is not Code.ENCODING_OVERFLOW
    return True


@cache
def opened(at: int = 0) -> OpenedQuery:
    """A query as every node opens it: that of the corpus, or 1 for the one that uses every feature."""
    return open_query(KEYS["lea"].sign(MessageType.QUERY, queries()[at].to_bytes()), ROSTER, now_unix_s=NOW)


HEAD = LedgerHead(7, octets("ledger"), octets("sums"))


def acceptance(party: str, query_id: bytes = b"") -> Acceptance:
    return Acceptance(query_id or opened().query_id, 1, party, ROWS, mask_key(party), 3, HEAD)


def cohort() -> Cohort:
    said = tuple(sign(acceptance(party), KEYS[party]) for party in PARTIES)
    return Cohort(opened().query_id, 1, said)


def chunk() -> Chunk:
    """A valid upload: every ciphertext is 1, an encryption of 0 without obfuscation."""
    return Chunk.of(0, opened().public_key.to_wire([1] * opened().ciphertexts))


def receipt(party: str) -> Receipt:
    digest = upload_digest([chunk().content_hash])
    return Receipt(opened().query_id, 1, party, cohort().digest, digest, opened().chunks, opened().ciphertexts, HEAD)


def total() -> Total:
    receipts = tuple(sign(receipt(party), KEYS[party]) for party in PARTIES)
    return Total(cohort(), receipts, opened().chunks, opened().ciphertexts)


def statements() -> dict[MessageType, list[bytes]]:
    """Valid payloads of every kind of signed message."""
    query_id = opened().query_id
    accepted = sign(acceptance("ann"), KEYS["ann"])
    witness = Witness(FEDERATION, "bob", "ann", octets("challenge"), accepted, (name_of(accepted),), 3)
    retry, digest = _signed_payload("retry"), octets("digest")
    return {
        MessageType.ROSTER: [ROSTER.to_bytes()],
        MessageType.QUERY: [query.to_bytes() for query in queries()],
        MessageType.PAILLIER_KEY: [paillier_key().sign(KEYS["lea"]).payload],
        MessageType.CANCEL: [_signed_payload("cancel")],
        MessageType.ACCEPTANCE: [acceptance("ann").to_bytes()],
        MessageType.REFUSAL: [Refusal(query_id, 1, "ann", Code.BUDGET_EXCEEDED).to_bytes()],
        MessageType.PENDING: [Pending(opened(1).query_id, 1, "ann").to_bytes()],
        MessageType.READY: [Ready(query_id, 1, "ann").to_bytes()],
        MessageType.KEY_SHARES: [
            KeyShares(
                query_id, 1, "ann", digest, digest, (bytes(94),) * 2, (bytes(16),) * 2, (bytes(16),) * 2
            ).to_bytes()
        ],
        MessageType.UNMASKING: [Unmasking(query_id, 1, "ann", digest, digest, bytes(66)).to_bytes()],
        MessageType.RECEIPT: [receipt("ann").to_bytes()],
        MessageType.FEATURES: [Features(FEDERATION, "ann", OWN_FEATURES, "0.3.0", NOW).to_bytes()],
        MessageType.CHALLENGE: [Challenge(FEDERATION, "ann", octets("challenge"), NOW).to_bytes()],
        MessageType.WITNESS: [witness.to_bytes()],
        MessageType.RETRY: [retry],
        MessageType.JOIN_REQUEST: [request.to_bytes() for request in join_requests()],
        MessageType.ADMISSION: [admission()],
    }


@cache
def join_requests() -> tuple[JoinRequest, ...]:
    """Of a party, which signs with ann's key, and of a coordinator."""
    key = KEYS["ann"].public_bytes
    party, hub = (make_request(FEDERATION, role, "dot").request_pem for role in (Role.PARTY, Role.COORDINATOR))
    return (
        JoinRequest(FEDERATION, Role.PARTY, "dot", key, party, NOW, rows_at_least=5),
        JoinRequest(FEDERATION, Role.COORDINATOR, "dot", key, hub, NOW, address="dot:7443"),
    )


@cache
def admission() -> bytes:
    """The payload of an answer to the party's request."""
    return join_pb2.Admission(
        request_digest=sha256(join_requests()[0].to_bytes()),
        certificate=b"certificate",
        authority=b"authority",
        roster=ROSTER_ENVELOPE.to_proto(),
        coordinator_address="dot:7443",
    ).SerializeToString()


def _signed_payload(which: str) -> bytes:
    from wire.query import Cancel, Retry

    said = Cancel(opened().query_id, "lea") if which == "cancel" else Retry(opened().query_id, "lea", 2)
    return said.sign(KEYS["lea"]).payload
