"""Metrics and health for callers of this machine: who may read, what is answered, and what a hostile caller can do."""

import http.client
import json
import socket
import stat

import pytest

from dpcore.errors import ConfigurationError
from radobase import local_status, watch_server
from radobase.configuration import Configuration
from radobase.local_status import MOST_CALLERS, NotRunningError, fetch
from radobase.logs import Log
from radobase.metrics import BUILD, CERTIFICATE_EXPIRY, Counts, Reason, Sample, WatchSettings
from radobase.watch_server import WatchServer, ask_ready
from radofed.cli.entry_point import run
from tests.federation.processes import free_port
from tests.radobase.scraping import LIMIT_BYTES, ready, scrape
from tests.waiting import HANG_S, wait_until


class Node:
    """What a server asks for, as a test sets it."""

    def __init__(self):
        self.found: list[Reason] = []
        self.fails = False
        self.reads = 0

    def reasons(self):
        if self.fails:
            raise RuntimeError("a secret of the node")
        return self.found

    def samples(self):
        self.reads += 1
        if self.fails:
            raise RuntimeError("a secret of the node")
        yield Sample(CERTIFICATE_EXPIRY, 1_800_000_000)


@pytest.fixture(autouse=True)
def quick_end(monkeypatch):
    monkeypatch.setattr(local_status, "LOOKS_EVERY_S", 0.02)


@pytest.fixture
def node():
    return Node()


@pytest.fixture
def start(node, monkeypatch):
    monkeypatch.setattr(watch_server, "KEPT_FOR_S", -1.0)
    running = []

    def started(settings=None):
        settings = settings or WatchSettings(listen=f"127.0.0.1:{free_port()}")
        running.append(WatchServer(settings, reasons=node.reasons, samples=node.samples, log=Log("test")))
        running[-1].__enter__()
        return settings.place

    yield started
    for server in running:
        server.__exit__(None, None, None)


def status_of(place, path="/healthz", **headers):
    connection = http.client.HTTPConnection(*place, timeout=HANG_S)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read()


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:9464", "192.168.1.5:9464", "[::]:9464", "rado.example.org:9464", "localhost:9464", "9464"]
)
def test_only_loopback_addresses_are_served(listen, tmp_path):
    class Whole(Configuration):
        watch: WatchSettings

    file = tmp_path / "party.toml"
    file.write_text(f'[watch]\nlisten = "{listen}"\n')
    with pytest.raises(ConfigurationError, match=r"watch\.listen.*(only this machine|host:port)"):
        Whole.load(file)


@pytest.mark.parametrize("keys", [{}, {"listen": "127.0.0.1:9464", "socket": "watch.sock"}])
def test_one_place_is_given(keys):
    with pytest.raises(ValueError, match="either `listen` or `socket`"):
        WatchSettings(**keys)


def test_a_ready_node_says_so_and_its_reasons_have_codes_and_sentences(node, start):
    place = start()
    assert status_of(place) == (200, b"alive\n")
    assert ready(place) == (200, [])
    node.found = [Reason.PAUSED, Reason.SPOOL_FULL]
    assert ready(place) == (503, ["PAUSED", "SPOOL_FULL"])
    assert status_of(place)[0] == 200
    found = scrape(place)
    assert found("rado_ready") == 0
    assert found(CERTIFICATE_EXPIRY.name) == 1_800_000_000
    codes = {labels for labels, value in found.series("rado_not_ready").items() if value}
    assert codes == {frozenset({("reason", "PAUSED")}), frozenset({("reason", "SPOOL_FULL")})}
    assert len(found.series("rado_not_ready")) == len(Reason)
    assert status_of(place, "/")[0] == status_of(place, "/metrics/")[0] == 404


def test_every_reason_has_a_sentence():
    assert len({reason.sentence for reason in Reason}) == len(Reason)
    assert all(reason.value == reason.name for reason in Reason)


def test_a_node_that_cannot_read_its_state_is_not_ready_and_says_no_more(node, start):
    place = start()
    node.fails = True
    assert ready(place) == (503, ["STATE_UNREADABLE"])
    status, content = status_of(place, "/metrics")
    assert status == 200
    assert b"secret" not in content
    assert b'rado_not_ready{reason="STATE_UNREADABLE"} 1.0' in content


def test_a_state_is_read_once_for_many_callers(node, start, monkeypatch):
    place = start()
    monkeypatch.setattr(watch_server, "KEPT_FOR_S", 1e9)
    for _ in range(5):
        assert scrape(place).up
    assert node.reads == 1


def test_monitoring_takes_no_command(node, start):
    place = start()
    for path in ("/readyz", "/drain"):
        assert fetch(place, path, limit_bytes=1 << 10, method="POST")[0] == 405


