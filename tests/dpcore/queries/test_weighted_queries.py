"""Queries that count each record by its weight: what they sum, and that no record moves them beyond the bound."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.accounting.cohorts import Cohorts
from dpcore.accounting.noise_shares import gradient_squared
from dpcore.accounting.protection import Setting
from dpcore.errors import PlanError, SchemaError
from dpcore.queries.class_gradient import ClassGradientQuery
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.gradient import GradientQuery
from dpcore.queries.kind import QueryLimits
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.randomness.sources import SeededRandom
from dpcore.records.clipping import Clip
from dpcore.records.coding import NUMBER, SIGNS, class_codes
from dpcore.records.computation import Computation
from dpcore.records.records import Records, weighted_sums
from dpcore.records.weight import FULL_WEIGHT, weighted_squared

D, BITS, SHARE = 3, 8, 1 << 20
CLIP = Clip(Fraction(3, 2), bias=True)
THETA = (1 << 19, -(1 << 18), 1 << 17)
KINDS = {
    "moments": (MomentsQuery(CLIP, 200, SHARE, weighted=True), SIGNS),
    "of classes": (ClassMomentsQuery(CLIP, 200, SHARE, 3, weighted=True), class_codes(3)),
    "of each class": (ClassMomentsQuery(CLIP, 200, SHARE, 3, True, weighted=True), class_codes(3)),
    "of a number": (NumberMomentsQuery(CLIP, 9, SHARE, weighted=True), NUMBER),
    "gradient": (GradientQuery("logistic", THETA, Fraction(1, 2), SHARE, weighted=True), SIGNS),
    "gradient of classes": (
        ClassGradientQuery("logistic", THETA * 3, Fraction(1, 2), SHARE, None, 3, weighted=True),
        class_codes(3),
    ),
    "gradient with class weights": (
        GradientQuery("logistic", THETA, Fraction(1, 2), SHARE, weighted=True, class_weights=(1, 7)),
        SIGNS,
    ),
    "gradient of weighted classes": (
        ClassGradientQuery(
            "logistic", THETA * 3, Fraction(1, 2), SHARE, None, 3, weighted=True, class_weights=(2, 1, 7)
        ),
        class_codes(3),
    ),
    "gradient of a number": (NumberGradientQuery("squared", THETA, Fraction(1, 2), SHARE, weighted=True), NUMBER),
}


FIRST = ("moments", "of a number", "gradient", "gradient with class weights")
ALL = [*FIRST, *(pytest.param(name, marks=pytest.mark.more) for name in KINDS if name not in FIRST)]


def records(coding, seed: int, weights, *, extreme: bool = False) -> Records:
    random, rows = np.random.default_rng(seed), len(weights)
    features = random.integers(-(1 << 30), (1 << 30) + 1, (rows, D), dtype=np.int32)
    if extreme:
        features = np.where(features < 0, -(1 << 30), 1 << 30).astype(np.int32)
    features[:, -1] = 1 << 30
    usable = random.random(rows) < 0.9
    features[~usable] = 0
    labels = coding.spread(random.random(rows))
    labels[~usable] = 1
    return Records(features, labels, usable, coding=coding, weights=np.array(weights, dtype=np.uint16))


def summed(kind, held: Records) -> np.ndarray:
    return weighted_sums(held, lambda rows: kind.sums(rows, BITS), kind.length(D), is_weighted=True)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=15)
@given(
    st.integers(0, 2**32),
    st.integers(0, 2**32),
    st.lists(st.integers(0, FULL_WEIGHT), min_size=3, max_size=3),
    st.integers(0, FULL_WEIGHT),
)
def test_no_replaced_record_moves_a_sum_beyond_the_bound(name, seed, other, weights, weight):
    kind, coding = KINDS[name]
    protection = kind.protection(Setting(D, BITS, 2))
    before = records(coding, seed, weights, extreme=bool(seed % 2))
    one = records(coding, other, [weight], extreme=bool(seed % 2))
    arrays = {each: getattr(before, each).copy() for each in ("features", "labels", "usable", "weights")}
    for each, array in arrays.items():
        array[0] = getattr(one, each)[0]
    after = Records(**arrays, coding=coding)
    moved = summed(kind, before) - summed(kind, after)
    assert sum(int(each) ** 2 for each in moved) <= protection.squared
    left = summed(kind, before) - summed(kind, before.between(1, 3))
    assert sum(int(each) ** 2 for each in left) <= protection.squared_alone


@pytest.mark.parametrize("name", ["moments", "gradient"])
def test_a_record_whose_weight_has_no_bound_moves_a_sum_beyond_it(name):
    """The test above fails if a party stored weights above the bound: twice the bound is too much for some record."""
    kind, coding = KINDS[name]
    most = kind.protection(Setting(D, BITS, 2)).squared
    farthest = 0
    for seed in range(60):
        first, second = (records(coding, 2 * seed + i, [FULL_WEIGHT], extreme=True) for i in (0, 1))
        moved = (summed(kind, first) - summed(kind, second)).astype(object)
        farthest = max(farthest, sum(moved**2))
        assert farthest <= most
    assert 4 * farthest > most


@pytest.mark.parametrize("name", ALL)
def test_a_weight_counts_as_so_many_equal_rows(name):
    kind, coding = KINDS[name]
    times = np.array([0, 1, 4, 2, 3, 4, 1, 1])
    held = records(coding, 5, times * FULL_WEIGHT // 4)
    places = np.repeat(np.arange(len(times)), times)
    repeated = Records(held.features[places], held.labels[places], held.usable[places], coding=coding)
    assert summed(kind, held).tolist() == [total // 4 for total in kind.sums(repeated, BITS).tolist()]


@pytest.mark.parametrize("name", ["gradient with class weights", "gradient of weighted classes"])
def test_the_sensitivity_has_the_factor_of_both_weights(name):
    """Class weights lengthen a record's integers by max k, weights of rows add the rounding of a party's sum.

    Some record exceeds the bound that lacks max k, and would exceed the whole one if its weight were twice the bound of
    weights. The noise of the cohort that answers changes none of it.
    """
    kind, coding = KINDS[name]
    setting, largest = Setting(D, BITS, 2), max(kind.class_weights)
    clipped = gradient_squared(kind.clip, BITS, kind.weight_bits)
    for asked in (kind, kind.following(Cohorts(3, 2, 5))):
        found = asked.protection(setting)
        assert found.squared == weighted_squared(clipped * largest**2, kind.length(D))
        assert found.squared_alone == weighted_squared(clipped * largest**2 // 4, kind.length(D))
    without = replace(kind, class_weights=()).protection(setting).squared
    farthest = 0
    for seed in range(60):
        first, second = (records(coding, 2 * seed + i, [FULL_WEIGHT], extreme=True) for i in (0, 1))
        moved = (summed(kind, first) - summed(kind, second)).astype(object)
        farthest = max(farthest, sum(moved**2))
    assert without < farthest <= found.squared < 4 * farthest


def test_the_moments_are_of_as_many_rows_as_the_weights_add_up_to():
    kind, coding = KINDS["moments"]
    held = records(coding, 7, [FULL_WEIGHT // 2] * 400)
    found = kind.moments(summed(kind, held), BITS, rows=400, parties=2)
    usable = int(held.usable.sum())
    assert found.rows == usable // 2
    assert found.product_sum[-1, -1] == pytest.approx(usable / 2, abs=1)
    assert found.product_noise[-1, -1] > 0
    plain = replace(kind, weighted=False)
    assert plain.moments(plain.sums(held.unweighted, BITS), BITS, rows=400, parties=2).product_noise[-1, -1] == 0
    assert kind.length(D) == plain.length(D) + 1
    assert kind.largest_sum(QueryLimits(400, 2, D), BITS) > abs(summed(kind, held)).max()


def test_a_contribution_needs_weights_if_and_only_if_the_query_counts_by_them():
    computation = Computation(SeededRandom(1))
    kind, coding = KINDS["moments"]
    held = records(coding, 9, [0] * 50)
    with pytest.raises(SchemaError, match="the records have none"):
        kind.contribution(held.unweighted, BITS, computation)
    exact = replace(kind, share_sigma=3)
    assert abs(exact.contribution(held, BITS, computation)).max() < 30
    plain = replace(exact, weighted=False)
    assert abs(plain.contribution(held, BITS, computation)).max() > 1000
    gradient = replace(KINDS["gradient"][0], share_sigma=3)
    assert abs(gradient.contribution(held, BITS, computation)).max() < 30
    assert abs(replace(gradient, weighted=False).contribution(held, BITS, computation)).max() > 1000


def test_the_cost_counts_the_rounding_and_a_bias_is_needed():
    for name in ("moments", "gradient"):
        kind, _ = KINDS[name]
        weighted, plain = (each.protection(Setting(D, BITS, 2)) for each in (kind, replace(kind, weighted=False)))
        assert weighted.squared > plain.squared
        assert weighted.squared_alone > plain.squared_alone
    with pytest.raises(PlanError, match="need a bias"):
        MomentsQuery(Clip(Fraction(1), bias=False), 200, SHARE, weighted=True)
    assert "by its weight" in KINDS["moments"][0].words()
    assert "by its weight" in KINDS["gradient"][0].words()
