"""Scores that rise or fall with a column: on every row, whatever the noise, and no further from a monotone truth."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpcore.errors import ConfigurationError
from dpcore.estimators.additive import PrivateAdditive
from dpcore.estimators.additive_terms import FALLING, RISING, conditions, directions_of, nearest
from dpcore.estimators.oracle import RowOracle
from dpcore.numbers.fixed_point import ONE
from dpcore.records.feature_map import Column, FeatureMap, Hat, PointMass, Product, Term
from tests.dpcore.estimators.test_additive import Little, Recorded, edges, error, uniform

GRID = np.linspace(-1.0, 1.0, 2001)
ROUNDING = 1e-8
"""Hats are floored to multiples of 2^-30, and weights are floating-point numbers."""


def noisy(labels_of, *, noise=0.05, columns=3, kind=Recorded):
    x = uniform(columns)
    return kind(RowOracle(edges(x, labels_of(x))), noise=noise)


def scores(fitted, coordinate, others=0.3):
    """The score where one column takes every value and the others stay."""
    rows = np.full((len(GRID), 4), others)
    rows[:, -1], rows[:, coordinate] = 1.0, GRID
    return fitted.decision_function(rows)


def waves(x):
    """A label whose chance rises and falls along both columns."""
    return np.sin(5 * x[:, 0]) - np.sin(5 * x[:, 1]) > 0


def rises(x):
    """A label whose chance rises with the first column and falls with the second."""
    return np.tanh(4 * x[:, 0]) - x[:, 1] ** 3 + 0.4 * np.random.default_rng(3).logistic(size=len(x)) > 0


@pytest.mark.more
@pytest.mark.parametrize("others", [-1.0, -0.2, 0.9])
def test_scores_rise_and_fall_as_told_with_noise_and_pairs(others):
    fitted = PrivateAdditive(increasing="x0", decreasing="x1").fit_queries(noisy(waves, noise=0.01))
    assert np.diff(scores(fitted, 0, others)).min() >= -ROUNDING
    assert np.diff(scores(fitted, 1, others)).max() <= ROUNDING
    free = PrivateAdditive().fit_queries(noisy(waves, noise=0.01))
    assert np.diff(scores(free, 0, others)).min() < -1e-4
    assert np.diff(scores(free, 1, others)).max() > 1e-4


@pytest.mark.more
def test_where_the_truth_rises_the_order_costs_nothing():
    loud = noisy(rises, noise=0.08)
    ordered = PrivateAdditive(increasing="x0", decreasing="x1", pairs=False).fit_queries(loud)
    loud = noisy(rises, noise=0.08)
    free = PrivateAdditive(pairs=False).fit_queries(loud)
    assert error(ordered, loud) <= error(free, loud) + 0.002


@pytest.mark.more
def test_a_column_that_falls_is_flat_where_it_is_told_to_rise():
    fitted = PrivateAdditive(increasing=" x0 ", pairs=False).fit_queries(noisy(lambda x: x[:, 0] < 0, noise=0.0))
    assert np.ptp(scores(fitted, 0)) < 1e-6
    free = PrivateAdditive(pairs=False).fit_queries(noisy(lambda x: x[:, 0] < 0, noise=0.0))
    assert np.ptp(scores(free, 0)) > 1


def test_a_straight_model_keeps_the_order_too():
    fitted = PrivateAdditive(increasing="x0", decreasing="x1").fit_queries(noisy(lambda x: x[:, 0] < 0, kind=Little))
    assert fitted.feature_map_ is None
    assert fitted.theta_[0] >= -1e-12
    assert fitted.theta_[1] <= 1e-12
    assert PrivateAdditive().fit_queries(noisy(lambda x: x[:, 0] < 0, kind=Little)).theta_[0] < 0
    # Also if only the moments are answered, which state no covariance.
    alone = noisy(lambda x: x[:, 0] < 0, kind=Little)
    alone.answers = 1
    fitted = PrivateAdditive(increasing="x0").fit_queries(alone)
    assert fitted.covariance_ is None
    assert fitted.theta_[0] == 0.0


def test_a_flag_has_a_direction():
    x = uniform(2)
    x[:, 1] = np.where(x[:, 1] > 0, 1.0, -1.0)
    oracle = RowOracle(edges(x, (x[:, 0] > 0) | (x[:, 1] < 0)))

    def weight(**options):
        fitted = PrivateAdditive(**options).fit_queries(oracle)
        return fitted.theta_[[term.function for term in fitted.feature_map_.terms].index(Column(1))]

    assert weight() < -0.1
    assert abs(weight(increasing="x1")) < ROUNDING


def test_an_ordered_column_is_in_no_product_and_has_no_jump_inside_its_range():
    x = uniform(3)
    random = np.random.default_rng(4)
    x[:, 0] = np.where(random.random(len(x)) < 0.5, 0.0, x[:, 0])
    x[:2, 0] = -1.0, 1.0
    x[:, 1] = np.where(random.random(len(x)) < 0.5, x[:, 1].min(), x[:, 1])
    oracle = RowOracle(edges(x, x[:, 0] + x[:, 1] > 0))
    points = {
        (term.function.coordinate, term.function.at)
        for term in PrivateAdditive().fit_queries(oracle).feature_map_.terms
        if isinstance(term.function, PointMass)
    }
    assert {coordinate for coordinate, _ in points} == {0, 1}
    fitted = PrivateAdditive(increasing="x0,x1").fit_queries(oracle)
    functions = [term.function for term in fitted.feature_map_.terms]
    assert [(each.coordinate, each.at) for each in functions if isinstance(each, PointMass)] == [(1, -ONE)]
    assert not [each for each in functions if isinstance(each, Product)]
    rows = np.column_stack([np.full(len(GRID), 0.1), GRID, np.zeros(len(GRID)), np.ones(len(GRID))])
    assert np.diff(fitted.decision_function(rows)).min() >= -ROUNDING


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"increasing": "age"}, "increasing names 'age': give real or boolean features; known: 'x0', 'x1'"),
        ({"increasing": "X1"}, "increasing names 'X1': give real or boolean features; did you mean 'x1'"),
        ({"decreasing": ["x0", "x0, x1"]}, "decreasing names 'x0, x1'"),
        ({"increasing": ["x0"], "decreasing": ("x0",)}, "a direction of 'x0' is given twice"),
        ({"decreasing": "x0,bias"}, "decreasing names 'bias'"),
        ({"increasing": "x0", "decreasing": "x1, x0"}, "a direction of 'x0' is given twice"),
        ({"increasing": "x0,x0"}, "a direction of 'x0' is given twice"),
    ],
)
def test_names_are_checked_before_anything_is_asked(options, sentence):
    oracle = noisy(lambda x: x[:, 0] > 0, columns=2)
    with pytest.raises(ConfigurationError, match=sentence):
        PrivateAdditive(**options).fit_queries(oracle)
    assert oracle.asked == []


def test_directions_are_by_coordinate():
    schema = RowOracle(edges(uniform(3), uniform(3)[:, 0] > 0)).schema
    assert directions_of(schema, "x2, x0,", " x1") == {2: RISING, 0: RISING, 1: FALLING}
    assert directions_of(schema, "", "") == {}


weights = st.lists(st.floats(-5, 5), min_size=8, max_size=8).map(np.array)
knots = st.lists(st.integers(-ONE + 1, ONE - 1), min_size=3, max_size=3, unique=True).map(sorted)


def curve(inner) -> FeatureMap:
    row = [-ONE, *inner, ONE]
    hats = tuple(Term(Hat(0, *row[at - 1 : at + 2]), ONE // 3) for at in range(1, len(row) - 1))
    ends = (Term(PointMass(0, -ONE), ONE // 5), Term(PointMass(0, ONE)))
    return FeatureMap((Term(Column(0)), *hats, *ends, Term(Column(1))), bias=True)


@given(knots, weights, st.sampled_from([RISING, FALLING]))
def test_conditions_are_those_of_the_function(inner, theta, direction):
    """They hold exactly where the score has the direction from each knot to the next, and at both jumps."""
    feature_map = curve(inner)
    rows = conditions({0: direction}, feature_map, len(theta))
    assert len(rows) == len(inner) + 1 + 2
    values = [(low, high) for low, high in pairwise([-ONE, *inner, ONE])]
    at = np.array([[value / ONE, 0.0, 1.0] for pair in values for value in pair])
    found = (feature_map.of(at) * [1, 1, 1, 1, 0, 0, 0, 0]) @ theta
    slopes = np.diff(found.reshape(-1, 2)).ravel() / [(high - low) / ONE for low, high in values]
    assert rows[:-2] @ theta == pytest.approx(direction * slopes, rel=1e-5, abs=1e-5)
    assert (rows[-2:] @ theta).tolist() == [-direction * theta[4], direction * theta[5]]


@given(weights, st.lists(weights, min_size=1, max_size=6), st.lists(weights, min_size=1, max_size=5))
@example(
    point=np.array([1.5, 4.0, -3.0, 0.0, 1.2734375, 2.0, 0.0, 3.510072016828529]),
    rows=[
        np.zeros(8),
        np.zeros(8),
        np.array([0.0, -2.3125, -1.0, 0.0, 0.0, 3.25, 0.0, -0.46484375]),
        np.array([-1.12157557, -3.62242044, -4.83230816, 0.0, -5.0, 2.53125, 0.40625, 0.0]),
    ],
    candidates=[np.zeros(8)],
)
def test_the_nearest_point_meets_the_conditions_and_no_other_such_point_is_nearer(point, rows, candidates):
    rows = np.array(rows)
    found = nearest(point, rows)
    size = np.linalg.norm(rows, axis=1)
    assert (rows @ found >= -1e-7 * np.maximum(size, 1e-9) * (1 + np.linalg.norm(point))).all()
    assert nearest(found, rows) == pytest.approx(found, abs=1e-6)
    for candidate in candidates:
        met = nearest(candidate, rows)
        # Towards no point of the cone is there a way that gets nearer to the given one.
        assert (point - found) @ (met - found) <= 1e-6
        assert np.linalg.norm(found - met) <= np.linalg.norm(point - met) + 1e-6


@pytest.mark.parametrize("seed", [3, 10])
def test_the_nearest_point_to_many_conditions_that_depend_on_each_other(seed):
    """scipy.optimize.nnls 1.15 to 1.17 returns a wrong point for these."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((60, 80)) * (random.random((60, 80)) < 0.05)
    rows[::7] = rows[0]
    point = random.standard_normal(80)
    found = nearest(point, rows)
    assert (rows @ found).min() > -1e-9
    assert found @ (point - found) == pytest.approx(0.0, abs=1e-9)
    assert nearest(found, rows) == pytest.approx(found, abs=1e-9)


def test_a_point_that_meets_the_conditions_stays():
    point = np.array([1.0, 2.0])
    assert nearest(point, np.eye(2)) is point
    assert nearest(point, np.zeros((0, 2))) is point


def test_no_part_of_the_budget_is_for_the_order():
    plain, ordered = noisy(rises), noisy(rises)
    PrivateAdditive(pairs=False).fit_queries(plain)
    PrivateAdditive(pairs=False, increasing="x0").fit_queries(ordered)
    assert ordered.asked == plain.asked
    assert sum(part for _, part in ordered.asked) == Fraction(1)