@pytest.mark.parametrize("host", ["evil.example.org", "evil.example.org:9464", "", "127.0.0.1.example.org:9464"])
def test_a_browser_that_another_site_sends_here_is_refused(start, host):
    """DNS rebinding: the name in Host is the other site's."""
    place = start()
    status, content = status_of(place, "/metrics", Host=host)
    assert status == 421
    assert b"rado_" not in content


@pytest.mark.parametrize("host", ["127.0.0.1:9464", "localhost:9464", "[::1]:9464"])
def test_tools_of_this_machine_are_not(start, host):
    assert status_of(start(), "/metrics", Host=host)[0] == 200


def test_a_unix_socket_is_its_user_s_alone_and_what_a_killed_node_left_is_replaced(node, start, tmp_path):
    # Longer than the 107 bytes of an address.
    directory = tmp_path / ("d" * 100)
    directory.mkdir()
    path = directory / "watch.sock"
    with socket.socket(socket.AF_UNIX) as left, local_status.unix_address(path) as address:
        left.bind(address)
    assert start(WatchSettings(socket=path)) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ready(path) == (200, [])


def test_a_socket_at_which_a_node_answers_stays_its_own(start, tmp_path):
    path = start(WatchSettings(socket=tmp_path / "watch.sock"))
    with pytest.raises(ConfigurationError, match="another node serves metrics"):
        start(WatchSettings(socket=path))
    assert ready(path) == (200, [])


def test_a_place_that_is_taken_is_an_error_and_no_file_is_removed(start, tmp_path):
    _, port = start()
    with pytest.raises(ConfigurationError, match=f"cannot serve metrics on 127.0.0.1:{port}"):
        start(WatchSettings(listen=f"127.0.0.1:{port}"))
    file = tmp_path / "watch.sock"
    file.write_text("mine")
    with pytest.raises(ConfigurationError, match="cannot serve metrics"):
        start(WatchSettings(socket=file))
    assert file.read_text() == "mine"


def test_further_callers_are_cut_off_while_too_many_send_nothing_and_slow_ones_are_ended(start, monkeypatch):
    # What a caller that sends a byte now and then does not reach.
    monkeypatch.setattr(local_status._Handler, "timeout", None)
    place = start()
    slow = [socket.create_connection(place, 60) for _ in range(MOST_CALLERS)]
    for caller in slow:
        caller.sendall(b"GET /healthz HTTP/1.1\r\n")

    def is_cut():
        with socket.create_connection(place, 60) as further:
            try:
                further.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                return further.recv(100) == b""
            except ConnectionError:
                return True

    wait_until(is_cut, what="a caller too many")
    monkeypatch.setattr(local_status, "LONGEST_CALL_S", 0.0)
    assert all(_ends(caller) for caller in slow)
    monkeypatch.undo()
    wait_until(lambda: not is_cut(), what="room for callers")
    assert status_of(place)[0] == 200


def _ends(caller):
    with caller:
        try:
            while caller.recv(1000):
                pass
        except ConnectionError:
            pass
        return True


def test_a_sample_has_its_metric_s_labels():
    with pytest.raises(AssertionError, match="rado_build_info"):
        Sample(BUILD, 1, {"version": "1"})


def test_counts_grow():
    counts = Counts()
    counts.add("a")
    counts.add("a", 2)
    assert (counts.get("a"), counts.get("b")) == (3, 0)


class Odd(local_status.LocalServer):
    """Answers to everything with the same content."""

    content = b""

    def answer(self, path, host):
        return local_status.HttpAnswer(self.content)


@pytest.mark.parametrize(
    "content",
    [
        b"alive",
        b"[]",
        b"{}",
        b'{"ready": 1, "reasons": []}',
        b'{"ready": false, "reasons": []}',
        b'{"ready": true}',
        b'{"ready": false, "reasons": ["PAUSED"]}',
        b'{"ready": false, "reasons": [{"code": "PAUSED"}]}',
        b'{"ready": true, "reasons": [{"code": "PAUSED", "sentence": "it is"}]}',
    ],
)
def test_an_answer_that_is_no_node_s_is_no_health(content):
    settings = WatchSettings(listen=f"127.0.0.1:{free_port()}")
    with Odd(settings.place) as odd:
        odd.content = content
        assert fetch(settings.place, "/readyz", limit_bytes=LIMIT_BYTES) == (200, content)
        with pytest.raises(NotRunningError, match="a node of radofed listens there"):
            ask_ready(settings)
    with pytest.raises(NotRunningError, match="no node answers"):
        ask_ready(settings)


def health(config, capsys):
    code = run(["health", "--config", str(config), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_health_needs_a_section_of_a_node_with_a_server(capsys, tmp_path):
    for content in ("", "policy = 1", 'paillier_key = "key"'):
        (tmp_path / "node.toml").write_text(content)
        code, said = health(tmp_path / "node.toml", capsys)
        assert (code, said["status"]) == (4, "error")
    code, _ = health(tmp_path / "absent.toml", capsys)
    assert code == 4
