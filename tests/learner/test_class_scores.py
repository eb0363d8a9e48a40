"""What a model of several classes says: probabilities, explanations, exports, pipelines, and what is right."""

import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

from dpcore.errors import ConfigurationError, ModelError
from dpcore.evaluation.class_evaluation import ClassEvaluation, evaluate_classes
from dpcore.evaluation.options import EvaluationOptions
from dpcore.predicates.evaluation import sums
from dpcore.records.coding import class_codes
from dpcore.records.encoding import store
from dpcore.records.features import Number
from dpcore.records.features.labels import LABEL_TYPES
from dpcore.records.records import Records
from learner import scoring
from learner.model import Model
from learner.predictions import predict
from learner.report.evaluation_files import FILES
from learner.report.measured import OwnRows
from learner.scoring import OneScore, scoring_of
from learner.shapes import every_shapes, shapes_of
from learner.uncertainty import Calibration, ClassCalibration, probability_in_words, why_no_probability
from tests.learner.class_models import HTML, NAMES, class_model
from tests.learner.shapes.mapped import model as two_class_model
from tests.learner.shapes.mapped import rows

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/use-a-model-elsewhere.md"
ROW = {"age": 50.0, "fee": 0.0, "smoker": "yes", "ward": "north", "height": 190.0}
OPTIONS = EvaluationOptions()


def frame(count: int = 40) -> pd.DataFrame:
    random = np.random.default_rng(5)
    found = pd.DataFrame(
        {
            "age": random.uniform(0, 100, count),
            "fee": random.choice([0.0, 500.0, -250.0], count),
            "smoker": random.choice(["yes", "no"], count),
            "ward": random.choice(["east", "north", "elsewhere"], count),
            "height": random.uniform(150, 200, count),
            "kind": random.choice(NAMES, count),
        }
    )
    found.loc[3, "smoker"] = ""
    return found


def softmax(scores: np.ndarray) -> np.ndarray:
    parts = np.exp(scores)
    return parts / parts.sum(axis=1, keepdims=True)


def test_probabilities_are_the_softmax_where_scores_are_log_odds():
    made = class_model()
    scores = np.array([[1.0, -2.0, 0.5], [math.nan] * 3, [800.0, 0.0, 1.0]])
    found = made.probabilities(scores)
    assert found[0] == pytest.approx(softmax(scores[:1])[0], rel=1e-14)
    assert np.isnan(found[1]).all()
    assert found[2].tolist() == [1.0, 0.0, 0.0]
    assert "softmax" in probability_in_words(made)
    newton = replace(made, estimator="newton")
    assert "weights are clipped" in (why_no_probability(newton) or "")
    with pytest.raises(ModelError, match="has scores and no probabilities"):
        newton.probabilities(scores)


def test_a_row_without_a_prediction_has_no_probability(tmp_path):
    table = tmp_path / "new.csv"
    frame().to_csv(table, index=False)
    with pytest.warns(UserWarning, match="is not usable"):
        found = predict(class_model(), table)
    assert found.labels[3] == -1
    assert np.isnan(found.probabilities[3]).all()
    known = np.arange(40) != 3
    assert found.probabilities[known] == pytest.approx(softmax(found.scores[known]), abs=1e-12)


@pytest.mark.parametrize("mapped", [False, True])
def test_an_explanation_adds_up_to_a_class_s_score_beside_the_average(mapped):
    made = class_model(mapped=mapped)
    (scores,) = made.scores(made.schema.encode(pd.DataFrame([ROW])).x)
    said = int(scores.argmax())
    for of in (None, *NAMES):
        found = made.explain(ROW, of=of)
        place = said if of is None else NAMES.index(of)
        assert (found.of, found.label) == (NAMES[place], said)
        assert found.score == pytest.approx(scores[place] - scores.mean(), abs=1e-12)
        total = found.intercept + sum(each.adds for each in found.contributions)
        assert total == pytest.approx(found.score, abs=1e-9)
        assert dict(found.scores) == pytest.approx(dict(zip(NAMES, scores - scores.mean(), strict=True)), abs=1e-12)
    with pytest.raises(ConfigurationError, match="no score for 'ants'; did you mean 'ant'"):
        made.explain(ROW, of="ants")
    unusable = made.explain(ROW | {"smoker": None}, of="cow")
    assert (unusable.label, unusable.contributions, unusable.of) == (-1, (), "cow")
    assert math.isnan(unusable.score)


