import itertools
import math

import numpy as np
import pytest

from dpcore.errors import ShapeError
from dpcore.estimators.boosting import (
    exponential_rado_loss,
    log_rado_loss,
    logistic_loss,
    logistic_rado_loss,
    mean_variance_loss,
)


def all_rados(edges: np.ndarray) -> np.ndarray:
    return np.array(list(itertools.product((0, 1), repeat=len(edges))), dtype=np.float64) @ edges


@pytest.mark.parametrize("seed", range(5))
def test_lemma_2_by_enumeration(seed):
    generator = np.random.default_rng(seed)
    edges, theta = generator.normal(size=(9, 3)), generator.normal(size=3)
    rados = all_rados(edges)
    assert logistic_rado_loss(theta, rados, 9) == pytest.approx(logistic_loss(theta, edges), abs=1e-12)
    # Over a few of the rados the value differs.
    assert abs(logistic_rado_loss(theta, rados[:20], 9) - logistic_loss(theta, edges)) > 1e-3


def test_mean_variance_is_the_square_loss_over_all_rados():
    generator = np.random.default_rng(3)
    edges, theta = generator.normal(size=(8, 3)), generator.normal(size=3)
    square = float(((1 - edges @ theta) ** 2).sum())
    assert 8 + 4 * mean_variance_loss(theta, all_rados(edges)) == pytest.approx(square, rel=1e-12)


def test_exponential_loss_by_hand():
    rados = np.array([[1.0, 2.0], [0.0, -1.0]])
    expected = (math.exp(-5.0) + math.exp(2.0)) / 2
    assert exponential_rado_loss(np.array([1.0, 2.0]), rados) == pytest.approx(expected, rel=1e-14)


def test_large_products_neither_overflow_nor_vanish():
    rados = np.array([[1e4], [1e4 + 1]])
    assert log_rado_loss(np.array([1.0]), rados) == pytest.approx(-1e4 + math.log((1 + math.exp(-1)) / 2), rel=1e-14)
    assert log_rado_loss(np.array([-1.0]), rados) == pytest.approx(1e4 + math.log((1 + math.e) / 2), rel=1e-14)
    assert exponential_rado_loss(np.array([-1.0]), rados) == math.inf
    assert logistic_loss(np.array([-1.0]), rados) == pytest.approx(1e4 + 0.5, rel=1e-14)


def test_shapes_that_do_not_fit_are_refused():
    theta = np.zeros(2)
    for loss in (log_rado_loss, exponential_rado_loss, logistic_loss, mean_variance_loss):
        for rows in (np.zeros((3, 3)), np.zeros((0, 2)), np.zeros(2)):
            with pytest.raises(ShapeError):
                loss(theta, rows)
    with pytest.raises(ShapeError):
        logistic_rado_loss(theta, np.zeros((3, 2)), 0)
