"""Messages that no honest node makes are refused when they are read, one fault at a time."""

import sys
import time
import unicodedata
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial

import pytest

from dpcore.accounting.cohorts import Cohorts
from dpcore.errors import ConfigurationError, PlanError
from dpcore.numbers.fixed_point import Encoding
from dpcore.queries.kind import MAX_PARTIES, MAX_VALUES
from learner.requests import MomentsRequest
from rado.v1 import cohort_pb2, party_service_pb2, query_pb2
from tests.federation.learner import FEDERATION, World
from wire.binding import Binding, OpeningSecret, montgomery_key
from wire.codec import rational_to_proto
from wire.envelopes import Envelope, MessageType, SigningKey, key_id
from wire.errors import Code, WireError
from wire.features import MAX_FEATURES, Feature, Features, check_features, check_known, open_features
from wire.query import (
    CLOCK_SKEW_S,
    MAX_ATTEMPTS,
    MAX_PHASE_S,
    MAX_QUERY_BYTES,
    Cancel,
    PaillierKey,
    Query,
    Retry,
    _parsed,
    check_time,
    open_query,
    open_retry,
)
from wire.roster import LARGEST_VERSION, Member, Role, Roster, certificate_san, open_roster
from wire.statements import (
    MAX_ENTRIES,
    MAX_SEALED_BYTES,
    MOST_IN_COHORTS,
    Acceptance,
    Challenge,
    Cohort,
    KeyShares,
    LedgerHead,
    Pending,
    Ready,
    Receipt,
    Refusal,
    Unmasking,
    Witness,
    check_survivors_of,
    open_challenge,
    open_statement,
    open_witness,
    sign,
    witnessed_head,
)
from wire.status import PartyProgress, PartyState, Phase, QueryStatus, Work
from wire.texts import MAX_PURPOSE, NOT_PRINTABLE, is_purpose

ID = b"q" * 32
KEY = b"k" * 32
LOW_ORDER = bytes(32)
UNKNOWN_FIELD = b"\x98\x06\x01"  # field 99, varint 1


def refused(make, code=Code.MESSAGE_MALFORMED, detail=""):
    with pytest.raises(WireError) as caught:
        make()
    assert caught.value.code is code
    assert detail in caught.value.detail


@pytest.fixture(scope="module")
def world(learner_key):
    return World(learner_key, {"ada": 100, "bo": 200, "cy": 300})


@pytest.fixture(scope="module")
def opened(world):
    return world.ask()


@pytest.fixture(scope="module")
def bound(world):
    return world.plan().query


# Bindings.


def test_an_opening_secret_of_another_length_is_refused():
    refused(lambda: OpeningSecret(b"x" * 31))


@pytest.mark.parametrize("key", [KEY + b"k", LOW_ORDER], ids=["length", "order"])
def test_an_opening_key_of_wrong_length_or_low_order_is_refused(key):
    refused(lambda: Binding(key, (("ada", KEY),), KEY), Code.QUERY_INVALID)


@pytest.mark.parametrize("seeds", [(("ada", KEY[:-1]),), (("bo", KEY), ("ada", KEY)), (("ada", KEY), ("ada", KEY))])
def test_sealed_seeds_of_another_length_or_order_are_refused(seeds):
    refused(lambda: Binding(KEY, seeds, KEY), Code.QUERY_INVALID)


def test_a_party_without_a_seed_learns_so(world, bound):
    refused(lambda: bound.binding.unseal("eve", SigningKey.generate(FEDERATION), bound.nonce), Code.PARTY_NOT_ASKED)


def test_a_signing_key_of_low_order_seals_nothing():
    # y = -1 is the point of order 2, whose u is 0.
    refused(lambda: montgomery_key(((1 << 255) - 20).to_bytes(32, "little")), Code.KEY_INVALID)


# Statements about an attempt.

HEAD = LedgerHead(9, ID, b"sealed")
STATEMENTS = {
    "acceptance": Acceptance(ID, 1, "ada", 5, KEY, 1),
    "refusal": Refusal(ID, 1, "ada", Code.POLICY_DESIGN),
    "pending": Pending(ID, 1, "ada"),
    "ready": Ready(ID, 1, "ada"),
    "receipt": Receipt(ID, 1, "ada", ID, ID, 1, 1),
    "cohort": Cohort(ID, 1, ()),
}


