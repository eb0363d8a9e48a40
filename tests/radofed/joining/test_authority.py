"""The end of the federation's authority: nothing is signed past it, people are warned, and another one replaces it.

The new authority is made with the commands of docs/operating.md, "A new authority", and members of each connect.
"""

import datetime as dt
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir

import grpc
import pytest

from dpcore.errors import ConfigurationError
from radofed.certificates import AUTHORITY_DAYS, AUTHORITY_WARNING_DAYS, Authority
from radofed.joining.installing import Admission, install
from radofed.joining.operator import admit, found, kept_requests, listing
from radofed.joining.requests import ReceivedRequest, make_join_request
from tests.docs.examples import DOCS
from tests.federation.processes import rado
from tests.waiting import HANG_S
from tests.wire.test_identity import Echo
from wire.errors import ConnectionLostError
from wire.identity import Certificate, OwnCertificate, TlsFiles
from wire.roster import Role
from wire.transport import Caller, open_channel

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
LEFT = 100 * DAY
ENDS = NOW + LEFT
SECTION = (DOCS / "operating.md").read_text().partition("### A new authority\n")[2].partition("\n### ")[0]
ROLES = {"hub": Role.COORDINATOR, "north": Role.PARTY, "lab": Role.LEARNER}


class Silent:
    """A log that no one reads."""

    def info(self, *_, **__):
        """Nothing."""

    warning = info


class Old:
    """A federation whose authority ends in LEFT."""

    def __init__(self, root) -> None:
        self.root, self.operator = root, root / "operator"
        found(self.operator, "clinics", ENDS - dt.timedelta(days=AUTHORITY_DAYS))
        requests = []
        for name, role in ROLES.items():
            address = {"address": "localhost:7443"} if role is Role.COORDINATOR else {}
            made = make_join_request(root / name, federation="clinics", role=role, name=name, **address)
            requests.append(ReceivedRequest.load(made.file))
        self.first = admit(self.operator, requests, now=NOW)
        self.install(*ROLES)

    def install(self, *names) -> None:
        for name in names:
            install(self.root / name, Admission.load(self.operator / f"admissions/{name}.admission"))

    def tls(self, name) -> TlsFiles:
        home = self.root / name
        return TlsFiles(home / "ca.pem", home / "certificate.pem", home / "tls.key")

    def check(self, name, now=None) -> Certificate:
        # Not NOW: commands that a test types sign later, perhaps by minutes.
        return self.tls(name).check("clinics", ROLES[name], name, now or dt.datetime.now(dt.UTC))

    def answer(self, *, client: str = "north", give_up_after_s: float = HANG_S) -> bytes:
        """What a member reads from a server with the coordinator's files."""
        served = grpc.server(ThreadPoolExecutor(2))
        served.add_generic_rpc_handlers((Echo(),))
        own = OwnCertificate(self.tls("hub"), "clinics", Role.COORDINATOR, "hub", Silent())
        port = served.add_secure_port("localhost:0", own.server_credentials())
        served.start()
        try:
            with open_channel(f"localhost:{port}", self.tls(client)) as channel:
                call = channel.unary_unary("/t/Name")
                return Caller(f"localhost:{port}", give_up_after_s=give_up_after_s)(call, b"x")
        finally:
            served.stop(0)


@pytest.fixture
def old(tmp_path):
    return Old(tmp_path)


def test_a_member_s_certificate_ends_with_its_authority(old):
    ends = Authority.load(old.operator).not_after
    assert abs(ends - ENDS) < dt.timedelta(seconds=1)
    assert {old.check(name).not_after for name in ROLES} == {ends}
    # A renewal brings nothing more, and after the end nothing is signed.
    requests = kept_requests(old.operator, ["north"])
    roster = (old.operator / "roster.signed").read_bytes()
    with pytest.raises(ConfigurationError, match=r"nothing can be signed.*has expired.*A new authority"):
        admit(old.operator, requests, now=ends + dt.timedelta(seconds=1))
    assert (old.operator / "roster.signed").read_bytes() == roster


def test_the_operator_is_warned_a_year_ahead(old, tmp_path):
    authority = Authority.load(old.operator)
    begins = authority.not_after - dt.timedelta(days=AUTHORITY_WARNING_DAYS)
    assert AUTHORITY_WARNING_DAYS == 365
    assert authority.expiry_warning(begins) == ""
    sentence = authority.expiry_warning(begins + dt.timedelta(seconds=1))
    assert sentence.startswith("the federation's authority expires in 364 days, on ")
    assert '"A new authority"' in sentence
    assert "has expired" in authority.expiry_warning(authority.not_after + DAY)
    now = authority.expiry_warning(NOW)
    assert old.first.warning == now
    assert f"Warning: {now}." in old.first.sentences()
    assert f"Warning: {now}." in listing(old.operator, NOW).sentences()
    shown = rado("provision", "roster", str(old.operator))["data"]
    assert shown["authority_not_after"] == authority.not_after.isoformat(timespec="seconds")
    assert "the federation's authority expires in" in shown["authority_warning"]
    renewed = rado("provision", "renew", str(old.operator), "north")["data"]
    assert renewed["authority_warning"] == shown["authority_warning"]
    found(tmp_path / "young", "clinics", NOW)
    assert Authority.load(tmp_path / "young").expiry_warning(NOW) == ""


