import stat

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError
from rado.v1 import cohort_pb2, join_pb2, query_pb2, roster_pb2
from tests.examples import examples
from wire.codec import parse
from wire.envelopes import (
    SIGNER_ROLE,
    Envelope,
    MessageType,
    SigningKey,
    fingerprint,
    key_id,
    load_public_key,
    public_key_of,
    save_public_key,
    signed_bytes,
    spoken,
)
from wire.errors import Code, WireError

FEDERATION = "clinics"
KEY = SigningKey.generate(FEDERATION)


def code_of(action) -> Code:
    with pytest.raises(WireError) as caught:
        action()
    return caught.value.code


@given(st.sampled_from(MessageType), st.binary(min_size=1, max_size=200))
@settings(max_examples=50)
def test_signed_bytes_open_and_others_do_not(kind, payload):
    envelope = KEY.sign(kind, payload)
    assert envelope.open(kind, FEDERATION, KEY.public_bytes) == payload
    for other in MessageType:
        if other is not kind:
            assert (
                code_of(lambda other=other: envelope.open(other, FEDERATION, KEY.public_bytes))
                is Code.SIGNATURE_INVALID
            )
    altered = Envelope(payload + b"\0", envelope.key_id, envelope.signature)
    assert code_of(lambda: altered.open(kind, FEDERATION, KEY.public_bytes)) is Code.SIGNATURE_INVALID
    stranger = SigningKey.generate(FEDERATION)
    assert code_of(lambda: envelope.open(kind, FEDERATION, stranger.public_bytes)) is Code.SIGNATURE_INVALID
    claimed = Envelope(payload, key_id(stranger.public_bytes), envelope.signature)
    assert code_of(lambda: claimed.open(kind, FEDERATION, stranger.public_bytes)) is Code.SIGNATURE_INVALID


def test_domains_separate_types_and_roles():
    assert set(SIGNER_ROLE) == set(MessageType)
    assert len({signed_bytes(FEDERATION, kind, b"x") for kind in MessageType}) == len(MessageType)
    assert signed_bytes(FEDERATION, MessageType.QUERY, b"x") == b"rado.v1\0clinics\0Query\0learner\0x"


@pytest.mark.parametrize("kind", MessageType)
def test_a_signature_is_for_one_federation(kind):
    """Also if a member has one key in two federations."""
    file = KEY._private_key
    elsewhere = SigningKey(file, "banks").sign(kind, b"payload")
    assert elsewhere.open(kind, "banks", KEY.public_bytes) == b"payload"
    refused = code_of(lambda: elsewhere.open(kind, FEDERATION, KEY.public_bytes))
    assert refused is Code.SIGNATURE_INVALID


def test_every_signable_kind_is_a_message():
    known = {
        name
        for module in (query_pb2, cohort_pb2, join_pb2, roster_pb2)
        for name in module.DESCRIPTOR.message_types_by_name
    }
    assert {kind.value for kind in MessageType} <= known


def test_envelope_survives_bytes_and_refuses_parts_missing():
    envelope = KEY.sign(MessageType.READY, b"payload")
    assert Envelope.from_bytes(envelope.to_bytes()) == envelope
    for broken in (
        Envelope(b"", envelope.key_id, envelope.signature),
        Envelope(b"payload", envelope.key_id[:-1], envelope.signature),
        Envelope(b"payload", envelope.key_id, envelope.signature + b"\0"),
    ):
        data = broken.to_bytes()
        assert code_of(lambda data=data: Envelope.from_bytes(data)) is Code.MESSAGE_MALFORMED


def test_unknown_fields_are_refused_at_every_depth():
    # Field 99, varint 1: a field that a newer peer might add.
    extra = b"\x98\x06\x01"
    top = cohort_pb2.Ready(query_id=b"q" * 32, attempt=1, party="a").SerializeToString() + extra
    assert code_of(lambda: parse(cohort_pb2.Ready, top)) is Code.FIELD_UNKNOWN
    inner = query_pb2.RadosQuery(rados=3).SerializeToString() + extra
    nested = query_pb2.Query(federation="f").SerializeToString() + b"\x3a" + bytes([len(inner)]) + inner
    assert code_of(lambda: parse(query_pb2.Query, nested)) is Code.FIELD_UNKNOWN
    assert parse(query_pb2.Query, nested.replace(extra, b"", 1).replace(bytes([0x3A, len(inner)]), b"\x3a\x02"))


@given(st.binary(max_size=300))
@settings(max_examples=examples(60, 300))
def test_any_bytes_parse_or_are_refused(data):
    for message_type in (query_pb2.Query, cohort_pb2.Cohort, roster_pb2.Roster):
        refused = None
        try:
            parse(message_type, data)
        except WireError as error:
            refused = error.code
        assert refused in {None, Code.MESSAGE_MALFORMED, Code.FIELD_UNKNOWN}


def test_key_files(tmp_path):
    path = tmp_path / "signing.key"
    KEY.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.load(path, FEDERATION).public_bytes == public_key_of(path) == KEY.public_bytes
    with pytest.raises(FileExistsError):
        KEY.save(path)
    save_public_key(tmp_path / "public.pem", KEY.public_bytes)
    assert load_public_key(tmp_path / "public.pem") == KEY.public_bytes
    for damaged in (tmp_path / "absent", tmp_path / "public.pem"):
        with pytest.raises(ConfigurationError):
            SigningKey.load(damaged, FEDERATION)
    with pytest.raises(ConfigurationError):
        load_public_key(path)


def test_a_key_does_not_print():
    assert KEY.public_bytes.hex() not in repr(KEY)
    assert repr(KEY) == f"SigningKey({':'.join(fingerprint(KEY.public_bytes).split(':')[:4])}...)"


def test_keys_of_another_algorithm_are_refused(tmp_path):
    key = X25519PrivateKey.generate()
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "public").write_bytes(key.public_key().public_bytes(pem, form))
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(ConfigurationError, match="not an Ed25519 key"):
        SigningKey.load(tmp_path / "key", FEDERATION)
    with pytest.raises(ConfigurationError, match="not an Ed25519 public key"):
        load_public_key(tmp_path / "public")


def test_an_envelope_inside_a_request_has_no_unknown_field_either():
    message = KEY.sign(MessageType.READY, b"payload").to_proto()
    newer = type(message).FromString(message.SerializeToString() + b"\x98\x06\x01")
    assert code_of(lambda: Envelope.from_proto(newer)) in {Code.FIELD_UNKNOWN, Code.MESSAGE_MALFORMED}


def test_spoken_digits_are_those_of_the_published_hash():
    """SHA-256 of "abc" is printed in FIPS 180-4's examples. Its remainder has 29 digits."""
    published = 0xBA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD
    assert spoken(b"abc") == "01651 43774 62985 82971 68170 89965"
    assert int(spoken(b"abc").replace(" ", "")) == published % 10**30
