"""The coordinator moves to another address: members follow what the operator signed, and a running query goes on."""

import shutil
import signal

import pytest

from tests.end_to_end.test_joining import Home
from tests.federation.processes import Forked, free_port, rado, run_rado
from tests.waiting import HANG_S, wait_until

PARTIES = ("north", "south", "west", "east")
pytestmark = pytest.mark.more


@pytest.fixture
def home(tmp_path):
    found = Home(tmp_path)
    requests = [
        found.request("hub", "coordinator", "--address", found.address),
        *(found.request(name, "party", "--rows", "300") for name in PARTIES),
        found.request("university", "learner"),
    ]
    signed = found.sign(*requests)
    for seed, (each, installed) in enumerate(zip(signed["data"]["admissions"], found.install(signed), strict=True)):
        if each["role"] == "party":
            found.prepare(each["name"], installed, seed)
    rado("learner", "keygen", "--config", str(found.config("university")), "--bits", "2048")
    found.start("hub", "listening")
    for name in PARTIES:
        found.accept("university", name, found.digits_of(name))
        found.start(name)
    yield found
    for node in found.nodes.values():
        node.kill()


def log(home: Home, name: str) -> str:
    return (home.root / f"{name}.log").read_text()


def stop(home: Home, name: str) -> None:
    home.nodes[name].send_signal(signal.SIGTERM)
    home.nodes.pop(name).wait(HANG_S)


def test_members_follow_and_a_running_query_survives(home):
    assert set(home.learn(cohort=4)) == {*PARTIES}
    files = {file: file.read_bytes() for name in (*PARTIES, "university") for file in (home.root / name).glob("*.toml")}
    # One party is away while the notice is given out.
    stop(home, "south")
    new = f"127.0.0.1:{free_port()}"
    signed = rado("provision", "move", str(home.operator), new)
    assert (signed["data"]["former_address"], signed["data"]["address"]) == (home.address, new)
    home.install(signed, directory="hub")
    wait_until(lambda: '"version": 2' in log(home, "hub"), what="the new roster")
    # Every member fetches it, the parties because a query needs it. The coordinator is still at the old address.
    assert set(home.learn("--answer-within-s", "5", cohort=3)) == {"north", "west", "east"}

    # A query waits half a minute for the party that is away. Meanwhile the coordinator moves.
    asked = ("--design", "moments", "--epsilon", "1", "--cohort-min", "3", "--answer-within-s", "30", "--ask-again")
    config = str(home.config("university"))
    command = ("learner", "query", "--config", config, "--schema", str(home.root / "schema.toml"), *asked)
    accepted = log(home, "north").count('"accepted"')
    asking = Forked(run_rado, command, home.root / "asking.log")
    wait_until(lambda: log(home, "north").count('"accepted"') > accepted, what="a query that waits")
    asking.kill()
    query_id = rado("learner", "history", "--config", config)["data"]["queries"][0]["query_id"]
    stop(home, "hub")
    shutil.move(home.root / "hub", home.root / "moved")
    place = home.root / "moved" / "coordinator.toml"
    place.write_text(place.read_text().replace(home.address.rpartition(":")[2], new.rpartition(":")[2]))
    home.start("moved", "listening")
    found = rado("learner", "fetch", query_id, "--config", config)["data"]
    assert set(found["rows_by_party"]) == {"north", "west", "east"}
    for name in ("north", "east"):
        assert f'"address": "{new}"' in log(home, name)
    assert all(file.read_bytes() == content for file, content in files.items())
    checked = rado("party", "check", "--config", str(home.config("west")))["data"]["findings"]
    assert f"{new} is reachable, where it moved from {home.address}" in [each["detail"] for each in checked]

    # A party that missed the notice edits one line.
    home.start("south")
    wait_until(lambda: "no work" in log(home, "south"), what="a party that finds nobody")
    stop(home, "south")
    own = home.config("south")
    own.write_text(own.read_text().replace(home.address, new))
    home.start("south")
    assert set(home.learn(cohort=4)) == {*PARTIES}
