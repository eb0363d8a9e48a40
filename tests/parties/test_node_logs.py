"""Nodes write only their log to standard error, no output of gRPC, also if TLS fails.

gRPC reads once what it may print, as it is loaded: these nodes are started as a shell starts them.
"""

import datetime as dt
import json
import socket

import pytest

from radofed.certificates import Authority
from tests.parties.test_check import TlsServer, certificate_files
from tests.waiting import HANG_S, wait_until


def events(federation, name):
    lines = federation.log(name).splitlines()
    wrong = [line for line in lines if not line.startswith("{")]
    assert wrong == []
    return [json.loads(line)["event"] for line in lines]


@pytest.mark.more
def test_a_party_that_rejects_its_coordinator_logs_only_json(offline, tmp_path):
    offline.fresh = True
    now = dt.datetime.now(dt.UTC)
    files = certificate_files(tmp_path, Authority.create("snoop", now), "coordinator", ("127.0.0.1",), now)
    with TlsServer(*files, int(offline.address.rpartition(":")[2])):
        offline.start("ada")
        wait_until(lambda: offline.log("ada").count('"no work"') >= 2, what="two calls that failed")
        offline.stop("ada")
    assert "no work" in events(offline, "ada")


@pytest.mark.more
def test_a_coordinator_that_is_called_without_tls_logs_only_json(offline):
    offline.fresh = True
    offline.start("coordinator")
    wait_until(lambda: '"listening"' in offline.log("coordinator"), what="the coordinator")
    host, _, port = offline.address.rpartition(":")
    for _ in range(3):
        with socket.create_connection((host, int(port)), HANG_S) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            while plain.recv(1000):
                pass
    offline.stop("coordinator")
    assert events(offline, "coordinator")[-1] == "stopped"
