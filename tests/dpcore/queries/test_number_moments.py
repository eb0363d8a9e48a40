"""Moments of a label that is a number or a count: exact sums, their sensitivity, and what a total decodes to."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.noise_shares import (
    PRODUCT_WEIGHT,
    SQUARE_WEIGHT,
    moments_squared,
    number_moments_alone,
    number_moments_squared,
    square_weight,
)
from dpcore.errors import PlanError, SchemaError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.kind import QueryLimits
from dpcore.queries.label_moments import NumberMomentsQuery
from dpcore.queries.moments import MomentsQuery
from dpcore.records.clipping import Clip
from dpcore.records.coding import NUMBER, Coding
from dpcore.records.features import Classes, Count, Label, Number
from dpcore.records.records import BLOCK_ROWS, Records

BITS = 6
WAGE = Number(column="wage", lower=0.0, upper=1.0)
QUERY = NumberMomentsQuery.of(MomentsQuery(Clip(Fraction(7, 4), bias=True), 11, 40), WAGE)


def party(rows: int, seed: int, d: int = 4, coding: Coding = NUMBER) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, size=(rows, d), endpoint=True).astype(np.int32)
    features[:, -1] = ONE
    least, most = (-ONE, ONE) if coding.kind == "number" else (0, coding.size)
    labels = generator.integers(least, most, rows, endpoint=True).astype(np.int32)
    usable = generator.random(rows) > 0.2
    features[~usable], labels[~usable] = 0, 1
    return Records(features, labels, usable, coding=coding)


def vector(multiplier: int, t: int, x: tuple[int, ...], *, bias: bool) -> list[int]:
    """A record's contribution, by its definition."""
    d = len(x)
    products = [(SQUARE_WEIGHT if j == k else PRODUCT_WEIGHT) * x[j] * x[k] for j in range(d) for k in range(j, d)]
    return [*(multiplier * t * value for value in x), (multiplier**2 // 10) * t * t, *products[: len(products) - bias]]


@pytest.mark.parametrize("coding", [NUMBER, Coding("count", 9)], ids=["number", "count"])
def test_a_contribution_is_the_sum_of_its_records(coding):
    held = party(37, 3, coding=coding)
    query = NumberMomentsQuery(QUERY.clip, 11, 40, coding)
    total = [0] * query.length(held.d)
    for features, label, usable in zip(held.features.tolist(), held.labels.tolist(), held.usable.tolist(), strict=True):
        x = [(abs(value) >> (30 - BITS)) * (1 if value >= 0 else -1) for value in features]
        clipped = query.clip.apply(np.array([x], dtype=np.int64), BITS)[0].tolist()
        exact = Fraction(label, ONE) if coding.kind == "number" else Fraction(2 * label, 9) - 1
        t = int((exact * 2**BITS + Fraction(1, 2)).__floor__())
        if usable:
            total = [a + b for a, b in zip(total, vector(11, t, tuple(clipped), bias=True), strict=True)]
    assert query.sums(held, BITS).tolist() == total


def test_parties_sums_are_the_pooled_sum_and_decode_to_sums_of_the_label():
    parties = [party(rows, seed) for seed, rows in enumerate((17, BLOCK_ROWS + 5, 1))]
    pooled = Records(
        *(np.concatenate([getattr(each, name) for each in parties]) for name in ("features", "labels", "usable")),
        coding=NUMBER,
    )
    total = sum(QUERY.sums(each, BITS) for each in parties)
    assert np.array_equal(total, QUERY.sums(pooled, BITS))
    moments = QUERY.moments(total, BITS, rows=pooled.rows, parties=4)
    t = pooled.labels[pooled.usable] / ONE
    assert moments.label_sum[-1] == pytest.approx(t.sum(), abs=len(t) * 2.0**-BITS / 4)
    assert moments.square_sum == pytest.approx(np.square(t).sum(), rel=0.01)
    assert moments.product_sum[-1, -1] == pooled.rows
    assert moments.sum_noise == pytest.approx(2 * 40 * 4.0**-BITS / 11)
    assert moments.square_noise == pytest.approx(2 * 40 * 4.0**-BITS / square_weight(11))
    assert moments.product_noise[0, 1] == pytest.approx(2 * 40 * 4.0**-BITS / PRODUCT_WEIGHT)


@pytest.mark.parametrize(
    ("bias", "multiplier"), [(False, 4), (False, 9), (False, 40), (True, 5), (True, 11), (True, 30)]
)
def test_no_two_records_of_any_numbers_are_further_apart_than_proved(bias, multiplier):
    """Every pair of integer records with two fraction bits and of labels; the furthest pair is close to the bound."""
    bits, clip = 2, Clip(Fraction(5, 4), bias)
    most = clip.squared_units(bits)
    records = [
        x + (4,) * bias
        for x in itertools.product(range(-4, 5), repeat=2 - bias)
        if sum(v * v for v in x) + 16 * bias <= most
    ]
    vectors = np.array([vector(multiplier, t, x, bias=bias) for x in records for t in range(-4, 5)], dtype=np.int64)
    gram = vectors @ vectors.T
    squares = np.diag(gram)
    furthest = int((squares[:, None] + squares - 2 * gram).max())
    bound = number_moments_squared(clip, bits, multiplier)
    assert furthest <= bound
    assert int(squares.max()) <= number_moments_alone(clip, bits, multiplier)
    if not bias:
        assert furthest > Fraction(1, 2) * bound


def test_a_larger_weight_of_the_squares_would_exceed_the_bound():
    """The proof needs 10 w <= k^2: with three times that, two records of x = 0 and labels 0 and 1 are further apart."""
    clip, bits, multiplier = Clip(Fraction(1, 4), bias=False), 2, 40
    bound = number_moments_squared(clip, bits, multiplier)
    assert (square_weight(multiplier) * 16) ** 2 <= bound < (3 * square_weight(multiplier) * 16) ** 2


@pytest.mark.parametrize("multiplier", [4, 7, 11])
def test_the_squares_of_labels_cost_nothing(multiplier):
    """The bound is that of moments of edges of the same weight, and no larger for reals than by random search."""
    clip, bits = Clip(Fraction(7, 4), bias=True), 10
    assert number_moments_squared(clip, bits, multiplier) == moments_squared(clip, bits, multiplier << bits)
    generator = np.random.default_rng(multiplier)
    x = generator.normal(size=(2, 4000, 3))
    x *= 1.75 / np.linalg.norm(x, axis=2, keepdims=True) * generator.random((2, 4000, 1)) ** 0.1
    t = np.clip(generator.normal(0, 2, (2, 4000)), -1, 1)
    rows, columns = np.triu_indices(3)
    weights = np.where(rows == columns, SQUARE_WEIGHT, PRODUCT_WEIGHT)
    found = [
        np.column_stack([multiplier * s[:, None] * z, multiplier**2 / 10 * s**2, weights * z[:, rows] * z[:, columns]])
        for z, s in zip(x, t, strict=True)
    ]
    furthest = float(np.square(found[0] - found[1]).sum(axis=1).max()) * 16.0**bits
    assert 0.5 < furthest / float(number_moments_squared(clip, bits, multiplier)) <= 1.0


def test_no_sum_exceeds_the_bound_and_one_reaches_it_but_for_noise():
    rows = 50
    arrays = np.full((rows, 1), ONE, np.int32), np.full(rows, ONE, np.int32), np.ones(rows, bool)
    query = NumberMomentsQuery(Clip(Fraction(2), bias=False), 1000, 3)
    largest = query.largest_sum(QueryLimits(rows=rows, parties=2, d=1), BITS)
    found = int(query.sums(Records(*arrays, coding=NUMBER), BITS).max())
    assert found == rows * square_weight(1000) << 2 * BITS
    assert found <= largest < 2 * found


def test_the_label_decides_which_query_it_is():
    with pytest.raises(SchemaError, match="a query for moments needs a label of two classes"):
        MomentsQuery(Clip(Fraction(2), bias=True), 1, 3).check_target(WAGE)
    for other in (Label(column="y", positive=("a",)), Classes(column="y", values=("a", "b"))):
        with pytest.raises(SchemaError, match="needs a label that is a number or a count"):
            QUERY.check_target(other)
    with pytest.raises(PlanError, match="different labels"):
        QUERY.check_target(Count(column="y", upper=3))
    with pytest.raises(PlanError, match="about a number and the records about a count up to 9"):
        QUERY.sums(party(5, 1, coding=Coding("count", 9)), BITS)
    with pytest.raises(PlanError, match="have no number"):
        NumberMomentsQuery(QUERY.clip, 11, 40, Coding("signs"))
    with pytest.raises(PlanError, match="squares of labels need at least 4"):
        NumberMomentsQuery(QUERY.clip, 3, 40)
