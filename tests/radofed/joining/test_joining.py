"""Requests and admissions: what is refused, and that nothing is signed or installed then."""

import datetime as dt
import os
import shutil
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from dpcore.errors import ConfigurationError
from parties.config import PartyConfig
from parties.members import accept
from rado.v1 import join_pb2
from radofed.certificates import Authority
from radofed.joining.installing import Admission, install, is_pinned
from radofed.joining.operator import admit, found, kept_requests
from radofed.joining.requests import JoinRequest, ReceivedRequest, make_join_request
from radofed.provision import signed_roster
from tests.federation.processes import rado
from wire.envelopes import Envelope, MessageType, SigningKey, load_public_key, public_key_of, spoken
from wire.identity import Certificate
from wire.roster import Role

NOW = dt.datetime(2030, 5, 1, 12, tzinfo=dt.UTC)
ADDRESS = "rado.example.org:7443"


class Home:
    """An operator with a coordinator, north and lab; each member in its directory."""

    def __init__(self, root) -> None:
        self.root = root
        self.operator = root / "operator"
        self.founded = found(self.operator, "clinics", NOW)
        requests = [self.request("hub"), self.request("north"), self.request("lab")]
        self.first = admit(self.operator, requests, now=NOW)

    def request(self, name, *, directory="", federation="clinics", **changes) -> ReceivedRequest:
        role = {"hub": Role.COORDINATOR, "lab": Role.LEARNER}.get(name, Role.PARTY)
        settings = {"federation": federation, "role": role, "name": name, "now": NOW}
        settings |= {"address": ADDRESS} if role is Role.COORDINATOR else {}
        made = make_join_request(self.root / (directory or name), **(settings | changes))
        return ReceivedRequest.load(made.file)

    def admission(self, name) -> Admission:
        return Admission.load(self.operator / "admissions" / f"{name}.admission")

    @property
    def signed(self) -> set:
        """All that the operator has signed so far."""
        return {file.read_bytes() for file in self.operator.rglob("*") if file.is_file()}


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def refused(home, *requests, match, **changes):
    before = home.signed
    with pytest.raises(ConfigurationError, match=match):
        admit(home.operator, requests, **({"now": NOW} | changes))
    assert home.signed == before


def test_the_roster_has_what_the_requests_say(home):
    roster = signed_roster(home.operator / "roster.signed", load_public_key(home.operator / "federation.pub"))
    assert [(m.role.value, m.name) for m in roster.members] == [
        ("coordinator", "hub"),
        ("party", "north"),
        ("learner", "lab"),
    ]
    north = SigningKey.load(home.root / "north/signing.key", "clinics")
    assert roster.find("north", Role.PARTY).signing_key == north.public_bytes
    assert roster.version == 1
    assert home.admission("north").coordinator_address == ADDRESS
    assert "rado.example.org" in Certificate.load(installed(home, "hub") / "certificate.pem").dns_and_addresses


def installed(home, name):
    install(home.root / name, home.admission(name), now=NOW)
    return home.root / name


@pytest.mark.parametrize("place", [5, 40, 90, -3])
def test_a_request_that_was_changed_on_its_way_is_refused(home, place):
    file = home.root / "north/north.request"
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(ConfigurationError, match="ask the member for the file again"):
        ReceivedRequest.load(file)


def test_a_request_by_another_has_another_fingerprint(home):
    """Who changes a request on its way must sign it again, with another key: the digits differ."""
    sent = ReceivedRequest.load(home.root / "north/north.request").request
    forged = replace(sent, signing_key=SigningKey.generate("clinics").public_bytes)
    assert forged.fingerprint != sent.fingerprint
    more = replace(sent, rows_at_least=5)
    assert more.fingerprint != sent.fingerprint
    assert sorted(map(len, sent.fingerprint.split())) == [5] * 6


