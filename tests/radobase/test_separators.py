"""The separator of a CSV file is that of its header, and no row changes how the file is read."""

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpcore.errors import DataError
from dpcore.records.encoding import WantedColumn
from parties.data.dataset import load
from radobase.tables.csv_table import SEPARATORS
from radobase.tables.tables import open_table, read_blocks
from tests.federation.material import STAYS

ROWS = "age,smoker,stayed\n41,yes,no\n20.5,no,yes\n"


def opened(tmp_path, text, name="rows.csv"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return open_table(path)


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz"])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_parties_with_one_schema_and_other_separators_hold_the_same_records(tmp_path, separator, name):
    table = opened(tmp_path, ROWS.replace(",", separator), name)
    assert (table.columns, table.delimiter) == (("age", "smoker", "stayed"), separator)
    found, usual = load(table.path, STAYS), load(opened(tmp_path, ROWS, "usual.csv").path, STAYS)
    assert np.array_equal(found.records.features, usual.records.features)
    assert np.array_equal(found.records.labels, usual.records.labels)


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("age\n", ("age",)),
        ("\n\nage;smoker\n", ("age", "smoker")),
        ("\ufeffage|smoker\n", ("age", "smoker")),
        ('"age, in years";smoker\n', ("age, in years", "smoker")),
        ('age,"weight;mass (kg|lb)"\n', ("age", "weight;mass (kg|lb)")),
        ('"said ""yes;no""",age\n', ('said "yes;no"', "age")),
        ('"two\nlines;more",age\n', ("two\nlines;more", "age")),
        # A quotation mark within a cell is a character.
        ('6" pipe;age\n', ('6" pipe', "age")),
    ],
)
def test_the_separator_is_found_outside_quotes(tmp_path, header, columns):
    assert opened(tmp_path, header + "1\n").columns == columns


@pytest.mark.parametrize(
    "header", ["age,smoker;sex", "age;smoker,sex", "age\tsmoker|sex", "age (years|months),smoker", "a;b\tc,d|e"]
)
def test_two_separators_are_an_error_whose_advice_works(tmp_path, header):
    with pytest.raises(DataError, match=r"put each column's name that contains one in double quotes, or rename it"):
        opened(tmp_path, header + "\n1,2\n")
    quoted = '"age (years|months)",smoker\n1,no\n'
    assert opened(tmp_path, quoted).columns == ("age (years|months)", "smoker")


def test_a_tsv_has_tabs_whatever_its_header_says(tmp_path):
    assert opened(tmp_path, "age, in years\tsmoker\n1\tno\n", "rows.tsv").columns == ("age, in years", "smoker")
    with pytest.raises(DataError, match="not tabs; name the file"):
        opened(tmp_path, "age;smoker\n1;no\n", "rows.tsv")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    separator=st.sampled_from(sorted(SEPARATORS)),
    rows=st.text(st.sampled_from(',;\t|x1." \n'), max_size=60),
)
def test_no_row_decides_how_the_header_is_read(tmp_path, separator, rows):
    header = separator.join(("age", "smoker", "sex")) + "\n"
    # A mark that is never closed is refused; otherwise the rows say nothing.
    closed = rows if rows.count('"') % 2 == 0 else rows.replace('"', "")
    table = opened(tmp_path, header + closed)
    assert (table.delimiter, table.columns) == (separator, ("age", "smoker", "sex"))


def test_a_header_of_any_length_is_read_once(tmp_path):
    # Quadratic work would take hours here.
    table = opened(tmp_path, ",".join(['"\n\n\n\n"'] * 120_000) + ",b\n1\n")
    assert (len(table.columns), table.columns[-1]) == (120_001, "b")


@pytest.mark.parametrize("begin", ["sep=;\r\n", '"sep=;"\n', "\ufeffsep=;\n", "sep=;\n\n"])
@pytest.mark.parametrize("name", ["data.csv", "data.tsv", "data.csv.gz"])
def test_a_first_line_that_states_the_separator_is_read_as_spreadsheets_read_it(tmp_path, begin, name):
    path = tmp_path / name
    text = f"{begin}age;city\n30;Bern, old\n60;\n"
    path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    table = open_table(path)
    assert table.columns == ("age", "city")
    (block,) = read_blocks(table, [WantedColumn("age", "numbers"), WantedColumn("city", "texts")])
    assert block.cells[WantedColumn("age", "numbers")].values.tolist() == [30, 60]
    assert block.cells[WantedColumn("city", "texts")].texts[0] == "Bern, old"
    # Lines are counted from the first of the file.
    assert table.error("", row=1).line == begin.count("\n") + 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sep=:\na:b\n1:2\n", "states a separator that is none of commas, semicolons"),
        ("# export of 2026\na,b\n1,2\n", "the header has 1 cells, and the first row 2; delete the lines before"),
        ("UTF-8\na,b\n1,2\n", "the header has 1 cells, and the first row 2; delete the lines before"),
    ],
)
def test_another_first_line_is_said_to_be_the_trouble(tmp_path, text, says):
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=says):
        open_table(path)


def test_a_header_may_begin_with_a_number_sign(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("#id,a\n1,2\n")
    assert open_table(path).columns == ("#id", "a")
