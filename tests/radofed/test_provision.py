import datetime as dt
import stat
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from coordinator.config import CoordinatorConfig
from dpcore.errors import ConfigurationError
from learner.config import LearnerConfig
from parties.config import PartyConfig
from parties.policy import Policy
from radobase.writing import create_durably
from radofed.certificates import Authority, make_request
from radofed.node_config import PolicyChoices
from radofed.provision import provision, split_address
from tests.federation.material import server_credentials
from tests.waiting import HANG_S
from wire.envelopes import Envelope, SigningKey, fingerprint, load_public_key
from wire.identity import TlsFiles
from wire.roster import Role, open_roster
from wire.transport import open_channel

NOW = dt.datetime(2030, 5, 1, 12, tzinfo=dt.UTC)
PARTIES = ["north", "south", "east"]


def make(directory, **changes):
    settings = {
        "federation": "trial",
        "coordinator_address": "rado.example.org:7443",
        "parties": PARTIES,
        "learners": ["ada", "ben"],
        "now": NOW,
    }
    return provision(directory, **(settings | changes))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("provision") / "trial", rows_at_least={"south": 1200})


def tls_of(member):
    return TlsFiles(*(member.directory / name for name in ("ca.pem", "certificate.pem", "tls.key")))


def test_every_member_has_a_certificate_of_its_own(made):
    for member in made.members:
        tls_of(member).check("trial", member.role, member.name, NOW)
        with pytest.raises(ConfigurationError, match="expired"):
            tls_of(member).check("trial", member.role, member.name, NOW + dt.timedelta(days=366))
        with pytest.raises(ConfigurationError, match="belongs to"):
            tls_of(member).check("trial", member.role, "stranger", NOW)


def test_a_freshly_made_certificate_holds_where_a_clock_is_a_little_behind(made):
    member = made.members[0]
    tls_of(member).check("trial", member.role, member.name, NOW - dt.timedelta(minutes=4))
    with pytest.raises(ConfigurationError, match="check the clock"):
        tls_of(member).check("trial", member.role, member.name, NOW - dt.timedelta(minutes=6))


def test_the_roster_lists_all_and_is_signed_by_the_federation(made):
    (coordinator,) = made.of(Role.COORDINATOR)
    envelope = Envelope.from_bytes((coordinator.directory / "roster.signed").read_bytes())
    roster = open_roster(envelope, load_public_key(coordinator.directory / "federation.pub"))
    assert roster.version == 1
    assert [m.name for m in roster.parties] == PARTIES
    assert [m.rows_at_least for m in roster.parties] == [None, 1200, None]
    for member in made.members:
        listed = roster.find(member.name, member.role)
        assert listed is not None
        if member.role is not Role.COORDINATOR:
            key = SigningKey.load(member.directory / "signing.key", "clinics")
            assert key.public_bytes == listed.signing_key
            assert fingerprint(key.public_bytes) == member.fingerprint
    federation_key = SigningKey.load(made.directory / "federation" / "federation.key", "clinics")
    assert fingerprint(federation_key.public_bytes) == made.federation_fingerprint


def test_configurations_load_and_point_at_files_that_are_there(made):
    (coordinator,) = made.of(Role.COORDINATOR)
    config = CoordinatorConfig.load(coordinator.config)
    assert config.listen == "0.0.0.0:7443"
    assert config.roster.exists()
    for member in made.of(Role.PARTY):
        party = PartyConfig.load(member.config)
        assert (party.name, party.coordinator) == (member.name, "rado.example.org:7443")
        assert all(path.exists() for path in (party.federation_key, party.signing_key, party.policy, party.tls.ca))
    for member in made.of(Role.LEARNER):
        learner = LearnerConfig.load(member.config)
        assert learner.signing_key.exists()
        assert not learner.paillier_key.exists()


def test_a_fresh_policy_denies_everything_and_pins_every_member(made):
    for member in made.of(Role.PARTY):
        policy = Policy.load(member.directory / "policy.toml")
        assert policy.designs == ()
        assert policy.allow_unprotected is False
        assert policy.smallest_cohort == 3
        others = {m.fingerprint.replace(":", "") for m in made.of(Role.PARTY) if m is not member}
        assert set(policy.accepted_members) == others
        pinned = {(learner.name, learner.signing_key) for learner in policy.learners}
        assert pinned == {(m.name, m.fingerprint.replace(":", "")) for m in made.of(Role.LEARNER)}


