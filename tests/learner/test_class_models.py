"""Training on a label of several classes, by a release and by queries: models, their files, and what refuses them."""

import csv
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, ModelError, ShapeError
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.private_newton import PrivateNewton
from dpcore.evaluation.class_costs import ClassCosts
from dpcore.evaluation.class_evaluation import evaluate_classes
from dpcore.evaluation.options import EvaluationOptions
from dpcore.records.coding import class_codes
from dpcore.records.encoding import store
from dpcore.records.features import Classes, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema
from learner.decisions import Shifts
from learner.federation import Federation
from learner.model import Model
from learner.predictions import count_errors, predict
from learner.training import AskedTraining, model_of_answers
from learner.uncertainty import why_no_probability
from radofed.cli.learner.prediction_files import scores_csv
from tests.federation.learner import Memory, World
from wire.request_fields import TrainOptions

MEANS = np.array([[0.5, 0.0], [-0.5, 0.3], [0.0, -0.5]])
LABEL = Classes(column="kind", values=("ant", "bee", "cow"))
SCHEMA = Schema(
    name="animals",
    label=LABEL,
    features=tuple(RealFeature(name=name, lower=-1.0, upper=1.0, out_of_bounds="clip") for name in "ab"),
)
ROWS = {"a": 700, "b": 500, "c": 600}
BUDGET = Fraction(20), Fraction(1, 10**6)


def rows_of(count: int, seed: int, classes: tuple[int, ...] = (0, 1, 2)) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    codes = generator.choice(classes, count)
    return np.clip(MEANS[codes] + 0.2 * generator.normal(size=(count, 2)), -1, 1), codes


def records(count: int, seed: int, classes: tuple[int, ...] = (0, 1, 2)) -> Records:
    x, codes = rows_of(count, seed, classes)
    stored = store(np.column_stack([x, np.ones(count)]))
    return Records(stored, codes.astype(np.int8), np.ones(count, dtype=bool), coding=class_codes(3))


@pytest.fixture
def memory(learner_key) -> Memory:
    """Party a has no cow, and c has nothing else."""
    held = {"a": records(700, 1, (0, 1)), "b": records(500, 2), "c": records(600, 3, (2,))}
    return Memory(World(learner_key, dict(ROWS)), held)


def error(model: Model) -> float:
    x, codes = rows_of(2000, 9)
    return float(np.mean(model.predicted(model.scores(np.column_stack([x, np.ones(len(x))]))) != codes))


@pytest.fixture
def model(memory) -> Model:
    oracle = Federation(memory, SCHEMA).within(*BUDGET)
    return model_of_answers(PrivateNewton(rounds=4).fit_queries(oracle), oracle, "newton")


def test_newton_learns_classes_that_parties_have_apart(memory, model):
    assert model.theta.shape == (3, 3)
    assert error(model) < 0.06
    assert [query.kind.name for query in memory.asked] == ["moments", "gradient", "gradient", "gradient"]
    assert all(query.kind.classes == 3 for query in memory.asked)
    words = [query.kind.words() for query in memory.asked]
    assert "a sum for each of 3 classes" in words[0]
    assert "over 3 classes" in words[1]


@pytest.mark.more
def test_a_model_of_curves_is_learned_kept_and_predicts(memory, tmp_path):
    options = TrainOptions(to=tmp_path / "model.json", epsilon=BUDGET[0], estimator="additive", rounds=6)
    trained = AskedTraining.of("additive", options, SCHEMA).run(Federation(memory, SCHEMA))
    assert [query.kind.name for query in memory.asked] == ["statistic", "moments", *["gradient"] * 4]
    feature_map = trained.model.feature_map
    assert feature_map is not None
    assert all(query.feature_map == feature_map for query in memory.asked[1:])
    assert trained.model.theta.shape == (3, feature_map.d)
    assert trained.model.covariance is None
    assert trained.oracle.cost().epsilon_if_others_collude <= BUDGET[0]
    assert error(trained.model) < 0.06
    trained.model.save(tmp_path / "model.json")
    kept = Model.load(tmp_path / "model.json")
    assert kept.digest == trained.model.digest
    assert kept.feature_map == feature_map
    assert error(kept) == error(trained.model)
    found = evaluate_classes(kept.theta, Federation(memory, SCHEMA).within(*BUDGET), feature_map=kept.feature_map)
    assert found.error.estimate == pytest.approx(error(kept), abs=0.04)


