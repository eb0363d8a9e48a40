"""Clipping norms from a schema, compared with the norms of encoded records."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.accounting.noise_shares import SQUARE_WEIGHT, moments_squared
from dpcore.errors import PlanError
from dpcore.queries.moments import edge_multiplier, norm_bound_of, usual_norm
from dpcore.records.clipping import Clip
from dpcore.records.schema import BooleanFeature, CategoryFeature, Label, RealFeature, Schema


def schema(reals: int, booleans: int = 0, categories: int = 0, *, bias: bool = True) -> Schema:
    features = [RealFeature(name=f"r{i}", lower=0, upper=1) for i in range(reals)]
    features += [BooleanFeature(name=f"b{i}", true=("y",), false=("n",)) for i in range(booleans)]
    features += [CategoryFeature(name=f"c{i}", values=("a", "b", "c")) for i in range(categories)]
    return Schema(name="s", label=Label(column="label", positive=("1",)), features=tuple(features), bias=bias)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_the_usual_norm_is_that_of_a_uniform_row(reals, booleans, categories, bias):
    if reals + booleans + categories == 0:
        return
    usual = usual_norm(schema(reals, booleans, categories, bias=bias))
    square = reals / 3 + booleans + categories + bias
    assert math.sqrt(square) <= usual + 1e-12
    assert usual <= math.sqrt(square) + 0.01


def test_it_always_leaves_room_for_more_than_the_bias():
    for held in (schema(1), schema(0, 1), schema(1, bias=False)):
        Clip(usual_norm(held), held.bias)


@pytest.mark.parametrize("reals", [4, 16, 64])
def test_about_half_of_uniform_records_are_within_the_usual_norm(reals):
    x = np.random.default_rng(3).uniform(-1, 1, (20_000, reals))
    within = float(((x**2).sum(axis=1) + 1 <= float(usual_norm(schema(reals))) ** 2).mean())
    assert 0.4 < within < 0.6


def test_the_norm_bound_is_the_root_mean_square_of_a_uniform_row():
    assert norm_bound_of(real_features=9, unit_features=0, bias=True) == 2
    assert norm_bound_of(real_features=0, unit_features=8, bias=True) == 3
    # sqrt(6 / 3 + 8 + 1) = 3.3166, up to the next hundredth.
    assert norm_bound_of(real_features=6, unit_features=8, bias=True) == Fraction(332, 100)
    assert norm_bound_of(real_features=3, unit_features=0, bias=False) == 1


@pytest.mark.parametrize(("real", "unit"), [(0, 0), (-1, 2), (2, -1)])
def test_a_schema_without_features_is_refused(real, unit):
    with pytest.raises(PlanError, match="feature"):
        norm_bound_of(real_features=real, unit_features=unit, bias=True)


@pytest.mark.parametrize("fraction_bits", [8, 10, 16])
def test_edges_take_a_quarter_more_noise_than_products_alone(fraction_bits):
    clip = Clip(Fraction(332, 100), bias=True)
    multiplier = edge_multiplier(clip.norm_bound, fraction_bits)
    unit = SQUARE_WEIGHT * 4**fraction_bits
    sensitivity = float(moments_squared(clip, fraction_bits, multiplier)) ** 0.5 / unit
    assert sensitivity == pytest.approx(1.25 * 2**0.5 * 3.32**2, rel=1e-3)