def test_a_policy_that_is_asked_for_says_why(tmp_path):
    choices = PolicyChoices(designs=("dp-feat",), allow_unprotected=True, epsilon="2.5", reason="for a test\nonly")
    made = make(tmp_path / "x", policy=choices)
    path = made.of(Role.PARTY)[0].directory / "policy.toml"
    policy = Policy.load(path)
    assert (policy.designs, policy.allow_unprotected, float(policy.limits.epsilon)) == (("dp-feat",), True, 2.5)
    assert "# for a test\n# only\n" in path.read_text()


def test_private_keys_are_for_their_owner_alone(made):
    secret = list(made.directory.rglob("*.key"))
    assert len(secret) == 2 + len(made.members) + len(PARTIES) + 2
    for path in secret:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700, path
    assert not list((made.directory / "members").rglob("federation.key"))
    assert not list((made.directory / "members").rglob("ca.key"))


def test_handing_over_is_explained(made):
    text = "\n".join(made.sentences())
    assert made.federation_fingerprint in text
    for member in made.members:
        assert str(member.directory) in text
        assert member.fingerprint in text


def test_extensions_of_certificates(made):
    for member in made.members:
        certificate = x509.load_pem_x509_certificate((member.directory / "certificate.pem").read_bytes())
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        served = member.role is Role.COORDINATOR
        assert ExtendedKeyUsageOID.CLIENT_AUTH in usage
        assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == served
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert names.get_values_for_type(x509.DNSName) == (["rado.example.org"] if served else [])
        assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    ca = x509.load_pem_x509_certificate((made.directory / "federation" / "ca.pem").read_bytes())
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    key_usage = ca.extensions.get_extension_for_class(x509.KeyUsage).value
    assert key_usage.key_cert_sign
    assert not key_usage.digital_signature
    assert "trial" in ca.subject.rfc4514_string()


@pytest.mark.parametrize(
    ("address", "expected", "listen"),
    [
        ("127.0.0.1:0", {"localhost", "127.0.0.1", "::1"}, "127.0.0.1:0"),
        ("localhost:7443", {"localhost", "127.0.0.1", "::1"}, "127.0.0.1:7443"),
        ("[::1]:7443", {"localhost", "127.0.0.1", "::1"}, "[::1]:7443"),
        ("192.0.2.7:99", {"192.0.2.7"}, "0.0.0.0:99"),
        ("[2001:db8::1]:99", {"2001:db8::1"}, "[::]:99"),
    ],
)
def test_hosts_of_the_coordinators_certificate(tmp_path, address, expected, listen):
    made = make(tmp_path / "x", coordinator_address=address)
    member = made.of(Role.COORDINATOR)[0]
    certificate = tls_of(member).check("trial", member.role, member.name, NOW)
    assert set(certificate.dns_and_addresses) == expected
    assert CoordinatorConfig.load(member.config).listen == listen


def test_ipv6_is_dialled_under_the_name_in_the_certificate(tmp_path):
    """However the address is written: what the members dial is compared with the certificate letter by letter."""
    made = make(tmp_path / "x", coordinator_address="[0:0::1]:7443", now=dt.datetime.now(dt.UTC))
    coordinator, party = made.of(Role.COORDINATOR)[0], made.of(Role.PARTY)[0]
    dialled = PartyConfig.load(party.config).coordinator
    assert dialled == "[::1]:7443"
    server = grpc.server(ThreadPoolExecutor(1))
    try:
        port = server.add_secure_port("[::1]:0", server_credentials(tls_of(coordinator)))
    except RuntimeError:
        pytest.skip("this machine has no IPv6")
    server.start()
    with open_channel(dialled.replace("7443", str(port)), tls_of(party)) as channel:
        grpc.channel_ready_future(channel).result(HANG_S)
    server.stop(0).wait()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("0.0.0.0:7443", "members cannot dial"),
        ("[::]:7443", "members cannot dial"),
        ("[fe80::1%eth0]:7443", "without a zone"),
        ("m\u00fcnchen.example:7443", "xn--"),
        ("two words:7443", "neither a host name"),
        ("300.1.1.1:7443", "neither a host name"),
        ("-x.example:7443", "neither a host name"),
    ],
)
def test_hosts_that_no_certificate_can_name(tmp_path, address, says):
    with pytest.raises(ConfigurationError, match=says):
        make(tmp_path / "x", coordinator_address=address)
    assert list(tmp_path.iterdir()) == []