def test_shares_of_keys_of_other_lengths_are_refused():
    good = EVERY_FIELD[4]
    for changes in (
        {"sharing_digest": KEY[1:]},
        {"self_commitment": KEY[1:]},
        {"sealed": (b"s" * 94,)},
        {"sealed": (b"s" * 94, b"t" * 93)},
        {"key_shares": (b"c" * 16,)},
        {"self_shares": (b"a" * 16, b"b" * 17)},
    ):
        refused(lambda changes=changes: replace(good, **changes), detail="Shares of keys")
    for key in (KEY[1:], bytes(32)):
        refused(lambda key=key: replace(STATEMENTS["acceptance"], share_key=key), detail="share key")
    refused(lambda: Cohort(ID, 1, (), KEY[1:]), detail="digest must have 32 bytes")
    refused(lambda: replace(STATEMENTS["ready"], sharing_digest=KEY[1:]), detail="digest must have 32 bytes")


def test_a_cohort_of_a_sharing_has_another_digest():
    plain = Cohort(ID, 1, ())
    assert plain.digest != Cohort(ID, 1, (), KEY).digest != Cohort(ID, 1, (), ID).digest


def test_parties_may_vanish_where_it_is_safe_alone(world):
    """What a learner plans never breaks a rule; a query that breaks one is refused by every receiver."""
    request = MomentsRequest(world.plan().query.schema, epsilon=Fraction(1), may_vanish=1, cohort_min=3)
    query = World(world.key, {f"p{place}": 100 for place in range(6)}).plan(request).query
    assert (query.may_vanish, query.honest_parties, query.max_parties) == (1, 2, 6)
    bare = (Feature.BASE.value,)
    for changes, detail in (
        ({"features": bare}, "may_vanish has its feature"),
        ({"may_vanish": 0}, "may_vanish has its feature"),
        ({"may_vanish": 4}, "max_parties is above cohort_min"),
        ({"may_vanish": 2}, "above the square"),
        ({"max_parties": 101}, "max_parties is at most 100"),
        ({"mask_neighbours": 20, "features": (*query.features, "mask-graph")}, "every two share masks"),
        (
            {
                "noise_of_cohort": True,
                "kind": query.kind.following(Cohorts(3, 2, 6)),
                "features": (*query.features, "cohort-noise"),
            },
            "that of the smallest cohort",
        ),
    ):
        asked = {**changes, "features": tuple(sorted(changes.get("features", query.features)))}
        refused(lambda asked=asked: replace(query, **asked), Code.QUERY_INVALID, detail=detail)


def test_survivors_are_members_in_their_order_and_enough():
    check_survivors_of("ac", "abc", 2)
    for survivors, needed, detail in (("ca", 2, "in its order"), ("ad", 2, "in its order"), ("aa", 2, "in its order")):
        refused(lambda s=survivors, n=needed: check_survivors_of(s, "abc", n), Code.QUERY_INVALID, detail=detail)
    refused(lambda: check_survivors_of("ac", "abc", 3), Code.QUERY_INVALID, detail="3 are needed")


def test_a_refusal_has_a_code_of_the_catalogue():
    message = cohort_pb2.Refusal(query_id=ID, attempt=1, party="ada", code="NO_SUCH_CODE")
    refused(lambda: Refusal.from_bytes(message.SerializeToString()))


def test_a_statement_of_a_member_that_is_no_party_is_refused(world):
    envelope = sign(replace(STATEMENTS["ready"], party="learner"), world.learner_key)
    refused(lambda: open_statement(Ready, envelope, world.roster), Code.PEER_UNKNOWN)


def test_a_statement_that_another_member_signed_is_refused(world):
    envelope = sign(STATEMENTS["ready"], world.party_keys["bo"])
    refused(lambda: open_statement(Ready, envelope, world.roster), Code.SIGNATURE_INVALID)


# Envelopes.


def test_an_envelope_under_another_key_id_is_refused():
    key = SigningKey.generate(FEDERATION)
    envelope = key.sign(MessageType.READY, b"payload")
    renamed = replace(envelope, key_id=key_id(SigningKey.generate(FEDERATION).public_bytes))
    refused(lambda: renamed.open(MessageType.READY, FEDERATION, key.public_bytes), Code.SIGNATURE_INVALID)


def test_an_envelope_with_an_unknown_field_is_refused():
    data = SigningKey.generate(FEDERATION).sign(MessageType.READY, b"payload").to_bytes()
    refused(lambda: Envelope.from_bytes(data + UNKNOWN_FIELD), Code.FIELD_UNKNOWN)


