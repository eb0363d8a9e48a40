import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.base import RadoSample, draw_plain_rados
from dpcore.estimators.moments_discriminant import EdgeMoments, Spread, assumed_squares, estimate_moments, restoration
from dpcore.rados.distribution import PLAIN_DISTRIBUTION, CentralCount, RadoDistribution

M, D = 300, 4


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(1)
    rows = random.uniform(-1, 1, size=(M, D)) @ np.array([[1, 0.5, 0, 0], [0, 0.5, 0, 0], [0, 0, 0.4, 0], [0, 0, 0, 1]])
    rows[:, 0] = np.clip(rows[:, 0] + 0.2, -1, 1)
    rows[:, -1] = 1.0
    labels = np.where(rows[:, 0] + random.normal(scale=0.7, size=M) > 0.4, 1.0, -1.0)
    return rows, labels


def draw(edges, n, distribution, random):
    """Rados of this distribution, with all its noise."""
    if distribution.edge_noise is not None:
        edges = edges + random.normal(size=edges.shape) * np.sqrt(distribution.edge_noise)
    if distribution.fixed_support:
        size = round(distribution.inclusion * M)
        chosen = np.argsort(random.random((n, M)), axis=1) < size
    else:
        chosen = random.random((n, M)) < distribution.inclusion
    rados = chosen.astype(float) @ edges
    return (
        rados
        if distribution.rado_noise is None
        else rados + random.normal(size=rados.shape) * np.sqrt(distribution.rado_noise)
    )


NOISE = np.array([0.5, 0.0, 2.0, 0.3])
DISTRIBUTIONS = {
    "plain": PLAIN_DISTRIBUTION,
    "sparse": RadoDistribution(inclusion=0.2),
    "rado noise": RadoDistribution(rado_noise=100 * NOISE),
    "edge noise": RadoDistribution(edge_noise=NOISE),
    "fixed support": RadoDistribution(inclusion=0.25, fixed_support=True),
    "everything": RadoDistribution(inclusion=0.25, fixed_support=True, edge_noise=NOISE, rado_noise=50 * NOISE),
}


def z_scores(table, distribution, assumed_distribution, *, bias, n=30, repeats=400):
    """Standardised errors of the mean estimate of mu and of S's upper triangle, over `repeats` releases."""
    rows, labels = table
    edges = rows * labels[:, np.newaxis]
    random = np.random.default_rng(7)
    triangle = np.triu_indices(D)
    found = []
    for _ in range(repeats):
        moments = estimate_moments(
            RadoSample(rados=draw(edges, n, distribution, random), rows=M, bias=bias, distribution=assumed_distribution)
        )
        found.append(np.concatenate([moments.edge_sum, moments.product_sum[triangle]]))
    truth = np.concatenate([edges.sum(axis=0), (rows.T @ rows)[triangle]])
    deviation = np.std(found, axis=0, ddof=1)
    error = np.mean(found, axis=0) - truth
    # S_bb is known: no error and no deviation.
    return np.where(deviation > 0, error / np.where(deviation > 0, deviation, 1.0) * np.sqrt(repeats), error)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_moments_are_unbiased_under_every_distribution(table, name, bias):
    assert np.abs(z_scores(table, DISTRIBUTIONS[name], DISTRIBUTIONS[name], bias=bias)).max() < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DISTRIBUTIONS if name != "plain"])
def test_a_wrong_distribution_is_detected(table, name):
    assert np.abs(z_scores(table, DISTRIBUTIONS[name], PLAIN_DISTRIBUTION, bias=True)).max() > 9
    larger = {
        "sparse": RadoDistribution(inclusion=0.25),
        "rado noise": RadoDistribution(rado_noise=130 * NOISE),
        "edge noise": RadoDistribution(edge_noise=1.3 * NOISE),
        "fixed support": RadoDistribution(inclusion=0.25),
        "everything": RadoDistribution(
            inclusion=0.25, fixed_support=True, edge_noise=1.3 * NOISE, rado_noise=50 * NOISE
        ),
    }
    assert np.abs(z_scores(table, DISTRIBUTIONS[name], larger[name], bias=True)).max() > 6


def test_a_known_bias_makes_the_estimate_better(table):
    rows, labels = table
    edges = rows * labels[:, np.newaxis]
    errors = {True: [], False: []}
    for seed in range(100):
        rados = draw_plain_rados(edges, 40, np.random.RandomState(seed))
        for bias, squares in errors.items():
            sums = estimate_moments(RadoSample(rados=rados, rows=M, bias=bias)).product_sum[-1]
            squares.append(np.square(sums - rows.sum(axis=0)).sum())
    assert np.mean(errors[True]) < 0.7 * np.mean(errors[False])


