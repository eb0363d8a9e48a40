"""A proxy of the environment: the check and the node go through it alike, with mutual TLS, and errors name it."""

import socket
import threading
from contextlib import suppress

import pytest

from parties.client import CoordinatorClient, probe
from parties.config import PartyConfig
from tests.parties.check_world import run
from tests.waiting import HANG_S
from wire.errors import ConnectionLostError
from wire.transport import HttpProxy, proxy_of


class ConnectProxy:
    """A small HTTP proxy on loopback, which tunnels by CONNECT. asked: targets. status: what it answers."""

    def __init__(self, status="200 Connection established"):
        self.asked, self.headers, self.status, self._ends = [], [], status, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(inner,), daemon=True).start()

    def _serve(self, inner):
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += inner.recv(1) or b"\r\n\r\n"
        first, *headers = request.decode().splitlines()
        self.asked.append(first.split()[1])
        self.headers.append(headers)
        inner.sendall(f"HTTP/1.1 {self.status}\r\n\r\n".encode())
        if not self.status.startswith("200"):
            inner.close()
            return
        host, _, port = self.asked[-1].rpartition(":")
        outer = socket.create_connection((host, int(port)))
        self._ends += [inner, outer]
        for source, sink in ((inner, outer), (outer, inner)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    @staticmethod
    def _pump(source, sink):
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        for each in (self._listener, *self._ends):
            each.close()


@pytest.fixture
def proxy():
    found = ConnectProxy()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def config(served):
    return PartyConfig.load(served.member("ada").config)


def both_ways(config):
    """What the probe and the node's client say of the connection."""
    served = probe(config.coordinator, config.tls.files, timeout_s=HANG_S)
    with CoordinatorClient(config.coordinator, config.tls.files, give_up_after_s=HANG_S) as client:
        return served.issued and client.is_serving()


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_mutual_tls_goes_through_a_tunnel(config, proxy, variable, monkeypatch):
    monkeypatch.setenv(variable, proxy.address.replace("//", "//ada:pass%20word@"))
    assert both_ways(config)
    assert proxy.asked == [config.coordinator] * 2, "the probe, then gRPC"
    for headers in proxy.headers:
        assert "Proxy-Authorization: Basic YWRhOnBhc3Mgd29yZA==" in headers


@pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.0/8", "example.org, 127.0.0.1"])
def test_no_proxy_is_followed_by_both(config, proxy, entry, monkeypatch):
    monkeypatch.setenv("https_proxy", proxy.address)
    monkeypatch.setenv("no_proxy", entry)
    assert both_ways(config)
    assert proxy.asked == []


@pytest.mark.parametrize("value", ["", "https://127.0.0.1:9", "socks5://127.0.0.1:9", "127.0.0.1:9"])
def test_what_is_no_http_proxy_is_ignored_by_both(config, value, monkeypatch):
    monkeypatch.setenv("https_proxy", value)
    assert both_ways(config)


def test_letters_and_order_are_those_of_grpc(config, proxy, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert both_ways(config)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("grpc_proxy", proxy.address)
    assert both_ways(config)
    assert len(proxy.asked) == 2


def test_the_check_and_the_errors_name_the_variable(served, config, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    found = run(served)
    assert found["coordinator"].status == "failed"
    assert "127.0.0.1:9, which https_proxy in the environment names" in found["coordinator"].detail
    assert "add 127.0.0.1 to no_proxy" in found["coordinator"].detail
    assert found["health"].status == "not run"
    client = CoordinatorClient(config.coordinator, config.tls.files, give_up_after_s=0.0)
    with client, pytest.raises(ConnectionLostError, match="which https_proxy in the environment names"):
        client.is_serving()


def test_a_proxy_that_refuses_is_quoted(config, monkeypatch):
    refusing = ConnectProxy("407 Proxy Authentication Required")
    monkeypatch.setenv("https_proxy", refusing.address)
    with pytest.raises(ConnectionLostError, match=r"the proxy answered 'HTTP/1[.]1 407 Proxy"):
        probe(config.coordinator, config.tls.files, timeout_s=HANG_S)
    refusing.close()


def test_the_check_says_that_a_proxy_is_on_the_way(served, proxy, monkeypatch):
    monkeypatch.setenv("https_proxy", proxy.address)
    found = run(served)
    assert found["health"].status == "ok"
    assert found["coordinator"].detail.endswith(
        f"through the proxy {proxy.address.removeprefix('http://')} of https_proxy"
    )


@pytest.mark.parametrize(
    ("target", "no_proxy", "direct"),
    [
        ("rado.example.org:7443", "example.org", True),
        ("rado.example.org:7443", ".EXAMPLE.org", True),
        ("rado.example.org:7443", "example.com,rado", False),
        ("rado.example.org:7443", "*", False),
        ("rado.example.org:7443", "10.0.0.0/8", False),
        ("10.1.2.3:7443", "10.0.0.0/8", True),
        ("10.1.2.3:7443", "10.1.2.4", False),
        ("[::1]:7443", "::1", True),
    ],
)
def test_entries_of_no_proxy(target, no_proxy, direct):
    found = proxy_of(target, {"https_proxy": "http://p:3128", "no_proxy": no_proxy})
    assert found == (None if direct else HttpProxy("https_proxy", "p", 3128))
