"""A party's evidence: a crate that others can read, of exactly what was answered, and none over a damaged history."""

import base64
import json
import shutil
import sqlite3
import stat
import time

import pytest

from parties.approval.decisions import Decision, Decisions, Person
from radofed.cli.entry_point import run
from tests.crates.reading import Received
from tests.federation.party import FEDERATION
from tests.parties.report.report_world import HTML, ada_at, answer, statistic, wards, without_noise
from tests.wire.every_query import STUDY
from wire.envelopes import Envelope, MessageType, key_id
from wire.features import Feature
from wire.status import PartyState

pytestmark = pytest.mark.usefixtures("small_comb")

OF_STUDY = {"study": STUDY, "features": (Feature.BASE.value, Feature.STUDY.value)}
EPSILON = 0.0622
"""Of one statistic of this world."""
LEDGER = ("ledger.sqlite", "ledger.sqlite.head")


class Filing:
    """A party that answers, and files."""

    def __init__(self, world, root, **changes) -> None:
        self.world, self.root, self.directory = world, root, root / "ada"
        self.directory.mkdir()
        self.ada = ada_at(world, self.directory, **changes)
        self.crate = root / "evidence.zip"

    def file(self, *more: str) -> int:
        config = str(self.directory / "party.toml")
        return run(["party", "report", "--config", config, "--from", "2020-01-01", "--crate", str(self.crate), *more])

    def change(self, statement: str, *values, file: str = "history.sqlite") -> None:
        """Change a database as a person with an editor could."""
        with sqlite3.connect(self.directory / file) as connection:
            connection.execute(statement, values)
        connection.close()

    def close(self) -> None:
        self.ada.history.database.close()
        self.ada.ledger.database.close()


@pytest.fixture
def filing(world, tmp_path):
    made = Filing(world, tmp_path)
    yield made
    made.close()


def test_it_has_a_record_of_each_answer_and_of_nothing_else(filing, tmp_path):
    first = answer(filing.ada, statistic(filing.world, *wards(), purpose="beds"))
    decision = Decision(Person("root", "Bob Ode"), True, "agreed", 1_700_000_000.0)
    policy = filing.ada.lifecycle.policy
    Decisions(filing.ada.history.database).decide(first, "lea", policy, decision, still_waits=True)
    second = answer(filing.ada, statistic(filing.world, purpose="smoking"))
    filing.ada.go(filing.world.ask(without_noise(filing.world)))
    assert filing.file() == 0
    assert stat.S_IMODE(filing.crate.stat().st_mode) == 0o600
    received = Received(filing.crate, tmp_path / "received")
    received.check_profile()
    records = {record["output"]["id"]: record for record in received.records()}
    assert records.keys() == {first.hex(), second.hex()}
    record = records[first.hex()]
    # Texts of a schema may be anything.
    assert HTML in record["asked"]["predicates"][0]
    assert record["project"]["title"] == "beds"
    assert record["privacy"]["scope"] == "whole records"
    assert records[second.hex()]["privacy"]["epsilon"] == pytest.approx(EPSILON, abs=1e-4)
    assert record["privacy"]["delta"] == 1e-5
    assert record["privacy"]["assumptions"]
    assert {check["result"] for check in record["checks"]} == {"passed"}
    (approval,) = record["approvals"]
    assert (approval["identity"], approval["name"], approval["reason"]) == ("root", "Bob Ode", "agreed")
    assert record["sign_off"][1] == {
        "item": "Measures approved by",
        "name_and_position": None,
        "date": None,
        "notes": None,
    }
    signers = {each["agent"]["@id"] for each in received.actions("SignOff")}
    assert {received.entities[each]["name"] for each in signers} == {"Bob Ode", "radofed 0.3.0, party ada"}
    assert received.read("registry.json")["tier"] == 3
    assert received.read("report.json")["count"] == 3
    assert received.read("policy.json")["assumed_colluders"] == 1
    assert "Privacy report of" in (received.data / "report.html").read_text()


