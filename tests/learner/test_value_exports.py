"""Exports of models of numbers, counts and times: the JSON and the pipeline say what `predict` says."""

import csv
import math
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

from dpcore.errors import ConfigurationError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, Product, Term
from dpcore.records.features import BooleanFeature, CategoryFeature, Count, EventTime, Number, RealFeature
from dpcore.records.schema import Schema
from learner.model import Model
from learner.predictions import predict
from radofed.cli.entry_point import run
from tests.learner.test_models import STATEMENT

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/use-a-model-elsewhere.md"
FEATURES = (
    RealFeature(name="age", lower=20.0, upper=80.0, out_of_bounds="clip", missing="impute", impute=50.0),
    BooleanFeature(name="smoker", true=("yes",), false=("no",)),
    CategoryFeature(name="city", values=("north", "south"), unknown="zero"),
)
LABELS = {
    "number": Number(column="wage", lower=10.0, upper=200.0),
    "logarithm": Number(column="wage", lower=10.0, upper=200.0, log=True),
    "count": Count(column="n", upper=40),
    "rate": Count(column="n", upper=40, exposure="years", exposure_lower=0.5, exposure_upper=4.0),
    "time": EventTime(column="t", event="died", happened=("yes",), borders=(1.0, 2.5, 6.0)),
}
MAP = FeatureMap(
    (
        Term(Column(0)),
        Term(Hat(0, None, -ONE, 0), ONE // 4, 1),
        Term(Column(1)),
        Term(Product(0, 2)),
        Term(Column(2)),
    ),
    bias=True,
)


def model(name: str, feature_map: FeatureMap | None = None) -> Model:
    schema = Schema(name="s", label=LABELS[name], features=FEATURES)
    theta = np.array([0.3, -0.2, 0.25, -0.15, 0.1, 0.2][: len(schema.coordinates)])
    if feature_map is not None:
        theta = np.linspace(-0.4, 0.5, feature_map.d)
    estimator = {"time": "hazards", "count": "linear"}.get(name, "newton")
    hazards = np.log([0.1, 0.2, 0.3]) if name == "time" else None
    return Model(theta, schema, estimator, bytes(32), STATEMENT, feature_map=feature_map, log_hazards=hazards)


ROWS = [
    {"age": "31.5", "smoker": "yes", "city": "north"},
    {"age": "", "smoker": "no", "city": "south"},
    {"age": "99", "smoker": "no", "city": "elsewhere"},
    {"age": "20", "smoker": "yes", "city": "south"},
]


def predicted(made: Model, tmp_path):
    path = tmp_path / "new.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        written = csv.DictWriter(file, list(ROWS[0]))
        written.writeheader()
        written.writerows(ROWS)
    return predict(made, path)


@pytest.mark.parametrize("feature_map", [None, MAP])
@pytest.mark.filterwarnings("ignore:In column")
def test_the_exported_program_says_what_predict_says(feature_map, tmp_path):
    """The program is the one that the page prints, run on raw cells."""
    program: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        if "def " in block:
            exec(block, program)
    for name in LABELS:
        made = model(name, feature_map)
        exported, found = made.to_original_units(), predicted(made, tmp_path)
        assert exported["format_version"] == 4
        assert "probability" not in exported
        for place, row in enumerate(ROWS):
            score, prediction = program["score"](exported, row)
            assert score == pytest.approx(found.scores[place], abs=1e-6)
            expected = found.values[place] if found.survival is None else found.survival[place]
            assert prediction == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("feature_map", [None, MAP])
@pytest.mark.filterwarnings("ignore:In column")
def test_the_pipeline_says_what_predict_says(feature_map, tmp_path):
    frame = pl.DataFrame(ROWS)
    for name in LABELS:
        made = model(name, feature_map)
        pipeline, found = made.to_sklearn(), predicted(made, tmp_path)
        again = pickle.loads(pickle.dumps(pipeline))
        for each in (pipeline, again):
            expected = found.scores if name == "time" else found.values
            assert each.predict(frame) == pytest.approx(expected, rel=1e-6, abs=1e-6)
        if name == "time":
            inner = pipeline[:-1].transform(frame)
            assert pipeline[-1].survival(inner) == pytest.approx(found.survival, abs=1e-6)
            assert pipeline[-1].restricted_mean(inner) == pytest.approx(found.values, abs=1e-6)


def test_a_clone_learns_again_or_says_that_it_cannot():
    x = np.random.default_rng(1).uniform(-1, 1, (400, 4))
    for name, scale in (("number", 1.0), ("logarithm", 0.01)):
        pipeline = clone(model(name).to_sklearn())
        y = np.exp(scale * (x @ [1.0, 2.0, 0.0, 0.0] + 3.0)) if scale < 1 else x @ [1.0, 2.0, 0.0, 0.0] + 3.0
        assert pipeline[-1].fit(x, y).score(x, y) > 0.99
    with pytest.raises(ConfigurationError, match="not fitted again"):
        clone(model("time").to_sklearn())[-1].fit(x, x[:, 0])
    with pytest.raises(ConfigurationError, match="leave classes='signs' out"):
        model("rate").to_sklearn(classes="signs")


def test_the_command_writes_them(tmp_path):
    for name in ("rate", "time"):
        made, to = tmp_path / f"{name}.json", tmp_path / f"{name}-units.json"
        model(name).save(made)
        assert run(["learner", "export", str(made), "-o", str(to)]) == 0
        assert f'"{name if name == "rate" else "survival"}"' in to.read_text()


def test_an_explanation_has_the_prediction():
    row = {"age": 31.5, "smoker": "yes", "city": "north"}
    for name in LABELS:
        made = model(name)
        found = made.explain(row)
        adds = found.intercept + sum(each.adds for each in found.contributions)
        assert adds == pytest.approx(found.score)
        x = np.array([[2 * (31.5 - 20) / 60 - 1, 1.0, 1.0, 0.0, 1.0]])
        assert found.value == pytest.approx(made.predictions(x @ made.theta)[0])
        assert found.label == 1
        assert made.plot().drawing is not None
    bare = RealFeature(name="age", lower=20.0, upper=80.0, missing="zero-vector")
    schema = Schema(name="s", label=LABELS["number"], features=(bare,))
    unusable = replace(model("number"), schema=schema, theta=np.array([0.5, 0.1]))
    nothing = unusable.explain({"age": None})
    assert math.isnan(nothing.score)
    assert nothing.value is None
    assert nothing.label == 0
