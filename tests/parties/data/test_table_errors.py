"""An error of a table names its place and the rule that is broken, and never quotes a cell's value."""

import gzip
import traceback

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcore.errors import DataError
from parties.data.dataset import check, load
from tests.parties.data.test_dataset import GOOD, HEADER, STRICT, ZERO, schema_with


@pytest.mark.parametrize(
    ("row", "column", "sentence"),
    [
        ("x,yes,clerk,1,yes", "age", "is not a finite number; write it in the digits 0 to 9 with a decimal point"),
        ("1_0,yes,clerk,1,yes", "age", "is not a finite number"),
        ('"1,5",yes,clerk,1,yes', "age", "is not a finite number"),
        ("0x10,yes,clerk,1,yes", "age", "is not a finite number"),
        ("NA,yes,clerk,1,yes", "age", "is not a finite number"),
        ("nan,yes,clerk,1,yes", "age", 'or set unreadable = "impute" or "zero-vector" for the feature'),
        ("inf,yes,clerk,1,yes", "age", "is not a finite number"),
        ("1e999,yes,clerk,1,yes", "age", "is not a finite number"),
        ("1,yes,clerk,-inf,yes", "pixel", "is not a finite number"),
        (
            "130,yes,clerk,1,yes",
            "age",
            'is above the schema\'s upper bound 100; set out_of_bounds = "clip" or "zero-vector", or correct the file',
        ),
        ("-0.5,yes,clerk,1,yes", "age", "is below the schema's lower bound 0"),
        (",yes,clerk,1,yes", "age", "the cell is empty"),
        ("1,,clerk,1,yes", "smoker", "the cell is empty"),
        ("1,yes,  ,1,yes", "job", "the cell is empty"),
        ("1,yes,clerk,,yes", "pixel", "the cell is empty"),
        ("1,maybe,clerk,1,yes", "smoker", "is neither in true nor in false of the schema"),
        ("1,yes,cook,1,yes", "job", "is a category that the schema does not list in values"),
        ("1,yes,clerk,1,", "ill", "there is no label"),
        ("1,yes,clerk,1,perhaps", "ill", "is in neither positive nor negative of the schema's label"),
        ("1,yes,clerk,1", None, "the row has 4 cells, but the header 5"),
        ("1,yes,clerk,1,yes,1", None, "the row has 6 cells, but the header 5"),
    ],
)
def test_a_bad_cell_is_refused_with_its_place(csv_file, row, column, sentence):
    path = csv_file(GOOD + row + "\n" + GOOD.split("\n")[1] + "\n")
    for read in (lambda: load(path, STRICT), lambda: check(STRICT, path)):
        with pytest.raises(DataError) as caught:
            read()
        error = caught.value
        assert (error.file, error.line, error.column) == (str(path), 4, column)
        assert sentence in str(error)
        assert str(error).startswith(f"{path}, line 4")


CANARY = "kanary61803398"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (GOOD + f"{CANARY},yes,clerk,1,yes\n", "data.csv"),
        (GOOD + "61803398,yes,clerk,1,yes\n", "data.csv"),
        (GOOD + "-61803398,yes,clerk,1,yes\n", "data.csv"),
        (GOOD + f"1,{CANARY},clerk,1,yes\n", "data.csv"),
        (GOOD + f"1,yes,{CANARY},1,yes\n", "data.csv"),
        (GOOD + f"1,yes,clerk,1,{CANARY}\n", "data.csv"),
        (GOOD + f"{CANARY},yes,clerk,1\n", "data.csv"),
        (GOOD + f'1,yes,"{CANARY},1,yes\n', "data.csv"),
        (GOOD + f'1,yes,{CANARY}"x"y,1,yes,"\n', "data.csv"),
        (GOOD + f"1,yes,{CANARY * (1 << 17)},1,yes\n", "data.csv"),
        (GOOD.encode() + CANARY.encode() + b"\xff,yes,clerk,1,yes\n", "data.csv"),
        (GOOD.encode() + CANARY.encode() + b"\0,yes,clerk,1,yes\n", "data.csv"),
        # Without a header the first row stands where it should be.
        (f"1,yes,{CANARY},1,yes\n2,no,nurse,1,no\n", "data.csv"),
        (f"{CANARY},{CANARY},1\n", "data.csv"),
        (f"{CANARY};yes\n", "data.csv"),
        (f"{CANARY}\n", "data.parquet"),
    ],
)
def test_no_error_quotes_a_cell(csv_file, text, name):
    """Errors end up on screens and in logs: they say only where to look and which rule is broken."""
    path = csv_file(text, name)
    for read in (lambda: load(path, STRICT), lambda: check(STRICT, path)):
        with pytest.raises(DataError) as caught:
            read()
        said = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
        assert CANARY not in said
        assert "61803398" not in said


