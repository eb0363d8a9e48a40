"""What a schema's policies changed: every cell of every cause is counted once, and what lost most comes first."""

import csv
import io
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from dpcore.records.encoding import MANY, Change, Tally, changes, main_cause, summed, why_unusable
from dpcore.records.schema import Schema
from parties.data.dataset import check
from radobase.tables.arrow_table import ArrowTable

TOML = """
schema_version = 2
name = "clinic"
texts = ["nfc", "trim"]
[label]
column = "ill"
positive = ["1"]
negative = ["0"]
missing = "zero-vector"
[[features]]
name = "age"
type = "real"
lower = 0
upper = 100
missing = "zero-vector"
out_of_bounds = "clip"
unreadable = "impute"
impute = 40
[[features]]
name = "old"
type = "threshold"
column = "years"
threshold = 65
missing = "impute"
impute = false
unreadable = "zero-vector"
[[features]]
name = "stage"
type = "category"
values = ["Genève", "two"]
missing = "impute"
impute = "two"
unknown = "zero"
[[features]]
name = "smoker"
type = "boolean"
true = ["yes"]
false = ["no"]
missing = "zero-vector"
unknown = "zero-vector"
"""
SCHEMA = Schema.from_toml(TOML)
# By column: what a cell is, and a text of that sort.
CELLS = {
    "age": {"": "50", "missing": "\u00a0", "unreadable": "1;5", "out_of_bounds": "1e99"},
    "years": {"": "70", "missing": "", "unreadable": "NaN"},
    "stage": {"": "Gene\u0300ve\u2009", "missing": "\u200b", "unknown": "GENÈVE"},
    "smoker": {"": "no\u00a0", "missing": " ", "unknown": "jein"},
    "ill": {"": "1", "missing": "", "label.missing": "2"},
}
CHOICES = {
    ("age", "missing"): "zero-vector",
    ("age", "unreadable"): "impute",
    ("age", "out_of_bounds"): "clip",
    ("years", "missing"): "impute",
    ("years", "unreadable"): "zero-vector",
    ("stage", "missing"): "impute",
    ("stage", "unknown"): "zero",
    ("smoker", "missing"): "zero-vector",
    ("smoker", "unknown"): "zero-vector",
    ("ill", "missing"): "zero-vector",
    ("ill", "label.missing"): "zero-vector",
}


def some_rows():
    """Rows with one changed cell each, in another number for each column and policy."""
    good = {column: of_column[""] for column, of_column in CELLS.items()}
    for number, (column, policy) in enumerate(CHOICES, start=1):
        yield from [{**good, column: CELLS[column][policy]}] * number
    yield good


def as_csv(directory, rows) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(CELLS))
    writer.writeheader()
    writer.writerows(rows)
    path = directory / "data.csv"
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def report_of(tmp_path, kind, rows):
    columns = {column: [row[column] for row in rows] for column in CELLS}
    if kind == "csv":
        return check(SCHEMA, as_csv(tmp_path, rows))
    table = pa.table(columns)
    if kind == "codes":
        table = pa.table({name: column.dictionary_encode() for name, column in columns_of(table)})
    return check(SCHEMA, ArrowTable(table))


def columns_of(table):
    return zip(table.column_names, table.columns, strict=True)


@pytest.mark.parametrize("kind", ["csv", "texts", "codes"])
def test_every_cell_that_a_policy_changes_is_counted_once(tmp_path, kind):
    rows = list(some_rows())
    report = report_of(tmp_path, kind, rows)
    found = Counter({(change.column, change.policy, change.choice): change.cells for change in report.changes})
    expected = Counter[tuple[str, str, str]]()
    for number, ((column, policy), choice) in enumerate(CHOICES.items(), start=1):
        key = f"label.{policy}" if column == "ill" and policy == "missing" else policy
        expected[column, key, choice] += number
    # Both policies of the label have one key.
    label = [change.cells for change in report.changes if change.column == "ill"]
    assert sorted(label) == [10, 11]
    found["ill", "label.missing", "zero-vector"] = sum(label)
    assert found == expected
    left_out = sum(change.cells for change in report.changes if change.leaves_out)
    assert report.zero_vectors == left_out < report.rows == len(rows)


def test_what_lost_most_comes_first(tmp_path):
    found = report_of(tmp_path, "csv", list(some_rows())).changes
    order = [(change.choice, change.cells) for change in found]
    assert [choice for choice, _ in order] == ["zero-vector"] * 6 + ["zero"] + ["impute"] * 3 + ["clip"]
    assert [cells for _, cells in order] == [11, 10, 9, 8, 5, 1, 7, 6, 4, 2, 3]
    assert main_cause(found) == found[0].clause
    assert main_cause(found[6:]) == ""


@pytest.mark.parametrize(
    ("cell", "alike"), [("GENÈVE", 1), ("ge\u0301nève", 0), ("Genf", 0), ("gene\u0300ve\u00a0", 1)]
)
def test_a_text_that_is_otherwise_spelled_is_said_so(tmp_path, cell, alike):
    good = {column: of_column[""] for column, of_column in CELLS.items()}
    (change,) = report_of(tmp_path, "csv", [good, good, {**good, "stage": cell}]).changes
    assert (change.cells, change.alike) == (1, alike)
    assert ("would match without case" in change.sentence) == bool(alike)
    assert cell not in change.sentence


def test_the_words_of_one_cell_and_of_several():
    one = Change("age", 1, 7, "empty", "missing", "zero-vector")
    assert one.sentence == "In column 'age' 1 of 7 cells is empty, and missing = \"zero-vector\" leaves its row out"
    two = Change("stage", 2, 7, "not among the schema's values", "unknown", "zero", alike=1)
    assert two.sentence == (
        "In column 'stage' 2 of 7 cells are not among the schema's values, and unknown = \"zero\" sets all their "
        "indicators to 0; 1 of them would match without case, blanks and Unicode form"
    )
    row = Change("age", 1, 1, "unreadable (no finite number)", "unreadable", "impute", impute="40")
    assert row.sentence == (
        "In column 'age' the cell is unreadable (no finite number), and unreadable = \"impute\" replaces it by 40"
    )
    assert why_unusable([one], rows=7, usable=6) == f"1 of 7 rows is not usable: {one.clause}"
    assert why_unusable([one], rows=7, usable=0) == f"no row is usable: {one.clause}"
    assert why_unusable([two], rows=7, usable=7) is None


@pytest.mark.parametrize(("cells", "many"), [(99, False), (100, True)])
def test_a_tenth_of_a_column_is_many(cells, many):
    assert Change("age", cells, int(1 / MANY) * 100, "empty", "missing", "impute").is_many == many


def test_tallies_of_blocks_add_up():
    tallies = (Tally("age", 1, 2, 3, 4, 5), Tally("age", 10, 20, 30, 40, 50))
    (found,) = summed([(tally,) for tally in tallies])
    assert found == Tally("age", 11, 22, 33, 44, 55)


def test_nothing_changed_is_nothing_said():
    tallies = [Tally(name) for name in ("age", "old", "stage", "smoker", "ill")]
    assert changes(SCHEMA, tallies, 10) == ()
