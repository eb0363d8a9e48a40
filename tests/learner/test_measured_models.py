"""Models of numbers and counts: training by a release and by queries, their files, predictions in units, errors."""

import csv
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError, ModelError, SchemaError
from dpcore.estimators.least_squares import LeastSquares
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.evaluation.options import EvaluationOptions
from dpcore.numbers.fixed_point import ONE
from dpcore.records.coding import OFFSET_BITS
from dpcore.records.encoding import store
from dpcore.records.features import Count, Number, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from learner.federation import Federation
from learner.measured_models import measured_errors
from learner.model import Model
from learner.predictions import predict
from learner.training import AskedTraining, check_learns, model_of_answers
from radofed.cli.entry_point import run
from radofed.cli.learner.prediction_files import values_csv
from tests.federation.learner import Memory, World
from wire.request_fields import TrainOptions

FEATURES = tuple(RealFeature(name=name, lower=-1.0, upper=1.0, out_of_bounds="clip") for name in "ab")
WAGE = Schema(name="w", label=Number(column="wage", lower=1.0, upper=100.0, log=True), features=FEATURES)
OVER = Count(column="n", upper=40, exposure="years", exposure_lower=0.25, exposure_upper=4.0)
VISITS = Schema(name="v", label=OVER, features=FEATURES)
ROWS = {"a": 2700, "b": 2500, "c": 2600}
BUDGET = Fraction(20), Fraction(1, 10**6)


def x_of(count: int, generator: np.random.Generator) -> np.ndarray:
    return np.column_stack([generator.uniform(-1, 1, (count, 2)), np.ones(count)])


def wages(count: int, seed: int) -> Records:
    """t = 0.4 a - 0.3 b + noise of 0.1."""
    generator = np.random.default_rng(seed)
    x = x_of(count, generator)
    t = np.clip(x @ [0.4, -0.3, 0.0] + 0.1 * generator.normal(size=count), -1, 1)
    return Records(store(x), np.trunc(t * ONE).astype(np.int32), np.ones(count, bool), coding=WAGE.label.coding)


def visits(count: int, seed: int) -> Records:
    """A rate of exp(0.5 a + 0.7) a year."""
    generator = np.random.default_rng(seed)
    x, years = x_of(count, generator), generator.choice([0.5, 1.0, 2.0], count)
    counts = generator.poisson(years * np.exp(x @ [0.5, 0.0, 0.7]))
    offsets = np.rint(np.log(years) * 2**OFFSET_BITS)
    labels = np.column_stack([counts, offsets]).astype(np.int32)
    return Records(store(x), labels, np.ones(count, bool), coding=OVER.coding)


