import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from dpcore.errors import ConfigurationError, DataError, ShapeError
from dpcore.estimators.base import LinearClassifier, RadoSample, draw_plain_rados
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.radoboost import AdaBoost, RadoBoost
from dpcore.estimators.regularised import RadoBoostL2, RadoBoostSlope
from dpcore.rados.distribution import Moments

pytestmark = pytest.mark.more

LEARNERS = [RadoBoost(n_rounds=200), MeanVariance(), RadoBoostL2(n_rounds=5), RadoBoostSlope(n_rounds=5)]


# Trains on rows only.
ROW_LEARNERS = [AdaBoost(n_rounds=200), AdaBoost(n_rounds=200, update="exponential", n_rows=40, random_state=0)]
# In addition to the defaults above, which every estimator's tests use.
VARIANTS = [RadoBoost(n_rounds=200, oracle="prudential", lambda_p=0.8, clip=0.8, selection="last")]


# RadoBoostL2 and RadoBoostSlope are one class but for the penalty.
@pytest.mark.parametrize("estimator", [*LEARNERS[:2], LEARNERS[3], ROW_LEARNERS[0]], ids=str)
def test_scikit_learn_accepts_the_estimator(estimator):
    check_estimator(estimator, on_skip=None)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [LEARNERS[2], *VARIANTS, *ROW_LEARNERS[1:]], ids=str)
def test_scikit_learn_accepts_the_variant(estimator):
    check_estimator(estimator, on_skip=None)


@pytest.fixture(scope="module")
def table():
    """Rows with a bias and a label that a linear classifier predicts well, not perfectly."""
    random = np.random.default_rng(11)
    rows = np.column_stack([random.uniform(-1, 1, size=(800, 5)), np.ones(800)])
    margin = rows @ np.array([2.0, -1.5, 1.0, 0.0, 0.5, 0.4]) + random.normal(scale=0.5, size=800)
    return rows, np.where(margin > 0, 1, -1)


@pytest.fixture(scope="module")
def release(table):
    rows, labels = table
    rados = draw_plain_rados(rows * labels[:, np.newaxis], 400, np.random.RandomState(5))
    return RadoSample(rados=rados, rows=len(rows))


@pytest.mark.parametrize("learner", LEARNERS)
def test_after_a_release_predict_takes_encoded_rows(learner, table, release):
    rows, _labels = table
    fitted = clone(learner).fit_release(release)
    assert fitted.coef_.shape == (1, 6)
    assert fitted.n_features_in_ == 6
    assert fitted.intercept_.tolist() == [0.0]
    assert fitted.classes_.tolist() == [-1, 1]
    assert np.array_equal(fitted.coef_[0], fitted.theta_)
    assert np.allclose(fitted.decision_function(rows), rows @ fitted.theta_, rtol=1e-12, atol=1e-15)
    assert np.array_equal(fitted.predict(rows), np.where(rows @ fitted.theta_ > 0, 1, -1))


# RadoBoost minimises the loss of 400 rados, not of all 2^m: measured 10 points behind here, up to 13 on real tables.
# Mean-variance: over other seeds 0.8 points behind on average, at most 2.5.
@pytest.mark.parametrize(
    ("learner", "allowed"), [(RadoBoost(n_rounds=300), 0.13), (MeanVariance(), 0.03), (RadoBoostL2(), 0.13)]
)
def test_a_release_gives_nearly_the_accuracy_of_rows(learner, allowed, table, release):
    rows, labels = table
    logistic = LogisticRegression().fit(rows[:, :-1], labels)
    rado_error = np.mean(learner.fit_release(release).predict(rows) != labels)
    assert rado_error <= np.mean(logistic.predict(rows[:, :-1]) != labels) + allowed
    # The same rados with the wrong sign must not pass.
    flipped = RadoSample(rados=-release.rados, rows=release.rows)
    assert np.mean(clone(learner).fit_release(flipped).predict(rows) != labels) > 0.5


