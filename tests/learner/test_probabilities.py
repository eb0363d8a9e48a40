"""Probabilities: by the link where scores are log odds, calibrated where an evaluation measured it, and else none."""

import json
import re
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone

from dpcore.errors import ModelError
from dpcore.evaluation.evaluation import evaluate
from dpcore.evaluation.options import EvaluationOptions
from learner.estimators import BY_QUERIES, FROM_RELEASES, LOG_ODDS, OTHER_SCORES, make_estimator
from learner.model import Model
from learner.predictions import count_errors, predict
from learner.training import model_of_answers
from learner.uncertainty import Calibration, probability_in_words, why_no_probability
from radofed import simulated_federation
from radofed.cli.entry_point import run

ROWS = 6000
OPTIONS = {"threshold": {"feature": "age"}, "point": {"feature": "city"}}


def frame(seed: int, rows: int = ROWS) -> pd.DataFrame:
    """Ages, a flag and a city, with labels whose log odds are known: 3 (age - 55) / 35 + 2 smoker - 1."""
    random = np.random.default_rng(seed)
    age, smoker = random.integers(20, 91, rows), random.integers(0, 2, rows)
    odds = 3.0 * (age - 55) / 35 + 2.0 * smoker - 1.0
    return pd.DataFrame(
        {
            "ill": np.where(random.random(rows) < 1 / (1 + np.exp(-odds)), "sick", "well"),
            "city": np.array(["Genève", "Zürich", "Basel"])[random.integers(0, 3, rows)],
            "smoker": np.array(["no", "yes"])[smoker],
            "age": age,
        }
    )


@pytest.fixture(scope="module")
def federation():
    return simulated_federation(frame(1), label="ill", positive="sick", parties=4)