@pytest.mark.parametrize("column", ["age", "smoker", "ill"])
def test_no_error_about_parquet_quotes_a_cell(tmp_path, column):
    path = tmp_path / "data.parquet"
    good = {"age": "1", "smoker": "yes", "job": "clerk", "pixel": "1", "ill": "no"}
    for bad in (CANARY, 61803398, [CANARY], {"x": CANARY}):
        pq.write_table(pa.table({**{name: [cell] for name, cell in good.items()}, column: [bad]}), path)
        with pytest.raises(DataError) as caught:
            load(path, STRICT)
        said = "".join(traceback.format_exception(caught.value))
        assert column in said
        assert CANARY not in said
        assert "61803398" not in said


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("name", "reader"), [("data.csv", "csv_table.pa.csv.open_csv"), ("data.parquet", "parquet_table.pq.ParquetFile")]
)
def test_what_a_reader_says_of_a_row_is_not_passed_on(csv_file, monkeypatch, name, reader):
    def quote(*_, **__):
        raise pa.ArrowInvalid(f"Row #3: {CANARY}")

    monkeypatch.setattr(f"radobase.tables.{reader}", quote)
    with pytest.raises(DataError) as caught:
        load(csv_file(GOOD, name), STRICT)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_file_that_is_written_to_while_it_is_read_is_refused(csv_file, monkeypatch):
    monkeypatch.setattr("radobase.tables.csv_table._BLOCK_BYTES", 256)
    path = csv_file(HEADER + "1,yes,clerk,1,yes\n" * 100)

    def replace(rows):
        other = path.with_name("other.csv")
        other.write_text(HEADER + "2,yes,clerk,1,yes\n" * 100)
        other.replace(path)

    with pytest.raises(DataError, match="changed while it was being read"):
        load(path, STRICT, replace)
    assert load(path, STRICT).report.rows == 100


@pytest.mark.parametrize("label", ["yes", "no"])
def test_one_row_is_a_table(csv_file, label):
    dataset = load(csv_file(HEADER + f"25,yes,clerk,1,{label}\n"), STRICT)
    assert dataset.records.rows == 1
    side = "positive" if label == "yes" else "negative"
    assert dataset.report.warnings == (
        f"the only usable row is {side}: this party can take part but cannot learn alone",
    )


def test_the_place_counts_blank_lines_quoted_breaks_and_blocks(csv_file, monkeypatch):
    text = "\n\n" + HEADER + '1,yes,"clerk",1,yes\n\n' + '1,yes,"\nnurse\n",1,yes\n' * 50 + "101,yes,clerk,1,yes\n"
    monkeypatch.setattr("radobase.tables.csv_table._BLOCK_BYTES", 100)
    with pytest.raises(DataError) as caught:
        load(csv_file(text), STRICT)
    assert caught.value.line == 6 + 150