@pytest.mark.more
def test_a_study_s_organisation_and_person_in_charge_are_named(filing, tmp_path):
    answer(filing.ada, statistic(filing.world, **OF_STUDY))
    assert filing.file() == 0
    received = Received(filing.crate, tmp_path / "received")
    received.check_profile()
    (record,) = received.records()
    assert record["project"] == {
        "title": STUDY.purpose,
        "number": STUDY.protocol_number,
        "organisation": STUDY.organisation,
        "person": STUDY.person_in_charge,
    }
    names = {each["name"] for each in received.entities.values() if "name" in each}
    assert {STUDY.purpose, STUDY.organisation, STUDY.person_in_charge} <= names


def test_the_signed_query_can_be_verified_by_whoever_receives_it(filing, tmp_path):
    asked = answer(filing.ada, statistic(filing.world))
    assert filing.file() == 0
    signed = Received(filing.crate, tmp_path / "received").read(f"queries/{asked.hex()[:16]}.json")
    key = filing.world.learner_key.public_bytes
    envelope = Envelope(base64.b64decode(signed["payload"]), key_id(key), base64.b64decode(signed["signature"]))
    assert envelope.payload_hash == asked
    envelope.open(MessageType.QUERY, FEDERATION, key)


@pytest.mark.more
def test_an_answer_without_a_bound_is_left_to_a_person(world, tmp_path):
    limits = {"epsilon": "50", "delta": "1e-5", "unbounded_queries": 3}
    filing = Filing(world, tmp_path, allow_unprotected=True, limits=limits)
    answer(filing.ada, without_noise(world, "smoker"))
    assert filing.file() == 0
    received = Received(filing.crate, tmp_path / "received")
    received.check_profile()
    (record,) = received.records()
    assert record["privacy"]["epsilon"] is None
    assert [check["what"] for check in record["checks"] if check["result"] == "a person has to decide"] == [
        "noise bounds what it says about one row"
    ]
    pending = [
        each for each in received.actions("DisclosureCheck") if each["actionStatus"].endswith("/PotentialActionStatus")
    ]
    assert len(pending) == 2
    filing.close()


@pytest.mark.more
def test_the_ecosystem_s_validator_accepts_it(filing, tmp_path):
    for number in range(3):
        answer(filing.ada, statistic(filing.world, purpose=f"study {number % 2}"))
    assert filing.file() == 0
    Received(filing.crate, tmp_path / "received").validate()


def _forget_an_answer(filing: Filing, query_id: bytes) -> str:
    filing.change("DELETE FROM queries WHERE query_id = ?", query_id)
    return f"query {query_id.hex()[:16]}: charged in the ledger, and not in the history"


def _change_a_query(filing: Filing, query_id: bytes) -> str:
    (found,) = filing.ada.history.find(query_id.hex())
    payload = found.envelope.payload.replace(b"smoker", b"smokes")
    changed = Envelope(payload, found.envelope.key_id, found.envelope.signature)
    filing.change("UPDATE queries SET envelope = ? WHERE query_id = ?", changed.to_bytes(), query_id)
    return "the history's copy of it was changed"


def _forge_a_query(filing: Filing, query_id: bytes) -> str:
    (found,) = filing.ada.history.find(query_id.hex())
    changed = Envelope(found.envelope.payload, found.envelope.key_id, bytes(64))
    filing.change("UPDATE queries SET envelope = ? WHERE query_id = ?", changed.to_bytes(), query_id)
    return "no key of learner lea that this party knows signed the history's copy of it"


def _lose_what_was_asked(filing: Filing, query_id: bytes) -> str:
    filing.change("UPDATE queries SET kind = '', words = NULL, envelope = NULL WHERE query_id = ?", query_id)
    return "the history does not hold what was asked, only the ledger's charge"


def _set_the_ledger_back(filing: Filing, query_id: bytes) -> str:
    for name in LEDGER:
        shutil.copyfile(filing.root / "before" / name, filing.directory / name)
    return f"query {query_id.hex()[:16]}, attempt 1: sent, and not charged"