def test_requests_that_cannot_be_admitted(home, tmp_path):
    east = home.request("east")
    refused(home, match="no request")
    refused(home, east, east, match="several requests of east")
    other = home.request("east", directory="other", federation="banks")
    refused(home, other, match="asks to join 'banks'")
    again = home.request("north", directory="again")
    refused(home, again, match="rado provision replace-key")
    refused(home, home.request("lab", directory="party-lab", role=Role.PARTY), match="the roster has a learner 'lab'")
    refused(home, east, match="has no member 'east'", replaced=True)
    refused(home, east, match="leave it out", coordinator="elsewhere:1")
    refused(home, east, match="clock shows", now=NOW - dt.timedelta(days=1))
    refused(home, home.request("hub2", role=Role.COORDINATOR, address="b:1"), match="exactly one coordinator")
    refused(home, east, match="cannot be valid for 0 days", days=0)


def test_a_certificate_request_for_another_member_is_not_signed(home):
    east, west = home.request("east"), home.request("west")
    stolen = replace(east.request, certificate_request=west.request.certificate_request)
    refused(home, ReceivedRequest(stolen, east.content), match="request of east: the request is for")


def test_a_federation_without_coordinator(tmp_path):
    found(tmp_path / "operator", "clinics", NOW)
    made = make_join_request(tmp_path / "a", federation="clinics", role=Role.PARTY, name="a", now=NOW)
    request = ReceivedRequest.load(made.file)
    with pytest.raises(ConfigurationError, match="no coordinator is known here"):
        admit(tmp_path / "operator", [request], now=NOW)
    with pytest.raises(ConfigurationError, match="exactly one coordinator"):
        admit(tmp_path / "operator", [request], coordinator=ADDRESS, now=NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "North"},
        {"federation": "-"},
        {"address": ADDRESS},
        {"role": Role.COORDINATOR},
        {"role": Role.COORDINATOR, "address": "nowhere"},
        {"role": Role.LEARNER, "rows_at_least": 3},
        {"rows_at_least": 0},
    ],
)
def test_a_request_that_makes_no_sense_leaves_nothing(tmp_path, changes):
    settings = {"federation": "clinics", "role": Role.PARTY, "name": "north", "now": NOW}
    with pytest.raises(ConfigurationError):
        make_join_request(tmp_path / "north", **(settings | changes))
    assert not (tmp_path / "north").exists()


def test_keys_are_never_overwritten(home):
    key = (home.root / "north/signing.key").read_bytes()
    with pytest.raises(ConfigurationError, match="there is a key already"):
        home.request("north")
    assert (home.root / "north/signing.key").read_bytes() == key


def test_an_answer_is_installed_once_and_again(home):
    place = installed(home, "north")
    policy = (place / "policy.toml").read_text()
    assert "accepted_members = [\n\n]" in policy
    assert "[[learners]]" not in policy
    assert is_pinned(place, home.admission("north"))
    (place / "policy.toml").write_text(f"# mine\n{policy}")
    before = (place / "certificate.pem").read_bytes()
    admit(home.operator, kept_requests(home.operator, ["north"]), now=NOW + dt.timedelta(days=200))
    install(place, home.admission("north"), now=NOW + dt.timedelta(days=200))
    assert (place / "policy.toml").read_text().startswith("# mine")
    assert (place / "certificate.pem").read_bytes() != before
    assert Certificate.load(place / "certificate.pem").not_after == NOW + dt.timedelta(days=565)


def test_a_later_answer_asks_to_accept_those_alone_who_are_not_accepted_yet(home):
    place = installed(home, "north")
    made = install(place, home.admission("north"), now=NOW)
    names = " ".join(each.name for each in made.others)
    assert f"  rado party accept {names} --config {place / 'party.toml'}" in made.sentences()
    config = PartyConfig.load(place / "party.toml")
    for member in made.others[1:]:
        accept(config, member)
    again = install(place, home.admission("north"), now=NOW)
    assert again.to_accept == made.others[:1]
    accept(config, made.others[0])
    assert not any("accept" in line for line in install(place, home.admission("north"), now=NOW).sentences())


def test_each_member_gets_the_digits_that_others_accept_it_by(home):
    """Those of its key, and not of its request: a party compares the key of the roster."""
    for name, whom in (("north", "each party and learner"), ("lab", "each party")):
        made = install(home.root / name, home.admission(name), now=NOW)
        key = public_key_of(home.root / name / "signing.key")
        assert made.own_spoken == made.to_dict()["own_fingerprint"] == spoken(key)
        assert any(f"to read to {whom} over the telephone: {spoken(key)}" in line for line in made.sentences())
        # Those of others are read out by their owners.
        others = [spoken(member.signing_key) for member in made.others]
        assert others
        assert not any(digits in line for digits in others for line in made.sentences())
    hub = install(home.root / "hub", home.admission("hub"), now=NOW)
    assert hub.own_spoken == ""


