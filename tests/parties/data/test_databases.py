"""A party's rows from SQLite and DuckDB files: records and errors as of a Parquet file; read-only; missing extras."""

import sqlite3
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.held_back import RowKey
from dpcore.records.schema import Schema
from parties.data.dataset import check, load
from parties.data.schema_draft import infer
from radobase.tables.database_source import DatabaseSource
from radobase.tables.database_table import DatabaseTable
from radobase.tables.tables import open_table

TOML = """
schema_version = 1
name = "clinic"
[label]
column = "ill"
positive = ["1"]
negative = ["0"]
[[features]]
name = "age"
type = "real"
lower = 0.0
upper = 100.0
missing = "zero-vector"
[[features]]
name = "dose"
type = "category"
values = ["0.1", "2", "none"]
missing = "zero-vector"
unknown = "zero"
"""
CLINIC = Schema.from_toml(TOML)
OTHER_VERSION = TOML.replace("schema_version = 1", "schema_version = 2\ntexts = []")
REFUSING = Schema.from_toml(OTHER_VERSION.replace('type = "real"', 'type = "real"\nunreadable = "refuse"'))
KEY = RowKey(bytes(range(32)), "clinics", "north", "data")
ROWS = [("p1", 25.25, 0.1, 1), ("p2", 50, 2.0, 0), ("p3", None, 0.1, 1), ("p4", 1 / 3, None, 0)]
QUERY = "SELECT * FROM patients ORDER BY id;  "
KINDS = ("sqlite", "duckdb")


def as_parquet(path, rows):
    columns = zip(*rows, strict=True)
    pq.write_table(pa.table(dict(zip(("id", "age", "dose", "ill"), map(list, columns), strict=True))), path)
    return path


def filled(tmp_path, kind, rows, query=QUERY, *, age="DOUBLE", dose="DOUBLE"):
    """A source with a table of these rows, and one of names that no schema reads."""
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / f"a b%.{kind}"
    database = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(path)
    database.execute(f'CREATE TABLE patients (id TEXT, age {age}, dose {dose}, ill INTEGER, "full ""name" TEXT)')
    database.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, 'Ada')", rows)
    database.commit()
    database.close()
    return DatabaseSource.of(f"{kind}:{path}", query)


@pytest.mark.parametrize("kind", KINDS)
def test_a_database_gives_the_records_and_ids_of_a_file(tmp_path, kind):
    expected = load(as_parquet(tmp_path / "rows.parquet", ROWS), CLINIC, row_key=KEY, id_column="id")
    found = load(filled(tmp_path, kind, ROWS), CLINIC, row_key=KEY, id_column="id")
    assert found.records.digest == expected.records.digest
    assert found.numbers.by_id.tolist() == expected.numbers.by_id.tolist()
    assert found.report.sentences()[0].endswith("4 rows, 1 positive, 1 negative")
    assert (found.report.rows, found.report.zero_vectors) == (4, 2)
    draft, _ = infer(found_source(tmp_path, kind), "ill", name="x")
    assert [feature.name for feature in draft.features] == ["id", "age", "dose"]


def found_source(tmp_path, kind, query=QUERY):
    return DatabaseSource.of(f"{kind}:a b%.{kind}", query, directory=tmp_path)


def test_a_cell_of_sqlite_has_its_own_type(tmp_path):
    """The driver takes a column's type from its first rows: here nothing, then whole numbers, fractions and texts."""
    doses = [None] * 20_000 + [2, 2.0, 0.1, 1e300, -0.0, 0.1 + 0.2, 2**60, "none", " 2 "]
    source = filled(tmp_path, "sqlite", [(f"{n:05}", 1, dose, 0) for n, dose in enumerate(doses)], dose="")
    batches = list(open_table(source).batches(["dose"]))
    found = [cell for batch in batches for cell in batch.column("dose").to_pylist()]
    assert len(batches) > 1
    assert set(found[:20_000]) == {""}
    assert found[20_000:] == ["2", "2", "0.1", "1e+300", "0", "0.30000000000000004", str(2**60), "none", " 2 "]


