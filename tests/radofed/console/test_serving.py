"""`rado console` in a process: its link in a browser, how it ends, and how it does not start."""

import re
import signal
import socket

import pytest

from radofed.node_config import PolicyChoices
from radofed.provision import provision
from tests.federation.processes import Forked, rado, run_rado
from tests.radofed.console.serving import LINK
from tests.waiting import HANG_S, wait_until


@pytest.fixture(scope="module")
def members(tmp_path_factory):
    made = provision(
        tmp_path_factory.mktemp("console") / "federation",
        federation="clinics",
        coordinator_address="127.0.0.1:7443",
        parties=["north", "south"],
        policy=PolicyChoices(),
        rows_at_least={"north": 10, "south": 10},
    )
    return {member.name: member for member in made.members}


@pytest.mark.parametrize("name", ["north", "coordinator", "learner"])
def test_it_shows_any_role_and_ends_on_a_signal(members, browser, tmp_path, name):
    log = tmp_path / "log"
    process = Forked(run_rado, ("console", "--config", str(members[name].config)), log)
    try:
        link = wait_until(lambda: log.exists() and LINK.search(log.read_text()), what="the link")[0]
        with browser.new_context() as context:
            page = context.new_page()
            page.goto(link)
            # The token is not in the address bar any more.
            assert "token" not in page.url
            assert re.search(rf"{name}, (party|coordinator|learner) of clinics", page.inner_text("header"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG_S) == 0
    finally:
        process.kill()
    # Requests, tokens in them, are not logged.
    assert len(LINK.findall(log.read_text())) == 1


@pytest.mark.more
def test_a_port_that_is_taken(members):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = rado("console", "--config", str(members["north"].config), "--port", str(port), code=4)
    assert "give another --port" in failed["error"]["message"]


@pytest.mark.more
def test_a_file_that_is_no_node_s_configuration(members):
    policy = members["north"].directory / "policy.toml"
    assert "give a node's configuration" in rado("console", "--config", str(policy), code=4)["error"]["message"]