def trained(federation, name: str, epsilon: int = 5) -> Model:
    oracle = federation.within(Fraction(epsilon), Fraction(1, 10**6))
    estimator = make_estimator(name, **OPTIONS.get(name, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit_queries(oracle)
    return model_of_answers(estimator, oracle, name)


def calibration_error(chances, positive, groups: int = 10) -> float:
    order = np.array_split(np.argsort(chances), groups)
    return float(np.mean([abs(chances[part].mean() - positive[part].mean()) for part in order]))


def test_every_estimator_is_said_to_give_log_odds_or_not():
    assert LOG_ODDS.keys() | OTHER_SCORES.keys() == {*BY_QUERIES, *FROM_RELEASES}
    assert not LOG_ODDS.keys() & OTHER_SCORES.keys()


@pytest.mark.parametrize("name", sorted(BY_QUERIES))
def test_the_models_of_estimators_take_raw_frames(federation, name):
    try:
        model = trained(federation, name)
    except Exception as error:  # noqa: BLE001  (an estimator of other kinds of columns says so)
        pytest.skip(f"{name} cannot learn from this table: {error}")
    table = frame(2, 500)
    pipeline = model.to_sklearn()
    assert pipeline.classes_.tolist() == ["well", "sick"]
    expected = np.where(predict(model, table).labels > 0, "sick", "well")
    for given in (table, pl.from_pandas(table), pa.Table.from_pandas(table), table.drop(columns="ill")):
        assert np.array_equal(pipeline.predict(given), expected)
    if why := why_no_probability(model):
        with pytest.raises(AttributeError, match="has scores and no probabilities") as raised:
            pipeline.predict_proba(table)
        assert str(raised.value) == why
        assert predict(model, table).probabilities is None
    else:
        assert pipeline.predict_proba(table)[:, 1] == pytest.approx(predict(model, table).probabilities, abs=1e-12)


@pytest.mark.more
def test_a_calibrated_model_is_calibrated(federation, tmp_path):
    model = trained(federation, "newton")
    # Scores far too large, as of a model whose link would be wrong.
    wrong = replace(model, theta=4.0 * model.theta)
    oracle = federation.within(Fraction(2), Fraction(1, 10**6))
    better = wrong.calibrated(evaluate(wrong.theta, oracle, EvaluationOptions(scale=4.0)))
    better.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    assert again.digest == better.digest != wrong.digest
    table = frame(3, 20_000)
    positive = (table["ill"] == "sick").to_numpy()
    chances = again.to_sklearn().predict_proba(table)
    assert chances[:, 1] == pytest.approx(predict(again, table).probabilities, abs=1e-9)
    linked = 1 / (1 + np.exp(-predict(wrong, table).scores))
    # The link of these scores is off by more than a tenth; the calibration by what rows and noise leave.
    assert calibration_error(linked, positive) > 0.08
    assert calibration_error(chances[:, 1], positive) < 0.03
    # Decisions stay those of the scores.
    assert np.array_equal(predict(again, table).labels, predict(wrong, table).labels)
    assert "calibrated on an evaluation over about " in probability_in_words(again)
    told = r" rows that it may have been trained on: the shares of positive rows in [89] bins"
    assert re.search(told, probability_in_words(again))
    exported = again.to_original_units()["probability"]
    assert exported["kind"] == "calibrated"
    scores = predict(again, table).scores
    assert np.interp(scores, exported["margins"], exported["probabilities"]) == pytest.approx(chances[:, 1], abs=1e-9)


def test_a_refitted_clone_is_an_ordinary_regression(federation):
    pipeline = clone(trained(federation, "newton").to_sklearn())
    table = frame(4)
    pipeline.fit(table, table["ill"])
    assert calibration_error(pipeline.predict_proba(table)[:, 0], (table["ill"] == "sick").to_numpy()) < 0.03
    assert pipeline.classes_.tolist() == ["sick", "well"]


@pytest.mark.more
def test_an_evaluation_of_noise_calibrates_nothing(federation):
    model = trained(federation, "newton")
    noisy = evaluate(model.theta, federation.within(Fraction(1, 1000), Fraction(1, 10**6)))
    with pytest.raises(ModelError, match="noise hides how many rows have which score"):
        model.calibrated(noisy)


def test_a_calibration_is_monotone_and_within_range():
    for scores, chances in (
        ([0.0, 0.0], [0.1, 0.2]),
        ([0.0, 1.0], [0.2, 0.1]),
        ([0.0, 1.0], [0.0, 0.5]),
        ([0.0], [0.5]),
    ):
        with pytest.raises(ModelError, match="evaluate again"):
            Calibration(np.array(scores), np.array(chances), "made up")


def test_encode_takes_frames_and_leaves_the_label_alone():
    schema = simulated_federation(frame(1, 50), label="ill", positive="sick", parties=2).schema
    table = frame(2, 40)
    rows = schema.encode(table)
    assert rows.x.shape == (40, schema.d)
    assert rows.usable.all()
    assert rows.labels is None
    for other in (table.drop(columns="ill"), table.assign(ill=None), pl.from_pandas(table)):
        assert np.array_equal(schema.encode(other).x, rows.x)


def test_scores_depend_on_features_only(federation, tmp_path, capsys):
    model = trained(federation, "naive-bayes")
    model.save(tmp_path / "model.json")
    tables = {"known": frame(5, 60), "empty": frame(5, 60).assign(ill=""), "other": frame(5, 60).assign(ill="Sick")}
    tables["some"] = frame(5, 60)
    tables["some"].loc[:9, "ill"] = ""
    written = {}
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        to = tmp_path / f"{name}_scores.csv"
        arguments = [str(tmp_path / "model.json"), str(tmp_path / f"{name}.csv"), "--output", str(to)]
        assert run(["learner", "predict", *arguments, "--id-column", "city", "--format", "json"]) == 0
        written[name] = (to.read_text(), json.loads(capsys.readouterr().out)["data"])
    assert len({text for text, _ in written.values()}) == 1
    lines = written["empty"][0].splitlines()
    assert lines[0] == "row,city,score,label,label_text,probability"
    assert lines[1].startswith("1,")
    assert {line.split(",")[4] for line in lines[1:]} == {"well", "sick"}
    first = lines[1].split(",")
    assert float(first[5]) == pytest.approx(1 / (1 + np.exp(-float(first[2]))), abs=1e-5)
    assert (written["empty"][1]["error_rate"], written["empty"][1]["labelled"]) == (None, 0)
    assert written["other"][1]["error_rate"] is None
    assert written["some"][1]["labelled"] == 50
    found = count_errors(model, tables["some"])
    assert (found.rows, found.compared) == (60, 50)
    assert f"of 50 rows with a label, {found.wrong} of them; 10 others" in found.sentence()
