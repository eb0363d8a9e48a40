"""Class weights of a gradient query: what a record contributes, and that its bound holds whatever its class."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.accounting.noise_shares import gradient_squared
from dpcore.accounting.protection import Setting
from dpcore.errors import PlanError
from dpcore.queries.class_gradient import ClassGradientQuery
from dpcore.queries.gradient import GradientQuery, class_weights_in_words
from dpcore.queries.hazard_gradient import HazardGradientQuery
from dpcore.queries.kind import QueryLimits
from dpcore.queries.number_gradient import NumberGradientQuery
from dpcore.records.encoding import store
from dpcore.records.records import Records
from tests.dpcore.queries.test_class_gradient import THETA as OF_CLASSES
from tests.dpcore.queries.test_class_gradient import K, one_record, party
from tests.dpcore.queries.test_gradient_query import BITS, THETA, part, query, real_edges, records
from tests.examples import examples

ONE = 1 << 30


def weighted(weights: tuple[int, ...] = (2, 5), clip: str = "0.7") -> GradientQuery:
    return replace(query(THETA, clip), class_weights=weights)


def longest_squared(asked: GradientQuery, bits: int) -> int:
    """The squared length that accounting takes for what a record adds: a quarter of the squared sensitivity."""
    setting = Setting(asked.coordinates, bits, 2)
    return int(asked.protection(setting).squared) // 4


@pytest.mark.parametrize("clip", ["3", "0.4"])
def test_a_record_counts_as_often_as_its_class_says(clip: str) -> None:
    """By definition, in floating point: clipped first, then times the weight over the largest."""
    whole, asked = records(), weighted(clip=clip)
    e = real_edges(whole)
    weight = 1 / (1 + np.exp(e @ THETA))
    weight = np.minimum(weight, float(Fraction(clip)) / np.maximum(np.linalg.norm(e, axis=1), 1e-12))
    weight *= np.where(whole.labels > 0, 1.0, 0.4)
    wanted = -(weight[:, None] * e).sum(axis=0)
    assert asked.decode(asked.sums(whole, BITS), BITS) == pytest.approx(wanted, abs=whole.rows * 2.0**-11)
    other = replace(asked, class_weights=(5, 2))
    assert np.abs(other.decode(other.sums(whole, BITS), BITS) - wanted).max() > 1


def test_sums_are_exact_and_add_up_over_parties() -> None:
    whole, asked, plain = records(2, 9001), weighted((3, 1000)), query(THETA, "0.7")
    parts = [part(whole, slice(0, 1)), part(whole, slice(1, 4500)), part(whole, slice(4500, None))]
    assert np.array_equal(sum(asked.sums(each, BITS) for each in parts), asked.sums(whole, BITS))
    of_classes = [plain.sums(whole.only(whole.labels == label), BITS) for label in (-1, 1)]
    assert np.array_equal(asked.sums(whole, BITS), 3 * of_classes[0] + 1000 * of_classes[1])


@settings(deadline=None, max_examples=examples(20, 200))
@given(
    seed=st.integers(0, 2**32 - 1),
    clip=st.fractions(Fraction(1, 100), 4, max_denominator=1000),
    bits=st.integers(4, 16),
    ratio=st.sampled_from([(1, 2), (5, 2), (1, 1000), (999, 1000)]),
)
def test_no_record_is_longer_than_its_class_allows(seed: int, clip: Fraction, bits: int, ratio) -> None:
    """Without the clip, or with weights that count twice, some record is longer."""
    rng = np.random.default_rng(seed)
    kind = replace(query(list(rng.normal(size=4) * 100), str(clip)), class_weights=ratio)
    whole, longest = records(seed), longest_squared(kind, bits)
    assert longest * 4 == gradient_squared(clip, bits) * max(ratio) ** 2
    for row in range(0, whole.rows, 37):
        one = kind.sums(part(whole, slice(row, row + 1)), bits)
        assert int(np.square(one.astype(object)).sum()) <= longest
    limits = QueryLimits(rows=whole.rows, parties=1, d=4)
    assert int(np.abs(kind.sums(whole, bits)).max()) <= kind.largest_sum(limits, bits)


def test_the_sensitivity_is_reached_nearly_by_two_records_of_the_class_that_counts_most() -> None:
    """Of a record that changes its class too; so a bound that took the least or the mean weight would be violated."""
    x = np.array([[1.0, 1.0, -1.0, 1.0]])
    kind = replace(query([0, 0, 0, 0], "0.9", "hinge"), theta=(0, 0, 0, 0), class_weights=(2, 5))
    vectors = {
        (sign, label): kind.sums(Records(store(sign * x), np.array([label], np.int8), np.array([True])), BITS)
        for sign in (-1, 1)
        for label in (-1, 1)
    }
    bound, furthest = 4 * longest_squared(kind, BITS), 0
    for one, other in itertools.combinations(vectors.values(), 2):
        distance = int(np.square((one - other).astype(object)).sum())
        assert distance <= bound
        furthest = max(furthest, distance)
    assert furthest > 0.99 * bound
    assert furthest > gradient_squared(Fraction(9, 10), BITS) * 24


def test_of_several_classes_each_has_its_weight_and_the_bound_holds() -> None:
    weights = (3, 1, 7)
    units = tuple(np.rint(OF_CLASSES * 2**20).astype(int).ravel().tolist())
    plain = ClassGradientQuery("logistic", units, Fraction(1, 3), 40, None, K)
    kind, held = replace(plain, class_weights=weights), party(400, 3)
    of_classes = [plain.sums(held.only(held.labels == code), BITS) for code in range(K)]
    assert np.array_equal(kind.sums(held, BITS), sum(w * each for w, each in zip(weights, of_classes, strict=True)))
    assert kind.decode(7 * of_classes[0], BITS) == pytest.approx(plain.decode(of_classes[0], BITS))
    longest = longest_squared(kind, 6)
    squares = []
    for x in itertools.product((-ONE, 0, ONE), repeat=2):
        for code in range(K):
            vector = kind.sums(one_record([*x, ONE], code), 6).astype(object)
            squares.append(int(vector @ vector))
    assert 0.9 * longest < max(squares) <= longest


def test_the_noise_is_that_without_weights_in_the_unit_of_the_total() -> None:
    """At one epsilon: the largest weight is 1 of a record's clip, so that a total's noise is no larger."""
    setting = Setting(4, 10, 2)
    plain, kind = query(THETA), replace(query(THETA), class_weights=(1, 8))
    sigmas = [
        each.calibrated(setting, (), Fraction(1), Fraction(1, 10**6), Fraction(1)).share_sigma * each.unit(10)
        for each in (plain, kind)
    ]
    assert sigmas[1] == pytest.approx(sigmas[0], rel=1e-3)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ((1, 2, 3), "3 class weights for 2 classes"),
        ((0, 1), "whole numbers from 1 to 1000"),
        ((1, 1001), "whole numbers from 1 to 1000"),
        ((2, 4), "common factor"),
        ((1, 1), "not all alike"),
    ],
)
def test_other_weights_are_refused(weights, words) -> None:
    with pytest.raises(PlanError, match=words):
        weighted(weights)


def test_only_classes_have_weights() -> None:
    with pytest.raises(PlanError, match="only a label of classes"):
        NumberGradientQuery("squared", (0, 0), Fraction(1), 40, class_weights=(1, 2))
    with pytest.raises(PlanError, match="only a label of classes"):
        HazardGradientQuery("hazards", (0, 0), Fraction(1), 40, None, 1, 1, class_weights=(1, 2))


def test_weights_are_told_to_who_decides() -> None:
    assert weighted().words().endswith("each record's clipped to 0.7, class weights 1 : 2.5")
    assert class_weights_in_words((1000, 53, 7)) == "class weights 142.9 : 7.571 : 1"
    assert weighted().facts(4, 10) == {"d": 4, "unit": "2^-22 / 5", "loss": "logistic", "class_weights": [2, 5]}
    assert query(THETA).facts(4, 10) == {"d": 4, "unit": "2^-22", "loss": "logistic"}
