"""A model over a feature map as a scikit-learn pipeline: the same decisions, on every row."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from dpcore.errors import ConfigurationError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term
from learner.model import Model
from tests.learner.random_maps import SCHEMA, STATEMENT, encoded, models

# Names are checked on data frames; of an array, which has none, scikit-learn says so.
pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

SMALL = 2.0**-20
# Hats of a unit's width are steps, and so are point masses.
NARROW = FeatureMap(
    (
        Term(Column(0)),
        Term(Hat(0, 7, 8, 9), ONE // 4, 1),
        Term(Hat(0, -ONE, 8, None), ONE // 2),
        Term(PointMass(0, -3), 5, 2),
        Term(PointMass(1, 0), ONE // 10),
        Term(Column(2)),
        Term(Column(3), 0, 3),
        Term(Product(1, 4), 0, 1),
        Term(Product(3, 5)),
        Term(Product(0, 6)),
        Term(Product(2, 4)),
    ),
    bias=True,
)
THETA = np.array([0.5, 4.0, -3.0, 2.0, 1.5, -0.75, 0.25, 6.0, -2.0, 1.0, 0.7, -0.1])


def model(feature_map=NARROW, theta=THETA, schema=SCHEMA):
    return Model(theta, schema, "additive", bytes(32), STATEMENT, None, feature_map)


def assert_same_decisions(fitted: Model, seed: int) -> None:
    x = encoded(fitted, seed)
    scores, pipeline = fitted.scores(x), fitted.to_sklearn(classes="signs")[1:]
    rows = x[:, : fitted.schema.d - fitted.schema.bias]
    margins = pipeline.decision_function(rows)
    assert margins == pytest.approx(scores, abs=1e-9)
    clear = np.abs(scores) >= SMALL
    assert np.array_equal(pipeline.predict(rows)[clear], np.where(scores > 0, 1, -1)[clear])


@pytest.mark.more
@settings(max_examples=25)
@given(fitted=models(), seed=st.integers(0, 1000))
def test_every_map_keeps_its_margins(fitted, seed):
    assert_same_decisions(fitted, seed)


def test_steps_of_one_unit_and_products():
    assert_same_decisions(model(), 1)
    assert_same_decisions(model(replace(NARROW, bias=False), THETA[:-1], replace(SCHEMA, bias=False)), 2)


def test_the_comparison_notices_a_unit():
    """One knot moved by 2^-30 gives other margins, so that the tests above are about the stored values."""
    moved = [replace(t, function=Hat(0, 8, 9, 10)) if t.function == Hat(0, 7, 8, 9) else t for t in NARROW.terms]
    x = encoded(model(), 1)
    found = model(FeatureMap(tuple(moved), bias=True)).to_sklearn()[1:].decision_function(x[:, :-1])
    assert np.abs(found - model().scores(x)).max() > 1


def test_what_estimators_have():
    fitted = model()
    pipeline = fitted.to_sklearn()[1:]
    check_is_fitted(pipeline)
    x = encoded(fitted, 3)
    rows = x[:, :-1]
    assert pipeline.n_features_in_ == SCHEMA.d - 1
    assert pipeline.classes_.tolist() == ["well", "sick"]
    assert isinstance(pipeline[-1], LogisticRegression)
    assert np.array_equal(pickle.loads(pickle.dumps(pipeline)).predict(rows), pipeline.predict(rows))
    assert set(fitted.to_sklearn(classes="signs")[1:].predict(rows)) == {-1, 1}
    with pytest.raises(ConfigurationError, match="choose 'signs' or 'label'"):
        fitted.to_sklearn(classes="words")


def test_a_clone_learns_the_same_shapes_from_other_rows():
    """Knots, values and pairs are parameters: a clone is not fitted, and fitting it finds the model's decisions."""
    fitted = model()
    copy = clone(fitted.to_sklearn()[1:])
    assert not hasattr(copy[-1], "coef_")
    x = encoded(fitted, 4, 4000)
    decisions = np.where(fitted.scores(x) > 0, 1, -1)
    copy.set_params(classifier__C=1000.0, classifier__max_iter=3000).fit(x[:, :-1], decisions)
    other = encoded(fitted, 5, 2000)
    agreed = copy.predict(other[:, :-1]) == np.where(fitted.scores(other) > 0, 1, -1)
    straight = LogisticRegression(C=1000.0).fit(x[:, :-1], decisions).predict(other[:, :-1])
    assert agreed.mean() > 0.97
    assert agreed.mean() > (straight == np.where(fitted.scores(other) > 0, 1, -1)).mean() + 0.02