def test_an_older_answer_does_not_bring_back_an_older_roster(home):
    place = installed(home, "north")
    first = home.admission("north")
    admit(home.operator, kept_requests(home.operator, ["north"]), now=NOW + dt.timedelta(days=200))
    install(place, home.admission("north"), now=NOW + dt.timedelta(days=200))
    before = {file.name: file.read_bytes() for file in place.iterdir() if file.is_file()}
    with pytest.raises(ConfigurationError, match="has version 2, and the answer for north is older, with version 1"):
        install(place, first, now=NOW + dt.timedelta(days=200))
    assert {file.name: file.read_bytes() for file in place.iterdir() if file.is_file()} == before


def test_an_older_answer_is_compared_with_the_newest_roster_that_the_node_has_seen(home):
    """A running party keeps it in its state directory; the file beside the keys stays that of the last answer."""
    place = installed(home, "north")
    answer = home.admission("north")
    admit(home.operator, kept_requests(home.operator, ["north"]), now=NOW + dt.timedelta(days=200))
    seen = home.admission("north").roster_content
    (place / "state").mkdir(exist_ok=True)
    (place / "state" / "roster.signed").write_bytes(seen)
    with pytest.raises(ConfigurationError, match=r"state/roster.signed: has version 2, and the answer"):
        install(place, answer, now=NOW)


def test_a_certificate_from_before_the_present_one_is_not_installed(home):
    place = installed(home, "north")
    first = home.admission("north")
    admit(home.operator, kept_requests(home.operator, ["north"]), now=NOW + dt.timedelta(days=200))
    (place / "certificate.pem").write_bytes(home.admission("north").certificate)
    with pytest.raises(ConfigurationError, match=r"certificate.pem: was issued after the one in the answer for north"):
        install(place, first, now=NOW + dt.timedelta(days=200))


def test_answers_that_are_not_installed(home, tmp_path):
    place = home.root / "north"
    with pytest.raises(ConfigurationError, match="to another request"):
        install(place, home.admission("lab"), now=NOW)
    with pytest.raises(
        ConfigurationError, match="no request is here; give the directory that `rado provision request` made"
    ):
        install(tmp_path, home.admission("north"), now=NOW)
    for name in ("north", "lab"):
        shutil.copy(home.root / name / f"{name}.request", tmp_path)
    with pytest.raises(ConfigurationError, match="2 requests are here; give the directory of one"):
        install(tmp_path, home.admission("north"), now=NOW)
    with pytest.raises(ConfigurationError, match="expired"):
        install(place, home.admission("north"), now=NOW + dt.timedelta(days=400))
    assert not (place / "certificate.pem").exists()
    installed(home, "north")
    other = Home(tmp_path / "other")
    with pytest.raises(ConfigurationError, match="to another request"):
        install(place, other.admission("north"), now=NOW)
    forged = replace(home.admission("north"), federation_key=SigningKey.generate("clinics").public_bytes)
    with pytest.raises(ConfigurationError, match="the key of another federation"):
        install(place, forged, now=NOW)


@pytest.mark.parametrize("place", [3, 60, 300, -2])
def test_an_answer_that_was_changed_on_its_way_is_refused(home, place):
    file = home.operator / "admissions/north.admission"
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(ConfigurationError):
        installed(home, "north")
    assert not (home.root / "north/certificate.pem").exists()


def test_an_answer_signed_anew_shows_other_digits(home):
    """A forger's federation key comes with the file, so only the digits tell."""
    file = join_pb2.AdmissionFile.FromString((home.operator / "admissions/north.admission").read_bytes())
    forger = SigningKey.generate("clinics")
    payload = Envelope.from_proto(file.admission).payload
    signed = forger.sign(MessageType.ADMISSION, payload).to_proto()
    path = home.root / "forged.admission"
    path.write_bytes(join_pb2.AdmissionFile(federation_key=forger.public_bytes, admission=signed).SerializeToString())
    with pytest.raises(ConfigurationError, match="no answer of an operator"):  # the roster has the old signature
        Admission.load(path)
    assert spoken(forger.public_bytes) != home.founded.spoken


