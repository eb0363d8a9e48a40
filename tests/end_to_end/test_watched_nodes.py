"""Processes that serve metrics and health: over HTTP on loopback, over a Unix socket, and to `rado health`."""

import pytest

from coordinator.local_control import METRICS as COORDINATOR_METRICS
from parties.local_control import METRICS as PARTY_METRICS
from tests.federation.processes import ProcessFederation, free_port, rado
from tests.parties.test_node import ROWS, SCHEMA
from tests.radobase.scraping import ready, scrape
from tests.waiting import wait_until

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("watched")
    with ProcessFederation(root, parties=dict.fromkeys(("ada", "bo"), ROWS), schema=SCHEMA) as made:
        made.port = free_port()
        sections = {"ada": f'listen = "127.0.0.1:{made.port}"', "coordinator": 'socket = "state/watch.sock"'}
        for name, place in sections.items():
            with made.member(name).config.open("a") as config:
                config.write(f"\n[watch]\n{place}\n")
        made.start("ada")
        made.party = ("127.0.0.1", made.port)
        made.coordinator = made.directory("coordinator") / "state/watch.sock"
        wait_until(lambda: scrape(made.party).up, what="the party")
        yield made


def health(federation, name, code):
    found = rado("health", "--config", str(federation.member(name).config), code=code)
    return [reason["code"] for reason in found["data"]["reasons"]] if code in (0, 1) else found["error"]["message"]


def test_a_party_is_ready_once_its_coordinator_and_a_witness_answer(federation):
    alone = ["NO_ROSTER", "COORDINATOR_UNREACHABLE", "WAITING_FOR_WITNESSES"]
    wait_until(lambda: ready(federation.party) == (503, alone), what="the party's own state")
    assert health(federation, "ada", code=1) == alone
    assert "no node answers" in health(federation, "coordinator", code=2)
    federation.start_all("coordinator", "bo")
    wait_until(lambda: scrape(federation.coordinator).up and ready(federation.coordinator)[0] == 200, what="it")
    wait_until(lambda: ready(federation.party) == (200, []), what="the party")
    assert health(federation, "ada", code=0) == health(federation, "coordinator", code=0) == []
    assert "has no section [watch]" in health(federation, "bo", code=4)
    learner = rado("health", "--config", str(federation.learner.config), code=4)
    assert "has no section [watch]" in learner["error"]["message"]


def test_every_documented_metric_is_exported_and_no_other(federation):
    wait_until(lambda: ready(federation.party) == (200, []), what="the party")
    places = {federation.party: PARTY_METRICS, federation.coordinator: COORDINATOR_METRICS}
    for place, metrics in places.items():
        found = scrape(place)
        # No study has a budget here: tests/radobase/test_alerts.py.
        assert found.names == {metric.name for metric in metrics} - {"rado_study_spent_ratio"}
        for metric in metrics:
            assert all({name for name, _ in labels} == set(metric.labels) for labels in found.series(metric.name))
    # A scrape may be a second old: what it says was true before the parties came.
    wait_until(lambda: scrape(federation.coordinator)("rado_members_seen", role="party") == 2, what="both parties")
    assert scrape(federation.party)("rado_coordinator_contact_age_seconds") < 60


def test_a_person_s_pause_is_a_reason_until_its_end(federation):
    config = str(federation.member("ada").config)
    rado("party", "pause", "--config", config, "--name", "Ann")
    wait_until(lambda: ready(federation.party) == (503, ["PAUSED"]), what="the pause")
    assert rado("party", "status", "--config", config)["data"]["not_ready"] == ["PAUSED"]
    rado("party", "resume", "--config", config, "--name", "Ann")
    wait_until(lambda: ready(federation.party) == (200, []), what="its end")


def test_a_node_that_ends_takes_its_socket_with_it(federation):
    assert federation.coordinator.exists()
    assert federation.stop("coordinator") == 0
    assert not federation.coordinator.exists()
    assert "no node answers" in health(federation, "coordinator", code=2)
