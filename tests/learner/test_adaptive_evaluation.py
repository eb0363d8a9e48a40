"""Evaluations and histograms that earlier answers chose: each question is about a piece of the rows."""

import json
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.evaluation.class_evaluation import evaluate_classes
from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.histograms import column_histograms, histograms_of
from dpcore.evaluation.options import EvaluationOptions
from dpcore.records.held_back import HeldBack, Part
from dpcore.statistics.adaptive import Adaptive, Way
from learner.estimates import estimates_of
from learner.federation import Federation
from learner.model import Model
from radofed.cli.entry_point import run
from tests.federation.learner import SCHEMA, Memory, World, patients
from tests.learner.test_models import STATEMENT

pytestmark = pytest.mark.more

ROWS = {"ada": 8000, "bo": 9000, "cy": 7000}
THETA = np.array([1.0, 1.0, -1.0])
SHARE = Fraction(1, 4)
NO = Fraction(0)
SPLIT = Adaptive(4, Way.SPLIT)


@pytest.fixture
def memory(learner_key) -> Memory:
    records = {name: patients(rows, seed, 0.1) for seed, (name, rows) in enumerate(ROWS.items())}
    return Memory(World(learner_key, dict(ROWS)), records)


@pytest.fixture
def held_back(memory) -> Federation:
    return Federation(memory, SCHEMA).hold_back(SHARE)[1]


def test_each_evaluation_of_a_series_is_about_pieces_of_its_own(memory, held_back):
    oracle = held_back.within(Fraction(4), NO, SPLIT)
    first, second = (evaluate(THETA, oracle, part=Fraction(1, 2)) for _ in range(2))
    assert [query.held_back.piece for query in memory.asked] == [0, 1, 2, 3]
    assert {(query.held_back.share, query.held_back.part, query.held_back.pieces) for query in memory.asked} == {
        (SHARE, Part.HELD_BACK, 4)
    }
    assert [each.part.piece for each in (first, second)] == [1, 3]
    # The labels of one row in ten were flipped, and the model knows the rule.
    for each in (first, second):
        assert each.unseen
        assert 0.1 in each.error.on_distribution
        assert each.usable == pytest.approx(1500, abs=150)
    words = " ".join(first.sentences())
    assert "piece 2 of 4 of the part of the rows that each party holds back" in words
    assert "So do those of all 4 questions together" in words
    assert "was not chosen by an evaluation" not in words
    with pytest.raises(ConfigurationError, match="4 adaptive questions were asked"):
        evaluate(THETA, held_back.within(Fraction(1), NO, SPLIT))


def test_the_failure_is_shared_by_all_questions(memory, held_back):
    once = EvaluationOptions(edges_part=NO)
    quarter = EvaluationOptions(edges_part=NO, confidence=1 - 0.05 / 4)
    split = evaluate(THETA, held_back.within(Fraction(4), NO, SPLIT), once)
    memory.asked.clear()
    # The same piece and noise, by hand.
    alone = Federation(memory, SCHEMA, held_back=HeldBack.piece_of(held_back.held_back, 4, 0))
    same = evaluate(THETA, alone.within(Fraction(4), NO), EvaluationOptions(edges_part=NO))
    assert same.error == split.error
    memory.asked.clear()
    whole = evaluate(THETA, held_back.within(Fraction(4), NO), quarter)
    assert whole.part.pieces == 0
    assert whole.error.on_distribution.width < split.error.on_distribution.width


def test_intervals_for_new_rows_need_rows_of_their_own(memory, held_back):
    for way in (None, Way.INFORMATION, Way.PRIVACY):
        oracle = held_back.within(Fraction(1), NO, Adaptive(4, way))
        for ask in (
            lambda: evaluate(THETA, oracle),  # noqa: B023
            lambda: column_histograms(["age"], oracle),  # noqa: B023
            lambda: evaluate_classes(np.eye(3), oracle),  # noqa: B023
        ):
            with pytest.raises(ConfigurationError, match=r"give adaptive=Adaptive\(4, Way.SPLIT\)"):
                ask()
    assert not memory.asked


def test_a_histogram_of_a_series_is_about_a_piece_and_says_so_when_it_is_read_again(memory):
    oracle = Federation(memory, SCHEMA).within(Fraction(2), NO, Adaptive(3, Way.SPLIT))
    found = column_histograms(["age"], oracle, cells=4, part=Fraction(1, 3))
    assert (found.part.pieces, found.part.piece) == (3, 0)
    assert "The intervals of all 3 questions hold together" in " ".join(found.meaning("shares"))
    (answer,) = oracle.answers
    again = histograms_of(SCHEMA, answer.query.kind.batch, estimates_of(answer), part=answer.query.held_back)
    assert again.to_dict() == found.to_dict()
    plain = histograms_of(SCHEMA, answer.query.kind.batch, estimates_of(answer), part=None)
    narrow, wide = (each.columns[0].parts[3].share.on_distribution.width for each in (plain, found))
    assert narrow < wide


def test_a_release_of_a_piece_has_the_tolerance_of_its_series(memory):
    oracle = Federation(memory, SCHEMA).within(Fraction(2), NO, Adaptive(3, Way.SPLIT))
    asked = oracle.statistic(["y == 1"], part=Fraction(1, 3))
    read = estimates_of(oracle.answers[0])
    assert (read.tolerance, read.premise) == (asked.tolerance, asked.premise)


def test_the_command_refuses_a_series_about_rows_that_the_model_has_seen(tmp_path, capsys):
    path = tmp_path / "model.json"
    Model(np.ones(3), SCHEMA, "newton", bytes(32), STATEMENT).save(path)
    assert run(["learner", "evaluate", str(path), "--adaptive", "4", "--epsilon", "1", "--format", "json"]) == 4
    said = json.loads(capsys.readouterr().out)["error"]["message"]
    assert "trained without --hold-back" in said
    assert "leave --adaptive out" in said