def test_all_rados_give_the_exact_moments():
    random = np.random.default_rng(3)
    rows = np.column_stack([random.uniform(-1, 1, size=(12, 3)), np.ones(12)])
    edges = rows * random.choice([-1.0, 1.0], size=(12, 1))
    rados = np.array(list(itertools.product([0.0, 1.0], repeat=12))) @ edges
    moments = estimate_moments(RadoSample(rados=rados, rows=12))
    # The divisors are those of a sample of 4,096: a relative 1e-3.
    assert np.allclose(moments.edge_sum, edges.sum(axis=0))
    assert np.allclose(moments.product_sum, rows.T @ rows, rtol=2e-3, atol=2e-3)


@pytest.mark.more
def test_a_rounded_coordinate_gets_the_square_of_a_feature_that_fills_its_range():
    random = np.random.default_rng(4)
    m = 4000
    labels = np.where(random.random(m) < 0.3, 1.0, -1.0)
    uniform = random.uniform(-1, 1, size=m)
    # A beta distribution of parameters (1.5, 0.5) on [-1, 1] in class +1, uniform in class -1.
    feature = np.where(labels > 0, 2.0 * random.beta(1.5, 0.5, size=m) - 1.0, uniform)
    signs = np.where(random.random(m) < (1.0 + feature) / 2.0, 1.0, -1.0)
    rows = np.column_stack([uniform, signs, np.ones(m)])
    distribution = RadoDistribution(rounding=np.array([False, True, False]))
    rados = draw_plain_rados(rows * labels[:, np.newaxis], 2000, np.random.RandomState(0))
    corrected = estimate_moments(RadoSample(rados=rados, rows=m, distribution=distribution)).product_sum
    left = estimate_moments(RadoSample(rados=rados, rows=m)).product_sum
    truth = float(feature @ feature)
    assert abs(left[1, 1] / m - 1.0) < 0.15
    assert 0.9 < corrected[1, 1] / truth < 1.1
    corrected = corrected.copy()
    corrected[1, 1] = left[1, 1]
    assert np.array_equal(corrected, left)


def test_without_a_bias_the_common_mean_replaces_the_class_means():
    moments = EdgeMoments(np.array([0.0, 10.0, -20.0]), np.eye(3), 20, bias=False)
    assert np.allclose(assumed_squares(moments), 20 * np.array([1 / 3, 0.25 + 0.25, 1.0]))


@pytest.mark.parametrize("field", ["rado_noise", "edge_noise", "rounding"])
def test_a_distribution_of_another_width_is_refused(field):
    distribution = RadoDistribution(**{field: np.ones(2, dtype=bool if field == "rounding" else float)})
    with pytest.raises(ShapeError, match=field):
        estimate_moments(RadoSample(rados=np.eye(3), rows=4, distribution=distribution))


def draw_central(edges, n, counts, random):
    """Rados whose number of coins [sigma_i = y_i e_ij] that show heads, j = 0, is one of `counts` each time."""
    heads = np.argsort(random.random((n, len(edges))), axis=1) < random.choice(counts, size=n)[:, np.newaxis]
    return (heads == (edges[:, 0] > 0)).astype(float) @ edges


def central_table(random, m=300):
    rows = random.uniform(-1, 1, size=(m, 6))
    rows[:, 0] = np.where(rows[:, 1] + random.normal(scale=0.5, size=m) > 0, 1.0, -1.0)
    rows[:, -1] = 1.0
    return rows, rows * np.where(rows[:, 0] + rows[:, 2] + random.normal(size=m) > 0, 1.0, -1.0)[:, np.newaxis]


def restored(rados, rows, distribution):
    spread = Spread.of(rados)
    to, _law = restoration(spread, rows, distribution)
    return spread.mean + (rados - spread.mean) @ to


COUNTS = np.array([148, 149, 150, 151, 152])
CENTRAL = RadoDistribution(central=CentralCount(0, (4 * 2.0 - 300) / 299 / 300))


@pytest.mark.more
def test_truncated_rados_give_the_products_of_uniform_ones():
    random = np.random.default_rng(5)
    rows, edges = central_table(random)
    aware, unaware = [], []
    for _ in range(40):
        rados = draw_central(edges, 1000, COUNTS, random)
        aware.append(estimate_moments(RadoSample(rados, 300, distribution=CENTRAL)).product_sum)
        unaware.append(estimate_moments(RadoSample(rados, 300)).product_sum)
    truth = rows.T @ rows
    assert np.abs(np.mean(aware, axis=0) - truth).max() < 12
    assert np.abs(np.mean(aware, axis=0) - truth).mean() < 4
    assert np.abs(np.mean(unaware, axis=0) - truth).max() > 100