def test_the_place_in_parquet_is_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr("radobase.tables.parquet_table._BATCH_ROWS", 3)
    path = tmp_path / "data.parquet"
    table = pa.table(
        {
            "age": [1.0] * 7 + [200.0],
            "smoker": ["yes"] * 8,
            "job": ["clerk"] * 8,
            "pixel": [1] * 8,
            "ill": ["no"] * 8,
        }
    )
    pq.write_table(table, path)
    with pytest.raises(DataError, match=r"data\.parquet, row 8, column 'age': is above the schema's upper bound 100"):
        load(path, STRICT)


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        (b"", "data.csv", "the file is empty"),
        (b"\n\n", "data.csv", "the file is empty"),
        (b"", "data.parquet", "the file is empty"),
        (HEADER, "data.csv", "a header but no rows"),
        (HEADER.strip(), "data.csv", "a header but no rows"),
        (HEADER.replace("age", "Age") + "1,yes,clerk,1,yes\n", "data.csv", "but there is 'Age'"),
        (
            HEADER.replace("pixel", "age") + "1,yes,clerk,1,yes\n",
            "data.csv",
            "columns 1 and 4 have the same header; rename one",
        ),
        (GOOD.replace(",", ";"), "data.tsv", "seems to be separated by semicolons, not tabs; name the file .csv"),
        (GOOD.replace("age,", "age;smoker|"), "data.csv", "the header has commas and semicolons and vertical bars"),
        (GOOD, "data.xlsx", "extension is unknown"),
        (GOOD, "data.parquet", "not a readable Parquet file"),
        (GOOD, "data.csv.gz", "check the file, its permissions and its compression"),
        (GOOD.encode("utf-16"), "data.csv", "not UTF-8"),
        (GOOD.replace("nurse", "nürse").encode("latin-1"), "data.csv", "not UTF-8"),
        (GOOD + f'1,yes,"{"x" * (1 << 21)}",1,yes\n', "data.csv", "a row is longer than 1 MiB"),
        (GOOD + '1,yes,"clerk,1,yes\n2,yes,clerk,1,yes\n', "data.csv", "is never closed"),
    ],
)
def test_a_file_that_is_no_table(csv_file, text, name, sentence):
    path = csv_file(text, name)
    with pytest.raises(DataError) as caught:
        load(path, STRICT)
    assert caught.value.file == str(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cut_off_gzip_file(csv_file):
    whole = gzip.compress((HEADER + "1,yes,clerk,1,yes\n2,no,nurse,3,no\n" * 1000).encode())
    with pytest.raises(DataError, match="cannot be read"):
        load(csv_file(whole[: len(whole) // 2], "data.csv.gz"), STRICT)


def test_a_file_that_is_absent_or_a_directory(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "nowhere.csv", STRICT)
    with pytest.raises(DataError, match="is a directory"):
        load(tmp_path, STRICT)


def test_a_parquet_column_of_another_type(tmp_path):
    path = tmp_path / "data.parquet"
    columns = {name: pa.array([[1.0]]) if name == "age" else ["yes"] for name in HEADER.strip().split(",")}
    pq.write_table(pa.table(columns), path)
    with pytest.raises(DataError, match=r"column 'age': the column is of type list.*convert it"):
        load(path, STRICT)


def test_a_cut_off_parquet_file(tmp_path):
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"age": [1.0]}), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match="not a readable Parquet file"):
        load(path, STRICT)


def test_a_nan_of_parquet_is_unreadable_and_a_null_is_missing(tmp_path):
    path = tmp_path / "data.parquet"
    rest = {"smoker": ["yes"], "job": ["clerk"], "pixel": [1], "ill": ["no"]}
    pq.write_table(pa.table({"age": pa.array([float("nan")]), **rest}), path)
    with pytest.raises(DataError, match="'age': is not a finite number"):
        load(path, STRICT)
    pq.write_table(pa.table({"age": pa.array([None], pa.float64()), **rest}), path)
    with pytest.raises(DataError, match="'age': the cell is empty"):
        load(path, STRICT)
    assert load(path, schema_with(real=ZERO)).report.zero_vectors == 1
