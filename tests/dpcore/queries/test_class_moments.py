"""Moments of several classes: exact sums by class, their sensitivity, and what a total decodes to."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.noise_shares import (
    PRODUCT_WEIGHT,
    SQUARE_WEIGHT,
    class_moments_alone,
    class_moments_squared,
)
from dpcore.accounting.protection import Setting
from dpcore.errors import PlanError, SchemaError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.class_moments import ClassMomentsQuery
from dpcore.queries.kind import QueryLimits
from dpcore.queries.moments import MomentsQuery
from dpcore.records.clipping import Clip
from dpcore.records.coding import class_codes
from dpcore.records.features import Classes, Label
from dpcore.records.records import BLOCK_ROWS, Records

BITS = 6
CLASSES = Classes(column="y", values=("a", "b", "c"))
MOMENTS = MomentsQuery(Clip(Fraction(7, 4), bias=True), 11, 40)
QUERY = ClassMomentsQuery.of(MOMENTS, CLASSES)
OF_EACH = ClassMomentsQuery.of(MOMENTS, CLASSES, products_of_each_class=True)


def party(rows: int, seed: int, d: int = 4) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, size=(rows, d), endpoint=True).astype(np.int32)
    features[:, -1] = ONE
    labels, usable = generator.integers(0, 3, rows).astype(np.int8), generator.random(rows) > 0.2
    features[~usable], labels[~usable] = 0, 1
    return Records(features, labels, usable, coding=class_codes(3))


def vector(
    multiplier: int, classes: int, code: int, x: tuple[int, ...], *, bias: bool, each: bool = False
) -> list[int]:
    """A record's contribution, by its definition. each: with products of each class."""
    d = len(x)
    sums = [multiplier * value if code == other else 0 for other in range(classes) for value in x]
    products = [(SQUARE_WEIGHT if j == k else PRODUCT_WEIGHT) * x[j] * x[k] for j in range(d) for k in range(j, d)]
    products = products[: len(products) - bias]
    if not each:
        return sums + products
    return sums + [value if code == other else 0 for other in range(classes) for value in products]


@pytest.mark.parametrize("query", [QUERY, OF_EACH], ids=["products of all", "products of each class"])
def test_a_contribution_is_the_sum_of_its_records(query):
    held = party(37, 3)
    total = [0] * query.length(held.d)
    for features, code, usable in zip(held.features.tolist(), held.labels.tolist(), held.usable.tolist(), strict=True):
        x = [(abs(value) >> (30 - BITS)) * (1 if value >= 0 else -1) for value in features]
        clipped = query.clip.apply(np.array([x], dtype=np.int64), BITS)[0].tolist()
        if usable:
            record = vector(11, 3, code, tuple(clipped), bias=True, each=query.products_of_each_class)
            total = [a + b for a, b in zip(total, record, strict=True)]
    assert query.sums(held, BITS).tolist() == total


def test_products_of_each_class_add_up_to_those_of_all_and_decode_to_each_classs():
    held = party(2 * BLOCK_ROWS + 3, 8)
    of_all = QUERY.moments(QUERY.sums(held, BITS), BITS, rows=held.rows, parties=4)
    of_each = OF_EACH.moments(OF_EACH.sums(held, BITS), BITS, rows=held.rows, parties=4)
    assert np.array_equal(of_each.class_sums, of_all.class_sums)
    assert np.array_equal(of_each.product_sum, of_all.product_sum)
    for code, products in enumerate(of_each.class_products):
        chosen = held.usable & (held.labels == code)
        alone = Records(held.features[chosen], held.labels[chosen], held.usable[chosen], coding=held.coding)
        expected = QUERY.moments(QUERY.sums(alone, BITS), BITS, rows=alone.rows, parties=4)
        assert np.array_equal(products, expected.product_sum)
    assert of_all.class_products is None
    assert of_each.class_noise[:-1] == pytest.approx(of_all.product_noise[:-1])
    assert of_each.product_noise[0, 1] == pytest.approx(3**0.5 * of_all.product_noise[0, 1])
    assert (of_each.product_noise[-1, -1], of_each.rows) == (0.0, held.rows)


def test_parties_sums_are_the_pooled_sum_and_decode_to_the_class_sums():
    parties = [party(rows, seed) for seed, rows in enumerate((17, BLOCK_ROWS + 5, 1))]
    pooled = Records(
        *(np.concatenate([getattr(each, name) for each in parties]) for name in ("features", "labels", "usable")),
        coding=class_codes(3),
    )
    total = sum(QUERY.sums(each, BITS) for each in parties)
    assert np.array_equal(total, QUERY.sums(pooled, BITS))
    moments = QUERY.moments(total, BITS, rows=pooled.rows, parties=4)
    sizes = np.bincount(pooled.labels[pooled.usable], minlength=3)
    assert moments.class_sums[:, -1].tolist() == sizes.tolist()
    assert moments.product_sum[-1, :-1] == pytest.approx(moments.class_sums.sum(axis=0)[:-1])
    assert moments.sum_noise == pytest.approx(2 * 40 * 2.0**-BITS / 11)
    assert moments.product_noise[0, 1] == pytest.approx(2 * 40 * 4.0**-BITS / PRODUCT_WEIGHT)


