import itertools

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.moments_discriminant import synthetic_rados
from dpcore.rados.distribution import Moments


def make_moments(edges, *, noise=0.0, seed=0):
    random = np.random.default_rng(seed)
    d = edges.shape[1]
    upper = np.triu(random.normal(scale=noise, size=(d, d)))
    products = edges.T @ edges + upper + np.triu(upper, 1).T
    return Moments(
        edge_sum=edges.sum(axis=0),
        product_sum=(products + products.T) / 2,
        rows=len(edges),
        bias=False,
        norm_bound=2.0,
        edge_noise=0.0,
        product_noise=np.full((d, d), noise),
    )


def test_they_have_the_mean_and_covariance_of_all_rados():
    edges = np.random.default_rng(1).uniform(-1, 1, size=(10, 3))
    every = np.array(list(itertools.product([0.0, 1.0], repeat=10))) @ edges
    count = 40_000
    drawn = synthetic_rados(make_moments(edges), count, np.random.default_rng(2))
    wanted = np.cov(every.T, bias=True)
    z = (drawn.mean(axis=0) - every.mean(axis=0)) / np.sqrt(np.diag(wanted) / count)
    assert np.abs(z).max() < 4.5
    # The variance of a sample covariance's entry (j, k) is (C_jj C_kk + C_jk^2) / n for a normal distribution.
    spread = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / count)
    assert np.abs((np.cov(drawn.T) - wanted) / spread).max() < 4.5
    # The test rejects a scale of 0.7 or 1.3 times this.
    for wrong in (0.7, 1.3):
        assert np.abs((np.cov((wrong * drawn).T) - wanted) / spread).max() > 50


def test_an_indefinite_matrix_is_projected():
    edges = np.random.default_rng(3).uniform(-1, 1, size=(50, 6))
    moments = make_moments(edges, noise=40.0, seed=4)
    values, vectors = np.linalg.eigh(moments.product_sum)
    assert values.min() < -10
    drawn = synthetic_rados(moments, 20_000, np.random.default_rng(5))
    along = np.var(drawn @ vectors, axis=0)
    lost = values < 0
    assert np.allclose(along[lost], 0.0, atol=1e-18)
    assert np.allclose(along[~lost], values[~lost] / 4, rtol=0.08)


def test_a_rado_estimator_gives_the_result_of_the_moments():
    random = np.random.default_rng(6)
    rows = np.column_stack([random.uniform(-1, 1, size=(2000, 4)), np.ones(2000)])
    labels = np.where(rows @ [2.0, -1.0, 0.5, 0.0, 0.3] + random.normal(scale=0.5, size=2000) > 0, 1, -1)
    edges = rows * labels[:, np.newaxis]
    drawn = synthetic_rados(make_moments(edges), 4000, np.random.default_rng(7))
    theta = MeanVariance().fit_release(RadoSample(rados=drawn, rows=2000)).theta_
    squares = np.linalg.lstsq(rows, labels.astype(float), rcond=None)[0]
    # Mean-variance minimises the logistic loss: its direction is that of least squares, its length is not.
    assert np.linalg.norm(theta / np.linalg.norm(theta) - squares / np.linalg.norm(squares)) < 0.1


def test_the_same_generator_draws_the_same_rados():
    moments = make_moments(np.eye(3))
    first, again = (synthetic_rados(moments, 5, np.random.default_rng(8)) for _ in range(2))
    assert np.array_equal(first, again)
    assert first.shape == (5, 3)


@pytest.mark.parametrize("count", [0, -4])
def test_fewer_than_one_is_refused(count):
    with pytest.raises(ConfigurationError, match="at least one"):
        synthetic_rados(make_moments(np.eye(2)), count, np.random.default_rng(0))