@pytest.mark.parametrize("learner", LEARNERS)
def test_fitting_rows_uses_only_their_rados(learner, table):
    rows, labels = table
    names = np.where(labels > 0, "yes", "no")
    by_rows = clone(learner).set_params(n_rados=50, random_state=3).fit(rows[:, :-1], names)
    rados = draw_plain_rados(rows * labels[:, np.newaxis], 50, np.random.RandomState(3))
    by_release = clone(learner).fit_release(RadoSample(rados=rados, rows=len(rows)))
    assert np.array_equal(by_rows.theta_, by_release.theta_)
    assert by_rows.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(by_rows.predict(rows[:, :-1]) == "yes", by_release.predict(rows) == 1)
    other = clone(learner).set_params(n_rados=50, random_state=4).fit(rows[:, :-1], names)
    assert not np.array_equal(by_rows.theta_, other.theta_)


def test_plain_rados_have_the_mean_and_covariance_of_uniform_signatures(table):
    rows, labels = table
    edges = rows * labels[:, np.newaxis]
    count = 4000
    rados = draw_plain_rados(edges, count, np.random.RandomState(8))
    covariance = edges.T @ edges / 4
    standardised = (rados.mean(axis=0) - edges.sum(axis=0) / 2) / np.sqrt(np.diag(covariance) / count)
    assert np.abs(standardised).max() < 4.5
    ratio = np.diag(np.cov(rados.T)) / np.diag(covariance)
    # The standard error of a variance's ratio is sqrt(2 / count) = 0.022.
    assert np.all((ratio > 0.9) & (ratio < 1.1))


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_release_forgets_the_names_of_earlier_rows(learner, release):
    pandas_like = clone(learner).set_params(n_rados=4, random_state=0).fit([[0.0], [1.0], [0.5]], [0, 1, 1])
    pandas_like.feature_names_in_ = np.array(["x"], dtype=object)
    assert not hasattr(pandas_like.fit_release(release), "feature_names_in_")


@pytest.mark.parametrize("learner", LEARNERS)
def test_progress_counts_up_to_its_total(learner, release):
    steps = []
    clone(learner).fit_release(release, progress=lambda done, total: steps.append((done, total)))
    assert [done for done, _ in steps] == list(range(1, len(steps) + 1))
    assert steps[-1][0] == steps[-1][1]


class LastSum(LinearClassifier):
    """Learns from moments only: it has no `fit`."""

    def fit_moments(self, moments):
        self._keep_encoded(moments.edge_sum)
        return self


def test_an_estimator_needs_no_fit_to_predict():
    moments = Moments(np.array([1.0, -2.0]), np.eye(2), 10, False, 1.0, 0.0, np.zeros((2, 2)))
    with pytest.raises(NotFittedError, match=r"LastSum has no theta_: fit it"):
        LastSum().predict(np.eye(2))
    assert LastSum().fit_moments(moments).predict(np.eye(2)).tolist() == [1, -1]


@pytest.mark.parametrize("count", [0, 1, -3])
@pytest.mark.parametrize("learner", LEARNERS)
def test_fewer_than_two_rados_from_rows_are_refused(learner, count):
    with pytest.raises(ValueError, match="at least 2"):
        clone(learner).set_params(n_rados=count).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize(
    ("rados", "rows", "error"),
    [
        (np.zeros(4), 8, ShapeError),
        (np.zeros((1, 4)), 8, ShapeError),
        (np.zeros((4, 0)), 8, ShapeError),
        (np.array([[1.0, np.nan], [0.0, 1.0]]), 8, DataError),
        (np.array([[1.0, np.inf], [0.0, 1.0]]), 8, DataError),
        (np.ones((4, 2)), 0, ConfigurationError),
    ],
)
def test_a_malformed_release_is_refused(rados, rows, error):
    with pytest.raises(error):
        RadoSample(rados=rados, rows=rows)


def test_a_sample_is_a_frozen_copy():
    rados = np.ones((3, 2))
    sample = RadoSample(rados=rados, rows=5)
    rados[0, 0] = 9.0
    assert sample.rados[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        sample.rados[0, 0] = 2.0


@pytest.mark.parametrize("estimator", [RadoBoost, MeanVariance])
def test_values_whose_powers_overflow_are_refused(estimator):
    """As large as 1e49 they are fitted; beyond, eigenvalues would not converge."""
    rows = np.random.default_rng(0).normal(size=(400, 4))
    labels = rows[:, 0] > 0
    assert estimator(random_state=0).fit(rows * 1e49, labels).score(rows * 1e49, labels) > 0.9
    with pytest.raises(ValueError, match="whose powers overflow: scale the columns"):
        estimator(random_state=0).fit(rows * 1e200, labels)