@pytest.mark.variants(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_an_id_is_left_out_and_stops_no_party(tmp_path, kind):
    ordered = "SELECT * FROM patients ORDER BY age"
    rows = [("p1", 1, 1.0, 1), (None, 2, 1.0, 1), ("", 3, 1.0, 0), ("p4", 4, 1.0, 0)]
    source = filled(tmp_path, kind, rows, ordered)
    found = load(source, CLINIC, row_key=KEY, id_column="id")
    assert found.records.usable.tolist() == [True, False, False, True]
    assert not found.records.features[1:3].any()
    assert found.records.labels[1:3].tolist() == [1, 1]
    change = found.report.changes[0]
    assert change.sentence == "In column 'id' 2 of 4 cells are empty, and their rows are left out"
    assert f"2 of 4 rows (50.0 %) become zero vectors: {change.clause}" in found.report.warnings
    assert (found.report.positive, found.report.negative) == (1, 1)
    assert check(CLINIC, source, id_column="id") == found.report
    # Who is held back does not depend on the rows that are left out.
    alone = load(filled(tmp_path / "other", kind, [rows[0], rows[3]], ordered), CLINIC, row_key=KEY, id_column="id")
    assert found.numbers.by_id[[0, 3]].tolist() == alone.numbers.by_id.tolist()


@pytest.mark.variants(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "query", "says", "place"),
    [
        ([], QUERY, "the query returns no row", (None, None)),
        (ROWS, "SELECT * FROM patient", "refuses the query .*patient", (None, None)),
        (ROWS, "SELECT id, age AS Age, dose, ill FROM patients", "but there is 'Age'", (None, "age")),
        (ROWS, "SELECT 1; SELECT 2", "refuses the query", (None, None)),
        (
            ROWS,
            "SELECT id, age, dose, ill + 1 AS ill FROM patients ORDER BY id",
            "neither positive nor negative",
            (1, "ill"),
        ),
        (ROWS, "SELECT id, 'secret' AS age, dose, ill FROM patients", "is not a finite number", (1, "age")),
    ],
    ids=["empty", "no table", "no column", "two statements", "unlisted", "a text"],
)
def test_errors_name_the_row_and_the_column(tmp_path, kind, rows, query, says, place):
    source = filled(tmp_path, kind, rows or [("x", 1, 1, 1)], query)
    if not rows:
        source = found_source(tmp_path, kind, "SELECT * FROM patients WHERE age > 5")
    for read in (
        lambda: load(source, REFUSING, row_key=KEY, id_column="id"),
        lambda: check(REFUSING, source, id_column="id"),
    ):
        with pytest.raises(DataError, match=says) as caught:
            read()
        assert "secret" not in str(caught.value)
        if place != (None, None):
            assert (caught.value.row, caught.value.column) == place


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("statement", ["DELETE FROM patients", "CREATE TABLE copies (x INTEGER)"])
def test_a_session_cannot_write(tmp_path, kind, statement):
    source = filled(tmp_path, kind, ROWS)
    table = DatabaseTable(source)
    with pytest.raises(DataError, match="refuses the query"):
        DatabaseTable(found_source(tmp_path, kind, statement))
    with pytest.raises(DataError, match="the session is read-only"):
        list(table._read(lambda session: session.batches(statement)))
    assert check(CLINIC, source).rows == 4


def test_a_text_of_sqlite_that_is_not_utf_8_is_refused(tmp_path):
    source = filled(tmp_path, "sqlite", [("p1", 1, b"\xff\xfe", 1)], dose="")
    with pytest.raises(DataError, match="not UTF-8"):
        load(source, CLINIC)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_no_database_is_refused(tmp_path, kind):
    with pytest.raises(DataError, match="check its path and permissions"):
        load(found_source(tmp_path, kind), CLINIC)
    as_parquet(tmp_path / f"a b%.{kind}", ROWS * 100)
    with pytest.raises(DataError, match=r"not a database|is a DuckDB file"):
        load(found_source(tmp_path, kind), CLINIC)


@pytest.mark.parametrize(
    ("kind", "module", "extra"),
    [
        ("sqlite", "adbc_driver_sqlite", "sqlite"),
        ("duckdb", "duckdb", "duckdb"),
        ("postgresql", "adbc_driver_postgresql", "postgresql"),
    ],
)
def test_a_missing_extra_is_named(tmp_path, monkeypatch, kind, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    source = DatabaseSource.of("postgresql://host/db", QUERY)
    if kind != "postgresql":
        source = filled(tmp_path, kind, ROWS) if kind == "sqlite" else found_source(tmp_path, kind)
        (tmp_path / f"a b%.{kind}").touch()
    with pytest.raises(ConfigurationError, match=rf"{module} is not installed: install radofed\[{extra}\]"):
        open_table(source)


def test_integers_of_128_bits_are_read_and_larger_ones_are_named(tmp_path):
    """DuckDB's HUGEINT arrives as a decimal of 38 digits, and has up to 39."""
    wide = "SELECT id, (20 + rowid)::HUGEINT AS age, dose, ill::UHUGEINT AS ill FROM patients"
    found = load(filled(tmp_path, "duckdb", ROWS, wide), CLINIC)
    assert found.report.rows == 4
    beyond = "SELECT id, 170141183460469231731687303715884105727::HUGEINT AS age, dose, ill FROM patients"
    with pytest.raises(
        DataError, match=r"'age': holds a number beyond its type decimal.* such as by CAST\(\.\.\. AS DOUBLE"
    ):
        load(found_source(tmp_path, "duckdb", beyond), CLINIC)
