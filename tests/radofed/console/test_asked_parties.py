"""The learner's console asks the parties that the learner accepted, and shows the others as not asked."""

import pytest

from learner.accepted_parties import parties_toml
from radofed.console.app import views_of
from radofed.console.pages import Goto, Visit
from tests.federation.learner import SCHEMA
from tests.federation.setting import Setting
from tests.waiting import wait_until
from wire.envelopes import fingerprint
from wire.status import PartyProgress, PartyState

FORM = {"what": "moments", "do": "ask", "epsilon": "1", "delta": "1e-6"}


@pytest.fixture
def setting(tmp_path, learner_key):
    made = Setting(tmp_path, learner_key)
    made.rows = {"ada": 100, "bo": 200}
    made.stub.parties = tuple(PartyProgress(name, PartyState.UPLOADED) for name in made.rows)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    yield made
    made.stub.stop()


class Console:
    """A learner's console without a browser."""

    def __init__(self, setting, schema):
        views = views_of(setting.config_file)
        self._pages = views.pages
        self._actions = views.actions
        self._schema = str(schema)

    def show(self, path, **parts):
        return self._pages[path](Visit(parts)).values

    def send(self, path, form=None, **parts):
        return self._actions[path](Visit(parts, {}, {"schema": self._schema, **(form or {})}))


@pytest.fixture
def console(setting, tmp_path):
    return Console(setting, tmp_path / "schema.toml")


def test_the_accepted_parties_are_asked_and_the_others_shown_as_such(setting, console):
    keys = {party.name: fingerprint(party.signing_key) for party in setting.world.roster.parties}
    setting.config.parties.write_text(parties_toml({name: keys[name] for name in setting.rows}))
    sent = console.send("plan", FORM)
    assert isinstance(sent, Goto), sent.values["fault"]
    name = sent.path.removeprefix("asking/")
    prepared = console.show("asking/{plan}", plan=name)["prepared"]
    assert [party.name for party in prepared.parties] == ["ada", "bo"]
    assert "1 of 3 parties are not asked (not accepted: cy)." in prepared.plan.sentences()
    query = console.send("asking/{plan}", plan=name).path.removeprefix("queries/")
    shown = wait_until(lambda: console.show("queries/{query}", query=query)["parties"], what="the status")
    assert shown == [("ada", "uploaded"), ("bo", "uploaded"), ("cy", "not asked")]
    # The form has the rows of those that are asked.
    assert console.show("plan")["entered"]["party_rows"] == "100,200"
    training = console.send("plan", {**FORM, "what": "newton", "party_rows": ""}).path.removeprefix("training/")
    prepared = console.show("training/{plan}", plan=training)["prepared"]
    assert [party.name for party in prepared.parties] == ["ada", "bo"]
    assert "1 of 3 parties are not asked (not accepted: cy)" in prepared.notes


def test_without_an_accepted_party_the_page_says_which_command_to_run(setting, console):
    setting.config.parties.unlink()
    for what in ("moments", "newton"):
        assert "rado learner accept NAME" in console.send("plan", {**FORM, "what": what}).values["fault"]
    assert setting.stub.submitted == []


def test_the_confirmation_of_a_training_warns_of_coefficients_that_cannot_be_measured(console):
    training = console.send("plan", {**FORM, "what": "newton"}).path.removeprefix("training/")
    prepared = console.show("training/{plan}", plan=training)["prepared"]
    (few,) = (note for note in prepared.notes if "can be measured" in note)
    assert few.startswith("Warning: at epsilon 1 over ")
    assert few not in prepared.said
