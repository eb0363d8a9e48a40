"""A directory of Parquet files as one table: fixed order, partitions, one set of columns, errors with a file."""

import os
import re

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from dpcore.errors import DataError
from dpcore.records.encoding import WantedColumn
from dpcore.records.schema import Label, RealFeature, Schema
from radobase.tables.parquet_table import FileList, ParquetFiles
from radobase.tables.tables import encoded_blocks, open_table, read_blocks
from tests.federation.material import SMALL


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def rows(directory, *columns):
    batches = open_table(directory).batches(columns)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_files_are_read_in_the_order_of_their_paths(tmp_path, monkeypatch):
    for name, value in (("b/1", 3), ("a/10", 1), ("a/9", 2), ("Z", 0)):
        write(tmp_path / f"{name}.parquet", x=[value, value], y=["q", "r"])
    for ignored in ("_SUCCESS", ".hidden.parquet", "_temporary/c.parquet", "a/.crc"):
        (tmp_path / ignored).parent.mkdir(exist_ok=True)
        (tmp_path / ignored).write_text("not a table")
    expected = [(value, y) for value in range(4) for y in "qr"]
    assert rows(tmp_path, "x", "y") == expected
    assert open_table(tmp_path).rows == 8
    walk = os.walk

    def backwards(*given, **named):
        for folder, folders, files in walk(*given, **named):
            folders.sort(reverse=folders == sorted(folders))
            yield folder, folders, sorted(files, reverse=files == sorted(files))

    monkeypatch.setattr(os, "walk", backwards)
    assert rows(tmp_path, "x", "y") == expected


def test_folders_are_columns_as_arrow_writes_them(tmp_path):
    table = pa.table({"ward": ["a b", None, "c/d"], "year": [2024, 2025, 2025], "x": [1.0, 2.0, 3.0]})
    pyarrow.dataset.write_dataset(
        table, tmp_path, format="parquet", partitioning=["ward", "year"], partitioning_flavor="hive"
    )
    assert open_table(tmp_path).columns == ("x", "ward", "year")
    assert sorted(rows(tmp_path, "x", "year", "ward")) == [
        (1.0, "2024", "a b"),
        (2.0, "2025", None),
        (3.0, "2025", "c/d"),
    ]
    assert sorted(rows(tmp_path, "year")) == [("2024",), ("2025",), ("2025",)]
    wanted = [WantedColumn("year", "numbers"), WantedColumn("ward", "texts")]
    blocks = list(read_blocks(open_table(tmp_path), wanted))
    assert sorted(year for block in blocks for year in block.cells[wanted[0]].values) == [2024, 2025, 2025]
    assert sorted(text for block in blocks for text in block.cells[wanted[1]].texts if text) == ["a b", "c/d"]


def test_types_and_the_order_of_columns_may_differ(tmp_path):
    write(tmp_path / "a.parquet", x=[1, None], s=["1", "0"])
    write(tmp_path / "b.parquet", s=pa.nulls(1), x=pa.array(["0.5"]))
    wanted = [WantedColumn("x", "numbers"), WantedColumn("s", "texts")]
    first, second = read_blocks(open_table(tmp_path), wanted)
    assert (first.first_row, second.first_row) == (0, 2)
    assert second.cells[wanted[0]].values.tolist() == [0.5]
    assert second.cells[wanted[1]].codes.tolist() == [-1]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (
            {"a": {"x": [1], "y": [1]}, "b": {"x": [1]}},
            "column 'y': .*a.parquet has this column and .*b.parquet does not",
        ),
        (
            {"a": {"x": [1]}, "b": {"x": [1], "y": [1]}},
            "column 'y': .*b.parquet has this column and .*a.parquet does not",
        ),
        ({"w=1/a": {"x": [1]}, "a": {"x": [1]}}, "column 'w': .*does not; write all files with the same columns"),
        ({"x=1/a": {"x": [1]}}, "column 'x': is a column of the file and the name of a folder"),
        ({"w=1/w=2/a": {"x": [1]}}, "column 'w': two folders of a file name this column"),
        ({}, "is a directory without a .parquet or .pq file"),
    ],
)
def test_files_that_are_no_table_together_are_refused(tmp_path, files, says):
    for name, columns in files.items():
        write(tmp_path / f"{name}.parquet", **columns)
    with pytest.raises(DataError, match=says):
        open_table(tmp_path)


