"""The console asks parties whether they would accept, before anything is asked, and shows what they say."""

import pytest

from tests.federation.learner import SCHEMA
from tests.federation.setting import Setting
from tests.learner.test_would_accept import answer
from tests.radofed.console.test_asked_parties import FORM, Console
from wire.errors import Code
from wire.query import Query
from wire.status import Phase


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
