"""A node's certificate follows its files: new connections use the renewed one, and a bad one changes nothing."""

import datetime as dt
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from dpcore.errors import ConfigurationError
from radobase.logs import Log
from tests.waiting import HANG_S
from tests.wire.test_identity import NOW, Echo, Files
from wire.identity import OwnCertificate, TlsFiles
from wire.roster import Role
from wire.transport import Caller, open_channel


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "one")


def own_of(tls: TlsFiles, name="coordinator", role=Role.COORDINATOR) -> OwnCertificate:
    return OwnCertificate(tls, "fed", role, name, Log("node"))


def issue_again(files: Files, tls: TlsFiles, *, name="coordinator", role=Role.COORDINATOR, days=30) -> None:
    """Another key and certificate of a member in the places of the ones it has, as an administrator installs them."""
    for old in (tls.certificate, tls.key):
        old.unlink()
    files.issue(role, name, now=NOW + dt.timedelta(days=days) - dt.timedelta(days=31))


def served_at(target: str, client: TlsFiles) -> bytes:
    """The certificate that a new connection is shown, DER."""
    context = ssl.create_default_context(cafile=str(client.ca))
    context.load_cert_chain(client.certificate, client.key)
    context.set_alpn_protocols(["h2"])
    host, port = target.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=HANG_S) as raw,
        context.wrap_socket(raw, server_hostname=host) as connection,
    ):
        return connection.getpeercert(binary_form=True)


def test_new_connections_use_the_renewed_certificate_and_old_ones_go_on(files, caplog):
    caplog.set_level("INFO")
    tls, client = files.issue(Role.COORDINATOR, "coordinator"), files.issue(Role.PARTY, "a")
    own = own_of(tls)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Echo(),))
    target = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', own.server_credentials())}"
    server.start()

    def name(channel: grpc.Channel) -> bytes:
        return Caller(target, give_up_after_s=HANG_S)(channel.unary_unary("/t/Name"), b"x")

    try:
        with open_channel(target, client) as channel:
            assert name(channel) == b"rado://fed/party/a"
            first = served_at(target, client)
            issue_again(files, tls)
            # Nothing is read until a node looks.
            assert served_at(target, client) == first
            own.look()
            renewed = served_at(target, client)
            assert renewed == ssl.PEM_cert_to_DER_cert(tls.certificate.read_text())
            assert renewed != first
            assert served_at(target, client) == renewed
            assert name(channel) == b"rado://fed/party/a"
        # A client without a certificate is refused by the renewed credentials, too.
        nameless = grpc.secure_channel(target, grpc.ssl_channel_credentials(client.ca.read_bytes()))
        with pytest.raises(grpc.RpcError):
            nameless.unary_unary("/t/Name")(b"x", timeout=HANG_S)
        nameless.close()
    finally:
        server.stop(0).wait()
    assert (own.version, [r.getMessage() for r in caplog.records]) == (1, ["certificate read"])


def replaced_key(files, tls):
    files.issue(Role.PARTY, "b").key.replace(tls.key)


def another_member(files, tls):
    files.issue(Role.PARTY, "b").certificate.replace(tls.certificate)


def expired(files, tls):
    issue_again(files, tls, name="a", role=Role.PARTY, days=-400)


def gone(_, tls):
    tls.certificate.unlink()


def damaged(_, tls):
    tls.certificate.write_bytes(b"-----BEGIN")


def exposed(_, tls):
    tls.key.chmod(0o644)
    os.utime(tls.key, ns=(1, 1))


@pytest.mark.parametrize("harm", [replaced_key, another_member, expired, gone, damaged, exposed])
def test_what_cannot_be_used_leaves_the_certificate_and_is_logged_once(files, caplog, harm):
    caplog.set_level("INFO")
    tls = files.issue(Role.PARTY, "a")
    own = own_of(tls, "a", Role.PARTY)
    kept = own.certificate
    harm(files, tls)
    for _ in range(3):
        own.look()
    assert (own.version, own.certificate) == (0, kept)
    (record,) = caplog.records
    assert record.getMessage() == "certificate refused"
    assert record.fields["reason"].endswith("; the one in use stays")
    # At a start it is an error.
    with pytest.raises(ConfigurationError):
        own_of(tls, "a", Role.PARTY)


def test_a_key_and_its_certificate_that_are_replaced_one_after_the_other(files):
    tls, new = files.issue(Role.PARTY, "a"), Files(files.directory / "two")
    new.authority = files.authority
    made = new.issue(Role.PARTY, "a")
    own = own_of(tls, "a", Role.PARTY)
    made.key.replace(tls.key)
    own.look()
    assert own.version == 0
    made.certificate.replace(tls.certificate)
    own.look()
    assert own.version == 1


def test_it_warns_once_a_day_until_it_is_renewed(files, caplog):
    tls = files.issue(Role.PARTY, "a")
    own = own_of(tls, "a", Role.PARTY)
    soon = (own.certificate.not_after - dt.timedelta(days=9)).timestamp()
    for hours in (0, 1, 23, 25):
        own.warn(soon + 3600 * hours)
    # A level that another test has set may let "certificate read" pass, too.
    warned = ["certificate expiry"] * 2
    assert [record.getMessage() for record in caplog.records] == warned
    issue_again(files, tls, name="a", role=Role.PARTY)
    own.look()
    own.warn((own.certificate.not_after - dt.timedelta(days=40)).timestamp())
    assert [said for said in caplog.messages if said == "certificate expiry"] == warned
