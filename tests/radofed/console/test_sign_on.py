"""A console behind a sign-on: nginx says who it is, decisions are theirs, and whoever comes past it is refused."""

import datetime as dt
import http.client
import ssl
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlencode

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.datastructures import Headers

from dpcore.errors import ConfigurationError
from parties.approval.decisions import Person, is_user, why_not
from radobase import signed_on
from radobase.signed_on import SignedOn
from radofed.console.app import CSRF_FIELD
from radofed.console.sign_on import SignOnAccess, check_policy
from tests.deploy.proxies import NGINX, SAMPLES, running
from tests.federation.processes import Forked, free_port, rado, run_rado
from tests.radofed.console.consoles import Sent
from tests.radofed.console.test_party import Desk
from tests.waiting import HANG_S, wait_until

SECRET = "0123456789abcdef" * 4
FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
ANN, BOB = "sign-on:ann@example.org", "sign-on:bob@example.org"


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def access(secret):
    return SignOnAccess("https://console.example.org/north", secret)


def headers(**changes) -> Headers:
    given = {"x-rado-proxy-secret": SECRET, "x-rado-user": "ann@example.org"} | changes
    return Headers(raw=[(name.encode(), value.encode("latin-1")) for name, value in given.items() if value is not None])


def test_the_proxy_s_word_is_taken(access):
    assert access.person(headers()) == SignedOn("ann@example.org")
    assert access.person(headers(**{"x-rado-name": "Ann Example"})) == SignedOn("ann@example.org", "Ann Example")
    assert (access.root, access.hosts, access.origin) == (
        "/north",
        {"console.example.org"},
        "https://console.example.org",
    )


def test_whoever_lacks_the_secret_is_nobody(access):
    for wrong in (None, "", SECRET[:-1], SECRET.upper(), "é" * 64):
        assert access.person(headers(**{"x-rado-proxy-secret": wrong})).startswith("this console is reached through")
    twice = [(b"x-rado-proxy-secret", SECRET.encode())] * 2 + [(b"x-rado-user", b"ann@example.org")]
    assert isinstance(access.person(Headers(raw=twice)), str)


def test_a_proxy_that_names_nobody_or_two_is_refused(access):
    for odd in (None, "", " ", "ann example", "ann\t", "é", "a" * 201):
        assert access.person(headers(**{"x-rado-user": odd})).startswith("the proxy named nobody")
    both = [*headers().raw, (b"x-rado-user", b"eve@example.org")]
    assert access.person(Headers(raw=both)).startswith("the proxy named nobody")
    assert "odd" in access.person(headers(**{"x-rado-name": "Ann\x1b[31m"}))


def test_what_a_console_behind_a_proxy_needs(secret):
    for address in (
        "http://console.example.org",
        "console.example.org",
        "https://",
        "https://a.org/?x=1",
        "ftp://a.org",
    ):
        with pytest.raises(ConfigurationError, match="is not the address of a console"):
            SignOnAccess(address, secret)
    assert SignOnAccess("http://localhost:8080", secret).link == "http://localhost:8080/"
    secret.chmod(0o644)
    with pytest.raises(ConfigurationError, match="can read or change this secret"):
        SignOnAccess("https://a.org", secret)
    secret.chmod(0o600)
    secret.write_text("short")
    with pytest.raises(ConfigurationError, match="5 characters"):
        SignOnAccess("https://a.org", secret)


def test_forms_of_one_person_are_not_those_of_another(access):
    tokens = set()
    for identity in ("ann@example.org", "bob@example.org"):
        before = signed_on.present.set(SignedOn(identity))
        tokens |= {access.csrf, access.csrf}
        signed_on.present.reset(before)
    assert len(tokens) == 2


def test_who_is_signed_on_decides_and_not_the_user_of_the_console(secret_key, tmp_path):
    desk = Desk(secret_key, tmp_path, users=[ANN])
    policy = desk.ada.lifecycle.policy.model_copy()
    before = signed_on.present.set(SignedOn("ann@example.org", "Ann Example"))
    person = Person.present("Somebody Else")
    signed_on.present.reset(before)
    assert (person.user, person.name) == (ANN, "Ann Example")
    assert Person.present().user != ANN
    assert is_user(ANN)
    assert not is_user("sign-on:")
    asking = policy.learners[0].model_copy(update={"requesters": ("ann@example.org",)})
    barred = policy.model_copy(update={"learners": (asking,)})
    assert "does not decide on its queries" in why_not(person, "lea", barred)
    desk.ada.history.database.close()
    desk.ada.ledger.database.close()


def test_two_approvals_need_two_who_are_signed_on(secret_key, tmp_path):
    desk = Desk(secret_key, tmp_path)
    check_policy(desk.config)
    for users in ([], ["root"], [ANN, "root"]):
        desk.set_approval(approvers=2, users=users)
        with pytest.raises(ConfigurationError, match="one could do so twice"):
            check_policy(desk.config)
    desk.set_approval(approvers=2, users=[ANN, BOB])
    check_policy(desk.config)
    desk.ada.history.database.close()
    desk.ada.ledger.database.close()