@pytest.mark.parametrize("federation", ["Clinics", "", "c" * 57])
def test_a_federation_that_cannot_be_founded(tmp_path, federation):
    with pytest.raises(ConfigurationError, match="name"):
        found(tmp_path / "operator", federation, NOW)
    assert not (tmp_path / "operator").exists()
    if len(federation) < 57:
        with pytest.raises(ConfigurationError, match="not a federation name"):
            Authority.create(federation, NOW)


def test_a_federation_is_not_founded_twice_in_one_place(home):
    before = home.signed
    with pytest.raises(ConfigurationError, match="not empty"):
        found(home.operator, "clinics", NOW)
    assert home.signed == before


@pytest.mark.parametrize("kept", ["signing.key", "tls.key"])
def test_one_key_that_is_there_is_enough_to_stop(home, tmp_path, kept):
    place = tmp_path / "half"
    place.mkdir()
    (place / kept).write_bytes(b"a key")
    with pytest.raises(ConfigurationError, match="there is a key already"):
        home.request("half")
    assert [file.name for file in place.iterdir()] == [kept]


def test_an_answer_is_not_installed_beside_other_keys(home, tmp_path):
    place = home.root / "north"
    (place / "signing.key").unlink()
    SigningKey.generate("clinics").save(place / "signing.key")
    with pytest.raises(ConfigurationError, match="does not list north"):
        install(place, home.admission("north"), now=NOW)
    other = home.admission("lab")
    without = tuple(m for m in other.roster.members if m.name != "lab")
    with pytest.raises(ConfigurationError, match="does not list lab"):
        install(home.root / "lab", replace(other, roster=replace(other.roster, members=without)), now=NOW)


def test_a_request_of_no_role_or_with_a_short_key(home):
    sent = home.request("east")
    message = join_pb2.JoinRequest.FromString(Envelope.from_bytes(sent.content).payload)
    message.role = 0
    key = SigningKey.load(home.root / "east/signing.key", "clinics")
    signed = key.sign(MessageType.JOIN_REQUEST, message.SerializeToString(deterministic=True))
    with pytest.raises(ConfigurationError, match="does not know"):
        JoinRequest.read(signed.to_bytes(), home.root / "x")
    with pytest.raises(ConfigurationError, match="wrong length"):
        replace(sent.request, signing_key=b"short")


@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP384R1()), Ed25519PrivateKey.generate()])
def test_a_tls_key_of_another_kind_is_not_signed(home, key):
    east = home.request("east")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "east")])
    san = x509.SubjectAlternativeName([x509.UniformResourceIdentifier("rado://clinics/party/east")])
    digest = None if isinstance(key, Ed25519PrivateKey) else hashes.SHA256()
    made = x509.CertificateSigningRequestBuilder().subject_name(name).add_extension(san, critical=False)
    pem = made.sign(key, digest).public_bytes(serialization.Encoding.PEM)
    odd = replace(east.request, certificate_request=pem)
    refused(home, ReceivedRequest(odd, east.content), match="not on the curve P-256")


def test_an_authority_of_two_federations_signs_nothing(home, tmp_path):
    found(tmp_path / "other", "banks", NOW)
    (home.operator / "ca.pem").write_bytes((tmp_path / "other/ca.pem").read_bytes())
    with pytest.raises(ConfigurationError, match=r"ca\.key is not"):
        admit(home.operator, [home.request("east")], now=NOW)
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (home.operator / "ca.key").write_bytes(pem)
    with pytest.raises(ConfigurationError, match=r"ca\.key is not"):
        admit(home.operator, [ReceivedRequest.load(home.root / "east/east.request")], now=NOW)


def test_a_version_that_may_have_been_sent_is_not_signed_again(home):
    (home.operator / "admissions/east.admission").mkdir()
    with pytest.raises(OSError):
        admit(home.operator, [home.request("east")], now=NOW)
    (home.operator / "admissions/east.admission").rmdir()
    again = admit(home.operator, [ReceivedRequest.load(home.root / "east/east.request")], now=NOW)
    assert again.roster.version == home.first.roster.version + 2


