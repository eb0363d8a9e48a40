"""Drafted features: texts that are nearly numbers, codes, ids and indexes, each with a note that counts the cells."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import ConfigurationError
from dpcore.records.features import DateFeature
from dpcore.records.schema import BooleanFeature, CategoryFeature, RealFeature
from parties.data.schema_draft import infer
from radobase.tables.tables import as_source

ROWS = 300
NUMBERS = [f"{place * 7 % 291 / 10 + 1}" for place in range(ROWS)]


def drafted(tmp_path, cells, *, name="x", bounded=()):
    """The feature of a column, None if it is left out, and all notes but the first."""
    path = tmp_path / "data.csv"
    rows = [f'"{cell}";{place * 5 % 17};{place % 2}' for place, cell in enumerate(cells)]
    path.write_text("\n".join([f"{name};other;y", *rows, ""]), encoding="utf-8")
    schema, notes = infer(path, "y", ["1"], bounded=bounded)
    return {feature.column: feature for feature in schema.features}.get(name), "\n".join(notes[1:])


def turn(*texts):
    return [texts[place % len(texts)] for place in range(ROWS)]


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ([number.replace(".", ",") for number in NUMBERS], "300 numbers of 300 with a comma"),
        (turn("1.250", "950", "12.500", "3.120"), "225 numbers of 300 with a point before three digits"),
        (turn("1.250.000", "950", "12.500"), "100 numbers of 300 with separators of thousands"),
        (turn("1'250", "950", "12'500"), "200 numbers of 300 with separators of thousands"),
        (turn("1\u00a0250", "950", "12\u00a0500"), "200 numbers of 300 with separators of thousands"),
        (turn("1.250,50", "950", "12,5"), "200 numbers of 300 with a comma"),
        (turn("12 mg", "15 mg", "9.5 mg"), "300 numbers of 300 with the unit 'mg'"),
        (turn("31.1.2024", "1.12.2023", "02.02.2024"), "300 dates or times, none of them written as 2024-12-31"),
        (turn("2024-01-31", "1.12.2023", "2024-02-02"), "300 dates or times, 200 of them written as 2024-12-31"),
        (turn("2024-01-31T10:00Z", "2024-02-02T11:00+01:00"), "300 dates or times, none of them written as 2024-12-31"),
        (turn("31-OCT-2023", "1 Jan 2024", "Feb 3, 2024"), "300 dates or times"),
        (turn("20240131", "20231201", "20240202"), "300 dates or times"),
        (
            [f"+4930{place * 7919 % 99991:06d}" for place in range(ROWS)],
            "300 numbers of 300 with a leading zero, a plus",
        ),
        ([f"{10**17 + place * 7919 % 99991}" for place in range(ROWS)], "over 15 digits"),
        ([f"{place * 7 % ROWS:06d}" for place in range(ROWS)], "its 300 whole numbers all differ"),
        ([str(9000 + place * 7 % ROWS) for place in range(ROWS)], "its 300 whole numbers all differ"),
        ([f"{place * 7 % ROWS:08x}-1111-4222-8333-444444444444" for place in range(ROWS)], "its 300 texts are UUIDs"),
        ([f"p{place}" for place in range(ROWS)], "every row has a different text, as an id has (300 rows)"),
        (turn("5", "NA"), "its 150 numbers are all 5, beside 150 other cells"),
        (turn(*NUMBERS[:40], *(f"no result {place}" for place in range(20))), "200 numbers and 100 other texts"),
    ],
)
def test_a_column_that_is_nearly_numbers_is_left_out_with_a_count(tmp_path, cells, says):
    feature, notes = drafted(tmp_path, cells)
    assert feature is None
    assert f"'x' is left out: it has {says}" in notes or f"'x' is left out: {says}" in notes or says in notes


@pytest.mark.parametrize("name", ["Unnamed: 0", "Unnamed: 0.1", "__index_level_0__"])
def test_an_index_of_pandas_is_left_out(tmp_path, name):
    feature, notes = drafted(tmp_path, [str(place * 100_003 % 999_983) for place in range(ROWS)], name=name)
    assert feature is None
    assert f"{name!r} is left out: pandas wrote its 300 cells" in notes


def test_a_name_says_that_numbers_are_ids_and_bounds_say_that_they_are_numbers(tmp_path):
    persons = [str(place * place % 211) for place in range(ROWS)]
    feature, notes = drafted(tmp_path, persons, name="patient_id")
    assert feature is None
    assert "its name says that it is an id" in notes
    assert isinstance(drafted(tmp_path, persons, name="covid")[0], RealFeature)
    assert isinstance(drafted(tmp_path, persons, name="patient_id", bounded=("patient_id",))[0], RealFeature)


@pytest.mark.parametrize(
    ("cells", "kind", "policy", "says"),
    [
        (["#N/A", *NUMBERS[1:]], RealFeature, "impute", "299 numbers and '#N/A' (1): such cells are imputed"),
        (["<0.5", *NUMBERS[1:]], RealFeature, "zero-vector", "299 numbers and 1 other text (the first in line 2)"),
        (["<0.5", "NA", *NUMBERS[2:]], RealFeature, "zero-vector", "298 numbers and 'NA' (1), 1 other text"),
        (["7,5", *NUMBERS[1:]], RealFeature, "zero-vector", "299 numbers and 1 other text"),
        (turn("0", "1", "NA"), BooleanFeature, "impute", "200 numbers and 'NA' (100): such cells are imputed"),
        (["x", *turn("0", "1")[1:]], BooleanFeature, "zero-vector", "299 numbers and 1 other text"),
        (turn("0", "1", "1.0"), BooleanFeature, "zero-vector", "'1' (100 cells), '1.0' (100)"),
        (turn("yes", "no", "NA", "Yes"), BooleanFeature, "impute", "'NA' (75 cells)"),
        (turn("a", "b", "?", "c"), CategoryFeature, "zero", "'?' (75 cells), a mark for a missing value"),
        (
            turn("no", "yes", "unknown"),
            CategoryFeature,
            "zero",
            "'unknown' (100 cells), which may mark a missing value",
        ),
        (turn("Bern", "BERN", "Biel", "Chur"), CategoryFeature, "zero", "'BERN' (75 cells), 'Bern' (75)"),
        (turn("01067", "80331", "10115"), CategoryFeature, "zero", "100 numbers of 300 with a leading zero"),
        (turn("0", "1", "2", "3+"), CategoryFeature, "zero", "225 numbers and 75 other texts"),
        (turn("5.125", "6.250", "7.001"), RealFeature, "zero-vector", "300 numbers of 300 with a point before three"),
        (turn("1E5", "2E3", "3E7"), RealFeature, "zero-vector", "300 cells of 300 written as 1E5 is"),
        ([str(place * 1_000_003 % 99_999_989) for place in range(ROWS)], RealFeature, "zero-vector", "all differ"),
    ],
)
def test_a_guess_is_said_with_counts(tmp_path, cells, kind, policy, says):
    feature, notes = drafted(tmp_path, cells)
    assert isinstance(feature, kind)
    assert (feature.unreadable if kind is RealFeature else feature.unknown) == policy
    assert says in notes


def test_a_mark_in_a_category_stands_for_empty_cells_too(tmp_path):
    feature, _ = drafted(tmp_path, turn("a", "b", "?", "c", ""))
    assert feature.values == ("?", "a", "b", "c")
    assert (feature.missing, feature.impute) == ("impute", "?")


def test_the_error_without_any_feature_has_the_reasons(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a;b;y\n" + "".join(f"1;{place},5;{place % 2}\n" for place in range(30)), encoding="utf-8")
    with pytest.raises(ConfigurationError) as refused:
        infer(path)
    assert "'a' is left out: it is constant (30 cells)" in str(refused.value)
    assert "'b' is left out: it has 30 numbers of 30 with a comma" in str(refused.value)


def test_the_index_of_a_frame_or_of_a_parquet_file_is_no_feature(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"age": [place * 7 % 91 for place in range(ROWS)], "y": [place % 2 for place in range(ROWS)]}
    )
    taken = frame.sample(200, random_state=1)
    for indexed, name in ((taken, "__index_level_0__"), (taken.rename_axis("patient"), "patient")):
        indexed.to_parquet(tmp_path / "data.parquet")
        for source in (tmp_path / "data.parquet", tmp_path, as_source(indexed)):
            schema, notes = infer(source, "y", ["1"])
            assert [feature.column for feature in schema.features] == ["age"]
            assert any(repr(name) in note for note in notes)


def test_texts_of_a_polars_frame_are_drafted_as_others_are():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"x": ["NA", *NUMBERS[1:]], "c": turn("a", "b", "?", "c"), "y": turn("yes", "no", "NA")})
    schema, notes = infer(as_source(frame), "y", ["yes"])
    assert [type(feature) for feature in schema.features] == [RealFeature, CategoryFeature]
    assert schema.label.negative == ("no",)
    assert any("'x' has 299 numbers and 'NA' (1)" in note for note in notes)


def test_typed_columns_are_drafted_by_their_types(tmp_path):
    """Numbers of a typed column are never codes; dates are dates, and NaN is a missing number."""
    days = pa.array([19_000 + place % 20 for place in range(ROWS)], pa.int32()).cast(pa.date32())
    columns = {
        "day": days,
        "size": pa.array([float("nan") if place % 9 == 0 else place % 50 / 4 for place in range(ROWS)]),
        "flag": pa.array([place % 3 == 0 for place in range(ROWS)]),
        "y": pa.array([place % 2 for place in range(ROWS)]),
    }
    pq.write_table(pa.table(columns), tmp_path / "data.parquet")
    schema, notes = infer(tmp_path / "data.parquet", "y", ["1"])
    assert [(feature.column, type(feature)) for feature in schema.features] == [
        ("day", DateFeature),
        ("size", RealFeature),
        ("flag", BooleanFeature),
    ]
    said = "\n".join(notes)
    assert "'day' has 300 dates: the draft bounds them by 2022-01-01 and 2022-01-31, whole months" in said
    assert "'size' has 266 numbers and 'nan' (34)" in said


DAYS = [f"{2019 + place % 4}-{place % 12 + 1:02}-{place % 28 + 1:02}" for place in range(ROWS)]


@pytest.mark.parametrize(
    ("cells", "missing", "unreadable", "says"),
    [
        (DAYS, "zero-vector", "zero-vector", "'x' has 300 dates: the draft bounds them by 2019-01-01 and 2022-12-31"),
        (["", *DAYS[1:]], "impute", "zero-vector", "missing cells (1): the draft imputes the median, 2021-0"),
        (["NA", *DAYS[1:]], "impute", "impute", "has dates and 'NA' (1): such cells are imputed like empty"),
        (["soon", *DAYS[1:]], "zero-vector", "zero-vector", "has dates and 1 other text: such rows become zero"),
        (["NA", "soon", *DAYS[2:]], "zero-vector", "zero-vector", "'NA' (1), 1 other text: such rows become"),
        ([f"{day} 10:30" for day in DAYS], "zero-vector", "zero-vector", "has 300 times of day: only the day"),
        ([f"{day} 00:00:00" for day in DAYS], "zero-vector", "zero-vector", "'x' has 300 dates"),
    ],
)
def test_a_column_of_dates_is_drafted_with_counts(tmp_path, cells, missing, unreadable, says):
    feature, notes = drafted(tmp_path, cells)
    assert isinstance(feature, DateFeature)
    assert (feature.missing, feature.unreadable, feature.out_of_bounds) == (missing, unreadable, "clip")
    assert (feature.impute is not None) == (missing == "impute")
    assert (feature.first, feature.last, feature.parts) == ("2019-01-01", "2022-12-31", ())
    assert says in notes
    assert ("times of day" in notes) == ("10:30" in cells[0])


def test_given_bounds_of_dates_are_no_quantiles(tmp_path):
    _, notes = drafted(tmp_path, DAYS, bounded=("x",))
    assert "bounds them by" not in notes


def test_the_last_month_that_there_is(tmp_path):
    feature, _ = drafted(tmp_path, turn("9999-12-31", "9999-12-01", "9998-11-30"))
    assert (feature.first, feature.last) == ("9998-11-01", "9999-12-31")
