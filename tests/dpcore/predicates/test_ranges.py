"""Ranges of numbers in words: exactly the stored values that the predicate holds for, and nothing narrow is hidden."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpcore.estimators.private_histograms import Cells
from dpcore.numbers.fixed_point import ONE
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Affine, NonNegative
from dpcore.predicates.notation import described, parse
from dpcore.predicates.ranges import Range, in_words, range_of, readable
from dpcore.records.records import Records
from dpcore.records.schema import BooleanFeature, Label, RealFeature, Schema

AGE = RealFeature(name="age", column="age", lower=18.0, upper=90.0)
SCHEMA = Schema(
    name="stays",
    label=Label(column="ill", positive=("yes",)),
    features=(
        AGE,
        RealFeature(name="hb", column="hb", lower=-0.25, upper=0.75),
        BooleanFeature(name="smoker", column="s", true=("1",), false=("0",)),
    ),
)  # fmt: skip


def at_least(value, name="age", weight=ONE):
    return NonNegative(Affine(((name, weight),), -value))


def test_cells_of_a_histogram_are_read_as_they_are_drawn():
    said = [readable(predicate, SCHEMA) for predicate in Cells.equal(AGE, 4).predicates()]
    assert said == ["age = 18", "age = 90", "18 < age < 36", "36 <= age < 54", "54 <= age < 72", "72 <= age < 90"]


def test_one_sided_ranges_and_inclusive_ends():
    assert readable(at_least(0), SCHEMA) == "54 <= age"
    assert readable(~at_least(0), SCHEMA) == "age < 54"
    assert readable(~at_least(1), SCHEMA) == "age <= 54"
    assert readable(at_least(-ONE, "hb") & ~at_least(0, "hb"), SCHEMA) == "-0.25 <= hb < 0.25"


@pytest.mark.parametrize(
    "predicate",
    [
        parse('x["age"] >= 65'),
        parse('x["smoker"]'),
        parse("y == 1"),
        at_least(0) & ~at_least(0, "hb"),
        at_least(0) & at_least(5),
        at_least(5) & ~at_least(5),
        at_least(5) & ~at_least(4),
        at_least(0) | ~at_least(5),
        NonNegative(Affine((("age", 1), ("hb", 2)))),
        NonNegative(Affine((("age", -1),))),
        NonNegative(Affine((("smoker", 1),))),
        NonNegative(Affine((), 1)),
    ],
    ids=described,
)
def test_anything_else_is_in_its_notation(predicate):
    assert range_of(predicate, SCHEMA) is None
    assert readable(predicate, SCHEMA) == described(predicate)
    assert in_words([predicate, predicate], SCHEMA) is None


stored = st.integers(-ONE, ONE)


@given(stored, stored, st.sampled_from([1, 3, ONE]))
def test_a_range_holds_the_stored_values_that_the_predicate_holds_for(low, high, weight):
    predicate = NonNegative(Affine((("age", weight),), -(low * weight // ONE)))
    predicate &= ~NonNegative(Affine((("age", weight),), -(high * weight // ONE)))
    found = range_of(predicate, SCHEMA)
    assert (found is None) == (low * weight // ONE >= high * weight // ONE)
    assume(found is not None)
    near = {min(max(value + by, -ONE), ONE) for value in (low, high, 0) for by in (-1, 0, 1)}
    for value in near:
        x = np.zeros((1, SCHEMA.d), dtype=np.int32)
        x[0, 0], x[0, -1] = value, ONE
        records = Records(x, np.ones(1, dtype=np.int8), np.ones(1, dtype=np.bool_))
        (holds,) = sums([predicate], SCHEMA, records, 0)
        in_units = Fraction(18) + Fraction(72) * (value + ONE) / (2 * ONE)
        assert (found.low <= in_units < found.high) == bool(holds)


@given(stored, st.integers(1, 5))
def test_neighbouring_stored_values_are_told_apart(low, width):
    ranges = [range_of(at_least(low) & ~at_least(low + by), SCHEMA) for by in (width, width + 1)]
    assert str(ranges[0]) != str(ranges[1])


def test_values_far_from_zero_are_told_apart_too():
    """An hour of Unix times: its stored values differ in the sixteenth digit."""
    hour = RealFeature(name="at", column="at", lower=1.7e9, upper=1.7e9 + 3600)
    schema = Schema(name="hours", label=Label(column="y", positive=("1",)), features=(hour,))
    said = {readable(at_least(0, "at") & ~at_least(width, "at"), schema) for width in range(1, 30)}
    assert len(said) == 29
    assert "at = 1700001800" in said


def test_a_batch_is_summed_up_by_column():
    batch = [predicate for feature in SCHEMA.features[:2] for predicate in Cells.equal(feature, 8).predicates()]
    assert in_words(batch, SCHEMA) == (
        "how many rows have age in each of 10 ranges (2 of them single values, the narrowest of the others 9 wide), "
        "hb in each of 11 ranges (3 of them single values, the narrowest of the others 0.125 wide)"
    )


def test_a_narrow_range_among_wide_ones_shows():
    batch = [at_least(-ONE) & ~at_least(0), at_least(0) & ~at_least(ONE), at_least(7) & ~at_least(11)]
    assert "the narrowest 1.341e-07 wide" in in_words(batch, SCHEMA)
    batch = [at_least(-ONE) & ~at_least(0), at_least(7) & ~at_least(8)]
    assert "1 of them single values, the narrowest of the others 36 wide" in in_words(batch, SCHEMA)


def test_one_that_is_no_range_is_not_hidden_among_many():
    batch = [*Cells.equal(AGE, 8).predicates(), parse('x["smoker"] & (y == 1)')]
    assert in_words(batch, SCHEMA) is None


def test_many_columns_are_cut():
    features = tuple(RealFeature(name=f"f{n}", column=f"f{n}", lower=0.0, upper=1.0) for n in range(14))
    wide = Schema(name="wide", label=Label(column="y", positive=("1",)), features=features)
    said = in_words([predicate for each in features for predicate in Cells.equal(each, 2).predicates()], wide)
    assert said.endswith("0.5 wide), 4 more columns in 16 ranges")
    assert said.count(" ranges (") == 10


def test_ranges_that_overlap_show():
    apart = [at_least(-ONE) & ~at_least(0), at_least(0) & ~at_least(ONE)]
    assert "overlap" not in in_words(apart, SCHEMA)
    for other in (at_least(-ONE) & ~at_least(1), ~at_least(1), at_least(-ONE), at_least(-5) & ~at_least(5)):
        assert "some overlap" in in_words([apart[0], other], SCHEMA)
        assert "some overlap" in in_words([other, *apart], SCHEMA)


def test_a_range_without_ends_has_no_width():
    assert Range(AGE, None, Fraction(3), Fraction(1)).width is None
    assert not Range(AGE, None, Fraction(3), Fraction(1)).is_value