def test_what_all_classes_share_is_in_no_shape():
    """Weights that are added to every class change no shape and no explanation."""
    made = class_model()
    moved = replace(made, theta=made.theta + np.random.default_rng(3).normal(size=made.theta.shape[1]))
    for one, other in zip(every_shapes(made), every_shapes(moved), strict=True):
        assert one.intercept == pytest.approx(other.intercept, abs=1e-9)
        sizes = {shape.title: shape.size for shape in one.ranked}
        assert {shape.title: shape.size for shape in other.ranked} == pytest.approx(sizes, abs=1e-9)
    assert moved.explain(ROW, of="cow").score == pytest.approx(made.explain(ROW, of="cow").score, abs=1e-9)


@pytest.mark.parametrize("mapped", [False, True])
def test_contributions_add_up_to_the_scores(mapped):
    made, x = class_model(mapped=mapped), rows(20, 1)
    total = sum(made.contributions(x).values())
    assert total == pytest.approx(made.scores(x), abs=1e-9)


def test_shapes_are_of_a_class():
    made = class_model()
    assert [shapes.label for shapes in every_shapes(made)] == list(NAMES)
    assert shapes_of(made, "cow").to_dict(())["positive"] == "cow"
    with pytest.raises(ConfigurationError, match="a score for each of 3 classes: give one, of='ant'"):
        shapes_of(made)
    assert shapes_of(two_class_model(), "yes").label == "yes"


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("names", [NAMES, ("ant", "bee")])
def test_a_pipeline_predicts_what_the_model_predicts(mapped, names):
    made = class_model(mapped=mapped, names=names)
    table = frame().drop(index=3)
    scores = made.scores(made.schema.encode(table).x)
    pipeline = made.to_sklearn()
    assert pipeline.classes_.tolist() == list(names)
    assert pipeline.predict(table).tolist() == [names[code] for code in scores.argmax(axis=1)]
    margins = scores if len(names) > 2 else scores[:, 1] - scores[:, 0]
    assert pipeline.decision_function(table) == pytest.approx(margins, abs=1e-6)
    assert pipeline.predict_proba(table) == pytest.approx(softmax(scores), abs=1e-6)
    with pytest.raises(AttributeError, match="no probabilities"):
        replace(made, estimator="newton").to_sklearn().predict_proba(table)
    with pytest.raises(ConfigurationError, match="signs are of a label of two classes"):
        made.to_sklearn(classes="signs")


@pytest.fixture(scope="module")
def score():
    """The scorer of the documentation."""
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec("\n".join(block for block in blocks if "def " in block), names)
    return names["score"]


@pytest.mark.parametrize("kind", ["linear", "map", "none", "calibrated"])
def test_the_scorer_of_the_documentation_reads_classes(score, kind):
    made = class_model(mapped=kind != "linear", estimator="newton" if kind == "none" else "mean-variance")
    if kind == "calibrated":
        made = replace(made, calibration=ClassCalibration(np.full((3, 3), 1 / 3), "made up"))
    exported = json.loads(json.dumps(made.to_original_units(), allow_nan=False))
    assert exported["format_version"] == 3
    assert exported["probability"]["kind"] == {"linear": "softmax", "map": "softmax"}.get(kind, kind)
    table = frame()
    found = [score(exported, {name: str(cell) for name, cell in row.items()}) for row in table.to_dict("records")]
    assert [one is None for one in found] == [place == 3 for place in range(len(table))]
    known = [one for one in found if one is not None]
    scores = made.scores(made.schema.encode(table.drop(index=3)).x)
    assert [one[0] for one in known] == [pytest.approx(each, abs=1e-6) for each in scores.tolist()]
    assert [one[1] for one in known] == [NAMES[code] for code in scores.argmax(axis=1)]
    if kind == "none":
        assert known[0][2] is None
    else:
        assert [one[2] for one in known] == [pytest.approx(each, abs=1e-6) for each in made.probabilities(scores)]


def evaluation(confusion: list[list[float]], deviation: float = 0.0) -> ClassEvaluation:
    made = class_model(mapped=False)
    cells = np.array(confusion)
    found = evaluate_classes(made.theta, OwnRows(made.schema, frame().drop(index=3)))
    return replace(found, confusion=cells, deviation=deviation, unseen=True)


def test_a_calibration_has_the_shares_of_each_predicted_class():
    made = replace(class_model(), estimator="newton").calibrated(evaluation([[90, 5, 0], [10, 60, 3], [0, 35, 97]]))
    scores = np.array([[5.0, 1.0, 1.0], [1.0, 5.0, 1.0], [math.nan] * 3])
    found = made.probabilities(scores)
    assert found[0] == pytest.approx(np.array([91, 11, 1]) / 103)
    assert found[1] == pytest.approx(np.array([6, 61, 36]) / 103)
    assert np.isnan(found[2]).all()
    assert "for each predicted class the shares of all 3 classes" in probability_in_words(made)


