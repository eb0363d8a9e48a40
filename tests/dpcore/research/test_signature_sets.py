"""Sums over sets of signatures against enumeration, and designs' sets against their draws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpcore.accounting.dp_feat import EmptyTruncationError, truncation
from dpcore.errors import ConfigurationError, ShapeError
from dpcore.estimators.boosting import log_rado_loss
from dpcore.numbers.fixed_point import ONE
from dpcore.rados.designs import (
    DpFeatDesign,
    FixedSupportDesign,
    GaussianDesign,
    JointDesign,
    PlainDesign,
    SensitiveFeature,
)
from dpcore.rados.signatures import signatures_of as drawn_from
from dpcore.rados.signatures import whole
from dpcore.rados.support import SupportError
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.records import Records
from dpcore.research.signature_sets import (
    SignatureSet,
    all_signatures,
    dp_feat_signatures,
    fixed_support_signatures,
    log_count_probability,
    signatures_of,
)
from tests.dpcore.rados.signature_enumeration import EVERY, POSITIVE, SETS, M, data, enumerated

CLIP = Clip(Fraction(2), bias=True)


@pytest.mark.parametrize("name", SETS)
def test_sums_over_a_set_equal_the_enumeration(name):
    signatures, (theta, edges) = SETS[name], data(1)
    products, members = edges @ theta, enumerated(SETS[name])
    rados = members @ edges
    assert math.exp(signatures.log_probability(np.zeros(M))) == pytest.approx(len(members) / 2**M, rel=1e-12)
    weights = np.exp(-(EVERY @ products))
    share = weights[signatures.admits(EVERY)].sum() / weights.sum()
    assert math.exp(signatures.log_probability(products)) == pytest.approx(share, rel=1e-10)
    assert signatures.log_loss(products) == pytest.approx(log_rado_loss(theta, rados), abs=1e-10)
    assert signatures.inclusion() == pytest.approx(members.mean(axis=0), abs=1e-12)
    best = signatures.best_selection(products)
    assert signatures.admits(best[np.newaxis])[0]
    assert products[best].sum() == pytest.approx((members @ products).min(), abs=1e-12)
    directions = np.random.default_rng(2).normal(size=(7, edges.shape[1]))
    extents = signatures.extents(edges @ directions.T)
    assert extents == pytest.approx((rados @ directions.T).max(axis=0), abs=1e-12)


def test_the_sets_are_the_papers():
    low, high = truncation(M, Fraction(1))
    # Equation 16 is about pi_j*: it is k - m + #(e = +1).
    sensitive = np.where(POSITIVE, 1, -1)
    k = EVERY @ sensitive + M - POSITIVE.sum()
    admitted = SETS["dp-feat"].admits(EVERY)
    assert np.array_equal(admitted, (k >= low) & (k <= high))
    assert 0 < admitted.sum() < 2**M
    assert np.array_equal(SETS["support"].admits(EVERY), EVERY.sum(axis=1) == 7)


def test_counts_far_in_the_tail_do_not_underflow():
    # 2,000 fair coins, all of them ones: 2^-2000 underflows a double.
    assert log_count_probability(np.zeros(2000), 2000, 2000) == pytest.approx(-2000 * math.log(2), rel=1e-9)
    odds = np.random.default_rng(2).normal(size=3000)
    assert log_count_probability(odds, 3000, 3000) == pytest.approx(-np.logaddexp(0, -odds).sum(), rel=1e-9)
    assert log_count_probability(odds, 0, 0) == pytest.approx(-np.logaddexp(0, odds).sum(), rel=1e-9)
    assert log_count_probability(odds, 0, 3000) == pytest.approx(0, abs=1e-9)
    for p, low, high in ((0.5, 100, 400), (0.9, 0, 1200), (0.9, 2950, 3000), (0.5, 1400, 1600)):
        k = np.arange(low, high + 1)
        logs = stats.binom.logpmf(k, 3000, p)
        expected = logs.max() + math.log(np.exp(logs - logs.max()).sum())
        found = log_count_probability(np.full(3000, math.log(p / (1 - p))), low, high)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_invalid_sets_are_refused():
    with pytest.raises(EmptyTruncationError):
        dp_feat_signatures(POSITIVE, Fraction(1, 10))
    with pytest.raises(ConfigurationError, match="low <= high"):
        fixed_support_signatures([4], [5])
    with pytest.raises(ConfigurationError, match="one for each"):
        fixed_support_signatures([4], [2, 2])
    with pytest.raises(ConfigurationError, match="at least one"):
        SignatureSet(())
    with pytest.raises(ShapeError):
        all_signatures(0)
    with pytest.raises(ShapeError, match="add up"):
        dp_feat_signatures(POSITIVE, Fraction(1), [4, 5])
    for call in (
        lambda: SETS["all"].admits(EVERY[:, 1:]),
        lambda: SETS["all"].log_probability(np.zeros(9)),
        lambda: SETS["all"].best_selection(np.zeros(9)),
        lambda: SETS["all"].extents(np.zeros((9, 2))),
    ):
        with pytest.raises(ShapeError):
            call()


SENSITIVE = (SensitiveFeature(0, "smoker"),)
DESIGNS = {
    "plain": PlainDesign(),
    "dp-feat": DpFeatDesign(SENSITIVE, Fraction(1)),
    "dp-feat, untruncated": DpFeatDesign(SENSITIVE),
    "joint": JointDesign("smoker", (0,), 4, 100),
    "support": FixedSupportDesign(Fraction(3, 10), CLIP, 0),
    "gaussian": GaussianDesign(CLIP, 100),
    "gaussian, support": GaussianDesign(CLIP, 100, Fraction(7, 10)),
}


def held() -> Records:
    labels = np.where(np.arange(M) % 3 == 0, -1, 1).astype(np.int8)
    features = np.stack([np.where(POSITIVE, ONE, -ONE) * labels, np.full(M, ONE)], axis=1).astype(np.int32)
    return Records(features, labels, np.ones(M, dtype=np.bool_))


@pytest.mark.parametrize("name", DESIGNS)
def test_a_designs_set_is_what_it_draws_from(name):
    packed = whole(drawn_from(DESIGNS[name], held(), 20_000, SeededRandom(12)))
    drawn = np.unique(np.unpackbits(packed, axis=1, count=M, bitorder="little"), axis=0).astype(bool)
    assert np.array_equal(drawn, enumerated(signatures_of(DESIGNS[name], held())))


def test_parties_that_draw_separately():
    local = signatures_of(DESIGNS["support"], held(), [4, 6])
    assert [(block.low, block.high) for block in local.blocks] == [(1, 1), (2, 2)]
    exact = signatures_of(FixedSupportDesign(Fraction(3, 10), CLIP, 0, "exact"), held(), [4, 6])
    assert [(block.low, block.high) for block in exact.blocks] == [(3, 3)]
    truncated = DpFeatDesign(SENSITIVE, Fraction(2))
    assert [len(block.target) for block in signatures_of(truncated, held(), [4, 6]).blocks] == [4, 6]
    pooled = signatures_of(DpFeatDesign(SENSITIVE, Fraction(2), "exact"), held(), [4, 6])
    assert np.array_equal(pooled.admits(EVERY), signatures_of(truncated, held()).admits(EVERY))
    with pytest.raises(ShapeError, match="add up"):
        signatures_of(DESIGNS["plain"], held(), [4, 5])
    with pytest.raises(SupportError):
        signatures_of(DESIGNS["support"], held(), [1, 9])
