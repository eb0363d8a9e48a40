"""A party's recode file: its own spellings, columns' names and units become the schema's, and nothing in silence."""

import json

import numpy as np
import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.held_back import RowKey
from dpcore.records.schema import Schema
from parties.data.dataset import check, load
from radobase.tables.recoding import load_recode
from radofed.cli.entry_point import run
from tests.parties.check_world import replace_in
from tests.parties.check_world import run as preflight

TOML = """
schema_version = 3
name = "clinic"
texts = ["nfc", "trim"]
[label]
column = "ill"
positive = ["yes"]
negative = ["no"]
[[features]]
name = "dose"
type = "real"
lower = 0.0
upper = 10.0
[[features]]
name = "sex"
type = "category"
values = ["m", "w"]
missing = "zero-vector"
[[features]]
name = "born"
type = "date"
first = "1900-01-01"
last = "2030-01-01"
[[features]]
name = "old"
type = "boolean"
column = "code"
true = ["1"]
false = ["0"]
[[features]]
name = "code"
type = "real"
lower = 0.0
upper = 1.0
"""
SCHEMA = Schema.from_toml(TOML)
ROWS = "dose,sex,born,code,ill\n5,m,2000-01-01,1,yes\n2.5,w,1950-06-30,0,no\n10,,2000-01-01,0,no\n"
OWN = (
    "Dosis,Geschlecht,born,code,krank,dose\n"
    "5000,männlich,2000-01-01,1,Ja,77\n2500, weiblich,2.7.50,0,no,77\n10000,k. A.,2000-01-01,0,Nein,77\n"
)
RECODE = """
[columns.dose]
column = "Dosis"
factor = 0.001
[columns.sex]
column = "Geschlecht"
cells = { "männlich" = "m", "weiblich" = "w", "k. A." = "" }
[columns.born]
cells = { "2.7.50" = "1950-06-30" }
[columns.ill]
column = "krank"
cells = { "Ja" = "yes", "Nein" = "no" }
"""


@pytest.fixture
def recode(tmp_path):
    def write(text, schema=SCHEMA):
        path = tmp_path / "recode.toml"
        path.write_text(text, encoding="utf-8")
        return load_recode(path, schema)

    return write


def test_a_table_in_its_own_spellings_and_units_is_the_same_records(csv_file, recode):
    plain = load(csv_file(ROWS), SCHEMA)
    found = load(csv_file(OWN, "own.csv"), SCHEMA, recode=recode(RECODE))
    assert found.records.digest == plain.records.digest
    report = found.report
    assert report.recoded == {"dose": 3, "sex": 3, "born": 1, "ill": 2}
    assert "recoded: 3 cells of dose, 3 cells of sex, 1 cell of born, 2 cells of ill" in report.sentences()
    assert report.unused_recodes == ()
    assert check(SCHEMA, csv_file(OWN, "own.csv"), recode=recode(RECODE)) == report


def test_units_change_by_a_factor_then_an_offset_and_empty_cells_stay_empty(csv_file, recode):
    lenient = Schema.from_toml(TOML.replace("upper = 10.0", 'upper = 10.0\nmissing = "zero-vector"'))
    unit = recode("[columns.dose]\nfactor = 2\noffset = -1.0\n", lenient)
    head = "dose,sex,born,code,ill\n"
    rows = ("1.5", "", "3.25")
    own = load(csv_file(head + "".join(f"{dose},m,2000-01-01,1,yes\n" for dose in rows)), lenient, recode=unit)
    there = load(csv_file(head + "".join(f"{dose},m,2000-01-01,1,yes\n" for dose in ("2", "", "5.5"))), lenient)
    assert np.array_equal(own.records.features, there.records.features)
    assert own.report.recoded == {"dose": 2}


def test_entries_apply_once_and_may_exchange_texts(csv_file, recode):
    swap = recode('[columns.sex]\ncells = { "m" = "w", "w" = "m" }\n')
    swapped = ROWS.replace("5,m,", "5,x,").replace("2.5,w,", "2.5,m,").replace("5,x,", "5,w,")
    assert load(csv_file(ROWS), SCHEMA, recode=swap).records.digest == load(csv_file(swapped), SCHEMA).records.digest