class Careless(Authority):
    """An operator of 0.2.0, who signed past the authority's end."""

    @property
    def not_after(self) -> dt.datetime:
        return self.certificate.not_valid_after_utc + 365 * DAY


def test_a_node_checks_the_dates_of_its_authority(tmp_path):
    found(tmp_path, "clinics", NOW)
    authority = Authority.load(tmp_path)
    make_join_request(tmp_path / "north", federation="clinics", role=Role.PARTY, name="north")
    request = ReceivedRequest.load(tmp_path / "north/north.request").request.certificate_request
    signed = NOW + dt.timedelta(days=AUTHORITY_DAYS - 10)
    late = Careless("clinics", authority.certificate, authority.key).sign_request(request, Role.PARTY, "north", signed)
    (tmp_path / "north/certificate.pem").write_bytes(late)
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "north/certificate.pem", tmp_path / "north/tls.key")
    assert files.check("clinics", Role.PARTY, "north", signed + DAY).not_after > authority.not_after
    with pytest.raises(ConfigurationError, match=r"ca\.pem: the federation's authority is valid from .* new authority"):
        files.check("clinics", Role.PARTY, "north", signed + 20 * DAY)


def test_another_authority_replaces_it_as_the_page_says(old):
    commands = re.findall(r"^ {4}((?:rado|cat|mv) .*)$", SECTION, re.MULTILINE)
    create, add, renew, put, swap, renew_again, leave = commands
    assert old.answer() == b"rado://clinics/party/north"
    for line in (create, add, renew.replace(" south west", "")):
        typed(line, old.root)
    # One member has both, and the others only the old one: everybody still connects.
    assert typed(put.replace("north.admission", "operator/admissions/north.admission"), old.root)
    assert old.answer() == b"rado://clinics/party/north"
    old.install("hub", "lab")
    assert {len(old.tls(name).authorities()) for name in ROLES} == {2}
    typed(swap, old.root)
    typed(renew_again.replace(" south west", ""), old.root)
    assert leave.startswith("rado coordinator admissions operator/admissions/*.admission")
    # Members with certificates of either, in both directions.
    old.install("north")
    assert old.check("north").not_after > ENDS + DAY
    assert [old.answer(client=name)[-5:] for name in ("north", "lab")] == [b"north", b"r/lab"]
    # The coordinator's own, as its timer takes it: it was left there, and is of an authority that the node has.
    admissions = map(str, (old.operator / "admissions").glob("*.admission"))
    hub = str(old.root / "hub/coordinator.toml")
    assert set(rado("coordinator", "admissions", *admissions, "--config", hub)["data"]["members"]) == set(ROLES)
    assert rado("certificate", "renew", "--config", hub, "--before-due")["data"]["is_new"]
    assert old.check("hub").not_after > ENDS + DAY
    assert [old.answer(client=name)[-5:] for name in ("north", "lab")] == [b"north", b"r/lab"]
    # After the end of the old one a member that has both goes on, and one that missed step 2 does not.
    assert old.check("north", ENDS + DAY)
    with pytest.raises(ConfigurationError, match="expired on"):
        old.check("lab", ENDS + DAY)
    assert "authority_warning" in rado("provision", "roster", str(old.operator))["data"]
    assert not Authority.load(old.operator).expiry_warning(NOW)


def test_a_member_without_the_new_authority_is_refused_and_an_ended_one_beside_it_is_no_harm(old, tmp_path):
    found(tmp_path / "ended", "clinics", NOW - dt.timedelta(days=AUTHORITY_DAYS + 1))
    for name in ROLES:
        file = old.root / name / "ca.pem"
        file.write_bytes((tmp_path / "ended/ca.pem").read_bytes() + file.read_bytes())
        assert old.check(name)
    assert old.answer() == b"rado://clinics/party/north"
    found(tmp_path / "next", "clinics", NOW)
    for name in ("ca.key", "ca.pem"):
        (tmp_path / "next" / name).replace(old.operator / name)
    admit(old.operator, kept_requests(old.operator, ["north"]))
    old.install("north")
    with pytest.raises(ConnectionLostError):
        old.answer(give_up_after_s=0)


def typed(line: str, where) -> object:
    """Run a command of the page. Returns what rado prints as JSON."""
    if not line.startswith("rado "):
        return subprocess.run(["sh", "-c", line], check=True, cwd=where)
    with chdir(where):
        return rado(*shlex.split(line)[1:])