def test_what_to_listen_on_is_an_address(tmp_path):
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        make(tmp_path / "x", listen="everywhere")


@pytest.mark.parametrize(
    "address",
    ["", "host", "host:", ":1", "host:70000", "host:x", "2001:db8::1:7443", "host:-1", "[host]:1", "[]:1", "[::1:1"],
)
def test_an_address_that_is_none(address):
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        split_address(address)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"federation": "No Name"}, "not a federation name"),
        ({"parties": ["Nord"]}, "not a member name"),
        ({"parties": ["a", "a"]}, "two parties would both be called 'a'"),
        ({"parties": ["a", "ada"]}, "a learner and a party would both be called 'ada'"),
        ({"learners": ["ada", "ada"]}, "two learners would both be called 'ada'"),
        ({"parties": ["coordinator"]}, "a party and a coordinator would both"),
        ({"learners": ["coordinator"]}, "a learner and a coordinator would both"),
        ({"parties": []}, "at least one party"),
        ({"learners": []}, "one learner"),
        ({"rows_at_least": {"west": 5}}, "west"),
        ({"rows_at_least": {"north": 0}}, "positive"),
    ],
)
def test_names_that_cannot_be_used(tmp_path, changes, words):
    with pytest.raises(ConfigurationError, match=words):
        make(tmp_path / "x", **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_content_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(ConfigurationError, match="not empty"):
        make(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    assert make(tmp_path / "empty").directory == tmp_path / "empty"


def test_nothing_is_left_where_it_fails(tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("radofed.provision.save_public_key", full)
    with pytest.raises(OSError, match="No space"):
        make(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


class TestRequests:
    authority = Authority.create("trial", NOW)

    def test_a_request_made_elsewhere_is_signed(self, tmp_path):
        request = make_request("trial", Role.PARTY, "north")
        certificate = self.authority.sign_request(request.request_pem, Role.PARTY, "north", NOW)
        for name, content in (("c", certificate), ("k", request.key_pem), ("a", self.authority.certificate_pem)):
            create_durably(tmp_path / name, content)
        TlsFiles(tmp_path / "a", tmp_path / "c", tmp_path / "k").check("trial", Role.PARTY, "north", NOW)

    @pytest.mark.parametrize(
        ("role", "name"), [(Role.PARTY, "south"), (Role.LEARNER, "north"), (Role.COORDINATOR, "north")]
    )
    def test_a_request_for_another_member_is_refused(self, role, name):
        request = make_request("trial", Role.PARTY, "north")
        hosts = ["localhost"] if role is Role.COORDINATOR else []
        with pytest.raises(ConfigurationError, match="the request is for"):
            self.authority.sign_request(request.request_pem, role, name, NOW, hosts=hosts)

    def test_a_request_of_another_federation_is_refused(self):
        request = make_request("other", Role.PARTY, "north")
        with pytest.raises(ConfigurationError, match="rado://other"):
            self.authority.sign_request(request.request_pem, Role.PARTY, "north", NOW)

    def test_a_party_gets_no_host_name(self):
        request = make_request("trial", Role.PARTY, "north")
        with pytest.raises(ConfigurationError, match="and no other"):
            self.authority.sign_request(request.request_pem, Role.PARTY, "north", NOW, hosts=["rado.example.org"])

    def test_an_altered_request_is_refused(self):
        from cryptography.hazmat.primitives import serialization

        request = make_request("trial", Role.PARTY, "north")
        der = bytearray(x509.load_pem_x509_csr(request.request_pem).public_bytes(serialization.Encoding.DER))
        place = bytes(der).index(b"rado://trial/party/north") + len(b"rado://trial/party/")
        der[place : place + 5] = b"south"
        altered = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
        with pytest.raises(ConfigurationError, match="altered"):
            self.authority.sign_request(altered, Role.PARTY, "south", NOW)

    def test_bytes_that_are_no_request(self):
        with pytest.raises(ConfigurationError, match="not a certificate request"):
            self.authority.sign_request(b"hello", Role.PARTY, "north", NOW)

    def test_secrets_do_not_print(self):
        request = make_request("trial", Role.PARTY, "north")
        assert "PRIVATE" not in repr(request)
        assert "key=" not in repr(self.authority)
