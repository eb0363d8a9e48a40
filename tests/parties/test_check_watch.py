"""The preflight's check of [watch]: the running node answers there, or a node that starts could."""

import socket
import threading

import pytest

from parties.config import PartyConfig
from parties.node import PartyNode
from radobase.local_status import unix_address
from radobase.logs import Log
from radobase.metrics import Reason
from radobase.watch_server import WatchServer
from tests.federation.processes import free_port
from tests.parties.check_world import run


def watch(federation, setting: str) -> PartyConfig:
    file = federation.member("ada").config
    file.write_text(f"{file.read_text()}\n[watch]\n{setting}\n")
    return PartyConfig.load(file)


def answering(settings, *reasons):
    return WatchServer(settings, reasons=lambda: reasons, samples=lambda: (), log=Log("test"))


def test_a_party_without_the_section_is_not_asked_about_it(offline):
    assert "watch" not in run(offline)


@pytest.mark.parametrize("kind", ["listen", "socket"])
def test_the_place_of_a_node_that_does_not_run_is_free_or_taken(offline, kind):
    place = f"127.0.0.1:{free_port()}" if kind == "listen" else "state/watch.sock"
    config = watch(offline, f'{kind} = "{place}"')
    for _ in range(2):
        found = run(offline)["watch"]
        assert (found.status, "is free" in found.detail) == ("ok", True), "the check leaves nothing there"
    with answering(config.watch):
        found = run(offline)["watch"]
        assert found.status == "failed"
        assert "another node answers" in found.detail
    with answering(config.watch, Reason.DATA_NOT_LOADED):
        found = run(offline)["watch"]
        assert (found.status, "DATA_NOT_LOADED" in found.detail) == ("ok", True)


def test_a_port_that_another_program_has_is_named(offline):
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def hang_up():
            while True:
                taken.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        port = taken.getsockname()[1]
        watch(offline, f'listen = "127.0.0.1:{port}"')
        found = run(offline)["watch"]
    assert found.status == "failed"
    assert f"127.0.0.1:{port}" in found.detail
    assert "Choose a free port" in found.fix


def test_a_place_that_cannot_be_a_socket_is_named(offline):
    config = watch(offline, 'socket = "state/nowhere/watch.sock"')
    assert "Make the directory" in run(offline)["watch"].fix
    config.watch.socket.parent.mkdir(parents=True)
    config.watch.socket.write_text("notes")
    found = run(offline)["watch"]
    assert (found.status, "is no socket" in found.detail) == ("failed", True)
    assert config.watch.socket.read_text() == "notes"
    config.watch.socket.unlink()
    # As a node that was killed leaves it.
    with socket.socket(socket.AF_UNIX) as left, unix_address(config.watch.socket) as address:
        left.bind(address)
    assert run(offline)["watch"].status == "ok"


def test_the_running_node_is_asked(offline):
    config = watch(offline, f'listen = "127.0.0.1:{free_port()}"')
    with PartyNode(config):
        found = run(offline)["watch"]
        assert found.status == "ok"
        assert f"the node answers at {config.watch.listen}" in found.detail
    # It was started before the section was there.
    with PartyNode(config.model_copy(update={"watch": None})):
        found = run(offline)["watch"]
        assert (found.status, "does not answer" in found.detail) == ("failed", True)
        assert "Restart the node" in found.fix


def test_without_the_extra_the_check_says_what_to_install(offline, monkeypatch):
    watch(offline, f'listen = "127.0.0.1:{free_port()}"')
    monkeypatch.setattr("parties.preflight.importlib.util.find_spec", lambda _: None)
    assert "deploy/install.py metrics" in run(offline)["watch"].fix
