"""The console asks parties whether they would accept, before anything is asked, and shows what they say."""

import numpy as np
import pytest

from learner.config import LearnerConfig
from learner.model import Model
from radofed.console.learner.evaluations import Evaluations, PreparedEvaluation
from radofed.console.learner.queries import Following
from radofed.console.pages import Visit
from tests.federation.learner import SCHEMA
from tests.federation.setting import Setting
from tests.learner.test_models import STATEMENT
from tests.learner.test_would_accept import answer
from tests.radofed.console.test_asked_parties import FORM, Console
from tests.waiting import wait_until
from wire.errors import Code
from wire.query import Query
from wire.status import PartyProgress, PartyState, Phase


@pytest.fixture
def setting(tmp_path, learner_key):
    made = Setting(tmp_path, learner_key)
    made.stub.phases, made.stub.code = [Phase.ANSWERING, Phase.FAILED], Code.ONLY_ASKED.value
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml())
    made.stub.on_submit = lambda envelope: answer(made, envelope)
    yield made
    made.stub.stop()


@pytest.mark.parametrize(
    ("form", "page"),
    [(FORM, "asking"), ({**FORM, "what": "newton", "party_rows": ""}, "training")],
)
def test_parties_are_asked_first_and_nothing_is_sent_but_questions(setting, tmp_path, form, page):
    console = Console(setting, tmp_path / "schema.toml")
    name = console.send("plan", form).path.removeprefix(f"{page}/")
    assert not console.show(f"{page}/{{plan}}", plan=name)["prepared"].answers
    assert console.send(f"{page}/{{plan}}/would-accept", plan=name).path == f"{page}/{name}"
    answers = " ".join(console.show(f"{page}/{{plan}}", plan=name)["prepared"].answers)
    assert "ada: would accept, 10000 rows" in answers
    assert "no answer yet: cy" in answers
    assert answers.count("whether people decide at a party is not known") == 1
    assert setting.stub.submitted
    assert all(Query.from_bytes(envelope.payload).is_question for envelope in setting.stub.submitted)
    with setting.session() as session:
        assert session.asked() == ()


def test_an_evaluation_that_is_refused_as_a_whole_sends_no_batch(setting, tmp_path):
    """Its first batch was sent, and charged."""
    refused = [PartyProgress(name, PartyState.REFUSED, "BUDGET_EXCEEDED") for name in ("ada", "bo", "cy")]
    setting.stub.on_submit, setting.stub.parties = lambda _: None, tuple(refused)
    config = LearnerConfig.load(setting.config_file)
    models = config.releases_directory.with_name("models")
    models.mkdir()
    Model(np.linspace(-1, 1, SCHEMA.d), SCHEMA, "newton", bytes(32), STATEMENT).save(models / "mine.json")
    evaluations = Evaluations(setting.config_file, config, Following(config))
    plan = evaluations.waiting.keep(PreparedEvaluation(model="mine", given={"epsilon": "1", "max_rows": "10000"}))
    name = evaluations.start(Visit({"plan": plan})).path.removeprefix("evaluations/")
    visit = Visit({"evaluation": name})
    wait_until(lambda: evaluations.one(visit).values["state"] == "stopped", what="its end")
    assert "3 of 3 would refuse" in evaluations.one(visit).values["run"].fault
    assert all(Query.from_bytes(envelope.payload).is_question for envelope in setting.stub.submitted)
