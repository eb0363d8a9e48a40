"""Releases of different rows add up to one of all rows."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.protection import Setting
from dpcore.errors import ConfigurationError
from dpcore.estimators.base import RadoSample, draw_plain_rados
from dpcore.estimators.pooled import pooled_moments, pooled_rados
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.statement import CountedRelease, composed_cost
from dpcore.rados.distribution import CentralCount, Moments, RadoDistribution
from dpcore.records.clipping import Clip
from tests.federation.material import STAYS

HALF = Fraction(1, 2)


def moments(edges: np.ndarray, noise: float = 0.0, seed: int = 0) -> Moments:
    d, random = edges.shape[1], np.random.default_rng(seed)
    products = edges.T @ edges
    added = np.triu(random.normal(0, 1, (d, d))) * noise
    added[-1, -1] = 0
    return Moments(
        edge_sum=edges.sum(axis=0) + random.normal(0, 1, d) * noise,
        product_sum=products + np.triu(added) + np.triu(added, 1).T,
        rows=len(edges),
        bias=True,
        norm_bound=2.0,
        edge_noise=noise,
        product_noise=np.where(np.eye(d, dtype=bool) & (np.arange(d) == d - 1), 0.0, noise),
    )


def edges_of(rows: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    x = np.column_stack([random.uniform(-1, 1, (rows, 2)), np.ones(rows)])
    return x * random.choice([-1.0, 1.0], (rows, 1))


def test_moments_of_epochs_are_those_of_all_rows():
    parts = [edges_of(rows, rows) for rows in (30, 50, 20)]
    whole, pooled = moments(np.concatenate(parts)), pooled_moments(list(map(moments, parts)))
    assert pooled.rows == whole.rows == 100
    assert np.allclose(pooled.edge_sum, whole.edge_sum)
    assert np.allclose(pooled.product_sum, whole.product_sum)


def test_with_forgetting_each_epoch_counts_half_as_much_as_the_next():
    parts = [moments(edges_of(rows, rows), 3.0) for rows in (40, 40, 40)]
    pooled = pooled_moments(parts, HALF)
    weights = np.array([0.25, 0.5, 1.0])
    assert pooled.rows == 70 == pooled.product_sum[-1, -1]
    assert np.allclose(pooled.edge_sum, weights @ [each.edge_sum for each in parts])
    # The noise is that of the weighted sum: its variances are weighted by squares.
    assert pooled.edge_noise == pytest.approx(3.0 * np.sqrt((weights**2).sum()))
    assert pooled.product_noise[0, 1] == pytest.approx(3.0 * np.sqrt((weights**2).sum()))
    assert pooled_moments(parts[2:], HALF).edge_sum.tolist() == parts[2].edge_sum.tolist()


def test_the_weighted_number_of_rows_is_that_of_the_weighted_sums():
    parts = [moments(edges_of(rows, rows)) for rows in (13, 17)]
    pooled = pooled_moments(parts, Fraction(1, 3))
    assert pooled.rows == 21 == pytest.approx(pooled.product_sum[-1, -1])
    exact = parts[0].edge_sum / 3 + parts[1].edge_sum
    assert np.allclose(pooled.edge_sum / pooled.rows, exact / (13 / 3 + 17))


def test_the_noise_that_is_stated_is_the_noise_that_there_is():
    edges = [edges_of(40, 1), edges_of(60, 2)]
    exact = pooled_moments(list(map(moments, edges)), HALF)
    drawn = [pooled_moments([moments(part, 5.0, 2 * n + k) for k, part in enumerate(edges)], HALF) for n in range(600)]
    spread = np.std([each.edge_sum[0] - exact.edge_sum[0] for each in drawn])
    assert 0.87 < spread / drawn[0].edge_noise < 1.13


def test_sums_of_rados_of_epochs_are_rados_of_all_rows():
    """Mean and covariance of the pairs are those of uniform draws over both."""
    random, parts = np.random.RandomState(3), [edges_of(rows, rows) for rows in (25, 40)]
    samples = [RadoSample(draw_plain_rados(part, 20_000, random), len(part)) for part in parts]
    pooled, edges = pooled_rados(samples), np.concatenate(parts)
    assert (pooled.rows, pooled.distribution.inclusion, pooled.distribution.rado_noise) == (65, 0.5, None)
    error = np.sqrt((edges**2).sum(axis=0) / 4 / 20_000)
    assert (np.abs(pooled.rados.mean(axis=0) - edges.sum(axis=0) / 2) < 5 * error).all()
    covariance = edges.T @ edges / 4
    assert np.abs(np.cov(pooled.rados.T) - covariance).max() < 0.05 * covariance.max()


def test_noise_of_rados_adds_up_and_the_fewest_rados_count():
    noise = [np.full(3, 4.0), np.full(3, 5.0)]
    samples = [
        RadoSample(np.ones((count, 3)), 10, distribution=RadoDistribution(rado_noise=each))
        for count, each in zip((4, 6), noise, strict=True)
    ]
    pooled = pooled_rados(samples)
    assert pooled.rados.tolist() == [[2.0] * 3] * 4
    assert pooled.distribution.rado_noise.tolist() == [9.0] * 3


def test_truncations_are_averaged_by_rows():
    central = [RadoDistribution(central=CentralCount(0, rho)) for rho in (-0.1, -0.4)]
    samples = [RadoSample(np.ones((4, 3)), m, distribution=each) for m, each in zip((10, 30), central, strict=True)]
    assert pooled_rados(samples).distribution.central.correlation == pytest.approx(-0.325)


def test_what_does_not_add_up_is_refused():
    part = moments(edges_of(20, 1))
    with pytest.raises(ConfigurationError, match="ask them alike"):
        pooled_moments([part, replace(part, norm_bound=3.0)])
    for factor in (Fraction(0), Fraction(-1), Fraction(3, 2)):
        with pytest.raises(ConfigurationError, match="above 0 and at most 1"):
            pooled_moments([part, part], factor)
    rados = RadoSample(np.ones((4, 3)), 10)
    for other in (
        RadoDistribution(inclusion=0.25),
        RadoDistribution(fixed_support=True),
        RadoDistribution(rounding=np.array([True, False, False])),
    ):
        with pytest.raises(ConfigurationError, match="add up if all epochs draw from all signatures"):
            pooled_rados([rados, replace(rados, distribution=other)])
    with pytest.raises(ConfigurationError, match="another size or bias"):
        pooled_rados([rados, replace(rados, bias=False)])
    first, second = (replace(rados, distribution=RadoDistribution(central=CentralCount(n, -0.1))) for n in (0, 1))
    with pytest.raises(ConfigurationError, match="different features"):
        pooled_rados([first, second])


def test_releases_about_different_epochs_cost_what_the_worst_epoch_costs():
    kind = MomentsQuery(Clip(Fraction(2), bias=True), 7, 1 << 25)

    def counted(epoch: str | None, sigma: int = 1 << 25) -> CountedRelease:
        rows = {"a": 100, "b": 200}
        return CountedRelease(kind.with_noise(sigma), rows, STAYS, Setting(STAYS.d, 10, 2), epoch=epoch)

    def cost(*releases: CountedRelease) -> float:
        return composed_cost(releases, 1e-6).epsilon_if_others_collude

    everyone, november, december = counted(None), counted("11"), counted("12", 1 << 24)
    assert cost(november, december) == cost(december) > cost(november)
    assert cost(november, counted("11")) > cost(november)
    assert cost(everyone, november, december) == cost(everyone, december) > cost(december)
    assert cost(everyone, november, counted("12")) < cost(everyone, counted(None), counted(None))
