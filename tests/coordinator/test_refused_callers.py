"""Members that are refused again and again: each call gets its code, and the log stays small."""

import grpc
import pytest

from radobase.logs import REFUSALS_LOGGED
from tests.federation.coordinator import PARTIES, refused
from tests.waiting import HANG_S
from wire.errors import CODE_METADATA_KEY, Code
from wire.statements import Chunk

TIMES = REFUSALS_LOGGED + 5
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
NOT_A_MESSAGE = b"\xff\xff"


def code_of(call, *arguments):
    with pytest.raises(grpc.RpcError) as caught:
        list(call(*arguments, timeout=HANG_S))
    return dict(caught.value.trailing_metadata()).get(CODE_METADATA_KEY)


def logged(caplog):
    """Number of lines of each event and code. The log may contain no other lines."""
    assert {record.name for record in caplog.records} <= {"coordinator"}
    assert not any(record.exc_info for record in caplog.records)
    fields = [(record.getMessage(), getattr(record, "fields", {})) for record in caplog.records]
    seen = [(event, str(f["code"]), f["peer"]) for event, f in fields if event == "call refused"]
    return {each: seen.count(each) for each in seen}


def test_a_role_that_may_not_call_does_not_fill_the_log(clients, caplog):
    ask = clients["ann"].channel.unary_unary("/rado.v1.LearnerService/ListQueries")
    for _ in range(TIMES):
        assert code_of(ask, b"") == Code.ROLE_FORBIDDEN
    assert logged(caplog) == {("call refused", "ROLE_FORBIDDEN", "ann"): REFUSALS_LOGGED}


def test_a_message_that_does_not_parse_is_refused_by_its_code_and_leaves_no_trace(clients, caplog):
    upload = clients["ann"].channel.unary_unary("/rado.v1.PartyService/UploadChunk")
    for _ in range(TIMES):
        assert code_of(upload, NOT_A_MESSAGE) == Code.MESSAGE_MALFORMED
    # A caller without permission gets that answer for any message.
    assert code_of(clients["lea"].channel.unary_unary("/rado.v1.PartyService/UploadChunk"), NOT_A_MESSAGE) == (
        Code.ROLE_FORBIDDEN
    )
    assert logged(caplog) == {
        ("call refused", "MESSAGE_MALFORMED", "ann"): REFUSALS_LOGGED,
        ("call refused", "ROLE_FORBIDDEN", "lea"): 1,
    }


def test_a_stream_s_message_that_does_not_parse_is_refused_by_its_code(clients, caplog):
    reflect = clients["ann"].channel.stream_stream(REFLECTION)
    assert code_of(reflect, iter([NOT_A_MESSAGE])) == Code.MESSAGE_MALFORMED
    assert logged(caplog) == {("call refused", "MESSAGE_MALFORMED", "ann"): 1}


def test_refused_chunks_do_not_fill_the_log(clients, world, caplog):
    opened = world.open(world.query())
    clients["lea"].submit(opened.envelope)
    clients.to_uploading(opened.query_id, PARTIES[:3])
    for _ in range(TIMES):
        refused(Code.CHUNK_MALFORMED, clients["ann"].upload, opened.query_id, Chunk.of(0, b"x"))
    said = [record.fields for record in caplog.records if record.getMessage() == "chunk refused"]
    assert [(fields["peer"], fields["code"]) for fields in said] == [("ann", Code.CHUNK_MALFORMED)] * REFUSALS_LOGGED