def test_spellings_are_compared_as_the_schema_compares_texts(csv_file, recode):
    decomposed = OWN.replace("ä", "a\u0308")
    assert load(csv_file(decomposed), SCHEMA, recode=recode(RECODE)).report.recoded["sex"] == 3


def test_a_spelling_that_no_cell_has_is_warned_of(csv_file, recode):
    more = RECODE.replace('"weiblich"', '"divers" = "w", "weiblich"')
    report = check(SCHEMA, csv_file(OWN), recode=recode(more))
    (warning,) = report.unused_recodes
    assert "spells 'divers' in column 'Geschlecht', which no cell is" in warning
    assert warning in report.warnings
    assert f"warning: {warning}" in report.sentences()


def test_what_the_recode_file_says_is_part_of_the_digest_of_the_data(csv_file, recode):
    path = csv_file(OWN)
    first = load(path, SCHEMA, recode=recode(RECODE))
    same = load(path, SCHEMA, recode=recode("# a comment\n" + RECODE))
    unused = load(path, SCHEMA, recode=recode(RECODE.replace('"weiblich"', '"divers" = "w", "weiblich"')))
    plain = csv_file(ROWS, "plain.csv")
    digests = [load(plain, SCHEMA).report.digest, load(plain, SCHEMA, recode=recode("")).report.digest]
    assert first.report.digest == same.report.digest != unused.report.digest
    assert first.records.digest == unused.records.digest
    assert len({*digests, first.report.digest}) == 3


def test_errors_name_the_columns_of_the_table(csv_file, recode):
    with pytest.raises(DataError, match=r"line 2, column 'Geschlecht'.*a category that the schema does not list"):
        load(csv_file(OWN.replace("männlich", "mann")), SCHEMA, recode=recode(RECODE))
    with pytest.raises(DataError, match="column 'krank': there is no such column"):
        load(csv_file(ROWS), SCHEMA, recode=recode('[columns.ill]\ncolumn = "krank"\n'))


@pytest.mark.parametrize("key", ["id_column", "epoch_column"])
def test_no_column_that_is_asked_about_decides_on_parts_or_epochs_under_another_name(csv_file, recode, key):
    columns = {"id_column": "visit", key: "Geschlecht"}
    for read in (
        lambda **more: check(SCHEMA, csv_file(OWN), **more),
        lambda **more: load(csv_file(OWN), SCHEMA, **more),
    ):
        with pytest.raises(ConfigurationError, match=f"{key} 'Geschlecht' is a column of the schema"):
            read(recode=recode(RECODE), **columns)


REFUSED = {
    "[columns.sex]\ncells = { 'male' = 'man' }": r"columns.sex.cells.male: 'man' is not listed by the schema.*known",
    "[columns.born]\ncells = { 'x' = '1.1.2000' }": "columns.born.cells.x: '1.1.2000' is not a date",
    "[columns.sex]\ncells = { 'a' = 'm', 'a ' = 'w' }": "'a' and 'a ' are the same text to the schema; remove one",
    "[columns.sex]\ncells = { 'a' = 'm', 'a' = 'w' }": "not valid TOML.*correct the recode file",
    "[columns.sex]\ncells = { ' ' = 'm' }": "has an empty spelling",
    "[columns.sex]\ncells = { 'a' = ['m'] }": "is not a text; put it in quotation marks",
    "[columns.sex]\ncells = 'm'": "columns.sex.cells: is not a table",
    "[columns.sexx]\ncells = {}": "columns.sexx: is not a column of the schema; did you mean 'sex'",
    "[columns.sex]\nfactor = 2": "columns.sex.factor: is for a column of numbers, and the schema reads 'sex' as texts",
    "[columns.sex]\noffset = 2": "columns.sex.offset: is for a column of numbers",
    "[columns.dose]\ncells = { 'a' = '1' }": "columns.dose.cells: is for a column of texts.*factor and offset",
    "[columns.code]\ncells = { 'a' = '1' }": "reads 'code' as numbers and texts; leave it out",
    "[columns.code]\nfactor = 2": "reads 'code' as numbers and texts; leave it out",
    "[columns.dose]\nfactor = 0": "columns.dose.factor: is 0, so that all values become one",
    "[columns.dose]\nfactor = 'g'": "'g' is not a number",
    "[columns.dose]\nfactors = 2": "columns.dose.factors: is not a key; did you mean 'factor'",
    "[columns.dose]\ncolumn = 'code'": "'code' stands for two columns of the schema, 'dose' and 'code'",
    "[columns.dose]\ncolumn = ' '": "columns.dose.column: is empty",
    "[column.dose]\nfactor = 2": r"column: is not a key; write a table \[columns.NAME\]",
    "columns = 1": "columns: is not a table",
    "columns.dose = 1": "columns.dose: is not a table",
}