@pytest.mark.more
def test_more_rounds_move_the_model_closer_to_the_pooled_regression(memory):
    from sklearn.linear_model import LogisticRegression

    x = np.vstack([held.features[:, :2] * 2.0**-30 for held in memory.records.values()])
    codes = np.concatenate([held.labels for held in memory.records.values()])
    pooled = LogisticRegression(max_iter=1000).fit(x, codes)
    target = np.column_stack([pooled.coef_, pooled.intercept_])

    def away(fitted) -> float:
        return float(np.linalg.norm(fitted.theta_ - (target - target.mean(axis=0))) / np.linalg.norm(target))

    strong = Fraction(120), Fraction(1, 10**6)
    oracle = Federation(memory, SCHEMA).within(*strong)
    first = MeanVariance().fit_moments(oracle.class_moments())
    later = PrivateNewton(rounds=8).fit_queries(Federation(memory, SCHEMA).within(*strong))
    assert later.rounds_done_ == 8
    assert away(later) < 0.6 * away(first)
    other = Federation(memory, SCHEMA).within(*strong)
    of_each = other.class_moments(products_of_each_class=True)
    assert memory.asked[-1].kind.products_of_each_class
    assert of_each.class_products.sum(axis=0)[:-1] == pytest.approx(of_each.product_sum[:-1])
    assert away(MeanVariance().fit_moments(of_each)) < 1.2 * away(first)


def test_a_model_is_kept_and_predicts_classes(model, tmp_path):
    path = tmp_path / "model.json"
    model.save(path)
    kept = Model.load(path)
    assert np.array_equal(kept.theta, model.theta)
    assert kept.digest == model.digest
    assert len(json.loads(path.read_text())["theta"][0][1]) == 3
    x, codes = rows_of(300, 11)
    table = tmp_path / "new.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        written = csv.writer(file)
        written.writerow(["a", "b", "kind"])
        written.writerows([*row.tolist(), LABEL.values[code]] for row, code in zip(x, codes, strict=True))
        written.writerow([0.0, 0.0, "elk"])
    found = predict(kept, table)
    assert found.scores.shape == (301, 3)
    assert float(np.mean(found.labels[:300] == codes)) > 0.9
    errors = count_errors(kept, table)
    assert (errors.compared, errors.wrong) == (300, 300 - int(np.trace(np.array(errors.confusion))))
    assert [sum(row) for row in errors.confusion] == np.bincount(codes).tolist()
    lines = scores_csv(kept.scoring, found, table, None).splitlines()
    assert lines[0] == "row,label_text,score ant,score bee,score cow,probability ant,probability bee,probability cow"
    assert lines[1].split(",")[1] == LABEL.values[found.labels[0]]
    # The softmax of newton's scores would be too sure.
    assert lines[1].endswith(",,,")


