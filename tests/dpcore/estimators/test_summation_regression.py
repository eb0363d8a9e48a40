"""Regressions in summation form: scikit-learn's results without noise, near them with noise; queries and refusals."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.utils.estimator_checks import check_estimator

from dpcore.errors import ConfigurationError, OracleRefusedError, SchemaError
from dpcore.estimators.federated_descent import CurvatureBound, SummationLinear, SummationLogistic
from dpcore.estimators.moments_discriminant import MomentsDiscriminant
from dpcore.records.losses import LOGISTIC
from tests.dpcore.research.erm.erm_world import RowsOracle, logistic_table


@pytest.mark.more
@pytest.mark.parametrize("estimator", [SummationLinear(), SummationLogistic()], ids=str)
def test_scikit_learn_accepts_the_estimator(estimator):
    check_estimator(estimator, on_skip=None)


@pytest.fixture(scope="module")
def table():
    return logistic_table(3000, 6, 4)


def test_the_normal_equations_are_linear_regression(table):
    x, labels, _ = table
    wanted = LinearRegression().fit(x[:, :-1], labels)
    fitted = SummationLinear().fit_queries(RowsOracle(x, labels))
    assert np.allclose(fitted.theta_, np.append(wanted.coef_, wanted.intercept_), atol=1e-10)
    assert np.array_equal(fitted.predict(x), np.where(x @ fitted.theta_ > 0, 1, -1))


@pytest.mark.parametrize("alpha", [3.0, 3000.0])
def test_with_a_penalty_they_are_ridge_regression(alpha, table):
    x, labels, _ = table
    wanted = Ridge(alpha=alpha).fit(x[:, :-1], labels)
    fitted = SummationLinear(alpha=alpha).fit_queries(RowsOracle(x, labels))
    assert np.allclose(fitted.theta_, np.append(wanted.coef_, wanted.intercept_), atol=1e-8)


def test_rows_may_be_in_any_units(table):
    x, labels, _ = table
    wide = x[:, :-1] * 50 + 7
    linear, wanted = SummationLinear().fit(wide, labels), LinearRegression().fit(wide, labels)
    assert np.allclose(linear.coef_, wanted.coef_, atol=1e-9)
    assert np.allclose(linear.intercept_, wanted.intercept_, atol=1e-8)
    logistic, best = (
        SummationLogistic(rounds=80).fit(wide, labels),
        LogisticRegression(C=np.inf, tol=1e-9).fit(wide, labels),
    )
    assert np.allclose(logistic.coef_, best.coef_, rtol=1e-3, atol=1e-6)


def test_features_that_do_not_vary_are_left_out():
    x, labels, _ = logistic_table(300, 3, 1)
    x[:, 0] = 1.0
    for learner in (SummationLinear(), SummationLogistic()):
        fitted = learner.fit_queries(RowsOracle(x, labels))
        assert np.abs(fitted.theta_).max() < 50
        assert np.mean(fitted.predict(x) != labels) < 0.5


def test_without_noise_the_bound_reaches_logistic_regression(table):
    x, labels, _ = table
    wanted = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10).fit(x, labels).coef_[0]
    fitted = SummationLogistic(rounds=100).fit_queries(RowsOracle(x, labels))
    assert np.allclose(fitted.theta_, wanted, rtol=1e-3, atol=1e-3)


def test_without_noise_no_round_raises_the_loss(table):
    """Boehning and Lindsay's theorem; half the bound, as if w (1 - w) <= 1/8, would raise it."""
    x, labels, _ = table
    edges = x * labels[:, np.newaxis]
    oracle = RowsOracle(x, labels)
    SummationLogistic(rounds=12).fit_queries(oracle)
    losses = [LOGISTIC.total(theta, edges) for kind, theta, *_ in oracle.asked if kind == "gradient"]
    assert len(losses) == 11
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(losses))
    # The bound is tight at zero, where every weight is 1/4: a step there is Newton's.
    moments, gradient = RowsOracle(x, labels).moments(), LOGISTIC.gradient(np.zeros(6), edges) / len(x)
    hessian = edges.T @ edges / 4 / len(x)
    assert np.allclose(CurvatureBound(moments, 0.8).step(gradient, 0.0), np.linalg.solve(hessian, gradient))


