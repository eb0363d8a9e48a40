"""Feature maps in the columns' units: converted as records are stored, and every error names the term."""

import json
import tomllib

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, SchemaError
from dpcore.numbers.fixed_point import ONE
from dpcore.records.encoding import Numbers, WantedColumn, encode, store
from dpcore.records.feature_map import MOST_TERMS, Column, Hat, PointMass, Product, stored
from dpcore.records.feature_map_in_units import FeatureMapError, map_in_units
from radobase.schema_files import load_feature_map
from tests.dpcore.estimators.oracle_world import category, flag, real, schema_of

AGE, INCOME = real("age", 0.0, 100.0), real("income", -1e4, 1e6)
SCHEMA = schema_of(AGE, INCOME, flag("smoker"), category("ward", ["north", "south"]))
TEXT = """
map_version = 1
[[terms]]
column = "smoker"
[[terms]]
name = "bends"
hats = "age"
knots = [18, 40.5, 65, 90]
ends = true
centre = [0.1, 0.2, 0.3, 0.4]
halvings = 1
[[terms]]
name = "broke"
point = "income"
at = 0
[[terms]]
column = "ward=north"
[[terms]]
product = ["bends", "smoker"]
[[terms]]
product = ["broke", "bends"]
"""
CONTENT = tomllib.loads(TEXT)


def test_a_map_is_that_of_its_file(tmp_path):
    found = map_in_units(CONTENT, SCHEMA)
    functions = [term.function for term in found.terms]
    knots = [stored(AGE, knot) for knot in (18, 40.5, 65, 90)]
    hats = [Hat(0, *each) for each in zip([None, *knots], knots, [*knots[1:], None], strict=False)]
    assert functions[:7] == [Column(2), *hats, PointMass(1, stored(INCOME, 0)), Column(3)]
    assert functions[7:] == [*(Product(0, hat) for hat in range(1, 5)), *(Product(hat, 5) for hat in range(1, 5))]
    assert [term.centre for term in found.terms[1:5]] == [round(each * ONE) for each in (0.1, 0.2, 0.3, 0.4)]
    assert [term.halvings for term in found.terms] == [0, 1, 1, 1, 1] + [0] * 10
    assert found.names(SCHEMA)[:5] == ("smoker", "age~18", "age~40.5", "age~65", "age~90")
    (tmp_path / "map.toml").write_text(TEXT)
    (tmp_path / "map.JSON").write_text(json.dumps(CONTENT))
    assert load_feature_map(tmp_path / "map.toml", SCHEMA) == load_feature_map(tmp_path / "map.JSON", SCHEMA) == found


@pytest.mark.parametrize(("knots", "ends", "peaks"), [([20, 40, 60], False, [40]), ([20, 40], True, [20, 40])])
def test_hats_are_1_at_their_knots_and_0_at_the_next(knots, ends, peaks):
    """Values at the knots themselves, as rows are encoded: which is what the map is in the column's units."""
    entry = {"hats": "age", "knots": knots, "ends": ends}
    found = map_in_units({"map_version": 1, "terms": [entry]}, SCHEMA)
    ages = np.array([0.0, 20.0, 30.0, 40.0, 60.0, 100.0])
    x = np.zeros((len(ages), SCHEMA.d))
    x[:, 0] = ages / 50 - 1
    values = found.of(x)[:, : len(peaks)]
    expected = [[np.interp(age, *curve(knots, peak, ends)) for peak in peaks] for age in ages]
    np.testing.assert_allclose(values, expected, atol=1e-7)


def curve(knots, peak, ends):
    del ends
    return knots, [float(knot == peak) for knot in knots]


def test_a_point_is_where_records_store_that_value():
    schema = schema_of(real("income", -1e4, 1e6))
    wanted = WantedColumn("income", "numbers")
    cells = Numbers(np.array([0.0, 0.1, 12345.678]), np.zeros(3, dtype=bool))
    x = encode(schema, {wanted: cells}, 3, label=False).x
    entries = [{"point": "income", "at": 0}, {"point": "income", "at": 12345.678}]
    found = map_in_units({"map_version": 1, "terms": entries}, schema)
    assert found.of(x)[:, :2].tolist() == [[1, 0], [0, 0], [0, 1]]
    assert store(x)[2, 0] == found.terms[1].function.at


def of(*terms, **other):
    return {"map_version": 1, "terms": list(terms), **other}


