"""Labels that are numbers and counts: what their cells mean, what is refused, and how they are stored."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import SchemaError, ShapeError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.coding import NUMBER, OFFSET_BITS, SIGNS, Coding, class_codes
from dpcore.records.features.described import CellError, Numbers
from dpcore.records.features.measured_labels import Count, Number, logarithm
from dpcore.records.records import Records, edges, labelled_rows
from dpcore.records.schema import RealFeature, Schema, SchemaFieldError

WAGE = Number(column="wage", lower=10.0, upper=1000.0, log=True)
DOSE = Number(column="dose", lower=-2.0, upper=6.0)
VISITS = Count(column="visits", upper=77)
OVER = Count(column="visits", upper=77, exposure="years", exposure_lower=0.25, exposure_upper=4.0)
SCHEMA = Schema(name="pay", label=WAGE, features=(RealFeature(name="age", lower=0.0, upper=100.0),), texts=("trim",))


def cells(*values: float | None) -> Numbers:
    missing = np.array([value is None for value in values])
    return Numbers(np.array([0.0 if value is None else value for value in values]), missing)


def encoded(label, *columns):
    return label.encode([cells(*column) for column in columns], str)


def test_a_number_is_linear_between_its_bounds_or_their_logarithms():
    assert encoded(DOSE, (-2.0, 2.0, 6.0)).labels.tolist() == [-ONE, 0, ONE]
    found = encoded(WAGE, (10.0, 100.0, 1000.0)).labels
    assert found.tolist() == pytest.approx([-ONE, 0, ONE], abs=1)
    assert WAGE.in_units(found / ONE) == pytest.approx([10.0, 100.0, 1000.0])
    assert DOSE.in_units(np.array([-1.0, 0.5, 2.0])) == pytest.approx([-2.0, 4.0, 10.0])
    assert DOSE.read(ONE // 2) == 4.0


@pytest.mark.more
def test_logarithms_are_right_to_a_unit_in_the_last_place_and_rise():
    values = np.sort(np.exp(np.random.default_rng(1).uniform(-700, 700, 20_000)))
    found = logarithm(values)
    assert found == pytest.approx(np.log(values), rel=5e-16)
    assert (np.diff(found) >= 0).all()
    assert logarithm(np.array([1.0, 2.0])).tolist() == [0.0, math.log(2)]


@pytest.mark.parametrize(
    ("label", "cell", "says"),
    [
        (DOSE, math.nan, "not a finite number"),
        (DOSE, math.inf, "not a finite number"),
        (DOSE, 6.01, "above the bound 6 of the schema's label"),
        (DOSE, -2.01, "below the bound -2"),
        (WAGE, 0.0, "below the bound 10"),
        (DOSE, None, "there is no label"),
        (VISITS, -1.0, "not a whole number from 0"),
        (VISITS, 1.5, "not a whole number from 0"),
        (VISITS, math.inf, "not a whole number from 0"),
        (VISITS, math.nan, "not a whole number from 0"),
        (VISITS, 78.0, "above the bound 77"),
        (VISITS, None, "there is no label"),
    ],
)
def test_a_cell_that_is_no_label_is_refused_and_named(label, cell, says):
    good = 3.0 if label is not WAGE else 20.0
    with pytest.raises(CellError, match=says) as refused:
        encoded(label, (good, cell))
    assert (refused.value.row, refused.value.column) == (1, label.column)
    assert "label." in str(refused.value)
    kept = encoded(label.lenient, (good, cell))
    assert kept.dropped.tolist() == [False, True]
    assert kept.tally.missing + kept.tally.unreadable + kept.tally.beyond == 1


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (0.0, "has no rate; leave out rows without exposure"),
        (-1.0, "not a positive number"),
        (math.inf, "not a positive number"),
        (0.2, "below the bound 0.25"),
        (5.0, "above the bound 4"),
        (None, "there is no exposure"),
    ],
)
def test_an_exposure_is_positive_and_within_its_bounds(cell, says):
    with pytest.raises(CellError, match=says) as refused:
        encoded(OVER, (3.0, 4.0), (1.0, cell))
    assert (refused.value.row, refused.value.column) == (1, "years")
    assert encoded(OVER.lenient, (3.0, 4.0), (1.0, cell)).dropped.tolist() == [False, True]


def test_labels_beyond_the_bounds_are_clipped_if_the_schema_says_so():
    found = encoded(replace(DOSE, out_of_bounds="clip"), (-7.0, 99.0, 2.0))
    assert found.labels.tolist() == [-ONE, ONE, 0]
    assert not found.dropped.any()
    assert found.tally.beyond == 2
    clipped = encoded(replace(OVER, out_of_bounds="clip"), (100.0, 0.0), (1.0, 16.0))
    assert clipped.labels[:, 0].tolist() == [77, 0]
    assert np.ldexp(clipped.labels[:, 1], -OFFSET_BITS) == pytest.approx([0.0, math.log(4)], abs=1e-6)


def test_labels_have_a_value_between_minus_one_and_one():
    assert NUMBER.scaled(np.array([-ONE, -1, 1, ONE // 2, ONE], np.int32), 4).tolist() == [-16, 0, 0, 8, 16]
    assert VISITS.coding.scaled(np.array([0, 77, 38, 39], np.int32), 8).tolist() == [-256, 256, -3, 3]
    assert OVER.coding.scaled(np.array([[77, 5], [0, 5]], np.int32), 8).tolist() == [256, -256]


def test_a_bound_of_a_predicate_is_compared_as_it_is_stored():
    stored = encoded(WAGE, (99.0, 100.0, 101.0)).labels
    at = WAGE.least_stored(Fraction(100), above=False)
    assert (stored >= at).tolist() == [False, True, True]
    assert (stored >= WAGE.least_stored(Fraction(100), above=True)).tolist() == [False, False, True]
    assert (stored >= WAGE.least_stored(Fraction(2000), above=False)).any() == False  # noqa: E712
    assert (stored >= WAGE.least_stored(Fraction(-3), above=True)).all()
    assert [VISITS.least_stored(Fraction(5, 2), above=above) for above in (False, True)] == [3, 3]
    assert [VISITS.least_stored(Fraction(3), above=above) for above in (False, True)] == [3, 4]


@pytest.mark.parametrize("label", [WAGE, DOSE, VISITS, OVER], ids=["log", "number", "count", "exposure"])
def test_a_schema_of_version_5_is_read_back(label):
    schema = replace(SCHEMA, label=label)
    assert schema.version == 5
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_canonical(schema.canonical_bytes()) == schema
    with pytest.raises(SchemaFieldError, match="needs schema_version = 5") as refused:
        Schema.from_toml(schema.to_toml().replace("schema_version = 5", "schema_version = 4"))
    assert refused.value.field == "label.type"


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"lower": 5.0, "upper": 5.0}, "label.lower", "is not below upper"),
        ({"lower": -1e308, "upper": 1e308}, "label.upper", "too far from lower"),
        ({"lower": 0.0, "upper": 5.0, "log": True}, "label.lower", "has no logarithm"),
        ({"lower": 1.0, "upper": 5.0, "log": 1}, "label.log", "is not a boolean"),
        ({"lower": 1.0, "upper": 5.0, "missing": "impute"}, "label.missing", "is not one of"),
        ({"lower": 1.0, "upper": 5.0, "unreadable": "clip"}, "label.unreadable", "is not one of"),
        ({"lower": 1.0, "upper": 5.0, "out_of_bounds": "impute"}, "label.out_of_bounds", "is not one of"),
    ],
)
def test_a_number_whose_fields_do_not_fit_is_refused(fields, field, says):
    with pytest.raises(SchemaFieldError, match=says) as refused:
        Number(column="wage", **fields)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"upper": 0}, "label.upper", "no whole number from 1"),
        ({"upper": 1.5}, "label.upper", "no whole number from 1"),
        ({"upper": 9, "exposure": "years"}, "label.exposure", "belong together"),
        (
            {"upper": 9, "exposure": "visits", "exposure_lower": 1, "exposure_upper": 2},
            "label.exposure",
            "label's column",
        ),
        (
            {"upper": 9, "exposure": "t", "exposure_lower": 0, "exposure_upper": 2},
            "label.exposure_lower",
            "1e-9 to 1e9",
        ),
    ],
)
def test_a_count_whose_fields_do_not_fit_is_refused(fields, field, says):
    with pytest.raises(SchemaFieldError, match=says) as refused:
        Count(column="visits", **fields)
    assert refused.value.field == field


def test_the_columns_of_a_label_are_no_features():
    schema = replace(SCHEMA, label=OVER)
    with pytest.raises(SchemaFieldError, match="would reveal the label"):
        replace(schema, features=(RealFeature(name="years", lower=0.0, upper=9.0),))


def test_bounds_of_a_draft_are_replaced():
    assert WAGE.with_bounds("wage", 0.0, 50.0) == Number(column="wage", lower=0.0, upper=50.0, log=False)
    assert OVER.with_bounds("years", 1.0, 2.0).exposure_lower == 1.0
    assert OVER.with_bounds("visits", 0.0, 9.0).upper == 9
    with pytest.raises(SchemaFieldError, match="two whole numbers from 0"):
        OVER.with_bounds("visits", 1.0, 9.0)


# Records


def records(labels: np.ndarray, coding: Coding) -> Records:
    usable = np.array([True, False, True])
    features = np.array([[ONE, 5], [0, 0], [-ONE, 7]], np.int32)
    return Records(features, labels, usable, coding=coding)


def test_records_keep_labels_of_every_coding():
    held = records(np.array([-ONE, 1, ONE], np.int32), NUMBER)
    ((first, x, labels),) = labelled_rows(held, 4)
    assert (first, labels.tolist()) == (0, [-ONE, 1, ONE])
    assert x.tolist() == [[16, 0], [0, 0], [-16, 0]]
    counted = records(np.array([[3, 9], [1, 1], [0, -4]], np.int32), OVER.coding)
    for part in (counted.between(1, 3), counted.at(np.array([0, 2])), counted.zeroed(), counted.mapped(None)):
        assert part.coding == OVER.coding
    assert counted.at(np.array([0, 2])).labels.tolist() == [[3, 9], [0, -4]]
    left_out = counted.only(np.array([True, False, False])).zeroed()
    assert left_out.labels.tolist() == [[3, 9], [1, 1], [1, 1]]


def test_records_of_a_wrong_label_are_refused():
    with pytest.raises(ShapeError, match="labels is int8"):
        records(np.array([1, 1, 1], np.int8), NUMBER)
    with pytest.raises(ShapeError, match="labels have shape"):
        records(np.ones((3, 3), np.int32), OVER.coding)
    with pytest.raises(SchemaError, match=r"beyond \[-1, 1\]"):
        records(np.array([ONE + 1, 1, 1], np.int32), NUMBER)
    with pytest.raises(SchemaError, match="no count from 0 to 77"):
        records(np.array([78, 1, 1], np.int32), VISITS.coding)
    with pytest.raises(SchemaError, match="exposure is out of range"):
        records(np.array([[3, 1 << 30], [1, 1], [1, 1]], np.int32), OVER.coding)
    with pytest.raises(SchemaError, match="label of these records is a number"):
        next(edges(records(np.array([1, 1, 1], np.int32), NUMBER), 4))


def test_digests_of_two_and_several_classes_are_as_before_and_others_differ():
    """Ledgers and attempts remember digests, so those of signs and classes must never change."""
    signs = records(np.array([1, 1, -1], np.int8), SIGNS)
    classes = records(np.array([2, 1, 0], np.int8), class_codes(3))
    assert signs.digest.hex() == SIGNS_DIGEST
    assert classes.digest.hex() == CLASSES_DIGEST
    numbers = records(np.array([1, 1, -1], np.int32), NUMBER)
    counts = records(np.array([1, 1, 0], np.int32), VISITS.coding)
    assert len({each.digest for each in (signs, classes, numbers, counts)}) == 4
    assert counts.digest != records(np.array([1, 1, 0], np.int32), Coding("count", 78)).digest


SIGNS_DIGEST = "b76b36e595be91faeb3f1e0edbe516020a1c14c2df4a1c502e0740a9b110d4e8"
CLASSES_DIGEST = "16b7dab12948539e138ab11bfa2eb0c7ec5a81baf8413a48e16181a9beb07452"
