"""Texts in another form, and numbers that are none, in each kind of table: the same records and the same counts."""

import sqlite3
import unicodedata

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import DataError
from dpcore.records.schema import Schema
from parties.data.dataset import load
from parties.data.schema_draft import infer
from radobase.tables.arrow_table import ArrowTable
from radobase.tables.database_source import DatabaseSource
from radobase.tables.tables import read_rows

SCHEMA = Schema.from_toml("""
schema_version = 2
name = "stays"
texts = ["nfc", "trim"]
[label]
column = "bleibt"
positive = ["já"]
negative = ["nein"]
missing = "zero-vector"
[[features]]
name = "age"
type = "real"
lower = 0
upper = 100
missing = "impute"
impute = 40
out_of_bounds = "clip"
unreadable = "zero-vector"
[[features]]
name = "stage"
type = "category"
values = ["Genève", "Zürich"]
missing = "zero-vector"
unknown = "zero"
[[features]]
name = "smoker"
type = "boolean"
true = ["sí"]
false = ["no"]
missing = "zero-vector"
unknown = "zero-vector"
""")
PLAIN = [("50", "Genève", "sí", "já"), ("20", "Zürich", "no", "nein")]
UNREADABLE = ("abc", "1;5", "1.234,5", "inf", "-inf", "1e400", "NaN", "0x10", "1_000", "12 %", "\u2212", "?", "n/a")
OTHER_DIGITS = ("\u0663\u0665", "\uff11\uff12", "1\u0966", "\u0663.5", "\U0001d7d8")
"""Arabic-Indic, full-width, mixed with Devanagari, mathematical: Python reads all of them."""
UNREADABLE += OTHER_DIGITS


def decomposed(row):
    return tuple(unicodedata.normalize("NFD", cell) for cell in row)


def blank(row):
    return tuple(f"\u00a0{cell}\u2009\ufeff" for cell in row)


def as_csv(directory, columns):
    path = directory / "rows.csv"
    lines = [",".join(columns), *(",".join(f'"{cell}"' for cell in row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def as_parquet(directory, columns):
    pq.write_table(pa.table(columns), directory / "rows.parquet")
    return directory / "rows.parquet"


def as_coded_parquet(directory, columns):
    table = pa.table({name: pa.array(cells).dictionary_encode() for name, cells in columns.items()})
    pq.write_table(table, directory / "coded.parquet")
    return directory / "coded.parquet"


def as_frame(_, columns):
    return ArrowTable.of(pa.table(columns))


def as_views(_, columns):
    return ArrowTable.of(pa.table({name: pa.array(cells, pa.string_view()) for name, cells in columns.items()}))


def in_database(kind):
    def source(directory, columns):
        path = directory / f"rows.{kind}"
        database = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(path)
        database.execute(f"CREATE TABLE t ({', '.join(f'{name} TEXT' for name in columns)})")
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", list(zip(*columns.values(), strict=True)))
        database.commit()
        database.close()
        return DatabaseSource.of(f"{kind}:{path}", "SELECT * FROM t ORDER BY rowid")

    return source


SOURCES = {
    "csv": as_csv,
    "parquet": as_parquet,
    "coded parquet": as_coded_parquet,
    "frame": as_frame,
    "views": as_views,
    "sqlite": in_database("sqlite"),
    "duckdb": in_database("duckdb"),
}


def columns_of(rows):
    return dict(zip(("age", "stage", "smoker", "bleibt"), map(list, zip(*rows, strict=True)), strict=True))


@pytest.mark.variants(6)
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("spelled", [decomposed, blank, lambda row: blank(decomposed(row))])
def test_a_text_in_another_form_is_the_same_text(tmp_path, kind, spelled):
    expected = load(ArrowTable.of(pa.table(columns_of(PLAIN))), SCHEMA)
    assert expected.report.changes == ()
    found = load(SOURCES[kind](tmp_path, columns_of(map(spelled, PLAIN))), SCHEMA)
    assert found.records.digest == expected.records.digest
    assert found.report.changes == ()


@pytest.mark.parametrize("kind", SOURCES)
def test_no_number_stops_a_party_and_each_is_counted(tmp_path, kind):
    rows = [*PLAIN, *((cell, "Genève", "no", "nein") for cell in UNREADABLE), ("\u00a0", "Genève", "no", "nein")]
    rows.append(("\u200b7\u00a0", "Zürich", "no", "nein"))
    source = SOURCES[kind](tmp_path, columns_of(rows))
    found = load(source, SCHEMA)
    assert [(change.column, change.policy, change.cells) for change in found.report.changes] == [
        ("age", "unreadable", len(UNREADABLE)),
        ("age", "missing", 1),
    ]
    usable = found.records.usable.tolist()
    assert usable == [True] * len(PLAIN) + [False] * len(UNREADABLE) + [True, True]
    # The same in a prediction, which takes the schema's road without labels.
    read = read_rows(source, SCHEMA)
    assert read.usable.tolist() == usable
    assert read.x[-2:, 0] == pytest.approx([2 * 0.4 - 1, 2 * 0.07 - 1])


def test_a_cell_means_the_same_whatever_stands_in_the_block(tmp_path, monkeypatch):
    """Numbers before and after an unreadable one, over many blocks of a CSV: those of a table without it."""
    monkeypatch.setattr("radobase.tables.csv_table._BLOCK_BYTES", 512)
    numbers = [repr(number) for number in np.random.default_rng(1).uniform(0, 100, 300).tolist()]
    numbers[:6] = ["+5", " 7 ", "1e1", ".5", "5.", "1E-5"]
    rows = [(cell, "Genève", "no", "nein") for cell in numbers]
    expected = load(as_csv(tmp_path, columns_of(rows)), SCHEMA).records.features
    for place in (0, 150, 300):
        odd = [*rows[:place], ("abc", "Genève", "no", "nein"), *rows[place:]]
        found = load(as_csv(tmp_path, columns_of(odd)), SCHEMA).records
        assert np.delete(found.features, place, axis=0).tolist() == expected.tolist()
        assert found.usable.sum() == len(rows)


@pytest.mark.parametrize("cell", OTHER_DIGITS)
def test_digits_of_other_scripts_are_refused_by_a_sentence(cell):
    refusing = Schema.from_toml(
        'schema_version = 1\nname = "s"\n[label]\ncolumn = "y"\npositive = ["1"]\n'
        '[[features]]\nname = "age"\ntype = "real"\nlower = 0\nupper = 100\n'
    )
    with pytest.raises(DataError, match=r"'age'.*is not a finite number; write it in the digits 0 to 9"):
        load(ArrowTable.of(pa.table({"age": ["40", cell], "y": ["1", "0"]})), refusing)


def test_a_draft_says_that_numbers_are_in_other_digits():
    cells = [*("".join(chr(0x660 + int(digit)) for digit in str(number)) for number in range(20, 60)), "7"]
    table = pa.table({"age": cells, "dose": [str(0.5 * n) for n in range(41)], "y": ["1", "0"] * 20 + ["1"]})
    drafted, notes = infer(ArrowTable.of(table), "y", ["1"])
    assert [feature.name for feature in drafted.features] == ["dose"]
    said = (
        "'age' is left out: it has 40 numbers of 41 in the digits of another script; write them in the digits 0 to 9."
    )
    assert said in notes