def memory(learner_key, made) -> Memory:
    return Memory(
        World(learner_key, dict(ROWS)), {name: made(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    )


def trained(memory: Memory, schema: Schema, estimator=None, name: str = "newton") -> Model:
    oracle = Federation(memory, schema).within(*BUDGET)
    return model_of_answers((estimator or PrivateNewton()).fit_queries(oracle), oracle, name)


@pytest.fixture
def wage_model(learner_key) -> Model:
    return trained(memory(learner_key, wages), WAGE)


def test_newton_learns_a_number_and_its_model_is_kept(learner_key, tmp_path):
    found = trained(memory(learner_key, wages), WAGE)
    assert found.theta == pytest.approx([0.4, -0.3, 0.0], abs=0.03)
    found.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert loaded.digest == found.digest
    assert loaded.link == "identity"
    assert loaded.values(np.array([-1.0, 0.0, 1.0])) == pytest.approx([1.0, 10.0, 100.0])


def test_newton_learns_a_rate_over_an_exposure(learner_key):
    asked = memory(learner_key, visits)
    found = trained(asked, VISITS)
    assert found.theta == pytest.approx([0.5, 0.0, 0.7], abs=0.15)
    assert found.link == "log"
    assert {query.kind.name for query in asked.asked} == {"moments", "gradient"}
    assert all("numbers" in query.features for query in asked.asked)


def test_the_rate_is_right_though_gradients_are_clipped(learner_key):
    """The last round corrects the intercept: the mean prediction is the mean count."""
    label = Count(column="n", upper=60)
    schema = Schema(name="v", label=label, features=FEATURES)

    def made(count: int, seed: int) -> Records:
        generator = np.random.default_rng(seed)
        x = x_of(count, generator)
        counts = np.minimum(generator.negative_binomial(1, 1 / (1 + np.exp(x @ [0.5, 0.0, 1.0]))), 60).astype(np.int32)
        return Records(store(x), counts, np.ones(count, bool), coding=label.coding)

    held = [made(rows, seed) for seed, rows in enumerate(ROWS.values())]
    found = trained(Memory(World(learner_key, dict(ROWS)), dict(zip(ROWS, held, strict=True))), schema)
    mean = np.concatenate([each.labels for each in held]).mean()
    predicted = np.concatenate([found.values(found.scores(each.features / ONE)) for each in held]).mean()
    assert predicted == pytest.approx(mean, rel=0.1)


def test_linear_learns_from_one_release(learner_key):
    oracle = Federation(memory(learner_key, wages), WAGE).within(*BUDGET)
    moments = oracle.number_moments()
    fitted = LeastSquares().fit_moments(moments)
    assert fitted.theta_ == pytest.approx([0.4, -0.3, 0.0], abs=0.05)
    assert fitted.r2_ == pytest.approx(0.9, abs=0.1)


def test_an_evaluation_has_errors_and_observed_beside_predicted_values(learner_key, wage_model):
    asked = memory(learner_key, wages)
    oracle = Federation(asked, WAGE).within(20, Fraction(0))
    found = wage_model.scoring.evaluate(wage_model, oracle, EvaluationOptions())
    held = [wages(rows, seed) for seed, rows in enumerate(ROWS.values())]
    x, t = (np.concatenate([getattr(each, name) / ONE for each in held]) for name in ("features", "labels"))
    off, half = x @ wage_model.theta - t, (math.log(WAGE.label.upper) - math.log(WAGE.label.lower)) / 2
    assert len(asked.asked) == len(wage_model.scoring.batches(wage_model, EvaluationOptions())) == 3
    assert oracle.left == 0
    assert found.r2.lower <= 1 - np.square(off).mean() / t.var() <= found.r2.upper
    assert found.absolute_error.lower <= half * np.abs(off).mean() <= found.absolute_error.upper
    assert found.bias.lower <= half * off.mean() <= found.bias.upper
    assert found.of_logarithms
    assert found.to_dict()["rows"] == sum(ROWS.values())
    said = " ".join(found.sentences())
    assert "R^2" in said
    assert "as a factor" in said
    header, rows = found.table()
    assert header[0] == "predicted"
    assert len(rows) == len(found.bins) == 8


def test_an_evaluation_of_a_number_refuses_options_of_classes(wage_model, tmp_path, capsys):
    """They were ignored, and the query was charged."""
    wage_model.save(file := tmp_path / "model.json")
    for flag, value, says in (
        ("--cost", "false-negative=5:false-positive=1", "leave it out"),
        ("--edges-part", "0", "give an edges_part above 0"),
        ("--adaptive", "3", "leave --adaptive out"),
    ):
        asked = ["learner", "evaluate", str(file), "--config", "none.toml", "--epsilon", "1"]
        assert run([*asked, flag, value, "--format", "json"]) == 4
        assert says in json.loads(capsys.readouterr().out)["error"]["message"]


def table(path: Path, rows: list[list[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", "a", "b", "wage"], *rows])
    return path


def test_predictions_are_in_the_label_s_units(wage_model, tmp_path):
    schema_of = Model(wage_model.theta, WAGE, "newton", wage_model.release_digest, wage_model.statement)
    rows = [["p", 0.5, 0.0, 16], ["q", -0.5, 0.5, 4], ["r", 1.0, -1.0, 50], ["s", 0.0, 0.0, "x"]]
    path = table(tmp_path / "new.csv", rows)
    found = predict(schema_of, path)
    assert found.values is not None
    assert found.values == pytest.approx(wage_model.values(found.scores))
    lines = values_csv(WAGE, found, path, "id").splitlines()
    assert lines[0] == "row,id,score,predicted wage"
    assert lines[1].startswith("1,p,")
    errors = measured_errors(schema_of, path)
    assert (errors.rows, errors.compared, errors.measure) == (4, 3, "r2")
    assert errors.explained > 0.5
    assert abs(errors.bias) <= errors.absolute_error <= errors.root_squared_error
    assert "R^2" in errors.sentence()
    assert set(errors.to_dict()) == {"r2", "absolute_error", "root_squared_error", "bias", "labelled"}
    with pytest.raises(DataError, match="no row has both"):
        measured_errors(schema_of, table(tmp_path / "none.csv", [["p", 0.1, 0.1, "x"]]))


def test_what_needs_classes_refuses_a_number(wage_model, tmp_path):
    with pytest.raises(ModelError, match="has predictions and no probabilities of classes"):
        wage_model.probabilities(np.zeros(1))
    with pytest.raises(SchemaError, match="a label of a number from 1 to 100, on a scale of logarithms"):
        wage_model.predicted(np.zeros(1))
    for name in ("naive-bayes", "mean-variance", "radoboost"):
        with pytest.raises(ConfigurationError, match=f"{name} learns classes, and 'wage' is a number"):
            check_learns(name, WAGE)


def test_a_training_of_a_number_is_refused_before_it_asks(tmp_path):
    options = TrainOptions(estimator="naive-bayes", to=tmp_path / "model.json", epsilon=Fraction(1))
    with pytest.raises(ConfigurationError, match="choose newton, additive or linear"):
        AskedTraining.of("naive-bayes", options, WAGE)


def test_newton_of_numbers_needs_three_rounds_and_an_intercept(learner_key):
    with pytest.raises(ConfigurationError, match="takes at least 3"):
        trained(memory(learner_key, wages), WAGE, PrivateNewton(rounds=2))
    bare = Schema(name="w", label=WAGE.label, features=FEATURES, bias=False)
    oracle = Federation(memory(learner_key, wages), bare).within(*BUDGET)
    with pytest.raises(ConfigurationError, match="needs an intercept"):
        PrivateNewton().fit_queries(oracle)
