"""Wherever a person decides on a query, all that its digest binds is shown: on a terminal, in a browser, in a report.

tests/wire/test_signed_fields.py: that these lines change with every field.
"""

import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import get_args

import numpy as np
import pytest

from dpcore.numbers.rationals import upper_digits
from parties.policy import DesignName
from parties.report import gathering
from parties.report.page import document
from radofed.cli.entry_point import run
from radofed.console.party import party_views
from tests.federation.party import World, in_epochs
from tests.parties.report import report_world
from tests.parties.report.report_world import ada_at, answer, report_of, statistic
from tests.radofed.console.serving import Caller, serving
from tests.wire.every_query import SCHEMA, every_query
from wire.envelopes import Envelope
from wire.query_summary import SignedField, signed_parts

DESIGNS = get_args(DesignName)


class Desk:
    """A party that asks people about everything, and that was asked a query of every kind."""

    def __init__(self, secret_key, directory) -> None:
        directory.mkdir()
        self.world = World(secret_key)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(report_world, "SCHEMA", SCHEMA)
            limits = {"epsilon": "1e6", "delta": "1e-3", "unbounded_queries": 100}
            rules = {"designs": DESIGNS, "allow_unprotected": True, "limits": limits, "approval": {"everything": True}}
            self.ada = ada_at(self.world, directory, **rules)
        party = self.ada.lifecycle.party
        self.ada.lifecycle.follow_data(in_epochs(party, ["2026-11"], np.zeros(party.records.rows)))
        self.config = directory / "party.toml"
        self.asked: dict[str, Envelope] = {}
        for name, query in every_query(self.world).items():
            if query.schema.digest != SCHEMA.digest or getattr(query.kind, "persons", None) is not None:
                # A party with two classes, or without ids of persons, refuses it: nothing waits for a person.
                continue
            envelope = self.world.ask(query)
            self.ada.go(envelope)
            self.asked[name] = envelope

    def run(self, *command: str) -> None:
        assert run([*command, "--config", str(self.config)]) == 0


@pytest.fixture(scope="module")
def desk(secret_key, tmp_path_factory):
    return Desk(secret_key, tmp_path_factory.mktemp("shown") / "ada")


def fields_of(envelope: Envelope) -> list[SignedField]:
    return [field for part in signed_parts(envelope.payload) for field in part.fields]


