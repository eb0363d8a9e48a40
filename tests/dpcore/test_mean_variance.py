import itertools

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample, draw_plain_rados
from dpcore.estimators.mean_variance import RIDGES, MeanVariance


def make_table(m, d, seed, *, bias=True):
    random = np.random.default_rng(seed)
    rows = random.uniform(-1, 1, size=(m, d))
    if bias:
        rows[:, -1] = 1.0
    labels = np.where(rows @ random.normal(size=d) + random.normal(scale=0.7, size=m) > 0, 1, -1)
    return rows, labels, rows * labels[:, np.newaxis]


def all_rados(edges):
    signatures = np.array(list(itertools.product([0.0, 1.0], repeat=len(edges))))
    return signatures @ edges


@pytest.mark.parametrize("bias", [True, False])
def test_all_rados_without_a_ridge_give_least_squares_on_the_rows(bias):
    rows, labels, edges = make_table(12, 4, 1, bias=bias)
    rados = all_rados(edges)
    sample = RadoSample(rados=rados, rows=len(rows), bias=bias)
    fitted = MeanVariance(ridge=0.0).fit_release(sample)
    wanted = np.linalg.lstsq(rows, labels.astype(float), rcond=None)[0]
    # The sample covariance divides by n less the parameters estimated, n = 4096: a relative 5e-4.
    assert np.allclose(fitted.theta_, wanted, rtol=2e-3, atol=2e-4)
    assert not np.allclose(MeanVariance(ridge=0.1).fit_release(sample).theta_, wanted, rtol=2e-3, atol=2e-4)


def test_the_validated_loss_is_the_square_loss_on_the_rows():
    rows, _labels, edges = make_table(400, 6, 2)
    rados = draw_plain_rados(edges, 4000, np.random.RandomState(0))
    fitted = MeanVariance().fit_release(RadoSample(rados=rados, rows=len(rows)))
    on_rows = np.mean((1.0 - edges @ fitted.theta_) ** 2)
    assert abs(fitted.mean_square_loss_.min() / on_rows - 1.0) < 0.05
    assert fitted.mean_square_loss_.shape == RIDGES.shape


def test_the_ridge_follows_what_the_rados_can_tell():
    """Few rados ask for a large ridge, many for a small one; the chosen one beats both ends on the rows' own loss."""
    rows, _labels, edges = make_table(600, 40, 3)
    chosen = {}
    for count in (60, 6000):
        sample = RadoSample(rados=draw_plain_rados(edges, count, np.random.RandomState(1)), rows=len(rows))
        fitted = MeanVariance().fit_release(sample)
        chosen[count] = fitted.ridge_
        loss = np.mean((1.0 - edges @ fitted.theta_) ** 2)
        if count == 60:
            for end in (RIDGES[0], RIDGES[-1]):
                theta = MeanVariance(ridge=end).fit_release(sample).theta_
                assert loss < np.mean((1.0 - edges @ theta) ** 2)
    assert chosen[60] > 5 * chosen[6000]


def test_the_units_of_the_features_do_not_matter():
    _rows, _labels, edges = make_table(300, 5, 4)
    rados = draw_plain_rados(edges, 150, np.random.RandomState(2))
    scaled = rados.copy()
    scaled[:, :-1] *= 1000.0
    plain = MeanVariance().fit_release(RadoSample(rados=rados, rows=300))
    larger = MeanVariance().fit_release(RadoSample(rados=scaled, rows=300))
    assert plain.ridge_ == larger.ridge_
    assert np.allclose(plain.theta_[:-1], 1000.0 * larger.theta_[:-1], rtol=1e-8)
    assert np.isclose(plain.theta_[-1], larger.theta_[-1], rtol=1e-8)


def test_the_bias_is_not_shrunk():
    """However large the ridge, theta still says which class is the larger."""
    rows, labels, _edges = make_table(300, 5, 5)
    labels = np.where(np.arange(300) % 4 == 0, 1, -1)
    rados = draw_plain_rados(rows * labels[:, np.newaxis], 150, np.random.RandomState(3))
    theta = MeanVariance(ridge=1e9).fit_release(RadoSample(rados=rados, rows=300)).theta_
    assert np.abs(theta[:-1]).max() < 1e-6
    assert -0.7 < theta[-1] < -0.3
    shrunk = MeanVariance(ridge=1e9).fit_release(RadoSample(rados=rados, rows=300, bias=False)).theta_
    assert abs(shrunk[-1]) < 1e-6


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ridge", [None, 0.0])
def test_degenerate_rados_leave_theta_finite(bias, ridge):
    random = np.random.default_rng(6)
    cases = [
        np.zeros((5, 3)),
        np.ones((5, 3)),
        random.normal(size=(2, 6)),
        random.normal(size=(5, 1)),
        np.column_stack([random.normal(size=20), np.zeros(20), np.full(20, 7.0)]),
        np.repeat(random.normal(size=(20, 1)), 4, axis=1),
    ]
    for rados in cases:
        fitted = MeanVariance(ridge=ridge).fit_release(RadoSample(rados=rados, rows=40, bias=bias))
        assert fitted.theta_.shape == (rados.shape[1],)
        assert np.isfinite(fitted.theta_).all()


@pytest.mark.parametrize(
    "parameters", [{"ridge": -0.1}, {"ridge": float("nan")}, {"ridge": float("inf")}, {"n_folds": 1}]
)
def test_parameters_out_of_range_are_refused(parameters):
    with pytest.raises(ConfigurationError, match=next(iter(parameters))):
        MeanVariance(**parameters).fit_release(RadoSample(rados=np.eye(3), rows=4))


def test_handwritten_digits_are_learned_from_500_rados():
    """Even or odd: within 3 points of logistic regression on the rows, averaged over five splits."""
    pixels, digits = load_digits(return_X_y=True)
    rows = np.column_stack([pixels / 8.0 - 1.0, np.ones(len(pixels))])
    labels = np.where(digits % 2 == 0, 1, -1)
    excess = []
    for seed in range(5):
        train, test, train_labels, test_labels = train_test_split(
            rows, labels, test_size=0.2, stratify=digits, random_state=seed
        )
        rados = draw_plain_rados(train * train_labels[:, np.newaxis], 500, np.random.RandomState(seed))
        fitted = MeanVariance().fit_release(RadoSample(rados=rados, rows=len(train)))
        logistic = LogisticRegression(max_iter=3000).fit(train[:, :-1], train_labels)
        excess.append(
            np.mean(fitted.predict(test) != test_labels) - np.mean(logistic.predict(test[:, :-1]) != test_labels)
        )
    assert -0.01 < np.mean(excess) < 0.03
