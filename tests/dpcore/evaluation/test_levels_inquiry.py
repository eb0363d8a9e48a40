"""Frequent levels among public candidates: what is listed, with which probability, and what is refused."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, PlanError, SchemaError
from dpcore.evaluation.descriptive.levels import OTHERS, ROWS, Levels
from dpcore.evaluation.intervals import CellNoise
from dpcore.predicates.disjoint import batch_sensitivity
from dpcore.predicates.evaluation import sums
from dpcore.predicates.expressions import Equals, LabelClass
from dpcore.records.coding import class_codes
from dpcore.records.encoding import store
from dpcore.records.features import CategoryFeature, Classes, Label, RealFeature, several_classes
from dpcore.records.features.labels import MOST_COUNTED
from dpcore.records.records import Records
from dpcore.records.schema import Schema, SchemaFieldError
from dpcore.records.shared_schema import SharedSchema
from dpcore.statistics.accuracy import Estimates

CODES = tuple(f"{letter}{number:02}" for letter in "ABCD" for number in range(50))
SCHEMA = Schema(
    name="stays",
    label=Classes(column="diagnosis", values=CODES, prefix=3, missing="zero-vector", unlisted="zero-vector"),
    features=(
        RealFeature(name="age", lower=0.0, upper=100.0),
        CategoryFeature(name="ward", values=("a", "b", "c"), missing="impute", impute="c", unknown="zero"),
    ),
)
COUNTS = {"A03": 500, "B11": 200, "B12": 60, "C00": 9, "D49": 1}
TOTAL = 1000
"""Of all rows; the others are not usable."""


@pytest.fixture(scope="module")
def records():
    codes = np.concatenate([np.full(rows, CODES.index(code)) for code, rows in COUNTS.items()])
    codes = np.concatenate([codes, np.ones(TOTAL - len(codes))]).astype(np.int16)
    usable = np.arange(TOTAL) < sum(COUNTS.values())
    x = np.column_stack([np.zeros(TOTAL), np.eye(3)[np.arange(TOTAL) % 2], np.ones(TOTAL)])
    x[~usable] = 0.0
    return Records(store(x), codes, usable, coding=SCHEMA.label.coding)


def answer(records, inquiry, deviation=0.0, noise=0.0):
    batch = inquiry.layout(SCHEMA).batch
    means = (sums(batch, SCHEMA, records, 0) + noise) / TOTAL
    return inquiry.read(SCHEMA, Estimates(means, TOTAL, 0.95, 0.0, 0.0, 0.0, deviation / TOTAL))


def test_the_frequent_levels_are_a_piece_of_a_schema(records):
    found = answer(records, Levels(at_least=50))
    assert found.facts["levels"] == ["A03", "B11", "B12"]
    assert [(each.level, each.estimate) for each in found.figures] == [
        *((code, COUNTS[code]) for code in ("A03", "B11", "B12")),
        (OTHERS, TOTAL - 760),
    ]
    text = 'schema_version = 5\nname = "next"\ntexts = []\n[label]\ncolumn = "died"\npositive = ["1"]\n'
    schema = Schema.from_toml(text + found.facts["schema"])
    assert schema.features == (
        CategoryFeature(
            name="diagnosis", values=("A03", "B11", "B12"), prefix=3, missing="zero-vector", unknown="zero"
        ),
    )
    assert found.facts["schema"] in found.text


def test_a_next_question_has_longer_candidates(records):
    found = answer(records, Levels(at_least=100, extend=(".0", ".1")))
    text = 'schema_version = 5\nname = "next"\ntexts = []\n' + found.facts["next"]
    text += '\n[[features]]\nname = "age"\ntype = "real"\nlower = 0.0\nupper = 1.0\n'
    label = SharedSchema.from_toml(text).first.label
    assert label == Classes(
        column="diagnosis",
        values=("A03.0", "A03.1", "B11.0", "B11.1"),
        prefix=5,
        missing="zero-vector",
        unlisted="zero-vector",
    )


def test_a_category_loses_its_rare_values_and_what_it_imputes_with_them(records):
    found = answer(records, Levels(column="ward", at_least=50))
    assert found.facts["levels"] == ["a", "b"]
    assert 'missing = "zero-vector"' in found.facts["schema"]
    assert "impute" not in found.facts["schema"]
    (ward,) = SCHEMA.categories
    for kept in (replace(ward, impute="a"), replace(ward, missing="zero-vector", unknown="impute")):
        schema = replace(SCHEMA, features=(SCHEMA.features[0], kept))
        estimates = Estimates(np.array([0.5, 0.3, 0.0]), TOTAL, 0.95, 0.0, 0.0, 0.0, 0.0)
        piece = Levels(column="ward", at_least=50).read(schema, estimates).facts["schema"]
        assert ('impute = "a"' in piece) == (kept.missing == "impute")
    assert Levels(column="ward").layout(SCHEMA).batch[0] == Equals("ward", "a")


def test_candidates_cost_nothing():
    """No two hold of one row, so that a row that is replaced moves two counts by 1."""
    for schema in (SCHEMA, replace(SCHEMA, label=replace(SCHEMA.label, values=CODES[:2]))):
        batch = Levels().layout(schema).batch
        assert isinstance(batch[0], LabelClass)
        found = batch_sensitivity(batch)
        assert (found.l1, found.l2_squared) == (2, 2)


@pytest.mark.more
def test_what_is_listed_is_there_and_what_is_frequent_is_listed_with_the_stated_probability(records):
    """Over the noise of 150 answers, for all candidates together; and the noise is not far below what is stated."""
    random, inquiry, deviation, draws = np.random.default_rng(3), Levels(), 6.0, 150
    reach = inquiry.reach(SCHEMA, CellNoise(deviation))
    truth, wrong, beyond = np.array([COUNTS.get(code, 0) for code in CODES]), 0, 0
    for _ in range(draws):
        noise = random.laplace(scale=deviation / np.sqrt(2), size=len(CODES))
        found = answer(records, inquiry, deviation, noise)
        assert found.facts["reach"] == pytest.approx(reach)
        listed = np.isin(CODES, found.facts["levels"])
        wrong += bool(((truth == 0) & listed).any() or ((truth > 2 * reach) & ~listed).any())
        beyond += bool((np.abs(noise) > 0.7 * reach).any())
        held = [each.lower <= COUNTS[each.level] <= each.upper for each in found.figures if each.level in COUNTS]
        wrong += not all(held)
    assert wrong <= 0.05 * draws
    assert beyond > 0.2 * draws


def test_what_the_noise_hides_is_refused_before_it_is_asked():
    noise = CellNoise(6.0)
    Levels().check_measurable(SCHEMA, noise, TOTAL, 1.0)
    with pytest.raises(PlanError, match=r"reaches \d+ rows, so that levels of 5 rows cannot be told from none: .*"):
        Levels(at_least=5).check_measurable(SCHEMA, noise, TOTAL, 1.0)
    with pytest.raises(PlanError, match="a level of all 20 rows cannot be told from none"):
        Levels().check_measurable(SCHEMA, noise, 20, 1.0)
    rule, promise = Levels(at_least=100).promises(SCHEMA, noise)
    assert rule == "A level is listed if its count with noise is above 100.0."
    reach = Levels().reach(SCHEMA, noise)
    assert f"each listed level has at least {int(100 - reach)} rows" in promise


def test_without_a_frequent_level_there_is_no_piece(records):
    found = answer(records, Levels(at_least=900))
    assert (found.facts["schema"], found.facts["levels"]) == ("", [])
    assert "No level has so many rows" in found.text
    assert found.one(ROWS, level=OTHERS).estimate == TOTAL


def test_a_field_out_of_range_is_refused():
    for fields, says in (
        ({"at_least": -1}, "give a number of rows"),
        ({"extend": ("a", "a")}, "different texts"),
        ({"extend": ("",)}, "different texts"),
        ({"confidence": 1.0}, "between 0 and 1"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            Levels(**fields)


def test_a_column_without_candidates_is_refused():
    with pytest.raises(ConfigurationError, match=r"'age' lists no candidates: .*; known: diagnosis, ward"):
        Levels(column="age").check(SCHEMA)
    two = replace(SCHEMA, label=Label(column="died", positive=("1",)))
    with pytest.raises(ConfigurationError, match="the label lists no candidates"):
        Levels().check(two)


# Labels of more classes than are learned.


def test_a_long_list_is_counted_and_not_learned():
    label = replace(SCHEMA.label, values=tuple(map(str, range(MOST_COUNTED))), prefix=None)
    assert (label.version, label.versioned_key, label.coding.dtype) == (5, "values", np.int16)
    with pytest.raises(SchemaError, match="takes up to 100 classes, and 'diagnosis' has 10000: count them"):
        several_classes(label, "a sum for each class")
    with pytest.raises(SchemaFieldError, match="has 10001 classes; list 2 to 100, or up to 10000 to count them"):
        replace(label, values=(*label.values, "more"))
    with pytest.raises(SchemaFieldError, match=r"label.values: 'A00' has more than the 2 characters of prefix"):
        replace(SCHEMA.label, prefix=2)


def test_a_label_of_few_classes_is_as_it_was():
    """Its digest and its memory."""
    few = Classes(column="diagnosis", values=("A03", "B11"))
    schema = replace(SCHEMA, label=few)
    assert b"prefix" not in schema.canonical_bytes()
    assert schema.version == few.version == 4
    assert class_codes(100).dtype == np.int8
    read = Schema.from_canonical(SCHEMA.canonical_bytes())
    assert read == SCHEMA
    assert Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
    assert Fraction(SCHEMA.version) == 5
