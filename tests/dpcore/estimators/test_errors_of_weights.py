"""What `covariance_` counts besides the noise of answers: clipped weights, and what is left to go."""

import numpy as np
import pytest

from dpcore.errors import ModelError
from dpcore.estimators.private_newton import (
    CURVATURE,
    PrivateNewton,
    Whitening,
    covariance_of,
    largest_sampling_of,
    sampling_of,
)
from dpcore.estimators.row_oracle import RowOracle
from dpcore.records.basis import Basis
from learner.covariance import checked

CLIP = 0.25


@pytest.mark.parametrize("size", [0.0, 1.0, 4.0, 8.0])
def test_sampling_counts_the_weights_that_are_clipped(size):
    """Beside draws of scores, and of labels that are as likely as the scores say."""
    random = np.random.default_rng(1)
    scores = size * random.normal(size=400_000)
    margins = np.where(random.random(len(scores)) < 1 / (1 + np.exp(-scores)), scores, -scores)
    square = np.mean(np.minimum(1 / (1 + np.exp(margins)), CLIP) ** 2) / CURVATURE**2 / 1000
    expected = max(square, sampling_of(CLIP, 1000))
    assert largest_sampling_of(CLIP, 1000, np.array([0.0, size])) == pytest.approx(expected, rel=0.01)


def test_where_no_label_is_known_all_weights_are_clipped():
    assert largest_sampling_of(CLIP, 10, np.zeros(3)) == pytest.approx(2 * sampling_of(CLIP, 10))
    assert largest_sampling_of(CLIP, 10, np.full(3, 1e6)) == pytest.approx(sampling_of(CLIP, 10))


def test_bands_hold_what_more_rounds_would_find():
    """With a rare class curvature is a fifth of what is assumed, and eight rounds do not arrive."""
    random = np.random.default_rng(2)
    x = random.uniform(-1, 1, (20_000, 3))
    labels = np.where(random.random(len(x)) < 1 / (1 + np.exp(4 - 2 * x[:, 0])), 1.0, -1.0)
    rows = RowOracle(np.column_stack([x, np.ones(len(x))]) * labels[:, np.newaxis])
    few, many = (PrivateNewton(rounds=rounds).fit_queries(rows) for rounds in (8, 80))
    sd = np.sqrt(np.diag(few.covariance_))
    assert abs(few.theta_ - many.theta_)[0] > 0.1
    assert (np.abs(few.theta_ - many.theta_) <= 1.96 * sd).all()
    # There nothing is left to go, and the bands are narrower by far.
    assert np.sqrt(many.covariance_[0, 0]) < 0.4 * sd[0]


def test_a_covariance_is_kept_whatever_the_basis():
    """With a constant column P is 100,000 times larger in one direction, and phi is shrunk to nothing there."""
    axes, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(8, 8)))
    sizes = np.geomspace(1, 2.0**17, 8)
    basis, errors = Basis.of((axes * sizes) @ axes.T), (axes / sizes**2) @ axes.T
    found = covariance_of(errors, Whitening(basis, np.eye(8)))
    with pytest.raises(ModelError, match="symmetric"):
        checked(basis.matrix.T @ errors @ basis.matrix, 8)
    np.testing.assert_array_equal(found, found.T)
    assert checked(found, 8).shape == (8, 8)