def test_what_the_schema_does_not_have_or_two_entries_say_is_refused(recode, tmp_path):
    for text, sentence in REFUSED.items():
        with pytest.raises(ConfigurationError, match=sentence) as caught:
            recode(text)
        assert str(tmp_path / "recode.toml") in str(caught.value), text


def test_a_number_or_a_boolean_stands_for_its_text(csv_file, recode):
    only = Schema.from_toml(TOML.partition('[[features]]\nname = "code"')[0])
    old = recode("[columns.code]\ncells = { 'alt' = 1, 'jung' = '0' }", only)
    spelled = ROWS.replace("2000-01-01,1", "2000-01-01,alt").replace("06-30,0", "06-30,jung")
    assert load(csv_file(spelled), only, recode=old).records.digest == load(csv_file(ROWS), only).records.digest


def test_a_recode_keeps_ids_and_epochs_as_they_are(csv_file, recode):
    text = "".join(
        f"{line},{id_},{month}\n"
        for line, id_, month in zip(OWN.splitlines(), ("id", "a", "b", "c"), ("month", *["2026-11"] * 3), strict=True)
    )
    key = RowKey(bytes(32), "clinics", "north", "data.csv")
    columns = {"id_column": "id", "epoch_column": "month", "row_key": key}
    assert load(csv_file(text), SCHEMA, recode=recode(RECODE), **columns).epochs.counts == {"2026-11": 3}


def test_a_recode_file_is_tested_before_a_node_starts(tmp_path, csv_file, capsys):
    for name, text in (("schema.toml", TOML), ("recode.toml", RECODE), ("own.csv", OWN)):
        csv_file(text, name)
    schema, data, recode = (str(tmp_path / name) for name in ("schema.toml", "own.csv", "recode.toml"))
    assert run(["schema", "check", schema, data, "--recode", recode, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert (found["recoded"]["sex"], len(found["recode_digest"])) == (3, 64)
    assert run(["schema", "check", schema, "--recode", recode]) == 0
    assert "recodes dose, sex, born, ill; digest" in capsys.readouterr().out
    csv_file("[columns.sexx]", "recode.toml")
    assert run(["schema", "check", schema, "--recode", recode]) == 4


def test_the_preflight_applies_the_recode_file_and_shows_what_it_changed(offline):
    config, folder = offline.member("ada").config, offline.directory("ada")
    data = folder / "data.csv"
    assert "recode" not in preflight(offline)
    data.write_text(data.read_text().replace("smoker", "raucht").replace("yes,", "ja,"))
    replace_in(config, "\n[tls]", '\nrecode = "recode.toml"\n[tls]')
    found = preflight(offline)
    assert (found["recode"].status, found["data"].status) == ("failed", "not run")
    (folder / "recode.toml").write_text('[columns.smoker]\ncolumn = "raucht"\ncells = { "ja" = "yes" }\n')
    found = preflight(offline)
    assert found["recode"].status == "ok"
    assert "recode.toml: smoker; digest" in found["recode"].detail
    assert "recoded: 2 cells of smoker" in found["data"].detail
