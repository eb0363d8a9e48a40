"""Descent by noisy gradients: the minimum without noise, near it with noise, its queries, and refusals."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from dpcore.errors import ConfigurationError, OracleRefusedError, SchemaError
from dpcore.estimators.federated_descent import HingeDescent, LogisticDescent, RecordLengths
from dpcore.records.losses import HINGE, LOGISTIC
from tests.dpcore.research.erm.erm_world import RowsOracle, logistic_table, real_schema

LEARNERS = [LogisticDescent(), HingeDescent()]


@pytest.mark.more
@pytest.mark.parametrize("estimator", LEARNERS, ids=str)
def test_scikit_learn_accepts_the_estimator(estimator):
    check_estimator(estimator, on_skip=None)


@pytest.fixture(scope="module")
def table():
    return logistic_table(3000, 6, 4)


def test_without_noise_it_reaches_logistic_regression(table):
    x, labels, _ = table
    wanted = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-8).fit(x, labels).coef_[0]
    fitted = LogisticDescent(rounds=400).fit_queries(RowsOracle(x, labels))
    assert np.allclose(fitted.theta_, wanted, atol=2e-2)
    # By the default thirty rounds it is near in loss.
    near = LogisticDescent().fit_queries(RowsOracle(x, labels))
    edges = x * labels[:, np.newaxis]
    assert LOGISTIC.total(near.theta_, edges) < LOGISTIC.total(wanted, edges) + 0.005 * len(x)


@pytest.mark.more
def test_without_noise_it_reaches_the_least_hinge_loss(table):
    x, labels, _ = table
    edges = x * labels[:, np.newaxis]
    fitted = HingeDescent(rounds=400, output="average").fit_queries(RowsOracle(x, labels))
    least = minimize(HINGE.total, fitted.theta_, args=(edges,), method="Powell").fun
    assert HINGE.total(fitted.theta_, edges) < least + 0.01 * len(x)


@pytest.mark.parametrize("learner", LEARNERS)
def test_noise_costs_little_with_many_rows_and_more_if_it_is_larger(learner, table):
    x, labels, _ = table
    errors = [
        np.mean([np.mean(clone(learner).fit_queries(RowsOracle(x, labels, mu=mu, seed=s)).predict(x) != labels)
                 for s in range(4)])
        for mu in (None, 0.6, 0.02)
    ]  # fmt: skip
    assert errors[1] < errors[0] + 0.03
    assert errors[2] > errors[1] + 0.02


def test_steps_that_overshoot_are_shortened():
    """Nearly equal records: the largest eigenvalue is the whole trace, and the usual step four times too long."""
    x, labels, _ = logistic_table(2000, 12, 1, alike=1.0)
    x = np.where(x > 0, 1.0, -1.0)
    edges = x * labels[:, np.newaxis]
    wanted = LOGISTIC.total(LogisticRegression(C=1e3, fit_intercept=False).fit(x, labels).coef_[0], edges)
    oracle = RowsOracle(x, labels)
    fitted = LogisticDescent(rounds=60).fit_queries(oracle)
    assert LOGISTIC.total(fitted.theta_, edges) < wanted + 0.02 * len(x)
    lengths = [np.linalg.norm(theta) for _, theta, *_ in oracle.asked]
    assert max(lengths) < 20


def test_queries_take_equal_parts_of_the_budget_and_theta_stays_in_the_ball(table):
    x, labels, _ = table
    oracle = RowsOracle(x, labels, mu=0.05)
    fitted = LogisticDescent(rounds=7, radius=1.5, clip=0.75).fit_queries(oracle)
    assert [part for *_, part in oracle.asked] == [Fraction(1, 7)] * 7
    assert {clip for *_, clip, _ in oracle.asked} == {Fraction(3, 4)}
    assert np.linalg.norm(fitted.theta_) <= 1.5
    assert max(np.linalg.norm(theta) for _, theta, *_ in oracle.asked) <= 3 * 1.5
    assert (fitted.rounds_done_, fitted.warning_) == (7, None)
    assert fitted.coef_.shape == (1, 6)
    assert fitted.intercept_.tolist() == [0.0]
    assert fitted.classes_.tolist() == [-1, 1]
    assert np.array_equal(fitted.predict(x), np.where(x @ fitted.theta_ > 0, 1, -1))


def test_by_default_no_gradient_is_clipped(table):
    x, labels, _ = table
    oracle = RowsOracle(x, labels)
    LogisticDescent(rounds=1).fit_queries(oracle)
    clip = oracle.asked[0][2]
    assert np.linalg.norm(x, axis=1).max() <= float(clip)
    assert clip == RecordLengths.of(real_schema(5)).longest
    assert 0 < clip**2 - 6 < Fraction(1, 10**5)


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("output", ["last", "average"])
def test_a_refusal_midway_keeps_the_result_so_far(learner, output, table):
    x, labels, _ = table
    learner = clone(learner).set_params(rounds=20, output=output)
    stopped = clone(learner).fit_queries(RowsOracle(x, labels, mu=1.0, answers=5))
    # Another plan would query with other parts; the same noise on the same five answers gives the same theta.
    whole = RowsOracle(x, labels, mu=1.0)
    clone(learner).fit_queries(whole)
    assert stopped.rounds_done_ == 5
    assert stopped.warning_ == "received 5 of 20 gradients: the budget is spent"
    assert np.linalg.norm(stopped.theta_) > 0
    if output == "last" and learner.loss == "logistic":
        # The sixth query is ahead of the kept theta, or at it.
        ahead = whole.asked[5][1]
        assert (ahead - stopped.theta_) @ stopped.theta_ >= -1e-12
    with pytest.raises(OracleRefusedError):
        clone(learner).fit_queries(RowsOracle(x, labels, answers=0))


def test_the_same_answers_give_the_same_theta(table):
    x, labels, _ = table
    first, second = (LogisticDescent().fit_queries(RowsOracle(x, labels, mu=0.5, seed=3)).theta_ for _ in range(2))
    assert np.array_equal(first, second)
    other = LogisticDescent().fit_queries(RowsOracle(x, labels, mu=0.5, seed=4)).theta_
    assert not np.array_equal(first, other)


def test_rows_may_be_in_any_units(table):
    x, labels, _ = table
    names = np.where(labels > 0, "yes", "no")
    fitted = LogisticDescent(rounds=400).fit(x[:, :-1] * 50 + 7, names)
    wanted = LogisticRegression(C=np.inf, tol=1e-8).fit(x[:, :-1] * 50 + 7, names)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert np.allclose(fitted.coef_, wanted.coef_, atol=1e-3)
    assert np.allclose(fitted.intercept_, wanted.intercept_, atol=5e-2)


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 0},
        {"rounds": 2.5},
        {"radius": 0.0},
        {"radius": 501.0},
        {"momentum": 1.0},
        {"momentum": -0.1},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"output": "best"},
        {"clip": 0},
        {"clip": float("inf")},
    ],
)
def test_parameters_out_of_range_are_refused_before_any_query(change, table):
    x, labels, _ = table
    oracle = RowsOracle(x, labels)
    with pytest.raises(ConfigurationError):
        LogisticDescent(**change).fit_queries(oracle)
    assert not oracle.asked


def test_a_schema_without_a_bias_is_refused(table):
    x, labels, _ = table
    with pytest.raises(SchemaError, match="bias = true"):
        LogisticDescent().fit_queries(RowsOracle(x, labels, bias=False))
