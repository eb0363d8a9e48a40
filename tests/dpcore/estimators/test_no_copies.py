"""Estimators read a release's rados and make no copy of their size."""

import tracemalloc

import numpy as np
import pytest

from dpcore.estimators.base import RadoSample
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.radoboost import RadoBoost
from dpcore.estimators.regularised import RadoBoostL1, RadoBoostL2
from dpcore.rados.distribution import PLAIN_DISTRIBUTION, CentralCount, RadoDistribution

N, D, ROWS = 24_000, 40, 1_000_000


@pytest.fixture(scope="module")
def rados():
    random = np.random.default_rng(1)
    found = random.uniform(-1, 1, size=D) * 2e4 + random.normal(scale=500.0, size=(N, D))
    found[:, -1] = 2e5 + random.normal(scale=500.0, size=N)
    found.setflags(write=False)
    return found


@pytest.mark.parametrize(
    "distribution", [PLAIN_DISTRIBUTION, RadoDistribution(central=CentralCount(0, -1e-7))], ids=["plain", "truncated"]
)
@pytest.mark.parametrize(
    "learner",
    [
        RadoBoost(5),
        RadoBoost(5, oracle="median", selection="last"),
        MeanVariance(),
        RadoBoostL2(2),
        RadoBoostL1(2, strength=0.1),
    ],
    ids=["radoboost", "median", "mean-variance", "ridge", "lasso"],
)
def test_a_fit_takes_less_than_half_a_rado_matrix(rados, learner, distribution):
    learner.fit_release(RadoSample(rados[:100], ROWS, distribution=distribution))
    tracemalloc.start()
    try:
        learner.fit_release(RadoSample(rados, ROWS, distribution=distribution))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * rados.nbytes