def test_work_with_an_unknown_field_is_refused(opened):
    work = Work(opened.envelope, 1, Phase.ANSWERING, PartyState.SILENT, None, frozenset())
    assert Work.from_proto(work.to_proto()) == work
    newer = party_service_pb2.Work.FromString(work.to_proto().SerializeToString() + UNKNOWN_FIELD)
    refused(lambda: Work.from_proto(newer), Code.FIELD_UNKNOWN)


def test_a_number_too_large_for_the_wire_is_not_sent():
    with pytest.raises(ConfigurationError):
        rational_to_proto(Fraction(1 << 63))


# Features.

FEATURES = Features(FEDERATION, "ada", ("a-feature",), "0.2.0", 1_700_000_000)


def test_features_of_another_federation_are_refused(world):
    envelope = replace(FEATURES, federation="others").sign(world.party_keys["ada"])
    refused(lambda: open_features(envelope, world.roster), Code.FEDERATION_MISMATCH)


def test_features_of_a_stranger_are_refused(world):
    envelope = replace(FEATURES, party="eve").sign(SigningKey.generate(FEDERATION))
    refused(lambda: open_features(envelope, world.roster), Code.PEER_UNKNOWN)


def test_schemas_that_are_no_ascending_list_of_digests_are_refused():
    digests = tuple(bytes([number] * 32) for number in range(41))
    for schemas in ((bytes(31),), (digests[1], digests[0]), (KEY, KEY), digests):
        for name in ("schemas", "columns"):
            refused(lambda name=name, schemas=schemas: replace(FEATURES, **{name: schemas}), Code.MESSAGE_MALFORMED)
    assert len(replace(FEATURES, schemas=digests[:40]).schemas) == 40


def test_features_that_another_member_signed_are_refused(world):
    envelope = FEATURES.sign(world.party_keys["bo"])
    refused(lambda: open_features(envelope, world.roster), Code.SIGNATURE_INVALID)


# Rosters.

SIGNER = SigningKey.generate(FEDERATION)
ADA = Member(Role.PARTY, "ada", KEY, certificate_san(FEDERATION, Role.PARTY, "ada"))
HUB = Member(Role.COORDINATOR, "hub", b"", certificate_san(FEDERATION, Role.COORDINATOR, "hub"))
ROSTER = Roster(FEDERATION, 3, 1_700_000_000, (HUB, ADA))


def test_an_older_roster_than_the_newest_seen_is_refused():
    refused(lambda: open_roster(ROSTER.sign(SIGNER), SIGNER.public_bytes, at_least_version=4), Code.ROSTER_STALE)


# Witnesses.

CHALLENGE = Challenge(FEDERATION, "ada", KEY, 1_700_000_000)
ANSWER = Witness(FEDERATION, "bo", "ada", KEY, None)


def test_a_challenge_of_another_federation_a_stranger_or_another_signer_is_refused(world):
    key = world.party_keys["ada"]
    others = replace(CHALLENGE, federation="others").sign(key)
    refused(lambda: open_challenge(others, world.roster), Code.FEDERATION_MISMATCH)
    stranger = replace(CHALLENGE, party="eve").sign(key)
    refused(lambda: open_challenge(stranger, world.roster), Code.PEER_UNKNOWN)
    refused(lambda: open_challenge(CHALLENGE.sign(world.party_keys["bo"]), world.roster), Code.SIGNATURE_INVALID)
    assert open_challenge(CHALLENGE.sign(key), world.roster)[0] == CHALLENGE


def test_an_answer_that_another_signed_is_refused(world):
    refused(lambda: open_witness(ANSWER.sign(world.party_keys["ada"]), world.roster), Code.SIGNATURE_INVALID)


def test_a_witness_shows_no_more_attempts_than_an_answer_may_have():
    names = tuple(number.to_bytes(8, "big") for number in range(MOST_IN_COHORTS + 1))
    replace(ANSWER, in_cohorts=names[1:])
    refused(lambda: replace(ANSWER, in_cohorts=names), Code.MESSAGE_TOO_LARGE)


def test_another_party_s_statement_is_no_witness(world):
    envelope = sign(replace(STATEMENTS["acceptance"], party="bo"), world.party_keys["bo"])
    refused(lambda: witnessed_head(envelope, "ada", world.roster), Code.SENDER_MISMATCH)
    assert witnessed_head(envelope, "bo", world.roster) is None


# Values that no message may have, whoever signed it.

