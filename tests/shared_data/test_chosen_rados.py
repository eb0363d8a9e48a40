"""The number of gaussian rados that a plan chooses errs hardly more than the best of a search, on public tables."""

import statistics
from fractions import Fraction

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from benchmarks.datasets import RULES, SHARED, read
from dpcore.estimators.base import RadoSample, draw_plain_rados
from dpcore.estimators.mean_variance import MeanVariance
from dpcore.estimators.radoboost import RadoBoost
from dpcore.queries.moments import norm_bound_of
from dpcore.rados.distribution import RadoDistribution
from radofed.planning.design_cost import PlanRequest, split_equally
from radofed.planning.designs import plan_cost

DRAWS = 12
WITHIN_POINTS = 2.5


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data sets are not beside this checkout")
@pytest.mark.more
@pytest.mark.parametrize(("name", "epsilon"), [("abalone", 10), ("wine_white", 10), ("magic", 4)])
def test_the_chosen_number_errs_hardly_more_than_the_best_of_a_search(name, epsilon):
    data = read(name, RULES[name])
    train, test = train_test_split(np.arange(len(data.positive)), test_size=0.25, random_state=0)
    rows, labels = data.encode(train), np.where(data.positive, 1.0, -1.0)
    bound = norm_bound_of(real_features=data.numeric.shape[1], unit_features=data.categories.shape[1], bias=True)
    lengths = np.linalg.norm(rows[train], axis=1)
    edges = (labels[train] * np.minimum(1, float(bound) / lengths))[:, np.newaxis] * rows[train]

    def planned(rados):
        return plan_cost(
            PlanRequest(
                design="gaussian",
                rados=rados,
                epsilon=Fraction(epsilon),
                party_rows=split_equally(len(train), 4),
                coordinates=rows.shape[1],
                norm_bound=bound,
            )
        )

    def errors(learner, rados):
        deviation, found = planned(rados).noise.noise_sd, []
        for draw in range(DRAWS):
            random = np.random.RandomState(draw)
            drawn = draw_plain_rados(edges, rados, random)
            drawn += deviation * random.standard_normal(drawn.shape)
            noise = RadoDistribution(rado_noise=np.full(rows.shape[1], deviation**2))
            fitted = learner.fit_release(RadoSample(drawn, len(train), distribution=noise))
            found.append(100 * float(np.mean(fitted.predict(rows[test]) != labels[test])))
        return statistics.fmean(found)

    chosen = planned(None).request.rados
    for learner in (MeanVariance(), RadoBoost(300)):
        search = {times: errors(learner, round(times * chosen)) for times in (0.25, 0.5, 1, 2, 4, 8)}
        assert search[1] <= min(search.values()) + WITHIN_POINTS
