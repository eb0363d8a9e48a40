"""The published step of Omega-R.AdaBoost beside the estimators' own."""

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.boosting import log_rado_loss
from dpcore.estimators.radoboost import AdaBoost
from dpcore.estimators.regularised import Rounds, all_alike, boost_regularised
from dpcore.estimators.regularisers import Ridge, SortedNorm
from dpcore.research.omega_adaboost import omega_adaboost

REGULARISERS = {
    "l1": SortedNorm(np.ones(5)),
    "l2": Ridge(),
    "linf": SortedNorm(np.eye(5)[0]),
    "slope": SortedNorm(np.array([2.0, 1.5, 1.5, 1.0, 0.2])),
}


@pytest.fixture
def rados():
    random = np.random.default_rng(1)
    mean = np.array([3.0, -1.0, 0.5, 0.0, 2.0])
    return mean + random.normal(size=(60, 5)) * np.array([2.0, 1.0, 3.0, 1.0, 4.0])


@pytest.mark.parametrize("name", REGULARISERS)
def test_the_published_step_raises_the_loss_where_ours_does_not(rados, name):
    published = omega_adaboost(rados, REGULARISERS[name], 0.5, 100)
    ours = boost_regularised(rados, all_alike(60), REGULARISERS[name], 0.5, Rounds(100, 1e-9)).objective
    assert published.rises > 10
    assert np.diff(ours).max() <= 1e-12
    assert ours[-1] < published.objective.min() - 0.05
    at_end = log_rado_loss(published.theta, rados) + 0.5 * REGULARISERS[name].value(published.theta)
    assert published.objective[-1] == pytest.approx(at_end, abs=1e-12)


def test_without_a_regulariser_it_is_adaboost_on_rados(rados):
    labels = np.where(np.arange(60) % 2, 1, -1)
    boosted = AdaBoost(30, update="exponential", fit_intercept=False).fit(rados * labels[:, None], labels)
    theta = np.bincount(boosted.rounds_.feature, weights=boosted.rounds_.alpha, minlength=5)
    assert omega_adaboost(rados, Ridge(), 0.0, 30).theta == pytest.approx(theta, rel=1e-9)


def test_what_is_refused(rados):
    with pytest.raises(ShapeError):
        omega_adaboost(rados[0], Ridge(), 0.1, 3)
    for strength, rounds in ((-1.0, 3), (float("nan"), 3), (0.1, 0)):
        with pytest.raises(ConfigurationError):
            omega_adaboost(rados, Ridge(), strength, rounds)
