"""The gradient query of several classes: exact sums of clipped softmax gradients, and their sensitivity."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpcore.accounting.noise_shares import gradient_squared
from dpcore.errors import PlanError, SchemaError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.queries.class_gradient import ClassGradientQuery
from dpcore.queries.gradient import THETA_BITS, GradientQuery
from dpcore.queries.kind import QueryLimits
from dpcore.records.clipping import Basis
from dpcore.records.coding import class_codes
from dpcore.records.features import Classes, Label
from dpcore.records.losses import WEIGHT_BITS
from dpcore.records.records import BLOCK_ROWS, Records

BITS, K = 12, 3
LABEL = Classes(column="y", values=("a", "b", "c"))
THETA = np.array([[1.5, -2.0, 0.25], [0.0, 1.0, -0.5], [-3.0, 0.5, 1.0]])


def party(rows: int, seed: int, d: int = 3) -> Records:
    generator = np.random.default_rng(seed)
    features = generator.integers(-ONE, ONE, size=(rows, d), endpoint=True).astype(np.int32)
    features[:, -1] = ONE
    labels, usable = generator.integers(0, K, rows).astype(np.int8), generator.random(rows) > 0.2
    features[~usable], labels[~usable] = 0, 1
    return Records(features, labels, usable, coding=class_codes(K))


def query(clip: Fraction, theta: np.ndarray = THETA, basis: Basis | None = None) -> ClassGradientQuery:
    units = tuple(np.rint(theta * 2**THETA_BITS).astype(int).ravel().tolist())
    return ClassGradientQuery("logistic", units, clip, 40, basis, K)


def by_definition(held: Records, theta: np.ndarray, clip: float) -> np.ndarray:
    """In floating point: sums of (p - onehot(y)) x^T, each no longer than the clip."""
    x = held.features / ONE
    scores = x @ theta.T
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(held.rows), held.labels] -= 1.0
    lengths = np.linalg.norm(p, axis=1) * np.linalg.norm(x, axis=1)
    p *= np.minimum(1.0, clip / np.maximum(lengths, 1e-12))[:, np.newaxis]
    return p.T @ x


@pytest.mark.parametrize("clip", [Fraction(10), Fraction(1, 2)])
def test_a_contribution_is_the_sum_of_softmax_gradients(clip):
    held = party(400, 3)
    asked = query(clip)
    found = asked.decode(asked.sums(held, BITS), BITS)
    assert found == pytest.approx(by_definition(held, THETA, float(clip)), abs=400 * 2**-10)
    assert not asked.sums(held, BITS).reshape(K, -1).sum(axis=0).any()


def test_a_basis_gives_the_gradient_in_its_coordinates():
    held = party(200, 5)
    matrix = np.array([[2.0, 0.0, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    asked = query(Fraction(10), THETA @ np.linalg.inv(matrix), Basis.of(matrix))
    expected = by_definition(held, THETA, 10.0) @ matrix.T
    assert asked.decode(asked.sums(held, BITS), BITS) == pytest.approx(expected, abs=0.5)


def test_parties_sums_are_the_pooled_sum_bit_for_bit():
    parties, asked = [party(rows, seed) for seed, rows in enumerate((17, BLOCK_ROWS + 5, 1))], query(Fraction(1))
    pooled = Records(
        *(np.concatenate([getattr(each, name) for each in parties]) for name in ("features", "labels", "usable")),
        coding=class_codes(K),
    )
    assert np.array_equal(sum(asked.sums(each, BITS) for each in parties), asked.sums(pooled, BITS))


def one_record(x: list[int], code: int) -> Records:
    return Records(np.array([x], np.int32), np.array([code], np.int8), np.array([True]), coding=class_codes(K))


@pytest.mark.parametrize("clip", [Fraction(1, 3), Fraction(1), Fraction(7, 5)])
def test_no_two_records_are_further_apart_than_twice_the_clip(clip):
    """Every class and every corner, at several theta; some pair comes close, so a smaller bound would fail."""
    bound, furthest, bits = gradient_squared(clip, 6), 0, 6
    for scale in (0.0, 1.0, 40.0):
        asked = query(clip, THETA * scale)
        corners = itertools.product((-ONE, 0, ONE // 3, ONE), repeat=2)
        vectors = [asked.sums(one_record([*x, 0], code), bits) for x in corners for code in range(K)]
        gram = np.array(vectors, dtype=object) @ np.array(vectors, dtype=object).T
        squares = np.diag(gram)
        furthest = max(furthest, int((squares[:, None] + squares - 2 * gram).max()))
        assert int(squares.max()) * 4 <= bound
    assert 0.9 * bound < furthest <= bound


def test_no_sum_exceeds_the_bound():
    held, asked = party(100, 7), query(Fraction(1, 2), THETA * 100)
    largest = asked.largest_sum(QueryLimits(rows=100, parties=2, d=3), BITS)
    assert int(np.abs(asked.sums(held, BITS)).max()) <= largest
    assert largest < 100 * math.ceil(0.5 * 2 ** (BITS + WEIGHT_BITS)) + 10_000


def test_what_does_not_fit_is_refused():
    with pytest.raises(PlanError, match="hinge loss is of two classes"):
        ClassGradientQuery("hinge", (0,) * 9, Fraction(1), 40, None, 3)
    with pytest.raises(SchemaError, match="needs a label of several classes"):
        query(Fraction(1)).check_target(Label(column="y", positive=("a",)))
    with pytest.raises(SchemaError, match="a query for a gradient needs a label of two classes"):
        GradientQuery("logistic", (0,) * 3, Fraction(1), 40).check_target(LABEL)
    with pytest.raises(PlanError, match="3 times 4"):
        query(Fraction(1)).length(4)
    signs = Records(np.ones((1, 3), np.int32), np.ones(1, np.int8), np.ones(1, bool))
    with pytest.raises(ShapeError, match="0 classes"):
        query(Fraction(1)).sums(signs, BITS)