HATS = {"name": "h", "hats": "age", "knots": [20, 40, 60]}
REFUSED = [
    ({}, "map_version"),
    ({"map_version": True, "terms": [HATS]}, "map_version"),
    (of(), "no terms"),
    ({"map_version": 1, "terms": {"a": 1}}, "no terms"),
    (of(HATS, tems=1), "did you mean 'terms'"),
    (of("age"), "term 1 is no table"),
    (of({"knots": [1, 2, 3]}), "term 1: give one of"),
    (of({"column": "age", "hats": "age"}), "term 1: give one of"),
    (of({**HATS, "knot": 3}), "term 1 (hats of 'age'): 'knot' is no key; did you mean 'knots'"),
    (of({"column": "agee"}), "did you mean 'age'"),
    (of({"column": "bias"}), "no coordinate 'bias'"),
    (of({"column": 3}), "no text"),
    (of({**HATS, "hats": "wage"}), "no feature 'wage'"),
    (of({**HATS, "hats": "smoker"}), "term 1 (hats of 'smoker'): 'smoker' is a boolean feature"),
    (of({"point": "ward", "at": 0}), "is a category feature"),
    (of({"hats": "age"}), "give its knots"),
    (of({**HATS, "knots": [20, 60, 40]}), "knots 60 and 40 are not in ascending order"),
    (of({**HATS, "knots": [20, 20, 40]}), "are the same"),
    (of({**HATS, "knots": [20, 20 + 1e-9, 40]}), "are the same"),
    (of({**HATS, "knots": [20, 40, 101]}), "beyond the schema's bounds, 0 to 100"),
    (of({**HATS, "knots": [20, 40]}), "three knots"),
    (of({**HATS, "knots": [20], "ends": True}), "three knots"),
    (of({**HATS, "knots": [20, "40", 60]}), "knot is '40': give a number"),
    (of({**HATS, "knots": [20, True, 60]}), "give a number"),
    (of({**HATS, "knots": [20, float("nan"), 60]}), "no finite number"),
    (of({**HATS, "knots": [20, 10**400, 60]}), "no finite number"),
    (of({**HATS, "ends": 1}), "write true or false"),
    (of({**HATS, "centre": 1.5}), "centre 1.5 is out of range"),
    (of({**HATS, "centre": [0.5, 0.5]}), "2 centres and 1 functions"),
    (of({**HATS, "halvings": 9}), "halvings is 9"),
    (of({**HATS, "halvings": 1.5}), "give a whole number"),
    (of({"column": "age", "centre": 0.5}), "'centre' is no key"),
    (of({"point": "income"}), "at is None: give a number"),
    (of({"point": "income", "at": -10_001}), "at -10001 is beyond"),
    (of(HATS, {**HATS, "name": "i"}), "term 2 (hats of 'age'): term 1 (hats of 'age') has the same function"),
    (of({"column": "age"}, {"column": "age", "name": "again"}), "the same function"),
    (of(HATS, {"column": "income", "name": "h"}), "is also called 'h'"),
    (of({**HATS, "name": 3}), "is no text"),
    (of({"column": "age"}, HATS, {"product": ["age", "h"]}), "a product of column 'age' with itself"),
    (of(HATS, {"product": ["h", "h"]}), "a product of column 'age' with itself"),
    (of({"product": ["age", "income"]}), "no term before it is called 'age'"),
    (of(HATS, {"product": ["hh", "h"]}), "did you mean 'h'"),
    (of(HATS, {"product": ["h"]}), "of two terms before it"),
    (of(HATS, {"product": "h"}), "of two terms before it"),
    (
        of(HATS, {"column": "income"}, {"name": "p", "product": ["h", "income"]}, {"product": ["p", "h"]}),
        "'p' is a product itself",
    ),
    (of({**HATS, "knots": np.linspace(0, 100, MOST_TERMS + 3).tolist()}), "term 1 (hats of 'age'): the map becomes"),
    (
        of(
            {**HATS, "knots": np.linspace(0, 100, 80).tolist()},
            {"name": "i", "hats": "income", "knots": np.linspace(0, 100, 80).tolist()},
            {"product": ["h", "i"]},
        ),
        "term 3 (product of ['h', 'i']): the map becomes too long",
    ),
]


@pytest.mark.parametrize(("content", "says"), REFUSED)
def test_errors_name_the_term(content, says):
    with pytest.raises(FeatureMapError) as raised:
        map_in_units(content, SCHEMA)
    assert says in str(raised.value)


def test_a_file_that_is_no_map(tmp_path):
    file = tmp_path / "map.toml"
    with pytest.raises(ConfigurationError, match="give a feature map"):
        load_feature_map(file, SCHEMA)
    file.write_text("terms = [")
    with pytest.raises(ConfigurationError, match="TOML"):
        load_feature_map(file, SCHEMA)
    file.write_text("map_version = 2")
    with pytest.raises(SchemaError, match=r"map\.toml: map_version is 2"):
        load_feature_map(file, SCHEMA)
