"""Shapes and intercept add up to the score, whatever the model and the row; each is 0 on average."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.score_parts import intercept_of, parts_of
from tests.learner.shapes.mapped import MAP, SCHEMA, model, models, rows


@given(seed=st.integers(0, 2**32 - 1), mapped=st.booleans())
def test_shapes_and_intercept_add_up_to_the_score(seed, mapped):
    made, x = model(seed, mapped=mapped), rows(20, seed)
    parts = parts_of(made)
    total = sum(part.basis(x) @ made.theta[list(part.places)] for part in parts) + intercept_of(made, parts)[0]
    np.testing.assert_allclose(total, made.scores(x), atol=1e-9)


@given(made=models(), seed=st.integers(0, 2**32 - 1))
def test_so_it_is_for_any_map(made, seed):
    x = rows(20, seed)
    parts = parts_of(made)
    total = sum(part.basis(x) @ made.theta[list(part.places)] for part in parts) + intercept_of(made, parts)[0]
    np.testing.assert_allclose(total, made.scores(x), atol=1e-9)
    for part in parts:
        nodes, shares = part.nodes
        assert shares.min() >= 0
        np.testing.assert_allclose(shares @ part.basis(nodes), 0.0, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1))
def test_a_shape_is_what_its_columns_contribute_but_for_a_constant(seed):
    made, x = model(seed), rows(20, seed)
    contributed = made.contributions(x)
    for part in parts_of(made):
        # Products of either order of a pair are one part.
        found = sum(contributed.get(columns, 0.0) for columns in {part.columns, part.columns[::-1]})
        apart = found - part.basis(x) @ made.theta[list(part.places)]
        np.testing.assert_allclose(apart, apart[0], atol=1e-9)


def test_every_coordinate_but_the_bias_is_in_one_part():
    for mapped, d in ((True, MAP.d), (False, SCHEMA.d)):
        places = [place for part in parts_of(model(mapped=mapped)) for place in part.places]
        assert sorted(places) == list(range(d - 1))


def test_pairs_stand_in_the_schemas_order():
    # Terms 10 and 11 are of the fee and the age.
    found = [part.columns for part in parts_of(model())]
    assert found == [("age",), ("fee",), ("smoker",), ("ward",), ("height",), ("age", "fee"), ("age", "ward")]


def test_a_column_that_the_map_leaves_out_adds_nothing():
    made = model()
    short = type(MAP)(MAP.terms[:1], bias=True)
    only = type(made)(made.theta[:2], SCHEMA, "additive", bytes(32), made.statement, None, short)
    parts = parts_of(only)
    assert [len(part.places) for part in parts] == [1, 0, 0, 0, 0]
    assert parts[1].basis(rows(3, 1)).shape == (3, 0)


@pytest.mark.parametrize("mapped", [True, False])
def test_the_mean_under_the_spread_is_zero(mapped):
    for part in parts_of(model(mapped=mapped)):
        nodes, shares = part.nodes
        assert shares.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(shares @ part.basis(nodes), 0.0, atol=1e-12)


@pytest.mark.more
def test_averages_over_nodes_are_those_of_a_fine_grid():
    """A linear model spreads uniformly: the standard deviation of a slope of 1 over [-1, 1] is 1 / sqrt(3)."""
    parts = parts_of(model(mapped=False))
    nodes, shares = parts[0].nodes
    assert float(shares @ np.square(parts[0].basis(nodes)[:, 0])) == pytest.approx(1 / 3)
    # Of the mapped one: the hats' squares between the knots, drawn at random from the stated shares.
    part = parts_of(model())[0]
    nodes, shares = part.nodes
    spread = part.sources[0].spread
    random = np.random.default_rng(1)
    between = random.choice(len(spread.shares_between), 200_000, p=spread.shares_between)
    knots = np.array(spread.knots) / 2**30
    x = np.zeros((200_000, SCHEMA.d))
    x[:, 0] = random.uniform(knots[between], knots[between + 1])
    exact = shares @ np.square(part.basis(nodes))
    np.testing.assert_allclose(np.mean(np.square(part.basis(x)), axis=0), exact, rtol=0.03)
    np.testing.assert_allclose(np.mean(part.basis(x), axis=0), 0.0, atol=0.005)