def test_another_file_in_the_directory_is_refused_as_it_may_hold_rows(tmp_path):
    write(tmp_path / "a.parquet", x=[1])
    (tmp_path / "b.csv").write_text("x\n2\n")
    with pytest.raises(DataError, match=re.escape("'b.csv', which is no .parquet or .pq file; move it elsewhere")):
        open_table(tmp_path)


def test_a_damaged_file_is_named(tmp_path):
    write(tmp_path / "a.parquet", x=[1])
    (tmp_path / "b.pq").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"b\.pq: is not a readable Parquet file"):
        open_table(tmp_path)


def test_an_error_names_the_file_and_its_row(tmp_path):
    write(tmp_path / "a.parquet", x=["1", "2"])
    write(tmp_path / "b.parquet", x=["3", "secret"])
    schema = Schema(
        name="s", label=Label(column="y", positive=("1",)), features=(RealFeature(name="x", lower=0, upper=9),)
    )
    with pytest.raises(DataError, match="is not a finite number") as caught:
        list(encoded_blocks(tmp_path, schema, label=False))
    assert (caught.value.file, caught.value.row) == (str(tmp_path / "b.parquet"), 2)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_added_while_the_others_are_read_is_noticed(tmp_path):
    from radobase.tables.tables import stored_blocks

    write(tmp_path / "a.parquet", x0=[0.5], s=["1"], y=["1"])
    table = open_table(tmp_path)
    assert isinstance(table, ParquetFiles)
    assert len(list(stored_blocks(table, SMALL))) == 1
    write(tmp_path / "w" / "b.parquet", x0=[0.5], s=["1"], y=["1"])
    with pytest.raises(DataError, match="changed while it was being read"):
        list(stored_blocks(table, SMALL))


def test_a_path_with_wildcards_is_the_files_that_it_matches(tmp_path):
    for name, value in (("year=2025/b", 3), ("year=2024/b", 1), ("year=2024/a", 0), ("other/c", 9)):
        write(tmp_path / f"{name}.parquet", x=[value, value])
    for ignored in ("year=2024/_part.parquet", "year=2024/.part.parquet"):
        (tmp_path / ignored).write_text("not a table")
    pattern = tmp_path / "year=*" / "*.parquet"
    assert rows(pattern, "x", "year") == [
        (x, year) for x, year in ((0, "2024"), (1, "2024"), (3, "2025")) for _ in "ab"
    ]
    assert rows(str(tmp_path / "year=202[4]" / "?.parquet"), "x") == [(0,), (0,), (1,), (1,)]
    with pytest.raises(DataError, match=r"matches no \.parquet or \.pq file"):
        open_table(tmp_path / "no*.parquet")
    table = open_table(pattern)
    write(tmp_path / "year=2025" / "c.parquet", x=[4])
    assert table.state_now() != table.state
    named = tmp_path / "x[1].parquet"
    write(named, x=[5])
    assert rows(named, "x") == [(5,)]


def test_a_list_is_read_in_its_order_and_names_each_file_once(tmp_path):
    paths = [tmp_path / "year=1" / "b.parquet", tmp_path / "a.parquet"]
    for value, path in enumerate(paths):
        write(path, x=[value, value])
    table = open_table(FileList(tuple(paths)))
    assert rows(FileList(tuple(paths)), "x") == [(0,), (0,), (1,), (1,)]
    assert (table.columns, table.rows) == (("x",), 4)
    with pytest.raises(DataError, match=r"names .*a\.parquet twice; name each file once"):
        open_table(FileList((*paths, paths[1])))
    with pytest.raises(DataError, match=r"c\.parquet: cannot be read"):
        open_table(FileList((*paths, tmp_path / "c.parquet")))
    (tmp_path / "c.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match=r"which is no \.parquet or \.pq file"):
        open_table(FileList((*paths, tmp_path / "c.csv")))
