"""A model over a feature map as JSON in the units of its columns, read without radofed."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.errors import ModelError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term, stored
from dpcore.records.schema import RealFeature
from learner.model import Model
from learner.predictions import predict
from radofed.cli.entry_point import run
from tests.learner.random_maps import SCHEMA, STATEMENT, models

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/use-a-model-elsewhere.md"


@pytest.fixture(scope="module")
def margin():
    """The evaluator of the documentation."""
    (code,) = re.findall(r"```python\n(def margin.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 17
    names: dict = {}
    exec(compile(code, PAGE.name, "exec"), names)
    return names["margin"]


def exported(fitted: Model):
    return json.loads(json.dumps(fitted.to_original_units(), allow_nan=False))


def rows(content, seed: int, count: int = 60):
    """Values by feature: half of the numbers at or next to knots, intervals and bounds."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        row = {"smoker": bool(random.random() < 0.5), "dear": bool(random.random() < 0.5)}
        row["ward"] = str(random.choice(["north", "east", "west"]))
        for feature in (f for f in SCHEMA.features if isinstance(f, RealFeature)):
            keys = ("lower", "upper", "left", "peak", "right", "at_least", "at_most")
            ends = [t[key] for t in content["terms"] if t.get("feature") == feature.name for key in keys if key in t]
            ends = [end for end in ends if end is not None] or [feature.lower]
            near = [math.nextafter(end, way) for end in ends for way in (-math.inf, math.inf)]
            special = float(random.choice([*ends, *near]))
            value = special if random.random() < 0.5 else float(random.uniform(feature.lower, feature.upper))
            row[feature.name] = min(max(value, feature.lower), feature.upper)
        found.append(row)
    return found


def scores(fitted: Model, values):
    """By radofed, from the columns' cells."""
    columns = {
        "age": [row["age"] for row in values],
        "mg": [row["dose"] for row in values],
        "smoker": ["yes" if row["smoker"] else "no" for row in values],
        "ward": [row["ward"] for row in values],
        "bill": [99.5 if row["dear"] else 99.4 for row in values],
    }
    return predict(fitted, pa.table(columns)).scores


def steps(fitted: Model) -> float:
    """The most that the hats of a model change over two units of 2^-30, with their weights."""
    found = []
    for term in fitted.feature_map.terms:
        match term.function:
            case Hat(_, left, peak, right):
                found.append(2 / min(abs(peak - end) for end in (left, right) if end is not None))
            case Product(first, second):
                found.append(found[first] + found[second])
            case _:
                found.append(2 / ONE)
    return float(np.abs(fitted.theta[: len(found)]) @ found)


@pytest.mark.more
@settings(max_examples=40)
@given(fitted=models(), seed=st.integers(0, 1000))
def test_the_documented_evaluator_gives_the_models_margins(margin, fitted, seed):
    content = exported(fitted)
    assert (content["format"], content["format_version"]) == ("radofed-original-units", 2)
    values = rows(content, seed)
    found = np.array([margin(content, row) for row in values])
    assert np.abs(found - scores(fitted, values)).max() <= steps(fitted) + 1e-9


MAP = FeatureMap(
    (
        Term(Hat(0, None, -ONE // 2, 0), ONE // 4, 1),
        Term(PointMass(1, 0), ONE // 2, 2),
        Term(Column(2)),
        Term(Column(4), 0, 1),
        Term(Column(0)),
        Term(Product(0, 1), 0, 3),
    ),
    bias=True,
)
WEIGHTS = np.array([2.0, 4.0, -0.5, 6.0, 1.0, 8.0, 0.75])


def model(**changes):
    return replace(Model(WEIGHTS, SCHEMA, "additive", bytes(32), STATEMENT, None, MAP), **changes)


def test_terms_by_hand(margin):
    content = exported(model())
    hat, mass, truth, ward, line, product = content["terms"]
    assert hat == {
        "function": "hat", "feature": "age", "left": None, "peak": 37.25, "right": 56.5, "centre": 0.25, "weight": 1.0,
    }  # fmt: skip
    assert (mass["function"], mass["feature"], mass["centre"], mass["weight"]) == ("between", "dose", 0.5, 1.0)
    dose = SCHEMA.features[1]
    for at, inside in ((mass["at_least"], True), (mass["at_most"], True)):
        assert stored(dose, at) == 0
        beyond = math.nextafter(at, -math.inf if at == mass["at_least"] else math.inf)
        assert (stored(dose, beyond) == 0) is not inside
    assert truth == {"function": "truth", "feature": "smoker", "centre": 0.0, "weight": -0.5}
    assert ward == {"function": "is", "feature": "ward", "value": "east", "centre": 0.0, "weight": 3.0}
    assert line == {"function": "line", "feature": "age", "lower": 18.0, "upper": 95.0, "centre": 0.0, "weight": 1.0}
    assert product == {"function": "product", "first": 0, "second": 1, "centre": 0.0, "weight": 1.0}
    assert content["intercept"] == 0.75
    assert content["features"][0]["impute"] == 41.5
    assert "weight" not in content["features"][0]
    row = {"age": 56.5, "dose": -0.1245, "smoker": False, "ward": "east", "dear": True}
    by_hand = -0.25 + 0.5 + 0.5 + 3.0 + 0.0 + (-0.25 * 0.5) + 0.75
    assert margin(content, row) == pytest.approx(by_hand, abs=1e-12)


def test_a_point_mass_at_a_bound_and_where_no_double_is_stored():
    for at in (-ONE, ONE):
        at_bound = FeatureMap((Term(PointMass(0, at)),), bias=True)
        (term,) = exported(model(feature_map=at_bound, theta=np.ones(2)))["terms"]
        assert (term["at_least"] == 18.0) == (at == -ONE)
        assert (term["at_most"] == 95.0) == (at == ONE)
        assert term["at_least"] <= term["at_most"]
    few = replace(SCHEMA, features=(RealFeature(name="few", lower=1.0, upper=math.nextafter(1.0, 2.0)),))
    never = FeatureMap((Term(PointMass(0, 12345)),), bias=True)
    (term,) = exported(model(schema=few, feature_map=never, theta=np.ones(2)))["terms"]
    assert term["at_least"] > term["at_most"]


def test_knots_that_coincide_in_the_columns_units_are_refused():
    few = replace(SCHEMA, features=(RealFeature(name="few", lower=1.0, upper=math.nextafter(1.0, 2.0)),))
    close = FeatureMap((Term(Hat(0, 1, 2, 3)),), bias=True)
    with pytest.raises(ModelError, match="two knots of 'few' are the same double"):
        model(schema=few, feature_map=close, theta=np.ones(2)).to_original_units()


def test_the_command(tmp_path, capsys):
    saved, out = tmp_path / "model.json", tmp_path / "units.json"
    model().save(saved)
    assert run(["learner", "export", str(saved), "--output", str(out), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["features"] == 5
    assert json.loads(out.read_text()) == exported(model())