TWICE = "Two members of the roster share "
OUT_OF_RANGE = [
    *((each, {"query_id": ID[:-1]}, "32 bytes") for each in STATEMENTS.values()),
    *((each, {"attempt": 0}, "count from 1") for each in STATEMENTS.values()),
    (STATEMENTS["acceptance"], {"rows": 0}, "one row"),
    (STATEMENTS["acceptance"], {"mask_key": KEY[:-1]}, "32-byte key"),
    (STATEMENTS["acceptance"], {"mask_key": LOW_ORDER}, "high order"),
    (STATEMENTS["receipt"], {"cohort_digest": b"short"}, "32 bytes"),
    (STATEMENTS["receipt"], {"upload_digest": b"short"}, "32 bytes"),
    (HEAD, {"entries": 0}, "ledger head"),
    (HEAD, {"digest": KEY[:-1]}, "ledger head"),
    (HEAD, {"sealed_sums": b"x" * (MAX_SEALED_BYTES + 1)}, "ledger head"),
    (FEATURES, {"features": tuple(f"f{n:03d}" for n in range(MAX_FEATURES + 1))}, "list of features"),
    (FEATURES, {"features": ("b", "a")}, "list of features"),
    (FEATURES, {"features": ("a", "a")}, "list of features"),
    (FEATURES, {"features": ("A",)}, "list of features"),
    (FEATURES, {"version": "v" * 65}, "64 printable"),
    (FEATURES, {"version": "0.2\x1b[2J"}, "64 printable"),
    (ROSTER, {"federation": "No Name"}, "federation or version"),
    (ROSTER, {"version": 0}, "federation or version"),
    (ROSTER, {"members": (HUB, ADA, replace(ADA, signing_key=ID, certificate_san="rado://x"))}, f"{TWICE}names."),
    (ROSTER, {"members": (HUB, ADA, replace(ADA, name="bo", certificate_san="rado://x"))}, f"{TWICE}signing keys."),
    (ROSTER, {"members": (HUB, ADA, replace(ADA, name="bo", signing_key=ID))}, f"{TWICE}certificate names."),
    (ROSTER, {"members": (replace(HUB, tls_key_hash=ID), replace(ADA, tls_key_hash=ID))}, f"{TWICE}TLS keys."),
    (ROSTER, {"members": (ADA,)}, "exactly one coordinator"),
    (ROSTER, {"members": (HUB, replace(HUB, name="hub-2", certificate_san="rado://x"))}, "exactly one coordinator"),
    (ADA, {"name": "Ada"}, "not a member's name"),
    (ADA, {"signing_key": KEY[:-1]}, "wrong length"),
    (ADA, {"signing_key": b""}, "wrong length"),
    (ADA, {"tls_key_hash": ID[:-1]}, "wrong length"),
    (HUB, {"signing_key": KEY}, "wrong length"),
    (CHALLENGE, {"nonce": KEY[:-1]}, "32 bytes"),
    (ANSWER, {"in_cohorts": (b"s" * 7,)}, "not well formed"),
    (ANSWER, {"in_cohorts": (b"b" * 8, b"a" * 8)}, "not well formed"),
    (ANSWER, {"in_cohorts": (b"a" * 8, b"a" * 8)}, "not well formed"),
]


@pytest.mark.parametrize(("message", "change", "detail"), OUT_OF_RANGE)
def test_a_value_out_of_range_is_refused(message, change, detail):
    refused(lambda: replace(message, **change), detail=detail)


# Queries.


@pytest.mark.parametrize("name", ["answer_within_s", "prepare_within_s", "upload_within_s"])
def test_a_phase_may_be_as_long_as_the_longest_and_is_named_if_it_is_longer(opened, name):
    assert getattr(replace(opened.query, **{name: MAX_PHASE_S}), name) == MAX_PHASE_S
    said = f"It must hold that {name} is from 1 to {MAX_PHASE_S}."
    refused(lambda: replace(opened.query, **{name: MAX_PHASE_S + 1}), Code.QUERY_INVALID, said)


