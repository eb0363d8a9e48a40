"""Trainings of a learner's console, without nodes: what becomes of one that loses an attempt, or whose file is damaged.

`test_learner.py` has one over real nodes. An attempt of an estimator is lost an hour after its last upload at the
earliest, so the loss is made here.
"""

import threading

import pytest

from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from learner.answer_source import RoundEndedError, RoundLostError
from learner.config import LearnerConfig
from learner.training import AskedTraining
from radofed.console.learner.queries import Following
from radofed.console.learner.trainings import PreparedTraining, Trainings
from radofed.console.pages import Visit
from radofed.node_config import PolicyChoices
from radofed.provision import provision
from tests.end_to_end.test_main_job import SCHEMA
from tests.waiting import HANG_S, wait_until
from wire.roster import Role


@pytest.fixture(scope="module")
def member(tmp_path_factory):
    made = provision(
        tmp_path_factory.mktemp("trainings") / "federation",
        federation="clinics",
        coordinator_address="127.0.0.1:1",
        parties=["a", "b"],
        policy=PolicyChoices(),
    )
    return made.of(Role.LEARNER)[0]


@pytest.fixture
def trainings(member):
    config = LearnerConfig.load(member.config)
    return Trainings(member.config, config, Following(config))


def started(trainings, **given: str) -> str:
    """A training that was started twice; its name."""
    prepared = PreparedTraining(estimator="newton", given=given, schema=Schema.from_toml(SCHEMA))
    plan = Visit({"plan": trainings.prepare(prepared)})
    first, second = trainings.start(plan), trainings.start(plan)
    assert first == second
    return first.path.removeprefix("trainings/")


def shown(trainings, name: str):
    return trainings.shown(Visit({"training": name})).values


def test_a_lost_attempt_stops_a_training_and_is_said_with_its_cost(trainings, monkeypatch):
    runs, may_end = [], threading.Event()

    def lose(training, _federation):
        runs.append((training.name, training.epsilon))
        assert may_end.wait(HANG_S)
        raise RoundLostError("attempt 1 of the query was lost", 1)

    monkeypatch.setattr(AskedTraining, "run", lose)
    name = started(trainings, epsilon="1/2")
    wait_until(lambda: runs, what="the training")
    assert shown(trainings, name)["state"] == "runs"
    # A second click asks nothing more while it runs.
    trainings.go_on(Visit({"training": name}))
    may_end.set()
    wait_until(lambda: shown(trainings, name)["state"] == "stopped", what="its end")
    assert shown(trainings, name)["run"].fault == "attempt 1 of the query was lost"
    assert runs == [("newton", 1 / 2)]
    assert trainings.unfinished()[0] == (name, False)
    # The options are on disk, so that it goes on with the same budget.
    trainings.go_on(Visit({"training": name}))
    wait_until(lambda: len(runs) == 2, what="the training again")
    assert runs[1] == runs[0]


def test_a_round_whose_query_ended_is_asked_again_only_if_a_person_says_so(trainings, monkeypatch):
    decided = []

    def end(_training, federation):
        decided.append(federation.source._source._asks_again)
        raise RoundEndedError("query 00 ended without a total", 1)

    monkeypatch.setattr(AskedTraining, "run", end)
    name = started(trainings, epsilon="1/2")
    for turn, (go_on, asks) in enumerate([(trainings.go_on, False), (trainings.ask_again, True)], start=1):
        wait_until(lambda: shown(trainings, name)["state"] == "stopped", what="its end")
        assert shown(trainings, name)["run"].may_ask_again
        go_on(Visit({"training": name}))
        wait_until(lambda turn=turn: len(decided) > turn, what="the training again")
        assert decided[turn] is asks
    assert not decided[0]


def test_what_is_wrong_is_said_before_anything_is_written(trainings):
    for given, said in (
        ({}, "give the --epsilon"),
        ({"epsilon": "1", "option": "nothing=1"}, "has no option 'nothing'"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            started(trainings, **given)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "radofed-training", "format_version": 1}'])
def test_a_damaged_file_is_a_sentence(trainings, member, content):
    directory = member.directory / "models"
    directory.mkdir(exist_ok=True)
    (directory / "bad-1.training").write_text(content)
    for act in (trainings.shown, trainings.go_on):
        with pytest.raises(ConfigurationError, match="train again, or by the command"):
            act(Visit({"training": "bad-1"}))


@pytest.mark.parametrize("name", ["x", "..", "../models/newton-1", "newton-1.json"])
def test_a_name_of_no_training_is_a_sentence(trainings, name):
    with pytest.raises(ConfigurationError, match="open it from the page of models"):
        trainings.shown(Visit({"training": name}))
