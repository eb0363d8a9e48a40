"""The noise and the roundings have the distributions that the accounting counts; others are rejected.

Seeds are fixed, so a result never changes from run to run.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.estimators.moments_discriminant import Spread, restoration
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import DpFeatDesign, FixedSupportDesign, GaussianDesign, JointDesign, SensitiveFeature
from dpcore.rados.distribution import RadoDistribution
from dpcore.rados.rounding import rounded
from dpcore.rados.signatures import signatures_of
from dpcore.rados.sums import NoisedTable
from dpcore.randomness.noise import LARGEST_SIGMA, discrete_gaussian
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation, PartySecret
from dpcore.records.records import Records

ACCEPT, REJECT = 1e-3, 1e-9
BITS = 10
CLIP = Clip(Fraction(3, 2), bias=True)
PARTY_SECRET = PartySecret(bytes(range(32)), b"schema digest, 32 bytes it has..")


def masses(x: np.ndarray, sigma: float) -> np.ndarray:
    mass = np.exp(-(x.astype(np.float64) ** 2) / (2 * sigma**2))
    return mass / mass.sum()


def fit(sample: np.ndarray, sigma: float, distribution: Callable[[np.ndarray, float], np.ndarray] = masses) -> float:
    """p-value that the sample follows `distribution`, the discrete Gaussian unless another is named."""
    reach = int(max(np.abs(sample).max(), 10 * sigma)) + 1
    x = np.arange(-reach, reach + 1)
    expected = distribution(x, sigma) * len(sample)
    seen = np.bincount(sample + reach, minlength=len(x))
    cell = np.cumsum(expected) // 5
    merged = [np.bincount(np.unique(cell, return_inverse=True)[1], weights=array) for array in (seen, expected)]
    return float(stats.chisquare(*merged, sum_check=False).pvalue)


def scale_p_value(sample: np.ndarray, variance: float) -> float:
    """Two-sided p-value of the mean square against `variance`, for noise that is nearly normal."""
    z = ((sample.astype(np.float64) ** 2).mean() / variance - 1) / np.sqrt(2 / len(sample))
    return float(2 * stats.norm.sf(abs(z)))


def mean_p_value(sample: np.ndarray) -> float:
    z = sample.mean() / sample.std() * np.sqrt(len(sample))
    return float(2 * stats.norm.sf(abs(z)))


@pytest.mark.parametrize("sigma", [1, 3, 20])
def test_discrete_gaussian_has_its_distribution(sigma):
    sample = discrete_gaussian(sigma, 200_000, SeededRandom(sigma))
    assert fit(sample, sigma) > ACCEPT
    for factor in (0.7, 0.97, 1.03, 1.3):
        assert fit(sample, factor * sigma) < REJECT

    def shifted(x: np.ndarray, scale: float) -> np.ndarray:
        return masses(x - 0.05 * scale, scale)

    def zero_twice(x: np.ndarray, scale: float) -> np.ndarray:
        twice = masses(x, scale) * np.where(x == 0, 2, 1)
        return twice / twice.sum()

    def rounded_normal(x: np.ndarray, scale: float) -> np.ndarray:
        return stats.norm.cdf(x + 0.5, scale=scale) - stats.norm.cdf(x - 0.5, scale=scale)

    assert fit(sample, sigma, shifted) < REJECT
    assert fit(sample, sigma, zero_twice) < REJECT
    # A normal number that is rounded is not it; at sigma = 3 the two differ by less than a percent.
    if sigma == 1:
        assert fit(sample, sigma, rounded_normal) < REJECT


@pytest.mark.more
@pytest.mark.parametrize("sigma", [pytest.param(1 << 30, marks=pytest.mark.slow), LARGEST_SIGMA])
def test_large_noise_has_its_distribution(sigma):
    sample = discrete_gaussian(sigma, 200_000, SeededRandom(31))
    for factor, distribution in ((1.0, True), (0.7, False), (0.97, False), (1.03, False), (1.3, False)):
        kolmogorov = float(stats.kstest(sample / (sigma * factor), "norm").pvalue)
        scale = scale_p_value(sample, (sigma * factor) ** 2)
        assert (min(kolmogorov, scale) > ACCEPT) if distribution else (scale < REJECT)
        assert distribution or kolmogorov < 1e-6
    assert mean_p_value(sample) > ACCEPT
    # No bit is missing at the low end: rounding to a coarser grid would show.
    low = np.bincount(sample & 0xFF, minlength=256)
    assert stats.chisquare(low).pvalue > ACCEPT
    coarser = np.bincount((sample & ~1) & 0xFF, minlength=256)
    assert stats.chisquare(coarser).pvalue < REJECT


def test_samples_are_independent():
    sample = discrete_gaussian(20, 200_000, SeededRandom(8)).astype(np.float64)
    for lag in (1, 2, 17):
        z = (sample[:-lag] * sample[lag:]).mean() / 400 * np.sqrt(len(sample) - lag)
        assert 2 * stats.norm.sf(abs(z)) > ACCEPT
    linked = 0.95 * sample[1:] + 0.3 * sample[:-1]
    z = (linked[:-1] * linked[1:]).mean() / 400 * np.sqrt(len(linked))
    assert 2 * stats.norm.sf(abs(z)) < REJECT


def test_shares_add_up_to_their_variance():
    parties, share = 7, 5
    total = sum(discrete_gaussian(share, 100_000, SeededRandom(100 + party)) for party in range(parties))
    assert scale_p_value(total, parties * share**2) > ACCEPT
    assert fit(total, share * np.sqrt(parties)) > ACCEPT
    for factor in (0.7, 0.97, 1.03, 1.3):
        assert scale_p_value(total, parties * (share * factor) ** 2) < REJECT
    # One share fewer or more is noticed.
    for others in (parties - 1, parties + 1):
        assert scale_p_value(total, others * share**2) < REJECT


def records(rows: int, seed: int = 2) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, size=(rows, 4), endpoint=True).astype(np.int32)
    features[:, 1] = generator.choice([-ONE, ONE], size=rows)
    features[:, -1] = ONE
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    return Records(features, labels, np.ones(rows, dtype=np.bool_))


def test_a_noised_tables_noise_has_its_distribution():
    held = records(5000)
    table = NoisedTable.of(held, FixedSupportDesign(Fraction(1, 2), CLIP, 20), BITS, PARTY_SECRET)
    noise = np.concatenate([table.noise(0, (4096, 4)), table.noise(4096, (904, 4))])
    for part in (noise.reshape(-1), noise[:4096].reshape(-1)):
        assert fit(part, 20) > ACCEPT
        for factor in (0.7, 0.93, 1.07, 1.3):
            assert scale_p_value(part, (20 * factor) ** 2) < REJECT
    correlation = np.corrcoef(noise[:904].reshape(-1), noise[4096:].reshape(-1))[0, 1]
    assert abs(correlation) < 4.5 / np.sqrt(904 * 4)
    assert np.abs(np.corrcoef(noise.T)[np.triu_indices(4, 1)]).max() < 4.5 / np.sqrt(5000)


def noise_in(query: RadosQuery, held: Records, seed: int) -> np.ndarray:
    """What a contribution adds to the sums over its own signatures, which are drawn first."""
    prepared = query.prepare(held, BITS)
    signatures = signatures_of(query.design, prepared.records, query.rados, SeededRandom(seed))
    whole = query.integers(query.contribution(held, BITS, Computation(SeededRandom(seed))))
    return whole - prepared.sums_over(signatures)


@pytest.mark.parametrize("fraction", [None, Fraction(1, 4)])
def test_gaussian_noise_is_on_every_value_at_its_scale(fraction):
    noise = noise_in(RadosQuery(20_000, GaussianDesign(CLIP, 12, fraction)), records(40), 6)
    assert fit(noise.reshape(-1), 12) > ACCEPT
    for column in noise.T:
        assert scale_p_value(column, 144) > ACCEPT
        for factor in (0.7, 0.95, 1.05, 1.3):
            assert scale_p_value(column, (12 * factor) ** 2) < REJECT
    products = (noise.T @ noise / len(noise) / 144)[np.triu_indices(4, 1)] * np.sqrt(len(noise))
    assert np.abs(products).max() < 4.5


def test_joint_noise_is_on_its_columns_coordinates_alone():
    noise = noise_in(RadosQuery(20_000, JointDesign("c", (0, 2), 2, 12)), records(40), 6)
    assert not noise[:, [1, 3]].any()
    for column in noise[:, [0, 2]].T:
        assert fit(column, 12) > ACCEPT
        for factor in (0.7, 0.95, 1.05, 1.3):
            assert scale_p_value(column, (12 * factor) ** 2) < REJECT
    assert abs(np.corrcoef(noise[:, 0], noise[:, 2])[0, 1]) < 4.5 / np.sqrt(20_000)


@pytest.mark.more
@pytest.mark.parametrize(
    ("drawn", "wrong"), [(1500, (0.7, 0.9, 1.1, 1.3)), pytest.param(4000, (0.95, 1.05), marks=pytest.mark.slow)]
)
def test_moments_noise_is_what_a_learner_is_told(drawn, wrong):
    query, held, parties = MomentsQuery(CLIP, 3, 12), records(30), 3
    exact = query.sums(held, BITS)
    random = SeededRandom(12)
    totals = [
        parties * exact + sum(query.contribution(held, BITS, Computation(random)) - exact for _ in range(parties))
        for _ in range(drawn)
    ]
    told = [query.moments(total, BITS, rows=90, parties=parties) for total in totals]
    edge_sum, products = query.decode(parties * exact, BITS)
    edges = np.stack([each.edge_sum - edge_sum for each in told])
    kept = np.triu_indices(4)
    squares = np.stack([(each.product_sum - products)[kept][:-1] for each in told])
    scales = told[0].product_noise[kept][:-1]
    for sample in (edges / told[0].edge_noise, squares / scales):
        columns = np.concatenate([sample, sample.reshape(-1, 1)[: len(sample)]], axis=1).T
        assert min(scale_p_value(column, 1.0) for column in columns) > ACCEPT / 10
        whole = sample.reshape(-1)
        assert scale_p_value(whole, 1.0) > ACCEPT
        for factor in wrong:
            assert scale_p_value(whole, factor**2) < REJECT
    assert told[0].product_noise[-1, -1] == 0


def test_a_rounded_sign_has_the_value_as_its_mean():
    """At each of several values; a mean that is off by 0.05 is rejected, and so are signs that follow one another."""
    rows = 4000
    for value in (-1.0, -0.8, -0.25, 0.0, 0.5, 0.97, 1.0):
        features = np.full((rows, 3), ONE, dtype=np.int32)
        features[:, 0] = int(value * ONE)
        features[:, 1] = np.arange(rows) // 2
        held = Records(features, np.ones(rows, dtype=np.int8), np.ones(rows, dtype=np.bool_))
        signs = rounded(held, [0], PARTY_SECRET).features[:, 0] / ONE
        assert set(np.abs(signs)) == {1.0}
        plus = int((signs > 0).sum())
        assert stats.binomtest(plus, rows, (1 + value) / 2).pvalue > ACCEPT
        for wrong in (value - 0.25, value + 0.25):
            if abs(wrong) <= 1:
                assert stats.binomtest(plus, rows, (1 + wrong) / 2).pvalue < REJECT
        if abs(value) < 0.9:
            # Rows 2i and 2i + 1 have the same content: each has a sign of its own.
            centred = (signs - value) / np.sqrt(1 - value**2)
            z = (centred[::2] * centred[1::2]).mean() * np.sqrt(rows / 2)
            assert abs(z) < 3.5
            assert abs((centred[::2] * centred[::2]).mean() * np.sqrt(rows / 2)) > 30


def test_rounding_makes_the_mean_square_one_and_keeps_the_mean():
    """Over records with values of their own: the mean of b is that of x, two-sided, and E[b^2] = 1."""
    held = records(20_000)
    signs = rounded(held, [0], PARTY_SECRET).features[:, 0] / ONE
    x = held.features[:, 0] / ONE
    assert (signs**2).mean() == 1.0 != pytest.approx((x**2).mean(), abs=0.5)
    z = (signs - x).sum() / np.sqrt((1 - x**2).sum())
    assert abs(z) < 3.5
    # The sign of x would be as likely +1 on the whole, but not value by value.
    slope = (signs * x).sum() / (x**2).sum()
    assert abs(slope - 1) < 4 * np.sqrt(((1 - x**2) * x**2).sum()) / (x**2).sum()
    assert abs((np.sign(x) * x).sum() / (x**2).sum() - 1) > 0.4


LAWS = {
    "plain rados": RadosQuery(20_000, GaussianDesign(Clip(Fraction(100), bias=True), 3)),
    "gaussian": RadosQuery(20_000, GaussianDesign(CLIP, 700)),
    "gaussian, fixed support": RadosQuery(20_000, GaussianDesign(CLIP, 700, Fraction(1, 4))),
    "joint": RadosQuery(20_000, JointDesign("c", (0, 2), 2, 1500)),
}


@pytest.mark.variants(2)
@pytest.mark.parametrize("query", LAWS.values(), ids=LAWS.keys())
def test_the_distribution_that_learners_are_told_is_the_one_drawn(query):
    """The covariance of the rados of two parties is as RadoDistribution says, within 5 %: 0.9 is rejected."""
    parties = [records(24, seed) for seed in (5, 6)]
    total = sum(query.contribution(held, BITS, Computation(SeededRandom(40 + i))) for i, held in enumerate(parties))
    rados = query.decode(total, BITS)
    distribution = query.distribution(4, [held.rows for held in parties], BITS)
    clip = query.design.clip if isinstance(query.design, GaussianDesign) else None
    expected, mean = np.zeros((4, 4)), np.zeros(4)
    for held in parties:
        edges = held.labels[:, None] * (np.sign(held.features) * (np.abs(held.features.astype(np.int64)) >> 30 - BITS))
        edges = (edges if clip is None else clip.apply(edges, BITS)) / 2.0**BITS
        mean += distribution.inclusion * edges.sum(axis=0)
        second = edges.T @ edges
        if distribution.fixed_support:
            # Exactly f m of m: inclusions have covariance -f (1 - f) / (m - 1).
            whole = edges.sum(axis=0)
            second = (len(edges) * second - np.outer(whole, whole)) / (len(edges) - 1)
        expected += distribution.inclusion * (1 - distribution.inclusion) * second
    if distribution.rado_noise is not None:
        expected += np.diag(distribution.rado_noise)
    found = np.cov(rados.T)
    root = np.linalg.inv(np.linalg.cholesky(expected))
    whitened = root @ found @ root.T
    # The standard deviation of an entry is sqrt(2 / n) = 0.01 on the diagonal and 0.007 beside it.
    assert np.abs(whitened - np.eye(4)).max() < 0.05
    assert np.abs(root @ (rados.mean(axis=0) - mean)).max() < 4.5 / np.sqrt(len(rados))
    for factor in (0.9, 1.1):
        assert np.abs(whitened * factor - np.eye(4)).max() > 0.05


@pytest.mark.parametrize("per_rado", [Fraction(1, 2), Fraction(1, 4)])
def test_truncated_rados_have_the_covariance_that_learners_are_told(per_rado):
    """Over two parties of one size, by the formula of `edge_moments`: within 5 %; another correlation is rejected."""
    parties = [records(120, seed) for seed in (5, 6)]
    query = RadosQuery(20_000, DpFeatDesign((SensitiveFeature(1, "s"),), per_rado))
    total = sum(query.contribution(held, BITS, Computation(SeededRandom(50 + i))) for i, held in enumerate(parties))
    rados = query.decode(total, BITS)
    told = query.distribution(4, [held.rows for held in parties], BITS).central
    assert told is not None
    tables = [
        held.labels[:, None]
        * (np.sign(held.features) * (np.abs(held.features.astype(np.int64)) >> 30 - BITS))
        / 2**BITS
        for held in parties
    ]
    found, mean = np.cov(rados.T), sum(table.sum(axis=0) for table in tables) / 2

    def farthest(rho: float) -> float:
        products = [table.T @ table for table in tables]
        expected = sum((1 - rho) * product + rho * np.outer(product[1], product[1]) for product in products) / 4
        values, vectors = np.linalg.eigh(expected)
        if values[0] <= 0:
            return np.inf
        root = vectors.T / np.sqrt(values)[:, None]
        assert np.abs(root @ (rados.mean(axis=0) - mean)).max() < 4.5 / np.sqrt(len(rados)) or rho != told.correlation
        return float(np.abs(root @ found @ root.T - np.eye(4)).max())

    assert farthest(told.correlation) < 0.05
    for wrong in (0.0, 0.8 * told.correlation, 1.2 * told.correlation):
        assert farthest(wrong) > 0.1
    # And as a learner restores them: those of uniform signatures.
    to, distribution = restoration(Spread.of(rados), 240, RadoDistribution(central=told))
    assert distribution.central is None
    root = np.linalg.inv(np.linalg.cholesky(sum(table.T @ table for table in tables) / 4))
    assert np.abs(root @ np.cov((rados @ to).T) @ root.T - np.eye(4)).max() < 0.07
    assert np.abs(root @ found @ root.T - np.eye(4)).max() > 0.2


def test_edge_noise_is_what_a_learner_is_told():
    """Fixed support with every subset of edges: a table's noise enters a rado with the edge that carries it."""
    rows, sigma = 3000, 400
    held, query = records(rows), RadosQuery(1, FixedSupportDesign(Fraction(1, 2), CLIP, sigma))
    prepared = query.prepare(held, BITS, PARTY_SECRET)
    single = np.packbits(np.eye(rows, dtype=np.uint8), axis=1, bitorder="little")
    noised = prepared.sums_of(single)
    bare = RadosQuery(1, FixedSupportDesign(Fraction(1, 2), CLIP, 0)).prepare(held, BITS).sums_of(single)
    told = query.distribution(4, (rows,), BITS).edge_noise
    assert told is not None
    for column, variance in zip(((noised - bare) / 2.0**BITS).T, told, strict=True):
        assert scale_p_value(column, variance) > ACCEPT
        for factor in (0.7, 0.85, 1.15, 1.3):
            assert scale_p_value(column, variance * factor**2) < 1e-6
    # A rado over many edges has the sum of their noise: the table is added before the sum, and once.
    everything = np.packbits(np.ones((1, rows), dtype=np.uint8), axis=1, bitorder="little")
    assert np.array_equal(prepared.sums_of(everything)[0], noised.sum(axis=0))
