"""Every RPC with every role, over mutual TLS: what a role may not call is refused before it is looked at."""

import datetime as dt

import grpc
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from dpcore.paillier.secret import SecretKey
from dpcore.randomness.sources import SystemRandom
from rado.v1 import learner_service_pb2, member_service_pb2, party_service_pb2
from tests.federation.coordinator import RunningNode, World
from tests.waiting import HANG_S
from wire.errors import CODE_METADATA_KEY, Code
from wire.gate import ALLOWED_ROLES
from wire.roster import Role
from wire.transport import open_channel

EVERYONE, PARTY, LEARNER = {"party", "learner", "coordinator"}, {"party"}, {"learner"}
# Repeated here, not taken from the table under test.
MAY_CALL = {
    "rado.v1.MemberService": EVERYONE,
    "rado.v1.PartyService": PARTY,
    "rado.v1.LearnerService": LEARNER,
    "grpc.health.v1.Health": EVERYONE,
    "grpc.reflection.v1.ServerReflection": EVERYONE,
    "grpc.reflection.v1alpha.ServerReflection": EVERYONE,
}
REFLECTIONS = tuple(name for name in MAY_CALL if "reflection" in name)
METHODS = {
    f"/{service.full_name}/{method.name}": (service.full_name, method)
    for module in (member_service_pb2, party_service_pb2, learner_service_pb2, health_pb2, reflection_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
# The library has the draft alone, and version 1 has its messages.
METHODS[f"/{REFLECTIONS[0]}/ServerReflectionInfo"] = (
    REFLECTIONS[0],
    METHODS[f"/{REFLECTIONS[1]}/ServerReflectionInfo"][1],
)
CALLERS = ("party", "learner", "coordinator", "stranger")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Roles are settled before any key is looked at; the Paillier key is never used."""
    return World(tmp_path_factory.mktemp("roles"), SecretKey.generate_test_key(SystemRandom(), bits=128))


@pytest.fixture(scope="module")
def node(world):
    node = RunningNode(world.config)
    yield node
    node.close()


@pytest.fixture(scope="module")
def channels(world, node):
    files = {
        "party": world.tls("ann"),
        "learner": world.tls("lea"),
        "coordinator": world.tls("coordinator"),
        # The authority vouches for it; the roster does not have it.
        "stranger": world.certified(Role.PARTY, "eve"),
    }
    channels = {name: open_channel(node.address, tls) for name, tls in files.items()}
    yield channels
    for channel in channels.values():
        channel.close()


def outcome(channel, path, method) -> str:
    """The catalogue code that an empty call ends in, the gRPC status where there is none, or OK."""
    request = method.input_type._concrete_class
    streams = (method.client_streaming, method.server_streaming)
    to_bytes = request.SerializeToString
    try:
        if streams == (False, False):
            channel.unary_unary(path, to_bytes)(request(), timeout=HANG_S)
        elif streams == (False, True):
            call = channel.unary_stream(path, to_bytes)(request(), timeout=HANG_S)
            next(call)
            call.cancel()
        else:
            ask = reflection_pb2.ServerReflectionRequest(list_services="")
            next(channel.stream_stream(path, to_bytes)(iter([ask]), timeout=HANG_S))
    except grpc.RpcError as failure:
        metadata = dict(failure.trailing_metadata() or ())
        return str(metadata.get(CODE_METADATA_KEY, failure.code().name))
    return "OK"


def test_the_table_names_every_rpc_and_no_other():
    assert set(ALLOWED_ROLES) == set(METHODS)
    for path, roles in ALLOWED_ROLES.items():
        assert {role.value for role in roles} == MAY_CALL[METHODS[path][0]], path


@pytest.mark.parametrize("path", sorted(METHODS))
@pytest.mark.parametrize("caller", CALLERS)
def test_every_rpc_with_every_role(channels, path, caller):
    service, method = METHODS[path]
    found = outcome(channels[caller], path, method)
    if caller == "stranger":
        assert found == Code.PEER_UNKNOWN
    elif caller in MAY_CALL[service]:
        assert found not in {Code.ROLE_FORBIDDEN, Code.PEER_UNKNOWN, Code.INTERNAL, "UNIMPLEMENTED", "UNAVAILABLE"}
    else:
        assert found == Code.ROLE_FORBIDDEN


def reflected(channel, service: str, **asked):
    """The answer of this version of the reflection service."""
    call = channel.stream_stream(
        f"/{service}/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    return next(call(iter([reflection_pb2.ServerReflectionRequest(**asked)]), timeout=HANG_S))


@pytest.mark.parametrize("version", REFLECTIONS)
def test_reflection_lists_what_is_served(channels, version):
    listed = reflected(channels["party"], version, list_services="").list_services_response.service
    assert {service.name for service in listed} == set(MAY_CALL)


@pytest.mark.parametrize("version", REFLECTIONS)
def test_every_service_that_is_listed_is_described(channels, version):
    """As a client does that knows no message before: it makes them from what is served."""
    for service in MAY_CALL:
        answer = reflected(channels["learner"], version, file_containing_symbol=service)
        files = [descriptor_pb2.FileDescriptorProto.FromString(each) for each in
                 answer.file_descriptor_response.file_descriptor_proto]  # fmt: skip
        pool = DescriptorPool()
        waiting = {file.name: file for file in files}
        while waiting:
            ready = next(file for file in waiting.values() if not waiting.keys() & set(file.dependency))
            pool.Add(waiting.pop(ready.name))
        found = pool.FindServiceByName(service)
        assert {f"/{service}/{method.name}" for method in found.methods} <= set(METHODS)
        for method in found.methods:
            assert method.input_type.full_name.rpartition(".")[0] == service.rpartition(".")[0]


def test_health_is_reported_for_every_service(channels):
    check = channels["learner"].unary_unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    for service in ("", "rado.v1.MemberService", "rado.v1.PartyService", "rado.v1.LearnerService"):
        assert check(health_pb2.HealthCheckRequest(service=service), timeout=HANG_S).status == (
            health_pb2.HealthCheckResponse.SERVING
        )


def _handshake_fails(channel) -> bool:
    path = "/rado.v1.MemberService/FetchRoster"
    return outcome(channel, path, METHODS[path][1]) == "UNAVAILABLE"


def test_without_a_certificate_of_the_authority_there_is_no_connection(world, node, tmp_path_factory):
    ca = world.tls("ann").ca.read_bytes()
    with grpc.secure_channel(node.address, grpc.ssl_channel_credentials(ca)) as channel:
        assert _handshake_fails(channel), "no certificate"
    with grpc.insecure_channel(node.address) as channel:
        assert _handshake_fails(channel), "no TLS"
    other = World(tmp_path_factory.mktemp("other"), world.secret_key).tls("ann")
    foreign = grpc.ssl_channel_credentials(ca, other.key.read_bytes(), other.certificate.read_bytes())
    with grpc.secure_channel(node.address, foreign) as channel:
        assert _handshake_fails(channel), "another federation's authority"
    long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=500)
    with open_channel(node.address, world.certified(Role.PARTY, "ann", long_ago)) as channel:
        assert _handshake_fails(channel), "an expired certificate"
    with open_channel(node.address, world.certified(Role.PARTY, "ann")) as channel:
        assert not _handshake_fails(channel), "the control: a good one"


def test_a_certificate_of_one_role_does_not_serve_for_another(world, node):
    """The roster lists the name as a party: a certificate for a learner of this name belongs to no member."""
    path = "/rado.v1.LearnerService/ListQueries"
    with open_channel(node.address, world.certified(Role.LEARNER, "ann")) as channel:
        assert outcome(channel, path, METHODS[path][1]) == Code.PEER_UNKNOWN