class Provider(BaseHTTPRequestHandler):
    """What oauth2-proxy answers to nginx: who has the cookie `who`, and otherwise that somebody has to sign on."""

    def do_GET(self):
        who = self.headers.get("Cookie", "").partition("who=")[2]
        if self.path == "/oauth2/auth":
            self.send_response(202 if who else 401)
            self.send_header("X-Auth-Request-Email", f"{who}@example.org" if who != "nobody" else "")
        else:
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def self_signed(directory):
    """Files with a certificate for localhost, and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "console")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (directory / "console.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (directory / "console.key").write_bytes(pem)


class Browser:
    """A person's browser, which is signed on."""

    def __init__(self, port: int, certificate, who: str) -> None:
        self.port, self.who = port, who
        self._trust = ssl.create_default_context(cafile=str(certificate))

    def ask(self, path: str, form: dict[str, str] | None = None, **changes: str):
        """Status, headers and text of an answer."""
        connection = http.client.HTTPSConnection("localhost", self.port, context=self._trust, timeout=HANG_S)
        sent = {"Cookie": f"who={self.who}"} if self.who else {}
        body = None if form is None else urlencode(form)
        sent |= {"Origin": f"https://localhost:{self.port}"} if form else {}
        connection.request("POST" if form else "GET", path, body, sent | changes)
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found


class Behind:
    """A party's console behind the shipped nginx, with a provider that signs on."""

    def __init__(self, desk: Desk, root, ports: tuple[int, int]) -> None:
        self.desk, self.root = desk, root
        self.public, self.own = ports

    def browser(self, who: str) -> Browser:
        return Browser(self.public, self.root / "console.pem", who)

    def past_the_proxy(self, path: str, **sent: str):
        connection = http.client.HTTPConnection("127.0.0.1", self.own, timeout=HANG_S)
        connection.request("GET", path, headers={"Host": f"localhost:{self.public}"} | sent)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode()
        connection.close()
        return found

    def decide(self, who: str, query: str, decision: str = "approve", **changes: str) -> int:
        browser = self.browser(who)
        _, _, page = browser.ask(f"/queries/{query}")
        form = Sent(page).values | {"decision": decision, "name": "Typed Name"}
        return browser.ask(f"/queries/{query}", form, **changes)[0]


@contextmanager
def provider():
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def behind(secret_key, tmp_path_factory):
    if NGINX is None:
        pytest.skip("nginx is not installed")
    root = tmp_path_factory.mktemp("behind")
    desk = Desk(secret_key, root / "ada", approvers=2, users=[ANN, BOB])
    secret = root / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    (root / "rado-secret.conf").write_text(f'proxy_set_header X-Rado-Proxy-Secret "{SECRET}";\n')
    self_signed(root)
    public, own = free_port(), free_port()
    arguments = ("console", "--config", str(desk.config), "--port", str(own), "--proxy-secret", str(secret))
    console = Forked(run_rado, (*arguments, "--behind", f"https://localhost:{public}"), root / "console.log")
    with provider() as signing:
        changes = {
            "listen 443 ssl;": f"listen 127.0.0.1:{public} ssl;",
            "console.example.org": "localhost",
            "/etc/nginx/": f"{root}/",
            "127.0.0.1:4180": f"127.0.0.1:{signing}",
            "127.0.0.1:8765": f"127.0.0.1:{own}",
            "pid /run/nginx.pid;": f"pid {root}/nginx.pid;",
            "access_log off;": "access_log off;\n" + "".join(f"{kind}_temp_path {root}/{kind};\n" for kind in FOLDERS),
        }
        text = (SAMPLES / "console.conf").read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        log = root / "console.log"
        wait_until(lambda: log.exists() and "sign on at" in log.read_text(), what="the console")
        with running("nginx.conf", text, root, public):
            yield Behind(desk, root, (public, own))
    console.kill()


@pytest.mark.more
def test_decisions_are_those_of_two_who_signed_on(behind):
    query = behind.desk.asked()
    status, _, page = behind.browser("ann").ask(f"/queries/{query}")
    assert status == 200
    assert "sign-on:ann@example.org" in page
    assert behind.decide("ann", query) == 303
    # The same person again is no second one.
    behind.decide("ann", query)
    assert behind.desk.decisions(query) == [f"approved by ann@example.org ({ANN})"]
    assert behind.decide("bob", query) == 303
    assert behind.desk.decisions(query)[1] == f"approved by bob@example.org ({BOB})"


@pytest.mark.more
def test_who_may_not_decide_is_told_so(behind):
    query = behind.desk.asked()
    assert behind.decide("eve", query) in {200, 400}
    assert behind.desk.decisions(query) == []
    # Nor does the user of this machine.
    refused = rado("party", "approve", query[:16], "--config", str(behind.desk.config), code=1)
    assert "is not among the users who decide" in refused["error"]["message"]


@pytest.mark.more
def test_who_is_not_signed_on_is_sent_to_sign_on(behind):
    status, found, _ = behind.browser("").ask("/pending")
    assert (status, found["Location"].partition("?")[0]) == (302, f"https://localhost:{behind.public}/oauth2/start")
    assert behind.browser("nobody").ask("/pending")[0] == 403


@pytest.mark.more
def test_a_header_that_is_forged_past_the_proxy_or_through_it_is_worth_nothing(behind):
    query = behind.desk.asked()
    for sent in ({}, {"X-Rado-Proxy-Secret": "0" * 64}, {"X-Rado-Proxy-Secret": ""}):
        status, text = behind.past_the_proxy(f"/queries/{query}", **{"X-Rado-User": "ann@example.org"} | sent)
        assert (status, text) == (403, "this console is reached through the organisation's sign-on only\n")
    # Through the proxy, what a browser sends is replaced.
    _, _, page = behind.browser("bob").ask(f"/queries/{query}", **{"X-Rado-User": "ann@example.org"})
    assert BOB in page
    assert ANN not in page.partition('id="decide"')[2]
    # A form of another site, and one with another person's token, decide nothing.
    assert behind.decide("ann", query, Origin="https://evil.example.org") == 403
    stolen = Sent(behind.browser("bob").ask(f"/queries/{query}")[2]).values
    assert CSRF_FIELD in stolen
    assert behind.browser("ann").ask(f"/queries/{query}", stolen | {"decision": "approve"})[0] == 403
    assert behind.desk.decisions(query) == []