@pytest.mark.parametrize("learner", [SummationLinear(), SummationLogistic()])
def test_noise_costs_little_with_many_rows_and_more_if_it_is_larger(learner, table):
    x, labels, _ = table
    errors = [
        np.mean([np.mean(clone(learner).fit_queries(RowsOracle(x, labels, mu=mu, seed=s)).predict(x) != labels)
                 for s in range(6)])
        for mu in (None, 0.6, 0.01)
    ]  # fmt: skip
    assert errors[1] < errors[0] + 0.03
    assert errors[2] > errors[1] + 0.03


def test_damping_shortens_steps_in_directions_of_little_information(table):
    x, labels, _ = table
    spread, gradient = CurvatureBound(RowsOracle(x, labels).moments(), 0.8), np.full(6, 0.01)
    free, damped = (np.linalg.norm(spread.step(gradient, least)) for least in (0.0, 1.0))
    assert damped == pytest.approx(np.linalg.norm(gradient))
    assert free > 2 * damped


def test_parts_of_all_queries_add_up_to_the_budget(table):
    x, labels, _ = table
    oracle = RowsOracle(x, labels, mu=0.5)
    fitted = SummationLogistic(rounds=5, moments_part=0.2, clip=2, radius=3.0).fit_queries(oracle)
    assert [kind for kind, *_ in oracle.asked] == ["moments"] + 4 * ["gradient"]
    assert [part for *_, part in oracle.asked] == 5 * [Fraction(1, 5)]
    assert {clip for kind, _, clip, _ in oracle.asked if kind == "gradient"} == {Fraction(2)}
    assert np.linalg.norm(fitted.theta_) <= 3
    assert (fitted.rounds_done_, fitted.warning_) == (5, None)
    linear = RowsOracle(x, labels)
    SummationLinear().fit_queries(linear)
    assert [part for *_, part in linear.asked] == [Fraction(1)]


def test_a_refusal_midway_keeps_the_result_so_far(table):
    x, labels, _ = table
    stopped = SummationLogistic().fit_queries(RowsOracle(x, labels, mu=1.0, answers=4))
    whole = RowsOracle(x, labels, mu=1.0)
    SummationLogistic().fit_queries(whole)
    assert np.array_equal(stopped.theta_, whole.asked[4][1])
    assert stopped.rounds_done_ == 4
    assert stopped.warning_ == "received 4 of 10 releases: the budget is spent"
    alone = SummationLogistic().fit_queries(RowsOracle(x, labels, answers=1))
    assert np.allclose(alone.theta_, MomentsDiscriminant().fit_moments(RowsOracle(x, labels).moments()).theta_)
    with pytest.raises(OracleRefusedError):
        SummationLogistic().fit_queries(RowsOracle(x, labels, answers=0))


@pytest.mark.parametrize(
    ("learner", "change"),
    [
        (SummationLinear, {"alpha": -1.0}),
        (SummationLinear, {"shrinkage": float("nan")}),
        (SummationLogistic, {"rounds": 1}),
        (SummationLogistic, {"moments_part": 0.0}),
        (SummationLogistic, {"moments_part": 1.0}),
        (SummationLogistic, {"damping": -1.0}),
        (SummationLogistic, {"shrinkage": -0.1}),
        (SummationLogistic, {"radius": 0.0}),
        (SummationLogistic, {"clip": -1.0}),
    ],
)
def test_parameters_out_of_range_are_refused_before_any_query(learner, change, table):
    x, labels, _ = table
    oracle = RowsOracle(x, labels)
    with pytest.raises(ConfigurationError):
        learner(**change).fit_queries(oracle)
    assert not oracle.asked


def test_a_schema_without_a_bias_is_refused(table):
    x, labels, _ = table
    with pytest.raises(SchemaError, match="bias = true"):
        SummationLogistic().fit_queries(RowsOracle(x, labels, bias=False))