def test_a_covariance_is_of_all_weights_class_by_class(model, tmp_path):
    """Tables compare each class with a reference, whose intervals follow from the covariance of both."""
    with pytest.raises(ShapeError, match="the covariance has shape"):
        replace(model, covariance=np.eye(3))
    size = model.theta.size
    wide = np.diag(np.repeat([0.04, 0.01, 0.09], size // 3))
    made = replace(model, covariance=wide, sampling=wide)
    made.save(tmp_path / "m.json")
    np.testing.assert_array_equal(Model.load(tmp_path / "m.json").covariance, wide)
    tables = made.coefficients()
    assert [each.of for each in tables] == ["ant against bee", "cow against bee"]
    assert {each.ratio for each in tables} == {"relative risk ratio"}
    row = next(each for each in made.coefficients(reference="ant")[1].rows if each.column != "intercept")
    again = next(each for each in made.coefficients(reference="cow")[0].rows if each.column != "intercept")
    assert (row.estimate, row.standard_error) == pytest.approx((-again.estimate, again.standard_error))
    assert row.ratio == pytest.approx(np.exp(row.estimate))
    with pytest.raises(ConfigurationError, match="no score for 'dog'"):
        made.coefficients(reference="dog")
    with pytest.raises(ConfigurationError, match="leave it out, or train newton"):
        replace(model, covariance=None, sampling=None).coefficients(reference="ant")


def test_a_model_states_errors_if_hardly_any_gradient_is_clipped(memory, model):
    assert model.covariance is None
    assert "clip of at least 1.5" in model.coefficients()[0].notes[-1]
    oracle = Federation(memory, SCHEMA).within(*BUDGET)
    whole = model_of_answers(PrivateNewton(rounds=3, clip=1.5).fit_queries(oracle), oracle, "newton")
    assert whole.covariance is not None
    # These classes are so far apart that their weights could be infinite.
    table = whole.coefficients(reference="bee")[0]
    assert (table.of, table.ratio) == ("ant against bee", "relative risk ratio")
    row = next(each for each in table.rows if each.column == "a")
    assert row.measurable is False


def test_trained_weights_are_beside_the_average(memory, model):
    """So explanations and shapes show what predictions are made of."""
    assert np.abs(model.theta.sum(axis=0)).max() < 1e-12
    oracle = Federation(memory, SCHEMA).within(*BUDGET)
    other = model_of_answers(MeanVariance().fit_moments(oracle.class_moments()), oracle, "mean-variance")
    assert np.abs(other.theta.sum(axis=0)).max() < 1e-12
    assert other.linear_scores[1].theta == pytest.approx(other.theta[1], abs=1e-12)


def test_a_model_has_a_row_of_weights_for_each_class(model):
    with pytest.raises(ShapeError, match="theta has shape"):
        Model(model.theta[0], SCHEMA, "newton", model.release_digest, model.statement)


@pytest.mark.parametrize("name", ["naive-bayes", "logistic-gd", "conjunction"])
def test_training_refuses_before_it_asks(name):
    options = TrainOptions(to=Path("model.json"), epsilon=Fraction(1), estimator=name)
    with pytest.raises(
        ConfigurationError, match=f"{name} learns a label of two classes.*choose newton, additive or mean-variance"
    ):
        AskedTraining.of(name, options, SCHEMA)


def test_a_refused_gradient_leaves_what_was_learned_so_far(memory):
    from wire.errors import Code, WireError

    memory.refusal, memory.refuse_from = WireError(Code.BUDGET_EXCEEDED, "no budget"), 2
    fitted = PrivateNewton(rounds=4).fit_queries(Federation(memory, SCHEMA).within(*BUDGET))
    assert fitted.rounds_done_ == 2
    assert "received 2 of 4" in fitted.warning_
    assert np.isfinite(fitted.theta_).all()


def test_shifts_of_the_least_cost_are_kept_in_the_model_and_used(memory, model, tmp_path):
    federation, cost = Federation(memory, SCHEMA), "ant=20:bee>cow=3"
    found = federation.evaluate(model, epsilon=60, cost=cost)
    least = found.least_cost
    chosen = replace(least, strength=1.0, shifts=tuple(least.costs.shifts.tolist()), calls="")
    better = model.at_threshold(chosen)
    better.save(tmp_path / "model.json")
    kept = Model.load(tmp_path / "model.json")
    assert kept.threshold == better.threshold == Shifts(chosen.shifts, ClassCosts.parse(cost, LABEL.values))
    x, codes = rows_of(2000, 9)
    edges = np.column_stack([x, np.ones(len(x))])
    assert kept.scores(edges) == pytest.approx(model.scores(edges) + np.array(chosen.shifts))
    predicted, before = kept.predicted(kept.scores(edges)), model.predicted(model.scores(edges))
    assert np.mean(predicted[codes == 0] == 0) >= np.mean(before[codes == 0] == 0)
    assert "raised by the shifts that cost least" in kept.summary()
    assert kept.to_original_units()["decision_in_words"] == kept.decision_sentences
    # A later evaluation begins at its own shifts, and states the sum.
    assert kept.at_threshold(chosen).threshold.raised == pytest.approx(2 * np.array(chosen.shifts))
    # Probabilities by the link would move with the shifts.
    linked = replace(model, estimator="mean-variance")
    assert why_no_probability(linked) is None
    assert "raised by shifts for a cost" in (why_no_probability(linked.at_threshold(chosen)) or "")
    for changed, match in (({"is_measurable": False}, "not measurable"), ({"calls": "cow"}, "every row 'cow' costs")):
        with pytest.raises(ModelError, match=match):
            model.at_threshold(replace(chosen, **changed))
    with pytest.raises(ModelError, match="the scores are raised by"):
        Shifts((0.0,), chosen.costs)
    asked = len(memory.asked)
    with pytest.raises(ConfigurationError, match="'wasp', which is no class"):
        federation.evaluate(model, epsilon=1, cost="wasp=3")
    assert len(memory.asked) == asked
    (batch,) = model.scoring.batches(model, EvaluationOptions(cost=cost))
    assert batch.what.endswith("with 4 shifts of the scores")
