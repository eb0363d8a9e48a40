"""Predicates about a label that is a number or a count: what they mean, how they are written, which exclude."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import check, values
from dpcore.predicates.expressions import LabelAbove, LabelAtLeast, LabelShare, LabelSquare, PredicateError, swap_label
from dpcore.predicates.frontend import true, x, y
from dpcore.predicates.notation import parse, to_text
from dpcore.records.features import Classes, Count, Label, Number, RealFeature
from dpcore.records.records import Records
from dpcore.records.schema import Schema

DOSE = Number(column="dose", lower=-2.0, upper=6.0)
SCHEMA = Schema(name="s", label=DOSE, features=(RealFeature(name="age", lower=0.0, upper=100.0),), bias=False)
COUNTS = replace(SCHEMA, label=Count(column="n", upper=8, exposure="t", exposure_lower=0.5, exposure_upper=2.0))
TEXTS = [
    "y >= 2",
    "y > 2.5",
    "y < 1/3",
    "y <= -2",
    "(y >= 0) & (y < 4)",
    "y",
    "y.square",
    "~y.square & y",
    '~y | (x["age"] >= 50)',
]


def held(cells: list[float]) -> Records:
    stored = np.trunc(DOSE.scaled(np.array(cells)) * ONE).astype(np.int32)
    usable = np.ones(len(cells), bool)
    return Records(np.zeros((len(cells), 1), np.int32), stored, usable, coding=DOSE.coding)


def counted(counts: list[int]) -> Records:
    labels = np.column_stack([counts, np.zeros(len(counts))]).astype(np.int32)
    usable = np.ones(len(counts), bool)
    return Records(np.zeros((len(counts), 1), np.int32), labels, usable, coding=COUNTS.label.coding)


@pytest.mark.parametrize("text", TEXTS)
def test_the_notation_is_read_back(text):
    found = parse(text)
    assert parse(to_text(found)) == found
    check([found], SCHEMA)


def test_python_and_the_notation_mean_the_same():
    assert parse("y >= 30") == (y >= 30) == LabelAtLeast(Fraction(30))
    assert parse("y > 0.5") == (y > 0.5) == LabelAbove(Fraction(1, 2))
    assert parse("y < 30") == (y < 30) == ~(y >= 30)
    assert parse("y <= 30") == (y <= 30)
    assert parse("y.square") == y.square == LabelSquare()
    assert y.square != LabelShare()
    assert parse("y & true") == (LabelShare() & true)


def test_comparisons_are_in_the_label_s_units():
    cells = [-2.0, 0.0, 2.0, 6.0]
    found = values([y >= 2, y > 2, y < 0, y >= -3, y > 7, LabelShare()], SCHEMA, held(cells), 10)
    expected = [[c >= 2, c > 2, c < 0, True, False, (c + 2) / 8] for c in cells]
    assert found.tolist() == (np.array(expected, dtype=float) * 1024).astype(int).tolist()
    of_counts = values([y >= 3, y > 3, y < 1, LabelShare(), ~LabelShare()], COUNTS, counted([0, 3, 4, 8]), 3)
    expected = [[c >= 3, c > 3, c < 1, c / 8, 1 - c / 8] for c in (0, 3, 4, 8)]
    assert of_counts.tolist() == (np.array(expected, dtype=float) * 8).astype(int).tolist()


def test_a_complement_of_the_place_is_one_minus_it_rounded_down():
    records = held(np.linspace(-2, 6, 41).tolist())
    share, rest = values([LabelShare(), ~LabelShare()], SCHEMA, records, 7).T
    assert ((share + rest == 128) | (share + rest == 127)).all()
    at_full = values([LabelShare(), ~LabelShare()], SCHEMA, records, 30)
    assert abs(at_full.sum(axis=1) - (1 << 30)).max() <= 1


def test_the_square_is_that_of_the_coordinate_rounded_down_exactly():
    """Against rational numbers, with the most fraction bits, up to the largest count."""
    cells = [-2.0, -1.3, 0.0, 2.0, 3.7, 6.0]
    stored = [Fraction(int(each), ONE) for each in held(cells).labels]
    counts = [0, 1, 333_333, 500_000, 999_999, 1_000_000]
    large = replace(SCHEMA, label=Count(column="n", upper=1_000_000))
    records = Records(
        np.zeros((6, 1), np.int32), np.array(counts, np.int32), np.ones(6, bool), coding=large.label.coding
    )
    of_counts = [Fraction(2 * each - 1_000_000, 1_000_000) for each in counts]
    for bits in (0, 11, 30):
        one = 1 << bits
        for schema, rows, places in ((SCHEMA, held(cells), stored), (large, records, of_counts)):
            found = values([y.square, ~y.square], schema, rows, bits)
            expected = [[math.floor(one * t * t), math.floor(one * (1 - t * t))] for t in places]
            assert found.tolist() == expected


def test_ranges_of_labels_exclude_one_another():
    """A histogram of a label costs what one of a feature does, on any label and fraction bits."""
    edges = [-2, 0, 1, 3, 7]
    cells = [(y >= low) & (y < high) for low, high in itertools.pairwise(edges)]
    assert batch_sensitivity(cells).l1 == 2
    assert batch_sensitivity([y >= 1, y >= 3]).l1 == 2
    assert batch_sensitivity([y >= 1, y >= 2, y >= 3]).l1 == 3
    records = held(np.linspace(-2, 6, 81).tolist())
    assert (values(cells, SCHEMA, records, 0).sum(axis=1) == 1).all()
    feature = [(x["age"] >= 1) & (y < 0), (x["age"] < 1) & (y >= 0)]
    assert batch_sensitivity(feature).l1 == 2


@pytest.mark.parametrize(
    ("predicate", "schema", "says"),
    [
        (y == 1, SCHEMA, "is a number from -2 to 6: compare y with a number using >="),
        (y == "a", COUNTS, "is a count up to 8 over an exposure, 't': compare y with a number"),
        (y >= 1, replace(SCHEMA, label=Label(column="y", positive=("a",))), "has two classes: compare y with 1 or -1"),
        (
            y.square,
            replace(SCHEMA, label=Label(column="y", positive=("a",))),
            "has two classes: compare y with 1 or -1",
        ),
        (LabelShare(), replace(SCHEMA, label=Classes(column="y", values=("a", "b"))), "and no sign or number"),
    ],
)
def test_a_predicate_about_another_label_is_refused(predicate, schema, says):
    with pytest.raises(PredicateError, match=says):
        check([predicate], schema)


@pytest.mark.parametrize("bound", ["2024-12-31", "a", True, float("inf")])
def test_a_bound_that_is_no_number_is_refused(bound):
    with pytest.raises(PredicateError, match="finite number"):
        y >= bound  # noqa: B015  (a comparison raises)


def test_numbers_do_not_flip():
    with pytest.raises(PredicateError, match="has no classes, which flip"):
        swap_label(y >= 3)
