"""Bounds of the domain in a draft: only where they are given, and never at a value that the draft imputes."""

import pytest

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.records.features import BooleanFeature, DateFeature, Label, RealFeature
from dpcore.records.schema import Schema
from parties.data.schema_draft import bounded, parsed

AGE = RealFeature(name="age", lower=22, upper=81.5, missing="impute", impute=60, out_of_bounds="clip")
DOSE = RealFeature(name="dose", column="dose (mg)", lower=0, upper=1)
STAY = DateFeature(name="stay", first="2020-01-01", last="2020-12-31", missing="impute", impute="2020-06-01")
SMOKER = BooleanFeature(name="smoker", true=("yes",), false=("no",))
DRAFT = Schema(name="draft", label=Label(column="ill", positive=("1",)), features=(AGE, DOSE, SMOKER, STAY))


def test_given_bounds_replace_those_of_the_draft_and_nothing_else():
    age, dose, smoker, stay = bounded(DRAFT, {"age": (0.0, 120.0)}).features
    assert (age.lower, age.upper, age.impute, age.out_of_bounds) == (0, 120, 60, "clip")
    assert (dose, smoker, stay) == (DOSE, SMOKER, STAY)
    assert bounded(DRAFT, {"dose (mg)": (-1.0, 2.0)}).features[1].upper == 2
    assert bounded(DRAFT, {}) == DRAFT


@pytest.mark.parametrize(("bounds", "impute"), [((0.0, 50.0), 50), ((70.0, 90.0), 70)])
def test_a_value_that_is_imputed_stays_within_the_bounds(bounds, impute):
    assert bounded(DRAFT, {"age": bounds}).features[0].impute == impute


def test_bounds_as_they_are_typed():
    assert parsed("a=b=-1.5:1e3") == ("a=b", -1.5, 1000)
    assert parsed("stay=2019-01-01:2024-12-31") == ("stay", "2019-01-01", "2024-12-31")
    for text in ("age", "age=1", "age=1:", "age=x:2", "age=1:2:3", "age=0:1e999", "stay=1.1.2019:2.2.2020"):
        with pytest.raises(ConfigurationError, match="write COLUMN=LOWER:UPPER"):
            parsed(text)


@pytest.mark.parametrize(
    ("column", "says"), [("ages", "did you mean 'age'"), ("smoker", "no such number; known: age, ")]
)
def test_a_column_that_is_no_number_of_the_draft_is_refused(column, says):
    with pytest.raises(ConfigurationError, match=says):
        bounded(DRAFT, {column: (0.0, 1.0)})


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(SchemaError, match="write lower < upper"):
        bounded(DRAFT, {"age": (120.0, 0.0)})


def test_bounds_of_dates_are_dates_and_of_numbers_numbers():
    stay = bounded(DRAFT, {"stay": ("2019-01-01", "2020-03-31")}).features[3]
    assert (stay.first, stay.last, stay.impute) == ("2019-01-01", "2020-03-31", "2020-03-31")
    with pytest.raises(ConfigurationError, match=r"bounds of 'stay': 0\.0 is no date"):
        bounded(DRAFT, {"stay": (0.0, 1.0)})
    with pytest.raises(ConfigurationError, match="bounds of 'age': '2019-01-01' is no number"):
        bounded(DRAFT, {"age": ("2019-01-01", "2020-01-01")})
    with pytest.raises(SchemaError, match="write first < last"):
        bounded(DRAFT, {"stay": ("2020-01-01", "2019-01-01")})
