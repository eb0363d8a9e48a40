"""What each column adds to the score of one row, as predictions read rows."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.features import Label, RealFeature
from dpcore.records.schema import Schema
from learner.predictions import predict
from tests.learner.shapes.mapped import STATEMENT, model

ROW = {"age": 61, "fee": 0, "smoker": "1", "ward": "north", "height": 175.5, "note": "ignored"}


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("change", [{}, {"fee": None}, {"ward": "west"}, {"age": 130.0}, {"smoker": 1}])
def test_it_adds_up_to_the_score_that_a_prediction_has(mapped, change):
    made, row = model(mapped=mapped), ROW | change
    found = made.explain(row)
    predicted = predict(made, pa.table({name: [value] for name, value in row.items()}))
    assert found.score == predicted.scores[0]
    assert found.label == predicted.labels[0]
    total = found.intercept + sum(each.adds for each in found.contributions)
    assert total == pytest.approx(found.score, abs=1e-9)
    sizes = [abs(each.adds) for each in found.contributions]
    assert sizes == sorted(sizes, reverse=True)
    pairs = {("age", "fee"), ("age", "ward")} if mapped else set()
    columns = {("age",), ("fee",), ("smoker",), ("ward",), ("height",)}
    assert {each.columns for each in found.contributions} == columns | pairs


def test_each_column_adds_what_its_shape_says():
    made = model()
    adds = {each.columns: each.adds for each in made.explain(ROW).contributions}
    assert adds["smoker",] == made.theta[2]
    other = {each.columns: each.adds for each in made.explain(ROW | {"smoker": "no"}).contributions}
    assert other["smoker",] == -made.theta[2]
    assert {columns for columns in adds if adds[columns] != other[columns]} == {("smoker",)}


def test_a_row_that_has_no_prediction_has_no_explanation():
    found = model().explain(ROW | {"smoker": None})
    assert math.isnan(found.score)
    assert (found.label, found.contributions) == (0, ())
    assert found.reason == "in column 'smoker' the cell is empty, and missing = \"zero-vector\" leaves its row out"
    assert not model().explain(ROW).reason


def test_an_explanation_says_what_the_schema_changed():
    assert model().explain(ROW).changes == ()
    found = model().explain(ROW | {"ward": "NORTH", "age": 130.0})
    assert found.label
    assert [(change.column, change.policy, change.choice, change.alike) for change in found.changes] == [
        ("ward", "unknown", "zero", 1),
        ("age", "out_of_bounds", "clip", 0),
    ]
    assert found.changes[0].sentence.startswith("In column 'ward' the cell is not among the schema's values")


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"fee": 2000}, DataError, "above the schema's upper bound 1500"),
        ({"age": None}, DataError, "the cell is empty"),
        ({"age": math.nan}, DataError, "the cell is empty"),
        ({"age": math.inf}, DataError, "not a finite number"),
        ({"age": "old"}, DataError, "is not a finite number"),
        ({"smoker": "maybe"}, DataError, "neither in true nor in false"),
        ({"smoker": object()}, ConfigurationError, "give numbers, texts"),
    ],
)
def test_values_that_predictions_refuse(change, error, says):
    with pytest.raises(error, match=says):
        model().explain(ROW | change)
    with pytest.raises(DataError, match="there is no such column; check the names of the row's columns"):
        model().explain({name: value for name, value in ROW.items() if name != "age"})
    with pytest.raises(ConfigurationError, match="give a mapping from columns to values"):
        model().explain([50, "yes"])


def test_features_of_one_column_add_up():
    schema = Schema(
        name="twice",
        label=Label(column="ill", positive=("yes",)),
        features=(
            RealFeature(name="age", lower=0.0, upper=100.0),
            RealFeature(name="young", column="age", lower=0.0, upper=10.0, out_of_bounds="clip"),
        ),
    )
    made = replace(
        model(mapped=False), theta=np.array([1.0, 2.0, 0.5]), schema=schema, statement=STATEMENT, covariance=None
    )
    found = made.explain({"age": 5})
    assert [(each.columns, each.adds) for each in found.contributions] == [(("age",), pytest.approx(-0.9))]
    assert found.score == pytest.approx(-0.4)