@pytest.mark.parametrize(
    ("bias", "multiplier"), [(False, 1), (False, 9), (False, 40), (True, 1), (True, 9), (True, 40)]
)
def test_no_two_records_of_any_classes_are_further_apart_than_proved(bias, multiplier):
    """Every pair of integer records with two fraction bits; the furthest pair is close to the bound."""
    bits, clip = 2, Clip(Fraction(5, 4), bias)
    most = clip.squared_units(bits)
    values = range(-4, 5)
    records = [
        x + (4,) * bias for x in itertools.product(values, repeat=2) if sum(v * v for v in x) + 16 * bias <= most
    ]
    for each in (False, True):
        vectors = np.array(
            [vector(multiplier, 2, code, x, bias=bias, each=each) for x in records for code in (0, 1)], dtype=np.int64
        )
        gram = vectors @ vectors.T
        squares = np.diag(gram)
        furthest = int((squares[:, None] + squares - 2 * gram).max())
        bound, alone = class_moments_squared(clip, bits, multiplier), class_moments_alone(clip, bits, multiplier)
        assert furthest <= bound
        assert int(squares.max()) <= alone
        if not bias:
            assert furthest > Fraction(17, 20) * bound
            assert int(squares.max()) > Fraction(17, 20) * alone


@pytest.mark.parametrize("multiplier", [1, 40, 400])
def test_no_two_longest_records_of_more_coordinates_are_further_apart_than_proved(multiplier):
    """Random pairs of the longest records of five coordinates, of one class and of two, at several angles."""
    bits, clip, generator = 8, Clip(Fraction(1), bias=False), np.random.default_rng(multiplier)
    bound, length = class_moments_squared(clip, bits, multiplier << bits), 256.0
    most = 0
    for _ in range(400):
        first, other = generator.normal(size=(2, 5))
        other = generator.choice([0, 0.3, 1]) * other - generator.choice([-1, 0, 1]) * first
        if not other.any():
            continue
        one, two = (tuple(np.trunc(length * x / np.linalg.norm(x)).astype(int).tolist()) for x in (first, other))
        for codes in ((0, 0), (0, 2)):
            pair = [
                np.array(vector(multiplier << bits, 3, code, x, bias=False, each=True))
                for code, x in zip(codes, (one, two), strict=True)
            ]
            most = max(most, int(np.square(pair[0] - pair[1]).sum()))
    assert most <= bound
    assert most > Fraction(4, 5) * bound


def test_products_of_each_class_cost_as_much_and_a_sum_over_disjoint_places_would_be_exceeded():
    """Two records of two classes differ in all values of both: one record's values alone are half of that."""
    clip, bits = Clip(Fraction(1), bias=False), 2
    first, second = (vector(3, 2, code, (4, 0), bias=False, each=True) for code in (0, 1))
    apart = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
    assert apart == 2 * class_moments_alone(clip, bits, 3) == 2 * (9 * 16 + 25 * 16**2)
    assert class_moments_squared(clip, bits, 3) >= apart
    setting = Setting(d=2, fraction_bits=bits, honest_parties=2)
    bare = ClassMomentsQuery(clip, 3, 1000, 2)
    both = (bare.protection(setting), replace(bare, products_of_each_class=True).protection(setting))
    assert both[0].squared == both[1].squared
    assert both[1].of_presence().squared == class_moments_alone(clip, bits, 3)
    assert both[1].values == both[0].values + 3 == 2 * 2 + 2 * 3


def test_a_bound_without_the_products_of_two_classes_would_be_exceeded():
    """At c = 0, where records of two classes are furthest apart, the sums add 2 S k^2: dropping either part fails."""
    clip, bits, multiplier = Clip(Fraction(1), bias=False), 2, 1
    first, second = vector(multiplier, 2, 0, (4, 0), bias=False), vector(multiplier, 2, 1, (0, 4), bias=False)
    found = sum((a - b) ** 2 for a, b in zip(first, second, strict=True))
    assert found == 2 * 16 + 25 * 2 * 16**2
    assert class_moments_squared(clip, bits, multiplier) >= found > 25 * 2 * 16**2


def test_no_sum_exceeds_the_bound_and_one_reaches_it_but_for_noise():
    rows = 50
    full = Records(
        np.full((rows, 1), ONE, np.int32), np.full(rows, 2, np.int8), np.ones(rows, bool), coding=class_codes(3)
    )
    query = ClassMomentsQuery(Clip(Fraction(2), bias=False), 1000, 3, 3)
    largest = query.largest_sum(QueryLimits(rows=rows, parties=2, d=1), BITS)
    assert int(query.sums(full, BITS).max()) <= largest
    assert int(query.sums(full, BITS).max()) == rows * 1000 << BITS


def test_the_label_decides_which_query_it_is():
    two = Label(column="y", positive=("a",))
    with pytest.raises(SchemaError, match="a query for moments needs a label of two classes"):
        MomentsQuery(Clip(Fraction(2), bias=True), 1, 3).check_target(CLASSES)
    with pytest.raises(SchemaError, match="needs a label of several classes"):
        QUERY.check_target(two)
    with pytest.raises(PlanError, match="3 classes and the schema 2"):
        QUERY.check_target(Classes(column="y", values=("a", "b")))
    signs = Records(np.ones((1, 4), np.int32), np.ones(1, np.int8), np.ones(1, bool))
    with pytest.raises(PlanError, match="3 classes and the records about two"):
        QUERY.sums(signs, BITS)