@pytest.mark.parametrize(
    ("change", "beyond"),
    [
        ({"nonce": b"n" * 16}, {"nonce": b"n" * 15}),
        ({"nonce": b"n" * 64}, {"nonce": b"n" * 65}),
        ({"max_rows": 1}, {"max_rows": 0}),
        ({"max_attempts": 1}, {"max_attempts": 0}),
        ({"max_attempts": MAX_ATTEMPTS}, {"max_attempts": MAX_ATTEMPTS + 1}),
        ({"max_parties": 1, "cohort_min": 1, "honest_parties": 1}, {"max_parties": 0}),
        ({"max_parties": 3, "cohort_min": 3}, {"max_parties": 3, "cohort_min": 4}),
        ({"cohort_min": 3, "honest_parties": 3}, {"cohort_min": 3, "honest_parties": 4}),
        ({"created_at_unix_s": 9, "not_after_unix_s": 10}, {"created_at_unix_s": 9, "not_after_unix_s": 9}),
        ({"not_after_unix_s": 2**63 - 1}, {"not_after_unix_s": 2**63}),
        ({"delta": Fraction(1, 2**62)}, {"delta": Fraction(0)}),
        ({"delta": 1 - Fraction(1, 2**62)}, {"delta": Fraction(1)}),
        ({"cohort_min": 1, "honest_parties": 1}, {"cohort_min": 0}),
        ({"honest_parties": 1}, {"honest_parties": 0}),
        ({}, {"max_parties": 10**9}),
        ({"answer_within_s": 1}, {"answer_within_s": 0}),
        ({"prepare_within_s": MAX_PHASE_S}, {"prepare_within_s": MAX_PHASE_S + 1}),
        ({"upload_within_s": 1}, {"upload_within_s": 0}),
    ],
    ids=str,
)
def test_a_query_out_of_range_is_refused(opened, change, beyond):
    """Its limits are not."""
    assert replace(opened.query, **change)
    refused(lambda: replace(opened.query, **beyond), Code.QUERY_INVALID, "It must hold that")


def test_a_query_may_have_the_most_parties(opened):
    wide = {"schema": opened.query.schema, "encoding": Encoding(0, 40, 64)}
    assert replace(opened.query, max_parties=MAX_PARTIES, **wide).max_parties == MAX_PARTIES
    refused(lambda: replace(opened.query, max_parties=MAX_PARTIES + 1, **wide), Code.QUERY_INVALID, str(MAX_PARTIES))


def test_what_is_wrong_with_a_part_of_a_query_is_said(opened, monkeypatch):
    query = opened.query
    narrow = {"encoding": Encoding(16, 20, 24)}
    refused(lambda: replace(query, **narrow), Code.ENCODING_OVERFLOW, "a sum needs 31 bits and 20")
    message = query_pb2.Query.FromString(query.to_bytes())
    message.encoding.slot_bits = 9
    refused(lambda: Query.from_bytes(message.SerializeToString()), Code.QUERY_INVALID, "slot_bits is 9")

    def refuses(*_):
        raise PlanError("there is no such plan")

    monkeypatch.setattr("wire.query.check_fits", lambda *_, **__: refuses())
    refused(lambda: replace(query), Code.QUERY_INVALID, "there is no such plan")


@pytest.mark.parametrize("cleared", ["binding", "commitment"])
def test_a_query_without_a_committed_seed_is_refused_with_a_sentence(opened, cleared):
    message = query_pb2.Query.FromString(opened.query.to_bytes())
    (message if cleared == "binding" else message.binding).ClearField(cleared)
    payload = message.SerializeToString(deterministic=True)
    refused(lambda: Query.from_bytes(payload), Code.QUERY_INVALID, "version before 0.2.1")


def test_a_quorum_wait_and_a_purpose_have_a_longest(opened):
    query = opened.query
    assert replace(query, quorum_wait_s=MAX_PHASE_S).quorum_wait_s == MAX_PHASE_S
    assert replace(query, purpose="\u7814" * MAX_PURPOSE).purpose == "\u7814" * MAX_PURPOSE
    for wait_s in (-1, MAX_PHASE_S + 1):
        refused(lambda wait_s=wait_s: replace(query, quorum_wait_s=wait_s), Code.QUERY_INVALID)


@pytest.mark.parametrize(
    "text",
    [
        "x" * (MAX_PURPOSE + 1),
        " study",
        "study ",
        " ",
        "a\nb",
        "a\tb",
        "a\x1b[2Jb",
        "a\u202eb",
        "a\u2066b",
        "a\u200fb",
        "a\u2028b",
        "a\u00a0b",
        "a\ufeffb",
        "a\ue000b",
    ],
)
def test_a_purpose_is_one_line_of_what_people_can_see(opened, text):
    refused(
        lambda: replace(opened.query, purpose=text), Code.QUERY_INVALID, "a purpose has 1 to 200 printable characters"
    )
    with pytest.raises(ConfigurationError, match="a purpose has 1 to 200 printable characters"):
        MomentsRequest(opened.query.schema, epsilon=Fraction(1), purpose=text)


def test_a_query_s_features_are_well_formed(opened):
    refused(lambda: replace(opened.query, features=("b", "a")))


