"""Class weights and thresholds of models: kept, said, and what follows for scores and probabilities."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from dpcore.errors import ConfigurationError, ModelError
from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.options import Costs, EvaluationOptions
from dpcore.records.weight import Weight
from learner.decisions import Threshold, log_odds_offset
from learner.model import Model
from learner.model_file import to_json
from learner.predictions import predict
from learner.uncertainty import why_no_probability
from radofed import simulated_federation

COST = "false-negative=10:false-positive=1"


def frame(seed: int, rows: int = 12_000) -> pd.DataFrame:
    """Ages and a flag, and an illness that one row in twenty has: log odds 4 (age - 55) / 35 + smoker - 4."""
    random = np.random.default_rng(seed)
    age, smoker = random.integers(20, 91, rows), random.integers(0, 2, rows)
    odds = 4.0 * (age - 55) / 35 + smoker - 4.5
    ill = np.where(random.random(rows) < 1 / (1 + np.exp(-odds)), "sick", "well")
    return pd.DataFrame({"age": age, "smoker": np.array(["no", "yes"])[smoker], "ill": ill})


@pytest.fixture(scope="module")
def federation():
    return simulated_federation(frame(1), label="ill", positive="sick", parties=4)


@pytest.fixture(scope="module")
def weighted(federation) -> Model:
    return federation.train("newton", epsilon=20, class_weight={"sick": 10}, rounds=5)


@pytest.fixture(scope="module")
def plain(federation) -> Model:
    return federation.train("newton", epsilon=20, rounds=5)


def mean_cost(model: Model, table: pd.DataFrame) -> float:
    ill, called = table["ill"] == "sick", predict(model, table).labels > 0
    return float(np.mean(10.0 * (ill & ~called) + (called & ~ill)))


@pytest.mark.more
def test_a_weighted_model_finds_more_and_says_what_its_scores_are(plain, weighted, tmp_path):
    table = frame(2)
    found = [predict(model, table).labels[table["ill"] == "sick"] > 0 for model in (plain, weighted)]
    assert np.mean(found[1]) > np.mean(found[0]) + 0.3
    assert mean_cost(weighted, table) < 0.8 * mean_cost(plain, table)
    assert (plain.class_weights, weighted.class_weights) == ((), (1, 10))
    (said,) = weighted.decision_sentences
    assert said.startswith("Trained with class weights 1 : 10 ('well' : 'sick')")
    assert said in weighted.summary()
    assert weighted.to_original_units()["decision_in_words"] == [said]
    by_row = replace(weighted, schema=replace(weighted.schema, weight=Weight(column="w", upper=5.0)))
    assert by_row.decision_sentences[0].startswith("Trained on rows that count by the weight 'w', from 0 to 5.")
    assert by_row.to_original_units()["decision_in_words"][0] == by_row.decision_sentences[0]
    assert "no probabilities" in (why_no_probability(weighted) or "")
    weighted.save(tmp_path / "model.json")
    assert Model.load(tmp_path / "model.json").class_weights == (1, 10)
    assert "class_weights" not in to_json(plain)


@pytest.mark.more
def test_a_weighted_model_s_log_odds_are_corrected_for_the_prior_shift(federation, weighted):
    """Where scores are log odds of the weighted population, the bins of the calibration are right."""
    assert weighted.log_odds_offset == pytest.approx(-np.log(10))
    assert log_odds_offset((), None) == 0.0
    # The truth, in the units of the schema, of which a training with weights 1 : 10 sees odds ten times as large.
    schema = weighted.schema
    truth = {"age": 4.0, "smoker": 0.5, "bias": 0.0 - 4.5 + 0.5}
    theta = np.array([truth[name] for name in schema.coordinates])
    (age,) = schema.numbers
    half, middle = (age.upper - age.lower) / 2, (age.upper + age.lower) / 2
    theta[0], theta[-1] = 4.0 * half / 35, theta[-1] + 4.0 * (middle - 55) / 35
    theta[-1] += np.log(10)
    options = EvaluationOptions(bins=6, edges_part=0)
    oracle = federation.within(epsilon=50, delta=0)
    found = evaluate(theta, oracle, options, unseen=True, offset=weighted.log_odds_offset)
    assert not any(part.is_off for part in found.calibration)
    oracle = federation.within(epsilon=50, delta=0)
    wrong = evaluate(theta, oracle, options, unseen=True)
    assert any(part.is_off for part in wrong.calibration)


def test_a_threshold_for_a_cost_is_kept_in_the_model_and_used(federation, plain, tmp_path):
    found = federation.evaluate(plain, epsilon=50, cost=COST, bins=12)
    least = found.least_cost
    better = plain.at_threshold(least)
    better.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert loaded.threshold == Threshold(least.threshold, Costs.parse(COST))
    table = frame(2)
    before, after = predict(plain, table), predict(loaded, table)
    assert after.scores == pytest.approx(before.scores - least.threshold)
    assert np.array_equal(after.labels > 0, before.scores - least.threshold > 0)
    assert mean_cost(loaded, table) < 0.8 * mean_cost(plain, table)
    assert least.cost.on_rows[0] <= mean_cost(loaded, frame(1)) <= least.cost.on_rows[1]
    assert "Its score is lowered by" in loaded.summary()
    pipeline = loaded.to_sklearn(classes="signs")
    assert np.array_equal(pipeline.predict(table.drop(columns="ill")), after.labels)
    # A second evaluation of it begins at its own threshold, and states the sum.
    again = loaded.at_threshold(replace(least, threshold=0.5))
    assert again.threshold.score == pytest.approx(least.threshold + 0.5)
    assert predict(again, table).scores == pytest.approx(after.scores - 0.5)


@pytest.mark.more
def test_probabilities_do_not_move_with_the_threshold(federation, plain):
    found = federation.evaluate(plain, epsilon=50, cost=COST)
    calibrated = plain.calibrated(found)
    better = calibrated.at_threshold(found.least_cost)
    table = frame(2, 500)
    assert predict(better, table).probabilities == pytest.approx(predict(calibrated, table).probabilities)
    # Those by the link would: they are left out, and it is said.
    linked = replace(plain, estimator="logistic-gd")
    assert why_no_probability(linked) is None
    assert "its score was lowered by a threshold" in (why_no_probability(linked.at_threshold(found.least_cost)) or "")


@pytest.mark.more
def test_no_model_is_made_of_a_choice_that_the_noise_hides(federation, plain):
    hidden = replace(federation.evaluate(plain, epsilon=5, cost=COST).least_cost, is_measurable=False)
    with pytest.raises(ModelError, match="not measurable at this epsilon"):
        plain.at_threshold(hidden)
    same = replace(hidden, is_measurable=True, threshold=None, calls="none")
    with pytest.raises(ModelError, match="calling every row negative costs least"):
        plain.at_threshold(same)


def test_a_model_without_a_bias_or_with_other_weights_is_refused(plain):
    schema = replace(plain.schema, bias=False)
    unbiased = Model(plain.theta[:-1], schema, "newton", plain.release_digest, plain.statement)
    least = type("Least", (), {"is_measurable": True, "threshold": 0.5, "costs": Costs.parse(COST)})()
    with pytest.raises(ConfigurationError, match="no bias that a threshold could be taken from"):
        unbiased.at_threshold(least)
    for weights in ((1,), (0, 1), (1, 2, 3)):
        with pytest.raises(ModelError, match="class weights are"):
            replace(plain, class_weights=weights)
    with pytest.raises(ModelError, match="the threshold is nan"):
        Threshold(float("nan"), Costs.parse(COST))


def test_a_training_says_what_the_noise_hides_of_its_weights(federation):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = federation.train("newton", epsilon=0.01, class_weight="balanced", rounds=3)
    assert model.class_weights == ()
    assert any("balanced weights are not known" in str(each.message) for each in caught)
    with pytest.raises(ConfigurationError, match="names 'ill', which is no class"):
        federation.train("newton", epsilon=1, class_weight="ill=5")
    json.dumps(to_json(model))
