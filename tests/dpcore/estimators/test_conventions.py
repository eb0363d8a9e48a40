"""The estimators that `import radofed` offers behave in scikit-learn's tools as its own do."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

from radofed import MeanVariance, RadoBoost

ESTIMATORS = [MeanVariance(n_rados=200, random_state=0), RadoBoost(n_rounds=60, n_rados=200, random_state=0)]
both = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: type(each).__name__)


@pytest.fixture(scope="module")
def table():
    """Two columns of a frame, and texts as labels: "old" first in the alphabet, but the negative class."""
    random = np.random.default_rng(7)
    rows = pd.DataFrame(random.uniform(-1, 1, size=(600, 2)), columns=["age", "dose"])
    margin = 6.0 * rows["age"] - 3.0 * rows["dose"] + random.logistic(size=600)
    return rows, np.where(margin > 0, "treated", "old")


@both
def test_classes_are_the_users_values_and_names_are_kept(estimator, table):
    rows, labels = table
    fitted = clone(estimator).fit(rows, labels)
    assert fitted.classes_.tolist() == ["old", "treated"]
    assert set(fitted.predict(rows)) == {"old", "treated"}
    assert fitted.score(rows, labels) > 0.8
    assert fitted.feature_names_in_.tolist() == ["age", "dose"]
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(rows.rename(columns={"age": "years"}))
    counted = clone(estimator).fit(rows, labels == "treated")
    assert counted.classes_.tolist() == [False, True]


@both
def test_parameters_clones_and_pickles(estimator, table):
    rows, labels = table
    assert clone(estimator).get_params() == estimator.get_params()
    changed = clone(estimator).set_params(n_rados=50)
    assert changed.n_rados == 50
    with pytest.raises(ValueError, match="Invalid parameter"):
        changed.set_params(rados=50)
    fitted = clone(estimator).fit(rows, labels)
    assert not hasattr(clone(fitted), "theta_")
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.decision_function(rows), fitted.decision_function(rows))


@pytest.mark.more
@both
def test_pipelines_cross_validation_and_grids(estimator, table):
    rows, labels = table
    pipeline = make_pipeline(StandardScaler(), clone(estimator))
    assert cross_val_score(pipeline, rows, labels, cv=3).min() > 0.75
    assert cross_val_score(clone(estimator), rows, labels, cv=3, scoring="roc_auc").min() > 0.85
    name = pipeline.steps[-1][0]
    found = GridSearchCV(pipeline, {f"{name}__n_rados": [20, 200]}, cv=2).fit(rows, labels)
    assert found.best_params_[f"{name}__n_rados"] in (20, 200)


@both
def test_scores_are_columns_of_the_container_that_is_set(estimator, table):
    rows, labels = table
    fitted = clone(estimator).fit(rows, labels)
    name = f"{type(estimator).__name__.lower()}0"
    margins = fitted.decision_function(rows)
    assert np.array_equal(fitted.transform(rows), margins[:, np.newaxis])
    assert fitted.get_feature_names_out().tolist() == [name]
    frame = fitted.set_output(transform="pandas").transform(rows)
    assert isinstance(frame, pd.DataFrame)
    assert frame[name].tolist() == margins.tolist()
    assert frame.index.equals(rows.index)
    assert isinstance(fitted.set_output(transform="polars").transform(rows), pl.DataFrame)
    # What is set is about `transform` alone.
    assert isinstance(fitted.predict(rows), np.ndarray)
    assert isinstance(fitted.decision_function(rows), np.ndarray)


@both
def test_it_stands_in_pipelines_whose_output_is_set(estimator, table):
    rows, labels = table
    pipeline = make_pipeline(StandardScaler(), clone(estimator)).set_output(transform="pandas").fit(rows, labels)
    assert pipeline[-1].feature_names_in_.tolist() == ["age", "dose"]
    assert list(pipeline.transform(rows)) == pipeline[-1].get_feature_names_out().tolist()
    before = make_pipeline(make_union("passthrough", clone(estimator)), LogisticRegression())
    assert before.set_output(transform="pandas").fit(rows, labels).score(rows, labels) > 0.85
    stacked = StackingClassifier([("scores", clone(estimator))], LogisticRegression(), cv=2).fit(rows, labels)
    assert stacked.predict_proba(rows).shape == (600, 2)


@pytest.mark.more
def test_chances_of_gaussian_classes_are_calibrated():
    random = np.random.default_rng(3)
    labels = random.integers(0, 2, size=4000)
    rows = 0.2 * random.normal(size=(4000, 3)) + np.where(labels, 0.12, -0.12)[:, np.newaxis]
    fitted = MeanVariance(random_state=0).fit(rows, np.where(labels, "ill", "well"))
    chances = fitted.set_output(transform="pandas").predict_proba(rows)
    assert fitted.classes_.tolist() == ["ill", "well"]
    assert chances.sum(axis=1) == pytest.approx(np.ones(4000))
    ill, known = chances[:, 0], labels == 1
    for low, high in ((0.1, 0.3), (0.3, 0.7), (0.7, 0.9)):
        among = (ill >= low) & (ill < high)
        assert known[among].mean() == pytest.approx(ill[among].mean(), abs=0.1)
    assert np.exp(fitted.predict_log_proba(rows[:5])) == pytest.approx(chances[:5])
    assert np.isneginf(fitted.predict_log_proba(1e6 * rows[:5])).any()
    assert not hasattr(RadoBoost(), "predict_proba")


def test_several_classes_have_a_column_of_scores_each():
    random = np.random.default_rng(5)
    labels = random.choice(["a", "b", "c"], size=900)
    centres = {"a": (-0.5, 0.0), "b": (0.5, 0.0), "c": (0.0, 0.5)}
    rows = 0.2 * random.normal(size=(900, 2)) + np.array([centres[each] for each in labels])
    fitted = MeanVariance(random_state=0).fit(rows, labels)
    assert fitted.classes_.tolist() == ["a", "b", "c"]
    chances = fitted.predict_proba(rows)
    assert chances.shape == (900, 3)
    assert np.array_equal(fitted.classes_[chances.argmax(axis=1)], fitted.predict(rows))
    assert fitted.get_feature_names_out().tolist() == [f"meanvariance{place}" for place in range(3)]
    assert fitted.set_output(transform="pandas").transform(rows).shape == (900, 3)