def test_a_query_with_a_feature_that_is_unknown_here_is_refused(opened):
    check_known(opened.query.features)
    refused(lambda: check_known(("a-new-feature", "base-0-3")), Code.FEATURE_MISSING, "Missing here: a-new-feature")
    older = "learner's node is older than 0.3.0: upgrade it to 0.3.0"
    refused(lambda: check_known(("bound-totals", "committed-seeds")), Code.FEATURE_MISSING, older)


def test_a_query_that_is_too_long_is_not_parsed():
    refused(lambda: _parsed(bytes(MAX_QUERY_BYTES + 1)), Code.MESSAGE_TOO_LARGE)


def test_a_query_before_its_time_or_after_it_is_refused(opened):
    query = opened.query
    refused(lambda: check_time(query, query.created_at_unix_s - 301), Code.QUERY_EXPIRED)
    refused(lambda: check_time(query, query.not_after_unix_s + 301), Code.QUERY_EXPIRED)
    check_time(query, query.created_at_unix_s - 300)
    check_time(query, query.not_after_unix_s + 300)


def test_a_query_of_too_many_values_is_refused(opened):
    many = replace(opened.query.kind, rados=MAX_VALUES // opened.query.schema.d + 1)
    refused(lambda: replace(opened.query, kind=many), Code.QUERY_INVALID)


@pytest.mark.parametrize("index", [-1, "chunks"])
def test_a_chunk_outside_an_upload_is_refused(opened, index):
    refused(lambda: opened.chunk_bytes(opened.chunks if index == "chunks" else index), Code.CHUNK_MALFORMED)


def test_a_query_is_not_opened_before_its_time_or_after_it(world, opened):
    for moment in (opened.query.created_at_unix_s - 301, opened.query.not_after_unix_s + 301):
        refused(partial(open_query, opened.envelope, world.roster, now_unix_s=moment), Code.QUERY_EXPIRED)


@pytest.mark.parametrize(("begins_s", "ends_s"), [(3600, 10**7), (-3600, -1)], ids=["later", "ended"])
def test_a_paillier_key_that_is_not_valid_during_the_query_is_refused(world, opened, begins_s, ends_s):
    now = int(time.time())
    key = PaillierKey("learner", opened.public_key, now + begins_s, now + ends_s).sign(world.learner_key)
    envelope = world.learner_key.sign(MessageType.QUERY, replace(opened.query, paillier_key=key).to_bytes())
    refused(lambda: open_query(envelope, world.roster, now_unix_s=now), Code.KEY_INVALID)


def test_a_paillier_key_may_begin_and_end_with_the_query(world, opened):
    now, end = opened.query.created_at_unix_s, opened.query.not_after_unix_s

    def opens(begins, ends, now_unix_s=now):
        key = PaillierKey("learner", opened.public_key, begins, ends).sign(world.learner_key)
        envelope = world.learner_key.sign(MessageType.QUERY, replace(opened.query, paillier_key=key).to_bytes())
        return open_query(envelope, world.roster, now_unix_s=now_unix_s)

    assert opens(now + CLOCK_SKEW_S, end).public_key == opened.public_key
    refused(lambda: opens(now + CLOCK_SKEW_S + 1, end), Code.KEY_INVALID, "whole lifetime")
    refused(lambda: opens(now, end - 1), Code.KEY_INVALID, "whole lifetime")


def test_what_is_wrong_with_a_paillier_key_is_said():
    message = query_pb2.PaillierKey(learner="lea", modulus=b"\x81" * 255)
    refused(lambda: PaillierKey.from_bytes(message.SerializeToString()), Code.KEY_INVALID, "has 2040 bits")


def test_what_was_verified_once_is_verified_for_another_time_roster_or_signature(world, opened):
    """A node keeps the queries that it opened."""
    now = int(time.time())

    def again(envelope=opened.envelope, roster=world.roster, now_unix_s=now):
        return open_query(envelope, roster, now_unix_s=now_unix_s)

    assert again() == opened
    refused(lambda: again(now_unix_s=opened.query.not_after_unix_s + 301), Code.QUERY_EXPIRED)
    expired = replace(world.roster, not_after_unix_s=world.roster.issued_at_unix_s + 1)
    refused(lambda: again(roster=expired), Code.ROSTER_EXPIRED)
    other = tuple(
        replace(member, signing_key=SigningKey.generate(FEDERATION).public_bytes)
        if member.role is Role.LEARNER
        else member
        for member in world.roster.members
    )
    refused(lambda: again(roster=replace(world.roster, members=other)), Code.SIGNATURE_INVALID)
    forged = replace(opened.envelope, signature=bytes(64))
    for _ in range(2):
        refused(lambda: again(envelope=forged), Code.SIGNATURE_INVALID)
    assert again() == opened


def test_a_roster_that_was_verified_once_is_verified_for_another_key_version_and_signature():
    federation_key = SigningKey.generate("f")
    san = certificate_san("f", Role.COORDINATOR, "hub")
    roster = Roster("f", 3, 1_700_000_000, (Member(Role.COORDINATOR, "hub", b"", san),))
    envelope = roster.sign(federation_key)
    assert open_roster(envelope, federation_key.public_bytes) == roster
    refused(lambda: open_roster(envelope, SigningKey.generate(FEDERATION).public_bytes), Code.SIGNATURE_INVALID)
    refused(lambda: open_roster(envelope, federation_key.public_bytes, at_least_version=4), Code.ROSTER_STALE)
    forged = replace(envelope, signature=bytes(64))
    refused(lambda: open_roster(forged, federation_key.public_bytes), Code.SIGNATURE_INVALID)
    assert open_roster(envelope, federation_key.public_bytes) == roster


# Retries.


def retry(opened, **changes):
    return replace(Retry(opened.query_id, "learner", 2), **changes)


def test_a_retry_is_of_this_query_and_this_learner(world, opened):
    for change in ({"query_id": ID}, {"learner": "lou"}):
        envelope = retry(opened, **change).sign(world.learner_key)
        refused(lambda envelope=envelope: open_retry(envelope, opened, world.roster), Code.QUERY_INVALID)


def test_a_retry_may_be_of_each_further_attempt(world, opened):
    assert opened.query.max_attempts > 2
    for attempt in range(2, opened.query.max_attempts + 1):
        made = retry(opened, attempt=attempt)
        assert open_retry(made.sign(world.learner_key), opened, world.roster) == made
    beyond = retry(opened, attempt=opened.query.max_attempts + 1).sign(world.learner_key)
    refused(lambda: open_retry(beyond, opened, world.roster), Code.ATTEMPT_MISMATCH)


@pytest.mark.parametrize("attempt", [0, 1, 10**6])
def test_a_retry_is_of_an_attempt_that_the_query_allows(world, opened, attempt):
    envelope = retry(opened, attempt=attempt).sign(world.learner_key)
    refused(lambda: open_retry(envelope, opened, world.roster), Code.ATTEMPT_MISMATCH)


def test_a_retry_that_the_learner_did_not_sign_is_refused(world, opened):
    envelope = retry(opened).sign(world.party_keys["ada"])
    refused(lambda: open_retry(envelope, opened, world.roster), Code.SIGNATURE_INVALID)


def test_a_retry_of_a_learner_that_left_the_roster_is_refused(world, opened):
    left = replace(world.roster, members=tuple(m for m in world.roster.members if m.role is not Role.LEARNER))
    refused(lambda: open_retry(retry(opened).sign(world.learner_key), opened, left), Code.PEER_UNKNOWN)


# The largest and least values that are not refused.


def test_what_has_a_limit_may_reach_it(world, bound, monkeypatch):
    names = [f"feature-{number:02}" for number in range(MAX_FEATURES)]
    assert check_features(names) == tuple(names)
    refused(lambda: check_features([*names, "feature-99"]))
    assert LedgerHead(MAX_ENTRIES, KEY, bytes(MAX_SEALED_BYTES)).entries == MAX_ENTRIES
    shortest = {f"{phase}_within_s": 1 for phase in ("answer", "prepare", "upload")}
    least = replace(bound, cohort_min=1, honest_parties=1, max_rows=1, **shortest)
    assert Query.from_bytes(least.to_bytes()) == least
    monkeypatch.setattr("wire.query.MAX_VALUES", bound.length)
    assert replace(bound).length == bound.length
    payload = bound.to_bytes()
    monkeypatch.setattr("wire.query.MAX_QUERY_BYTES", len(payload))
    assert _parsed(payload) is not None


def test_a_cancellation_travels(world, opened):
    cancel = Cancel(opened.query_id, "learner")
    envelope = cancel.sign(world.learner_key)
    assert Cancel.from_bytes(envelope.open(MessageType.CANCEL, FEDERATION, world.learner_key.public_bytes)) == cancel


def test_messages_have_the_bytes_that_their_fields_say(world, bound):
    """Signatures are over bytes: the same message always has the same ones."""
    for message in (*[each for each in STATEMENTS.values() if not isinstance(each, Cohort)], world.roster, bound):
        assert type(message).from_bytes(message.to_bytes()) == message
        assert type(message).from_bytes(message.to_bytes()).to_bytes() == message.to_bytes()


EVERY_FIELD = (
    Acceptance(ID, 2, "ada", 5, KEY, 7, HEAD, KEY),
    Refusal(ID, 2, "ada", Code.POLICY_DESIGN),
    Pending(ID, 2, "ada"),
    Ready(ID, 2, "ada", KEY),
    KeyShares(ID, 2, "ada", KEY, KEY, (b"s" * 94, b"t" * 94), (b"a" * 16, b"b" * 16), (b"c" * 16, b"d" * 16)),
    Unmasking(ID, 2, "ada", KEY, ID, b"sealed"),
    Receipt(ID, 2, "ada", KEY, ID, 3, 4, HEAD),
    replace(FEATURES, schemas=(ID, KEY) if ID < KEY else (KEY, ID), columns=(KEY,)),
    CHALLENGE,
    Witness(FEDERATION, "bo", "ada", KEY, SIGNER.sign(MessageType.READY, b"payload"), (b"a" * 8, b"b" * 8), 6),
    Roster(
        FEDERATION,
        3,
        1_700_000_000,
        (replace(HUB, tls_key_hash=KEY), replace(ADA, rows_at_least=50)),
        1_800_000_000,
        "new.example.org:7443",
        ("old.example.org:7443",),
    ),
    Cancel(ID, "learner"),
    Retry(ID, "learner", 3),
)


@pytest.mark.parametrize("message", EVERY_FIELD, ids=lambda message: type(message).__name__)
def test_every_field_of_a_message_is_signed_and_read(message):
    assert all(getattr(message, field.name) for field in fields(message))
    payload = message.sign(SIGNER).payload if hasattr(message, "sign") else message.to_bytes()
    assert type(message).from_bytes(payload) == message


def test_every_field_of_a_paillier_key_is_signed_and_read(opened):
    key = PaillierKey("lea", opened.public_key, 5, 6)
    assert PaillierKey.from_bytes(key.sign(SIGNER).payload) == key


def test_a_roster_may_expire_in_the_last_second_of_9999():
    last_unix_s = 253_402_300_799
    assert replace(ROSTER, not_after_unix_s=last_unix_s).expiry_date == "9999-12-31 23:59 UTC"
    refused(lambda: replace(ROSTER, not_after_unix_s=last_unix_s + 1), detail="after the year 9999")


def test_a_version_may_have_64_characters():
    assert replace(FEATURES, version="v" * 64)


def test_a_roster_may_have_the_largest_version():
    assert replace(ROSTER, version=LARGEST_VERSION).version == LARGEST_VERSION
    refused(lambda: replace(ROSTER, version=LARGEST_VERSION + 1), detail="version is not valid")


@pytest.mark.more
def test_a_status_has_no_more_parties_than_a_query():
    """An entry of a few bytes takes hundreds at the learner."""
    silent = PartyProgress("a", PartyState.SILENT)
    status = QueryStatus(b"q" * 32, 1, Phase.ANSWERING, (silent,) * MAX_PARTIES, "", "", 1, 0, 1)
    assert QueryStatus.from_proto(status.to_proto()) == status
    longer = replace(status, parties=(silent,) * (MAX_PARTIES + 1))
    refused(lambda: QueryStatus.from_proto(longer.to_proto()), Code.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize(
    "odd",
    [
        PartyProgress("a\nb", PartyState.SILENT),
        PartyProgress("", PartyState.SILENT),
        PartyProgress("a", PartyState.REFUSED, "NO\x1b[2J"),
    ],
    ids=["a name of two lines", "no name", "a code with an escape sequence"],
)
def test_a_status_with_names_or_codes_of_another_form_is_refused(odd):
    status = QueryStatus(b"q" * 32, 1, Phase.ANSWERING, (odd,), "", "", 1, 0, 1)
    refused(lambda: QueryStatus.from_proto(status.to_proto()), Code.MESSAGE_MALFORMED)


def test_which_characters_a_purpose_has_does_not_depend_on_the_version_of_unicode(opened):
    """What this Python prints is allowed, and what Unicode 3.2 knew as a control or a separator is not."""
    listed = {code for first, last in NOT_PRINTABLE for code in range(first, last + 1)}
    for code in range(sys.maxunicode + 1):
        text = chr(code)
        if text.isprintable():
            assert code not in listed, hex(code)
        elif unicodedata.ucd_3_2_0.category(text) != "Cn":
            assert code in listed, hex(code)
    # Not assigned in Unicode 14.0, which Python 3.11 knows.
    assert replace(opened.query, purpose="\U0001fadc\u0378").purpose == "\U0001fadc\u0378"
    assert not is_purpose("")
