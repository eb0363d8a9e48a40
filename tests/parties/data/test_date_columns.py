"""A column of dates, as every source writes it, gives the same records; what is no date is an error or is counted."""

import datetime as dt
import sqlite3

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from dpcore.errors import DataError
from dpcore.records.encoding import store
from dpcore.records.features import DateFeature, Label
from dpcore.records.schema import Schema
from parties.data.dataset import load
from parties.data.schema_draft import infer
from radobase.tables.database_source import DatabaseSource
from radobase.tables.tables import as_source

FEATURE = DateFeature(
    name="day",
    first="2019-01-01",
    last="2024-12-31",
    parts=("year", "month", "weekday"),
    missing="zero-vector",
    out_of_bounds="clip",
)
SCHEMA = Schema(name="stays", label=Label(column="y", positive=("1",), negative=("0",)), features=(FEATURE,))
DAYS = [dt.date(2018, 12, 30) + dt.timedelta(at * 37) for at in range(62)]
ROWS = [None if at % 9 == 4 else day for at, day in enumerate(DAYS)]
LABELS = [at % 2 for at in range(len(DAYS))]
EXPECTED = load(as_source(pa.table({"day": [str(day or "") for day in ROWS], "y": LABELS})), SCHEMA)

TYPES = {
    "date32": pa.date32(),
    "date64": pa.date64(),
    **{f"timestamp {unit}": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
    "text": pa.string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}


def column(kind):
    days = pa.array(ROWS, pa.date32())
    return pa.array([None if day is None else str(day) for day in ROWS], kind) if kind in (
        pa.string(),
        pa.dictionary(pa.int32(), pa.string()),
    ) else days.cast(kind)  # fmt: skip


@pytest.mark.parametrize("kind", TYPES.values(), ids=TYPES)
def test_every_type_of_arrow_gives_the_same_records(tmp_path, kind):
    table = pa.table({"day": column(kind), "y": LABELS})
    assert load(as_source(table), SCHEMA).records.digest == EXPECTED.records.digest
    pq.write_table(table, tmp_path / "rows.parquet")
    assert load(tmp_path / "rows.parquet", SCHEMA).records.digest == EXPECTED.records.digest
    draft, _ = infer(as_source(table), "y", ["1"])
    assert [type(feature) for feature in draft.features] == [DateFeature]


def test_files_and_data_frames_give_the_same_records(tmp_path):
    pyarrow.csv.write_csv(pa.table({"day": column(pa.date32()), "y": LABELS}), tmp_path / "rows.csv")
    assert load(tmp_path / "rows.csv", SCHEMA).records.digest == EXPECTED.records.digest
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    frames = [
        pandas.DataFrame({"day": pandas.to_datetime(pandas.Series(ROWS)), "y": LABELS}),
        pandas.DataFrame({"day": pandas.Series(ROWS, dtype=object), "y": LABELS}),
        polars.DataFrame({"day": ROWS, "y": LABELS}, schema={"day": polars.Date, "y": polars.Int8}),
        polars.DataFrame({"day": ROWS, "y": LABELS}).with_columns(polars.col("day").cast(polars.Datetime)),
    ]
    for frame in frames:
        assert (store(SCHEMA.encode(frame).x) == EXPECTED.records.features).all()


@pytest.mark.variants(2)
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize("type_", ["DATE", "TIMESTAMP", "TEXT"])
def test_every_type_of_a_database_gives_the_same_records(tmp_path, kind, type_):
    path = tmp_path / f"stays.{kind}"
    database = sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(path)
    database.execute(f"CREATE TABLE stays (n INTEGER, day {type_}, y INTEGER)")
    texts = [None if day is None else f"{day} 00:00:00" if type_ == "TIMESTAMP" else str(day) for day in ROWS]
    database.executemany("INSERT INTO stays VALUES (?, ?, ?)", list(zip(range(len(ROWS)), texts, LABELS, strict=True)))
    database.commit()
    database.close()
    source = DatabaseSource.of(f"{kind}:{path}", "SELECT day, y FROM stays ORDER BY n")
    assert load(source, SCHEMA).records.digest == EXPECTED.records.digest


def test_missing_days_are_zero_vectors_and_others_are_clipped():
    usable = [day is not None for day in ROWS]
    assert EXPECTED.records.usable.tolist() == usable
    assert not EXPECTED.records.features[~np.array(usable)].any()
    said = "\n".join(EXPECTED.report.sentences())
    assert "column 'day' 7 of 62 cells are empty" in said
    assert "are beyond the schema's bounds" in said


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (pa.array(["2020-01-01", "31.12.2020", "1.1.2021"]), "99.99.9999 (1), 9.9.9999 (1)"),
        (pa.array([20200101, 20201231, 5]), "99999999 (2), 9 (1)"),
        (pa.array([18_000.5, 3.0, 4.0]), "99999.9 (1), 9 (2)"),
        (pa.array([True, False, True]), "aaaa (1), aaaaa (1)"),
        (pa.array([1 << 60] * 3, pa.timestamp("s")), "by form: <aaaaa aaa aa aaaaa:..."),
        (pa.array([0, 1, 2], pa.timestamp("s", tz="UTC")), "9999-99-99 99:99:99+..."),
        (pa.array([0, 1, 2], pa.time32("s")), "99:99:99"),
    ],
)
def test_what_is_no_date_is_an_error_that_counts_and_shows_the_form(cells, form):
    feature = DateFeature(name="day", first="1960-01-01", last="2024-12-31")
    schema = Schema(name="s", label=SCHEMA.label, features=(feature,))
    with pytest.raises(DataError) as refused:
        load(as_source(pa.table({"day": cells, "y": [0, 1, 0]})), schema)
    message = str(refused.value)
    assert "is not a date; write year, month and day, such as 2024-12-31" in message
    assert form.split(",")[0] in message


def test_the_day_of_a_time_counts_whatever_its_hour():
    times = pa.array([None if day is None else dt.datetime.combine(day, dt.time(23, 59, 59, 999_999)) for day in ROWS])
    assert load(as_source(pa.table({"day": times, "y": LABELS})), SCHEMA).records.digest == EXPECTED.records.digest
    nanoseconds = pa.array([None if day is None else f"{day} 12:00:00.123456789" for day in ROWS])
    found = load(as_source(pa.table({"day": nanoseconds.cast(pa.timestamp("ns")), "y": LABELS})), SCHEMA)
    assert found.records.digest == EXPECTED.records.digest
