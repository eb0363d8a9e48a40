"""The texts that a schema does not list are found with their counts, and a draft that people complete recodes them."""

import tomllib

import pytest

from dpcore.records.schema import Schema
from dpcore.records.shared_schema import SharedSchema
from parties.data.spellings import draft, unlisted
from radobase.tables.recoding import recode_of
from tests.federation.processes import rado

SCHEMA = SharedSchema.of(
    Schema.from_toml("""
schema_version = 5
name = "stays"
texts = ["nfc", "trim"]
[label]
column = "ill"
positive = ["yes"]
negative = ["no"]
missing = "zero-vector"
[[features]]
name = "ward"
type = "category"
values = ["Cardiology", "Surgery", "surgery"]
missing = "zero-vector"
unknown = "zero"
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
missing = "zero-vector"
unknown = "zero-vector"
[[features]]
name = "code"
type = "category"
prefix = 1
values = ["A"]
missing = "zero-vector"
unknown = "zero"
[[features]]
name = "age"
type = "real"
lower = 0
upper = 120
missing = "zero-vector"
out_of_bounds = "clip"
""")
)
ROWS = """\
Station,smoker,code,age,ill
CARDIOLOGY,true,A1,n/a,yes
Cardiology,false,B2,50,NO
Chirurgie \\"OP\\",false,C3,51,no
Chirurgie \\"OP\\",,C3,51,perhaps
SURGERY, yes ,A2,52,
"""
OWN = {"columns": {"ward": {"column": "Station"}}}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text(ROWS.replace('\\"', "'"))
    return path


def test_every_text_that_is_not_listed_is_found_and_the_completed_draft_recodes_all(table):
    found = unlisted(table, SCHEMA, recode_of(OWN, SCHEMA))
    assert {each.column: dict(each.cells) for each in found} == {
        "ward": {"Chirurgie 'OP'": 2, "CARDIOLOGY": 1, "SURGERY": 1},
        "smoker": {"false": 2, "true": 1},
        "ill": {"NO": 1, "perhaps": 1},
    }
    # Two values that differ in case alone leave the choice to people, as does what says neither yes nor no.
    drafts = {each.column: dict(each.drafts) for each in found}
    assert drafts == {
        "ward": {"CARDIOLOGY": "Cardiology"},
        "smoker": {"true": "yes", "false": "no"},
        "ill": {"NO": "no"},
    }
    text = draft(found)
    assert '"Chirurgie \'OP\'" = "?"   # 2 cells' in text
    completed = tomllib.loads(text.replace('"?"', '""'))["recode"]
    assert completed["columns"]["ward"]["column"] == "Station"
    assert unlisted(table, SCHEMA, recode_of(completed, SCHEMA)) == []


def test_the_command_prints_what_the_configuration_takes(offline):
    config = offline.member("ada").config
    (config.parent / "data.csv").write_text("age,smoker,stayed\n50,JA,yes\n20,No,no\n30,no,maybe\n")
    found = rado("party", "spellings", "--config", str(config))["data"]
    assert (found["undecided"], [each["column"] for each in found["columns"]]) == (2, ["smoker", "stayed"])
    config.write_text(f"{config.read_text()}\n{found['toml']}\n")
    refused = rado("party", "spellings", "--config", str(config), code=4)["error"]["message"]
    assert "party.toml, recode: columns.smoker.cells.JA: '?' is not listed by the schema" in refused
    config.write_text(config.read_text().replace('"JA" = "?"', '"JA" = "yes"').replace('"?"', '""'))
    assert rado("party", "spellings", "--config", str(config))["data"]["columns"] == []