def test_an_exposed_authority_signs_nothing(home):
    (home.operator / "ca.key").chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        admit(home.operator, [home.request("east")], now=NOW)


def test_a_kept_request_is_needed_to_renew(home):
    with pytest.raises(ConfigurationError, match="no request of south is kept here"):
        kept_requests(home.operator, ["south"])


def test_without_digits_nothing_is_signed_or_installed(home):
    before = home.signed
    east = home.request("east")
    file = str(home.root / "east/east.request")
    asked = rado("provision", "sign", str(home.operator), file, code=4)["error"]["message"]
    wrong = rado("provision", "sign", str(home.operator), file, "--fingerprint", "east=12345", code=4)["error"][
        "message"
    ]
    assert "call party east" in asked
    assert "another fingerprint than 12345" in wrong
    # Digits that are printed would be copied, and no one called.
    assert east.request.fingerprint not in asked + wrong
    stray = rado("provision", "sign", str(home.operator), file, "--fingerprint", "west=12345", code=4)
    assert "write NAME=DIGITS" in stray["error"]["message"]
    assert home.signed == before
    answer = str(home.operator / "admissions/north.admission")
    asked = rado("provision", "install", answer, "--directory", str(home.root / "north"), code=4)["error"]["message"]
    assert home.founded.spoken not in asked
    assert not (home.root / "north/ca.pem").exists()


@pytest.fixture
def terminal(monkeypatch):
    """A terminal in which the lines are typed that a test gives. Returns what is left of them at the end."""
    opened = []

    def types(*lines):
        theirs, ours = os.openpty()
        os.write(theirs, "".join(f"{line}\n" for line in lines).encode())
        opened.extend([os.fdopen(ours, "r"), os.fdopen(theirs, "r+b", buffering=0)])
        monkeypatch.setattr("sys.stdin", opened[-2])

    yield types
    for file in opened:
        file.close()


WRONG = "12345 67890 12345 67890 12345 67890"


def test_a_terminal_is_asked_again_after_a_typing_error(tmp_path, terminal):
    operator = tmp_path / "operator"
    federation = rado("provision", "create", str(operator), "--federation", "clinics")["data"]["federation_fingerprint"]
    digits, files = {}, []
    for name, more in {"hub": ("coordinator", "--address", ADDRESS), "east": ("party",)}.items():
        made = (
            "provision",
            "request",
            str(tmp_path / name),
            "--federation",
            "clinics",
            "--name",
            name,
            "--role",
            *more,
        )
        found = rado(*made)["data"]
        digits[name] = found["fingerprint"]
        files.append(found["file"])

    terminal(WRONG, "7", digits["hub"], WRONG, "12", WRONG, digits["east"])
    refused = rado("provision", "sign", str(operator), *files, code=4)["error"]["message"]
    assert "party east has another fingerprint" in refused
    assert "over another channel" in refused
    assert digits["east"] not in refused
    assert not (operator / "roster.signed").exists(), "one request with other digits, and none is signed"

    terminal(WRONG, digits["hub"], digits["east"].replace(" ", ""))
    signed = rado("provision", "add", str(operator), *files)["data"]
    assert [each["name"] for each in signed["admissions"]] == ["hub", "east"]
    listed = rado("provision", "roster", str(operator))["data"]["members"]
    assert [each["name"] for each in listed] == ["hub", "east"]

    # At the member. Digits that are given are not asked for.
    installs = ("provision", "install", signed["admissions"][1]["file"], "--directory", str(tmp_path / "east"))
    terminal(federation)
    rado(*installs, "--fingerprint", WRONG, code=4)
    terminal(WRONG, federation)
    assert rado(*installs)["data"]["roster_version"] == 1


def test_a_request_is_what_was_signed_and_nothing_else(home):
    sent = ReceivedRequest.load(home.root / "north/north.request")
    payload = Envelope.from_bytes(sent.content).payload
    # The same message with an empty field written out parses alike and is not what a member writes.
    longer = payload + b"\x3a\x00"
    signed = SigningKey.load(home.root / "north/signing.key", "clinics").sign(MessageType.JOIN_REQUEST, longer)
    with pytest.raises(ConfigurationError, match="as this version writes"):
        JoinRequest.read(signed.to_bytes(), home.root / "x")
