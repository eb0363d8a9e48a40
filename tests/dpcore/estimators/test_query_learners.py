"""Estimators by statistical queries: scikit-learn's interface, on rows and on an oracle."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from dpcore.estimators.conjunction import MonotoneConjunction
from dpcore.estimators.statistical_queries import DecisionList, DecisionStump, NaiveBayes, all_of
from dpcore.predicates.expressions import And, Flag, LabelIs, Not
from tests.dpcore.estimators.oracle_world import divided, flag_rows, flags_schema

# The others need columns of two values, which most checks do not have.
LEARNERS = [MonotoneConjunction(require_rows=False), DecisionStump(), DecisionList(), NaiveBayes()]


@pytest.mark.more
@pytest.mark.parametrize("estimator", [DecisionStump(), NaiveBayes()], ids=str)
def test_scikit_learn_accepts_the_estimator(estimator):
    check_estimator(estimator, on_skip=None)


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(2)
    truths = random.uniform(size=(600, 5)) < 0.7
    return truths, np.where(truths[:, 1] & truths[:, 3] ^ (random.uniform(size=600) < 0.05), 1, -1)


@pytest.mark.parametrize("learner", LEARNERS)
def test_rows_and_an_oracle_without_noise_give_the_same_result(learner, table):
    """On columns of any two values, with any labels."""
    truths, labels = table
    x = flag_rows(truths)
    asked = clone(learner).fit_queries(divided(flags_schema(5), x, labels))
    assert asked.coef_.shape == (1, 6)
    assert asked.intercept_.tolist() == [0.0]
    assert asked.classes_.tolist() == [-1, 1]
    assert np.array_equal(asked.predict(x), np.where(x @ asked.theta_ > 0, 1, -1))
    values = np.where(truths, 7.5, -2.0)
    fitted = clone(learner).fit(values, np.where(labels > 0, "yes", "no"))
    assert fitted.coef_.shape == (1, 5)
    assert np.allclose(fitted.decision_function(values), asked.decision_function(x), atol=1e-9)
    assert np.array_equal(fitted.predict(values) == "yes", asked.predict(x) > 0)


@pytest.mark.parametrize("learner", LEARNERS)
def test_it_can_be_refitted_in_the_other_way(learner, table):
    truths, labels = table
    again = clone(learner).fit(truths.astype(float), labels)
    again.fit_queries(divided(flags_schema(5), flag_rows(truths), labels))
    assert again.n_features_in_ == 6
    assert again.predict(flag_rows(truths)).shape == (600,)


def test_conjunctions_are_flat():
    yes, a, b = LabelIs(positive=True), Flag("a"), Not(Flag("b"))
    assert all_of((And((a, b)), yes)) == And((a, b, yes))
    assert all_of((a,)) == a
