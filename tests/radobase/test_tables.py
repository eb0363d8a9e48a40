"""Blocks of a table: fast reading gives the values of the texts, in order, with the first error, in bounded memory."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpcore.errors import DataError
from dpcore.numbers.processors import processors
from dpcore.records.encoding import CellError, WantedColumn
from dpcore.records.schema import CategoryFeature, Label, RealFeature, Schema
from radobase.tables import csv_table, parquet_table
from radobase.tables.tables import encoded_blocks, numbers, open_table, read_blocks, texts

X, Z = WantedColumn("x", "numbers"), WantedColumn("z", "texts")

ODD_CELLS = """+1|+ 1|++1|+-1|-+1|- 1| 1|1 |\t1|1\t|  -2.5e3 |" 3"|"3 "|"+3"|"1\n"|"\n1"|"\r\n1"|""|" "|" ""|  |-0|-0.0
0e0|1.|.5|-.5|.|-|+|e5|1e|1e+|1e3|1E+05|1e-400|1e400|-1e400|4.9e-324|2e-324|2.2250738585072011e-308|1e22|1e23|9007199254740993
inf|-inf|+inf|INF|Infinity|-infinity|infin|nan|-nan|+nan|NaN|nan(1)|nan()|NA|null|None|true|1_0|_1|0x10|0x1p3|1p3|1d5|1f|1L
"1,5"|1.5,0|1 000|1'000|1 2|1e5 5|1\x0b|1\x0c|1\x00|1\u00a0|\u00a01|\u20091|\u0661\u0662|\uff11|\u22121|1\ufeff
1/2|1%|$1|00012|-007|123456789012345678901234567890|0.1000000000000000055511151231257827|0.30000000000000000000000000000000000000000000000000004
179769313486231570814527423731704356798070567525844996598917476803157260780028538760589558632766878171540458953514382464234
""".replace("\n", "|").split("|")

cell = st.one_of(
    st.sampled_from(ODD_CELLS),
    st.floats().map(repr),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.6f}"),
    st.integers().map(str),
    st.tuples(st.text("0123456789", min_size=1, max_size=40), st.text("0123456789", max_size=900)).map(".".join),
    st.text("0123456789+-.eE_ \tnaif", max_size=6),
)


def as_read(table, fast):
    """Everything observable: bits of the values, missing cells, and the error with its row."""
    seen, rows = [], 0
    try:
        for batch in table.batches(["x"], numbers=["x"] if fast else []):
            cells = numbers(batch.column("x"), "x")
            values = np.where(cells.missing, 0.0, cells.values)
            # All NaN are refused in the same way, with any bits.
            seen += zip(
                np.where(np.isnan(values), np.nan, values).view(np.int64).tolist(), cells.missing.tolist(), strict=True
            )
            rows += batch.num_rows
    except CellError as error:
        return seen, rows + error.row, error.sentence
    except DataError as error:
        return seen, error.line, str(error)
    return seen, rows, None


@pytest.mark.more
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-99, 99).map(str), max_size=40), st.lists(cell, min_size=1, max_size=6), st.booleans())
def test_numbers_parsed_at_once_are_those_parsed_from_texts(tmp_path, monkeypatch, before, odd, two_columns):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 2048)
    path = tmp_path / "data.csv"
    cells = [*before, *odd, *before[:3]]
    path.write_text("".join(f"{text},t\n" if two_columns else f"{text}\n" for text in ["x", *cells]), encoding="utf-8")
    try:
        table = open_table(path)
    except DataError:  # a quotation mark that never closes
        return
    assert as_read(table, fast=True) == as_read(table, fast=False)


@pytest.mark.variants(20)
@pytest.mark.parametrize("text", [text for text in ODD_CELLS if text])
def test_each_odd_number_after_many_blocks(tmp_path, monkeypatch, text):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 1024)
    path = tmp_path / "data.csv"
    rows = [f"{place / 7}" for place in range(200)]
    path.write_text("".join(f"{cell},t\n" for cell in ["x", *rows, text, *rows]), encoding="utf-8")
    if text.count('"') % 2:
        return
    table = open_table(path)
    expected = as_read(table, fast=False)
    assert as_read(table, fast=True) == expected
    assert len(expected[0]) > 100


def test_plain_numbers_come_as_doubles_and_a_refused_block_as_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 256)
    path = tmp_path / "data.csv"
    path.write_text("x\n" + "1.5\n" * 200 + '" "\n' + "1.5\n" * 200, encoding="utf-8")
    kinds = [(batch.column("x").type, batch.num_rows) for batch in open_table(path).batches(["x"], numbers=["x"])]
    assert sum(rows for _, rows in kinds) == 401
    assert [kind for kind, _ in kinds[:2]] == [pa.float64()] * 2
    assert [kind for kind, _ in kinds[-2:]] == [pa.string()] * 2


trimmable = st.text(st.sampled_from("ab \t\n\u00a0"), max_size=3)


@given(st.lists(st.none() | trimmable, min_size=1, max_size=6), st.data())
def test_coded_texts_are_those_of_the_plain_column(dictionary, data):
    indices = data.draw(st.lists(st.none() | st.integers(0, len(dictionary) - 1), max_size=12))
    first = data.draw(st.integers(0, 3))
    coded = pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(dictionary, pa.string()))[first:]
    found, expected = texts(coded, "z"), texts(coded.dictionary_decode(), "z")
    assert found.texts == expected.texts
    assert found.codes.tolist() == expected.codes.tolist()


def spelled(parts):
    return [("", *cells.texts)[code + 1] for cells in parts for code in cells.codes.tolist()]


@pytest.mark.parametrize("coded", [False, True])
def test_a_parquet_text_that_is_not_utf_8_is_refused(tmp_path, coded):
    """Arrow takes it as it is."""
    column = pa.array([b"yes", b"\x9f"]).view(pa.string())
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"age": [1.0, 2.0], "smoker": column}), path)
    table = open_table(path)
    assert [batch.num_rows for batch in table.batches(["age"])] == [2]
    with pytest.raises(DataError, match="column 'smoker': holds a text that is not UTF-8"):
        list(table.batches(["age", "smoker"], coded=["smoker"] if coded else []))


def test_a_parquet_code_without_a_value_is_refused(tmp_path):
    """A damaged file gave such a column, which fuzzing found. Decoding it would read beyond the values."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"smoker": ["yes"]}), path)
    table = parquet_table.ParquetTable(str(path))
    for codes, values in (([0], []), ([0, 2], ["yes", "no"]), ([-1], ["yes"])):
        column = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values, pa.string()), safe=False)
        with pytest.raises(DataError, match=r"column 'smoker': .* a code without a value"):
            table._check(pa.record_batch({"smoker": column}))