def _change_a_charge(filing: Filing, query_id: bytes) -> str:
    filing.change("UPDATE events SET recorded_at_unix_s = recorded_at_unix_s - 1", file="ledger.sqlite")
    return "the ledger: "


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    "damage",
    [
        _forget_an_answer,
        _change_a_query,
        pytest.param(_forge_a_query, marks=pytest.mark.more),
        pytest.param(_lose_what_was_asked, marks=pytest.mark.more),
        _set_the_ledger_back,
        pytest.param(_change_a_charge, marks=pytest.mark.more),
    ],
)
def test_over_a_damaged_history_it_says_what_is_damaged_and_writes_nothing(filing, capsys, damage):
    answer(filing.ada, statistic(filing.world))
    (filing.root / "before").mkdir()
    for name in LEDGER:
        shutil.copyfile(filing.directory / name, filing.root / "before" / name)
    last = answer(filing.ada, statistic(filing.world))
    filing.ada.history.database.flush()
    says = damage(filing, last)
    page = filing.root / "report.html"
    assert filing.file("--output", str(page)) == 4
    said = capsys.readouterr().err
    assert says in said
    assert "no evidence was written" in said
    assert "rado ledger verify" in said
    assert sorted(path.name for path in filing.root.iterdir()) == ["ada", "before"]
    # The page alone still reports what there is.
    assert run(["party", "report", "--config", str(filing.directory / "party.toml"), "--from", "2020-01-01"]) == 0


def test_an_answer_that_waited_without_an_approval_that_is_kept_is_left_to_a_person(world, tmp_path):
    """Its record does not claim that people allowed it."""
    filing = Filing(world, tmp_path, approval={"everything": True})
    envelope = world.ask(statistic(world))
    filing.ada.go(envelope)
    decision = Decision(Person("officer"), True, "as agreed", time.time())
    decisions, policy = Decisions(filing.ada.history.database), filing.ada.lifecycle.policy
    decisions.decide(envelope.payload_hash, "lea", policy, decision, still_waits=True)
    assert filing.ada.lifecycle.gate.has_news()
    filing.ada.go(envelope, state=PartyState.PENDING)
    filing.ada.upload(envelope, world.cohort(filing.ada.hub.answers[0]))
    filing.ada.history.database.flush()

    def found() -> tuple[str, str]:
        assert filing.file() == 0
        (record,) = Received(filing.crate, tmp_path / f"received-{len(list(tmp_path.iterdir()))}").records()
        (check,) = (each for each in record["checks"] if each["what"].startswith("the policy allowed"))
        return check["result"], check["how"]

    assert found() == ("passed", "by the node: accepted, approved by officer")
    filing.crate.unlink()
    filing.change("DELETE FROM decisions")
    result, how = found()
    assert result == "a person has to decide"
    assert "no approval of it is kept" in how
    filing.close()


def test_a_page_of_the_history_that_is_damaged_is_found(filing, capsys):
    answer(filing.ada, statistic(filing.world))
    filing.close()
    path = filing.directory / "history.sqlite"
    content = bytearray(path.read_bytes())
    with sqlite3.connect(path) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'pauses'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content[(page - 1) * size : page * size] = bytes(size)
    path.write_bytes(content)
    assert filing.file() == 4
    said = capsys.readouterr().err
    assert "history.sqlite" in said
    assert not filing.crate.exists()


def test_what_there_is_nothing_to_file_of(filing, capsys):
    assert filing.file() == 4
    assert "no answer was charged for a query of this period" in capsys.readouterr().err
    config = str(filing.directory / "party.toml")
    assert run(["party", "report", "--config", config, "--from", "2020-01-01", "--crate", "evidence.json"]) == 4
    assert "give a name that ends in .zip" in capsys.readouterr().err


def test_a_query_that_is_not_kept_any_more_is_said_to_be_so(filing, tmp_path):
    asked = answer(filing.ada, statistic(filing.world))
    filing.change("UPDATE queries SET words = NULL, envelope = NULL WHERE query_id = ?", asked)
    assert filing.file() == 0
    received = Received(filing.crate, tmp_path / "received")
    received.check_profile()
    (record,) = received.records()
    assert [check["result"] for check in record["checks"]].count("not checked") == 2
    assert "does not know" not in json.dumps(record)
    assert not (received.data / "queries").exists()