def test_predicted_classes_that_the_noise_hides_are_taken_together():
    cells = [[900.0, 30.0, 20.0], [100.0, -40.0, 10.0], [0.0, 5.0, 5.0]]
    made = class_model().calibrated(evaluation(cells, deviation=2.0))
    assert f"where {HTML!r} is predicted" in probability_in_words(made)
    assert "those of all rows stand for them" in probability_in_words(made)
    assert made.calibration.shares[1] == pytest.approx(np.array([951, 71, 11]) / 1033)
    assert made.calibration.shares[2] == pytest.approx(np.array([21, 11, 6]) / 38)
    together = class_model().calibrated(evaluation([[900, 20, 20], [10, 5, 0], [0, 5, 10]], deviation=5.0))
    assert "those of such predictions together stand for them" in probability_in_words(together)
    assert together.calibration.shares[1].tolist() == together.calibration.shares[2].tolist()
    with pytest.raises(ModelError, match="the noise hides how many rows are predicted"):
        class_model().calibrated(evaluation(cells, deviation=1000.0))


def test_a_calibrated_model_is_kept_and_is_a_pipeline(tmp_path):
    made = class_model(estimator="newton").calibrated(evaluation([[90, 5, 0], [10, 60, 3], [0, 35, 97]]))
    path = tmp_path / "model.json"
    made.save(path)
    kept = Model.load(path)
    assert kept.digest == made.digest
    table = frame().drop(index=3)
    expected = kept.probabilities(kept.scores(kept.schema.encode(table).x))
    assert kept.to_sklearn().predict_proba(table) == pytest.approx(expected, abs=1e-12)
    assert kept.to_original_units()["probability"]["shares"] == made.calibration.shares.tolist()


@pytest.mark.parametrize("shares", [np.ones((2, 3)) / 3, np.ones((2, 2)), np.array([[1.0, 0.0], [0.5, 0.5]])])
def test_shares_that_are_no_probabilities_are_refused(shares):
    with pytest.raises(ModelError, match="evaluate again"):
        ClassCalibration(shares, "made up")


def test_a_calibration_of_other_scores_is_refused():
    with pytest.raises(ModelError, match="is not of the model's classes"):
        replace(class_model(), calibration=ClassCalibration(np.full((2, 2), 0.5), "made up"))
    with pytest.raises(ModelError, match="is of one score, and the model has several"):
        replace(class_model(), calibration=Calibration(np.array([0.0, 1.0]), np.array([0.2, 0.7]), "made up"))


def test_what_is_right_counts_right_predictions():
    made, x = class_model(), rows(300, 2)
    codes = np.random.default_rng(8).integers(0, 3, 300).astype(np.int8)
    records = Records(store(x), codes, np.ones(300, dtype=bool), coding=class_codes(3)).mapped(made.feature_map)
    (count,) = sums([made.scoring.is_right(made)], made.schema, records, 0)
    assert count == np.count_nonzero(made.predicted(made.scores(x)) == codes)


def test_every_label_has_a_scoring_and_reads_its_evaluations():
    assert set(scoring._OF_TYPE) <= set(FILES) == set(LABEL_TYPES)
    assert scoring_of(Number(column="weight", lower=0.0, upper=9.0)).names == ("weight",)


def test_options_of_bins_are_refused_for_classes():
    of_classes = class_model().scoring
    of_classes.check_evaluation(OPTIONS)
    for options, said in (
        (EvaluationOptions(bins=10), "--bins"),
        (EvaluationOptions(scale=2.0), "--scale"),
        (EvaluationOptions(edges_part=Fraction(1, 4)), "--edges-part"),
    ):
        with pytest.raises(ConfigurationError, match=f"{said} is about bins of the one score"):
            of_classes.check_evaluation(options)
        scoring_of(two_class_model().schema.label).check_evaluation(options)
    with pytest.raises(ConfigurationError, match="the cost names 'false-negative', which is no class of the label"):
        of_classes.check_evaluation(EvaluationOptions(cost="false-negative=5"))
    assert isinstance(two_class_model().scoring, OneScore)
    with pytest.raises(ConfigurationError, match="write false-negative=5:false-positive=1"):
        two_class_model().scoring.check_evaluation(EvaluationOptions(cost="flu=5"))