@pytest.mark.more
def test_slopes_on_a_count_that_hardly_varies_are_shrunk():
    """In 40 rados a count with 1/37 of the variance has little information: shrunk slopes are nearer the truth,
    and from 4,000 rados they are the unshrunk ones up to a few percent."""
    random = np.random.default_rng(6)
    rows, edges = central_table(random)
    truth = rows[:, 0] @ rows[:, 1:] / len(rows)
    nearer = []
    for _ in range(200):
        rados = draw_central(edges, 40, COUNTS, random)
        away = rados - rados.mean(axis=0)
        found = away[:, 1:].T @ away[:, 0] / (away[:, 0] @ away[:, 0])
        plain = restored(rados, 300, CENTRAL)
        covariance = np.cov(plain.T)
        assert covariance[0, 0] == pytest.approx(300 / 4)
        shrunk = covariance[0, 1:] / covariance[0, 0]
        nearer.append(np.square(found - truth).sum() - np.square(shrunk - truth).sum())
    assert np.mean(nearer) > 4 * np.std(nearer) / np.sqrt(len(nearer))
    rados = draw_central(edges, 4000, COUNTS, random)
    away = rados - rados.mean(axis=0)
    found = away[:, 1:].T @ away[:, 0] / (away[:, 0] @ away[:, 0])
    shrunk = np.cov(restored(rados, 300, CENTRAL).T)[0, 1:] / 75
    ratio = np.linalg.norm(shrunk) / np.linalg.norm(found)
    assert 0.8 < ratio < 1.0


def test_a_count_that_does_not_vary_leaves_an_assumed_square():
    random = np.random.default_rng(7)
    _rows, edges = central_table(random)
    sample = RadoSample(draw_central(edges, 100, COUNTS[:1], random), 300, distribution=CENTRAL)
    assert np.ptp(sample.rados[:, 0]) == 0
    products = estimate_moments(sample).product_sum
    assert 100 <= products[0, 0] <= 300
    assert np.allclose(products[0, 1:], 0.0)


def test_an_impossible_truncation_is_refused():
    for coordinate, correlation in ((-1, -0.1), (0, 0.1), (0, -1.1), (0, float("nan"))):
        with pytest.raises(ConfigurationError, match="correlation"):
            CentralCount(coordinate, correlation)
    for other in ({"inclusion": 0.4}, {"fixed_support": True}, {"rado_noise": np.ones(3)}, {"edge_noise": np.ones(3)}):
        with pytest.raises(ConfigurationError, match="truncation of uniform signatures"):
            RadoDistribution(central=CentralCount(0, -0.1), **other)
    with pytest.raises(ShapeError, match="truncated coordinate"):
        restored(np.eye(3), 4, RadoDistribution(central=CentralCount(3, -0.1)))


@given(seed=st.integers(0, 1000), n=st.integers(3, 60), d=st.integers(1, 6), folds=st.integers(2, 3))
def test_spreads_are_those_of_the_definition(seed, n, d, folds):
    """Of all rados, about another point, without a part, and mapped; far from 0, where squares would cancel."""
    random = np.random.default_rng(seed)
    rados = 1e6 + random.normal(size=(n, d))
    part, others = rados[::folds], np.delete(rados, np.s_[::folds], axis=0)
    to, centre = random.normal(size=(d, d)), 1e6 + random.normal(size=d)
    whole = Spread.of(rados)
    left, mapped = whole.without(Spread.of(part)), whole.mapped(centre, to)
    cases = (
        (whole, rados),
        (left, others),
        (mapped, centre + (rados - centre) @ to),
    )
    for found, values in cases:
        away = values - values.mean(axis=0)
        assert found.count == len(values)
        assert np.allclose(found.mean, values.mean(axis=0), rtol=1e-12)
        assert np.allclose(found.scatter, away.T @ away, rtol=1e-6, atol=1e-6)
    assert np.allclose(whole.about(centre), (rados - centre).T @ (rados - centre), rtol=1e-6, atol=1e-6)


def test_blocks_are_all_of_the_rados():
    rados = np.random.default_rng(0).normal(size=(2 * 16384 // 40 + 7, 40))
    assert np.allclose(Spread.of(rados).scatter, np.cov(rados.T) * (len(rados) - 1), rtol=1e-9, atol=1e-9)
    assert Spread.of(rados[1::3]).count == len(rados[1::3])
