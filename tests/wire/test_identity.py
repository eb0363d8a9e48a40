"""A node's own certificates, checked before it connects, and the connections that they authenticate."""

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dpcore.errors import ConfigurationError
from radobase.writing import create_durably
from radofed.certificates import Authority, make_request
from tests.federation.material import server_credentials
from tests.waiting import HANG_S
from wire.errors import CODE_METADATA_KEY, Code, ConnectionLostError, TimedOutError, WireError
from wire.gate import peer_san
from wire.identity import Certificate, TlsFiles
from wire.roster import Role
from wire.transport import CHANNEL_OPTIONS, Caller, open_channel

NOW = dt.datetime.now(dt.UTC)


class Files:
    """One authority and the certificates that it issued, as files."""

    def __init__(self, directory, federation="fed") -> None:
        directory.mkdir()
        self.directory = directory
        self.federation = federation
        self.authority = Authority.create(federation, NOW)
        (directory / "ca.pem").write_bytes(self.authority.certificate_pem)

    def issue(self, role: Role, name: str, *, now=NOW) -> TlsFiles:
        request = make_request(self.federation, role, name)
        hosts = ["localhost", "127.0.0.1"] if role is Role.COORDINATOR else []
        certificate = self.authority.sign_request(request.request_pem, role, name, now, hosts=hosts)
        (self.directory / f"{name}.pem").write_bytes(certificate)
        create_durably(self.directory / f"{name}.key", request.key_pem)
        return TlsFiles(self.directory / "ca.pem", self.directory / f"{name}.pem", self.directory / f"{name}.key")


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "one")


def test_its_own_certificate_passes(files):
    tls = files.issue(Role.PARTY, "a")
    assert tls.check("fed", Role.PARTY, "a", NOW).san == "rado://fed/party/a"


def test_each_wrong_file_is_named_with_its_fix(files, tmp_path):
    a, b = files.issue(Role.PARTY, "a"), files.issue(Role.PARTY, "b")
    other = Files(tmp_path / "two").issue(Role.PARTY, "a")
    late, early = NOW + dt.timedelta(days=800), NOW - dt.timedelta(days=2)
    for tls, name, now, expected in (
        (a, "b", NOW, "use its own certificate"),
        (TlsFiles(a.ca, a.certificate, b.key), "a", NOW, "is not the key of"),
        (TlsFiles(other.ca, a.certificate, a.key), "a", NOW, "was not issued by"),
        (a, "a", late, "the certificate expired"),
        (a, "a", early, "the certificate is valid from"),
        (TlsFiles(a.ca, a.ca.parent / "x", a.key), "a", NOW, "x"),
        (TlsFiles(a.ca, a.ca, a.key), "a", NOW, "certificate"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            tls.check("fed", Role.PARTY, name, now)
        assert expected in str(caught.value)


class Echo(grpc.GenericRpcHandler):
    """Answers /t/Name with the peer's certificate name, /t/Busy after failing twice, /t/Refuse with a code."""

    def __init__(self) -> None:
        self.calls = 0
        self.lock = threading.Lock()

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(getattr(self, details.method.rsplit("/", 1)[1].lower()))

    def name(self, request, context):
        return (peer_san(context) or "no name").encode()

    def busy(self, request, context):
        with self.lock:
            self.calls += 1
        if self.calls < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return b"done"

    def refuse(self, request, context):
        with self.lock:
            self.calls += 1
        context.set_trailing_metadata(((CODE_METADATA_KEY, "SCHEMA_MISMATCH"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "The party's schema differs from the query's. Field x.")


@pytest.fixture
def server(files):
    echo = Echo()
    served = grpc.server(ThreadPoolExecutor(4))
    served.add_generic_rpc_handlers((echo,))
    tls = files.issue(Role.COORDINATOR, "coordinator")
    port = served.add_secure_port("127.0.0.1:0", server_credentials(tls))
    served.start()
    yield echo, f"127.0.0.1:{port}"
    served.stop(0)


def test_the_server_knows_who_calls(files, server):
    _, target = server
    with open_channel(target, files.issue(Role.PARTY, "a")) as channel:
        assert Caller(target, give_up_after_s=HANG_S)(channel.unary_unary("/t/Name"), b"x") == b"rado://fed/party/a"


def test_no_certificate_or_another_authority_gives_no_connection(files, server, tmp_path):
    _, target = server
    stranger = Files(tmp_path / "two").issue(Role.PARTY, "a")
    trusting = TlsFiles(files.directory / "ca.pem", stranger.certificate, stranger.key)
    nameless = grpc.secure_channel(
        target, grpc.ssl_channel_credentials((files.directory / "ca.pem").read_bytes()), options=CHANNEL_OPTIONS
    )
    channels = [open_channel(target, stranger), open_channel(target, trusting), nameless]
    plain = grpc.insecure_channel(target)
    for channel in [*channels, plain]:
        with pytest.raises(ConnectionLostError):
            Caller(target, give_up_after_s=0)(channel.unary_unary("/t/Name"), b"x", timeout_s=HANG_S)
        channel.close()


def test_a_party_cannot_pose_as_the_coordinator(files):
    """A party's certificate is not valid for a server, on any host."""
    served = grpc.server(ThreadPoolExecutor(1))
    served.add_generic_rpc_handlers((Echo(),))
    port = served.add_secure_port("127.0.0.1:0", server_credentials(files.issue(Role.PARTY, "mallory")))
    served.start()
    target = f"127.0.0.1:{port}"
    with open_channel(target, files.issue(Role.PARTY, "a")) as channel, pytest.raises(ConnectionLostError):
        Caller(target, give_up_after_s=0)(channel.unary_unary("/t/Name"), b"x", timeout_s=HANG_S)
    served.stop(0)


def test_transient_failures_are_retried_and_refusals_are_not(files, server):
    echo, target = server
    with open_channel(target, files.issue(Role.PARTY, "a")) as channel:
        caller = Caller(target, give_up_after_s=HANG_S)
        assert caller(channel.unary_unary("/t/Busy"), b"x") == b"done"
        assert echo.calls == 3
        echo.calls = 0
        with pytest.raises(WireError) as caught:
            caller(channel.unary_unary("/t/Refuse"), b"x")
        assert (caught.value.code, caught.value.detail) == (Code.SCHEMA_MISMATCH, "Field x.")
        assert echo.calls == 1


def test_an_unreachable_server_ends_in_time(files):
    with open_channel("127.0.0.1:9", files.issue(Role.PARTY, "a")) as channel:
        with pytest.raises((ConnectionLostError, TimedOutError)) as caught:
            Caller("127.0.0.1:9", give_up_after_s=0.5)(channel.unary_unary("/t/Name"), b"x", timeout_s=2)
        assert "127.0.0.1:9" in str(caught.value)


@pytest.mark.parametrize("names", [["https://fed/party/a"], ["rado://fed/party/a", "rado://fed/party/b"]])
def test_a_certificate_has_exactly_one_rado_name(tmp_path, names):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, NOW, NOW + dt.timedelta(days=1))
    alternatives = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name) for name in names])
    made = builder.add_extension(alternatives, critical=False).sign(key, hashes.SHA256())
    (tmp_path / "a.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    with pytest.raises(ConfigurationError, match="exactly one rado://"):
        Certificate.load(tmp_path / "a.pem")
