"""Units of columns: conversions against figures of their definitions, headers, and schemas that state one."""

from dataclasses import replace

import pytest

from dpcore.records.features import Number, RealFeature
from dpcore.records.schema import Schema, SchemaFieldError
from dpcore.records.units import are_same, conversion, unit_in_header
from tests.federation.material import STAYS


def test_conversions_are_those_of_the_definitions():
    for first, second, value, expected in (
        ("mg", "g", 1500.0, 1.5),
        ("lb", "kg", 150.0, 68.0388555),
        ("inch", "cm", 10.0, 25.4),
        ("degF", "degC", 98.6, 37.0),
        ("°C", "°F", 37.0, 98.6),
        ("mg/dL", "g/L", 100.0, 1.0),
        ("\u00b5mol/L", "mmol/l", 250.0, 0.25),
        ("kcal", "kJ", 1.0, 4.184),
    ):
        known = conversion(first, second)
        assert value * known.factor + known.offset == pytest.approx(expected, rel=1e-9)
    assert conversion("kg", "cm") is None
    assert conversion("mg/dl", "mmol/l") is None, "which depends on the substance"
    assert conversion("furlong", "m") is None
    assert are_same("\u00b5g", "ug")
    assert not are_same("mg", "Mg")
    assert conversion("lb", "kg").agrees(0.45359237, 0.0)
    assert not conversion("lb", "kg").agrees(2.2046, 0.0)


def test_headers_say_units_in_brackets_or_at_their_end():
    said = {
        "weight_kg": ("weight", "kg"),
        "weight (kg)": ("weight", "kg"),
        "creatinine [\u00b5mol/L]": ("creatinine", "\u00b5mol/L"),
        "vitamin [g]": ("vitamin", "g"),
        "temp_degF": ("temp", "degF"),
    }
    assert {header: unit_in_header(header) for header in said} == said
    # One letter after an underscore, a minimum, no unit, nothing but a unit.
    for header in ("vitamin_d", "hepatitis_c", "temp_min", "weight", "kg", "stage (II)", "mean_rate"):
        assert unit_in_header(header) is None


def test_a_schema_states_a_unit_of_numbers_and_only_then_has_version_5():
    age = RealFeature(name="age", lower=0.0, upper=100.0, unit="years")
    schema = replace(STAYS, features=(age, *STAYS.features[1:]))
    assert schema.version == 5
    assert schema.digest != STAYS.digest
    assert b"unit" not in STAYS.canonical_bytes()
    assert Schema.from_canonical(schema.canonical_bytes()) == Schema.from_toml(schema.to_toml()) == schema
    assert age.changes[0][0] == "for each years more"
    of_days = replace(STAYS, label=Number(column="days", lower=0.0, upper=60.0))
    stated = replace(of_days, label=replace(of_days.label, unit="days"))
    assert b"unit" not in of_days.canonical_bytes()
    assert Schema.from_canonical(stated.canonical_bytes()) == stated
    with pytest.raises(SchemaFieldError, match=r"features.age.unit: needs schema_version = 5"):
        Schema.from_toml(schema.to_toml().replace("schema_version = 5", "schema_version = 2"))
    with pytest.raises(SchemaFieldError, match=r"features.age.unit: 3 is not a text"):
        replace(age, unit=3)
