"""The preflight's check of what the running node holds: the digest, and whether the files have other data by now."""

import time
from pathlib import Path

import pytest

from parties.config import PartyConfig, settings_of
from parties.node import PartyNode
from radobase.metrics import Reason
from tests.parties.check_world import replace_in, run
from tests.parties.test_node import ROWS
from tests.waiting import wait_until
from wire.envelopes import Envelope


@pytest.fixture
def config(offline):
    return PartyConfig.load(offline.member("ada").config)


def test_a_party_without_a_node_has_nothing_to_compare(offline, config):
    found = run(offline)["held-data"]
    assert (found.status, "no node runs" in found.detail) == ("ok", True)
    assert not (config.state_directory / "secret").exists(), "the check makes no secret"


def test_the_digest_of_the_running_node_and_of_the_files(offline, config):
    data, schema = (offline.directory("ada") / name for name in ("data.csv", "schema.toml"))
    with PartyNode(config) as node:
        first = node.data.status()["digest"][:16]
        found = run(offline)["held-data"]
        assert (found.status, "3 rows, loaded 20" in found.detail) == ("ok", True)
        assert found.detail.endswith(f"digest {first}: those of the files")

        data.write_text(ROWS.replace("20,", "21,", 1))
        found = run(offline)["held-data"]
        assert (found.status, "rado party reload" in found.fix) == ("advice", True)
        assert f"digest {first}; the files have digest" in found.detail
        node.data.ask()
        wait_until(lambda: node.data.status()["digest"][:16] != first, what="the reload")
        second = node.data.status()["digest"][:16]
        assert f"the files have digest {second}" in found.detail, "the check computes what the node will say"
        assert run(offline)["held-data"].status == "ok"

        # Another schema encodes the same table as other rows.
        before = schema.read_text()
        schema.write_text(before.replace("100", "120"))
        assert schema.read_text() != before
        assert "rado party reload" in run(offline)["held-data"].fix


def test_files_that_cannot_be_read_leave_the_digest_and_the_reason_of_the_last_reload(offline, config):
    data = offline.directory("ada") / "data.csv"
    with PartyNode(config) as node:
        digest = node.data.status()["digest"][:16]
        data.write_text(f"{ROWS}50,perhaps,no\n")
        found = run(offline)
        assert (found["data"].status, found["held-data"].status) == ("failed", "ok")
        assert f"digest {digest}; the files could not be compared" in found["held-data"].detail
        node.data.ask()
        wait_until(lambda: node.data.status()["refused"], what="the reload")
        data.write_text(ROWS.replace("20,", "21,", 1))
        assert "The last reload failed" in run(offline)["held-data"].fix


def test_a_node_that_does_not_run_is_said(offline):
    found = run(offline)["node"]
    assert (found.status, found.detail) == ("ok", "no node runs")


def test_the_running_node_is_asked_whether_it_is_ready_and_with_which_configuration(offline, config):
    """Its files alone say nothing about a full disk, or about an address that was edited since."""
    toml, policy = (offline.directory("ada") / name for name in ("party.toml", "policy.toml"))
    with PartyNode(config) as node:
        found = run(offline)["node"]
        assert (found.status, "and is not ready" in found.detail) == ("failed", True)
        assert "WAITING_FOR_WITNESSES: too few accepted members" in found.detail
        node._contact_unix_s = time.time()
        node._rosters.offer(Envelope.from_bytes((offline.made.directory / "federation/roster.signed").read_bytes()))
        found = run(offline)["node"]
        assert (found.status, Reason.WAITING_FOR_WITNESSES.sentence in found.detail) == ("advice", True)
        node._guard._challenged["bo"] = time.monotonic(), time.time()
        found = run(offline)["node"]
        assert found.status == "ok"
        assert "runs and is ready, with this configuration and this policy" in found.detail
        node._watch._config = config.model_copy(update={"spool_bytes": 500_000})
        assert "SPOOL_FULL" in run(offline)["node"].detail
        node._watch._config = config

        policy.write_text(policy.read_text() + "\n[history]\ndays = 30\n")
        found = run(offline)["node"]
        assert (found.status, "rado party reload" in found.fix) == ("advice", True)
        node.policy.ask()
        assert run(offline)["node"].status == "ok"

        replace_in(toml, "spool_bytes = ", "spool_bytes = 20_000_000 #")
        replace_in(toml, "coordinator = ", 'coordinator = "elsewhere.example:7443" # ')
        found = run(offline)["node"]
        assert found.status == "failed"
        assert "runs with another coordinator, spool_bytes than the file has" in found.detail
        assert "Restart the node" in found.fix


def test_paths_are_the_same_from_another_directory(offline, config, monkeypatch):
    directory = offline.directory("ada")
    monkeypatch.chdir(directory)
    assert settings_of(PartyConfig.load(Path("party.toml"))) == settings_of(config)
