"""The draws have the distribution that the accounting counts: the same test accepts it and rejects wrong ones.

Seeds are fixed, so a result never changes from run to run.
"""

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.accounting.dp_feat import truncation
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.rados import RadosQuery
from dpcore.rados.designs import DpFeatDesign, FixedSupportDesign, GaussianDesign, PlainDesign, SensitiveFeature
from dpcore.rados.signatures import sensitive_counts, signatures_of, whole
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.computation import Computation
from dpcore.records.records import Records, edges, sensitive_positive

ACCEPT, REJECT = 1e-3, 1e-9
EPSILON = Fraction(1, 2)
SMOKER = SensitiveFeature(0, "smoker")
TRUNCATED = DpFeatDesign((SMOKER,), EPSILON)


def records(rows: int, share_positive: float = 0.5, seed: int = 11) -> Records:
    generator = np.random.default_rng(seed)
    features = np.where(generator.random((rows, 2)) < share_positive, ONE, -ONE).astype(np.int32)
    labels = generator.choice([-1, 1], size=rows).astype(np.int8)
    return Records(features, labels, np.ones(rows, dtype=np.bool_))


def packed(design, held: Records, rados: int, seed: int) -> np.ndarray:
    return whole(signatures_of(design, held, rados, SeededRandom(seed)))


def counts(design, held: Records, rados: int, seed: int = 3) -> np.ndarray:
    positive = np.packbits(sensitive_positive(held, 0), bitorder="little")
    return sensitive_counts(packed(design, held, rados, seed), positive, held.rows)


def fit(sample: np.ndarray, rows: int, low: int, p: float = 0.5) -> float:
    """p-value that k follows Binomial(rows, p) conditioned on low <= k <= rows - low.

    Neighbouring values share a cell until it expects about five.
    """
    support = np.arange(low, rows - low + 1)
    if len(sample) and not np.isin(sample, support).all():
        return 0.0
    masses = stats.binom.pmf(support, rows, p)
    expected = masses / masses.sum() * len(sample)
    seen = np.bincount(sample - low, minlength=len(support))
    cell = np.cumsum(expected) // 5
    merged = [np.array([array[cell == c].sum() for c in np.unique(cell)]) for array in (seen, expected)]
    return float(stats.chisquare(*merged).pvalue)


@pytest.mark.parametrize("share_positive", [0.0, 0.1, 0.5, 1.0])
def test_truncated_k_has_its_distribution_whatever_the_data(share_positive):
    held = records(201, share_positive)
    low, _ = truncation(201, EPSILON)
    sample = counts(TRUNCATED, held, 20_000)
    assert fit(sample, 201, low) > ACCEPT
    assert fit(sample, 201, low + 1) < REJECT
    assert fit(sample, 201, low - 2) < REJECT
    assert fit(sample, 201, low, p=0.49) < REJECT
    assert fit(sample, 201, low, p=0.51) < REJECT


@pytest.mark.parametrize("design", [PlainDesign((0,)), DpFeatDesign((SMOKER,))])
def test_untruncated_k_is_binomial(design):
    sample = counts(design, records(201), 20_000)
    assert fit(sample, 201, 0) > ACCEPT
    assert fit(sample, 201, 0, p=0.49) < REJECT
    assert fit(sample, 201, truncation(201, EPSILON)[0]) < REJECT


def test_truncated_signatures_are_uniform_over_the_whole_set():
    held = records(10)
    low, high = truncation(10, EPSILON)
    positive = np.packbits(sensitive_positive(held, 0), bitorder="little")
    everything = np.array([[code & 0xFF, code >> 8] for code in range(1024)], dtype=np.uint8)
    k = sensitive_counts(everything, positive, 10)
    admitted = np.flatnonzero((k >= low) & (k <= high))
    assert 100 < len(admitted) < 1000
    bits = packed(TRUNCATED, held, 60_000, 5)
    codes = bits[:, 0].astype(np.int64) | bits[:, 1].astype(np.int64) << 8
    seen = np.bincount(codes, minlength=1024)
    assert seen.sum() == seen[admitted].sum()
    assert stats.chisquare(seen[admitted]).pvalue > ACCEPT
    # A set that is right but not drawn from uniformly, by a tenth in half of its members, is noticed.
    skewed = seen[admitted] * np.where(np.arange(len(admitted)) % 2, 1.1, 0.9)
    assert stats.chisquare(skewed).pvalue < REJECT


def inclusion_p_value(bits: np.ndarray, rows: int) -> float:
    chosen = np.unpackbits(bits, axis=1, count=rows, bitorder="little").sum(axis=0)
    z = (chosen - len(bits) / 2) / np.sqrt(len(bits) / 4)
    return float(stats.chi2.sf((z**2).sum(), rows))


@pytest.mark.parametrize("rows", [9, 64, 201])
def test_every_row_is_included_half_the_time(rows):
    bits = packed(PlainDesign(), records(rows), 20_000, 8)
    assert inclusion_p_value(bits, rows) > ACCEPT
    # A single row that is included 0.45 of the time, all others being right.
    generator = np.random.default_rng(4)
    dropped = bits.copy()
    dropped[:, 0] &= np.where(generator.random(len(bits)) < 0.1, 0xFE, 0xFF).astype(np.uint8)
    assert inclusion_p_value(dropped, rows) < REJECT


