"""Studies in a party's history: what was stated, how long it is kept, and what each spent, for commands and reports."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from parties.config import PartyConfig
from parties.history.database import HistoryDatabase
from parties.history.history import History, HistoryPage, What
from parties.history.reading import HistoryReader
from parties.history.spellings import skeleton
from parties.history.studies import same_as, same_as_stated, stated_in, studies_of
from parties.ledger.charges import charge_for
from parties.report.page import document, registry_entry
from radofed.cli.entry_point import run
from tests.federation.party import World
from tests.parties.history import test_history
from tests.parties.report.report_world import ada_at, answer, report_of, statistic
from tests.wire.every_query import STUDY
from wire.features import Feature

pytestmark = pytest.mark.usefixtures("small_comb")
OTHER = replace(STUDY, protocol_number="EK 2026/18", purpose="Something else")
LONGER = replace(STUDY, ends=STUDY.ends.replace(day=30))
history, opened = test_history.history, test_history.opened


def of(study):
    return {"study": study, "features": (Feature.BASE.value, Feature.STUDY.value)}


def test_a_study_is_kept_as_long_as_the_query(history, opened):
    """Longer than the words: it says for what something was answered."""
    old, new, none = opened(**of(STUDY)), opened(**of(STUDY)), opened()
    for query, second in ((old, 100.0), (new, 200.0), (none, 300.0)):
        history.shown(query, rows=1, charge=None, now_unix_s=second)
    history.forget(whole_before_unix_s=0.0, predicates_before_unix_s=250.0)
    assert [(each.study, each.words is None) for each in history.page(HistoryPage())] == [
        (None, False),
        (STUDY, True),
        (STUDY, True),
    ]
    (stated,) = stated_in(history)
    assert (stated.queries, stated.learners, stated.first_unix_s, stated.last_unix_s) == (2, ("lea",), 100.0, 200.0)
    assert [each.queries for each in stated_in(history, 150.0, 250.0)] == [1]
    history.forget(whole_before_unix_s=150.0, predicates_before_unix_s=250.0)
    assert [each.queries for each in stated_in(history)] == [1]
    history.forget(whole_before_unix_s=250.0, predicates_before_unix_s=250.0)
    assert stated_in(history) == []
    # Nothing of it is left in the file.
    assert STUDY.person_in_charge.encode() not in history.database.path.read_bytes()


def test_each_statement_is_one_and_its_answers_are_counted(history, opened):
    asked = [opened(**of(study)) for study in (STUDY, LONGER, OTHER, STUDY)]
    for second, query in enumerate(asked):
        history.shown(query, rows=1, charge=charge_for(query.query, 40), now_unix_s=float(second))
    history.happened(asked[3].query_id, 1, What.CHARGED, 9.0, scopes=[])
    found = stated_in(history)
    assert [(each.study, each.queries, each.answered) for each in found] == [
        (STUDY, 2, 1),
        (LONGER, 1, 0),
        (OTHER, 1, 0),
    ]


def test_a_history_of_before_there_were_studies_gets_them(history, opened):
    before = opened()
    history.shown(before, rows=1, charge=None, now_unix_s=1.0)
    history.database.close()
    with closing(sqlite3.connect(history.database.path)) as connection:
        connection.execute("DROP TABLE studies")
        connection.execute("DROP TABLE study_of")
    with closing(HistoryDatabase(history.database.path, federation="clinics", party="ada", create=False)) as database:
        later = History(database)
        later.shown(opened(**of(STUDY)), rows=1, charge=None, now_unix_s=2.0)
        assert [each.study for each in later.page(HistoryPage())] == [STUDY, None]


@pytest.fixture
def ada(secret_key, tmp_path):
    limits = {"epsilon": "3", "delta": "1e-5", "studies": {STUDY.protocol_number: {"epsilon": "1", "delta": "1e-5"}}}
    return ada_at(World(secret_key), tmp_path, limits=limits)


def listed(ada, capsys) -> list[dict]:
    assert run(["party", "studies", "--config", str(ada.directory / "party.toml"), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["data"]["studies"]


@pytest.mark.more
def test_the_command_and_the_report_say_what_each_study_spent(ada, capsys):
    assert [(each["protocol_number"], each["has_limit"]) for each in listed(ada, capsys)] == [("EK 2026/17", True)]
    answer(ada, statistic(ada.world, **of(STUDY)))
    answer(ada, statistic(ada.world, **of(LONGER)))
    answer(ada, statistic(ada.world, **of(OTHER)))
    answer(ada, statistic(ada.world))
    first, second = listed(ada, capsys)
    # Two statements with one number share a budget; another number has none of its own.
    assert [each["ends"] for each in first["stated"]] == ["2099-12-31", "2099-12-30"]
    assert (first["attempts_charged"], second["attempts_charged"], second["has_limit"]) == (2, 1, False)
    assert first["policy"] == "the policy allows every study"
    (scope,), (other,) = first["scopes"], second["scopes"]
    assert (scope["limit_epsilon"], other["limit_epsilon"], other["remaining_epsilon"]) == (1.0, None, None)
    # What fits at the party is what all four answers leave, whatever the study spent.
    left = report_of(ada).record.remaining_pure
    assert {each["party_remaining_pure_epsilon"] for each in (scope, other)} == {left}
    assert scope["remaining_pure_epsilon"] < 1 < left < 3
    assert 0 < other["spent_epsilon"] < scope["spent_epsilon"] < 1
    assert run(["party", "studies", "--config", str(ada.directory / "party.toml")]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert 'study "EK 2026/17": 2 attempts charged; the policy allows every study' in printed
    assert "of its limit epsilon 1 at delta 1e-05 one more answer fits up to 0." in printed
    assert 'person in charge: "Dr. Ada Meier"' in printed
    assert run(["ledger", "show", "--config", str(ada.directory / "party.toml")]) == 0
    assert 'study "EK 2026/17": record' in capsys.readouterr().out
    report = report_of(ada)
    assert [each.number for each in report.studies] == ["EK 2026/17", "EK 2026/18"]
    assert (report.without_study, len(report.studies_named)) == (1, 3)
    assert report.to_dict()["studies"][0]["scopes"][0]["spent_epsilon"] == scope["spent_epsilon"]
    assert registry_entry(report)["deployment"]["accounting"]["studies"][0]["protocol_number"] == "EK 2026/17"
    text = document(report).saved()
    for words in ("EK 2026/17", STUDY.purpose, STUDY.organisation, STUDY.person_in_charge, STUDY.digest.hex()):
        assert words in text
    assert "1 other query names none" in text.replace("\n", " ").lower()
    assert "Budget for study &#34;EK 2026/17&#34;, in addition" in text


def test_numbers_that_differ_in_spelling_only_are_asked_about(ada, capsys):
    """Each is a study of its own, with a budget of its own: nothing is joined, and people are asked."""
    answer(ada, statistic(ada.world, **of(STUDY)))
    spelt = replace(STUDY, protocol_number="e\u0301k-2026 17")
    answer(ada, statistic(ada.world, **of(spelt)))
    answer(ada, statistic(ada.world, **of(OTHER)))
    found = {each["protocol_number"]: each["spelt_alike"] for each in listed(ada, capsys)}
    assert found == {"EK 2026/17": [spelt.protocol_number], spelt.protocol_number: ["EK 2026/17"], "EK 2026/18": []}
    with HistoryReader(PartyConfig.load(ada.directory / "party.toml")) as reader:
        (asked,) = same_as(reader, spelt)
        assert same_as(reader, OTHER) == same_as(reader, None) == []
        assert same_as_stated(spelt.digest.hex(), studies_of(reader)) == [asked]
    assert asked.startswith('a study with the number "EK 2026/17" exists, spent epsilon 0.')
    assert 'is "\u00e9k-2026 17" the same?' in asked or "the same?" in asked
    assert run(["party", "studies", "--config", str(ada.directory / "party.toml")]) == 0
    assert 'may be another spelling of study "EK 2026/17"' in capsys.readouterr().out


SPELLINGS = (
    "EK 2026/17",
    "ek2026-17",
    "EK\u20132026\u00a0/\u00a017",
    "\u0415\u041a 2026/17",
    "EK 2O26/l7",
    "\uff25\uff2b 2026/17",
)


def test_spellings_of_one_number_look_alike_and_other_numbers_do_not():
    assert {skeleton(each) for each in SPELLINGS} == {skeleton("EK 2026/17")}
    others = ("EK 2026/18", "EK 2025/17", "EX 2026/17", "EK 2026/171", "--", "///")
    assert len({skeleton(each) for each in (*others, SPELLINGS[0])}) == len(others) + 1


def test_what_it_costs_is_said_for_the_study_too(ada):
    """Before a person decides, and in the history of the charge."""
    query_id = answer(ada, statistic(ada.world, **of(STUDY)))
    events = ada.history.events([query_id])[query_id]
    (charged,) = [each for each in events if each.what is What.CHARGED]
    scopes = [each["scope"] for each in charged.details["scopes"]]
    assert scopes == ["whole records", 'study "EK 2026/17", whole records']
    assert [each["limit_epsilon"] for each in charged.details["scopes"]] == [3.0, 1.0]
