"""A party's unit beside the schema's, and drafts of parties whose columns are in other units."""

import numpy as np
import pyarrow as pa
import pytest

from dpcore.errors import ConfigurationError
from dpcore.records.shared_schema import SharedSchema
from parties.data.dataset import load
from parties.data.draft_comparison import compared
from parties.data.schema_draft import AskedLabel, infer_shared, parsed_unit, with_units
from radobase.tables.arrow_table import ArrowTable
from radobase.tables.recoding import load_recode

SCHEMA = SharedSchema.from_toml("""
schema_version = 5
name = "doses"
texts = []
[label]
column = "y"
positive = ["1"]
[[features]]
name = "dose"
type = "real"
lower = 0.0
upper = 2.0
unit = "g"
[[features]]
name = "height"
type = "real"
lower = 0.0
upper = 3.0
""")


def recoded(tmp_path, dose, height=""):
    file = tmp_path / "recode.toml"
    file.write_text(f"[columns.dose]\n{dose}\n" + (f"[columns.height]\n{height}\n" if height else ""))
    return load_recode(file, SCHEMA)


def test_a_table_in_another_unit_is_read_in_the_schema_s(tmp_path):
    grams = pa.table({"dose": [0.5, 1.25], "height": [1.0, 2.0], "y": [1, 0]})
    expected = load(ArrowTable.of(grams), SCHEMA).records
    milligrams = grams.set_column(0, "dose", pa.array([500.0, 1250.0]))
    recode = recoded(tmp_path, 'unit = "mg"\nfactor = 0.001')
    found = load(ArrowTable.of(milligrams), SCHEMA, recode=recode)
    assert found.records.digest == expected.digest
    assert found.report.recoded == {"dose": 2}
    # The unit is part of what a party accepts.
    assert recoded(tmp_path, 'unit = "g"').digest != recoded(tmp_path, "").digest


def test_units_that_say_otherwise_than_the_factor_are_refused(tmp_path):
    for dose, says in (
        ('unit = "mg"', "dose.unit: is 'mg', and the schema's is 'g', but there is neither .*; write factor = 0.001"),
        ('unit = "mg"\nfactor = 1000', "but there is factor = 1000, offset = 0; write factor = 0.001"),
        ('unit = "g"\nfactor = 0.001', "dose.factor: converts 'g', which is the schema's unit too; leave"),
        ("factor = 0.001", "dose.unit: is missing: the schema's is 'g', and the numbers are converted; write"),
        ('unit = "drops"', "is 'drops', and the schema's is 'g'; write the factor and the offset"),
        ("unit = 3\nfactor = 2", "dose.unit: 3 is not a text"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            recoded(tmp_path, dose)
    with pytest.raises(ConfigurationError, match=r"height.unit: has nothing to compare with: the schema states"):
        recoded(tmp_path, 'unit = "g"', 'unit = "cm"')
    recoded(tmp_path, 'unit = "drops"\nfactor = 0.05', "factor = 0.01")


def draft(units=(), **columns):
    random = np.random.default_rng(4)
    table = {name: np.round(random.normal(mean, sd, 400), 4) for name, (mean, sd) in columns.items()}
    table |= {"y": np.tile(["1", "0"], 200)}
    drafted, notes = infer_shared(ArrowTable.of(pa.table(table)), [AskedLabel("y", ["1"])])
    return with_units(drafted, dict(units)), notes


def test_a_draft_proposes_what_a_header_says_and_states_what_a_person_says():
    drafted, notes = draft(weight_kg=(70.0, 10.0), dose=(5.0, 1.0))
    assert [each.unit for each in drafted.first.features] == [None, None]
    (said,) = (note for note in notes if "its unit" in note)
    assert said.startswith("The header 'weight_kg' seems to say that its unit is kg: if so, state it (--unit ")
    stated, _ = draft([parsed_unit("weight_kg=kg")], weight_kg=(70.0, 10.0), dose=(5.0, 1.0))
    assert [each.unit for each in stated.first.features] == ["kg", None]
    with pytest.raises(ConfigurationError, match=r"unit of 'y': it is no number of the draft; known: dose"):
        draft([("y", "kg")], dose=(5.0, 1.0))
    with pytest.raises(ConfigurationError, match="write COLUMN=UNIT"):
        parsed_unit("weight=")


def test_drafts_whose_bounds_are_a_known_factor_apart_are_pointed_out():
    mine, _ = draft(dose=(5.0, 1.0), weight=(75.0, 12.0), temp=(37.0, 0.6), age=(50.0, 12.0))
    theirs, _ = draft(dose=(5200.0, 900.0), weight=(163.0, 25.0), temp=(98.7, 1.1), age=(56.0, 12.0))
    units, fields = compared(mine, theirs)
    assert [sentence.split()[0] for sentence in units] == ["'dose'", "'weight'", "'temp'"]
    for sentence, said in zip(units, ("factor of 1,000", "factor of 2.2", "Fahrenheit and Celsius"), strict=True):
        assert f"near {'a ' if 'factor' in said else 'degrees '}{said}" in sentence
    assert any(each.startswith("features.age.upper: ") for each in fields)
    again, _ = draft(dose=(5.6, 1.1), weight=(80.0, 12.0), temp=(36.8, 0.7), age=(45.0, 12.0))
    assert compared(mine, again)[0] == []
    assert compared(mine, mine) == ([], [])


def test_stated_units_and_headers_are_compared_before_bounds():
    mine, _ = draft([("dose", "g")], dose=(5.0, 1.0), weight_kg=(75.0, 12.0))
    theirs, _ = draft([("dose", "mg")], dose=(5200.0, 900.0), weight_lb=(163.0, 25.0))
    units, _ = compared(mine, theirs)
    of_dose, of_weight = units
    how = "agree on one; the other converts by its recode file, as"
    assert of_dose == f"'dose' is in g and in mg: {how} [columns.dose] with unit = \"mg\", factor = 0.001"
    entry = '[columns.weight_kg] with column = "weight_lb", unit = "lb", factor = 0.45359237'
    assert of_weight == f"'weight_kg' and 'weight_lb' have one name but for the unit (kg and lb): {how} {entry}"
    same, _ = draft([("dose", "g")], dose=(5200.0, 900.0))
    assert not [each for each in compared(mine, same)[0] if "dose" in each], "people said that it is the same unit"
