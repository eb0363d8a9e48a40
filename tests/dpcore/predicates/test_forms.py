"""Predicates over mapped records: exact values, names, bounds of memory, and that no map changes a sensitivity."""

import itertools
import tracemalloc
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore.accounting.noise_shares import GaussianShares
from dpcore.errors import ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums, values
from dpcore.predicates.expressions import (
    Affine,
    And,
    AtLeast,
    Clipped,
    Equals,
    Flag,
    FormCoordinates,
    LabelIs,
    NonNegative,
    Not,
    PredicateError,
)
from dpcore.queries.statistic import StatisticQuery
from dpcore.randomness.sources import SeededRandom
from dpcore.records.computation import Computation
from dpcore.records.feature_map import Column, FeatureMap, Hat, Term
from dpcore.records.records import BLOCK_ROWS, Records
from tests.dpcore.records.test_feature_map import MAP, SCHEMA, by_definition, records, row_of_hats

RECORDS = records(300).mapped(MAP)
FORMS = FormCoordinates(SCHEMA, MAP)
NAMES = FORMS.names
MAPPED = [by_definition(MAP, row) for row in RECORDS.features.tolist()]
BITS = 8


def form_at(form: Affine, row: int) -> int:
    """In units of 2^-30, by the definition in Python integers."""
    return sum(weight * MAPPED[row][NAMES.index(name)] for name, weight in form.weights) + form.constant * ONE


weights = st.lists(st.integers(-(1 << 28), 1 << 28), min_size=len(NAMES), max_size=len(NAMES))


@settings(max_examples=20)
@given(weights=weights, constant=st.integers(-(1 << 20), 1 << 20), scale=st.integers(1, 1 << 30))
def test_forms_are_over_the_maps_integers(weights, constant, scale):
    form = Affine(tuple(zip(NAMES, weights, strict=True)), constant)
    batch = (NonNegative(form), And((NonNegative(form), AtLeast("age", Fraction(40)))), Clipped(form, scale))
    found = values(batch, SCHEMA, RECORDS, BITS)
    for row in range(RECORDS.rows):
        at, older = form_at(form, row), RECORDS.features[row, 0] >= 0
        clipped = min(max(at, 0), scale * ONE) * (1 << BITS) // (scale * ONE)
        expected = [int(at >= 0) << BITS, int(at >= 0 and older) << BITS, clipped]
        assert found[row].tolist() == (expected if RECORDS.usable[row] else [0, 0, 0])
    assert sums(batch, SCHEMA, RECORDS, BITS).tolist() == found.sum(axis=0).tolist()


def test_atoms_of_features_are_about_the_columns():
    batch = (Flag("smokes"), Equals("city", "a"), AtLeast("dose", Fraction(1, 2)), LabelIs(positive=True))
    assert values(batch, SCHEMA, RECORDS, 0).tolist() == values(batch, SCHEMA, records(300), 0).tolist()