def test_rows_are_included_independently():
    bits = packed(PlainDesign(), records(40), 20_000, 9)
    signs = 2.0 * np.unpackbits(bits, axis=1, count=40, bitorder="little") - 1
    products = (signs.T @ signs)[np.triu_indices(40, 1)] / np.sqrt(len(bits))
    assert ACCEPT < stats.chi2.sf((products**2).sum(), len(products)) < 1 - ACCEPT
    paired = signs.copy()
    paired[:4000, 1] = paired[:4000, 0]
    products = (paired.T @ paired)[np.triu_indices(40, 1)] / np.sqrt(len(bits))
    assert stats.chi2.sf((products**2).sum(), len(products)) < 1e-6


def test_plain_rados_have_half_the_sum_and_a_quarter_of_the_products():
    """E[pi] = 1/2 sum e_i and Cov[pi] = 1/4 sum e_i e_i^T; 0.9 and 1.1 times either are rejected."""
    held, n = records(300, 0.8), 20_000
    query = RadosQuery(n, PlainDesign())
    rados = query.decode(query.contribution(held, 16, Computation(SeededRandom(21))), 16)
    ((_, block),) = edges(held, 16)
    real = block / 2.0**16
    mean, covariance = real.sum(axis=0) / 2, real.T @ real / 4

    def mean_p_value(expected: np.ndarray) -> float:
        off = rados.mean(axis=0) - expected
        return float(stats.chi2.sf(n * off @ np.linalg.solve(covariance, off), len(off)))

    def variance_p_value(expected: np.ndarray) -> float:
        z = (rados.var(axis=0, ddof=1) / np.diag(expected) - 1) / np.sqrt(2 / (n - 1))
        return float(2 * stats.norm.sf(np.abs(z).max()))

    assert mean_p_value(mean) > ACCEPT
    assert variance_p_value(covariance) > ACCEPT
    assert np.corrcoef(rados.T)[0, 1] == pytest.approx(covariance[0, 1] / covariance[0, 0], abs=0.03)
    for factor in (0.9, 1.1):
        assert mean_p_value(mean * factor) < REJECT
        assert variance_p_value(covariance * factor) < REJECT


def support_p_value(bits: np.ndarray, rows: int, size: int) -> float:
    """p-value that every row is as likely in a subset of exactly `size`; 0 where a subset has another size."""
    chosen = np.unpackbits(bits, axis=1, count=rows, bitorder="little")
    if (chosen.sum(axis=1, dtype=np.int64) != size).any():
        return 0.0
    share = size / rows
    # Inclusions of one draw have covariance -share (1 - share) / (rows - 1): one degree of freedom is lost.
    z = (chosen.sum(axis=0) - len(bits) * share) / np.sqrt(len(bits) * share * (1 - share) * rows / (rows - 1))
    return float(stats.chi2.sf((z**2).sum(), rows - 1))


CLIP = Clip(Fraction(2), bias=False)


@pytest.mark.variants(4)
@pytest.mark.parametrize("rows", [9, 64, 201])
@pytest.mark.parametrize("share", [Fraction(1, 5), Fraction(1, 2), Fraction(4, 5)])
@pytest.mark.parametrize("make", [lambda f: FixedSupportDesign(f, CLIP, 0), lambda f: GaussianDesign(CLIP, 3, f)])
def test_fixed_support_takes_every_row_as_often(rows, share, make):
    size = round(share * rows)
    bits = packed(make(share), records(rows), 10_000, 17)
    assert support_p_value(bits, rows, size) > ACCEPT
    for wrong in (size - 1, size + 1):
        assert support_p_value(bits, rows, wrong) == 0
    # In half of the draws where it could be either, the first row is taken and not the second.
    chosen = np.unpackbits(bits, axis=1, count=rows, bitorder="little")
    swapped = (np.arange(len(bits)) % 10 < 5) & (chosen[:, 0] == 0) & (chosen[:, 1] == 1)
    chosen[swapped, 0], chosen[swapped, 1] = 1, 0
    assert support_p_value(np.packbits(chosen, axis=1, bitorder="little"), rows, size) < 1e-6


def test_fixed_support_takes_rows_without_regard_to_one_another():
    """Pairs are included with size (size - 1) / (rows (rows - 1)), each, and one that sticks together is noticed."""
    rows, size, n = 12, 4, 20_000
    bits = packed(FixedSupportDesign(Fraction(1, 3), CLIP, 0), records(rows), n, 18)
    chosen = np.unpackbits(bits, axis=1, count=rows, bitorder="little").astype(np.int64)
    expected = size * (size - 1) / (rows * (rows - 1))
    deviation = np.sqrt(n * expected * (1 - expected))
    together = (chosen.T @ chosen)[np.triu_indices(rows, 1)]
    assert np.abs(together - n * expected).max() < 4.5 * deviation
    assert together.sum() == n * size * (size - 1) // 2
    chosen[:2000, 1] = chosen[:2000, 0]
    stuck = (chosen.T @ chosen)[0, 1]
    assert abs(stuck - n * expected) > 4.5 * deviation


def test_several_sensitive_features_are_each_binomial():
    held = records(201, 0.3)
    design = DpFeatDesign((SMOKER, SensitiveFeature(1, "drinker")))
    bits = packed(design, held, 20_000, 19)
    for coordinate in (0, 1):
        positive = np.packbits(sensitive_positive(held, coordinate), bitorder="little")
        assert fit(sensitive_counts(bits, positive, 201), 201, 0) > ACCEPT
