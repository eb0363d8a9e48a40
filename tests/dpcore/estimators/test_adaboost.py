import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample
from dpcore.estimators.boosting import UPDATES
from dpcore.estimators.radoboost import AdaBoost, RadoBoost, error_of


@pytest.fixture(scope="module")
def table():
    """Rows whose label a linear classifier with a bias predicts well, not perfectly."""
    random = np.random.default_rng(11)
    rows = random.uniform(-1, 1, size=(600, 5))
    margin = rows @ np.array([2.0, -1.5, 1.0, 0.0, 0.5]) + 0.4 + random.normal(scale=0.5, size=600)
    return rows, np.where(margin > 0, 1, -1)


def edges_of(rows, labels):
    return labels[:, np.newaxis] * np.column_stack([rows, np.ones(len(rows))])


def iterates(fitted, d):
    """theta_0 .. theta_T from the trace, (T + 1, d)."""
    steps = np.zeros((len(fitted.rounds_.alpha) + 1, d))
    steps[np.arange(1, len(steps)), fitted.rounds_.feature] = fitted.rounds_.alpha
    return np.cumsum(steps, axis=0)


@pytest.mark.parametrize("update", UPDATES)
def test_rows_are_boosted_to_nearly_the_bayes_error(table, update):
    rows, labels = table
    error = 1 - AdaBoost(300, update=update).fit(rows, labels).score(rows, labels)
    bayes = np.mean(np.sign(rows @ [2.0, -1.5, 1.0, 0.0, 0.5] + 0.4) != labels)
    assert error <= bayes + 0.02
    flipped = AdaBoost(300, update=update).fit(rows, -labels)
    assert flipped.score(rows, labels) < 0.5


def test_the_iterate_of_lowest_error_is_kept_the_last_among_equals(table):
    rows, labels = table
    fitted = AdaBoost(200).fit(rows, labels)
    errors = [np.mean(edges_of(rows, labels) @ theta <= 0) for theta in iterates(fitted, 6)]
    assert fitted.best_round_ == max(number for number, error in enumerate(errors) if error == min(errors))
    assert np.allclose(fitted.theta_, iterates(fitted, 6)[fitted.best_round_], rtol=1e-12)
    assert min(errors) < errors[-1]
    last = AdaBoost(200, selection="last").fit(rows, labels)
    assert last.best_round_ == 200


@pytest.mark.parametrize("update", UPDATES)
def test_it_is_radoboost_on_edge_vectors(table, update):
    """With the linear update and each edge vector taken for a rado, the steps are the same; the other differs."""
    rows, labels = table
    edges = edges_of(rows, labels)
    on_rows = AdaBoost(100, update=update, selection="lowest-loss").fit(rows, labels)
    on_rados = RadoBoost(100, recentre=None).fit_release(RadoSample(rados=edges, rows=len(rows)))
    assert np.allclose(on_rows.theta_, on_rados.theta_, rtol=1e-9) == (update == "linear")
    assert abs(on_rows.log_loss_ - np.log(np.mean(np.exp(-edges @ on_rows.theta_)))) < 1e-10


def test_n_rows_boosts_on_a_sample_and_selects_on_all(table):
    rows, labels = table
    every = AdaBoost(50, n_rows=600, random_state=1).fit(rows, labels)
    assert np.array_equal(every.theta_, AdaBoost(50).fit(rows, labels).theta_)
    some = AdaBoost(50, n_rows=40, random_state=1).fit(rows, labels)
    chosen = np.random.RandomState(1).choice(600, size=40, replace=False)
    assert len(set(chosen)) == 40
    edges = edges_of(rows, labels)
    reference = RadoBoost(50, recentre=None, selection=error_of(edges)).fit_release(
        RadoSample(rados=edges[chosen], rows=40)
    )
    assert np.allclose(some.theta_, reference.theta_, rtol=1e-12)
    other = AdaBoost(50, n_rows=40, random_state=2).fit(rows, labels)
    assert not np.allclose(some.theta_, other.theta_)


def test_without_an_intercept_theta_is_the_coefficients(table):
    rows, labels = table
    fitted = AdaBoost(100, fit_intercept=False).fit(rows, labels)
    assert fitted.theta_.shape == (5,)
    assert np.array_equal(fitted.coef_[0], fitted.theta_)
    assert fitted.intercept_.tolist() == [0.0]
    biased = AdaBoost(100).fit(rows, labels)
    assert biased.intercept_[0] == biased.theta_[-1] != 0
    assert biased.score(rows, labels) > fitted.score(rows, labels)


def test_a_floor_speeds_up_boosting_where_an_outlier_hides_the_edges(table):
    """Section 4: one outlier makes every normalised edge of its feature small, and plain steps tiny."""
    rows, labels = table
    rows = rows.copy()
    rows[0] = 1000.0 * labels[0] * np.array([-1.0, 1.0, -1.0, 1.0, -1.0])
    plain = AdaBoost(50, fit_intercept=False, selection="last").fit(rows, labels)
    floored = AdaBoost(50, fit_intercept=False, selection="last", floor=0.1).fit(rows, labels)
    assert np.abs(plain.rounds_.edge).max() < 0.1
    assert np.abs(floored.rounds_.r).min() == 0.1
    assert np.abs(floored.theta_).sum() > 2 * np.abs(plain.theta_).sum()


def test_constant_and_zero_columns_do_no_harm(table):
    rows, labels = table
    padded = np.column_stack([np.zeros(600), rows, np.full(600, 3.0)])
    fitted = AdaBoost(100).fit(padded, labels)
    assert fitted.coef_[0, 0] == 0.0
    assert np.isfinite(fitted.theta_).all()
    assert fitted.score(padded, labels) > 0.85


def test_rows_separated_by_one_feature_stop_boosting_with_a_warning():
    rows = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    fitted = AdaBoost(1000).fit(rows, [0, 0, 1, 1])
    assert len(fitted.rounds_.r) == 1
    assert "separates them alone" in fitted.stopped_because_
    assert "no minimum" in fitted.warning_
    assert fitted.score(rows, [0, 0, 1, 1]) == 1.0


@pytest.mark.parametrize(
    "parameters",
    [
        {"n_rounds": 0},
        {"update": "other"},
        {"oracle": "other"},
        {"lambda_p": 2.0, "oracle": "prudential"},
        {"clip": 0.0},
        {"floor": -0.1},
        {"selection": "other"},
        {"patience": 0},
        {"n_rows": 0},
    ],
)
def test_parameters_out_of_range_are_refused(parameters, table):
    with pytest.raises(ConfigurationError, match=next(iter(parameters))):
        AdaBoost(**parameters).fit(*table)
