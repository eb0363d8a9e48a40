"""What commands that ask several times say before the first query, and whether parties would accept all of it."""

import numpy as np
import pytest

from learner.model import Model
from radofed.cli.entry_point import run
from tests.federation.learner import SCHEMA
from tests.federation.setting import ROWS, Setting
from tests.learner.class_models import STATEMENT
from wire.features import OWN_FEATURES, Feature
from wire.query import Query, setting_of
from wire.status import PartyProgress, PartyState, Phase


@pytest.fixture
def setting(tmp_path, learner_key):
    """Two of three parties refuse whatever they are asked about; cy is silent."""
    made = Setting(tmp_path, learner_key)
    made.stub.own_features, made.stub.on_submit = OWN_FEATURES, lambda _: None
    made.stub.phases = [Phase.ANSWERING]
    made.stub.parties = tuple(PartyProgress(name, PartyState.REFUSED, "BUDGET_EXCEEDED") for name in ("ada", "bo"))
    made.stub.parties += (PartyProgress("cy", PartyState.SILENT),)
    yield made
    made.stub.stop()


def evaluate(setting, tmp_path, *options):
    path = tmp_path / "model.json"
    if not path.exists():
        Model(np.ones(SCHEMA.d), SCHEMA, "newton", bytes(32), STATEMENT).save(path)
    return run(["learner", "evaluate", str(path), "--config", str(setting.config_file), "--epsilon", "1", *options])


def submitted(setting):
    return [Query.from_bytes(envelope.payload) for envelope in setting.stub.submitted]


def test_nothing_is_sent_if_parties_would_refuse_all_batches_together(setting, tmp_path, capsys):
    """The first batch, an eighth of the budget, would be charged, and the second one refused."""
    assert evaluate(setting, tmp_path) == 6
    said = capsys.readouterr().err
    total = (
        "in total, epsilon is at most 1.0000 at delta 0 against the learner alone, and at most 1.0000 under collusion"
    )
    assert f"{total}, for one record, with one attempt of each" in said
    assert "an evaluation asks 3 parties 2 times" in said
    assert "batch 2 of 2: rows by label and bin of scores, in 8 bins, epsilon 0.875" in said
    assert "z[" not in said
    assert "Asked first, 2 of 3 would refuse, and 3 have to accept; nothing was sent" in said
    assert "ada, bo (BUDGET_EXCEEDED)" in said
    (question,) = submitted(setting)
    assert question.is_question
    # It is about the second batch, at the whole budget: as much as both batches cost.
    cost = question.kind.protection(setting_of(question)).cost(tuple(ROWS.values()), question.delta)
    assert cost.epsilon_if_others_collude == pytest.approx(1, rel=1e-3)
    assert len(question.kind.batch) < 32, "not the 512 cells of the first batch"
    with setting.session() as session:
        assert session.asked() == ()


def test_one_batch_is_sent_without_a_question_since_its_refusal_costs_nothing(setting, tmp_path, capsys):
    setting.stub.phases = [Phase.FAILED]
    setting.stub.code = "COHORT_TOO_SMALL"
    assert evaluate(setting, tmp_path, "--edges-part", "0") == 6
    assert "an evaluation asks 3 parties 1 time" in capsys.readouterr().err
    assert [query.is_question for query in submitted(setting)] == [False]


def test_parties_that_do_not_answer_a_question_in_time_are_asked(setting, tmp_path, capsys):
    """They may accept: nothing is refused for them."""
    setting.stub.parties = tuple(PartyProgress(name, PartyState.SILENT) for name in ROWS)
    assert evaluate(setting, tmp_path, "--timeout-s", "0.2") == 3
    assert "not known whether parties would accept all batches: they have not answered" in capsys.readouterr().err
    assert [query.is_question for query in submitted(setting)] == [True, False]


def test_what_is_on_disk_is_neither_planned_nor_asked_about(setting, tmp_path, capsys):
    assert evaluate(setting, tmp_path, "--reuse") == 4
    assert "an evaluation asks" not in capsys.readouterr().err
    assert submitted(setting) == []


def test_parties_that_answer_no_questions_are_asked_without_one(setting, tmp_path, capsys):
    features = tuple(name for name in OWN_FEATURES if name != Feature.QUESTION.value)
    setting.stub.features = [setting.world.features(name, features) for name in ROWS]
    setting.stub.phases = [Phase.FAILED]
    setting.stub.code = "COHORT_TOO_SMALL"
    assert evaluate(setting, tmp_path) == 6
    assert "not known whether parties would accept all batches: too few answer questions" in capsys.readouterr().err
    assert [query.is_question for query in submitted(setting)] == [False]


def test_without_stated_rows_the_batches_and_their_bound_are_said(setting, tmp_path, capsys):
    """How many persons parties have they state only in answers about persons."""
    assert evaluate(setting, tmp_path, "--unit", "person") == 6
    said = capsys.readouterr().err
    assert "batch 1 of 2: where the scores are, rows by label in 256 cells of scores, epsilon 0.125" in said
    assert "in total, at most epsilon 1 at delta 0 under collusion, with one attempt of each" in said


def test_a_training_says_first_how_often_it_asks_whom_and_what_that_costs_at_most(setting, tmp_path, capsys):
    setting.stub.phases = [Phase.FAILED]
    setting.stub.code = "COHORT_TOO_SMALL"
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA.to_toml())
    shared = ("--config", str(setting.config_file), "--schema", str(schema), "--epsilon", "1", "--rounds", "3")
    assert run(["learner", "train", "--estimator", "newton", *shared, "--output", str(tmp_path / "new.json")]) == 6
    budget = "in total, at most epsilon 1 at delta 1e-06 under collusion, with one attempt of each"
    assert f"a training of newton asks 3 parties at most 3 times; {budget}" in capsys.readouterr().err