def test_the_largest_forms_are_exact():
    """Weights that add up to 2^32 - 1, on terms that are all 1 or all -1."""
    ends = FeatureMap((Term(Column(0)), Term(Column(1)), Term(Hat(0, -ONE, ONE, None))), bias=True)
    rows = Records(
        np.array([[ONE, ONE, ONE, 0, 0, ONE], [-ONE, -ONE, ONE, 0, 0, ONE]], dtype=np.int32),
        np.ones(2, np.int8),
        np.ones(2, np.bool_),
    ).mapped(ends)
    names, most = FormCoordinates(SCHEMA, ends).names, (1 << 32) - 1
    whole = Affine(((names[0], most - (1 << 31)), (names[1], 1 << 31)))
    short = Affine(((names[0], most - (1 << 31)), (names[1], (1 << 31) - 1)), -1)
    found = values((NonNegative(whole), Clipped(whole, most), Clipped(short, most)), SCHEMA, rows, 30)
    assert found[0].tolist() == [ONE, ONE, (most - 2) * ONE // most]
    assert found[1].tolist() == [0, 0, 0]


def test_names_are_distinct_and_say_what_a_coordinate_is():
    close = FeatureMap(tuple(Term(hat) for hat in row_of_hats(0, (-ONE, 0, 1, ONE))), bias=True)
    names = FormCoordinates(SCHEMA, close).names
    assert names == ("0: age~20", "1: age~40", "2: age~40", "3: age~60", "bias")
    assert FORMS.columns(NAMES[0]) == ("age",)
    assert FORMS.columns(NAMES[9]) == ("age", "dose")
    assert FORMS.columns("bias") == ()
    assert FormCoordinates(SCHEMA).names == SCHEMA.coordinates
    assert FormCoordinates(SCHEMA).columns("city=a") == ("city",)


def test_names_of_columns_are_cut_so_that_a_short_query_makes_no_large_names():
    long = replace(SCHEMA, features=tuple(replace(f, name=f.name * 30_000, column=f.name) for f in SCHEMA.features))
    names = FormCoordinates(long, MAP).names
    assert max(map(len, names)) < 200
    assert len(set(names)) == MAP.d
    assert names[0] == f"0: {'age' * 20}..."
    assert FormCoordinates(long, MAP).columns(names[9]) == ("age", "dose")


def test_what_a_map_lacks_is_refused():
    for name, feature_map in (("age", MAP), (NAMES[1], None), ("99: age", MAP)):
        with pytest.raises(PredicateError, match="has no coordinate"):
            StatisticQuery((NonNegative(Affine(((name, 1),))),), SCHEMA, GaussianShares(3), feature_map)
    query = StatisticQuery((NonNegative(Affine(((NAMES[1], 1),))),), SCHEMA, GaussianShares(3), MAP)
    for other in (records(5), records(5).mapped(FeatureMap(MAP.terms[:3], bias=True))):
        with pytest.raises(ShapeError, match="another feature map"):
            query.contribution(other, 0, Computation(SeededRandom(1)))


def bins(theta, edges):
    """Rows by label and margin, with edges in units of 2^-30."""
    form = Affine(tuple(zip(NAMES, theta, strict=True)))
    below = [NonNegative(Affine(tuple((n, -w) for n, w in form.weights), edge)) for edge in edges]
    cells = [
        (below[0],),
        *((Not(low), high) for low, high in itertools.pairwise(below)),
        (Not(below[-1]),),
    ]
    return [And((LabelIs(positive=label), *cell)) for label in (True, False) for cell in cells]


def test_bins_of_a_mapped_margin_exclude_one_another():
    """One row moves two cells at most, as in any histogram: whatever the map, which no proof looks into."""
    batch = bins([3, -5, 2, 7, 1, 4, 9, -8, 6, 5, 2, 1], (-4, -1, 0, 2, 5))
    assert batch_sensitivity(batch).l1 == batch_sensitivity(batch).l2_squared == 2
    each = values(batch, SCHEMA, RECORDS, 0)
    assert each[RECORDS.usable].sum(axis=1).tolist() == [1] * int(RECORDS.usable.sum())
    assert (each.sum(axis=0) > 0).sum() >= 6
    assert int(np.abs(each[:, np.newaxis] - each[np.newaxis]).sum(axis=2).max()) == 2
    # A bin of another margin has no such proof.
    assert batch_sensitivity([*batch, NonNegative(Affine(((NAMES[1], 1),)))]).l1 == 3


def test_memory_does_not_grow_by_the_length_of_a_map():
    """A mapped block is never whole: rows are mapped in runs, and only the coordinates that are read are kept."""
    knots = np.linspace(-ONE, ONE, 500).astype(int).tolist()
    long = FeatureMap(tuple(map(Term, row_of_hats(0, knots))), bias=True)
    held = records(40_000).mapped(long)
    form = NonNegative(Affine(((FormCoordinates(SCHEMA, long).names[0], 1),)))
    sums((form,), SCHEMA, held, 8)  # compiles
    tracemalloc.start()
    sums((form,), SCHEMA, held, 8)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert BLOCK_ROWS * long.d * 4 < peak < held.rows * long.d * 4 / 4
