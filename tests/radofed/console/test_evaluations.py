"""Evaluations of a learner's console, without nodes: what is wrong is said before anything is asked or written.

`test_learner.py` has one over real nodes, and the pages of evaluations of all targets.
"""

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.model import Model
from radofed.console.learner.evaluations import EvaluationFile, Evaluations, PreparedEvaluation
from radofed.console.learner.queries import Following
from radofed.console.pages import Visit
from radofed.node_config import PolicyChoices
from radofed.provision import provision
from tests.end_to_end.test_main_job import SCHEMA
from tests.learner.test_models import STATEMENT
from tests.waiting import wait_until
from wire.roster import Role


@pytest.fixture(scope="module")
def member(tmp_path_factory):
    made = provision(
        tmp_path_factory.mktemp("evaluations") / "federation",
        federation="clinics",
        coordinator_address="127.0.0.1:1",
        parties=["a", "b"],
        policy=PolicyChoices(),
    )
    found = made.of(Role.LEARNER)[0]
    schema = Schema.from_toml(SCHEMA)
    (found.directory / "models").mkdir()
    model = Model(np.linspace(-1, 1, schema.d), schema, "newton", bytes(32), STATEMENT)
    model.save(found.directory / "models" / "mine.json")
    return found


@pytest.fixture
def evaluations(member):
    config = LearnerConfig.load(member.config)
    return Evaluations(member.config, config, Following(config))


def test_what_is_wrong_is_said_on_the_form_with_what_was_entered(evaluations):
    for form, said in (
        ({"model": "mine"}, "give the --epsilon"),
        ({"model": "other", "epsilon": "1"}, "choose a model"),
        ({"model": "../mine", "epsilon": "1"}, "choose a model"),
        ({"model": "mine", "epsilon": "1", "cost": "ant=2"}, "write false-negative=5"),
        ({"model": "mine", "epsilon": "1", "adaptive": "2"}, "leave --adaptive out"),
        ({"model": "mine", "epsilon": "1", "bins": "x"}, "bins"),
    ):
        shown = evaluations.prepare(Visit(form=form))
        assert said in shown.values["fault"]
        assert shown.values["entered"]["model"] == form["model"]


def test_one_is_written_before_it_is_asked_and_started_once(evaluations, member):
    name = evaluations.waiting.keep(PreparedEvaluation(model="mine", given={"epsilon": "1/2", "bins": "6"}))
    plan = Visit({"plan": name})
    first, second = evaluations.start(plan), evaluations.start(plan)
    assert first == second
    name = first.path.removeprefix("evaluations/")
    kept = EvaluationFile.load(member.directory / "evaluations" / f"{name}.evaluation")
    assert kept == EvaluationFile("mine", {"epsilon": "1/2", "bins": "6"})
    visit = Visit({"evaluation": name})
    # There is no coordinator, and no key: it ends with the sentence of the command.
    wait_until(lambda: evaluations.one(visit).values["state"] == "stopped", what="its end")
    values = evaluations.one(visit).values
    assert values["run"].fault
    assert values["budget"] == ("1/2", "0")
    assert "--bins=6 --epsilon=1/2 --reuse" in values["command"]
    with pytest.raises(ConfigurationError, match="has no result yet"):
        evaluations.download(visit)
    listed = evaluations.all(Visit()).values["evaluations"]
    assert listed[0][::2] == (name, "does not run")


@pytest.mark.parametrize("content", ["", '{"format": "radofed-evaluation", "format_version": 1, "model": "../x"}'])
def test_a_damaged_file_is_a_sentence(evaluations, member, content):
    directory = member.directory / "evaluations"
    directory.mkdir(exist_ok=True)
    (directory / "bad-1.evaluation").write_text(content)
    for act in (evaluations.one, evaluations.go_on):
        with pytest.raises(ConfigurationError, match="evaluate again, or by the command"):
            act(Visit({"evaluation": "bad-1"}))
    assert any("evaluate again" in said for _, _, said in evaluations.all(Visit()).values["evaluations"])
    (directory / "bad-1.evaluation").unlink()


def test_a_name_of_no_evaluation_and_a_plan_that_is_gone_are_sentences(evaluations):
    for name in ("..", "../models/mine", "none-1"):
        with pytest.raises(ConfigurationError, match="open it from the page of evaluations"):
            evaluations.one(Visit({"evaluation": name}))
    with pytest.raises(ConfigurationError, match="evaluate again"):
        evaluations.confirmation(Visit({"plan": "gone"}))
