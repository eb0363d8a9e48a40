"""Members reach the coordinator through nginx and HAProxy that pass TLS on; one that opens TLS is refused and named."""

import datetime as dt
import re

import pytest

from learner.client import Coordinator
from learner.config import LearnerConfig
from radofed.certificates import Authority
from tests.deploy.proxies import SAMPLES, needs_haproxy, needs_nginx, opens_tls, running, sample
from tests.federation.processes import ProcessFederation, free_port, rado
from tests.parties.test_check import certificate_files
from tests.parties.test_node import ROWS, SCHEMA
from tests.waiting import wait_until
from wire.errors import ConnectionLostError
from wire.transport import CHANNEL_OPTIONS

BOTH = [pytest.param("nginx.conf", marks=needs_nginx), pytest.param("haproxy.cfg", marks=needs_haproxy)]
OPENED = "a proxy on the way opens TLS; have it pass this address through"


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("proxied")
    with ProcessFederation(root, parties=dict.fromkeys(("ada", "bo"), ROWS), schema=SCHEMA) as made:
        made.start_all("coordinator", "bo")
        wait_until(lambda: '"roster accepted"' in made.log("bo"), what="the coordinator")
        yield made


@pytest.fixture
def port(federation):
    """A port that ada and the learner dial in place of the coordinator's."""
    found, members = free_port(), [federation.member("ada"), federation.learner]
    before = {member.config: member.config.read_text() for member in members}
    for config, text in before.items():
        config.write_text(text.replace(federation.address, f"127.0.0.1:{found}"))
    yield found
    for config, text in before.items():
        config.write_text(text)


def findings(federation, code):
    found = rado("party", "check", "--config", str(federation.member("ada").config), code=code)["data"]["findings"]
    return {each["name"]: each for each in found}


def ada_s_log_of(federation, event: str) -> str:
    federation.start("ada")
    try:
        wait_until(lambda: f'"{event}"' in federation.log("ada"), what=f"{event}: {federation.log('ada')}")
        return federation.log("ada")
    finally:
        federation.stop("ada")
        (federation.root / "ada.log").unlink()


@pytest.mark.parametrize("name", BOTH)
def test_a_party_and_a_learner_call_through_a_proxy_that_passes_tls_on(federation, tmp_path, port, name):
    with running(name, sample(name, port=port, target=federation.address), tmp_path, port):
        found = findings(federation, 0)
        assert {found[step]["status"] for step in ("coordinator", "tls", "health", "roster", "clock")} == {"ok"}
        # The other party answers this one, so calls wait at the coordinator in both directions.
        ada_s_log_of(federation, "ledger witnessed")
        assert rado("learner", "list", "--config", str(federation.learner.config))["data"]["queries"] == []


def refusals(federation) -> list[str]:
    """What the party's node logs, and what the learner raises."""
    config = LearnerConfig.load(federation.learner.config)
    with (
        Coordinator(config.coordinator, config.tls.files, give_up_after_s=0.0) as coordinator,
        pytest.raises(ConnectionLostError) as refused,
    ):
        coordinator.fetch_roster()
    return [str(refused.value), ada_s_log_of(federation, "no work")]


@needs_nginx
def test_a_proxy_that_opens_tls_with_its_own_certificate_is_refused(federation, tmp_path, port):
    now = dt.datetime.now(dt.UTC)
    files = certificate_files(tmp_path, Authority.create("snoop", now), "coordinator", ("127.0.0.1",), now)
    with running("nginx.conf", opens_tls(port, federation.address, *files), tmp_path, port):
        tls = findings(federation, 1)["tls"]
        assert tls["status"] == "failed"
        assert OPENED in tls["detail"]
        for said in refusals(federation):
            assert "CERTIFICATE_VERIFY_FAILED" in said
            assert OPENED in said


@needs_nginx
def test_a_proxy_that_opens_tls_with_the_coordinator_s_own_key_is_refused(federation, tmp_path, port, monkeypatch):
    """It has no member's certificate to show to the coordinator."""
    monkeypatch.setattr("parties.preflight.PATIENCE_S", 3.0)
    place = federation.directory("coordinator")
    text = opens_tls(port, federation.address, place / "certificate.pem", place / "tls.key")
    with running("nginx.conf", text, tmp_path, port):
        health = findings(federation, 1)["health"]
        assert health["status"] == "failed"
        for said in (health["detail"], *refusals(federation)):
            assert "502" in said
            assert OPENED in said


def test_a_silent_connection_outlives_the_members_pings():
    ping_s = dict(CHANNEL_OPTIONS)["grpc.keepalive_time_ms"] / 1000
    waits = [
        re.findall(r"(?:proxy_timeout|timeout \w+) (\d+)m", path.read_text())
        for path in SAMPLES.iterdir()
        if path.stem != "console"
    ]
    assert all(len(found) >= 1 and all(int(minutes) * 60 >= 3 * ping_s for minutes in found) for found in waits)