class Read(HTMLParser):
    """The lines of a page's definition lists, as a person reads them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found, self._tag = [], ""
        self.feed(page)

    def handle_starttag(self, tag, _):
        if tag == "dt":
            self.found.append([])
        self._tag = tag if tag in {"dt", "dd", "code", "bdi"} else ""

    def handle_endtag(self, tag):
        self._tag = ""
        if tag == "dl":
            self.found.append([])

    def handle_data(self, data):
        if self._tag and self.found:
            self.found[-1].append(data)


def check_page(page: str, envelope: Envelope) -> None:
    read = {tuple(text for text in line if text.strip()) for line in Read(page).found}
    for field in fields_of(envelope):
        assert tuple(text for text in (field.name, field.value, field.meaning) if text) in read, field


@pytest.mark.more
def test_every_kind_waits_for_a_person(desk, capsys):
    desk.run("party", "pending", "--format", "json")
    assert capsys.readouterr().out.count('"query_id"') == len(desk.asked)


@pytest.mark.more
def test_a_terminal_shows_all_of_every_kind(desk, capsys):
    desk.run("party", "pending", "--full")
    pending = capsys.readouterr().out
    for envelope in desk.asked.values():
        desk.run("party", "explain", envelope.payload_hash.hex())
        explained = capsys.readouterr().out
        desk.run("ledger", "history", envelope.payload_hash.hex())
        past = capsys.readouterr().out
        for printed in (pending, explained, past):
            assert envelope.payload_hash.hex() in printed
            assert {f"    {field}" for field in fields_of(envelope)} <= set(printed.splitlines())


@pytest.mark.more
def test_the_page_on_which_a_person_decides_shows_all_of_every_kind(desk):
    with serving(party_views(desk.config)) as access:
        caller = Caller(access.link)
        assert caller.enter() == 303
        for envelope in desk.asked.values():
            page = caller.ask(f"queries/{envelope.payload_hash.hex()}")[2]
            assert 'value="approve"' in page
            assert envelope.payload_hash.hex() in page
            check_page(page, envelope)


def words(printed: str) -> str:
    """The words of an output, without the frames and breaks of a table."""
    return " ".join(printed.split())


@pytest.mark.more
def test_a_terminal_says_purpose_and_what_all_attempts_may_cost(desk, capsys):
    """Before a person decides, beside the approval, and afterwards."""
    purpose, name = '<b>Study</b> "17"', "moments for a purpose"
    query = replace(every_query(desk.world)[name], purpose=purpose, max_attempts=3)
    envelope = desk.world.ask(query)
    desk.ada.go(envelope)
    query_id, stated = envelope.payload_hash.hex(), 'purpose, as the learner states it: "<b>Study</b> \\"17\\""'
    desk.run("party", "explain", query_id, "--format", "json")
    explained = json.loads(capsys.readouterr().out)["data"]
    (one,), (most,) = explained["costs"], explained["most_costs"]
    assert (explained["attempts"], explained["attempts_admitted"], explained["asked"]["purpose"]) == (3, 3, purpose)
    assert one["cost"] < most["cost"] <= 3 * one["cost"]
    assert one["spent"] < most["spent"]
    together = f"epsilon {upper_digits(most['cost'], 4)}"
    line = f"most that all 3 attempts may cost in total, whole records: {together}; with them, "
    desk.run("party", "explain", query_id)
    printed = capsys.readouterr().out
    assert (stated in printed, line in printed, "over the same rows as now" in printed) == (True, True, True)
    desk.run("party", "pending")
    printed = words(capsys.readouterr().out)
    figure = f"epsilon {upper_digits(one['cost'], 4)}, at most {together} in 3 attempts"
    assert {"may", "cost", "3", "attempts", "purpose:"} <= set(printed.split())
    desk.run("party", "pending", "--format", "json")
    waiting = {each["query_id"]: each for each in json.loads(capsys.readouterr().out)["data"]["pending"]}
    shown = waiting[query_id]
    assert (shown["purpose"], shown["costs"]["most_costs"]) == (purpose, [most])
    desk.run("party", "pending", "--full")
    assert (stated in (printed := capsys.readouterr().out), line in printed) == (True, True)
    with serving(party_views(desk.config)) as access:
        caller = Caller(access.link)
        assert caller.enter() == 303
        page, waiting = caller.ask(f"queries/{query_id}")[2], caller.ask("pending")[2]
        assert purpose not in page + waiting
        escaped = "<q><bdi>&lt;b&gt;Study&lt;/b&gt; &#34;17&#34;</bdi></q>"
        assert (escaped in page, escaped in waiting) == (True, True)
        assert "Most that all 3 attempts may cost in total, in epsilon" in page
        assert (figure in page, figure in waiting) == (True, True)
    desk.run("party", "approve", query_id, "--format", "json")
    captured = capsys.readouterr()
    assert json.loads(captured.out)["data"]["costs"]["most_costs"] == [most]
    assert (stated in captured.err, line in captured.err) == (True, True)
    desk.run("ledger", "history", query_id)
    assert stated in capsys.readouterr().out
    desk.run("ledger", "history", "--csv")
    assert '"<b>Study</b> ""17"""' in capsys.readouterr().out
    desk.run("ledger", "history")
    assert "purpose:" in words(capsys.readouterr().out)
    page = document(report_of(desk.ada)).saved()
    assert purpose not in page
    assert f"{escaped} (1 query)" in page


def test_what_was_approved_is_printed_beside_the_approval(desk, capsys):
    envelope = desk.world.ask(every_query(desk.world)["statistic of mapped records"])
    desk.ada.go(envelope)
    desk.run("party", "approve", envelope.payload_hash.hex()[:12])
    printed = capsys.readouterr().out
    assert envelope.payload_hash.hex() in printed
    assert {f"    {field}" for field in fields_of(envelope)} <= set(printed.splitlines())
    check_page(document(report_of(desk.ada)).saved(), envelope)


def test_a_report_says_what_it_has_no_room_for(desk, tmp_path, monkeypatch):
    ada = ada_at(desk.world, tmp_path)
    query = statistic(desk.world)
    query_id = answer(ada, query)
    check_page(document(report_of(ada)).saved(), desk.world.ask(query))
    monkeypatch.setattr(gathering, "MOST_SIGNED_CHARACTERS", 100)
    page = document(report_of(ada)).saved()
    assert "schema.features" not in page
    assert f"There is no room for it on this page: <code>rado ledger history {query_id.hex()[:12]}</code>" in page
