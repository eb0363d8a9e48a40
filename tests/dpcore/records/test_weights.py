"""Weights of rows: how cells become units up to the bound, and sums that are exact in units of the weight."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpcore.errors import SchemaError, ShapeError
from dpcore.records.features.described import CellError, Numbers
from dpcore.records.records import Records
from dpcore.records.schema import Schema, SchemaFieldError, differences
from dpcore.records.shared_schema import SharedSchema
from dpcore.records.weight import FULL_WEIGHT, Weight, check_weights, weighted_squared, weighted_sum

LENIENT = {"missing": "no-weight", "unreadable": "no-weight", "out_of_bounds": "clip"}
TOML = """
schema_version = 5
name = "survey"
texts = []
[label]
column = "ill"
positive = ["yes"]
[weight]
column = "w"
upper = 5
missing = "no-weight"
unreadable = "no-weight"
out_of_bounds = "clip"
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
"""
CELLS = Numbers(np.array([0.0, 1.0, 5.0, 7.5, -1.0, np.nan, np.inf, 3.0]), np.array([False] * 7 + [True]))


def test_cells_become_units_and_what_is_unusual_is_counted():
    units, tally = Weight(column="w", upper=5.0, **LENIENT).encode(CELLS)
    assert units.tolist() == [0, 205, FULL_WEIGHT, FULL_WEIGHT, 0, 0, 0, 0]
    assert (tally.missing, tally.unreadable, tally.beyond) == (1, 3, 1)
    none, _ = Weight(column="w", upper=5.0, **LENIENT | {"out_of_bounds": "no-weight"}).encode(CELLS)
    assert none[3] == 0


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [("missing", 7, "there is no weight"), ("unreadable", 4, "from 0"), ("out_of_bounds", 3, 'no-weight" or "clip"')],
)
def test_a_weight_is_refused_at_its_row(name, row, says):
    with pytest.raises(CellError, match=says) as refused:
        Weight(column="w", upper=5.0, **LENIENT | {name: "refuse"}).encode(CELLS)
    assert refused.value.row == row


def test_a_schema_with_a_weight_reads_back_and_has_another_digest():
    schema = Schema.from_toml(TOML)
    assert schema.version == 5
    assert schema.weight == Weight(column="w", upper=5.0, **LENIENT)
    assert Schema.from_canonical(schema.canonical_bytes()) == Schema.from_toml(schema.to_toml()) == schema
    without = Schema.from_toml(TOML.replace(TOML[TOML.index("[weight]") : TOML.index("[[features]]")], ""))
    assert schema.unweighted == without
    assert without.digest != schema.digest
    assert {each.field for each in differences(schema, without)} == {
        f"weight.{name}" for name in ("column", "upper", "missing", "unreadable", "out_of_bounds")
    }
    assert SharedSchema.of(schema).nearest_to(without) == without


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("upper = 5\n", "upper = 0\n", "weight.upper: 0.0 is not positive"),
        ("upper = 5\n", 'upper = "5"\n', "weight.upper: '5' is not a number"),
        ('missing = "no-weight"', 'missing = "zero-vector"', "weight.missing"),
        ("upper = 5\n", "upper = 5\nlower = 1\n", "weight.lower: is not a key"),
        ('column = "w"', 'column = "ill"', "weight.column: 'ill' is the label's column"),
        ('column = "w"', 'column = "age"', "features.age.column: 'age' is the column of the weight"),
        ("schema_version = 5", "schema_version = 4", "weight: needs schema_version = 5"),
        ("[weight]", "[[weight]]", "weight: is not a table"),
    ],
)
def test_a_wrong_weight_is_refused_by_a_sentence(old, new, says):
    with pytest.raises(SchemaFieldError, match=says):
        Schema.from_toml(TOML.replace(old, new, 1))


@given(st.lists(st.integers(0, FULL_WEIGHT), min_size=1, max_size=200), st.integers(0, 2**32))
def test_a_weighted_sum_is_exact_before_it_is_rounded_down(weights, seed):
    """By weight if there are few, bit by bit if there are many: `more` has each weight once."""
    random = np.random.default_rng(seed)
    more = np.array([*weights, *random.permutation(FULL_WEIGHT + 1)[: seed % 100]], dtype=np.uint16)
    vectors = random.integers(-(1 << 40), 1 << 40, (len(more), 3))
    found = weighted_sum(more, lambda places: vectors[places].sum(axis=0), 3)
    exact = [sum(int(u) * int(v) for u, v in zip(more, column, strict=True)) >> 10 for column in vectors.T]
    assert found.tolist() == exact


@given(st.fractions(0, 10**12), st.integers(1, 10**6))
def test_the_bound_has_room_for_rounding_each_value(squared, values):
    """(D + sqrt N)^2 and little more: a bound without N would be too small, and one of 2 N too large."""
    found = weighted_squared(squared, values) - squared - values
    assert found**2 >= 4 * squared * values
    assert float(found) <= 2 * math.sqrt(float(squared * values)) + 6


def records(weights) -> Records:
    rows = len(weights)
    features = np.full((rows, 2), 1 << 30, dtype=np.int32)
    return Records(features, np.ones(rows, dtype=np.int8), np.ones(rows, dtype=np.bool_), weights=weights)


def test_weights_above_the_bound_are_no_records():
    """The sensitivity rests on this check alone."""
    check_weights(np.array([FULL_WEIGHT], dtype=np.uint16), 1)
    with pytest.raises(SchemaError, match="above the schema's bound"):
        records(np.array([1, FULL_WEIGHT + 1], dtype=np.uint16))
    with pytest.raises(ShapeError, match="give uint16"):
        records(np.array([1, 2], dtype=np.int32))
    with pytest.raises(ShapeError, match="give uint16"):
        check_weights(np.array([1, 2], dtype=np.uint16), 3)


def test_parts_of_records_keep_their_weights_and_the_digest_covers_them():
    held = records(np.array([1, 2, 3, 4], dtype=np.uint16))
    for part in (held.between(1, 3), held.at(np.array([1, 2])), held.only(np.array([True] * 4)).between(1, 3)):
        assert part.weights.tolist() == [2, 3]
    assert held.zeroed().weights is held.weights
    assert not held.weights.flags.writeable
    other = records(np.array([1, 2, 3, 5], dtype=np.uint16))
    assert len({held.digest, other.digest, held.unweighted.digest}) == 3
    assert held.unweighted.weights is None
    assert Fraction(int(held.weights.sum()), FULL_WEIGHT) == Fraction(10, 1024)