def test_coded_texts_of_parquet_are_those_of_its_plain_column(tmp_path):
    random = np.random.default_rng(4)
    values = [None if place % 7 == 0 else f" t{place % 11} " for place in random.integers(0, 99, 5000).tolist()]
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({" z ": values, "x": random.random(5000)}), path, row_group_size=1500)
    table = open_table(path)
    coded = [texts(batch.column("z"), "z") for batch in table.batches(["x", "z"], coded=["z"])]
    plain = [texts(batch.column("z"), "z") for batch in table.batches(["x", "z"])]
    assert pa.types.is_dictionary(next(table.batches(["z"], coded=["z"])).column("z").type)
    assert spelled(coded) == spelled(plain)
    assert spelled(plain)[:20] == [(value or "").strip() for value in values[:20]]


def test_a_column_wanted_in_both_ways_is_returned_in_both(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x\n01\n1\n\n", encoding="utf-8")
    (block,) = read_blocks(open_table(path), [X, WantedColumn("x", "texts")])
    assert block.cells[X].values[:2].tolist() == [1.0, 1.0]
    assert block.cells[WantedColumn("x", "texts")].texts == ("01", "1", "")


REFUSING = Schema(
    name="refusing",
    label=Label(column="y", positive=("1",)),
    features=(RealFeature(name="x", lower=0, upper=9), CategoryFeature(name="z", values=("t",))),
)
BAD = {
    "cell": ("?,t\n", "is not a finite number"),
    "row": ("1\n", "the row has 1 cells"),
    "utf-8": ("1,\xff\n", "not UTF-8"),
}


@pytest.mark.parametrize("first", BAD)
@pytest.mark.parametrize("second", BAD)
def test_the_error_is_that_of_the_first_block_that_has_one(tmp_path, monkeypatch, first, second):
    """The second fault is one or two blocks later, and so is found while the first block is still being read."""
    monkeypatch.setattr(csv_table, "_BLOCK_BYTES", 4096)
    good = "1,t\n" * 4000
    path = tmp_path / "data.csv"
    text = "x,z\n" + good + BAD[first][0] + good + BAD[second][0] + good
    path.write_bytes(text.encode("latin-1"))
    rows = 0
    with pytest.raises(DataError, match=BAD[first][1]) as caught:
        for block in encoded_blocks(path, REFUSING, label=False):
            rows += len(block.usable)
    if first == "cell":
        assert caught.value.line == 4002
        assert rows <= 4000, "rows after the error were returned first"
    assert rows > 0


def test_few_blocks_are_read_ahead_of_the_current_one(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_table, "_BATCH_ROWS", 10)
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"x": np.arange(2000.0)}), path)
    table = open_table(path)
    pulled, batches = [], table.batches

    def counted(*arguments, **options):
        for batch in batches(*arguments, **options):
            pulled.append(batch.num_rows)
            yield batch

    table.batches = counted
    for taken, block in enumerate(read_blocks(table, [X]), start=1):
        assert block.cells[X].values.tolist() == list(range(10 * taken - 10, 10 * taken))
        assert len(pulled) <= taken + 2 * processors() + 1
    assert taken == 200


HELD = """
import sys
import pyarrow as pa
from dpcore.records.encoding import WantedColumn
from radobase.tables import parquet_table, tables
parquet_table._BATCH_ROWS = 2048
wanted = [WantedColumn(f"x{i}", "numbers") for i in range(8)]
blocks = tables.read_blocks(tables.open_table(sys.argv[1]), wanted)
print(sum(block.rows for block in blocks), pa.default_memory_pool().max_memory())
"""


@pytest.mark.more
def test_arrow_holds_little_of_a_parquet_file(tmp_path):
    path = tmp_path / "data.parquet"
    random = np.random.default_rng(5)
    pq.write_table(
        pa.table({f"x{i}": random.random(200_000) for i in range(8)}),
        path,
        data_page_size=1 << 16,
        use_dictionary=False,
    )
    done = subprocess.run([sys.executable, "-c", HELD, str(path)], capture_output=True, text=True, check=True)
    rows, held = map(int, done.stdout.split())
    assert rows == 200_000
    assert 0 < held < path.stat().st_size / 2


@pytest.mark.parametrize(
    "start",
    [
        ("x\n", "1" * 1000),  # a line without end
        ("", "x," * 500),  # a header without end
        ("x,z\n", '"1\n",' * 200),  # a row of many lines
    ],
)
def test_a_row_without_end_is_refused_and_not_held(tmp_path, start):
    first, rest = start
    path = tmp_path / "rows.csv"
    path.write_text(first + rest * (16 << 10))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="a row is longer than 1 MiB"):
            open_table(path)
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size
    finally:
        tracemalloc.stop()
